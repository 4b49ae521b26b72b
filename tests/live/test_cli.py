"""The programs' words and exit codes: 0 done, 1 some failed, 64 usage, 65 bad data, 66 not found, 69 cannot connect,
75 busy, 77 permission, 78 configuration or schema."""
import datetime
import json
import os
import re
import subprocess
import tempfile
import threading
import time
import uuid

import harness
from harness import LiveTest, now_ms, wait_until, with_path


class CliTest(LiveTest):
    """Without a gateway: the command line works on Postgres alone."""

    def fails(self, p, code, *args, says=(), **options):
        """It ends with that code, one clear line on stderr that has these words, and nothing on stdout."""
        rc, out, err = p.cli(*args, **options)
        self.assertEqual(rc, code, f'{args}: {out}{err}')
        self.assertEqual(out, '', args)
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, err, args)
        self.assertTrue(err.strip(), args)
        return err

    def runs(self, p, *args, **options):
        rc, out, err = p.cli(*args, **options)
        self.assertEqual(rc, 0, f'{args}: {out}{err}')
        return out

    def rows(self, out):
        """Objects of --json: one array, an object with messages, or one object a line."""
        out = out.strip()
        if not out:
            return []
        if out.startswith('['):
            return json.loads(out)
        return [json.loads(line) for line in out.splitlines()]


