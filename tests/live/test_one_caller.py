"""One caller stops nobody: whatever one of them asks for, or holds, those with another token are answered meanwhile."""
import base64
import http.client
import socket
import threading

from bounds_kit import Size
import harness
from harness import LiveTest, wait_until
from test_tokens import HOUR, Caller, make_token

TURNS = 10  # requests of the other caller, one after the other


class Crowd:
    """Callers that ask the same again and again, each on a connection of its own, until they are told to stop."""

    def __init__(self, address, token, requests):
        self.answers, self.lock, self.stopping = [], threading.Lock(), threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(Caller(address, token), *request), daemon=True) for request in requests]
        for thread in self.threads:
            thread.start()

    def ask(self, caller, method, path, body=None, headers=None):
        try:
            while not self.stopping.is_set():
                answer = caller.ask(method, path, body, **(headers or {}))
                with self.lock:
                    self.answers.append(answer)
        except (OSError, http.client.HTTPException):
            pass  # the gateway ended, after a test that failed
        caller.web.close()

    def answered(self):
        with self.lock:
            return len(self.answers)

    def last(self):
        with self.lock:
            return self.answers[-1].status if self.answers else None

    def stop(self):
        """All answers that they had."""
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)
        return self.answers


class HeldRows(LiveTest):
    """What somebody's transaction holds delays those who ask for just that."""

    def setUp(self):
        super().setUp()
        self.p = self.place()
        tokens = [make_token(self.p, name, name=name) for name in ('a', 'b')]
        self.gw = self.p.gateway(POSTDATE_HTTP_TOKENS='on')
        self.address = self.gw.http()
        self.token_a = tokens[0]
        self.a, self.b = (Caller(self.address, token) for token in tokens)
        wait_until(lambda: self.a.get('/v1/messages').status == self.b.get('/v1/messages').status == 200, 10, 'the tokens to be known')
        self.session = self.p.session()
        self.session.run('begin')

    def tearDown(self):
        self.session.close()
        super().tearDown()

    def hold_keys(self, count):
        self.session.run("insert into postdate.key (exchange, key, due, id) "
                         f"select 'a', 'held-' || n, now(), gen_random_uuid() from generate_series(1, {count}) n")

    def turns(self, crowd, ask, at_most=None):
        """The other caller asks, and is answered while those of the crowd wait: not when all of them had an answer first."""
        at_most = at_most or len(crowd.threads)
        wait_until(lambda: self.connections() > len(crowd.threads), 20, 'all to be connected')
        for n in range(TURNS):
            before = crowd.answered()
            answer = ask(n)
            self.assertLess(answer.status, 300, answer)
            self.assertLess(crowd.answered() - before, at_most, 'the other caller waited for them')

    def connections(self):
        text = self.b.get('/metrics').body.decode()
        return int(next(line.split()[1] for line in text.splitlines() if line.startswith('postdate_http_connections ')))

    def other_schedules(self, n):
        return self.b.post('/v1/messages', dict(HOUR, exchange='b', key=f'mine-{n}'))

    def schedule_held(self, callers, keys=1):
        self.hold_keys(keys)
        crowd = Crowd(self.address, self.token_a, [('POST', '/v1/messages', dict(HOUR, exchange='a', key=f'held-{n % keys + 1}')) for n in range(callers)])
        self.turns(crowd, self.other_schedules)
        return crowd

    def test_a_key_that_is_held_delays_those_with_that_key(self):
        answers = self.schedule_held(150).stop()
        self.assertEqual({(a.status, a.problem, a.headers['retry-after']) for a in answers}, {(503, 'key-locked', '1')})

    def test_a_key_that_is_let_go_is_had_by_one_and_told_to_the_others(self):
        crowd = self.schedule_held(40)
        self.session.run('rollback')
        wait_until(lambda: crowd.last() == 200, 20, 'one of them to be told of the message')
        answers = [a for a in crowd.stop() if a.status != 503]
        self.assertEqual(([a.status for a in answers].count(201), len({a.json['id'] for a in answers})), (1, 1))

    def test_many_keys_that_are_held_delay_those_with_these_keys(self):
        self.assertEqual({a.problem for a in self.schedule_held(150, keys=150).stop()}, {'key-locked'})

    def test_batches_with_keys_that_are_held_delay_those_with_these_keys(self):
        self.hold_keys(40)
        batch = {'messages': [dict(HOUR, exchange='a', key=f'held-{n}') for n in range(1, 41)]}
        crowd = Crowd(self.address, self.token_a, [('POST', '/v1/messages', batch)] * 16)
        self.turns(crowd, self.other_schedules)
        self.assertEqual({r['type'].rsplit(':')[-1] for a in crowd.stop() for r in a.json['results']}, {'key-locked'})

    def test_an_idempotency_key_that_is_held_delays_those_with_that_one(self):
        self.session.run("insert into postdate.idempotency (principal, key, body_hash) select 'token ' || id, 'held', '' from postdate.token where name = 'a'")
        crowd = Crowd(self.address, self.token_a, [('POST', '/v1/messages', dict(HOUR, exchange='a'), {'Idempotency_Key': 'held'})] * 64)
        self.turns(crowd, lambda n: self.b.ask('POST', '/v1/messages', dict(HOUR, exchange='b'), Idempotency_Key=f'mine-{n}'))
        self.assertEqual({(a.status, a.problem) for a in crowd.stop()}, {(409, 'in-progress')})

    def hold_messages(self, count):
        """Ids of messages of the crowd's, whose rows are held."""
        ids = [self.a.post('/v1/messages', dict(HOUR, exchange='a')).json['id'] for _ in range(count)]
        self.session.run("select id from postdate.message where exchange = 'a' for update")
        return ids

    def operate_held(self, method, suffix='', body=None, messages=1):
        ids = self.hold_messages(messages)
        mine = self.b.post('/v1/messages', dict(HOUR, exchange='b')).json['id']
        crowd = Crowd(self.address, self.token_a, [(method, f'/v1/messages/{ids[n % messages]}{suffix}', body) for n in range(64)])
        self.turns(crowd, lambda n: self.b.get(f'/v1/messages/{mine}'))
        self.assertEqual(self.b.ask('DELETE', f'/v1/messages/{mine}').status, 200)
        self.assertEqual({(a.status, a.problem, a.headers['retry-after']) for a in crowd.stop()}, {(503, 'overloaded', '1')})

    def test_a_cancel_of_a_row_that_is_held_delays_those_who_cancel_it(self):
        self.operate_held('DELETE')

    def test_cancels_of_many_rows_that_are_held_delay_no_other(self):
        self.operate_held('DELETE', messages=64)

    def test_a_reschedule_of_a_row_that_is_held_delays_those_who_ask_for_it(self):
        self.operate_held('PATCH', body={'delay': '2h'})

    def test_a_flood_of_look_ups_delays_another_caller_by_a_few(self):
        large = self.a.post('/v1/messages', dict(HOUR, exchange='a', body='x' * 500_000)).json['id']
        mine = self.b.post('/v1/messages', dict(HOUR, exchange='b')).json['id']
        crowd = Crowd(self.address, self.token_a, [('GET', f'/v1/messages/{large}?view=full')] * 40)
        self.turns(crowd, lambda n: self.b.get(f'/v1/messages/{mine}'), at_most=20)
        crowd.stop()

    def test_a_cancel_goes_on_when_the_row_is_let_go(self):
        ids = self.hold_messages(1)
        crowd = Crowd(self.address, self.token_a, [('DELETE', f'/v1/messages/{ids[0]}')] * 4)
        wait_until(lambda: self.connections() > 4, 20, 'all to be connected')
        self.session.run('rollback')
        wait_until(lambda: crowd.answered() >= 4, 20, 'the answers')
        self.assertEqual({a.status for a in crowd.stop()}, {200})


