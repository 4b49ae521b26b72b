"""Cron expressions as Spring and Quartz write them, against Spring's and Quartz's own classes.

Spring and Quartz come from Maven, once, under build/examples; the test is skipped without Java, Maven or network. When clocks change they
do as they like (docs/internals/decisions/recurring.md, "Compared with other crons"), so what is within a day and a half of a change is left out.
"""
import bisect
import datetime as dt
import os
import random
import shutil
import subprocess
import zoneinfo

import harness
from examples import installed
from harness import SharedTest
from test_examples import POM

UTC = dt.timezone.utc
JARS = (('org.springframework', 'spring-context', '6.2.19'), ('org.quartz-scheduler', 'quartz', '2.5.2'), ('org.slf4j', 'slf4j-nop', '2.0.17'))
HALF_S = 36 * 3600
TIMES = 25
ZONES = ['UTC', 'Asia/Kolkata', 'Europe/Berlin', 'America/New_York', 'Africa/Cairo', 'Australia/Lord_Howe']
NAMES = 'SUN MON TUE WED THU FRI SAT'.split()


def pom():
    head, rest = POM.split('<dependencies>')
    wanted = ''.join(f'<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version></dependency>' for g, a, v in JARS)
    return f'{head}<dependencies>{wanted}</dependencies>{rest.split("</dependencies>")[1]}'


def random_field(r, low, high):
    kind = r.random()
    if kind < 0.3:
        return '*'
    if kind < 0.45:
        return f'*/{r.randint(1, (high - low) // 2)}'
    if kind < 0.6:
        return f'{r.randint(low, high)}/{r.randint(1, high - low)}'
    items = []
    for _ in range(r.choice((1, 1, 2, 3))):
        a, b = sorted(r.sample(range(low, high + 1), 2))
        items.append(f'{a}-{b}' if r.random() < 0.3 else f'{a}-{b}/{r.randint(1, 5)}' if r.random() < 0.2 else str(a))
    return ','.join(items)


def random_days(r, quartz):
    """The two day fields. Quartz takes one of them; where both are given, Spring wants both to match and cron either."""
    low = 1 if quartz else 0
    if r.random() < 0.5:
        # Spring goes astray where the day is not in each month
        special = ['L', 'LW', '1W', '15W', '27W', 'L-1', 'L-3', 'L-27'] + (['31W', 'L-3W', 'L-30', '31'] if quartz else ['1,15W,L', 'L-2,LW'])
        return r.choice(special) if r.random() < 0.6 else random_field(r, 1, 28).replace('*/', '1/'), '?'
    day = str(r.randint(low, 7)) if r.random() < 0.5 else r.choice(NAMES)
    plain = [f'{day}L', f'{day}#{r.randint(1, 4)}', day, 'MON-FRI', f'{low}-5', f'{low},3,SAT', '*', '1-7']
    return r.choice('?*' if not quartz else '?'), r.choice(plain + (['2/2', 'L', '*/3'] if quartz else ['0-7']))


def random_expression(r, quartz):
    by_date, by_weekday = random_days(r, quartz)
    fields = [r.choice(('0', '0', '30', '*/20', random_field(r, 0, 59))), random_field(r, 0, 59), random_field(r, 0, 23), by_date,
              r.choice(('*', '*', '*', '2', 'FEB,JUN', random_field(r, 1, 12))), by_weekday]
    if by_date in ('31', '31W', 'L-30'):
        fields[4] = '*'
    if quartz and by_date[-1] == 'W':
        fields[:3] = str(r.randint(0, 59)), str(r.randint(0, 59)), str(r.randint(0, 23))  # of a day that W has moved, Quartz finds one time only
    if quartz and r.random() < 0.4:
        fields.append(r.choice(('*', '2026-2060', '2027/3', '2026,2028,2040')))
    return ' '.join(fields)


def changes(zone, first, last):
    """Instants near which its clock changes, each hour."""
    z = zoneinfo.ZoneInfo(zone)
    hours = range(first, last, 3600)
    offsets = [dt.datetime.fromtimestamp(t, z).utcoffset() for t in hours]
    return [t for t, a, b in zip(hours[1:], offsets, offsets[1:]) if a != b]


