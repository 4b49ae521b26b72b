"""What is published with a delay arrives when it is due, and exactly as it was published."""
import decimal
import datetime
import uuid

import harness
from handover_kit import metric
from harness import SharedTest, LiveTest, now_ms, wait_until
from wire import Wire, encoded, entries

DAY_MS = 86_400_000


class Delays(SharedTest):
    """When."""

    def publish_delayed(self, key, body, delay_ms, **headers):
        at = now_ms()
        self.c.publish(key, body, dict(headers, **{'x-delay': delay_ms}))
        return at

    def test_shorter_delays_overtake_a_longer_one_published_first(self):
        inbox, key = self.inbox()
        delays = [3000, 1000, 500, 2000, 1500, 0, 700]
        at = {d: self.publish_delayed(key, str(d).encode(), d) for d in delays}
        arrived = inbox.wait(len(delays))
        self.assertEqual([int(m.body) for m in arrived], sorted(delays))
        for m in arrived:
            self.assert_on_time(m, at[int(m.body)], int(m.body))
            self.assertGreaterEqual(m.at_ms, m.due_ms)

    def test_many_delays_published_out_of_order_are_never_early(self):
        self.inbox_load('many', 3000, '300,2500')

    def inbox_load(self, key, count, spread):
        if harness.SAN:
            count //= 3
        consumer = self.p.load('consume', '--queue', 'load.' + key, '--exchange', 'postdate.delivery', '--bind', key,
                               '--expect', count, '--timeout-s', 60, '--idle-s', 0.5).wait_consuming()
        self.p.load('publish', '--routing-key', key, '--count', count, '--delay-spread-ms', spread).result()
        r = consumer.result()
        self.assertEqual((r['missing'], r['early'], r['duplicates'], r['unexpected']), (0, 0, 0, 0), r)
        self.assertLess(r['p50_ms'], 20_000, r)  # whoever only looks from time to time is later

    @harness.not_san
    def test_a_message_due_in_ten_seconds_does_not_hold_one_due_in_three(self):
        inbox, key = self.inbox()
        first = self.publish_delayed(key, b'ten', 10_000)
        second = self.publish_delayed(key, b'three', 3_000)
        ten, three = inbox.wait_body(b'ten', 15), inbox.wait_body(b'three')
        self.assert_on_time(three, second, 3_000)
        self.assert_on_time(ten, first, 10_000)

    def test_without_a_delay_it_goes_at_once(self):
        inbox, key = self.inbox()
        at = now_ms()
        self.c.publish(key, b'no headers at all')
        self.c.publish(key, b'other headers', {'n': 1})
        for m in inbox.wait(2):
            self.assert_on_time(m, at, 0)
            self.assertNotIn('x-delay', m.headers)

    def test_zero_and_negative_delays_go_at_once(self):
        inbox, key = self.inbox()
        at = now_ms()
        values = [0, -1, -60_000, Wire('l', -2 ** 63), Wire('b', -5), Wire('d', -0.5), Wire('d', 0.9), '-7', '0']
        for i, value in enumerate(values):
            self.c.publish(key, str(i).encode(), {'x-delay': value})
        for m in inbox.wait(len(values)):
            self.assert_on_time(m, at, 0)

    def test_x_delay_of_every_number_type(self):
        inbox, key = self.inbox()
        cases = [('b', 120), ('B', 200), ('s', 300), ('u', 400), ('I', 500), ('i', 300), ('l', 400), ('L', 350),
                 ('f', 300.75), ('d', 400.9), ('S', b'350'), ('D', (2, 35050))]
        at = {}
        for kind, value in cases:
            at[kind] = now_ms()
            self.c.publish(key, kind.encode(), {'x-delay': Wire(kind, value)})
        wanted = {kind: 350 if kind == 'D' else int(float(value)) for kind, value in cases}
        for m in inbox.wait(len(cases)):
            kind = m.body.decode()
            with self.subTest(kind=kind):
                self.assert_on_time(m, at[kind], wanted[kind])
                self.assertEqual(int(float(m.headers['x-delay'])), -wanted[kind], 'negated as the plugin does')

    def test_what_pika_itself_sends_as_a_delay(self):
        inbox, key = self.inbox()
        at = now_ms()
        for body, value in ((b'int', 300), (b'long', 2 ** 27), (b'str', '300'), (b'float', 300.5)):
            self.c.publish(key, body, {'x-delay': value})
        for m in inbox.wait(3):
            self.assert_on_time(m, at, 300)
        self.assertEqual({m.body for m in inbox.all()}, {b'int', b'str', b'float'})
        self.assertEqual(self.p.value(f"select state from postdate.message_now where routing_key = '{key}' "
                                      "and state = 'scheduled'"), 'scheduled')

    def test_opt_delivery_delay(self):
        inbox, key = self.inbox()
        at = now_ms()
        self.c.publish(key, b'', {'x-opt-delivery-delay': 500})
        m = inbox.wait(1)[0]
        self.assert_on_time(m, at, 500)
        self.assertNotIn('x-opt-delivery-delay', m.headers)

    def test_opt_delivery_time_is_absolute_and_exact(self):
        inbox, key = self.inbox()
        due = now_ms() + 700
        self.c.publish(key, b'future', {'x-opt-delivery-time': due})
        self.c.publish(key, b'past', {'x-opt-delivery-time': due - 60_000})
        future, past = inbox.wait_body(b'future'), inbox.wait_body(b'past')
        self.assertEqual(future.due_ms, due)
        self.assertGreaterEqual(future.at_ms, due)
        self.assertLess(past.at_ms, due + 10_000)
        self.assertNotIn('x-opt-delivery-time', future.headers)

    def test_absolute_time_beats_opt_delay_beats_x_delay(self):
        inbox, key = self.inbox()
        at = now_ms()
        self.c.publish(key, b'time', {'x-delay': 90_000, 'x-opt-delivery-delay': 80_000,
                                      'x-opt-delivery-time': at + 600})
        self.c.publish(key, b'opt', {'x-delay': 90_000, 'x-opt-delivery-delay': 400})
        self.assert_on_time(inbox.wait_body(b'time'), at, 600)
        self.assert_on_time(inbox.wait_body(b'opt'), at, 400)


