-- Rows due up to here could be claimed before they are committed, so they are stored with a next_at.
select postdate.fence_for_store()
