"""What is the gateway's own cannot be named as a target, whichever way a message comes in."""
import json

from harness import LiveTest, wait_until
from web import Web


class Reserved(LiveTest):
    def test_its_own_exchanges_are_no_targets(self):
        p = self.place()
        g = p.gateway(POSTDATE_ROUTE='orders.delayed=orders')
        c = p.client()
        c.channel.exchange_declare('orders', durable=True)
        c.queue('q', 'k', exchange='orders')
        web = Web(g.http())
        self.addCleanup(web.close)
        for n, exchange in enumerate(('postdate', 'orders.delayed', 'postdate.delayed', 'postdate.ttl.exit', 'postdate.no.such')):
            body = b'%d' % n
            c.publish('k', body, {'x-postdate-exchange': exchange})
            parked = c.wait_get('postdate.rejected')
            self.assertEqual(parked.body, body)
            self.assertRegex(parked.headers['x-postdate-error'], f'^exchange: "{exchange}" is the gateway.s own')
            answer = web.post('/v1/messages', {'exchange': exchange, 'routing_key': 'k', 'delay_ms': 0, 'body': ''})
            self.assertEqual((answer.status, answer.problem), (422, 'invalid-message'), answer)
            c.publish('postdate.control', json.dumps({'op': 'schedule', 'exchange': exchange, 'routing_key': 'k', 'delay_ms': 0,
                                                      'body': ''}).encode(), exchange='', reply_to='q')
            self.assertEqual(json.loads(c.wait_get('q').body)['status'], 422)
            line = json.dumps({'exchange': exchange, 'routing_key': 'k', 'delay': '1h', 'body': ''})
            for args in (('-k', 'k', '--delay', '1h', '--exchange', exchange, '--body', ''), ('--batch', '-')):
                code, _, err = p.cli('schedule', *args, stdin=line, env={'POSTDATE_ROUTE': 'orders.delayed=orders'})
                self.assertNotEqual(code, 0)
                self.assertIn("the gateway's own", err)
        for exchange in ('postdate', 'postdate.delayed'):
            with self.assertRaisesRegex(AssertionError, "exchange is one of the gateway's own"):
                p.psql(f"begin; select postdate.schedule('k', 'x', '0 s', exchange => '{exchange}')")
        # An exchange whose name only the gateway's configuration knows as its own is refused when the message is due.
        made = p.psql("begin; select postdate.schedule('k', 'x', '0 s', exchange => 'orders.delayed'); commit")[0][0]
        wait_until(lambda: 'own' in (p.value(f"select error from postdate.messages where id = '{made}'") or ''), 10, 'it to be refused')
        for exchange in ('orders', 'postdate.delivery'):
            c.publish('k', b'fine', {'x-postdate-exchange': exchange})
        self.assertEqual(c.wait_get('q').body, b'fine')
        wait_until(lambda: p.value('select count(*) from postdate.messages') == '3', 10, 'both of them to be stored')

    def test_messages_name_only_exchanges_that_somebody_listed(self):
        """Without delivery.allow they go where they would go if they named nothing: who may publish to the intake exchange does
        not reach queues of others by the gateway's rights."""
        p = self.place()
        own = {'POSTDATE_DELIVERY_ALLOW': None, 'POSTDATE_ROUTE': 'orders.delayed=orders'}
        web = Web(p.gateway(**own).http())
        self.addCleanup(web.close)
        c = p.client()
        c.channel.exchange_declare('orders', durable=True)
        c.queue('theirs')
        c.queue('ours', 'k', exchange='orders')
        for exchange in ('', 'amq.topic', 'postdate.deliver'):
            c.publish('theirs', b'x', {'x-postdate-exchange': exchange})
            self.assertIn('delivery.allow (allowed: postdate.delivery, orders)',
                          c.wait_get('postdate.rejected').headers['x-postdate-error'])
            message = {'exchange': exchange, 'routing_key': 'theirs', 'delay_ms': 0, 'body': ''}
            self.assertEqual(web.post('/v1/messages', message).status, 422)
            self.assertEqual(p.cli('schedule', '--batch', '-', stdin=json.dumps(message), env=own)[0], 65)
            with self.assertRaisesRegex(AssertionError, 'delivery.allow'):
                p.psql(f"begin; select postdate.schedule('theirs', 'x', '0 s', exchange => '{exchange}')")
        for exchange in ('orders', 'postdate.delivery'):
            c.publish('k', b'fine', {'x-postdate-exchange': exchange})
        self.assertEqual(c.wait_get('ours').body, b'fine')
        self.assertIsNone(c.get('theirs'))
        found = {allow: p.cli('doctor', '--json', env={**own, 'POSTDATE_DELIVERY_ALLOW': allow})[1] for allow in (None, '*', 'a,""', 'a*')}
        states = {allow: next(f['status'] for f in json.loads(text)['checks'] if f['check'] == 'delivery.allow') for allow, text in found.items()}
        self.assertEqual(states, {None: 'ok', '*': 'warn', 'a,""': 'warn', 'a*': 'ok'})

    def test_a_reply_to_that_only_a_requester_can_use_is_refused_at_each_door(self):
        """RabbitMQ would close the gateway's channel over it. Over AMQP it is replaced by RabbitMQ before it comes here."""
        p = self.place()
        web = Web(p.gateway().http())
        self.addCleanup(web.close)
        c = p.client()
        c.queue('answers')
        wrong = 'amq.rabbitmq.reply-to'
        asked = {'routing_key': 'k', 'delay_ms': 3600000, 'body': '', 'properties': {'reply_to': wrong}}
        answer = web.post('/v1/messages', asked)
        self.assertEqual((answer.status, answer.problem), (422, 'invalid-message'), answer)
        self.assertIn(f'reply_to: "{wrong}"', answer.json['detail'])
        c.publish('postdate.control', json.dumps({'op': 'schedule', **asked}).encode(), exchange='', reply_to='answers')
        self.assertEqual(json.loads(c.wait_get('answers').body)['status'], 422)
        code, _, err = p.cli('schedule', '--batch', '-', stdin=json.dumps(asked))
        self.assertEqual((code, f'reply_to: "{wrong}"' in err), (65, True), err)
        answer = web.ask('PUT', '/v1/recurring/r', {'cron': '@daily', 'routing_key': 'k', 'body': '', 'properties': {'reply_to': wrong}})
        self.assertEqual(answer.status, 422, answer)
        with self.assertRaisesRegex(AssertionError, 'properties: reply_to is not allowed'):
            p.psql(f"""select postdate.schedule('k', 'x', '1 h', properties => '{{"reply_to": "{wrong}"}}')""")
        for taken in (wrong + '.g1h2', 'answers'):
            self.assertEqual(web.post('/v1/messages', {**asked, 'properties': {'reply_to': taken}}).status, 201)

    def test_a_requester_over_amqp_is_answered_when_due(self):
        """What it sent has another reply_to by then, which leads to it as long as it is there."""
        p = self.place()
        p.gateway()
        c = p.client()
        c.queue('work', 'k')
        answers = []
        c.channel.basic_consume('amq.rabbitmq.reply-to', lambda *args: answers.append(args[3]), auto_ack=True)
        c.publish('k', b'request', {'x-delay': 100}, reply_to='amq.rabbitmq.reply-to')
        worker = p.client()
        request = worker.wait_get('work')
        worker.publish(request.properties.reply_to, b'answer', {'x-delay': 100, 'x-postdate-exchange': ''})
        wait_until(lambda: c.connection.process_data_events(0) or answers == [b'answer'], 10, 'the answer')

    def test_deaths_that_are_none_are_refused_at_each_door(self):
        """RabbitMQ's at-least-once dead-lettering dies over them, for a whole node."""
        p = self.place()
        web = Web(p.gateway().http())
        self.addCleanup(web.close)
        c = p.client()
        c.publish('k', b'odd', {'x-death': ['a', 'b'], 'x-delay': 10})
        self.assertIn('"x-death" is no array of tables', c.wait_get('postdate.rejected').headers['x-postdate-error'])
        c.publish('k', b'text', {'x-death': 'a', 'x-delay': 10})
        self.assertEqual(c.wait_get('postdate.rejected').body, b'text')
        for odd in ('a', 5, ['a'], [{'queue': 'q'}, 'a'], [{'!bytes': 'YQ=='}]):
            answer = web.post('/v1/messages', {'routing_key': 'k', 'delay_ms': 3600000, 'body': '', 'headers': {'x-death': odd}})
            self.assertEqual((answer.status, answer.problem), (422, 'invalid-message'), (odd, answer))
            with self.assertRaisesRegex(AssertionError, 'headers: x-death is not an array of objects'):
                p.psql(f"""select postdate.schedule('k', 'x', '1 h', headers => '{json.dumps({'x-death': odd})}')""")
        for fine in ([], [{'queue': 'q', 'count': 1}]):
            self.assertEqual(web.post('/v1/messages', {'routing_key': 'k', 'delay_ms': 3600000, 'body': '', 'headers': {'x-death': fine}}).status, 201)
            p.psql(f"""select postdate.schedule('k', 'x', '1 h', headers => '{json.dumps({'x-death': fine})}')""")

    def test_a_forged_death_chooses_no_route(self):
        """RabbitMQ before 4.0 counts up what a publisher wrote, and keeps the rest of it, when a message expires on its way in."""
        p = self.place()
        env = {'POSTDATE_ROUTE': 'secret.delayed=secret', 'POSTDATE_DELIVERY_ALLOW': 'postdate.delivery'}
        p.gateway(**env).term()
        c = p.client()
        c.channel.exchange_declare('secret', 'fanout', durable=True)
        c.queue('q', '', exchange='secret')
        for count in (1, 0):
            death = {'count': count, 'reason': 'expired', 'queue': 'postdate.intake', 'exchange': 'secret.delayed', 'routing-keys': ['k']}
            c.publish('k', b'forged', {'x-death': [death]}, expiration='1')
        wait_until(lambda: c.depth('postdate.intake.expired') == 2, 10, 'them to expire')
        gw = p.gateway(**env)
        inbox = p.consumer('q')
        wait_until(lambda: inbox.all() or sum(p.counts().values()) + c.depth('postdate.rejected') == 2, 10, 'both to be judged')
        self.assertEqual([m.body for m in inbox.all()], [])
        refused = [c.wait_get('postdate.rejected') for _ in range(c.depth('postdate.rejected'))]
        if int(p.stack.rabbitmqctl('version').split('.')[0]) < 4:
            self.assertEqual(len(refused), 2)
        for m in refused:
            self.assertIn('a publisher can forge x-death', m.headers['x-postdate-error'])
        self.assertEqual(gw.term(), 0)
