"""One locked row, refused message or odd signal is the trouble of that one only. Each test guards a defect that was
found by reading the code against itself."""
import os
import random
import signal
import time

import pika

import harness
from harness import LiveTest, now_ms, wait_until

MESSAGE = 'postdate.message'


def count_of(p, where):
    return int(p.value(f'select count(*) from {MESSAGE} where {where}'))


def swap_header(p, message_id, old, new):
    """Renames a string header in the database: the programs make no message with a header that RabbitMQ refuses."""
    found, wanted = (b'\2%sS' % name for name in (old, new))
    rows = p.psql(f"update {MESSAGE} set properties = decode(replace(encode(properties, 'hex'), '{found.hex()}', "
                  f"'{wanted.hex()}'), 'hex') where id = '{message_id}' "
                  f"and position('\\x{found.hex()}' in properties) > 0 returning 1")
    assert rows == [['1']], rows


def schedule(p, key, delay, *options):
    rc, out, err = p.cli('schedule', '-k', key, '--delay', delay, '--body', key, *options)
    assert rc == 0, err
    return out.strip()


def schedule_malformed(p, key, delay):
    """A CC header must be an array; RabbitMQ closes the channel over this one."""
    message_id = schedule(p, key, delay, '--header', 'XX=foo')
    swap_header(p, message_id, b'XX', b'CC')
    return message_id


class Locks(LiveTest):
    """Rows or keys that somebody else's transaction holds."""
    weight = 60
    who_waits = 'timer'  # a long lead has everything claimed, to be locked

    def lock(self, p, where):
        s = p.session()
        s.run('begin')
        return s, s.run(f'select id from {MESSAGE} where {where} for update')

    def test_a_dead_gateways_locked_row_does_not_stop_the_next_one(self):
        """Releasing the dead one's claims waited for the lock and kept the heartbeat from its turn."""
        p = self.place()
        first = p.gateway(POSTDATE_DELIVERY_LEAD='60s')
        c = p.client()
        inbox = p.consumer('q', bind='k')
        c.publish_burst('k', [b'locked', *(b'%d' % i for i in range(20))], {'x-delay': 4000})
        wait_until(lambda: p.claimed() == 21, 10, 'the first gateway to claim all')
        s, rows = self.lock(p, "body = 'locked'")
        self.assertEqual(len(rows), 1)
        p.gateway()
        first.kill9()
        lease_s = 10  # sql/pipeline/instance.h: what hinders the heartbeat shows after this
        until = time.monotonic() + lease_s + 1.5
        inbox.wait(20, 15)
        while time.monotonic() < until:
            at = now_ms()
            c.publish('k', b'at %d' % at, {'x-delay': 300})
            self.assert_on_time(inbox.wait_body(b'at %d' % at, 5), at, 300, 4000)
        self.assertNotIn(b'locked', [m.body for m in inbox.all()])
        s.run('rollback')
        s.close()
        inbox.wait_body(b'locked', 15)
        wait_until(lambda: set(p.counts()) == {'delivered'}, 10, 'all to be settled')
        bodies = [m.body for m in inbox.all()]
        self.assertEqual(len(bodies), len(set(bodies)), 'delivered once')

    def test_locked_rows_do_not_hold_up_settling_the_others(self):
        """A batch of outcomes waited for its locked rows, and everything behind it, too."""
        p = self.place()
        p.gateway(POSTDATE_DELIVERY_LEAD='20s')
        c = p.client()
        inbox = p.consumer('q', bind='k')
        for part in range(5):
            c.publish_burst('k', [b'%d-%d' % (part, i) for i in range(60)], {'x-delay': 4000 + 500 * part})
        wait_until(lambda: p.claimed() == 300, 10, 'all to be claimed')
        s, rows = self.lock(p, "convert_from(body, 'UTF8') like '%7'")
        self.assertEqual(len(rows), 30)
        # What was stored behind the frontier of a claim was claimed by its row, and is settled there.
        by_row = int(p.value("select count(*) from postdate.message where next_at is not null and convert_from(body, 'UTF8') like '%7'"))
        inbox.wait(300, 20)
        wait_until(lambda: p.counts().get('delivered') == 300 - by_row, 10, 'all to be settled: that writes no row of theirs')
        s.run('rollback')
        s.close()
        wait_until(lambda: p.counts() == {'delivered': 300}, 10, 'all to be settled')
        self.assertEqual(len(inbox.all()), 300, 'delivered once')

    def test_hundreds_of_one_held_key_do_not_hold_up_the_intake(self):
        """Each of them cost a lock time-out, again and again, before anything else was read."""
        p = self.place()
        p.gateway()
        c = p.client()
        inbox = p.consumer('q', bind='free')
        c.queue('keyed', 'keyed')
        s = p.session()
        s.run('begin')
        s.run("insert into postdate.key (exchange, key, due, id) values ('postdate.delivery', 'held', now(), "
              'gen_random_uuid())')
        c.publish_burst('keyed', [b'%d' % i for i in range(600)], {'x-postdate-key': 'held'})
        for i in range(10):
            at = now_ms()
            c.publish('free', b'%d' % i)
            self.assert_on_time(inbox.wait_body(b'%d' % i, 8), at, 0, 6000)
        self.assertEqual(count_of(p, 'key is not null'), 0)
        s.run('rollback')
        s.close()
        self.assertEqual(c.wait_get('keyed').body, b'0', 'the first one wins')
        wait_until(lambda: c.depth('postdate.intake') == 0, 10, 'the intake queue to be empty')
        c.publish('keyed', b'last', {'x-delay': 1000})
        self.assertEqual(c.wait_get('keyed').body, b'last')
        self.assertEqual(count_of(p, "key = 'held'"), 1)


