"""`postdate import plugin`: what waits in the delayed-message plugin, or in its double, which keeps the same tables, comes out of
Postdate: each message once, with its content, at its time. What was published is noted here, outside of both."""
import fcntl
import hashlib
import json
import os
import random
import shlex
import stat

import pika

import harness
from handover_kit import LOSE_DELAYED
from harness import place
from harness import LiveTest, Stack, now_ms, wait_until

SHIM = os.path.join(harness.ROOT, 'build', 'tests', 'shim.so')
TYPES = ('direct', 'topic', 'fanout', 'headers')
ALL_HEADERS = {'text': 'é', 'number': 7, 'large': 1 << 40, 'negative': -3, 'yes': True, 'nothing': None, 'list': [1, 'two', {'three': 3}],
               'table': {'a': {'b': [b'\x00\xff']}}, 'n': 1}

# As Debian's rabbitmqctl does for root: a shell reads the arguments again.
DEBIAN = """#!/bin/sh
for arg in "$@" ; do
\targ=$(sed -e 's/"/\\\\"/g' <<-END
\t\t$arg
\t\tEND
\t)
\tCMDLINE="${{CMDLINE}} \\"${{arg}}\\""
done
exec sh -c "'{real}' ${{CMDLINE}}"
"""
# Ways to do something around one call of rabbitmqctl: $1 is the number of the call, its answer is in $answer.
RABBITMQCTL = """#!/bin/sh
count=$(($(cat '{folder}/calls' 2>/dev/null || echo 0) + 1))
echo $count >'{folder}/calls'
answer='{folder}/answer'
[ $count != {at} ] || {{ {before}; }}
'{real}' "$@" >"$answer"
code=$?
[ $count != {at} ] || {{ {after}; }}
cat "$answer"
exit $code
"""
# From here on no key of the index leads to what waits.
LOSE_KEYS = ('I = list_to_atom("rabbit_delayed_message" ++ atom_to_list(node()) ++ "_index"), '
             '[mnesia:dirty_delete(I, K) || K <- mnesia:dirty_all_keys(I)], ok.')
# The plugin's tables into a file, and from there: as a copy of the node's disk.
TABLES = 'T = list_to_atom("rabbit_delayed_message" ++ atom_to_list(node())), L = [T, list_to_atom(atom_to_list(T) ++ "_index")], '
SAVE = TABLES + 'ok = file:write_file("{path}", term_to_binary([{{N, ets:tab2list(N)}} || N <- L])), ok.'
RESTORE = TABLES + '[mnesia:clear_table(N) || N <- L], {{ok, B}} = file:read_file("{path}"), ' \
    '[mnesia:dirty_write(N, R) || {{N, Rs}} <- binary_to_term(B), R <- Rs], ok.'


