"""What Postdate's exchange type refuses, so that nothing is confirmed and lost, or comes early; and what else dies of nothing of it."""
import glob
import json
import os
import struct

from amqp10 import Publisher, fixed, sym, uint, ulong, utf8, variable
from exchange_kit import INTAKE, Application, TypeServers, wait_until

LONG = 600_000


class TypeRefuses(TypeServers):

    def assert_refused(self, a, text, exchange, key='k', delay=LONG, **options):
        code, said = a.refused(a.publish, exchange, key, b'refused', delay, **options)
        self.assertEqual(code, 406)
        self.assertIn(text, said)

    def assert_nothing_came(self, a):
        """All that was taken came before this one."""
        a.exchange('last', 'fanout')
        a.publish('last', '', b'last', LONG)
        wait_until(lambda: self.p.counts().get('scheduled'), 15, 'the last to be stored')
        self.assertEqual(self.p.psql('select convert_from(body, \'utf8\') from postdate.message_now'), [['last']])
        self.assertEqual(a.depth('postdate.rejected'), 0)

    def test_what_would_lose_something(self):
        a = self.served()
        a.exchange('e', 'direct')
        a.queue('q', 'e', 'k')
        self.assert_refused(a, 'BCC', 'e', headers={'BCC': ['copy']})
        self.assert_refused(a, 'BCC', 'e', headers={'CC': ['one', 'two'], 'BCC': ['copy']})
        self.assert_refused(a, 'BCC', 'e', headers={'CC': [1, 2], 'BCC': ['copy']})
        self.assert_refused(a, 'BCC', 'e', headers={'x-cc': ['one', 'two'], 'BCC': ['copy']})
        self.assert_refused(a, 'x-opt-delivery-time', 'e', headers={'x-opt-delivery-time': 1})
        self.assert_refused(a, 'x-death', 'e', headers={'x-death': [{'queue': INTAKE, 'reason': 'expired'}]})
        # Without a delay, or with CC alone, these go.
        a.publish('e', 'none', b'1', headers={'BCC': ['k']})
        a.publish('e', 'k', b'2', headers={'x-opt-delivery-time': 1})
        a.publish('e', 'k', b'3', 0, headers={'x-death': [{'queue': INTAKE, 'reason': 'expired'}]})
        self.assertEqual([m.body for m in a.inbox('q').wait(3)], [b'1', b'2', b'3'])
        self.assert_nothing_came(a)

    def test_definitions_with_the_gateways_own(self):
        """Those of a RabbitMQ in which the plugin waited for a gateway: they are imported whole, also at a boot, which would end with an import."""
        self.p = self.place()
        a = Application(self.p)
        own = {'x-delayed-type': 'fanout', 'x-postdate-transport': 'plugin'}
        names = {'postdate.delayed': own, 'other.delayed': own, 'z.app': {'x-delayed-type': 'fanout'}}
        path = os.path.join(self.servers.directory, 'definitions.json')
        with open(path, 'w', encoding='utf-8') as f:
            json.dump({'vhosts': [{'name': self.p.vhost}],
                       'exchanges': [{'name': n, 'vhost': self.p.vhost, 'type': 'x-delayed-message', 'durable': True, 'auto_delete': False,
                                      'internal': False, 'arguments': args} for n, args in names.items()]}, f)
        self.servers.rabbitmqctl('import_definitions', path)
        for name in names:
            a.c.channel.exchange_declare(name, passive=True)
        self.assertEqual(a.refused(a.exchange, 'postdate.more', 'fanout')[0], 406)
        g = self.p.gateway(POSTDATE_HANDOVER_TRANSPORT='auto')
        self.assertFalse(g.lines_with(r'ready\b.*transport plugin'), g.log())
        a.queue('q', 'postdate.delayed')
        a.publish('postdate.delayed', 'k', b'at once', LONG)
        self.assertEqual(a.c.wait_get('q').body, b'at once')

    def test_nothing_waits_in_rabbitmq(self):
        """As the plugin answers, also over HTTP, where all that is known of an exchange is asked for."""
        self.p = self.place()
        Application(self.p).exchange('e', 'fanout')
        x = f'{{ok, X}} = rabbit_exchange:lookup(rabbit_misc:r(<<"{self.p.vhost}">>, exchange, <<"e">>)), '
        self.assertEqual(self.servers.rabbitmqctl('eval', f'(fun() -> {x} proplists:get_value(messages_delayed, rabbit_exchange:info(X)) end)().').strip(), '0')

    def test_what_came_by_another_exchange(self):
        """The gateway would not know whereto: the message says that it was published to the first one."""
        a = self.served()
        a.exchange('e', 'fanout')
        a.queue('q', 'e')
        a.c.channel.exchange_declare('first', 'fanout')
        a.c.channel.exchange_bind('e', 'first')
        a.c.channel.exchange_declare('front', 'direct', arguments={'alternate-exchange': 'e'})
        a.c.channel.exchange_declare('inside', 'x-delayed-message', internal=True, arguments={'x-delayed-type': 'fanout'})
        a.c.channel.exchange_bind('inside', 'first')
        self.assert_refused(a, 'published to it', 'first')
        self.assert_refused(a, 'published to it', 'front')
        for exchange in ('first', 'front'):
            a.publish(exchange, 'k', exchange.encode(), -1)
        self.assertEqual({m.body for m in a.inbox('q').wait(2)}, {b'first', b'front'})
        self.assert_nothing_came(a)

    def test_an_inner_type_that_is_not_there_any_more(self):
        """As after a boot without its plugin: the vhost serves, publishes are refused, the exchange can be unbound and deleted."""
        a = self.served()
        a.exchange('gone', 'x-random')
        a.queue('q', 'gone')
        eval_ = self.servers.rabbitmqctl
        eval_('eval', 'rabbit_registry:unregister(exchange, <<"x-random">>).')
        try:
            self.assert_refused(a, 'x-delayed-type is not known', 'gone', delay=None)
            a.publish('gone', 'k', b'kept', LONG, message_id='a redelivery is stored once')
            a.c.channel.queue_bind('q', 'gone', 'more')
            a.c.channel.queue_unbind('q', 'gone', 'more')
            a.c.channel.exchange_declare('gone', 'x-delayed-message', durable=True, arguments={'x-delayed-type': 'x-random'}, passive=True)
            again = 'ok = rabbit_vhost_sup_sup:stop_and_delete_vhost(V), rabbit_vhost_sup_sup:start_vhost(V)'
            self.assertIn('{ok,', eval_('eval', f'V = <<"{self.p.vhost}">>, {again}.'))
        finally:
            eval_('eval', 'rabbit_registry:register(exchange, <<"x-random">>, rabbit_exchange_type_random).')
        self.wait_counts(scheduled=1)

    def test_dead_letters_to_a_vhost_without_a_gateway(self):
        """The queue lives, says it once, and one that dead-letters at least once keeps what it has."""
        self.p = self.place()
        a = Application(self.p)
        a.exchange('e', 'fanout')
        a.queue('target', 'e')
        for kind, more in (('classic', {}), ('quorum', {}),
                           ('quorum', {'x-dead-letter-strategy': 'at-least-once', 'x-overflow': 'reject-publish'})):
            name = f'dead.{kind}.{len(more)}'
            a.c.channel.queue_declare(name, durable=True, arguments={
                'x-queue-type': kind, 'x-dead-letter-exchange': 'e', 'x-message-ttl': 100, **more})
            for _ in range(20):  # 32 that have no way would hold up the next ones
                a.publish('', name, b'dead', LONG)
            wait_until(lambda: a.depth(name) == 0, 20, f'what is in {name} to expire')  # noqa: B023
            a.publish('', name, b'alive', 0)
            self.assertEqual(a.c.wait_get('target').body, b'alive', name)
        log = self.broker_log()
        lines = [line for line in log.splitlines() if f"in vhost '{self.p.vhost}'" in line and 'dead-letters to it has no way' in line]
        self.assertTrue(1 <= len(lines) <= 3, lines)
        self.assertNotIn('crash', log.split(lines[0], 1)[1])

    def broker_log(self):
        path, = (f for f in glob.glob(os.path.join(self.servers.directory, 'rabbitmq', 'log', '*.log')) if 'upgrade' not in f)
        with open(path, encoding='utf-8', errors='replace') as f:
            return f.read()

    def test_dead_letters_to_it(self):
        """They wait, as what was published there does."""
        a = self.served()
        a.exchange('e', 'fanout')
        a.queue('target', 'e')
        for kind in ('classic', 'quorum'):
            a.c.channel.queue_declare(kind, durable=True, arguments={'x-queue-type': kind, 'x-dead-letter-exchange': 'e'})
            a.publish('', kind, kind.encode(), 300)
            method, _, _ = self.wait_method(a, kind)
            a.c.channel.basic_reject(method.delivery_tag, requeue=False)
        came = a.inbox('target').wait(2, 15)
        self.assertEqual({(m.body, m.exchange, m.headers['x-delay']) for m in came}, {(b'classic', 'e', -300), (b'quorum', 'e', -300)})
        self.wait_counts(delivered=2)

    def wait_method(self, a, queue):
        return wait_until(lambda: (m := a.c.channel.basic_get(queue))[0] and m, 10, f'a message in {queue}')

    def test_the_gateways_own_transports(self):
        """Each refuses the other: the gateway finds no plugin, whatever its prefix, and what it hands over does not come back."""
        for prefix in (None, 'other'):
            self.p = self.place(prefix=prefix)
            g = self.p.gateway(POSTDATE_HANDOVER_TRANSPORT='auto')
            self.assertFalse(g.lines_with(r'ready\b.*transport plugin'), g.log())
            rc, out, _ = self.p.cli('doctor')
            self.assertIn('no delayed-message plugin', out, rc)
        self.p.run('status')

    def test_amqp_1_0(self):
        """From RabbitMQ 4.0 on: annotations count, as with the plugin; what AMQP 0-9-1 cannot say would not reach the gateway, or end its channel."""
        a = self.served()
        if int(self.servers.rabbitmqctl('eval', 'io:format("~s", [rabbit_misc:version()]).').split('.')[0]) < 4:
            self.skipTest('before RabbitMQ 4.0 AMQP 1.0 is a client of AMQP 0-9-1')
        a.exchange('e', 'fanout')
        a.queue('q', 'e')
        x_delay, char, uuid = sym('x-delay'), b'\x73' + struct.pack('>I', LONG), b'\x98' + bytes(16)
        numbers = [uint(700), ulong(700), utf8('700'), sym('700'), fixed(0x71, '>i', 700), fixed(0x82, '>d', 700.5)]
        for number, value in enumerate(numbers):
            amqp = Publisher(self.p.amqp, '/exchanges/e/k')
            amqp.publish(b'%d' % number, annotations=[(x_delay, value)])
            amqp.close()
        inbox = a.inbox('q')
        self.assertEqual([m.headers['x-delay'] for m in inbox.wait(len(numbers))], [-700] * len(numbers))
        for annotations, properties in (([(x_delay, char)], []), ([(x_delay, b'\x74' + struct.pack('>I', 5))], []), ([(x_delay, variable(0xa0, b'abc'))], []),
                                        ([(x_delay, uint(700))], [(utf8('id'), uuid)]), ([(x_delay, uint(700)), (sym('x-c'), char)], [])):
            amqp = Publisher(self.p.amqp, '/exchanges/e/k')
            with self.subTest(annotations=annotations, properties=properties), self.assertRaises((ConnectionError, AssertionError)) as refused:
                amqp.publish(b'refused', annotations=annotations, properties=properties)
            self.assertIn('precondition-failed', str(getattr(refused, 'exception', '')))
            amqp.close()
        # A property of the application is none of RabbitMQ's.
        amqp = Publisher(self.p.amqp, '/exchanges/e/k')
        amqp.publish(b'now', properties=[(utf8('x-delay'), uint(LONG))])
        self.assertEqual(inbox.wait(len(numbers) + 1)[-1].body, b'now')
        amqp.close()
        self.assertEqual(a.depth('postdate.rejected'), 0)
