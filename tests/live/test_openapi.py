"""The description against the servers: every status that /openapi.json documents for a call, and every type of problem,
is provoked; a description that says more than the gateway does fails, and so does one that says less."""
import json
import os
import re
import shutil
import subprocess
import threading
import time

import harness
from doors import ROWS, Asks, path_of
from examples import installed
from harness import LiveTest, SharedTest, wait_until
from test_tokens import make_token
from web import Raw, Web, check, mismatches, operation_of, resolve

NOBODY = '00000000-0000-8000-8000-000000000000'
HOUR = {'routing_key': 'walk', 'delay': '1h', 'body': 'x'}
FILTER = {'filter': {'routing_key': 'nobody'}}
SCHEDULE = {'cron': '0 9 * * *', 'routing_key': 'walk', 'body': 'x'}
OWN = ['/livez', '/readyz', '/metrics', '/openapi.json']  # those that are no operations
CALLS = [row for row in ROWS if row.call]
BULK = {'/v1/messages:cancel': FILTER, '/v1/messages:reschedule': dict(FILTER, shift_ms=1000), '/v1/messages:retry': FILTER, '/v1/messages:fail': FILTER}
DEAD_BULK = dict.fromkeys(['/v1/dead:requeue', '/v1/dead:drop'], {'filter': {'queue': 'nobody'}})
SOON = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() + 86400))
ODD = [None, True, 0, 1, -1, 2, 3, 255, 256, 1.5, 10 ** 8, '', 'x', '0', '1h', '1h1h', 'PT', 'PT1H', 'P1Y', '5', '-5', 'keep', 'broker', 'a' * 255,
       'a' * 256, 'a\0b', 'YQ==', 'YQ', 'Y===', SOON, SOON[:-1], '2026-13' + SOON[7:], SOON[:10],
       [], ['x'], [1], {}, {'x': 1}, {'x-delay': 1}, {'x-postdate-key': 'k'}, {'CC': ['a']}, {'CC': 'a'}, {'a' * 256: 1}, {'priority': 256},
       {'priority': 255}, {'delivery_mode': 0}, {'delivery_mode': 2}, {'timestamp': -1}, {'timestamp': SOON}, {'expiration': '1'},
       {'expiration': 'x'}, {'expiration': 315360000001}, {'app_id': None}, {'app_id': 'a' * 256}, {'type': 5}, {'user_id': 'x'}]
UNPROVOKED = {'internal'}  # a mistake of ours: nothing that a client or a server does leads there


class Walker:
    """Asks, and notes which status and which type of problem came where."""

    def __init__(self, root):
        self.root, self.statuses, self.problems = root, set(), set()

    def note(self, method, path, answer):
        check(self.root, method, path, answer)
        self.problems.add(answer.problem if answer.status >= 400 else None)
        operation = operation_of(self.root, method, path)
        if operation is None:
            return answer
        response = resolve(self.root, operation['responses'][str(answer.status)])
        for name in response.get('headers', {}):
            assert name.lower() in answer.headers, f'{method} {path}: {answer.status} without {name}'
        self.statuses.add((operation['operationId'], str(answer.status)))
        return answer

    def ask(self, address, method, path, body=None, **headers):
        web = Web(address)
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        answer = web.ask(method, path, body, {k.replace('_', '-'): v for k, v in headers.items()})
        web.close()
        return self.note(method, path, answer)

    def announce(self, address, method, path, length):
        """Only the headers of a request with a body of that length."""
        raw = Raw(address)
        raw.send(f'{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n'
                 f'Content-Length: {length}\r\n\r\n'.encode())
        answer = raw.answer()
        raw.close()
        return self.note(method, path, answer)

    def missing(self):
        described = {(operation['operationId'], status) for item in self.root['paths'].values()
                     for method, operation in item.items() if method != 'parameters' for status in operation['responses']}
        types = self.root['components']['schemas']['Problem']['properties']['type']['x-extensible-enum']
        return described - self.statuses, {t.rsplit(':', 1)[-1] for t in types} - self.problems - UNPROVOKED


