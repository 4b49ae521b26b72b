"""`postdate recur apply`: a file of schedules, and the database equal to it, in one transaction."""
import json
import os
import tempfile
import threading

from harness import LiveTest, wait_until
from hostile_broker import cpu_seconds

YAML = """
# schedules of the shop
schedules:
  report:
    cron: "0 9 * * mon-fri"
    zone: Europe/Berlin
    routing_key: report.daily
    json: {kind: daily, n: 1.50, list: [1, two, ~, true]}
    jitter: 30s
  tick:
    cron: '@every 90s'
    routing_key: tick
    body: |
      zwei Zeilen "ä"
      \\ ok
    headers: {n: 1, no: no}
    missed: none
  nightly:
    cron: 30 2 * * *
    routing_key: nightly
    body: ''
    paused: true
"""


class RecurApply(LiveTest):
    def setUp(self):
        super().setUp()
        self.p = self.place()
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def apply(self, text, *args, rc=0, name='schedules.yaml'):
        path = os.path.join(self.folder.name, name)
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)
        code, out, err = self.p.cli('recur', 'apply', path, *args)
        self.assertEqual(code, rc, out + err)
        return out.splitlines() if rc == 0 else err

    def names(self):
        return self.p.value("select coalesce(string_agg(name, ' ' order by name), '') from postdate.recurring")

    def show(self, name):
        return json.loads(self.p.cli('recur', 'show', name, '--json')[1])

    def test_yaml(self):
        self.assertEqual(self.apply(YAML, '--dry-run'), ['+ nightly', '+ report', '+ tick'])
        self.assertEqual((self.names(), self.p.value('select count(*) from postdate.message_now')), ('', '0'))
        self.apply(YAML)
        self.assertEqual(self.names(), 'nightly report tick')
        self.assertEqual(self.show('report')['body'], '{"kind":"daily","n":1.50,"list":[1,"two",null,true]}')
        self.assertEqual(self.show('report')['properties']['content_type'], 'application/json')
        tick = self.show('tick')
        self.assertEqual((tick['body'], tick['headers'], tick['missed'], tick['cron']), ('zwei Zeilen "ä"\n\\ ok\n', {'n': 1, 'no': 'no'}, 'none', '@every 90s'))
        self.assertTrue(self.show('nightly')['paused'])
        versions = self.p.psql('select name, version from postdate.recurring order by name')
        self.assertEqual(self.apply(YAML), [])
        self.assertEqual(self.p.psql('select name, version from postdate.recurring order by name'), versions, 'what is equal is not touched')

    def test_what_is_exported_is_what_was_set(self):
        """Numbers that no double holds stay what they are; a body of bytes, and a pause, go along."""
        self.apply(YAML)
        p = self.p
        p.psql("select postdate.recur_set('bytes', '@daily', 'k', '\\x00ff'::bytea, overlap => 'skip')")
        p.psql("select postdate.recur_set('team-x', '@daily', 'k', 'x'::text, headers => '{\"tenant\": 1970670598291982290, \"price\": 10.0}')")
        text = p.run('recur', 'export')
        self.assertEqual(sorted(json.loads(text)['schedules']), ['bytes', 'nightly', 'report', 'team-x', 'tick'])
        self.assertEqual(self.apply(text, '--dry-run', name='schedules.json'), [])
        one = p.cli('recur', 'export', '--prefix', 'team-')[1]
        self.assertEqual(list(json.loads(one)['schedules']), ['team-x'])
        self.assertRegex(one, r'"headers":\{[^}]*"tenant": ?1970670598291982290')
        self.assertRegex(one, r'"price": ?10\.0[,}]')
        before = p.psql("select name, headers, body, paused, overlap from postdate.recurring order by name")
        p.psql('select postdate.recur_remove(name) from postdate.recurring')
        self.assertEqual(json.loads(p.cli('recur', 'export')[1]), {'schedules': {}})
        self.apply(text, name='schedules.json')
        self.assertEqual(p.psql("select name, headers, body, paused, overlap from postdate.recurring order by name"), before)

    def test_what_differs(self):
        self.apply(YAML)
        self.p.psql("select postdate.recur_set('stray', '@daily', 'k', 'x'::text)")
        changed = YAML.replace('0 9 * * mon-fri', '0 8 * * mon-fri').replace('    jitter: 30s\n', '').replace('paused: true', 'paused: false')
        expected = ['~ nightly', '    paused: true -> false', '~ report', '    cron: "0 9 * * mon-fri" -> "0 8 * * mon-fri"', '    jitter: "30s" -> "0s"', '- stray']
        before = self.p.psql('select name, version from postdate.recurring order by name')
        self.assertEqual(self.apply(changed, '--dry-run'), expected)
        self.assertEqual(self.p.psql('select name, version from postdate.recurring order by name'), before)
        self.assertEqual([(x['change'], x['name'], x['fields']) for x in json.loads('\n'.join(self.apply(changed, '--dry-run', '--json')))],
                         [('~', 'nightly', ['paused']), ('~', 'report', ['cron', 'jitter']), ('-', 'stray', None)])
        self.assertEqual(self.apply(changed), expected)
        self.assertEqual((self.names(), self.show('report')['cron'], self.show('nightly')['paused']), ('nightly report tick', '0 8 * * mon-fri', False))
        self.assertIn('postdate recur (', self.p.value("select who from postdate.recurring_changes where name = 'stray' and what = 'remove'"))
        # the same expression, read otherwise; a year that has passed is no mistake in a file
        dated = YAML + '  old:\n    cron: 0 0 9 ? * 2 2020-2021\n    dialect: cron\n    routing_key: k\n    body: x\n'
        self.apply(dated)
        self.assertEqual(self.apply(dated), [])
        self.assertEqual(self.apply(dated.replace('dialect: cron', 'dialect: quartz')), ['~ old', '    dialect: "cron" -> "quartz"'])
        self.assertIsNone(self.show('old')['next_at'])
        self.assertIn('"old": cron: day of week "2" may be', self.apply(dated.replace('    dialect: cron\n', ''), rc=65))
        self.apply(changed)
        # only what begins with a prefix
        self.assertEqual(self.apply('schedules: {night-2: {cron: "@daily", routing_key: k, body: x}}', '--prefix', 'night'), ['+ night-2', '- nightly'])
        self.assertEqual(self.names(), 'night-2 report tick')
        self.assertIn('does not begin with the prefix', self.apply('schedules: {day: {cron: "@daily", routing_key: k, body: x}}', '--prefix', 'night', rc=65))
        self.assertEqual(self.apply('{"schedules": {}}'), ['- night-2', '- report', '- tick'])

    def test_json_from_stdin_and_sql(self):
        text = b'{"schedules": {"a": {"cron": "@daily", "routing_key": "k", "json": {"b" : 1.10}}}}'
        self.assertEqual(self.p.run('recur', 'apply', '-', stdin=text), '+ a\n')
        self.assertEqual(self.show('a')['body'], '{"b" : 1.10}')
        self.assertEqual(self.p.psql("""select change, name, fields from postdate.recur_apply('{"a": {"cron": "@hourly", "routing_key": "k", "body": "x"}}')"""),
                         [['~', 'a', '{body,cron,properties}']])
        # numbers of any size, as in SQL and by HTTP
        for text in ('{"schedules": {"a": {"cron": "@daily", "routing_key": "k", "json": {"id": 18446744073709551615}}}}',
                     'schedules: {a: {cron: "@daily", routing_key: k, json: {id: 18446744073709551616}}}'):
            self.assertEqual(self.apply(text)[0], '~ a')
            self.assertIn(json.loads(self.show('a')['body'])['id'], (2**64 - 1, 2**64))
        self.assertIn('"a": headers: n: the number is too large',
                      self.apply('schedules: {a: {cron: "@daily", routing_key: k, body: x, headers: {n: 18446744073709551616}}}', rc=65))

    def test_what_is_wrong_changes_nothing(self):
        self.apply(YAML)
        before = self.p.psql('select name, version from postdate.recurring order by name')
        good = '{cron: "@daily", routing_key: k, body: x}'
        for text, *words in (
                ('', 'there is nothing'), ('null', 'the file is no object', '"schedules"'), ('- a', 'the file is no object'), ('5', 'the file is no object'),
                ('schedules: {a: {cron: "@daily", routing_key: k, body: "x\\0"}}', 'line 1', 'zero byte'), ('schedules:\n  "a\\0": ' + good, 'line 2', 'zero byte'),
                ('schedules:\n  a: ' + good + '\n  a: ' + good, 'duplicate object key', '"a"'),
                ('schedules:\n  a: {cron: "@daily", cron: "@daily", routing_key: k, body: x}', 'duplicate object key', '"cron"'),
                ('schedules: {a: {cron: "@daily", routing_key: k, body: x, colour: red}}', '"a": recur: colour is no field', 'paused'),
                ('schedules: {b: ' + good + ', a: {cron: "0 25 * * *", routing_key: k, body: x}}', '"a": cron: hour "25" is out of range', '"23"'),
                ('schedules: {a: {cron: "@daily", routing_key: k}}', '"a": recur: the body is missing'),
                ('schedules: {a: {cron: "@daily", routing_key: k, body: 5}}', 'body is no string'),
                ('schedules: {a: {cron: "@daily", routing_key: k, body: x, paused: "yes"}}', 'paused is neither'),
                ('schedules: {a b: ' + good + '}', 'the name is not allowed'),
                ('schedules: {a: x}', 'the schedule is no object'), ('schedules: [1]', 'the schedules are no object'), ('{}', 'the schedules are no object'),
                ('schedules: {}\nmore: 1', 'more is no field'),
                ('schedules:\n  a: {cron: @daily}', 'line 2', 'token'),
                ('schedules:\n  a: &x ' + good + '\n  b: *x', 'line 3', 'aliases'), ('schedules: !!map {}', 'line 1', 'tags'), ('--- {}\n--- {}', 'second document'),
                ('schedules: ' + '[' * 100, 'nested too deep'), ('schedules: {? [a] : b}', 'a name is no text'), ('{"schedules": {"a": 1,}}', 'line 1')):
            err = self.apply(text, rc=65)
            for word in words:
                self.assertIn(word, err, text)
            self.assertEqual(self.p.psql('select name, version from postdate.recurring order by name'), before, text)
        self.assertIn('one file', self.p.cli('recur', 'apply')[2])
        self.assertEqual(self.p.cli('recur', 'apply', '/nonexistent')[0], 66)
        self.assertEqual(self.p.cli('recur', 'apply', 'a', '--cron', 'x')[0], 64)

    def test_what_has_ended(self):
        """A file is kept for long: a schedule whose time is over is no mistake in it, on a fresh database or after a change."""
        text = 'schedules: {a: {cron: "0 9 * * *", routing_key: k, body: %s, until: "%s"}}'
        self.assertEqual(self.apply(text % ('x', '2020-01-01T00:00:00Z'), '--dry-run'), ['+ a'])
        self.assertEqual(self.apply(text % ('x', '2020-01-01T00:00:00Z')), ['+ a'])
        self.assertEqual((self.show('a')['next_at'], self.p.value('select count(*) from postdate.message_now')), (None, '0'))
        self.assertEqual(self.apply(text % ('x', '2020-01-01T00:00:00Z')), [])
        self.assertEqual(self.apply(text % ('y', '2020-01-01T00:00:00Z')), ['~ a', '    body: "x" -> "y"'])
        self.assertEqual(self.apply(text % ('y', '2099-01-01T00:00:00Z'))[0], '~ a')
        self.assertIsNotNone(self.show('a')['next_at'])
        # what never comes until then is one
        self.assertIn('never run', self.apply('schedules: {b: {cron: "0 0 1 1 *", routing_key: k, body: x, from: "2098-02-01T00:00:00Z", until: "2098-03-01T00:00:00Z"}}', '--dry-run', rc=65))

    def one_of(self, *names, body='x'):
        return json.dumps({name: {'cron': '@daily', 'routing_key': 'k', 'body': body} for name in names})

    def waits(self):
        """Somebody waits for a lock."""
        wait_until(lambda: self.p.value("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == '1', 20, 'who waits')

    def test_two_at_once(self):
        """One after the other: what holds is the last file, not a mixture of both."""
        p, s = self.p, self.p.session()
        self.addCleanup(s.close)
        s.run('begin')
        s.run(f"select from postdate.recur_apply('{self.one_of('a', 'b')}')")
        changes = []
        other = threading.Thread(target=lambda: changes.extend(p.psql(f"select change, name from postdate.recur_apply('{self.one_of('b', 'c', body='y')}')")))
        other.start()
        self.waits()
        self.assertEqual(self.apply('schedules: {d: {cron: "@daily", routing_key: k, body: x}}', '--dry-run'), ['+ d'], 'a dry run waits for nobody')
        s.run('commit')
        other.join()
        self.assertEqual(changes, [['-', 'a'], ['~', 'b'], ['+', 'c']])
        self.assertEqual(self.names(), 'b c')
        # by the command line: it does not wait for ever
        s.run('begin')
        s.run(f"select from postdate.recur_apply('{self.one_of('a')}')")
        self.assertIn('try again', self.apply('schedules: {d: {cron: "@daily", routing_key: k, body: x}}', rc=75))
        s.run('rollback')
        self.assertEqual(self.names(), 'b c')

    def test_removed_while_it_is_set(self):
        """Whoever changes a schedule that another one has locked, and then removes, makes it."""
        p, s = self.p, self.p.session()
        self.addCleanup(s.close)
        for way in ("postdate.recur_set('a', '@daily', 'k', 'new'::text)", f"postdate.recur_apply('{self.one_of('a', body='new')}')"):
            p.psql("select postdate.recur_set('a', '@hourly', 'k', 'old'::text)")
            s.run('begin')
            s.run("select from postdate.recur where name = 'a' for update")
            errors = []
            def change(way=way, errors=errors):
                try:
                    p.psql(f'select {way}')
                except Exception as e:  # pylint: disable=broad-except
                    errors.append(str(e))
            other = threading.Thread(target=change)
            other.start()
            self.waits()
            s.run("select postdate.recur_remove('a')")
            s.run('commit')
            other.join()
            self.assertEqual(errors, [])
            self.assertEqual((self.show('a')['cron'], self.show('a')['body']), ('@daily', 'new'))
            self.assertEqual(p.value("select count(*) from postdate.message_now where state = 'scheduled'"), '1')

    def test_a_large_file(self):
        """Time grows with the file, not with its square."""
        p, s = self.p, self.p.session()
        self.addCleanup(s.close)
        pid, spent_s = int(s.run('select pg_backend_pid()')[0][0]), []
        for count in (200, 800):
            s.run(f"create temp table t{count} as select json_object_agg('s' || i, json_build_object('cron', '@daily', 'routing_key', 'k', 'body', "
                  f"repeat('x', 5000))) as file from generate_series(1, {count}) i")
            s.run(f'select count(*) from (select postdate.recur_apply(file) from t{count}) x')
            self.assertEqual(p.value('select count(*) from postdate.recur'), str(count))
            before_s = cpu_seconds(pid)
            self.assertEqual(s.run(f'select count(*) from (select postdate.recur_apply(file) from t{count}) x'), [['0']], 'nothing differs')
            spent_s.append(cpu_seconds(pid) - before_s)
        print(f'note recur apply: {spent_s[0]:.2f} s of processor time for 200, {spent_s[1]:.2f} s for 800', flush=True)
        self.assertLess(spent_s[1], 8 * spent_s[0] + 0.2)  # its square: 16 times as much

    def test_null_is_what_is_left_out(self):
        p = self.p
        self.assertEqual(p.psql(f"select change, name from postdate.recur_apply('{self.one_of('a')}', null, null)"), [['+', 'a']])
        self.assertEqual(p.psql("select change, name from postdate.recur_apply('{}', null)"), [['-', 'a']])
        self.assertEqual(self.names(), '')
