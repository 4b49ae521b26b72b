"""`postdate doctor`: every finding, seen to fail and to pass on real servers."""
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.parse

import pika

import harness
from harness import DIE_WITH_PARENT, LiveTest, Place, Stack, free_port, run_psql, wait_until, with_path

FAKETIME = '/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1'
OWN_PATTERNS = ('^postdate', r'^(postdate.*|amq\.default)$', '^postdate')  # as in plugins-config


@contextlib.contextmanager
def silent_server():
    """Takes connections and never says a word; yields its port."""
    with socket.create_server(('127.0.0.1', 0), backlog=16) as s:
        yield s.getsockname()[1]


class Doctor(LiveTest):
    def doctor(self, p, *args, **env):
        """{check: [finding, …]}; the exit code must fit."""
        rc, out, err = p.cli('doctor', '--json', *args, env=env)
        self.assertEqual(err, '')
        findings = {}
        for f in json.loads(out):
            self.assertEqual(set(f), {'check', 'status', 'detail', 'remedy'})
            self.assertIn(f['status'], ('ok', 'warn', 'fail', 'skip'))
            if f['status'] in ('warn', 'fail'):
                self.assertTrue(f['remedy'], f)
            if f['status'] == 'ok':
                self.assertIsNone(f['remedy'], f)
            findings.setdefault(f['check'], []).append(f)
        failed = [f for many in findings.values() for f in many if f['status'] == 'fail']
        self.assertEqual(rc, 1 if failed else 0, out)
        self.said = out
        return findings

    def assert_finding(self, findings, check, status, detail='', remedy=''):
        """One of the findings of this check is like that."""
        self.assertIn(check, findings, self.said)
        for f in findings[check]:
            if f['status'] == status and detail in f['detail'] and remedy in (f['remedy'] or ''):
                return
        self.fail(f'{check} is not {status} with {detail!r}, {remedy!r}: {findings[check]}')

    def assert_ok(self, findings, *checks):
        for check in checks:
            self.assert_finding(findings, check, 'ok')
            self.assertEqual(len(findings[check]), 1, findings[check])

    def assert_nothing_failed(self, findings):
        self.assertNotIn('"fail"', self.said)


