"""run.py: months in minutes. The clock of PostgreSQL, of two gateways, of who publishes and of who consumes is moved by hours every
few seconds. The environment says how:

  SEED=n       everything random comes from it; without, one is drawn and printed
  MONTHS=n     how long (default 14: a leap day, both changes of summer time in six zones, each end of a month)
  STEP_H=n     hours of a step on average (default 8)
  STEP_S=n     seconds between two steps, at least (default 2); the next one waits until all that is due is delivered
  RATE=n       messages a real second (default 20)

A ledger outside judges, that of the chaos suite: nothing may be lost, early, twice, or delivered after a cancel. Each time of each
schedule is delivered once, or counted as left out. Evidence stays in build/seasons/<seed>. The last line is the verdict.
"""
import collections
import datetime as dt
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'chaos'))

import schedules  # noqa: E402
from arena import Arena  # noqa: E402
from ledger import judge, text_of  # noqa: E402
from refusals import write_dead  # noqa: E402
from servers import ROOT, wait_until  # noqa: E402

CELL = 'seasons'
DAY_S, MONTH_S = 86400, 2629800
SPREAD_DAYS = 45   # how far ahead messages are scheduled, in a short run a third of it; so long nothing new comes at the end
BEFORE_HOUR_S = 1  # so long before a full hour each fourth step ends: occurrences that are not missed
SETTLE_LIMIT_S = 120
LOOKS = 60         # steps between two looks at sizes
DEAD_STEPS = 5     # … at what is dead, before it is forgotten
UUID = r'[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}'
EACH_HOUR = 2      # lines of a text that a log may have for each hour that a run lasts, and as many for a part of one
# … and for each step: consumers reject all the time; both gateways drop days at that moment, and one meets the other's lock.
EACH_STEP = {'rejected for good': 2, 'dropping settled partitions: ': 0.1}


def begin_s(now_s):
    """20 December before the next leap year."""
    year = dt.datetime.fromtimestamp(now_s, dt.timezone.utc).year
    while year % 4 or (year % 100 == 0 and year % 400) or dt.datetime(year - 1, 12, 20, tzinfo=dt.timezone.utc).timestamp() < now_s:
        year += 1
    return dt.datetime(year - 1, 12, 20, tzinfo=dt.timezone.utc).timestamp()


def spread_s(length_s):
    return min(SPREAD_DAYS * DAY_S, length_s / 3)