class ImportTest(LiveTest):
    """On servers of its own: `rabbitmqctl` is about a whole node."""
    vhosts = 0
    together = 'import'
    transport = 'timer'
    program = 'rabbitmqctl'  # or 'rabbitmqctl-eval': as that says it, in no time

    @classmethod
    def setUpClass(cls):
        cls.servers = Stack.own(cls.addClassCleanup, cls.together.replace(' ', '-')).start()
        cls.ctl = os.path.join(cls.servers.directory, 'rabbitmqctl-debian')
        cls.write_script(cls.ctl, DEBIAN.format(real=os.path.join(cls.servers.directory, cls.program)))
        cls.servers.make_vhosts([f'{cls.__name__.lower()}{i}' for i in range(36)])

    @staticmethod
    def write_script(path, text):
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)
        os.chmod(path, stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)

    def setUp(self):
        self.servers.need_plugin()
        self.servers.rabbitmqctl('eval', LOSE_DELAYED)
        self.p = harness.Place(self.servers, transport='timer')
        self.places = [self.p]
        self.addCleanup(self.p.close, drop=False)
        self.c = self.p.client()
        self.due = {}
        self.maps = []

    def exchange(self, kind='topic', old='old', new='new', queue='work', key='#'):
        """An exchange of the plugin, its successor, and a queue that is bound to the successor."""
        arguments = {'x-match': 'any', 'n': 1} if kind == 'headers' else None
        self.c.channel.exchange_declare(old, 'x-delayed-message', durable=True, arguments={'x-delayed-type': kind})
        self.c.channel.exchange_declare(new, kind, durable=True)
        self.c.channel.queue_declare(queue, durable=True)
        self.c.channel.queue_bind(queue, new, key, arguments)
        self.maps += ['--exchange', f'{old}={new}']

    def publish(self, body, delay_ms, exchange='old', key='k', headers=None, **properties):
        body = body.encode() if isinstance(body, str) else body
        self.due[body] = now_ms() + delay_ms
        self.c.publish(key, body, {'x-delay': delay_ms, **(headers or {})}, exchange=exchange, **properties)

    def waiting(self):
        """In the plugin: of this vhost; and entries that are no messages."""
        out = self.servers.rabbitmqctl('eval', f"""
            T = list_to_atom("rabbit_delayed_message" ++ atom_to_list(node())), I = list_to_atom(atom_to_list(T) ++ "_index"),
            V = <<"{self.p.vhost}">>, Mine = fun({{delay_key, D, X}}) -> is_integer(D) andalso element(2, element(2, X)) =:= V end,
            L = ets:tab2list(T), [length([K || {{_, K, _, _}} <- L, Mine(K)]), length([K || {{_, K, _}} <- ets:tab2list(I), Mine(K)]),
            length([1 || {{_, {{_, {{postdate, _, _}}, _}}, _, _}} <- L])].""")
        messages, keys, marks = json.loads(out)
        self.assertEqual(messages == 0, keys == 0, 'keys of the index without entries, or the other way round')
        return messages, marks

    def run_import(self, *args, env=None, expect=0, timeout=120):
        env = {'RABBITMQCTL': self.ctl, **(env or {})}
        rc, out, err = self.p.cli('import', 'plugin', *self.maps, '--margin', '1s', *args, env=env, timeout=timeout)
        self.assertEqual(rc, expect, out + err)
        return out, err

    def assert_arrive(self, inbox, late_ms=3000):
        inbox.wait(len(self.due), 120)
        self.assertEqual(sorted(m.body[:40] for m in inbox.all()), sorted(b[:40] for b in self.due), 'each once')
        for m in inbox.all():
            self.assertGreaterEqual(m.at_ms, self.due[m.body], f'{m.body[:40]!r} was early')

    def assert_come_along(self):
        """All of them, due in an hour, wait in the gateway; what is due in the plugin would leave it while a busy machine takes its time."""
        wait_until(lambda: self.p.counts() == {'scheduled': len(self.due)}, 10, 'all to be stored')
        self.p.run('reschedule', '--exchange', 'new', '--shift=-1h')
        self.due = {body: ms - 3_600_000 for body, ms in self.due.items()}
        self.assert_arrive(self.p.consumer('work'))


