"""What has a deadline is not published after it, nor tried again: it ends as expired, for all to see."""
import json
import time

import harness
from harness import LiveTest, SharedTest, now_ms, wait_until
from handover_kit import metric
from test_retries import Refuser, RETRY
from test_stalled import Queue
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
                                                     '(extract(epoch from due) * 1000)::bigint from postdate.message_now')[0]
        self.assertGreaterEqual(int(attempts), 2)
        # at the last refusal, or, where the next try comes late on a busy machine, when it is to be published
        self.assertRegex(error, "deadline is before the next try; now: .*no exchange 'late'|deadline passed before it was published")
        self.assertGreater(int(settled_ms), deadline - 600, 'it was given up too soon')
        time.sleep(1.5)
        self.assertEqual(self.c.depth('q'), 0)
        self.assertEqual(metric(self.g, 'postdate_messages_expired_total'), 1)
        self.assertEqual(metric(self.g, 'postdate_messages_failed_total'), 0)
        wait_until(lambda: metric(self.g, 'postdate_messages{state="expired"}') == 1, 10, 'the gauge')

        # everywhere it is shown as what it is
        id = p.value('select id from postdate.message_now')
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
            self.assertEqual(p.value(f'select postdate.{ask} from postdate.message_now'), 'too_late', ask)
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
        self.assertEqual(p.psql('select attempts, error from postdate.message_now'), [['0', 'the deadline passed before it was published']])
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
        p.psql("update postdate.message set next_at = coalesce(next_at, due), state = 'claimed'")
        time.sleep(0.5)
        p.gateway()
        wait_until(lambda: p.counts() == {'failed': 1}, 10, 'it to fail')
        self.assertEqual(p.value('select error from postdate.message_now'),
                         'the deadline passed before it was published; it may have been delivered')
        for ask in ('cancel(id)', 'retry(id)'):
            self.assertEqual(p.value(f'select postdate.{ask} from postdate.message_now'), 'too_late', ask)
        self.assertIsNone(self.c.get('q'))

    def test_a_queue_that_takes_nothing(self):
        """A nack may come from one queue of several."""
        p = self.begin()
        self.c.queue('q', 'k', arguments={'x-max-length': 1, 'x-overflow': 'reject-publish'})
        self.c.publish('k', b'first')
        self.assertTrue(wait_until(lambda: self.c.depth('q') == 1))
        self.c.publish('k', b'second', {HEADER: now_ms() + 1500})
        wait_until(lambda: p.counts().get('failed') == 1, 10, 'it to fail')
        self.assertIn('may have been delivered', p.value("select error from postdate.message_now where state = 'failed'"))
        self.c.get('q')
        time.sleep(1.5)
        self.assertEqual(self.c.depth('q'), 0)


class StandsStill(LiveTest):
    who_waits = 'timer'

    def test_what_waits_for_its_destination(self):
        """It is never near a publish, and expires all the same; what was on its way there may arrive."""
        p = self.place()
        dead = Queue(p, 'dead')
        self.addCleanup(dead.resume)
        g = p.gateway()
        p.psql("select postdate.schedule('dead', 'first', '0 s', exchange => '')")
        wait_until(lambda: p.counts() == {'delivered': 1}, 5, 'the first')
        dead.suspend()
        p.psql("select postdate.schedule('dead', 'on its way', '0 s', exchange => '')")
        wait_until(lambda: metric(g, 'postdate_addresses_stalled') == 1, 15, 'it to stand still')
        p.psql("select postdate.schedule('dead', 'late', '100 ms', exchange => '', deadline => now() + interval '1500 ms')"
               " from generate_series(1, 20)")
        wait_until(lambda: p.counts().get('expired') == 20, 15, 'them to expire')
        self.assertEqual(p.psql("select distinct attempts from postdate.message_now where state = 'expired'"), [['0']])
        dead.resume()
        wait_until(lambda: p.counts() == {'delivered': 2, 'expired': 20}, 20, 'the rest')
        self.assertEqual(set(dead.bodies()), {b'first', b'on its way'})


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

    @harness.given_time
    def test_the_deadline_passes_while_it_waits(self):
        p, c, g, r = self.start()
        p.psql(f"select postdate.retry_policy_set('orders', 10, '{self.pace} s', 1, '{self.pace} s', 0)")
        deadline_ms = now_ms() + 2000 * self.pace
        c.publish('orders', b'x', {HEADER: deadline_ms}, exchange='')

        def waits():
            if self.dead(p) or len(r.messages) > 1:
                raise harness.TooSlow('it was delivered again before it was seen to wait')
            return p.counts().get('scheduled') == 1
        wait_until(waits, 10, 'it to wait')
        g.kill9()
        if len(r.messages) > 1:
            raise harness.TooSlow('it was delivered again before the gateway had ended')
        wait_until(lambda: now_ms() > deadline_ms, 60, 'the deadline')
        p.gateway()
        wait_until(lambda: self.dead(p), 30, 'the dead letter')
        self.assertEqual(self.dead(p), [['deadline', '1', 'x']])
        self.assertEqual(len(r.messages), 1)
        self.assertEqual(p.counts(), {'superseded': 1})


