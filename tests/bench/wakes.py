"""Wakes: how often each of a gateway's threads, and each of its sessions' servers, begins to run, at several rates in and out."""
import glob
import time

from kit import Lane, cpu_s, harness, wrong

SHAPE = 'wakes a second, by thread of the gateway and by session of PostgreSQL'
RATES = (0, 1, 100, 1000)
DELAY_MS = 3000


def switches(pid):
    """{name of a thread: how often it waited, so far}"""
    found = {}
    for path in glob.glob(f'/proc/{pid}/task/*/status'):
        try:
            with open(path, encoding='utf-8') as f:
                fields = dict(line.rstrip('\n').split(':\t', 1) for line in f if ':\t' in line)
        except OSError:
            continue  # it has just ended
        found[fields['Name']] = found.get(fields['Name'], 0) + int(fields['voluntary_ctxt_switches'])
    return found


def all_switches(lane):
    """{(program, thread or session): so far}"""
    found = {('gateway', name): n for g in lane.gateways for name, n in switches(g.process.pid).items()}
    rows = harness.run_psql(lane.place.postgres, "select pid, application_name from pg_stat_activity where datname = current_database() "
                            "and application_name like 'postdate %'")
    for pid, name in rows:
        key = ('PostgreSQL', name.removeprefix('postdate '))
        found[key] = found.get(key, 0) + sum(switches(int(pid)).values())
    return found


def measure_rate(bench, lane, rate):
    queue, seconds = lane.queue('wakes'), bench.sizes.price_s
    count = rate * (seconds + 4)
    consumer = lane.consume(queue, count, seconds + 60) if rate else None
    publisher = lane.place.load('publish', '--exchange', 'postdate', '--routing-key', queue, '--count', count, '--rate', rate,
                                '--delay-ms', DELAY_MS, '--timeout-s', seconds + 60) if rate else None
    time.sleep(4 if rate else 0)  # until as many go out as come in
    before, cpu, began = all_switches(lane), cpu_s(lane.processes()), time.monotonic()
    time.sleep(seconds)
    after, spent, took_s = all_switches(lane), cpu_s(lane.processes()), time.monotonic() - began
    row = bench.report.row(SHAPE, f'{lane.name}, {rate:,}/s')
    row.add(**{f'{name.lower()}_cpu': (spent[name] - cpu[name]) / took_s for name in spent})
    most = sorted(((after[k] - before[k]) / took_s, k) for k in after if k in before)[::-1]
    row.note(', '.join(f'{program}: {name} {n:.1f}' for n, (program, name) in most if n >= 0.5))
    if rate:
        publisher.result(seconds + 70)
        row.note(wrong(consumer.result(seconds + 70)))


def measure(bench):
    for transport in ('timer', 'ttl'):
        with Lane(bench, transport) as lane:
            time.sleep(2)  # it has just begun
            for rate in RATES:
                measure_rate(bench, lane, rate)
