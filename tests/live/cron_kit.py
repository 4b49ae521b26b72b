"""Cron expressions as crontab(5) has them: a plain implementation, which asks each day and second. It imports nothing of Postdate's."""
import datetime as dt
import re

UTC = dt.timezone.utc
NAMES = {'jan': 1, 'feb': 2, 'mar': 3, 'apr': 4, 'may': 5, 'jun': 6, 'jul': 7, 'aug': 8, 'sep': 9, 'oct': 10, 'nov': 11, 'dec': 12,
         'sun': 0, 'mon': 1, 'tue': 2, 'wed': 3, 'thu': 4, 'fri': 5, 'sat': 6}
RANGES = [(0, 59), (0, 59), (0, 23), (1, 31), (1, 12), (0, 7), (1970, 2199)]
MACROS = {'@hourly': '0 * * * *', '@daily': '0 0 * * *', '@midnight': '0 0 * * *', '@weekly': '0 0 * * 0', '@monthly': '0 0 1 * *',
          '@yearly': '0 0 1 1 *', '@annually': '0 0 1 1 *'}


def value(text):
    return NAMES[text] if text in NAMES else int(text)


def numbers(text, low, high):
    """The plain part of a field: what is left of L, W and # is somebody else's."""
    out = set()
    for item in text.split(','):
        if re.fullmatch(r'l|\w+l|\w+#\d|l-\d+w?|\w+w', item):
            continue
        span, _, step = item.partition('/')
        first, last = (low, high) if span in '*?' else (value(span.split('-')[0]), value(span.split('-')[-1]))
        if step and span not in '*?' and '-' not in span:
            last = high
        out |= set(range(first, last + 1, int(step or 1)))
    return out


def month_ends(year, month):
    following = dt.date(year + month // 12, month % 12 + 1, 1)
    return (following - dt.timedelta(days=1)).day


def days_named(text, year, month):
    """The days that l, l-3, 15w, lw and l-3w are in this month: of the weekdays (Monday to Friday) in it, the nearest."""
    out = set()
    end = month_ends(year, month)
    for item in text.split(','):
        if not re.fullmatch(r'lw?|l-\d+w?|\d+w', item):
            continue
        number = int(re.search(r'\d+', item)[0]) if re.search(r'\d', item) else 0
        goal = end - number if item[0] == 'l' else number
        if 1 <= goal <= end and item[-1] == 'w':
            out.add(min((d for d in range(1, end + 1) if dt.date(year, month, d).isoweekday() < 6), key=lambda d: abs(d - goal)))
        elif 1 <= goal <= end:
            out.add(goal)
    return out


def quartz_to_cron(text):
    """A field of weekdays in Quartz's numbers, in cron's."""
    items = [re.sub(r'^(\w+)/', r'\1-7/', item) if item != 'l' else '7' for item in text.split(',')]
    return ','.join(re.sub(r'(^|-)([1-7])', lambda m: m[1] + str(int(m[2]) - 1), item, count=2) for item in items)


class Cron:
    def __init__(self, text, dialect=None):
        fields = MACROS.get(text, text).lower().split()
        fields = (['0'] if len(fields) == 5 else []) + fields
        fields += ['*'] * (7 - len(fields))
        if dialect == 'quartz' and text[0] != '@':
            fields[5] = quartz_to_cron(fields[5])
        self.fields = fields
        self.second, self.minute, self.hour, self.dom, self.month, self.dow, self.year = (numbers(f, *r) for f, r in zip(fields, RANGES))
        self.dow = {d % 7 for d in self.dow}
        self.times = [h * 3600 + m * 60 + s for h in sorted(self.hour) for m in sorted(self.minute) for s in sorted(self.second)]
        self.wild = any(re.match(r'[*]|\d+/', f) for f in fields[1:3])
        self.either = fields[3][0] not in '*?' and fields[5][0] not in '*?'

    def day(self, d):
        if d.month not in self.month or d.year not in self.year:
            return False
        weekday = d.isoweekday() % 7
        dated = d.day in self.dom or d.day in days_named(self.fields[3], d.year, d.month)
        named = weekday in self.dow
        for item in self.fields[5].split(','):
            if '#' in item:
                named |= value(item.split('#')[0]) % 7 == weekday and (d.day + 6) // 7 == int(item.split('#')[1])
            elif item.endswith('l'):
                named |= value(item[:-1]) % 7 == weekday and (d + dt.timedelta(days=7)).month != d.month
        return (dated or named) if self.either else (dated and named)

    def instants(self, d, zone):
        """All the instants of a day: each local time by converting there and back."""
        out = set()
        midnight = dt.datetime.combine(d, dt.time())
        for t in self.times:
            local = midnight + dt.timedelta(seconds=t)
            passes = [local.replace(tzinfo=zone, fold=f).astimezone(UTC) for f in (0, 1)]
            real = sorted({i for i in passes if i.astimezone(zone).replace(tzinfo=None) == local})
            if real:
                out |= set(real if self.wild else real[:1])
            elif not self.wild:  # in a gap: right after it, unless the clock was set, as crontab(5) has it from three hours on
                before, after = max(passes), min(passes)
                if before - after < dt.timedelta(hours=3):
                    low, high = int(after.timestamp()), int(before.timestamp())
                    offset = dt.datetime.fromtimestamp(high, zone).utcoffset()
                    while high - low > 1:
                        mid = (low + high) // 2
                        if dt.datetime.fromtimestamp(mid, zone).utcoffset() == offset:
                            high = mid
                        else:
                            low = mid
                    out.add(dt.datetime.fromtimestamp(high, UTC))
        return out

    def after(self, start, zone, count, until):
        out = set()
        d = start.astimezone(zone).date() - dt.timedelta(days=1)
        while d <= until:
            if self.day(d):
                out |= {i for i in self.instants(d, zone) if i > start}
                done = dt.datetime.combine(d - dt.timedelta(days=1), dt.time(), UTC)  # no later day has anything before that
                if sum(i < done for i in out) >= count:
                    break
            d += dt.timedelta(days=1)
        return sorted(out)[:count]
