"""Cost: cores that messages take at a steady rate, from publisher to consumer, by process, and bytes of PostgreSQL's WAL. For
docs/capacity.md."""
import time

from kit import Lane, cpu_s, wrong
from cost_kit import wal_bytes

SHAPE = 'cost: cores at a steady rate in and out, and WAL of PostgreSQL a message'
DELAY_MS = 3000


def idle(lane):
    """Cores that the processes take with nothing to do."""
    before = cpu_s(lane.processes())
    time.sleep(5)
    after = cpu_s(lane.processes())
    return {name: (after[name] - before[name]) / 5 for name in before}


def measure_rate(lane, rate, seconds):
    count, queue = rate * seconds, lane.queue('cost')
    consumer = lane.consume(queue, count, seconds + 60)
    wal, before, began = wal_bytes(lane.place), cpu_s(lane.processes()), time.monotonic()
    lane.place.load('publish', '--exchange', 'postdate', '--routing-key', queue, '--count', count, '--rate', rate, '--delay-ms', DELAY_MS,
                    '--timeout-s', seconds + 60).result(seconds + 70)
    result = consumer.result(seconds + 70)
    lane.wait_settled()
    after, took = cpu_s(lane.processes()), time.monotonic() - began
    if result['missing']:
        raise AssertionError(f"{result['missing']} of {count} did not come")
    return {name: (after[name] - before[name]) / took for name in before}, (wal_bytes(lane.place) - wal) / count, took, result


def measure(bench):
    for transport in ('timer', *[t for t in bench.transports if t not in ('bare', 'timer')]):
        name = bench.lane_name(transport)
        rows = {rate: bench.report.row(SHAPE, f'{name}, {rate:,}/s' if rate else f'{name}, idle') for rate in (0, *bench.sizes.cost_rates)}
        with rows[0].trying(bench.say), Lane(bench, transport) as lane:
            rows[0].add(**{f'{group.lower()}_cpu': cores for group, cores in idle(lane).items()})
            for rate in bench.sizes.cost_rates:
                cores, wal, took, result = measure_rate(lane, rate, bench.sizes.cost_s)
                rows[rate].add(**{f'{group.lower()}_cpu': n for group, n in cores.items()}, wal=wal, p99_ms=result['p99_ms'])
                rows[rate].note(wrong(result))
                bench.say(f'cost: {rows[rate].what}: {cores}, {wal:.0f} B of WAL a message; {took:.0f} s')
