"""Messages that came by SQL, HTTP and the control queue, handed over to RabbitMQ: what they carry, what may not wait there,
and that whoever cancels or moves one that is handed over is told the truth."""
import json

import harness
from handover_kit import Checks, handover, metric, relayed
from harness import LiveTest, SharedTest, now_ms, psql_error, wait_until
from test_control import Requester
from web import Web

HEADERS = {'n': 1, 'big': 2 ** 40, 'text': 'grün', 'yes': True, 'nothing': None, 'list': [1, 'two', [3, {}]],
           'table': {'a': {'b': {'c': [False]}}}, 'x-mine': 'kept'}
PROPERTIES = dict(content_type='text/plain', content_encoding='identity', delivery_mode=1, priority=3, correlation_id='c',
                  reply_to='r', message_id='mine', timestamp=1_600_000_000, type='t', app_id='a')
# One that passed through a rung of the ladder: RabbitMQ drops what it dead-letters to the same queue again.
DIED = [{'queue': 'postdate.ttl.r16g100.l1.d1', 'reason': 'expired', 'exchange': 'x', 'count': 1, 'routing-keys': ['k']}]
DELAY_MS = 2500
OWN_HEADERS = {'x-postdate-id', 'x-postdate-due'}


def literal(value):
    return "'" + (value if isinstance(value, str) else json.dumps(value)).replace("'", "''") + "'"


