select array_to_string(postdate.roles_ensure(), ',')
