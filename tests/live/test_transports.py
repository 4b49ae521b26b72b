"""The same promises, whoever waits: the gateway itself (timer), RabbitMQ's TTL queues (ttl), its plugin (plugin), or its quorum
queues from 4.4 on (native; skipped where a message shows that they keep nothing back).

The plugin is the double of tests/plugin_double unless STACK_PLUGINS_DIR named the real one when the servers started.
"""
import harness
from handover_kit import EXIT, Checks, handover
from harness import LiveTest, SharedTest, now_ms, wait_until

# --- one gateway for all tests of a transport ----------------------------------------------------------------------
class Promises(Checks):
    def rows(self, key, what='state'):
        return [r[0] for r in self.p.psql(f"select {what} from postdate.message_now where routing_key = '{key}'")]

    def wait_rows(self, key, state, count):
        wait_until(lambda: self.rows(key) == [state] * count, 15, f'{count} rows of {key} to be {state}')

    def wait_handed(self, key, count):
        if self.broker_waits:
            self.wait_rows(key, 'handed', count)

    def test_delays_out_of_order_arrive_once_and_never_early(self):
        inbox, key = self.inbox()
        sent = self.publish_many(self.p, key, [300, 500, 800, 1000, 1500, 2000, 2500, 3000, 4000, 5000] * 4)
        if self.broker_waits:
            wait_until(lambda: 'handed' in self.rows(key), 5, 'some to be handed to the broker')
        inbox.wait(len(sent), 20)
        self.wait_rows(key, 'delivered', len(sent))
        self.assert_each_once_and_not_early(inbox, sent)
        self.assertEqual({m.id for m in inbox.all()}, set(self.rows(key, 'id')))

    def test_properties_headers_and_body_are_intact(self):
        inbox, key = self.inbox()
        copies = self.p.consumer('q.copy.' + key, bind='copy.' + key)
        headers = {'n': 1, 'big': 2 ** 40, 'text': 'grün', 'yes': True, 'nothing': None, 'list': [1, 'two', [3, {}]],
                   'table': {'a': {'b': {'c': [False]}}, 'x-delay': 'inner'}, 'x-mine': 'kept', 'CC': ['copy.' + key]}
        properties = dict(content_type='application/json', content_encoding='identity', delivery_mode=2, priority=3,
                          correlation_id='c', reply_to='r', message_id='mine', timestamp=1_600_000_000, type='t',
                          app_id='a')
        body = bytes(range(256)) * 300
        self.c.publish(key, body, {**headers, 'x-delay': 2500}, **properties)
        self.c.publish('empty.' + key, b'', {'x-delay': 2500}, delivery_mode=1)
        self.c.queue('q.empty.' + key, 'empty.' + key)
        self.wait_handed(key, 1)
        for m in (inbox.wait(1)[0], copies.wait(1)[0]):
            self.assertEqual(m.body, body)
            self.assertEqual({k: m.headers.get(k) for k in headers}, headers)
            self.assertEqual({k: getattr(m.properties, k) for k in properties}, properties)
            # The same whoever waited: nothing of the way is left on it.
            self.assertEqual((m.exchange, m.routing_key), ('postdate.delivery', key))
            self.assertEqual([m.id], self.rows(key, 'id'))
            self.assertEqual(set(m.headers) - set(headers), {'x-delay', 'x-postdate-id', 'x-postdate-due'})
        self.assert_held_by(self.p, inbox.all())
        self.wait_rows(key, 'delivered', 1)
        self.assertEqual((len(inbox.all()), len(copies.all())), (1, 1))
        self.assertEqual(self.c.wait_get('q.empty.' + key).body, b'')
        self.wait_rows('empty.' + key, 'delivered', 1)

    def test_what_the_gateway_holds_itself(self):
        """Beside one that the broker may hold."""
        inbox, key = self.inbox()
        at = now_ms()
        self.c.publish(key, b'plain', {'x-delay': 2500})
        self.c.publish(key, b'key', {'x-delay': 2500, 'x-postdate-key': 'k.' + key})
        self.c.publish(key, b'asked', {'x-delay': 2500, 'x-postdate-hold': 'gateway'})
        self.p.run('schedule', '-k', key, '--delay', '2500ms', '--body', 'cli')
        if self.broker_waits:
            handed = f"select body from postdate.message_now where routing_key = '{key}' and state = 'handed'"
            wait_until(lambda: self.p.psql(handed), 5, 'the plain one to be handed over')
            # One was: so the handover feeder has looked, and the others that were stored by then are not for it.
            wait_until(lambda: len(inbox.all()) > 0 or self.assert_only_plain(handed), 10, 'the first to be due')
        inbox.wait(4)
        self.wait_rows(key, 'delivered', 4)
        self.assert_each_once_and_not_early(
            inbox, {b: at + 2500 for b in (b'plain', b'key', b'asked', b'cli')})

    def assert_only_plain(self, query):
        self.assertIn(self.p.psql(query), ([], [[r'\x' + b'plain'.hex()]]))

    def test_what_is_due_within_min_ahead_stays_with_the_gateway(self):
        inbox, key = self.inbox()
        sent = self.publish_many(self.p, key, [50, 100, 150, 200, 250])
        seen = set()
        wait_until(lambda: seen.update(self.rows(key)) or len(inbox.all()) == 5, 10, 'all five')
        self.assertNotIn('handed', seen)
        self.wait_rows(key, 'delivered', 5)
        self.assert_each_once_and_not_early(inbox, sent)

    def test_exchanges_that_messages_name_and_a_missing_one_disturbs_nobody(self):
        inbox, key = self.inbox()
        other = 'other.' + key
        self.c.channel.exchange_declare(other, 'topic', durable=True)
        named = self.p.consumer('q.' + other, bind='#', exchange=other)
        sent = {}
        for i in range(20):
            self.c.publish('lost.' + key, b'lost', {'x-delay': 2500, 'x-postdate-exchange': f'nowhere.{i % 2}'})
            sent[b'%d' % i] = now_ms() + 2500
            self.c.publish(key, b'%d' % i, {'x-delay': 2500})
            self.c.publish('to.' + other, b'%d' % i, {'x-delay': 2500, 'x-postdate-exchange': other})
        self.wait_handed('to.' + other, 20)
        inbox.wait(20)
        named.wait(20)
        self.wait_rows(key, 'delivered', 20)
        self.wait_rows('to.' + other, 'delivered', 20)
        self.wait_rows('lost.' + key, 'failed', 20)
        for error in self.rows('lost.' + key, 'error'):
            self.assertIn('nowhere.', error)
        self.assert_each_once_and_not_early(inbox, sent)
        self.assert_each_once_and_not_early(named, sent)


