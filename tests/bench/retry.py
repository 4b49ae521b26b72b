"""Retry: ten queues refuse all they have at once; each message comes back after its back-off. Lateness is counted from the
moment at which the consumer had the message that it refused, plus the back-off. Beside it, RabbitMQ alone: a quorum queue with a time to
live that dead-letters back, as people build it by hand; it counts no attempts.
"""
from kit import Lane, cpu_between, cpu_s, wait_until, wrong

SHAPE = 'retry: refused at once in ten queues, back after 2 s'
CPU = 'retry: CPU seconds per 1,000 that come back, by process'
QUEUES, BACK_OFF_MS = 10, 2000
CLASSIC = {'x-dead-letter-exchange': 'postdate.retry'}
QUORUM = {**CLASSIC, 'x-queue-type': 'quorum', 'x-dead-letter-strategy': 'at-least-once', 'x-overflow': 'reject-publish'}


ALONE = 'alone.wait'


def back_by_hand(lane, arguments):
    """The arguments of queues whose refused messages wait in RabbitMQ, which needs nothing else."""
    client = lane.place.client()
    client.channel.exchange_declare(ALONE, 'fanout')
    client.queue(ALONE, bind='', exchange=ALONE, arguments={**QUORUM, 'x-message-ttl': BACK_OFF_MS, 'x-dead-letter-exchange': ''})
    return {**arguments, 'x-dead-letter-exchange': ALONE}


def fill(lane, queue, arguments, count):
    """All of it in the queues, numbered, before anybody consumes."""
    client, each = lane.place.client(), count // QUEUES
    for n in range(QUEUES):
        client.queue(f'{queue}.{n}', arguments=arguments)
    for n in range(QUEUES):
        lane.place.load('publish', '--exchange', '', '--routing-key', f'{queue}.{n}', '--count', each, '--start', n * each).result(120)


def one_round(bench, lane, kind, arguments, limit=None):
    """The row. With another one: by us, compared with that; without: RabbitMQ alone."""
    count, queue = bench.sizes.herd, lane.queue('retry')
    row = bench.report.row(SHAPE, f"{kind} queues, {count:,}{'' if limit else ', RabbitMQ alone'}")
    if limit:
        row.aim('max_ms', '≤', 5000)
    with row.trying(bench.say):
        fill(lane, queue, arguments, count)
        before = cpu_s(lane.processes())
        result = lane.place.load('consume', '--queue', queue, '--queues', QUEUES, '--back-off-ms', BACK_OFF_MS, '--expect', count,
                                 '--prefetch', 2000, '--timeout-s', 180).result(200)
        if result['missing']:
            raise AssertionError(f"{result['missing']} of {count} did not come back")
        lane.wait_settled()  # belongs to the price
        cpu = cpu_between(before, cpu_s(lane.processes()), count)
        row.add(rate=result['rate'], p50_ms=result['p50_ms'], p99_ms=result['p99_ms'], max_ms=result['max_ms'])
        row.note(wrong(result))
        if limit and limit.value('rate'):
            row.against('RabbitMQ alone', result['rate'], limit.value('rate'))
        price = bench.report.row(CPU, f"{kind} queues{'' if limit else ', RabbitMQ alone'}")
        price.add(**{name.lower() + '_cpu': s for name, s in cpu.items()})
        bench.say(f"retry: {row.what}: {result['rate']:,.0f}/s, late p50 {result['p50_ms']:.0f}, p99 {result['p99_ms']:.0f} ms; "
                  f"refused within {result['refusing_s']:.1f} s; CPU s per 1,000: {price.values()}")
    return row


def measure(bench):
    with Lane(bench, 'timer') as lane:
        wait_until(lambda: 'postdate.return' in exchanges(lane), 10, 'the exchanges of retries')
        lane.place.psql(f"select postdate.retry_policy_set('*', 5, '{BACK_OFF_MS} ms', 1, '1 h', 0)")
        for _ in range(bench.sizes.runs):
            for kind, arguments in (('classic', CLASSIC), ('quorum', QUORUM)):
                limit = one_round(bench, lane, kind, back_by_hand(lane, arguments))
                one_round(bench, lane, kind, arguments, limit)


def exchanges(lane):
    return lane.place.stack.rabbitmqctl('list_exchanges', '-p', lane.place.vhost, 'name')
