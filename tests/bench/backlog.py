"""Backlog: what stored messages cost (disk, the gateway's memory, look-ups), and lateness over them.

They are stored once and shared by the shapes that need them: first a tenth, then all. Nine in ten are due within 60 days,
the rest within a year; one in ten has a key. Partitions are those that the default max_delay of two years makes.
"""
import os
import random
import subprocess
import time

import steady
from harness import run_psql
from kit import Lane, memory_mib
from cost_kit import superuser
from web import Web

DISK = 'backlog: bytes on disk per message, and memory of the gateway'
CALLS = 'backlog: one call, in ms until the answer'
NEAR_DAYS, FAR_DAYS = 60, 360
FIRST_DAY = 2  # none becomes due, or is within the window, while we measure
SESSIONS = 2
CALLS_LIMIT_S, CALLS_LEAST = 4, 20
DIRTY_KIB = 32 * 1024

# As intake would have stored them: the row `bench_template` came by AMQP. Random times, and so random places in every index.
ROWS = '''
insert into postdate.message (due, next_at, id, hold, exchange, routing_key, key, properties, body)
select d.due, null, postdate.id_make(d.due), 'g', t.exchange, t.routing_key, %(key)s, t.properties, t.body
  from bench_template t,
       (select date_trunc('milliseconds', date_trunc('day', now()) + (%(first)s + random() * %(days)s) * interval '1 day') as due
          from generate_series(1, %(rows)s)) d
'''
KEYED = f"with stored as ({ROWS} returning exchange, key, due, id) insert into postdate.key (exchange, key, due, id) table stored;"
KEY = "'order-' || substr(gen_random_uuid()::text, 1, 13)"
SIZE = '''select sum(pg_total_relation_size(relid)) + pg_total_relation_size('postdate.key')
            from pg_partition_tree('postdate.message') where isleaf'''
OWN = '''select avg(octet_length(body) + octet_length(properties) + octet_length(exchange) + octet_length(routing_key)
                    + coalesce(octet_length(key), 0))
           from (select * from postdate.message tablesample system (%s)) m'''


def dirty_kib():
    with open('/proc/meminfo', encoding='ascii') as f:
        return sum(int(line.split()[1]) for line in f if line.startswith(('Dirty:', 'Writeback:')))


