"""Where a request begins and ends: what RFC 9112 says to refuse is refused with the reason, and ends the connection,
so that nothing behind it runs as a request."""
import json
import re
import time

from harness import wait_until
from test_http import DUE, HttpTest
from web import Raw, Web

HOST = b'Host: localhost\r\n'
JSON = b'Content-Type: application/json\r\n'
POST = b'POST /v1/messages HTTP/1.1\r\n' + HOST + JSON
GET = b'GET /livez HTTP/1.1\r\n' + HOST
CHUNKED = POST + b'Transfer-Encoding: chunked\r\n\r\n'


def answers(data):
    return len(re.findall(rb'HTTP/1\.\d \d{3} ', data))


class Framing(HttpTest):
    gateway_env = {'POSTDATE_HTTP_TIMEOUT': '3s'}

    def setUp(self):
        super().setUp()
        self.victim = self.schedule(key=self.name())['id']
        self.smuggled = b'DELETE /v1/messages/' + self.victim.encode() + b' HTTP/1.1\r\n' + HOST + b'\r\n'

    def raw(self):
        r = Raw(self.address)
        self.addCleanup(r.close)
        return r

    def refused(self, data, *why, status=400, problem='invalid-request', method='GET'):
        """One answer, our own, and not that it took too long (408); then the end. What lies behind has not run."""
        r = self.raw()
        r.send(data)
        everything = r.wait_closed(20)
        self.assertEqual(answers(everything), 1, (data[:200], everything))
        head, _, body = everything.partition(b'\r\n\r\n')
        self.assertTrue(head.startswith(b'HTTP/1.1 %d ' % status), (data[:200], everything))
        self.assertIn(b'application/problem+json', head, data[:200])
        self.assertEqual(json.loads(body)['type'], 'urn:postdate:problem:' + problem, data[:200])
        for word in why:
            self.assertIn(word, json.loads(body)['detail'], data[:200])

    def tearDown(self):
        state = Web(self.address).get('/v1/messages/' + self.victim).json['state']
        self.assertEqual(state, 'scheduled', 'the victim')

    def test_a_body_does_not_run_as_a_request(self):
        n = len(self.smuggled)
        for extra, why in ((b'Content-Length : %d\r\n' % n, 'before the colon'),
                           (b'Content-Length\t: %d\r\n' % n, 'before the colon'),
                           (b'Content-Length:\r\n %d\r\n' % n, 'folded'),
                           (b'X: y\r\n\tContent-Length: %d\r\n' % n, 'folded'),
                           (b'Content-Length: %d\r\nContent-Length: 0\r\n' % n, 'Content-Length is given more than once'),
                           (b'Content-Length: %d, %d\r\n' % (n, n), 'Content-Length: allowed'),
                           (b'Content-Length: +%d\r\n' % n, 'Content-Length: allowed'),
                           (b'Content-Length: 0\r\nTransfer-Encoding: chunked\r\n', 'exclude each other'),
                           (b'Transfer-Encoding : chunked\r\n', 'before the colon'),
                           (b'Transfer-Encoding:\r\n chunked\r\n', 'folded'),
                           (b'X: a\nContent-Length: %d\r\n' % n, 'CR LF'),
                           (b'X: a\rb\r\n', 'CR LF'), (b'X: a\x00b\r\n', 'control character')):
            self.refused(GET + extra + b'\r\n' + self.smuggled, why)
            self.refused(POST + extra + b'\r\n' + self.smuggled, why)

    def test_transfer_codings_other_than_chunked(self):
        for coding in (b'gzip', b'identity', b'chunked, identity', b'gzip, chunked', b'xchunked', b'chunked;q=1', b''):
            self.refused(POST + b'Transfer-Encoding: ' + coding + b'\r\n\r\n' + self.smuggled, 'allowed is chunked')
        self.refused(POST.replace(b'HTTP/1.1', b'HTTP/1.0') + b'Connection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'
                     + self.smuggled, 'HTTP/1.0')

    def test_a_nul_does_not_cut_the_target(self):
        key = self.name().encode()
        for target in (b'/v1/messages?key=' + key + b'\x00zzz', b'/v1/messages/' + self.victim.encode() + b'\x00'):
            self.refused(b'DELETE ' + target + b' HTTP/1.1\r\n' + HOST + b'\r\n', 'control character')
        answer = self.web.ask('DELETE', '/v1/messages?key=' + key.decode() + '%00zzz')
        self.problem(answer, 400, 'invalid-request')

    def test_first_lines(self):
        for line, why in ((b'GET /livez\r\n', 'first line'), (b'GET  /livez HTTP/1.1\r\n', 'first line'),
                          (b'GET /li vez HTTP/1.1\r\n', 'first line'), (b'GET /livez HTTP/1.1 \r\n', 'version'),
                          (b'GET /livez HTTP/2.0\r\n', 'version'), (b'GET\t/livez\tHTTP/1.1\r\n', 'first line'),
                          (b'G\xc3\x84T /livez HTTP/1.1\r\n', 'first line'), (b'\x16\x03\x01\x02\x00\x01', 'control')):
            self.refused(line + HOST + b'\r\n' + self.smuggled, why)
        self.refused(b'GET /livez HTTP/1.1\r\n\r\n' + self.smuggled, 'Host is missing')

    def test_chunks(self):
        good = json.dumps(dict(DUE, routing_key='chunks')).encode()
        whole = b'%x\r\n%s\r\n' % (len(good), good)
        for body, why in ((b'%x\n%s\r\n0\r\n\r\n' % (len(good), good), 'its size'), (b'%x\r%s\r\n0\r\n\r\n' % (len(good), good), 'its size'),
                          (b'%x;a\x00b\r\n%s\r\n0\r\n\r\n' % (len(good), good), 'its size'), (b'0x5\r\nhello\r\n0\r\n\r\n', 'its size'),
                          (b'-1\r\n', 'its size'), (b'1' + b'0' * 16 + b'\r\n', 'its size'), (b'5;' + b'x' * 40_000, 'its size'),
                          (b'%x\r\n%s\n0\r\n\r\n' % (len(good), good), 'followed by CR LF'),
                          (b'%x\r\n%sx\r\n0\r\n\r\n' % (len(good), good), 'followed by CR LF'),
                          (whole + b'0\r\nno colon\r\n\r\n', 'last chunk'), (whole + b'0\r\nX: ' + b'x' * 9000 + b'\r\n\r\n', 'last chunk')):
            self.refused(CHUNKED + body + self.smuggled, why)
        # What is allowed in chunks is read as it is meant, whatever the library makes of it.
        r = self.raw().send(CHUNKED + b'%x;ext="v";long=%s\r\n%s\r\n' % (len(good), b'x' * 900, good) + b'0\r\nX-Trailer: 1\r\n\r\n')
        self.assertEqual(r.answer().status, 201)
        for byte in CHUNKED + whole + b'0\r\n\r\n':
            r.send(bytes([byte]))
        self.assertEqual(r.answer().status, 201, 'byte by byte, on the same connection')
        found = self.web.get('/v1/messages?routing_key=chunks').json['messages']
        self.assertEqual(len(found), 2, 'and nothing that was refused')

    def test_long_heads(self):
        many = b''.join(b'x%d: y\r\n' % i for i in range(2000))
        self.assertEqual(self.raw().send(GET + many + b'\r\n').answer().status, 200, 'short headers, 23 KB')
        large = b''.join(name + b': ' + b'x' * 8000 + b'\r\n' for name in (b'Authorization', b'Content-Type', b'Idempotency-Key', b'X'))
        self.assertEqual(self.raw().send(GET + large + b'\r\n').answer().status, 200, 'as long as allowed, and used')
        self.refused(GET + many * 2 + b'\r\n', '32768', status=431, problem='head-too-large')
        self.refused(GET + b'Authorization: Bearer ' + b'x' * 9000 + b'\r\n\r\n', 'Authorization', '8192', status=431, problem='head-too-large')
        self.refused(b'GET /livez?' + b'x' * 9000 + b' HTTP/1.1\r\n' + HOST + b'\r\n', '8192', status=414, problem='target-too-long')
        answer = self.raw().send(b'GET /v1/messages?page_size=1' + b'&' * 8000 + b' HTTP/1.1\r\n' + HOST + b'\r\n').answer()
        self.assertEqual(answer.status, 200, 'nothing of that is a parameter')

    def test_answers_go_out_in_their_turn(self):
        """Good requests before a bad one are answered, in order."""
        body = json.dumps(dict(DUE, routing_key='turn')).encode()
        r = self.raw().send((POST + b'Content-Length: %d\r\n\r\n' % len(body) + body) * 20 + GET + b'X : y\r\n\r\n' + self.smuggled)
        self.assertEqual([part[:3] for part in r.wait_closed(20).split(b'HTTP/1.1 ')[1:]], [b'201'] * 20 + [b'400'])

    def test_old_clients(self):
        old = b'GET /livez HTTP/1.0\r\n'
        r = self.raw().send(old + b'\r\n' + self.smuggled)
        self.assertEqual(answers(r.wait_closed(20)), 1)
        r = self.raw().send(old + b'Connection: keep-alive\r\n\r\n')
        self.assertEqual(r.answer().status, 200)
        self.assertEqual(r.send(old + b'\r\n').answer().status, 200, 'kept, as it asked')
        r = self.raw().send(GET + b'Connection: close\r\n\r\n' + self.smuggled)
        self.assertEqual(answers(r.wait_closed(20)), 1, 'nothing runs behind the last request')

    def test_a_head_that_does_not_end_has_one_answer(self):
        idle, r = self.raw(), self.raw().send(GET)
        self.assertEqual(idle.send(GET + b'\r\n').answer().status, 200)
        everything = r.wait_closed(20)
        self.assertEqual((everything[:12], answers(everything)), (b'HTTP/1.1 408', 1))
        self.assertEqual(idle.wait_closed(20), b'', 'one that is idle is closed without a word')

    def test_half_closed_clients_get_their_answer(self):
        body = json.dumps(dict(DUE, routing_key='half')).encode()
        r = self.raw().send(POST + b'Content-Length: %d\r\n\r\n' % len(body) + body)
        r.socket.shutdown(1)
        self.assertTrue(r.wait_closed(20).startswith(b'HTTP/1.1 201'))

    def test_a_refusal_arrives_while_the_body_is_still_sent(self):
        """The client has not read a byte yet when its body is refused; the answer is not lost by closing."""
        r = self.raw().send(POST.replace(b'/json', b'/xml') + b'Content-Length: 900000\r\n\r\n')
        time.sleep(0)
        for _ in range(30):
            r.send(b' ' * 30_000)
        answer = r.answer()
        self.assertEqual((answer.status, answer.problem), (415, 'unsupported-media-type'))

    def test_host_is_asked_for_everywhere(self):
        """A page whose name leads to 127.0.0.1 reads nothing, also not what needs no token."""
        for path in ('/metrics', '/livez', '/readyz', '/openapi.json', '/v1/messages'):
            for host in ('evil.example', '127.0.0.1.evil.example', '[evil.example]', '[::1', '[::1]x', '127.0.0.1:port', '127.0.0.1:99999',
                         'localhost:80:80', '127.1', '0x7f000001', 'user@localhost', 'localhost/', ''):
                answer = self.web.ask('GET', path, headers={'Host': host})
                self.assertEqual((answer.status, answer.problem), (400, 'invalid-request'), (path, host))
            for host in ('localhost', 'LOCALHOST:8480', '127.0.0.1', '127.0.0.1:1', '[::1]:8480', '[fe80::1]', '10.1.2.3:80'):
                self.assertEqual(self.web.ask('GET', path, headers={'Host': host}).status, 200, (path, host))

    def test_targets_in_absolute_form(self):
        """As a client writes them that takes this for a proxy (RFC 9112 3.2.2). The host in them counts, and the header does not."""
        def ask(target, host=b'localhost'):
            r = self.raw().send(b'GET ' + target + b' HTTP/1.1\r\nHost: ' + host + b'\r\n\r\n')
            answer = r.answer()
            r.close()
            return answer
        for host in (b'localhost', b'127.0.0.1:8480', b'[::1]:80', b'LOCALHOST'):
            self.assertEqual(ask(b'http://' + host + b'/livez', b'evil.example').json, {'status': 'alive'}, host)
        self.assertEqual(ask(b'HTTPS://localhost/v1/messages?key=%6eobody').json['messages'], [])
        self.assertEqual(ask(b'http://localhost/v1/messages/' + self.victim.encode()).json['id'], self.victim)
        self.assertEqual([ask(b'http://localhost' + rest).status for rest in (b'', b'?x=y', b'/')], [ask(b'/' + rest).status for rest in (b'', b'?x=y', b'')])
        for target in (b'http://evil.example/livez', b'http:///livez', b'http://user@localhost/livez', b'http://:80/livez', b'http://', b'http://localhost:x/livez'):
            answer = ask(target)
            self.assertEqual((answer.status, answer.problem), (400, 'invalid-request'), target)
        for target in (b'ftp://localhost/livez', b'localhost/livez', b'*'):
            self.assertEqual(ask(target).problem, 'no-such-route', target)

    def test_content_codings_are_refused_by_name(self):
        body = json.dumps(dict(DUE, routing_key='coded'))
        for coding in ('gzip', 'br', 'gzip, identity', 'x' * 200):
            answer = self.web.ask('POST', '/v1/messages', body, {'Content-Encoding': coding})
            self.assertEqual((answer.status, answer.problem), (415, 'unsupported-media-type'), answer)
            self.assertIn('Content-Encoding: "' + coding[:60], answer.json['detail'])
        for coding in ('identity', 'Identity', ''):
            self.assertEqual(self.web.ask('POST', '/v1/messages', body, {'Content-Encoding': coding}).status, 201, coding)
        self.assertEqual(self.web.ask('GET', '/v1/messages', headers={'Content-Encoding': 'gzip'}).status, 200, 'there is no body')

    def test_a_reader_that_does_not_read_is_left(self):
        r = self.raw()
        r.send((b'GET /openapi.json HTTP/1.1\r\n' + HOST + b'\r\n') * 300)
        connections = lambda: int(Web(self.address).get('/metrics').body.decode().split('\npostdate_http_connections ')[1].split()[0])
        wait_until(lambda: connections() > 2, 5, 'it to be seen')
        wait_until(lambda: connections() <= 2, 30, 'it to be left')
