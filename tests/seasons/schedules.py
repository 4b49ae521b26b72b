"""The schedules of a run of seasons: those that recur, what came of them, and what should have, by an implementation of its own
(tests/live/cron_kit.py, written from crontab(5))."""
import datetime as dt
import os
import subprocess
import sys
import threading
import zoneinfo

import pika

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'live'))
from cron_kit import Cron  # noqa: E402

UTC = dt.timezone.utc
QUEUE, KEY = 'seasons.recur', 'seasons.recur.'
MISSED_MOST = 100  # as docs/recurring.md says: of `all`, and of the header

# name: (expression, zone, what is missed). Six are at a time that summer time leaves out once a year.
SCHEDULES = {
    'minute': ('* * * * *', 'UTC', 'one'),
    'half-hour': ('*/30 * * * *', 'Europe/Berlin', 'all'),
    'two-hours': ('0 */2 * * *', 'UTC', 'none'),
    'three-hours': ('0 */3 * * *', 'Asia/Kolkata', 'one'),
    'gap-berlin': ('30 2 * * *', 'Europe/Berlin', 'all'),
    'gap-london': ('30 1 * * *', 'Europe/London', 'all'),
    'gap-new-york': ('30 2 * * *', 'America/New_York', 'all'),
    'gap-sydney': ('30 2 * * *', 'Australia/Sydney', 'all'),
    'gap-auckland': ('30 2 * * *', 'Pacific/Auckland', 'one'),
    'gap-santiago': ('30 0 * * *', 'America/Santiago', 'all'),
    'weekly': ('15 12 * * mon', 'Asia/Tokyo', 'all'),
    'monthly': ('30 3 1 * *', 'America/New_York', 'all'),
    'month-end': ('45 23 L * *', 'Europe/London', 'all'),
    'thirty-first': ('0 12 31 * *', 'UTC', 'one'),
    'leap-day': ('0 9 29 2 *', 'Europe/Berlin', 'all'),
    'yearly': ('@yearly', 'Pacific/Auckland', 'all'),
}


def times(name, from_s, to_s):
    """Nominal times in ms, from_s < t <= to_s (seconds since 1970)."""
    expression, zone_name, _ = SCHEDULES[name]
    cron, zone = Cron(expression), zoneinfo.ZoneInfo(zone_name)
    low, high = (dt.datetime.fromtimestamp(s, UTC) for s in (from_s, to_s))
    found, day = set(), low.astimezone(zone).date() - dt.timedelta(days=1)
    while day <= high.astimezone(zone).date() + dt.timedelta(days=1):
        if cron.day(day):
            found |= {i for i in cron.instants(day, zone) if low < i <= high}
        day += dt.timedelta(days=1)
    return sorted(round(i.timestamp() * 1000) for i in found)


class Consumer(threading.Thread):
    """Writes down what comes; acknowledges it after that. clock(): seconds since 1970, of those whose messages these are."""

    def __init__(self, url, clock):
        super().__init__(daemon=True)
        self.url, self.clock = url, clock
        self.came = []  # (name, nominal ms, how many are said to be left out, seconds since 1970)
        self.ending, self.error = threading.Event(), None

    def run(self):
        try:
            self.consume()
        except Exception as e:  # noqa: BLE001  said at the end
            self.error = repr(e)

    def consume(self):
        connection = pika.BlockingConnection(pika.URLParameters(self.url + '?heartbeat=0'))
        channel = connection.channel()
        channel.queue_declare(QUEUE, durable=True, arguments={'x-queue-type': 'quorum'})
        channel.queue_bind(QUEUE, 'postdate.delivery', KEY + '#')
        channel.basic_qos(prefetch_count=500)
        for method, properties, _ in channel.consume(QUEUE, inactivity_timeout=0.5):
            if method is not None:
                h = properties.headers
                self.came.append((h['x-postdate-recur'], h['x-postdate-nominal'], h.get('x-postdate-missed', 0), self.clock()))
                channel.basic_ack(method.delivery_tag)
            elif self.ending.is_set():
                break
        connection.close()

    def end(self):
        self.ending.set()
        self.join(60)


def set_all(program, env):
    for name, (expression, zone, missed) in SCHEDULES.items():
        subprocess.run([program, 'recur', 'set', name, '--cron', expression, '--zone', zone, '-k', KEY + name, '--body', name,
                        '--missed', missed], env=env, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def judge(came, from_s, to_s):
    """(problems, {name: (times, delivered, left out)}). Each time is delivered once, or counted by the next one that is
    delivered, as far as that counts."""
    problems, counts = [], {}
    for name, nominal, _, at_s in came:
        if nominal / 1000 > at_s:
            problems.append(f'{name}: the one of {nominal} came {nominal / 1000 - at_s:.3f} s early')
    for name, (_, _, missed) in SCHEDULES.items():
        wanted = times(name, from_s, to_s)
        place = {t: i for i, t in enumerate(wanted)}
        mine = sorted((nominal, left_out) for n, nominal, left_out, _ in came if n == name and nominal <= to_s * 1000)
        last, all_left_out = -1, 0
        for nominal, left_out in mine:
            if nominal not in place:
                problems.append(f'{name}: {nominal} is no time of it')
                continue
            at, gap = place[nominal], place[nominal] - last - 1
            if at == last:
                problems.append(f'{name}: {nominal} came twice')
            elif left_out != min(gap, MISSED_MOST):
                problems.append(f'{name}: before {nominal} {gap} were left out, and it says {left_out}')
            elif gap and missed == 'all':
                problems.append(f'{name}: {gap} were left out before {nominal}')
            last, all_left_out = at, all_left_out + max(gap, 0)
        behind = len(wanted) - 1 - last
        if behind and missed != 'none':
            problems.append(f'{name}: the last {behind} of {len(wanted)} never came')
        counts[name] = len(wanted), len(mine), all_left_out + behind
    return problems, counts
