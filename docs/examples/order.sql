create table if not exists orders (id bigint primary key, state text not null);

begin;
insert into orders (id, state) values (42, 'open');
select postdate.schedule('order.timeout', jsonb_build_object('order', 42), '15 minutes', key => 'order-42');
commit;
