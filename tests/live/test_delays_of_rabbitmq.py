"""RabbitMQ 4.4 keeps what has x-opt-delivery-time in a quorum queue until then. Where a broker says that it is one, such
messages take another way to the gateway. Here the broker says so and is what the stack has; with 4.4 itself the same
tests hold, and test_due_time shows that nothing waits in the intake."""
import os
import subprocess

from doctor_kit import Doctor
from harness import BIN_DIR, DIE_WITH_PARENT, now_ms, wait_until
from watcher import Watcher

HOUR_MS = 3_600_000
SAID = 'itself delays messages with the header x-opt-delivery-time'


class Front(Doctor):
    def begin(self, version='4.4.0'):
        self.p = self.place()
        self.watcher = Watcher(self.p.amqp, version)
        self.addCleanup(self.watcher.close)
        self.c = self.p.client()

    def gateway(self, **env):
        return self.p.gateway(**{'POSTDATE_AMQP_URL': self.watcher.url, 'POSTDATE_ROUTE': 'orders.delayed=orders', **env})

    def depths(self):
        return {q: self.c.depth('postdate.intake' + q) for q in ('', '.timed', '.expired')}

    def rows(self):
        return int(self.p.value('select count(*) from postdate.messages'))

    def test_what_has_the_header_goes_by_a_classic_queue(self):
        self.begin()
        g = self.gateway()
        g.wait_log(SAID)
        self.watcher.cut()
        due = now_ms() + HOUR_MS
        self.c.publish('k', b'timed', {'x-opt-delivery-time': due})
        self.c.publish('k', b'text', {'x-opt-delivery-time': str(due)})
        self.c.publish('k', b'at', {'x-postdate-at': due})
        self.c.publish('k', b'route', {'x-opt-delivery-time': due}, exchange='orders.delayed')
        wait_until(lambda: self.rows() == 4, 10, 'all to be stored')
        self.assertEqual(self.p.psql("select distinct exchange from postdate.messages where convert_from(body, 'UTF8') = 'route'"),
                         [['orders']])
        self.assertEqual(g.log().count(SAID), 1, 'it is said once')
        self.assertEqual(g.term(), 0)
        for exchange in ('postdate', 'orders.delayed'):
            self.c.publish('k', b'1', {'x-opt-delivery-time': due}, exchange=exchange)
            self.c.publish('k', b'2', {'x-delay': HOUR_MS}, exchange=exchange)
        # The poison of a far too large number comes nowhere near the quorum queue.
        self.c.publish('k', b'3', {'x-opt-delivery-time': due * 1000})
        wait_until(lambda: self.depths() == {'': 2, '.timed': 3, '.expired': 0}, 10, 'two and three')
        self.gateway()
        wait_until(lambda: self.rows() == 8, 10, 'each of them to be stored once')
        self.assertEqual(self.c.wait_get('postdate.rejected').body, b'3')
        wait_until(lambda: set(self.depths().values()) == {0}, 10, 'the queues to be empty')

    def test_what_expires_there_is_what_it_was(self):
        self.begin()
        self.c.channel.exchange_declare('orders', durable=True)
        inbox = self.p.consumer('q', bind='k', exchange='orders')
        self.assertEqual(self.gateway().term(), 0)
        due = now_ms() + 3000
        self.c.publish('k', b'short', {'x-opt-delivery-time': due, 'CC': ['other']}, exchange='orders.delayed', expiration='50')
        wait_until(lambda: self.depths()['.expired'] == 1, 10, 'it to expire')
        self.gateway()
        m = inbox.wait(1)[0]
        self.assertEqual((m.body, m.due_ms, m.routing_key), (b'short', due, 'k'))
        self.assertNotIn('x-death', m.headers)
        self.assertEqual(m.properties.expiration, '50')

    def test_an_upgrade_loses_nothing(self):
        """The queue keeps what is in it; the intake exchanges change their way."""
        self.begin('4.3.6')
        g = self.gateway()
        self.assertIsNone(self.c.depth('postdate.intake.timed'))
        self.assertEqual(g.term(), 0)
        self.assertNotIn(SAID, g.log())
        self.c = self.p.client()
        self.c.publish('k', b'old', {'x-delay': HOUR_MS})
        self.watcher.version = b'4.4.0'
        self.gateway()
        self.c.publish('k', b'new', {'x-opt-delivery-time': now_ms() + HOUR_MS})
        wait_until(lambda: self.rows() == 2, 10, 'both to be stored')
        # Back again, as while a cluster is upgraded: the gateway at an old node, then at a new one.
        self.watcher.version = b'4.3.6'
        self.watcher.cut()
        self.c.publish('k', b'between', {'x-delay': HOUR_MS})
        wait_until(lambda: self.rows() == 3, 20, 'it to be stored once')

    def test_several_intake_queues_go_on_through_an_upgrade(self):
        several = {'POSTDATE_INTAKE_QUEUES': 3}
        self.begin('4.3.6')
        sent = 0
        for turn, version in enumerate(('4.3.6', '4.4.0', '4.3.6', '4.4.0')):
            self.watcher.version = version.encode()
            self.assertEqual(self.gateway(**several).term(), 0)
            for i in range(10):
                for exchange in ('postdate', 'orders.delayed'):
                    self.c.publish('k', b'plain', {'x-delay': HOUR_MS}, exchange=exchange, mandatory=True)
                    sent += 1
                    if turn != 2:  # back at an old node: with the header, it takes both ways until a new one is asked again
                        self.c.publish('k', b'timed', {'x-opt-delivery-time': now_ms() + HOUR_MS}, exchange=exchange, mandatory=True)
                        sent += 1
        plain = [self.c.depth('postdate.intake' + q) for q in ('', '.2', '.3')]
        self.assertTrue(all(plain), plain)
        self.gateway(**several)
        wait_until(lambda: sum(self.c.depth('postdate.intake' + q) for q in ('', '.2', '.3', '.timed')) == 0, 20, 'all to be read')
        wait_until(lambda: self.rows() >= sent, 20, 'all to be stored')
        self.assertEqual(self.rows(), sent)

    def test_once_reads_it_too(self):
        self.begin()
        self.assertEqual(self.gateway().term(), 0)
        self.c.publish('k', b'1', {'x-opt-delivery-time': now_ms() + HOUR_MS})
        env = self.p.env(POSTDATE_AMQP_URL=self.watcher.url)
        done = subprocess.run([*DIE_WITH_PARENT, os.path.join(BIN_DIR, 'postdated'), '--once'], env=env, capture_output=True, timeout=60)
        self.assertEqual((done.returncode, self.rows()), (0, 1), done.stderr)

    def test_doctor(self):
        self.begin()
        self.gateway()
        self.p.consumer('q', bind='k')
        admin = os.path.join(self.p.stack.directory, 'rabbitmqctl')
        url = {'POSTDATE_AMQP_URL': self.watcher.url}
        found = self.doctor(self.p, '--rabbitmqctl', admin, **url)
        self.assert_finding(found, 'broker.delays', 'warn', "RabbitMQ 4.4.0 itself delays", 'x-postdate-at')
        self.assert_ok(found, 'broker.bindings', 'broker.topology', 'broker.permissions')
        self.watcher.version = b'4.3.6'
        self.assert_ok(self.doctor(self.p, **url), 'broker.delays')
