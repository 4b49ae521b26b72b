"""When a message is due, by each of the headers that say so; and that nothing of ours has the one that RabbitMQ 4.4 reads."""
import datetime
import json
import time

from harness import LiveTest, SharedTest, now_ms, wait_until
from test_retries import RETRY
from watcher import Watcher
from web import Web

HOUR_MS = 3_600_000


def rfc3339(ms):
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.timezone.utc).isoformat(timespec='milliseconds')


class Company(LiveTest):
    def test_what_has_time_is_stored_with_others(self):
        """A commit costs more than a message: at a thousand a second it has several."""
        count, p = 1000, self.place(transport='timer')
        p.gateway()
        p.load('publish', '--routing-key', 'company', '--count', count, '--rate', 1000, '--delay-ms', HOUR_MS).result()
        wait_until(lambda: p.value('select count(*) from postdate.message') == str(count), 30, 'all to be stored')
        commits = int(p.value('select count(distinct born) from postdate.message'))
        print(f'    {count} messages in {commits} transactions')
        self.assertLess(commits, count * 6 // 10)


class DueTime(SharedTest):
    gateway_env = {'POSTDATE_ROUTE': 'orders.delayed=orders'}

    def test_the_row_exists_at_once_whatever_header_says_when(self):
        """With RabbitMQ 4.4 as with any other: nothing waits in the intake queue."""
        _, key = self.inbox()
        due = now_ms() + HOUR_MS
        headers = {'x-postdate-at': due, 'x-postdate-at text': rfc3339(due), 'x-opt-delivery-time': due,
                   'x-opt-delivery-delay': HOUR_MS, 'x-delay': HOUR_MS}
        for name, value in headers.items():
            with self.subTest(name=name):
                began = time.monotonic()
                self.c.publish(key, name.encode(), {name.split()[0]: value})
                found = wait_until(lambda: self.p.psql(
                    "select state, round(extract(epoch from due_at) * 1000) from postdate.messages "
                    f"where routing_key = '{key}' and convert_from(body, 'UTF8') = '{name}'"), 10, f'the row of {name}')
                print(f'    {name}: the row exists {1000 * (time.monotonic() - began):.0f} ms after the publish began')
                self.assertEqual(len(found), 1)
                self.assertIn(found[0][0], ('scheduled', 'claimed', 'handed'))
                late = int(found[0][1]) - due
                self.assertTrue(0 <= late < 10_000, f'due {late} ms after the hour')

    def test_x_postdate_at_is_absolute_and_exact(self):
        inbox, key = self.inbox()
        due = now_ms() + 700
        sent = {b'number': due, b'float': float(due), b'digits': str(due), b'date': rfc3339(due)}
        for body, value in sent.items():
            self.c.publish(key, body, {'x-postdate-at': value, 'x-delay': 90_000, 'x-opt-delivery-delay': 80_000,
                                       'x-opt-delivery-time': due - 60_000})
        self.c.publish(key, b'past', {'x-postdate-at': due - 60_000})
        for body in sent:
            m = inbox.wait_body(body)
            self.assertEqual(m.due_ms, due, body)
            self.assertGreaterEqual(m.at_ms, due)
            self.assertEqual(sorted(m.headers), ['x-delay', 'x-postdate-due', 'x-postdate-id'])
        self.assertLess(inbox.wait_body(b'past').at_ms, due + 10_000)

    def test_an_amqp_timestamp_is_the_end_of_its_second(self):
        inbox, key = self.inbox()
        second = int(time.time()) + 1
        self.c.publish(key, b'', {'x-postdate-at': datetime.datetime.fromtimestamp(second, datetime.timezone.utc).replace(tzinfo=None)})
        m = inbox.wait(1)[0]
        self.assertEqual(m.due_ms, second * 1000 + 999)
        self.assertGreaterEqual(m.at_ms, m.due_ms)

    def test_through_a_route_and_published_again(self):
        self.c.channel.exchange_declare('orders', durable=True)
        self.c.queue('q.route', 'r', exchange='orders')
        due = now_ms() + 300
        self.c.publish('r', b'first', {'x-postdate-at': due}, exchange='orders.delayed')
        m = self.c.wait_get('q.route')
        self.assertEqual((m.due_ms, 'x-postdate-at' in m.headers), (due, False))
        again = now_ms() + 300
        self.c.publish('r', b'again', {**m.headers, 'x-postdate-at': again}, exchange='orders.delayed')
        m = self.c.wait_get('q.route')
        self.assertEqual((m.body, m.due_ms), (b'again', again))
        self.assertGreaterEqual(m.at_ms, again)

    def test_what_is_no_time_or_too_far_is_rejected(self):
        _, key = self.inbox()
        values = {'word': 'tomorrow', 'no offset': '2026-11-22T08:00:00', 'bool': True, 'none': None, 'table': {'a': 1},
                  'far': now_ms() + 1000 * 86_400_000, 'microseconds': now_ms() * 1000, 'far date': '9999-01-01T00:00:00Z', 'seconds': now_ms() // 1000,
                  'text of seconds': str(now_ms() // 1000), 'float of seconds': now_ms() / 1000, 'nothing': 0}
        for name, value in values.items():
            self.c.publish(key, name.encode(), {'x-postdate-at': value})
        for name in values:
            with self.subTest(name=name):
                self.assertRegex(self.rejected(name.encode()).headers['x-postdate-error'], '^x-postdate-at: .*allowed: ')

    def test_a_time_of_1970_is_one_in_seconds_in_each_way(self):
        """new Date(seconds), to_timestamp(seconds / 1000): it was "in the past means at once"."""
        odd, good = '1970-01-21T17:00:00Z', '1973-03-03T09:46:40Z'
        web = Web(self.gw.http())
        self.addCleanup(web.close)
        message = web.post('/v1/messages', {'routing_key': 'k', 'delay': '1h', 'body': ''}).json['id']
        for verb, path, body in (('POST', '/v1/messages', {'routing_key': 'k', 'body': '', 'due_at': odd}), ('PATCH', f'/v1/messages/{message}', {'due_at': odd})):
            answer = web.ask(verb, path, body)
            self.assertEqual(answer.status, 422, (path, answer))
            self.assertRegex(answer.json['detail'], '^due_at: 1970-01-21T17:00:00.000Z lies before 1973: was a time in seconds taken for milliseconds?')
        for args in (('schedule', '-k', 'k', '--body', '', '--at', odd), ('reschedule', message, '--at', odd)):
            code, _, said = self.p.cli(*args)
            self.assertIn(code, (64, 65), said)
            self.assertIn('before 1973', said)
        line = '{"routing_key":"k","body":"x","due_at":"%s"}\n'
        code, _, said = self.p.cli('schedule', '--batch', '-', stdin=line % odd)
        self.assertIn('before 1973', said)
        for call in (f"schedule('k', 'x', due_at => '{odd}')", f"reschedule('{message}', due_at => '{odd}')"):
            with self.assertRaisesRegex(AssertionError, 'before 1973'):
                self.p.psql('select postdate.' + call)
        for more in ('', ',"hold":"gateway"'):
            item = line.strip()[:-1] + more + '}'
            self.assertRegex(self.p.psql(f"select error from postdate.schedule_many('[{item % odd}]')")[0][0], 'before 1973')
            self.assertEqual(self.p.psql(f"select error from postdate.schedule_many('[{item % good}]')"), [['']])
        self.assertEqual(self.p.value(f"select state from postdate.message_now where id = '{message}'"), 'scheduled')

    def test_elsewhere_the_field_is_due_at(self):
        """Over HTTP, in SQL and to the control queue x-postdate-at is refused among headers, as others of ours are."""
        web = Web(self.gw.http())
        self.addCleanup(web.close)
        message = {'routing_key': 'k', 'delay_ms': 0, 'body': '', 'headers': {'x-postdate-at': 1}}
        answer = web.post('/v1/messages', message)
        self.assertEqual((answer.status, answer.problem), (422, 'invalid-message'), answer)
        self.c.queue('q.answers')
        self.c.publish('postdate.control', json.dumps({'op': 'schedule', **message}).encode(), exchange='', reply_to='q.answers')
        self.assertEqual(json.loads(self.c.wait_get('q.answers').body)['status'], 422)
        with self.assertRaisesRegex(AssertionError, 'x-postdate-at'):
            self.p.psql("""begin; select postdate.schedule('k', 'x', '0 s', headers => '{"x-postdate-at": 1}')""")


class Published(LiveTest):
    """Where RabbitMQ 4.4 finds x-opt-delivery-time it hides a message until then. So nothing that we publish has it."""
    NAME = b'\x13x-opt-delivery-time'  # as the name of a header, in an envelope, too

    def begin(self, **env):
        p = self.place()
        watcher = Watcher(p.amqp)
        self.addCleanup(watcher.close)
        p.gateway(POSTDATE_AMQP_URL=watcher.url, **env)
        return p, watcher, p.client()

    def assert_clean(self, watcher, *targets):
        """Every target was published to, and nothing had the header."""
        published = watcher.all()
        seen = {m.exchange or m.routing_key for m in published}
        for target in targets:
            self.assertTrue(any(s.startswith(target) for s in seen), f'nothing went to {target}: {seen}')
        for m in published:
            if m.exchange == 'postdate.native':  # a transport that asks RabbitMQ for its delay
                continue
            self.assertNotIn(self.NAME, m.properties, f'{m.exchange!r} {m.routing_key!r}')

    def send(self, c, due):
        c.publish('k', b'soon', {'x-opt-delivery-time': due, 'n': 1})
        c.publish('k', b'held here', {'x-opt-delivery-time': due, 'x-postdate-hold': 'gateway'})
        c.publish('k', b'past', {'x-opt-delivery-time': due - HOUR_MS})
        c.publish('k', b'twice', {'x-postdate-at': due, 'x-opt-delivery-time': due + HOUR_MS})

    def test_delivered_handed_over_rejected_and_answered(self):
        p, watcher, c = self.begin(POSTDATE_HANDOVER_TRANSPORT='ttl')
        inbox = p.consumer('q', bind='k')
        c.queue('answers')
        self.send(c, now_ms() + 4000)
        c.publish('k', b'far', {'x-opt-delivery-time': 10 ** 15})
        c.publish('k', b'no target', {'x-opt-delivery-time': now_ms() + HOUR_MS, 'x-postdate-exchange': 'postdate.exit'})
        c.publish('postdate.control', b'{"op":"show","id":"x"}', {'x-opt-delivery-time': 1}, exchange='', reply_to='answers')
        for m in inbox.wait(4, 15):
            self.assertNotIn('x-opt-delivery-time', m.headers)
        c.wait_get('answers')
        parked = {m.body: m for m in (c.wait_get('postdate.rejected'), c.wait_get('postdate.rejected'))}
        self.assertEqual(parked[b'far'].headers['x-postdate-at'], 10 ** 15)
        self.assertRegex(parked[b'far'].headers['x-postdate-error'], '^x-opt-delivery-time: ')
        self.assertIn('x-postdate-at', parked[b'no target'].headers)
        self.assert_clean(watcher, 'postdate.ttl', 'postdate.delivery', 'postdate.rejected', 'answers')

    def test_by_the_broker_itself(self):
        p, watcher, c = self.begin(POSTDATE_HANDOVER_LAST_HOP='broker')
        inbox = p.consumer('q', bind='k')
        self.send(c, now_ms() + 4000)
        inbox.wait(4, 15)
        self.assert_clean(watcher, 'postdate.')

    def test_what_a_consumer_refuses(self):
        """It reaches postdate.retry as RabbitMQ put it there, and goes back without."""
        p, watcher, c = self.begin()
        p.psql("select postdate.retry_policy_set('work', 3, '100 ms', 2, '1 h', 0)")
        c.queue('work', arguments=RETRY)
        c.publish('work', b'mine', {'x-opt-delivery-time': now_ms() + HOUR_MS, 'n': 1}, exchange='')

        def get():
            method, properties, _ = c.channel.basic_get('work')
            return (method, properties) if method else None
        for attempt in (1, 2, 3):
            method, properties = wait_until(get, 10, f'attempt {attempt}')
            self.assertEqual(('x-opt-delivery-time' in properties.headers, properties.headers['n']), (attempt == 1, 1))
            self.assertEqual(properties.headers.get('x-postdate-attempt', 1), attempt)
            c.channel.basic_reject(method.delivery_tag, requeue=False)
        dead = "select failed from postdate.lineage where died_at is not null"
        wait_until(lambda: p.psql(dead) == [['3']], 10, 'the dead letter')
        p.psql('select postdate.dead_requeue(id, queue) from postdate.lineage')
        self.assertNotIn('x-opt-delivery-time', wait_until(get, 10, 'it to be requeued')[1].headers)
        self.assert_clean(watcher, 'postdate.return')
