"""Tokens: each way in is tried with a token that lists other exchanges."""
import json
import re

from harness import LiveTest, SharedTest, wait_until
from web import Web

HOUR = {'routing_key': 'k', 'delay': '1h', 'body': 'x'}


def make_token(place, *exchanges, name=None, role=None, env=None):
    args = [part for e in exchanges for part in ('--exchange', e)] + (['--name', name] if name else []) + (['--role', role] if role else [])
    code, out, err = place.cli('token', 'create', *args, env=env)
    assert code == 0, err
    return out.strip()


class Caller:
    """A client with a token, or none."""

    def __init__(self, address, token=None, description=None):
        self.web = Web(address, description)
        self.headers = {'Authorization': 'Bearer ' + token} if token else {}

    def ask(self, method, path, body=None, **headers):
        return self.web.ask(method, path, body, dict(self.headers, **{k.replace('_', '-'): v
                                                                     for k, v in headers.items()}))

    def get(self, path):
        return self.ask('GET', path)

    def post(self, path, body, **headers):
        return self.ask('POST', path, body, **headers)


class Tokens(SharedTest):
    gateway_env = {'POSTDATE_HTTP_TOKENS': 'on'}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.token_a = make_token(cls.p, 'a', 'both', name='team a')
        cls.token_b = make_token(cls.p, 'b', 'both', name='team b')
        cls.token_all = make_token(cls.p, 'a', 'b', 'both', '', 'postdate.delivery', name='all')

    def setUp(self):
        super().setUp()
        self.address = self.gw.http()
        description = Web(self.address).get('/openapi.json').json
        self.description = description
        self.a = Caller(self.address, self.token_a, description)
        self.b = Caller(self.address, self.token_b, description)
        self.all = Caller(self.address, self.token_all, description)
        wait_until(lambda: self.all.get('/v1/messages').status == 200, 10, 'the tokens to be known')

    def schedule(self, caller, exchange, **fields):
        answer = caller.post('/v1/messages', dict(HOUR, exchange=exchange, **fields))
        self.assertEqual(answer.status, 201, answer)
        return answer.json

    def problem(self, answer, status, problem):
        self.assertEqual((answer.status, answer.problem), (status, problem), answer)

    def test_what_is_no_token_lets_nobody_in(self):
        """Each call with one: test_doors."""
        wrong = ['', 'x', self.token_a[:-1], self.token_a + 'x', self.token_a.upper(), 'pdt_' + '0' * 32, 'x' * 8000]
        web = Web(self.address, self.description)
        for token in wrong:
            for scheme in ('Bearer ', 'bearer  ', 'Basic ', ''):
                answer = web.ask('GET', '/v1/stats', None, {'Authorization': scheme + token})
                self.problem(answer, 401, 'unauthorized')
                self.assertEqual(answer.headers['www-authenticate'], 'Bearer')
        for scheme in ('bearer ', 'BEARER   '):
            self.assertEqual(web.ask('GET', '/v1/stats', None, {'Authorization': scheme + self.token_a}).status, 200)
        for path in ('/livez', '/readyz', '/openapi.json', '/metrics'):
            self.assertEqual(web.get(path).status, 200)

    def test_scheduling_elsewhere_is_forbidden_alone_and_in_a_batch(self):
        self.problem(self.a.post('/v1/messages', dict(HOUR, exchange='b')), 403, 'exchange-not-allowed')
        self.problem(self.a.post('/v1/messages', dict(HOUR, exchange='missing')), 403, 'exchange-not-allowed')
        self.problem(self.a.post('/v1/messages', HOUR), 403, 'exchange-not-allowed')  # delivery.exchange
        answer = self.a.post('/v1/messages', {'messages': [dict(HOUR, exchange=e, key='bat')
                                                           for e in ('a', 'b', '', 'both', 'A')]})
        self.assertEqual([r['status'] for r in answer.json['results']], [201, 403, 403, 201, 403])
        self.assertEqual(self.p.value("select count(*) from postdate.message_now where key = 'bat'"), '2')

    def test_headers_smuggle_nothing(self):
        for name in ('x-postdate-exchange', 'x-postdate-key', 'X-Postdate-Exchange', 'x-delay', 'x-opt-delivery-time'):
            self.problem(self.a.post('/v1/messages', dict(HOUR, exchange='a', headers={name: 'b'})), 422, 'invalid-message')
        for more in ({'properties': {'headers': {'x-postdate-exchange': 'b'}}}, {'exchange': ['a', 'b']}, {'route': 'b'}):
            self.problem(self.a.post('/v1/messages', dict(dict(HOUR, exchange='a'), **more)), 422, 'invalid-message')
        # CC and BCC are more routing keys of the same exchange
        self.schedule(self.a, 'a', headers={'CC': ['x'], 'BCC': ['y']})

    def test_the_default_exchange_does_not_lead_to_the_gateways_queues(self):
        self.schedule(self.all, '', routing_key='work')
        for queue in ('postdate.control', 'postdate.intake', 'postdate.intake.expired', 'postdate.exit'):
            self.problem(self.all.post('/v1/messages', dict(HOUR, exchange='', routing_key=queue)),
                         403, 'exchange-not-allowed')
            for name in ('CC', 'BCC'):
                self.problem(self.all.post('/v1/messages', dict(HOUR, exchange='', headers={name: [queue]})),
                             403, 'exchange-not-allowed')

    def test_foreign_messages_are_missing_messages(self):
        m = self.schedule(self.a, 'a', key='mine')
        moved = self.schedule(self.a, 'a')
        self.assertEqual(self.a.ask('PATCH', '/v1/messages/' + moved['id'], {'delay': '2h'}).status, 200)
        missing = m['id'][:-6] + ('000000' if m['id'][-6:] != '000000' else '111111')
        calls = [('GET', '', None), ('GET', '?view=full', None), ('DELETE', '', None), ('PATCH', '', {'delay': '1h'})]
        for method, query, body in calls:
            wanted = self.b.ask(method, f'/v1/messages/{missing}{query}', body)
            self.problem(wanted, 404, 'not-found')
            for real in (m['id'], moved['id']):
                answer = self.b.ask(method, f'/v1/messages/{real}{query}', body)
                self.problem(answer, 404, 'not-found')
                self.assertEqual(answer.body.replace(real.encode(), b''), wanted.body.replace(missing.encode(), b''))
                self.assertEqual(sorted(answer.headers), sorted(wanted.headers))
        for query in ('key=mine&exchange=a', 'key=mine&exchange=both', 'key=mine', 'key=mine&exchange=b'):
            self.problem(self.b.ask('DELETE', '/v1/messages?' + query), 404, 'not-found')
        self.assertEqual(self.a.get('/v1/messages/' + m['id']).json['state'], 'scheduled')
        self.assertEqual(self.a.get('/v1/messages/' + moved['id']).json['state'], 'scheduled')

    def test_a_foreign_row_that_is_locked_delays_nobody(self):
        m = self.schedule(self.a, 'a', key='locked')
        session = self.p.session()
        session.run('begin')
        session.run(f"select id from postdate.message where id = '{m['id']}' for update")
        session.run("select key from postdate.key where key = 'locked' for update")
        # Whoever has to wait for the row, or for the key, is told so (503) when it has taken too long.
        for method, body in (('GET', None), ('DELETE', None), ('PATCH', {'delay': '1h'})):
            self.problem(self.b.ask(method, '/v1/messages/' + m['id'], body), 404, 'not-found')
        self.schedule(self.b, 'b', key='locked')
        session.run('rollback')
        session.close()

    def test_keys_belong_to_their_exchange(self):
        mine = self.schedule(self.a, 'a', key='same')
        for conflict in ('keep', 'replace', 'reject'):
            answer = self.b.post('/v1/messages', dict(HOUR, exchange='b', key='same' + conflict, on_conflict=conflict))
            self.assertEqual(answer.status, 201)
        answer = self.b.post('/v1/messages', dict(HOUR, exchange='b', key='same', on_conflict='replace'))
        self.assertEqual(answer.status, 201)
        self.problem(self.b.post('/v1/messages', dict(HOUR, exchange='a', key='same')), 403, 'exchange-not-allowed')
        self.assertEqual(self.a.get('/v1/messages/' + mine['id']).json, mine)

    def test_lists_and_pages_show_ones_own(self):
        own = [self.schedule(self.b, 'both', routing_key='pages')['id'] for _ in range(3)]
        for _ in range(3):
            self.schedule(self.a, 'a', routing_key='pages', key=f'page-{_}')
        shared = self.a.get('/v1/messages?routing_key=pages&exchange=both').json['messages']
        self.assertEqual(sorted(m['id'] for m in shared), sorted(own))
        listed = self.b.get('/v1/messages?page_size=1000').json
        self.assertEqual({m['exchange'] for m in listed['messages']} - {'b', 'both'}, set())
        for query in ('exchange=a', 'exchange=', 'key=page-0', 'key=page-0&exchange=a', 'exchange=a&state=scheduled'):
            self.assertEqual(self.b.get('/v1/messages?' + query).json, {'messages': [], 'next_page_token': None})
        # another one's page token, and one's own for another filter, are refused
        for caller, path in ((self.a, 'exchange=both&routing_key=pages'), (self.all, 'routing_key=pages')):
            token = caller.get(f'/v1/messages?{path}&page_size=1').json['next_page_token']
            self.problem(self.b.get(f'/v1/messages?{path}&page_size=1&page_token={token}'), 400, 'invalid-request')
        seen, token = [], ''
        while token is not None:
            page = self.b.get(f'/v1/messages?routing_key=pages&page_size=1&page_token={token}').json
            seen += [m['id'] for m in page['messages']]
            token = page['next_page_token']
        self.assertEqual(sorted(seen), sorted(own))

    def test_bulk_counts_and_changes_ones_own(self):
        for caller, exchange in ((self.a, 'a'), (self.b, 'b'), (self.b, 'both')):
            self.schedule(caller, exchange, routing_key='bulk', key='bulk-' + exchange)
        self.p.psql("update postdate.message set next_at = coalesce(next_at, due), state = 'failed', settled_at = now() where key = 'bulk-a'")
        for op, more in (('cancel', {}), ('reschedule', {'shift_ms': 1000}), ('retry', {})):
            for filters in ({'exchange': 'a'}, {'key': 'bulk-a'}, {'exchange': 'a', 'routing_key': 'bulk'}):
                for dry in (True, False):
                    answer = self.b.post('/v1/messages:' + op, dict(more, filter=filters, dry_run=dry))
                    self.assertEqual((answer.json['matched'], answer.json['changed']), (0, 0), (op, filters))
            answer = self.b.post('/v1/messages:' + op, dict(more, filter={'routing_key': 'bulk'}, dry_run=True))
            self.assertEqual(answer.json['matched'], 0 if op == 'retry' else 2)
        self.assertEqual(self.b.post('/v1/messages:cancel', {'filter': {'routing_key': 'bulk'}}).json['changed'], 2)
        self.assertEqual(self.p.value("select state from postdate.message_now where key = 'bulk-a'"), 'failed')

    def test_stats_count_nothing_for_a_token(self):
        self.schedule(self.a, 'a')
        for caller in (self.a, self.b, self.all):
            stats = caller.get('/v1/stats').json
            self.assertNotIn('messages', stats)
            self.assertNotIn('next_due_at', stats)
            self.assertEqual({'stalled', 'refusing'} & set(stats), set(), 'they may be of others')
            self.assertIsNone(stats['window']['messages'])
            self.assertEqual(set(stats['lateness_ms'].values()), {None})

    def test_an_idempotency_key_belongs_to_its_token(self):
        first = self.a.post('/v1/messages', dict(HOUR, exchange='both'), Idempotency_Key='same-key')
        other = self.b.post('/v1/messages', dict(HOUR, exchange='both'), Idempotency_Key='same-key')
        again = self.a.post('/v1/messages', dict(HOUR, exchange='both'), Idempotency_Key='same-key')
        self.assertEqual((first.status, other.status, again.status), (201, 201, 201))
        self.assertEqual(first.json, again.json)
        self.assertNotEqual(first.json['id'], other.json['id'])
        answer = self.b.post('/v1/messages', dict(HOUR, exchange='b'), Idempotency_Key='only-b')
        self.assertEqual(answer.status, 201)
        answer = self.a.post('/v1/messages', dict(HOUR, exchange='b'), Idempotency_Key='only-b')
        self.problem(answer, 403, 'exchange-not-allowed')

    def test_revoked_without_a_restart(self):
        token = make_token(self.p, 'a', name='short-lived')
        caller = Caller(self.address, token, self.description)
        wait_until(lambda: caller.get('/v1/stats').status == 200, 5, 'the new token to be known', 0.005)
        self.assertEqual(self.p.cli('token', 'revoke', 'short-lived')[0], 0)
        wait_until(lambda: caller.get('/v1/stats').status == 401, 5, 'the revoked token to be refused', 0.005)
        self.assertEqual(self.a.get('/v1/stats').status, 200)
        self.assertEqual(self.p.cli('token', 'revoke', 'short-lived')[0], 66)
        # the name is free again, and the old token stays out
        make_token(self.p, 'a', name='short-lived')
        self.assertEqual(caller.get('/v1/stats').status, 401)
        # by hand, too
        self.p.psql("delete from postdate.token where name = 'short-lived'")
        rows = self.p.cli('token', 'list', '--all', '--json')[1].splitlines()
        self.assertNotIn('short-lived', [json.loads(x)['name'] for x in rows])

    def test_a_token_is_nowhere_but_with_its_owner(self):
        self.a.get('/v1/stats')
        self.assertRegex(self.token_a, r'^pdt_[A-Za-z0-9_-]{32}$')
        self.assertNotIn(self.token_a, self.gw.log())
        self.assertNotIn(self.token_a, Web(self.address).get('/metrics').body.decode())
        self.assertNotIn(self.token_a, self.p.cli('token', 'list', '--all', '--json')[1])
        stored = self.p.psql('select t::text from postdate.token t')
        self.assertFalse([row for row in stored if self.token_a in row[0] or self.token_a[4:] in row[0]])
        digest = self.p.value(f"select name from postdate.token where hash = sha256('{self.token_a}')")
        self.assertEqual(digest, 'team a')

    def test_last_used_is_noted(self):
        make_token(self.p, 'a', name='idle')
        self.assertEqual(self.p.value("select last_used from postdate.token where name = 'idle'"), '')
        token = make_token(self.p, 'a', name='busy')
        caller = Caller(self.address, token)
        wait_until(lambda: caller.get('/v1/stats').status == 200, 5, 'the new token to be known')
        make_token(self.p, 'a')  # the next change of the list writes what is known
        wait_until(lambda: self.p.value("select last_used from postdate.token where name = 'busy'"), 5, 'last_used')
        self.assertEqual(self.p.value("select last_used from postdate.token where name = 'idle'"), '')


