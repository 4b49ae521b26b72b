select cell::integer from postdate.settings
