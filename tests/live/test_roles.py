"""What a token of the role `read` may do, and the lines that say who changed what."""

import harness
from harness import LiveTest, SharedTest, wait_until
from test_control import Requester
from test_tokens import HOUR, Caller
from web import Web


def make(place, role, *exchanges, name):
    args = [part for e in exchanges for part in ('--exchange', e)]
    code, out, err = place.cli('token', 'create', *args, '--name', name, *(('--role', role) if role else ()))
    assert code == 0, err
    return out.strip()


class Roles(SharedTest):
    gateway_env = {'POSTDATE_HTTP_TOKENS': 'on'}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.looks = make(cls.p, 'read', 'a', name='looks')
        cls.sees = make(cls.p, 'read', '*', name='sees all')
        cls.works = make(cls.p, None, '*', name='works')

    def setUp(self):
        super().setUp()
        self.address = self.gw.http()
        self.description = Web(self.address).get('/openapi.json').json
        self.reader, self.seer, self.worker = (Caller(self.address, t, self.description)
                                               for t in (self.looks, self.sees, self.works))
        wait_until(lambda: self.worker.get('/v1/messages').status == 200, 10, 'the tokens to be known')

    def test_who_am_i(self):
        one = self.reader.get('/v1/whoami').json
        self.assertRegex(one.pop('from'), r'^127\.0\.0\.1:\d+$')
        self.assertEqual(one, {'name': 'looks', 'role': 'read', 'all_exchanges': False, 'exchanges': ['a']})
        two = self.worker.get('/v1/whoami').json
        self.assertEqual((two['name'], two['role'], two['all_exchanges'], two['exchanges']), ('works', 'operate', True, []))

    def test_a_reader_looks_and_tries(self):
        m = self.worker.post('/v1/messages', dict(HOUR, exchange='a', routing_key='dry')).json
        self.assertEqual(self.reader.get(f"/v1/messages/{m['id']}?view=full").json['body'], 'x')
        for path in ('/v1/messages', '/v1/dead', '/v1/dead:groups', '/v1/stats'):
            self.assertEqual(self.reader.get(path).status, 200)
        self.assertEqual(self.seer.get('/v1/retry-policies').status, 200)
        self.assertIn('messages', self.seer.get('/v1/stats').json)
        dry = self.reader.post('/v1/messages:cancel', {'filter': {'routing_key': 'dry'}, 'dry_run': True})
        self.assertEqual(dry.json, {'matched': 1, 'changed': 0, 'dry_run': True})
        for trick in (b'{"filter":{},"dry_run":true,"dry_run":false}', b'{"filter":{},"dry_run":"true"}', b'{"filter":{},"dry_run":1}',
                      b'[]', b'', b'{"filter":{}', b'{"filter":{},"Dry_run":true}'):
            self.assertEqual(self.reader.post('/v1/messages:cancel', trick).problem, 'role-not-allowed', trick)
        self.assertEqual(self.reader.post(f"/v1/messages/{m['id']}:fail", {'dry_run': True}).problem, 'role-not-allowed')
        self.assertEqual(self.reader.post('/v1/messages', dict(HOUR, exchange='a', dry_run=True)).problem, 'role-not-allowed')
        self.assertEqual(self.worker.get('/v1/messages/' + m['id']).json['state'], 'scheduled')

    def test_the_log_tells_who_asked_by_the_control_queue(self):
        r = Requester(self.p.amqp)
        self.addCleanup(r.close)
        m = self.worker.post('/v1/messages', dict(HOUR, exchange='a')).json
        self.assertEqual(r.ask({'op': 'cancel', 'id': m['id'], 'token': self.looks})['status'], 403)
        self.assertEqual(r.ask({'op': 'whoami', 'token': self.looks})['from'], 'the control queue')
        self.assertEqual(r.ask({'op': 'cancel', 'id': m['id'], 'token': self.works})['state'], 'cancelled')
        self.gw.wait_log(r'audit: by token "looks" from the control queue: cancel ' + m['id'] + ': 403 role-not-allowed')
        self.gw.wait_log(r'audit: by token "works" from the control queue: cancel ' + m['id'] + ': 200')

    def test_a_role_that_changes_counts_at_once(self):
        token = make(self.p, None, 'a', name='demoted')
        caller = Caller(self.address, token, self.description)
        wait_until(lambda: caller.get('/v1/whoami').status == 200, 5, 'the new token')
        self.assertEqual(caller.post('/v1/messages', dict(HOUR, exchange='a')).status, 201)
        self.p.psql("update postdate.token set role = 'read' where name = 'demoted'")
        wait_until(lambda: caller.post('/v1/messages', dict(HOUR, exchange='a')).status == 403, 5, 'the new role')

    def test_the_command_knows_the_roles(self):
        code, out, err = self.p.cli('token', 'create', '--exchange', 'a', '--role', 'admin')
        self.assertEqual((code, out), (64, ''))
        self.assertIn('allowed are read and operate', err)
        code, out, err = self.p.cli('token', 'list')
        self.assertRegex(out, r'(?m)^NAME +ROLE ')
        self.assertRegex(out, r'(?m)^looks +read ')
        self.assertRegex(out, r'(?m)^works +operate ')


