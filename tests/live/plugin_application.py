#!/usr/bin/env python3
"""An application of the delayed-message plugin, a process of its own that knows nothing of Postdate: it declares an exchange of each kind,
publishes with confirms, for which it does not wait one by one, and consumes. A connection that ends is made anew, and what was not confirmed
is sent again. Its ledger is a file, a line for what happened:
    + BODY FIRST_MS LAST_MS TRIES   confirmed; when it was to come at the earliest, by its first try and by the one that was confirmed
    - BODY AT_MS REDELIVERED        came
    ! TEXT                          a connection ended, and why
Environment: APPLICATION_URL, _LEDGER, _RATE (messages a second), _DELAYS (ms, separated by commas), _SEED, _UNTIL (seconds since 1970:
nothing is to come later than then; none: no such limit). SIGTERM: it publishes nothing new; a second one: it ends."""
import collections
import os
import random
import signal
import time

import pika
import pika.exceptions
from pika.adapters.select_connection import IOLoop

KINDS = ('direct', 'fanout', 'topic', 'headers')
AGAIN_S = 0.3
TICK_S = 0.02
UNCONFIRMED_MOST = 500  # of one exchange; 1 on a new connection, until that is confirmed
asked = []


class Ledger:
    def __init__(self, path):
        self.file = open(path, 'a', encoding='utf-8', buffering=1)

    def note(self, *words):
        print(*words, file=self.file)


class Message:
    def __init__(self, body, delay_ms):
        self.body, self.delay_ms, self.tries, self.first_ms, self.last_ms = body, delay_ms, 0, 0, 0


def now_ms():
    return int(time.time() * 1000)


class Link:
    """A connection with one channel, both made anew when they end."""

    def __init__(self, loop, url, ledger, kind):
        self.loop, self.url, self.ledger, self.kind = loop, url, ledger, kind
        self.channel = None  # where it has an exchange
        self.open()
        self.loop.call_later(TICK_S, self.tick)

    def open(self):
        parameters = pika.URLParameters(self.url)
        parameters.heartbeat = 0
        pika.SelectConnection(parameters, self.opened, self.closed, self.closed, custom_ioloop=self.loop)

    def opened(self, connection):
        connection.channel(on_open_callback=self.declare)

    def declare(self, channel):
        channel.add_on_close_callback(lambda c, why: c.connection.is_open and c.connection.close(getattr(why, 'reply_code', 200), str(why)))
        channel.exchange_declare(self.kind, 'x-delayed-message', durable=True, arguments={'x-delayed-type': self.kind}, callback=lambda _: self.use(channel))

    def closed(self, _, why):
        self.channel = None
        self.ledger.note('!', type(self).__name__, self.kind, type(why).__name__, str(why).replace('\n', ' '))
        self.loop.call_later(AGAIN_S, self.open)

    def tick(self):
        if self.channel and self.channel.is_open:
            self.work()
        self.loop.call_later(TICK_S, self.tick)


class Publisher(Link):
    def __init__(self, loop, url, ledger, kind, env):
        self.rate, self.delays = float(env['RATE']) / len(KINDS), [int(d) for d in env['DELAYS'].split(',')]
        self.until_ms, self.random = 1000 * float(env.get('UNTIL', 'inf')), random.Random(f'{env.get("SEED", "1")} {kind}')
        self.number, self.next_s, self.tag, self.most = 0, time.monotonic(), 0, 1
        self.unsent, self.unconfirmed = collections.deque(), collections.OrderedDict()
        super().__init__(loop, url, ledger, kind)

    def use(self, channel):
        self.unsent.extendleft(reversed(self.unconfirmed.values()))
        self.unconfirmed.clear()
        self.tag, self.most = 0, 1
        channel.confirm_delivery(self.confirmed, lambda _: setattr(self, 'channel', channel))

    def confirmed(self, frame):
        tag, nacked = frame.method.delivery_tag, isinstance(frame.method, pika.spec.Basic.Nack)
        for t in [t for t in self.unconfirmed if t <= tag] if frame.method.multiple else [tag]:
            m, self.most = self.unconfirmed.pop(t), UNCONFIRMED_MOST
            if nacked:
                self.unsent.append(m)
            else:
                self.ledger.note('+', m.body, m.first_ms, m.last_ms, m.tries)

    def work(self):
        self.next_s = max(self.next_s, time.monotonic() - 1)
        while not asked and self.next_s <= time.monotonic() and len(self.unsent) + len(self.unconfirmed) < UNCONFIRMED_MOST:
            left_ms = self.until_ms - now_ms()
            self.unsent.append(Message(f'{self.kind}.{self.number}', self.random.choice([d for d in self.delays if d < left_ms] or [1000])))
            self.number += 1
            self.next_s += 1 / self.rate
        while self.unsent and len(self.unconfirmed) < self.most and self.channel.is_open:
            m = self.unsent.popleft()
            m.tries, m.last_ms, self.tag = m.tries + 1, now_ms() + m.delay_ms, self.tag + 1
            m.first_ms = m.first_ms or m.last_ms
            self.unconfirmed[self.tag] = m
            self.channel.basic_publish(self.kind, 'k', m.body.encode(), pika.BasicProperties(headers={'x-delay': m.delay_ms, 'h': 1}, delivery_mode=2))


class Consumer(Link):
    taken = 0

    def use(self, channel):
        queue = 'q.' + self.kind
        self.taken = 0
        channel.basic_qos(prefetch_count=1000)
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, self.kind, 'k', {'x-match': 'any', 'h': 1},
                           callback=lambda _: channel.basic_consume(queue, self.take, callback=lambda _: setattr(self, 'channel', channel)))

    def take(self, _, method, __, body):
        self.ledger.note('-', body.decode(), now_ms(), int(method.redelivered))
        self.taken = method.delivery_tag

    def work(self):
        if self.taken:
            self.channel.basic_ack(self.taken, multiple=True)
            self.taken = 0


def main():
    env = {k[12:]: v for k, v in os.environ.items() if k.startswith('APPLICATION_')}
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    ledger, loop = Ledger(env['LEDGER']), IOLoop()
    for kind in KINDS:
        Consumer(loop, env['URL'], ledger, kind)
    # What comes before a queue is bound has no way, with the plugin as with anybody.
    loop.call_later(1, lambda: [Publisher(loop, env['URL'], ledger, kind, env) for kind in KINDS])

    def look():
        if len(asked) < 2:
            loop.call_later(0.1, look)
        else:
            loop.stop()

    look()
    loop.start()


if __name__ == '__main__':
    main()
