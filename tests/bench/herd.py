"""Herd: so many are due at one instant. The drain is from that instant to the last one's arrival."""
import base64
import json
import os
import struct
import tempfile
import time

from kit import BODY_BYTES, Lane, cpu_between, cpu_s, now_ms, wrong
from limits import RAW, RawBroker

SHAPE = 'herd: all due at one instant, drained'


def publish_herd(lane, count, quorum=False):
    """(queue, due time, consumer): published, and waiting."""
    queue, due_ms = lane.queue('herd'), now_ms() + int((lane.ahead_s(count) + 0.5) * 1000)
    consumer = lane.consume(queue, count, (due_ms - now_ms()) / 1000 + 120 + count / 2000, quorum=quorum)
    lane.publish(queue, count, due_ms).result(300)
    return queue, due_ms, consumer


def drain(lane, count):
    """(consumer's result, CPU seconds per 1,000 drained by process group)."""
    _, due_ms, consumer = publish_herd(lane, count)
    late = now_ms() > due_ms
    time.sleep(max(0.0, (due_ms - now_ms()) / 1000 - 0.7))  # claims begin half a second ahead
    asker = lane.askers()
    before = cpu_s(lane.processes(), asker)
    result = consumer.result(400)
    lane.wait_settled()  # belongs to the price; to ask whether it is so does not
    cpu = cpu_between(before, cpu_s(lane.processes(), asker), count)
    if result['missing']:
        raise AssertionError(f"{result['missing']} of {count} did not come")
    if late:
        raise AssertionError('publishing had not ended at the due time: too slow a machine for this size')
    return result, cpu


def figures(result, count):
    return {'rate': count / result['max_ms'] * 1000, 'p50_ms': result['p50_ms'], 'p99_ms': result['p99_ms'], 'max_ms': result['max_ms']}


def thirds(result, count):
    """The rates of the first, second and last third of one drain."""
    ends = [0.0, *result['thirds_ms'], result['max_ms']]
    return [count / 3 / (b - a) * 1000 for a, b in zip(ends, ends[1:])]


def one_round(bench, lanes, raw, number):
    """Every lane once; the ratio of what we hold is to the raw rate just before, of the plugin to the bare plugin."""
    raw_rate, bare_rate, count = raw.measure(bench.sizes.herd), None, bench.sizes.herd
    bench.report.row(SHAPE, f'limit: {RAW}, {count:,}').add(rate=raw_rate)
    for lane in lanes:
        row = row_of(bench, lane)
        if number > 0 and lane.transport == 'ttl':
            continue  # one long drain, its thirds are the runs
        with row.trying(bench.say):
            result, _ = drain(lane, count)
            rate = count / result['max_ms'] * 1000
            if lane.transport == 'ttl':
                for part in thirds(result, count):
                    row.add(rate=part)
                    row.against(RAW, part, raw_rate)
                row.add(**{k: v for k, v in figures(result, count).items() if k != 'rate'})
                row.note('one drain; the rate is the median of its thirds')
            else:
                row.add(**figures(result, count))
            if lane.bare:
                bare_rate = rate
            elif lane.transport == 'plugin' and bare_rate:
                row.against('the bare plugin', rate, bare_rate)
            elif lane.transport == 'timer':
                row.against(RAW, rate, raw_rate)
            row.note(wrong(result))
            bench.say(f'herd {number + 1}/{bench.sizes.runs}: {row.what}: {rate:,.0f}/s; raw {raw_rate:,.0f}/s')


def row_of(bench, lane):
    row = bench.report.row(SHAPE, f'{lane.name}, {bench.sizes.herd:,}')
    if lane.transport == 'timer':
        row.aim('ratio', '≥', 0.75)
    elif lane.transport == 'plugin':
        row.aim('ratio', '≥', 0.9)
    return row


def measure(bench):
    lanes = []
    raw = RawBroker(bench)
    try:
        for transport in ('timer', *bench.transports):
            lanes.append(Lane(bench, transport))
        for number in range(bench.sizes.runs):
            one_round(bench, lanes, raw, number)
    finally:
        for lane in lanes:
            lane.stop()
            bench.close(lane.place)
        bench.close(raw.place)


# --- a million -----------------------------------------------------------------------------------------------------------
LINES_A_SECOND = 150_000  # that write_lines writes


def body(number, due_ms):
    """As tests/tools/load.h has it: the consumer counts these."""
    return struct.pack('@Qqq', number, due_ms * 1_000_000, due_ms).ljust(BODY_BYTES, b'x')


def write_lines(path, queue, count, due_ms):
    at = time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(due_ms // 1000)) + f'.{due_ms % 1000:03d}Z'
    rest = json.dumps({'routing_key': queue, 'due_at': at})[:-1]
    with open(path, 'w', encoding='ascii') as f:
        for n in range(count):
            f.write(f'{rest},"body_base64":"{base64.b64encode(body(n, due_ms)).decode()}"}}\n')


def store_lines(lane, folder, queue, count, due_ms):
    """By `postdate schedule --batch`."""
    path = os.path.join(folder, queue)
    write_lines(path, queue, count, due_ms)
    rc, _, err = lane.place.cli('schedule', '--batch', path, timeout=300)
    os.unlink(path)
    if rc != 0:
        raise AssertionError(err)
    if now_ms() > due_ms:
        raise AssertionError('storing had not ended at the due time: too slow a machine for this size')


def measure_million(bench):
    """Stored by `postdate schedule --batch`, the fastest way in; one drain, whose thirds are the runs."""
    count = bench.sizes.million
    row = bench.report.row(SHAPE, f'timer, {count:,}')
    with row.trying(bench.say), Lane(bench, 'timer') as lane, tempfile.TemporaryDirectory(prefix='postdate-bench-') as folder:
        raw = RawBroker(bench)
        before = raw.measure(bench.sizes.herd)
        queue = lane.queue('million')
        due_ms = now_ms() + int((6 + count / LINES_A_SECOND + count / (bench.batch_rate * 0.75)) * 1000)
        consumer = lane.consume(queue, count, (due_ms - now_ms()) / 1000 + 60 + count / 3000)
        store_lines(lane, folder, queue, count, due_ms)
        bench.say(f'herd: {count:,} stored, due in {(due_ms - now_ms()) / 1000:.0f} s')
        result = consumer.result(600)
        if result['missing']:
            raise AssertionError(f"{result['missing']} of {count} did not come")
        after = raw.measure(bench.sizes.herd)
        for rate in thirds(result, count):
            row.add(rate=rate)
            row.against(RAW, rate, (before + after) / 2)
        row.add(seconds=result['max_ms'] / 1000, p50_ms=result['p50_ms'], p99_ms=result['p99_ms'])
        row.note('one drain; the rate is the median of its thirds').note(wrong(result))
        bench.say(f'herd: {row.what}: {count / result["max_ms"] * 1000:,.0f}/s')
        bench.close(raw.place)
