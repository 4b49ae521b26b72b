"""Shards: one intake and one exit queue against three, on a RabbitMQ of three nodes. On one
machine with few cores three cannot be faster: the question is what they cost there."""
import itertools
import time

import cluster_kit
from herd import drain
from kit import Lane, harness, now_ms, wait_until, wrong

SHAPE = 'shards: intake and drain (ttl) on a cluster of three nodes'
numbers = itertools.count(1)


def place_on(bench, cluster):
    cluster.vhost(f'bench-shards-{next(numbers)}')
    place = harness.Place(cluster, transport='ttl')
    bench.open.append(place)
    return place


def store_rate(bench, lane, count):
    queue, began = lane.queue('store'), time.monotonic()
    lane.publish(queue, count, now_ms() + 3_600_000).result(300)
    return count / (lane.wait_stored(queue, count, 300) - began)


def measure(bench):
    cluster = cluster_kit.ClusterStack(bench.stack)
    count = bench.sizes.herd // 5
    try:
        for number in range(bench.sizes.runs):
            for queues in (1, 3):
                row = bench.report.row(SHAPE, f'{queues} of each, {count:,}')
                place = place_on(bench, cluster)
                with row.trying(bench.say), Lane(bench, 'ttl', place=place, POSTDATE_INTAKE_QUEUES=queues,
                                                 POSTDATE_EXIT_QUEUES=queues, POSTDATE_HANDOVER_WINDOW='6m') as lane:
                    row.add(intake=store_rate(bench, lane, count))
                    result, _ = drain(lane, count)
                    row.add(rate=count / result['max_ms'] * 1000, p99_ms=result['p99_ms']).note(wrong(result))
                    bench.say(f'shards {number + 1}/{bench.sizes.runs}: {row.what}: intake {row.figures["intake"][-1]:,.0f}/s, '
                              f'drain {row.figures["rate"][-1]:,.0f}/s')
                bench.close(place)
    finally:
        cluster.close()


# --- cells -----------------------------------------------------------------------------------------------------------
CELLS, FEED = 'cells: messages accepted a second, until the commit, by one exchange in front of them (timer)', 'bench.cells'


def store_in_cells(bench, count, messages):
    first = bench.place('timer')
    places = [first] + [bench.place('timer', vhost=first.vhost, prefix=f'bench{n}') for n in range(2, count + 1)]
    try:
        for number, place in enumerate(places):
            place.gateway(POSTDATE_CELL_NUMBER=number, POSTDATE_CELL_EXCHANGE=FEED, POSTDATE_CELL_EXCHANGE_BY='message-id')
        began = time.monotonic()
        first.load('publish', '--exchange', FEED, '--routing-key', 'cells', '--count', messages, '--due-at-ms', now_ms() + 3_600_000,
                   '--timeout-s', 300).result(300)
        stored = 'select count(*) from postdate.message_now'
        wait_until(lambda: sum(int(p.value(stored)) for p in places) == messages, 300, f'{messages} messages to be stored', 0.1)
        return messages / (time.monotonic() - began)
    finally:
        for place in reversed(places):  # the vhost is the first one's
            bench.close(place)


def measure_cells(bench):
    for number in range(bench.sizes.runs):
        for cells in (1, 2):
            row = bench.report.row(CELLS, '1 cell' if cells == 1 else f'{cells} cells')
            with row.trying(bench.say):
                rate = store_in_cells(bench, cells, bench.sizes.herd)
                row.add(rate=rate)
                bench.say(f'cells {number + 1}/{bench.sizes.runs}: {row.what}: {rate:,.0f}/s')
