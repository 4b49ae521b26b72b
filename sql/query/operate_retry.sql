select result, latest from postdate.do_retry($1::uuid, $2::text[])
