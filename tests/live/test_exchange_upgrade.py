"""docs/migrate.md, "With the exchange type": from a RabbitMQ with the delayed-message plugin to another one, of version 4.3, that has Postdate's
exchange type instead, by definitions, under an application that publishes and changes nothing but the address it connects to.

POSTDATE_TEST_NEWER=/path/of/a/system names the root of a Debian with a newer RabbitMQ, as tools/matrix.sh makes them: with this checkout in
/srv/postdate, what `make deps` installs, and /proc and /dev mounted. Needs jq. Servers of that RabbitMQ run in there.
"""
import os
import re
import subprocess
import threading
import time

import pika
import pika.exceptions

import harness
from exchange_kit import KINDS, Application
from harness import LiveTest, Stack, now_ms, wait_until
from harness.servers import with_path

ROOT = os.environ.get('POSTDATE_TEST_NEWER')
VHOST = 'moved'
RATE = 100
DELAYS = (1000, 4000, 12_000, 25_000)
WAITING = ('lists:sum([proplists:get_value(messages_delayed, rabbit_exchange:info(X, [messages_delayed]), 0) || X <- rabbit_exchange:list(), '
           "element(3, X) =:= 'x-delayed-message']).")


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


class NewerServers(Stack):
    FOLDER = '/tmp/postdate-newer'

    def __init__(self):
        super().__init__(ROOT + self.FOLDER)

    def within(self, *command, check=True):
        done = subprocess.run(['chroot', ROOT, 'env', '-i', 'PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', 'HOME=/root',
                               'LANG=C.UTF-8', 'STACK_DIR=' + self.FOLDER, 'STACK_EXCHANGE_TYPE=1', *command],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=300)
        if check and done.returncode != 0:
            raise AssertionError(f'{command} failed ({done.returncode}): {done.stdout.decode()}')
        return done.stdout.decode()

    def command(self, name, check=True):
        return self.within('/srv/postdate/tools/stack.sh', name, check=check)

    def rabbitmqctl(self, *args, timeout=60):
        return self.within(self.FOLDER + '/rabbitmqctl', *args)


class ToANewerOne(LiveTest):
    vhosts = 0
    weight = 200
    time_limit_s = 900
    together = 'exchange move'

    def setUp(self):
        if not ROOT:
            self.skipTest('POSTDATE_TEST_NEWER is not set')
        self.old, self.new = Stack.own(self.addCleanup, 'older'), NewerServers()
        self.addCleanup(self.new.command, 'clean', check=False)
        self.new.start()
        self.old.start()
        self.old.need_plugin()
        self.old.make_vhosts([VHOST])
        self.p = harness.Place(self.old, transport='timer')
        self.addCleanup(self.p.close, drop=False)

    @harness.given_time
    def test_by_definitions(self):
        publisher = Publisher(self.p.amqp)
        publisher.connect()
        a = Application(self.p)
        for kind in KINDS:
            a.queue('q.' + kind, kind, 'k', {'x-match': 'any', 'h': 1})
        before = [a.inbox('q.' + kind) for kind in KINDS]
        publisher.start()
        self.addCleanup(publisher.stopped.set)
        wait_until(lambda: sum(len(i.all()) for i in before) >= 200, 120, 'the plugin to deliver')
        gateway = self.p.gateway()
        publisher.pause()
        self.import_plugin()
        self.assertEqual(gateway.term(), 0)
        wait_until(lambda: all(a.depth('q.' + kind) == 0 for kind in KINDS), 60, 'consumers to have all that is left there')
        self.take_definitions()
        publisher.url = self.p.amqp = with_path(self.new.amqp, VHOST)
        self.old.rabbitmqctl('stop_app')
        rc, said, error = self.p.cli('migrate', '--rebind')
        self.assertEqual(rc, 0, said + error)
        after = [self.p.consumer('q.' + kind) for kind in KINDS]
        self.p.gateway()
        confirmed = len(publisher.sent)
        publisher.paused.clear()
        wait_until(lambda: len(publisher.sent) > confirmed + 200, 120, 'more to be published')
        publisher.stopped.set()
        publisher.join(60)
        wait_until(lambda: sum(len(i.all()) for i in before + after) >= len(publisher.sent), 180, 'all to arrive')
        self.assertGreater(sum(m.body in self.imported for i in after for m in i.all()), 0)
        self.judge(publisher, before + after)

    def import_plugin(self):
        """What was left with the plugin it delivers itself; nothing waits in RabbitMQ then."""
        mappings = [f'--exchange={kind}={kind}' for kind in KINDS]
        rc, said, error = self.p.cli('import', 'plugin', *mappings, '--margin', '5s', '--rabbitmqctl', os.path.join(self.old.directory, 'rabbitmqctl'), timeout=120)
        self.assertEqual(rc, 0, said + error)
        wait_until(lambda: int(self.old.rabbitmqctl('eval', WAITING)) == 0, 60, 'the plugin to deliver what was due within the margin')
        self.imported = {bytes.fromhex(row[0][2:]) for row in self.p.psql('select body from postdate.message_now')}

    def take_definitions(self):
        """What the page does with them between the two commands, word for word."""
        with open(os.path.join(harness.ROOT, 'docs', 'migrate.md'), encoding='utf-8') as f:
            without = re.search(r"^ +(jq '[^']*' all.json >definitions.json)$", f.read(), re.M)[1]
        self.old.rabbitmqctl('export_definitions', os.path.join(self.old.directory, 'all.json'))
        subprocess.run(['sh', '-euc', without], cwd=self.old.directory, check=True, timeout=60)
        with open(os.path.join(self.old.directory, 'definitions.json'), 'rb') as f, open(ROOT + '/tmp/definitions.json', 'wb') as to:
            to.write(f.read())
        self.new.rabbitmqctl('import_definitions', '/tmp/definitions.json')
        names = self.new.rabbitmqctl('list_exchanges', '-q', '-p', VHOST, 'name', 'type')
        for kind in KINDS:
            self.assertIn(f'{kind}\tx-delayed-message', names)

    def judge(self, publisher, inboxes):
        came = [m for i in inboxes for m in i.all()]
        print(f'note exchange move: {len(publisher.sent)} confirmed, {len(came)} arrived, {len(publisher.again)} sent again, '
              f'{publisher.connections} connections, {len(self.p.psql("select 1 from postdate.message_now"))} by Postdate', flush=True)
        self.assertEqual(sorted({m.body for m in came}), sorted(publisher.sent))
        doubled = len(came) - len(publisher.sent)
        self.assertLessEqual(doubled, len(publisher.again))
        for m in came:
            self.assertGreaterEqual(m.at_ms, publisher.sent[m.body] - (200 if m.body in publisher.again else 0), f'{m.body!r} was early')
