"""postdate rejected: what was refused on its way in is seen, published again, or dropped."""
import json

import pika

from harness import LiveTest, wait_until
from test_auto import add_user, delete_user


class Rejected(LiveTest):
    def fill(self, p, c):
        """Four that are refused: three whose delay is no number, one too long; the reasons differ."""
        for body in (b'one', b'two', b'three'):
            c.publish('order.late', body, {'x-delay': 'soon', 'n': len(body)}, message_id=body.decode(), expiration='3600000')
        c.publish('other', b'far', {'x-delay': 10**15})
        wait_until(lambda: c.depth('postdate.rejected') == 4, 10, 'four to be refused')

    def run_it(self, p, *args, code=0):
        rc, out, err = p.cli('rejected', *args)
        self.assertEqual(rc, code, out + err)
        return out

    def test_seen_and_left_where_they_are(self):
        p = self.place()
        p.gateway()
        c = p.client()
        self.fill(p, c)
        out = self.run_it(p, 'list')
        self.assertRegex(out, r'NUMBER +ROUTING KEY +MESSAGE ID +REASON\n +1 +order.late +one +x-delay: "soon"')
        self.assertEqual(out.count('\n'), 5)
        self.assertEqual(self.run_it(p, 'list', '-k', 'order.*', '--limit', '2').count('order.late'), 2)
        self.assertEqual(self.run_it(p, 'list', '--reason', 'soon').count('order.late'), 3)
        shown = json.loads(self.run_it(p, 'show', '2', '--json'))
        self.assertEqual((shown['body'], shown['exchange'], shown['routing_key'], shown['headers']['x-delay']), ('two', 'postdate', 'order.late', 'soon'))
        self.assertRegex(self.run_it(p, 'show', '4'), r'routing key +other\n(.*\n)*body +3 bytes')
        self.run_it(p, 'show', '9', code=66)
        self.assertIn('1 of the numbers is not there', p.cli('rejected', 'show', '9')[2])
        self.assertEqual(self.run_it(p, 'drop', '--all', '--dry-run'), '4 would be dropped\n')
        wait_until(lambda: c.depth('postdate.rejected') == 4, 5, 'all to be there still')

    def test_published_again_and_dropped(self):
        """As they came: a gateway that takes them now has the same message."""
        p = self.place()
        gateway = p.gateway()
        c = p.client()
        self.fill(p, c)
        self.assertEqual(self.run_it(p, 'drop', '4'), '1 dropped\n')
        self.assertEqual(gateway.term(), 0)
        self.assertEqual(self.run_it(p, 'requeue', '2', '3'), '2 requeued\n')
        self.assertEqual((c.depth('postdate.rejected'), c.depth('postdate.intake')), (1, 2))
        got = c.wait_get('postdate.intake')
        headers = {name: value for name, value in got.properties.headers.items() if not name.endswith('-count')}  # the broker's own
        self.assertEqual((got.body, headers, got.properties.expiration, got.properties.message_id),
                         (b'two', {'x-delay': 'soon', 'n': 3}, '3600000', 'two'))
        p.gateway()
        wait_until(lambda: c.depth('postdate.rejected') >= 2, 10, 'the other one to be refused again')
        self.assertEqual(self.run_it(p, 'drop', '--reason', 'soon').split()[1], 'dropped')
        self.assertEqual(self.run_it(p, 'list'), '')

    def test_wrong_calls(self):
        p = self.place()
        for args in ((), ('frob',), ('show',), ('show', 'x'), ('show', '1', '2'), ('drop',), ('drop', '1', '--all'), ('list', '1'), ('list', '--all'),
                     ('list', '--limit', '0'), ('requeue', '0')):
            with self.subTest(args=args):
                self.run_it(p, *args, code=64)
        self.run_it(p, 'list', code=66)  # no gateway has declared the queue