class Import(ImportTest):
    weight = 60
    time_limit_s = 200

    def test_messages_come_along_and_arrive_once_at_their_time(self):
        self.exchange()
        for i in range(30):
            self.publish(f'm {i}', 30_000 * max(2, harness.slowness() ** 2) + 10 * i)
        self.publish('soon', 900)
        proof = os.path.join(self.servers.directory, 'proof.jsonl')
        out, _ = self.run_import('--proof', proof, '--batch', 7)
        self.assertRegex(out, r'(?m)^old +new +30 +30 +0 +0$')
        self.assertEqual(self.waiting(), (0, 0))
        with open(proof, encoding='utf-8') as f:
            lines = [json.loads(line) for line in f]
        self.assertEqual((len(lines), list(lines[-1])), (32, ['end']))
        self.assertEqual(lines[-2]['count'] | {'node': ''}, {'node': '', 'from': 'old', 'read': 30, 'stored': 30, 'refused': 0, 'left': 0})
        self.p.gateway()
        del self.due[b'soon']  # the plugin had it, and nothing is bound there
        self.assert_arrive(self.p.consumer('work'))
        rc, out, err = self.p.cli('import', 'verify', proof)
        self.assertEqual((rc, err), (0, ''))
        self.assertRegex(out, r'(?m)^delivered +30$')

    def test_content_is_as_it_was(self):
        for kind in TYPES:
            self.exchange(kind, f'old.{kind}', f'new.{kind}', key='k' if kind == 'direct' else '#')
        self.c.channel.queue_bind('work', 'new.direct', 'copied')
        properties = {'content_type': 'text/x', 'content_encoding': 'e', 'priority': 3, 'correlation_id': 'c', 'reply_to': 'r', 'message_id': 'i',
                      'timestamp': 1234567890, 'type': 't', 'app_id': 'a', 'expiration': '600000'}
        ahead_ms = 30_000 * harness.slowness() ** 2  # what is due in the plugin leaves it
        for kind in TYPES:
            self.publish(f'all {kind}', ahead_ms, f'old.{kind}', headers=ALL_HEADERS, **properties)
        self.publish('', ahead_ms, 'old.fanout')
        self.publish(b'\x00\xff' * (1 << 19), ahead_ms, 'old.topic')
        self.publish('transient', ahead_ms, 'old.topic', delivery_mode=1)
        self.publish('cc', ahead_ms, 'old.direct', key='nowhere', headers={'CC': ['copied']})
        self.publish('bcc', ahead_ms, 'old.direct', key='nowhere', headers={'BCC': ['copied'], 'CC': ['nowhere, either']})
        self.publish('of a user', ahead_ms, 'old.topic', user_id='guest')
        self.run_import()
        self.p.gateway()
        inbox = self.p.consumer('work')
        self.assert_arrive(inbox)
        got = {m.body: m for m in inbox.all()}
        for kind in TYPES:
            m = got[f'all {kind}'.encode()]
            own = {k: v for k, v in m.headers.items() if not k.startswith('x-postdate-')}
            self.assertEqual(own, {**ALL_HEADERS, 'x-delay': -ahead_ms})
            self.assertEqual({k: getattr(m.properties, k) for k in properties}, properties)
            self.assertEqual((m.exchange, m.routing_key, m.properties.delivery_mode), (f'new.{kind}', 'k', 2))
        self.assertEqual(got[b'transient'].properties.delivery_mode, 1)
        self.assertEqual(got[b'cc'].headers['CC'], ['copied'])
        self.assertNotIn('BCC', got[b'bcc'].headers)
        self.assertEqual(got[b'of a user'].headers['x-postdate-user-id'], 'guest')

    def test_a_dry_run_changes_nothing_and_says_what_cannot_come_along(self):
        self.exchange()
        env = {'POSTDATE_INTAKE_MAX_BODY': '1KiB'}
        self.publish('good', 3_600_000)
        self.publish(b'x' * 2000, 3_600_000)
        self.publish('far', 4 * 86_400_000)
        for _ in range(2):
            out, err = self.run_import('--dry-run', env=env, expect=1)
            self.assertRegex(out, r'(?m)^20\d\d-\d\d-\d\dT\d\d:00 +2  old$')
            self.assertRegex(out, r'(?m)^old +new +3 +1 +2 +0$')
            self.assertIn('1 of old: the body is larger than 1024 bytes (intake.max_body)', err)
            self.assertIn('1 of old: it is due in more than 3d (delivery.max_delay)', err)
            self.assertEqual(self.waiting(), (3, 0))
        out, err = self.run_import(env=env, expect=1)
        self.assertRegex(out, r'(?m)^old +new +3 +1 +2 +0$')
        self.assertEqual(self.waiting(), (2, 0))
        self.assertEqual(self.p.counts(), {'scheduled': 1})

    def test_what_is_wrong_with_the_command_is_said_before_anything_is_done(self):
        self.exchange()
        self.publish('m', 3_600_000)
        maps, self.maps = self.maps, []
        self.assertIn('add --exchange old=NEW', self.run_import(expect=64)[1])
        self.maps = ['--exchange', 'old=nowhere']
        self.assertIn('exchange "nowhere" does not exist', self.run_import(expect=66)[1])
        self.maps = ['--exchange', 'old=postdate.delayed']
        self.assertIn("is one of Postdate's own", self.run_import(expect=78)[1])
        self.maps = maps
        self.assertIn('is not in delivery.allow', self.run_import(env={'POSTDATE_DELIVERY_ALLOW': 'x.*'}, expect=78)[1])
        self.assertIn('/nowhere cannot be run here', self.run_import(env={'RABBITMQCTL': '/nowhere'}, expect=66)[1])
        rc, _, err = self.p.cli('import', 'plugin', '--exchange', 'old')
        self.assertEqual(rc, 64)
        self.assertIn('is not OLD=NEW', err)
        self.assertEqual(self.waiting(), (1, 0))

    def test_stuck_ones_that_are_refused_hide_no_others(self):
        """They stay, and are no end of the others, which are read behind them."""
        self.exchange()
        for i in range(5):
            self.publish(b'%d' % i + b'x' * 2000, 3_600_000 + i)
        for i in range(4):
            self.publish(f'm {i}', 3_700_000 + i)
        self.servers.rabbitmqctl('eval', LOSE_KEYS)
        env = {'POSTDATE_INTAKE_MAX_BODY': '1KiB'}
        out, err = self.run_import('--dry-run', '--batch', 2, env=env, expect=1)
        self.assertRegex(out, r'(?m)^old +new +9 +4 +5 +0$')
        out, err = self.run_import('--batch', 2, env=env, expect=1)
        self.assertRegex(out, r'(?m)^old +new +9 +4 +5 +0$')
        self.assertIn('5 of old: the body is larger', err)
        self.assertEqual(self.p.counts(), {'scheduled': 4})
        out, _ = self.run_import('--batch', 2)
        self.assertRegex(out, r'(?m)^old +new +5 +5 +0 +0$')
        self.assertEqual((self.p.counts(), self.waiting()), ({'scheduled': 9}, (0, 0)))

    def test_stuck_ones_come_along(self):
        """One entry is in no index, and one has been due for an hour: no timer of the plugin's is for either."""
        self.exchange()
        self.publish('lost', 3_600_000)
        self.servers.rabbitmqctl('eval', LOSE_KEYS)
        # As after a crash: an entry that has been due for an hour.
        self.servers.rabbitmqctl('eval', 'T = list_to_atom("rabbit_delayed_message" ++ atom_to_list(node())), I = list_to_atom(atom_to_list(T) ++ "_index"), '
                                 '[{delay_entry, {delay_key, D, X}, M, _}] = [E || {_, {_, D, _}, _, _} = E <- ets:tab2list(T), is_integer(D)], '
                                 'K = {delay_key, D - 7200000, X}, mnesia:dirty_write(T, {delay_entry, K, M, make_ref()}), '
                                 'mnesia:dirty_write(I, {delay_index, K, true}), ok.')
        out, _ = self.run_import()
        self.assertRegex(out, r'(?m)^old +new +2 +2 +0 +0$')
        self.p.gateway()
        inbox = self.p.consumer('work')
        inbox.wait(1, 10)
        wait_until(lambda: self.p.counts() == {'delivered': 1, 'scheduled': 1}, 10, 'the late one to be delivered')


