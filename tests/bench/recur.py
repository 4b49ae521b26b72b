"""Recurring: 100,000 schedules of a minute each, so 1,667 occurrences a second; beside them ordinary messages, whose lateness is what the
schedules' own is compared with. One consumer takes a sample of the former and all of the latter, and times both."""
import statistics
import time

from kit import BODY_BYTES, Lane, cpu_between, cpu_s, memory_mib, now_ms, wait_until

SHAPE = 'recurring: schedules of a minute each, spread evenly; lateness at the consumer in ms'
SAMPLE = 20    # of so many schedules, one is timed
WARM_S = 65    # every schedule has carried itself on once
CHUNK = 2000


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def set_schedules(lane, count, begin_ms):
    """A second of its own for each sixtieth of them, and jitter within it. Sixty are set; the others are copies, whose first occurrences the
    gateway makes, as it does for any that nothing carries on."""
    lane.place.psql(f"select count(postdate.recur_set('first' || i, i || ' * * * * *', 'rest', repeat('x', {BODY_BYTES}), jitter => '1 s', "
                    f"from_at => to_timestamp({begin_ms / 1000}))) from generate_series(0, 59) i")
    for first in range(0, count - 60, CHUNK):
        lane.place.psql(
            'insert into postdate.recur (name, cron, zone, plan, anchor, exchange, routing_key, body, content, missed, grace, jitter, dst, overlap, from_at, nominal, look_at) '
            f"select 's' || i, r.cron, r.zone, r.plan, r.anchor, r.exchange, case when i / 60 % {SAMPLE} = 0 then 'sample' else 'rest' end, r.body, r.content, r.missed, "
            'r.grace, r.jitter, r.dst, r.overlap, r.from_at, r.nominal, now() '
            f"from generate_series({first}, {min(first + CHUNK, count - 60) - 1}) i, postdate.recur r where r.name = 'first' || i % 60")
    wait_until(lambda: lane.place.value('select count(*) from postdate.recur where message is null') == '0', count / 100 + 60, 'first occurrences', 1)


def lateness(messages, key, since_ms):
    return [m.at_ms - m.headers['x-postdate-due'] for m in messages if m.routing_key == key and m.headers['x-postdate-due'] >= since_ms]


def add_lateness(row, values):
    row.add(p50_ms=statistics.median(values), p99_ms=percentile(values, 0.99), p999_ms=percentile(values, 0.999), max_ms=max(values))


def watch_memory(lane, seconds):
    """MiB resident, every second."""
    out, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        out.append(memory_mib(lane.gateways[0].process.pid))
        time.sleep(1)
    return out


def assert_none_lost(names):
    """[(schedule, nominal ms)]: one each minute from the first that was seen to the last, of each schedule."""
    by_name = {}
    for name, nominal in names:
        by_name.setdefault(name, set()).add(nominal)
    lost = sum((max(at) - min(at)) // 60_000 + 1 - len(at) for at in by_name.values())
    if lost:
        raise AssertionError(f'{lost} occurrences were lost')


def measure(bench):
    count, seconds = bench.sizes.schedules, bench.sizes.recur_s
    rate = max(20, count // 60 // SAMPLE)
    plain = bench.report.row(SHAPE, f'ordinary messages, {rate:,}/s, in the same run')
    recur = bench.report.row(SHAPE, f'{count:,} schedules, {count // 60:,}/s').aim('p99_ms', '≤', plain, 'twice that of ordinary ones', factor=2) \
        .aim('grown_mib', '≤', 2, 'flat')
    with recur.trying(bench.say), Lane(bench, 'timer') as lane:
        client = lane.place.client()
        client.queue('rest', bind='rest', arguments={'x-max-length': 1000})
        client.queue('timed', bind=['sample', 'plain'])
        began = time.monotonic()
        begin_ms = now_ms() + int((30 + count / 200) * 1000)
        set_schedules(lane, count, begin_ms)
        bench.say(f'{count:,} schedules set in {time.monotonic() - began:.0f} s')
        if now_ms() > begin_ms:
            raise AssertionError('setting them took longer than was left')
        consumer = lane.place.consumer('timed')
        since_ms = begin_ms + WARM_S * 1000
        lane.publish('plain', rate * seconds, since_ms, rate).result(300)
        wait_until(lambda: now_ms() >= since_ms, (since_ms - now_ms()) / 1000 + 10, 'the window', 0.1)
        before = cpu_s(lane.processes())
        memory = watch_memory(lane, seconds)
        after = cpu_s(lane.processes())
        wait_until(lambda: len(lateness(consumer.all(), 'plain', since_ms)) >= rate * seconds, 60, 'the ordinary messages', 0.2)
        seen = [m for m in consumer.all() if m.headers['x-postdate-due'] < since_ms + seconds * 1000]
        add_lateness(plain, lateness(seen, 'plain', since_ms))
        add_lateness(recur, lateness(seen, 'sample', since_ms))
        names = [(m.headers['x-postdate-recur'], m.headers['x-postdate-nominal']) for m in seen if m.routing_key == 'sample']
        assert_none_lost(names)
        came = sum(1 for m in seen if m.routing_key == 'sample' and m.headers['x-postdate-due'] >= since_ms)
        recur.add(rate=came * SAMPLE / seconds, mib=memory[-1], grown_mib=statistics.median(memory[-5:]) - statistics.median(memory[:5]))
        if len(set(names)) < len(names):
            recur.note(f'{len(names) - len(set(names))} came twice')
        cpu = cpu_between(before, after, count * seconds / 60)
        recur.add(gateway_cpu=cpu['gateway'], postgres_cpu=cpu['Postgres'], rabbitmq_cpu=cpu['RabbitMQ'])
        bench.say(f'{recur.what}: p50 {recur.value("p50_ms"):.1f} p99 {recur.value("p99_ms"):.1f}; ordinary p50 {plain.value("p50_ms"):.1f} '
                  f'p99 {plain.value("p99_ms"):.1f} ms; {came * SAMPLE / seconds:,.0f}/s; memory {memory[0]:.1f} to {memory[-1]:.1f} MiB; CPU seconds per 1,000: {cpu}')
