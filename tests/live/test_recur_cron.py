"""Cron expressions and time zones, against a plain implementation (cron_kit.py)."""
import datetime as dt
import random
import zoneinfo

from cron_kit import UTC, Cron
from harness import SharedTest
from test_sql import psql_error

ZONES = ['UTC', 'Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe', 'Africa/Casablanca', 'America/Sao_Paulo', 'Asia/Kolkata', 'Asia/Kathmandu',
         'America/St_Johns', 'Pacific/Auckland', 'Pacific/Chatham', 'Asia/Tehran', 'Europe/Dublin', 'Atlantic/Azores', 'America/Havana', 'Asia/Gaza',
         'America/Santiago', 'Africa/Cairo', 'Asia/Beirut', 'America/Nuuk', 'Antarctica/Troll', 'Europe/London', 'America/Los_Angeles', 'Pacific/Apia',
         'Asia/Tokyo', 'America/Asuncion', 'Africa/El_Aaiun', 'Europe/Chisinau', 'America/Anchorage', 'Pacific/Kiritimati']


def random_field(r, low, high, names=()):
    def number():
        return r.choice(names) if names and r.random() < 0.3 else str(r.randint(low, high))
    kind = r.random()
    if kind < 0.35:
        return '*'
    if kind < 0.5:
        return f'*/{r.randint(1, max(2, (high - low) // 2))}'
    items = []
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        if r.random() < 0.4:
            a, b = sorted((r.randint(low, high), r.randint(low, high)))
            items.append(f'{a}-{b}' + (f'/{min(r.randint(1, 9), high - low + (high != 7))}' if r.random() < 0.4 else ''))
        else:
            items.append(number())
    return ','.join(items)


def random_cron(r):
    fields = [random_field(r, 0, 59), random_field(r, 0, 23), random_field(r, 1, 28), random_field(r, 1, 12, ('jan', 'jun', 'oct')),
              random_field(r, 0, 7, ('mon', 'fri', 'sun'))]
    if r.random() < 0.3:
        fields[1] = r.choice(('0', '1', '2', '3', '2,3', '1-4', '0-3', '*'))  # where clocks change
    if r.random() < 0.2:
        fields[2] = r.choice(('L', '31', '29-31', '1,L', 'L-3', 'LW', '15W', '1W', '31W', '1W,L-2W', 'L-30', '5/7'))
        fields[3] = '*'
    if r.random() < 0.15:
        fields[4] = r.choice(('5L', 'fril', '2#1', 'sun#5', '0#2,3', 'satL,1#1'))
    if r.random() < 0.1:
        fields[:2] = r.choice(('0/15', '7/20')), r.choice(('*', '0/2', '9-17'))
    if r.random() < 0.3:
        fields.insert(0, random_field(r, 0, 59))
        if r.random() < 0.5:
            fields.append(r.choice(('*', '2000-2100', '*/2', '2001/3', '1999,2013,2028-2090')))
    return ' '.join(fields)