class DoctorBasics(Doctor):
    who_waits = 'timer'

    def test_a_healthy_gateway(self):
        p = self.place()
        p.gateway()
        p.consumer('q', bind='k')
        found = self.doctor(p, '--rabbitmqctl', os.path.join(p.stack.directory, 'rabbitmqctl'))
        self.assert_nothing_failed(found)
        self.assert_ok(found, 'config', 'database.connection', 'database.pooling', 'database.server',
                       'database.durability', 'database.schema', 'database.rights', 'database.roles', 'database.partitions',
                       'database.locks', 'database.transactions', 'clock.database', 'gateways', 'messages.overdue', 'messages.failed',
                       'broker.connection', 'broker.tls', 'broker.vhost', 'broker.owner', 'broker.permissions', 'broker.topology',
                       'broker.intake', 'broker.control', 'broker.exit', 'broker.rejected', 'broker.publish', 'handover.transport',
                       'handover.messages', 'rabbitmqctl', 'broker.policies', 'broker.bindings', 'broker.patterns',
                       'clock.broker')
        self.assertEqual(self.doctor(p)['broker.topology'][0]['status'], 'ok', 'it disturbed what is there')

    def test_lines_for_a_person(self):
        p = self.place(migrate=False)
        rc, out, err = p.cli('doctor')
        self.assertEqual((rc, err), (1, ''))
        lines = out.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith('FAIL  database.schema  '))
        self.assertEqual(lines[at + 1], '      -> postdate migrate')
        self.assertRegex(out, r'(?m)^ok    config  ')
        self.assertRegex(out, r'(?m)^skip  messages  .*schema')

    def test_wrong_usage(self):
        p = self.place(migrate=False)
        self.assertEqual(p.cli('doctor', 'now')[0], 64)
        self.assertEqual(p.cli('doctor', '--fast')[0], 64)
        self.assertEqual(p.cli('doctor', '--rabbitmqctl')[0], 64)

    def test_the_configuration(self):
        p = self.place(migrate=False)
        with tempfile.NamedTemporaryFile('w', suffix='.conf') as f:
            f.write('[delivery]\nlead = soon\n[intake]\nquuee = x\n')
            f.flush()
            found = self.doctor(p, '-c', f.name)
            self.assert_finding(found, 'config', 'fail', f'{f.name}:2: delivery.lead', 'print-config-sample')
            self.assert_finding(found, 'config', 'fail', f'{f.name}:4: unknown option intake.quuee')
            self.assertEqual(found['database.connection'][0]['status'], 'skip')
            self.assertEqual(found['broker.connection'][0]['status'], 'skip')
            f.seek(0)
            f.truncate()
            f.write('[delivery]\nlead = 1s\n')
            f.flush()
            found = self.doctor(p, '-c', f.name, POSTDATE_DELIVERY_LEED='1s')
            self.assert_finding(found, 'config', 'ok', f.name)
            self.assert_finding(found, 'config', 'warn', 'POSTDATE_DELIVERY_LEED', 'unset')
        self.assert_finding(self.doctor(p, '-c', '/nowhere/postdate.conf'), 'config', 'fail', '/nowhere/postdate.conf')

    @harness.not_san
    def test_clocks(self):
        if not os.path.exists(FAKETIME):
            self.skipTest('libfaketime is not installed')
        p = self.place()
        for offset, status, word in (('-5s', 'warn', 'behind'), ('+5s', 'warn', 'ahead of'), ('+90s', 'fail', 'ahead')):
            found = self.doctor(p, LD_PRELOAD=FAKETIME, FAKETIME=offset)
            self.assert_finding(found, 'clock.database', status, word, 'time synchronisation')
        self.assert_ok(self.doctor(p), 'clock.database')


