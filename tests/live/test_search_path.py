"""What views and triggers run finds nothing in schemas of others."""
import re

from harness import LiveTest, now_ms
from test_due_time import rfc3339


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


# What somebody's session, login or database may have set; each changes how text is read or written.
STRANGE = {'standard_conforming_strings': 'off', 'escape_string_warning': 'off', 'backslash_quote': 'off', 'bytea_output': 'escape',
           'extra_float_digits': '-15', 'intervalstyle': 'sql_standard', 'datestyle': 'SQL, DMY', 'timezone': 'Asia/Kathmandu',
           'quote_all_identifiers': 'on', 'transform_null_equals': 'on', 'array_nulls': 'off', 'xmloption': 'document', 'lc_numeric': 'C',
           'default_transaction_isolation': 'repeatable read', 'row_security': 'off', 'check_function_bodies': 'off', 'jit': 'off'}

CALLS = r"""
select postdate.recur_set('NAME', cron => '0  9  * *   sat,sun', zone => 'Europe/Berlin', routing_key => 'k', body => 'b', headers => '{"tenant": 1970670598291982290, "price": 10.0}');
select postdate.recur_set('NAME-2', cron => '*/7 8-10 L * *', zone => 'UTC', routing_key => 'k', body => 'b');
select postdate.rate_set('NAME_*', 12.5, routing_key => 'a_b*');
select postdate.retry_policy_set('NAME_%*', first => '1 min 2.5 s', factor => 1.25);
select postdate.schedule('k', decode('00ff5c', 'hex'), due_at => 'DUE', key => 'NAME', headers => $${"price": 10.10, "f": 1e-7, "t": "a\\b"}$$, spread => '00:00:00');
select postdate.schedule('k', '{"a": 0.1234567890123456789}'::jsonb, due_at => 'DUE', key => 'NAME-2', deadline => 'DUE');
select postdate.schedule_many($$[{"routing_key": "k", "body": "a\\b", "due_at": "DUE", "key": "NAME-3", "headers": {"f": 1.5}}]$$);
"""

STORED = """
select cron, zone, encode(body, 'hex'), content::text, nominal at time zone 'UTC' from postdate.recur where name like 'NAME%' order by name;
select replace(exchange_like, 'NAME', ''), routing_like, per_second from postdate.rate where exchange like 'NAME%';
select replace(pattern, 'NAME', ''), extract(epoch from first), factor from postdate.retry_policy where pattern like 'NAME%';
select encode(body, 'hex'), encode(properties, 'hex'), properties_json::text, due, extract(epoch from deadline) from postdate.message_now where key like 'NAME%' order by key;
"""


class CallersSettings(LiveTest):
    def test_nothing_is_stored_differently(self):
        p = self.place()
        due = rfc3339(now_ms() + 86_400_000)
        settings = ''.join(f"set {name} = '{value}'; " for name, value in STRANGE.items())
        for name, first in (('plain', ''), ('strange', settings)):
            for call in CALLS.strip().split('\n'):
                p.psql(first + 'begin; ' + call.replace('NAME', name).replace('DUE', due) + 'commit')
        plain, strange = ([p.psql(query.replace('NAME', name)) for query in STORED.strip().split('\n')] for name in ('plain', 'strange'))
        self.assertEqual([len(rows) for rows in plain], [2, 1, 1, 3])
        self.assertEqual(strange, plain)

    def test_no_text_of_ours_depends_on_how_a_backslash_is_read(self):
        """standard_conforming_strings: 'a\\b' means one thing or another, E'a\\\\b' does not."""
        p = self.place()
        sources = p.psql("select proname, replace(prosrc, chr(10), ' ') from pg_proc where pronamespace = 'postdate'::regnamespace")
        plain = re.compile(r"(?:^|[^eE'])'(?:[^'\\]|'')*\\")
        self.assertEqual([name for name, source in sources if plain.search(re.sub(r"[eE]'(?:[^'\\]|\\.|'')*'", '', source))], [])
