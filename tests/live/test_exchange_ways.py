"""Messages that came by Postdate's exchange type are as all others: keys, cancel, rights, refusing targets, circles, prefixes, who waits."""
import harness
import pika
from exchange_kit import Application, TypeServers, now_ms, wait_until
from handover_kit import handover

LONG = 600_000


class TypeWays(TypeServers):

    def test_keys_cancel_and_the_rest_of_the_headers(self):
        a = self.served()
        a.exchange('e', 'fanout')
        a.queue('q', 'e')
        for body in (b'first', b'second'):
            a.publish('e', 'k', body, LONG, {'x-postdate-key': 'key'})
        a.publish('e', 'k', b'behind them', LONG)
        self.wait_counts(scheduled=2)
        rc, _, error = self.p.cli('cancel', '--key', 'key', '--exchange', 'e')
        self.assertEqual(rc, 0, error)
        a.publish('e', 'k', b'replaced', LONG, {'x-postdate-key': 'key'})
        self.wait_counts(scheduled=2, cancelled=1)
        a.publish('e', 'k', b'in its place', 500, {'x-postdate-key': 'key', 'x-postdate-on-conflict': 'replace'})
        a.publish('e', 'k', b'too late', 500, {'x-postdate-deadline': now_ms() + 1})
        self.assertEqual(a.inbox('q').wait(1)[0].body, b'in its place')
        self.assertIn('deadline', a.c.wait_get('postdate.rejected').headers['x-postdate-error'])
        self.wait_counts(cancelled=1, superseded=1, delivered=1, scheduled=1)

    def test_copies_properties_and_a_user(self):
        a = self.served()
        a.exchange('e', 'direct')
        for key in ('k', 'copy'):
            a.queue('q.' + key, 'e', key)
        a.c.channel.exchange_declare('after', 'fanout')
        a.c.channel.exchange_bind('after', 'e', 'k')
        a.queue('q.after', 'after')
        properties = {'content_type': 't/x', 'message_id': 'mine', 'user_id': 'guest', 'delivery_mode': 1, 'priority': 3, 'expiration': '60000'}
        a.publish('e', 'k', b'body', 400, {'CC': ['copy'], 'h': [1, {'a': None}]}, **properties)
        for queue in ('q.k', 'q.copy', 'q.after'):
            m = a.c.wait_get(queue)
            self.assertEqual((m.exchange, m.routing_key, m.headers['CC'], m.headers['h']), ('e', 'k', ['copy'], [1, {'a': None}]))
            got = {k: getattr(m.properties, k) for k in properties}
            self.assertEqual(got, {**properties, 'user_id': None})
            self.assertEqual((m.headers['x-delay'], m.headers['x-postdate-user-id']), (-400, 'guest'))

    def test_nothing_bound_when_due(self):
        """The alternate exchange gets it, once; where there is none it is tried again. In RabbitMQ nothing is said to the publisher."""
        a = self.served(POSTDATE_RETRY_FIRST='200ms', POSTDATE_RETRY_MAX='200ms')
        a.c.channel.exchange_declare('ae', 'fanout')
        a.queue('q.ae', 'ae')
        a.exchange('with', 'direct', arguments={'alternate-exchange': 'ae'})
        a.exchange('without', 'direct')
        a.publish('with', 'k', b'ae', 300, mandatory=True)
        a.publish('without', 'k', b'bound later', 300, mandatory=True)
        self.assertEqual(a.inbox('q.ae').wait(1)[0].body, b'ae')
        wait_until(lambda: self.p.psql("select 1 from postdate.message_now where error like 'unroutable%'"), 15, 'the other to be tried')
        a.queue('q', 'without', 'k')
        self.assertEqual(a.inbox('q').wait(1)[0].body, b'bound later')
        self.wait_counts(delivered=2)
        self.assertEqual(a.depth('q.ae'), 0)

    def test_a_target_that_refuses(self):
        """Deleted, or without the type, as a node of a cluster that lacks it: tried again, and the others are delivered."""
        a = self.served(POSTDATE_RETRY_FIRST='200ms', POSTDATE_RETRY_MAX='200ms')
        for name in ('deleted', 'typeless', 'well'):
            a.exchange(name, 'fanout')
            a.queue('q.' + name, name)
            a.publish(name, 'k', name.encode(), 2500)
        self.wait_counts(scheduled=3)
        a.c.channel.exchange_delete('deleted')
        self.without_type('typeless', 'x-nope')
        self.assertEqual(a.inbox('q.well').wait(1)[0].body, b'well')
        wait_until(lambda: len(self.p.psql("select 1 from postdate.message_now where error is not null and state <> 'failed'")) == 2, 15,
                   'both to be refused')
        self.without_type('typeless', 'fanout')
        a.exchange('deleted', 'fanout')
        a.c.channel.queue_bind('q.deleted', 'deleted')
        for name in ('deleted', 'typeless'):
            self.assertEqual(a.inbox('q.' + name).wait(1)[0].body, name.encode())
        self.wait_counts(delivered=3)

    def without_type(self, exchange, kind):
        """As it looks to a node that does not know the type of the exchange's bindings."""
        name = f'rabbit_misc:r(<<"{self.p.vhost}">>, exchange, <<"{exchange}">>)'
        change = f'fun(X) -> setelement(7, X, [{{<<"x-delayed-type">>, longstr, <<"{kind}">>}}]) end'
        self.servers.rabbitmqctl('eval', f'case code:ensure_loaded(rabbit_db_exchange) of {{module, _}} -> rabbit_db_exchange:update({name}, {change}); '
                                 f'_ -> rabbit_misc:execute_mnesia_transaction(fun() -> rabbit_exchange:update({name}, {change}) end) end.')

    def test_rights(self):
        """Write to the exchange is enough for its publisher, and not for more; the gateway needs it, too."""
        a = self.served()
        a.exchange('e', 'fanout')
        a.queue('q', 'e')
        user = f'writer.{self.p.vhost}'
        ctl = self.servers.rabbitmqctl
        ctl('add_user', user, 's3cret')
        self.addCleanup(ctl, 'delete_user', user)
        ctl('set_permissions', '-p', self.p.vhost, user, '^$', '^e$', '^$')
        parameters = pika.URLParameters(self.p.amqp)
        parameters.credentials = pika.PlainCredentials(user, 's3cret')
        connection = pika.BlockingConnection(parameters)
        self.addCleanup(connection.close)
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare('e', 'x-delayed-message', passive=True)
        channel.basic_publish('e', 'k', b'by right', pika.BasicProperties(headers={'x-delay': 300}))
        self.assertEqual(a.inbox('q').wait(1)[0].body, b'by right')
        for exchange, key in (('', 'postdate.intake.delayed'), ('postdate.expired', '')):
            with self.assertRaises(pika.exceptions.ChannelClosedByBroker) as refused:
                channel.basic_publish(exchange, key, b'no', pika.BasicProperties(headers={'x-delay': 300}))
            self.assertEqual(refused.exception.reply_code, 403)
            channel = connection.channel()
            channel.confirm_delivery()
        # Internal: not even who may do all.
        self.assertEqual(a.refused(a.publish, 'postdate.expired', '', b'no', 300)[0], 403)

    def test_what_leads_back(self):
        """A [route] leads to it, and it leads to a [route] and to what the gateway delivers to: a message ends, and none is lost."""
        a = self.served(POSTDATE_ROUTE='again=e')
        a.exchange('e', 'fanout')
        a.queue('q', 'e')
        a.publish('again', 'k', b'by route', 300)
        self.assertEqual(a.inbox('q').wait(1)[0].exchange, 'e')
        a.c.channel.exchange_bind('e', 'postdate.delivery', '#')
        a.c.channel.exchange_bind('again', 'e')
        a.publish('e', 'k', b'round', 200)
        m = a.c.wait_get('postdate.rejected', 30)
        self.assertIn('x-postdate-hops', m.headers['x-postdate-error'])
        # Somebody binds the gateway's queue to an exchange of the type: what is not to wait is not for it.
        a.c.channel.exchange_unbind('again', 'e')
        a.c.channel.queue_bind('postdate.intake.delayed', 'e')
        a.publish('e', 'k', b'bound', 200)
        m = a.c.wait_get('postdate.rejected', 30)
        self.assertIn('x-delay: -200', m.headers['x-postdate-error'])

    def test_whoever_waits(self):
        for transport in ('ttl', 'timer'):
            self.p = self.place(transport=transport)
            self.p.gateway(**handover(transport))
            a = Application(self.p)
            a.exchange('e', 'topic')
            a.queue('q', 'e', '*.k')
            sent = now_ms()
            a.publish('e', 'a.k', b'body', 2500)
            m = a.inbox('q').wait(1, 20)[0]
            self.assert_in_time(m, sent, 2500)
            self.assertEqual((m.exchange, m.routing_key, m.headers['x-delay']), ('e', 'a.k', -2500))
            self.assert_held_by(self.p, [m], 'broker' if transport == 'ttl' else 'timer')

    def test_another_prefix(self):
        """An exchange says whose it is; the application does not know."""
        first = self.place(transport='timer')
        second = harness.Place(self.servers, transport='timer', vhost=first.vhost, prefix='other')
        self.addCleanup(second.close, drop=False)
        first.gateway()
        second.gateway()
        a = Application(first)
        a.exchange('mine', 'fanout')
        a.exchange('others', 'fanout', arguments={'x-postdate-prefix': 'other'})
        a.exchange('others', 'fanout')  # the application's own declaration
        for name in ('mine', 'others'):
            a.queue('q.' + name, name)
            a.publish(name, 'k', name.encode(), 300)
            self.assertEqual(a.inbox('q.' + name).wait(1)[0].exchange, name)
        self.assertEqual([p.counts() for p in (first, second)], [{'delivered': 1}] * 2)

    def test_several_intake_queues_and_once(self):
        """The queue of the type is read beside them; `postdated --once` waits for what is in it."""
        self.p = self.place(transport='timer')
        g = self.p.gateway(POSTDATE_INTAKE_QUEUES='3')
        a = Application(self.p)
        a.exchange('e', 'fanout')
        a.queue('q', 'e')
        a.publish('e', 'k', b'1', 200)
        self.assertEqual(a.inbox('q').wait(1)[0].body, b'1')
        self.assertEqual(g.term(), 0)
        for i in range(5):
            a.publish('e', 'k', b'%d' % i, LONG)
        rc, _, error = self.p.cli('drop-topology', '--yes')
        self.assertNotEqual(rc, 0, 'it removes a queue that is not empty')
        self.assertIn('5 messages', error)