class DoctorDatabase(Doctor):
    def test_away_or_not_there(self):
        p = self.place(migrate=False)
        found = self.doctor(p, POSTDATE_POSTGRES_URL=f'postgresql://u:s3cret@127.0.0.1:{free_port()}/x')
        self.assert_finding(found, 'database.connection', 'fail', 'refused', 'start Postgres')
        self.assertNotIn('s3cret', self.said)
        for check in ('database.schema', 'database.pooling', 'clock.database', 'messages'):
            self.assert_finding(found, check, 'skip', 'no connection')
        self.assert_finding(found, 'broker.connection', 'ok')
        self.assert_finding(self.doctor(p, POSTDATE_POSTGRES_URL=p.postgres.replace(p.database, 'nothing_here')),
                            'database.connection', 'fail', 'nothing_here', 'createdb')
        self.assert_finding(self.doctor(p, POSTDATE_POSTGRES_URL=p.postgres.replace('user=postdate', 'user=nobody1')),
                            'database.connection', 'fail', 'nobody1', 'user and password')

    def test_schema(self):
        p = self.place(migrate=False)
        self.assert_finding(self.doctor(p), 'database.schema', 'fail', 'no schema', 'postdate migrate')
        p.migrate()
        self.assert_ok(self.doctor(p), 'database.schema', 'database.rights')
        version = p.value('select version from postdate.meta')
        p.psql('update postdate.meta set version = 9999')
        self.assert_finding(self.doctor(p), 'database.schema', 'fail', '9999', 'newer version')
        p.psql('update postdate.meta set version = 0')
        found = self.doctor(p)
        self.assertEqual(found['database.schema'][0]['status'], 'fail')
        self.assert_finding(found, 'database.rights', 'skip', 'schema')
        p.psql(f'update postdate.meta set version = {version}')
        self.assert_ok(self.doctor(p), 'database.schema')

    def test_rights(self):
        p = self.place(migrate=False)
        role = 'r_' + p.database
        superuser = p.postgres.replace('user=postdate', 'user=postgres')
        run_psql(superuser, f'create role {role} login')
        self.addCleanup(run_psql, superuser, f'drop owned by {role}; drop role {role}')
        url = p.postgres.replace('user=postdate', 'user=' + role)
        self.assert_finding(self.doctor(p, POSTDATE_POSTGRES_URL=url), 'database.schema', 'fail', remedy='grant create')
        p.migrate()
        self.assert_finding(self.doctor(p, POSTDATE_POSTGRES_URL=url), 'database.schema', 'fail', remedy='owner')
        p.psql(f'grant usage on schema postdate to {role}; grant select on all tables in schema postdate to {role}')
        found = self.doctor(p, POSTDATE_POSTGRES_URL=url)
        self.assert_finding(found, 'database.rights', 'fail', 'message', '"postdate"')
        p.psql(f'grant all on all tables in schema postdate to {role}')
        found = self.doctor(p, POSTDATE_POSTGRES_URL=url)
        self.assert_finding(found, 'database.rights', 'fail', 'partitions', '"postdate"')
        run_psql(superuser, f'grant postdate to {role}')
        self.assert_ok(self.doctor(p, POSTDATE_POSTGRES_URL=url), 'database.rights')

    def test_roles_of_sql_users(self):
        p = self.place()
        self.assert_ok(self.doctor(p), 'database.roles')
        p.psql('revoke select on postdate.messages from postdate_reader')
        found = self.doctor(p)
        self.assert_finding(found, 'database.roles', 'warn', 'lacking rights in the schema postdate: postdate_reader',
                            'postdate migrate')
        self.assert_nothing_failed(found)
        p.psql('revoke usage on schema postdate from postdate_producer')
        self.assert_finding(self.doctor(p), 'database.roles', 'warn', 'postdate_producer, postdate_reader')
        p.migrate()
        self.assert_ok(self.doctor(p), 'database.roles')

    def test_partitions(self):
        p = self.place()
        self.assert_finding(self.doctor(p, POSTDATE_DELIVERY_MAX_DELAY='30d'), 'database.partitions', 'warn', 'max_delay',
                            'postdate migrate')
        day = p.value("select to_char(current_date + 2, 'YYYYMMDD')")
        p.psql(f'drop table postdate.message_{day}')
        self.assert_finding(self.doctor(p), 'database.partitions', 'fail', '1 of the days', 'postdate migrate')
        p.migrate()
        self.assert_ok(self.doctor(p), 'database.partitions')
        for (name,) in p.psql("select relname from pg_class where relname ~ '^message_[0-9]{8}$' and relkind = 'r'"):
            p.psql(f'drop table postdate.{name}')
        self.assert_finding(self.doctor(p), 'database.partitions', 'fail', 'they end', 'postdate migrate')

    def test_durability_and_read_only(self):
        p = self.place()
        p.psql(f'alter database {p.database} set synchronous_commit = off')
        self.assert_finding(self.doctor(p), 'database.durability', 'warn', 'synchronous_commit', 'alter role')
        p.psql(f'alter database {p.database} reset synchronous_commit')
        p.psql(f'alter database {p.database} set default_transaction_read_only = on')
        self.assert_finding(self.doctor(p), 'database.server', 'fail', 'read_only', 'default_transaction_read_only = off')
        p.stack.psql(f'alter database {p.database} reset default_transaction_read_only')
        self.assert_ok(self.doctor(p), 'database.server', 'database.durability')

    def test_messages(self):
        p = self.place()
        found = self.doctor(p)
        self.assert_finding(found, 'gateways', 'warn', 'none is running', 'postdated')
        self.assert_ok(found, 'messages.overdue', 'messages.failed')
        self.assertEqual(p.cli('schedule', '-k', 'k', '--delay', '1ms', '--body', 'x')[0], 0)
        p.psql("update postdate.message set next_at = now() - interval '1 min'")
        self.assert_finding(self.doctor(p), 'messages.overdue', 'warn', '1, the oldest', 'gateway')
        g = p.gateway(POSTDATE_RETRY_ATTEMPTS='1')
        wait_until(lambda: p.counts() == {'failed': 1}, 10, 'it to fail: nothing is bound')
        found = self.doctor(p)
        self.assert_finding(found, 'messages.failed', 'warn', '1 could not', 'list --state failed')
        self.assert_ok(found, 'gateways', 'messages.overdue')
        self.assertEqual(g.term(), 0)


