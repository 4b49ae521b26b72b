"""How late messages are that RabbitMQ itself waits with, how fast they are handed over, and how fast a herd drains.

The gateway with each transport, and beside it the bare plugin and the broker's own limit, in one run on one machine.
Wants the real plugin (STACK_PLUGINS_DIR); with the test double its rows say so.

    STACK_DIR=... tests/bench/handover.py [--rates 200,500,1000,2000] [--seconds 10] [--herd 50000] [--runs 3]
                                          [--bin build] [--quorum-bin DIR] [--only timer,ttl,...] [--json FILE]

--quorum-bin: programs built with CFLAGS='-DRUNG_QUEUE_TYPE="\"quorum\""', for a ladder of quorum queues.
"""
import argparse
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'live'))
import harness  # noqa: E402

AHEAD_S = 6  # the first is due so long after publishing begins: later than min_ahead, so that all are handed over
BARE = 'bare.delayed'


class Variant:
    def __init__(self, name, transport=None, bin_dir=None):
        self.name, self.transport, self.bin_dir = name, transport, bin_dir

    @property
    def bare(self):
        return self.transport is None

    def open(self, stack):
        if self.bin_dir:
            harness.BIN_DIR = os.path.abspath(self.bin_dir)
        self.place = harness.Place(stack)
        if self.bare:
            self.exchange = BARE
            self.place.client().channel.exchange_declare(BARE, 'x-delayed-message', durable=True,
                                                         arguments={'x-delayed-type': 'direct'})
            return
        self.exchange = 'postdate.delivery'
        self.start_gateway()

    def start_gateway(self, **more):
        self.gateway = self.place.gateway(POSTDATE_HANDOVER_TRANSPORT=self.transport, **more)

    def close(self):
        self.place.close()

    def consume(self, queue, count, timeout_s):
        p = self.place.load('consume', '--queue', queue, '--exchange', self.exchange, '--bind', queue, '--expect', count,
                            '--timeout-s', timeout_s, '--idle-s', 1)
        return p.wait_consuming()

    def publish(self, queue, count, due_at_ms, due_rate=0):
        to = ['--exchange', BARE, '--relative'] if self.bare else ['--exchange', 'postdate']
        return self.place.load('publish', *to, '--routing-key', queue, '--count', count, '--due-at-ms', due_at_ms,
                               '--due-rate', due_rate)


def now_ms():
    return int(time.time() * 1000)


def steady(v, rates, seconds):
    """One rate after the other, all of it published beforehand."""
    begin_ms, started = now_ms() + AHEAD_S * 1000, []
    for rate in rates:
        queue = f's{rate}.{begin_ms}'
        started.append((rate, queue, begin_ms, v.consume(queue, rate * seconds, len(rates) * (seconds + 2) + 60)))
        begin_ms += (seconds + 1) * 1000
    for rate, queue, due_ms, _ in started:
        v.publish(queue, rate * seconds, due_ms, rate).result()
    for rate, _, _, consumer in started:
        r = consumer.result(300)
        yield rate, {k: r[k] for k in ('p50_ms', 'p99_ms', 'max_ms', 'missing', 'duplicates', 'early')}


def herd(v, count):
    """The drain: from the due time to the last one."""
    queue, due_ms = f'h{now_ms()}', now_ms() + 15000
    consumer = v.consume(queue, count, 180)
    v.publish(queue, count, due_ms).result()
    r = consumer.result(240)
    seconds = r['max_ms'] / 1000
    return {'drain_rate': round(count / seconds), 'seconds': seconds,
            **{k: r[k] for k in ('p50_ms', 'p99_ms', 'missing', 'duplicates', 'early')}}


def hand_over(v, count):
    """With a window that never was fed, so that all wait in the database; then one feed."""
    v.gateway.term()
    v.start_gateway(POSTDATE_HANDOVER_FEEDER='cron')
    queue = f'f{now_ms()}'
    v.publish(queue, count, now_ms() + 600000).result()
    stored = f"select count(*) from postdate.message where routing_key = '{queue}' and state = "
    harness.wait_until(lambda: v.place.value(stored + "'scheduled'") == str(count), 60, 'all to be stored')
    began = time.monotonic()
    rc, _, err = v.place.cli('feed', '--window', '1h', env={'POSTDATE_HANDOVER_TRANSPORT': v.transport})
    assert rc == 0, err
    harness.wait_until(lambda: v.place.value(stored + "'handed'") == str(count), 120, 'all to be handed over')
    seconds = time.monotonic() - began
    return {'rate': round(count / seconds), 'seconds': round(seconds, 2)}


def raw(stack, count):
    place = harness.Place(stack, migrate=False)
    r = place.load('raw', '--count', count).result()
    place.close()
    return {'rate': r['rate']}


def measure(v, stack, o, out):
    def note(shape, figures):
        out.append({'variant': v.name, 'shape': shape, **figures})
        print(f'{v.name:12} {shape:12} ' + ' '.join(f'{k}={x}' for k, x in figures.items()), flush=True)
    v.open(stack)
    try:
        for rate, figures in steady(v, o.rates, o.seconds):
            note(f'steady {rate}', figures)
        if o.herd:
            note('herd', herd(v, o.herd))
            if v.transport in ('plugin', 'ttl'):
                note('hand-over', hand_over(v, o.herd))
    finally:
        v.close()


def table(rows):
    """Medians over the runs."""
    print('\nmedians')
    keys = list(dict.fromkeys((r['shape'], r['variant']) for r in rows))
    for shape, variant in sorted(keys, key=lambda k: (k[0].split()[0], int((k[0].split() + ['0'])[1]))):
        some = [r for r in rows if (r['shape'], r['variant']) == (shape, variant)]
        figures = {k: statistics.median(r[k] for r in some) for k in some[0] if k not in ('shape', 'variant')}
        print(f'{shape:12} {variant:12} ' + '  '.join(f'{k} {x:g}' for k, x in figures.items()))


def main():
    a = argparse.ArgumentParser()
    a.add_argument('--rates', default='200,500,1000,2000', type=lambda s: [int(x) for x in s.split(',') if x])
    a.add_argument('--seconds', default=10, type=int)
    a.add_argument('--herd', default=50000, type=int)
    a.add_argument('--runs', default=3, type=int)
    a.add_argument('--bin', default='build')
    a.add_argument('--quorum-bin')
    a.add_argument('--only', default='')
    a.add_argument('--json')
    o = a.parse_args()
    variants = [Variant('timer', 'timer', o.bin), Variant('bare plugin'), Variant('plugin', 'plugin', o.bin),
                Variant('ttl', 'ttl', o.bin)]
    if o.quorum_bin:
        variants.append(Variant('ttl quorum', 'ttl', o.quorum_bin))
    variants = [v for v in variants if not o.only or v.name in o.only.split(',')]
    stack = harness.Stack(os.environ['STACK_DIR']).load()
    stack.make_vhosts([f'b{os.getpid()}-{i}' for i in range((len(variants) + 1) * o.runs)])
    rows = []
    for run in range(o.runs):
        print(f'run {run + 1} of {o.runs}', flush=True)
        harness.BIN_DIR = os.path.abspath(o.bin)
        rows.append({'variant': 'raw', 'shape': 'herd', **raw(stack, 100000)})
        print('raw          ', rows[-1], flush=True)
        for v in variants:
            measure(v, stack, o, rows)
    table(rows)
    if o.json:
        with open(o.json, 'w', encoding='utf-8') as f:
            json.dump(rows, f, indent=1)


main()
