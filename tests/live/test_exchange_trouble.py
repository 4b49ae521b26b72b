"""Postdate's exchange type in trouble: other code under open connections, and federation and shovels into its exchanges."""
import glob
import os
import shutil
import subprocess
import threading
import time

import harness
import pika
from exchange_kit import Application
from harness import LiveTest, Stack, wait_until

PLUGINS = '/usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins'
NAMES = ('rabbitmq_shovel', 'rabbitmq_federation', 'rabbitmq_exchange_federation', 'rabbitmq_queue_federation',
         'rabbitmq_federation_common', 'rabbitmq_amqp_client', 'amqp10_client', 'amqp10_common', 'amqp_client', 'gun')  # what these depend on differs by version


class Trouble(LiveTest):
    together = 'exchange trouble'
    vhosts = 0
    weight = 120
    time_limit_s = 300

    def setUp(self):
        self.servers = Stack.own(self.addCleanup, 'trouble', None, True)
        self.servers.start()
        self.servers.make_vhosts(['here', 'there'])

    def application(self):
        self.p = harness.Place(self.servers, transport='timer')
        self.addCleanup(self.p.close, drop=False)
        return Application(self.p)

    def plugins(self, *args):
        rc, said = self.servers.rabbitmq_plugins(*args)
        self.assertEqual(rc, 0, said)

    def ctl(self, *args):
        return self.servers.rabbitmqctl(*args)

    def ask(self, erlang):
        return self.ctl('eval', erlang).strip()

    def build_next(self, to):
        """The next version's file, whose code is other code."""
        source = os.path.join(to, 'source')
        for name in ('tools', 'exchange-type'):
            os.makedirs(source, exist_ok=True)
            shutil.copytree(os.path.join(harness.ROOT, name), os.path.join(source, name))
        shutil.copy(os.path.join(harness.ROOT, 'LICENSE'), source)
        path = os.path.join(source, 'exchange-type', 'src', 'postdate_exchange.erl')
        with open(path, encoding='utf-8') as f:
            text = f.read()
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text.replace('<<"Delayed message exchange, held by Postdate">>', '<<"the next one">>'))
        subprocess.run([os.path.join(source, 'tools', 'exchange_type.sh'), os.path.join(to, 'next')], env={**os.environ, 'VERSION': '9.9.9'}, check=True,
                       stdout=subprocess.DEVNULL)
        return glob.glob(os.path.join(to, 'next', '*.ez'))[0]

    def test_other_code_under_open_connections(self):
        a = self.application()
        self.p.gateway()
        a.exchange('e', 'topic')
        for i in range(300):  # a route takes its time, so that it is under way when its code is replaced
            a.c.channel.queue_bind(a.queue('q', 'e', '#'), 'e', f'*.{i}.#.x')
        inbox = a.inbox('q')
        over, sent = threading.Event(), []
        publishers = [threading.Thread(target=self.publish, args=(over, sent, i)) for i in range(3)]
        for t in publishers:
            t.start()
        self.addCleanup(over.set)
        wait_until(lambda: len(sent) > 50, 60, 'messages to be published')
        # As RabbitMQ's operator: file away, another there, off and on.
        folder = os.path.join(self.servers.directory, 'rabbitmq', 'exchange-type')
        built = self.build_next(os.path.join(self.servers.directory, 'built'))
        before = self.ask('postdate_exchange:description().')
        os.unlink(folder)
        os.mkdir(folder)
        shutil.copy(built, folder)
        # A channel of RabbitMQ before 4.0 goes on with the type that it has used. So its code can come back while RabbitMQ takes it away, which
        # that takes for an error: who disables it is told, and asks again.
        failures = []
        for _ in range(3):
            wait_until(lambda: self.servers.rabbitmq_plugins('disable', 'postdate_exchange')[0] == 0 or failures.append(1), 60, 'it to be disabled')
            self.plugins('enable', 'postdate_exchange')
        count = len(sent)
        wait_until(lambda: len(sent) > count + 50, 60, 'more to be published')
        # As a release handler, again and again, in the middle of routes.
        load = 'M <- [postdate_exchange, postdate_exchange_message, postdate_exchange_topic], _ <- lists:seq(1, 20)'
        self.ask(f'lists:usort([{{code:soft_purge(M), element(1, code:load_file(M))}} || {load}]).')
        count = len(sent)
        wait_until(lambda: len(sent) > count + 50, 60, 'more to be published')
        over.set()
        for t in publishers:
            t.join(30)
        print(f'note exchange trouble: before {before}, then {self.ask("postdate_exchange:description().")}; {len(sent)} published, refused {len(self.lost)} times, disabling failed {len(failures)} times',
              flush=True)
        try:
            wait_until(lambda: len({m.body for m in inbox.all()}) >= len(sent), 120, 'all to arrive')
        except AssertionError:
            missing = sorted(set(sent) - {m.body for m in inbox.all()})
            self.fail(f'{len(missing)} are missing: {missing[:10]}; {self.p.counts()}')
        self.assertEqual(sorted(m.body for m in inbox.all()), sorted(sent))
        self.assertIn('the next one', self.ask('postdate_exchange:description().'))
        # A channel that publishes in the middle of it may be refused, as at any disabling; none may be killed.
        self.assertEqual({code for code in self.lost if code != 406}, set())

    lost = ()

    def publish(self, over, sent, who):
        self.lost, number, channel = [], 0, None
        while not over.is_set():
            body = b'%d.%d' % (who, number)
            try:
                if channel is None or not channel.is_open:
                    parameters = pika.URLParameters(self.p.amqp)
                    channel = pika.BlockingConnection(parameters).channel()
                    channel.confirm_delivery()
                channel.basic_publish('e', 'a.b.c', body, pika.BasicProperties(headers={'x-delay': 500} if number % 2 else {}))
                sent.append(body)
                number += 1
                time.sleep(0.002)
            except pika.exceptions.ChannelClosedByBroker as e:
                self.lost.append(e.reply_code)
                time.sleep(0.05)
            except pika.exceptions.AMQPError as e:
                self.lost.append(getattr(e, 'reply_code', repr(e)))
                channel = None

    def test_federation_and_shovels(self):
        """What is to wait is refused until a gateway serves the vhost: links and shovels keep it, and it comes once."""
        here = self.application()
        there = self.application()
        (installed,) = glob.glob(PLUGINS)
        for name in NAMES:
            for path in glob.glob(os.path.join(installed, name + '-*')):
                if not os.path.lexists(os.path.join(self.servers.directory, 'rabbitmq', 'server', 'plugins', os.path.basename(path))):
                    os.symlink(path, os.path.join(self.servers.directory, 'rabbitmq', 'server', 'plugins', os.path.basename(path)))
        self.plugins('enable', 'rabbitmq_shovel', 'rabbitmq_federation')
        here.c.channel.exchange_declare('plain', 'fanout', durable=True)
        here.queue('work', 'plain')
        there.exchange('plain', 'fanout')
        there.exchange('to', 'topic')
        there.queue('federated', 'plain')
        there.queue('shoveled', 'to', '#')
        url = here.p.amqp
        self.ctl('set_parameter', '-p', there.p.vhost, 'federation-upstream', 'up', f'{{"uri": "{url}", "reconnect-delay": 1}}')
        self.ctl('set_policy', '-p', there.p.vhost, 'fed', '^plain$', '{"federation-upstream-set": "all"}', '--apply-to', 'exchanges')
        self.ctl('set_parameter', '-p', there.p.vhost, 'shovel', 'move', f'{{"src-uri": "{url}", "src-queue": "work", "dest-uri": "{there.p.amqp}", '
                 '"dest-exchange": "to", "dest-exchange-key": "a.b", "reconnect-delay": 1, "src-prefetch-count": 10}')
        links = f'length([1 || B <- rabbit_binding:list_for_source(rabbit_misc:r(<<"{here.p.vhost}">>, exchange, <<"plain">>))]).'
        wait_until(lambda: int(self.ask(links)) >= 2, 60, 'the federation link')
        sent = harness.now_ms()
        for i in range(20):
            here.publish('plain', 'k', b'%d' % i, 1500 if i % 2 else None)
        # Refused at the first that is to wait: what was before it went through, and the rest stays where it is.
        wait_until(lambda: 'no gateway of Postdate' in self.log(), 60, 'a refusal')
        self.assertEqual(there.p.client().depth('postdate.intake.delayed'), None)
        there.p.gateway()
        for queue in ('federated', 'shoveled'):
            inbox = there.inbox(queue)
            came = {}
            wait_until(lambda: len({m.body for m in inbox.all()}) == 20, 90, f'all to come to {queue}')  # noqa: B023
            for m in inbox.all():
                came.setdefault(m.body, []).append(m)
                if int(m.body) % 2:
                    self.assertGreaterEqual(m.at_ms, sent + 1500)
                    self.assertEqual((m.headers['x-delay'], m.exchange), (-1500, 'plain' if queue == 'federated' else 'to'))
            # A link that begins again sends again what was not confirmed: that is the link's own promise.
            print(f'note exchange trouble: {queue}: {sum(len(m) - 1 for m in came.values())} second copies', flush=True)
            self.assertEqual([b for b, m in came.items() if len(m) > 1 and int(b) % 2], [])

    def log(self):
        path, = (f for f in glob.glob(os.path.join(self.servers.directory, 'rabbitmq', 'log', '*.log')) if 'upgrade' not in f)
        with open(path, encoding='utf-8', errors='replace') as f:
            return f.read()