class Agreement(SharedTest):
    """What the schema of a request allows is accepted, and what it does not allow is refused."""
    def setUp(self):
        super().setUp()
        wait_until(lambda: Web(self.gw.http()).get('/readyz').status == 200, 10, '/readyz')
        self.web = Web(self.gw.http())
        self.addCleanup(self.web.close)
        self.root = self.web.get('/openapi.json').json

    def agree(self, method, path, body, accepted=(200, 201)):
        schema = operation_of(self.root, method, path)['requestBody']['content']['application/json']['schema']
        why = list(mismatches(self.root, schema, body, ''))
        answer = self.web.ask(method, path, json.dumps(body))
        self.assertEqual(answer.status in accepted, not why, (method, path, str(body)[:300], why, answer))
        self.assertIn(answer.status, (*accepted, 400, 422), (body, answer))

    def test_messages(self):
        good = {'routing_key': 'agree', 'delay': '1h', 'body': 'x'}
        fields = ['routing_key', 'exchange', 'delay_ms', 'delay', 'due_at', 'body', 'body_base64', 'json', 'headers', 'properties', 'key',
                  'on_conflict', 'hold', 'nonsense']
        bare = {'routing_key': 'agree'}
        for field in fields:
            self.agree('POST', '/v1/messages', {k: v for k, v in good.items() if k != field})
            for n, value in enumerate(ODD):
                if field == 'key' and isinstance(value, str):  # each of its own, lest they be one message
                    value = value[:252] + f'{n:03}' if 0 < len(value) <= 255 else value
                self.agree('POST', '/v1/messages', good | {field: value})
                for rest in (bare | {'delay': '1h'}, bare | {'body': 'x'}):  # it is the one that was missing, or not
                    self.agree('POST', '/v1/messages', rest | {field: value})
        for pair in ({'delay': None, 'delay_ms': 5}, {'delay': None, 'due_at': None}, {'body': None, 'json': None}, {'body': None}, {'json': 1},
                     {'body': None, 'body_base64': 'YQ=='}, {'delay_ms': 5, 'due_at': SOON}):
            self.agree('POST', '/v1/messages', good | pair)
        for batch in ([], [good], [good] * 1000, [good] * 1001, {}, None):
            self.agree('POST', '/v1/messages', {'messages': batch})
        self.agree('POST', '/v1/messages', {'messages': [good], 'routing_key': 'x'})

    def test_other_requests(self):
        message_id = self.web.post('/v1/messages', HOUR).json['id']
        for field in ('due_at', 'delay_ms', 'delay', 'nonsense'):
            for value in ODD:
                self.agree('PATCH', '/v1/messages/' + message_id, {field: value}, (200, 409))  # 409: it is being delivered
        for body in ({}, {'delay': '1h', 'delay_ms': 1}, {'delay': '1h', 'due_at': None}):
            self.agree('PATCH', '/v1/messages/' + message_id, body)
        for path in BULK:
            shift = {'shift_ms': 0} if path.endswith('reschedule') else {}
            for field in ('key', 'state', 'exchange', 'routing_key', 'due_after', 'due_before', 'nonsense'):
                for value in ODD:
                    self.agree('POST', path, shift | {'filter': {'routing_key': 'nobody'} | {field: value}, 'dry_run': True})
            for field in ('filter', 'dry_run', 'nonsense'):
                for value in ODD:
                    self.agree('POST', path, shift | {'filter': {'routing_key': 'nobody'}, 'dry_run': True} | {field: value})
        for value in (*ODD, 315576000000, 315576000001, -315576000001):
            self.agree('POST', '/v1/messages:reschedule', {'filter': {'routing_key': 'nobody'}, 'shift_ms': value})

    def test_dead_letters_and_policies(self):
        for path in DEAD_BULK:
            for field in ('queue', 'reason', 'exchange', 'routing_key', 'nonsense'):
                for value in (*ODD, 'rejected', 'deadline', 'return_failed'):
                    self.agree('POST', path, {'filter': {'queue': 'nobody'} | {field: value}, 'dry_run': True})
            for field in ('filter', 'dry_run', 'rate', 'nonsense'):
                for value in (*ODD, '1/s', '0/s', '1000000/h', '1000001/h', '5 /s'):
                    if field != 'filter' or value != {}:  # all there are
                        self.agree('POST', path, {'filter': {'queue': 'nobody'}, 'dry_run': True} | {field: value})
            for ids in (*ODD, [NOBODY], [NOBODY] * 1001, [NOBODY.upper()], [NOBODY, 'x']):
                self.agree('POST', path, {'ids': ids})
            self.agree('POST', path, {'ids': [NOBODY], 'filter': {'queue': 'nobody'}})
        for field in ('attempts', 'first', 'factor', 'jitter', 'on', 'keep_dead', 'nonsense'):
            for value in (*ODD, 100, 101, 1000, 1001, '1h30m', '7d', ['rejected'], ['rejected', 'maxlen'], ['rejected', 'nack']):
                self.agree('PUT', '/v1/retry-policies/agree', {'first': '0s', 'max': '30d'} | {field: value})

    def test_rates(self):
        for field in ('rate', 'burst', 'routing_key', 'nonsense'):
            for value in (*ODD, '200/s', '1.5/second', '12000/min', '0/h', '1/w', '1e3/s', '.5/s', '5./s', '0.0', '1 /s', 1000000, 1000001):
                self.agree('PUT', '/v1/rates/agree', {'rate': '1/s'} | {field: value})
        self.agree('PUT', '/v1/rates/agree', {})
        for field in ('routing_key', 'rate', 'nonsense'):
            for value in (*ODD, 'agree'):
                self.agree('POST', '/v1/rates/agree/pause', {field: value}, (200, 404))

    def test_schedules(self):
        good = {'cron': '* * * * *', 'routing_key': 'agree', 'body': 'x'}
        fields = ['routing_key', 'exchange', 'body', 'body_base64', 'json', 'headers', 'properties', 'missed', 'grace', 'jitter', 'dst', 'overlap', 'from',
                  'until', 'nonsense']
        for field in fields:
            self.agree('PUT', '/v1/recurring/agree', {k: v for k, v in good.items() if k != field})
            for value in (*ODD, 'one', 'all', 'none', 'run', 'skip', 'allow', '1h30m', '250ms', '30m1h', 'P1D'):
                self.agree('PUT', '/v1/recurring/agree', good | {field: value})
                if field != 'json' or '\0' not in str(value):  # PostgreSQL's JSON has no NUL, which no schema can say of a part of a value
                    self.agree('PUT', '/v1/recurring/agree', {k: v for k, v in good.items() if k != 'body'} | {field: value})
        for pair in ({'body': None, 'json': None}, {'body': None}, {'json': 1}, {'body': None, 'body_base64': 'YQ=='}, {'cron': None}, {'cron': 5}, {'zone': None}):
            self.agree('PUT', '/v1/recurring/agree', good | pair)


