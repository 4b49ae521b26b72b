"""RabbitMQ waits with messages, and when they fall due their delivery exchange is gone, or the binding to it. That is noticed as it
is with what the gateway held: they are tried again, fail visibly, and arrive when the target is back. Rescue is out of the
question here (its grace is an hour): what is not noticed is lost."""

import harness
from handover_kit import EXIT, Checks, handover, metric
from harness import LiveTest, wait_until

COUNT = 500 if harness.SAN else 2000
TARGET = 'orders'
QUICK = {'POSTDATE_RETRY_FIRST': '100ms', 'POSTDATE_RETRY_MAX': '500ms'}


class Targets(Checks):
    weight = 15

    def begin(self, **settings):
        self.p = self.place()
        self.g = self.p.gateway(**{**handover(self.transport), **QUICK, **settings})
        self.c = self.p.client()
        self.make_target()
        return self.p

    def make_target(self):
        self.c.channel.exchange_declare(TARGET, 'topic', durable=True)
        self.c.queue('q', '#', TARGET)

    def hand_over(self, count, spread='2500,4500'):
        """count messages for TARGET; returns their consumer."""
        inbox = self.p.load('consume', '--queue', 'q', '--exchange', TARGET, '--bind', '#', '--expect', count,
                            '--timeout-s', 60, '--idle-s', 1).wait_consuming()
        self.p.load('publish', '--routing-key', 'k', '--target', TARGET, '--count', count,
                    '--delay-spread-ms', spread).result()
        return inbox

    def count(self, where):
        return int(self.p.value(f'select count(*) from postdate.message_now where {where}'))

    def wait_count(self, where, count, deadline_s=20):
        wait_until(lambda: self.count(where) >= count, deadline_s, f'{count} messages {where}', 0.05)

    def assert_all_arrive(self, inbox, count, duplicates=0):
        r = inbox.result()
        self.assertEqual((r['missing'], r['early'], r['unexpected']), (0, 0, 0), r)
        self.assertLessEqual(r['duplicates'], duplicates, r)
        wait_until(lambda: self.p.counts() == {'delivered': count}, 40, 'all to be delivered')
        wait_until(lambda: self.c.depth(EXIT) == 0, 10, 'the exit queue to hold nothing, nor a ping that has just come')

    def test_an_exchange_deleted_while_they_fall_due_and_made_again(self):
        self.begin()
        inbox = self.hand_over(COUNT)
        self.wait_count("state = 'handed'", COUNT // 2)
        self.wait_count("state = 'delivered'", COUNT // 10)
        self.c.channel.exchange_delete(TARGET)
        self.wait_count("state = 'scheduled' and attempts > 0", COUNT // 10)
        self.make_target()
        # The deletion closes the publisher's channel; what was unconfirmed there is in doubt.
        self.assert_all_arrive(inbox, COUNT, duplicates=COUNT // 4)

    def test_what_stays_unroutable_fails_visibly_and_can_be_cancelled(self):
        """One whose exchange is gone, and one whose binding is: the broker took that silently when it did the last hop."""
        # Slower than the gateway forgets that an exchange was missing (a second).
        p = self.begin(POSTDATE_RETRY_ATTEMPTS='3', POSTDATE_RETRY_FIRST='1s', POSTDATE_RETRY_MAX='1s')
        self.c.channel.exchange_declare('bound.to.nothing', 'topic', durable=True)
        for key, exchange in (('fails', TARGET), ('cancelled', 'bound.to.nothing')):
            self.c.publish(key, key.encode(), {'x-delay': 1500, 'x-postdate-exchange': exchange})
        wait_until(lambda: p.counts() == {'handed': 2}, 10, 'both to be handed over')
        self.c.channel.exchange_delete(TARGET)
        wait_until(lambda: p.counts() == {'failed': 2}, 20, 'both to fail')
        said = {'fails': f"no exchange '{TARGET}'", 'cancelled': 'NO_ROUTE'}
        for attempts, key, error in p.psql('select attempts, routing_key, error from postdate.message_now'):
            self.assertEqual(attempts, '3')
            self.assertIn(said[key], error)
        self.assertEqual(p.value("select postdate.cancel(id) from postdate.message_now where routing_key = 'cancelled'"),
                         'cancelled')
        self.make_target()
        failed = p.value("select id from postdate.message_now where state = 'failed'")
        self.assertEqual(p.cli('retry', failed)[0], 0)
        self.assertEqual(self.c.wait_get('q').body, b'fails')
        wait_until(lambda: p.counts() == {'delivered': 1, 'cancelled': 1}, 10, 'the other to be delivered')
        self.assertIsNone(self.c.get('q'))

    def test_one_that_was_rejected_and_then_unroutable_arrives_once(self):
        """It stays in memory all the time: in doubt by the nack, so that a return does not put it back into the database. What was
        said of one publish says nothing of the next one."""
        p = self.begin(POSTDATE_RETRY_ATTEMPTS='1000', POSTDATE_RETRY_FIRST='300ms', POSTDATE_RETRY_MAX='300ms')
        again = 'postdate_publish_retries_total{reason="in_doubt"}'

        def wait_again():
            seen = metric(self.g, again)
            wait_until(lambda: metric(self.g, again) > seen + 1, 20, 'it to be tried again')
        c = self.c
        c.channel.exchange_declare('turns', 'topic', durable=True)
        c.queue('full', 'k', 'turns', {'x-max-length': 1, 'x-overflow': 'reject-publish'})
        c.publish('full', b'first', exchange='')
        c.publish('k', b'm', {'x-delay': 1500, 'x-postdate-exchange': 'turns'})
        wait_until(lambda: p.counts() == {'handed': 1}, 10, 'it to be handed over')
        wait_again()
        c.channel.queue_unbind('full', 'turns', 'k')
        wait_again()
        c.queue('roomy', 'k', 'turns')
        self.assertEqual(c.wait_get('roomy').body, b'm')
        wait_until(lambda: p.counts() == {'delivered': 1}, 10, 'it to be delivered')
        self.assertIsNone(c.get('roomy'))


class TtlTargets(Targets, LiveTest):
    transport = 'ttl'


@harness.not_san  # as ttl, but for the broker
@harness.only_full
class PluginTargets(Targets, LiveTest):
    transport = 'plugin'
