-- Findings of how the work goes, in the words and the order of who asks: $1 is doctor, status or overview (whose severities are error and warn, and whose names are the same). $2: lease of gateways, ms.
-- What was counted: messages that are overdue ($3; $4: for how long, as text, empty where that is short), that failed ($5), that wait for another attempt ($6); are days locked ($7), is
-- there no space left ($8); schedules that leave out occurrences ($9), those ($10) and the first of them ($11); schedules that are paused ($12), the first ($13); rates that are
-- paused ($14), what they keep ($15), the exchange of the first ($16).
with g as materialized (
    select i.id, postdate.instance_lives(i, $2::bigint) as alive, i.broker_away, left(nullif(i.program, ''), 63) as program from postdate.instance i),
v as (
    select count(*) as versions, coalesce(string_agg(program, ', ' order by first), '') as version
      from (select program, min(id) as first from g where alive and program is not null group by program) p),
f as (
    select v.*, (select count(*) from g where alive) as alive, exists (select from g where not alive) as dead, exists (select from g where alive and broker_away) as away,
           h.lost_found is not null as went_back, h.lost_found is not null and coalesce(clock_timestamp() < h.look_until, false) as is_back, postdate.recur_time_shown(h.lost_from) as lost_from,
           postdate.recur_time_shown(h.lost_to) as lost_to, postdate.recur_time_shown(h.look_until) as look_until,
           case when h.lost_due is null then 'how many messages were due then could not be counted'
                else format('%s%s messages were due then', case when h.lost_due >= 100000 then 'at least ' end, h.lost_due) end as lost_due
      from v, postdate.history h)
select t.status, t.name, t.detail, t.remedy
  from f, lateral (values
       ('status', alive = 0, 'error', 'gateways', 'no gateway runs', ''),
       ('status', away, 'error', 'broker', 'RabbitMQ is unavailable', ''),
       ('status', versions > 1, 'warn', 'gateways.versions', 'gateways run different versions', ''),
       ('status', $3::int8 > 0, 'error', 'messages.overdue', 'messages are overdue', ''),
       ('status', $8::bool, 'error', 'database.space', 'PostgreSQL has no space left on its disk', ''),
       ('status', $5::int8 > 0, 'warn', 'messages.failed', 'messages failed', ''),
       ('status', $6::int8 > 0, 'warn', 'messages.retrying', 'messages cannot be delivered and are tried again', ''),
       ('status', $7::bool, 'warn', 'locked_days', 'days are locked', ''),
       ('status', is_back, 'warn', 'database.history', 'the database went back', ''),
       ('overview', $3 > 0, 'error', 'messages.overdue', 'messages are overdue', 'run `postdate doctor`'),
       ('overview', $6 > 0, 'warn', 'messages.retrying', 'messages were rejected, or may have been delivered, and wait for another attempt',
        '`postdate list --retrying` has the errors'),
       ('overview', $5 > 0, 'warn', 'messages.failed', 'messages failed', '`postdate list --state failed` has the reasons; then `postdate retry`'),
       ('overview', is_back, 'warn', 'database.history', 'the database went back, as after a restore or the promotion of a standby that lagged',
        '`postdate doctor` reports from when to when; see Restore in docs/operations.md'),
       ('overview', $9::int8 > 0, 'warn', 'recurring.behind', 'schedules leave out occurrences because the previous one is not done',
        '`postdate recur list` names them; `postdate recur show NAME` shows that message'),
       ('overview', dead, 'warn', 'gateways.stopped', 'a gateway stopped unexpectedly', 'start it again; other gateways take over its messages'),
       ('overview', versions > 1, 'warn', 'gateways.versions', 'gateways run different versions: ' || version,
        'finish the upgrade: install the same version everywhere, and restart the others one by one'),
       ('doctor', versions > 1, 'warn', 'gateways', format('%s alive, of different versions: %s', alive, version),
        'finish the upgrade: install the same version on each machine, then systemctl restart postdated, one after the other; postdate status has the version of each'),
       ('doctor', versions <= 1 and alive > 0, 'ok', 'gateways', format('%s alive%s', alive, ', version ' || nullif(version, '')), ''),
       ('doctor', alive = 0, 'warn', 'gateways', 'none is ready: messages that gateways hold are not delivered',
        'systemctl start postdated (or start postdated yourself); one that has just started may wait for RabbitMQ, or have ended: see its log'),
       ('doctor', $4 = '', 'ok', 'messages.overdue', 'none for more than 10 s', ''),
       ('doctor', $4 <> '', 'warn', 'messages.overdue', format('%s, the oldest for %s', $3, $4),
        'is a gateway running, and is RabbitMQ reachable? If so, the gateways'' log has the reason'),
       ('doctor', $5 = 0, 'ok', 'messages.failed', 'none', ''),
       ('doctor', $5 > 0, 'warn', 'messages.failed', format('%s%s could not be delivered', case when $5 >= 1000000 then 'at least ' end, $5),
        'postdate list --state failed; postdate show ID has the reason'),
       ('doctor', not went_back, 'ok', 'database.history', 'the database never went back', ''),
       ('doctor', went_back and not is_back, 'ok', 'database.history', format('it went back once, from %s to %s', lost_to, lost_from), ''),
       ('doctor', is_back, 'warn', 'database.history',
        format('the database went back from %s to %s, as after a restore or the promotion of a standby that lagged: messages accepted in between are lost, except those that '
               'RabbitMQ holds; cancellations are undone; delivered messages may be delivered again (%s); messages that RabbitMQ releases are looked up first until %s',
               lost_to, lost_from, lost_due, look_until),
        'see docs/operations.md, Restore'),
       ('doctor', $9 = 0, 'ok', 'recurring.behind', 'no schedule leaves out an occurrence', ''),
       ('doctor', $9 > 0, 'warn', 'recurring.behind',
        format('%s schedules left out %s occurrences because the previous one is not done; the first: ''%s''', $9, $10::int8, $11::text),
        format('postdate recur show ''%s'' shows that message: retry, cancel, requeue or drop it, or set the schedule with --overlap allow', $11)),
       ('doctor', $12::int8 > 0, 'ok', 'recurring.paused', format('%s, the first: ''%s''', $12, $13::text), ''),
       ('doctor', $14::int8 > 0, 'ok', 'rates.paused', format('%s, which keep %s messages; the first: exchange ''%s''', $14, $15::int8, $16::text), '')
       ) t (door, found, status, name, detail, remedy)
 where t.door = $1::text and t.found