class FaultyImport(ImportTest):
    time_limit_s = 240
    program = 'rabbitmqctl-eval'
    at = 0

    def work(self, name, count, delay_ms):
        for i in range(count):
            self.publish(f'{name} {i}', delay_ms + 5 * i)

    def wrap(self, at, before=':', after=':'):
        """A rabbitmqctl that does something at one of its calls."""
        self.at += 1
        folder = os.path.join(self.servers.directory, f'{self.p.vhost}.{self.at}')
        os.makedirs(folder)
        path = os.path.join(folder, 'rabbitmqctl')
        self.write_script(path, RABBITMQCTL.format(folder=folder, at=at, before=before, after=after, real=self.ctl))
        return {'RABBITMQCTL': path}

    def stack(self, what):
        return f"STACK_DIR='{self.servers.directory}' '{harness.ROOT}/tools/stack.sh' {what} >/dev/null 2>&1"

    def go_on(self):
        out, _ = self.run_import()
        self.assertEqual(self.waiting(), (0, 0), out)
        self.assertEqual(self.p.value('select count(*) from postdate.import'), '0')

    def killed_around(self, statements):
        self.exchange()
        self.p.gateway()
        for point in statements:
            self.work(point, 7, 3_600_000)
            env = {'RABBITMQCTL': self.ctl, 'LD_PRELOAD': SHIM, 'POSTDATE_CRASH': point}
            rc, out, err = self.p.cli('import', 'plugin', *self.maps, '--margin', '1s', '--batch', 5, env=env)
            self.assertEqual(rc, -9, f'{point}: {out}{err}')
            self.go_on()
        self.assert_come_along()

    def killed_around_calls(self, side):
        self.exchange()
        self.p.gateway()
        for at in range(2, 7):
            self.work(f'{side} {at}', 7, 3_600_000)
            self.run_import('--batch', 5, env=self.wrap(at, **{side: 'kill -9 $PPID'}), expect=-9)
            self.go_on()
        self.assert_come_along()

    def crash(self, point, *args):
        rc, out, err = self.p.cli('import', 'plugin', *self.maps, '--margin', '1s', *args,
                                  env={'RABBITMQCTL': self.ctl, 'LD_PRELOAD': SHIM, 'POSTDATE_CRASH': point})
        self.assertEqual(rc, -9, out + err)

    def save(self):
        self.saved = os.path.join(self.servers.directory, f'{self.p.vhost}.tables')
        self.servers.rabbitmqctl('eval', SAVE.format(path=self.saved))

    def restore(self):
        self.servers.rabbitmqctl('eval', RESTORE.format(path=self.saved))

    def lose_locks(self):
        """As behind a pooler that gives the session to others: whoever asks is alone."""
        harness.run_psql(self.p.postgres.replace('user=postdate', 'user=postgres'),
                         "create or replace function pg_catalog.pg_try_advisory_lock(bigint) returns boolean language sql as 'select true'")

    def later_run(self, **env):
        """For wrap: a whole run, while an earlier one waits for its answer."""
        path = os.path.join(self.servers.directory, f'{self.p.vhost}.later')
        env = self.p.env(RABBITMQCTL=self.ctl, **env)
        words = [*(f'{k}={v}' for k, v in env.items()), os.path.join(harness.BIN_DIR, 'postdate'), 'import', 'plugin', *self.maps, '--margin', '1s']
        self.write_script(path, '#!/bin/sh\nexec env -i ' + ' '.join(map(shlex.quote, words)) + '\n')
        return f'{path} >/dev/null 2>&1'


