#!/usr/bin/python3
"""The benchmark: one run, private servers, a table at the end and JSON beside it. `make bench` calls it; the environment says how:

  BENCH=small     a minute or two, to see that it works; its figures say nothing
  ONLY=words      only the shapes with one of these words in their name (see SHAPES below)
  RUNS=n          runs of each figure that is not one of windows of a run; the median counts (default 3)
  BACKLOG=n       messages stored; the shapes over a backlog use a tenth, and all of them (default 10000000)
  BURST=n SNAPSHOT_S=s KEPT=n KEYS=n BESIDE=n   sizes of the shape "trouble" (default 50000, 600, 3000000, 1000000, 10000)
  TROUBLE=words   only the troubles with one of these words in their name
  PRICE=names BUILDS=names   of the shape "price" only some ways; other builds beside it (price.py)
  HELD_S=s        how long the transaction is held open (default 180; less, and said, where BUDGET_S leaves less)
  BUDGET_S=s      shapes that would end later are left out, and that is said (default 895, more with longer shapes; 0: none is)
  BENCH_DIR=dir   the servers keep their data in a new folder in there (default build/bench; /dev/shm is no disk, the table says so)
  BENCH_OUT=dir   where table, JSON and plots go (default build/bench)
  STACK_PLUGINS_DIR=dir   RabbitMQ's delayed-message plugin: rows for it, alone and with us
  PUBLISH=1       writes table and plots into docs/internals/figures.md, too

Exit: 0 all measured, 1 some figure could not be (the table says which and why), 130 interrupted.
"""
import fcntl
import os
import signal
import sys

import after_batch
import backlog
import console
import cost
import feed
import held_open
import herd
import machine
import plot
import price
import rates
import recur
import retry
import scale
import shards
import steady
import store
import trouble
import wakes
from kit import ROOT, SIGNALS, Bench, Servers, Sizes, plugin_kind
from report import Report, write_between_markers

OUT = os.path.abspath(os.environ.get('BENCH_OUT') or os.path.join(ROOT, 'build', 'bench'))

# name, function, seconds on a machine with two cores (the small form: a tenth)
SHAPES = [
    ('store', store.measure, 80),
    ('herd', herd.measure, 135),
    ('steady', backlog.measure_empty, 60),
    ('transports-steady', steady.measure_transports, 85),
    ('million-herd', herd.measure_million, 110),
    ('after-batch', after_batch.measure, 75),
    ('scale', scale.measure, 85),
    ('shards', shards.measure, 240),
    ('cells', shards.measure_cells, 60),
    ('cost', cost.measure, 200),
    ('price', price.measure, 900),
    ('wakes', wakes.measure, 120),
    ('feed', feed.measure, 55),
    ('retry', retry.measure, 160),
    ('rates', rates.measure, 90),
    ('backlog-steady', backlog.measure, 215),
    ('console', console.measure, 120),
    ('recurring', recur.measure, 650),
    ('trouble', trouble.measure, 1500),
    ('held-open', held_open.measure, held_open.AROUND_S + held_open.LEAST_S),
]


def chosen():
    words = os.environ.get('ONLY', '').split()
    shapes = [s for s in SHAPES if not words or any(w in s[0] for w in words)]
    if not shapes:
        raise SystemExit(f"ONLY={' '.join(words)}: no shape has such a name; there are {', '.join(s[0] for s in SHAPES)}")
    return shapes


def measure_shape(bench, name, function, seconds):
    wanted_s = seconds // 10 if bench.sizes.small else seconds
    if bench.sizes.budget_s and bench.elapsed_s() + wanted_s > bench.sizes.budget_s:
        raise TimeoutError(f'no time was left: it takes {wanted_s} s, the run is {bench.elapsed_s():.0f} s old, BUDGET_S is {bench.sizes.budget_s}')
    bench.say(f'--- {name} (about {wanted_s} s)')
    function(bench)


def measure(bench, shapes):
    for name, function, seconds in shapes:
        row = bench.report.row(f'{name}: not measured', name)  # stays only with a reason
        try:
            with row.trying(bench.say):
                measure_shape(bench, name, function, seconds)
        finally:
            if not row.reason:
                bench.report.rows.remove(row)


def publish(report):
    """Everything that is kept of a run."""
    os.makedirs(OUT, exist_ok=True)
    report.write_json(os.path.join(OUT, 'bench.json'))
    plots = plot.write(report, OUT)
    if os.environ.get('PUBLISH'):
        docs = os.path.join(ROOT, 'docs')
        drawn = plot.write(report, os.path.join(docs, 'performance'))
        pictures = ''.join(f'\n\n![{name[:-4]}](../performance/{name})' for name in drawn)
        write_between_markers(os.path.join(docs, 'internals', 'figures.md'), report.markdown() + pictures)
    table = report.text()
    with open(os.path.join(OUT, 'bench.txt'), 'w', encoding='utf-8') as f:
        f.write(table + '\n')
    shown = OUT.replace(os.getcwd() + '/', '')
    print(f"\n{table}\n\nThe same in {shown}: {', '.join(['bench.txt', 'bench.json', *plots])}", flush=True)


def interrupt(*_):
    raise KeyboardInterrupt


def run(bench, stack, shapes, report):
    """The exit code."""
    try:
        bench.say('starting a private Postgres and a private RabbitMQ')
        stack.command('clean')  # of a run that was killed
        stack.start()
        report.machine = machine.describe(bench)
        for name, value in report.machine.items():
            print(f'         {name}: {value}', flush=True)
        measure(bench, shapes)
    except KeyboardInterrupt:
        report.ended = f'Interrupted after {bench.elapsed_s():.0f} s: this is what there is so far.'
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        bench.say('stopping the servers')
        bench.close_all()
        stack.command('clean', check=False)
    publish(report)
    return 130 if report.ended else 0 if report.complete() else 1


def main():
    if os.environ.get('BENCH', '') not in ('', 'small'):
        raise SystemExit(f"BENCH={os.environ['BENCH']}: allowed is small")
    shapes = chosen()
    sizes = Sizes(os.environ.get('BENCH') == 'small', os.environ)
    os.makedirs(OUT, exist_ok=True)
    # A folder of its own, because it is removed as a whole.
    directory = os.path.join(os.path.abspath(os.environ.get('BENCH_DIR') or os.path.join(ROOT, 'build', 'bench')), f'servers-{os.getuid()}')
    os.environ['STACK_DIR'] = directory
    with open(os.path.join(OUT, 'lock'), 'w', encoding='utf-8') as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit('another benchmark runs in this checkout') from None
        report = Report()
        stack = Servers(directory)
        for number in SIGNALS:
            signal.signal(number, interrupt)
        return run(Bench(sizes, stack, report, plugin_kind()), stack, shapes, report)


if __name__ == '__main__':
    sys.exit(main())
