-- Claims $1, locked by this transaction, wait again. They stay `claimed`: their publish may have begun. $2, $3: bounds of these ids
-- (prune partitions). $4: their instance; null: who owns them is looked up once more, for another gateway may have let them go, and a new
-- one have claimed them, while the lock was sought.
-- What was claimed to be handed over is due in more than a second: the broker may have it, and then the relay delivers it on time and settles it. It is tried a little later, or it would come twice.
update postdate.message m set owner = null, next_at = next_at + case when hold = 'b' and next_at > clock_timestamp() + interval '1 s' then interval '1.5 s' else interval '0' end
 where m.id = any ($1::uuid[]) and m.id >= $2::uuid and m.id < $3::uuid
   and (m.owner is not distinct from $4::int
        or $4::int is null and not exists (select from postdate.instance i where i.id = m.owner))
