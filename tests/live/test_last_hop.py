"""handover.last_hop = broker: RabbitMQ itself delivers what it waited with, whether a gateway runs or not."""
import time

import harness
from handover_kit import RUNGS, Checks, handover, who_held
from harness import LiveTest, now_ms, wait_until

EXITS = ('postdate.exit.broker', 'postdate.exit.broker.2')
STUCK_S = 30  # so long the gateway watches a ping that does not come back


class LastHop(Checks):
    weight = 20

    def settings(self, last_hop='broker', **more):
        return handover(self.transport, last_hop=last_hop, **more)

    def fed(self, p, count, delay_ms=5000, bind='q'):
        """A gateway that has handed over so many, for that queue, and then ended; {body: earliest time}."""
        g = p.gateway(**self.settings())
        p.client().channel.queue_bind(bind, 'postdate.delivery', 'k')
        sent = self.publish_many(p, 'k', [delay_ms] * count)
        self.wait_held(p, count)
        self.assertEqual(g.term(), 0)
        return sent

    @harness.given_time
    def test_it_delivers_while_no_gateway_runs_and_the_receipts_are_believed_later(self):
        p = self.place()
        p.client().queue('q')
        sent = self.fed(p, 100, 5000 * self.pace, bind='q')
        if now_ms() >= min(sent.values()):
            raise harness.TooSlow('they were due before the gateway had ended')
        inbox = p.consumer('q')
        inbox.wait(100, 10 + 5 * self.pace)
        self.assert_each_once_and_not_early(inbox, sent)
        message = inbox.all()[0]
        self.assertEqual((message.exchange, message.routing_key), ('postdate.last', 'k'))
        self.assertLess(max(m.at_ms - m.due_ms for m in inbox.all()), 2000 * harness.slowness())
        self.assertEqual(p.counts(), {'handed': 100})
        p.gateway(**self.settings(grace='1s'))
        self.wait_delivered(p, 100)
        time.sleep(2)  # past grace
        self.assertEqual(len(inbox.all()), 100, 'delivered a second time')

    @harness.given_time
    def test_cron_alone_feeds_and_settles(self):
        p = self.place()
        if self.transport == 'plugin':
            p.stack.need_plugin()
        env = p.env(**self.settings(window='1h'))
        self.assertEqual(p.cli('feed', env=env)[0], 0)  # declares what is published to
        c = p.client()
        c.queue('q', 'k')
        sent = self.publish_many(p, 'k', [12_000 * self.pace] * 100)
        self.assertEqual(p.cli('feed', env=env)[0], 0)
        self.assertEqual(p.counts(), {'handed': 100})
        if now_ms() >= min(sent.values()):
            raise harness.TooSlow('they were due before the feed had ended')
        inbox = p.consumer('q')
        inbox.wait(100, 8 + 12 * self.pace)
        self.assert_each_once_and_not_early(inbox, sent)
        self.assertEqual(p.counts(), {'handed': 100})
        self.assertEqual(p.cli('feed', env=env)[0], 0)
        self.assertEqual(p.counts(), {'delivered': 100})
        self.assertEqual(len(inbox.all()), 100, 'delivered a second time')

    def test_a_consumer_may_read_straight_from_the_dead_letter_exchange(self):
        p = self.place()
        p.gateway(**self.settings())
        c = p.client()
        c.channel.queue_declare('straight', durable=True)
        c.channel.queue_bind('straight', 'postdate.last', '', {'x-match': 'all-with-x', 'x-postdate-exchange': 'postdate.delivery'})
        sent = self.publish_many(p, 'nobody.binds.this', [3000] * 20)
        inbox = p.consumer('straight')
        inbox.wait(20, 15)
        self.assert_each_once_and_not_early(inbox, sent)
        self.wait_delivered(p, 20)

    def test_what_it_cannot_deliver_as_it_was_goes_through_a_gateway(self):
        p = self.place()
        p.gateway(**self.settings())
        c = p.client()
        c.queue('work')
        inbox = p.consumer('q', bind='#')
        work = p.consumer('work')
        death = [{'queue': 'theirs', 'reason': 'rejected', 'count': 1, 'exchange': 'x', 'routing-keys': ['k']}]
        c.publish('k', b'expiration', {'x-delay': 3000, 'x-postdate-hold': 'broker'}, expiration='60000')
        c.publish('k', b'death', {'x-delay': 3000, 'x-death': death})
        c.publish('k', b'urgent', {'x-delay': 3000}, priority=5)
        c.publish('k', b'not urgent', {'x-delay': 3000}, priority=4)
        c.publish('work', b'default exchange', {'x-delay': 3000, 'x-postdate-exchange': ''})
        c.publish('k', b'plain', {'x-delay': 3000})
        inbox.wait(5, 15)
        work.wait(1, 15)
        came = {m.body: m for m in inbox.all() + work.all()}
        self.assertEqual({b: m.exchange for b, m in came.items()}, {b'expiration': 'postdate.delivery', b'death': 'postdate.delivery',
                                                                   b'urgent': 'postdate.delivery', b'not urgent': 'postdate.last',
                                                                   b'default exchange': '', b'plain': 'postdate.last'})
        self.assertEqual(came[b'expiration'].properties.expiration, '60000')
        self.assertEqual(who_held(p, list(came.values())), {b: 'broker' if b != b'expiration' else who for b, who in
                                                            who_held(p, list(came.values())).items()})
        self.wait_delivered(p, 6)

    def test_an_exchange_that_is_gone_is_noticed(self):
        p = self.place()
        p.gateway(**self.settings(), POSTDATE_RETRY_FIRST='500ms')
        c = p.client()
        c.channel.exchange_declare('orders', 'topic', durable=True)
        for i in range(5):
            c.publish('k', b'%d' % i, {'x-delay': 4000, 'x-postdate-exchange': 'orders'})
        self.wait_held(p, 5)
        c.channel.exchange_delete('orders')
        wait_until(lambda: p.value("select count(*) from postdate.message_now where error like '%orders%' and settled_at is null") == '5', 20,
                   'the missing exchange to be said')
        c.channel.exchange_declare('orders', 'topic', durable=True)
        inbox = p.consumer('q', bind='k', exchange='orders')
        inbox.wait(5, 20)
        self.wait_delivered(p, 5)
        # Bound again for what comes next.
        c.publish('k', b'next', {'x-delay': 3000, 'x-postdate-exchange': 'orders'})
        self.assertEqual(inbox.wait_body(b'next', 15).exchange, 'postdate.last')

    def test_what_got_lost_on_the_way_is_rescued(self):
        p = self.place()
        p.gateway(**self.settings(grace='1s'))
        inbox = p.consumer('q', bind='k')
        sent = self.publish_many(p, 'k', [4000] * 30)
        self.wait_held(p, 30)
        self.lose(p)
        inbox.wait(30, 30)
        self.assert_each_once_and_not_early(inbox, sent)
        self.wait_delivered(p, 30)

    def test_what_got_lost_with_its_queues_is_rescued_without_a_transport(self):
        p = self.place()
        g = p.gateway(**self.settings(grace='1s'))
        inbox = p.consumer('q', bind='k')
        sent = self.publish_many(p, 'k', [5000] * 30)
        self.wait_held(p, 30)
        self.lose(p)
        self.assertEqual(g.term(), 0)
        c = p.client()
        for queue in (*EXITS, 'postdate.receipts'):
            c.channel.queue_delete(queue)
        p.gateway(**handover('timer', grace='1s'))
        inbox.wait(30, 30)
        self.assert_each_once_and_not_early(inbox, sent)
        self.wait_delivered(p, 30)

    def test_the_mode_may_be_changed_while_messages_wait(self):
        p = self.place()
        p.client().queue('q')
        sent = self.fed(p, 20, 7000, bind='q')
        inbox = p.consumer('q')
        g = p.gateway(**self.settings(last_hop='gateway', grace='1s'))
        sent |= {b'relayed ' + body: at for body, at in self.publish_more(p, 20, 6000).items()}
        wait_until(lambda: p.counts().get('handed') == 40, 10, 'both to wait')
        inbox.wait(40, 20)
        self.assert_each_once_and_not_early(inbox, sent)
        self.assertEqual(sorted({(m.body.startswith(b'relayed'), m.exchange) for m in inbox.all()}),
                         [(False, 'postdate.last'), (True, 'postdate.delivery')])
        self.wait_delivered(p, 40)
        time.sleep(2)
        self.assertEqual(len(inbox.all()), 40)
        self.assertEqual(g.term(), 0)

    def publish_more(self, p, count, delay_ms):
        c, sent = p.client(), {}
        for i in range(count):
            sent[b'%d' % i] = now_ms() + delay_ms
            c.publish('k', b'relayed %d' % i, {'x-delay': delay_ms})
        return sent

    def test_what_a_consumer_publishes_again_is_delivered_again(self):
        p = self.place()
        p.gateway(**self.settings())
        c = p.client()
        c.queue('q', 'k')
        c.publish('k', b'again', {'x-delay': 3000, 'mine': 1})
        for _ in range(3):
            m = c.wait_get('q', 15)
            self.assertEqual((m.exchange, m.headers['mine']), ('postdate.last', 1))
            c.publish('k', m.body, {**m.headers, 'x-delay': 3000})
        self.assertEqual(c.wait_get('q', 15).body, b'again')

    def test_targets_that_refuse_hold_up_one_exit_queue_and_then_the_other_is_used(self):
        p = self.place()
        g = p.gateway(**self.settings(window='10m'))
        c = p.client()
        c.queue('full', 'full', arguments={'x-max-length': 1, 'x-overflow': 'reject-publish'})
        inbox = p.consumer('q', bind='k')
        self.publish_many(p, 'full', [4000] * 60)
        self.wait_held(p, 60)
        wait_until(lambda: p.counts().get('delivered', 0) >= 32, 15, 'as many as hold up the others')
        held_up = self.publish_many(p, 'k', [4000] * 5)
        wait_until(lambda: p.counts().get('handed', 0) >= 20, 15, 'them to be handed over')
        g.wait_log(f'is blocked in {EXITS[0]}', STUCK_S + 30)
        self.assertEqual(inbox.all(), [], 'nothing was held up')
        _, said, _ = p.cli('doctor', env=p.env(**self.settings()))
        self.assertIn('postdate.exit.broker has been blocked for', said)
        sent = self.publish_many(p, 'k', [3001] * 20)
        wait_until(lambda: {m.body for m in inbox.all()} == set(sent), 15, 'what came later to be delivered')
        self.assertEqual(len(held_up), 5)  # they wait until the target takes what is before them
    test_targets_that_refuse_hold_up_one_exit_queue_and_then_the_other_is_used.time_limit_s = 150
    test_targets_that_refuse_hold_up_one_exit_queue_and_then_the_other_is_used.not_san = True


class TtlLastHop(LastHop, LiveTest):
    transport = 'ttl'

    def lose(self, p):
        c = p.client()
        for rung in RUNGS:
            if c.depth(rung) is not None:
                c.channel.queue_purge(rung)


class PluginLastHop(LastHop, LiveTest):
    transport = 'plugin'
    # From the exit on it is the ladder's way.
    only_full = ('test_targets_that_refuse_hold_up_one_exit_queue_and_then_the_other_is_used',
                 'test_a_consumer_may_read_straight_from_the_dead_letter_exchange', 'test_an_exchange_that_is_gone_is_noticed',
                 'test_what_a_consumer_publishes_again_is_delivered_again')

    def lose(self, p):
        c = p.client()
        c.channel.exchange_delete('postdate.delayed')
