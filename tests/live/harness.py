"""Real programs against real servers: what every live test builds on.

A test class gets a `Place` (a fresh database and a fresh vhost), starts gateways in it, publishes and consumes with
pika, runs the command line and asks the database. `run.py` finds and runs the classes.
"""
import contextlib
import glob
import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
import time
import unittest
import urllib.parse

import pika
import pika.exceptions

import wire  # noqa: F401  (makes pika encode and decode every AMQP field type exactly)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN_DIR = os.path.abspath(os.environ.get('POSTDATE_BIN_DIR', os.path.join(ROOT, 'build')))
SANITIZER_WORDS = ('ERROR: AddressSanitizer', 'runtime error:', 'LeakSanitizer', 'ThreadSanitizer')
SAN = os.environ.get('POSTDATE_TEST_SET') == 'san'
FULL = bool(os.environ.get('POSTDATE_TEST_FULL'))  # the thousands that tests lose and find again are more
SLOWNESS = 3 if SAN else 1  # deadlines only: sanitizers cost time, and nothing waits longer than it must

# The psql in PATH is a Perl program on Debian that finds the real one, and takes five times as long.
os.environ['PATH'] = ':'.join(sorted(glob.glob('/usr/lib/postgresql/*/bin'), key=lambda x: float(x.split('/')[-2]))[-1:]
                              + [os.environ['PATH']])

# No program outlives its test, whatever happens to the test.
DIE_WITH_PARENT = ['setpriv', '--pdeathsig', 'KILL']


def not_san(item):
    """Marks a test or class that the sanitizer run leaves out."""
    item.not_san = True
    return item


def only_full(item):
    """Marks what only the full form runs: for one broker more, with the same code of ours. A class may also have names
    of tests in `only_full`."""
    item.only_full = True
    return item


def needs_vhosts(count):
    """Marks a test that needs more fresh vhosts than its class says, or none."""
    def mark(test):
        test.vhosts = count
        return test
    return mark


# No system gives these to who asks for any port, as gateways do for HTTP and all clients for their connections. stack.sh has higher ones.
PORTS = range(10_000, 20_000)
port_numbers = itertools.count(os.getpid() * 97)  # processes that run at the same time begin far apart


def free_ports(count):
    """All different, and free until the test uses them, or for as long as it wants them refused."""
    ports = []
    while len(ports) < count:
        port = PORTS[next(port_numbers) % len(PORTS)]
        try:
            socket.create_server(('127.0.0.1', port)).close()
        except OSError:
            continue
        ports.append(port)
    return ports


def free_port():
    return free_ports(1)[0]


def now_ms():
    return time.time_ns() // 1_000_000


def wait_until(condition, deadline_s=10.0, what='the condition', interval_s=0.02):
    """Polls until condition() is true and returns its value; fails with `what` after deadline_s."""
    began = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited_s = time.monotonic() - began
        if waited_s > deadline_s * SLOWNESS:
            raise AssertionError(f'waited {deadline_s * SLOWNESS:.0f} s in vain for {what}')
        time.sleep(max(interval_s, min(waited_s / 20, 0.1)))  # most conditions ask a server, and others wait, too


# --- the servers -------------------------------------------------------------------------------------------------
def read_env_file(path):
    """The `export NAME=value` lines that tools/stack.sh writes, read by a shell as a user would."""
    os.stat(path)
    script = f'set -a; . "{path}"; env -0'
    out = subprocess.run(['sh', '-c', script], env={'PATH': os.environ['PATH']}, stdout=subprocess.PIPE, check=True)
    pairs = (entry.split('=', 1) for entry in out.stdout.decode().split('\0') if '=' in entry)
    return {k: v for k, v in pairs if k.startswith(('POSTDATE_', 'STACK_'))}


def with_path(url, path):
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(path='/' + urllib.parse.quote(path, safe='')))


def postgres_url(base, database):
    # urlunsplit drops the // of an empty host: libpq wants it
    parts = urllib.parse.urlsplit(base)
    query = '?' + parts.query if parts.query else ''
    return f'{parts.scheme}://{parts.netloc}/{urllib.parse.quote(database)}{query}'


