#!/usr/bin/env python3
"""An application of the delayed-message plugin, a process of its own that knows nothing of Postdate: it declares an exchange of each kind,
publishes with confirms, and consumes. What fails it does again over a new connection. Its ledger is a file, a line for what happened:
    + BODY FIRST_MS LAST_MS TRIES   confirmed; when it was to come at the earliest, by its first try and by the one that was confirmed
    - BODY AT_MS REDELIVERED        came
    ! TEXT                          a connection ended, and why
Environment: APPLICATION_URL, _LEDGER, _RATE (messages a second), _DELAYS (ms, separated by commas), _SEED. SIGTERM: it publishes no more;
a second one: it ends."""
import os
import random
import signal
import threading
import time

import pika
import pika.exceptions

KINDS = ('direct', 'fanout', 'topic', 'headers')
AGAIN_S = 0.3
asked = []


class Ledger:
    def __init__(self, path):
        self.lock = threading.Lock()
        self.file = open(path, 'a', encoding='utf-8', buffering=1)

    def note(self, *words):
        with self.lock:
            print(*words, file=self.file)


def now_ms():
    return int(time.time() * 1000)


def reason(e):
    return f'{type(e).__name__} {getattr(e, "reply_code", "")} {getattr(e, "reply_text", e)}'


class Link(threading.Thread):
    def __init__(self, url, ledger, kind):
        super().__init__(daemon=True)
        self.url, self.ledger, self.kind, self.connection = url, ledger, kind, None

    def open(self):
        parameters = pika.URLParameters(self.url)
        parameters.heartbeat = 0
        self.connection = pika.BlockingConnection(parameters)
        channel = self.connection.channel()
        channel.exchange_declare(self.kind, 'x-delayed-message', durable=True, arguments={'x-delayed-type': self.kind})
        return channel

    def lost(self, e):
        self.ledger.note('!', type(self).__name__, self.kind, reason(e))
        try:
            self.connection.close()
        except (pika.exceptions.AMQPError, OSError, AttributeError):
            pass
        time.sleep(AGAIN_S)


class Publisher(Link):
    def __init__(self, url, ledger, kind, rate, delays, seed):
        super().__init__(url, ledger, kind)
        self.rate, self.delays, self.random = rate, delays, random.Random(f'{seed} {kind}')

    def run(self):
        number, channel, tries, first_ms, next_s = 0, None, 0, 0, time.monotonic()
        delay = self.random.choice(self.delays)
        while not asked:
            body, at_ms = f'{self.kind}.{number}', now_ms()
            first_ms = first_ms or at_ms + delay
            tries += 1
            try:
                if channel is None:
                    channel = self.open()
                    channel.confirm_delivery()
                properties = pika.BasicProperties(headers={'x-delay': delay, 'h': 1}, delivery_mode=2)
                channel.basic_publish(self.kind, 'k', body.encode(), properties)
            except (pika.exceptions.AMQPError, OSError) as e:
                channel = None
                self.lost(e)
                continue
            self.ledger.note('+', body, first_ms, at_ms + delay, tries)
            number, tries, first_ms, delay = number + 1, 0, 0, self.random.choice(self.delays)
            next_s = max(next_s + 1 / self.rate, time.monotonic() - 1)
            time.sleep(max(0, next_s - time.monotonic()))


class Consumer(Link):
    def take(self, channel, method, properties, body):
        self.ledger.note('-', body.decode(), now_ms(), int(method.redelivered))
        channel.basic_ack(method.delivery_tag)

    def run(self):
        while len(asked) < 2:
            try:
                channel = self.open()
                channel.queue_declare('q.' + self.kind, durable=True)
                channel.queue_bind('q.' + self.kind, self.kind, 'k', {'x-match': 'any', 'h': 1})
                channel.basic_qos(prefetch_count=100)
                channel.basic_consume('q.' + self.kind, self.take)
                while len(asked) < 2:
                    self.connection.process_data_events(time_limit=0.2)
            except (pika.exceptions.AMQPError, OSError) as e:
                self.lost(e)


def main():
    env = {k[12:]: v for k, v in os.environ.items() if k.startswith('APPLICATION_')}
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    ledger = Ledger(env['LEDGER'])
    delays = [int(d) for d in env['DELAYS'].split(',')]
    for kind in KINDS:
        Consumer(env['URL'], ledger, kind).start()
    time.sleep(1)  # what comes before a queue is bound has no way, with the plugin as with anybody
    for kind in KINDS:
        Publisher(env['URL'], ledger, kind, float(env['RATE']) / len(KINDS), delays, env.get('SEED', '1')).start()
    while len(asked) < 2:
        time.sleep(0.1)
    time.sleep(0.5)


if __name__ == '__main__':
    main()
