"""The servers of a chaos run: two Postgres nodes (one of them may be a synchronous standby) and one RabbitMQ."""
import glob
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'clocks'))
from moved_clocks import MovedClocks  # noqa: E402

DIE = ['setpriv', '--pdeathsig', 'KILL']
NOTIFY_BYTES = 1 << 20
ANSWER = 'answer: '  # begins each line that answers one of ours


def wait_until(condition, deadline_s, what, interval_s=0.03):
    until = time.monotonic() + deadline_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > until:
            raise TimeoutError(f'{what}: not within {deadline_s:.0f} s')
        time.sleep(interval_s)


class Launcher:
    """Starts processes that end with this one: from a thread that never ends, as the kernel means the thread by "parent"."""

    def __init__(self):
        self.orders = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            answer, args, options = self.orders.get()
            try:
                answer.put((subprocess.Popen(args, **options), None))
            except OSError as e:
                answer.put((None, e))

    def start(self, args, **options):
        answer = queue.SimpleQueue()
        self.orders.put((answer, args, options))
        process, error = answer.get()
        if error:
            raise error
        return process


LAUNCHER = Launcher()


def postgres_bin():
    return sorted(glob.glob('/usr/lib/postgresql/*/bin'), key=lambda x: float(x.split('/')[-2]))[-1]