@harness.not_san
class DoctorOwnPostgres(Doctor):
    """Settings of the whole server, and a standby."""
    weight = 40
    vhosts = 0

    def test_settings_of_the_server(self):
        servers = Stack(harness.note_stack(os.environ['STACK_DIR'] + '-doctor'))
        self.addCleanup(servers.command, 'clean', check=False)
        servers.command('start-postgres')
        folder = os.path.join(servers.directory, 'postgres')
        url = f'postgresql:///postgres?host={folder}/run&port=5432&user=postgres'
        p = Place(harness.stack(), migrate=False)
        self.addCleanup(p.close)
        for name in ('fsync', 'full_page_writes'):
            run_psql(url, f'alter system set {name} = off')
            run_psql(url, 'select pg_reload_conf()')
            wait_until(lambda: run_psql(url, f'show {name}') == [['off']], 10, f'{name} to be off')
            found = self.doctor(p, POSTDATE_POSTGRES_URL=url)
            self.assert_finding(found, 'database.durability', 'warn', f'{name} is off', f'alter system set {name} = on')
            run_psql(url, f'alter system reset {name}')
            run_psql(url, 'select pg_reload_conf()')
            wait_until(lambda: run_psql(url, f'show {name}') == [['on']], 10, f'{name} to be on')
        self.assert_ok(self.doctor(p, POSTDATE_POSTGRES_URL=url), 'database.server', 'database.durability')
        self.check_roles(p, url)
        servers.command('stop-postgres')
        data = next(d for d, _, files in os.walk(folder) if 'PG_VERSION' in files and 'postgresql.conf' in files)
        signal_file = os.path.join(data, 'standby.signal')
        with open(signal_file, 'w', encoding='utf-8'):
            pass
        owner = os.stat(data)
        os.chown(signal_file, owner.st_uid, owner.st_gid)
        servers.command('start-postgres', check=False)
        self.assert_finding(self.doctor(p, POSTDATE_POSTGRES_URL=url), 'database.server', 'fail', 'standby',
                            'target_session_attrs')

    def check_roles(self, p, url):
        env = {'POSTDATE_POSTGRES_URL': url}
        self.assertEqual(p.cli('migrate', env=env)[0], 0)
        self.assert_ok(self.doctor(p, **env), 'database.roles')
        run_psql(url, 'drop owned by postdate_producer; drop role postdate_producer')
        self.assert_finding(self.doctor(p, **env), 'database.roles', 'warn', 'not there: postdate_producer', 'create role')
        self.assertEqual(p.cli('migrate', env=env)[0], 0)
        self.assert_ok(self.doctor(p, **env), 'database.roles')


