"""A RabbitMQ of three nodes for live tests, and messages that go through it while something happens to it."""
import os
import random
import sys
import threading
import time

import pika
import pika.exceptions

import harness
from harness import Received, Stack, wait_until

sys.path.append(os.path.join(harness.ROOT, 'tests', 'chaos'))
from cluster import Cluster  # noqa: E402

ERRORS = (pika.exceptions.AMQPError, OSError)
QUORUM = {'x-queue-type': 'quorum'}


class ClusterStack(Stack):
    """The database is the main stack's, RabbitMQ a cluster of its own, of which there may be several, by name. Starts it; close() ends it."""

    def __init__(self, main, name='cluster'):
        super().__init__(harness.note_stack(f'{main.directory}-{name}'))
        self.cluster = Cluster(self.directory, os.environ.get('STACK_PLUGINS_DIR', ''))
        self.env = {'POSTDATE_POSTGRES_URL': main.postgres, 'POSTDATE_AMQP_URL': self.url_of('%2f'), 'STACK_NO_PLUGIN': main.no_plugin}

    def url_of(self, vhost, node=None):
        """Of one node, or with the hosts of all."""
        hosts = self.cluster.hosts() if node is None else f'127.0.0.1:{self.cluster.ports[node]}'
        return f'amqp://guest:guest@{hosts}/{vhost}'

    def vhost(self, name):
        self.cluster.make_vhost(name, ['guest'])
        self.vhosts.append(name)

    def close(self):
        self.cluster.close()


class Link:
    """A pika connection to whichever node takes it, the nodes in turn."""

    def __init__(self, stack, vhost, node):
        self.stack, self.vhost, self.node = stack, vhost, node
        self.connection = self.channel = None

    def open(self):
        while self.channel is None or not self.channel.is_open:
            self.drop()
            parameters = pika.URLParameters(self.stack.url_of(self.vhost, self.node % 3))
            parameters.heartbeat, parameters.socket_timeout, parameters.blocked_connection_timeout = 10, 3, 10
            parameters.stack_timeout = 5
            self.connection = pika.BlockingConnection(parameters)
            self.channel = self.connection.channel()
        return self.channel

    def drop(self, next_node=False):
        """Its end, in whatever state it is."""
        try:
            if self.connection is not None and self.connection.is_open:
                self.connection.close()
        except ERRORS:
            pass
        self.connection = self.channel = None
        self.node += next_node


class Traffic:
    """Publishes and schedules messages, cancels some, consumes on two nodes, and knows in the end what is missing, early,
    or should not have come. What an interrupted publish or cancel did is not known, and not asked about."""

    def __init__(self, place, seed):
        self.place, self.stack = place, place.stack
        self.rng = random.Random(seed)
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.owed = {}       # body: not before (ms)
        self.cancelled = {}  # body: the message's id
        self.seen = {}       # body: [Received]
        self.sent = 0
        self.threads = []

    def run(self, function, *args):
        thread = threading.Thread(target=function, args=args, daemon=True)
        self.threads.append(thread)
        thread.start()

    def start(self, queues=('q',)):
        for i, queue in enumerate(queues):
            self.run(self.consume, queue, i)
            self.run(self.consume, queue, i + 1)
        self.run(self.publish)
        return self

    # --- in
    def publish(self):
        link = Link(self.stack, self.place.vhost, 2)
        while not self.stopping.is_set():
            try:
                channel = link.open()
                channel.confirm_delivery()
                while not self.stopping.is_set():
                    self.publish_one(channel)
                    link.connection.sleep(0.04)
            except ERRORS:
                link.drop(next_node=True)
                time.sleep(0.1)
        link.drop()

    def publish_one(self, channel):
        delay_ms = self.rng.randint(500, 5000)
        body = f'amqp-{self.sent}'.encode()
        not_before = harness.now_ms() + delay_ms
        self.sent += 1
        channel.basic_publish('postdate', 'k', body, pika.BasicProperties(headers={'x-delay': delay_ms}, delivery_mode=2),
                              mandatory=True)
        self.owed[body] = not_before

    def schedule(self, count, from_s, to_s, key='k', prefix='sql'):
        """Due at even distances between the two, from now on."""
        made = dict(self.place.psql(
            f"select postdate.schedule('{key}', '{prefix}-' || n, due_at => now() + make_interval(secs => {from_s} + "
            f'n * {to_s - from_s} / {count}::float)), n from generate_series(1, {count}) n'))
        rows = self.place.psql('select id, (extract(epoch from due_at) * 1000)::bigint from postdate.messages where id in ('
                               + ', '.join(f"'{uuid}'" for uuid in made) + ')')
        found = {f'{prefix}-{made[uuid]}'.encode(): (uuid, int(due)) for uuid, due in rows}
        assert len(found) == count, len(found)
        self.owed.update((body, due) for body, (_, due) in found.items())
        return {body: uuid for body, (uuid, _) in found.items()}

    def cancel(self, messages):
        """Those that say so are not to come; those that say they are too late are."""
        rows = self.place.psql('select id, postdate.cancel(id) from unnest(array[' +
                               ', '.join(f"'{x}'::uuid" for x in messages.values()) + ']) as id')
        said = dict(rows)
        for body, uuid in messages.items():
            if said[uuid] == 'cancelled':
                del self.owed[body]
                self.cancelled[body] = uuid

    # --- out
    def consume(self, queue, node):
        link = Link(self.stack, self.place.vhost, node)
        while not self.stopping.is_set() or self.missing():
            try:
                channel = link.open()
                channel.basic_qos(prefetch_count=200)
                channel.basic_consume(queue, self.take)
                while not self.stopping.is_set() or self.missing():
                    link.connection.process_data_events(time_limit=0.1)
            except ERRORS:
                link.drop(next_node=True)
                time.sleep(0.1)
        link.drop()

    def take(self, channel, method, properties, body):
        message = Received(method, properties, body, time.time() * 1000)
        with self.lock:
            self.seen.setdefault(body, []).append(message)
        channel.basic_ack(method.delivery_tag)

    def missing(self):
        with self.lock:
            return sorted(body for body in list(self.owed) if body not in self.seen)

    def late_ms(self):
        """Of each message's first arrival."""
        with self.lock:
            return sorted(self.seen[body][0].at_ms - due for body, due in self.owed.items() if body in self.seen)

    def finish(self, deadline_s=60):
        """No more is published; all that is owed arrives, and nothing else is wrong. The count of second copies."""
        self.stopping.set()
        try:
            wait_until(lambda: not self.missing(), deadline_s, f'{len(self.owed)} messages')
        except AssertionError as e:
            raise AssertionError(f'{e}: {len(self.missing())} are missing: {self.missing()[:10]}') from None
        finally:
            self.owed, owed = {}, self.owed
            for thread in self.threads:
                thread.join(20)
            self.owed = owed
        early = [(body, m.at_ms - due) for body, due in owed.items() for m in self.seen[body] if m.at_ms < due]
        wrong = [body for body in self.cancelled if body in self.seen]
        copies = sum(len(x) - 1 - sum(m.method.redelivered for m in x[1:]) for x in self.seen.values())
        late = self.late_ms()
        print(f'note cluster: {len(owed)} messages, {len(self.cancelled)} cancelled, {copies} second copies, late ms p50 '
              f'{late[len(late) // 2]:.0f}, max {late[-1]:.0f}', flush=True)
        assert not early, f'{len(early)} early: {early[:5]}'
        assert not wrong, f'delivered after a cancel that said yes: {wrong[:5]}'
        return copies
