"""Faults of the database."""
import os
import signal
import time

import libpq
from faults import NotPossible, fault
from judge import STANDBY_LAGS
from servers import wait_until


@fault('postgres.terminate', weight=4)
def postgres_terminate(x):
    """Sessions of the cell's gateways, all or about half of them."""
    share = x.rng.choice([1, 0.5])
    x.begin(f'pg_terminate_backend, {share:.0%} of the sessions')
    try:
        x.arena.postgres.primary.psql(
            f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{x.rng.choice(x.cell.databases)}' "
            f"and application_name like 'postdate%' and random() < {share}")
    except RuntimeError:
        x.detail += ' (Postgres is away just now)'


ADVISORY = 1886352244  # the class of the gateways' locks


@fault('postgres.stranger', weight=2)
def postgres_stranger(x):
    """A login without any right takes what locks it can get, also that of a gateway which is killed meanwhile."""
    number, g = x.pick()
    stranger = wait_until(lambda: connect_stranger(x), 60, 'Postgres to let a stranger in', 0.5)
    until = time.monotonic() + x.rng.uniform(4, 12)  # the lease of the dead one ends meanwhile, or does not
    x.begin(f'advisory locks of a stranger, gateway {number} kill -9')
    try:
        had = take_locks(stranger)
        g.crash()
        while time.monotonic() < until:
            had += take_locks(stranger)
            time.sleep(0.2)
        x.detail += f', {had} locks'
    except libpq.Lost:
        x.detail += ' (Postgres is away just now)'
    finally:
        stranger.close()


def connect_stranger(x):
    try:
        return libpq.Connection(x.arena.postgres.url(x.cell.database).replace('user=postdate', 'user=stranger'))
    except libpq.Lost:
        return None  # Postgres is away just now


def take_locks(stranger):
    """Of the duties and of the gateways by their numbers, those it has not yet; how many."""
    return int(stranger.ask(
        'select count(*) filter (where pg_try_advisory_lock($1::int, i::int)) from generate_series(-10, 300) i where not exists '
        "(select from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() and classid = $1::oid and objid = i::int4::oid)",
        ADVISORY)[1][0][0])


@fault('postgres.immediate', scope='server', weight=3)
def postgres_immediate(x):
    x.begin('immediate stop, as if the power failed')
    x.arena.postgres.primary.end(signal.SIGQUIT)
    x.wait(0, 2)
    x.arena.postgres.primary.start()


@fault('postgres.kill', scope='server', weight=2)
def postgres_kill(x):
    x.begin('kill -9 of all its processes')
    x.arena.postgres.primary.end(signal.SIGKILL)
    x.wait(0, 2)
    x.arena.postgres.primary.start()


@fault('postgres.restart', scope='server', weight=1)
def postgres_restart(x):
    x.begin('fast stop')
    x.arena.postgres.primary.end(signal.SIGINT)
    x.wait(0, 1)
    x.arena.postgres.primary.start()


@fault('postgres.away', scope='server', weight=1)
def postgres_away(x):
    """For longer than grace: what RabbitMQ waits with goes on being delivered."""
    away_s = x.rng.uniform(4, 8) if x.arena.short else x.rng.uniform(6, 20)
    cells = [c for c in x.arena.cells.values() if c.transport != 'timer']
    for cell in cells:
        cell.fall_due(50 * int(away_s), 5, 5 + away_s)
    time.sleep(4)  # all are handed over
    x.begin(f'fast stop, away for {away_s:.1f} s')
    x.arena.postgres.primary.end(signal.SIGINT)
    try:
        time.sleep(1)
        before = {c.name: x.arena.state(c.name)['delivered'] for c in cells}
        time.sleep(away_s)
        came = [f'{c.name} {x.arena.state(c.name)["delivered"] - before[c.name]}' for c in cells]
        x.detail += f', delivered meanwhile: {", ".join(came) or "-"}'
    finally:
        x.arena.postgres.primary.start()


@fault('postgres.failover', scope='server', weight=2)
def postgres_failover(x):
    """A standby that every commit waits for is promoted when the primary dies; the gateways' URL names both."""
    postgres = x.arena.postgres
    postgres.add_standby()
    x.wait(1, 3)
    x.begin('primary killed, standby promoted')
    postgres.primary.end(signal.SIGKILL)
    x.wait(0, 1)
    postgres.promote()
    x.arena.show_primary()


@fault('postgres.standby_away', scope='server', weight=2)
def postgres_standby_away(x):
    """Each wait for it is cancelled: what is visible on the primary is not on the standby, which is promoted then. No yes may be lost."""
    postgres = x.arena.postgres
    postgres.add_standby()
    x.wait(1, 3)
    x.begin('standby cut off, waits cancelled')
    postgres.cut_off()
    until, waits = time.monotonic() + x.rng.uniform(2, 6), 0
    while time.monotonic() < until:
        waits += postgres.cancel_waits()
        time.sleep(0.02)
    x.detail += f' {waits} times, primary killed, standby promoted'
    postgres.primary.end(signal.SIGKILL)
    x.wait(0, 1)
    postgres.promote()
    x.arena.show_primary()