class OpenAnswers(SharedTest):
    """A minor version may answer more states, reasons and types of problem, and longer lists (docs/versions.md): a client that was made of an older
    description accepts them. What a request may have is closed."""
    CLOSES = {'enum', 'const', 'pattern', 'maxItems', 'maxLength', 'maxProperties', 'uniqueItems'}

    def schemas(self, root, node, where):
        """(where, schema) of a schema, and of all in it."""
        node = resolve(root, node)
        yield where, node
        within = [(name, part) for name, part in node.get('properties', {}).items()]
        within += [(name, node[name]) for name in ('items', 'additionalProperties') if isinstance(node.get(name), dict)]
        within += [(name, part) for name in ('anyOf', 'oneOf', 'allOf') for part in node.get(name, [])]
        for name, part in within:
            yield from self.schemas(root, part, f'{where}.{name}')

    def test_only_what_a_request_may_have_is_closed(self):
        root = Web(self.gw.http()).get('/openapi.json').json
        answers, requests = [], []
        for path, item in root['paths'].items():
            for method, operation in item.items():
                name = f'{method} {path}'
                for status, response in operation['responses'].items():
                    for content in resolve(root, response)['content'].values():
                        answers += self.schemas(root, content['schema'], f'{name} {status}')
                requests += [x for p in operation.get('parameters', []) for x in self.schemas(root, p['schema'], f'{name} {p["name"]}')]
                for content in operation.get('requestBody', {}).get('content', {}).values():
                    requests += self.schemas(root, content['schema'], name)
        self.assertEqual([(where, sorted(self.CLOSES & set(s))) for where, s in answers if self.CLOSES & set(s) or s.get('additionalProperties') is False], [])
        self.assertEqual([where for where, s in requests if 'x-extensible-enum' in s], [])
        for where, s in answers:
            self.assertTrue(all(value in s['description'] for value in s.get('x-extensible-enum', [])), where)
        tokens = [s for where, s in requests if where.endswith(' page_token')]
        self.assertTrue(tokens)
        self.assertEqual([s for s in tokens if s != {'type': 'string'}], [], 'a token of a page is what an answer had')


