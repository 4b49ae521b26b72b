-- Does this session act as the owner of the schema; who that is; the login.
select n.nspowner = (select r.oid from pg_roles r where r.rolname = current_user), quote_ident(pg_get_userbyid(n.nspowner)), quote_ident(session_user)
  from pg_namespace n where n.nspname = 'postdate'
