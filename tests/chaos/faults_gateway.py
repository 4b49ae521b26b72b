"""Faults of the gateway's own process."""
import os
import re
import resource
import signal
import threading
import time

from arena import GRACE, SHARDED, SHARDS
from faults import NotPossible, fault
from servers import ROOT, wait_until

LEASE_S = 10  # of an instance: sql/pipeline/instance.h
GRACE_S = float(GRACE.rstrip('s'))
RARE = ('park', 'park_confirm', 'control_read', 'reply', 'control_ack')  # the workload's messages do not come by there
POINTS = os.path.join(ROOT, 'tests', 'shim', 'points.txt')


def wait_running(gateway):
    wait_until(gateway.running, 30, f'{gateway.name} to run')


@fault('gateway.kill', weight=5)
def gateway_kill(x):
    number, g = x.pick()
    wait_running(g)
    starts = g.starts
    x.begin(f'gateway {number} kill -9')
    g.crash()
    wait_until(lambda: g.starts > starts, 10, f'{g.name} to be started again')


@fault('gateway.stop', weight=2)
def gateway_stop(x):
    number, g = x.pick()
    wait_running(g)
    starts = g.starts
    x.begin(f'gateway {number} SIGTERM')
    g.crash(signal.SIGTERM)
    wait_until(lambda: g.starts > starts, 60, f'{g.name} to stop and start')


def points_of(cell):
    """Names of the crash points that this cell's work can come by: `name  who waits  …` in each line."""
    with open(POINTS, encoding='utf-8') as f:
        lines = [line.split() for line in f if line.strip() and not line.startswith('#')]
    return [name for name, who, *_ in lines if name.split('.')[0] not in RARE
            and (who == 'any' or who == 'broker' and cell.transport != 'timer')]


@fault('gateway.point', weight=8)
def gateway_point(x):
    """It dies by itself, at a named point before or after a commit, publish, confirm or ack."""
    if x.arena.shim is None or not os.path.exists(POINTS):
        raise NotPossible('build/tests/shim.so is not there')
    number, g = x.pick()
    point, count = x.rng.choice(points_of(x.cell)), x.rng.randint(1, 12)
    wait_running(g)
    exits = len(g.exits)
    g.arm(point, count)
    g.crash()  # the armed one starts; this death is a fault of the kind above, and the same one here
    x.begin(f'gateway {number} at {point}, time {count}')
    try:
        wait_until(lambda: len(g.exits) >= exits + 2, 6, f'{g.name} to reach {point}')
    except TimeoutError:
        x.detail += ' (not reached: killed)'
        g.crash()
    starts = exits + 2
    wait_until(lambda: g.starts > starts, 10, f'{g.name} to be started again')


@fault('gateway.queues', weight=6, only=lambda cell: cell.name in SHARDED)
def gateway_queues(x):
    """One of them wants another number of queues from now on; the others still have theirs."""
    number, g = x.pick()
    wait_running(g)
    intake, exits = x.rng.randint(1, SHARDS), x.rng.randint(1, SHARDS)
    g.settings.update({'POSTDATE_INTAKE_QUEUES': str(intake), 'POSTDATE_EXIT_QUEUES': str(exits)})
    starts = g.starts
    x.begin(f'gateway {number} started with {intake} intake and {exits} exit queues')
    g.crash(x.rng.choice([signal.SIGTERM, signal.SIGKILL]))
    wait_until(lambda: g.starts > starts, 60, f'{g.name} to stop and start')


@fault('gateway.pause', weight=1, only=lambda cell: len(cell.gateways) > 1)
def gateway_pause(x):
    """Longer than its lease, while another one lives: it wakes up owning nothing."""
    number, g = x.pick()
    wait_running(g)
    x.begin(f'gateway {number} stopped for longer than its lease')
    g.crash(signal.SIGSTOP)
    try:
        x.wait(LEASE_S + 1, LEASE_S + 3)
    finally:
        g.crash(signal.SIGCONT)


@fault('gateway.pause_full', weight=1,
       only=lambda cell: cell.transport != 'timer' and cell.last_hop == 'gateway' and len(cell.gateways) > 1)
