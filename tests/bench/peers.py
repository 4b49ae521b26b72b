#!/usr/bin/python3
"""What other programs that run things later reach on this machine: the same shapes as the benchmark's, 256-byte bodies.

    tests/bench/peers.py [PEER...] [--json FILE] [--small]

Peers: graphile-worker, pg-boss (Node.js libraries on Postgres), BullMQ (Node.js library on Redis), beanstalkd, asynq
(Go library on Redis; only retries). All are measured when none is named. One that cannot be measured here (no npm, no
network, no server) is skipped with a line that says why. Libraries are installed once, under build/bench/peers, at the
versions of peers/package-lock.json and peers/asynq/go.mod.

Shapes: `store` (messages a second, many at a time, due in an hour), `steady 1000` (a thousand due every second, for ten
seconds, all stored before) and `herd 50000` (all due at one instant, stored before). Lateness is the time at which a
message is run minus the time at which it was due; a herd's seconds are from that instant to the last run. Of asynq
`retry 50000`: tasks in ten queues all fail at once and are run again after a back-off of 2 s; as it is by default, and
looking every second. Beside each the processor time a message of the whole machine (peer, its server, system), in all that it
does since the shape before: a herd and the steady shape store their messages first. Store, herd and retry are medians of three. Every peer has the settings that its own documentation
recommends for speed and, where it names no number, one that did well in tries; they are printed and in the JSON, with
their source. All write what they store to disk, but only those on Postgres wait for that before they answer.

$STACK_DIR: a stack whose Postgres is to be used (it stays as it was); without, a private one is made and removed.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, 'peers'))
sys.dont_write_bytecode = True
import beanstalkd  # noqa: E402
import servers  # noqa: E402
from servers import Missing, say, version_of  # noqa: E402

RUNS = 3
COUNTS = {'store': 50_000, 'steady_rate': 1000, 'steady_s': 10, 'herd': 50_000, 'retry': 50_000}
SMALL = {'store': 5_000, 'steady_rate': 1000, 'steady_s': 2, 'herd': 5_000, 'retry': 5_000}
PEER_LIMIT_S = 150
FIGURES = ('rate', 'seconds', 'p50_ms', 'p99_ms', 'p999_ms', 'max_ms', 'min_ms', 'again', 'life_us')


def busy_s():
    """Seconds for which the processors of this machine worked so far: /proc/stat, without idle and iowait."""
    with open('/proc/stat', encoding='ascii') as f:
        ticks = [int(field) for field in f.readline().split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf('SC_CLK_TCK')


class Run:
    """What one run of this program shares: counts, servers that are already up."""

    def __init__(self, counts, runs):
        self.counts, self.runs, self.postgres = counts, runs, None
        self.begin()

    def begin(self):
        """The next peer."""
        self.version, self.lines, self.busy_s = '', [], busy_s()

    def note(self, line):
        before, self.busy_s = self.busy_s, busy_s()
        if 'shape' in line:
            line['life_us'] = (self.busy_s - before) * 1e6 / self.count(line['shape'])
        self.lines.append(line)
        if 'shape' in line:
            say('  ' + one_line(line))

    def count(self, shape):
        if shape == 'steady':
            return self.counts['steady_rate'] * self.counts['steady_s']
        return self.counts[shape.split('-')[0]]

    def get_postgres(self):
        if not self.postgres:
            self.postgres = servers.Postgres()  # known before it is started, so that it is stopped whatever happens
            self.postgres.start()
        return self.postgres

    def ask(self, command, url, limit_s=PEER_LIMIT_S):
        """Runs a peer's program, and notes its lines."""
        given = json.dumps({'url': url, 'counts': self.counts, 'runs': self.runs})
        child = subprocess.Popen(['setpriv', '--pdeathsig', 'KILL', '--', *command, given], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        errors = []
        drain = threading.Thread(target=lambda: errors.extend(child.stderr.read().decode(errors='replace').splitlines()), daemon=True)
        drain.start()
        clock = threading.Timer(limit_s, child.kill)
        clock.start()
        try:
            for line in child.stdout:
                if not line.startswith(b'{'):
                    continue  # some libraries log to stdout
                self.note(json.loads(line))
            if child.wait() != 0:
                drain.join()
                why = next((e for e in errors if 'Error' in e), errors[-1] if errors else f'exit {child.returncode}')
                raise Missing(f'it failed: {why.strip()[:300]}' if clock.is_alive() else f'it took longer than {limit_s} s')
        finally:
            clock.cancel()
            child.kill()
            child.wait()


# --- The peers: each says its version and notes results -----------------------------------------------------------------
def ask_library(run, peer, url, server):
    folder, node = servers.install_libraries()
    if not node:
        raise Missing('there is no Node.js for this kind of machine')
    with open(os.path.join(folder, 'node_modules', peer, 'package.json'), encoding='utf-8') as f:
        run.version = f"{json.load(f)['version']}, {server}"
    run.ask([node, os.path.join(folder, 'run.mjs'), peer], url)


def measure_on_postgres(run, peer):
    servers.install_libraries()  # before a server is started for nothing
    postgres = run.get_postgres()
    ask_library(run, peer, postgres.make_database(peer), f'Postgres {postgres.version()}')


def with_redis(measure):
    """measure(address) while a private Redis runs."""
    os.makedirs(servers.INSTALLED, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='redis-', dir=servers.INSTALLED) as folder:
        redis = servers.Server('redis-server', 'redis-server', lambda port: [
            '--port', str(port), '--bind', '127.0.0.1', '--dir', folder, '--appendonly', 'yes', '--appendfsync', 'everysec',
            '--maxmemory-policy', 'noeviction'])
        try:
            measure(f'127.0.0.1:{redis.port}')
        finally:
            redis.stop()


def redis_version():
    return f'Redis {version_of("redis-server", "--version", r"v=([0-9.]+)")}'


def measure_bullmq(run):
    servers.install_libraries()
    with_redis(lambda address: ask_library(run, 'bullmq', f'redis://{address}', redis_version()))


def measure_asynq(run):
    program, version = servers.build_go('asynq', 'github.com/hibiken/asynq')
    run.version = f'{version}, {redis_version()}'
    with_redis(lambda address: run.ask([program], address, 400))


def measure_beanstalkd(run):
    os.makedirs(servers.INSTALLED, exist_ok=True)
    run.version = beanstalkd.version()
    for line in beanstalkd.measure(run.counts, run.runs):
        run.note(line)


PEERS = {
    'graphile-worker': lambda run: measure_on_postgres(run, 'graphile-worker'),
    'pg-boss': lambda run: measure_on_postgres(run, 'pg-boss'),
    'bullmq': measure_bullmq,
    'beanstalkd': measure_beanstalkd,
    'asynq': measure_asynq,
}


# --- The report ----------------------------------------------------------------------------------------------------------
def one_line(row):
    parts = [f"{row['shape']:12} {row['rate']:9,.0f}/s in {row['seconds']:6.2f} s, {row['life_us']:.0f} us of processor time a message"]
    if 'p50_ms' in row:
        parts.append(f"late p50 {row['p50_ms']:.0f}, p99 {row['p99_ms']:.0f}, p99.9 {row['p999_ms']:.0f}, max {row['max_ms']:.0f} ms")
    return ', '.join(parts)


def make_rows(peer, version, lines, counts):
    """One row a shape: medians of its runs."""
    names = {'store': 'store', 'steady': f"steady {counts['steady_rate']}", 'herd': f"herd {counts['herd']}",
             'retry': f"retry {counts['retry']}", 'retry-1s': f"retry {counts['retry']}, looks every second"}
    rows = []
    settings = next((line['settings'] for line in lines if 'settings' in line), {})
    for shape, name in names.items():
        results = [line for line in lines if line.get('shape') == shape]
        if not results:
            continue
        row = {'peer': peer, 'version': version, 'shape': name, 'runs': len(results)}
        for figure in FIGURES:
            if figure in results[0]:
                row[figure] = round(statistics.median(r[figure] for r in results), 3)
        rows.append(dict(row, settings=settings))
    return rows


def print_table(rows):
    print(f"{'peer':16} {'shape':12} {'messages/s':>10} {'seconds':>8} {'p50 ms':>8} {'p99 ms':>8} {'p99.9 ms':>8} {'max ms':>8} {'us each':>8}")
    for row in rows:
        figures = [f'{row[f]:8,.1f}' if f in row else f"{'-':>8}" for f in ('p50_ms', 'p99_ms', 'p999_ms', 'max_ms', 'life_us')]
        print(f"{row['peer']:16} {row['shape']:12} {row['rate']:10,.0f} {row['seconds']:8.2f} {' '.join(figures)}")
    said = set()
    for row in rows:
        if row['peer'] not in said:
            said.add(row['peer'])
            print(f"\n{row['peer']} {row['version']}")
            for name, value in row['settings'].items():
                print(f'  {name + ":":12} {value}')


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog='Peers: ' + ', '.join(PEERS))
    parser.add_argument('peers', nargs='*', metavar='PEER', help='those to measure (default: all)')
    parser.add_argument('--json', metavar='FILE', help='write the rows there, too')
    parser.add_argument('--small', action='store_true', help='a few thousand messages, one run each: to see that it works')
    options = parser.parse_args()
    for peer in options.peers:
        if peer not in PEERS:
            parser.error(f'{peer!r} is no peer; there are {", ".join(PEERS)}')
    return options


def stop_at_signal(number, _frame):
    raise SystemExit(128 + number)


def main():
    options = parse()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop_at_signal)
    run, rows = Run(SMALL if options.small else COUNTS, 1 if options.small else RUNS), []
    began, code = time.monotonic(), 0
    try:
        for peer in options.peers or PEERS:
            say(f'{peer}:')
            try:
                run.begin()
                PEERS[peer](run)
            except Missing as why:
                say(f'  {"the rest is " if run.lines else ""}left out: {why}')
            finally:
                rows += make_rows(peer, run.version, run.lines, run.counts)
    except KeyboardInterrupt:
        say('interrupted; what there is so far:')
        code = 130
    finally:
        if run.postgres:
            run.postgres.stop()
    if options.json:
        with open(options.json, 'w', encoding='utf-8') as f:
            json.dump(rows, f, indent=1)
            f.write('\n')
    if rows:
        print_table(rows)
    say(f'took {time.monotonic() - began:.0f} s')
    return code


if __name__ == '__main__':
    sys.exit(main())
