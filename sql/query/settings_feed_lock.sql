select cell_exchange, cell_weight::integer from postdate.settings for update