class Commands(CliTest):
    vhosts = 0

    def test_usage(self):
        p = self.place(migrate=False)
        for args in ((), ('frobnicate',), ('schedule',), ('schedule', '-k', 'k'), ('schedule', '--nonsense'),
                     ('show',), ('cancel',), ('schedule', '-k', 'k', '--delay', '1s', '--at', '2030-01-01T00:00:00Z')):
            with self.subTest(args=args):
                self.fails(p, 64, *args)
        for args in (('--help',), ('--version',), ('schedule', '--help'), ('list', '--help')):
            with self.subTest(args=args):
                self.assertTrue(self.runs(p, *args).strip())

    def test_bad_values(self):
        p = self.place()
        good = ('schedule', '-k', 'k', '--body', 'b')
        for args, word in (((*good, '--delay', 'soon'), 'soon'), ((*good, '--delay', '-5s'), '-5s'),
                           ((*good, '--at', 'tomorrow'), 'tomorrow'), ((*good, '--at', '2030-01-01T00:00:00'), '2030'),
                           (('show', 'no-id'), 'no-id'), (('cancel', 'no-id'), 'no-id'),
                           (('list', '--state', 'lost'), 'lost')):
            with self.subTest(args=args):
                rc, out, err = p.cli(*args)
                self.assertEqual(rc, 64, err)
                self.assertIn(word, err)
                self.assertEqual(out, '')
        self.fails(p, 65, *good, '--delay', '4d', says=('4d',))
        self.fails(p, 65, *good, '--at', '2999-01-01T00:00:00Z', says=('2999',))
        self.assertEqual(p.value('select count(*) from postdate.message_now'), '0')

    def test_schedule_show_list_cancel(self):
        p = self.place()
        at = now_ms()
        message_id = self.runs(p, 'schedule', '-k', 'order.cancel', '--delay', '90m', '--key', 'order-42', '--header',
                               'n=1', '--header', 'who=me', '--header', 'zero=-0', '--header', 'none=0', '--body', 'grüße').strip()
        self.assertEqual(uuid.UUID(message_id).version, 8)
        row = json.loads(self.runs(p, 'show', message_id, '--json'))
        wanted = {'id': message_id, 'key': 'order-42', 'exchange': 'postdate.delivery', 'routing_key': 'order.cancel',
                  'state': 'scheduled', 'hold': 'gateway', 'settled_at': None, 'attempts': 0, 'error': None,
                  'body': 'grüße'}
        self.assertEqual({k: row.get(k, 'absent') for k in wanted}, wanted)
        self.assertEqual(row['headers']['who'], 'me')
        self.assertEqual((row['headers']['zero'], row['headers']['none']), ('-0', 0), 'what no integer keeps is text')
        self.assertRegex(row['due_at'], r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$')
        self.assertAlmostEqual(uuid.UUID(message_id).int >> 80, at + 90 * 60_000, delta=5000 * harness.slowness())
        self.assertIn(message_id, self.runs(p, 'show', '--key', 'order-42'))
        self.assertEqual([r['id'] for r in self.rows(self.runs(p, 'list', '--json'))], [message_id])
        self.assertIn(message_id, self.runs(p, 'list'))
        self.assertEqual(self.rows(self.runs(p, 'list', '--state', 'delivered', '--json')), [])
        self.runs(p, 'cancel', message_id)
        self.assertEqual([r['id'] for r in self.rows(self.runs(p, 'list', '--state', 'cancelled', '--json'))],
                         [message_id])

    def test_at_a_time_and_bodies_from_files(self):
        p = self.place()
        due = time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(time.time() + 3600))
        with tempfile.NamedTemporaryFile() as f:
            f.write(bytes(range(256)))
            f.flush()
            from_file = self.runs(p, 'schedule', '-k', 'k', '--at', due + '.250Z', '--file', f.name).strip()
        from_stdin = self.runs(p, 'schedule', '-k', 'k', '--at', due + '+00:00', '-', stdin=b'piped').strip()
        body = "select encode(body, 'hex') from postdate.message_now where id = '%s'"
        self.assertEqual(p.value(body % from_file), bytes(range(256)).hex())
        self.assertEqual(p.value(body % from_stdin), b'piped'.hex())
        shown = json.loads(self.runs(p, 'show', from_file, '--json'))
        self.assertEqual(shown['due_at'], due + '.250Z')
        self.assertIn('body_base64', shown)
        self.fails(p, 66, 'schedule', '-k', 'k', '--delay', '1s', '--file', '/no/such/file', says='/no/such/file')

    def test_times_in_words(self):
        """Of this machine's zone, and said before anything is done."""
        p = self.place()
        env = {'TZ': 'Europe/Berlin'}
        rc, out, err = p.cli('schedule', '-k', 'k', '--body', 'x', '--key', 'late', '--at', 'tomorrow 09:00', env=env)
        self.assertEqual(rc, 0, err)
        self.assertRegex(err, r'--at tomorrow 09:00: that is 20\S+T0[78]:00:00.000Z')
        self.assertRegex(self.runs(p, 'show', '--key', 'late'), r'due +20\S+T0[78]:00:00.000Z')
        self.assertEqual(self.runs(p, 'list', '--due-before', '+2h', '--due-after', 'now'), '')
        rc, out, err = p.cli('schedule', '-k', 'k', '--body', 'x', '--at', '2020-01-01T00:00:00Z')
        self.assertEqual(rc, 0, err)
        self.assertRegex(err, r'--at is .* ago: the message is delivered at once')
        for option, value in (('--at', 'soon'), ('--at', '2030-01-01'), ('--delay', 'soon'), ('--deadline', 'never')):
            times = () if option != '--deadline' else ('--delay', '1s')
            self.fails(p, 64, 'schedule', '-k', 'k', '--body', 'x', *times, option, value, says=(option, value))
        self.fails(p, 64, 'list', '--due-after', 'soon', says=('--due-after', 'soon'))
        self.assertNotIn('that is', self.fails(p, 64, 'schedule', '-k', 'k', '--body', 'x', '--at', 'now', '--delay', '1s', says='either --delay or --at'))

    def test_a_star_in_a_routing_key_and_a_shift_with_a_key(self):
        p = self.place()
        for key in ('promo.a', 'promo.b', 'promo_c', 'other'):
            self.runs(p, 'schedule', '-k', key, '--delay', '1h', '--body', 'x', '--key', f'key-{key}')
        self.assertEqual(self.runs(p, 'list', '-k', 'promo.*').count('promo.'), 2)
        self.assertEqual(self.runs(p, 'list', '-k', 'promo_c').count('promo_c'), 1)
        self.assertEqual(self.runs(p, 'list', '-k', 'promo%'), '')
        due = json.loads(self.runs(p, 'show', '--key', 'key-other', '--json'))['due_at']
        self.assertEqual(self.runs(p, 'reschedule', '--key', 'key-other', '--shift', '1d'), '1 of 1 rescheduled\n')
        self.fails(p, 66, 'reschedule', '--key', 'no-such', '--shift', '1d', says='no-such')
        later = json.loads(self.runs(p, 'show', '--key', 'key-other', '--json'))['due_at']
        shown = self.runs(p, 'show', '--key', 'key-other')
        self.assertRegex(shown, '(?m)^changed +20')
        self.assertNotIn('created', shown)
        self.assertRegex(self.runs(p, 'show', '--key', 'key-promo.a'), '(?m)^created +20')
        self.assertEqual(datetime.datetime.fromisoformat(later[:-1]) - datetime.datetime.fromisoformat(due[:-1]), datetime.timedelta(days=1))
        self.assertEqual(self.runs(p, 'cancel', '-k', 'promo.*'), '2 of 2 cancelled\n')

    def test_what_was_probably_meant(self):
        p = self.place(migrate=False)
        self.fails(p, 64, 'chedule', says='did you mean "schedule"?')
        self.fails(p, 64, 'list', '--limt', '3', says='did you mean --limit?')
        for command, word, meant in (('rejected', 'lst', 'list'), ('retry-policy', 'shw', 'show'), ('dead', 'requue', 'requeue'), ('token', 'revok', 'revoke'),
                                     ('recur', 'prevew', 'preview')):
            self.fails(p, 64, command, word, says=f'"{word}" is unknown: did you mean "{meant}"?')
        self.fails(p, 64, 'rejected', 'frobnicate', says='specify an action: list, show, requeue or drop')
        self.fails(p, 64, 'list', '--state', 'schedled', says='"schedled" is not a state: did you mean "scheduled"?')
        self.fails(p, 64, 'list', '--state', 'xyz', says='write scheduled, claimed')
        self.fails(p, 64, 'drop-topology', '--yse', says='did you mean --yes?')
        rc, out, err = p.cli('frobnicate')
        self.assertNotIn('did you mean', err)
        self.assertEqual(p.cli('help', 'schedule'), p.cli('schedule', '--help'))
        self.assertIn('--batch', p.cli('help', 'schedule')[1])
        self.fails(p, 64, 'help', 'chedule', says='did you mean "schedule"?')
        self.fails(p, 64, 'rate', 'set', 'orders', '-1/s', says='unknown option -1 in -1/s')

    def test_list_filters_by_due_range(self):
        p = self.place()
        ids = [self.runs(p, 'schedule', '-k', f'k{h}', '--delay', f'{h}h', '--body', 'x').strip() for h in (3, 1, 2)]
        listed = [r['id'] for r in self.rows(self.runs(p, 'list', '--json'))]
        self.assertEqual(listed, [ids[1], ids[2], ids[0]], 'in due order')
        border = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() + 5400))
        after = self.rows(self.runs(p, 'list', '--due-after', border, '--json'))
        before = self.rows(self.runs(p, 'list', '--due-before', border, '--json'))
        self.assertEqual([r['id'] for r in after], [ids[2], ids[0]])
        self.assertEqual([r['id'] for r in before], [ids[1]])

    def test_status(self):
        p = self.place()
        self.runs(p, 'schedule', '-k', 'k', '--delay', '1h', '--body', 'x')
        self.assertIn('scheduled', self.runs(p, 'status'))
        status = json.loads(self.runs(p, 'status', '--json'))
        self.assertIn('1', json.dumps(status))
        self.assertIn('scheduled', json.dumps(status))
        self.assertEqual(status['findings'], [{'name': 'gateways', 'severity': 'error', 'text': 'no gateway runs'}])
        self.assertEqual(status['lateness_last_minute_ms'], {'count': 0, 'p50': None, 'p90': None, 'p99': None})
        self.assertIn('nothing was delivered in the last minute', self.runs(p, 'status'))

    def test_status_tells_lateness_and_health(self):
        p = self.place()
        late = 'insert into postdate.message (due, next_at, settled_at, id, state, hold, exchange, routing_key,' \
            " properties, body) select due, due, due + n * interval '1 ms', (lpad(to_hex((extract(epoch from due)" \
            " * 1000)::bigint), 12, '0') || lpad(to_hex(n), 20, '0'))::uuid, 'delivered', 'g', 'e', 'k', '', ''" \
            " from generate_series(1, {count}) n, (select date_trunc('second', now()) - interval '{ago} s' as due) d"
        p.value(late.format(count=500, ago=70) + ' returning 1')
        self.assertEqual(json.loads(self.runs(p, 'status', '--json'))['lateness_last_minute_ms']['count'], 0, 'too long ago')
        p.value(late.format(count=100, ago=2) + ' returning 1')
        status = json.loads(self.runs(p, 'status', '--json'))
        self.assertEqual(status['lateness_last_minute_ms'], {'count': 100, 'p50': 50, 'p90': 90, 'p99': 99})
        self.assertIn('lateness     p50 50, p90 90, p99 99 ms (100 in the last minute)', self.runs(p, 'status'))
        self.assertRegex(self.runs(p, 'status'), 'health +no gateway runs: see postdate doctor')
        id = self.runs(p, 'schedule', '-k', 'k', '--delay', '0s', '--body', 'x').strip()
        p.value(f"update postdate.message set next_at = coalesce(next_at, due), state = 'failed', settled_at = now() where id = '{id}' returning 1")
        self.assertEqual([f['text'] for f in json.loads(self.runs(p, 'status', '--json'))['findings']], ['no gateway runs', 'messages failed'])

    def test_hold(self):
        p = self.place()
        id = self.runs(p, 'schedule', '-k', 'k', '--delay', '1h', '--body', 'x', '--hold', 'broker').strip()
        self.assertEqual(json.loads(self.runs(p, 'show', id, '--json'))['hold'], 'broker')
        self.fails(p, 65, 'schedule', '-k', 'k', '--delay', '1h', '--body', 'x', '--hold', 'me', says=('hold', 'me', 'broker'))

    @harness.needs_vhosts(1)
    def test_status_names_who_waits(self):
        p = self.place()
        self.assertIn('none is running', self.runs(p, 'status'))
        p.gateway(POSTDATE_HANDOVER_TRANSPORT='ttl', POSTDATE_HANDOVER_WINDOW='1s')
        p.gateway(POSTDATE_HANDOVER_TRANSPORT='timer')
        shown = self.runs(p, 'status')
        self.assertRegex(shown, r'(?m)^health +ok$')
        for transport in ('ttl', 'timer'):
            self.assertRegex(shown, rf'\S+:\d+  alive, {transport}, started')
        gateways = json.loads(self.runs(p, 'status', '--json'))['gateways']
        self.assertEqual(sorted(g['transport'] for g in gateways), ['timer', 'ttl'])
        rest = [x for x in p.gateways if x.lines_with('transport ttl')]
        self.assertEqual(rest[0].term(), 0)
        wait_until(lambda: [g['transport'] for g in json.loads(self.runs(p, 'status', '--json'))['gateways']] == ['timer'],
                   5, 'the other one to be gone')

    @harness.needs_vhosts(1)
    def test_status_of_this_host(self):
        p = self.place()
        self.fails(p, 1, 'status', '--here', says=(f'no gateway of {os.uname().nodename} is alive',))
        gateway = p.gateway()
        self.assertEqual(self.runs(p, 'status', '--here'), f'alive: 1 of {os.uname().nodename}\n')
        others = p.session()  # newer ones, of which `status` has room for sixteen
        others.run("insert into postdate.instance (running_since, backend_pid, version, name) "
                   "select now(), pg_backend_pid(), 1, 'elsewhere:' || i from generate_series(1, 20) i")
        self.assertEqual(self.runs(p, 'status', '--here'), f'alive: 1 of {os.uname().nodename}\n')
        self.assertEqual(self.runs(p, 'status').count('elsewhere:'), 16)
        others.run('delete from postdate.instance where backend_pid = pg_backend_pid()')
        p.value("update postdate.instance set name = 'x' || name returning 1")
        self.fails(p, 1, 'status', '--here', says=('is alive',))
        self.fails(p, 64, 'status', '--here', '--json', says=('--here excludes all other options',))
        self.assertEqual(gateway.term(), 0)


