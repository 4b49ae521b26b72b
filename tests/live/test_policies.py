"""Policies that operators set on all queues: what waits in RabbitMQ's queues is neither lost nor early, and somebody says why."""
import json

from harness import LiveTest, now_ms, wait_until

SAID = 'a policy of RabbitMQ changes its waiting'


class Policies(LiveTest):
    who_waits = 'ttl'

    def policy(self, p, definition, pattern='.*', name='all', priority=0):
        p.stack.rabbitmqctl('set_policy', '-p', p.vhost, '--apply-to', 'queues', '--priority', str(priority), name, pattern,
                            json.dumps(definition))

    def clear(self, p, name='all'):
        p.stack.rabbitmqctl('clear_policy', '-p', p.vhost, name)

    def all_on_time(self, p, count=10, delay_ms=3000, late_ms=1500):
        """Messages that are far enough ahead to be handed over arrive once each, none early."""
        inbox, c, sent = p.consumer('q', bind='k'), p.client(), {}
        for i in range(count):
            sent[b'%d' % i] = now_ms()
            c.publish('k', b'%d' % i, {'x-delay': delay_ms})
        for m in inbox.wait(count, delay_ms / 1000 + 10):
            self.assert_on_time(m, sent[m.body], delay_ms, late_ms)
        wait_until(lambda: p.counts() == {'delivered': count}, 10, 'all to be settled')
        self.assertEqual(len(inbox.all()), count, 'some came twice')

    def test_another_routing_key(self):
        p = self.place()
        self.policy(p, {'dead-letter-routing-key': 'elsewhere', 'dead-letter-exchange': 'amq.fanout'})
        g = p.gateway()
        self.all_on_time(p)
        said = g.lines_with(SAID)
        self.assertEqual(len(said), 1, g.log())
        self.assertIn('another routing key', said[0])
        self.assertIn(f"set_policy -p '{p.vhost}' --apply-to queues --priority 1000000 postdate '^postdate\\.' '{{\"overflow\"", said[0])

    def test_a_time_to_live_shorter_than_the_wait(self):
        p = self.place()
        self.policy(p, {'message-ttl': 1500})
        g = p.gateway()
        g.wait_log(SAID + '.*expire after')
        self.all_on_time(p, delay_ms=6000)
        self.assertEqual(g.lines_with('died without|was stopped and may'), [], 'an expired mark is no crash')
        self.assertEqual(p.value('select count(*) from postdate.message where attempts > 1'), '0')

    def test_queues_that_take_only_a_few(self):
        p = self.place()
        self.policy(p, {'max-length': 3})
        g = p.gateway()
        g.wait_log(SAID + '.*take only a few')
        inbox, c = p.consumer('q', bind='k', exchange='amq.topic'), p.client()  # the consumer's queue is read at once
        due = {}
        for i in range(10):
            due[b'%d' % i] = now_ms() + 3000
            c.publish('k', b'%d' % i, {'x-delay': 3000, 'x-postdate-exchange': 'amq.topic'})
            wait_until(lambda: c.depth('postdate.intake') == 0, 10, 'the intake to read it')
        for m in inbox.wait(10):
            self.assertGreaterEqual(m.at_ms, due[m.body])

    def test_what_the_remedy_says_helps(self):
        p = self.place()
        self.policy(p, {'dead-letter-routing-key': 'elsewhere', 'message-ttl': 600_000})
        g = p.gateway()
        g.wait_log(SAID)
        self.policy(p, {'overflow': 'reject-publish'}, r'^postdate\.', 'postdate', 1_000_000)
        g.wait_log('no policy of RabbitMQ changes its waiting any more', 30)
        c = p.client()
        c.queue('q', 'k')
        c.publish('k', b'm', {'x-delay': 60_000})
        wait_until(lambda: p.counts() == {'handed': 1}, 10, 'it to be handed over')
        self.assertEqual(g.term(), 0)
        self.assertEqual(p.gateway().lines_with('policy'), [])

    def test_a_policy_that_is_set_while_a_gateway_runs(self):
        p = self.place()
        g = p.gateway()
        self.assertEqual(g.lines_with('policy'), [], g.log())
        self.policy(p, {'dead-letter-routing-key': 'elsewhere'})
        g.wait_log(SAID, 20)
        self.all_on_time(p)
        self.clear(p)
        g.wait_log('handed over again', 20)

    def test_what_would_drop_accepted_messages_is_said(self):
        for who in ('timer', 'ttl'):
            with self.subTest(who):
                p = self.place(transport=who)
                self.policy(p, {'overflow': 'drop-head', 'max-length': 100000})
                g = p.gateway()
                self.assertEqual(len(g.lines_with("sets overflow on quorum queues.*'postdate.intake' too.*set_policy")), 1, g.log())
    test_what_would_drop_accepted_messages_is_said.vhosts = 2