@harness.not_san
class DoctorPooler(Doctor):
    weight = 20

    def bouncer(self, p, mode):
        """A PgBouncer in front of the database; returns (URL through it, URL of its console)."""
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(p.postgres).query))
        folder = tempfile.mkdtemp(prefix='postdate-pool-', dir='/tmp')
        self.addCleanup(shutil.rmtree, folder, True)
        port = free_port()
        with open(os.path.join(folder, 'users'), 'w', encoding='utf-8') as f:
            f.write('"postdate" ""\n')
        with open(os.path.join(folder, 'ini'), 'w', encoding='utf-8') as f:
            f.write(f'[databases]\n* = host={query["host"]} port={query.get("port", 5432)} user=postdate\n[pgbouncer]\n'
                    f'listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n'
                    f'auth_file = {folder}/users\npool_mode = {mode}\nadmin_users = postdate\n'
                    f'ignore_startup_parameters = extra_float_digits\n')
        command = ['/usr/sbin/pgbouncer', '-q', os.path.join(folder, 'ini')]
        if os.geteuid() == 0:
            for name in ('', 'users', 'ini'):
                os.chmod(os.path.join(folder, name), 0o755)
            owner = os.stat(query['host']).st_uid
            command = ['setpriv', '--reuid', str(owner), '--clear-groups', '--'] + command
        child = subprocess.Popen(DIE_WITH_PARENT + command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT)
        p.children.append(child)

        def listens():
            with contextlib.suppress(OSError), socket.create_connection(('127.0.0.1', port), 1):
                return True
        wait_until(listens, 10, 'PgBouncer to listen')
        url = f'postgresql://postdate@127.0.0.1:{port}/'
        return url + p.database, url + 'pgbouncer'

    def test_poolers(self):
        if not os.path.exists('/usr/sbin/pgbouncer'):
            self.skipTest('pgbouncer is not installed')
        p = self.place()
        url, _ = self.bouncer(p, 'session')
        found = self.doctor(p, POSTDATE_POSTGRES_URL=url)
        self.assert_finding(found, 'database.pooling', 'ok', 'through a pooler')
        self.assert_ok(found, 'database.schema')
        url, console = self.bouncer(p, 'transaction')
        found = self.doctor(p, POSTDATE_POSTGRES_URL=url)
        self.assert_finding(found, 'database.pooling', 'fail', 'shares sessions', 'pool_mode = session')
        self.assert_finding(found, 'database.schema', 'skip', 'pooler')
        run_psql(console, 'pause')
        began = time.monotonic()
        found = self.doctor(p, POSTDATE_POSTGRES_URL=url)
        self.assertLess(time.monotonic() - began, 25)
        self.assert_finding(found, 'database.connection', 'fail', 'no answer')
        self.assert_finding(found, 'broker.connection', 'ok')


@harness.not_san
class DoctorSilence(Doctor):
    weight = 20
    vhosts = 0

    def test_servers_that_say_nothing(self):
        p = self.place(migrate=False)
        with silent_server() as postgres, silent_server() as rabbitmq:
            began = time.monotonic()
            found = self.doctor(p, POSTDATE_POSTGRES_URL=f'postgresql://u@127.0.0.1:{postgres}/x',
                                POSTDATE_AMQP_URL=f'amqp://u:s3cret@127.0.0.1:{rabbitmq}/%2f')
            self.assertLess(time.monotonic() - began, 30)
        self.assert_finding(found, 'database.connection', 'fail', 'no answer')
        self.assert_finding(found, 'broker.connection', 'fail', 'no answer', 'amqp.url')
        self.assertNotIn('s3cret', self.said)

    def test_a_rabbitmqctl_that_says_nothing(self):
        p = self.place(migrate=False)
        script = os.path.join(tempfile.mkdtemp(dir='/tmp'), 'rabbitmqctl')
        self.addCleanup(shutil.rmtree, os.path.dirname(script), True)
        with open(script, 'w', encoding='utf-8') as f:
            f.write('#!/bin/sh\nsleep 1000 & echo $! >"$0.pid"; wait\n')
        os.chmod(script, 0o755)
        p.amqp = p.stack.amqp
        found = self.doctor(p, '--rabbitmqctl', script)
        self.assert_finding(found, 'rabbitmqctl', 'fail', 'no answer', 'rabbitmqctl eval')
        with open(script + '.pid', encoding='utf-8') as f:
            pid = int(f.read())
        with contextlib.suppress(FileNotFoundError), open(f'/proc/{pid}/stat', encoding='utf-8') as f:
            self.assertEqual(f.read().rsplit(')', 1)[1].split()[0], 'Z', 'what it had started still runs')