@harness.not_san  # the shim is loaded before everything
class ImportFaults(FaultyImport):
    """Killed at each point, or a server is, and run again."""
    weight = 110
    together = 'import faults'

    def test_killed_while_it_stages(self):
        self.killed_around(['import_alone.after', 'import_asleep.before', 'store.before', 'store.after', 'commit.before', 'commit.after',
                            'import_lock.before'])

    def test_killed_while_it_wakes(self):
        self.killed_around(['import_lock.after', 'import_awake.before', 'import_awake.after', 'commit.before:2', 'commit.after:2',
                            'commit.after:3'])

    def test_killed_while_it_ends(self):
        self.killed_around(['import_proof.before', 'import_proof.after:2', 'import_forget.before', 'import_forget.after'])

    def test_killed_before_each_call(self):
        self.killed_around_calls('before')

    def test_killed_after_each_call(self):
        self.killed_around_calls('after')

    def test_the_node_is_killed_around_calls(self):
        self.exchange()
        for at in (3, 4):
            for side in ('before', 'after'):
                self.c = self.p.client()
                self.work(f'{side} {at}', 11, 3_600_000)
                wait_until(lambda: self.waiting()[0] == 11, 10, 'all to be in the table')
                self.servers.rabbitmqctl('eval', 'mnesia:sync_log().')
                env = self.wrap(at, **{side: f"{self.stack('kill-rabbitmq')}; {self.stack('start-rabbitmq')}"})
                rc, out, err = self.p.cli('import', 'plugin', *self.maps, '--margin', '1s', '--batch', 5, env=env, timeout=120)
                self.assertIn(rc, (0, 69), out + err)
                self.go_on()
        self.p.gateway()
        self.assert_come_along()

    def test_postgres_is_killed_around_calls(self):
        self.exchange()
        for at in (3, 4):
            self.work(f'{at}', 11, 3_600_000)
            env = self.wrap(at, after=f"{self.stack('kill-postgres')}; {self.stack('start-postgres')}")
            self.run_import('--batch', 5, env=env, expect=69)
            self.p.asker.close()
            self.p.asker = place.Asker()
            self.go_on()
        self.p.gateway()
        self.assert_come_along()

    def test_a_node_that_is_not_up_says_nothing_of_its_table(self):
        """Nothing may be woken because the table is not there at the moment."""
        self.exchange()
        self.work('m', 7, 3_600_000)  # stopping and starting take their time
        ctl = {'RABBITMQCTL': self.ctl}
        rc, out, err = self.p.cli('import', 'plugin', *self.maps, '--margin', '1s', env={**ctl, 'LD_PRELOAD': SHIM, 'POSTDATE_CRASH': 'commit.after'})
        self.assertEqual(rc, -9, out + err)
        self.servers.rabbitmqctl('stop_app')
        out, err = self.run_import('--dry-run', expect=69)  # its targets cannot be asked for
        maps, self.maps = self.maps, []
        self.assertIn('is starting or stopped', self.run_import(expect=69)[1])
        self.maps = maps
        self.servers.rabbitmqctl('start_app')
        self.servers.rabbitmqctl('await_startup')
        self.assertEqual(self.p.value('select count(*) from postdate.import'), '7')
        self.go_on()
        self.p.gateway()
        self.assert_come_along()


