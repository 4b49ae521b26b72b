"""Store: how many messages a second each way in takes, until they are committed; each way once a round, in turn with the limits."""
import json
import os
import tempfile
import time

from cost_kit import superuser
from kit import Lane, harness, have, now_ms
from limits import BATCH, COPY, INSERT, RAW, RawBroker, RawCopy, RawInsert, message, run

SHAPE = 'store: messages accepted a second, until the commit'
CONNECTIONS, BATCH_CONNECTIONS, SESSIONS = 64, 4, 2
LUA = '''wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local file = io.open("%s")
wrk.body = file:read("*a")
done = function(summary, latency)
  io.write(string.format("WRK %%d %%d %%d %%d %%d\\n", summary.requests, summary.duration,
           summary.errors.status + summary.errors.connect + summary.errors.read + summary.errors.timeout,
           latency:percentile(50), latency:percentile(99)))
end
'''


class Ways:
    """Each returns (messages a second, more figures)."""

    def __init__(self, lane, folder, sizes):
        self.lane, self.place, self.folder, self.sizes = lane, lane.place, folder, sizes
        self.super = superuser(self.place)
        self.http = 'http://%s:%d/v1/messages' % lane.gateways[0].http()
        self.lines = self.path('lines', (json.dumps(message()) + '\n') * sizes.store)

    def path(self, name, text=None):
        path = os.path.join(self.folder, name)
        if text is not None:
            with open(path, 'w', encoding='utf-8') as f:
                f.write(text)
        return path

    def empty(self):
        harness.run_psql(self.super, 'truncate postdate.message, postdate.idempotency')
        harness.run_psql(self.super, 'checkpoint')

    def stored(self):
        return int(harness.run_psql(self.super, 'select count(*) from postdate.message_now')[0][0])

    def amqp(self):
        queue, began = self.lane.queue('store'), time.monotonic()
        self.lane.publish(queue, self.sizes.store, now_ms() + 3600_000).result(300)
        return self.sizes.store / (self.lane.wait_stored(queue, self.sizes.store) - began), {}

    def batch(self):
        began = time.monotonic()
        rc, _, err = self.place.cli('schedule', '--batch', self.lines, timeout=300)
        if rc != 0:
            raise AssertionError(err)
        return self.sizes.store / (time.monotonic() - began), {}

    # --- HTTP ---------------------------------------------------------------------------------------------------
    def wrk(self, name, body, connections):
        if not have('wrk'):
            raise AssertionError('wrk, the HTTP load program, is not installed: apt-get install wrk')
        script = self.path(name + '.lua', LUA % self.path(name + '.json', json.dumps(body)))
        out = run(['wrk', '-t', '1', '-c', str(connections), '-d', f'{self.sizes.store_s}s', '-s', script, self.http])
        requests, took_us, errors, p50_us, p99_us = map(int, out.split('WRK ')[1].split()[:5])
        if errors:
            raise AssertionError(f'{errors} of {requests} requests failed')
        return self.stored() / (took_us / 1e6), {'p50_ms': p50_us / 1000, 'p99_ms': p99_us / 1000}

    def http_single(self):
        return self.wrk('single', message(), CONNECTIONS)

    def http_batch(self):
        return self.wrk('batch', {'messages': [message()] * BATCH}, BATCH_CONNECTIONS)

    # --- SQL ----------------------------------------------------------------------------------------------------
    def pgbench(self, name, script, stored=None):
        began = time.monotonic()
        out = run(['pgbench', '-n', '-M', 'prepared', '-c', str(SESSIONS), '-j', '1', '-T', str(self.sizes.store_s),
                   '-f', self.path(name + '.sql', script), self.place.postgres])
        took_s = time.monotonic() - began
        if 'number of failed transactions: 0' not in out:
            raise AssertionError(out)
        return (stored or self.stored)() / took_s, {}

    def many(self):
        return self.pgbench('many', f"select count(id) from postdate.schedule_many('{json.dumps([message()] * BATCH)}');\n")

    CALL = "postdate.schedule('bench', '%s', '1 hour')" % message()['body']

    def set(self):
        """A thousand calls in one statement."""
        return self.pgbench('set', f'select count({self.CALL}) from generate_series(1, {BATCH});\n')

    def each(self):
        """A thousand statements, pipelined, in one transaction."""
        return self.pgbench('each', 'begin;\n\\startpipeline\n' + f'select {self.CALL};\n' * BATCH + '\\endpipeline\ncommit;\n')

    def turns(self):
        """A thousand statements in one transaction, each waiting for the answer of the one before."""
        return self.pgbench('turns', 'begin;\n' + f'select {self.CALL};\n' * BATCH + 'commit;\n')

    def insert(self):
        """The limit of those one by one; rows a second."""
        bare = RawInsert(self.place)
        bare.empty()
        return self.pgbench('insert', bare.SCRIPT, bare.rows)[0]


# name, words, limit, targets
WAYS = [
    ('amqp', 'AMQP: first publish to last commit', RAW, [('ratio', 0.5)]),
    ('batch', 'postdate schedule --batch', COPY, [('ratio', 0.6)]),
    ('many', f'SQL: schedule_many of {BATCH:,}, {SESSIONS} sessions', COPY, [('ratio', 0.3)]),
    ('set', f'SQL: schedule, {BATCH:,} in a statement, {SESSIONS} sessions', COPY, []),
    ('each', f'SQL: schedule, {BATCH:,} pipelined, {SESSIONS} sessions', COPY, []),
    ('turns', f'SQL: schedule, {BATCH:,} one by one, {SESSIONS} sessions', INSERT, []),
    ('http_batch', f'HTTP: batches of {BATCH:,}, {BATCH_CONNECTIONS} connections', COPY, [('rate', 40000)]),
    ('http_single', f'HTTP: one a request, {CONNECTIONS} connections', COPY, [('rate', 10000)]),
]


def rounds(bench, ways, copy, raw):
    rows = {RAW: bench.report.row(SHAPE, f'limit: {RAW}'), COPY: bench.report.row(SHAPE, f'limit: {COPY}, {copy.ROWS:,} a transaction'),
            INSERT: bench.report.row(SHAPE, f'limit: {INSERT}, {BATCH:,} one by one, {SESSIONS} sessions')}
    measures = {RAW: lambda: raw.measure(bench.sizes.store), COPY: copy.measure, INSERT: ways.insert}
    for number in range(bench.sizes.runs):
        limits = {}
        for name, what, limit, targets in WAYS:
            row = bench.report.row(SHAPE, what)
            for figure, bound in targets:
                row.aim(figure, '≥', bound)
            with row.trying(bench.say):
                if limit not in limits:
                    limits[limit] = measures[limit]()
                    rows[limit].add(rate=limits[limit])
                ways.empty()
                rate, more = getattr(ways, name)()
                row.add(rate=rate, **more)
                row.against(limit, rate, limits[limit])
                bench.say(f'store {number + 1}/{bench.sizes.runs}: {what}: {rate:,.0f}/s, {rate / limits[limit]:.2f} of {limit}')


def measure(bench):
    with tempfile.TemporaryDirectory(prefix='postdate-bench-') as folder, Lane(bench, 'timer') as lane:
        raw = RawBroker(bench)
        rounds(bench, Ways(lane, folder, bench.sizes), RawCopy(lane.place, folder, bench.sizes.store), raw)
        bench.close(raw.place)
    rates = {name: bench.report.row(SHAPE, what).value('rate') for name, what, _, _ in WAYS}
    bench.intake_rate, bench.batch_rate = rates['amqp'] or bench.intake_rate, rates['batch'] or bench.batch_rate
