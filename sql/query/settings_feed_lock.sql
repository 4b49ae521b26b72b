-- The weight that was bound to exchange $1; -1: unknown.
select case when cell_exchange = $1::text then cell_weight else -1 end::integer from postdate.settings for update
