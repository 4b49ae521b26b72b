#!/usr/bin/python3
"""One cell's workload: schedules, cancels and moves messages in every way, and writes down each attempt before it is sent
and each answer after it came.

    workload.py CELL.json       {"name", "dir", "amqp_url", "postgres_url", "http": ["host:port", ...], "seed", "rate"}

name: of the cell, in refs and file names; dir: of the ledger; http: one address per gateway; rate: messages a second, all ways
together. Optional: "intake", the exchange to publish to (default: postdate); "http_later", addresses that are asked for
messages that are there (default: http); "exchanges" and "routing_keys", lists to pick from (default: postdate.delivery; chaos.a to chaos.c);
"shares", {way: part of the rate}; "harm", a part of the rate: messages beside the others that are in no ledger (harm.py);
"spread_ms", up to which delays are (default: some seconds).

Commands are JSON lines on stdin:
    {"rate": n}  {"pause": true|false}  {"amqp": true|false} (that way only)
    {"flood": n, "due_ms": t, "way": "http"|"amqp"|"sql"}   n messages that are all due in the second that begins at t
    {"handed": n, "from_ms": t, "to_ms": t}                 n plain AMQP messages, due between
    {"stop": true}                                          what is in hand is finished; exit 0. So does the end of stdin
Floods are sent during a pause, too. A status as a JSON line every 250 ms goes to stdout.
"""
import json
import os
import select
import sys
import threading

import record
from harm import Harm
from later import Asker
from shared import OUTCOMES, Job, Shared
from way_amqp import AmqpWay
from way_http import HttpWay
from way_sql import SqlWay

STATUS_S = 0.25
STOP_S = 30.0
FLOOD_MAX = 5_000_000
SHARES = {'amqp': 0.4, 'http': 0.12, 'batch': 0.28, 'sql': 0.2}
NEEDED = ('name', 'dir', 'amqp_url', 'postgres_url', 'http', 'seed', 'rate')


def read_config(path):
    with open(path, encoding='utf-8') as f:
        config = json.load(f)
    missing = [name for name in NEEDED if name not in config]
    if missing:
        raise ValueError(f'{path}: {", ".join(missing)} missing')
    return config


def status(shared):
    with shared.lock:
        counts = {way: dict(c) for way, c in shared.counts.items()}
        left = shared.job_left
    later = counts.pop('later', {})
    total = {o: sum(c.get(o, 0) for c in counts.values()) for o in OUTCOMES}
    return {'t_us': record.now_us(), 'rate': shared.rate, 'paused': shared.paused, 'amqp': shared.amqp_on, 'jobs_left': left,
            'total': total, 'ways': counts, 'later': later, 'doing': dict(shared.doing)}


def obey(shared, command):
    """True: stop."""
    if 'rate' in command:
        shared.rate = float(command['rate'])
    if 'pause' in command:
        shared.paused = bool(command['pause'])
    if 'amqp' in command:
        shared.amqp_on = bool(command['amqp'])
    if 'flood' in command:
        due_ms = int(command['due_ms'])
        shared.add_job(Job(way_of(command.get('way', 'http')), count_of(command['flood']), due_ms, due_ms + 1000))
    if 'handed' in command:
        shared.add_job(Job('amqp', count_of(command['handed']), int(command['from_ms']), int(command['to_ms'])))
    return bool(command.get('stop'))


def way_of(way):
    if way not in ('http', 'amqp', 'sql'):
        raise ValueError(f'way: {way!r} is not http, amqp or sql')
    return way


def count_of(n):
    if not 0 < int(n) <= FLOOD_MAX:
        raise ValueError(f'{n} messages: allowed are 1 to {FLOOD_MAX}')
    return int(n)


class Commands:
    """The lines of stdin, as they come."""

    def __init__(self):
        self.rest = b''

    def read(self, wait_s):
        """Commands that have come within wait_s; None at the end of stdin."""
        if not select.select([0], [], [], wait_s)[0]:
            return []
        data = os.read(0, 65536)
        if not data:
            return None
        *lines, self.rest = (self.rest + data).split(b'\n')
        return [line for line in lines if line.strip()]


def follow_commands(shared):
    commands = Commands()
    while True:
        lines = commands.read(STATUS_S)
        if lines is None:
            return
        for line in lines:
            try:
                if obey(shared, json.loads(line)):
                    return
            except (ValueError, KeyError, TypeError) as e:
                print(f'workload: {line[:200]!r}: {e!r}', file=sys.stderr)


def report(shared, ended):
    while not ended.wait(STATUS_S):
        print(json.dumps(status(shared)), flush=True)


def main(arguments):
    if len(arguments) != 1:
        print(__doc__.strip(), file=sys.stderr)
        return 64
    shared = Shared(read_config(arguments[0]))
    shares = {**SHARES, **shared.config.get('shares', {})}
    threads = [AmqpWay(shared, shares['amqp']), HttpWay(shared, 'http', shares['http']),
               HttpWay(shared, 'batch', shares['batch']), SqlWay(shared, shares['sql']), Asker(shared, 'http'),
               Asker(shared, 'sql')]
    if 'harm' in shared.config:
        threads.append(Harm(shared, shared.config['harm']))
    ended = threading.Event()
    reporter = threading.Thread(target=report, args=(shared, ended), daemon=True)
    for t in (*threads, reporter):
        t.start()
    follow_commands(shared)
    shared.stopping.set()
    for t in threads:
        t.join(STOP_S)
    late = [t.name for t in threads if t.is_alive()]
    ended.set()
    reporter.join()
    print(json.dumps(status(shared)), flush=True)
    if late:  # their attempts have no answers: in doubt
        print(f'workload: still busy after {STOP_S:.0f} s: {", ".join(late)}', file=sys.stderr)
        os._exit(1)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
