"""The troubles of the shape "trouble": each is begun, lasts while something is measured, and ends."""
import contextlib
import json
import os
import signal
import subprocess
import threading
import time

import recur
from backlog import expect, timed_ms
from harness import ROOT, now_ms, wait_until
from moved_clocks import MovedClocks
from store_kit import keep_claims
from web import Web

BESIDE = 'trouble: what else was asked'
FOREIGN, FOREIGN_S = 60, (1, 10)  # transactions, and how long each is open
HELD_RATE = 300                   # messages a second while the snapshot is held
CALLS = 100
KILLED_AFTER_S, TAKE_OVER_S = 4, 12
# Consumers' queues stand still for A to A + B ms, then go on for C to C + D ms, until it is told to stop.
STAND_STILL = '''
register(bench_trouble, spawn(fun() ->
    Loop = fun Loop() ->
        Queues = [P || Q <- rabbit_amqqueue:list(<<"%(vhost)s">>), {resource, _, _, N} <- [amqqueue:get_name(Q)],
                       binary:match(N, <<"postdate">>) =:= nomatch, P <- [amqqueue:get_pid(Q)], is_pid(P)],
        Ps = Queues ++ [P || P <- [whereis(N) || N <- [%(also)s]], is_pid(P)],
        [catch sys:suspend(P, 5000) || P <- Ps],
        R = receive stop -> stop after %(a)d + rand:uniform(%(b)d) -> on end,
        [catch sys:resume(P, 5000) || P <- Ps],
        case R of stop -> ok; on -> receive stop -> ok after %(c)d + rand:uniform(%(d)d) -> Loop() end end
    end,
    Loop() end)), ok.'''


class Trouble:
    words, keyed = '', False

    def __init__(self, sizes):
        self.sizes = sizes

    def before(self, scene):
        """What needs the calm."""

    @contextlib.contextmanager
    def lasts(self, scene):
        """Begins it, and ends it."""
        yield

    def after(self, scene):
        """What is asked besides, while it lasts."""


@contextlib.contextmanager
def stand_still(scene, still_ms, on_ms, also=''):
    """still_ms, on_ms: at least, at most."""
    scene.servers.rabbitmqctl('eval', STAND_STILL % dict(vhost=scene.place.vhost, also=also, a=still_ms[0], b=max(1, still_ms[1] - still_ms[0]),
                                                          c=on_ms[0], d=max(1, on_ms[1] - on_ms[0])))
    try:
        yield
    finally:
        scene.servers.rabbitmqctl('eval', 'bench_trouble ! stop, ok.')


class DiskBusy(Trouble):
    words = 'disk busy'

    @contextlib.contextmanager
    def lasts(self, scene):
        """It is PostgreSQL's, and RabbitMQ's."""
        with stand_still(scene, (30, 300), (30, 300), 'ra_log_wal'):
            scene.pg.clocks.slow_syncs(0.15)
            try:
                yield
            finally:
                scene.pg.clocks.slow_syncs(0)


class LateConfirms(Trouble):
    words = 'confirms 0.6 to 2 s late'

    @contextlib.contextmanager
    def lasts(self, scene):
        with stand_still(scene, (600, 2000), (100, 500)):
            yield


def ask_calls(scene, words):
    """ms of a look-up and of a cancel, each of another message."""
    due_ms, queue = now_ms() + 86_400_000, scene.lane.queue('asked')
    scene.place.load('publish', '--exchange', 'postdate', '--routing-key', queue, '--count', 4 * CALLS, '--due-at-ms', due_ms,
                     '--timeout-s', 120).result(130)
    scene.lane.wait_stored(queue, 4 * CALLS)
    ids = [r[0] for r in scene.place.psql(f"select id from postdate.message where routing_key = '{queue}' and due > now() + interval '1 h'")]
    web, session = Web(scene.lane.gateways[0].http()), scene.place.session()
    calls = [('HTTP: look-up by id', lambda x: expect(web.get(f'/v1/messages/{x}'))),
             ('HTTP: cancel by id', lambda x: expect(web.ask('DELETE', f'/v1/messages/{x}'))),
             ('SQL: look-up by id', lambda x: session.run(f"select * from postdate.messages where id = '{x}' and due_at = postdate.id_due('{x}')")),
             ('SQL: cancel by id', lambda x: session.run(f"select postdate.cancel('{x}')"))]
    try:
        for n, (what, function) in enumerate(calls):
            row = scene.bench.report.row(BESIDE, f'{what}, {words}').aim('ms', '≤', 10)
            row.add_all('ms', timed_ms(function, ids[n * CALLS:(n + 1) * CALLS]))
            row.add(max_ms=max(row.figures['ms']))
            scene.say(f'trouble: {row.what}: {row.values()}')
    finally:
        web.close()
        session.close()