class Rejected(LiveTest):
    def test_good_messages_beside_refused_ones_are_stored_once_while_the_rejected_queue_is_full(self):
        """A refused one that could not be parked took the whole batch with it, which came back and was stored again."""
        p = self.place()
        p.gateway()
        c = p.client()
        self.set_full(p, c)
        inbox = p.consumer('q', bind='k')
        channel = c.connection.channel()
        for i in range(25):
            headers = {'x-delay': 'soon' if i % 5 == 0 else 300}
            channel.basic_publish('postdate', 'k', b'%d' % i,
                                  pika.BasicProperties(headers=headers, delivery_mode=2))
        inbox.wait(20)
        c.publish('k', b'marker', {'x-delay': 2500})  # parking is tried about ten times until then
        inbox.wait_body(b'marker')
        self.assertEqual(count_of(p, 'true'), 21)
        self.assertEqual(len(inbox.all()), 21)
        self.assertEqual(c.depth('postdate.rejected'), self.fill)
        p.stack.rabbitmqctl('clear_policy', '-p', p.vhost, 'full')
        wait_until(lambda: c.depth('postdate.rejected') == self.fill + 5, 15, 'the refused ones to be parked')
        parked = [c.get('postdate.rejected').body for _ in range(self.fill + 5)]
        self.assertEqual(sorted(parked[self.fill:], key=int), [b'0', b'5', b'10', b'15', b'20'])
        self.assertEqual((count_of(p, 'true'), len(inbox.all())), (21, 21))

    def set_full(self, p, c):
        p.stack.rabbitmqctl('set_policy', '-p', p.vhost, '--apply-to', 'queues', 'full', '^postdate.rejected$',
                            '{"max-length":1,"overflow":"reject-publish"}')

        def is_full():
            try:
                c.publish('postdate.rejected', b'filler', exchange='')
                return False
            except pika.exceptions.NackError:
                return True
        wait_until(is_full, 10, 'postdate.rejected to take nothing more')
        self.fill = c.depth('postdate.rejected')

    def test_a_body_over_max_body_is_parked_whole(self):
        """It was parked without its body."""
        p = self.place()
        p.gateway(POSTDATE_INTAKE_MAX_BODY='64KiB')
        c = p.client()
        inbox = p.consumer('q', bind='k')
        fits, over, far_over = (random.Random(n).randbytes(n) for n in (65536, 65537, 3_000_000))
        for body in (over, fits, far_over):
            c.publish('k', body, {'x-delay': 100, 'n': len(body)}, message_id=str(len(body)))
        self.assertEqual(inbox.wait(1)[0].body, fits)
        for body in (over, far_over):
            m = c.wait_get('postdate.rejected')
            self.assertTrue(m.body == body, f'{len(m.body)} bytes instead of {len(body)}')
            self.assertEqual(m.headers['n'], len(body))
            self.assertIn(str(len(body)), m.headers['x-postdate-error'])