class Unread(LiveTest):
    """Who asks for large answers on many connections and takes none of them."""

    def begin(self, connections, target, token):
        request = f'GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n'.encode()
        sockets = []
        for _ in range(connections):
            s = socket.socket()
            self.addCleanup(s.close)
            s.settimeout(60)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)  # else the systems' buffers may have room for a whole answer
            s.connect(self.address)
            sockets.append(s)
        for s in sockets:
            s.sendall(request)
        return sockets

    def test_large_answers_that_nobody_takes_are_bounded(self):
        count, p = 80, self.place()
        tokens = [make_token(p, name, role=role) for name, role in (('a', 'read'), ('a', 'operate'), ('b', 'operate'))]
        gw = p.gateway(POSTDATE_HTTP_TOKENS='on', POSTDATE_HTTP_TIMEOUT='5m')  # who takes nothing would be closed meanwhile
        self.address = gw.http()
        reader, a, b = (Caller(self.address, token) for token in tokens)
        wait_until(lambda: all(c.get('/v1/messages').status == 200 for c in (reader, a, b)), 10, 'the tokens to be known')
        large = 'x' * 4_000_000
        targets = ['/v1/messages/' + c.post('/v1/messages', dict(HOUR, exchange=exchange, body=large)).json['id'] + '?view=full'
                   for c, exchange in ((a, 'a'), (b, 'b'))]
        size = Size(gw)
        sockets = self.begin(count, targets[0], tokens[0])
        heads = [s.recv(400) for s in sockets]
        self.assertEqual(b.get(targets[1]).json['body'], large)  # another caller has its own share
        statuses = [head.split()[1] for head in heads]
        self.assertEqual(set(statuses), {b'200', b'503'})
        self.assertEqual([head for head in heads if b' 503 ' in head[:20] and b'Retry-After: 1' not in head], [])
        self.assertLess(size.stop('unread answers').grown_mib(), 480 if harness.SAN else 160)  # a sanitizer keeps what was freed
        for s in sockets:
            s.close()
        wait_until(lambda: reader.get(targets[0]).status == 200, 20, 'room for the same caller again')