class Batch(CliTest):
    vhosts = 0

    def line(self, i, **extra):
        return json.dumps(dict({'routing_key': f'k.{i}', 'delay': '1h', 'body': f'body {i}'}, **extra)) + '\n'

    def test_twenty_thousand_lines(self):
        p = self.place()
        count = 5000 if harness.SAN else 20_000
        with tempfile.NamedTemporaryFile('w') as f:
            f.writelines(self.line(i) for i in range(count))
            f.flush()
            rc, out, err = p.cli('schedule', '--batch', f.name)
        self.assertEqual(rc, 0, err)
        self.assertIn(str(count), (out + err).replace(',', '').replace(' ', ''))
        self.assertEqual(p.psql('select count(*), count(distinct routing_key), count(distinct id) '
                                'from postdate.message_now'), [[str(count)] * 3])

    def test_from_stdin_with_every_field(self):
        p = self.place()
        line = self.line(1, exchange='orders', key='k1', headers={'n': 1, 'list': [1, 'two', None]},
                         properties={'content_type': 'text/plain', 'priority': 3})
        p.run('schedule', '--batch', '-', stdin=line + self.line(2))
        row = json.loads(self.runs(p, 'show', '--key', 'k1', '--exchange', 'orders', '--json'))
        self.assertEqual((row['exchange'], row['routing_key'], row['body']), ('orders', 'k.1', 'body 1'))
        self.assertEqual((row['headers'], row['properties']['content_type'], row['properties']['priority']),
                         ({'n': 1, 'list': [1, 'two', None]}, 'text/plain', 3))

    def test_json_bodies_are_stored_as_written(self):
        p = self.place()
        bodies = ['"text"', '5', '17', '1.50', 'true', 'null', '[5]', '{"a": 5}']
        p.run('schedule', '--batch', '-', stdin=''.join(f'{{"routing_key": "k{i}", "delay": "1h", "json": {body}}}\n' for i, body in enumerate(bodies)))
        self.assertEqual(p.psql("select convert_from(body, 'UTF8') from postdate.message_now order by routing_key"), [[body] for body in bodies])

    def test_bad_lines_are_named_and_the_good_ones_stored(self):
        p = self.place()
        lines = [self.line(0), '{"routing_key": \n', self.line(2), '{"routing_key":"k","delay":"soon","body":"b"}\n',
                 '[]\n', '{"delay":"1h","body":"no key"}\n', self.line(6, surprise=1), self.line(7)]
        rc, _, err = p.cli('schedule', '--batch', '-', stdin=''.join(lines))
        self.assertEqual(rc, 1, err)
        for number in (2, 4, 5, 6):
            self.assertRegex(err, rf'\b{number}\b')
        stored = {r[0] for r in p.psql('select routing_key from postdate.message_now')}
        self.assertLessEqual({'k.0', 'k.2', 'k.7'}, stored)
        self.assertNotIn('k', stored)

    # Postgres itself looks for it: the lock is waited for no longer than a question from outside can take.
    END_WHO_WAITS = """do $$ declare ended boolean; begin
        for i in 1 .. 10000 loop
            perform pg_stat_clear_snapshot();
            select pg_terminate_backend(pid) into ended from pg_stat_activity
             where application_name = 'postdate' and wait_event_type = 'Lock' and datname = '{}';
            exit when ended;
            perform pg_sleep(0.002);
        end loop;
    end $$"""

    def test_a_session_that_dies_leaves_no_doubt_but_of_the_chunk_that_it_stored(self):
        """The next one is read by then, and not stored. With two threads, one of which reads."""
        p = self.place()
        session, other, lines = p.session(), p.session(), [self.line(i) for i in range(15_000)]
        with tempfile.TemporaryFile() as said:
            done = subprocess.Popen([os.path.join(harness.BIN_DIR, 'postdate'), 'schedule', '--batch', '-'], stdin=subprocess.PIPE,
                                    stdout=subprocess.DEVNULL, stderr=said, env=p.env())
            p.children.append(done)
            done.stdin.write(''.join(lines[:5000]).encode())
            done.stdin.flush()
            wait_until(lambda: p.value('select count(*) from postdate.message_now') == '5000', 20, 'the first chunk to be stored')
            session.run('begin')
            session.run('lock table postdate.message in share mode')
            killer = threading.Thread(target=other.run, args=(self.END_WHO_WAITS.format(p.database),))
            killer.start()
            done.stdin.write(''.join(lines[5000:]).encode())
            done.stdin.close()
            rc = done.wait(30)
            session.run('rollback')
            session.close()
            killer.join(30)
            other.close()
            said.seek(0)
            words = said.read().decode()
        self.assertEqual(rc, 69, words)
        self.assertIn('every line up to line 5000 is stored or was rejected; lines 5001 to 10000 may or may not be stored; later lines are not', words)
        self.assertEqual(p.value('select count(*) from postdate.message_now'), '5000')

    def test_no_lines_and_no_file(self):
        p = self.place()
        self.assertEqual(p.cli('schedule', '--batch', '-', stdin='')[0], 0)
        self.fails(p, 66, 'schedule', '--batch', '/no/such/file', says='/no/such/file')


