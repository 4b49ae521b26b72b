-- As operate_cancel, of the message that has key $2 in exchange $1; $3 scope. No row: there is none.
select o.result, o.latest
  from postdate.key k cross join lateral postdate.do_cancel(k.id, $3::text[]) o
 where k.exchange = $1::text and k.key = $2::text and ($3::text[] is null or k.exchange = any ($3::text[]))