class Bodies(LiveTest):
    """What is known without the body is answered without it; only a worker reads one."""

    def heads(self, address, requests):
        """The first lines of the answers to heads whose bodies never come."""
        lines = []
        for head in requests:
            with socket.create_connection(address, timeout=20) as s:
                s.sendall(head.encode())
                lines.append(s.recv(4000).split(b'\r\n')[0].decode())
        return lines

    def test_roles_and_lengths_are_asked_before_the_body(self):
        p = self.place()
        token = make_token(p, 'a', name='looks', role='read')
        address = p.gateway(POSTDATE_HTTP_TOKENS='on').http()
        wait_until(lambda: Caller(address, token).get('/v1/messages').status == 200, 10, 'the token to be known')
        common = f'HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer {token}\r\n'
        long = 'Content-Length: 9400000\r\n\r\n'
        self.assertEqual(self.heads(address, [f'POST /v1/messages {common}{long}', f'PUT /v1/recurring/x {common}{long}',
                                              f'POST /v1/messages:cancel {common}{long}', f'PUT /v1/retry-policies/x {common}{long}']),
                         ['HTTP/1.1 403 Forbidden'] * 2 + ['HTTP/1.1 413 Content Too Large'] * 2)

    def test_refusals_of_one_caller_are_some_lines_of_the_log(self):
        p = self.place()
        tokens = [make_token(p, 'a', name=name, role='read') for name in ('loud', 'calm')]
        gw = p.gateway(POSTDATE_HTTP_TOKENS='on')
        loud, calm = (Caller(gw.http(), token) for token in tokens)
        wait_until(lambda: loud.get('/v1/messages').status == calm.get('/v1/messages').status == 200, 10, 'the tokens to be known')
        for caller, times in ((loud, 100), (calm, 1)):
            for _ in range(times):
                self.assertEqual(caller.ask('DELETE', '/v1/messages?key=x&exchange=a').problem, 'role-not-allowed')
        self.assertEqual(gw.term(), 0)
        lines = [line.split(' audit: by token ')[1] for line in gw.log().splitlines() if ' audit: by token ' in line]
        self.assertEqual([sum(line.startswith(f'"{name}" from') for line in lines) for name in ('loud', 'calm')], [10, 1])
        self.assertIn('"loud": 90 more refusals within a minute', lines)

    def test_empty_lines_do_not_keep_a_connection(self):
        address = self.place().gateway(POSTDATE_HTTP_TIMEOUT='1s').http()
        with socket.create_connection(address, timeout=20) as s:
            def closed():
                try:
                    s.sendall(b'\r\n')
                    s.setblocking(False)
                    return s.recv(100) == b''
                except BlockingIOError:
                    return False
                except ConnectionError:
                    return True
                finally:
                    s.settimeout(20)
            wait_until(closed, 12, 'the connection to be closed')


class Positions(LiveTest):
    """What is a token's without telling of what is not."""

    def test_where_a_page_ends_tells_nothing_of_foreign_messages(self):
        p = self.place()
        token = make_token(p, 'a', name='a')
        web = Caller(p.gateway(POSTDATE_HTTP_TOKENS='on').http(), token)
        wait_until(lambda: web.get('/v1/messages').status == 200, 10, 'the token to be known')
        p.psql("""insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body)
                   select d, d, postdate.id_make(d), 'g', 'b', 'many', '', ''
                     from (select date_trunc('milliseconds', now() + interval '1 hour' + random() * interval '60 minutes') as d from generate_series(1, 80000)) x""")
        foreign = {id_.replace('-', ''): due for id_, due in p.psql("select id, to_char(due at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') from postdate.message_now")}
        early, page_token = 0, ''
        while page_token is not None:
            page = web.get(f'/v1/messages?page_token={page_token}').json
            page_token, until = page['next_page_token'], page.get('searched_until')
            if until:
                early += 1
                self.assertNotIn(base64.urlsafe_b64decode(page_token)[9:25].hex(), foreign)
                self.assertTrue(until.endswith('T00:00:00.000Z'), until)
        self.assertGreater(early, 0)
