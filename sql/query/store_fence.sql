-- What is due up to here may be claimed before it is stored, and is stored with a next_at.
select postdate.fence_for_store()