class Trouble(CliTest):
    """Absent servers, wrong schema, missing permission, bad configuration: one clear line and the documented code."""

    def url(self, p, **change):
        """The place's Postgres URL with other parameters."""
        base, _, query = p.postgres.partition('?')
        pairs = dict(x.split('=', 1) for x in query.split('&'))
        pairs.update(change)
        return base + '?' + '&'.join(f'{k}={v}' for k, v in pairs.items())

    def daemon_ends(self, p, code, says, **env):
        g = p.gateway(wait=False, **env)
        self.assertEqual(g.wait(15), code, g.log())
        for word in [says] if isinstance(says, str) else says:
            self.assertIn(word, g.log())

    @harness.needs_vhosts(0)
    def test_postgres_is_absent(self):
        p = self.place(migrate=False)
        env = {'POSTDATE_POSTGRES_URL': 'postgresql:///postdate?host=/nonexistent'}
        self.fails(p, 69, 'migrate', env=env, says=('/nonexistent', 'No such file or directory; Is the server running'))

    @harness.needs_vhosts(0)
    def test_a_start_without_configuration_says_what_to_do(self):
        """As the unit's, after an installation."""
        p = self.place(migrate=False)
        nothing = {'POSTDATE_POSTGRES_URL': None, 'POSTDATE_AMQP_URL': None, 'PGHOST': '/nonexistent'}
        self.fails(p, 69, 'migrate', env=nothing, says=('no server is configured', ' in /dev/null', 'install.md'))
        rc, _, err = p.cli('migrate', env={**nothing, 'POSTDATE_AMQP_URL': p.amqp})
        self.assertEqual((rc, 'no server is configured' in err), (69, False), err)

    def test_login_and_permission_refused(self):
        p = self.place()
        role = 'nobody_' + p.database
        nobody = {'POSTDATE_POSTGRES_URL': self.url(p, user=role)}
        self.fails(p, 77, 'list', env=nobody)
        p.psql(f'create role {role} login')
        self.addCleanup(lambda: p.stack.psql(f'drop role {role}'))
        self.fails(p, 77, 'migrate', env=nobody)
        self.daemon_ends(p, 77, 'may not act as that role', **nobody)

    def test_the_broker_refuses_the_login(self):
        p = self.place()
        wrong = p.amqp.replace('guest:guest@', 'guest:sesame@')
        g = p.gateway(wait=False, POSTDATE_AMQP_URL=wrong)
        self.assertEqual(g.wait(), 77, g.log())
        refused = g.lines_with('refused')  # and not by its number, which a time may have, too
        self.assertEqual(len(refused), 2, g.log())
        self.assertRegex(refused[0], 'warn .*403 .*; trying 2 more times')
        self.assertRegex(refused[1], 'error .*403 ')
        self.assertNotIn('sesame', g.log())

    @harness.needs_vhosts(0)
    def test_a_login_that_comes_a_moment_later_is_waited_for(self):
        """As while a script beside makes the roles."""
        p = self.place(migrate=False)
        role = 'late_' + p.database
        p.psql(f'create role {role} nologin')
        self.addCleanup(p.stack.psql, f'drop role {role}')
        g = p.gateway(wait=False, POSTDATE_POSTGRES_URL=self.url(p, user=role))
        wait_until(lambda: g.lines_with('warn .*not permitted to log in; trying 2 more times'), 15, 'the refusal')
        p.psql(f'alter role {role} login')
        self.assertEqual(g.wait(), 78, g.log())
        self.assertTrue(g.lines_with('error .*postdate migrate'), g.log())

    def test_a_vhost_that_is_not_there_yet_is_waited_for(self):
        """RabbitMQ's 530 also stands for one that the user may not enter yet, and for a limit."""
        p = self.place()
        name = 'late_' + p.database
        g = p.gateway(wait=False, POSTDATE_AMQP_URL=with_path(p.amqp, name))
        wait_until(lambda: g.lines_with(f"vhost {name} not found; trying again until it works"), 15, 'it to be named')
        self.addCleanup(p.stack.rabbitmqctl, 'delete_vhost', name)
        p.stack.rabbitmqctl('add_vhost', name)
        self.assertRegex(p.cli('doctor', env={'POSTDATE_AMQP_URL': with_path(p.amqp, name)})[1], 'refused for user.*\n.*set_permissions')
        p.stack.rabbitmqctl('set_permissions', '-p', name, 'guest', '.*', '.*', '.*')
        g.wait_ready()
        self.assertEqual((len(g.lines_with('trying again')), g.term()), (1, 0), g.log())

    @harness.needs_vhosts(0)
    def test_a_database_that_does_not_exist(self):
        p = self.place(migrate=False)
        url = p.postgres.replace(p.database, 'no_such_database')
        self.fails(p, 78, 'list', env={'POSTDATE_POSTGRES_URL': url}, says='no_such_database')

    def test_help_is_sorted_and_a_beginning_is_understood(self):
        p = self.place()
        names = re.findall(r'(?m)^  ([a-z-]+) +[A-Z]', self.runs(p, '--help').split('Options:')[0])
        self.assertEqual((names, len(names)), (sorted(names), 20))
        for word, meant in (('sched', 'schedule'), ('resched', 'reschedule'), ('drop', 'drop-topology'), ('stats', 'status'), ('RETRY-P', 'retry-policy')):
            self.assertIn(f'did you mean "{meant}"?', p.cli(word)[2])
        self.assertNotIn('did you mean', p.cli('re')[2], 'several begin so')

    def test_the_schema_is_missing(self):
        p = self.place(migrate=False)
        for args in (('list',), ('status',), ('schedule', '-k', 'k', '--delay', '1s', '--body', 'b')):
            self.fails(p, 78, *args, says='postdate migrate')
        self.daemon_ends(p, 78, 'postdate migrate')

    def test_the_schema_is_newer(self):
        p = self.place()
        p.psql('update postdate.meta set version = version + 2, oldest_gateway = version + 1')
        for args in (('list',), ('migrate',)):
            self.fails(p, 78, *args, says='newer')
        self.daemon_ends(p, 78, 'newer')

    @harness.needs_vhosts(2)
    def test_a_schema_belongs_to_one_vhost(self):
        p = self.place()
        self.assertEqual(p.gateway().term(), 0)
        other = self.place(migrate=False)
        self.daemon_ends(p, 78, (p.vhost, other.vhost), POSTDATE_AMQP_URL=other.amqp)
        self.assertEqual(p.gateway().term(), 0, 'its own is still welcome')

    @harness.needs_vhosts(0)
    def test_migrate_twice_and_two_at_once(self):
        p = self.place(migrate=False)
        runs = [p.start_cli('migrate') for _ in range(3)]
        results = [(r.communicate(timeout=60), r.returncode) for r in runs]
        self.assertEqual([rc for _, rc in results], [0, 0, 0], results)
        self.runs(p, 'migrate')
        self.runs(p, 'schedule', '-k', 'k', '--delay', '1s', '--body', 'b')

    @harness.needs_vhosts(0)
    def test_what_another_migration_just_made_is_seen_whole(self):
        """No table without its schema."""
        p = self.place(migrate=False)
        with open(os.path.join(harness.ROOT, 'sql', 'query', 'migrate_meta_exists.sql'), encoding='utf-8') as f:
            exists = f.read()
        maker = p.session()
        maker.process.stdin.write("set client_min_messages = warning; do $$ begin for i in 1..1000 loop execute 'create schema postdate'; execute 'create table postdate.meta (oldest_gateway int)'; commit; "
                                  "execute 'drop schema postdate cascade'; commit; end loop; end $$; select 'made';\n")
        maker.process.stdin.flush()
        seen = p.psql('set search_path = pg_catalog; create temp table seen (schema_ boolean, table_ boolean); do $$ begin for i in 1..20000 loop '
                      f'insert into seen {exists}; end loop; end $$; select distinct * from seen order by 1')
        self.assertIn(['made'], maker.run('select'))
        self.assertEqual(seen, [['f', 'f'], ['t', 't']])


