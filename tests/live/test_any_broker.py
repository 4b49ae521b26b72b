"""What publishes goes by what a broker says of each publish, in whatever order it comes. The broker is any_broker.py, the judge its ledger."""
import os
import random

from any_broker import AnyBroker
from harness import LiveTest, wait_until

FEW = 4  # in flight to a destination that does not confirm: RabbitMQ reads no more of a channel that has 32


class Broker(LiveTest):
    weight = 10
    who_waits = 'timer'

    def begin(self, behaves):
        seed = int(os.environ.get('SEED') or random.randrange(1 << 30))
        print(f'note any broker: SEED={seed}', flush=True)
        self.p = self.place()
        self.broker = AnyBroker(self.p.amqp, seed)
        self.broker.behaves = behaves
        self.addCleanup(self.broker.close)
        self.gw = self.gateway()
        self.broker.be_hostile({})

    def gateway(self, **options):
        return self.p.gateway(POSTDATE_AMQP_URL=self.broker.url, POSTDATE_RETRY_ATTEMPTS=1000, POSTDATE_RETRY_FIRST='50ms', POSTDATE_RETRY_MAX='200ms', **options)

    def schedule(self, count, key, exchange, delay):
        """Expressions of SQL, by the number i."""
        self.p.psql(f"select postdate.schedule({key}, {key} || ' ' || i, {delay}, exchange => {exchange}, hold => 'gateway') from generate_series(1, {count}) i")

    def delivered(self):
        """{body: when it is due}, of all that are said to be."""
        return {body.encode(): float(ms) for body, ms in self.p.psql(
            "select convert_from(body, 'UTF8'), extract(epoch from due) * 1000 from postdate.message_now where state = 'delivered'")}

    def assert_kept(self, count, once=True):
        """All rules, once all are settled."""
        wait_until(lambda: self.p.counts() == {'delivered': count}, 90, 'all to be delivered')
        self.assertEqual(list(self.broker.ledger.breaches(self.delivered(), once)), [])
        self.assertEqual(self.gw.term(), 0)


class Answers(Broker):
    def test_whatever_is_said_and_in_whatever_order(self):
        self.begin(behaves=False)
        self.schedule(1500, "'k' || i % 300", "'x' || i % 40", "i % 40 * interval '100 ms'")
        everything = {'confirm_one', 'confirm_many', 'refuse_one', 'refuse_many', 'give_back', 'close_channel', 'end'}
        wait_until(lambda: self.broker.done >= everything and len(self.broker.ledger.publishes) >= 1000, 60, 'all that may be said to be said')
        self.broker.behaves = True
        self.assert_kept(1500)


class Deaths(Broker):
    def test_of_what_is_settled_nothing_comes_again_and_of_the_rest_nothing_is_lost(self):
        """Gateways are killed in the middle of ranges of which some are confirmed and some are not."""
        self.begin(behaves=False)
        self.schedule(4000, "'k' || i % 50", "'x'", "i * interval '1 ms'")
        settled = {}
        for share in (1000, 2500):
            wait_until(lambda n=share: len(self.delivered()) > n, 60, 'some to be delivered')
            self.gw.kill9()
            published = self.broker.ledger.count()
            settled |= {body: published[body] for body in self.delivered()}
            self.gw = self.gateway(wait=False)
        self.broker.behaves = True
        self.assert_kept(4000, once=False)
        now = self.broker.ledger.count()
        self.assertEqual({body: now[body] for body in settled}, settled)


class Silence(Broker):
    def test_what_is_not_confirmed_gets_few_and_delays_no_other(self):
        self.begin(behaves=True)
        self.broker.silent = {b'silent'}
        self.schedule(200, "'silent'", "'x'", "interval '4 s'")  # by then the window is as large as it gets
        self.schedule(2000, "'k' || i % 50", "'x'", "interval '1 s' + i * interval '2 ms'")
        most = []

        def others():
            most.append(self.broker.unanswered(b'silent'))
            return self.p.counts().get('delivered') == 2000
        wait_until(others, 60, 'all others to be delivered')
        self.assertIn(max(most), range(1, 2 * FEW + 1))
        self.gw.wait_log("confirms nothing published to exchange 'x', routing key 'silent'")
        self.broker.silent = set()
        self.gw.wait_log('confirms everything again', 60)
        self.assert_kept(2200)
        self.assertEqual(len(self.gw.lines_with('confirms nothing published')), 1)