def promises_env(transport):
    return {**handover(transport, window='26h'), 'POSTDATE_RETRY_ATTEMPTS': '2', 'POSTDATE_RETRY_FIRST': '100ms'}


@harness.not_san  # as in test_delivery
class TimerPromises(Promises, SharedTest):
    weight = 30
    gateway_env = promises_env('timer')


class TtlPromises(Promises, SharedTest):
    weight = 30
    transport = 'ttl'
    gateway_env = promises_env('ttl')


@harness.not_san  # as ttl, but for the broker
class PluginPromises(Promises, SharedTest):
    weight = 30
    transport = 'plugin'
    gateway_env = promises_env('plugin')


@harness.not_san  # as ttl, but for the broker
class NativePromises(Promises, SharedTest):
    weight = 30
    transport = 'native'
    gateway_env = promises_env('native')

    def test_a_delivery_time_that_the_publisher_gave_does_not_get_into_the_way(self):
        inbox, key = self.inbox()
        at = now_ms()
        self.c.publish(key, b'm', {'x-delay': 2500, 'x-opt-delivery-time': at - 1})  # the absolute one counts: at once
        self.c.publish(key, b'n', {'x-delay': 2500})
        inbox.wait(2, 10)
        self.wait_rows(key, 'delivered', 2)
        self.assert_each_once_and_not_early(inbox, {b'm': at, b'n': at + 2500})
        self.assertEqual([m.body for m in inbox.all()], [b'm', b'n'])
        for m in inbox.all():
            self.assertNotIn('x-opt-delivery-time', m.headers)


# --- a gateway of its own for each test -----------------------------------------------------------------------------
class Lives(Checks):
    def test_what_falls_due_while_no_gateway_runs_comes_with_the_next_one(self):
        p = self.place()
        g = p.gateway(**handover(self.transport))
        inbox = p.consumer('q', bind='k')
        sent = self.publish_many(p, 'k', range(3000, 3500, 20))
        self.wait_held(p, len(sent), 5)
        self.assertEqual(g.term(), 0)
        if self.broker_waits:
            c = p.client()
            wait_until(lambda: (c.depth(EXIT) or 0) >= len(sent), 10, 'the broker to let them go')
            self.assertEqual(inbox.all(), [])
        p.gateway(**handover(self.transport))
        inbox.wait(len(sent))
        self.wait_delivered(p, len(sent))
        self.assert_each_once_and_not_early(inbox, sent)