class Refusals(LiveTest):
    """The broker closes a channel over a message."""
    weight = 30
    GOOD = 500 if harness.SAN else 2000

    def test_a_malformed_message_fails_alone(self):
        """RabbitMQ would close the channel over it, and what is in flight there would be published twice."""
        p = self.place()
        g = p.gateway(POSTDATE_RETRY_ATTEMPTS=3, POSTDATE_RETRY_FIRST='1s', POSTDATE_LOG_LEVEL='debug')
        c = p.client()
        inbox = p.load('consume', '--queue', 'good', '--exchange', 'postdate.delivery', '--bind', 'good', '--expect',
                       self.GOOD, '--timeout-s', 60, '--idle-s', 1.5).wait_consuming()
        c.queue('warm', 'warm')
        c.publish('warm')  # the fast channel takes the exchange for good from here on
        c.wait_get('warm')
        bad = schedule_malformed(p, 'good', '1500ms')
        query = f"select state, attempts, error from {MESSAGE} where id = '{bad}'"
        wait_until(lambda: p.psql(query)[0][1] == '1', 10, 'its first attempt', 0.005)
        p.load('publish', '--routing-key', 'good', '--count', self.GOOD, '--delay-spread-ms', '0,4500').result()
        failed = wait_until(lambda: next((r for r in p.psql(query) if r[0] == 'failed'), None), 20, 'it to fail')
        self.assertEqual(failed[1], '3')
        self.assertIn('"CC" is no array of routing keys', failed[2])  # RabbitMQ would close the channel over it
        r = inbox.result()
        self.assertEqual((r['missing'], r['early'], r['duplicates'], r['unexpected']), (0, 0, 0, 0), r)
        self.assertEqual(g.lines_with('postdate publisher: .*closed the channel'), [])

    @harness.not_san
    def test_a_thousand_missing_exchanges_do_not_push_out_the_good_one(self):
        """What is known of exchanges has limited room; bad names took that of the good ones."""
        p = self.place()
        p.gateway(POSTDATE_RETRY_ATTEMPTS=100_000, POSTDATE_RETRY_FIRST='100ms', POSTDATE_RETRY_MAX='1s')
        c = p.client()
        inbox = p.consumer('q', bind='good')
        c.publish('good', b'first')
        inbox.wait(1)
        channel = c.connection.channel()
        for i in range(1500):
            headers = {'x-postdate-exchange': f'missing-{i}'}
            channel.basic_publish('postdate', 'k', b'', pika.BasicProperties(headers=headers, delivery_mode=2))
        wait_until(lambda: count_of(p, "routing_key = 'k' and attempts > 0") > 1400, 60, 'most bad ones to be tried',
                   0.2)
        at = now_ms()
        for i in range(100):
            c.publish('good', b'%d' % i, {'x-delay': 20 * i})
        for m in inbox.wait(101, 20)[1:]:
            self.assert_on_time(m, at, 20 * int(m.body), 2500)
        self.assertEqual(len(inbox.all()), 101, 'delivered once')


class Doubt(LiveTest):
    def cancel(self, p, message_id):
        rc, out, err = p.cli('cancel', message_id)
        self.assertEqual(rc, 1, out + err)
        self.assertRegex(out + err, 'too.late')

    def test_what_a_dead_gateway_may_have_published_is_never_cancellable(self):
        """Neither when its next gateway puts it back, nor when the broker refuses it then."""
        p = self.place()
        first = p.gateway(POSTDATE_DELIVERY_LEAD='60s')
        c = p.client()
        c.queue('q', ['later', 'malformed'])
        malformed = schedule_malformed(p, 'malformed', '4s')
        refused = [malformed, schedule(p, 'unroutable', '4s')]
        ids = [schedule(p, 'later', '12s'), *refused]
        wait_until(lambda: p.claimed() == 3, 10, 'all to be claimed')
        first.kill9()
        second = p.gateway(POSTDATE_DELIVERY_LEAD='60s', POSTDATE_RETRY_FIRST='500ms')  # its attempts are not at their end
        wait_until(lambda: count_of(p, 'attempts > 0') == 2, 15, 'two to be tried')
        for message_id in refused:
            self.cancel(p, message_id)
        self.assertEqual(second.term(), 0)
        self.assertEqual((p.counts(), count_of(p, 'owner is null')), ({'claimed': 3}, 3))
        for message_id in ids:
            self.cancel(p, message_id)
        c.queue('q', 'unroutable')
        swap_header(p, malformed, b'CC', b'XX')
        p.gateway()
        got = [c.wait_get('q', 15) for _ in ids]
        self.assertEqual(sorted(m.id for m in got), sorted(ids))
        wait_until(lambda: p.counts() == {'delivered': 3}, 5, 'all to be settled')


class IntakeErrors(LiveTest):
    def test_one_that_comes_again_and_again_is_said_once(self):
        """Whatever a trigger of somebody's raises: tried again, ever more seldom, until it is gone."""
        p = self.place()
        p.psql("create function public.no() returns trigger language plpgsql as $$ begin raise exception 'no such thing'; end $$; "
               'create trigger no before insert on postdate.message for each row execute function public.no()')
        g = p.gateway(POSTDATE_LOG_LEVEL='debug')
        inbox = p.consumer('q', bind='k')
        p.client().publish('k', b'kept')
        wait_until(lambda: len(g.lines_with('intake: .*no such thing')) >= 6, 40, 'six tries')
        self.assertEqual(len(g.lines_with(' warn .*intake: .*no such thing')), 1, g.log())
        p.psql('drop trigger no on postdate.message')
        self.assertEqual(inbox.wait(1, 30)[0].body, b'kept')
        self.assertEqual(g.term(), 0)


class Signals(LiveTest):
    def test_signals_that_mean_nothing_change_nothing(self):
        """SIGUSR1 the daemon uses inside, to end its signal handling: then SIGTERM did nothing any more."""
        p = self.place()
        g = p.gateway()
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGPIPE):
            for _ in range(3):
                os.kill(g.process.pid, number)
        inbox = p.consumer('q', bind='k')
        p.client().publish('k', b'still there')
        inbox.wait(1)
        self.assertEqual(g.term(), 0)