class Ways(SharedTest):
    """Each way in takes it, shows it, refuses what it can't be, and delivers in time."""
    vhosts = 1

    def setUp(self):
        super().setUp()
        self.web = Web(self.gw.http())
        self.addCleanup(self.web.close)

    def ms(self, id):
        return int(self.p.value(f"select (extract(epoch from deadline) * 1000)::bigint from postdate.messages where id = '{id}'"))

    def held(self, id):
        return self.p.value(f"select hold from postdate.message_now where id = '{id}'")

    def assert_delivered(self, inbox, body, deadline):
        m = inbox.wait_body(body)
        self.assertEqual(m.headers[HEADER], deadline)
        self.assertIsInstance(m.headers[HEADER], int)

    def test_amqp(self):
        inbox, key = self.inbox()
        deadline = now_ms() + 60_000
        for n, value in enumerate((deadline, str(deadline), float(deadline))):
            self.c.publish(key, b'%d' % n, {'x-delay': 100, HEADER: value, 'x-postdate-hold': 'broker'})
            self.assert_delivered(inbox, b'%d' % n, deadline)
        rows = self.p.psql(f"select distinct state, hold from postdate.message_now where routing_key = '{key}'")
        self.assertEqual(rows, [['delivered', 'g']])
        self.assertNotIn(HEADER, self.sent_without(inbox, key))

    def sent_without(self, inbox, key):
        self.c.publish(key, b'none', {'x-delay': 10})
        return inbox.wait_body(b'none').headers

    def test_amqp_refused(self):
        inbox, key = self.inbox()
        now = now_ms()
        for body, value, delay, says in ((b'soon', 'soon', 10, '"soon" is not a point in time'), (b'true', True, 10, 'a boolean is not'),
                                         (b'list', [1], 10, 'an array is not'), (b'early', now + 1000, 60_000, 'before the due time'),
                                         (b'past', now - 1, None, 'before the due time'), (b'minus', -5, 10, '-5 is not')):
            self.c.publish(key, body, {HEADER: value, **({'x-delay': delay} if delay else {})})
            m = self.rejected(body)
            self.assertIn(says, m.headers['x-postdate-error'], body)
            self.assertIn(HEADER, m.headers['x-postdate-error'], body)
            self.assertIn('allowed', m.headers['x-postdate-error'], body)
            self.assertEqual(m.headers[HEADER], value)
        self.assertEqual(inbox.all(), [])

    def test_http(self):
        inbox, key = self.inbox()
        deadline = now_ms() + 60_000
        m = {'routing_key': key, 'delay_ms': 50, 'body': 'http', 'deadline': rfc3339(deadline)}
        answer = self.web.post('/v1/messages', m)
        self.assertEqual((answer.status, answer.json['deadline'], answer.json['hold']), (201, rfc3339(deadline), 'gateway'))
        self.assertEqual(self.web.get('/v1/messages/' + answer.json['id']).json['deadline'], rfc3339(deadline))
        self.assert_delivered(inbox, b'http', deadline)
        none = self.web.post('/v1/messages', {**m, 'deadline': None})
        self.assertEqual(none.status, 201)
        self.assertNotIn('deadline', none.json)
        for bad in ('soon', 5, rfc3339(now_ms() - 1000), '2026-11-22T08:00:00'):
            answer = self.web.post('/v1/messages', {**m, 'deadline': bad})
            self.assertEqual((answer.status, answer.problem), (422, 'invalid-message'), bad)
            self.assertIn('deadline: ', answer.json['detail'])

    def test_reschedule(self):
        inbox, key = self.inbox()
        deadline = now_ms() + 60_000
        m = self.web.post('/v1/messages', {'routing_key': key, 'delay': '30s', 'body': 'moved', 'deadline': rfc3339(deadline)}).json
        answer = self.web.ask('PATCH', '/v1/messages/' + m['id'], {'delay_ms': 61_000})
        self.assertEqual((answer.status, answer.problem), (422, 'invalid-message'))
        self.assertIn('deadline', answer.json['detail'])
        bulk = {'filter': {'routing_key': key}, 'shift_ms': 3_600_000}
        self.assertEqual(self.web.post('/v1/messages:reschedule', bulk).json['changed'], 0)
        rc, _, err = self.p.cli('reschedule', m['id'], '--delay', '61s')
        self.assertEqual(rc, 65, err)
        self.assertIn('deadline', err)
        with self.assertRaisesRegex(AssertionError, 'after the deadline'):
            self.p.psql(f"select postdate.reschedule('{m['id']}', '61 s')")
        answer = self.web.ask('PATCH', '/v1/messages/' + m['id'], {'delay_ms': 100})
        self.assertEqual((answer.status, answer.json['deadline']), (200, rfc3339(deadline)))
        self.assert_delivered(inbox, b'moved', deadline)

    def test_replace(self):
        """The new message has its own, or none."""
        key = self.id()
        m = {'routing_key': 'nowhere', 'delay': '1h', 'body': 'x', 'key': key}
        old = self.web.post('/v1/messages', {**m, 'deadline': rfc3339(now_ms() + 7_200_000)}).json
        new = self.web.post('/v1/messages', {**m, 'on_conflict': 'replace'})
        self.assertEqual(new.status, 201)
        self.assertNotIn('deadline', new.json)
        self.assertNotIn('deadline', self.web.get('/v1/messages/' + old['id']).json)
        self.assertEqual(self.web.ask('DELETE', '/v1/messages/' + old['id']).status, 200)

    def test_command_line(self):
        inbox, key = self.inbox()
        deadline = now_ms() + 60_000
        one = ('schedule', '-k', key, '--body', 'cli', '--delay', '50ms', '--deadline')
        rc, id, err = self.p.cli(*one, rfc3339(deadline))
        self.assertEqual((rc, err), (0, ''))
        self.assertEqual(self.ms(id.strip()), deadline)
        self.assert_delivered(inbox, b'cli', deadline)
        self.assertEqual(json.loads(self.p.cli('show', id.strip(), '--json')[1])['deadline'], rfc3339(deadline))
        for bad, code in (('soon', 64), (rfc3339(now_ms() - 1000), 65)):
            rc, _, err = self.p.cli(*one, bad)
            self.assertEqual(rc, code, err)
            self.assertIn('deadline', err)
        line = json.dumps({'routing_key': key, 'delay_ms': 50, 'body': 'line', 'deadline': rfc3339(deadline)})
        self.p.run('schedule', '--batch', '-', stdin=line + '\n')
        self.assert_delivered(inbox, b'line', deadline)

    def test_sql(self):
        inbox, key = self.inbox()
        deadline = now_ms() + 60_000
        at = f"timestamptz 'epoch' + interval '{deadline} ms' + interval '400 us'"
        for n, kind in enumerate(('text', 'bytea', 'json', 'jsonb')):
            id = self.p.value(f"select postdate.schedule('{key}', '{n}'::{kind}, delay => '50 ms', hold => 'broker', deadline => {at})")
            self.assertEqual((self.ms(id), self.held(id)), (deadline, 'g'))
            self.assert_delivered(inbox, b'%d' % n, deadline)
        self.assertEqual(self.p.value(f"select deadline from postdate.message('{id}')"),
                         self.p.value(f"select deadline from postdate.message_now where id = '{id}'"))
        items = [{'routing_key': key, 'delay_ms': 50, 'body': 'many', 'deadline': rfc3339(deadline)},
                 {'routing_key': key, 'delay_ms': 50, 'body': 'keyed', 'key': self.id(), 'deadline': rfc3339(deadline)},
                 {'routing_key': key, 'delay_ms': 50, 'body': 'plain'},
                 {'routing_key': key, 'delay_ms': 50, 'body': 'early', 'deadline': rfc3339(now_ms() - 1000)},
                 {'routing_key': key, 'delay_ms': 50, 'body': 'odd', 'deadline': 'soon'}]
        rows = self.p.psql(f"select id is not null, error from postdate.schedule_many('{json.dumps(items)}')")
        self.assertEqual([r[0] for r in rows], ['t', 't', 't', 'f', 'f'])
        self.assertIn('the deadline lies before the due time', rows[3][1])
        self.assertIn('deadline is not a time', rows[4][1])
        for body in (b'many', b'keyed'):
            self.assert_delivered(inbox, body, deadline)
        self.assertNotIn(HEADER, inbox.wait_body(b'plain').headers)
        rows = self.p.psql(f"select id is not null from postdate.schedule_many('{json.dumps(items[:3])}')")
        self.assertEqual(rows, [['t']] * 3)
        for bad, says in (("now() - interval '1 s'", 'before the due time'), ("'infinity'", 'too far ahead')):
            with self.assertRaisesRegex(AssertionError, says):
                self.p.psql(f"select postdate.schedule('{key}', 'x', delay => '50 ms', deadline => {bad})")
        rights = ("select count(*) from pg_proc where pronamespace = 'postdate'::regnamespace and proname like 'schedule%' "
                  "and has_function_privilege('{}', oid, 'execute')")
        self.assertEqual(self.p.value(rights.format('postdate_producer')), '5')
        self.assertEqual(self.p.value(rights.format('postdate_reader')), '0')
        self.assertEqual(self.p.value("select has_table_privilege('postdate_reader', 'postdate.messages', 'select')"), 't')