class DoctorBroker(Doctor):
    def url_of(self, p, user, password):
        parts = urllib.parse.urlsplit(p.amqp)
        return parts._replace(netloc=f'{user}:{password}@{parts.hostname}:{parts.port}').geturl()

    def grant(self, p, user, configure, write, read):
        quoted = [f'<<"{x}">>'.replace('\\', '\\\\') for x in (user, p.vhost, configure, write, read)]
        p.stack.rabbitmqctl('eval', f'rabbit_auth_backend_internal:set_permissions({", ".join(quoted)}, <<"test">>).')

    def test_away_refused_or_no_vhost(self):
        p = self.place()
        found = self.doctor(p, POSTDATE_AMQP_URL=f'amqp://u:s3cret@127.0.0.1:{free_port()}/%2f')
        self.assert_finding(found, 'broker.connection', 'fail', 'refused', 'start RabbitMQ')
        for check in ('broker.permissions', 'broker.topology', 'handover.transport', 'rabbitmqctl'):
            self.assert_finding(found, check, 'skip', 'no connection')
        self.assertNotIn('s3cret', self.said)
        found = self.doctor(p, POSTDATE_AMQP_URL=self.url_of(p, 'nobody', 's3cret'))
        self.assert_finding(found, 'broker.connection', 'fail', "'nobody'", 'set_permissions')
        self.assertNotIn('s3cret', self.said)
        found = self.doctor(p, POSTDATE_AMQP_URL=with_path(p.amqp, 'no such vhost'))
        self.assert_finding(found, 'broker.connection', 'fail', 'no such vhost', 'add_vhost')

    @harness.not_san
    def test_permissions(self):
        p = self.place()
        user = 'u' + p.database
        p.stack.rabbitmqctl('add_user', user, 's3cret')
        self.addCleanup(p.stack.rabbitmqctl, 'delete_user', user)
        url = self.url_of(p, user, 's3cret')
        self.grant(p, user, '^none', '^none', '^none')
        found = self.doctor(p, POSTDATE_AMQP_URL=url)
        for right in ("configure exchange 'postdate'", "configure queue 'postdate.intake'", "read queue 'postdate.intake'",
                      "configure queue 'postdate.control'", "read queue 'postdate.control'",
                      "write exchange 'postdate.delivery'"):
            self.assert_finding(found, 'broker.permissions', 'fail', right, 'set_permissions')
        self.grant(p, user, '^postdate', '^postdate', '^postdate')
        found = self.doctor(p, POSTDATE_AMQP_URL=url)
        self.assert_ok(found, 'broker.permissions')
        self.assert_finding(found, 'broker.publish', 'fail', 'amq.default', 'amq')
        self.grant(p, user, *OWN_PATTERNS)
        found = self.doctor(p, POSTDATE_AMQP_URL=url, POSTDATE_HANDOVER_TRANSPORT='ttl')
        self.assert_ok(found, 'broker.permissions', 'broker.publish')
        found = self.doctor(p, POSTDATE_AMQP_URL=url, POSTDATE_ROUTE='orders.later=orders')
        self.assert_finding(found, 'broker.permissions', 'fail', "configure exchange 'orders.later'")
        self.assert_finding(found, 'broker.permissions', 'fail', "write exchange 'orders'")
        self.assertNotIn('s3cret', self.said)
        c = p.client()
        with self.assertRaises(pika.exceptions.ChannelClosedByBroker, msg='trying rights has declared something'):
            c.channel.exchange_declare('postdate', passive=True)

    def test_topology(self):
        p = self.place()
        self.assert_finding(self.doctor(p), 'broker.topology', 'warn', '6 of 6', 'start a gateway')
        c = p.client()
        c.channel.queue_declare('postdate.intake', durable=True)
        c.channel.exchange_declare('postdate', 'direct', durable=True)
        found = self.doctor(p)
        self.assert_finding(found, 'broker.topology', 'fail', "'postdate.intake'", "rename 'postdate.intake'")
        self.assert_finding(found, 'broker.topology', 'fail', "exchange 'postdate'")
        c.channel.queue_delete('postdate.intake')
        c.channel.exchange_delete('postdate')
        p.gateway()
        self.assert_ok(self.doctor(p), 'broker.topology')

    def test_backlogs(self):
        p = self.place()
        g = p.gateway()
        c = p.client()
        c.publish('k', b'', {'x-delay': 'never'})
        wait_until(lambda: c.depth('postdate.rejected') == 1, 10, 'it to be parked')
        found = self.doctor(p)
        self.assert_finding(found, 'broker.rejected', 'warn', '1 refused', 'x-postdate-error')
        self.assert_ok(found, 'broker.intake')
        self.assertEqual(g.term(), 0)
        c.publish('k', b'', {'x-delay': 1000})
        self.assert_finding(self.doctor(p), 'broker.intake', 'warn', 'no consumer reads', 'start a gateway')

    def test_another_broker(self):
        p = self.place()
        p.gateway().term()
        p.psql("update postdate.meta set vhost = 'other'")
        self.assert_finding(self.doctor(p), 'broker.owner', 'fail', "'other'", '--rebind')
        p.psql("update postdate.meta set vhost = null, broker = null")
        self.assert_ok(self.doctor(p), 'broker.owner')


