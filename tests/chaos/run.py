"""run.py: many faults, and a ledger that knows better. The environment says how:

  SEED=n       everything random comes from it; without, one is drawn and printed
  FAULTS=n     how many (default 1000; at least one of each kind that strikes servers); with fewer than 200 what would last for a minute
               lasts for some seconds
  ONLY=word    only kinds with this word in their name; several: ONLY=exit,leaderless
  CELLS=a,b    only these cells (timer, ttl, plugin, plugin-alone, ttl-broker, harmed, retry, shards, cells; on three nodes of RabbitMQ
               cluster-timer, cluster-ttl, cluster-plugin, cluster-retry, cluster-shards); native and cluster-native, for RabbitMQ 4.4 and
               later, only where they are named
  RATE=n       messages a second for each cell (default 60)
  MILLION=n    messages due in one second, once, while faults go on (default 1000000 with 1000 faults or more, else 0)
  POWER=1      the servers have a disk whose power can be cut, and only that strikes (`make powercut`); root,
               within `unshare --mount`, so that no other process's view of the mounts keeps the disk
  PLANT=lie|fsync   what the ledger must find out: the disk does nothing when it is told to flush, or PostgreSQL does not tell it to
  STACK_PLUGINS_DIR=dir   the real delayed-message plugin, instead of its test double

Evidence stays in build/chaos/<seed>. The last lines are the verdict; exit 1 if anything was lost, early, delivered after a
cancel that said yes, or mangled.
"""
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from arena import BROKER_DELIVERS, CELLS, Arena  # noqa: E402
from disk import why_not  # noqa: E402
from faults import Injection, NotNow, NotPossible, load_all  # noqa: E402
from ledger import Faults, judge, text_of  # noqa: E402
from plan import make_plan  # noqa: E402
from refusals import write_dead  # noqa: E402
from servers import ROOT, wait_until  # noqa: E402

RECOVERY_LIMIT_S = 90
FLOODED_LIMIT_S = 400  # while the million is being delivered, which comes before what is asked for now
DRAIN_LIMIT_S = 300
SHORT_FAULTS = 200


class Gate:
    """Faults of the tracks go through together; one that has to be alone waits until they are done and keeps them out."""

    def __init__(self):
        self.changed, self.inside, self.alone = threading.Condition(), 0, False

    def enter(self, alone):
        with self.changed:
            self.changed.wait_for(lambda: not self.alone)
            if alone:
                self.alone = True
                self.changed.wait_for(lambda: self.inside == 0)
            else:
                self.inside += 1

    def leave(self, alone):
        with self.changed:
            if alone:
                self.alone = False
            else:
                self.inside -= 1
            self.changed.notify_all()


