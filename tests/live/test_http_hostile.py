"""What no decent client sends: 4xx or a closed connection, never 5xx, a crash or a hang."""
import json
import random
import time

import harness
from harness import wait_until
from test_http import DUE, HttpTest
from web import Raw, Web

HEAD = b'POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n'
GOOD = json.dumps(dict(DUE, routing_key='r')).encode()

# In the manner of JSONTestSuite: what a parser must refuse, or may.
BODIES = [
    b'', b' ', b'{', b'}', b'[', b'null', b'true', b'1', b'"x"', b'[]', b'{}', b'{"a":', b'{"a"}', b"{'a':1}", b'{"a":1,}',
    b'{,}', b'{"a":1 "b":2}', b'{"a":01}', b'{"a":+1}', b'{"a":.5}', b'{"a":1.}', b'{"a":1e}', b'{"a":NaN}', b'{"a":Infinity}',
    b'{"a":0x10}', b'{"a":tru}', b'{"a":"\t"}', b'{"a":"\x00"}', b'{"a":"\\x"}', b'{"a":"\\u12"}', b'{"a":"\\ud800"}',
    b'{"a":"\\udc00\\ud800"}', b'{"a":"\xff"}', b'{"a":"\xc0\x80"}', b'{"a":"\xed\xa0\x80"}', b'\xef\xbb\xbf{}', b'\xff\xfe{\x00}\x00',
    b'{"a":1}{"a":1}', b'{"a":1}]', b'{"a":1}\x00', b'/**/{}', b'{"routing_key":"a","routing_key":"b","delay":"1h","body":"x"}',
    b'{"routing_key":"r","delay_ms":1e400,"body":"x"}', b'{"routing_key":"r","delay_ms":99999999999999999999999,"body":"x"}',
    b'{"routing_key":"r","delay_ms":' + b'9' * 5000 + b',"body":"x"}', b'{"routing_key":"r","delay_ms":-1,"body":"x"}',
    b'{"routing_key":"r","delay_ms":9223372036854775807,"body":"x"}', b'{"routing_key":"r","delay":"' + b'9' * 4000 + b'd","body":"x"}',
    b'{"routing_key":"r\\u0000","delay":"1h","body":"x"}', b'{"routing_key":"\\ud834","delay":"1h","body":"x"}',
    b'{"routing_key":"r","delay":"1h","body":5}', b'{"routing_key":"r","delay":"1h","body_base64":"*"}',
    b'{"routing_key":"r","delay":"1h","body":"x","headers":[]}', b'{"routing_key":"r","delay":"1h","body":"x","headers":{"":1}}'[:-1],
    b'{"routing_key":"r","delay":"1h","body":"x","properties":{"priority":999}}', b'{"routing_key":"r","delay":"1h","body":"x","a\\u0000b":1}',
    b'{"routing_key":"r","due_at":"2026-02-30T00:00:00Z","body":"x"}', b'{"routing_key":"r","due_at":"99999-01-01T00:00:00Z","body":"x"}',
    b'[' * 100_000, b'{"a":' * 50_000, b'{"json":' + b'[' * 63 + b']' * 63 + b'}', b'{"messages":[' + b'[' * 70 + b']' * 70 + b']}',
    b'{"json":[' + b'1,' * 600_000 + b'1]}', b'{"' + b'k' * (1 << 20) + b'":1}', b'{"routing_key":"' + b'r' * (1 << 20) + b'","delay":"1h","body":"x"}',
    b'{"key":"' + b'k' * (1 << 20) + b'","routing_key":"r","delay":"1h","body":"x"}', b'{"messages":' + b'{"messages":' * 20 + b'1' + b'}' * 21,
]


