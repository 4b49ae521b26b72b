#!/usr/bin/python3
"""How many messages a second each way in takes: HTTP (single, batch) and SQL, beside a raw COPY of the same rows.

    tests/bench/ways_in.py [--seconds S] [--rounds N] [--only WORD] [--json]

Starts a private Postgres and RabbitMQ (under build/bench, or in $STACK_DIR) and a gateway of its own, and removes them.
The clients are C programs (wrk, pgbench, psql), so that they are not the limit. Each round measures every way once, in
turn, on emptied tables; the figures are medians of the rounds. All of them share the machine with the servers.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'live'))
sys.dont_write_bytecode = True
import harness  # noqa: E402
from web import Web  # noqa: E402

BODY = 'x' * 256
BATCH = 1000
CONNECTIONS, BATCH_CONNECTIONS, SESSIONS = 64, 4, 2
COPY_FILES = 100
LUA = '''wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local file = io.open("%s")
wrk.body = file:read("*a")
local bad = 0
response = function(status) if status >= 300 then bad = bad + 1 end end
done = function(summary, latency)
  io.write(string.format("WRK %%d %%d %%d %%d %%d\\n", summary.requests, summary.duration,
           summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout,
           latency:percentile(50), latency:percentile(99)))
end
'''


def message(delay='1h'):
    return {'routing_key': 'bench', 'delay': delay, 'body': BODY}


def run(command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, **options)
    if done.returncode != 0:
        raise SystemExit(f'{command[0]} failed ({done.returncode}): {done.stdout.decode()[-2000:]}')
    return done.stdout.decode()


class Bench:
    def __init__(self, place, folder, seconds):
        self.place, self.folder, self.seconds = place, folder, seconds
        self.super = harness.postgres_url(place.stack.postgres, place.database).replace('user=postdate', 'user=postgres')
        self.gateway = place.gateway()
        self.http = 'http://%s:%d/v1/messages' % self.gateway.http()
        harness.wait_until(lambda: Web(self.gateway.http()).get('/readyz').status == 200, 20, '/readyz')
        self.prepare_copy()

    def path(self, name, text=None):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, 'w', encoding='utf-8') as f:
                f.write(text)
        return path

    def empty(self):
        harness.run_psql(self.super, 'truncate postdate.message, postdate.idempotency; truncate bench_copy')
        harness.run_psql(self.super, 'checkpoint')

    def stored(self, table='postdate.message'):
        return int(harness.run_psql(self.super, f'select count(*) from {table}')[0][0])

    # --- HTTP ---------------------------------------------------------------------------------------------------
    def wrk(self, name, body, connections):
        script = self.path(name + '.lua', LUA % self.path(name + '.json', json.dumps(body)))
        out = run(['wrk', '-t', '1', '-c', str(connections), '-d', f'{self.seconds}s', '-s', script, self.http])
        requests, took_us, errors, p50_us, p99_us = map(int, out.split('WRK ')[1].split()[:5])
        if errors:
            raise SystemExit(f'{errors} of {requests} requests failed')
        return took_us / 1e6, {'p50_ms': p50_us / 1000, 'p99_ms': p99_us / 1000}

    def http_single(self):
        return self.wrk('single', message(), CONNECTIONS)

    def http_batch(self):
        return self.wrk('batch', {'messages': [message()] * BATCH}, BATCH_CONNECTIONS)

    # --- SQL ----------------------------------------------------------------------------------------------------
    def pgbench(self, name, script):
        began = time.monotonic()
        out = run(['pgbench', '-n', '-M', 'prepared', '-c', str(SESSIONS), '-j', '1', '-T', str(self.seconds),
                   '-f', self.path(name + '.sql', script), self.place.postgres])
        if 'number of failed transactions: 0' not in out:
            raise SystemExit(out)
        return time.monotonic() - began, {}

    def schedule_many(self):
        return self.pgbench('many', f"select count(id) from postdate.schedule_many('{json.dumps([message()] * BATCH)}');\n")

    def schedule_set(self):
        """A thousand calls in one statement."""
        return self.pgbench('set', f"select count(postdate.schedule('bench', '{BODY}', '1 hour')) from generate_series(1, {BATCH});\n")

    def schedule_each(self):
        """A thousand statements, pipelined, in one transaction."""
        call = f"select postdate.schedule('bench', '{BODY}', '1 hour');\n"
        return self.pgbench('each', 'begin;\n\\startpipeline\n' + call * BATCH + '\\endpipeline\ncommit;\n')

    def schedule_turns(self):
        """A thousand statements in one transaction, each waiting for the answer of the one before."""
        return self.pgbench('turns', 'begin;\n' + f"select postdate.schedule('bench', '{BODY}', '1 hour');\n" * BATCH + 'commit;\n')

    # --- COPY -----------------------------------------------------------------------------------------------------
    def prepare_copy(self):
        """The rows that schedule_many makes, in binary files of 1,000, and a plain table with the same indexes."""
        url, part = self.super, json.dumps([message()] * BATCH)
        one = f"select count(*) from postdate.schedule_many('{part}');\n"
        run(['psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', url, '-f', self.path('fill.sql', one * COPY_FILES)])
        harness.run_psql(url, 'create table bench_copy (like postdate.message including all)')
        lines = [f"\\copy (select * from postdate.message order by id offset {i * BATCH} limit {BATCH}) to '{self.path(f'rows-{i}')}' (format binary)"
                 for i in range(COPY_FILES)]
        run(['psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', url, '-f', self.path('save.psql', '\n'.join(lines) + '\n')])

    def raw_copy(self):
        """A thousand rows to a transaction, like the others."""
        again = ["\\copy bench_copy from '%s' (format binary)" % self.path(f'rows-{i}') for i in range(COPY_FILES)]
        script, began = self.path('copy.psql', '\n'.join(again) + '\n'), time.monotonic()
        run(['psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', self.super, '-f', script])
        return time.monotonic() - began, {}


WAYS = [
    ('http_single', f'HTTP, one message a request, {CONNECTIONS} connections'),
    ('http_batch', f'HTTP, batches of {BATCH:,}, {BATCH_CONNECTIONS} connections'),
    ('schedule_many', f'SQL schedule_many of {BATCH:,}, {SESSIONS} sessions'),
    ('schedule_set', f'SQL schedule, {BATCH:,} in one statement, {SESSIONS} sessions'),
    ('schedule_each', f'SQL schedule, {BATCH:,} pipelined to a transaction, {SESSIONS} sessions'),
    ('schedule_turns', f'SQL schedule, {BATCH:,} one by one to a transaction, {SESSIONS} sessions'),
    ('raw_copy', f'raw COPY of the same rows, {BATCH:,} to a transaction, 1 session'),
]


def measure(bench, name, rounds):
    """One run; (messages a second, more)."""
    bench.empty()
    took_s, more = getattr(bench, name)()
    count = bench.stored('bench_copy' if name == 'raw_copy' else 'postdate.message')
    rate = count / took_s
    rounds.setdefault(name, []).append((rate, more))
    print(f'  {name:15} {count:9,} in {took_s:5.1f} s: {rate:9,.0f}/s {more or ""}', file=sys.stderr, flush=True)


def report(rounds, as_json):
    medians = {}
    for name, label in WAYS:
        if name in rounds:
            medians[name] = {'per_second': round(statistics.median(r for r, _ in rounds[name])),
                             'all': [round(r) for r, _ in rounds[name]], 'what': label}
            for key in rounds[name][0][1]:
                medians[name][key] = statistics.median(m[key] for _, m in rounds[name])
    if as_json:
        print(json.dumps(medians))
        return
    for name, m in medians.items():
        extra = f"  p50 {m['p50_ms']:.1f} ms, p99 {m['p99_ms']:.1f} ms a request" if 'p50_ms' in m else ''
        print(f"{m['per_second']:9,}/s  {m['what']}{extra}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--seconds', type=int, default=4, help='how long each run is (default: 4)')
    parser.add_argument('--rounds', type=int, default=3, help='runs of each way, of which the median counts (default: 3)')
    parser.add_argument('--only', default='', help='ways whose name contains this word')
    parser.add_argument('--json', action='store_true')
    options = parser.parse_args()
    for program in ('wrk', 'pgbench', 'psql'):
        if not shutil.which(program):
            raise SystemExit(f'{program} is missing: apt-get install {dict(wrk="wrk").get(program, "postgresql-client")}')
    directory = os.environ.setdefault('STACK_DIR', os.path.join(harness.ROOT, 'build', 'bench'))
    stack = harness.Stack(directory)
    stack.start()
    try:
        stack.make_vhosts([f'bench{os.getpid()}'])
        place, rounds = harness.Place(stack), {}
        try:
            with tempfile.TemporaryDirectory(prefix='postdate-bench-') as folder:
                bench = Bench(place, folder, options.seconds)
                for number in range(options.rounds):
                    print(f'round {number + 1}, load average {os.getloadavg()[0]:.1f}', file=sys.stderr)
                    for name, _ in WAYS:
                        if options.only in name:
                            measure(bench, name, rounds)
        finally:
            place.close()
        report(rounds, options.json)
    finally:
        stack.command('clean', check=False)


if __name__ == '__main__':
    main()