@harness.not_san  # it is about SQL, and Java takes seconds
class RecurJava(SharedTest):
    time_limit_s = 300

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        first, last = dt.datetime(2025, 1, 1, tzinfo=UTC), dt.datetime(2045, 1, 1, tzinfo=UTC)
        cls.changes = {z: changes(z, int(first.timestamp()), int(last.timestamp())) for z in ZONES}

    def java(self, cases):
        """[(who, zone, from, expression)] → lists of seconds"""
        for program in ('java', 'javac', 'mvn'):
            if shutil.which(program) is None:
                self.skipTest(f'{program} is not installed')
        with open(os.path.join(harness.ROOT, 'tests', 'live', 'CronOracle.java'), encoding='utf-8') as f:
            oracle = f.read()
        folder = installed(self, 'cron', {'pom.xml': pom(), 'CronOracle.java': oracle},
                           ['mvn', '-q', '-B', 'dependency:copy-dependencies', '-DoutputDirectory=lib'],
                           ['javac', '-cp', 'lib/*', 'CronOracle.java'])
        lines = ''.join(f'{who}\t{zone}\t{start}\t{TIMES}\t{expression}\n' for who, zone, start, expression in cases)
        done = subprocess.run(['java', '-cp', 'lib/*:.', 'CronOracle'], cwd=folder, input=lines.encode(), stdout=subprocess.PIPE,
                              timeout=120 * harness.slowness(), check=True)
        answers = done.stdout.decode().splitlines()
        self.assertEqual([(c, a) for c, a in zip(cases, answers) if a.startswith('!')], [], 'all are allowed there')
        return [[int(t) for t in a.split()] for a in answers]

    def postdate(self, cases):
        rows = ','.join(f"({i}, '{e}', '{z}', to_timestamp({s}), '{'quartz' if who == 'quartz' else 'cron'}')" for i, (who, z, s, e) in enumerate(cases))
        out = [[] for _ in cases]
        for i, at in self.p.psql(f'select i, extract(epoch from at)::bigint from (values {rows}) v(i, c, z, f, d), '
                                 f'lateral postdate.recur_preview(c, z, {TIMES}, f, dialect => d) p order by 1, 2'):
            out[int(i)].append(int(at))
        return out

    def near_a_change(self, zone, t):
        known = self.changes[zone]
        i = bisect.bisect_left(known, t)
        return any(abs(t - c) < HALF_S for c in known[max(i - 1, 0):i + 1])

    def compare(self, who):
        r = random.Random(36)
        cases = []
        for i in range(400):
            zone = ZONES[i % len(ZONES)]
            # of the day that Quartz finds first, with W, it leaves out what is before the time of day of the start
            midnight = dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo(zone)) + dt.timedelta(days=r.randint(0, 730))
            cases.append((who, zone, int(midnight.timestamp()) - 1, random_expression(r, who == 'quartz')))
        compared = 0
        for case, theirs, ours in zip(cases, self.java(cases), self.postdate(cases)):
            self.assertTrue(theirs and ours, case)
            both_know = min(theirs[-1], ours[-1]) if len(theirs) == len(ours) == TIMES else max(theirs[-1], ours[-1])
            keep = [[t for t in times if t <= both_know and not self.near_a_change(case[1], t)] for times in (theirs, ours)]
            self.assertEqual([str(dt.datetime.fromtimestamp(t, UTC)) for t in keep[1]], [str(dt.datetime.fromtimestamp(t, UTC)) for t in keep[0]], case)
            compared += len(keep[0])
        self.assertGreater(compared, 7000)

    def test_spring(self):
        self.compare('spring')

    def test_quartz(self):
        self.compare('quartz')

    def test_cairo(self):
        """Midnight of 24 April 2026 is left out. Of every two hours, all go on at 2:00."""
        start = int(dt.datetime(2026, 4, 23, 18, tzinfo=UTC).timestamp())
        cases = [(who, 'Africa/Cairo', start, '0 0 */2 * * ?') for who in ('spring', 'quartz')]
        answers = self.java(cases)
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(self.postdate(cases), answers)
