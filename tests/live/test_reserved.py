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
