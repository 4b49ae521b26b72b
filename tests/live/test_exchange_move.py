"""docs/migrate.md, "Nothing changes": from the delayed-message plugin (or its double) to Postdate's exchange type, and back, under an application
that publishes all the time and changes nothing; each message arrives once, at its time, by a ledger of its own."""
import os
import threading
import time

import pika
import pika.exceptions

import harness
from exchange_kit import KINDS, Application
from harness import LiveTest, Stack, now_ms, wait_until

PLUGIN, TYPE = 'rabbitmq_delayed_message_exchange', 'postdate_exchange'
MODULE = "element(2, rabbit_registry:lookup_module(exchange, 'x-delayed-message'))."
RATE = 100
DELAYS = (1000, 4000, 12_000, 25_000)


class Publisher(threading.Thread):
    """It knows the plugin's exchanges alone. What is not confirmed it sends again, over a new connection if need be, under the same body;
    it notes what was confirmed, and when it was sent for the first and the last time."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self.url, self.stopped, self.paused, self.resting = url, threading.Event(), threading.Event(), threading.Event()
        self.sent = {}
        self.again, self.connections = set(), 0

    def connect(self):
        parameters = pika.URLParameters(self.url)
        parameters.heartbeat = 0
        self.connections += 1
        channel = pika.BlockingConnection(parameters).channel()
        channel.confirm_delivery()
        for kind in KINDS:
            channel.exchange_declare(kind, 'x-delayed-message', durable=True, arguments={'x-delayed-type': kind})
        return channel

    def run(self):
        number, channel = 0, None
        while not self.stopped.is_set():
            if self.paused.is_set():
                self.resting.set()
                time.sleep(0.02)
                continue
            kind, delay = KINDS[number % 4], DELAYS[number // 4 % 4]
            body, at_ms = b'%s %d' % (kind.encode(), number), now_ms()
            try:
                channel = channel or self.connect()
                channel.basic_publish(kind, 'k', body, pika.BasicProperties(headers={'x-delay': delay, 'h': 1}, delivery_mode=2))
                self.sent[body] = at_ms + delay
                number += 1
                time.sleep(1 / RATE)
            except (pika.exceptions.AMQPError, OSError):
                self.again.add(body)
                channel = None
                time.sleep(0.2)

    def pause(self):
        self.resting.clear()
        self.paused.set()
        self.resting.wait(30)


class Move(LiveTest):
    vhosts = 0
    weight = 150
    time_limit_s = 600
    together = 'exchange move'

    def setUp(self):
        self.servers = Stack.own(self.addCleanup, 'move', None, 'file')
        self.servers.start()
        self.servers.need_plugin()
        self.servers.make_vhosts(['move'])
        self.p = harness.Place(self.servers, transport='ttl')
        self.addCleanup(self.p.close, drop=False)

    def plugins(self, *args):
        rc, said = self.servers.rabbitmq_plugins(*args)
        self.assertEqual(rc, 0, said)
        return said

    @harness.given_time
    def test_there_and_back(self):
        a = Application(self.p)
        publisher = Publisher(self.p.amqp)
        publisher.connect()
        for kind in KINDS:
            a.queue('q.' + kind, kind, 'k', {'x-match': 'any', 'h': 1})
        inboxes = [a.inbox('q.' + kind) for kind in KINDS]
        publisher.start()
        self.addCleanup(publisher.stopped.set)
        wait_until(lambda: sum(len(i.all()) for i in inboxes) >= 50, 60, 'the plugin to deliver')
        g = self.p.gateway()
        self.there(publisher, g)
        before = len(publisher.sent)
        wait_until(lambda: len(publisher.sent) > before + 300, 60, 'more to be published')
        wait_until(lambda: self.p.counts().get('scheduled', 0) + self.p.counts().get('handed', 0) > 100, 30, 'the gateway to have some')
        self.back(publisher)
        wait_until(lambda: len(publisher.sent) > before + 400, 60, 'more to be published')
        publisher.stopped.set()
        publisher.join(30)
        wait_until(lambda: sum(len(i.all()) for i in inboxes) >= len(publisher.sent), 120, 'all to arrive')
        self.judge(publisher, inboxes)

    def there(self, publisher, g):
        publisher.pause()
        mappings = [f'--exchange={kind}={kind}' for kind in KINDS]
        rc, said, error = self.p.cli('import', 'plugin', *mappings, '--margin', '10s', '--rabbitmqctl', os.path.join(self.servers.directory, 'rabbitmqctl'), timeout=120)
        self.assertEqual(rc, 0, said + error)
        count = ('lists:sum([proplists:get_value(messages_delayed, rabbit_exchange:info(X, [messages_delayed]), 0) || X <- rabbit_exchange:list(), '
                 'element(3, X) =:= \'x-delayed-message\']).')
        wait_until(lambda: int(self.servers.rabbitmqctl('eval', count)) == 0, 60, 'the plugin to deliver what was due within the margin')
        self.plugins('disable', PLUGIN)
        self.plugins('enable', TYPE)
        self.assertIn('postdate_exchange', self.servers.rabbitmqctl('eval', MODULE))
        publisher.paused.clear()

    def back(self, publisher):
        publisher.pause()
        self.plugins('disable', TYPE)
        self.plugins('enable', PLUGIN)
        publisher.paused.clear()

    def judge(self, publisher, inboxes):
        came = [m for i in inboxes for m in i.all()]
        print(f'note exchange move: {len(publisher.sent)} confirmed, {len(came)} arrived, {len(publisher.again)} sent again, '
              f'{publisher.connections} connections, {len(self.p.psql("select 1 from postdate.message_now"))} by Postdate', flush=True)
        self.assertEqual(sorted({m.body for m in came}), sorted(publisher.sent))
        doubled = len(came) - len(publisher.sent)
        self.assertLessEqual(doubled, len(publisher.again))
        for m in came:
            self.assertGreaterEqual(m.at_ms, publisher.sent[m.body] - (200 if m.body in publisher.again else 0), f'{m.body!r} was early')

    def test_both_enabled(self):
        """Whoever enables it beside the plugin is told, and the plugin stays in charge, also at the next boot."""
        before = self.servers.rabbitmqctl('eval', MODULE)
        rc, said = self.servers.rabbitmq_plugins('enable', TYPE)
        self.assertNotEqual(rc, 0, said)
        self.assertEqual(self.servers.rabbitmqctl('eval', MODULE), before)
        self.plugins('disable', TYPE)
        self.assertEqual(self.servers.rabbitmqctl('eval', MODULE), before)