@harness.not_san
class ImportAgain(FaultyImport):
    """A run after one that came to no end, after a restore, beside another one."""
    weight = 90
    together = 'import again'

    def test_another_database_takes_from_the_same_node(self):
        """Each has marks of its own: what a killed run has taken is not forgotten by the other one's."""
        self.exchange()
        self.work('m', 12, 3_600_000)
        other = harness.Place(self.servers, transport='timer')
        self.places.append(other)
        self.addCleanup(other.close, drop=False)
        other.client().channel.exchange_declare('new', 'topic', durable=True)
        rc, out, err = self.p.cli('import', 'plugin', *self.maps, '--batch', 5,
                                  env={'RABBITMQCTL': self.ctl, 'LD_PRELOAD': SHIM, 'POSTDATE_CRASH': 'import_lock.before'})
        self.assertEqual(rc, -9, out + err)
        rc, out, err = other.cli('import', 'plugin', *self.maps, '--vhost', self.p.vhost, env={'RABBITMQCTL': self.ctl})
        self.assertEqual((rc, other.counts()), (0, {'scheduled': 7}), out + err)
        self.assertEqual(self.waiting(), (0, 2))
        out, err = self.run_import()
        self.assertIn('stored 5 messages that an earlier run had removed', err)
        self.assertRegex(out, r'(?m)^old +new +5 +5 +0 +0$')
        self.assertEqual((self.p.counts(), self.waiting()), ({'scheduled': 5}, (0, 0)))

    def test_what_went_with_a_table_is_woken_although_it_was_due(self):
        """Taken and marked, then the plugin was disabled and enabled: nobody else has it, and nobody delivered it."""
        self.exchange()
        self.work('m', 6, 40_000)
        self.crash('import_lock.before')
        self.servers.rabbitmqctl('eval', LOSE_DELAYED)
        wait_until(lambda: now_ms() > max(self.due.values()) + 1500, 60, 'all to be due')
        self.go_on()
        self.assertEqual(self.p.counts(), {'scheduled': 6})
        self.p.gateway()
        self.p.consumer('work').wait(6, 30)

    def test_what_another_database_took_is_not_stored_twice(self):
        self.exchange()
        self.work('m', 6, 3_600_000)
        other = harness.Place(self.servers, transport='timer')
        self.places.append(other)
        self.addCleanup(other.close, drop=False)
        other.client().channel.exchange_declare('new', 'topic', durable=True)
        self.crash('commit.after')  # asleep, and in the plugin
        rc, out, err = other.cli('import', 'plugin', *self.maps, '--vhost', self.p.vhost, env={'RABBITMQCTL': self.ctl})
        self.assertEqual((rc, other.counts()), (0, {'scheduled': 6}), out + err)
        self.go_on()
        self.assertEqual(self.p.counts(), {})

    def test_a_proof_that_was_cut_off_is_made_whole(self):
        self.exchange()
        proof = os.path.join(self.servers.directory, f'{self.p.vhost}.proof')
        for part in ('first', 'second'):
            self.work(part, 5, 3_600_000)
            self.run_import('--proof', proof)
            self.assertEqual(self.p.cli('import', 'verify', proof)[0], 0)
            with open(proof, 'a', encoding='utf-8') as f:
                f.write('{"import":"00000000-0000-8000-8000-000000000000","mess')
            rc, out, err = self.p.cli('import', 'verify', proof)
            self.assertNotEqual(rc, 0, out)
        self.run_import('--proof', proof)
        rc, out, err = self.p.cli('import', 'verify', proof)
        self.assertEqual(rc, 0, out + err)
        self.assertRegex(out, r'in the file +10\b')
        with open(proof, 'w', encoding='utf-8') as f:
            f.write('dear diary\n')
        self.assertIn('is not the proof of an import', self.run_import('--proof', proof, expect=64)[1])
        with open(proof, encoding='utf-8') as f:
            self.assertEqual(f.read(), 'dear diary\n')

    def test_killed_before_it_forgets_what_the_proof_has(self):
        """The file is whole then, and the rows are still there: the next run writes none of them a second time."""
        self.exchange()
        proof = os.path.join(self.servers.directory, f'{self.p.vhost}.proof')
        for part in ('first', 'second'):
            self.work(part, 5, 3_600_000)
            self.crash('import_forget.before', '--proof', proof)
        self.work('third', 5, 3_600_000)
        out, _ = self.run_import('--proof', proof)
        self.assertRegex(out, r'(?m)^old +new +5 +5 +0 +0$')
        with open(proof, encoding='utf-8') as f:
            lines = [json.loads(line) for line in f]
        self.assertEqual(len([x for x in lines if 'import' in x]), 15)
        self.assertEqual([x['count']['stored'] for x in lines if 'count' in x], [5, 5, 5])
        with open(proof, 'a', encoding='utf-8') as f:
            f.writelines(json.dumps(x) + '\n' for x in lines)
        rc, out, err = self.p.cli('import', 'verify', proof)
        self.assertEqual((rc, err), (0, ''))
        self.assertRegex(out, r'in the file +15\b')
        self.assertRegex(out, r'scheduled +15\b')

    def test_a_proof_that_was_cut_off_at_once_is_made_whole(self):
        self.exchange()
        proof = os.path.join(self.servers.directory, f'{self.p.vhost}.proof')
        for text in ('', '{"imp', '{"import":"0000'):
            with open(proof, 'w', encoding='utf-8') as f:
                f.write(text)
            self.run_import('--proof', proof)
            self.assertEqual(self.p.cli('import', 'verify', proof)[0], 0)

    def test_a_proof_that_another_import_writes_is_left_alone(self):
        """One of another node, say: what it has written so far has no end."""
        self.exchange()
        proof = os.path.join(self.servers.directory, f'{self.p.vhost}.proof')
        with open(proof, 'w', encoding='utf-8') as f:
            f.write('{"import":"0000')
            f.flush()
            fcntl.flock(f, fcntl.LOCK_EX)
            self.assertIn('another import is writing to', self.run_import('--proof', proof, expect=75)[1])
        with open(proof, encoding='utf-8') as f:
            self.assertEqual(f.read(), '{"import":"0000')
        self.run_import('--proof', proof)

    def test_a_delay_of_any_kind_is_negated(self):
        self.exchange()
        for value in ('40000', 40000, 40000.0):
            self.publish(f'{type(value).__name__}', 40_000, headers={'x-delay': value})
        self.run_import()
        self.p.gateway()
        inbox = self.p.consumer('work')
        inbox.wait(3, 60)
        self.assertEqual({m.headers['x-delay'] for m in inbox.all()}, {-40_000})

    def test_a_table_is_restored_to_before_an_import_that_came_to_no_end(self):
        """What was stored is in the plugin again: it is taken out there, and stored no second time."""
        self.exchange()
        points = {'import_lock.before:2': 2, 'commit.after:3': 2, 'import_proof.before': 6}
        for i, (point, known) in enumerate(points.items(), 1):
            self.work(point, 6, 3_600_000)
            self.save()
            self.crash(point, '--batch', 2)
            self.restore()
            out, err = self.run_import('--batch', 2)
            self.assertIn(f'had stored {known} of the messages', err)
            self.assertRegex(out, r'(?m)^old +new +6 +6 +0 +0$')
            self.assertEqual((self.p.counts(), self.waiting()), ({'scheduled': 6 * i}, (0, 0)))
            self.assertEqual(self.p.value('select count(*) from postdate.import'), '0')

    def test_a_table_is_restored_to_before_an_import(self):
        """One that was finished; and a table that was made anew meanwhile."""
        self.exchange()
        proof = os.path.join(self.servers.directory, f'{self.p.vhost}.proof')
        self.work('m', 6, 3_600_000)
        self.save()
        self.run_import('--proof', proof)
        self.restore()
        self.work('more', 2, 3_600_000)
        self.assertIn('had stored 6 of the messages', self.run_import('--proof', proof)[1])
        rc, out, err = self.p.cli('import', 'verify', proof)
        self.assertEqual((rc, err), (0, ''))
        self.assertRegex(out, r'in the file +8\b')
        self.work('anew', 4, 3_600_000)
        self.save()
        self.crash('import_lock.before')
        self.servers.rabbitmqctl('eval', LOSE_DELAYED)
        self.assertIn('stored 4 messages that an earlier run had removed', self.run_import()[1])
        self.restore()
        self.assertIn('had stored 4 of the messages', self.run_import()[1])
        self.assertEqual((self.p.counts(), self.waiting()), ({'scheduled': 12}, (0, 0)))

    def test_a_table_is_restored_to_between_two_runs(self):
        """It knows the first one. What the second one had taken went with the table that was there: the plugin did not deliver it."""
        self.exchange()
        self.work('early', 2, 3_600_000)
        self.crash('import_asleep.before')
        self.save()
        self.work('m', 6, 3_600_000)
        self.crash('import_lock.before')
        self.restore()
        self.go_on()
        self.assertEqual(self.p.counts(), {'scheduled': 8})

    def test_a_table_is_restored_to_before_what_was_delivered(self):
        self.exchange()
        self.p.gateway()
        self.work('m', 6, 40_000)  # an import in a busy minute takes a while, and what is due leaves the plugin
        self.save()
        self.assertRegex(self.run_import()[0], r'(?m)^old +new +6 +6 +0 +0$')
        inbox = self.p.consumer('work')
        self.assert_arrive(inbox)
        wait_until(lambda: now_ms() > max(self.due.values()) + 1500, 40, 'all to be past the margin')
        self.restore()
        self.assertIn('had stored 6 of the messages', self.run_import()[1])
        self.assertEqual((self.p.counts(), self.waiting()), ({'delivered': 6}, (0, 0)))

    def test_a_run_that_lost_its_lock_drops_no_row_of_a_later_one(self):
        """The earlier run is told that nothing was taken; the later one has taken the same entries, and died before it woke them."""
        self.exchange()
        self.work('m', 5, 3_600_000)
        self.lose_locks()
        owner = self.p.value("select replace(identity::text, '-', '') from postdate.meta")
        forget = f"'{self.ctl}' eval 'application:unset_env(rabbit, postdate_import_{owner}).' >/dev/null 2>&1"
        later = self.later_run(LD_PRELOAD=SHIM, POSTDATE_CRASH='import_lock.before')
        self.assertIn('was restarted during the import', self.run_import(env=self.wrap(4, before=forget, after=later), expect=69)[1])
        self.assertEqual(self.waiting(), (0, 2))
        self.assertEqual(self.p.value('select count(*) from postdate.import where message is null'), '5')
        self.go_on()
        self.assertEqual(self.p.counts(), {'scheduled': 5})

    def test_a_run_that_lost_its_lock_stages_nothing_behind_a_later_one(self):
        self.exchange()
        self.work('m', 5, 3_600_000)
        self.lose_locks()
        self.assertIn('another import from node', self.run_import(env=self.wrap(3, after=self.later_run()), expect=75)[1])
        self.assertEqual(self.p.value('select count(*) from postdate.import'), '0')
        self.assertEqual((self.p.counts(), self.waiting()), ({'scheduled': 5}, (0, 0)))

    def test_two_at_once_and_an_interrupt(self):
        self.exchange()
        self.work('m', 40, 3_600_000)
        env = {'RABBITMQCTL': self.ctl}
        first = self.p.start_cli('import', 'plugin', *self.maps, '--margin', '1s', '--batch', 2, '--rate', 4, env=env)
        wait_until(lambda: self.p.counts().get('scheduled', 0) > 1, 20, 'the first batch to be stored')
        self.assertIn('is running', self.run_import(expect=75)[1])
        first.terminate()
        err = first.communicate(timeout=30)[1].decode()
        self.assertIn('interrupted: repeat the command', err)
        self.assertEqual(self.waiting()[1], 0)
        self.go_on()
        self.p.gateway()
        self.assert_come_along()


