"""What has a deadline is not published after it, nor tried again: it ends as expired, for all to see."""
import json
import time

from harness import LiveTest, SharedTest, now_ms, wait_until
from handover_kit import metric
from test_control import Requester
from test_retries import Refuser, RETRY
from web import Web

HEADER = 'x-postdate-deadline'
QUICK = {'POSTDATE_RETRY_FIRST': '300ms', 'POSTDATE_RETRY_MAX': '300ms'}


def rfc3339(ms):
    return time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(ms / 1000)) + f'.{ms % 1000:03}Z'


class Expires(LiveTest):
    def begin(self, **settings):
        self.p = self.place()
        self.g = self.p.gateway(**{**QUICK, **settings})
        self.c = self.p.client()
        return self.p

    def make_target(self):
        self.c.channel.exchange_declare('late', 'topic')
        self.c.queue('q', '#', 'late')

    def test_the_exchange_comes_back_too_late(self):
        p = self.begin()
        deadline = now_ms() + 2000
        self.c.publish('gone', b'x', {'x-delay': 200, HEADER: deadline, 'x-postdate-exchange': 'late'})
        wait_until(lambda: p.counts() == {'expired': 1}, 10, 'it to expire')
        self.make_target()
        attempts, error, settled_ms, due_ms = p.psql('select attempts, error, (extract(epoch from settled_at) * 1000)::bigint, '
                                                     '(extract(epoch from due) * 1000)::bigint from postdate.message')[0]
        self.assertGreaterEqual(int(attempts), 2)
        self.assertIn('deadline', error)
        self.assertIn("no exchange 'late'", error)
        self.assertGreater(int(settled_ms), deadline - 600, 'it was given up too soon')
        time.sleep(1.5)
        self.assertEqual(self.c.depth('q'), 0)
        self.assertEqual(metric(self.g, 'postdate_messages_expired_total'), 1)
        self.assertEqual(metric(self.g, 'postdate_messages_failed_total'), 0)

        # everywhere it is shown as what it is
        id = p.value('select id from postdate.message')
        web = Web(self.g.http())
        self.addCleanup(web.close)
        shown = web.get(f'/v1/messages/{id}').json
        self.assertEqual((shown['state'], shown['deadline'], shown['hold']), ('expired', rfc3339(deadline), 'gateway'))
        self.assertEqual([m['id'] for m in web.get('/v1/messages?state=expired').json['messages']], [id])
        wait_until(lambda: web.get('/v1/stats').json['messages']['expired'] == 1, 10, 'the count')
        self.assertIn('expired', p.cli('show', id)[1])
        self.assertIn(f'deadline     {rfc3339(deadline)}', p.cli('show', id)[1])
        self.assertIn(id, p.cli('list', '--state', 'expired')[1])
        self.assertEqual(json.loads(p.cli('status', '--json')[1])['messages']['expired'], 1)
        self.assertEqual(p.psql("select state, (extract(epoch from deadline) * 1000)::bigint from postdate.messages"), [['expired', str(deadline)]])

        # and it stays what it is
        for ask in ('cancel(id)', 'retry(id)', "reschedule(id, '1 h')", "fail(id)"):
            self.assertEqual(p.value(f'select postdate.{ask} from postdate.message'), 'too_late', ask)
        self.assertEqual(web.ask('DELETE', f'/v1/messages/{id}').problem, 'too-late')
        self.assertEqual(p.cli('retry', id)[:1], (1,))
        self.assertEqual(p.counts(), {'expired': 1})

    def test_no_gateway_until_it_is_too_late(self):
        """Never published, so there was no attempt."""
        p = self.begin()
        self.c.queue('q', 'k')
        self.g.term()
        p.psql("select postdate.schedule('k', 'x', delay => '200 ms', deadline => now() + interval '900 ms', key => 'mine')")
        time.sleep(1.2)
        g = p.gateway()
        wait_until(lambda: p.counts() == {'expired': 1}, 10, 'it to expire')
        self.assertEqual(p.psql('select attempts, error from postdate.message'), [['0', 'the deadline passed before it was published']])
        self.assertIsNone(self.c.get('q'))
        # its key is free
        p.psql("select postdate.schedule('k', 'y', delay => '10 ms', deadline => now() + interval '1 h', key => 'mine', on_conflict => 'reject')")
        self.assertEqual(self.c.wait_get('q').body, b'y')
        self.assertEqual(metric(g, 'postdate_messages_expired_total'), 1)

    def test_what_may_have_been_delivered_fails(self):
        """It is no cancelled message either, for such a one never arrives."""
        p = self.begin()
        self.c.queue('q', 'k')
        self.g.term()
        p.psql("select postdate.schedule('k', 'x', delay => '10 ms', deadline => now() + interval '300 ms')")
        p.psql("update postdate.message set state = 'claimed'")
        time.sleep(0.5)
        p.gateway()
        wait_until(lambda: p.counts() == {'failed': 1}, 10, 'it to fail')
        self.assertEqual(p.value('select error from postdate.message'),
                         'the deadline passed before it was published; it may have been delivered')
        for ask in ('cancel(id)', 'retry(id)'):
            self.assertEqual(p.value(f'select postdate.{ask} from postdate.message'), 'too_late', ask)
        self.assertIsNone(self.c.get('q'))

    def test_a_queue_that_takes_nothing(self):
        """A nack may come from one queue of several."""
        p = self.begin()
        self.c.queue('q', 'k', arguments={'x-max-length': 1, 'x-overflow': 'reject-publish'})
        self.c.publish('k', b'first')
        self.assertTrue(wait_until(lambda: self.c.depth('q') == 1))
        self.c.publish('k', b'second', {HEADER: now_ms() + 1500})
        wait_until(lambda: p.counts().get('failed') == 1, 10, 'it to fail')
        self.assertIn('may have been delivered', p.value("select error from postdate.message where state = 'failed'"))
        self.c.get('q')
        time.sleep(1.5)
        self.assertEqual(self.c.depth('q'), 0)