class Hostile(HttpTest):
    gateway_env = {'POSTDATE_HTTP_TIMEOUT': '3s', 'POSTDATE_INTAKE_MAX_BODY': '1MiB'}

    def raw(self):
        r = Raw(self.address)
        self.addCleanup(r.close)
        return r

    def tearDown(self):
        self.assertEqual(self.web.get('/livez').status, 200, 'it lives')
        self.assertEqual(self.web.get('/v1/messages?page_size=1').status, 200, 'it works')

    def refused(self, data, *statuses):
        """Refused with one of the statuses (0: closed without an answer)."""
        answer = self.raw().send(data).answer()
        self.assertIn(answer.status if answer else 0, statuses, (data[:200], answer))
        return answer

    def test_bodies_that_are_not_a_message(self):
        for body in BODIES:
            answer = self.web.ask('POST', '/v1/messages', body)
            self.assertIn(answer.status, (400, 413, 422), (body[:80], answer))
            for path, method in (('/v1/messages:cancel', 'POST'), ('/v1/messages/x', 'PATCH')):
                if len(body) < 100_000:
                    self.assertIn(self.web.ask(method, path, body).status, (400, 404, 413, 422), (path, body[:80]))

    def test_random_changes_of_a_good_body(self):
        rng = random.Random(4)
        text = json.dumps({'messages': [dict(DUE, routing_key='r', headers={'a': [1, {'b': None}]}, key='k')]}).encode()
        for _ in range(150 if harness.SAN else 500):
            body = bytearray(text)
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(body))
                body[at:at + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 3))
            answer = self.web.ask('POST', '/v1/messages', bytes(body))
            self.assertIn(answer.status, (200, 201, 400, 422), (bytes(body), answer))

    def test_sizes(self):
        body = json.dumps(dict(DUE, routing_key='r', body='x' * (1 << 20))).encode()
        self.assertEqual(self.web.ask('POST', '/v1/messages', body).status, 201, 'as large as allowed')
        answer = self.web.ask('POST', '/v1/messages', json.dumps(dict(DUE, routing_key='r', body='x' * ((1 << 20) + 1))))
        self.assertEqual(answer.status, 422)
        answer = self.refused(HEAD + b'Content-Length: 99999999999\r\n\r\n', 413)
        self.assertEqual(answer.problem, 'too-large')
        chunk = b'10000\r\n' + b' ' * 65536 + b'\r\n'
        answer = self.refused(HEAD + b'Transfer-Encoding: chunked\r\n\r\n' + chunk * 30 + b'0\r\n\r\n', 413)
        self.assertEqual(answer.problem, 'too-large')
        self.refused(b'GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ' + b'x' * 60_000 + b'\r\n\r\n', 400, 413, 431, 0)
        self.refused(b'GET /' + b'x' * 60_000 + b' HTTP/1.1\r\nHost: localhost\r\n\r\n', 400, 413, 414, 431, 0)

    def test_a_page_in_a_browser_does_not_get_in(self):
        """Its name leads to 127.0.0.1; or it sends what needs no leave of the browser."""
        for host in ('evil.example', 'evil.example:8480', 'localhost.evil.example', '127.0.0.1.evil.example', 'x' * 300):
            answer = self.web.ask('GET', '/v1/messages', headers={'Host': host})
            self.assertEqual((answer.status, answer.problem), (400, 'invalid-request'), host)
        for host in ('localhost', 'LocalHost:1', '127.0.0.1:8480', '[::1]:8480', '10.1.2.3'):
            self.assertEqual(self.web.ask('GET', '/v1/messages', headers={'Host': host}).status, 200, host)
        for kind in ('text/plain', 'application/x-www-form-urlencoded', 'multipart/form-data'):
            self.assertEqual(self.web.ask('POST', '/v1/messages', '{}', {'Content-Type': kind}).status, 415, kind)
        plain = Web(self.address)
        self.addCleanup(plain.close)
        answer = plain.ask('OPTIONS', '/v1/messages', headers={'Origin': 'http://evil.example'})
        self.assertEqual(answer.status, 405)
        self.assertNotIn('access-control-allow-origin', answer.headers)

    def test_requests_that_can_be_read_in_two_ways(self):
        length = b'Content-Length: %d\r\n' % len(GOOD)
        end = b'\r\n' + GOOD
        for extra in (length * 2, length + b'Content-Length: 1\r\n', length + b'Transfer-Encoding: chunked\r\n',
                      length + b'Host: other\r\n', length + b'Authorization: Bearer a\r\nAuthorization: Bearer b\r\n',
                      length + b'Content-Type: text/plain\r\n', length + b'Idempotency-Key: a\r\nIdempotency-Key: b\r\n',
                      b'Content-Length: -1\r\n', b'Content-Length: 1x\r\n', b'Content-Length: 99999999999999999999999\r\n'):
            self.refused(HEAD + extra + end, 400, 413, 0)
        self.assertEqual(self.raw().send(HEAD + length + end).answer().status, 201, 'without all that it is fine')

    def test_things_that_are_not_http(self):
        for data in (b'\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03', b'hello\r\n\r\n', b'GET\r\n\r\n', b'\x00' * 64 + b'\r\n\r\n',
                     b'GET /livez HTTP/9.9\r\n\r\n', b'GET /livez HTTP/1.1\r\n\r\n', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
                     b'GET /livez HTTP/1.1\r\nHost: localhost\r\nno colon here\r\n\r\n'):
            answer = self.raw().send(data + b'\r\n\r\n').answer()
            self.assertIn(answer.status if answer else 0, (0, 200, 400, 405, 404, 408, 505), (data, answer))

    def test_header_injection_stays_a_value(self):
        answer = self.web.post('/v1/messages', dict(DUE, routing_key='a\r\nX-Evil: 1', key='k\r\n\r\nHTTP/1.1 200 OK'))
        self.assertEqual(answer.status, 201)
        self.assertNotIn('x-evil', answer.headers)
        self.assertEqual(answer.json['routing_key'], 'a\r\nX-Evil: 1')
        answer = self.web.ask('DELETE', '/v1/messages?key=k%0d%0a%0d%0aHTTP/1.1%20200%20OK')
        self.assertEqual((answer.status, answer.json['state']), (200, 'cancelled'))
        answer = self.web.get('/v1/messages/%0d%0aX-Evil:1')
        self.assertEqual(answer.status, 404)
        self.assertNotIn('x-evil', answer.headers)

    def test_methods_and_media_types(self):
        for method, path, status in (('PUT', '/v1/messages', 405), ('POST', '/livez', 405), ('TRACE', '/v1/stats', 405),
                                     ('DELETE', '/metrics', 405), ('BREW', '/v1/messages', 405), ('PATCH', '/nope', 404)):
            answer = self.web.ask(method, path)
            self.assertEqual(answer.status, status, (method, path))
            self.assertEqual('allow' in answer.headers, status == 405)
        for kind in ('text/plain', 'application/jsonp', 'application/x-www-form-urlencoded'):
            answer = self.web.ask('POST', '/v1/messages', GOOD, {'Content-Type': kind})
            self.problem(answer, 415, 'unsupported-media-type')
        answer = self.web.ask('POST', '/v1/messages', GOOD, {'Content-Type': 'application/json; charset=utf-8'})
        self.assertEqual(answer.status, 201)
        answer = self.web.ask('GET', '/v1/messages', GOOD)
        self.problem(answer, 400, 'invalid-request')

    def test_expect_continue(self):
        r = self.raw().send(HEAD + b'Expect: 100-continue\r\nContent-Length: %d\r\n\r\n' % len(GOOD))
        self.assertTrue(r.socket.recv(100).startswith(b'HTTP/1.1 100'))
        self.assertEqual(r.send(GOOD).answer().status, 201)
        r = self.raw().send(HEAD + b'Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n')
        self.assertEqual(r.answer().status, 413, 'before the body is sent')

    def test_a_connection_is_kept_also_after_errors(self):
        r = self.raw()
        for body, status in ((GOOD, 201), (b'{', 400), (GOOD, 201)):
            answer = r.send(HEAD + b'Content-Length: %d\r\n\r\n' % len(body) + body).answer()
            self.assertEqual(answer.status, status)
        wrong = HEAD.replace(b'application/json', b'text/plain')
        self.assertEqual(r.send(wrong + b'Content-Length: %d\r\n\r\n' % len(GOOD) + GOOD).answer().status, 415)
        pipelined = (HEAD + b'Content-Length: %d\r\n\r\n' % len(GOOD) + GOOD) * 3
        r.send(pipelined)
        self.assertEqual([r.answer().status for _ in range(1)], [201])

    def test_half_requests_end_at_the_deadline(self):
        halves = [b'', b'GET /li', b'GET /livez HTTP/1.1\r\nHost: localhost\r\n', HEAD + b'Content-Length: 100\r\n\r\n{"rout',
                  HEAD + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"']
        open_ones = [self.raw().send(half) for half in halves]
        for half, r in zip(halves, open_ones):
            data = r.wait_closed(20 * harness.slowness())
            self.assertTrue(data == b'' or data.startswith(b'HTTP/1.1 408'), (half, data))

    def test_a_slow_drip_ends_at_the_deadline(self):
        """A byte each 0.2 s is never silent for long."""
        began, r = time.monotonic(), self.raw().send(HEAD + b'Content-Length: 1000\r\n\r\n')
        dripping = self.raw().send(b'GET /livez HTTP/1.1\r\n')
        empty = self.raw()

        def closed(one):
            try:
                one.send({r: b' ', dripping: b'X: y\r\n', empty: b'\r\n'}[one])
            except OSError:
                return True
            return False
        wait_until(lambda: all([closed(one) for one in (r, dripping, empty)]), 15, 'the drips to end', interval_s=0.2)
        self.assertGreater(time.monotonic() - began, 2.5)

    def test_a_database_that_hangs_is_answered_for(self):
        """The client hears in time that nobody knows; what was asked for happens when the database goes on."""
        web = Web(self.p.gateway(POSTDATE_HTTP_TIMEOUT='1s').http())  # it waits for a lock for 2 s, and then says so
        wait_until(lambda: web.get('/readyz').status == 200, 10, '/readyz')
        holder = self.p.session()
        self.addCleanup(holder.close)
        for ask in (lambda: web.post('/v1/messages', dict(DUE, routing_key=self.name())), lambda: web.get('/v1/messages')):
            holder.run('begin')
            holder.run('lock table postdate.message in access exclusive mode')
            self.problem(ask(), 503, 'unknown-outcome')  # while it is still held
            self.assertEqual(web.get('/livez').status, 200)
            holder.run('rollback')
        wait_until(lambda: self.web.get('/v1/messages?routing_key=' + self.name()).json.get('messages'), 10, 'it to be stored')

    def test_clients_that_go_away(self):
        for _ in range(30):
            r = Raw(self.address)
            r.send(HEAD + b'Content-Length: %d\r\n\r\n' % len(GOOD) + GOOD).close()
            Raw(self.address).send(HEAD + b'Content-Length: 1000\r\n\r\n' + GOOD).close()
        text = lambda: self.web.get('/metrics').body.decode()
        wait_until(lambda: 'postdate_http_body_bytes 0' in text(), 10, 'the bodies to be freed')
        wait_until(lambda: int(text().split('\npostdate_http_connections ')[1].split()[0]) <= 2, 10, 'the connections to go')
