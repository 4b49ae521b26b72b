"""Price: what a message costs each program in processor time, and how often it is flushed to disk; a burst, and a steady rate in and out.
Each way in turn with RabbitMQ alone through the same kind of exchange and queue, and with other builds' programs. PRICE=names: only some
of the ways timer, direct, quorum, two, ttl, plugin. BUILDS=names: folders below build/ with postdate and postdated of other commits:

  git worktree add /tmp/before COMMIT; make -C /tmp/before all; mkdir -p build/before; cp /tmp/before/build/postdate{,d} build/before
  BUILDS=before make bench ONLY=price BUDGET_S=0"""
import glob
import os
import signal
import subprocess
import time

from herd import publish_herd
from kit import Lane, cpu_s, harness, have, now_ms, wrong

BURST = 'price of a burst: µs of processor time a message by process, flushes to disk for 1,000'
STEADY = 'price of 1,000/s in and out: the same, and commits for 1,000 messages'
RATE, DELAY_MS, IDLE_S = 1000, 3000, 5
DIRECT = 'price.direct'
SYNCS = 'syscalls:sys_enter_fsync,syscalls:sys_enter_fdatasync'


class Way:
    """transport; quorum: the consumer's queue is one; exchange: where deliveries go, and its type; gateways."""

    def __init__(self, transport, quorum=False, direct=False, gateways=1, steady=True):
        self.transport, self.quorum, self.direct, self.gateways, self.steady = transport, quorum, direct, gateways, steady

    def words(self, bench):
        return ', '.join([bench.lane_name(self.transport), 'direct' if self.direct else 'topic', 'quorum' if self.quorum else 'classic',
                          *([f'{self.gateways} gateways'] if self.gateways > 1 else [])])

    def raw(self):
        return f"RabbitMQ alone, {'direct' if self.direct else 'topic'}, {'quorum' if self.quorum else 'classic'}"


def ways(bench):
    all_ways = {'timer': Way('timer'), 'direct': Way('timer', direct=True, steady=False), 'quorum': Way('timer', quorum=True, steady=False),
                'two': Way('timer', gateways=2, steady=False), 'ttl': Way('ttl'), **({'plugin': Way('plugin')} if bench.plugin else {})}
    names = os.environ.get('PRICE', '').split() or all_ways
    return [way for name, way in all_ways.items() if name in names]


# --- what is spent -------------------------------------------------------------------------------------------------------
def tree(root):
    """A process and all below it."""
    children = {}
    for path in glob.glob('/proc/[0-9]*/stat'):
        try:
            with open(path, encoding='utf-8', errors='replace') as f:
                children.setdefault(int(f.read().rsplit(')', 1)[1].split()[1]), []).append(int(path.split('/')[2]))
        except OSError:
            continue  # it has just ended
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


