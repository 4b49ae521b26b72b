"""What the shapes share: sizes, private servers, lanes (a way from publisher to consumer), CPU and memory of processes."""
import glob
import os
import shutil
import signal
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'live'))
sys.dont_write_bytecode = True
import harness  # noqa: E402
from harness import ROOT, now_ms, wait_until  # noqa: E402, F401  (for the shapes)

BODY_BYTES = 256
# All that is measured; not the backlog, and not a page of it is read.
SOON = "id between postdate.id_floor(now() - interval '1 hour') and postdate.id_floor(now() + interval '26 hours')"
CAREFUL_INTAKE, CAREFUL_BATCH = 8000, 20000  # messages a second that any machine stores; measured rates take their place
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CLOCK_TICKS = os.sysconf('SC_CLK_TCK')


class Sizes:
    """How much of everything. The fields can be overridden by environment variables, see bench.py."""

    def __init__(self, small, env):
        def number(name, default):
            text = env.get(name) or str(default)
            if not text.isdigit() or (int(text) < 1 and name != 'BUDGET_S'):
                raise SystemExit(f'{name}={text}: a whole number, 1 or more, is allowed')
            return int(text)

        self.small = small
        self.runs = number('RUNS', 1 if small else 3)
        self.backlog = number('BACKLOG', 100_000 if small else 10_000_000)
        self.held_s = number('HELD_S', 6 if small else 180)
        self.store = 10_000 if small else 100_000       # messages of a store run that is not bounded by time
        self.store_s = 1 if small else 2                # seconds of one that is
        self.steady_s = 2 if small else 9               # of each rate; three windows
        self.transport_s = 2 if small else 5
        self.rates = (500, 1000) if small else (1000, 5000, 10000)
        self.cost_rates, self.cost_s = ((100, 200), 3) if small else ((100, 1000, 5000), 20)
        self.transport_rates = (200, 500) if small else (200, 1000, 2000, 5000)
        self.herd = 5_000 if small else 50_000          # and of the retries
        self.million = 20_000 if small else 1_000_000
        self.price_s = 3 if small else 10
        self.feed = 3_000 if small else 200_000
        self.calls = 50 if small else 200
        self.schedules = number('SCHEDULES', 1200 if small else 100_000)
        self.recur_s = 10 if small else 120
        self.burst = number('BURST', 3000 if small else 50_000)  # of the shape "trouble", as what follows
        self.snapshot_s = number('SNAPSHOT_S', 3 if small else 600)
        self.kept = number('KEPT', 20_000 if small else 3_000_000)
        self.keys = number('KEYS', 5000 if small else 1_000_000)
        self.beside = number('BESIDE', 120 if small else 10_000)
        more_s = max(0, self.held_s - 180) + max(0, self.backlog - 10_000_000) // 100_000
        self.budget_s = number('BUDGET_S', 895 + more_s)

    @property
    def backlogs(self):
        return (self.backlog // 10, self.backlog)


class Servers(harness.Stack):
    """stack.sh in a session of its own: Ctrl-C must not end it half-way, with servers that nobody knows of."""

    def command(self, name, check=True):
        held = {number: signal.signal(number, lambda *_: interrupted.append(True)) for number in SIGNALS}
        interrupted = []
        try:
            done = subprocess.Popen([os.path.join(ROOT, 'tools', 'stack.sh'), name], env=dict(os.environ, STACK_DIR=self.directory),
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
            out, _ = done.communicate(timeout=300)
        finally:
            for number, handler in held.items():
                signal.signal(number, handler)
        if interrupted and held[signal.SIGINT] != signal.SIG_IGN:
            raise KeyboardInterrupt
        if check and done.returncode != 0:
            raise AssertionError(f'stack.sh {name} failed ({done.returncode}): {out.decode()}')


class Bench:
    """One run: the servers, the report, and what the shapes tell each other."""

    def __init__(self, sizes, stack, report, plugin):
        self.sizes, self.stack, self.report = sizes, stack, report
        self.plugin = plugin               # 'real', 'test double' or None
        self.began = time.monotonic()
        self.intake_rate, self.batch_rate, self.queues = CAREFUL_INTAKE, CAREFUL_BATCH, 0
        self.backlog = None                # backlog.Backlog, once a shape needed it
        self.open = []                     # what is to be closed

    def elapsed_s(self):
        return time.monotonic() - self.began

    def say(self, text):
        print(f'{self.elapsed_s():5.0f} s  {text}', flush=True)

    def place(self, transport=None, stack=None, **options):
        """stack: other servers, whose vhosts are those of the run's RabbitMQ."""
        if not self.stack.vhosts:
            self.stack.make_vhosts([f'bench{os.getpid()}-{self.stack.counter}-{i}' for i in range(8)])
        place = harness.Place(stack or self.stack, transport=transport, **options)
        self.open.append(place)
        return place

    def close(self, place):
        """Now, and not at the end: what is stored there would cost vacuums and checkpoints."""
        self.open.remove(place)
        place.close()

    def close_all(self):
        while self.open:
            self.open.pop().close(drop=False)

    @property
    def transports(self):
        """Where the broker waits; 'bare' is the plugin without us."""
        return ('bare', 'plugin', 'ttl') if self.plugin else ('ttl',)

    def lane_name(self, transport):
        name = {'bare': 'bare plugin'}.get(transport, transport)
        return name + (' (test double)' if self.plugin == 'test double' and transport in ('bare', 'plugin') else '')


class Lane:
    """A way from a publisher to a consumer: through a gateway with some transport, or through the bare plugin."""
    BARE = 'bare.delayed'

    def __init__(self, bench, transport, place=None, gateways=1, exchange='postdate.delivery', release='', **env):
        """release: a folder below build/ with the programs; place: one that they migrated. exchange: where deliveries go. gateways: 0
        where start() is called later."""
        self.bench, self.transport, self.name = bench, transport, bench.lane_name(transport)
        self.bare = transport == 'bare'
        self.exchange, self.release = self.BARE if self.bare else exchange, release
        self.own_place = place is None
        self.place = place or bench.place(None if self.bare else transport, migrate=not self.bare)
        self.gateways = []
        if self.bare:
            client = self.place.client()
            client.channel.exchange_declare(self.BARE, 'x-delayed-message', durable=True, arguments={'x-delayed-type': 'direct'})
        elif gateways:
            self.start(gateways, **env)

    def __enter__(self):
        return self

    def __exit__(self, *what):
        for g in self.gateways:
            g.kill9() if what[0] else g.term(60)
        if self.own_place:
            self.bench.close(self.place)

    def start(self, gateways=1, **env):
        env = {'POSTDATE_HANDOVER_TRANSPORT': self.transport, 'POSTDATE_DELIVERY_EXCHANGE': self.exchange, **env}
        self.gateways = [self.place.gateway(release=self.release, **env) for _ in range(gateways)]

    def stop(self):
        for g in self.gateways:
            g.term(60)
        self.gateways = []

    def queue(self, word):
        """A new name: lanes may share a place."""
        self.bench.queues += 1
        return f'{word}.{self.bench.queues}'

    def consume(self, queue, count, timeout_s, windows=1, quorum=False):
        p = self.place.load('consume', '--queue', queue, '--exchange', self.exchange, '--bind', queue, '--expect', count,
                            '--timeout-s', int(timeout_s), '--idle-s', 0.5, '--windows', windows, *['--quorum'] * quorum)
        return p.wait_consuming()

    def publish(self, queue, count, due_at_ms, due_rate=0):
        to = ['--exchange', self.BARE, '--relative'] if self.bare else ['--exchange', 'postdate']
        return self.place.load('publish', *to, '--routing-key', queue, '--count', count, '--due-at-ms', due_at_ms,
                               '--due-rate', due_rate, '--timeout-s', 300)

    def ahead_s(self, count):
        """How long before its due time to begin publishing so many, so that all are where they wait."""
        if self.bare:
            return 3 + count / min(5000, self.bench.intake_rate * 0.8)  # the plugin keeps each on disk
        if self.transport == 'timer':
            return 1.5 + count / (self.bench.intake_rate * 0.7)
        return 5 + count / min(5000, self.bench.intake_rate * 0.4)  # stored, claimed and handed over

    def wait_stored(self, queue, count, deadline_s=120):
        """Until all are out of the intake queue. Returns the monotonic time."""
        if not self.bare:
            text = f"select count(*) from postdate.message_now where routing_key = '{queue}' and {SOON}"
            wait_until(lambda: self.place.value(text) == str(count), deadline_s, f'{count} messages to be stored', 0.1)
        return time.monotonic()

    def wait_settled(self, deadline_s=60):
        """Until nothing is claimed or handed over any more."""
        if not self.bare:
            text = (f"select not exists (select from postdate.message_now where owner is not null and {SOON})"
                    f" and not exists (select from postdate.message_now where state = 'handed' and settled_at is null and {SOON})")
            wait_until(lambda: self.place.value(text) == 't', deadline_s, 'everything to be settled', 0.1)

    def askers(self):
        """The server's processes that answer this program: what they spend is not the messages'."""
        text = "select pid from pg_stat_activity where datname = current_database() and application_name = 'psql'"
        return {int(row[0]) for row in self.place.psql(text)} if not self.bare else set()

    def processes(self):
        """{group: pids}"""
        env = {**self.bench.stack.env, **self.place.stack.env}
        return {'gateway': [g.process.pid for g in self.gateways], 'Postgres': [int(env['STACK_POSTGRES_PID'])],
                'RabbitMQ': [int(env['STACK_RABBITMQ_PID'])]}


def wrong(result):
    """What a consumer found amiss, or None."""
    bad = [f'{result[k]} {k}' for k in ('missing', 'duplicates', 'early') if result[k]]
    return ', '.join(bad) or None


# --- processes -------------------------------------------------------------------------------------------------------
def stat_fields(path):
    with open(path, encoding='utf-8', errors='replace') as f:
        pid, rest = f.read().split(' (', 1)
    fields = rest.rsplit(')', 1)[1].split()
    return int(pid), int(fields[1]), sum(map(int, fields[11:15]))  # parent; own ticks and those of ended children


def cpu_s(groups, without=()):
    """{group: CPU seconds so far} of the trees below the pids of {group: pids}, but for the processes `without`."""
    parent, ticks = {}, {}
    for path in glob.glob('/proc/[0-9]*/stat'):
        try:
            pid, parent[pid], ticks[pid] = stat_fields(path)
        except (OSError, ValueError, UnboundLocalError):
            continue  # it has just ended

    def below(pid, roots):
        seen = set()
        while pid and pid not in roots and pid not in seen:
            seen.add(pid)
            pid = parent.get(pid)
        return pid in roots
    return {name: sum(t for pid, t in ticks.items() if pid not in without and below(pid, set(roots))) / CLOCK_TICKS for name, roots in groups.items()}


def cpu_between(before, after, count):
    """CPU seconds per 1,000 messages, by group."""
    return {name: (after[name] - before[name]) * 1000 / count for name in before}


def memory_mib(pid, field='VmRSS'):
    with open(f'/proc/{pid}/status', encoding='utf-8') as f:
        return next(int(line.split()[1]) / 1024 for line in f if line.startswith(field + ':'))


def plugin_kind():
    folder = os.environ.get('STACK_PLUGINS_DIR')
    found = glob.glob(os.path.join(folder, 'rabbitmq_delayed_message_exchange-*')) if folder else []
    if not found:
        return None
    return 'test double' if any('double' in os.path.basename(name) for name in found) else 'real'


def have(program):
    return shutil.which(program) is not None
