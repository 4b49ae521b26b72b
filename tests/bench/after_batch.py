"""After a batch: a million messages due over three months are stored, and at once others are due. What the gateway has to do
about the batch (count it for the forecast, hand over what is due in the window) must not be felt by them. RabbitMQ alone is measured at the same time: the disk is both's.
"""
import json
import os
import random
import re
import tempfile
import threading
import time

import steady
from harness import run_psql
from kit import Lane
from cost_kit import superuser

SHAPE = 'steady: right after a batch'
DAYS, RATE, SLOW_MS = 90, 1000, 50


def write_lines(path, count):
    begin, span = time.time() + 86400, DAYS * 86400
    with open(path, 'w', encoding='ascii') as f:
        for _ in range(count):
            due = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(begin + random.random() * span))
            f.write(json.dumps({'exchange': f'shop{random.randrange(5)}', 'routing_key': 'later', 'due_at': due, 'body': 'x' * 256}) + '\n')


class SlowStatements:
    """What PostgreSQL writes into its log about statements in this database that took longer than SLOW_MS."""

    def __init__(self, bench, place):
        run_psql(superuser(place), f'alter database "{place.database}" set log_min_duration_statement = {SLOW_MS}')
        self.path = os.path.join(bench.stack.directory, 'postgres.log')
        self.begin = os.path.getsize(self.path)

    def of(self, word):
        """(ms, text), the slowest first, of those with this word."""
        with open(self.path, encoding='utf-8', errors='replace') as f:
            f.seek(self.begin)
            found = re.findall(r'duration: ([0-9.]+) ms +(.*)', f.read())
        return sorted(((float(ms), text) for ms, text in found if word in text), reverse=True)


def measure(bench):
    count, seconds = bench.sizes.million, bench.sizes.steady_s * 2
    row = bench.report.row(SHAPE, f'timer, {RATE:,}/s, {count:,} stored by --batch just before, due over {DAYS} days',
                           transport='timer', rate=RATE, stored=count)
    raw = bench.report.row(SHAPE, f'raw broker, {RATE:,}/s, at the same time', transport='raw again', rate=RATE, stored=0)
    row.aim('p99_ms', '≤', 25)
    place = bench.place('timer', max_delay='120d')
    slow = SlowStatements(bench, place)
    with row.trying(bench.say), Lane(bench, 'timer', place, POSTDATE_DELIVERY_MAX_DELAY='120d') as lane, \
            tempfile.TemporaryDirectory(prefix='postdate-bench-') as folder:
        path = os.path.join(folder, 'later')
        write_lines(path, count)
        os.sync()  # or the disk writes this file meanwhile
        rc, _, err = lane.place.cli('schedule', '--batch', path, timeout=600)
        if rc != 0:
            raise AssertionError(err)
        bench.say(f'after-batch: {count:,} stored')
        beside = threading.Timer(lane.ahead_s(RATE * seconds), steady.measure_raw, (bench, (RATE,), seconds, lambda rate: raw))
        beside.start()
        steady.measure_lane(bench, lane, (RATE,), seconds, lambda rate: row)
        beside.join()
        counting = slow.of('forecast')
        row.note(f'{len(counting)} statements of the forecast took longer than {SLOW_MS} ms' + (f', the slowest {counting[0][0]:.0f}' if counting else ''))
        for ms, text in slow.of('')[:5]:
            bench.say(f'after-batch: {ms:.0f} ms: {text[:100]}')
    bench.close(place)