class Syncs:
    """How often a process, and those below it, ask that data be on the disk: perf counts the calls. {} where it is not there, or must not."""

    def __init__(self, groups):
        self.counting = {}
        for name in ('Postgres', 'RabbitMQ') if have('perf') else ():
            pids = ','.join(str(pid) for root in groups[name] for pid in tree(root))
            self.counting[name] = subprocess.Popen(['perf', 'stat', '-x', ',', '-e', SYNCS, '-p', pids], stdin=subprocess.DEVNULL,
                                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def end(self):
        counts = {}
        for name, process in self.counting.items():
            process.send_signal(signal.SIGINT)
            _, out = process.communicate(timeout=20)
            numbers = [line.split(',')[0] for line in out.splitlines() if 'syscalls:' in line]
            if numbers and all(n.isdigit() for n in numbers):
                counts[name] = sum(map(int, numbers))
        return counts


class Spending:
    """From now on, by process."""

    def __init__(self, processes, askers=()):
        self.processes, self.askers = processes, askers
        self.syncs = Syncs(processes)
        self.before = cpu_s(processes, askers)

    def end(self, count):
        """The figures of a row."""
        after = cpu_s(self.processes, self.askers)
        us = {name: (after[name] - self.before[name]) * 1e6 / count for name in after}
        figures = {f'{name.lower()}_us': value for name, value in us.items()}
        figures['sum_us'] = sum(us.values())
        figures.update({f'{name.lower()}_syncs': n * 1000 / count for name, n in self.syncs.end().items()})
        return figures


def of_rabbitmq(figures):
    return {k: v for k, v in figures.items() if 'gateway' not in k and 'postgres' not in k}


# --- RabbitMQ alone ------------------------------------------------------------------------------------------------------
class Raw:
    """One publisher with confirms and one consumer, through an exchange."""

    def __init__(self, bench):
        self.bench = bench
        self.place = bench.place(migrate=False)
        self.processes = {'gateway': [], 'Postgres': [int(bench.stack.env['STACK_POSTGRES_PID'])],
                           'RabbitMQ': [int(bench.stack.env['STACK_RABBITMQ_PID'])]}
        channel = self.place.client().channel
        for kind in ('topic', 'direct'):
            channel.exchange_declare('raw.' + kind, kind, durable=True)

    def measure(self, way):
        """Its rate."""
        row = self.bench.report.row(BURST, way.raw())
        count, queue = self.bench.sizes.herd, f'raw.{way.direct}.{way.quorum}'
        spending = Spending(self.processes)
        result = self.place.load('raw', '--count', count, '--timeout-s', 300, '--queue', queue, '--exchange',
                                 'raw.direct' if way.direct else 'raw.topic', '--bind', queue, *['--quorum'] * way.quorum).result(320)
        figures = spending.end(count)
        if result['missing']:
            raise AssertionError(f"{result['missing']} of {count} are missing")
        row.add(rate=result['rate'], **of_rabbitmq(figures))
        return result['rate']

    def measure_steady(self, way):
        """The same at a rate: each message is published, confirmed, delivered and acknowledged by itself."""
        row = self.bench.report.row(STEADY, way.raw())
        count, queue = RATE * self.bench.sizes.price_s, f'raw.steady.{way.direct}.{way.quorum}'
        with row.trying(self.bench.say):
            exchange = 'raw.direct' if way.direct else 'raw.topic'
            consumer = self.place.load('consume', '--queue', queue, '--exchange', exchange, '--bind', queue, '--expect', count, '--timeout-s',
                                       self.bench.sizes.price_s + 60, *['--quorum'] * way.quorum).wait_consuming()
            spending = Spending(self.processes)
            self.place.load('publish', '--exchange', exchange, '--routing-key', queue, '--count', count, '--rate', RATE, '--timeout-s',
                            self.bench.sizes.price_s + 60).result(self.bench.sizes.price_s + 70)
            result = consumer.result(self.bench.sizes.price_s + 70)
            figures = spending.end(count)
            if result['missing']:
                raise AssertionError(f"{result['missing']} of {count} are missing")
            row.add(**of_rabbitmq(figures), p50_ms=result['p50_ms'], p99_ms=result['p99_ms'])
            self.bench.say(f"price: {way.raw()} at {RATE:,}/s: {figures['sum_us']:.0f} µs")


# --- Postdate ------------------------------------------------------------------------------------------------------------
def measure_burst(bench, way, lane, row, raw_rate):
    count = bench.sizes.herd if way.transport == 'timer' else bench.sizes.herd * 2 // 5  # a burst of 20,000 is a long one there
    whole = Spending(lane.processes(), lane.askers())
    _, due_ms, consumer = publish_herd(lane, count, way.quorum)
    late = now_ms() > due_ms
    time.sleep(max(0.0, (due_ms - now_ms()) / 1000 - 0.7))
    burst = Spending(lane.processes(), lane.askers())
    result = consumer.result(400)
    lane.wait_settled()
    figures, life = burst.end(count), whole.end(count)
    if result['missing'] or late:
        raise AssertionError('publishing had not ended at the due time' if late else f"{result['missing']} of {count} did not come")
    row.add(rate=count / result['max_ms'] * 1000, **figures, life_us=life['sum_us'])
    row.against(way.raw(), count / result['max_ms'] * 1000, raw_rate)
    row.note(wrong(result))
    bench.say(f"price: {row.what}: {count / result['max_ms'] * 1000:,.0f}/s (raw {raw_rate:,.0f}), {figures['sum_us']:.0f} µs, "
              f"{life['sum_us']:.0f} in all its life")


def commits(lane):
    time.sleep(2)  # after so long PostgreSQL has counted what a session did
    return int(harness.run_psql(lane.place.postgres, 'select xact_commit from pg_stat_database where datname = current_database()')[0][0])


def measure_steady(bench, lane, row):
    count, queue = RATE * bench.sizes.price_s, lane.queue('price')
    consumer = lane.consume(queue, count, bench.sizes.price_s + 60)
    before, spending = commits(lane), Spending(lane.processes(), lane.askers())
    lane.place.load('publish', '--exchange', 'postdate', '--routing-key', queue, '--count', count, '--rate', RATE, '--delay-ms', DELAY_MS,
                    '--timeout-s', bench.sizes.price_s + 60).result(bench.sizes.price_s + 70)
    result = consumer.result(bench.sizes.price_s + 70)
    lane.wait_settled()
    figures = spending.end(count)
    if result['missing']:
        raise AssertionError(f"{result['missing']} of {count} did not come")
    row.add(**figures, commits=(commits(lane) - before) * 1000 / count, p50_ms=result['p50_ms'], p99_ms=result['p99_ms'])
    row.note(wrong(result))
    bench.say(f"price: {row.what} at {RATE:,}/s: {figures['sum_us']:.0f} µs, p99 {result['p99_ms']:.1f} ms")


def measure_idle(bench, lane, row):
    """Percent of a core, of all programs, with nothing to do."""
    spending, began = Spending(lane.processes(), lane.askers()), time.monotonic()
    time.sleep(IDLE_S)
    took_s = time.monotonic() - began
    row.add(idle=sum(v for k, v in spending.end(1).items() if k in ('gateway_us', 'postgres_us')) / 1e4 / took_s)


def new_lane(bench, way, release):
    """Its gateways are not started."""
    place = bench.place(way.transport, migrate=not release)
    if release:
        rc, _, err = place.cli('migrate', release=release)
        if rc != 0:
            raise AssertionError(err)
    if way.direct:
        place.client().channel.exchange_declare(DIRECT, 'direct', durable=True)
    return Lane(bench, way.transport, place=place, gateways=0, release=release, **({'exchange': DIRECT} if way.direct else {}))


def one_round(bench, lanes, raw):
    rates = {}
    for way, release, lane in lanes:
        what = way.words(bench) + (f', {release}' if release else '')
        rows = [bench.report.row(BURST, what), *([bench.report.row(STEADY, what)] if way.steady else [])]
        with rows[0].trying(bench.say):
            if way.raw() not in rates:
                rates[way.raw()] = raw.measure(way)
                if way.steady:
                    raw.measure_steady(way)
            lane.start(way.gateways)
            measure_burst(bench, way, lane, rows[0], rates[way.raw()])
            if way.steady:
                with rows[1].trying(bench.say):
                    measure_idle(bench, lane, rows[1])
                    measure_steady(bench, lane, rows[1])
        lane.stop()


def measure(bench):
    releases = ['', *os.environ.get('BUILDS', '').split()]
    raw = Raw(bench)
    lanes = [(way, release, new_lane(bench, way, release)) for way in ways(bench) for release in releases]
    for number in range(bench.sizes.runs):
        one_round(bench, lanes if number % 2 == 0 else lanes[::-1], raw)
