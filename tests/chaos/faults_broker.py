"""Faults of RabbitMQ."""
import signal
import time

import pika

from arena import OUT_QUEUE, SECOND, SIDE_QUEUE, bind_targets
from faults import NotNow, fault
from servers import wait_until

RUNGS = [f'postdate.ttl.r16g100.l{level}.d{digit}' for level in range(4) for digit in range(1, 16)]
DELAYED = {'plugin': 'postdate.delayed', 'native': 'postdate.native'}
EXIT, BROKER_EXIT = 'postdate.exit', 'postdate.exit.broker'
HANDED = 500
OTHERS_GO_ON_S = 60  # other faults may strike meanwhile


def start_rabbit(arena):
    arena.rabbit.stack('start-rabbitmq')


@fault('rabbitmq.kill', scope='server', weight=2)
def rabbitmq_kill(x):
    x.begin('kill -9')
    x.arena.rabbit.stack('kill-rabbitmq')
    x.wait(0, 1)
    start_rabbit(x.arena)


@fault('rabbitmq.stop_app', scope='server', weight=2)
def rabbitmq_stop_app(x):
    x.begin('stop_app, start_app')
    x.arena.rabbit.erlang('rabbit:stop().')
    x.wait(0, 1)
    try:
        x.arena.rabbit.erlang('rabbit:start().')
    except RuntimeError:  # on a busy machine a part of it may not answer in time; the whole is started anew then
        x.detail += ', which failed: kill -9'
        x.arena.rabbit.stack('kill-rabbitmq')
        start_rabbit(x.arena)


@fault('rabbitmq.close_connections', scope='server', weight=6)
def rabbitmq_close_connections(x):
    x.begin('close_all_connections')
    x.arena.rabbit.erlang('[catch rabbit_networking:close_connection(P, "chaos") || P <- rabbit_networking:connections()], ok.')


@fault('rabbitmq.memory_alarm', scope='server', weight=4)
def rabbitmq_memory_alarm(x):
    x.begin('memory alarm: publishers are blocked')
    x.arena.rabbit.erlang('vm_memory_monitor:set_vm_memory_high_watermark(0.000001).')
    try:
        x.wait(2, 5)
    finally:
        x.arena.rabbit.erlang('vm_memory_monitor:set_vm_memory_high_watermark(0.4).')


@fault('rabbitmq.disk_alarm', scope='server', weight=4)
def rabbitmq_disk_alarm(x):
    x.begin('disk alarm: publishers are blocked')
    x.arena.rabbit.erlang('rabbit_disk_monitor:set_disk_free_limit("1000TB").')
    try:
        x.wait(2, 5)
    finally:
        x.arena.rabbit.erlang('rabbit_disk_monitor:set_disk_free_limit("50MB").')


@fault('broker.permissions', weight=2)
def broker_permissions(x):
    x.begin("the gateways' user may do nothing")
    retry(lambda: x.cell.rabbit.permit(x.cell.vhost, x.cell.user, '^$'))
    try:
        x.wait(1, 4)
    finally:
        retry(lambda: permit_on_all_nodes(x.cell))


def permit_on_all_nodes(cell):
    """What a node writes that is cut off from the others is forgotten when it comes back to them."""
    rabbit = cell.rabbit
    rabbit.permit(cell.vhost, cell.user, '.*')
    for node in range(len(rabbit.nodes)):
        found = rabbit.erlang(f'rabbit_auth_backend_internal:list_user_vhost_permissions(<<"{cell.user}">>, <<"{cell.vhost}">>).', node)
        if '.*' not in found:
            raise RuntimeError(f'{rabbit.nodes[node]} does not know it')


def retry(act, *before_again, within_s=90):
    """RabbitMQ may be on its way down or up because of another fault."""
    acts = [act]

    def done():
        try:
            for each in acts:
                each()
            return True
        except (RuntimeError, pika.exceptions.AMQPError, OSError):
            acts[:] = [*before_again, act]
            return False
    wait_until(done, within_s, 'RabbitMQ to do it', 0.2)


def on_channel(x, act, **options):
    def run():
        connection = x.cell.amqp()
        try:
            act(connection.channel())
        finally:
            if connection.is_open:
                connection.close()
    retry(run, **options)


def gateway_relays(cell):
    return cell.transport != 'timer' and cell.last_hop == 'gateway'