class SnapshotHeld(Trouble):
    @property
    def words(self):
        return f'a snapshot held for {self.sizes.snapshot_s} s'

    def before(self, scene):
        ask_calls(scene, 'calm')

    @contextlib.contextmanager
    def lasts(self, scene):
        session = scene.place.session()
        session.run('begin isolation level repeatable read')
        session.run('select 1 from postdate.meta')  # now it has its snapshot
        try:
            queue, count = scene.lane.queue('held'), HELD_RATE * self.sizes.snapshot_s
            consumer = scene.lane.consume(queue, count, self.sizes.snapshot_s + 120)
            scene.flow(queue, count, HELD_RATE, self.sizes.snapshot_s + 120)
            consumer.result(self.sizes.snapshot_s + 200)
            yield
        finally:
            session.run('rollback')
            session.close()

    def after(self, scene):
        ask_calls(scene, self.words)


def take_over(scene, words):
    """One of two gateways is killed; the latest of what it had claimed."""
    row = scene.bench.report.row(BESIDE, f'take-over, {words}: a kill until the last of what it had came').aim('seconds', '≤', 5)
    with row.trying(scene.say):
        for _ in range(scene.sizes.runs):
            scene.lane.stop()
            scene.lane.start(2)
            queue, count = scene.lane.queue('taken'), HELD_RATE * TAKE_OVER_S
            consumer = scene.lane.consume(queue, count, 120)
            timer = threading.Timer(KILLED_AFTER_S + 3, scene.lane.gateways[0].kill9)
            timer.start()
            scene.flow(queue, count, HELD_RATE)
            result = consumer.result(130)
            timer.join()
            row.add(seconds=result['max_ms'] / 1000)
            if result['missing']:
                raise AssertionError(f"{result['missing']} of {count} did not come")
            scene.say(f'trouble: {row.what}: {row.values()}')
    scene.lane.gateways = scene.lane.gateways[1:]
    scene.lane.stop()
    scene.lane.start()


class ClaimsKept(Trouble):
    @property
    def words(self):
        return f'{self.sizes.kept:,} done claims kept'

    def before(self, scene):
        take_over(scene, 'calm')

    @contextlib.contextmanager
    def lasts(self, scene):
        """As after a year of merging: those of one second are one already."""
        scene.superuser(keep_claims(self.sizes.kept, 25))
        scene.superuser("select setval('postdate.merged', floor(extract(epoch from now() - interval '10 min') * 1000)::bigint)")
        scene.superuser('vacuum analyze postdate.batch')
        yield
        left = int(scene.superuser('select count(*) from postdate.batch')[0][0])
        if left < self.sizes.kept:
            scene.say(f'trouble: only {left:,} claims are left')

    def after(self, scene):
        take_over(scene, self.words)


class ForeignTransactions(Trouble):
    words = f'{FOREIGN} transactions in another database'

    @contextlib.contextmanager
    def lasts(self, scene):
        path = os.path.join(scene.folder, 'foreign.sql')
        with open(path, 'w', encoding='ascii') as f:
            f.write(f'\\set ms random({FOREIGN_S[0] * 1000}, {FOREIGN_S[1] * 1000})\nbegin;\nselect pg_current_xact_id();\n\\sleep :ms ms\ncommit;\n')
        url = scene.servers.pg.url('postgres').replace('user=postdate', 'user=postgres')
        process = subprocess.Popen(['pgbench', '-n', '-c', str(FOREIGN), '-j', '1', '-T', '36000', '-f', path, url], stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: int(scene.superuser("select count(*) from pg_stat_activity where datname = 'postgres' and backend_xid is not null")[0][0])
                       >= FOREIGN * 0.9, 60, 'the transactions to be open')
            yield
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


