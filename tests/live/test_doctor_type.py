"""`postdate doctor` about exchanges of the type x-delayed-message: what Postdate's own type refuses, and nodes that do not know it."""
import os

from doctor_kit import Doctor
from exchange_kit import Application, TypeServers

CHECK = 'exchange.type'


class DoctorType(TypeServers, Doctor):
    places_most = 3

    def look(self):
        return self.doctor(self.p, '--rabbitmqctl', os.path.join(self.servers.directory, 'rabbitmqctl'))

    def ctl(self, erlang):
        return self.servers.rabbitmqctl('eval', erlang)

    def test_what_it_finds(self):
        self.servers.rabbitmqctl('eval', "[rabbit_exchange:delete(element(2, X), false, <<>>) || X <- rabbit_exchange:list(), element(3, X) =:= 'x-delayed-message'].")
        self.p = self.place(transport='timer')
        a = Application(self.p)
        a.exchange('orders', 'topic')
        self.assert_finding(self.look(), CHECK, 'warn', 'no gateway has served', 'start a gateway')
        self.p.gateway()
        a.c.channel.queue_declare('dead', arguments={'x-dead-letter-exchange': 'orders'})
        found = self.look()
        self.assert_finding(found, CHECK, 'ok', "1 exchange; queues dead-letter to them: 'dead'")
        self.assert_finding(found, 'handover.transport', 'ok', 'timer')
        self.assert_finding(found, 'plugin.messages', 'ok', "the type x-delayed-message is Postdate's")
        a.c.channel.exchange_declare('first', 'fanout')
        a.c.channel.exchange_bind('orders', 'first')
        a.c.channel.exchange_declare('front', 'direct', arguments={'alternate-exchange': 'orders'})
        found = self.look()
        self.assert_finding(found, CHECK, 'warn', "'first', 'front' route to it", "to 'orders' itself")
        a.c.channel.exchange_delete('first')
        a.c.channel.exchange_delete('front')
        a.exchange('gone', 'x-random')
        self.ctl('rabbit_registry:unregister(exchange, <<"x-random">>).')
        self.addCleanup(self.ctl, 'rabbit_registry:register(exchange, <<"x-random">>, rabbit_exchange_type_random).')
        self.assert_finding(self.look(), CHECK, 'fail', "its x-delayed-type 'x-random' is not known on 'postdate-")
        a.c.channel.exchange_delete('gone')
        self.both_and_none(a)

    def both_and_none(self, a):
        path = os.path.join(self.servers.directory, 'rabbitmq', 'enabled_plugins')
        with open(path, encoding='utf-8') as f:
            before = f.read()
        with open(path, 'w', encoding='utf-8') as f:
            f.write(before.replace('[', '[rabbitmq_delayed_message_exchange, '))
        self.assert_finding(self.look(), CHECK, 'fail', 'both postdate_exchange and', 'disable one of them')
        with open(path, 'w', encoding='utf-8') as f:
            f.write(before)
        self.ctl('postdate_exchange:disable().')
        self.addCleanup(self.ctl, 'postdate_exchange:enable().')
        self.assert_finding(self.look(), CHECK, 'fail', 'does not know the type', 'enable postdate_exchange')
        self.ctl('postdate_exchange:enable().')
        self.assert_finding(self.look(), CHECK, 'ok')
        self.assertEqual(a.c.channel.exchange_declare('orders', passive=True).method.NAME, 'Exchange.DeclareOk')
