"""Policies that operators set on all queues: what waits in RabbitMQ's queues is neither lost nor early, and somebody says why."""
import glob
import json
import time
import urllib.request

from harness import LiveTest, now_ms, wait_until

SAID = 'a RabbitMQ policy changes how it holds messages'


class Policy(LiveTest):
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


class Policies(Policy):
    who_waits = 'ttl'

    def test_another_routing_key(self):
        p = self.place()
        self.policy(p, {'dead-letter-routing-key': 'elsewhere', 'dead-letter-exchange': 'amq.fanout'})
        g = p.gateway(POSTDATE_HANDOVER_LAST_HOP='broker')
        self.all_on_time(p)
        said = g.lines_with(SAID)
        self.assertEqual(len(said), 1, g.log())
        self.assertIn('another routing key', said[0])
        self.assertIn('postdate_policy_in_the_way 1\n', urllib.request.urlopen('http://%s:%d/metrics' % g.http()).read().decode())
        self.assertIn(f"set_policy -p '{p.vhost}' --apply-to queues --priority 1000000 postdate '^postdate\\.' '{{\"overflow\"", said[0])

    def test_another_routing_key_does_no_harm_where_a_gateway_delivers(self):
        p = self.place()
        self.policy(p, {'dead-letter-routing-key': 'elsewhere', 'dead-letter-exchange': 'amq.fanout'})
        g = p.gateway()
        self.all_on_time(p)
        self.assertEqual(p.value('select count(*) from postdate.message_now where next_at > due'), '10', 'not handed over')
        self.assertEqual(g.lines_with(SAID), [])

    def test_a_time_to_live_shorter_than_the_wait(self):
        p = self.place()
        self.policy(p, {'message-ttl': 1500})
        g = p.gateway()
        g.wait_log(SAID + '.*expire after')
        self.all_on_time(p, delay_ms=6000)
        self.assertEqual(g.lines_with('died without|was stopped and may'), [], 'an expired mark is no crash')
        self.assertEqual(p.value('select count(*) from postdate.message_now where attempts > 1'), '0')

    def wake_ups(self, g):
        """How often each thread has gone to sleep."""
        found = {}
        for path in glob.glob(f'/proc/{g.process.pid}/task/*/status'):
            with open(path, encoding='ascii') as f:
                found[path] = int(next(line for line in f if line.startswith('voluntary')).split()[1])
        return found

    def test_while_it_is_in_the_way_nobody_asks_in_circles(self):
        p = self.place()
        self.policy(p, {'message-ttl': 1500})
        g = p.gateway()
        g.wait_log(SAID)
        before, began = self.wake_ups(g), time.monotonic()
        time.sleep(3)
        after, seconds = self.wake_ups(g), time.monotonic() - began
        self.assertLess(max(n - before.get(path, n) for path, n in after.items()) / seconds, 130)

    def test_queues_that_take_only_a_few(self):
        p = self.place()
        self.policy(p, {'max-length': 3})
        g = p.gateway()
        g.wait_log(SAID + '.*accept only a few')
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
        g = p.gateway(POSTDATE_HANDOVER_LAST_HOP='broker')
        g.wait_log(SAID)
        self.policy(p, {'overflow': 'reject-publish'}, r'^postdate\.', 'postdate', 1_000_000)
        g.wait_log('no RabbitMQ policy changes how it holds messages any more', 30)
        c = p.client()
        c.queue('q', 'k')
        c.publish('k', b'm', {'x-delay': 60_000})
        wait_until(lambda: p.counts() == {'handed': 1}, 10, 'it to be handed over')
        self.assertEqual(g.term(), 0)
        self.assertEqual(p.gateway(POSTDATE_HANDOVER_LAST_HOP='broker').lines_with('policy'), [])

    def test_a_policy_that_is_set_while_a_gateway_runs(self):
        p = self.place()
        g = p.gateway(POSTDATE_HANDOVER_LAST_HOP='broker')
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
                g.wait_log("sets overflow on quorum queues.*'postdate.intake' too.*set_policy")
    test_what_would_drop_accepted_messages_is_said.vhosts = 2


class NativePolicies(Policy):
    """As above, where the exit queue itself waits."""
    who_waits = 'native'

    def test_an_exit_queue_that_would_drop_is_given_nothing(self):
        """RabbitMQ 4.4 (its source of August 2026) has a queue search for ever for what to drop, when only delayed ones are there."""
        p = self.place()
        self.policy(p, {'overflow': 'drop-head', 'max-length': 100})
        g = p.gateway()
        g.wait_log(SAID + '.*overflow')
        self.all_on_time(p)
        self.assertEqual(p.value('select count(*) from postdate.message_now where next_at > due'), '0', 'handed over')


class IntakePolicies(Policy):
    """What is accepted, or parked, or asked for, stays where somebody finds it."""
    who_waits = 'timer'

    def test_what_expires_while_no_gateway_runs_is_parked(self):
        p = self.place()
        self.assertEqual(p.gateway().term(), 0)
        self.policy(p, {'message-ttl': 300}, '^postdate.intake')
        c = p.client()
        for i in range(10):
            c.publish('k', b'%d' % i, {'x-delay': 1000})
        wait_until(lambda: c.depth('postdate.rejected') == 10, 15, 'all to be parked')

    def test_a_full_queue_refuses_instead_of_forgetting(self):
        p = self.place()
        self.policy(p, {'max-length': 3}, '^postdate.rejected')
        g = p.gateway()
        c = p.client()
        sent = set()

        def one_more():  # A quorum queue tells its publishers only afterwards that it is full: what is under way is let in.
            sent.add(b'%d' % len(sent))
            c.publish('k', b'%d' % (len(sent) - 1), {'x-delay': 'never'})
            time.sleep(0.1)
            return g.lines_with('cannot move .* rejected message.*is it full')
        wait_until(one_more, 30, 'a parking that is refused')
        seen = set()

        def all_seen():
            m = c.get('postdate.rejected')
            return (m and seen.add(m.body)) or seen == sent
        wait_until(all_seen, 60, 'all to be parked in turn')

    def test_doctor_says_it(self):
        p = self.place(transport='ttl')
        p.gateway()
        self.policy(p, {'message-ttl': 400, 'overflow': 'drop-head'})
        found = {x['check']: x for x in json.loads(p.cli('doctor', '--json')[1])['checks']}
        self.assertEqual(found['handover.policies']['status'], 'warn')
        self.assertRegex(found['handover.policies']['detail'], 'expire after .*message-ttl')
        self.assertEqual(found['broker.overflow']['status'], 'fail')
        for check in ('handover.policies', 'broker.overflow'):
            self.assertIn(f"set_policy -p '{p.vhost}' --apply-to queues --priority 1000000 postdate", found[check]['remedy'])