class ConfigFile(CliTest):
    def daemon(self, p, *args, **env):
        done = subprocess.run([os.path.join(harness.BIN_DIR, 'postdated'), *args], env=p.env(**env), check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30)
        err = done.stderr.decode()
        harness.check_sanitizers('postdated', err)
        return done.returncode, done.stdout.decode(), err

    def config(self, text):
        f = tempfile.NamedTemporaryFile('w', suffix='.conf')
        f.write(text)
        f.flush()
        self.addCleanup(f.close)
        return f.name

    def test_every_mistake_is_reported_with_file_and_line(self):
        p = self.place(migrate=False)
        name = self.config('[delivery]\nlead=soon\nno_such=1\n[retry]\nattempts=many\n[no_section]\nx=1\n')
        for args in (('--check-config', '-c', name), ('-c', name)):
            rc, _, err = self.daemon(p, *args)
            self.assertEqual(rc, 78, err)
            for line, word in ((2, 'soon'), (3, 'no_such'), (5, 'many')):
                self.assertRegex(err, rf'{name}:{line}:.*{word}')
            self.assertIn('no_section', err)
        rc, _, err = p.cli('list', '-c', name)
        self.assertEqual(rc, 78, err)
        self.assertIn(f'{name}:2', err)

    def test_a_good_file_and_a_missing_one(self):
        p = self.place(migrate=False)
        name = self.config('[delivery]\nlead = 250ms\n; a comment\n[route]\norders.delayed = orders\n')
        self.assertEqual(self.daemon(p, '--check-config', '-c', name)[0], 0)
        rc, _, err = self.daemon(p, '--check-config', '-c', '/no/such.conf')
        self.assertEqual(rc, 78)
        self.assertIn('/no/such.conf', err)

    def test_a_bad_environment_variable(self):
        p = self.place(migrate=False)
        rc, _, err = self.daemon(p, '--check-config', POSTDATE_DELIVERY_LEAD='later')
        self.assertEqual(rc, 78)
        self.assertIn('POSTDATE_DELIVERY_LEAD', err)
        self.assertIn('later', err)
        rc, _, err = self.daemon(p, '--check-config', POSTDATE_PORT='tcp://1.2.3.4')
        self.assertEqual(rc, 0, err)
        self.assertIn('POSTDATE_PORT', err)

    def test_the_journal_shows_why_a_start_failed_among_its_errors(self):
        p = self.place(migrate=False)
        name = self.config('[delivery]\nlead=soon\n')
        for program in (('postdate', 'migrate'), ('postdated',)):
            with tempfile.TemporaryFile() as f:
                stat = os.fstat(f.fileno())
                env = p.env(JOURNAL_STREAM=f'{stat.st_dev}:{stat.st_ino}', POSTDATE_PORT='tcp://1.2.3.4')
                done = subprocess.run([os.path.join(harness.BIN_DIR, program[0]), *program[1:], '-c', name], env=env, check=False,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=f, timeout=30)
                f.seek(0)
                lines = f.read().decode().splitlines()
            self.assertEqual(done.returncode, 78, lines)
            for priority, word in (('<3>', f'{name}:2'), ('<4>', 'POSTDATE_PORT')):
                self.assertEqual([x[:len(priority + program[0])] for x in lines if word in x], [priority + program[0]], lines)
            self.assertEqual([x for x in lines if x[:3] not in ('<3>', '<4>')], [])

    def test_daemon_usage(self):
        p = self.place(migrate=False)
        self.assertEqual(self.daemon(p, '--nonsense')[0], 64)
        for flag in ('--help', '--version'):
            rc, out, err = self.daemon(p, flag)
            self.assertEqual(rc, 0, err)
            self.assertTrue(out.strip())

    def test_the_printed_sample_is_a_valid_config(self):
        p = self.place(migrate=False)
        rc, sample, err = self.daemon(p, '--print-config-sample')
        self.assertEqual(rc, 0, err)
        rc, _, err = self.daemon(p, '--check-config', '-c', self.config(sample))
        self.assertEqual(rc, 0, err)

    def test_secrets_from_files_stay_out_of_the_log(self):
        p = self.place()
        url = p.amqp.replace('guest:guest@', 'guest:hush-hush@')
        g = p.gateway(wait=False, POSTDATE_AMQP_URL=None, POSTDATE_AMQP_URL_FILE=self.config(url + '\n'),
                      POSTDATE_LOG_LEVEL='debug')
        g.wait(15)
        self.assertNotIn('hush-hush', g.log())
        secret = self.config(p.amqp + '\n')
        g = p.gateway(POSTDATE_AMQP_URL=None, POSTDATE_AMQP_URL_FILE=secret)
        self.assertEqual(g.lines_with('every user of this machine'), [])
        os.chmod(secret, 0o644)
        g = p.gateway(POSTDATE_AMQP_URL=None, POSTDATE_AMQP_URL_FILE=secret)
        self.assertEqual(len(g.lines_with(f'{secret} holds a password, and every user of this machine may read it: chmod o-r')), 1, g.log())


@harness.not_san
class FarAhead(CliTest):
    """More than a year of daily partitions."""
    weight = 6

    def test_a_message_due_in_400_days(self):
        p = self.place(max_delay='401d')
        message_id = self.runs(p, 'schedule', '-k', 'far', '--delay', '400d', '--body', 'see you').strip()
        shown = json.loads(self.runs(p, 'show', message_id, '--json'))
        self.assertEqual((shown['state'], shown['body']), ('scheduled', 'see you'))
        p.gateway()
        c = p.client()
        inbox = p.consumer('q', bind='k')
        c.publish('far', b'amqp', {'x-delay': 400 * 86_400_000})
        c.publish('near', b'', {'x-delay': 400 * 86_400_000})
        at = now_ms()
        c.publish('k', b'now', {'x-delay': 300})
        self.assert_on_time(inbox.wait(1)[0], at, 300)
        wait_until(lambda: p.counts() == {'scheduled': 3, 'delivered': 1}, 10, 'the far ones to be stored')
        listed = self.rows(self.runs(p, 'list', '--state', 'scheduled', '--json'))
        self.assertEqual(len(listed), 3)
        self.runs(p, 'cancel', message_id)