# Hundreds of vhosts cost a broker with Mnesia a lot. Each that is made goes through all durable exchanges there are, as for a
# start of the broker; so its own are taken from that list. They themselves stay until the broker stops.
FORGET_FOR_A_START = ('catch [mnesia:dirty_delete(rabbit_durable_exchange, X) || '
                      'X <- mnesia:dirty_all_keys(rabbit_durable_exchange), element(2, X) =:= N]')
# And a process for each looks four times a second whether it still exists: 240 ms are made of these 60, meant as seconds.
SELDOM_WATCHED = 'T = application:get_env(kernel, net_ticktime, 60), application:set_env(kernel, net_ticktime, 60000)'


class Stack:
    """A private Postgres and RabbitMQ that tools/stack.sh runs in a folder."""

    def __init__(self, directory, plugins=None):
        """plugins: a folder with the delayed-message plugin, '' for none; None leaves it to STACK_PLUGINS_DIR."""
        self.directory = os.path.abspath(directory)
        self.plugins = plugins
        self.env = {}
        self.vhosts = []
        self.counter = 0
        self.template = None  # a migrated database, to be copied

    def make_template(self):
        """Copying one takes a fraction of what a migration does, and hundreds of places begin with one."""
        place = Place(self)
        self.psql(f'alter database {place.database} allow_connections false')  # who is connected would hold up the copying
        return place.database

    @property
    def postgres(self):
        return self.env['POSTDATE_POSTGRES_URL']

    @property
    def amqp(self):
        return self.env['POSTDATE_AMQP_URL']

    def load(self):
        self.env = read_env_file(os.path.join(self.directory, 'env'))
        return self

    @property
    def no_plugin(self):
        """Why these servers have no delayed-message plugin; '' when they have it."""
        return self.env.get('STACK_NO_PLUGIN', '')

    def need_plugin(self):
        """Skips the test, with the reason, where they have none but for the test's own wish (plugins='')."""
        if self.no_plugin and self.plugins != '':
            raise unittest.SkipTest(self.no_plugin)

    def command(self, name, check=True):
        env = dict(os.environ, STACK_DIR=self.directory)
        if self.plugins is not None:
            env['STACK_PLUGINS_DIR'] = self.plugins
        done = subprocess.run([os.path.join(ROOT, 'tools', 'stack.sh'), name], env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120)
        if check and done.returncode != 0:
            raise AssertionError(f'stack.sh {name} failed ({done.returncode}): {done.stdout.decode()}')

    def start(self):
        self.command('start')
        return self.load()

    def rabbitmqctl(self, *args, timeout=60):
        done = subprocess.run([os.path.join(self.directory, 'rabbitmqctl'), *args], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=timeout)
        if done.returncode != 0:
            raise AssertionError(f'rabbitmqctl {args[:1]} failed: {done.stdout.decode()}')
        return done.stdout.decode()

    def vhost_counter(self):
        """A new file for make_vhosts."""
        path = os.path.join(self.directory, 'rabbitmq', 'vhosts-made')
        if os.path.exists(path):
            os.unlink(path)
        return path

    def make_vhosts(self, names, counter=None, timeout=180):
        """One rabbitmqctl call (each costs a second or two) makes all of them, open to the stack's user. counter: a file of
        RabbitMQ's, which grows by a byte with each; for a broker that is never started again."""
        user = urllib.parse.urlsplit(self.amqp).username or 'guest'
        more = f', {FORGET_FOR_A_START}, file:write_file("{counter}", <<".">>, [append])' if counter else ''
        erlang = ('[begin rabbit_vhost:add(N, <<"test">>), '
                  f'rabbit_auth_backend_internal:set_permissions(<<"{user}">>, N, <<".*">>, <<".*">>, <<".*">>, '
                  f'<<"test">>){more} end || N <- [' + ', '.join(f'<<"{n}">>' for n in names) + ']]')
        self.rabbitmqctl('eval', f'{SELDOM_WATCHED}, {erlang}, application:set_env(kernel, net_ticktime, T), ok.', timeout=timeout)
        self.vhosts.extend(names)

    def psql(self, query):
        """As the stack's superuser: dropping a database ends its sessions, an autovacuum worker's too."""
        return run_psql(postgres_url(self.postgres, 'postgres').replace('user=postdate', 'user=postgres'), query)


