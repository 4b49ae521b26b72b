"""Consumers written with other people's clients, which know nothing of Postdate: what they refuse comes back to them.

Each consumer is a file of docs/examples: a message is a URL to call, and a call that fails is a message refused. The
server that is called here fails three times. Clients are installed once, under build/examples; where that cannot be, or
the language is missing, the test is skipped with the reason.
"""
import http.server
import json
import os
import shutil
import subprocess
import threading
import time

import harness
from examples import installed, run
from harness import LiveTest, wait_until
from test_examples import EXAMPLES, GO_MOD, POM, source

SPRING_POM = POM.replace('com.rabbitmq', 'org.springframework.amqp').replace('amqp-client', 'spring-rabbit').replace('5.22.0', '3.2.8')
QUORUM_POLICY = {'dead-letter-exchange': 'postdate.retry', 'dead-letter-strategy': 'at-least-once', 'overflow': 'reject-publish'}
CLASSIC_POLICY = {'dead-letter-exchange': 'postdate.retry'}


class FailingServer:
    """Answers 503 to the first three calls, then 200; notes when each came."""

    def __init__(self):
        calls = self.calls = []

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                calls.append(time.time() * 1000)
                self.send_response(503 if len(calls) <= 3 else 200)
                self.send_header('Content-Length', '0')
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.server.daemon_threads = True
        self.url = 'http://127.0.0.1:%d/paid' % self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@harness.not_san  # the clients are no programs of ours
