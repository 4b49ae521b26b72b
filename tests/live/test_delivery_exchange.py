"""The delivery exchange is the user's where the user made it: its type is kept."""
from harness import LiveTest


class DeliveryExchange(LiveTest):
    weight = 3

    def test_one_that_is_there_keeps_its_type(self):
        """Plain keys need no topics."""
        p = self.place()
        c = p.client()
        c.channel.exchange_declare('orders', 'direct', durable=True)
        c.queue('work', 'order.new', 'orders')
        p.gateway(POSTDATE_DELIVERY_EXCHANGE='orders', POSTDATE_DELIVERY_ALLOW=None)
        c.publish('order.new', b'by a plain key', {'x-delay': 500})
        inbox = p.consumer('work')
        self.assertEqual([(m.exchange, m.routing_key) for m in inbox.wait(1)], [('orders', 'order.new')])
        _, out, err = p.cli('doctor', env={'POSTDATE_DELIVERY_EXCHANGE': 'orders', 'POSTDATE_DELIVERY_ALLOW': None})
        self.assertRegex(out, r'broker.topology\s.*exist with the expected settings', out + err)

    def test_one_that_is_missing_is_a_topic_exchange(self):
        p = self.place()
        p.gateway(POSTDATE_DELIVERY_EXCHANGE='orders', POSTDATE_DELIVERY_ALLOW=None)
        p.client().channel.exchange_declare('orders', 'topic', durable=True)  # closes the channel where it is another