class EveryStatus(Asks, LiveTest):
    weight = 10

    def test_every_documented_status_and_problem_is_seen(self):
        p = self.p = self.place()
        self.address = p.gateway().http()
        self.walker = Walker(Web(self.address).get('/openapi.json').json)
        wait_until(lambda: Web(self.address).get('/readyz').status == 200, 10, '/readyz')
        self.good_requests(p)
        self.bad_requests()
        self.conflicts(p)
        self.tokens(p)
        self.not_in_time(p)
        self.overload(p)
        self.database_away(p)
        self.assertEqual(self.walker.missing(), (set(), set()), 'documented, and never seen')
        self.assertNotIn('code="0"', Web(self.address).get('/metrics').body.decode())

    def ask(self, *args, **headers):
        return self.walker.ask(self.address, *args, **headers)

    def expect(self, answer, status, problem=''):
        self.assertEqual((answer.status, answer.problem), (status, problem), answer)
        return answer

    def each(self, rows, status=None, problem='', there=True, address=None, body=None, **headers):
        """Asks each of them the same way; by default, what is good."""
        for row in rows:
            method, path, good = path_of(self.request(row, there))
            answer = self.walker.ask(address or self.address, method, path, good if body is None else body(good), **headers)
            self.expect(answer, status or row.status, problem)

    def schedule(self, **fields):
        return self.expect(self.ask('POST', '/v1/messages', dict(HOUR, **fields)), 201).json

    def good_requests(self, p):
        inbox = p.consumer('q', bind='now')
        done = self.schedule(routing_key='now', delay='0s', key='done')
        self.schedule(key='kept')
        self.expect(self.ask('POST', '/v1/messages', dict(HOUR, key='kept')), 200)
        self.expect(self.ask('POST', '/v1/messages', {'messages': [HOUR]}), 200)
        self.each(CALLS)
        for path in OWN:
            self.expect(self.ask('GET', path), 200)
        self.expect(self.ask('DELETE', '/v1/messages?key=kept'), 200)
        inbox.wait(1)
        path = '/v1/messages/' + done['id']
        wait_until(lambda: self.ask('GET', path).json['state'] == 'delivered', 10, 'it to be settled')
        for method, body in (('DELETE', None), ('PATCH', {'delay': '1h'})):
            self.expect(self.ask(method, path, body), 409, 'too-late')
        self.expect(self.ask('DELETE', '/v1/messages?key=done'), 409, 'too-late')

    def bad_requests(self):
        for row in CALLS:
            method, path, body = path_of(self.request(row))
            self.expect(self.ask(method, path + '&?'['?' not in path] + 'nonsense=1', body), 400, 'invalid-request')
            if body is not None:
                self.expect(self.walker.announce(self.address, method, path, 10 ** 9), 413, 'too-large')
        for path in OWN:
            self.expect(self.ask('GET', path + '?nonsense=1'), 400, 'invalid-request')
        with_body = [row for row in CALLS if row.call.startswith('P')]
        self.each(with_body, 400, 'invalid-json', body=lambda _: '{')
        self.each(with_body, 422, 'invalid-message', body=lambda good: dict(good, nonsense=1))
        self.each(with_body, 415, 'unsupported-media-type', Content_Type='text/plain')
        self.each([row for row in CALLS if row.one], 404, 'not-found', there=False)
        self.each([row for row in CALLS if '/recurring/{name}' in row.call and row.changes], 412, 'precondition-failed', there=False, If_Match='"1-0"')
        self.expect(self.ask('PUT', '/v1/recurring/same', SCHEDULE), 201)
        self.expect(self.ask('PUT', '/v1/recurring/same', SCHEDULE), 200)
        self.expect(self.ask('GET', '/v1'), 404, 'no-such-route')
        self.expect(self.ask('PUT', '/v1/messages'), 405, 'method-not-allowed')
        self.expect(self.ask('POST', '/v1/messages', HOUR, Idempotency_Key='mismatch'), 201)
        self.expect(self.ask('POST', '/v1/messages', dict(HOUR, body='y'), Idempotency_Key='mismatch'), 422, 'idempotency-mismatch')

    def conflicts(self, p):
        self.schedule(key='taken')
        self.expect(self.ask('POST', '/v1/messages', dict(HOUR, key='taken', on_conflict='reject')), 409, 'key-taken')
        owned = self.schedule()['id']
        p.psql(f"update postdate.message set next_at = coalesce(next_at, due), state = 'claimed', owner = (select id from postdate.instance limit 1) where id = '{owned}'")
        self.expect(self.ask('POST', f'/v1/messages/{owned}:fail', {}), 409, 'busy')
        self.expect(self.ask('POST', f'/v1/messages/{owned}:retry', {}), 409, 'too-late')
        s = p.session()
        s.run('begin')
        s.run("select postdate.schedule('k', 'x', '1 hour', key => 'locked')")
        self.expect(self.ask('POST', '/v1/messages', dict(HOUR, key='locked')), 503, 'key-locked')
        s.run('rollback')
        s.run('begin')
        s.run("lock table postdate.message_" + p.value("select to_char((now() at time zone 'utc') + interval '2 days', 'YYYYMMDD')"))
        self.expect(self.ask('POST', '/v1/messages', {'routing_key': 'k', 'body': 'x', 'delay': '2d'}), 503, 'day-locked')
        s.run('rollback')
        for path, body in (BULK | DEAD_BULK).items():
            self.in_progress(p, s, path, body)
        self.expect(self.ask('PUT', '/v1/recurring/walk', SCHEDULE), 201)
        self.at_work(s, '/v1/recurring/walk:run', {})
        s.close()

    def at_work(self, session, path, body):
        """As if the session were at the work of the first request: a worker keeps no key while it waits for a lock."""
        key = path.split('/')[-1]
        self.expect(self.ask('POST', path, body, Idempotency_Key=key), 200)
        session.run("update postdate.idempotency set status = null, answer = null, holder = pg_backend_pid(), "
                    f"holder_since = clock_timestamp() where key = '{key}'")
        self.expect(self.ask('POST', path, body, Idempotency_Key=key), 409, 'in-progress')

    def in_progress(self, p, session, path, body):
        """The first request has taken its Idempotency-Key and waits for a lock; the second comes meanwhile."""
        key = path.split('/')[-1]
        session.run('begin')
        session.run('lock table postdate.message, postdate.lineage in access exclusive mode')
        first = threading.Thread(target=lambda: Web(self.address).post(path, body, Idempotency_Key=key))
        first.start()
        wait_until(lambda: p.value(f"select count(*) from postdate.idempotency where key = '{key}'") == '1', 10, 'the first request')
        self.expect(self.ask('POST', path, body, Idempotency_Key=key), 409, 'in-progress')
        session.run('rollback')
        first.join()

    def tokens(self, p):
        address = p.gateway(POSTDATE_HTTP_TOKENS='on').http()
        bearer = 'Bearer ' + make_token(p, 'mine')
        self.each(CALLS, 401, 'unauthorized', address=address)
        wait_until(lambda: Web(address).ask('GET', '/v1/stats', None, {'Authorization': bearer}).status == 200, 10, 'the token')
        self.each([row for row in CALLS if row.foreign == 403], 403, 'exchange-not-allowed', address=address, Authorization=bearer)
        reader = 'Bearer ' + make_token(p, '*', name='reader', role='read')
        wait_until(lambda: Web(address).ask('GET', '/v1/stats', None, {'Authorization': reader}).status == 200, 10, 'the token')
        self.each([row for row in CALLS if row.changes], 403, 'role-not-allowed', address=address, Authorization=reader)

    def not_in_time(self, p):
        address = p.gateway(POSTDATE_HTTP_TIMEOUT='1s').http()
        raw = Raw(address).send(b'POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n')
        s = p.session()
        s.run('begin')
        s.run('lock table postdate.message in access exclusive mode')
        self.expect(self.walker.ask(address, 'POST', '/v1/messages', HOUR), 503, 'unknown-outcome')

        s.run('lock table postdate.instance in access exclusive mode')  # days that are locked are left out of the count

        def too_late():  # what was counted before the lock is good for a while
            answer = self.walker.ask(address, 'GET', '/v1/stats')
            if answer.status == 200 and answer.json['database'] == 'away':
                # Counting is slow on a busy machine: it was answered first, and counted, in vain, behind the answer. Only when the
                # last count is some seconds old is a request to wait for the next.
                s.run('rollback')
                wait_until(lambda: Web(address).get('/readyz').status == 200, 10, '/readyz')
                time.sleep(12)
                s.run('begin')
                s.run('lock table postdate.message, postdate.instance in access exclusive mode')
            return answer if answer.status != 200 else None
        self.expect(wait_until(too_late, 60, 'a count that waits for the lock'), 503, 'unknown-outcome')
        self.expect(self.walker.ask(address, 'GET', '/v1/overview'), 503, 'unknown-outcome')
        s.run('rollback')
        s.close()
        self.expect(self.noted(raw), 408, 'request-timeout')
        for line, status, problem in ((b'GET /' + b'x' * 9000, 414, 'target-too-long'), (b'GET /livez HTTP/1.1\r\nX: ' + b'x' * 40_000, 431, 'head-too-large')):
            self.expect(self.noted(Raw(address).send(line + b' HTTP/1.1\r\nHost: localhost\r\n\r\n')), status, problem)

    def noted(self, raw):
        """A request that never got so far as to be one of those described."""
        answer = raw.answer()
        self.walker.problems.add(answer.problem)
        raw.close()
        return answer

    def overload(self, p):
        """Unfinished bodies up to what the gateway holds of all of them."""
        address = p.gateway().http()
        size, held = 8 << 20, []
        head = (f'POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {size}\r\n\r\n').encode()
        for _ in range(3):
            held.append(Raw(address).send(head + b' ' * (size - 1)))
        wait_until(lambda: int(re.search(r'\npostdate_http_body_bytes (\d+)', Web(address).get('/metrics').body.decode())
                               .group(1)) >= 24 << 20, 20, 'the bodies to be there')
        self.expect(self.walker.ask(address, 'POST', '/v1/messages', HOUR | {'body': 'x' * 20_000}), 503, 'overloaded')
        for raw in held:
            raw.close()
        wait_until(lambda: Web(address).post('/v1/messages', HOUR | {'body': 'x' * 20_000}).status == 201, 10, 'room again')

    def database_away(self, p):
        address = p.gateway(wait=False, POSTDATE_POSTGRES_URL='postgresql:///none?host=/nonexistent').http()
        for path in ('/v1/stats', '/v1/overview'):
            self.assertIn('away', str(self.expect(self.walker.ask(address, 'GET', path), 200).json['database']))
        self.each([row for row in CALLS if row.op not in ('stats', 'overview')], 503, 'not-ready', address=address)
        self.expect(self.walker.ask(address, 'GET', '/readyz'), 503, 'not-ready')
        p.stack.psql(f'alter database {p.database} allow_connections false')
        p.stack.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{p.database}'")
        self.expect(self.ask('GET', '/v1/messages'), 503, 'database-away')


