"""One list of cases, with Postdate's exchange type and with the delayed-message plugin, or its double: where they differ, a case says so."""
import itertools

import pika.exceptions

from exchange_kit import KINDS, Application, TypeServers
from handover_kit import OwnServers
from harness import LiveTest, wait_until
from wire import Wire

LONG = 600_000  # no test lives that long: what has not come then waits
LATER, NOW, CONFUSED = 'later', 'now', 541
OLD = 'before 4.0'

# x-delay; what comes of it; with the plugin, if that is something else; the same for 3.10 to 3.13, if that is something else again.
VALUES = [
    (Wire('I', LONG), LATER), (Wire('i', LONG), LATER), (Wire('l', LONG), LATER), (Wire('s', 30_000), LATER),
    (Wire('u', 60_000), LATER), (Wire('d', 600_000.7), LATER), (Wire('f', 600_000.0), LATER),
    ('600000', LATER), ('+600000', LATER), ('0000600000', LATER), ('-600000', NOW), ('0', NOW),
    (2 ** 32 - 1, LATER), (2 ** 32, LATER, NOW), ('99999999999', LATER, NOW),
    (0, NOW), (-1, NOW), (-2 ** 62, NOW), (Wire('d', 0.5), NOW), (Wire('d', -5.5), NOW), (True, NOW), (Wire('V'), NOW, CONFUSED, NOW), ([LONG], NOW),
    ({'a': LONG}, NOW), (Wire('T', 1_700_000_000), NOW),
    ('abc', 406, CONFUSED), ('6e5', 406, CONFUSED), ('', 406, CONFUSED), (' 600000', 406, CONFUSED), ('600000.5', 406, CONFUSED),
    (Wire('D', (0, LONG)), 406, CONFUSED), (Wire('x', b'600000'), 406, LATER, NOW), ('9' * 65, 406, NOW), ('0' * 70, 406, NOW),
]

# The name and arguments of a declaration; 'ok' or the code; with the plugin, if it is something else.
UNKNOWN = {OLD: 503, 'since': 406}
DECLARED = [
    ('d.none', {}, 406), ('d.itself', {'x-delayed-type': 'x-delayed-message'}, 406), ('d.number', {'x-delayed-type': 5}, 406),
    ('d.unknown', {'x-delayed-type': 'x-nope'}, UNKNOWN), ('d.empty', {'x-delayed-type': ''}, UNKNOWN),
    ('d.hash', {'x-delayed-type': 'x-consistent-hash'}, 'ok'), ('d.random', {'x-delayed-type': 'x-random'}, 'ok'),
    ('d.ae', {'x-delayed-type': 'direct', 'alternate-exchange': 'amq.fanout'}, 'ok'),
    ('d.direct', {'x-delayed-type': 'direct'}, 'ok'),
    ('d.direct', {'x-delayed-type': 'fanout'}, 'ok'),  # neither compares it
    ('d.direct', {'x-delayed-type': 'direct', 'alternate-exchange': 'amq.fanout'}, 406),
    ('postdate.mine', {'x-delayed-type': 'direct'}, 406, 'ok'),
    ('transport', {'x-delayed-type': 'direct', 'x-postdate-transport': 'plugin'}, 406, 'ok'),
]


