"""Steady: so many a second are due, all published beforehand. Lateness at the consumer, in three windows of one run."""
from kit import Lane, now_ms, wrong

SHAPE = 'steady: lateness at the consumer in ms, minus the due time'
WINDOWS = 3
GAP_S = 1.0


PERCENTILES = ('p50_ms', 'p99_ms', 'p999_ms')


def add_windows(row, result):
    """The windows' percentiles, whose medians count, and the latest of all. A median hides one bad window: then it is said."""
    for w in result['windows']:
        row.add(**{k: w[k] for k in PERCENTILES})
    row.add(max_ms=result['max_ms'])
    row.tags['whole'] = {k: result[k] for k in PERCENTILES}
    if result['p99_ms'] > 2 * row.value('p99_ms'):
        row.note(f"one window was worse; over the whole time p99 {result['p99_ms']:.2f}, p99.9 {result['p999_ms']:.2f}")
    row.note(wrong(result))


def measure_lane(bench, lane, rates, seconds, row_of):
    """row_of(rate) is the report's row for it."""
    total = sum(rates) * seconds
    begin_ms = now_ms() + int(lane.ahead_s(total) * 1000)
    first_ms, started = begin_ms, []
    for rate in rates:
        queue = lane.queue(f'steady{rate}')
        limit_s = (begin_ms - now_ms()) / 1000 + seconds + 30
        started.append((rate, queue, begin_ms, lane.consume(queue, rate * seconds, limit_s, WINDOWS)))
        begin_ms += int((seconds + GAP_S) * 1000)
    for rate, queue, due_ms, _ in started:
        lane.publish(queue, rate * seconds, due_ms, rate).result(300)
        lane.wait_stored(queue, 0 if lane.bare else rate * seconds)
    late = now_ms() > first_ms
    for rate, _, _, consumer in started:
        row = row_of(rate)
        with row.trying(bench.say):
            result = consumer.result(seconds * len(rates) + 120)
            if result['missing']:
                raise AssertionError(f"{result['missing']} of {rate * seconds} did not come within {30 + seconds} s of the first due time")
            add_windows(row, result)
            if late:
                row.note('publishing had not ended when the first were due')
            bench.say(f'{row.what}: {lateness_words(result)}')


def measure_raw(bench, rates, seconds, row_of):
    """What RabbitMQ and this disk allow at that moment: published when due, straight to the consumer's queue, with confirms."""
    place = bench.place(migrate=False)
    for rate in rates:
        row = row_of(rate)
        with row.trying(bench.say):
            queue, count = f'steady-raw{rate}', rate * seconds
            consumer = place.load('consume', '--queue', queue, '--expect', count, '--timeout-s', seconds + 30, '--idle-s', 0.5,
                                  '--windows', WINDOWS).wait_consuming()
            place.load('publish', '--exchange', '', '--routing-key', queue, '--count', count, '--rate', rate, '--timeout-s',
                       seconds + 30).result(seconds + 40)
            result = consumer.result(seconds + 40)
            add_windows(row, result)
            bench.say(f'{row.what}: {lateness_words(result)}')
    bench.close(place)


def lateness_words(result):
    return f'p50 {result["p50_ms"]:.2f}  p99 {result["p99_ms"]:.2f}  p99.9 {result["p999_ms"]:.2f}  max {result["max_ms"]:.1f} ms'


def stored_words(backlog):
    return 'nothing stored' if backlog == 0 else f'{backlog:,} stored'


def timer_row(bench, rate, backlog):
    return bench.report.row(SHAPE, f'timer, {rate:,}/s, {stored_words(backlog)}', transport='timer', rate=rate, stored=backlog)


def raw_row(bench, rate, backlog):
    return bench.report.row(SHAPE, f'raw broker, {rate:,}/s, {stored_words(backlog)}', transport='raw', rate=rate, stored=backlog)


def aim_timer(row, rate, backlog, sizes):
    if backlog != sizes.backlog:
        return
    if rate == 1000:
        row.aim('p50_ms', '≤', 2).aim('p99_ms', '≤', 10).aim('p999_ms', '≤', 25)
    if rate == 5000:
        row.aim('p99_ms', '≤', 25)


def over_backlog(bench, lane, backlog, seconds):
    rows = {rate: timer_row(bench, rate, backlog) for rate in bench.sizes.rates}
    for rate, row in rows.items():
        aim_timer(row, rate, backlog, bench.sizes)
    measure_raw(bench, bench.sizes.rates, max(WINDOWS, seconds // 3), lambda rate: raw_row(bench, rate, backlog))
    with rows[bench.sizes.rates[0]].trying(bench.say):
        measure_lane(bench, lane, bench.sizes.rates, seconds, rows.get)


def aim_relayed(row, rate, raw):
    """A gateway does the last step: as precise as what RabbitMQ can do with a message that is published when it is due."""
    if rate == 5000:
        row.aim('p99_ms', '≤', 50)
    else:
        row.aim('p50_ms', '≤', raw, 'raw broker and 2', 2).aim('p99_ms', '≤', raw, 'raw broker and 10', 10)


def measure_transports(bench):
    """The broker waits, with us and without."""
    rates = bench.sizes.transport_rates
    raw = {rate: bench.report.row(SHAPE, f'raw broker, {rate:,}/s, beside the transports', transport='raw again', rate=rate, stored=0) for rate in rates}
    with raw[rates[0]].trying(bench.say):
        measure_raw(bench, rates, bench.sizes.transport_s, raw.get)
    if not bench.plugin:
        bench.say('no rows for the plugin: STACK_PLUGINS_DIR names no folder with rabbitmq_delayed_message_exchange')
    for transport in bench.transports:
        name = bench.lane_name(transport)
        rows = {rate: bench.report.row(SHAPE, f'{name}, {rate:,}/s', transport=name, rate=rate, stored=0) for rate in rates}
        for rate, row in rows.items():
            if transport in ('plugin', 'ttl'):
                aim_relayed(row, rate, raw[rate])
        with rows[rates[0]].trying(bench.say), Lane(bench, transport) as lane:
            measure_lane(bench, lane, rates, bench.sizes.transport_s, rows.get)