# --- Postgres ----------------------------------------------------------------------------------------------------------
class Node:
    """One Postgres: data and socket in `directory`, which is a small tmpfs of its own where this user may mount one (tmpfs_bytes 0: it is
    not); disk: a folder that has its data instead, or None."""

    def __init__(self, directory, tmpfs_bytes, clocks, disk=None):
        self.directory, self.process, self.clocks = directory, None, clocks
        self.room = None    # of PostgreSQL's queue of notifications
        self.spent_s = 0.0  # processor time of its processes that have ended
        self.data, self.run = os.path.join(directory, 'data'), os.path.join(directory, 'run')
        self.log_path = os.path.join(os.path.dirname(directory), os.path.basename(directory) + '.log')
        os.mkdir(directory, 0o755)
        self.tmpfs = tmpfs_bytes > 0 and os.geteuid() == 0 and subprocess.run(
            ['mount', '-t', 'tmpfs', '-o', f'size={tmpfs_bytes},mode=755', 'tmpfs', directory],
            stderr=subprocess.DEVNULL, check=False).returncode == 0
        os.mkdir(self.run, 0o755)
        self.user = []
        if os.geteuid() == 0:
            shutil.chown(directory, 'postgres', 'postgres')
            shutil.chown(self.run, 'postgres', 'postgres')
            self.user = ['setpriv', '--reuid', 'postgres', '--regid', 'postgres', '--clear-groups', '--']

        if disk:
            os.mkdir(os.path.join(disk, os.path.basename(directory)), 0o700)
            os.symlink(os.path.join(disk, os.path.basename(directory)), self.data)
            shutil.chown(self.data, 'postgres', 'postgres')

    @property
    def socket(self):
        return os.path.join(self.run, '.s.PGSQL.5432')

    def tool(self, name, *args):
        done = subprocess.run([*self.user, os.path.join(postgres_bin(), name), *args], cwd='/', stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=120)
        if done.returncode != 0:
            raise RuntimeError(f'{name}: {done.stdout.decode()}')
        return done.stdout.decode()

    def configure(self):
        with open(os.path.join(self.data, 'chaos.conf'), 'w', encoding='utf-8') as f:
            f.write(f"listen_addresses = ''\nport = 5432\nunix_socket_directories = '{self.run}'\n"
                    "shared_buffers = '128MB'\nmax_connections = 300\nmax_wal_size = '512MB'\nmin_wal_size = '80MB'\n"
                    "timezone = 'UTC'\nlog_timezone = 'UTC'\nwal_level = replica\nhot_standby = on\n"
                    "max_wal_senders = 4\nwal_keep_size = '64MB'\ncheckpoint_timeout = '1min'\n"
                    # In its own folder, so that nothing of a killed one stays behind.
                    'dynamic_shared_memory_type = mmap\n')

    def init(self):
        self.tool('initdb', '-D', self.data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-locale', '--no-sync')
        with open(os.path.join(self.data, 'postgresql.conf'), 'a', encoding='utf-8') as f:
            f.write("include 'chaos.conf'\n")
        self.configure()
        self.confine_notifications()

    def confine_notifications(self):
        """Their queue has a disk of its own, which is soon full: PostgreSQL refuses them then as it does when its own limit, of 8
        GB, is reached."""
        if self.tmpfs:
            self.room = os.path.join(self.data, 'pg_notify')
            subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={NOTIFY_BYTES},mode=700', 'tmpfs', self.room], check=True)
            shutil.chown(self.room, 'postgres', 'postgres')

    def copy_of(self, primary):
        """This node becomes a standby of that one."""
        self.remove()
        self.tool('pg_basebackup', '-D', self.data, '-R', '-X', 'stream', '-c', 'fast', '--no-sync', '-h', primary.run,
                  '-U', 'postgres')
        self.configure()
        self.confine_notifications()

    def remove(self):
        self.free_notifications()
        shutil.rmtree(self.data, ignore_errors=True)

    def free_notifications(self):
        if self.room:
            subprocess.run(['umount', '-l', self.room], check=False, stderr=subprocess.DEVNULL)
            self.room = None

    def start(self, deadline_s=120):
        for path in [os.path.join(self.data, 'postmaster.pid'), self.socket, self.socket + '.lock']:
            if os.path.exists(path):
                os.unlink(path)
        with open(self.log_path, 'ab') as log:
            self.process = LAUNCHER.start([*self.user, *DIE, os.path.join(postgres_bin(), 'postgres'), '-D', self.data],
                                            cwd='/', env=dict(os.environ, **self.clocks.env, LC_ALL='C'), stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log)

        def ready():
            if not self.alive():
                raise RuntimeError(f'Postgres ended with {self.process.returncode}, see {self.log_path}')
            return self.answers()
        wait_until(ready, deadline_s, 'Postgres to start')

    def answers(self):
        return subprocess.run([os.path.join(postgres_bin(), 'pg_isready'), '-q', '-h', self.run], check=False,
                              stdin=subprocess.DEVNULL).returncode == 0

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def children(self):
        # Not by pgrep: it reads the memory of processes, and waits with those that wait for a disk.
        try:
            with open(f'/proc/{self.process.pid}/task/{self.process.pid}/children', encoding='utf-8') as f:
                return [int(x) for x in f.read().split()]
        except FileNotFoundError:
            return []

    def processor_s(self):
        """Processor time of all its processes so far."""
        if not self.alive():
            return self.spent_s
        return self.spent_s + ticks_s(self.process.pid, 4) + sum(ticks_s(child, 2) for child in self.children())

    def end(self, number):
        """A signal to the postmaster (INT fast, QUIT immediate, KILL), until nothing of it is left."""
        if not self.alive():
            return
        if number == signal.SIGKILL:
            self.bury(self.strike())
            return
        self.spent_s = self.processor_s()
        children = self.children()
        self.process.send_signal(number)
        self.bury(children)

    def strike(self):
        """kill -9 to all of it, without waiting until it is gone: that is bury(), with what this returns."""
        self.spent_s = self.processor_s()
        self.process.send_signal(signal.SIGSTOP)  # it begets no more: one that outlived it waited for ever, and its memory kept the next one away
        children = self.children()
        self.process.send_signal(signal.SIGKILL)
        for child in children:
            kill(child)
        return children

    def bury(self, children):
        self.process.wait(60)
        wait_until(lambda: not any(lives(c) for c in children), 20, "Postgres' children to end")
        self.process = None

    def signal_all(self, number):
        """To each of its processes, and to those that they beget meanwhile: SIGSTOP stops its birth first, SIGCONT undoes it last."""
        pids = [self.process.pid, *self.children()]
        for pid in pids if number == signal.SIGSTOP else reversed(pids):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def stand_still(self):
        """The kernel goes on: it takes connections, and what is sent over them."""
        self.process.send_signal(signal.SIGSTOP)
        self.signal_all(signal.SIGSTOP)

    def go_on(self):
        self.signal_all(signal.SIGCONT)

    def psql(self, query, database='postgres', deadline_s=60):
        done = subprocess.run([os.path.join(postgres_bin(), 'psql'), '-AtXq', '-F', '\t', '-v', 'ON_ERROR_STOP=1', '-h', self.run, '-U', 'postgres', '-d',
                               database, '-c', query], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False, timeout=deadline_s)
        if done.returncode != 0:
            raise RuntimeError('psql: ' + done.stderr.decode().strip())
        return [line.split('\t') for line in done.stdout.decode().splitlines()]

    def set(self, **settings):
        """alter system, in force for sessions once they have heard of it."""
        for name, value in settings.items():
            self.psql("alter system set {} = '{}'".format(name, value.replace("'", "''")))
        self.psql('select pg_reload_conf()')

    def fill(self):
        """Takes the whole disk but for a few pages; returns the file to remove."""
        path = os.path.join(self.directory, 'balloon')
        with open(path, 'wb') as f:
            while True:
                free = os.statvfs(self.directory)
                room = free.f_bavail * free.f_frsize
                if room < 256 * 1024:
                    return path
                try:
                    os.posix_fallocate(f.fileno(), f.tell(), min(room - 128 * 1024, 64 << 20))
                    f.seek(0, os.SEEK_END)
                except OSError:
                    return path

    def close(self):
        if self.alive():
            self.end(signal.SIGKILL)
        self.free_notifications()
        if self.tmpfs:
            subprocess.run(['umount', '-l', self.directory], check=False, stderr=subprocess.DEVNULL)


def lives(pid):
    """Not gone, and not merely waiting for its parent to hear of its end."""
    try:
        with open(f'/proc/{pid}/stat', encoding='utf-8', errors='replace') as f:
            return f.read().rsplit(')', 1)[1].split()[0] not in 'ZX'
    except OSError:
        return False


def ticks_s(pid, fields):
    """User and system time of a process; with 4 fields also that of its children that it has waited for."""
    try:
        with open(f'/proc/{pid}/stat', encoding='utf-8', errors='replace') as f:
            return sum(map(int, f.read().rsplit(')', 1)[1].split()[11:11 + fields])) / os.sysconf('SC_CLK_TCK')
    except OSError:
        return 0.0


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Postgres:
    """Who is the primary changes with each failover."""

    def __init__(self, directory, tmpfs_bytes, disk=None):
        self.clocks = MovedClocks(ROOT, directory)  # the nodes' clocks agree
        self.nodes = [Node(os.path.join(directory, name), tmpfs_bytes, self.clocks, disk) for name in ('pg-a', 'pg-b')]
        self.primary, self.spare = self.nodes
        self.primary.init()
        self.primary.start()
        self.primary.psql('create role postdate login createdb createrole')
        self.primary.psql('create role stranger login')  # has no right but to connect

    def url(self, database):
        """Straight to the servers, whoever is the primary."""
        hosts = ','.join(n.run for n in self.nodes)
        return f'postgresql:///{database}?host={hosts}&user=postdate&target_session_attrs=read-write&connect_timeout=5'

    def add_standby(self, synchronous=True, apply_delay_s=0):
        """From here on a commit waits until the standby has written it, too; not synchronous: it only follows. apply_delay_s: it shows
        what it has only so much later, and has it all the same when it is promoted."""
        self.spare.copy_of(self.primary)
        self.spare.start()
        self.spare.set(recovery_min_apply_delay=f'{apply_delay_s}s')
        if synchronous:
            self.primary.set(synchronous_standby_names='*')
        self.wait_in_step('sync' if synchronous else 'async')

    def wait_in_step(self, state):
        wait_until(lambda: self.primary.psql("select 1 from pg_stat_replication where state = 'streaming' "
                                             f"and sync_state = '{state}'"), 30, 'the standby to be in step')

    def cut_off(self):
        """The standby runs, and hears nothing of the primary any more: commits that are to wait for it wait."""
        self.cut_from = self.spare.psql('show primary_conninfo')[0][0]
        self.spare.set(primary_conninfo='')
        wait_until(lambda: not self.spare.psql('select 1 from pg_stat_wal_receiver') and
                   not self.primary.psql('select 1 from pg_stat_replication'), 30, 'the standby to be cut off')

    def rejoin(self):
        """The standby hears of the primary again, and catches up."""
        self.spare.set(primary_conninfo=self.cut_from)
        self.wait_in_step('sync' if self.primary.psql('show synchronous_standby_names') != [['']] else 'async')

    def waiting(self):
        """[pid, application_name] of the sessions of the primary whose commit waits for the standby."""
        return self.primary.psql("select pid, application_name from pg_stat_activity where wait_event = 'SyncRep' order by 1")

    def cancel_waits(self):
        """Ends those waits: what they committed is visible and was not replicated. Returns how many."""
        return len(self.primary.psql("select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'"))

    def promote(self):
        """The primary is gone; its standby takes over, alone."""
        old, self.primary = self.primary, self.spare
        self.spare = old
        self.primary.psql('select pg_promote(true, 60)')
        self.primary.set(synchronous_standby_names='')
        old.remove()

    def cost(self):
        """(bytes of WAL, seconds of processor time) of both nodes so far."""
        return int(self.primary.psql("select pg_current_wal_lsn() - '0/0'")[0][0]), sum(n.processor_s() for n in self.nodes)

    def close(self):
        for node in self.nodes:
            node.close()


# --- RabbitMQ ------------------------------------------------------------------------------------------------------------
class Rabbit:
    """The one of tools/stack.sh, with the plugin or its double; asked in Erlang by a process that stays."""

    def __init__(self, directory, plugins, disk=None):
        """disk: a folder that has its data; None: they are beside the rest."""
        self.directory = directory
        if disk:
            os.makedirs(os.path.join(directory, 'rabbitmq'), 0o700)
            os.mkdir(os.path.join(disk, 'mnesia'), 0o700)
            os.symlink(os.path.join(disk, 'mnesia'), os.path.join(directory, 'rabbitmq', 'mnesia'))
        self.stack_env = dict(os.environ, STACK_DIR=directory, STACK_PLUGINS_DIR=plugins, **self.settings)
        self.shell, self.lock = None, threading.Lock()
        self.stack('start-rabbitmq')
        with open(os.path.join(directory, 'env'), encoding='utf-8') as f:
            url = [x.split("'")[1] for x in f if 'POSTDATE_AMQP_URL' in x][0]
        self.ports = [int(x) for x in re.findall(r'127\.0\.0\.1:(\d+)', url)]
        self.port = self.ports[0]
        self.nodes = [self._words(i)['RABBITMQ_NODENAME'] for i in range(len(self.ports))]

    settings, ticks = {}, ()
    STACK_LIMIT_S = 180

    def _words(self, node):
        """What its rabbitmqctl sets."""
        path = os.path.join(self.directory, 'rabbitmqctl' + (f'-{node + 1}' if node else ''))
        with open(path, encoding='utf-8') as f:
            return dict(w.split('=', 1) for w in f.read().replace('\\\n', ' ').split() if '=' in w)

    def stack(self, *command):
        done = subprocess.run([os.path.join(ROOT, 'tools', 'stack.sh'), *map(str, command)], env=self.stack_env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              timeout=self.STACK_LIMIT_S)
        if done.returncode != 0:
            raise RuntimeError(f'stack.sh {" ".join(map(str, command))}: {done.stdout.decode()}')

    def url(self, vhost, user='guest', ports=()):
        """ports: those of links to its nodes."""
        return f'amqp://{user}:{user}@' + ','.join(f'127.0.0.1:{port}' for port in ports or [self.port]) + f'/{vhost}'

    def strike(self):
        """kill -9, without waiting until it is gone; the stack's kill-rabbitmq is to follow."""
        with open(os.path.join(self.directory, 'rabbitmq', 'beam.pid'), encoding='utf-8') as f:
            kill(int(f.read().split()[0]))

    def _open_shell(self):
        home = os.path.join(self.directory, 'home') if os.path.islink(os.path.join(self.directory, 'home')) else self.directory
        words = self._words(0)
        with open(os.path.join(home, 'rabbitmq', '.erlang.cookie'), encoding='utf-8') as f:
            cookie = f.read().strip()
        # A line is a node's name and an expression.
        loop = ('F = fun F() -> case io:get_line("") of eof -> halt(); Line -> [W, L] = string:split(Line, " "), '
                'N = list_to_atom(W), {ok, T, _} = erl_scan:string(L), {ok, E} = erl_parse:parse_exprs(T), '
                'R = rpc:call(N, erl_eval, exprs, [E, []], 60000), '
                f'io:format("{ANSWER}~0p~n", [case R of {{value, V, _}} -> V; X -> {{failed, X}} end]), F() end end, F().')
        self.shell = LAUNCHER.start(
            [*DIE, 'erl', '-noshell', '-hidden', '-start_epmd', 'false', '-sname', f'chaos{os.getpid()}@localhost',
             '-setcookie', cookie, '-kernel', 'inet_dist_use_interface', '{127,0,0,1}', *self.ticks, '-eval', loop],
            env={'PATH': os.environ['PATH'], 'HOME': home, 'ERL_EPMD_PORT': words['ERL_EPMD_PORT'], 'LANG': 'C.UTF-8',
                 'ERL_EPMD_ADDRESS': '127.0.0.1'},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)

    def erlang(self, expression, node=0):
        """One line of Erlang, run in the broker; its value as text."""
        with self.lock:
            if self.shell is None or self.shell.poll() is not None:
                self._open_shell()
            self.shell.stdin.write(f'{self.nodes[node]} {" ".join(expression.split())}\n')
            self.shell.stdin.flush()
            answer = self._read_answer()
        if answer.startswith('{failed,') or not answer:
            raise RuntimeError(f'Erlang: {expression}: {answer}')
        return answer

    def _read_answer(self):
        """'' where the shell has ended. What Erlang itself has to say meanwhile is left out: that a node was refused, say."""
        for line in self.shell.stdout:
            if line.startswith(ANSWER):
                return line[len(ANSWER):].strip()
        return ''

    def make_vhost(self, vhost, users):
        self.erlang(f'case rabbit_vhost:exists(<<"{vhost}">>) of true -> ok; _ -> rabbit_vhost:add(<<"{vhost}">>, '
                    '<<"chaos">>) end.')
        for user in users:
            self.erlang(f'catch rabbit_auth_backend_internal:add_user(<<"{user}">>, <<"{user}">>, <<"chaos">>), ok.')
            self.permit(vhost, user, '.*')

    def permit(self, vhost, user, pattern):
        self.erlang(f'rabbit_auth_backend_internal:set_permissions(<<"{user}">>, <<"{vhost}">>, <<"{pattern}">>, '
                    f'<<"{pattern}">>, <<"{pattern}">>, <<"chaos">>).')

    # --- quorum queues
    @staticmethod
    def found(vhost, queue):
        """Erlang that knows it as Q, and the name of its processes, one on each node, as Name."""
        return (f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost}">>, queue, <<"{queue}">>)), '
                '{Name, _} = amqqueue:get_pid(Q), ')

    def count(self, vhost, queue, query):
        """Messages of a quorum queue, by a query of rabbit_fifo. What RabbitMQ tells of queues is seconds old."""
        return self.erlang(self.found(vhost, queue) + '{ok, {_, N}, _} = ra:local_query('
                           f'{{Name, node()}}, fun rabbit_fifo:{query}/1), N.')

    def stall(self, vhost, queue, _rng):
        """It takes nothing and answers nobody; what was done about it, in words."""
        self.erlang(self.found(vhost, queue) + 'sys:suspend(Name).')
        return 'its process is suspended'

    def unstall(self, vhost, queue):
        """It goes on; it may have done so by itself, after a restart of RabbitMQ."""
        self.erlang(self.found(vhost, queue) + 'sys:resume(Name).')

    def wipe(self):
        """Its disk is gone. It must not run."""
        home = os.path.realpath(os.path.join(self.directory, 'home')) if os.path.islink(
            os.path.join(self.directory, 'home')) else self.directory
        path = os.path.join(home, 'rabbitmq', 'mnesia')
        shutil.rmtree(path)
        os.mkdir(path, 0o700)

    def close(self):
        if self.shell is not None:
            self.shell.kill()
            self.shell.wait()
            self.shell.stdin.close()
            self.shell.stdout.close()
        self.stack('clean')