class Unanswered(LiveTest):
    def test_a_rejected_queue_that_does_not_answer_keeps_no_other_message(self):
        """Its only member stands still: RabbitMQ neither takes nor refuses what is published to it."""
        p = self.place()
        p.gateway()
        inbox, c = p.consumer('q', bind='k'), p.client()
        p.eval_queue('postdate.rejected', 'sys:suspend(amqqueue:get_pid(Q)).')
        try:
            c.publish('k', b'bad', {'x-delay': 'nonsense'})
            for i in range(12):
                c.publish('k', b'%d' % i, {'x-delay': 1})
                inbox.wait_body(b'%d' % i, 5)
        finally:
            p.eval_queue('postdate.rejected', 'sys:resume(amqqueue:get_pid(Q)).')
        self.assertEqual(c.wait_get('postdate.rejected', 90).body, b'bad')


class DropTopology(LiveTest):
    def names(self, p):
        rows = [p.stack.rabbitmqctl('list_queues', '-q', '-p', p.vhost, 'name'), p.stack.rabbitmqctl('list_exchanges', '-q', '-p', p.vhost, 'name')]
        return {line for text in rows for line in text.splitlines() if line.startswith('postdate') or line == 'late'}

    def run_it(self, p, *args, code=0, **env):
        rc, out, err = p.cli('drop-topology', *args, env=env)
        self.assertEqual(rc, code, out + err)
        return out + err

    def test_all_that_gateways_declared_goes(self):
        """With each transport and last hop, and what is not empty only if that is asked for."""
        p = self.place()
        settings = {'POSTDATE_ROUTE': 'late=orders', 'POSTDATE_HANDOVER_LAST_HOP': 'broker'}
        for transport in ('ttl', 'auto'):
            gateway = p.gateway(POSTDATE_HANDOVER_TRANSPORT=transport, **settings)
            self.assertIn('stop all gateways', self.run_it(p, '--yes', code=75))
            said = self.run_it(p, code=75)
            self.assertIn('keep   queue postdate.intake: it has a consumer', said)
            self.assertIn('delete exchange postdate.owner', said)
            self.assertRegex(said, 'nothing would be deleted while [0-9]+ queues have consumers')
            p.stop_for_good()
        c = p.client()
        c.queue('mine', 'k')
        c.publish('k', b'x', {'x-delay': 1000})
        before = self.names(p)
        said = self.run_it(p, code=1, **settings)
        self.assertIn('keep   queue postdate.intake: it is not empty (1 message)', said)
        self.assertIn('nothing would be deleted while 1 queue is not empty', said)
        self.assertNotIn('--yes does it', said)
        self.assertRegex(said, r'(?m)^delete \d+ queues postdate\.ttl\.\* \(0 messages\)$')
        self.assertEqual(self.names(p), before)
        said = self.run_it(p, '--yes', code=1, **settings)
        self.assertIn('nothing is deleted while 1 queue is not empty', said)
        self.assertNotIn('0 queues', said)
        self.assertEqual(self.names(p), before)
        self.assertIn('(--yes does it)', self.run_it(p, '--purge', **settings))
        self.run_it(p, '--yes', '--purge', **settings)
        self.assertEqual(self.names(p), {'postdate.delivery'})
        self.assertEqual(c.depth('mine'), 0)
        self.assertEqual(self.run_it(p, '--yes', **settings),
                         "keep   exchange postdate.delivery: consumers' queues are bound to it\n0 queues and 0 exchanges deleted\n")
        c.channel.queue_unbind('mine', 'postdate.delivery', 'k')
        self.assertEqual(self.run_it(p, '--yes', **settings), '0 queues and 1 exchange deleted\n')
        self.assertEqual(self.names(p), set())
        p.gateway(**settings).term()

    def test_an_intake_queue_with_a_name_of_its_own(self):
        """The queues beside it are named after it, also for who reads, compares and deletes."""
        p = self.place(transport='timer')
        settings = {'POSTDATE_INTAKE_QUEUE': 'mine.in', 'POSTDATE_INTAKE_EXCHANGE': 'mine'}
        queues = lambda: {name for name in p.stack.rabbitmqctl('list_queues', '-q', '-p', p.vhost, 'name').splitlines() if name.startswith('mine')}
        p.gateway(**settings)
        self.assertEqual(queues() - {'mine.in.timed'}, {'mine.in', 'mine.in.expired'})
        inbox, c = p.consumer('q', bind='k'), p.client()
        c.channel.basic_publish('', 'mine.in.expired', b'expired', pika.BasicProperties(headers={'x-delay': 1}))
        c.publish('k', b'x', {'x-delay': 1}, exchange='mine')
        inbox.wait_body(b'x', 10)
        wait_until(lambda: c.depth('mine.in.expired') == 0, 10, 'it to be read')
        self.assertRegex(p.cli('doctor', env=settings)[1], r'broker.topology\s.*exist with the expected settings')
        p.stop_for_good()
        self.run_it(p, '--yes', '--purge', **settings)
        self.assertEqual(queues(), set())

    def test_a_queue_without_leader_is_not_taken_for_empty(self):
        """RabbitMQ says that it has no messages, and would delete it with all that it has."""
        p = self.place()
        p.gateway()
        p.stop_for_good()
        c = p.client()
        c.publish('k', b'x', {'x-delay': 1000})
        before = self.names(p)
        p.eval_queue('postdate.intake', 'ok = ra:stop_server(quorum_queues, amqqueue:get_pid(Q)).')
        try:
            said = self.run_it(p, '--yes', code=75)
            self.assertIn('cannot check whether queue postdate.intake is empty, so nothing is deleted', said)
        finally:
            p.eval_queue('postdate.intake', 'ok = ra:restart_server(quorum_queues, amqqueue:get_pid(Q)).')
        self.assertEqual(self.names(p), before)
        wait_until(lambda: p.client().depth('postdate.intake') == 1, 20, 'the message')
        self.run_it(p, '--yes', code=1)

    def test_what_a_consumer_has_is_not_deleted(self):
        """RabbitMQ does not count it among the messages of the queue."""
        p = self.place()
        p.gateway()
        p.stop_for_good()
        c = p.client()
        c.publish('postdate.rejected', b'x', exchange='')
        reader = p.client()
        reader.channel.basic_consume('postdate.rejected', lambda *message: None)
        wait_until(lambda: c.depth('postdate.rejected') == 0, 10, 'it to be taken')
        before = self.names(p)
        self.assertIn('queue postdate.rejected: it has a consumer', self.run_it(p, '--yes', code=75))
        self.assertEqual(self.names(p), before)

    def test_the_intake_goes_first(self):
        """As a login shows that may delete nothing else: what is published later is refused, and not lost with a queue."""
        p = self.place()
        p.gateway()
        p.stop_for_good()
        url = add_user(p, 'remover_' + p.database, 's3cret', '^postdate$', '.*', '.*')
        self.addCleanup(delete_user, p.stack, 'remover_' + p.database)
        self.assertIn('403', self.run_it(p, '--yes', code=77, POSTDATE_AMQP_URL=url))
        self.assertNotIn('postdate', self.names(p))
        self.assertIn('postdate.intake', self.names(p))


class Deleted(LiveTest):
    def test_an_intake_exchange_that_leads_nowhere_is_bound_again(self):
        """Its user deletes it by mistake, and the publishers' start-up code declares it again: nobody sees an error."""
        p = self.place()
        gw = p.gateway(POSTDATE_ROUTE='later=postdate.delivery')
        inbox, c = p.consumer('q', bind='k'), p.client()
        for exchange in ('postdate', 'later'):
            c.channel.exchange_delete(exchange)
            c.channel.exchange_declare(exchange, 'fanout', durable=True)

        def is_routed(exchange):
            channel = c.connection.channel()
            channel.confirm_delivery()
            try:
                channel.basic_publish(exchange, 'k', exchange.encode(), pika.BasicProperties(headers={'x-delay': 1}), mandatory=True)
            except pika.exceptions.UnroutableError:
                return False
            return True
        for exchange in ('postdate', 'later'):
            wait_until(lambda x=exchange: is_routed(x), 60, f'{exchange} to lead to the intake')
            inbox.wait_body(exchange.encode())
        self.assertEqual(gw.term(), 0)
