"""docs/migrate.md, step by step: from the delayed-message plugin to Postdate, on a broker that is in use.

The commands are the document's own: they are read from it, so that a change there is tried here.
"""
import os
import re

import pika
import pika.exceptions

import harness
from harness import LiveTest, Stack, now_ms, wait_until

COUNTING = os.path.join(harness.ROOT, 'docs', 'internals', 'import.md')  # step 0 leads there


def eval_commands():
    """The Erlang of the document's `rabbitmqctl eval '…'` lines, those that are given in full."""
    with open(COUNTING, encoding='utf-8') as f:
        return [x for x in re.findall(r"^ {4}rabbitmqctl eval '(.*)'$", f.read(), re.M) if '…' not in x]


def delayed(properties=None, **headers):
    return pika.BasicProperties(delivery_mode=2, headers=headers, **(properties or {}))


@harness.not_san
class Migrate(LiveTest):
    """On servers of its own: the document's commands ask the whole node."""
    weight = 85
    vhosts = 0
    together = True
    routes = 'orders.later=orders.due'

    @classmethod
    def setUpClass(cls):
        cls.servers = Stack.own(cls.addClassCleanup, 'migrate').start()
        cls.servers.make_vhosts(['m0', 'm1'])

    def setUp(self):
        self.servers.need_plugin()
        self.p = harness.Place(self.servers)
        self.places = [self.p]
        self.addCleanup(self.p.close, drop=False)
        self.c = self.p.client()
        self.due = {}

    def waiting_in_the_plugin(self):
        """Step 0: how many messages wait for each exchange, and when the last is due."""
        count, last = eval_commands()
        # Postdate's own exchange for waiting is of this type as well.
        found = re.search(rf"exchange 'orders' in vhost '{self.p.vhost}'\",(\d+)",
                          self.servers.rabbitmqctl('eval', count))
        return int(found[1]) if found else 0, self.servers.rabbitmqctl('eval', last).strip()

    def plugin_set_up(self):
        """What is there before: a delayed exchange, a queue bound to it, a publisher, messages that wait."""
        channel = self.c.channel
        channel.exchange_declare('orders', 'x-delayed-message', durable=True, arguments={'x-delayed-type': 'topic'})
        channel.queue_declare('orders.work', durable=True)
        channel.queue_bind('orders.work', 'orders', 'order.*')
        for body, delay_ms in ((b'old 1', 25_000), (b'old 2', 27_000)):
            self.publish('orders', body, delay_ms)

    def publish(self, exchange, body, delay_ms, **headers):
        self.due[body] = now_ms() + delay_ms
        self.c.channel.basic_publish(exchange, 'order.new', body, delayed(**{'x-delay': delay_ms, **headers}))

    def step_0_know_what_you_have(self):
        wait_until(lambda: self.waiting_in_the_plugin()[0] == 2, 10, 'the plugin to have both')
        self.assertRegex(self.waiting_in_the_plugin()[1], r'^"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"$')
        exchanges = self.servers.rabbitmqctl('-q', 'list_exchanges', '-p', self.p.vhost, 'name', 'type', 'arguments')
        self.assertRegex(exchanges, r'orders\tx-delayed-message\t.*x-delayed-type.*topic')
        bindings = self.servers.rabbitmqctl('-q', 'list_bindings', '-p', self.p.vhost, 'source_name', 'destination_name',
                                            'destination_kind', 'routing_key', 'arguments')
        self.assertRegex(bindings, r'(?m)^orders\torders\.work\tqueue\torder\.\*')

    def step_2_an_ordinary_exchange(self):
        self.c.channel.exchange_declare('orders.due', 'topic', durable=True)
        self.c.channel.queue_bind('orders.work', 'orders.due', 'order.*')

    def test_side_by_side_then_without_the_plugins_exchange_then_under_its_name(self):
        self.plugin_set_up()
        self.step_0_know_what_you_have()
        g = self.p.gateway(POSTDATE_ROUTE=self.routes)  # step 1
        self.step_2_an_ordinary_exchange()
        # Step 3, road A: both forms; and a publisher that is not switched yet.
        self.publish('postdate', b'by header', 3000, **{'x-postdate-exchange': 'orders.due'})
        self.publish('orders.later', b'by route', 2700)
        self.publish('orders', b'not switched', 2000)
        inbox = self.p.consumer('orders.work')
        # Step 4: the plugin delivers what it has.
        inbox.wait(len(self.due), 60)
        wait_until(lambda: self.waiting_in_the_plugin()[0] == 0, 15, 'the plugin to be empty', 0.2)
        self.assertEqual({m.body: m.exchange for m in inbox.all()}.keys(), self.due.keys())
        self.step_3_road_b(g)
        self.publish('orders', b'under the old name', 1500)
        at_once = now_ms()
        self.c.channel.basic_publish('orders', 'order.new', b'no delay', delayed())
        inbox.wait(len(self.due) + 1, 15)
        self.due[b'no delay'] = at_once
        self.assertEqual(sorted(m.body for m in inbox.all()), sorted(self.due), 'each once')
        for m in inbox.all():
            self.assertGreaterEqual(m.at_ms, self.due[m.body], f'{m.body!r} was early')

    def step_3_road_b(self, g):
        """The name of the plugin's exchange becomes a route."""
        road_b = 'orders=orders.due'
        self.assertEqual(g.term(), 0)
        refused = self.p.gateway(wait=False, POSTDATE_ROUTE=road_b)
        self.assertEqual(refused.wait(), 78, refused.log())
        self.assertEqual(len(refused.lines_with("cannot declare exchange 'orders': it exists with other settings")), 1)
        self.c.channel.exchange_delete('orders')
        with self.assertRaises(pika.exceptions.ChannelClosedByBroker) as caught:
            self.p.client().channel.basic_publish('orders', 'order.new', b'in between', delayed())
        self.assertEqual(caught.exception.reply_code, 404)
        self.p.gateway(POSTDATE_ROUTE=road_b)

    def test_the_old_exchange_feeds_the_new_one(self):
        """Step 2 with an exchange binding, for those with many bindings; the queue gets one copy of each."""
        self.plugin_set_up()
        self.p.gateway()
        self.step_2_an_ordinary_exchange()
        self.c.channel.exchange_bind('orders.due', 'orders', '#')
        self.publish('orders', b'while both are bound', 400)
        inbox = self.p.consumer('orders.work')
        inbox.wait_body(b'while both are bound')
        self.c.channel.queue_unbind('orders.work', 'orders', 'order.*')
        self.publish('orders', b'by the new one alone', 400)
        self.publish('postdate', b'and from Postdate', 400, **{'x-postdate-exchange': 'orders.due'})
        inbox.wait(len(self.due), 60)
        self.assertEqual(sorted(m.body for m in inbox.all()), sorted(self.due), 'each once')
        for m in inbox.all():
            self.assertGreaterEqual(m.at_ms, self.due[m.body], f'{m.body!r} was early')
