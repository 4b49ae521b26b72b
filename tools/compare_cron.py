#!/usr/bin/env python3
"""Compares the occurrences of random cron expressions over ten years, in thirty zones, with two other implementations: cronsim and croniter.

    python3 -m venv build/compare && build/compare/bin/pip install croniter cronsim
    STACK_DIR=$PWD/build/compare/stack tools/stack.sh start-postgres
    build/compare/bin/python tools/compare_cron.py build/compare/stack [EXPRESSIONS [FIRST]]

Each expression is compared in each zone. In a pair with at most WHOLE occurrences all of them are; of one that has more, all that lie within a
day and a half of a change of the clock or on DAYS other days, and in one zone for each expression all of them, with cronsim. What is left out
that way is counted, and so are pairs that croniter is not asked about, with the reason.

Prints a line for each pair with differences, and sums at the end. 'both': those two agree with each other, and not with Postdate.
"""
import bisect
import collections
import datetime as dt
import glob
import itertools
import json
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
WHOLE = 20000
DAYS = 60
HALF_S = 36 * 3600
ZONES = ['UTC', 'Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe', 'Africa/Casablanca', 'America/Sao_Paulo', 'Asia/Kolkata', 'Asia/Kathmandu',
         'America/St_Johns', 'Pacific/Auckland', 'Pacific/Chatham', 'Asia/Tehran', 'Europe/Dublin', 'Atlantic/Azores', 'America/Havana', 'Asia/Gaza',
         'America/Santiago', 'Africa/Cairo', 'Asia/Beirut', 'America/Nuuk', 'Antarctica/Troll', 'Europe/London', 'America/Los_Angeles', 'Pacific/Apia',
         'Asia/Tokyo', 'America/Asuncion', 'Africa/El_Aaiun', 'Europe/Chisinau', 'America/Anchorage', 'Pacific/Kiritimati']
WALK = """
create function pg_temp.walk(cron text, zone text, spans bigint[]) returns setof bigint language plpgsql as $$
declare
    p postdate.cron_plan := postdate.cron_parse(cron);
    after timestamptz;
    until timestamptz;
begin
    for i in 1..array_length(spans, 1) loop
        after := to_timestamp(spans[i][1] - 1);
        until := to_timestamp(spans[i][2]);
        loop
            after := postdate.cron_next(p, zone, after);
            exit when after is null or after >= until;
            return next extract(epoch from after)::bigint;
        end loop;
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
            items.append(f'{a}-{b}' + (f'/{min(r.randint(1, 9), high - low + (high != 7))}' if r.random() < 0.4 and a < b else ''))
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
        self.run('create schema postdate', *files)

    def run(self, sql, *files):
        args = ['psql', '-X', '-q', '-At', '-v', 'ON_ERROR_STOP=1', self.url, '-c', sql]
        for f in files:
            args += ['-f', f]
        return subprocess.run(args, capture_output=True, text=True, check=True).stdout

    def walk(self, cron, zone, spans):
        array = ','.join(f'{{{a},{b}}}' for a, b in spans)
        out = self.run(WALK + f"copy (select pg_temp.walk('{cron}', '{zone}', '{{{array}}}')) to stdout")
        return list(map(int, out.split()))


def by_cronsim(cron, zone, start, end):
    """From start to before end."""
    out = []
    try:
        for at in cronsim.CronSim(cron, dt.datetime.fromtimestamp(start - 1, zone)):
            t = int(at.timestamp())
            if t >= end:
                break
            if t >= start:
                out.append(t)
    except cronsim.CronSimError:
        pass
    return out


def by_croniter(cron, zone, start, end):
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

    def kind(self, t):
        """Of the change of the clock that is near."""
        near = min(self.changes, key=lambda c: abs(t - c), default=0)
        if abs(t - near) > 26 * 3600:
            return 'elsewhere'
        by = (self.offset(near) - self.offset(near - 3600)).total_seconds() / 3600
        return f'clock {by:+g} h'

    def spans(self, whole):
        first, last = int(FROM.timestamp()) + 1, int(UNTIL.timestamp())
        if whole:
            return [(first, last)]
        r = random.Random(18)
        found = [(c - HALF_S, c + HALF_S) for c in self.changes] + [(t, t + 86400) for t in (r.randint(first, last - 86400) for _ in range(DAYS))]
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


def foreign_to_croniter(cron):
    """Why croniter is not asked; nothing: it understands the same. Debian's cron and Postdate: both day fields must match when one begins with
    *, else either. croniter: when one is *, or with #. It also takes a range of one, 9-9, for all values."""
    dom, dow = cron.split()[2], cron.split()[4]
    if re.search(r'\b(\d+)-\1\b', cron):
        return 'a range of one'
    if (dom.startswith('*/') and dow != '*') or (dow.startswith('*/') and dom != '*'):
        return 'a day field with */ beside another'
    return 'a day field with # beside another' if '#' in dow and dom != '*' else None