class KeysTaken(Trouble):
    keyed = True

    @property
    def words(self):
        return f'{self.sizes.keys:,} keys, half of what is published is taken and replaces'

    def before(self, scene):
        self.store(scene, 'fresh', 'fresh', [])

    @contextlib.contextmanager
    def lasts(self, scene):
        """Of the messages that have them, one in two is due tomorrow, one in two is cancelled."""
        scene.superuser(f"""
            with stored as (insert into postdate.message (due, next_at, settled_at, id, state, hold, exchange, routing_key, key, properties, body)
                select d, case when i % 2 = 1 then d end, case when i % 2 = 1 then now() end, postdate.id_make(d), case when i % 2 = 1 then 'cancelled' else 'scheduled' end::postdate.message_state, 'g',
                       'postdate.delivery', 'k', 'taken-' || i, '\\x100002', repeat('x', 256)::bytea
                  from generate_series(0, {self.sizes.keys - 1}) i, lateral (select date_trunc('milliseconds', now() + interval '1 day' + random() * interval '20 h')) x (d)
                returning exchange, key, due, id) insert into postdate.key (exchange, key, due, id) table stored""")
        scene.superuser('vacuum analyze postdate.key')
        scene.superuser('vacuum analyze postdate.message')
        scene.publish = ('--key', 'taken-', '--on-conflict', 'replace')
        yield

    def store(self, scene, words, prefix, conflicts):
        count = min(self.sizes.keys // 2, 50_000)
        for on_conflict in conflicts or ['keep']:
            row = scene.bench.report.row(BESIDE, f'{count:,} keys by --batch, {words}' + (f', {on_conflict}' if conflicts else ''))
            row.aim('rate', '≥', 5000)
            with row.trying(scene.say):
                path = os.path.join(scene.folder, 'keys')
                with open(path, 'w', encoding='ascii') as f:
                    for n in range(count):
                        f.write(json.dumps({'routing_key': 'k', 'body': 'x' * 256, 'delay': '36h', 'key': f'{prefix}-{2 * n}', 'on_conflict': on_conflict}) + '\n')
                began = time.monotonic()
                rc, _, err = scene.place.cli('schedule', '--batch', path, timeout=600)
                row.add(rate=count / (time.monotonic() - began))
                if rc != 0:
                    raise AssertionError(err)
                scene.say(f'trouble: {row.what}: {row.values()}')

    def after(self, scene):
        self.store(scene, 'taken', 'taken', ['keep', 'replace'])


class Schedules(Trouble):
    @property
    def words(self):
        return f'{self.sizes.beside:,} schedules of a minute'

    @contextlib.contextmanager
    def lasts(self, scene):
        scene.place.client().queue('rest', bind=['rest', 'sample'], arguments={'x-max-length': 1000})
        begin_ms = now_ms() + int((10 + self.sizes.beside / 200) * 1000)
        recur.set_schedules(scene.lane, self.sizes.beside, begin_ms)
        wait_until(lambda: now_ms() > begin_ms + (3 if self.sizes.small else recur.WARM_S) * 1000, 300, 'each schedule to carry itself on', 1)
        yield
        scene.place.psql("select count(postdate.recur_remove(name)) from postdate.recur")


class StandbyFar(Trouble):
    words = 'a synchronous standby 200 ms away'

    @contextlib.contextmanager
    def lasts(self, scene):
        pg = scene.pg
        shared, pg.spare.clocks = pg.spare.clocks, MovedClocks(ROOT, scene.servers.folder)
        try:
            pg.add_standby()
            pg.spare.clocks.slow_syncs(0.2)
            yield
        finally:
            pg.primary.set(synchronous_standby_names='')
            pg.spare.end(signal.SIGKILL)
            pg.spare.remove()
            pg.spare.clocks.close()
            pg.spare.clocks = shared


def all_of(sizes):
    return [t(sizes) for t in (DiskBusy, LateConfirms, SnapshotHeld, ClaimsKept, ForeignTransactions, KeysTaken, Schedules, StandbyFar)]
