"""What views and triggers run finds nothing in schemas of others."""
import re

from harness import LiveTest


class SearchPath(LiveTest):
    def test_what_views_and_triggers_reach(self):
        p = self.place()
        bodies, paths = {}, {}
        for name, source, settings in p.psql("select proname, replace(prosrc, chr(10), ' '), coalesce(proconfig::text, '') from pg_proc where pronamespace = 'postdate'::regnamespace"):
            bodies[name] = bodies.get(name, '') + ' ' + source
            paths.setdefault(name, []).append('"search_path=pg_catalog, pg_temp"' in settings)
        seen = [' '.join(row[0] for row in p.psql("set search_path = pg_catalog; select replace(pg_get_viewdef(oid), chr(10), ' ') from pg_class where relkind = 'v' and relnamespace = 'postdate'::regnamespace"))]
        seen += [f'postdate.{row[0]}(' for row in p.psql("select proname from pg_trigger t join pg_proc f on f.oid = tgfoid where pronamespace = 'postdate'::regnamespace")]
        reached = set()
        while seen:
            for name in re.findall(r'\bpostdate\.(\w+)\(', seen.pop()):
                if name in bodies and name not in reached:
                    reached.add(name)
                    seen.append(bodies[name])
        self.assertLessEqual({'wire_table', 'wire_number', 'forecast_note', 'token_changed'}, reached)
        self.assertEqual(sorted(name for name in reached if not all(paths[name])), ['forecast_note'])

    def test_a_trigger_without_a_path_of_its_own_names_everything_with_its_schema(self):
        p = self.place()
        p.psql("create schema evil; "
               "create function evil.floor(numeric) returns numeric language sql as 'select 1 / 0.0'; create function evil.hurt(numeric, int) returns numeric language sql as 'select 1 / 0.0';"
               "create function evil.hurt(pg_catalog.text, pg_catalog.text) returns boolean language sql as 'select 1 / 0 = 1';"
               "create operator evil./ (leftarg = numeric, rightarg = int, function = evil.hurt); create operator evil.= (leftarg = pg_catalog.text, rightarg = pg_catalog.text, function = evil.hurt)")
        row = ("insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body) select d, d, postdate.id_make(d), 'g', 'x', 'k', '', '' "
               "from (select now() + interval '1 hour') x (d)")
        p.psql(f'set search_path = evil, pg_catalog; {row}; reset search_path')
        self.assertEqual(p.value("select n[1] || ' ' || exchanges[1] from postdate.forecast_change"), '1 x')

    def test_nobody_but_the_owner_calls_what_is_not_granted(self):
        self.assertEqual(self.place().psql("select oid::regprocedure from pg_proc where pronamespace = 'postdate'::regnamespace "
                                           "and has_function_privilege('public', oid, 'execute')"), [])
