"""A place of one's own: a database and a vhost, and everything that runs in them."""
import os
import subprocess

from .clients import Client, Consumer
from .postgres import Asker, Session, postgres_url, run_psql
from .programs import Gateway, Load
from .servers import with_path
from .settings import BIN_DIR, DIE_WITH_PARENT, check_sanitizers, slowness
from .waiting import wait_until

MAX_DELAY = '3d'
# What `postdate migrate` makes differently in each database.
OWN_IDENTITY = ('update postdate.meta set identity = gen_random_uuid(), '
                'database_oid = (select oid::bigint from pg_database where datname = current_database()); '
                'update postdate.secret set bytes = uuid_send(gen_random_uuid())')

# Of a message: `handed` only when RabbitMQ has it.
STATE = """case when state = 'handed' and id in (select unnest(ids) from postdate.handing) then 'claimed' else state end"""


def open_ports():
    """This machine's ends of TCP connections that neither side has closed."""
    return {int(fields[1].split(':')[1], 16) for family in ('tcp', 'tcp6') if os.path.exists(f'/proc/net/{family}')
            for fields in map(str.split, open(f'/proc/net/{family}', encoding='ascii')) if fields[3] == '01'}


class Place:
    """A database and a vhost for one test or class, and everything that runs in it."""

    def __init__(self, stack, max_delay=MAX_DELAY, migrate=True, transport=None, copied=True, vhost=None, prefix=None):
        """transport: who waits; None leaves it to the default. copied=False: `postdate migrate` runs here and leaves its mark in
        the vhost, and the database is no copy of one that was migrated. vhost: another place's, where this one is called prefix."""
        self.stack = stack
        stack.counter += 1
        self.vhost = vhost or (stack.vhosts.pop(0) if stack.vhosts else 'none')
        self.prefix = prefix
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
                   POSTDATE_DELIVERY_MAX_DELAY=self.max_delay, POSTDATE_DELIVERY_ALLOW='*',
                   POSTDATE_HTTP_LISTEN='127.0.0.1:0',  # any free port: many gateways run at once
                   RABBITMQCTL='/nowhere')  # the one in PATH is for another broker, and leaves an epmd running
        if self.transport:
            env['POSTDATE_HANDOVER_TRANSPORT'] = self.transport
        if self.prefix:
            env['POSTDATE_AMQP_PREFIX'] = self.prefix
        env.setdefault('ASAN_OPTIONS', 'detect_leaks=1')
        env.setdefault('UBSAN_OPTIONS', 'print_stacktrace=1')
        env.update({k: str(v) for k, v in overrides.items() if v is not None})
        return {k: v for k, v in env.items() if overrides.get(k, '') is not None}

    def migrate(self):
        self.run('migrate')

    def cli(self, *args, stdin=b'', env=None, timeout=60, release=''):
        """Runs `postdate`; returns (exit code, stdout, stderr)."""
        done = self.start_cli(*args, env=env, release=release)
        try:
            out, err = done.communicate(stdin.encode() if isinstance(stdin, str) else stdin, timeout * slowness())
        except subprocess.TimeoutExpired:
            done.kill()
            raise
        out, err = out.decode(), err.decode()
        check_sanitizers(f'postdate {args}', err)
        return done.returncode, out, err

    def run(self, *args, **options):
        """Runs `postdate`, which does what it is told; what it printed."""
        code, out, err = self.cli(*args, **options)
        if code != 0:
            raise AssertionError(f'postdate {args}: exit {code}: {out}{err}')
        return out

    def start_cli(self, *args, env=None, release=''):
        done = subprocess.Popen([*DIE_WITH_PARENT, os.path.join(BIN_DIR, release, 'postdate'), *map(str, args)],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=self.env(**(env or {})))
        self.children.append(done)
        return done

    def day(self, day, create=None):
        """The partition that has that UTC day ('2026-11-21'), which is made where there is none; create: makes it and its rows first."""
        name, month = 'message_' + day.replace('-', ''), day.replace('-', '')[:6]
        parent = 'message_month_' + month
        if self.value(f"select to_regclass('postdate.message_{month}') is not null") == 't':
            return f'message_{month}'
        if self.value(f"select to_regclass('postdate.{name}') is null") == 't':
            parent = parent if self.value(f"select to_regclass('postdate.{parent}') is not null") == 't' else 'message'
            first, end = self.psql(f"select postdate.id_floor(d), postdate.id_floor(d + interval '24 h') from (select timestamptz '{day} 00:00+00' as d) x")[0]
            self.psql((create or f'create table postdate.{name} (like postdate.message including all)')
                      + f"; alter table postdate.{parent} attach partition postdate.{name} for values from ('{first}') to ('{end}')")
        return name

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

    def gateway(self, wait=True, release='', **env):
        """release: a folder below build/."""
        if env.get('POSTDATE_HANDOVER_TRANSPORT', self.transport) == 'plugin':
            self.stack.need_plugin()
        if wait and env.get('POSTDATE_HANDOVER_TRANSPORT', self.transport) == 'native':
            self.stack.need_native()
        g = Gateway(self, env, release)
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

    def eval_queue(self, queue, erlang):
        """In RabbitMQ, with the queue as Q; what it printed."""
        return self.stack.rabbitmqctl('eval', f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{self.vhost}">>, queue, <<"{queue}">>)), '
                                      + erlang)

    def counts(self):
        """Messages by state. What is on its way to RabbitMQ counts as `claimed`."""
        return {state: int(n) for state, n in
                self.psql(f'select {STATE}, count(*) from postdate.message_now group by 1')}

    def stop_for_good(self):
        """All gateways. What one sent to itself at last is taken out of its exit queues: `drop-topology` would not lose it."""
        for g in self.gateways:
            if g.process.poll() is None and g.term() != 0:
                raise AssertionError(f'{g.condition()}: {g.log()}')
        names = self.stack.rabbitmqctl('list_queues', '-q', '-p', self.vhost, 'name').splitlines()
        channel = self.client().channel
        # RabbitMQ may read what a connection sent, and hear of its consumers, after its other end has closed it.
        wait_until(lambda: {int(port) for vhost, port in (line.split('\t') for line in self.stack.rabbitmqctl(
            'list_connections', '-q', 'vhost', 'peer_port').splitlines()) if vhost == self.vhost} <= open_ports(), 30,
            'no connection whose other end is closed')
        for name in (n for n in names if n.startswith((self.prefix or 'postdate') + '.')):
            wait_until(lambda name=name: channel.queue_declare(name, passive=True).method.consumer_count == 0, 30, f'no consumer at {name}')
            if '.exit' in name:
                channel.queue_purge(name)

    def claimed(self):
        """How many messages a gateway has claimed. In counts(), what it is about to claim is `claimed`, too."""
        return int(self.value("select count(*) from postdate.message_now where state = 'claimed' and owner > 0"))

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


def make_template(stack):
    """A migrated database; its name. Copying it takes a fraction of what a migration does, and hundreds of places begin with one."""
    place = Place(stack)
    stack.psql(f'alter database {place.database} allow_connections false')  # who is connected would hold up the copying
    return place.database