class Run:
    def __init__(self, arena, kinds, tracks):
        self.arena, self.kinds, self.tracks = arena, kinds, tracks
        self.gate, self.lock = Gate(), threading.Lock()
        self.done, self.skipped, self.broken, self.slow = 0, {}, [], []
        self.total = sum(map(len, tracks.values()))
        self.over, self.draining = threading.Event(), False
        self.flooded = None  # the cell that has the million to deliver
        self.faults = Faults(arena.evidence)
        self.cost = arena.postgres.cost()

    def note(self, x):
        with self.lock:
            self.done += 1
            touched = [c.name for c in self.touched(x)]
            for name in touched if len(touched) < len(self.arena.cells) else ['*']:
                self.faults.add(x.began_us, x.ended_us, x.kind.name, name, x.detail or '-')

    def touched(self, x):
        return [x.cell] if x.cell else [c for c in self.arena.cells.values() if x.kind.touches(c)]

    def strike(self, entry, may_wait):
        kind = self.kinds[entry.kind]
        cell = self.arena.cells[entry.cell] if entry.cell else None
        x = Injection(self.arena, cell, kind, entry.seed, may_wait)
        alone = kind.scope == 'alone'
        self.gate.enter(alone)
        try:
            kind.run(x)
        except NotPossible as e:
            with self.lock:
                self.skipped[kind.name] = str(e)
            return
        finally:
            self.gate.leave(alone)
        x.ended_us = int(time.time() * 1e6)
        self.note(x)
        if entry.patient or alone:
            self.wait_recovered(x)
        time.sleep(entry.gap_s)

    def wait_recovered(self, x):
        """Something that was asked for after the healing has arrived, in each cell that was struck."""
        for cell in self.touched(x):
            limit_s = FLOODED_LIMIT_S if cell is self.flooded else RECOVERY_LIMIT_S
            try:
                wait_until(lambda c=cell: c.arena.state(c.name)['newest_delivered_attempt_us'] > x.ended_us, limit_s, 'recovery',
                           0.1)
            except TimeoutError:
                with self.lock:
                    self.slow.append(f'{cell.name}: nothing arrived within {limit_s} s of {x.kind.name} '
                                     f'({x.detail}), healed at {x.ended_us}')

    def track(self, entries):
        """One after the other. Those that cannot be now come last, and are not put off again."""
        later = []
        for entry in itertools.chain(entries, later):  # what is put off meanwhile, too
            if self.over.is_set():
                return
            try:
                self.strike(entry, entry not in later)
            except NotNow:
                later.append(entry)
            except Exception as e:  # noqa: BLE001  a fault that cannot be made is a defect of the suite: said, and counted
                with self.lock:
                    self.broken.append(f'{entry.kind} in {entry.cell}: {type(e).__name__}: {e}')

    def watch(self):
        while not self.over.wait(0.5):
            for g in self.arena.gateways():
                g.measure()
            if self.arena.proxy.process.poll() is not None and not self.draining:
                self.broken.append('the proxy ended')
                self.over.set()
            for cell in self.arena.cells.values():
                if (cell.workload.poll() is not None and not self.draining) or any(w.ended() for w in cell.witnesses):
                    self.broken.append(f'{cell.name}: the workload or a witness ended, see its log')
                    self.over.set()

    def run(self):
        threading.Thread(target=self.watch, daemon=True).start()
        threads = [threading.Thread(target=self.track, args=(entries,), daemon=True) for entries in self.tracks.values()]
        for t in threads:
            t.start()
        began, last = time.monotonic(), 0
        while any(t.is_alive() for t in threads):
            time.sleep(0.5)
            if time.monotonic() - last > 15:
                last = time.monotonic()
                self.say_progress(last - began)
        self.say_progress(time.monotonic() - began)

    def say_progress(self, elapsed_s):
        states = {name: self.arena.state(name) for name in self.arena.cells}
        print(f'{elapsed_s:5.0f} s  {self.done} of {self.total} faults; accepted '
              f'{sum(s["accepted"] for s in states.values()):,}, delivered '
              f'{sum(s["delivered"] for s in states.values()):,}, owed '
              + ' '.join(f'{n} {s["owed"]}' for n, s in states.items()), flush=True)

    def drain(self):
        """No more faults; the workloads finish; everything that is owed arrives. False: not within the limit."""
        self.draining = True
        for cell in self.arena.cells.values():
            cell.tell(stop=True)
        for cell in self.arena.cells.values():
            try:
                cell.workload.wait(60)
            except subprocess.TimeoutExpired:
                self.broken.append(f'{cell.name}: the workload did not end')

        def waiting(cell):
            return cell.depth_of_intake() + cell.waiting(10000)
        asked = time.monotonic()
        until = time.monotonic() + DRAIN_LIMIT_S
        while time.monotonic() < until:
            left = {c.name: waiting(c) for c in self.arena.cells.values()}
            if not any(left.values()):
                left = {c.name: 'rejected' for c in self.arena.cells.values() if c.rejects and not c.refusals_settled(asked)}
            if not left or not any(left.values()):
                time.sleep(3)  # what the broker still lets go, and the consumers still write down
                return
            time.sleep(0.5)
        self.broken.append(f'not everything was settled within {DRAIN_LIMIT_S} s: {left}')


def place_with_room():
    """In memory if there is room: what is killed loses nothing either way, and the disk is not what is to be tried."""
    room = os.statvfs('/dev/shm') if os.path.isdir('/dev/shm') else None
    return '/dev/shm' if room and room.f_bavail * room.f_frsize >= 4 << 30 else '/tmp'