class TokensUnknown(LiveTest):
    def test_nobody_is_let_in_when_tokens_cannot_be_checked_for_long(self):
        p = self.place()
        gw = p.gateway(POSTDATE_HTTP_TOKENS='on')
        good, wrong = Caller(gw.http(), make_token(p, 'a')), Caller(gw.http(), 'pdt_' + '0' * 32)
        wait_until(lambda: good.get('/v1/messages').status == 200, 5, 'the token to be known')
        session = p.session()
        session.run('begin')
        session.run('lock table postdate.token_version in access exclusive mode')
        self.assertEqual((good.get('/v1/messages').status, wrong.get('/v1/messages').status), (200, 401))
        wait_until(lambda: good.get('/v1/messages').status == 503, 10, 'the tokens to be too old')
        for caller in (good, wrong):
            answer = caller.get('/v1/messages')
            self.assertEqual((answer.status, answer.problem), (503, 'not-ready'), answer)
            self.assertIn('retry-after', answer.headers)
        session.run('rollback')
        wait_until(lambda: good.get('/v1/messages').status == 200, 5, 'the tokens to be known again')
        self.assertEqual(wrong.get('/v1/messages').status, 401)
        session.run('begin')
        session.run('lock table postdate.token_version in access exclusive mode')
        wait_until(lambda: p.value("select count(*) from pg_locks where relation = 'postdate.token_version'::regclass "
                                   'and not granted') == '1', 5, 'the gateway to wait for the lock')
        self.assertEqual(gw.term(), 0, 'a stop does not wait for it')
        session.close()


