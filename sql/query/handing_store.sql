-- $1 its id, $2 instance, $3 the ids of messages that this transaction stores as handed. Nothing, where the instance was taken over.
insert into postdate.handing (id, owner, ids) select $1::uuid, i.id, $3::uuid[] from postdate.instance i where i.id = $2::int
