"""The private Postgres and RabbitMQ that tools/stack.sh runs, those of all tests and those of a test's own."""
import functools
import os
import subprocess
import unittest
import urllib.parse

from .clients import Client
from .postgres import postgres_url, run_psql
from .settings import ROOT
from .waiting import now_ms


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


# Hundreds of vhosts cost a broker with Mnesia a lot. Each that is made goes through all durable exchanges there are, as for a
# start of the broker; so its own are taken from that list. They themselves stay until the broker stops.
FORGET_FOR_A_START = ('catch [mnesia:dirty_delete(rabbit_durable_exchange, X) || '
                      'X <- mnesia:dirty_all_keys(rabbit_durable_exchange), element(2, X) =:= N]')
# And a process for each looks four times a second whether it still exists: 240 ms are made of these 60, meant as seconds.
SELDOM_WATCHED = 'T = application:get_env(kernel, net_ticktime, 60), application:set_env(kernel, net_ticktime, 60000)'


class Stack:
    """A private Postgres and RabbitMQ that tools/stack.sh runs in a folder."""

    def __init__(self, directory, plugins=None, exchange_type=False):
        """plugins: a folder with the delayed-message plugin, '' for none; None leaves it to STACK_PLUGINS_DIR. exchange_type: instead of
        that plugin, which is there all the same, Postdate's own is enabled; 'file': its file is there."""
        self.directory = os.path.abspath(directory)
        self.plugins = plugins
        self.exchange_type = exchange_type
        self.env = {}
        self.vhosts = []
        self.counter = 0
        self.template = None  # a migrated database, to be copied
        self.favoured = False  # beside other tests

    @property
    def postgres(self):
        return self.env['POSTDATE_POSTGRES_URL']

    @property
    def amqp(self):
        return self.env['POSTDATE_AMQP_URL']

    @classmethod
    def own(cls, add_cleanup, name, *args):
        """Servers of a test's own, not started yet, and cleaned in the end. add_cleanup: addCleanup of the test, addClassCleanup of its class."""
        servers = cls(note_stack(f"{os.environ['STACK_DIR']}-{name}"), *args)
        add_cleanup(servers.command, 'clean', check=False)
        servers.favoured = True
        return servers

    def favour(self):
        """RabbitMQ is one process, and each session of processes has the same share of the processors: beside a dozen tests it would
        confirm after a second. Only root may change that; where there are no autogroups, it need not be."""
        try:
            with open(os.path.join(self.directory, 'rabbitmq', 'beam.pid'), encoding='ascii') as f:
                pid = int(f.read())
            with open(f'/proc/{pid}/comm', encoding='ascii') as f:
                if f.read() != 'beam.smp\n':
                    return
            with open(f'/proc/{pid}/autogroup', 'w', encoding='ascii') as f:
                f.write('-10')
        except (OSError, ValueError):
            pass

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

    @functools.cached_property
    def keeps_back(self):
        """Does this RabbitMQ keep back by itself what carries a delivery time (4.4 and later)?"""
        c = Client(self.amqp)
        try:
            queue = c.queue(f'keeps.back.{os.getpid()}', arguments={'x-queue-type': 'quorum'})
            sent_ms = now_ms()
            c.publish(queue, headers={'x-opt-delivery-time': sent_ms + 1000}, exchange='')
            c.wait_get(queue)
            c.channel.queue_delete(queue)
            return now_ms() >= sent_ms + 1000
        finally:
            c.close()

    def need_native(self):
        if not self.keeps_back:
            raise unittest.SkipTest('this RabbitMQ does not delay messages itself (4.4 and later do)')

    def command(self, name, check=True):
        env = dict(os.environ, STACK_DIR=self.directory)
        if self.plugins is not None:
            env['STACK_PLUGINS_DIR'] = self.plugins
        if self.exchange_type:
            env['STACK_EXCHANGE_TYPE'] = 'file' if self.exchange_type == 'file' else '1'
        done = subprocess.run([os.path.join(ROOT, 'tools', 'stack.sh'), name], env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120)
        if check and done.returncode != 0:
            raise AssertionError(f'stack.sh {name} failed ({done.returncode}): {done.stdout.decode()}')
        if self.favoured:
            self.favour()

    def start(self):
        self.command('start')
        return self.load()

    def rabbitmqctl(self, *args, timeout=60):
        program = 'rabbitmqctl-eval' if args[0] == 'eval' else 'rabbitmqctl'
        done = subprocess.run([os.path.join(self.directory, program), *args], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=timeout)
        if done.returncode != 0:
            raise AssertionError(f'rabbitmqctl {args[:1]} failed: {done.stdout.decode()}')
        return done.stdout.decode()

    def rabbitmq_plugins(self, *args, timeout=120):
        """(exit code, what it said)"""
        done = subprocess.run([os.path.join(self.directory, 'rabbitmq-plugins'), *args], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=timeout)
        return done.returncode, done.stdout.decode()

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

    def postgres_log(self):
        """What PostgreSQL has logged so far, to read line by line."""
        return open(os.path.join(self.directory, 'postgres.log'), encoding='utf-8', errors='replace')

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


@functools.cache
def stack():
    """The servers that all tests share."""
    directory = os.environ.get('STACK_DIR', os.path.join(ROOT, 'build', 'teststack'))
    servers = Stack(directory).load()
    servers.template = os.environ.get('POSTDATE_TEST_TEMPLATE')
    return servers