@fault(STANDBY_LAGS, scope='server', weight=2)
def postgres_lag_promoted(x):
    """A standby that no commit waits for is promoted: what was accepted or cancelled in its lag is forgotten, which the ledger
    counts apart. All else holds."""
    postgres = x.arena.postgres
    postgres.add_standby(synchronous=False)
    x.wait(0.5, 1.5)
    x.begin('primary killed, standby promoted')
    postgres.cut_off()
    lag_s = x.rng.uniform(0.5, 3)
    time.sleep(lag_s)
    postgres.primary.end(signal.SIGKILL)
    x.detail += f', which was {lag_s:.1f} s behind'
    postgres.promote()
    x.arena.show_primary()


@fault('postgres.notify_full', scope='server', weight=2)
def postgres_notify_full(x):
    """A session that listens has an open transaction, and PostgreSQL's queue of notifications has no room left."""
    postgres, listening = x.arena.postgres, []
    if not postgres.primary.tmpfs:
        raise NotPossible('only root can mount the small disk that this fills')
    url = postgres.url('postgres').replace('user=postdate', 'user=stranger')
    try:
        for _ in range(2):
            listening.append(libpq.Connection(url))
        holder, sender = listening
        holder.ask('listen chaos')
        holder.ask('begin')
        holder.ask('select 1')
        x.begin('queue of notifications full')
        sent = fill_notifications(sender)
        x.wait(4, 12)
        x.detail += f' after {sent} kB'
    except libpq.Lost:
        x.detail += ' (Postgres is away just now)'
    finally:
        for connection in listening:
            connection.close()
        if not x.began_us:
            x.begin('Postgres is away just now')


def fill_notifications(sender):
    """Until Postgres refuses one; kB."""
    for sent in range(100_000):
        try:
            sender.ask("select pg_notify('chaos', repeat('x', 7900) || $1)", sent)
        except libpq.Refused:
            return 8 * sent
    raise RuntimeError('the queue of notifications has no end')


@fault('disk.busy', scope='server', weight=3)
def disk_busy(x):
    """Each flush of PostgreSQL takes long, and RabbitMQ's quorum queues write nothing for a while, again and again."""
    arena, sync_s = x.arena, x.rng.uniform(0.03, 0.3)
    arena.postgres.clocks.slow_syncs(sync_s)
    x.begin(f'each flush takes {1000 * sync_s:.0f} ms longer')
    until = time.monotonic() + x.rng.uniform(3, 8)
    try:
        while time.monotonic() < until:
            if arena.rabbit:
                arena.rabbit.erlang(f'catch (fun(P) -> true = is_pid(P), sys:suspend(P), timer:sleep({int(1000 * sync_s)}), '
                                    'sys:resume(P) end)(whereis(ra_log_wal)), ok.')
            time.sleep(x.rng.uniform(0, sync_s))
    except RuntimeError:
        x.detail += ' (RabbitMQ is away just now)'
    finally:
        arena.postgres.clocks.slow_syncs(0)


@fault('postgres.disk_full', scope='server', weight=2)
def postgres_disk_full(x):
    postgres = x.arena.postgres
    if not postgres.primary.tmpfs:
        raise NotPossible('only root can mount the small disk that this fills')
    x.begin('disk full')
    balloon = postgres.primary.fill()
    until = time.monotonic() + x.rng.uniform(2, 5)
    try:
        while time.monotonic() < until and postgres.primary.alive():
            time.sleep(0.05)
    finally:
        os.unlink(balloon)
    # It may still be on its way down: its recovery found no room, either.
    wait_until(lambda: not postgres.primary.alive() or postgres.primary.answers(), 60, 'Postgres to recover or to give up', 0.1)
    if not postgres.primary.alive():
        x.detail += ', Postgres gave up over it'
        postgres.primary.start()


@fault('clock.database', scope='server', weight=2)
def clock_database(x):
    """Set forward, and back: what is accepted meanwhile lasts as long as it says all the same."""
    ahead_ms = x.rng.randrange(500, 4000)
    x.arena.postgres.clocks.set_time(ahead_ms / 1000)
    x.begin(f'ahead {ahead_ms} ms')
    x.wait(1, 4)
    x.arena.postgres.clocks.set_time(0)


@fault('clock.day_ahead', scope='alone', weight=1)
def clock_day_ahead(x):
    """Set a day ahead for a moment: all that is stored is due, and what a gateway writes down meanwhile (slots, retries, claims) must
    keep nothing back afterwards. What is accepted meanwhile with a delay would be due a day late, so nothing is."""
    cells = list(x.arena.cells.values())
    for cell in cells:
        cell.tell(pause=True)
    try:
        for cell in cells:
            wait_until(lambda c=cell: c.in_intake() == 0, 60, f'{cell.name}: all that was published to be stored', 0.2)
        x.arena.postgres.clocks.set_time(86_400)
        x.begin('ahead 86400000 ms')
        x.wait(2, 5)
    finally:
        x.arena.postgres.clocks.set_time(0)
        time.sleep(1)  # until the gateways have seen it
        for cell in cells:
            cell.tell(pause=False)