class Refused(LiveTest):
    """By consumers."""

    def start(self):
        p = self.place()
        c = p.client()
        g = p.gateway()
        c.queue('orders', arguments=RETRY)
        r = Refuser(p.amqp, 'orders')
        self.addCleanup(r.close)
        return p, c, g, r

    def dead(self, p):
        return p.psql("select reason, failed, convert_from(body, 'UTF8') from postdate.lineage where died_at is not null")

    def test_no_try_after_the_deadline(self):
        p, c, g, r = self.start()
        p.psql("select postdate.retry_policy_set('orders', 10, '1 s', 1, '1 s', 0)")
        c.publish('orders', b'x', {'x-postdate-exchange': '', HEADER: now_ms() + 2500, 'x-delay': 10})
        wait_until(lambda: self.dead(p), 20, 'the dead letter')
        tries = len(r.messages)
        self.assertIn(tries, (2, 3))
        self.assertEqual(self.dead(p), [['deadline', str(tries), 'x']])
        self.assertEqual(p.value("select reasons[1] from postdate.lineage"), 'rejected')
        time.sleep(1.5)
        self.assertEqual(len(r.messages), tries)

    def test_what_was_not_published_by_us(self):
        """The header alone counts; one that is no point in time does not."""
        p, c, g, r = self.start()
        p.psql("select postdate.retry_policy_set('orders', 3, '100 ms', 1, '1 s', 0)")
        c.publish('orders', b'late', {HEADER: str(now_ms() + 50)}, exchange='')
        c.publish('orders', b'odd', {HEADER: 'soon'}, exchange='')
        wait_until(lambda: len(self.dead(p)) == 2, 20, 'the dead letters')
        self.assertEqual(sorted(self.dead(p)), [['deadline', '1', 'late'], ['rejected', '3', 'odd']])

    def test_the_deadline_passes_while_it_waits(self):
        p, c, g, r = self.start()
        p.psql("select postdate.retry_policy_set('orders', 10, '1 s', 1, '1 s', 0)")
        c.publish('orders', b'x', {HEADER: now_ms() + 2000}, exchange='')
        wait_until(lambda: p.counts().get('scheduled') == 1, 10, 'it to wait')
        g.kill9()
        time.sleep(2.2)
        p.gateway()
        wait_until(lambda: self.dead(p), 30, 'the dead letter')
        self.assertEqual(self.dead(p), [['deadline', '1', 'x']])
        self.assertEqual(len(r.messages), 1)
        self.assertEqual(p.counts(), {'superseded': 1})
