"""amqp.prefix: several Postdates, each with a database of its own, live in one vhost and deliver to the same exchanges."""
from harness import LiveTest, now_ms, wait_until


class Prefix(LiveTest):
    def two(self, transport=None, **env):
        """Two places in one vhost, each with a gateway."""
        one = self.place(transport=transport)
        two = self.place(transport=transport, vhost=one.vhost, prefix='cell2')
        return one, two, one.gateway(**env), two.gateway(**env)

    def check_both(self, transport, count=10, **env):
        """Each takes what is published to it, holds it in its own lists, and delivers it by the exchange that both share."""
        one, two, *_ = self.two(transport, **env)
        inbox, c, at = one.consumer('q', bind='k'), one.client(), now_ms()
        for i in range(count):
            for exchange in ('postdate', 'cell2'):
                c.publish('k', b'%s %d' % (exchange.encode(), i), {'x-delay': 500 if i % 2 else 4000}, exchange=exchange)
        got = inbox.wait(2 * count)
        for m in got:
            self.assertGreaterEqual(m.at_ms, at + (500 if int(m.body.split()[1]) % 2 else 4000), 'early')
        for p in (one, two):
            wait_until(lambda p=p: p.counts() == {'delivered': count}, 10, 'all to be settled')
        self.assertEqual(sorted({m.body for m in got}), sorted(m.body for m in inbox.messages), 'twice')
        self.assertEqual(len(inbox.messages), 2 * count)

    def test_two_in_one_vhost_with_the_timer(self):
        self.check_both('timer')

    def test_two_in_one_vhost_with_ttl(self):
        self.check_both('ttl', POSTDATE_HANDOVER_MIN_AHEAD='1s')