@fault('queue.deleted', weight=2, only=lambda cell: cell.transport != 'timer')
def queue_deleted(x):
    """One in which messages wait for their due time; what it held has to come another way."""
    if x.cell.transport == 'ttl':
        name = x.rng.choice(RUNGS)
        x.begin(f'queue {name} deleted')
        on_channel(x, lambda channel: channel.queue_delete(name))
    else:
        name = DELAYED[x.cell.transport]
        x.begin(f'exchange {name} deleted, with all it held')
        on_channel(x, lambda channel: channel.exchange_delete(name))


@fault('queue.exit_deleted', weight=2, only=lambda cell: cell.transport != 'timer')
def exit_queue_deleted(x):
    """What had come out and was not delivered is lost, and rescued; until the queue is there again nothing comes out."""
    name = EXIT if x.cell.last_hop == 'gateway' else x.rng.choice([BROKER_EXIT, BROKER_EXIT, EXIT])
    x.begin(f'queue {name} deleted, with all that had come out')
    on_channel(x, lambda channel: channel.queue_delete(name))


@fault('queue.exit_purged', weight=2, only=gateway_relays)
def exit_queue_purged(x):
    """With no gateway there, so that all that comes out is in it. All of it is rescued after grace."""
    until_s = x.cell.fall_due(300, 5, 7)
    x.wait(2, 2.5)  # they are handed over
    number = x.rng.choice([signal.SIGKILL, signal.SIGTERM])
    x.begin(f'all gateways away ({number.name}), queue {EXIT} purged')
    found = []

    def purge(channel):
        try:
            found.append(f'{channel.queue_purge(EXIT).method.message_count} messages')
        except pika.exceptions.ChannelClosedByBroker as e:
            if e.reply_code != 404:
                raise
            found.append('nothing: it was deleted before, and the gateways had not made it again')
    try:
        x.cell.halt_gateways(number)
        time.sleep(max(0, until_s - time.time()))
        on_channel(x, purge, within_s=20)
    except TimeoutError as e:  # the gateways are not kept away for that
        found.append(f'nothing, for {e}')
    finally:
        x.cell.start_gateways()
    x.detail += f' of {found[-1]}'


@fault('target.full', weight=2, only=lambda cell: cell.queue_types[OUT_QUEUE] == 'classic')
def target_full(x):
    """The consumer's queue refuses what comes; all of it has to arrive later. (One of the quorum kind takes what is read at once.)"""
    vhost, name = f'<<"{x.cell.vhost}">>', '<<"full">>'
    fill = (f'ok = rabbit_policy:set({vhost}, {name}, <<"^{OUT_QUEUE}$">>, [{{<<"max-length">>, 0}}, '
            '{<<"overflow">>, <<"reject-publish">>}], 0, <<"queues">>, <<"chaos">>)')
    # A RabbitMQ that stops meanwhile may forget the policy and not tell the queue: it has to be asked. One that is killed soon after
    # may forget what it told the queue, for it writes that down two seconds later.
    empty = (f'rabbit_policy:delete({vhost}, {name}, <<"chaos">>), timer:sleep(300), '
             f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r({vhost}, queue, <<"{OUT_QUEUE}">>)), undefined = amqqueue:get_policy(Q), '
             'catch mnesia:sync_log()')
    x.begin(f'queue {OUT_QUEUE} takes nothing')
    retry(lambda: x.cell.rabbit.erlang(f'{fill}.'))
    try:
        x.wait(1, 4)
    finally:
        retry(lambda: x.cell.rabbit.erlang(f'{empty}, ok.'), lambda: x.cell.rabbit.erlang(f'{fill}.'))


# Where RabbitMQ itself delivers, it tries such targets again every three minutes, which tests/live/test_last_hop.py looks at.
@fault('target.leaderless', weight=2, only=lambda cell: cell.queue_types[SIDE_QUEUE] == 'quorum' and cell.last_hop == 'gateway')
def target_leaderless(x):
    """One of the consumer's queues, of the quorum kind, has lost its majority: what goes there has to wait, the rest goes on."""
    x.begin(f'queue {SIDE_QUEUE} confirms nothing')
    stall_s = x.rng.uniform(32, 40) if not x.arena.short and x.rng.random() < 0.25 else x.rng.uniform(2, 8)  # given back after 30 s
    try:
        until = time.monotonic() + stall_s
        retry(lambda: setattr(x, 'detail', f'queue {SIDE_QUEUE} has no leader: '
                              + x.cell.rabbit.stall(x.cell.vhost, SIDE_QUEUE, x.rng)))
        stalled_us = int(time.time() * 1e6)
        wait_until(lambda: x.arena.state(x.cell.name)['newest_delivered_attempt_us'] > stalled_us, OTHERS_GO_ON_S,
                   f'messages to {OUT_QUEUE} while {SIDE_QUEUE} has no leader', 0.1)
        time.sleep(max(0, until - time.monotonic()))
    finally:
        retry(lambda: x.cell.rabbit.unstall(x.cell.vhost, SIDE_QUEUE))


