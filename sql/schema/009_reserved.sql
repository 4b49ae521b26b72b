-- Version 9: the gateway's own exchanges are no targets (core/message/reserved.h; those that only its configuration names, it refuses when due).
create or replace function postdate.check_exchange(s postdate.settings, exchange text) returns void language plpgsql stable as $$
begin
    perform postdate.check_name('exchange', exchange);
    if not (exchange like any (s.allow_like)) then
        perform postdate.refuse('exchange is not among those that delivery.allow lists', 'exchange is ' || postdate.shown(exchange) || '.',
            'Allowed are ' || left(array_to_string(s.allow, ', '), 200) || '.');
    end if;
    if (exchange = 'postdate' or starts_with(exchange, 'postdate.')) and exchange not in (s.exchange, 'postdate.delivery') then
        perform postdate.refuse('exchange is one of the gateway''s own', 'exchange is ' || postdate.shown(exchange) || '.',
            'Allowed are delivery exchanges; names that begin with "postdate." are none, but for ' || postdate.shown(s.exchange) || '.');
    end if;
end $$;