def gateway_pause_full(x):
    """Stopped with hundreds in its memory that RabbitMQ had waited with, for longer than grace, or until RabbitMQ has given them to
    another one. Whoever publishes them looks up first."""
    count, gateways = x.rng.choice([1000, 2000, 4000]), x.cell.gateways
    for g in gateways:
        wait_running(g)
    last_s = x.cell.fall_due(count, 5, 6)
    time.sleep(max(0, last_s - 1.7 - time.time()))
    before = [g.relayed() for g in gateways]
    time.sleep(max(0, last_s - 1 + x.rng.uniform(-0.2, 0.4) - time.time()))  # they come out half a second ahead
    got = [g.relayed() - n for g, n in zip(gateways, before)]
    number = got.index(max(got))  # RabbitMQ fills one of them first
    g = gateways[number]
    x.begin(f'gateway {number} stopped while {count} fall due')
    g.crash(signal.SIGSTOP)
    try:
        ends = time.monotonic() + x.rng.choice([x.rng.uniform(GRACE_S + 1, 6), x.rng.uniform(11, 15)])
        x.wait(1.5, 1.6)  # the others have delivered theirs
        x.detail += f', with {x.cell.taken()} in its memory'
        time.sleep(max(0, ends - time.monotonic()))
    finally:
        g.crash(signal.SIGCONT)


@fault('gateway.all_gone', weight=1)
def gateway_all_gone(x):
    """Nobody is there to deliver; what fell due meanwhile comes late, and once."""
    number = x.rng.choice([signal.SIGKILL, signal.SIGTERM])
    gone_s = x.rng.uniform(3, 8) if x.arena.short else 60
    x.cell.fall_due(500, 2, 2 + gone_s)
    time.sleep(x.rng.uniform(1, 2.5))
    x.begin(f'all gateways gone ({number.name}) for {gone_s:.1f} s')
    try:
        x.cell.halt_gateways(number)
        time.sleep(gone_s)
    finally:
        x.cell.start_gateways()


@fault('gateway.pause_short', weight=3)
def gateway_pause_short(x):
    number, g = x.pick()
    wait_running(g)
    x.begin(f'gateway {number} stopped within its lease')
    g.crash(signal.SIGSTOP)
    try:
        x.wait(0.5, 3)
    finally:
        g.crash(signal.SIGCONT)


@fault('machine.pause', weight=3)
def machine_pause(x):
    """The machine of one gateway or of all of the cell stands still (suspended, migrated, out of memory): no clock of it
    counts that time, and what the gateway knew of the database's clock is wrong by it."""
    number, g = x.pick()
    paused = x.cell.gateways if x.rng.random() < 0.5 else [g]
    longest_s = x.rng.choice([2, 5, LEASE_S + 3])
    pause_s = x.rng.uniform(0.3, longest_s)
    wait_running(g)
    x.begin(f'the machine of {"all gateways" if len(paused) > 1 else f"gateway {number}"} stands still for {pause_s:.1f} s')
    until = time.monotonic() + pause_s
    threads = [threading.Thread(target=p.stand_still, args=(lambda: time.sleep(max(0, until - time.monotonic())),))
               for p in paused]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


@fault('clock.step')
def clock_step(x):
    """The clock that the gateway sees (not the monotonic one) goes wrong by an hour, and back."""
    number, g = x.pick()
    wait_running(g)
    first_s = x.rng.choice([3600, -3600])
    x.begin(f'gateway {number} clock {first_s:+} s, then the other way')
    for ahead_s in (first_s, -first_s):
        g.clocks.set_time(ahead_s)
        x.wait(2, 3)
    g.clocks.set_time(0)


def starve(x, what, limit, detail):
    """A limit that leaves nothing, and as it was again a little later (the process may have ended over it)."""
    pid = x.cell.gateways[x.number].pid()
    try:
        before = resource.prlimit(pid, what)
        x.begin(detail)
        resource.prlimit(pid, what, (limit, before[1]))
        x.wait(1.5, 4)
        resource.prlimit(pid, what, before)
    except (ProcessLookupError, TypeError):
        if not x.began_us:
            x.begin(detail + ' (it ended by itself just before)')


@fault('gateway.descriptors', weight=2)
def gateway_descriptors(x):
    x.number, g = x.pick()
    wait_running(g)
    pid = g.pid()
    used = len(os.listdir(f'/proc/{pid}/fd')) if pid else 20
    starve(x, resource.RLIMIT_NOFILE, used, f'gateway {x.number} may open no more than {used} files')


@fault('gateway.memory', weight=2)
def gateway_memory(x):
    x.number, g = x.pick()
    wait_running(g)
    try:
        with open(f'/proc/{g.pid()}/status', encoding='utf-8') as f:
            kib = int(re.search(r'VmSize:\s+(\d+)', f.read())[1])
    except (OSError, TypeError):
        kib = 200_000
    starve(x, resource.RLIMIT_AS, kib * 1024, f'gateway {x.number} gets no more memory than its {kib} KiB')
    time.sleep(0.1)