class Mistyped(SharedTest):
    def test_a_name_of_ours_that_nobody_knows_is_rejected(self):
        """A mistyped key made a message that cannot be cancelled, and its consumer did not see it either."""
        _, key = self.inbox()
        self.c.publish(key, b'kye', {'x-delay': 60_000, 'x-postdate-kye': 'order-42'})
        parked = self.c.wait_get('postdate.rejected')
        self.assertEqual((parked.body, parked.headers['x-postdate-error']),
                         (b'kye', 'x-postdate-kye: is no header of Postdate: did you mean x-postdate-key?'))

    def test_what_is_nearly_x_delay_is_said_once_and_counted(self):
        inbox, key = self.inbox()
        for body, header in ((b'1', 'x-delays'), (b'2', 'x-delays'), (b'3', 'x-dealy')):
            self.c.publish(key, body, {header: 60_000})
        inbox.wait(3)
        self.gw.wait_log('has the header "x-delays" and no x-delay')
        self.assertEqual(self.gw.log().count('"x-delays"'), 1)
        self.assertEqual(metric(self.gw, 'postdate_intake_misspelt_total'), 3)

    def test_a_delay_in_two_cases_is_delivered_once_and_negated(self):
        inbox, key = self.inbox()
        for headers in ({'x-delay': 300, 'X-Delay': 9000}, {'X-Delay': 9000, 'x-delay': 300}):
            self.c.publish(key, b'twice', headers)
        for m in inbox.wait(2):
            self.assertEqual({k: v for k, v in m.headers.items() if k.lower() == 'x-delay'}, {'x-delay': -300})


