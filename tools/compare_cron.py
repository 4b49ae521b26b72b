#!/usr/bin/env python3
"""Compares every occurrence of random cron expressions over ten years with two other implementations, croniter and cronsim.

    python3 -m venv build/compare && build/compare/bin/pip install croniter cronsim
    STACK_DIR=$PWD/build/compare/stack tools/stack.sh start-postgres
    build/compare/bin/python tools/compare_cron.py build/compare/stack [EXPRESSIONS [FIRST [MOST]]]

Prints a line for each expression and zone with differences, and sums at the end. What only one of the two others says differently is
counted under its name; 'both' are times where those two agree with each other, and not with Postdate. MOST bounds how many occurrences an
expression may have in all its zones; an expression that has more than that in one zone is compared in one.
"""
import bisect
import collections
import datetime as dt
import glob
import os
import random
import re
import subprocess
import sys
import time
import zoneinfo

import croniter
import cronsim

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
UTC = dt.timezone.utc
FROM = dt.datetime(2016, 1, 1, tzinfo=UTC)
UNTIL = dt.datetime(2026, 1, 1, tzinfo=UTC)
OFTEN = 5000  # occurrences in one zone; of those that have more, croniter is asked for spans
ZONES = ['UTC', 'Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe', 'Africa/Casablanca', 'America/Sao_Paulo', 'Asia/Kolkata', 'Asia/Kathmandu',
         'America/St_Johns', 'Pacific/Auckland', 'Pacific/Chatham', 'Asia/Tehran', 'Europe/Dublin', 'Atlantic/Azores', 'America/Havana', 'Asia/Gaza',
         'America/Santiago', 'Africa/Cairo', 'Asia/Beirut', 'America/Nuuk', 'Antarctica/Troll', 'Europe/London', 'America/Los_Angeles', 'Pacific/Apia',
         'Asia/Tokyo', 'America/Asuncion', 'Africa/El_Aaiun', 'Europe/Chisinau', 'America/Anchorage', 'Pacific/Kiritimati']
WALK = """
create function pg_temp.walk(cron text, zone text, after timestamptz, until timestamptz) returns setof bigint language plpgsql as $$
declare
    p postdate.cron_plan := postdate.cron_parse(cron);
begin
    loop
        after := postdate.cron_next(p, zone, after);
        exit when after is null or after >= until;
        return next extract(epoch from after)::bigint;
    end loop;
end $$;
"""


def random_field(r, low, high, names=()):
    kind = r.random()
    if kind < 0.3:
        return '*'
    if kind < 0.45:
        return f'*/{r.randint(2, max(2, (high - low) // 2))}'
    items = []
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        if r.random() < 0.35:
            a, b = sorted((r.randint(low, high), r.randint(low, high)))
            items.append(f'{a}-{b}' + (f'/{r.randint(1, 9)}' if r.random() < 0.4 and a < b else ''))
        else:
            items.append(r.choice(names) if names and r.random() < 0.3 else str(r.randint(low, high)))
    return ','.join(items)


def random_cron(r):
    fields = [random_field(r, 0, 59), random_field(r, 0, 23), random_field(r, 1, 28), random_field(r, 1, 12, ('jan', 'jun', 'oct')),
              random_field(r, 0, 6, ('mon', 'fri', 'sun'))]
    if r.random() < 0.35:
        fields[1] = r.choice(('0', '1', '2', '3', '2,3', '1-4', '0-3', '23'))  # where clocks change
    if r.random() < 0.1:
        fields[2:4] = r.choice(('L', '31', '29-31')), '*'
    if r.random() < 0.1:
        fields[4] = r.choice(('mon#1', '2#1', 'sun#5', '5#3'))
    return ' '.join(fields)


class Database:
    def __init__(self, stack):
        env = subprocess.run(['bash', '-c', f'. {stack}/env && echo $POSTDATE_POSTGRES_URL'], capture_output=True, text=True, check=True).stdout.strip()
        self.url = env
        files = sorted(glob.glob(ROOT + '/sql/schema/*.sql'))
        if self.run("select to_regnamespace('postdate')").strip():
            return
        self.run('create schema postdate; create table postdate.meta (one boolean primary key default true, '
                 'version integer not null, broker text, vhost text, fed_until timestamptz)', *files)

    def run(self, sql, *files):
        args = ['psql', '-X', '-q', '-At', '-v', 'ON_ERROR_STOP=1', self.url, '-c', sql]
        for f in files:
            args += ['-f', f]
        return subprocess.run(args, capture_output=True, text=True, check=True).stdout

    def walk(self, cron, zone):
        out = self.run(WALK + f"copy (select pg_temp.walk('{cron}', '{zone}', '{FROM.isoformat()}', '{UNTIL.isoformat()}')) to stdout")
        return list(map(int, out.split()))


def by_cronsim(cron, zone):
    end = UNTIL.timestamp()
    out = []
    for at in cronsim.CronSim(cron, (FROM - dt.timedelta(seconds=1)).astimezone(zone)):
        t = int(at.timestamp())
        if t >= end:
            break
        if t > FROM.timestamp():
            out.append(t)
    return out


def by_croniter(cron, zone, start, end):
    """From start to before end. It is slow: of what runs often, only spans are asked for."""
    it = croniter.croniter(cron, dt.datetime.fromtimestamp(start - 1, zone), ret_type=float, max_years_between_matches=20)
    out = []
    try:
        while (t := int(it.get_next())) < end:
            out.append(t)
    except croniter.CroniterBadDateError:
        pass
    return out


