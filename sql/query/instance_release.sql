-- Claims $1, locked by this transaction, wait again. They stay `claimed`: their publish may have begun. $2, $3: bounds of these ids
-- (prune partitions). $4: their instance; null: who owns them is looked up once more, for another gateway may have let them go, and a new
-- one have claimed them, while the lock was sought.
update postdate.message m set owner = null
 where m.id = any ($1::uuid[]) and m.id >= $2::uuid and m.id < $3::uuid
   and (m.owner is not distinct from $4::int
        or $4::int is null and not exists (select from postdate.instance i where i.id = m.owner))