def million(run, count):
    """So many, due in one second, while the faults go on."""
    cell = run.arena.cells.get('timer') or next(iter(run.arena.cells.values()))
    time.sleep(20)
    run.flooded = cell
    cell.tell(flood=count, due_ms=int(time.time() * 1000) + max(20_000, count // 15), way='sql')


def plant(arena, mistake):
    if mistake == 'lie':
        arena.disk.order('lie')
    elif mistake == 'fsync':
        arena.postgres.primary.set(fsync='off')
        arena.disk.sync()
    elif mistake:
        sys.exit(f'PLANT={mistake}: allowed are lie, fsync')


def main():
    env = os.environ
    seed = int(env.get('SEED') or random.SystemRandom().randrange(1, 1_000_000))
    count = int(env.get('FAULTS') or 1000)
    rate = int(env.get('RATE') or 60)
    names = env['CELLS'].split(',') if env.get('CELLS') else [n for n in CELLS if CELLS[n][0] != 'native' and n != 'seasons']
    for name in names:
        if name not in CELLS:
            sys.exit(f'CELLS={name}: allowed are {", ".join(CELLS)}')
    power = env.get('POWER') == '1'
    if power and why_not():
        sys.exit(f'POWER=1: {why_not()}')
    kinds = {n: k for n, k in load_all().items() if any(word in n for word in env.get('ONLY', '').split(',')) and
             n.startswith('power.') == power}
    if not kinds:
        sys.exit(f'ONLY={env["ONLY"]}: no such kind; there are {", ".join(load_all())}')
    flood = int(env.get('MILLION') or (1_000_000 if count >= 1000 else 0))
    evidence = os.path.join(ROOT, 'build', 'chaos', str(seed))
    shutil.rmtree(evidence, ignore_errors=True)
    os.makedirs(evidence)
    print(f'SEED={seed} FAULTS={count}: evidence in {os.path.relpath(evidence, ROOT)}', flush=True)
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    plugins = env.get('STACK_PLUGINS_DIR')
    if not plugins:
        plugins = os.path.join(ROOT, 'build', 'plugin-double')
        done = subprocess.run([os.path.join(ROOT, 'tools', 'plugin_double.sh'), plugins], check=False, stdin=subprocess.DEVNULL)
        if done.returncode == 3:  # this RabbitMQ cannot have it
            plugins, names = '', [n for n in names if CELLS[n][0] != 'plugin']
            print(f'without the plugin: only the cells {", ".join(names)}', flush=True)
        else:
            done.check_returncode()
    work = tempfile.mkdtemp(prefix='pd-chaos-', dir=place_with_room())
    os.chmod(work, 0o755)
    began = time.monotonic()
    build = os.path.abspath(env.get('POSTDATE_BIN_DIR') or os.path.join(ROOT, 'build'))
    arena = run = None
    codes = {}
    try:
        arena = Arena(evidence, work, build, (6 << 30) if flood > 100_000 else (3 << 30), short=count < SHORT_FAULTS, power=power)
        arena.start_brokers(names, plugins)
        arena.add_cells(names, seed, rate)
        plant(arena, env.get('PLANT'))
        arena.start_load()
        run = Run(arena, kinds, make_plan(seed, count, kinds, list(arena.cells.values())))
        if flood:
            threading.Thread(target=million, args=(run, flood), daemon=True).start()
        run.run()
        run.drain()
        run.over.set()
        run.cost = [now - before for now, before in zip(arena.postgres.cost(), run.cost)]
        keep_rows(arena)
    finally:
        if run is not None:
            run.over.set()
        if arena is not None:
            codes = arena.close()
        shutil.rmtree(work, ignore_errors=True)
    return report(run, codes, evidence, time.monotonic() - began)


def keep_rows(arena):
    """What the databases say at the end, for whoever has to find out how something was lost."""
    for cell in arena.cells.values():
        rows = [row for database in cell.databases for row in arena.postgres.primary.psql(
            "select translate(encode(substr(body, 1, 40), 'escape'), E'\\t\\n', '  '), id, state, hold, attempts, error, due, next_at, settled_at, "
            "created_at from postdate.message_now order by due limit 500000", database, 120)]
        with open(os.path.join(cell.directory, 'rows.tsv'), 'w', encoding='utf-8') as f:
            f.writelines('\t'.join(row) + '\n' for row in rows)
        if cell.rejects:
            write_dead(arena.evidence, cell.name, cell.dead())


def report(run, codes, evidence, seconds):
    # What a target can't take when RabbitMQ itself delivers may be lost: there it is counted, not promised.
    verdict = judge(evidence, BROKER_DELIVERS)
    print(text_of(verdict))
    print()
    delivered = max(1, verdict['total']['delivered'])
    print(f'PostgreSQL, standbys included: {1e6 * run.cost[1] / delivered:,.0f} us of processor time and {run.cost[0] / delivered:,.0f} '
          'bytes of WAL for each delivered message')
    for name, why in sorted(run.skipped.items()):
        print(f'skipped: {name}: {why}')
    for g in run.arena.gateways():
        log = os.path.getsize(g.log_path)
        bad = [c for _, c in g.exits if c not in (0, -signal.SIGKILL)]
        print(f'{g.name}: {g.starts} starts, at most {g.most_kib / 1024:.0f} MiB and {g.most_files} files, log {log / 1024:.0f} '
              f'KiB' + (f', ended by itself with {sorted(set(bad))}' if bad else ''))
    for name, ends in codes.items():
        if any(c not in (0, None) for c in ends):
            run.broken.append(f'{name}: gateways ended with {ends} at the end')
    for text in run.slow + run.broken:
        print('PROBLEM ' + text)
    good = not verdict['broken'] and not run.broken and not run.slow
    print(f'{run.done} faults of {len({k for t in run.tracks.values() for e in t for k in [e.kind]} - set(run.skipped))} kinds in '
          f'{seconds / 60:.1f} min: {"passed" if good else "FAILED"}', flush=True)
    with open(os.path.join(evidence, 'run.json'), 'w', encoding='utf-8') as f:
        json.dump({'seconds': seconds, 'done': run.done, 'skipped': run.skipped, 'broken': run.broken, 'slow': run.slow,
                   'good': good}, f)
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
