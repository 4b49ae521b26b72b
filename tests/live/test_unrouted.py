"""RabbitMQ waits with messages, and when it lets them go their delivery exchange is gone, or the binding to it. Their receipts
come all the same. Rescue is out of the question here (its grace is an hour): what is not noticed is lost."""
import harness
from handover_kit import TTL_EXIT, Checks, handover, who_held
from harness import LiveTest, wait_until

COUNT = 500 if harness.SAN else 2000
UNROUTED = 'postdate.unrouted'
EARLY = 'postdate.unrouted.early'
OPEN = 'postdate.open'
TARGET = 'orders'
TO_TARGET = {'x-match': 'all-with-x', 'x-postdate-exchange': TARGET}
QUICK = {'POSTDATE_RETRY_FIRST': '100ms', 'POSTDATE_RETRY_MAX': '500ms'}


class Unrouted(Checks):
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

    def hand_over(self, count, spread='2500,4500', **load):
        """count messages for TARGET, all handed over; returns their consumer."""
        inbox = self.p.load('consume', '--queue', 'q', '--exchange', TARGET, '--bind', '#', '--expect', count,
                            '--timeout-s', 60, '--idle-s', 1).wait_consuming()
        self.p.load('publish', '--routing-key', 'k', '--target', TARGET, '--count', count,
                    '--delay-spread-ms', spread).result()
        return inbox

    def count(self, where):
        return int(self.p.value(f'select count(*) from postdate.message where {where}'))

    def wait_count(self, where, count, deadline_s=20):
        wait_until(lambda: self.count(where) >= count, deadline_s, f'{count} messages {where}', 0.05)

    def assert_all_arrive(self, inbox, count, duplicates=0, on_its_way=0):
        r = inbox.result()
        self.assertLessEqual(r['missing'], on_its_way, r)
        self.assertEqual((r['early'], r['unexpected']), (0, 0), r)
        self.assertLessEqual(r['duplicates'], duplicates, r)
        wait_until(lambda: self.p.counts() == {'delivered': count}, 20, 'all to be delivered')
        for queue in (UNROUTED, EARLY, 'postdate.receipts'):
            self.assertEqual(self.c.depth(queue), 0)

    def test_an_exchange_deleted_while_they_fall_due_and_made_again(self):
        self.begin()
        inbox = self.hand_over(COUNT)
        self.wait_count("state = 'handed'", COUNT // 2)
        self.wait_count("state = 'delivered'", COUNT // 10)
        self.c.channel.exchange_delete(TARGET)
        self.wait_count("hold = 'g'", COUNT // 10)
        self.make_target()
        # RabbitMQ removes an exchange, its bindings and what a topic exchange knows of them one after the other: what is just
        # being routed finds the exchange and no queue, and is dropped (one of 2,000, in some one of twenty runs).
        self.assert_all_arrive(inbox, COUNT, on_its_way=2)
        self.assertEqual(len(self.g.lines_with('no binding to it')), 1, self.g.log())

    def test_bindings_removed_while_they_fall_due(self):
        """They are bound again without being asked."""
        self.begin()
        inbox = self.hand_over(COUNT)
        self.wait_count("state = 'delivered'", COUNT // 10)
        self.c.channel.exchange_unbind(TARGET, OPEN, '', TO_TARGET)
        self.wait_count("hold = 'g'", COUNT // 10)
        self.assert_all_arrive(inbox, COUNT)

        def held_by_broker():
            self.c.publish('again', b'', {'x-delay': 700, 'x-postdate-exchange': TARGET})
            return who_held(self.c.wait_get('q')) == self.transport
        wait_until(held_by_broker, 30, 'one to come by the binding')

    def test_what_stays_unroutable_fails_visibly_and_can_be_cancelled(self):
        # Slower than the gateway forgets that an exchange was missing (a second).
        p = self.begin(POSTDATE_RETRY_ATTEMPTS='3', POSTDATE_RETRY_FIRST='1s', POSTDATE_RETRY_MAX='1s')
        for key in ('fails', 'cancelled'):
            self.c.publish(key, key.encode(), {'x-delay': 1500, 'x-postdate-exchange': TARGET})
        wait_until(lambda: p.counts() == {'handed': 2}, 10, 'both to be handed over')
        self.c.channel.exchange_delete(TARGET)
        wait_until(lambda: p.counts() == {'failed': 2}, 20, 'both to fail')
        for attempts, error in p.psql('select attempts, error from postdate.message'):
            self.assertEqual(attempts, '3')
            self.assertIn(TARGET, error)
        self.assertEqual(p.value("select postdate.cancel(id) from postdate.message where routing_key = 'cancelled'"),
                         'cancelled')
        self.make_target()
        failed = p.value("select id from postdate.message where state = 'failed'")
        self.assertEqual(p.cli('retry', failed)[0], 0)
        self.assertEqual(self.c.wait_get('q').body, b'fails')
        wait_until(lambda: p.counts() == {'delivered': 1, 'cancelled': 1}, 10, 'the other to be delivered')
        self.assertIsNone(self.c.get('q'))

    def test_notices_and_receipts_that_nobody_has_read_in_whatever_order(self):
        """The gateway is away when they are let go, and killed while it reads what came of it."""
        count = 300
        self.begin()
        inbox = self.hand_over(count, '2500,2600')
        self.wait_count("state = 'handed'", count)
        self.g.kill9()
        self.c.channel.exchange_delete(TARGET)
        wait_until(lambda: self.c.depth(UNROUTED) == count, 15, 'all to come back')
        self.assertEqual(self.p.counts(), {'handed': count})
        g = self.p.gateway(wait=False, **{**handover(self.transport), **QUICK})
        self.wait_count("hold = 'g'", 1)
        g.kill9()
        self.make_target()
        self.p.gateway(**{**handover(self.transport), **QUICK})
        self.assert_all_arrive(inbox, count)

    def test_without_receipts(self):
        self.begin(POSTDATE_HANDOVER_RECEIPTS='off')
        inbox = self.hand_over(200, '2500,2600')
        self.wait_count("state = 'handed'", 200)
        self.c.channel.exchange_delete(TARGET)
        self.wait_count("hold = 'g'", 200)
        self.make_target()
        self.assert_all_arrive(inbox, 200)



class TtlUnrouted(Unrouted, LiveTest):
    transport = 'ttl'

    def test_one_whose_handing_over_is_not_written_down_yet(self):
        """It comes back, and its receipt is there, while its row still says that it is being handed over."""
        p = self.begin(POSTDATE_HANDOVER_GRACE='1s')
        self.c.publish('k', b'once', {'x-delay': 2500, 'x-postdate-exchange': TARGET})
        wait_until(lambda: p.counts() == {'handed': 1}, 10, 'it to be handed over')
        p.psql("update postdate.message set state = 'claimed', owner = (select id from postdate.instance), attempts = 0")
        self.c.channel.exchange_delete(TARGET)
        self.wait_count("hold = 'g'", 1)
        wait_until(lambda: self.c.depth('postdate.receipts') == 0, 10, 'its receipt to be read')
        rows = p.psql('select state, owner is null from postdate.message')
        self.make_target()
        if rows == [['claimed', 'f']]:
            p.psql("update postdate.message set state = 'handed', owner = null, next_at = due + interval '1 s', attempts = 1")
        else:  # its receipt was read before the notice
            self.assertEqual(rows, [['scheduled', 't']])
        self.assertEqual(self.c.wait_get('q', 20).body, b'once')
        wait_until(lambda: p.counts() == {'delivered': 1}, 10, 'it to be settled')
        self.assertIsNone(self.c.get('q'))

    def test_a_queue_bound_to_the_ladders_end_gets_what_its_exchange_does_not(self):
        """The copy there counts for nothing: the exchange gets it when it is back."""
        p = self.begin()
        self.c.channel.queue_declare('straight', durable=True)
        self.c.channel.queue_bind('straight', TTL_EXIT, '', TO_TARGET)
        self.c.publish('k', b'both', {'x-delay': 1500, 'x-postdate-exchange': TARGET})
        wait_until(lambda: p.counts() == {'handed': 1}, 10, 'it to be handed over')
        self.c.channel.exchange_delete(TARGET)
        self.assertEqual(self.c.wait_get('straight').body, b'both')
        self.wait_count("hold = 'g' and attempts > 1", 1)
        self.make_target()
        self.assertEqual(self.c.wait_get('q').body, b'both')
        wait_until(lambda: p.counts() == {'delivered': 1}, 10, 'it to be settled')
        self.assertIsNone(self.c.get('straight'))

    def test_a_ladder_from_before_there_was_this_way_back(self):
        """What an older gateway has declared and handed over; a queue that is bound to the ladder's end gets each once."""
        self.p = self.place()
        self.c = c = self.p.client()
        c.channel.exchange_declare(TTL_EXIT, 'headers', durable=True)
        self.make_target()
        c.channel.exchange_bind(TARGET, TTL_EXIT, '', TO_TARGET)
        c.channel.queue_bind('q', TTL_EXIT, '', TO_TARGET)
        c.channel.queue_declare('postdate.receipts', durable=True)
        c.channel.queue_bind('postdate.receipts', TTL_EXIT, '', {'x-match': 'all'})
        self.p.gateway(**handover('ttl'), **QUICK)
        inbox = self.hand_over(100, '2000,2500')
        self.assert_all_arrive(inbox, 100)
        self.assertEqual(self.count("hold = 'g'"), 0)


@harness.not_san  # as ttl, but for the broker
class PluginUnrouted(Unrouted, LiveTest):
    transport = 'plugin'
    only_full = ('test_what_stays_unroutable_fails_visibly_and_can_be_cancelled', 'test_without_receipts',
                 'test_notices_and_receipts_that_nobody_has_read_in_whatever_order')
