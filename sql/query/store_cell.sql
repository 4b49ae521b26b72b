select coalesce(cell, -1)::integer from postdate.settings