@fault('target.late', weight=3)
def target_late(x):
    """A consumer's queue confirms late, again and again, as one on a slow disk does."""
    queue = x.rng.choice([OUT_QUEUE, SIDE_QUEUE])
    x.begin(f'queue {queue} confirms late')
    pauses = [x.rng.randrange(600, 2000) for _ in range(x.rng.randrange(1, 4))]
    for pause_ms in pauses:
        retry(lambda ms=pause_ms: x.cell.rabbit.erlang(
            f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{x.cell.vhost}">>, queue, <<"{queue}">>)), '
            f'P = amqqueue:get_pid(Q), sys:suspend(P), timer:sleep({ms}), sys:resume(P), ok.'))
        x.wait(0.1, 0.5)
    x.detail += ': ' + ', '.join(f'{ms} ms' for ms in pauses)


@fault('exchange.deleted', weight=2)
def exchange_deleted(x):
    """One that messages go to; its owner makes it again, with its bindings."""
    x.begin(f'exchange {SECOND} deleted')
    on_channel(x, lambda channel: channel.exchange_delete(SECOND))
    x.wait(0.2, 3)

    def again(channel):
        channel.exchange_declare(SECOND, 'topic', durable=True)
        bind_targets(channel, SECOND)
    on_channel(x, again)


@fault('broker.messages_lost', weight=1, only=lambda cell: cell.transport == 'ttl')
def broker_messages_lost(x):
    """The ladder's queues are emptied."""
    x.begin('all rungs of the ladder purged')

    def purge(_):
        connection = x.cell.amqp()
        for name in RUNGS:
            channel = connection.channel()
            try:
                channel.queue_purge(name)
                channel.close()
            except pika.exceptions.ChannelClosedByBroker:
                pass
        connection.close()
    on_channel(x, purge)


@fault('rabbitmq.wiped', scope='alone', weight=1)
def rabbitmq_wiped(x):
    """Its data folder is gone while it held handed-over messages. What publishers gave it and nobody had stored yet, and what
    consumers had not fetched yet, is RabbitMQ's alone and would be gone with it: so both are waited for, first."""
    arena = x.arena
    cells = [c for c in arena.cells.values() if not c.on_cluster]
    if x.may_wait and any(c.waiting(2001) > 2000 for c in cells):
        raise NotNow  # the million first
    wait_for_few(cells, 2000, 1200)  # nobody is asked to pause for that long
    for cell in cells:
        cell.tell(pause=True)
    try:
        for cell in cells:  # on a busy machine the intake may be minutes behind: its queue is a part of what would be lost
            wait_until(lambda c=cell: c.in_intake() == 0, 300, f'{cell.name}: the intake queues to be empty', 0.3)
        wait_for_few(cells, 0, 90)
        for cell in cells:
            if cell.rejects:
                asked = time.monotonic()
                wait_until(lambda c=cell, t=asked: c.refusals_settled(t), 90, f'{cell.name}: all that was rejected to be settled', 1)
        now_ms = int(time.time() * 1000)
        keepers = [c for c in cells if c.transport != 'timer']
        for cell in keepers:
            cell.tell(handed=HANDED, from_ms=now_ms + 20_000, to_ms=now_ms + 26_000)
        for cell in keepers:
            wait_until(lambda c=cell: are_handed(c, HANDED), 18, f'{cell.name}: {HANDED} messages handed over', 0.1)
        x.begin('killed, its data folder deleted, started empty')
        arena.rabbit.stack('kill-rabbitmq')
        arena.rabbit.wipe()
        start_rabbit(arena)
        for cell in cells:
            retry(lambda c=cell: arena.rabbit.make_vhost(c.vhost, ['guest', c.user]))
        for cell in cells:
            cell.declare_target()
    finally:
        for cell in cells:
            cell.tell(pause=False)


def wait_for_few(cells, left, limit_s):
    """No more than so many in any cell wait to be delivered."""
    for cell in cells:
        wait_until(lambda c=cell: c.waiting(left + 1) <= left, limit_s, f'{cell.name}: all but {left} delivered', 0.3)


def are_handed(cell, count):
    """So many, or more."""
    return sum(int(cell.arena.postgres.primary.psql(
        "select count(*) from (select from postdate.message_now where state = 'handed' and id not in (select unnest(ids) from postdate.handing) "
        f"limit {count}) m", database)[0][0]) for database in cell.databases) >= count