def size_of(path):
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def own_stack_list():
    return os.path.join(os.environ['STACK_DIR'], 'stacks-of-tests')


def note_stack(directory, remove=None):
    """A test is about to start servers of its own there: run.py ends them, and removes the folder `remove`, if the
    test itself can't."""
    with open(own_stack_list(), 'a', encoding='utf-8') as f:
        f.write(f'{directory}\t{remove or directory}\n')
    return directory


def stacks_of_tests():
    """{stack folder: folder to remove}"""
    try:
        with open(own_stack_list(), encoding='utf-8') as f:
            return dict(line.split('\t') for line in f.read().splitlines())
    except FileNotFoundError:
        return {}


def run_psql(url, query, check=True):
    done = subprocess.run(['psql', '-AtXq', '-F', '\t', '-v', 'ON_ERROR_STOP=1', '-d', url, '-c', query],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                          timeout=120)
    if check and done.returncode != 0:
        raise AssertionError(f'psql: {done.stderr.decode().strip()}\nquery: {query}')
    return [line.split('\t') for line in done.stdout.decode().splitlines()]


class Asker:
    """A psql that stays open for what tests look at again and again: a new one, and a server process for it, cost ten
    times as much as a question does. Only for queries that change nothing, in the session neither."""
    ASKS = re.compile(r"\s*(select|show)\b(?!.*(;|\\|advisory|terminate|set_config|pg_backend_pid|postdate\.\w+\())", re.I | re.S)
    TIMEOUT_S = 120

    def __init__(self):
        self.url = self.process = None
        self.lock = threading.Lock()

    def ask(self, url, query):
        """The rows; None when somebody else has to ask."""
        if not self.ASKS.match(query) or not self.lock.acquire(blocking=False):
            return None
        try:
            if self.url != url:
                self.close()
            if not self.process:
                self.process = subprocess.Popen(DIE_WITH_PARENT + ['psql', '-AtXq', '-F', '\t', '-d', url], stdin=subprocess.PIPE,
                                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.url = url
            self.process.stdin.write(f'{query}\n;\n\\echo {self.END} :ERROR\n'.encode())
            self.process.stdin.flush()
            return self.answer(query)
        except OSError:
            self.close()  # the server ended its session, and it itself
            return None
        finally:
            self.lock.release()

    END = '--end-of-the-answer--'

    def answer(self, query):
        out, until = b'', time.monotonic() + self.TIMEOUT_S
        end = re.compile(rb'^' + self.END.encode() + rb' (true|false)\n\Z', re.M)
        while not (found := end.search(out)):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))
            if not ready:
                self.close()
                raise AssertionError(f'psql: no answer within {self.TIMEOUT_S} s\nquery: {query}')
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                raise BrokenPipeError
            out += more
        text = out[:found.start()].decode()
        if found[1] == b'true':
            raise AssertionError(f'psql: {text.strip()}\nquery: {query}')
        return [line.split('\t') for line in text.splitlines()]

    def close(self):
        if self.process:
            self.process.kill()
            self.process.communicate()  # closes what leads to it
        self.process = None


class Session:
    """A psql that stays open, to hold a transaction."""

    def __init__(self, url):
        self.process = subprocess.Popen(DIE_WITH_PARENT + ['psql', '-AtXq', '-F', '\t', '-d', url], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        bufsize=1)

    def run(self, statement):
        self.process.stdin.write(statement + ';\n\\echo --done--\n')
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.strip() == '--done--':
                return [x.split('\t') for x in lines]
            lines.append(line.rstrip('\n'))
        raise AssertionError(f'psql ended: {lines}')

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=10)
        self.process.stdout.close()


end_of_job = contextlib.ExitStack()


def at_end_of_job(function, *args, **kwargs):
    """For what classes share that run one after the other in one process (`together`)."""
    end_of_job.callback(function, *args, **kwargs)


