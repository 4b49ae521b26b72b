"""Publishing with confirms to Postdate's intake exchange. A confirm means accepted; a nack, or a connection that dies before
it, means that nobody knows; what comes back as unroutable is refused."""
import collections
import threading
import time

import pika
import pika.exceptions

import record
from messages import Maker
from shared import Pace, Plans

INTAKE = 'postdate'
UNCONFIRMED_MAX = 4000
TICK_S = 0.01
TICK_MAX = 500
BACK_OFF_S = 0.05
STOP_S = 5.0  # for the last confirms


class AmqpWay(threading.Thread):
    """pika's callbacks all run in this thread."""

    def __init__(self, shared, share):
        super().__init__(name='amqp', daemon=True)
        self.shared, self.pace = shared, Pace(shared, share)
        self.maker, self.plans = Maker(shared.config, shared.writer.run, 'amqp'), Plans(shared, 'amqp')
        self.intake = shared.config.get('intake', INTAKE)
        self.parameters = pika.URLParameters(shared.config['amqp_url'])
        self.parameters.heartbeat, self.parameters.socket_timeout, self.parameters.stack_timeout = 5, 3, 5
        self.connection = self.channel = self.job = None
        self.ready = self.blocked = False
        self.unconfirmed = collections.OrderedDict()  # delivery tag: message
        self.returned = set()                         # refs that came back: their acks mean nothing
        self.tag = 0

    def run(self):
        while not self.shared.stopping.is_set():
            self.shared.doing['amqp'] = 'connecting'
            self.connection = pika.SelectConnection(
                self.parameters, self.on_open, lambda c, _error: c.ioloop.stop(), lambda c, _reason: c.ioloop.stop())
            try:
                self.connection.ioloop.start()
            except (pika.exceptions.AMQPError, OSError) as e:
                self.shared.doing['amqp'] = type(e).__name__
            self.forget()
            self.connection.ioloop.close()
            self.shared.stopping.wait(BACK_OFF_S)

    def forget(self):
        """The connection is gone."""
        self.ready = self.blocked = False
        self.shared.answer('amqp', [m.unknown('connection') for m in self.unconfirmed.values()])
        self.unconfirmed.clear()
        self.returned.clear()

    # --- the connection ----------------------------------------------------------------------------------------------
    def on_open(self, connection):
        connection.add_on_connection_blocked_callback(lambda *_: setattr(self, 'blocked', True))
        connection.add_on_connection_unblocked_callback(lambda *_: setattr(self, 'blocked', False))
        connection.channel(on_open_callback=self.on_channel)
        connection.ioloop.call_later(TICK_S, self.tick)

    def on_channel(self, channel):
        self.channel, self.tag = channel, 0
        channel.add_on_close_callback(self.on_channel_closed)
        channel.add_on_return_callback(self.on_return)
        channel.confirm_delivery(self.on_confirm, callback=lambda _: setattr(self, 'ready', True))

    def on_channel_closed(self, _channel, _reason):
        self.ready = False
        if self.connection.is_open:
            self.connection.close()

    def tick(self):
        if self.shared.stopping.is_set():
            self.stop()
            return
        self.shared.doing['amqp'] = self.what_next()
        if self.shared.doing['amqp'] == 'sending':
            self.send()
        self.connection.ioloop.call_later(TICK_S, self.tick)

    def what_next(self):
        self.job = self.job or self.shared.next_job('amqp')
        if not self.ready:
            return 'connecting'
        if self.blocked:
            return 'blocked'
        if not self.shared.amqp_on or (self.shared.paused and not self.job):
            return 'paused'
        return 'sending' if len(self.unconfirmed) < UNCONFIRMED_MAX else 'waiting for confirms'

    def stop(self, until=None):
        until = until or time.monotonic() + STOP_S
        if self.ready and self.unconfirmed and time.monotonic() < until:
            self.connection.ioloop.call_later(TICK_S, lambda: self.stop(until))
        elif self.connection.is_open:
            self.connection.close()
            self.connection.ioloop.call_later(1, self.connection.ioloop.stop)
        else:
            self.connection.ioloop.stop()

    # --- messages ----------------------------------------------------------------------------------------------------
    def next_messages(self):
        if self.job:
            job, count = self.job, min(TICK_MAX, self.job.left)
            messages = [self.maker.due_between(job.from_ms, job.to_ms, binary=True) for _ in range(count)]
            self.shared.job_done(job, count)
            self.job = job if job.left > 0 else None
            return messages
        messages = [self.maker.mixed(binary=True) for _ in range(self.pace.take(TICK_MAX))]
        for m in messages:
            if self.maker.rng.random() < 0.25:
                self.maker.give_key(m)
        return messages

    def properties(self, m):
        rng = self.maker.rng
        headers = {}
        if m.delay_ms is None:
            headers['x-postdate-at'] = m.due_ms
        else:
            headers['x-delay' if rng.random() < 0.8 else 'x-opt-delivery-delay'] = m.delay_ms
        if m.exchange != 'postdate.delivery':
            headers['x-postdate-exchange'] = m.exchange
        if m.key is not None:
            headers['x-postdate-key'] = m.key
        # What the broker delivers to the intake again is recognised by its message-id.
        return pika.BasicProperties(headers=headers, delivery_mode=2, message_id=m.ref)

    def send(self):
        messages = self.next_messages()
        if not messages:
            return
        self.shared.attempt(messages)
        for m in messages:
            self.tag += 1
            self.unconfirmed[self.tag] = m
        try:
            for m in messages:
                self.channel.basic_publish(self.intake, m.routing_key, m.body, self.properties(m), mandatory=True)
        except pika.exceptions.AMQPError:
            pass  # it closes: all that is unconfirmed becomes unknown

    def on_return(self, _channel, _method, _properties, body):
        ref, _ = record.read_body(body)
        self.returned.add(ref)

    def on_confirm(self, frame):
        method, lines = frame.method, []
        tags = [method.delivery_tag]
        if method.multiple:
            tags = [t for t in self.unconfirmed if t <= method.delivery_tag]
        for tag in tags:
            m = self.unconfirmed.pop(tag, None)
            if m is not None:
                lines.append(self.outcome(m, isinstance(method, pika.spec.Basic.Ack)))
        self.shared.answer('amqp', lines)

    def outcome(self, m, is_ack):
        if m.ref in self.returned:
            self.returned.discard(m.ref)
            return m.refused('returned')
        if not is_ack:
            return m.unknown('nack')
        if m.key is not None:
            self.plans.make(m)
        return m.accepted()