class Zone:
    """The instants at which its clock changes."""
    known = {}

    def __init__(self, name):
        self.zone = zoneinfo.ZoneInfo(name)
        self.changes = []
        low = int(FROM.timestamp()) - 86400 * 2
        step = 3600
        at = self.offset(low)
        while low < UNTIL.timestamp() + 86400 * 2:
            following = self.offset(low + step)
            if following != at:
                self.changes.append(low + step)
            at, low = following, low + step

    def offset(self, t):
        return dt.datetime.fromtimestamp(t, self.zone).utcoffset()

    def near(self, t):
        return any(abs(t - c) <= 26 * 3600 for c in self.changes)

    def spans(self, often):
        """All of the time, or a day and a half on both sides of each change of the clock and thirty other days."""
        first, last = int(FROM.timestamp()) + 1, int(UNTIL.timestamp())
        if not often:
            return [(first, last)]
        r, half = random.Random(18), 36 * 3600
        found = [(c - half, c + half) for c in self.changes] + [(t, t + 86400) for t in (r.randint(first, last - 86400) for _ in range(30))]
        joined = []
        for a, b in sorted((max(a, first), min(b, last)) for a, b in found):
            if joined and a <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(b, joined[-1][1]))
            elif a < b:
                joined.append((a, b))
        return joined

    @classmethod
    def of(cls, name):
        return cls.known.setdefault(name, None) or cls.known.__setitem__(name, cls(name)) or cls.known[name]


def is_foreign_to_croniter(cron):
    """Debian's cron and Postdate: both day fields must match when one begins with *, else either. croniter: when one is *, or with #. It also
    takes a range of one, 9-9, for all values."""
    dom, dow = cron.split()[2], cron.split()[4]
    return re.search(r'\b(\d+)-\1\b', cron) is not None or (dom.startswith('*/') and dow != '*') or (dow.startswith('*/') and dom != '*') or ('#' in dow and dom != '*')


def length_of(cron):
    """How often it runs in these years, without changes of the clock; None: never."""
    minute, hour, *day = cron.split()
    try:
        of_day = sum(1 for _ in day_walk(f'{minute} {hour} * * *', FROM, FROM + dt.timedelta(days=1)))
        return of_day * sum(1 for _ in day_walk(f'0 0 {" ".join(day)}', FROM, UNTIL)) or None
    except cronsim.CronSimError:
        return None


def day_walk(cron, start, end):
    for at in cronsim.CronSim(cron, start - dt.timedelta(seconds=1)):
        if at >= end:
            return
        yield at


def range_of(ordered, a, b):
    return ordered[bisect.bisect_left(ordered, a):bisect.bisect_left(ordered, b)]


def compare(database, cron, name, sums):
    zone = Zone.of(name)
    began = time.monotonic()
    ours = set(database.walk(cron, name))
    sim = set(by_cronsim(cron, zone.zone))
    spans = [] if is_foreign_to_croniter(cron) else zone.spans(len(ours) > OFTEN)
    second = set().union(*(by_croniter(cron, zone.zone, a, b) for a, b in spans)) if spans else set()
    asked = {t for a, b in spans for t in range_of(sorted(ours | sim), a, b)} | second
    sums['occurrences'] += len(ours)
    sums['of them asked of croniter'] += len(asked & ours)
    sums['pairs'] += 1
    notes = collections.Counter()
    for t in ours ^ sim:
        notes['both' if t in asked and (t in sim) == (t in second) else 'cronsim', 'near a change' if zone.near(t) else 'elsewhere'] += 1
    for t in asked:
        if (t in ours) != (t in second) and (t in ours) == (t in sim):
            notes['croniter', 'near a change' if zone.near(t) else 'elsewhere'] += 1
    for key, n in notes.items():
        sums[' '.join(key)] += n
    if notes:
        examples = sorted(ours ^ sim)[:3] or sorted(t for t in asked if (t in ours) != (t in second))[:3]
        print(f'{cron} | {name} | {len(ours)} | {dict(notes)} | '
              + ' '.join(f'{dt.datetime.fromtimestamp(t, UTC):%Y-%m-%dT%H:%MZ}{"+" if t in ours else "-"}' for t in examples), flush=True)
    return len(ours), time.monotonic() - began


def main():
    stack, wanted, first, most = sys.argv[1], *(int(x) for x in (sys.argv[2:] + ['200', '0', '100000'][len(sys.argv) - 2:]))
    database = Database(stack)
    sums = collections.Counter()
    dense = 0
    turn = 0
    made = 0
    r = random.Random(18)
    while made < wanted + first:
        cron = random_cron(r)
        length = length_of(cron)
        if length is None or (length > 300000 and (dense := dense + 1) > 8):
            continue
        made += 1
        zones = max(1, min(len(ZONES), most // max(length, 1)))
        turn += zones
        if made > first:
            for i in range(zones):
                compare(database, cron, ZONES[(turn + i) % len(ZONES)], sums)
            sums['expressions'] += 1
            if made % 10 == 0:
                print(f'# {made}: {dict(sums)}', flush=True)
    print(f'= {dict(sums)}', flush=True)


if __name__ == '__main__':
    main()
