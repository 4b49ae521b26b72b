"""Trouble: what a message costs PostgreSQL while something is slow, held, large or many, and what it costs in calm in the same run. A burst is
measured from before it is due until it is settled, and a steady number a second from publishing on. What the servers spend with nothing to do is
measured by itself, and taken off. Images of whole pages are switched off: they depend on when the last checkpoint was."""
import os
import shutil
import tempfile
import time

import troubles
from cost_kit import TOLD_S, spent
from herd import store_lines
from kit import Lane, harness, now_ms, wait_until, wrong
from standby_kit import Pair

SHAPE = 'trouble: PostgreSQL for each message, in calm and in trouble'
IDLE = 'trouble: PostgreSQL each second, with nothing to do'
RATE, DELAY_MS = 1000, 3000
NARROW = 1.5  # times what it costs in calm


class Servers(harness.Stack):
    """RabbitMQ is the run's; PostgreSQL is one whose disk can be slow, and that can have a standby."""

    def __init__(self, bench):
        home = os.path.join(bench.stack.directory, 'home')  # where stack.sh put the data, if not into the folder itself
        super().__init__(bench.stack.directory)
        self.folder = tempfile.mkdtemp(prefix='trouble-', dir=os.path.realpath(home) if os.path.islink(home) else bench.stack.directory)
        os.chmod(self.folder, 0o755)
        self.pg = Pair(self.folder, 0)
        self.pg.primary.set(full_page_writes='off', checkpoint_timeout='30min', max_wal_size='4GB')
        self.vhosts = bench.stack.vhosts
        self.env = dict(bench.stack.env, POSTDATE_POSTGRES_URL=self.pg.url('postgres'), STACK_POSTGRES_PID=str(self.pg.primary.process.pid))

    def close(self):
        self.pg.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Scene:
    """A place with one gateway, in which it is calm, and then is not."""

    def __init__(self, bench, servers, folder, lane):
        self.bench, self.sizes, self.say, self.servers, self.pg, self.folder, self.lane = bench, bench.sizes, bench.say, servers, servers.pg, folder, lane
        self.place = lane.place
        self.steady_s = 2 if bench.sizes.small else 15
        self.idle_s = 1 if bench.sizes.small else 8
        self.idle = (0, 0, 0)  # each second
        self.publish = ()      # more options of the publisher

    def superuser(self, query):
        return self.pg.primary.psql(query, self.place.database, 900)

    def settled(self):
        """What a poll of this costs is nothing beside what is measured."""
        wait_until(lambda: self.place.value('select count(*) from postdate.batch_now') == '0', 120, 'all claims to be settled', 0.1)

    def rest(self):
        """Measures what is spent with nothing to do."""
        self.idle = (0, 0, 0)
        self.idle = self.cost(1, lambda: time.sleep(self.idle_s))[0]
        self.idle = tuple(n / (self.idle_s + TOLD_S) for n in self.idle)

    def cost(self, count, work):
        """(seconds, bytes, rows) for each of `count` while work() runs and until all of it is settled, and what work returned."""
        before, began = spent(self.place), time.monotonic()
        result = work()
        self.settled()
        time.sleep(TOLD_S)
        after, took_s = spent(self.place), time.monotonic() - began
        return tuple(max(0, b - a - idle * took_s) / count for a, b, idle in zip(before, after, self.idle)), result

    def burst(self):
        """All due at one instant."""
        count, queue = self.sizes.burst, self.lane.queue('burst')
        due_ms = now_ms() + int((3 + TOLD_S + count / 4000) * 1000)
        consumer = self.lane.consume(queue, count, 300)
        store_lines(self.lane, self.folder, queue, count, due_ms)
        wait_until(lambda: now_ms() > due_ms - 1500, 60, 'the due time to be near', 0.05)
        return self.cost(count, lambda: consumer.result(400))

    def steady(self):
        """So many a second, in and out."""
        count, queue = RATE * self.steady_s, self.lane.queue('steady')
        consumer = self.lane.consume(queue, count, self.steady_s + 120)

        def work():
            self.flow(queue, count)
            return consumer.result(self.steady_s + 200)
        return self.cost(count, work)

    def flow(self, queue, count, rate=RATE, timeout_s=300):
        """Publishes what is due DELAY_MS later."""
        self.place.load('publish', '--exchange', 'postdate', '--routing-key', queue, '--count', count, '--rate', rate, '--delay-ms', DELAY_MS,
                        '--timeout-s', timeout_s, *self.publish).result(timeout_s + 100)

    def shapes(self):
        return (f'burst of {self.sizes.burst:,}', self.burst), (f'{RATE:,}/s', self.steady)