class Backlog:
    def __init__(self, bench):
        self.bench, self.rows = bench, 0
        began = time.monotonic()
        self.place = bench.place('timer', max_delay='730d', migrate=False)
        rc, _, err = self.place.cli('migrate', timeout=300)
        if rc != 0:
            raise AssertionError(err)
        self.super = superuser(self.place)
        bench.say(f'backlog: schema with two years of partitions made in {time.monotonic() - began:.0f} s')
        self.make_template()
        self.empty_bytes = int(self.place.value(SIZE))

    def make_template(self):
        with self.lane() as lane:
            queue = lane.queue('template')
            lane.publish(queue, 1, int((time.time() + 86400) * 1000)).result()
            lane.wait_stored(queue, 1)
        run_psql(self.super, 'create table public.bench_template as select exchange, routing_key, properties, body from postdate.message_now;'
                             'delete from postdate.message')

    def lane(self):
        return Lane(self.bench, 'timer', self.place, POSTDATE_DELIVERY_MAX_DELAY='730d')

    def parts(self, more):
        """(first day, days, rows): a day at a time, so that what is written stays in memory."""
        near = more * 9 // 10 // NEAR_DAYS
        parts = [(FIRST_DAY + day, 1, near) for day in range(NEAR_DAYS)]
        rest = more - near * NEAR_DAYS
        far = FAR_DAYS - NEAR_DAYS
        return parts + [(FIRST_DAY + NEAR_DAYS + day, 30, rest // 10 + (rest % 10 if day == 0 else 0)) for day in range(0, far, 30)]

    def reach(self, rows):
        """Stores until there are so many, as after a while of running: vacuumed, with statistics, everything written out."""
        if self.rows >= rows:
            return self
        began = time.monotonic()
        parts = self.parts(rows - self.rows)
        running = [self.start_session(parts[i::SESSIONS]) for i in range(SESSIONS)]
        for process in running:
            _, errors = process.communicate(timeout=900)
            if process.returncode != 0:
                raise AssertionError(f'storing the backlog: {errors.decode()[:500]}')
        stored_s = time.monotonic() - began
        self.bench.say(f'backlog: {rows - self.rows:,} stored in {stored_s:.0f} s; now vacuum, analyze, checkpoint')
        env = dict(os.environ, PGOPTIONS='-c default_statistics_target=10')  # 70 days of equal rows: a small sample will do
        done = subprocess.run(['vacuumdb', '-z', '-q', '-j', str(SESSIONS), '-d', self.super], stdin=subprocess.DEVNULL, timeout=900, env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise AssertionError(f'vacuumdb: {done.stdout.decode()[:500]}')
        run_psql(self.super, 'checkpoint')
        self.calm_down()
        self.rows = rows
        self.bench.say(f'backlog: {rows:,} stored, ready after {time.monotonic() - began:.0f} s')
        return self

    def calm_down(self, limit_s=40):
        """What was stored in a minute is written out and vacuumed for longer; a backlog that came over weeks does not do that."""
        os.sync()
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            busy = run_psql(self.super, "select count(*) from pg_stat_activity where backend_type = 'autovacuum worker'")[0][0]
            if busy == '0' and dirty_kib() < DIRTY_KIB:
                return
            time.sleep(0.5)
        self.bench.say(f'backlog: the disk or autovacuum is still busy after {limit_s} s')

    def start_session(self, parts):
        script = "set work_mem = '64MB';"
        for first, days, rows in parts:
            script += ROWS % {'key': 'null', 'first': first, 'days': days, 'rows': rows - rows // 10} + ';'
            script += KEYED % {'key': KEY, 'first': first, 'days': days, 'rows': rows // 10}
        process = subprocess.Popen(['psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', self.super], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.place.children.append(process)
        process.stdin.write(script.encode())
        process.stdin.close()
        process.stdin = None  # or communicate() would flush it
        return process

    def sample(self, column, count):
        """Of random messages; each is asked for once."""
        percent = min(100.0, 100.0 * 60 * count / self.rows)
        rows = self.place.psql(f"select {column} from postdate.message tablesample system ({percent}) "
                               f"where {column} is not null and state = 'scheduled' and due > now() + interval '1 day'")
        values = [r[0] for r in rows]
        if len(values) < count:
            raise AssertionError(f'only {len(values)} of {count} values of {column} in the sample')
        return random.sample(values, count)


def of(bench):
    """The one that all shapes share."""
    if bench.backlog is None:
        bench.backlog = Backlog(bench)
    return bench.backlog


def release(bench):
    """What comes after it does not need it."""
    if bench.backlog is not None:
        bench.close(bench.backlog.place)
        bench.backlog = None


# --- what it costs -----------------------------------------------------------------------------------------------------
def measure_disk(bench, backlog):
    row = bench.report.row(DISK, f'disk beyond its own bytes, {backlog.rows:,} stored', cost='disk', stored=backlog.rows)
    if backlog.rows == bench.sizes.backlog:
        row.aim('bytes', '≤', 200)
    with row.trying(bench.say):
        per_message = (int(backlog.place.value(SIZE)) - backlog.empty_bytes) / backlog.rows
        own = float(backlog.place.value(OWN % min(100.0, 3_000_000 / backlog.rows)))
        row.add(bytes=per_message - own)
        row.note(f'{per_message:.0f} in all, of which {own:.0f} are its body, properties, exchange, routing key and key; one in ten has a key')
        bench.say(f'{row.what}: {row.values()}')


def measure_memory(bench, lane, rows):
    """After the steady shape: what it holds now, and the most it ever held."""
    row = bench.report.row(DISK, f'gateway, {rows:,} stored', cost='memory', stored=rows)
    if rows == bench.sizes.backlog:
        row.aim('peak_mib', '≤', 64).aim('grown_mib', '≤', 2, 'since a tenth was stored')
    with row.trying(bench.say):
        pid = lane.gateways[0].process.pid
        row.add(mib=memory_mib(pid), peak_mib=memory_mib(pid, 'VmHWM'))
        if rows != bench.sizes.backlogs[0]:
            before = bench.report.row(DISK, f'gateway, {bench.sizes.backlogs[0]:,} stored').value('mib')
            if before is not None:
                row.add(grown_mib=row.value('mib') - before)
        bench.say(f'{row.what}: {row.values()}')


def timed_ms(function, arguments):
    """One after the other on one connection; slow ones are fewer."""
    took, end = [], time.monotonic() + CALLS_LIMIT_S
    for a in arguments:
        if len(took) >= CALLS_LEAST and time.monotonic() > end:
            break
        began = time.perf_counter()
        function(a)
        took.append((time.perf_counter() - began) * 1000)
    return took


def expect(answer, status=200):
    if answer.status != status:
        raise AssertionError(f'answer {answer}')


def calls_of(backlog, web, session, count):
    """(words, function of one argument, arguments); every message and key is used once."""
    ids, keys = backlog.sample('id', 4 * count), backlog.sample('key', 2 * count)
    return [
        ('HTTP: look-up by id', lambda x: expect(web.get(f'/v1/messages/{x}')), ids[:count]),
        ('HTTP: look-up by key', lambda x: expect(web.get(f'/v1/messages?key={x}&exchange=postdate.delivery')), keys[:count]),
        ('HTTP: first page of the list, 50', lambda x: expect(web.get('/v1/messages?page_size=50')), range(count)),
        ('HTTP: first page of the scheduled ones, 50', lambda x: expect(web.get('/v1/messages?state=scheduled&page_size=50')), range(count)),
        ('HTTP: cancel by id', lambda x: expect(web.ask('DELETE', f'/v1/messages/{x}')), ids[count:2 * count]),
        ('HTTP: cancel by key', lambda x: expect(web.ask('DELETE', f'/v1/messages?key={x}&exchange=postdate.delivery')), keys[count:]),
        ('SQL: look-up by id', lambda x: session.run(f"select * from postdate.messages where id = '{x}' and due_at = postdate.id_due('{x}')"), ids[2 * count:3 * count]),
        ('SQL: cancel by id', lambda x: session.run(f"select postdate.cancel('{x}')"), ids[3 * count:]),
    ]


def measure_calls(bench, backlog, lane):
    web, session = Web(lane.gateways[0].http()), backlog.place.session()
    small, full = bench.sizes.backlogs
    try:
        for words, function, arguments in calls_of(backlog, web, session, bench.sizes.calls):
            row = bench.report.row(CALLS, f'{words}, {backlog.rows:,} stored', cost=words, stored=backlog.rows)
            if backlog.rows == full:
                row.aim('ms', '≤', 2).aim('ratio', '≤', 1.5, 'flat')
            with row.trying(bench.say):
                took = timed_ms(function, arguments)
                row.add_all('ms', took)
                row.note(f'{len(took)} calls, not {len(arguments)}: slow' if len(took) < len(arguments) else None)
                before = bench.report.row(CALLS, f'{words}, {small:,} stored').value('ms')
                if backlog.rows == full and before:
                    row.against(f'that at {small:,}', row.value('ms'), before)
                bench.say(f'{row.what}: {row.values()}')
    finally:
        web.close()
        session.close()


def measure_empty(bench):
    """The steady shape over nothing, in the same partitions."""
    with of(bench).lane() as lane:
        steady.over_backlog(bench, lane, 0, bench.sizes.steady_s)


def measure(bench):
    backlog = of(bench)
    for rows, seconds in zip(bench.sizes.backlogs, (bench.sizes.transport_s, bench.sizes.steady_s)):
        backlog.reach(rows)
        measure_disk(bench, backlog)
        with backlog.lane() as lane:
            steady.over_backlog(bench, lane, rows, seconds)
            measure_memory(bench, lane, rows)
            measure_calls(bench, backlog, lane)