class Ways(Checks):
    def setUp(self):
        super().setUp()
        self.web = Web(self.gw.http(), Web(self.gw.http()).get('/openapi.json').json)
        self.addCleanup(self.web.close)
        self.control = Requester(self.p.amqp)
        self.addCleanup(self.control.close)

    def sql(self, routing_key, body, delay_ms=DELAY_MS, **fields):
        """postdate.schedule(); the id."""
        more = ''.join(f', {name} => {literal(value)}' for name, value in fields.items())
        return self.p.value(f"select postdate.schedule('{routing_key}', '{body}', '{delay_ms} ms'{more})")

    def http(self, routing_key, body, delay_ms=DELAY_MS, **fields):
        answer = self.web.post('/v1/messages', dict(fields, routing_key=routing_key, body=body, delay_ms=delay_ms))
        self.assertEqual(answer.status, 201, answer)
        return answer.json['id']

    def order(self, routing_key, body, delay_ms=DELAY_MS, **fields):
        """By the control queue."""
        answer = self.control.ask(dict(fields, op='schedule', routing_key=routing_key, body=body, delay_ms=delay_ms))
        self.assertEqual(answer['status'], 201, answer)
        return answer['id']

    def ways(self):
        return {'sql': self.sql, 'http': self.http, 'control': self.order}

    def state(self, message_id):
        return self.p.value(f"select state from postdate.message_now where id = '{message_id}'")

    def wait_state(self, message_id, state, deadline_s=10):
        wait_until(lambda: self.state(message_id) == state, deadline_s, f'{message_id} to be {state}')

    def assert_arrives(self, inbox, at_ms, ids):
        """ids: {body: id}; each once, on time, settled."""
        inbox.wait(len(ids))
        for message_id in ids.values():
            self.wait_state(message_id, 'delivered')
        self.assertEqual({m.body.decode(): m.id for m in inbox.all()}, ids)
        self.assert_each_once_and_not_early(inbox, {body.encode(): at_ms + DELAY_MS for body in ids})

    def test_properties_and_headers_arrive(self):
        inbox, key = self.inbox()
        at, ids = now_ms(), {}
        for way, schedule in self.ways().items():
            ids[way] = schedule(key, way, headers=HEADERS, properties=PROPERTIES, hold='broker')
            ids[way + ' bare'] = schedule(key, way + ' bare', hold='broker')
        for message_id in ids.values():
            self.wait_state(message_id, 'handed', 5)
        self.assert_arrives(inbox, at, ids)
        self.assert_held_by(self.p, inbox.all())
        for m in inbox.all():
            self.assertEqual((m.exchange, m.routing_key), ('postdate.delivery', key))
            bare = m.body.endswith(b'bare')
            self.assertEqual({k: m.headers.get(k) for k in HEADERS}, {k: None for k in HEADERS} if bare else HEADERS)
            self.assertEqual(set(m.headers) - set(HEADERS), OWN_HEADERS)
            if bare:
                self.assertEqual((m.properties.delivery_mode, m.properties.message_id), (2, m.id))
            else:
                self.assertEqual({k: getattr(m.properties, k) for k in PROPERTIES}, PROPERTIES)

    def test_what_a_queue_would_change_may_wait_in_rabbitmq_too(self):
        """None applies an expiration to the wait, none adds to the headers, and none takes a history for a cycle."""
        inbox, key = self.inbox()
        at, ids = now_ms(), {}
        for way, schedule in self.ways().items():
            ids[way + ' expires'] = schedule(key, way + ' expires', properties={'expiration': '1500'}, hold='broker')
            ids[way + ' long'] = schedule(key, way + ' long', headers={'long': 'x' * 17000}, hold='broker')
            ids[way] = schedule(key, way, hold='broker')
            ids[way + ' died'] = schedule(key, way + ' died', headers={'x-death': DIED}, hold='broker')
        for message_id in ids.values():
            self.wait_state(message_id, 'handed', 5)
        self.assert_arrives(inbox, at, ids)
        self.assert_held_by(self.p, inbox.all())
        for m in inbox.all():
            self.assertEqual(m.properties.expiration, '1500' if m.body.endswith(b'expires') else None)
            self.assertEqual(len(m.headers.get('long', '')), 17000 if m.body.endswith(b'long') else 0)
            self.assertEqual(m.headers.get('x-death'), DIED if m.body.endswith(b'died') else None)

    def test_by_default_it_stays_with_the_gateway(self):
        inbox, key = self.inbox()
        at = now_ms()
        ids = {way: schedule(key, way) for way, schedule in self.ways().items()}
        sentinel = self.sql('sentinel.' + key, 'x', hold='broker')
        self.wait_state(sentinel, 'handed', 5)  # so the handover feeder has looked
        self.assertNotIn('handed', {self.state(i) for i in ids.values()})
        self.assert_arrives(inbox, at, ids)
        self.assert_held_by(self.p, inbox.all(), 'timer')

    @harness.not_san
    def test_once_handed_over_it_is_too_late_whoever_asks(self):
        inbox, key = self.inbox()
        at, delay_ms = now_ms(), 14_000 if harness.SAN else 8000
        ids = {way: schedule(key, way, delay_ms, key=f'{key}.{way}', hold='broker') for way, schedule in self.ways().items()}
        for message_id in ids.values():
            self.wait_state(message_id, 'handed', 6)
        for way, message_id in ids.items():
            self.assert_too_late_by_sql(key, f'{key}.{way}', message_id)
            self.assert_too_late_by_http(key, f'{key}.{way}', message_id)
            for op in ('cancel', 'reschedule'):
                answer = self.control.ask({'op': op, 'id': message_id, **({} if op == 'cancel' else {'delay': '1h'})})
                self.assertEqual((answer['status'], answer['type']), (409, 'urn:postdate:problem:too-late'))
            rc, out, error = self.p.cli('reschedule', message_id, '--delay', '1h')
            self.assertEqual(rc, 1, out + error)
            self.assertIn('too late', out + error)
        self.assertEqual({self.state(i) for i in ids.values()}, {'handed'}, 'asking has changed something')
        inbox.wait(len(ids))
        for message_id in ids.values():
            self.wait_state(message_id, 'delivered')
            self.assertEqual(self.p.value(f"select postdate.cancel('{message_id}')"), 'too_late')
        self.assert_each_once_and_not_early(inbox, {way.encode(): at + delay_ms for way in ids})
        self.assert_held_by(self.p, inbox.all())

    def assert_too_late_by_sql(self, routing_key, key, message_id):
        for call in (f"cancel('{message_id}')", f"cancel_key('{key}')", f"reschedule('{message_id}', '1h')"):
            self.assertEqual(self.p.value(f'select postdate.{call}'), 'too_late', call)
        replace = f"select postdate.schedule('{routing_key}', 'new', '1h', key => '{key}', on_conflict => 'replace')"
        code, text = psql_error(self.p.postgres, replace)
        self.assertEqual(code, '55000', text)
        self.assertEqual(self.sql(routing_key, 'new', key=key), message_id, 'keep names the one that there is')

    def assert_too_late_by_http(self, routing_key, key, message_id):
        path = '/v1/messages/' + message_id
        again = {'routing_key': routing_key, 'body': 'new', 'delay': '1h', 'key': key}
        for answer in (self.web.ask('DELETE', path), self.web.ask('DELETE', f'/v1/messages?key={key}'),
                       self.web.ask('PATCH', path, {'delay': '1h'}),
                       self.web.post('/v1/messages', dict(again, on_conflict='replace'))):
            self.assertEqual((answer.status, answer.problem), (409, 'too-late'), answer)
        kept = self.web.post('/v1/messages', again)
        self.assertEqual((kept.status, kept.json['id'], kept.json['state']), (200, message_id, 'handed'))
        for operation, more in (('cancel', {}), ('reschedule', {'shift_ms': 60_000})):
            answer = self.web.post('/v1/messages:' + operation, dict(more, filter={'key': key}))
            self.assertEqual((answer.status, answer.json['changed']), (200, 0), answer)


