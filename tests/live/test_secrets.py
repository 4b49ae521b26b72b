"""Passwords and tokens are nowhere that others read: output, logs, arguments, metrics, children, core files."""
import glob
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile

import harness
from harness import DIE_WITH_PARENT, wait_until
from broker_users import add_user, delete_user
from test_tls import TlsPlaces
from test_tokens import Caller, make_token

AMQP_PASSWORD = 'wombat5-amqp'
PARTS = (b'hunter2', b'wombat5')  # of every password here, those that are wrong, too

BAD_POSTGRES = (
    'postgresql://plain:hunter2/part@localhost/d', 'postgresql://plain:hunter2@part@localhost/d',
    'postgresql://plain:part@hunter2@localhost/d', 'postgresql://plain:hunter2%zz@localhost/d',
    'postgresql://plain:77/hunter2@localhost/d', 'postgresql://plain:77/x?hunter2=y@localhost/d',
    'postgresql://plain:77/x?hunter2@localhost/d', 'postgresql://plain:hunter2@[::1/d', 'postgresql://plain:x@h:hunter2/d',
    'host=localhost password=my hunter2', 'host=localhost password=my hunter2=x', "host=localhost password='hunter2",
    'host=localhost passwrod=hunter2', 'hunter2', 'mysql://plain:hunter2@localhost/d')
BAD_AMQP = (
    'amqp://u:wombat5/part@localhost', 'amqp://u:part/wombat5@localhost/v', 'amqp://u:12/wombat5@localhost',
    'amqp://u:p@ss/wombat5@localhost', 'amqp://u:wombat5%zz@localhost/v', 'amqp://u:wombat5?x@localhost/v',
    'amqp://u:x#wombat5@localhost/v', 'amqp://u:x@localhost:wombat5/v', 'wombat5', 'http://u:wombat5@localhost')


def read_bytes(path):
    with open(path, 'rb') as f:
        return f.read()


