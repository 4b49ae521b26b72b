"""AMQP clients: one that publishes and gets, one that consumes in a thread of its own."""
import threading
import time

import pika
import pika.exceptions

import wire  # noqa: F401  (makes pika encode and decode every AMQP field type exactly)

from .waiting import wait_until


class Received:
    """A message as the consumer got it."""

    def __init__(self, method, properties, body, at_ms):
        self.method, self.properties, self.body, self.at_ms = method, properties, body, at_ms
        self.headers = properties.headers or {}
        self.exchange, self.routing_key = method.exchange, method.routing_key
        self.id = self.headers.get('x-postdate-id')
        self.due_ms = self.headers.get('x-postdate-due')


class Client:
    """A connection with confirms: a publish that returns is safe in the broker."""

    def __init__(self, url):
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def queue(self, name, bind=None, exchange='postdate.delivery', arguments=None):
        self.channel.queue_declare(name, durable=True, arguments=arguments)
        for key in ([bind] if isinstance(bind, str) else bind or []):
            self.channel.queue_bind(name, exchange, key)
        return name

    def publish(self, routing_key, body=b'', headers=None, exchange='postdate', mandatory=False, **properties):
        properties.setdefault('delivery_mode', 2)
        p = pika.BasicProperties(headers=headers, **properties)
        self.channel.basic_publish(exchange, routing_key, body, p, mandatory=mandatory)

    def publish_burst(self, routing_key, bodies, headers=None, exchange='postdate', **properties):
        """Without confirms in between, so that they come to the gateway together. The channel stays open: closing it
        at once loses the last ones of unconfirmed messages to a quorum queue (seen with RabbitMQ 3.10)."""
        channel = self.connection.channel()
        p = pika.BasicProperties(headers=headers, delivery_mode=2, **properties)
        for body in bodies:
            channel.basic_publish(exchange, routing_key, body, p)

    def get(self, queue):
        method, properties, body = self.channel.basic_get(queue, auto_ack=True)
        return Received(method, properties, body, time.time() * 1000) if method else None

    def wait_get(self, queue, deadline_s=10.0):
        return wait_until(lambda: self.get(queue), deadline_s, f'a message in {queue}')

    def depth(self, queue):
        """Messages waiting in a queue (not those a consumer holds unacknowledged)."""
        channel = self.connection.channel()
        try:
            count = channel.queue_declare(queue, passive=True).method.message_count
            channel.close()
            return count
        except pika.exceptions.ChannelClosedByBroker:
            return None

    def close(self):
        try:
            self.connection.close()
        except pika.exceptions.AMQPError:
            pass


class Consumer:
    """Consumes a queue in a thread of its own and notes when each message came."""

    def __init__(self, url, queue, declare=False, bind=None, exchange='postdate.delivery', prefetch=0):
        self.messages = []
        self.queue = queue
        self.lock = threading.Lock()
        self.stopping = False
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        if declare or bind is not None:
            self.channel.queue_declare(queue, durable=True)
        if bind is not None:
            self.channel.queue_bind(queue, exchange, bind)
        if prefetch:
            self.channel.basic_qos(prefetch_count=prefetch)
        self.channel.basic_consume(queue, self._take)
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def _take(self, channel, method, properties, body):
        message = Received(method, properties, body, time.time() * 1000)
        with self.lock:
            self.messages.append(message)
        channel.basic_ack(method.delivery_tag)

    def _loop(self):
        try:
            while not self.stopping:
                self.connection.process_data_events(time_limit=0.05)
            self.connection.close()
        except (pika.exceptions.AMQPError, OSError):
            pass

    def all(self):
        with self.lock:
            return list(self.messages)

    def wait(self, count, deadline_s=10.0):
        """The messages, once there are `count` of them."""
        wait_until(lambda: len(self.all()) >= count, deadline_s,
                   f'{count} messages in {self.queue}')
        return self.all()

    def wait_body(self, body, deadline_s=10.0):
        return wait_until(lambda: next((m for m in self.all() if m.body == body), None), deadline_s,
                          f'{body[:60]!r} in {self.queue}')

    def close(self):
        self.stopping = True
        self.thread.join(10)
