"""Applications of the delayed-message plugin run unchanged on a RabbitMQ without it: exchange-type/ has its type."""
from amqp10 import described, mapped, sym
from exchange_kit import INTAKE, KINDS, Application, TypeServers, now_ms, wait_until

LONG = 600_000
ANNOTATED = described(0x72, mapped([(sym('x-delay'), b'\x54\x01')]))
MATCHING = {'direct': ('k', None), 'fanout': ('', None), 'topic': ('#.k.*', None), 'headers': ('', {'x-match': 'all', 'a': '1'})}
PUBLISHED = {'direct': 'k', 'fanout': 'any', 'topic': 'x.k.y', 'headers': ''}


class ExchangeType(TypeServers):

    def test_an_unchanged_application(self):
        """Of each kind, beside a queue that it does not match: what is to wait comes at its time, all else at once; each once."""
        a = self.served()
        sent = {}
        for kind in KINDS:
            a.exchange(kind, kind)
            key, arguments = MATCHING[kind]
            a.queue(f'q.{kind}', kind, key, arguments)
            if kind != 'fanout':
                a.queue(f'other.{kind}', kind, 'other', {'x-match': 'all', 'a': '2'})
        inboxes = {kind: a.inbox(f'q.{kind}') for kind in KINDS}
        for kind in KINDS:
            for delay in (1500, 600, None, 0, -5):
                body = f'{kind} {delay}'.encode()
                sent[body] = now_ms()
                a.publish(kind, PUBLISHED[kind], body, delay, {'a': '1'}, delivery_mode=2, correlation_id='c')
        for kind, inbox in inboxes.items():
            messages = {m.body: m for m in inbox.wait(5)}
            self.assertEqual(len(messages), 5)
            for delay in (1500, 600):
                m = messages[f'{kind} {delay}'.encode()]
                self.assert_in_time(m, sent[m.body], delay)
                self.assertEqual((m.exchange, m.routing_key, m.headers['x-delay'], m.headers['a'], m.properties.correlation_id),
                                 (kind, PUBLISHED[kind], -delay, '1', 'c'))
            at_once = [m.body for m in inbox.all()][:3]
            self.assertEqual(set(at_once), {f'{kind} {d}'.encode() for d in (None, 0, -5)})
        self.wait_counts(delivered=8)
        self.assertEqual([self.depth(f'other.{kind}') for kind in KINDS if kind != 'fanout'], [0] * 3)
        self.assertEqual([len(i.all()) for i in inboxes.values()], [5] * 4)

    def test_it_is_for_the_exchange_that_it_was_published_to(self):
        """Who may write to one exchange cannot reach others by a header; what is no exchange of the type at all is rejected."""
        a = self.served()
        a.exchange('mine', 'direct')
        a.c.channel.exchange_declare('others', 'direct', durable=True)
        a.queue('q.mine', 'mine', 'k')
        a.queue('q.others', 'others', 'k')
        a.publish('mine', 'k', b'mine', 400, {'x-postdate-exchange': 'others'})
        self.assertEqual(a.inbox('q.mine').wait(1)[0].exchange, 'mine')
        self.assertEqual(self.depth('q.others'), 0)
        a.publish('', INTAKE, b'by its name', 400)
        m = a.c.wait_get('postdate.rejected')
        self.assertEqual(m.body, b'by its name')
        self.assertIn('x-delayed-message', m.headers['x-postdate-error'])

    def test_x_delay_alone_counts(self):
        """As the type has read it: what the gateway knows besides, and other cases of the name, make nothing earlier, nor later."""
        a = self.served()
        a.exchange('e', 'fanout')
        a.queue('q', 'e')
        others = [{'X-Delay': 1}, {'x-opt-delivery-delay': 0}, {'x-opt-delivery-delay': LONG}, {'x-postdate-at': now_ms() + 1},
                  {'x-postdate-at': now_ms() + LONG}, {'x-amqp-1.0-message-annotations': ANNOTATED}]
        sent = now_ms()
        for number, headers in enumerate(others):
            a.publish('e', 'k', b'%d' % number, headers={**headers, 'x-delay': 1500})
        for m in a.inbox('q').wait(len(others)):
            self.assert_in_time(m, sent, 1500)
            self.assertEqual(m.headers['x-delay'], -1500)
        self.wait_counts(delivered=len(others))

    def test_what_expires_while_no_gateway_runs(self):
        a = self.served()
        a.exchange('e', 'topic')
        a.queue('q', 'e', 'a.*')
        self.assertEqual(self.g.term(), 0)
        sent = now_ms()
        a.publish('e', 'a.b', b'expires', 2500, {'x-postdate-exchange': 'others'}, expiration='200')
        wait_until(lambda: self.depth('postdate.intake.expired') == 1, 15, 'it to expire')
        # A mark that a publisher wrote is not believed: RabbitMQ before 4.0 takes it for its own.
        forged = [{'queue': INTAKE, 'reason': 'expired', 'exchange': 'others', 'routing-keys': ['k'], 'count': 1}]
        code, text = a.refused(a.publish, 'e', 'a.b', b'forged', 2500, {'x-death': forged}, expiration='200')
        self.assertEqual(code, 406, text)
        self.p.gateway()
        m = a.inbox('q').wait(1)[0]
        self.assert_in_time(m, sent, 2500)
        self.assertEqual((m.exchange, m.routing_key, m.headers['x-delay'], m.properties.expiration), ('e', 'a.b', -2500, '200'))
        self.assertNotIn('x-death', m.headers)
        self.wait_counts(delivered=1)

    def test_without_a_gateway_it_is_refused(self):
        """Never confirmed and lost: also without confirms, and in a transaction. What is not to wait is routed."""
        self.p = self.place()
        a = Application(self.p)
        a.exchange('e', 'direct')
        a.queue('q', 'e', 'k')
        code, text = a.refused(a.publish, 'e', 'k', b'later', 60000)
        self.assertEqual(code, 406)
        self.assertIn("no queue 'postdate.intake.delayed'", text)
        channel = a.c.channel = a.c.connection.channel()
        channel.tx_select()
        channel.basic_publish('e', 'k', b'now')
        self.publish_plain(channel, 60000)
        self.assertEqual(a.refused(channel.tx_commit)[0], 406)
        channel = a.c.channel = a.c.connection.channel()
        self.publish_plain(channel, 60000)
        self.assertEqual(a.refused(channel.queue_declare, 'q', passive=True)[0], 406)
        a.publish('e', 'k', b'now', 0)
        self.assertEqual(a.c.wait_get('q').body, b'now')

    def publish_plain(self, channel, delay):
        import pika
        channel.basic_publish('e', 'k', b'later', pika.BasicProperties(headers={'x-delay': delay}))