@harness.not_san
class Secrets(TlsPlaces):
    weight = 50
    vhosts = 5

    def amqp_url(self, p):
        user = 'secret-' + p.vhost
        url = add_user(p, user, AMQP_PASSWORD, '.*', '.*', '.*')
        self.addCleanup(delete_user, harness.stack(), user)
        return url

    def assert_clean(self, what, text, *more):
        text = text if isinstance(text, bytes) else text.encode()
        for secret in (*PARTS, *more):
            self.assertNotIn(secret, text, what)

    def secret_file(self, text):
        handle, path = tempfile.mkstemp()
        self.addCleanup(os.remove, path)
        with os.fdopen(handle, 'w', encoding='utf-8') as f:
            f.write(text + '\n')
        return path

    def fake_rabbitmqctl(self):
        """A program that notes its environment; (its path, the note's)."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        path, note = os.path.join(folder, 'rabbitmqctl'), os.path.join(folder, 'environment')
        with open(path, 'w', encoding='utf-8') as f:
            f.write(f'#!/bin/sh\nenv >{note}\n')
        os.chmod(path, 0o755)
        return path, note

    def test_a_gateway_that_works_tells_nothing(self):
        p = self.place()
        env = {'POSTDATE_POSTGRES_URL': None, 'POSTDATE_POSTGRES_URL_FILE': self.secret_file(self.url(p)), 'POSTDATE_AMQP_URL': None,
               'POSTDATE_AMQP_URL_FILE': self.secret_file(self.amqp_url(p)), 'POSTDATE_HTTP_TOKENS': 'on',
               'POSTDATE_LOG_LEVEL': 'debug'}
        token = make_token(p, 'postdate.delivery', env=env)
        g = p.gateway(**env)
        seen = {'its arguments': read_bytes(f'/proc/{g.process.pid}/cmdline')}
        address = g.http()
        caller = Caller(address, token)
        wait_until(lambda: caller.get('/v1/stats').status != 503, 10, 'the tokens to be read')
        made = caller.post('/v1/messages', {'routing_key': 'k', 'delay': '1h', 'body': 'x'})
        self.assertEqual(made.status, 201, made)
        for path in ('/metrics', '/readyz', '/v1/stats', '/v1/messages', '/v1/messages?token=' + token[:-1]):
            seen[path] = repr(caller.get(path).body)
        seen['a wrong token'] = repr(Caller(address, token + 'x').get('/v1/stats').body)
        seen['an odd scheme'] = repr(caller.ask('GET', '/v1/stats', Authorization='Basic ' + token).body)
        p.client().publish('k', b'', {'x-delay': 'soon'})
        g.process.send_signal(signal.SIGHUP)
        g.wait_log('SIGHUP')
        path, note = self.fake_rabbitmqctl()
        for command in (['status'], ['status', '--json'], ['doctor', '--json', '--rabbitmqctl', path], ['token', 'list'], ['migrate'],
                        ['list', '--json'], ['feed', '-v']):
            rc, out, err = p.cli(*command, env=dict(env, PGPASSWORD='hunter2-env', PGPASSFILE='/hunter2'))
            seen[f'postdate {command}'] = out + err
        seen['check-config'] = subprocess.run([os.path.join(harness.BIN_DIR, 'postdated'), '--check-config'], env=p.env(**env),
                                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True, timeout=20).stdout
        seen['the environment of rabbitmqctl'] = child = read_bytes(note)
        self.assertIn(b'PATH=', child)
        self.assertEqual(re.findall(rb'(?m)^(?:POSTDATE_|PG)\w*', child), [])
        self.assertEqual(g.term(), 0)
        seen['the log'] = g.log()
        for what, text in seen.items():
            with self.subTest(what):
                self.assert_clean(what, text, token.encode(), token[4:20].encode())

    def errors_of(self, p, **env):
        """What a gateway and `postdate doctor` say when they meet that."""
        g = p.gateway(wait=False, **env)
        wait_until(lambda: g.lines_with(r'\b(warn|error) |^postdated: ') or g.process.poll() is not None, 15, 'an error')
        arguments = read_bytes(f'/proc/{g.process.pid}/cmdline') if g.process.poll() is None else b''
        g.kill9()
        rc, out, err = p.cli('doctor', env=env)
        self.assertEqual((rc, err), (1, ''), out)
        self.assertRegex(g.log(), r'\b(warn|error) |^postdated: ')
        return g.log() + out + arguments.decode()

    def test_servers_that_refuse_or_are_away(self):
        p = self.place()
        broker = self.amqp_url(p)
        closed = str(harness.free_port())
        host = re.search(r'@([^/]*)', broker).group(1)
        good = {'POSTDATE_POSTGRES_URL': self.url(p), 'POSTDATE_AMQP_URL': broker}
        for what, env in (('a wrong password for Postgres', {'POSTDATE_POSTGRES_URL': self.url(p).replace(':hunter2-plain', ':hunter2-wrong')}),
                          ('Postgres is away', {'POSTDATE_POSTGRES_URL': self.url(p, port=closed)}),
                          ('another authority', {'POSTDATE_POSTGRES_URL': self.url(p, sslrootcert=self.certs.pem('other_ca'))}),
                          ('no such database', {'POSTDATE_POSTGRES_URL': self.url(p).replace(p.database, 'nosuch')}),
                          ('a wrong password for RabbitMQ', {'POSTDATE_AMQP_URL': broker.replace(AMQP_PASSWORD, 'wombat5-wrong')}),
                          ('RabbitMQ is away', {'POSTDATE_AMQP_URL': broker.replace(host, '127.0.0.1:' + closed)}),
                          ('no TLS there', {'POSTDATE_AMQP_URL': broker.replace('amqp:', 'amqps:')}),
                          ('no such vhost', {'POSTDATE_AMQP_URL': broker.replace(p.vhost, 'nosuch')})):
            with self.subTest(what):
                self.assert_clean(what, self.errors_of(p, **dict(good, **env)))

    def test_addresses_that_are_wrong(self):
        p = self.place()
        for number in range(max(len(BAD_POSTGRES), len(BAD_AMQP))):
            for env in ({'POSTDATE_POSTGRES_URL': url} for url in BAD_POSTGRES[number:number + 1]):
                with self.subTest(env):
                    self.assert_clean(env, self.errors_of(p, **env))
            for env in ({'POSTDATE_AMQP_URL': url} for url in BAD_AMQP[number:number + 1]):
                with self.subTest(env):
                    self.assert_clean(env, self.errors_of(p, **env))

    def test_files_that_are_wrong(self):
        p = self.place(migrate=False)
        for text in ('[amqp]\nulr = amqp://u:wombat5@h/v\n', '[amqp]\namqp://u:wombat5@h/v\n', 'url = amqp://u:wombat5@h/v\n',
                     '[postgres]\nhost=h password=hunter2\n', '[postgres] url = postgresql://u:hunter2@h/d\n',
                     '[postgres]\npostgresql://u:hunter2@h/d\n', '[amqp]\nurl = wombat5\nurl = wombat5\n'):
            with self.subTest(text):
                path = self.secret_file(text)
                done = subprocess.run([os.path.join(harness.BIN_DIR, 'postdated'), '-c', path, '--check-config'],
                                      env=p.env(POSTDATE_AMQP_URL=None, POSTDATE_POSTGRES_URL=None), stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, check=False, timeout=20)
                self.assertEqual(done.returncode, 78, done.stdout)
                self.assert_clean(text, done.stdout)

    # --- what is in memory
    def run_as_nobody(self, p, env):
        """A gateway of an ordinary user in a folder of its own, which may leave core files; (process, folder)."""
        user = pwd.getpwnam('nobody')
        folder = tempfile.mkdtemp(prefix='postdate-core-', dir='/var/tmp')
        self.addCleanup(shutil.rmtree, folder)
        os.chown(folder, user.pw_uid, user.pw_gid)
        program = shutil.copy(os.path.join(harness.BIN_DIR, 'postdated'), folder)
        os.chmod(program, 0o755)
        as_nobody = ['setpriv', '--reuid', str(user.pw_uid), '--regid', str(user.pw_gid), '--clear-groups']
        log = os.path.join(folder, 'log')
        with open(log, 'wb') as f:
            process = subprocess.Popen([*as_nobody, *DIE_WITH_PARENT, 'prlimit', '--core=unlimited', program], cwd=folder,
                                       env=p.env(HOME=folder, **env), stdin=subprocess.DEVNULL, stdout=f, stderr=f)
        p.children.append(process)
        wait_until(lambda: b'ready:' in read_bytes(log) or process.poll() is not None, 20, 'the gateway to be ready')
        self.assertIsNone(process.poll(), read_bytes(log))
        return process, folder, as_nobody

    def readable(self, process, as_nobody, name):
        done = subprocess.run([*as_nobody, 'head', '-c', '1', f'/proc/{process.pid}/{name}'], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, timeout=20)
        return done.returncode == 0 and done.stdout != b''

    def test_memory_is_not_for_others(self):
        if os.geteuid() != 0:
            self.skipTest('needs root, to be two users')
        pattern = read_bytes('/proc/sys/kernel/core_pattern')
        p = self.place()
        for allowed in ('off', 'on'):
            env = {'POSTDATE_POSTGRES_URL': self.url(p), 'POSTDATE_LOG_CORE_DUMPS': allowed}
            process, folder, as_nobody = self.run_as_nobody(p, env)
            with self.subTest(core_dumps=allowed):
                self.assertEqual(self.readable(process, as_nobody, 'environ'), allowed == 'on')
                self.assertEqual(self.readable(process, as_nobody, 'maps'), allowed == 'on')
                self.assert_clean('arguments', read_bytes(f'/proc/{process.pid}/cmdline'))
                process.send_signal(signal.SIGABRT)
                self.assertEqual(process.wait(20), -signal.SIGABRT)
                if pattern[:1] not in b'|/':
                    cores = glob.glob(os.path.join(folder, 'core*'))
                    self.assertEqual(len(cores), 1 if allowed == 'on' else 0)
                    self.assertTrue(all(b'hunter2' in read_bytes(core) for core in cores), 'the test can see it')
