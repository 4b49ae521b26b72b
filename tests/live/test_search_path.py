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
        self.assertLessEqual({'wire_table', 'wire_number', 'token_changed'}, reached)
        self.assertEqual(sorted(name for name in reached if not all(paths[name])), [])

    def test_nobody_but_the_owner_calls_what_is_not_granted(self):
        self.assertEqual(self.place().psql("select oid::regprocedure from pg_proc where pronamespace = 'postdate'::regnamespace "
                                           "and has_function_privilege('public', oid, 'execute')"), [])