VALIDATE = """import { Validator } from '@seriousme/openapi-schema-validator'
import { readFileSync } from 'node:fs'
const result = await new Validator().validate(JSON.parse(readFileSync(process.argv[2])))
if (!result.valid) { console.error(JSON.stringify(result.errors)); process.exit(1) }
"""
# A client that openapi-client-axios makes of the description alone, against the live server.
CLIENT = """import clients from 'openapi-client-axios'
import assert from 'node:assert'
import { readFileSync } from 'node:fs'
const definition = JSON.parse(readFileSync(process.argv[2]))
const api = new clients.OpenAPIClientAxios({ definition, withServer: { url: process.argv[3] } })
const client = await api.init()
const made = await client.scheduleMessages(null, { routing_key: 'client', delay: '1h', body: 'x', key: 'client-1' })
assert.equal(made.status, 201)
const id = made.data.id
assert.equal((await client.showMessage({ id, view: 'full' })).data.body, 'x')
assert.deepEqual((await client.listMessages({ key: 'client-1' })).data.messages.map(m => m.id), [id])
const moved = (await client.rescheduleMessage({ id }, { delay: '2h' })).data
assert.equal(moved.state, 'scheduled')
const filter = { routing_key: 'client', state: 'scheduled' }
assert.equal((await client.rescheduleMessages(null, { filter, shift_ms: 1000 })).data.changed, 1)
assert.equal((await client.cancelMessages(null, { filter, dry_run: true })).data.matched, 1)
assert.equal((await client.cancelMessage({ id })).data.state, 'cancelled')
assert.equal((await client.cancelMessageByKey({ key: 'client-1' })).status, 200)
assert.equal((await client.retryMessages(null, { filter: { state: 'failed' } })).data.matched, 0)
await assert.rejects(client.showMessage({ id: 'nobody' }), e => e.response.data.type === 'urn:postdate:problem:not-found')
assert.equal((await client.getStats()).data.database, 'up')
assert.equal((await client.isAlive()).data.status, 'alive')
assert.equal((await client.isReady()).data.status, 'ready')
assert.match((await client.getMetrics()).data, /postdate_http_requests/)
const known = Object.keys(client.paths).length
assert.equal(known, Object.keys(definition.paths).length)
"""
NPM = ['@seriousme/openapi-schema-validator@2.11.0', 'openapi-client-axios@7.9.1', 'axios@1.21.1']


@harness.not_san
class PublicTools(SharedTest):
    """With tools from npm: skipped where they cannot be installed."""
    time_limit_s = 150

    def node(self, name, text, *args):
        for program in ('node', 'npm'):
            if not shutil.which(program):
                self.skipTest(f'{program} is not installed')
        folder = installed(self, 'openapi', {'package.json': '{"private": true, "type": "module"}\n'},
                           ['npm', 'install', '--no-audit', '--no-fund', '--fetch-retries=0', '--ignore-scripts', *NPM])
        with open(os.path.join(folder, name), 'w', encoding='utf-8') as f:
            f.write(text)
        path = os.path.join(folder, 'openapi.json')
        with open(path, 'wb') as f:
            f.write(Web(self.gw.http()).get('/openapi.json').body)
        done = subprocess.run(['node', name, path, *args], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stdout.decode())

    def test_a_validator_accepts_it(self):
        self.node('validate.js', VALIDATE)

    def test_a_client_made_of_it_works(self):
        wait_until(lambda: Web(self.gw.http()).get('/readyz').status == 200, 10, '/readyz')
        self.node('client.js', CLIENT, 'http://%s:%d' % self.gw.http())
