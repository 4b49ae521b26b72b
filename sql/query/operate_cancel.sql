select result, latest from postdate.do_cancel($1::uuid, $2::text[])
