"""Of several gateways one reads the receipts: what has none because that one is slow was not lost, and what was lost is noticed."""
import time

import harness
from handover_kit import RUNGS, Checks, handover
from harness import LiveTest, wait_until

COUNT = 60
RECEIPTS = 'postdate.receipts'


@harness.not_san  # time counts
class ReceiptTurns(Checks, LiveTest):
    weight = 40
    transport = 'ttl'

    def gateways(self, p, count=1):
        started = [p.gateway(**handover('ttl', grace='1s')) for _ in range(count)]
        self.inbox = p.consumer('q', bind='k')
        return started

    def hand_over(self, p, key, delay=4000):
        c, before = p.client(), p.counts().get('delivered', 0)
        for i in range(COUNT):
            c.publish('k', b'%s %d' % (key, i), {'x-delay': delay})
        wait_until(lambda: p.counts() == {**({'delivered': before} if before else {}), 'handed': COUNT}, 10, 'all to be handed over')

    def lose(self, p):
        c = p.client()
        for queue in RUNGS:
            if c.depth(queue):
                c.channel.queue_purge(queue)

    def each_once(self, *keys):
        self.assertEqual(sorted(m.body for m in self.inbox.all()), sorted(b'%s %d' % (key, i) for key in keys for i in range(COUNT)))

    def test_what_a_paused_one_has_not_read_is_not_published_again(self):
        """Its pause is longer than the grace, and shorter than its lease."""
        p, keys = self.place(), []
        for turn, paused in enumerate(self.gateways(p, 2)):
            keys.append(b'%d' % turn)
            self.hand_over(p, keys[-1])
            paused.pause()
            try:
                self.inbox.wait((turn + 1) * COUNT, 20)
                time.sleep(3.5)  # long enough for the other one to publish them again
            finally:
                paused.resume()
            self.wait_delivered(p, (turn + 1) * COUNT)
        self.each_once(*keys)

    def test_the_next_one_notices_what_was_lost(self):
        p = self.place()
        reader, other = self.gateways(p, 2)
        self.hand_over(p, b'a', 6000)
        reader.kill9()
        self.lose(p)
        self.wait_delivered(p, COUNT, 30)
        self.each_once(b'a')
        self.assertEqual(other.term(), 0)

    def test_a_queue_that_was_declared_otherwise_is_used_as_it_is(self):
        p = self.place()
        p.client().channel.queue_declare(RECEIPTS, durable=True)
        self.gateways(p)
        self.hand_over(p, b'a', 2500)
        self.wait_delivered(p, COUNT)
        self.hand_over(p, b'b', 3000)
        self.lose(p)
        self.wait_delivered(p, 2 * COUNT)
        self.each_once(b'a', b'b')