# --- a place of one's own ------------------------------------------------------------------------------------------
MAX_DELAY = '3d'
# What `postdate migrate` makes differently in each database.
OWN_IDENTITY = ('update postdate.meta set identity = gen_random_uuid(); '
                'update postdate.secret set bytes = uuid_send(gen_random_uuid())')


class Place:
    """A database and a vhost for one test or class, and everything that runs in it."""

    def __init__(self, stack, max_delay=MAX_DELAY, migrate=True, transport=None, copied=True):
        """transport: who waits; None leaves it to the default. copied=False: `postdate migrate` runs here and leaves its mark in
        the vhost, and the database is no copy of one that was migrated."""
        self.stack = stack
        stack.counter += 1
        self.vhost = stack.vhosts.pop(0) if stack.vhosts else 'none'
        self.database = f't_{os.getpid()}_{stack.counter}'
        self.amqp = with_path(stack.amqp, self.vhost)
        self.postgres = postgres_url(stack.postgres, self.database)
        self.max_delay = max_delay
        self.transport = transport
        self.gateways, self.clients, self.children = [], [], []
        self.asker = Asker()
        copied = copied and migrate and max_delay == MAX_DELAY and stack.template
        stack.psql(f'create database {self.database} owner postdate template {copied or "template1"}')
        if copied:
            run_psql(self.postgres, OWN_IDENTITY)
        elif migrate:
            self.migrate()

    def env(self, **overrides):
        env = {k: v for k, v in os.environ.items() if not k.startswith('POSTDATE_')}
        env.update(POSTDATE_POSTGRES_URL=self.postgres, POSTDATE_AMQP_URL=self.amqp, POSTDATE_CONFIG='/dev/null',
                   POSTDATE_DELIVERY_MAX_DELAY=self.max_delay,
                   POSTDATE_HTTP_LISTEN='127.0.0.1:0',  # any free port: many gateways run at once
                   RABBITMQCTL='/nowhere')  # the one in PATH is for another broker, and leaves an epmd running
        if self.transport:
            env['POSTDATE_HANDOVER_TRANSPORT'] = self.transport
        env.setdefault('ASAN_OPTIONS', 'detect_leaks=1')
        env.setdefault('UBSAN_OPTIONS', 'print_stacktrace=1')
        env.update({k: str(v) for k, v in overrides.items() if v is not None})
        return {k: v for k, v in env.items() if overrides.get(k, '') is not None}

    def migrate(self):
        rc, out, err = self.cli('migrate')
        if rc != 0:
            raise AssertionError(f'postdate migrate: exit {rc}: {out}{err}')

    def cli(self, *args, stdin=b'', env=None, timeout=60):
        """Runs `postdate`; returns (exit code, stdout, stderr)."""
        done = self.start_cli(*args, env=env)
        try:
            out, err = done.communicate(stdin.encode() if isinstance(stdin, str) else stdin, timeout * SLOWNESS)
        except subprocess.TimeoutExpired:
            done.kill()
            raise
        out, err = out.decode(), err.decode()
        check_sanitizers(f'postdate {args}', err)
        return done.returncode, out, err

    def start_cli(self, *args, env=None):
        done = subprocess.Popen([*DIE_WITH_PARENT, os.path.join(BIN_DIR, 'postdate'), *map(str, args)],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=self.env(**(env or {})))
        self.children.append(done)
        return done

    def psql(self, query):
        rows = self.asker.ask(self.postgres, query)
        return run_psql(self.postgres, query) if rows is None else rows

    def value(self, query):
        rows = self.psql(query)
        return rows[0][0] if rows else None

    def session(self):
        s = Session(self.postgres)
        self.children.append(s.process)
        return s

    def gateway(self, wait=True, **env):
        if env.get('POSTDATE_HANDOVER_TRANSPORT', self.transport) == 'plugin':
            self.stack.need_plugin()
        g = Gateway(self, env)
        self.gateways.append(g)
        if wait:
            try:
                g.wait_ready()
            except AssertionError as e:
                raise AssertionError(f'{e}\n{self.sessions()}') from None
        return g

    def sessions(self):
        """What the database does, for a test that waits in vain."""
        try:
            rows = run_psql(self.postgres, "select pid, application_name, state, wait_event, pg_blocking_pids(pid), left(query, 120) "
                            "from pg_stat_activity where datname = current_database()")
        except (AssertionError, subprocess.TimeoutExpired) as e:
            return f'sessions: {e}'
        return '\n'.join(['sessions:', *('  ' + ' | '.join(row) for row in rows)])

    def client(self):
        c = Client(self.amqp)
        self.clients.append(c)
        return c

    def consumer(self, queue, **options):
        c = Consumer(self.amqp, queue, **options)
        self.clients.append(c)
        return c

    def load(self, *args):
        """Starts tests/tools/load; .result() waits for it and returns its JSON."""
        return Load(self, args)

    def counts(self):
        """Messages by state."""
        return {state: int(n) for state, n in
                self.psql('select state, count(*) from postdate.message group by 1')}

    def close(self, drop=True):
        problems = []
        self.asker.close()
        for item in self.clients:
            item.close()
        for g in self.gateways:
            g.kill9()
            problems.extend(g.sanitizer_reports())
        for child in self.children:
            if child.poll() is None:
                child.kill()
                child.wait()
            for stream in (child.stdin, child.stdout, child.stderr):
                if stream:
                    stream.close()
        if drop:
            self.stack.psql(f'drop database if exists {self.database} with (force)')
        if problems:
            raise AssertionError('\n'.join(problems))

    def log_tail(self):
        return '\n'.join(f'--- log of gateway {i + 1}, {g.condition()} ---\n' + '\n'.join(g.log().splitlines()[-40:])
                         for i, g in enumerate(self.gateways))


