select name from postdate.partition where is_month_table and attached and name = 'message_month_' || substr($1::text, 9, 6)
