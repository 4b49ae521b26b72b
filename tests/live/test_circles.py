"""What gets Postdate's deliveries leads to Postdate again: a binding, a dead-letter exchange, a consumer."""
from harness import LiveTest, not_san, wait_until
from test_crash_points import SHIM

LIMIT = 16


class Circles(LiveTest):
    def place_with_queue(self, **arguments):
        p = self.place()
        g = p.gateway()
        c = p.client()
        c.queue('q', 'k', arguments=arguments or None)
        return p, g, c

    def parked(self, c):
        m = c.wait_get('postdate.rejected', 20)
        return m, m.headers['x-postdate-error']

    def test_an_exchange_that_leads_back(self):
        p, g, c = self.place_with_queue()
        c.channel.exchange_bind('postdate', 'postdate.delivery', '#')
        inbox = p.consumer('q')
        c.publish('k', b'round', {'x-delay': 100}, message_id='mine')
        m, why = self.parked(c)
        self.assertIn(f'more than {LIMIT} times within a minute', why)
        self.assertEqual((m.body, m.headers['x-postdate-hops'], m.headers['x-delay']), (b'round', LIMIT, -100))
        wait_until(lambda: p.counts() == {'delivered': LIMIT + 1}, 10, 'all to be settled')
        self.assertEqual([x.headers.get('x-postdate-hops') for x in inbox.wait(LIMIT + 1)], [None, *range(1, LIMIT + 1)])
        self.assertEqual(len(g.lines_with('postdate.rejected.*x-postdate-hops')), 1, g.log())
        self.assertEqual([c.depth(q) for q in ('postdate.intake', 'postdate.rejected')], [0, 0])
        self.assertEqual(len(inbox.all()), LIMIT + 1)
        # somebody mends it, and publishes again what was parked
        c.channel.exchange_unbind('postdate', 'postdate.delivery', '#')
        c.channel.basic_publish('', 'postdate.rejected', m.body, m.properties)
        wait_until(lambda: c.depth('postdate.rejected') == 1, 10, 'it to be parked again')
        self.assertEqual(p.cli('rejected', 'requeue', '1')[0], 0)
        self.assertNotIn('x-postdate-hops', inbox.wait(LIMIT + 2)[-1].headers)
        self.assertEqual(c.depth('postdate.rejected'), 0)

    def test_a_queue_that_dead_letters_back(self):
        """It would be due at once, and go to the default delivery exchange instead of the one that it came from."""
        p, g, c = self.place_with_queue(**{'x-dead-letter-exchange': 'postdate'})
        c.channel.exchange_declare('orders', 'fanout')
        c.channel.queue_bind('q', 'orders')
        c.publish('k', b'refused', {'x-delay': 100, 'x-postdate-exchange': 'orders'})
        wait_until(lambda: c.depth('q') == 1, 10, 'it to be delivered')
        method, _, _ = c.channel.basic_get('q')
        c.channel.basic_reject(method.delivery_tag, requeue=False)
        m, why = self.parked(c)
        self.assertRegex(why, 'queue "q" dead-lettered .* no new delay .*postdate.retry')
        self.assertEqual((m.body, m.headers['x-death'][0]['exchange']), (b'refused', 'orders'))
        self.assertEqual(len(g.lines_with('postdate.rejected.*x-death')), 1, g.log())
        self.assertEqual((c.depth('q'), p.counts()), (0, {'delivered': 1}))
        # published again by hand
        c.channel.queue_bind('q', 'postdate.delivery', 'k')
        c.channel.basic_publish('', 'postdate.rejected', m.body, m.properties)
        wait_until(lambda: c.depth('postdate.rejected') == 1, 10, 'it to be parked again')
        self.assertEqual(p.cli('rejected', 'requeue', '1')[0], 0)
        self.assertEqual(c.wait_get('q').body, b'refused')

    def test_a_queue_that_dead_letters_what_postdate_did_not_deliver(self):
        _, _, c = self.place_with_queue()
        c.queue('foreign', arguments={'x-dead-letter-exchange': 'postdate', 'x-dead-letter-routing-key': 'k'})
        for headers in ({'x-delay': 50}, {}):
            c.publish('foreign', b'mine', headers, exchange='')
            method, _, _ = wait_until(lambda: (got := c.channel.basic_get('foreign'))[0] and got, 10, 'it')
            c.channel.basic_reject(method.delivery_tag, requeue=False)
            self.assertEqual(c.wait_get('q').body, b'mine')
        self.assertEqual(c.depth('postdate.rejected'), 0)

    def test_a_consumer_that_publishes_again_with_a_new_delay_makes_no_circle(self):
        p, _, c = self.place_with_queue()
        c.publish('k', b'retried', {'x-delay': 10})
        for _ in range(2 * LIMIT):
            m = c.wait_get('q')
            self.assertNotIn('x-postdate-hops', m.headers)
            m.properties.headers['x-delay'] = 10
            c.channel.basic_publish('postdate', 'k', m.body, m.properties)
        self.assertEqual((c.wait_get('q').body, c.depth('postdate.rejected')), (b'retried', 0))
        wait_until(lambda: p.counts() == {'delivered': 2 * LIMIT + 1}, 10, 'all to be settled')

    @not_san  # the shim
    def test_a_redelivery_of_what_came_back_is_stored_once(self):
        """What is counted comes from the message, so that its redelivery looks the same."""
        p, g, c = self.place_with_queue()
        c.publish('k', b'again', {'x-delay': 10})
        m = c.wait_get('q')
        self.assertEqual(g.term(), 0)
        intake = p.client()
        intake.channel.basic_publish('postdate', 'k', m.body, m.properties)
        wait_until(lambda: c.depth('postdate.intake') == 1, 10, 'it to wait')
        p.gateway(wait=False, LD_PRELOAD=SHIM, POSTDATE_CRASH='accept.after').wait()
        wait_until(lambda: c.depth('postdate.intake') == 1, 10, 'it to wait again')
        p.gateway()
        self.assertEqual(c.wait_get('q').headers['x-postdate-hops'], 1)
        wait_until(lambda: p.counts() == {'delivered': 2}, 10, 'all to be settled')
        self.assertEqual(c.depth('q'), 0)