@harness.not_san
class TimerLives(Lives, LiveTest):
    weight = 10


class BrokerLives(Lives):
    def test_the_window_of_a_feeder_that_never_fed_stays_shut(self):
        p = self.place()
        p.gateway(**handover(self.transport, feeder='cron'))
        inbox = p.consumer('q', bind='k')
        sent = self.publish_many(p, 'k', range(1000, 2000, 25))
        seen = set()
        wait_until(lambda: seen.update(p.counts()) or len(inbox.all()) == len(sent), 15, 'all to arrive')
        self.assertNotIn('handed', seen)
        self.wait_delivered(p, len(sent))
        self.assert_each_once_and_not_early(inbox, sent)

    def test_what_is_due_beyond_the_window_waits_in_the_gateway(self):
        p = self.place()
        p.gateway(**handover(self.transport, window='1s'))
        inbox = p.consumer('q', bind='k')
        sent = self.publish_many(p, 'k', [3000])
        handed_early = []

        def arrived():
            if p.counts().get('handed') and now_ms() < sent[b'0 3000'] - 1200:
                handed_early.append(now_ms())
            return inbox.all()
        wait_until(arrived, 15, 'it to arrive')
        self.assertEqual(handed_early, [])
        self.wait_delivered(p, 1)
        self.assert_each_once_and_not_early(inbox, sent)

    def test_the_broker_holds_at_most_max_messages(self):
        p = self.place()
        p.gateway(**handover(self.transport, max_messages='100'))
        inbox = p.consumer('q', bind='k')
        sent = self.publish_many(p, 'k', range(2500, 4000, 3))
        most = 0

        def arrived():
            nonlocal most
            most = max(most, p.counts().get('handed', 0))
            return len(inbox.all()) == len(sent)
        wait_until(arrived, 30, 'all to arrive')
        self.wait_delivered(p, len(sent))
        self.assertGreaterEqual(most, 50)
        self.assertLessEqual(most, 105)
        self.assert_each_once_and_not_early(inbox, sent)

    def test_back_to_timer_by_a_restart(self):
        p = self.place()
        g = p.gateway(**handover(self.transport, grace='1s'))
        inbox = p.consumer('q', bind='k')
        sent = self.publish_many(p, 'k', range(3000, 3500, 25))
        self.wait_held(p, len(sent), 5)
        self.assertEqual(g.term(), 0)
        p.gateway(**handover('timer', grace='1s'))
        inbox.wait(len(sent))
        self.wait_delivered(p, len(sent))
        self.assert_each_once_and_not_early(inbox, sent)


class TtlLives(BrokerLives, LiveTest):
    weight = 10
    transport = 'ttl'


@harness.not_san  # as ttl, but for the broker
class PluginLives(BrokerLives, LiveTest):
    weight = 10
    transport = 'plugin'

    def test_auto_takes_the_plugin(self):
        p = self.place()
        p.stack.need_plugin()
        g = p.gateway(**handover('auto'))
        self.assertTrue(g.lines_with(r'ready\b.*transport plugin'), g.log())


@harness.not_san  # as ttl, but for the broker
class NativeLives(BrokerLives, LiveTest):
    weight = 10
    transport = 'native'

    def test_auto_takes_it(self):
        p = self.place()
        p.stack.need_native()
        g = p.gateway(**handover('auto'))
        self.assertTrue(g.lines_with(r'ready\b.*transport native'), g.log())
        found = g.lines_with('auto: RabbitMQ delays messages itself')
        self.assertEqual(len(found), 1, g.log())
        queues = p.stack.rabbitmqctl('-q', 'list_queues', '-p', p.vhost, '--no-table-headers', 'name').split()
        self.assertEqual([q for q in queues if 'probe' in q or 'ttl' in q], [])

    def test_not_where_rabbitmq_delivers_by_itself(self):
        """By its own clock, which may be ahead."""
        p = self.place()
        p.stack.need_native()
        g = p.gateway(**handover('auto', last_hop='broker'))
        self.assertFalse(g.lines_with(r'ready\b.*transport native'), g.log())
        g = p.gateway(wait=False, **handover('native', last_hop='broker'))
        self.assertEqual(g.wait(), 78, g.log())
        self.assertEqual(len(g.lines_with('handover.transport: native .*handover.last_hop')), 1, g.log())
