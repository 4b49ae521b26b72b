select postdate.retry_policy_remove($1::text)