class DoctorHandover(Doctor):
    who_waits = 'timer'
    RUNGS = [f'postdate.ttl.r16g100.l{level}.d{digit}' for level in range(3) for digit in range(1, 16)]

    def test_what_the_ladder_lost(self):
        p = self.place()
        env = {'POSTDATE_HANDOVER_' + k: v for k, v in
               dict(TRANSPORT='ttl', WINDOW='6m', MIN_AHEAD='300ms', GRACE='1s').items()}
        g = p.gateway(**env)
        c = p.client()
        for i in range(150):  # the last is due soon
            c.publish('k', b'', {'x-delay': 60_000 if i < 149 else 6000})
        wait_until(lambda: p.counts() == {'handed': 150}, 15, '150 messages handed over')
        found = self.doctor(p, **env)
        self.assert_finding(found, 'handover.messages', 'ok', '150')
        self.assertNotIn('handover.overdue', found)
        self.assert_finding(found, 'broker.exit', 'ok')
        self.assertEqual(g.term(), 0)
        for name in self.RUNGS:
            c.channel.queue_purge(name)
        self.assert_finding(self.doctor(p, **env), 'handover.messages', 'warn', 'hold only 0', 'postdate.ttl')
        wait_until(lambda: 'handover.overdue' in self.doctor(p, **env), 20, 'the first to be overdue')
        self.assert_finding(self.doctor(p, **env), 'handover.overdue', 'warn', '1 handed', 'gateway publishes')

    def test_transports_and_feeder(self):
        p = self.place()
        found = self.doctor(p, POSTDATE_HANDOVER_TRANSPORT='ttl', POSTDATE_HANDOVER_FEEDER='cron')
        self.assert_ok(found, 'handover.transport')
        self.assert_finding(found, 'handover.feeder', 'warn', 'window has ended', 'postdate feed')
        self.assertEqual(p.cli('feed', env={'POSTDATE_HANDOVER_TRANSPORT': 'ttl', 'POSTDATE_HANDOVER_FEEDER': 'cron'})[0], 0)
        found = self.doctor(p, POSTDATE_HANDOVER_TRANSPORT='ttl', POSTDATE_HANDOVER_FEEDER='cron')
        self.assertNotIn('handover.feeder', found)
        has_plugin = 'has the delayed' in self.doctor(p)['handover.transport'][0]['detail']
        found = self.doctor(p, POSTDATE_HANDOVER_TRANSPORT='plugin')
        if has_plugin:
            self.assert_finding(found, 'handover.transport', 'warn', 'archived', 'docs/migrate.md')
        else:
            self.assert_finding(found, 'handover.transport', 'fail', 'no x-delayed-message', 'ttl, or timer')


