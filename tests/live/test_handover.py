"""What may go wrong while RabbitMQ waits: locks, deleted exchanges and queues, missing rights, messages of enormous size."""
import time
import urllib.parse

import pika

import harness
from handover_kit import EXIT, TTL_EXIT, handover, relayed, who_held
from harness import LiveTest, now_ms, wait_until


def ttl(grace='1s', **more):
    return handover('ttl', grace, **more)


class Handover(LiveTest):
    weight = 10

    def hand_over(self, p, *bodies, delay=5000, key='k', **headers):
        c = p.client()
        for body in bodies:
            c.publish(key, body, {'x-delay': delay, **headers})
        wait_until(lambda: p.counts().get('handed', 0) == len(bodies), 10, f'{len(bodies)} messages handed')
        return c

    def assert_each_once(self, p, inbox, bodies, grace_ms=1000):
        """Also when what was rescued by mistake has had its time to come."""
        inbox.wait(len(bodies), 20)
        wait_until(lambda: set(p.counts()) == {'delivered'}, 20, 'all to be settled')
        past = f"select now() > max(due) + interval '{grace_ms + 1500} ms' from postdate.message_now"
        wait_until(lambda: p.value(past) == 't', 10, 'the time of a rescue to pass')
        self.assertEqual(sorted(m.body for m in inbox.all()), sorted(bodies))
        for m in inbox.all():
            self.assertGreaterEqual(m.at_ms, m.due_ms)

    def test_a_locked_row_holds_up_no_other_and_not_its_own_delivery(self):
        p = self.place()
        p.gateway(**ttl())
        inbox = p.consumer('q', bind='#')
        self.hand_over(p, b'locked', key='locked')
        s = p.session()
        s.run('begin')
        self.assertEqual(len(s.run("select id from postdate.message where routing_key = 'locked' for update")), 1)
        c = p.client()
        others = [b'%d' % i for i in range(30)]
        for body in others:
            c.publish('k', body, {'x-delay': 3000})
        inbox.wait(31)
        wait_until(lambda: p.counts() == {'handed': 1, 'delivered': 30}, 5, 'the others to be settled')
        past = "select now() > max(due) + interval '2500 ms' from postdate.message_now"
        wait_until(lambda: p.value(past) == 't', 10, 'the time of a rescue to pass')
        self.assertEqual(p.counts(), {'handed': 1, 'delivered': 30})
        s.run('commit')
        s.close()
        self.assert_each_once(p, inbox, [b'locked', *others])

    def test_a_message_that_is_tried_again_later_is_not_handed_over(self):
        p = self.place()
        p.gateway(**ttl(), POSTDATE_RETRY_ATTEMPTS=2, POSTDATE_RETRY_FIRST='6s')
        p.client().publish('nobody.listens', b'', {'x-delay': 100})
        row = 'select attempts, state, xmin from postdate.message'
        wait_until(lambda: [r[:2] for r in p.psql(row)] == [['1', 'scheduled']], 10, 'the first attempt')
        seen = set()
        early = row + " where next_at >= now() + interval '700 ms'"

        def second_is_near():
            rows = p.psql(early)
            seen.update(map(tuple, rows))
            return not rows
        wait_until(second_is_near, 10, 'the second attempt to come near')
        self.assertEqual(len(seen), 1, 'somebody claimed it and put it back meanwhile')

    def arrives_through_the_exit(self, c, g):
        """Messages go until the broker has let one go again; all that it took."""
        sent, before = [], relayed(g)

        def through():
            sent.append(b'try %d' % len(sent))
            c.publish('k', sent[-1], {'x-delay': 1500})
            time.sleep(0.5)  # the pace of the messages
            return relayed(g) > before
        wait_until(through, 40, 'a message to come through the ladder')
        return sent

    def test_a_deleted_exit_is_made_again_with_its_bindings(self):
        p = self.place()
        g = p.gateway(**ttl())
        inbox = p.consumer('q', bind='k')
        c = self.hand_over(p, b'a', b'b')
        c.channel.exchange_delete(TTL_EXIT)
        self.assert_each_once(p, inbox, [b'a', b'b'])  # lost, rescued
        sent = self.arrives_through_the_exit(c, g)
        self.assert_each_once(p, inbox, [b'a', b'b', *sent])

    @harness.not_san
    def test_a_deleted_rung_is_made_again(self):
        p = self.place()
        g = p.gateway(**ttl())
        inbox = p.consumer('q', bind='k')
        c = self.hand_over(p, b'a')
        for digit in range(1, 16):
            c.channel.queue_delete(f'postdate.ttl.r16g100.l0.d{digit}')
            c.channel.queue_delete(f'postdate.ttl.r16g100.l1.d{digit}')
        sent = self.arrives_through_the_exit(c, g)
        self.assert_each_once(p, inbox, [b'a', *sent])

    def test_what_others_put_into_the_exit_queue_is_moved_and_nothing_comes_twice(self):
        """A copy of an envelope, at once and when its message was delivered long ago; and something else."""
        p = self.place()
        g = p.gateway(**ttl())
        inbox = p.consumer('q', bind='k')
        c = p.client()
        c.channel.queue_declare('copies')
        c.channel.queue_bind('copies', TTL_EXIT, '', {'x-match': 'all'})
        self.hand_over(p, b'a', b'b')
        wait_until(lambda: c.depth('copies') == 2, 10, 'both to come out')
        copies = [c.wait_get('copies') for _ in range(2)]
        self.publish_again(c, copies)
        self.assert_each_once(p, inbox, [b'a', b'b'])
        self.publish_again(c, copies)
        c.publish(EXIT, b'foreign', exchange='', message_id='stray')
        wait_until(lambda: g.lines_with('another client publishes.*; the first: message-id stray'), 10, 'the foreign one to be noticed')
        self.arrives_through_the_exit(c, g)
        moved = c.wait_get('postdate.rejected')
        self.assertEqual((moved.body, moved.properties.message_id), (b'foreign', 'stray'))
        self.assertIn("published by another client", moved.properties.headers['x-postdate-error'])
        self.assertEqual([m for m in inbox.all() if m.body in (b'a', b'b', b'foreign')][2:], [])

    def publish_again(self, c, messages):
        for m in messages:
            c.channel.basic_publish('', EXIT, m.body, m.properties)

    def test_rungs_that_refuse_messages_make_nothing_late(self):
        p = self.place()
        p.stack.rabbitmqctl('set_policy', '-p', p.vhost, 'full', r'^postdate\.ttl\.r', '{"max-length":0}',
                            '--apply-to', 'queues')
        p.gateway(**ttl(grace='1h'))
        inbox = p.consumer('q', bind='k')
        at = now_ms()
        p.client().publish('k', b'refused', {'x-delay': 1500})
        self.assert_on_time(inbox.wait(1)[0], at, 1500)

    def test_what_cannot_be_declared_is_waited_for_by_the_gateway(self):
        p = self.place()
        g = p.gateway(**ttl())

        def of_another_type():  # it can't be declared again then; the gateway, which may be faster, declares it as it was
            channel = p.client().channel
            channel.exchange_delete(TTL_EXIT)
            try:
                return channel.exchange_declare(TTL_EXIT, 'direct', durable=True) is not None
            except pika.exceptions.ChannelClosedByBroker:
                return False
        wait_until(of_another_type, 15, f'{TTL_EXIT} to be of another type')
        p.stack.rabbitmqctl('close_all_connections', '-p', p.vhost, 'a test')
        wait_until(lambda: g.lines_with("cannot hold messages"), 15, 'the reason to be logged')
        inbox, c = p.consumer('q', bind='k'), p.client()
        at = now_ms()
        c.publish('k', b'held', {'x-delay': 1500})
        self.assert_on_time(inbox.wait(1)[0], at, 1500)
        self.assertEqual(len(g.lines_with("cannot hold messages.*" + TTL_EXIT)), 1, g.log())
        self.assertEqual(who_held(p, inbox.all()), {b'held': 'timer'})

    def test_an_exchange_that_may_not_be_written_to_makes_nothing_late(self):
        p = self.place()
        user = urllib.parse.urlsplit(p.amqp).username
        p.stack.rabbitmqctl('set_permissions', '-p', p.vhost, user, '.*', r'^(?!postdate\.ttl\.r16g100\.l1$)', '.*')
        g = p.gateway(**ttl(grace='1h', window='20s'))
        inbox = p.consumer('q', bind='k')
        c, sent = p.client(), {}
        for i in range(50):
            sent[b'%d' % i] = now_ms()
            c.publish('k', b'%d' % i, {'x-delay': 2500})
        wait_until(lambda: g.lines_with(r'does not accept messages to hold'), 10, 'the reason to be logged')
        for m in inbox.wait(50):
            self.assert_on_time(m, sent[m.body], 2500)
        self.assertIn(len(g.lines_with(r'does not accept messages to hold.*403')), range(1, 6), g.log())  # one for each time that something else was accepted

    @harness.not_san
    def test_many_headers_and_a_large_cc_wait_in_rabbitmq_and_enormous_ones_with_the_gateway(self):
        """Nothing is added to them on the way; what would not fit into a frame there is delivered all the same."""
        p = self.place()
        p.gateway(**ttl())
        inbox = p.consumer('q', bind='k')
        cc = ['cc.%d.' % i + 'x' * 200 for i in range(150)]
        bodies = {b'large': {'CC': cc, **{'h%d' % i: 'v' * 40 for i in range(200)}}, b'enormous': {'h': 'v' * 110_000}}
        for body, headers in bodies.items():
            p.client().publish('k', body, {'x-delay': 1700 * harness.slowness() ** 2, **headers})
        for m in inbox.wait(2):
            self.assertEqual({k: m.headers[k] for k in bodies[m.body]}, bodies[m.body])
        wait_until(lambda: p.counts() == {'delivered': 2}, 5, 'them to be settled')
        self.assertEqual(who_held(p, inbox.all()), {b'large': 'broker', b'enormous': 'timer'})
