"""Clients of other languages, as people use them with the delayed-message plugin (tests/clients), unchanged with Postdate's exchange type:
each checks that what has x-delay is not early, and that nothing is returned. Skipped by name where its runtime or package is missing."""
import os
import shutil
import sys

import harness
from examples import installed, run
from exchange_kit import TypeServers, now_ms, wait_until
from wire import Wire

FOLDER = os.path.join(harness.ROOT, 'tests', 'clients')
NPM = ['npm', 'install', '--no-audit', '--no-fund', '--fetch-retries=0', '--ignore-scripts']


def source(name):
    with open(os.path.join(FOLDER, name), encoding='utf-8') as f:
        return f.read()


class TypeClients(TypeServers):
    time_limit_s = 400

    def need(self, *programs):
        for program in programs:
            if shutil.which(program) is None:
                self.skipTest(f'{program} is not installed')

    def check(self, *command):
        """It gets the URL, and the name of an exchange of its own."""
        self.served()
        code, said = run([*command, self.p.amqp, 'orders'], limit_s=60)
        print(f'note exchange clients: {self.id().rsplit("_", 1)[1]}: {said.strip()}', flush=True)
        self.assertEqual(code, 0, said)
        wait_until(lambda: self.p.psql('select distinct state from postdate.message_now') == [['delivered']], 10, 'what waited to be delivered, by Postdate')

    def node(self, name, *packages):
        self.need('node', 'npm')
        folder = installed(self, 'exchange-' + name, {name + '.js': source(name + '.js'), 'package.json': '{"name": "x", "private": true}'}, [*NPM, *packages])
        self.check('node', os.path.join(folder, name + '.js'))

    def test_amqplib(self):
        self.node('amqplib', 'amqplib@0.10.9')

    def test_nestjs(self):
        self.node('nestjs', 'amqplib@0.10.9', '@golevelup/nestjs-rabbitmq@9.0.2', '@nestjs/core@11', '@nestjs/common@11', 'reflect-metadata', 'rxjs@7')

    def test_celery(self):
        folder = installed(self, 'exchange-celery', {}, [sys.executable, '-m', 'venv', 'env'], ['env/bin/pip', '-q', 'install', 'kombu==5.7.0', 'celery==5.7.0'])
        self.check(os.path.join(folder, 'env', 'bin', 'python'), os.path.join(FOLDER, 'kombu_celery.py'))

    def test_go(self):
        self.need('go')
        folder = installed(self, 'exchange-go', {'main.go': source('amqp091.go')}, ['go', 'mod', 'init', 'x'],
                           ['go', 'get', 'github.com/rabbitmq/amqp091-go@v1.10.0'], ['go', 'build', '-o', 'client', '.'])
        self.check(os.path.join(folder, 'client'))

    def test_spring(self):
        self.need('java', 'javac', 'mvn')
        folder = installed(self, 'exchange-spring', {'pom.xml': source('spring.xml'), 'Main.java': source('Main.java')},
                           ['mvn', '-q', '-B', 'dependency:copy-dependencies', '-DoutputDirectory=lib'], ['javac', '-cp', 'lib/*', 'Main.java'])
        self.check('java', '-cp', f'{folder}:{folder}/lib/*', 'Main')


class Topologies(TypeServers):
    """What bigger libraries declare and publish, by their sources, frame by frame."""

    def publish(self, a, exchange, key, delay, **options):
        sent = now_ms()
        a.publish(exchange, key, b'later', delay, **options)
        return sent

    def assert_came(self, a, queue, exchange, sent):
        m, = a.inbox(queue).wait(1)
        self.assert_in_time(m, sent, 1200)
        self.assertEqual((m.exchange, m.headers['x-delay']), (exchange, -1200))
        self.wait_counts(delivered=1)

    def test_masstransit(self):
        """NAME_delay of the inner type fanout leads to the endpoint's exchange; what is temporary is auto-deleted, and not durable."""
        for name, options in (('endpoint', {'durable': True}), ('temporary', {'durable': False, 'auto_delete': True})):
            a = self.served()
            c = a.c.channel
            c.exchange_declare(name, 'fanout', **options)
            c.queue_declare(name, **options)
            c.queue_bind(name, name, '')
            inbox = a.inbox(name)
            c.exchange_declare(name + '_delay', 'x-delayed-message', arguments={'x-delayed-type': 'fanout'}, **options)
            c.exchange_declare(name, 'fanout', **options)
            c.exchange_bind(name, name + '_delay', '')
            sent = self.publish(a, name + '_delay', '', Wire('l', 1200), expiration='60000')
            m, = inbox.wait(1)
            self.assert_in_time(m, sent, 1200)
            self.assertEqual((m.exchange, m.headers['x-delay'], m.properties.expiration), (name + '_delay', -1200, '60000'))
            self.wait_counts(delivered=1)

    def test_easynetq(self):
        """NAME_delayed of the inner type direct leads to the topic exchange, for each topic."""
        a = self.served()
        a.exchange('message_delayed', 'direct')
        a.c.channel.exchange_declare('message', 'topic', durable=True)
        a.c.channel.exchange_bind('message', 'message_delayed', 'eu.new')
        a.queue('subscription', 'message', 'eu.#')
        sent = self.publish(a, 'message_delayed', 'eu.new', Wire('i', 1200), priority=0)
        self.assert_came(a, 'subscription', 'message_delayed', sent)

    def test_brighter(self):
        """The one exchange, by a passive declaration too; the delay is a double."""
        a = self.served()
        a.exchange('paramore', 'direct')
        a.c.channel.exchange_declare('paramore', passive=True)
        a.queue('work', 'paramore', 'task')
        sent = self.publish(a, 'paramore', 'task', Wire('d', 1200.0), headers={'HandledCount': 0})
        self.assert_came(a, 'work', 'paramore', sent)