class Refused(SharedTest):
    """What can't be accepted is parked with a reason; nothing is delivered early, nothing is dropped."""

    def assert_parked(self, body, *words):
        m = self.rejected(body)
        reason = m.headers.get('x-postdate-error', '')
        for word in words:
            self.assertIn(word, reason)
        return m

    def test_delays_that_are_not_numbers(self):
        inbox, key = self.inbox()
        values = {'word': 'soon', 'empty': '', 'half': '12abc', 'hex': '0x10', 'nan': 'nan', 'infinite': 'inf',
                  'exponent': '1e3', 'bool': True, 'none': None,
                  'table': {'a': 1}, 'list': [1], 'negative decimal': decimal.Decimal('-12.5'),
                  'date': datetime.datetime(2033, 1, 1)}
        for name, value in values.items():
            self.c.publish(key, name.encode(), {'x-delay': value, 'n': 1}, content_type='text/plain', message_id='m')
        for name in values:
            with self.subTest(name=name):
                m = self.assert_parked(name.encode(), 'x-delay')
                self.assertEqual((m.headers['n'], m.properties.content_type), (1, 'text/plain'))
        self.assertEqual(inbox.all(), [])

    def test_delays_beyond_max_delay(self):
        _, key = self.inbox()
        beyond = {'one ms': 3 * DAY_MS + 1, 'unsigned 32': Wire('i', 2 ** 32 - 1), 'signed 64': Wire('l', 2 ** 63 - 1),
                  'double': 1e300, 'text': str(2 ** 70), 'days': 4 * DAY_MS}
        for name, value in beyond.items():
            self.c.publish(key, name.encode(), {'x-delay': value})
        self.c.publish(key, b'time', {'x-opt-delivery-time': now_ms() + 3 * DAY_MS + 60_000})
        for name in beyond:
            with self.subTest(name=name):
                self.assert_parked(name.encode(), 'x-delay')
        self.assert_parked(b'time', 'x-opt-delivery-time')

    def test_exactly_max_delay_is_stored(self):
        _, key = self.inbox()
        at = now_ms()
        self.c.publish(key, b'just', {'x-delay': 3 * DAY_MS})
        self.c.publish(key, b'more', {'x-delay': 3 * DAY_MS + 1})
        self.assert_parked(b'more')
        query = (f"select extract(epoch from due) * 1000 from postdate.message_now where routing_key = '{key}'")
        due = wait_until(lambda: self.p.value(query), 5, 'the stored message')
        self.assertGreaterEqual(float(due), at + 3 * DAY_MS)

    def test_a_routing_key_that_is_not_utf8(self):
        self.c.publish(b'\xff\xfe\x80', b'bad key', {'x-delay': 100})
        m = self.assert_parked(b'bad key')
        self.assertIn('routing', m.headers['x-postdate-error'])

    def test_a_parked_message_tells_where_it_was_published(self):
        self.c.publish('order.due', b'to be mended', {'x-delay': 'soon', 'n': 1})
        headers = self.assert_parked(b'to be mended', 'soon').headers
        self.assertEqual((headers['x-postdate-intake'], headers['x-postdate-routing-key'], headers['n']),
                         ('postdate', 'order.due', 1))

    def test_unknown_words_in_control_headers(self):
        _, key = self.inbox()
        self.c.publish(key, b'conflict', {'x-postdate-key': 'a', 'x-postdate-on-conflict': 'maybe'})
        self.c.publish(key, b'hold', {'x-postdate-hold': 'nobody'})
        self.c.publish(key, b'exchange', {'x-postdate-exchange': 5})
        self.c.publish(key, b'long', {'x-postdate-key': 'k' * 256})
        for body, word in ((b'conflict', 'x-postdate-on-conflict'), (b'hold', 'x-postdate-hold'),
                           (b'exchange', 'x-postdate-exchange'), (b'long', 'x-postdate-key')):
            self.assert_parked(body, word)

    def test_a_parked_message_does_not_expire_there(self):
        self.c.publish('k', b'expiring and bad', {'x-delay': 'soon'}, expiration='200')
        m = self.assert_parked(b'expiring and bad', 'x-delay')
        self.assertIsNone(m.properties.expiration)


class SmallLimit(SharedTest):
    gateway_env = {'POSTDATE_INTAKE_MAX_BODY': '1MiB', 'POSTDATE_DELIVERY_ALLOW': 'postdate.delivery,app.*'}

    def test_a_body_over_max_body_is_parked_with_the_reason(self):
        inbox, key = self.inbox()
        big, fits = bytes(1024 * 1024 + 1), bytes(1024 * 1024)
        self.c.publish(key, big, {'x-delay': 100, 'n': 1}, message_id='big')
        self.c.publish(key, fits, {'x-delay': 100})
        self.assertEqual(len(inbox.wait(1)[0].body), len(fits))
        m = wait_until(lambda: self.find_rejected(lambda m: m.properties.message_id == 'big'), 5, 'the parked one')
        self.assertRegex(m.headers['x-postdate-error'], 'body.*1048577 bytes.*1048576')
        self.assertEqual(m.headers['n'], 1)
        self.assertEqual(len(inbox.all()), 1)

    def test_an_exchange_that_is_not_allowed_is_refused(self):
        self.c.publish('k', b'forbidden', {'x-postdate-exchange': 'other'})
        self.assertIn('other', self.rejected(b'forbidden').headers['x-postdate-error'])
        self.c.channel.exchange_declare('app.one', 'direct')
        self.c.queue('app.q', 'k', 'app.one')
        self.c.publish('k', b'allowed', {'x-postdate-exchange': 'app.one'})
        self.assertEqual(self.c.wait_get('app.q').body, b'allowed')


