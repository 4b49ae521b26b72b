"""Rates: so many are due at one instant, and go at their rate; another queue's messages are due meanwhile, as without them."""
from herd import drain, thirds
from kit import Lane, now_ms, wrong

SHAPE = 'rates: all due at one instant, delivered at a rate, while others are due'
RATE, OTHERS = 2000, 500


def measure_others(bench, lane, seconds, first_ms, row):
    queue, count = lane.queue('others'), OTHERS * seconds
    consumer = lane.consume(queue, count, (first_ms - now_ms()) / 1000 + seconds + 60)
    lane.publish(queue, count, first_ms, OTHERS).result(120)
    return lambda: tell(bench, row, consumer.result(seconds + 120))


def tell(bench, row, result):
    row.add(p50_ms=result['p50_ms'], p99_ms=result['p99_ms'], max_ms=result['max_ms']).note(wrong(result))
    bench.say(f"{row.what}: p50 {result['p50_ms']:.2f}, p99 {result['p99_ms']:.2f}, at most {result['max_ms']:.1f} ms")


def measure(bench):
    count, seconds = bench.sizes.herd, max(3, bench.sizes.herd // RATE)
    alone = bench.report.row(SHAPE, f'others, {OTHERS:,}/s, alone')
    beside = bench.report.row(SHAPE, f'others, {OTHERS:,}/s, meanwhile')
    rated = bench.report.row(SHAPE, f'timer, {count:,} at {RATE:,}/s')
    beside.aim('p99_ms', '≤', alone, 'alone, and 10', 10)
    with rated.trying(bench.say), Lane(bench, 'timer') as lane:
        measure_others(bench, lane, seconds, now_ms() + 5000, alone)()
        lane.place.psql(f"select postdate.rate_set('postdate.delivery', {RATE}, routing_key => 'herd*')")
        ahead_ms = int((lane.ahead_s(count + OTHERS * seconds) + 4) * 1000)
        others = measure_others(bench, lane, seconds, now_ms() + ahead_ms, beside)
        result, _ = drain(lane, count)
        others()
        for part in thirds(result, count):
            rated.add(rate=part)
            rated.against('the rate', part, RATE)
        rated.add(seconds=result['max_ms'] / 1000).note(wrong(result))
        rated.aim('ratio', '≥', 0.95).aim('ratio', '≤', 1.05)
        bench.say(f"{rated.what}: {count / result['max_ms'] * 1000:,.0f}/s")
