update postdate.settings set cell = $1::integer where cell is null