class Content(SharedTest):
    """As it was published."""
    gateway_env = {'POSTDATE_ROUTE': 'orders.delayed=orders,orders.later=orders,delay=1500ms'}

    def test_the_delay_of_a_route(self):
        """For publishers that cannot set a header; who can, decides. What has come back without a new delay is counted as ever."""
        key = 'later'
        self.c.channel.exchange_declare('orders', 'topic', durable=True)
        self.c.queue('later.q', key, 'orders')
        inbox = self.p.consumer('later.q')
        began = now_ms()
        self.c.publish(key, b'route', exchange='orders.later', message_id='r')
        for i, headers in enumerate(({'x-delay': 0}, {'x-delay': 300}, {'x-opt-delivery-delay': 600}, {'x-postdate-at': began + 900})):
            self.c.publish(key, b'own %d' % i, headers, exchange='orders.later')
        self.c.publish(key, b'at once', exchange='orders.delayed')
        came = {m.body: m for m in inbox.wait(6)}
        last = came[b'route']
        self.assertEqual(max(came.values(), key=lambda m: m.due_ms).body, b'route')
        self.assert_on_time(last, began, 1500)
        self.assertNotIn('x-delay', last.headers)
        self.assertLess(came[b'own 0'].due_ms - began, 1400)
        self.assertLess(came[b'at once'].due_ms - began, 1400)
        again = {k: v for k, v in last.headers.items() if k.startswith('x-postdate-')}
        self.c.publish(key, b'back', again, exchange='orders.later')
        back = inbox.wait(7)[6]
        self.assertEqual((back.body, back.headers['x-postdate-hops']), (b'back', 1))
        self.assertGreaterEqual(back.due_ms - last.due_ms, 1500)

    def test_bodies_of_every_byte_and_of_none(self):
        inbox, key = self.inbox()
        bodies = [bytes(range(256)) * 4, b'', b'\0', 'grüße'.encode(), b'{"a":1}']
        for body in bodies:
            self.c.publish(key, body, {'x-delay': 100})
        self.assertEqual(sorted(m.body for m in inbox.wait(len(bodies))), sorted(bodies))

    def test_a_body_of_five_mebibytes(self):
        inbox, key = self.inbox()
        body = bytes(i * 7 & 0xff for i in range(65536)) * 80
        self.c.publish(key, body, {'x-delay': 200})
        self.assertEqual(inbox.wait(1, 20)[0].body, body)

    def test_all_properties_round_trip(self):
        inbox, key = self.inbox()
        sent = dict(content_type='application/json', content_encoding='gzip', delivery_mode=2, priority=7,
                    correlation_id='corr', reply_to='amq.reply', expiration='60000', message_id='my-id',
                    timestamp=1_700_000_000, type='order.created', app_id='shop', cluster_id='c1')
        self.c.publish(key, b'all', {'x-delay': 100, 'n': 1}, user_id='guest', **sent)
        m = inbox.wait(1)[0]
        self.assertEqual({k: getattr(m.properties, k) for k in sent}, sent)
        self.assertIsNone(m.properties.user_id)
        self.assertEqual(m.headers['x-postdate-user-id'], 'guest')
        self.assertEqual((m.headers['n'], m.headers['x-delay'], m.exchange), (1, -100, 'postdate.delivery'))

    def test_absent_properties_stay_absent_but_the_message_id(self):
        inbox, key = self.inbox()
        self.c.publish(key, b'bare', {'x-delay': 100}, delivery_mode=None)
        m = inbox.wait(1)[0]
        for name in ('content_type', 'content_encoding', 'delivery_mode', 'priority', 'correlation_id', 'reply_to',
                     'expiration', 'timestamp', 'type', 'user_id', 'app_id', 'cluster_id'):
            self.assertIsNone(getattr(m.properties, name), name)
        self.assertEqual(m.properties.message_id, m.id)
        self.assertEqual(uuid.UUID(m.id).version, 8)
        self.assertEqual(uuid.UUID(m.id).int >> 80, m.due_ms, 'the id begins with the due time')

    def test_delivery_mode_is_kept(self):
        inbox, key = self.inbox()
        for mode in (1, 2):
            self.c.publish(key, str(mode).encode(), {'x-delay': 50}, delivery_mode=mode)
        for m in inbox.wait(2):
            self.assertEqual(m.properties.delivery_mode, int(m.body))

    def test_headers_of_every_type_round_trip(self):
        inbox, key = self.inbox()
        sent = {
            'bool-t': Wire('t', True), 'bool-f': Wire('t', False), 'int8': Wire('b', -128), 'uint8': Wire('B', 255),
            'int16': Wire('s', -32768), 'uint16': Wire('u', 65535), 'int32': Wire('I', -2 ** 31),
            'uint32': Wire('i', 2 ** 32 - 1), 'int64': Wire('l', -2 ** 63), 'int64max': Wire('l', 2 ** 63 - 1),
            'float': Wire('f', 1.5), 'double': Wire('d', 3.141592653589793), 'decimal': Wire('D', (2, -12345)),
            'time': Wire('T', 1_700_000_000), 'void': None, 'text': 'grüße ☃', 'empty': '', 'bytes': bytes(range(256)),
            'latin': Wire('S', b'\xff\xfe\0'), 'long': 'x' * 20_000, 'ünï': 'name', 'table': {}, 'list': [],
            'nested': {'a': {'b': [1, 'two', None, 3.5, {'c': [True, [b'x']]}]}, 'n': None, 'x-delay': 5},
            'pika-decimal': decimal.Decimal('12.34'), 'pika-time': datetime.datetime(2030, 1, 2, 3, 4, 5),
            'pika-long': 2 ** 40, 'x-custom': 1, 'x-match': 'all',
        }
        self.c.publish(key, b'typed', dict(sent, **{'x-delay': 100}))
        m = inbox.wait(1)[0]
        got = entries(m.headers.raw)
        for name, value in sent.items():
            with self.subTest(header=name):
                self.assertEqual(got.get(name), encoded(value))
        self.assertEqual(set(got) - set(sent), {'x-delay', 'x-postdate-id', 'x-postdate-due'})

    def test_many_headers(self):
        inbox, key = self.inbox()
        sent = {f'header-{i}': i for i in range(1000)}
        self.c.publish(key, b'', dict(sent, **{'x-delay': 50}))
        headers = inbox.wait(1)[0].headers
        self.assertEqual({k: headers.get(k) for k in sent}, sent)

    def test_control_headers_are_removed(self):
        inbox, key = self.inbox()
        self.c.publish(key, b'', {'x-delay': 50, 'x-postdate-hold': 'gateway', 'x-postdate-key': 'ctl',
                                  'x-postdate-on-conflict': 'keep', 'x-postdate-exchange': 'postdate.delivery'})
        names = {n for n in inbox.wait(1)[0].headers if n.startswith('x-postdate-')}
        self.assertEqual(names, {'x-postdate-id', 'x-postdate-due'})

    def test_cc_reaches_its_queues_too(self):
        inbox, key = self.inbox()
        copies, _ = self.inbox('cc.copy')
        self.c.publish(key, b'both', {'x-delay': 100, 'CC': ['cc.copy']})
        self.assertEqual(inbox.wait(1)[0].routing_key, key)
        self.assertEqual(copies.wait(1)[0].body, b'both')
        self.assertEqual(len(inbox.all()), 1)

    def test_routing_keys_are_kept(self):
        inbox, _ = self.inbox('keys.#')
        keys = ['keys.a', 'keys.' + 'x' * 250, 'keys.grün.☃', 'keys.']
        for key in keys:
            self.c.publish(key, b'', {'x-delay': 50})
        self.assertEqual(sorted(m.routing_key for m in inbox.wait(len(keys))), sorted(keys))

    def test_the_default_exchange_reaches_a_work_queue_by_name(self):
        queue = self.c.queue('work.queue')
        at = now_ms()
        self.c.publish(queue, b'job', {'x-delay': 300, 'x-postdate-exchange': ''})
        m = self.c.wait_get(queue)
        self.assert_on_time(m, at, 300)
        self.assertEqual((m.body, m.exchange, m.routing_key), (b'job', '', queue))

    def test_a_named_delivery_exchange(self):
        self.c.channel.exchange_declare('invoices', 'direct', durable=True)
        self.c.queue('invoices.q', 'due', 'invoices')
        self.c.publish('due', b'pay', {'x-delay': 100, 'x-postdate-exchange': 'invoices'})
        m = self.c.wait_get('invoices.q')
        self.assertEqual((m.body, m.exchange), (b'pay', 'invoices'))

    def test_a_routed_exchange_delivers_to_its_own(self):
        self.c.channel.exchange_declare('orders', 'topic', durable=True)
        self.c.queue('orders.q', 'order.#', 'orders')
        at = now_ms()
        self.c.publish('order.cancel', b'42', {'x-delay': 300}, exchange='orders.delayed')
        m = self.c.wait_get('orders.q')
        self.assert_on_time(m, at, 300)
        self.assertEqual((m.body, m.exchange, m.routing_key), (b'42', 'orders', 'order.cancel'))

    def test_a_consumer_that_publishes_it_again_gets_a_new_message_each_time(self):
        inbox, key = self.inbox()
        self.c.publish(key, b'retry me', {'x-delay': 100, 'n': 1}, app_id='shop')
        for round_number in range(3):
            last = inbox.wait(round_number + 1)[-1]
            self.assertEqual((last.body, last.headers['n'], last.properties.app_id), (b'retry me', 1, 'shop'))
            if round_number < 2:
                at = now_ms()
                last.properties.headers['x-delay'] = 200
                self.c.channel.basic_publish('postdate', last.routing_key, last.body, last.properties)
                again = inbox.wait(round_number + 2)[-1]
                self.assert_on_time(again, at, 200)
        self.assertEqual(len({m.id for m in inbox.all()}), 3)
        self.assertEqual(len(inbox.all()), 3)

    def test_the_same_message_id_twice_is_two_messages(self):
        inbox, key = self.inbox()
        for _ in range(2):
            self.c.publish(key, b'twin', {'x-delay': 50}, message_id='same')
        self.assertEqual([m.properties.message_id for m in inbox.wait(2)], ['same', 'same'])

    def test_two_thousand_of_many_sizes(self):
        inbox, key = self.inbox()
        sizes = [(i * i) % 4000 for i in range(500 if harness.SAN else 2000)]
        for i, size in enumerate(sizes):
            self.c.channel.basic_publish('postdate', key, i.to_bytes(4, 'big') + b'x' * size)
        arrived = inbox.wait(len(sizes), 30)
        got = {int.from_bytes(m.body[:4], 'big'): len(m.body) - 4 for m in arrived}
        self.assertEqual(got, dict(enumerate(sizes)))
        self.assertEqual(len(arrived), len(sizes))


