"""What others do around Postdate's exchange type: names that are not Latin, policies, a queue that gives up, a virtual host that is deleted, and
messages that a gateway cannot take."""
import glob
import os

import pika
import pika.exceptions

from exchange_kit import INTAKE, Application, TypeServers, now_ms, wait_until
from test_auto import begin_stamping

LONG = 600_000


class TypeStrange(TypeServers):

    def broker_log(self):
        path, = (f for f in glob.glob(os.path.join(self.servers.directory, 'rabbitmq', 'log', '*.log')) if 'upgrade' not in f)
        with open(path, encoding='utf-8', errors='replace') as f:
            return f.read()

    def test_names_that_are_not_latin(self):
        """Refusals say the name, and close the channel alone; a queue that dead-letters there lives on."""
        self.p = self.place(transport='timer')
        a = Application(self.p)
        name = 'заказы.☃'
        a.exchange(name, 'fanout')
        a.exchange('e', 'fanout', arguments={'x-postdate-prefix': 'очередь'})
        a.queue('q', name)
        for exchange in (name, 'e'):
            code, text = a.refused(a.publish, exchange, 'k', b'refused', LONG)
            self.assertEqual(code, 406, text)
            self.assertIn('no queue', text)
        a.c.channel.queue_declare('смерть', durable=True, arguments={'x-dead-letter-exchange': name, 'x-message-ttl': 100})
        a.publish('', 'смерть', b'dead', LONG)
        wait_until(lambda: a.depth('смерть') == 0, 20, 'it to expire')
        a.publish('', 'смерть', b'alive', 0)
        self.assertEqual(a.c.wait_get('q').body, b'alive')
        self.assertIn('has no way', self.broker_log())  # before 4.0 RabbitMQ itself writes the name as if it were Latin
        self.p.gateway()
        sent = now_ms()
        a.publish(name, 'ключ', 'тело'.encode(), 500)
        m = a.c.wait_get('q')
        self.assert_in_time(m, sent, 500)
        self.assertEqual((m.exchange, m.routing_key), (name, 'ключ'))

    def test_policies_on_its_queue(self):
        """However few it may hold, what was confirmed arrives where it was published to; what is not kept is nacked."""
        a = self.served()
        a.exchange('e', 'direct')
        a.exchange('other', 'direct')
        a.queue('q', 'e', 'k')
        a.queue('q.other', 'other', 'k')
        for number, (policy, all_taken) in enumerate((('"max-length": 3, "overflow": "reject-publish"', False),
                                                      ('"max-length": 3, "overflow": "drop-head"', True),
                                                      ('"max-length-bytes": 300, "overflow": "drop-head"', True),
                                                      ('"message-ttl": 100', True))):
            self.assertEqual(self.g.term(), 0)
            self.servers.rabbitmqctl('set_policy', '-p', self.p.vhost, 'tight', r'^postdate\.intake\.delayed$', '{' + policy + '}', '--apply-to', 'queues')
            owed, nacked, sent = [], 0, now_ms()
            for i in range(20):
                body = b'%d.%d' % (number, i) + b'x' * 50
                try:
                    a.publish('e', 'k', body, 1500, {'x-postdate-exchange': 'other'})
                    owed.append(body)
                except pika.exceptions.NackError:
                    nacked += 1
            self.assertEqual(nacked == 0, all_taken, policy)
            self.g = self.p.gateway()
            inbox = a.inbox('q')
            came = inbox.wait(len(owed), 30)
            inbox.close()
            self.assertEqual(sorted(m.body for m in came), sorted(owed), policy)
            for m in came:
                self.assert_in_time(m, sent, 1500)
                self.assertEqual((m.exchange, m.headers['x-delay']), ('e', -1500))
                self.assertNotIn('x-death', m.headers)
        self.assertEqual((a.depth('q.other'), a.depth('postdate.rejected')), (0, 0))

    def test_a_queue_that_gives_up(self):
        """A delivery limit, by an operator: what gateways took and did not store goes the way of what expires."""
        a = self.served()
        a.exchange('e', 'direct')
        a.queue('q', 'e', 'k')
        self.assertEqual(self.g.term(), 0)
        self.servers.rabbitmqctl('set_policy', '-p', self.p.vhost, 'limit', r'^postdate\.intake\.delayed$', '{"delivery-limit": 2}', '--apply-to', 'queues')
        a.publish('e', 'k', b'given up', 1500)
        for _ in range(5):
            taker = self.p.client()
            taker.channel.basic_get(INTAKE)
            taker.close()
        wait_until(lambda: a.depth('postdate.intake.expired') == 1, 20, 'the queue to give it up')
        self.p.gateway()
        m = a.inbox('q').wait(1, 20)[0]
        self.assertEqual((m.body, m.exchange, m.headers['x-delay']), (b'given up', 'e', -1500))

    def test_what_is_too_large(self):
        """A gateway cannot take it; it is kept aside, with the reason, and what comes after it goes on."""
        a = self.served(POSTDATE_INTAKE_MAX_BODY='64KiB')
        a.exchange('e', 'direct')
        a.queue('q', 'e', 'k')
        for headers, size in (({}, 65537), ({f'h{i}': 'x' * 1000 for i in range(124)}, 1)):
            a.publish('e', 'k', b'x' * size, 300, headers)
            m = a.c.wait_get('postdate.rejected', 20)
            self.assertEqual(len(m.body), size)
            self.assertRegex(m.headers['x-postdate-error'], 'has|have')
        a.publish('e', 'k', b'fits', 300, {f'h{i}': 'x' * 1000 for i in range(110)})
        self.assertEqual(a.inbox('q').wait(1)[0].body, b'fits')

    def test_no_gateway_runs_for_a_while(self):
        """A delay counts from when a gateway reads the message, and from its publish where RabbitMQ stamps messages."""
        for stamps in (False, True):
            self.p = self.place(transport='timer')
            if stamps:
                begin_stamping(self, self.p, 'true')
            g = self.p.gateway()
            a = Application(self.p)
            a.exchange('e', 'fanout')
            a.queue('q', 'e')
            self.assertEqual(g.term(), 0)
            sent = now_ms()
            a.publish('e', 'k', b'm', 2500)
            wait_until(lambda: now_ms() > sent + 2000, 5, 'some time without a gateway')  # noqa: B023
            started = now_ms()
            self.p.gateway()
            m = a.inbox('q').wait(1)[0]
            self.assert_in_time(m, sent if stamps else started, 2500)
            if stamps:
                self.assertLess(int(self.p.value('select (extract(epoch from max(due)) * 1000)::bigint from postdate.message_now')), started + 2500)

    def test_the_virtual_host_is_deleted(self):
        """And made again: what is stored arrives when the application has declared its own things once more."""
        a = self.served(POSTDATE_RETRY_FIRST='200ms', POSTDATE_RETRY_MAX='500ms')
        ctl = self.servers.rabbitmqctl

        def topology():
            a.exchange('e', 'topic')
            a.queue('q', 'e', '#')

        topology()
        for i in range(20):
            a.publish('e', 'k', b'%d' % i, LONG)
        self.wait_counts(scheduled=20)
        ctl('delete_vhost', self.p.vhost)
        ctl('add_vhost', self.p.vhost)
        ctl('set_permissions', '-p', self.p.vhost, 'guest', '.*', '.*', '.*')
        self.assertEqual(self.p.cli('reschedule', '--exchange', 'e', '--shift=-10m')[0], 0)
        wait_until(lambda: self.p.psql("select 1 from postdate.message_now where error is not null") or self.g.process.poll() is not None, 60, 'the gateway to be back')
        a = Application(self.p)
        topology()
        self.assertEqual(sorted(int(m.body) for m in a.inbox('q').wait(20, 60)), list(range(20)))
        wait_until(lambda: a.refused(a.publish, 'e', 'k', b'again', 300) is None, 30, 'the gateway to take messages in again')
        wait_until(lambda: self.p.counts() == {'delivered': 21, 'superseded': 20}, 30, 'all to be delivered')