class Seasons:
    def __init__(self, arena, seed, months, step_h, step_s):
        self.arena, self.cell, self.rng = arena, arena.cells[CELL], random.Random(f'{seed} seasons')
        self.step_h, self.step_s = step_h, step_s
        self.began_s, self.ends_s = self.now_s(), self.now_s() + months * MONTH_S
        self.steps, self.sizes, self.problems = 0, [], []
        self.program = os.path.join(arena.build, 'postdate')
        self.env = dict(os.environ, **arena.clocks.env, POSTDATE_CONFIG='/dev/null', POSTDATE_POSTGRES_URL=arena.postgres.url(self.cell.database),
                        POSTDATE_DELIVERY_MAX_DELAY=arena.max_delay, POSTDATE_DELIVERY_ALLOW='*')

    def now_s(self):
        return time.time() + self.arena.clocks.realtime_s

    def psql(self, query):
        return self.arena.postgres.primary.psql(query, self.cell.database, 120)

    def step(self):
        hours = self.rng.uniform(0.25, 2 * self.step_h - 0.25)
        to_s = self.now_s() + 3600 * hours
        if self.steps % 4 == 3:
            to_s += 3600 - to_s % 3600 - BEFORE_HOUR_S
        self.arena.clocks.set_time(to_s - time.time())
        self.steps += 1
        time.sleep(self.step_s)
        self.settle()

    def settle(self):
        """Until what is due is delivered; what a consumer rejected is due again soon."""
        def settled():
            return self.psql("select not exists (select from postdate.message_now where state in ('scheduled', 'claimed') "
                             "and next_at < now() - interval '3 s')") == [['t']]
        try:
            wait_until(settled, SETTLE_LIMIT_S, 'all that is due to be delivered', 0.2)
        except TimeoutError as e:
            self.problems.append(f'{self.today()}: {e}')

    def today(self):
        return dt.datetime.fromtimestamp(self.now_s(), dt.timezone.utc).strftime('%Y-%m-%d')

    def use(self):
        """What somebody asks now and then, and a rate that comes and goes."""
        for words in (['forecast', '--json'], ['status', '--json'], ['recur', 'list', '--json'], ['doctor', '--json']):
            done = subprocess.run([self.program, *words], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, check=False, timeout=120)
            if done.returncode not in ((0, 1) if words[0] == 'doctor' else (0,)):
                self.problems.append(f'{self.today()}: postdate {" ".join(words)}: {done.returncode} {done.stderr.decode()[:200]}')
        self.psql(f"select postdate.rate_set('chaos.second', {self.rng.choice([50, 200, 1000])})" if self.rng.random() < 0.5
                  else "select postdate.rate_remove('chaos.second')")

    def look(self, schedule):
        bytes_, tables, sessions = map(int, self.psql(
            f"select pg_database_size('{self.cell.database}'), (select count(*) from pg_class where relnamespace = 'postdate'::regnamespace "
            f"and relkind = 'r'), (select count(*) from pg_stat_activity where datname = '{self.cell.database}')")[0])
        for g in self.arena.gateways():
            g.measure()
        self.sizes.append(bytes_)
        state = self.arena.state(CELL)
        print(f'{self.today()}  step {self.steps}: accepted {state["accepted"]:,}, delivered {state["delivered"]:,}, open {state["open"]:,}, '
              f'occurrences {len(schedule.came):,}; {bytes_ / 2**20:.0f} MiB, {tables} tables, {sessions} sessions, gateways at most '
              f'{max(g.most_kib for g in self.arena.gateways()) / 1024:.0f} MiB', flush=True)

    def run(self, schedule):
        sending_until_s = self.ends_s - spread_s(self.ends_s - self.began_s)
        stopped = False
        while self.now_s() < self.ends_s:
            self.step()
            if not stopped and self.now_s() >= sending_until_s:
                self.stop_sending()
                stopped = True
            if self.steps % DEAD_STEPS == 0:
                self.cell.dead()
            if self.steps % LOOKS == 0:
                self.use()
                self.look(schedule)
        self.psql("select postdate.rate_remove('chaos.second')")
        to_s = self.now_s()
        self.drain()
        return to_s

    def stop_sending(self):
        self.cell.tell(stop=True)
        self.cell.workload.wait(90)

    def drain(self):
        """Each message has come, or is dead."""
        asked = time.monotonic()

        def done():
            left = self.cell.depth_of_intake() + self.cell.waiting(1000)
            return not left and self.cell.refusals_settled(asked)
        try:
            wait_until(done, SETTLE_LIMIT_S, 'everything to be settled', 0.5)
        except TimeoutError as e:
            self.problems.append(str(e))

    def lines(self, seconds):
        """{text: count} of the warnings of the gateways' logs; numbers, ids and names left out. One of more than EACH_HOUR or EACH_STEP is a
        problem."""
        texts = collections.Counter()
        for g in self.arena.gateways():
            with open(g.log_path, encoding='utf-8', errors='replace') as f:
                found = collections.Counter(re.sub(rf'{UUID}|".*?"|\'.*?\'|\d[\d:.TZ-]*', '#', line.split(' ', 2)[2]).strip()[:110]
                                            for line in f if re.match(r'\S+ (warn|error)', line))
            for text, n in found.items():
                each_step = sum(often for part, often in EACH_STEP.items() if part in text)
                if n > (self.steps * each_step or EACH_HOUR * (seconds // 3600 + 1)):
                    self.problems.append(f'{g.name}: {n} times in its log: {text}')
            texts += found
        return texts


def report(seasons, schedule, evidence, to_s, seconds, codes):
    verdict = judge(evidence)
    print(text_of(verdict))
    found, counts = schedules.judge(schedule.came, seasons.began_s, to_s)
    problems = seasons.problems + found + ([schedule.error] if schedule.error else [])
    print(f'\n{"schedule":<14}{"times":>10}{"delivered":>11}{"left out":>10}')
    for name, (times, delivered, left_out) in counts.items():
        print(f'{name:<14}{times:>10,}{delivered:>11,}{left_out:>10,}')
    print()
    for text, n in seasons.lines(seconds).most_common():
        print(f'{n:>6}  {text}')
    problems = problems + [p for p in seasons.problems if p not in problems]
    if verdict['total']['duplicated']:
        problems.append(f'{verdict["total"]["duplicated"]} came twice')
    for g in seasons.arena.gateways():
        log = os.path.getsize(g.log_path)
        print(f'{g.name}: {g.starts} starts, at most {g.most_kib / 1024:.0f} MiB and {g.most_files} files, log {log / 1024:.0f} KiB')
    sizes = [s / 2**20 for s in seasons.sizes or [0]]
    print(f'database: {sizes[-1]:.0f} MiB at the end, at most {max(sizes):.0f} MiB')
    if any(c not in (0, None) for ends in codes.values() for c in ends):
        problems.append(f'gateways ended with {codes}')
    for text in problems[:50]:
        print('PROBLEM ' + text)
    good = not problems and not verdict['broken']
    total = verdict['total']
    print(f'{(to_s - seasons.began_s) / MONTH_S:.1f} months in {seconds / 60:.1f} min, {seasons.steps} steps: {total["lost"]} lost, {total["early"]} '
          f'early, {total["duplicated"]} twice, {sum(c[0] for c in counts.values()):,} times of schedules: {"passed" if good else "FAILED"}', flush=True)
    return 0 if good else 1


def main():
    env = os.environ
    seed = int(env.get('SEED') or random.SystemRandom().randrange(1, 1_000_000))
    months, step_h, step_s = (float(env.get(name) or default) for name, default in (('MONTHS', 14), ('STEP_H', 8), ('STEP_S', 2)))
    evidence = os.path.join(ROOT, 'build', 'seasons', str(seed))
    shutil.rmtree(evidence, ignore_errors=True)
    os.makedirs(evidence)
    print(f'SEED={seed} MONTHS={months:g}: evidence in {os.path.relpath(evidence, ROOT)}', flush=True)
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    work = tempfile.mkdtemp(prefix='pd-seasons-', dir='/dev/shm' if os.path.isdir('/dev/shm') else '/tmp')
    os.chmod(work, 0o755)
    began, codes, to_s = time.monotonic(), {}, None
    build = os.path.abspath(env.get('POSTDATE_BIN_DIR') or os.path.join(ROOT, 'build'))
    arena = None
    try:
        arena = Arena(evidence, work, build, 3 << 30, begins_s=begin_s(time.time()))
        arena.start_brokers([CELL], '')
        arena.add_cells([CELL], seed, float(env.get('RATE') or 20), spread_ms=round(1000 * spread_s(months * MONTH_S)))
        seasons = Seasons(arena, seed, months, step_h, step_s)
        schedule = schedules.Consumer(arena.rabbit.url(arena.cells[CELL].vhost), seasons.now_s)
        schedule.start()
        time.sleep(1)
        seasons.began_s = seasons.now_s()
        schedules.set_all(seasons.program, seasons.env)
        arena.start_load()
        to_s = seasons.run(schedule)
        schedule.end()
        write_dead(evidence, CELL, seasons.cell.dead())
    finally:
        if arena is not None:
            codes = arena.close()
        shutil.rmtree(work, ignore_errors=True)
    return report(seasons, schedule, evidence, to_s, time.monotonic() - began, codes)


if __name__ == '__main__':
    sys.exit(main())
