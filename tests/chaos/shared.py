"""What the threads of one cell's workload share: the ledger, the commands that were given, counts for the status line, and
what is to be asked about messages later."""
import heapq
import itertools
import queue
import random
import threading
import time

import record

OUTCOMES = ('attempted', 'accepted', 'refused', 'unknown')


class Job:
    """A flood, or messages to be handed over: n messages with their due times between two, beside the mix."""

    def __init__(self, way, count, from_ms, to_ms):
        self.way, self.left, self.from_ms, self.to_ms = way, count, from_ms, to_ms


class Shared:
    """Any thread may use it. Plain attributes are written by the thread of the commands only."""

    def __init__(self, config):
        self.config = config
        self.writer = record.Writer(config['dir'], config['name'])
        self.rate = float(config['rate'])
        self.paused = False
        self.amqp_on = True
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.counts = {}  # way: {outcome: count}
        self.doing = {}   # thread: what it is doing
        self.jobs = {way: queue.SimpleQueue() for way in ('amqp', 'http', 'sql')}
        self.job_left = 0
        self.later = {'http': Later(), 'sql': Later()}

    def count(self, way, outcome, by=1):
        with self.lock:
            counts = self.counts.setdefault(way, {})
            counts[outcome] = counts.get(outcome, 0) + by

    def add_job(self, job):
        with self.lock:
            self.job_left += job.left
        self.jobs[job.way].put(job)

    def job_done(self, job, by):
        job.left -= by
        with self.lock:
            self.job_left -= by

    def next_job(self, way):
        try:
            return self.jobs[way].get_nowait()
        except queue.Empty:
            return None

    # --- what all ways write down --------------------------------------------------------------------------------
    def attempt(self, messages):
        self.writer.write([m.attempt() for m in messages])
        self.count(messages[0].way, 'attempted', len(messages))

    def answer(self, way, lines):
        """lines: answers K, R, U to attempts of this way."""
        if not lines:
            return
        self.writer.write(lines)
        for letter, outcome in (('K', 'accepted'), ('R', 'refused'), ('U', 'unknown')):
            found = sum(line[0] == letter for line in lines)
            if found:
                self.count(way, outcome, found)


class Pace:
    """How many messages a way may send now, at its share of the rate. What was missed for more than a second is not made up
    for: a way that hung begins again with its rate, not with a flood."""

    def __init__(self, shared, share):
        self.shared, self.share = shared, share
        self.credit, self.at = 0.0, time.monotonic()

    def take(self, most, least=1):
        """Between least and most, or 0."""
        now = time.monotonic()
        rate = 0.0 if self.shared.paused else self.shared.rate * self.share
        self.credit = min(self.credit + (now - self.at) * rate, max(float(least), rate))
        self.at = now
        n = min(int(self.credit), most) if self.credit >= least and rate else 0
        self.credit -= n
        return n


class Later:
    """What is to be asked, by time."""

    def __init__(self):
        self.condition = threading.Condition()
        self.heap, self.order = [], itertools.count()

    def put(self, at_s, item):
        """at_s: as time.time() counts."""
        with self.condition:
            heapq.heappush(self.heap, (at_s, next(self.order), item))
            self.condition.notify()

    def take(self, wait_s):
        """The first item whose time has come, None when there was none for so long."""
        until = time.time() + wait_s
        with self.condition:
            while True:
                now = time.time()
                if self.heap and self.heap[0][0] <= now:
                    return heapq.heappop(self.heap)[2]
                if now >= until:
                    return None
                first = self.heap[0][0] if self.heap else until
                self.condition.wait(max(0.001, min(first, until) - now))


class Plans:
    """What becomes of accepted messages: most are left alone, some cancelled or moved. One thread's own."""

    def __init__(self, shared, way):
        self.shared = shared
        self.rng = random.Random(f'{shared.config["seed"]} {shared.config["name"]} plans {way}')

    def make(self, m):
        kind = self.rng.random()
        now_s, due_s = time.time(), m.lo_ms / 1000
        if m.replaces or kind > 0.18 or (m.id is None and m.key is None):
            return
        if kind < 0.12:
            action, at_s = 'cancel', self.cancel_time(now_s, due_s)
        elif m.id is None:
            return
        else:
            action, at_s = 'move', self.rng.uniform(now_s, max(now_s, due_s - 0.3))
        way = self.rng.choice(('http', 'sql'))
        self.shared.later[way].put(at_s, (action, m))

    def cancel_time(self, now_s, due_s):
        """Some exactly when it is due, some when it is about to be claimed, half a second before."""
        kind = self.rng.random()
        if kind < 0.15:
            return due_s + self.rng.uniform(-0.01, 0.01)
        if kind < 0.4:
            return due_s - 0.5 + self.rng.uniform(-0.1, 0.25)
        return self.rng.uniform(now_s, max(now_s, due_s))