class Cases:
    plugin = False

    def application(self):
        raise NotImplementedError

    @property
    def before_4(self):
        return int(self.servers.rabbitmqctl('eval', 'io:format("~s", [rabbit_misc:version()]).').split('.')[0]) < 4

    def expected(self, first, *others):
        value = first
        if self.plugin and others:
            value = others[-1] if self.before_4 else others[0]
        return value[OLD if self.before_4 else 'since'] if isinstance(value, dict) else value

    def code_of(self, call, *args, **options):
        """None: it went well. 541 and 503 end the connection, so the application gets another one."""
        try:
            call(*args, **options)
            return None
        except (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker) as e:
            self.a = Application(self.p)
            return e.reply_code

    def test_values(self):
        """Each value for each kind of exchange: refused, at once, or later."""
        self.a = self.application()
        came = {}
        for kind in KINDS:
            self.a.exchange(kind, kind)
            self.a.queue(f'q.{kind}', kind, '#' if kind == 'topic' else 'k', {'x-match': 'any', 'h': 1})
        for (number, (value, *_)), kind in itertools.product(enumerate(VALUES), KINDS if not self.plugin else KINDS[:1]):
            body = f'{kind} {number}'
            code = self.code_of(lambda: self.a.publish(kind, 'k', body.encode(), value, {'h': 1}))  # noqa: B023
            came[body] = LATER if code is None else code
        for kind in KINDS:
            self.a.publish(kind, 'k', b'last', headers={'h': 1})
            while True:
                body = self.a.c.wait_get(f'q.{kind}').body.decode()
                if body == 'last':
                    break
                came[body] = NOW
        wanted = {body: self.expected(*VALUES[int(body.split()[1])][1:]) for body in came}
        shown = {body: (VALUES[int(body.split()[1])][0], came[body], wanted[body]) for body in came if came[body] != wanted[body]}
        self.assertEqual(shown, {})
        self.check_later(sum(c == LATER for c in came.values()))

    def test_declarations(self):
        self.a = self.application()
        for name, arguments, *expected in DECLARED:
            with self.subTest(name=name, arguments=arguments):
                code = self.code_of(lambda: self.a.c.channel.exchange_declare(  # noqa: B023
                    name, 'x-delayed-message', durable=True, arguments=arguments))  # noqa: B023
                self.assertEqual(code or 'ok', self.expected(*expected))
        channel = self.a.c.channel
        channel.exchange_declare('d.direct', 'x-delayed-message', passive=True)
        channel.exchange_declare('d.direct', 'fanout', passive=True)
        channel.queue_declare('q')
        channel.queue_bind('q', 'd.hash', '3')
        self.assertEqual(self.code_of(channel.queue_bind, 'q', 'd.hash', 'heavy'), 406)
        self.assertEqual(self.code_of(self.a.c.channel.exchange_declare, 'd.direct', 'fanout', durable=True), 406)
        self.a.exchange('d.headers', 'headers')
        self.assertEqual(self.code_of(self.a.c.channel.queue_bind, 'q', 'd.headers', '', {'x-match': 'most'}), 406)
        for name in ('d.hash', 'd.direct', 'd.headers'):
            self.a.c.channel.exchange_delete(name)

    def test_bindings_of_each_kind(self):
        """Bound, bound again, unbound, also exchange to exchange; CC; a queue that is bound twice gets one."""
        self.a = a = self.application()
        for kind, key in (('direct', 'a.b'), ('topic', 'a.*'), ('topic', '#.b'), ('fanout', ''), ('x-consistent-hash', '1')):
            name = f'{kind} {key}'
            a.exchange(name, kind)
            a.queue('q ' + name, name, key)
            a.queue('q ' + name, name, key)
            if kind == 'topic':
                a.queue('q ' + name, name, '#')
            a.c.channel.exchange_declare('x ' + name, 'fanout')
            a.c.channel.exchange_bind('x ' + name, name, key)
            a.queue('beyond ' + name, 'x ' + name)
            a.publish(name, 'a.b', b'1')
            a.publish(name, 'none', b'2', headers={'CC': ['a.b', 'other']})
            bodies = [[m.body for m in iter(lambda: a.c.get(q + name), None)] for q in ('q ', 'beyond ')]  # noqa: B023
            if kind == 'x-consistent-hash':  # to one of the two
                bodies = [sorted(bodies[0] + bodies[1])] * 2
            self.assertEqual(bodies, [[b'1', b'2']] * 2, name)
            a.c.channel.queue_unbind('q ' + name, name, key)
            if kind == 'topic':
                a.c.channel.queue_unbind('q ' + name, name, '#')
            a.c.channel.exchange_unbind('x ' + name, name, key)
            a.publish(name, 'a.b', b'3')
            self.assertEqual([a.depth(q + name) for q in ('q ', 'beyond ')], [0, 0], name)


class TypeCases(Cases, TypeServers):

    def application(self):
        return self.served(max_delay='3650d')

    def check_later(self, count):
        """What it routed to be kept the gateway has accepted."""
        self.wait_counts(scheduled=count)
        self.assertEqual(self.depth('postdate.rejected'), 0)


    def test_a_byte_is_a_number_too(self):
        a = self.application()
        a.exchange('e', 'fanout')
        a.queue('q', 'e')
        for value in (Wire('b', 100), Wire('B', 200)):
            a.publish('e', delay=value)
        self.assertEqual([m.headers['x-delay'] for m in a.inbox('q').wait(2)], [-100, -200])


class PluginCases(Cases, OwnServers, LiveTest):
    plugin = True

    def application(self):
        self.servers.need_plugin()
        self.p = self.place()
        return Application(self.p)

    def check_later(self, count):
        erlang = f'lists:sum([proplists:get_value(messages_delayed, rabbit_exchange:info(X, [messages_delayed]), 0) || X <- rabbit_exchange:list(<<"{self.p.vhost}">>), element(3, X) =:= \'x-delayed-message\']).'
        wait_until(lambda: int(self.servers.rabbitmqctl('eval', erlang)) == count, 15, f'{count} to wait in the plugin')


    def test_what_the_type_does_otherwise(self):
        """docs/migrate.md, "Differences": the column of the plugin. That of the type is in test_exchange_ways and test_exchange_refused."""
        a = self.application()
        a.c.channel.exchange_declare('ae', 'fanout')
        a.queue('q.ae', 'ae')
        a.exchange('with', 'direct', arguments={'alternate-exchange': 'ae'})
        a.queue('q.with', 'with', 'k')
        a.publish('with', 'k', b'twice', 400)
        self.assertEqual([a.c.wait_get(q).body for q in ('q.ae', 'q.with')], [b'twice'] * 2)
        a.exchange('e', 'direct')
        a.queue('q', 'e', 'k')
        with self.assertRaises(pika.exceptions.UnroutableError):
            a.publish('e', 'k', b'returned', 300, mandatory=True)
        m = a.c.wait_get('q')
        self.assertEqual((m.body, m.headers['x-delay'] % 2 ** 64), (b'returned', 300 if self.before_4 else 2 ** 64 - 300))
        a.publish('e', 'none', b'dropped', 1)
        a.c.channel.exchange_declare('first', 'fanout')
        a.c.channel.exchange_bind('e', 'first')
        a.c.channel.exchange_declare('front', 'direct', arguments={'alternate-exchange': 'e'})
        a.publish('e', 'none', b'bcc', 300, {'BCC': ['k']})
        a.publish('first', 'k', b'first', 900)
        a.publish('front', 'k', b'front', 1500)
        self.assertEqual([a.c.wait_get('q').body for _ in range(3)], [b'bcc', b'first', b'front'])