class RetryClients(LiveTest):
    time_limit_s = 300  # with the installation

    def setUp(self):
        super().setUp()
        self.server = FailingServer()
        self.addCleanup(self.server.close)

    def need(self, *programs):
        for program in programs:
            if not shutil.which(program):
                self.skipTest(f'{program} is not installed')

    def prepare(self, kind='quorum', waits=('--first', '200ms', '--jitter', '0'), declare=True, **more):
        """A gateway, and a queue that a policy of RabbitMQ's makes dead-letter to it."""
        self.p = self.place()
        self.p.gateway()
        self.c = self.p.client()
        if declare:
            self.c.queue('shop.webhooks', arguments={'x-queue-type': kind, **more})
        policy = QUORUM_POLICY if kind == 'quorum' else CLASSIC_POLICY
        self.p.stack.rabbitmqctl('set_policy', '-p', self.p.vhost, '--apply-to', 'queues', 'retry', r'^shop\.webhooks$', json.dumps(policy))
        self.p.run('retry-policy', 'set', 'shop.webhooks', '--attempts', '5', *waits)

    def consume(self, command, folder=None):
        consumer = subprocess.Popen([*harness.DIE_WITH_PARENT, *command], cwd=folder, env=self.p.env(AMQP_URL=self.p.amqp), stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.p.children.append(consumer)
        lines = []
        threading.Thread(target=lambda: lines.extend(consumer.stdout), daemon=True).start()
        return lines

    def called(self, lines, waits_ms=(200, 400, 800), spread=0.0, late_ms=2500):
        """Four times, after these waits; then the queue is empty, and nothing else is on its way."""
        calls = self.server.calls
        try:
            wait_until(lambda: len(calls) == 4, 30, 'four calls')
        except AssertionError as why:
            raise AssertionError(f'{why}: {len(calls)} came; ' + b''.join(lines[-20:]).decode(errors='replace')) from None
        waits = [b - a for a, b in zip(calls, calls[1:])]
        for wait, least in zip(waits, waits_ms):
            self.assertTrue(least * (1 - spread) <= wait <= least * (1 + spread) + late_ms * harness.slowness(), waits)
        wait_until(lambda: self.p.value("select count(*) from postdate.message_now where state <> 'delivered'") == '0', 10, 'all to be settled')
        self.assertEqual(self.p.value('select count(*) from postdate.lineage where died_at is not null'), '0')
        wait_until(lambda: self.c.depth('shop.webhooks') == 0, 10, 'an empty queue')
        return waits

    def pika(self, kind):
        """As the page shows it: half a second, one and two, each 10 % more or less; another queue with the same binding
        gets one."""
        self.prepare(kind, ('--first', '500ms'))
        self.c.channel.exchange_declare('shop', 'topic')
        self.c.channel.queue_bind('shop.webhooks', 'shop', 'order.paid')
        self.c.queue('audit', bind='order.paid', exchange='shop')
        lines = self.consume(['/usr/bin/python3', os.path.join(EXAMPLES, 'retry.py')])
        self.c.publish('order.paid', self.server.url.encode(), exchange='shop')
        waits = self.called(lines, (500, 1000, 2000), 0.1, 1000)
        print(f'note pika, {kind}: came back after', ', '.join('%.0f ms' % w for w in waits), flush=True)
        self.assertEqual(self.c.depth('audit'), 1)

    def test_pika_classic(self):
        self.pika('classic')

    def test_pika_quorum(self):
        self.pika('quorum')

    def test_amqplib(self):
        self.need('node', 'npm')
        folder = installed(self, 'node', {'package.json': '{"private": true}\n'},
                           ['npm', 'install', '--no-audit', '--no-fund', '--fetch-retries=0', '--ignore-scripts', 'amqplib@0.10.9'])
        shutil.copy(os.path.join(EXAMPLES, 'retry.js'), folder)
        self.prepare()
        lines = self.consume(['node', 'retry.js'], folder)
        self.c.publish('shop.webhooks', self.server.url.encode(), exchange='')
        self.called(lines)

    def test_amqp091_go(self):
        self.need('go')
        folder = installed(self, 'go-retry', {'retry.go': source('retry.go'), 'go.mod': GO_MOD},
                           ['go', 'get', 'github.com/rabbitmq/amqp091-go@v1.10.0'], ['go', 'build', '-o', 'retry', '.'])
        self.prepare()
        lines = self.consume(['./retry'], folder)
        self.c.publish('shop.webhooks', self.server.url.encode(), exchange='')
        self.called(lines)

    def test_spring_amqp(self):
        """Also what Spring cannot convert, and by default discards when it comes back with an x-death header."""
        self.need('java', 'javac', 'mvn')
        folder = installed(self, 'spring', {'pom.xml': SPRING_POM, 'Retry.java': source('Retry.java')},
                           ['mvn', '-q', '-B', 'dependency:copy-dependencies', '-DoutputDirectory=lib'],
                           ['javac', '-parameters', '-cp', 'lib/*', 'Retry.java'])
        self.prepare()
        lines = self.consume(['java', '-cp', 'lib/*:.', 'Retry'], folder)
        self.c.publish('shop.webhooks', self.server.url.encode(), exchange='')
        self.called(lines)
        self.p.psql("select postdate.retry_policy_set('shop.webhooks', 3, '50 ms', 1, '1 s', 0)")
        self.c.publish('shop.webhooks', b'no Java', exchange='', content_type='application/x-java-serialized-object')
        wait_until(lambda: self.p.psql('select reason, failed from postdate.lineage where died_at is not null') == [['rejected', '3']], 20,
                   'what cannot be converted to be a dead letter')

    def test_celery(self):
        """The task's queue is one that Celery declares."""
        folder = installed(self, 'celery', {}, ['/usr/bin/python3', '-m', 'venv', 'venv'],
                           ['venv/bin/pip', 'install', '-q', '--disable-pip-version-check', '--retries', '0', 'celery==5.6.3'])
        shutil.copy(os.path.join(EXAMPLES, 'retry_celery.py'), folder)
        self.prepare('classic', declare=False)
        lines = self.consume(['venv/bin/celery', '-A', 'retry_celery', 'worker', '--pool', 'solo'], folder)
        code, out = run(['venv/bin/python', '-c', f'import retry_celery; retry_celery.call.delay("{self.server.url}")'], folder, self.p.env(AMQP_URL=self.p.amqp))
        self.assertEqual(code, 0, out)
        self.called(lines)

    def test_what_masstransit_does(self):
        """MassTransit has no package here: it gives back what fails with requeue, which a delivery limit of 0 turns into a
        dead letter, up to RabbitMQ 4.2."""
        self.prepare(**{'x-delivery-limit': 0})
        version = self.c.connection._impl.server_properties['version']
        version = version.decode() if isinstance(version, bytes) else version
        if tuple(map(int, version.split('.')[:2])) >= (4, 3):
            self.skipTest(f'RabbitMQ {version} does not count what is given back with requeue')
        attempts = []

        def on_message(channel, method, properties, _body):
            attempts.append((properties.headers or {}).get('x-postdate-attempt', 1))
            if len(attempts) < 4:
                channel.basic_nack(method.delivery_tag, requeue=True)
            else:
                channel.basic_ack(method.delivery_tag)
        self.c.channel.basic_consume('shop.webhooks', on_message)
        self.c.publish('shop.webhooks', b'x', exchange='')
        began = time.monotonic()
        while len(attempts) < 4 and time.monotonic() < began + 30:
            self.c.connection.process_data_events(0.05)
        self.assertEqual(attempts, [1, 2, 3, 4])
        self.assertGreaterEqual(time.monotonic() - began, 1.4)