@harness.not_san  # what it runs is no program of ours
class DoctorAdmin(Doctor):
    """With rabbitmqctl."""
    weight = 15

    def admin(self, p, **env):
        return self.doctor(p, '--rabbitmqctl', os.path.join(p.stack.directory, 'rabbitmqctl'), **env)

    def test_rabbitmqctl_that_cannot(self):
        p = self.place()
        self.assert_finding(self.doctor(p, '--rabbitmqctl', '/nowhere/rabbitmqctl'), 'rabbitmqctl', 'fail', '/nowhere',
                            'rabbitmqctl eval')
        self.assert_finding(self.doctor(p, '--rabbitmqctl', '/bin/false'), 'rabbitmqctl', 'fail', 'no reason')
        self.assert_finding(self.doctor(p, '--rabbitmqctl', '/bin/true'), 'rabbitmqctl', 'fail', 'not understood')
        self.assert_finding(self.doctor(p, RABBITMQCTL='/nowhere/rabbitmqctl'), 'rabbitmqctl', 'skip', 'cannot be run',
                            'rabbitmqctl eval')

    def test_messages_in_the_plugin(self):
        p = self.place()
        p.stack.need_plugin()
        c = p.client()
        c.channel.exchange_declare('old "é', 'x-delayed-message', durable=True, arguments={'x-delayed-type': 'topic'})
        c.queue('orders.work', 'order.*', exchange='old "é')
        found = self.admin(p)
        mine = f"exchange 'old \"é' in vhost '{p.vhost}'"
        self.assert_finding(found, 'plugin.messages', 'ok', mine + ': no messages wait; 1 binding: queue orders.work')
        for _ in range(2):
            c.publish('order.a', b'', {'x-delay': 600000}, exchange='old "é')
        self.assert_finding(self.admin(p), 'plugin.messages', 'warn', mine + ': 2 messages wait', 'docs/migrate.md')
        c.channel.exchange_delete('old "é')
        self.assertNotIn(p.vhost, json.dumps(self.admin(p)['plugin.messages']))

    def test_policies_and_bindings(self):
        p = self.place()
        p.gateway(POSTDATE_HANDOVER_TRANSPORT='ttl', POSTDATE_HANDOVER_WINDOW='1s')
        found = self.admin(p)
        self.assert_ok(found, 'broker.policies')
        self.assert_finding(found, 'broker.bindings', 'warn', "nothing is bound to 'postdate.delivery'")
        c = p.client()
        c.channel.queue_unbind('postdate.intake', 'postdate', '')
        c.queue('q', 'k')
        p.stack.rabbitmqctl('set_policy', '-p', p.vhost, 'most', '^postdate.rejected$', '{"max-length":10}',
                            '--apply-to', 'queues')
        found = self.admin(p)
        self.assert_finding(found, 'broker.policies', 'warn', "policy 'most' sets max-length on 'postdate.rejected'",
                            'list_policies')
        self.assert_finding(found, 'broker.bindings', 'warn', 'is not bound', 'restart a gateway')
        p.stack.rabbitmqctl('set_operator_policy', '-p', p.vhost, 'short', '^postdate.ttl', '{"message-ttl":10}',
                            '--apply-to', 'queues')
        found = self.admin(p)
        self.assert_finding(found, 'broker.policies', 'fail', "operator policy 'short' sets message-ttl", 'operator')
        c.channel.queue_bind('postdate.intake', 'postdate', '')
        self.assert_ok(found, 'broker.patterns')
        self.assertEqual(len(self.admin(p)['broker.bindings']), 1)