def check_sanitizers(what, text):
    for word in SANITIZER_WORDS:
        if word in text:
            raise AssertionError(f'{what}: sanitizer report:\n{text[:6000]}')


class Gateway:
    """One running postdated."""

    def __init__(self, place, env):
        self.lines = []
        self.changed = threading.Condition()
        self.process = subprocess.Popen([*DIE_WITH_PARENT, os.path.join(BIN_DIR, 'postdated')],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        env=place.env(**env))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self.changed:
                self.lines.append(line.decode(errors='replace').rstrip('\n'))
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()
        self.process.stderr.close()

    def log(self):
        with self.changed:
            return '\n'.join(self.lines)

    def lines_with(self, pattern):
        return [x for x in self.log().splitlines() if re.search(pattern, x, re.I)]

    def wait_log(self, pattern, deadline_s=15.0):
        def found():
            if not self.lines_with(pattern) and self.process.poll() is not None and not self.reader.is_alive():
                raise AssertionError(f'postdated ended with {self.process.returncode} before logging "{pattern}"')
            return self.lines_with(pattern)
        return wait_until(found, deadline_s, f'a log line with "{pattern}"')

    def http(self):
        """(host, port) of its HTTP interface."""
        line = self.wait_log(r'listening on http://')[0]
        host, port = re.search(r'http://([0-9.]+):([0-9]+)', line).groups()
        return host, int(port)

    def wait_ready(self, deadline_s=60.0):
        """A busy machine takes its time to declare a ladder's queues."""
        self.wait_log(r'\bready\b', deadline_s)
        return self

    def term(self, deadline_s=15.0):
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait(deadline_s)

    def wait(self, deadline_s=15.0):
        try:
            self.process.wait(deadline_s * SLOWNESS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f'postdated did not end within {deadline_s * SLOWNESS:.0f} s') from None
        self.reader.join(5)
        return self.process.returncode

    def pause(self):
        """SIGSTOP; it has stopped when this returns, which the signal alone does not say."""
        self.process.send_signal(signal.SIGSTOP)

        def stopped():
            for name in glob.glob(f'/proc/{self.process.pid}/task/*/stat'):
                with open(name, encoding='utf-8') as f:
                    if f.read().rsplit(')', 1)[1].split()[0] != 'T':
                        return False
            return True
        wait_until(stopped, 10, 'every thread to be stopped')

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill9(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.reader.join(5)

    def condition(self):
        code = self.process.poll()
        return 'which runs' if code is None else f'which ended with {code}'

    def sanitizer_reports(self):
        text = self.log()
        return [f'sanitizer report of a gateway:\n{text[:6000]}' for w in SANITIZER_WORDS if w in text][:1]


class Load:
    def __init__(self, place, args):
        self.args = args
        self.errors = []
        self.json = None
        command = [os.path.join(BIN_DIR, 'tests', 'tools', 'load'), args[0], '--url', place.amqp]
        self.process = subprocess.Popen(DIE_WITH_PARENT + command + [str(a) for a in args[1:]],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)
        place.children.append(self.process)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.errors.append(line.strip())

    def wait_consuming(self, deadline_s=10.0):
        wait_until(lambda: any(x.startswith('consuming') for x in self.errors) or self.process.poll() is not None,
                   deadline_s, 'the consumer to start')
        if self.process.poll() is not None:
            raise AssertionError(f'load {self.args}: exit {self.process.returncode}: {self.errors}')
        return self

    def result(self, deadline_s=120.0):
        if self.json is None:
            self.process.wait(deadline_s * SLOWNESS)
            self.reader.join(5)
            out = self.process.stdout.read().strip()
            if not out:
                raise AssertionError(f'load {self.args}: exit {self.process.returncode}: {self.errors}')
            self.json = json.loads(out.splitlines()[-1])
        return self.json


# --- AMQP clients --------------------------------------------------------------------------------------------------
class Received:
    """A message as the consumer got it."""

    def __init__(self, method, properties, body, at_ms):
        self.method, self.properties, self.body, self.at_ms = method, properties, body, at_ms
        self.headers = properties.headers or {}
        self.exchange, self.routing_key = method.exchange, method.routing_key
        self.id = self.headers.get('x-postdate-id')
        self.due_ms = self.headers.get('x-postdate-due')


class Client:
    """A connection with confirms: a publish that returns is safe in the broker."""

    def __init__(self, url):
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def queue(self, name, bind=None, exchange='postdate.delivery', arguments=None):
        self.channel.queue_declare(name, durable=True, arguments=arguments)
        for key in ([bind] if isinstance(bind, str) else bind or []):
            self.channel.queue_bind(name, exchange, key)
        return name

    def publish(self, routing_key, body=b'', headers=None, exchange='postdate', mandatory=False, **properties):
        properties.setdefault('delivery_mode', 2)
        p = pika.BasicProperties(headers=headers, **properties)
        self.channel.basic_publish(exchange, routing_key, body, p, mandatory=mandatory)

    def publish_burst(self, routing_key, bodies, headers=None, exchange='postdate'):
        """Without confirms in between, so that they come to the gateway together. The channel stays open: closing it
        at once loses the last ones of unconfirmed messages to a quorum queue (seen with RabbitMQ 3.10)."""
        channel = self.connection.channel()
        p = pika.BasicProperties(headers=headers, delivery_mode=2)
        for body in bodies:
            channel.basic_publish(exchange, routing_key, body, p)

    def get(self, queue):
        method, properties, body = self.channel.basic_get(queue, auto_ack=True)
        return Received(method, properties, body, time.time() * 1000) if method else None

    def wait_get(self, queue, deadline_s=10.0):
        return wait_until(lambda: self.get(queue), deadline_s, f'a message in {queue}')

    def depth(self, queue):
        """Messages waiting in a queue (not those a consumer holds unacknowledged)."""
        channel = self.connection.channel()
        try:
            count = channel.queue_declare(queue, passive=True).method.message_count
            channel.close()
            return count
        except pika.exceptions.ChannelClosedByBroker:
            return None

    def close(self):
        try:
            self.connection.close()
        except pika.exceptions.AMQPError:
            pass


class Consumer:
    """Consumes a queue in a thread of its own and notes when each message came."""

    def __init__(self, url, queue, declare=False, bind=None, exchange='postdate.delivery', prefetch=0):
        self.messages = []
        self.queue = queue
        self.lock = threading.Lock()
        self.stopping = False
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        if declare or bind is not None:
            self.channel.queue_declare(queue, durable=True)
        if bind is not None:
            self.channel.queue_bind(queue, exchange, bind)
        if prefetch:
            self.channel.basic_qos(prefetch_count=prefetch)
        self.channel.basic_consume(queue, self._take)
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def _take(self, channel, method, properties, body):
        message = Received(method, properties, body, time.time() * 1000)
        with self.lock:
            self.messages.append(message)
        channel.basic_ack(method.delivery_tag)

    def _loop(self):
        try:
            while not self.stopping:
                self.connection.process_data_events(time_limit=0.05)
            self.connection.close()
        except (pika.exceptions.AMQPError, OSError):
            pass

    def all(self):
        with self.lock:
            return list(self.messages)

    def wait(self, count, deadline_s=10.0):
        """The messages, once there are `count` of them."""
        wait_until(lambda: len(self.all()) >= count, deadline_s,
                   f'{count} messages in {self.queue}')
        return self.all()

    def wait_body(self, body, deadline_s=10.0):
        return wait_until(lambda: next((m for m in self.all() if m.body == body), None), deadline_s,
                          f'{body[:60]!r} in {self.queue}')

    def close(self):
        self.stopping = True
        self.thread.join(10)


# --- the test case ---------------------------------------------------------------------------------------------------
main_stack = None


def stack():
    global main_stack
    if main_stack is None:
        directory = os.environ.get('STACK_DIR', os.path.join(ROOT, 'build', 'teststack'))
        main_stack = Stack(directory).load()
        main_stack.template = os.environ.get('POSTDATE_TEST_TEMPLATE')
    return main_stack


class LiveTest(unittest.TestCase):
    """self.place() makes a database for one test and takes one of its `vhosts`; it is closed after it."""
    maxDiff = 4000
    vhosts = 1  # how many fresh ones run.py gives to each job (a test, or a SharedTest class)
    weight = 1  # heavier jobs start first
    # Who waits. None: as users have it, by default the broker. 'timer' where the gateway's own waiting is the subject.
    who_waits = None

    def place(self, **options):
        options.setdefault('transport', self.who_waits)
        place = Place(options.pop('stack', None) or stack(), **options)
        self.places = getattr(self, 'places', [])
        self.places.append(place)
        self.addCleanup(place.close)
        return place

    def logs(self):
        return '\n'.join(p.log_tail() for p in getattr(self, 'places', []))

    def assert_on_time(self, message, published_ms, delay_ms, late_ms=1500):
        """Not early (neither by what was asked nor by what the header says), and not much later."""
        due = published_ms + delay_ms
        self.assertGreaterEqual(message.at_ms, due, 'delivered early')
        self.assertLessEqual(message.at_ms, due + late_ms * SLOWNESS, 'delivered late')


class SharedTest(LiveTest):
    """One place, gateway, client and consumed queue for all tests of the class; routing keys keep them apart."""
    gateway_env = {}
    place_options = {}

    @classmethod
    def setUpClass(cls):
        cls.p = Place(stack(), **{'transport': cls.who_waits, **cls.place_options})
        cls.addClassCleanup(cls.p.close)
        cls.gw = cls.p.gateway(**cls.gateway_env)
        cls.parked = []

    @classmethod
    def tearDownClass(cls):
        client = cls.p.client()
        wait_until(lambda: client.depth('postdate.intake') == 0, 10, 'the intake queue to be empty')

    def setUp(self):
        self.c = self.p.client()
        self.addCleanup(self.c.close)

    def inbox(self, key=None):
        """A consumed queue bound to `key` (by default the test's own name), and that key."""
        key = key or self.id().rsplit('.', 1)[-1]
        consumer = self.p.consumer('q.' + key, bind=key)
        return consumer, key

    def rejected(self, body, deadline_s=10.0):
        """The parked message with that body."""
        return wait_until(lambda: self.find_rejected(lambda m: m.body == body), deadline_s,
                          f'{body[:40]!r} in postdate.rejected')

    def find_rejected(self, fits):
        """The first of all parked messages of this class that fits, or None."""
        while True:
            m = self.c.get('postdate.rejected')
            if m is None:
                return next((m for m in self.parked if fits(m)), None)
            self.parked.append(m)

    def logs(self):
        return self.p.log_tail()