class TokenCommand(SharedTest):
    gateway_env = {}

    def test_mistakes_are_explained(self):
        for args, code, text in (
                (('create',), 64, 'with --exchange'), (('create', '--exchange', 'a*'), 64, 'no wildcard'),
                (('create', '--exchange', 'postdate'), 64, "the gateway's own"),
                (('create', '--exchange', 'postdate.ttl.exit'), 64, "the gateway's own"),
                (('create', '--exchange', 'a', '--name', 'x' * 65), 64, '1 to 64 bytes'),
                (('create', '--exchange', 'a', '--name', 'a\nb'), 64, 'control characters'),
                (('create', '--exchange', 'e' * 256), 64, 'up to 255 bytes'), ((), 64, 'write create, list or revoke'),
                (('revoke',), 64, 'names of tokens'), (('revoke', 'nobody'), 66, 'no token has the name "nobody"'),
                (('list', 'x'), 64, 'unexpected argument'), (('steal',), 64, 'write create')):
            got, out, err = self.p.cli('token', *args)
            self.assertEqual((got, out), (code, ''), (args, err))
            self.assertIn(text, err)

    def test_names_are_unique_while_they_live(self):
        make_token(self.p, 'a', name='once')
        code, out, err = self.p.cli('token', 'create', '--exchange', 'a', '--name', 'once')
        self.assertEqual((code, out), (65, ''))
        self.assertIn('a token with the name "once" exists already', err)

    def test_a_table_of_80_columns(self):
        make_token(self.p, *(f'exchange-number-{i}' for i in range(9)), name='a name that is much too long for a table')
        make_token(self.p, '', name='default exchange')
        code, out, _ = self.p.cli('token', 'list')
        self.assertEqual(code, 0)
        self.assertLessEqual(max(map(len, out.splitlines())), 80, out)
        self.assertRegex(out, r'(?m)^default exchange +\d+ ms ago|^default exchange .* ago +never +""$')
        rows = [json.loads(x) for x in self.p.cli('token', 'list', '--json')[1].splitlines()]
        row = next(x for x in rows if x['name'] == 'default exchange')
        self.assertEqual((row['exchanges'], row['last_used_at'], row['revoked_at']), ([''], None, None))
        self.assertTrue(re.fullmatch(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z', row['created_at']))

    def test_without_tokens_on_nobody_asks(self):
        token = make_token(self.p, 'a')
        web = Web(self.gw.http())
        self.assertEqual(web.get('/v1/messages').status, 200)
        self.assertEqual(web.ask('GET', '/v1/messages', None, {'Authorization': 'Bearer ' + token}).status, 200)