def add(row, cost, result):
    row.add(us=cost[0] * 1e6, wal=cost[1], rewrites=cost[2], p99_ms=result['p99_ms'], max_ms=result['max_ms'])
    row.note(wrong(result))
    if result['missing']:
        raise AssertionError(f"{result['missing']} did not come")


def in_calm(scene, words):
    """{shape: its cost}"""
    scene.rest()
    costs = {}
    for shape, measure in scene.shapes():
        row = scene.bench.report.row(SHAPE, f'{words}, {shape}')
        with row.trying(scene.say):
            costs[shape], result = measure()
            add(row, costs[shape], result)
            scene.say(f'trouble: {row.what}: {costs[shape][0] * 1e6:.1f} µs, {costs[shape][1]:.0f} B, {costs[shape][2]:.3f} rewrites')
    return costs, scene.idle


def in_trouble(scene, words, calm, shapes):
    for shape, measure in shapes:
        row = scene.bench.report.row(SHAPE, f'{words}, {shape}')
        row.aim('ratio', '≤', NARROW)
        if shape in calm:
            row.aim('wal', '≤', max(NARROW * calm[shape][1], 200), 'of calm' if NARROW * calm[shape][1] > 200 else None)
            row.aim('rewrites', '≤', NARROW * calm[shape][2] + 0.1)
        with row.trying(scene.say):
            cost, result = measure()
            add(row, cost, result)
            if shape in calm:
                row.against('calm', cost[0], max(1e-6, calm[shape][0]))
                row.add(wal_ratio=cost[1] / max(1, calm[shape][1]))
            scene.say(f'trouble: {row.what}: {row.values()}; {row.value("ratio") or 0:.2f} of calm')


def idle_row(bench, words, idle):
    bench.report.row(IDLE, words).add(us_s=idle[0] * 1e6, wal_s=idle[1])


def one(bench, servers, folder, trouble):
    calm_words = 'calm, with keys' if trouble.keyed else 'calm'
    place = bench.place('timer', stack=servers)
    try:
        with Lane(bench, 'timer', place) as lane:
            scene = Scene(bench, servers, folder, lane)
            if trouble.keyed:
                scene.publish = ('--key', 'calm-')
            calm, idle = in_calm(scene, calm_words)
            idle_row(bench, calm_words, idle)
            trouble.before(scene)
            with trouble.lasts(scene):
                scene.rest()
                idle_row(bench, trouble.words, scene.idle)
                in_trouble(scene, trouble.words, calm, scene.shapes())
                trouble.after(scene)
    finally:
        bench.close(place)


def measure(bench):
    wanted = os.environ.get('TROUBLE', '').split()
    with tempfile.TemporaryDirectory(prefix='postdate-bench-') as folder:
        servers = Servers(bench)
        try:
            for trouble in troubles.all_of(bench.sizes):
                if wanted and not any(w in trouble.words for w in wanted):
                    continue
                row = bench.report.row(SHAPE, f'{trouble.words}: not measured')  # stays only with a reason
                with row.trying(bench.say):
                    one(bench, servers, folder, trouble)
                if not row.reason:
                    bench.report.rows.remove(row)
        finally:
            servers.close()