@harness.not_san  # as ttl, but for the broker
class PluginWays(Ways, SharedTest):
    weight = 20
    transport = 'plugin'
    gateway_env = handover('plugin')


class TtlWays(Ways, SharedTest):
    weight = 20
    transport = 'ttl'
    gateway_env = handover('ttl')


class WaysAll(Checks):
    def test_all_are_handed_over_and_what_moved_before_arrives_once(self):
        p = self.place()
        g = p.gateway(**handover(self.transport, what='all', window='8s'))
        web = Web(g.http())
        self.addCleanup(web.close)
        inbox = p.consumer('q', bind='k')
        many = [{'routing_key': 'k', 'delay_ms': 6000, 'body': f'many {i}', 'headers': {'i': i}} for i in range(20)]
        rows = p.psql(f'select id, error from postdate.schedule_many({literal(many)})')
        self.assertEqual({len(r[0]) for r in rows}, {36}, rows)
        p.value("select postdate.schedule('k', 'sql', '6s')")
        self.assertEqual(web.post('/v1/messages', {'routing_key': 'k', 'delay_ms': 6000, 'body': 'http'}).status, 201)
        # Beyond the window, then moved into it.
        moved = {'moved sql': p.value("select postdate.schedule('k', 'moved sql', '1h', headers => '{\"i\": \"m\"}')"),
                 'moved http': web.post('/v1/messages', {'routing_key': 'k', 'delay': '1h', 'body': 'moved http'}).json['id']}
        at = now_ms()
        self.assertEqual(p.value(f"select postdate.reschedule('{moved['moved sql']}', '6s')"), 'rescheduled')
        self.assertEqual(web.ask('PATCH', '/v1/messages/' + moved['moved http'], {'delay_ms': 6000}).status, 200)
        wait_until(lambda: p.counts() == {'handed': 24, 'superseded': 2}, 10, 'all to be handed over')
        for old in moved.values():
            self.assertEqual(p.value(f"select postdate.cancel('{old}')"), 'too_late', 'the old id leads to the new message')
            self.assertEqual(web.get('/v1/messages/' + old).json['state'], 'handed')
        inbox.wait(24)
        wait_until(lambda: p.counts() == {'delivered': 24, 'superseded': 2}, 10, 'all to be settled')
        self.assertEqual(sorted(m.body.decode() for m in inbox.all()),
                         sorted([x['body'] for x in many] + ['sql', 'http', *moved]))
        self.assert_held_by(p, inbox.all())
        by_body = {m.body.decode(): m for m in inbox.all()}
        self.assertEqual([by_body[x['body']].headers['i'] for x in many], list(range(20)))
        self.assertEqual(by_body['moved sql'].headers['i'], 'm')
        for body in moved:
            self.assertGreaterEqual(by_body[body].at_ms, at + 6000)
        self.assertEqual((metric(g, 'postdate_messages_handed_total'), relayed(g)), (24, 24))


@harness.not_san
class PluginWaysAll(WaysAll, LiveTest):
    weight = 10
    transport = 'plugin'


class TtlWaysAll(WaysAll, LiveTest):
    weight = 10
    transport = 'ttl'