def is_wild(cron):
    return any(f.startswith('*') for f in cron.split()[:2])


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


def within(ordered, spans):
    return {t for a, b in spans for t in range_of(ordered, a, b)}


def differences(cron, zone, ours, sim, second):
    """{(who differs, where, what kind of expression): [times]}; second is None where croniter was not asked, and of its spans only."""
    out = collections.defaultdict(list)
    kind = 'follows the clock' if is_wild(cron) else 'fixed'
    for t in ours ^ sim:
        who = 'cronsim, croniter not asked' if second is None else 'both' if (t in sim) == (t in second) else 'cronsim, croniter as Postdate'
        out[who, zone.kind(t), kind].append(t)
    for t in (second or set()) ^ (ours & sim) if second is not None else ():
        if (t in ours) == (t in sim):
            out['croniter, cronsim as Postdate', zone.kind(t), kind].append(t)
    return out


def compare(database, cron, length, name, whole, sums):
    """whole: all of it with cronsim, however much that is; croniter has the same spans, unless it is too much."""
    zone = Zone.of(name)
    spans, near = zone.spans(whole), zone.spans(length <= WHOLE)
    ours = set(database.walk(cron, name, spans))
    sim = {t for a, b in spans for t in by_cronsim(cron, zone.zone, a, b)}
    reason = foreign_to_croniter(cron)
    second = None if reason else {t for a, b in near for t in by_croniter(cron, zone.zone, a, b)}
    sums['pairs'] += 1
    sums['pairs compared in full'] += whole
    sums['occurrences compared'] += len(ours)
    sums['occurrences left out, about'] += 0 if whole else max(0, length - len(ours))
    sums[f'pairs that croniter is not asked about: {reason}' if reason else 'pairs with croniter'] += 1
    if second is not None and near != spans:  # where it was not asked it says nothing
        sums['occurrences of them left out with croniter'] += len(ours) - len(within(sorted(ours), near))
        second |= (ours & sim) - within(sorted(ours & sim), near)
    found = differences(cron, zone, ours, sim, second)
    sums['pairs that agree'] += not found
    for key, times in found.items():
        sums[' | '.join(('differs',) + key)] += len(times)
    if found:
        print(f'{cron} | {name} | {len(ours)} | ' + '; '.join(f'{", ".join(k)}: {len(v)}, '
              + ' '.join(f'{dt.datetime.fromtimestamp(t, UTC):%Y-%m-%dT%H:%MZ}{"+" if t in ours else "-"}' for t in sorted(v)[:2]) for k, v in found.items()), flush=True)


def expressions():
    """The same ones each time, with how often they run. Of those that run very often there are eight, for the sake of time."""
    r, dense = random.Random(18), 0
    while True:
        cron = random_cron(r)
        length = length_of(cron)
        dense += length is not None and length > 300000
        if length is not None and (length <= 300000 or dense <= 8):
            yield cron, length


def main():
    stack, wanted, first = sys.argv[1], *(int(x) for x in (sys.argv[2:] + ['200', '0'][len(sys.argv) - 2:]))
    database = Database(stack)
    sums = collections.Counter()
    began = time.monotonic()
    for number, (cron, length) in enumerate(itertools.islice(expressions(), first, first + wanted), first):
        for i, name in enumerate(ZONES):
            compare(database, cron, length, name, length <= WHOLE or i == number % len(ZONES), sums)
        sums['expressions'] += 1
        if number % 10 == 9:
            print(f'# {number + 1}, {time.monotonic() - began:.0f} s: {json.dumps(sums)}', flush=True)
    print(f'= {json.dumps(sums)}', flush=True)


if __name__ == '__main__':
    main()