class Audit(LiveTest):
    def test_who_did_what_and_how_much(self):
        p = self.place()
        gw = p.gateway()
        web = Web(gw.http())
        ids = [web.post('/v1/messages', dict(HOUR, routing_key='audited', body='secret body')).json['id'] for _ in range(3)]
        self.assertNotIn('audit:', gw.log(), 'what is scheduled is not noted, unless it is asked for')
        web.ask('DELETE', '/v1/messages/' + ids[0])
        web.post('/v1/messages:cancel', {'filter': {'routing_key': 'audited'}, 'dry_run': True})
        web.post('/v1/messages:reschedule', {'filter': {'routing_key': 'audited'}, 'shift_ms': 5000})
        web.ask('PUT', '/v1/retry-policies/orders.*', {'attempts': 3})
        web.ask('PUT', '/v1/rates/orders?routing_key=slow.*', {'rate': '5/s'})
        web.ask('DELETE', '/v1/messages/' + ids[0][:-6] + '000000')
        who = r'audit: by any client \(http\.tokens is off\) from 127\.0\.0\.1:\d+: '
        gw.wait_log(who + 'cancel ' + ids[0] + ': 200')
        gw.wait_log(who + r'reschedule filter=\{"routing_key":"audited"\} shift_ms=5000: 2 matched, 2 changed, the first ' + min(ids[1:]))
        gw.wait_log(who + r'retry_policy_set orders\.\*: 200')
        gw.wait_log(who + r'rate_set orders routing_key=slow\.\* rate="5/s": 200')
        self.assertEqual(len(gw.lines_with('audit:')), 4, 'neither what was a dry run nor what was not there')
        self.assertNotIn('secret body', gw.log())
        self.assertEqual(gw.term(), 0)

    def test_all_or_nothing_where_that_is_wanted(self):
        p = self.place()
        gw = p.gateway(POSTDATE_LOG_AUDIT='all')
        web = Web(gw.http())
        m = web.post('/v1/messages', dict(HOUR, body='secret body')).json
        many = web.post('/v1/messages', {'messages': [HOUR, dict(HOUR, delay='x'), HOUR]}).json['results']
        gw.wait_log('audit: by .* schedule: made ' + m['id'])
        gw.wait_log(r'audit: by .* schedule: made 2, the first ' + many[0]['id'])
        self.assertNotIn('secret body', gw.log())
        gw.term()
        gw = p.gateway(POSTDATE_LOG_AUDIT='off')
        Web(gw.http()).ask('DELETE', '/v1/messages/' + m['id'])
        self.assertEqual(gw.term(), 0)
        self.assertNotIn('audit:', gw.log())

    def test_the_command_line_leaves_a_line_with_the_server(self):
        p = self.place()
        _, out, _ = p.cli('schedule', '-k', 'k', '--delay', '1h', '--body', 'secret body')
        key = p.value('select gen_random_uuid()')
        p.cli('recur', 'set', 'nightly-' + key, '--cron', '@daily', '-k', 'k', '--body', 'secret body')
        p.cli('cancel', '--due-after', '2020-01-01T00:00:00Z', '--key', key)  # usage: nothing was done
        p.cli('cancel', '--exchange', 'e-' + key, '--dry-run')
        p.cli('cancel', '--exchange', 'e-' + key)
        p.cli('cancel', out.strip())
        p.cli('token', 'create', '--exchange', 'a', '--name', key)
        with harness.stack().postgres_log() as f:
            lines = [line for line in f if 'postdate audit' in line]
        said = [line.split(': by role ')[1].rstrip() for line in lines if key in line or out.strip() in line]
        role = p.value('select session_user')
        self.assertEqual(said, [f'{role} from this machine: {what}' for what in (
            f'recur set nightly-{key}: 1 changed, exit 0', f'cancel --exchange e-{key}: 0 changed, exit 0',
            f'cancel {out.strip()}: 1 changed, exit 0', f'token create --exchange a --name {key}: 1 changed, exit 0')])
        self.assertFalse([line for line in lines if 'secret' in line])