class RecurCron(SharedTest):
    def ask(self, cases, n, dialect=None):
        """[(cron, zone, from)] → lists of instants, in one statement."""
        rows = ','.join(f"({i}, '{c}', '{z}', '{f.isoformat()}'::timestamptz)" for i, (c, z, f) in enumerate(cases))
        out = [[] for _ in cases]
        said = f", dialect => '{dialect}'" if dialect else ''
        for i, at in self.p.psql(f'select i, extract(epoch from at)::bigint from (values {rows}) v(i, c, z, f), '
                                 f'lateral postdate.recur_preview(c, z, {n}, f{said}) p order by 1, 2'):
            out[int(i)].append(dt.datetime.fromtimestamp(int(at), UTC))
        return out

    def compare(self, cases, n, dialect=None):
        for (cron, zone, start), got in zip(cases, self.ask(cases, n, dialect)):
            wanted = Cron(cron, dialect)
            over = len(got) < n and wanted.fields[6] != '*'  # its last year has passed
            until = dt.date(2200, 1, 2) if over else (got[-1] if got else start).date() + dt.timedelta(days=3)
            expected = wanted.after(start, zoneinfo.ZoneInfo(zone), n if over else len(got), until)
            self.assertEqual([str(x) for x in got], [str(x) for x in expected], f'{cron} in {zone} after {start}')
            self.assertEqual(len(got), n if not over else len(expected), f'{cron} in {zone}')

    def test_as_spring_and_quartz_write_it(self):
        start = dt.datetime(2026, 1, 1, tzinfo=UTC)
        for dialect, expressions in ((None, ('0 0 */2 * * ?', '0 0/5 14,18 * * ?', '0 15 10 L-2 * ?', '0 0 9 LW * ?', '0 0 9 15W * ?', '0 0 9 1W,31W * ?',
                                             '0 0 9 L-3W * ?', '0 0 9 ? * MON#2', '0 0 9 ? * FRIL', '0 0 9 ? * MON-FRI', '0 0 12 ? * 0', '0 0 9 ? * ?',
                                             '0 0 0 1 1 ? 2027/2', '0 0 0 29 2 ? 2027-2199', '0 0 12 L 2 ? *')),
                                     ('cron', ('0 0 9 ? * 2', '0 0 9 ? * 2-6', '0 0 9 ? * 5L', '0 0 9 ? * 1#2,3', '0 0 9 ? * 5-7/2')),
                                     ('quartz', ('0 0 9 ? * 2', '0 0 9 ? * 2-6', '0 0 9 ? * 6L', '0 0 9 ? * 2#2,3', '0 0 9 ? * L', '0 0 9 ? * 1,7',
                                                 '0 0 9 ? * 2/2', '0 0 9 ? * SUN,3', '0 0 9 15 * ?', '@weekly'))):
            self.compare([(e, 'Europe/Berlin', start) for e in expressions], 20, dialect)
        self.assertEqual([f'{x:%Y-%m-%d}' for x in self.ask([('0 0 9 ? * 2', 'UTC', start)], 2, 'quartz')[0]], ['2026-01-05', '2026-01-12'])  # Mondays
        self.assertEqual([f'{x:%Y-%m-%d}' for x in self.ask([('0 0 9 ? * 2', 'UTC', start)], 2, 'cron')[0]], ['2026-01-06', '2026-01-13'])  # Tuesdays

    def test_years(self):
        start = dt.datetime(2026, 6, 1, tzinfo=UTC)
        self.assertEqual([x.year for x in self.ask([('0 0 0 1 1 ? 2020,2027-2029', 'UTC', start)], 9)[0]], [2027, 2028, 2029])  # and then it is over
        self.assertEqual(self.ask([('0 0 0 1 1 ? 2020', 'UTC', start)], 9), [[]])
        self.assertEqual([str(x) for x in self.ask([('0 0 0 1 1 ? 2027', 'Pacific/Auckland', start)], 9)[0]], ['2026-12-31 11:00:00+00:00'])
        self.assertEqual([str(x) for x in self.ask([('0 0 0 29 2 ? 2197-2199,2000', 'America/New_York', dt.datetime(1970, 1, 1, tzinfo=UTC))], 9)[0]],
                         ['2000-02-29 05:00:00+00:00'])
        state, text = psql_error(self.p.postgres, "select postdate.recur_set('past', '0 0 0 1 1 ? 2020', 'k', 'x'::text)")
        self.assertEqual(state, '22023', text)
        self.assertIn('would never run', text)
        self.assertIn('Name a later year', text)

    def test_question_marks_and_numbers(self):
        """Such an expression comes from Spring or from Quartz, and they do not mean the same."""
        for weekdays, cron, quartz in (('2', 'TUE', 'MON'), ('2-6', 'TUE-SAT', 'MON-FRI'), ('6L', 'SATL', 'FRIL'), ('MON,6#3', 'MON,SAT#3', 'MON,FRI#3'), ('1-5/2', 'MON-FRI/2', 'SUN-THU/2')):
            state, text = psql_error(self.p.postgres, f"select postdate.recur_next('0 0 9 ? * {weekdays}', 'UTC', now())")
            self.assertEqual(state, '22023', text)
            for word in (f'read {cron};', f'reads {quartz}.', '--dialect quartz', 'field 6, at column 11'):
                self.assertIn(word, text, weekdays)
        state, text = psql_error(self.p.postgres, "select postdate.recur_set('q', '0 9 ? * 2', 'k', 'x'::text)")
        self.assertEqual(state, '22023', text)
        self.assertIn('field 5, at column 9', text)
        for dialect, word in (('spring', 'Allowed are cron'), ('Quartz', '"Quartz"'), ('', '""')):
            state, text = psql_error(self.p.postgres, f"select postdate.recur_next('0 0 9 ? * 2', 'UTC', now(), '{dialect}')")
            self.assertEqual(state, '22023', text)
            self.assertIn(word, text, dialect)
        state, text = psql_error(self.p.postgres, "select postdate.recur_next('0 0 9 13 * fri', 'UTC', now(), 'quartz')")
        self.assertIn('both given', text)

    def test_random_expressions(self):
        r = random.Random(18)
        cases = []
        for i in range(120):
            zone = ZONES[i % len(ZONES)]
            # near a change of the clock, half of the time
            start = dt.datetime(r.randint(2010, 2030), 1, 1, tzinfo=UTC) + dt.timedelta(seconds=r.randint(0, 365 * 86400))
            if r.random() < 0.5:
                tz = zoneinfo.ZoneInfo(zone)
                for _ in range(366):
                    if (start + dt.timedelta(days=1)).astimezone(tz).utcoffset() != start.astimezone(tz).utcoffset():
                        break
                    start += dt.timedelta(days=1)
                start -= dt.timedelta(hours=r.randint(0, 5))
            cases.append((random_cron(r), zone, start))
        self.compare(cases, 25)

    def test_where_clocks_change(self):
        def at(text):
            return dt.datetime.fromisoformat(text).replace(tzinfo=UTC)
        table = [
            # zone, from (UTC), expression, the next ones (UTC)
            ('Europe/Berlin', '2026-03-28 12:00', '30 2 * * *', ['2026-03-29 01:00', '2026-03-30 00:30']),       # the gap: right after it
            ('Europe/Berlin', '2026-03-28 12:00', '0,30 2,3 * * *', ['2026-03-29 01:00', '2026-03-29 01:30']),   # once, however many
            ('Europe/Berlin', '2026-03-29 00:00', '*/30 * * * *', ['2026-03-29 00:30', '2026-03-29 01:00', '2026-03-29 01:30']),
            ('Europe/Berlin', '2026-03-28 12:00', '*/30 2 * * *', ['2026-03-30 00:00']),                         # wildcards: none in the gap
            ('Europe/Berlin', '2026-10-24 12:00', '30 2 * * *', ['2026-10-25 00:30', '2026-10-26 01:30']),       # repeated: the first
            ('Europe/Berlin', '2026-10-25 00:00', '*/30 2 * * *', ['2026-10-25 00:30', '2026-10-25 01:00', '2026-10-25 01:30', '2026-10-26 01:00']),
            ('Europe/Berlin', '2026-10-24 23:30', '0 * * * *', ['2026-10-25 00:00', '2026-10-25 01:00', '2026-10-25 02:00']),
            ('Europe/Berlin', '2026-10-25 00:50', '15 2 25 10 *', ['2027-10-25 00:15']),                         # asked in the first pass …
            ('Europe/Berlin', '2026-10-25 01:05', '15 2 25 10 *', ['2027-10-25 00:15']),                         # … and in the second
            ('Europe/Berlin', '2026-10-25 00:55', '*/10 2 25 10 *', ['2026-10-25 01:00', '2026-10-25 01:10']),
            ('Australia/Lord_Howe', '2026-10-03 12:00', '15 2 * * *', ['2026-10-03 15:30', '2026-10-04 15:15']), # half an hour forward at 2:00
            ('Australia/Lord_Howe', '2026-04-04 12:00', '45 1 * * *', ['2026-04-04 14:45', '2026-04-05 15:15']), # half an hour back at 2:00
            ('Australia/Lord_Howe', '2026-04-04 14:30', '*/15 * * * *', ['2026-04-04 14:45', '2026-04-04 15:00', '2026-04-04 15:15', '2026-04-04 15:30']),
            ('America/Sao_Paulo', '2017-10-14 12:00', '0 0 * * *', ['2017-10-15 03:00', '2017-10-16 02:00']),    # midnight is not there
            # where others differ: a wildcard has nothing in a gap, and what follows the gap is not part of it
            ('America/Sao_Paulo', '2017-10-14 12:00', '*/30 0 * * *', ['2017-10-16 02:00', '2017-10-16 02:30', '2017-10-17 02:00']),
            ('Asia/Beirut', '2016-03-26 12:00', '*/30 1 27 3 *', ['2016-03-26 22:00', '2016-03-26 22:30', '2017-03-26 22:00']),
            ('Australia/Lord_Howe', '2016-04-02 12:00', '*/20 2 * * *', ['2016-04-02 15:30', '2016-04-02 15:50', '2016-04-02 16:10']),
            ('America/Sao_Paulo', '2018-02-17 12:00', '30 23 * * *', ['2018-02-18 01:30', '2018-02-19 02:30']),  # the hour before midnight, twice
            # summer time was abolished in 2019: the clock went back for the last time, and not forward any more
            ('America/Sao_Paulo', '2018-11-03 12:00', '0 0 * * *', ['2018-11-04 03:00', '2018-11-05 02:00']),
            ('America/Sao_Paulo', '2019-02-16 12:00', '30 23 * * *', ['2019-02-17 01:30', '2019-02-18 02:30']),
            ('America/Sao_Paulo', '2019-02-17 01:10', '*/20 23 * * *', ['2019-02-17 01:20', '2019-02-17 01:40', '2019-02-17 02:00', '2019-02-17 02:20']),
            ('America/Sao_Paulo', '2019-11-02 12:00', '0 0 * * *', ['2019-11-03 03:00', '2019-11-04 03:00']),
            ('America/New_York', '2026-03-07 12:00', '30 2 * * *', ['2026-03-08 07:00', '2026-03-09 06:30']),
            ('America/New_York', '2026-10-31 12:00', '30 1 * * *', ['2026-11-01 05:30', '2026-11-02 06:30']),
            ('America/New_York', '2026-11-01 05:00', '30 * * * *', ['2026-11-01 05:30', '2026-11-01 06:30', '2026-11-01 07:30']),
            ('Africa/Casablanca', '2026-02-14 12:00', '30 2 * * *', ['2026-02-15 01:30', '2026-02-16 02:30']),   # back for Ramadan
            ('Africa/Casablanca', '2026-03-21 12:00', '30 2 * * *', ['2026-03-22 02:00', '2026-03-23 01:30']),   # and forward again
            # midnight is left out, as a fixed time or one of every two hours: what goes on is the clock, not the count
            ('Africa/Cairo', '2026-04-23 18:00', '0 0 */2 * * ?', ['2026-04-23 20:00', '2026-04-23 23:00', '2026-04-24 01:00']),
            ('Africa/Cairo', '2026-04-23 18:00', '0 0 0/2 * * ?', ['2026-04-23 20:00', '2026-04-23 23:00', '2026-04-24 01:00']),
            ('Africa/Cairo', '2026-04-23 18:00', '0 0 0,2 * * ?', ['2026-04-23 22:00', '2026-04-23 23:00', '2026-04-24 21:00']),
            ('Africa/Cairo', '2026-10-29 18:00', '0 0 */2 * * ?', ['2026-10-29 19:00', '2026-10-29 22:00', '2026-10-30 00:00']),
            ('Africa/Cairo', '2026-10-29 18:00', '0 0 23/1 * * ?', ['2026-10-29 20:00', '2026-10-29 21:00', '2026-10-30 21:00']),
            ('Pacific/Apia', '2011-12-29 12:00', '30 9 * * *', ['2011-12-29 19:30', '2011-12-30 19:30']),        # 30 December was not: no run for it
        ]
        for zone, start, cron, expected in table:
            got = self.ask([(cron, zone, at(start))], len(expected))[0]
            self.assertEqual([f'{x:%Y-%m-%d %H:%M}' for x in got], expected, f'{cron} in {zone} after {start}')
        self.compare([(cron, zone, at(start)) for zone, start, cron, _ in table], 5)

    def test_preview_marks_the_days(self):
        rows = self.p.psql("select local, mark from postdate.recur_preview('30 2 * * *', 'Europe/Berlin', 3, '2026-03-28')")
        self.assertEqual(rows, [['2026-03-28T02:30:00+01:00', ''], ['2026-03-29T03:00:00+02:00', 'clock goes forward to 03:00 at 02:00'], ['2026-03-30T02:30:00+02:00', '']])
        self.assertEqual(self.p.psql("select mark from postdate.recur_preview('30 2 * * *', 'Europe/Berlin', 2, '2026-10-24')"), [[''], ['clock goes back to 02:00 at 03:00']])
        skipped = self.p.value("select at from postdate.recur_preview('30 2 * * *', 'Europe/Berlin', 1, '2026-03-28 12:00Z', 'skip')")
        self.assertEqual(skipped, '2026-03-30 00:30:00+00')

    def test_marks_at_midnight(self):
        """A change at midnight is one of the day that the clock says afterwards, and of no other."""
        starts = [('America/Sao_Paulo', '2018-11-01'), ('America/Havana', '2024-03-07'), ('America/Havana', '2024-10-31'), ('Africa/Cairo', '2026-04-22'),
                  ('Africa/Cairo', '2026-10-28'), ('Asia/Beirut', '2026-03-27'), ('Pacific/Apia', '2011-12-28'), ('Australia/Lord_Howe', '2026-04-03'),
                  ('Europe/Berlin', '2026-03-27'), ('Europe/Berlin', '2026-10-23'), ('America/Nuuk', '2026-03-27'), ('America/Nuuk', '2026-10-23')]
        for zone, start in starts:
            z, day = zoneinfo.ZoneInfo(zone), dt.datetime.fromisoformat(start).replace(tzinfo=UTC)
            minutes = [day + dt.timedelta(minutes=15 * i) for i in range(-96, 96 * 6)]
            offsets = [m.astimezone(z).utcoffset() for m in minutes]
            changed = {m.astimezone(z).date().isoformat() for m, a, b in zip(minutes[1:], offsets, offsets[1:]) if a != b}
            self.assertEqual(len(changed), 1, zone)
            for cron in ('*/20 * * * *', '0 0 * * *', '59 23 * * *'):
                rows = self.p.psql(f"select local, mark from postdate.recur_preview('{cron}', '{zone}', {72 * 5 if cron[0] == '*' else 5}, '{start}Z')")
                marked = {local[:10] for local, mark in rows if mark}
                self.assertEqual(marked, changed, f'{cron} in {zone}')
                self.assertEqual([local for local, mark in rows if local[:10] in changed and not mark], [], f'{cron} in {zone}: all of that day')

    def test_what_is_no_time(self):
        preview, set_ = "select * from postdate.recur_preview('0 9 * * *', 'Europe/Berlin', 2, '{}')", "select postdate.recur_set('a', '@every 1h', 'k', 'x'::text, {} => '{}')"
        for at in ('infinity', '-infinity', '1969-12-31 23:59:59Z', '0001-01-01Z', '4000-01-01 BC', '10000-01-01Z', '294276-12-31Z'):
            for statement in (preview.format(at), set_.format('from_at', at), set_.format('until_at', at)):
                state, text = psql_error(self.p.postgres, statement)
                self.assertEqual(state, '22023', (statement, text))
                self.assertIn('1970 to 9999', text, statement)
        self.assertEqual(len(self.p.psql(preview.format('1970-01-01Z'))), 2)
        self.assertEqual(len(self.p.psql(preview.format('9999-12-31 23:59:59.999Z'))), 2)
        state, text = psql_error(self.p.postgres, "select * from postdate.recur_preview('0 9 * * *', 'UTC', 2, null, 'maybe')")
        self.assertEqual(state, '22023', text)
        self.assertIn('run, skip', text)

    def test_wrong_expressions(self):
        for cron, *words in (
                ('0 25 * * *', 'hour "25"', 'field 2', 'column 3', '0 to 23', '"23"'),
                ('61 * * * *', 'minute "61"', 'field 1', 'column 1', '"59"'),
                ('0 0 30 2 *', 'never', '"L"'),
                ('0 0 31 4,6,9,11 *', 'never'),
                ('0 0 * * monday', 'day of week "monday"', 'field 5', '"mon"'),
                ('0 0 * january *', 'month "january"', '"jan"'),
                ('0 0 * * Monday-FRIDAY', 'day of week "monday-friday"', '"mon-fri"'),
                ('0 0 1 JANUARY/2 *', 'month "january/2"', '"jan/2"'),
                ('every 5 minutes', '3 fields', '"@every 5m"'),
                ('Every Hour', '2 fields', '"@every 1h"'),
                ('at nine daily', '3 fields'),
                ('0 0 * * 5/2', 'no step', '"5-7/2"'),
                ('5/x * * * *', 'no step', '5/5'),
                ('*/0 * * * *', 'step of 0'),
                ('*/90 * * * *', 'step larger than the field', 'up to 60', '"@every 90m"'),
                ('5/61 * * * *', 'step larger than the field', '"@every 61m"'),
                ('0 0-20/36 * * *', 'step larger than the field', 'up to 24', '"@every 36h"'),
                ('*/90 * * * * *', 'second "*/90"', '"@every 90s"'),
                ('0 0 */45 * *', '"@every 45d"'),
                ('0 0 * * */14', 'up to 7', '"@every 14d"'),
                ('0 0 1 */18 *', 'up to 12'),
                ('0 22-4 * * *', 'begins behind its end', '"22-23,0-4"'),
                ('0 0 * * fri-sun', 'begins behind its end', '"5-7"'),
                ('0 0 * * 7-1', 'begins behind its end', '"0-1"'),
                ('? 0 * * mon', 'minute "?"', 'any day', '"*"'),
                ('0 0 1,? * *', 'stands alone'),
                ('0 10 ? * MON-FRI *', 'EventBridge', '"0 0 10 ? * MON-FRI *"'),
                ('0 0 L-31 * *', 'in no month', 'L-30'),
                ('0 0 L-0 * *', '"L"'),
                ('0 0 32W * *', 'in no month', '"LW"'),
                ('0 0 1-15W * *', 'day of month "1-15w" is not understood', '15W'),
                ('0 0 30W 2 *', 'never'),
                ('0 0 * * L', '"L" names no day', 'FRIL'),
                ('0 0 0 29 2 ? 2027', 'never', 'of year "2027"'),
                ('0 0 0 1 1 ? 26', 'year "26"', '"2026"'),
                ('0 0 0 1 1 ? 2200', 'out of range', '1970 to 2199'),
                ('0 0 * * 5#6', 'no month', '"5L"'),
                ('1,,2 * * * *', 'empty place', '"1,2"'),
                ('0 0 * *', '4 fields', '"0 0 * * *"'),
                ('0 0 0 * * * * *', '8 fields'),
                ('', 'empty'),
                ('@every 90', '"@every 90s"'),
                ('@every 500ms', '"@every 1s"'),
                ('@day', '"@daily"'),
                ('@reboot', 'not supported', 'when the machine starts', '@hourly'),
                ('@often', 'is not known', 'stands for five fields', '@hourly'),
                ('@daily 5', 'takes nothing behind it', '"@daily"'),
                ('0 0 0 0 0 x', 'day of month "0"', 'field 4', 'column 7')):
            state, text = psql_error(self.p.postgres, f"select postdate.recur_next('{cron}', 'UTC', now())")
            self.assertEqual(state, '22023', text)
            for word in words:
                self.assertIn(word, text, cron)
        for zone, word in (('Europe/Berlni', '"Europe/Berlin"'), ('berlin', '"Europe/Berlin"'), ('CET', 'Write a name of pg_timezone_names'), ('FOO5', 'not known'), ('New York', '"America/New_York"')):
            state, text = psql_error(self.p.postgres, f"select postdate.recur_next('@daily', '{zone}', now())")
            self.assertEqual(state, '22023', text)
            self.assertIn(word, text, zone)