class Intake(LiveTest):
    """While the gateway is away, the intake queue keeps what was confirmed."""

    def test_messages_that_expire_in_the_intake_queue_still_arrive(self):
        p = self.place()
        self.assertEqual(p.gateway().term(), 0)
        c = p.client()
        c.queue('q', 'k')
        c.publish('k', b'expiring', {'x-delay': 600, 'n': 1}, expiration='300', content_type='text/plain')
        c.publish('k', b'lasting', {'x-delay': 600})
        wait_until(lambda: c.depth('postdate.intake.expired') == 1, 10, 'the expired message to move')
        p.gateway()
        inbox = p.consumer('q')
        m = inbox.wait_body(b'expiring')
        inbox.wait_body(b'lasting')
        self.assertEqual((m.properties.expiration, m.properties.content_type), ('300', 'text/plain'))
        self.assertEqual((m.routing_key, m.exchange), ('k', 'postdate.delivery'))
        self.assertEqual(set(m.headers), {'x-delay', 'n', 'x-postdate-id', 'x-postdate-due'})
        self.assertGreaterEqual(m.at_ms, m.due_ms)
        self.assertEqual(c.depth('postdate.intake.expired'), 0)

    def test_what_was_published_while_the_gateway_was_away_arrives(self):
        p = self.place()
        self.assertEqual(p.gateway().term(), 0)
        inbox = p.consumer('q', bind='k')
        c = p.client()
        for i in range(50):
            c.publish('k', str(i).encode(), {'x-delay': 100})
        self.assertEqual(c.depth('postdate.intake'), 50)
        p.gateway()
        self.assertEqual(len({m.body for m in inbox.wait(50)}), 50)
        wait_until(lambda: c.depth('postdate.intake') == 0, 5, 'the intake queue to be empty')