class ImportMany(ImportTest):
    """What waits for long comes along while others come due, with the plugin or with Postdate."""
    weight = 100
    time_limit_s = 600 if harness.FULL else 180
    count = 100_000 if harness.FULL else 3000
    due_s = 60 if harness.FULL else 20

    def publish_all(self):
        """{body: (due, exchange, headers)} of what waits for hours, and {body: due} of what does not; in one stream, shuffled."""
        r, far, near = random.Random(7), {}, {}
        channel = self.p.client().connection.channel()
        for i in range(self.count + 100 * self.due_s):
            kind = r.choice(TYPES)
            headers = {**ALL_HEADERS, 'i': i}
            body = (b'%d ' % i).ljust(1 << 20 if i % 5000 == 17 else r.choice((10, 100, 500, 3000)), b'x')
            delay = r.randrange(5000, 5000 + 1000 * self.due_s) if i % (self.count // (100 * self.due_s) + 1) == 0 else r.randrange(3_600_000, 0xFFFFFFFF)
            due = now_ms() + delay
            if delay < 3_600_000:
                near[body] = due
            else:
                far[i] = (due, f'new.{kind}', headers, hashlib.sha256(body).hexdigest())
            channel.basic_publish(f'old.{kind}', 'k', body, pika.BasicProperties(delivery_mode=2, headers={'x-delay': delay, **headers}))
        channel.close()
        return far, near

    def assert_stored(self, far):
        rows = harness.run_psql(self.p.postgres, "select split_part(encode(substr(m.body, 1, 12), 'escape'), ' ', 1), extract(epoch from m.due) * 1000, m.exchange, "
                           "encode(sha256(m.body), 'hex') from postdate.message m "
                           "where m.state = 'scheduled' and m.due > now() + interval '30 min'")
        self.assertEqual(sorted(int(row[0]) for row in rows), sorted(far), 'each once')
        for i, due, exchange, digest in rows:
            wanted = far[int(i)]
            self.assertEqual((exchange, digest), (wanted[1], wanted[3]))
            self.assertLess(abs(float(due) - wanted[0]), 60_000)
        for body, headers in self.p.psql("select split_part(encode(substr(body, 1, 12), 'escape'), ' ', 1), headers from postdate.messages "
                                         "where due_at > now() + interval '30 min' limit 300"):
            got = json.loads(headers)
            self.assertEqual((got['i'], got['number'], got['list'], got['x-delay'] < -3_000_000), (int(body), 7, [1, 'two', {'three': 3}], True))

    def test_many_come_along_while_some_come_due(self):
        for kind in TYPES:
            self.exchange(kind, f'old.{kind}', f'new.{kind}', key='k' if kind == 'direct' else '#')
            self.c.channel.queue_bind('work', f'old.{kind}', 'k' if kind == 'direct' else '#', {'x-match': 'any', 'n': 1} if kind == 'headers' else None)
        self.p.max_delay = '60d'
        self.p.migrate()
        self.p.gateway()
        inbox = self.p.consumer('work')
        far, near = self.publish_all()
        begun = now_ms()
        out, _ = self.run_import('--margin', '2s', timeout=400)
        print(f'note {self.id()}: {len(far)} messages in {(now_ms() - begun) / 1000:.1f} s', flush=True)
        inbox.wait(len(near), 60 + self.due_s)
        self.assertEqual(sorted(m.body for m in inbox.all()), sorted(near), 'each once')
        for m in inbox.all():
            self.assertGreaterEqual(m.at_ms, near[m.body], f'{m.body[:40]!r} was early')
        self.assert_stored(far)
        self.assertIn('old.direct', out)
