select postdate.claim_pass($1::timestamptz)
