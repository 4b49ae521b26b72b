"""Random and broken requests, many at a time: answered with 2xx, 4xx, 503 (or 505 to HTTP/2 and the like), or the connection is closed in time. Never
another 5xx, a crash, a hang, or anything left behind.

POSTDATE_FUZZ_CASES and POSTDATE_FUZZ_SEED widen it; the seed of a failure is in its message.
"""
import concurrent.futures
import json
import os
import random
import re
import socket
import threading
import time

import harness
from harness import now_ms, wait_until
from test_http import DUE, HttpTest
from web import Raw, Web

CASES = int(os.environ.get('POSTDATE_FUZZ_CASES', '150' if harness.SAN else '600'))
SEED = int(os.environ.get('POSTDATE_FUZZ_SEED', '1'))
TIMEOUT_S = 2
SERVER_ERRORS = (503,)
GOOD = json.dumps(dict(DUE, routing_key='fuzz')).encode()
JSON_HEADER = b'Content-Type: application/json\r\n'
TARGETS = [b'/v1/messages', b'/v1/messages/x', b'/v1/messages:cancel', b'/v1/messages:reschedule', b'/v1/messages:retry', b'/v1/messages:fail', b'/v1/messages/x:fail', b'/v1/stats',
           b'/livez', b'/readyz', b'/metrics', b'/openapi.json', b'/', b'*', b'//', b'http://h/livez', b'/v1/messages?key=%00',
           b'/v1/messages?page_size=99999999999999999999', b'/v1/messages?' + b'&' * 5000, b'/v1/messages/' + b'%' * 300,
           b'/v1/messages?key=' + b'k' * 20_000, b'/v1/messages?' + b'a=b&' * 2000, b'/v1/messages/\xff\xfe', b'/\x00', b'/livez#x', b'livez']
METHODS = [b'GET', b'HEAD', b'POST', b'PUT', b'PATCH', b'DELETE', b'OPTIONS', b'TRACE', b'CONNECT', b'get', b'', b'G' * 5000, b'P\x00ST']
VERSIONS = [b'HTTP/1.1'] * 6 + [b'HTTP/1.0', b'HTTP/0.9', b'HTTP/2.0', b'HTTP/1.1 ', b'HTTP/1', b'', b'http/1.1', b'HTTP/1.99999999999']
HEADERS = [b'Expect: 100-continue', b'Expect: x', b'Connection: close', b'Connection: keep-alive', b'Connection: upgrade', b'Upgrade: h2c',
           b'Transfer-Encoding: chunked', b'Transfer-Encoding: gzip, chunked', b'Transfer-Encoding: identity', b'Transfer-Encoding: \x0bchunked',
           b'Content-Length: 0', b'Content-Length: +5', b'Content-Length: 5, 5', b'Content-Length: 18446744073709551616', b'Content-Length: 0x5',
           b'Content-Length: 5 5', b'Content-Length:', b'Content-Encoding: gzip', b'Content-Type: application/json', b'Host: h', b'Host:', b'Host: a b',
           b'Idempotency-Key: k', b'Idempotency-Key: ' + b'k' * 300, b'Authorization: Bearer x', b'Authorization: Basic eDp4', b'Cookie: a=b; ' * 50,
           b' folded', b': empty', b'no colon', b'X: \x00', b'X' * 3000 + b': y', b'X: ' + b'y' * 10_000, b'Range: bytes=0-', b'X-\xff: \xff']
CHUNKS = [b'0\r\n\r\n', b'5\r\n', b'-1\r\nx\r\n', b'0x5\r\nabcde\r\n', b'FFFFFFFFFFFFFFFF\r\nx', b'10000000000000000\r\nx\r\n', b'5;ext=1\r\nabcde\r\n',
          b'5;' + b'e' * 5000 + b'\r\nabcde\r\n', b'5\nabcde\n', b'\r\n', b'zz\r\nabc\r\n', b'5\r\nabcdefgh\r\n', b'0\r\nTrailer: x\r\n\r\n',
          b'0\r\n' + b'T: ' + b'x' * 40_000 + b'\r\n\r\n', b'00000000000000000000005\r\nabcde\r\n0\r\n\r\n', b'7fffffff\r\n']


def good_request(rng):
    if rng.random() < 0.5:
        return b'GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n' % rng.choice(TARGETS[:10])
    return b'POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n' + JSON_HEADER + b'Content-Length: %d\r\n\r\n' % len(GOOD) + GOOD


def noise(rng):
    return rng.randbytes(rng.choice((1, 10, 100, 5000, 70_000)))


def composed(rng):
    """Parts that exist, put together in ways that should not."""
    end = rng.choice((b'\r\n', b'\r\n', b'\r\n', b'\n', b'\r'))
    headers = [b'Host: localhost'] * (rng.random() < 0.8) + rng.choices(HEADERS, k=rng.randrange(6))
    rng.shuffle(headers)
    line = rng.choice(METHODS) + b' ' + rng.choice(TARGETS) + b' ' + rng.choice(VERSIONS)
    body = rng.choice((b'', GOOD, noise(rng), b''.join(rng.choices(CHUNKS, k=3)), b'0\r\n\r\n'))
    return end.join([line, *headers, b'', b'']) + body


def changed(rng):
    """A good request with a few wrong bytes."""
    data = bytearray(good_request(rng))
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data))
        data[at:at + rng.randrange(4)] = rng.choice((b'', b'\x00', b'\r', b'\n', b'\r\n\r\n', b' ', b':', b'%', rng.randbytes(3)))
    return bytes(data)


def half(rng):
    data = good_request(rng)
    return data[:rng.randrange(len(data))]


def chunked(rng):
    body = b''.join(rng.choices(CHUNKS, k=rng.randint(1, 6)))
    if rng.random() < 0.4:
        body = b'%x\r\n' % len(GOOD) + GOOD + b'\r\n' + body
    return b'POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n' + JSON_HEADER + b'Transfer-Encoding: chunked\r\n\r\n' + body


def pipelined(rng):
    return b''.join(rng.choice((good_request, good_request, good_request, changed))(rng) for _ in range(rng.randint(2, 40)))


def huge(rng):
    kind = rng.randrange(4)
    if kind == 0:
        return b'GET /livez HTTP/1.1\r\n' + b''.join(b'X-%d: y\r\n' % i for i in range(rng.choice((500, 5000)))) + b'\r\n'
    if kind == 1:
        return b'GET /livez HTTP/1.1\r\nHost: localhost\r\nX: ' + b'x' * rng.choice((30_000, 33_000, 1 << 20)) + b'\r\n\r\n'
    if kind == 2:
        body = b'{"key":"' + b'k' * (1 << 20) + b'",' + GOOD[1:]
    else:
        body = b'{"routing_key":"r","delay":"1h","body":"' + b'\\u0000' * 200_000 + b'"}'
    return b'POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n' + JSON_HEADER + b'Content-Length: %d\r\n\r\n' % len(body) + body


KINDS = [noise, composed, composed, composed, changed, changed, half, chunked, chunked, pipelined, huge]


def statuses(data):
    """Of the answers in these bytes; what is no whole answer ends it."""
    found = []
    while data:
        head, separator, rest = data.partition(b'\r\n\r\n')
        line = re.match(rb'HTTP/1\.[01] (\d{3}) ', head)
        if not separator or not line:
            found.append(f'torn: {data[:200]!r}')
            break
        found.append(int(line.group(1)))
        length = re.search(rb'(?i)\r\ncontent-length: *(\d+)', head)
        data = rest[int(length.group(1)):] if length and not rest.startswith(b'HTTP/1.') else rest
    return found


class Fuzz(HttpTest):
    gateway_env = {'POSTDATE_HTTP_TIMEOUT': f'{TIMEOUT_S}s', 'POSTDATE_INTAKE_MAX_BODY': '1MiB'}
    time_limit_s = 120 + CASES // 5

    def metric(self, name):
        return int(re.search(rf'\n{name} (\d+)', Web(self.address).get('/metrics').body.decode()).group(1))

    def tearDown(self):
        wait_until(lambda: self.metric('postdate_http_body_bytes') == 0, 10, 'the bodies to be freed')
        wait_until(lambda: self.metric('postdate_http_connections') <= 3, 10, 'the connections to go')
        self.assertIsNone(self.gw.process.poll())
        answer = Web(self.address).post('/v1/messages', dict(DUE, routing_key='after'))
        self.assertEqual(answer.status, 201, answer)

    def one(self, number):
        """None, or what is wrong."""
        rng = random.Random(SEED * 1_000_000 + number)
        data = rng.choice(KINDS)(rng)
        raw = Raw(self.address, TIMEOUT_S * 8 * harness.slowness())
        received = b''
        try:
            if rng.random() < 0.2:  # in two pieces
                at = rng.randrange(len(data) + 1)
                raw.send(data[:at])
                time.sleep(rng.random() / 20)
                data = data[at:]
            raw.send(data)
            if rng.random() < 0.3:
                raw.socket.shutdown(socket.SHUT_WR)
            received = raw.wait_closed(TIMEOUT_S * 8 * harness.slowness())
        except (AssertionError, TimeoutError) as e:
            return f'case {number} of seed {SEED}: {e}: {data[:200]!r}'
        except OSError:
            pass  # it was closed before all was sent
        finally:
            raw.close()
        is_head = b'HEAD' in data
        wrong = [s for s in statuses(received) if not isinstance(s, int) and not is_head or isinstance(s, int) and s >= 500 and s not in SERVER_ERRORS]
        return f'case {number} of seed {SEED}: {wrong}: {data[:300]!r}' if wrong else None

    def test_broken_requests(self):
        with concurrent.futures.ThreadPoolExecutor(48) as pool:
            problems = [p for p in pool.map(self.one, range(CASES)) if p]
        self.assertEqual(problems[:5], [])

    def test_good_clients_are_served_beside_300_slow_ones(self):
        """Each sends a byte now and then until it is cut off."""
        head = b'POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n' + JSON_HEADER + b'Content-Length: 500\r\n\r\n'
        slow = [Raw(self.address).send(head if i % 2 else head[:30]) for i in range(300)]
        stop = threading.Event()

        def drip():
            while not stop.wait(0.2):
                for raw in slow:
                    try:
                        raw.socket.send(b'x', socket.MSG_DONTWAIT)
                    except OSError:
                        pass
        dripping = threading.Thread(target=drip)
        dripping.start()
        try:
            until, worst = now_ms() + 1500, 0
            while now_ms() < until:
                began = now_ms()
                self.assertEqual(self.web.post('/v1/messages', dict(DUE, routing_key='beside')).status, 201)
                worst = max(worst, now_ms() - began)
            self.assertLess(worst, 1000 * harness.slowness())
            wait_until(lambda: self.metric('postdate_http_connections') <= 3, 15, 'the slow ones to be cut off')
        finally:
            stop.set()
            dripping.join()
            for raw in slow:
                raw.close()

    def test_more_connections_than_allowed(self):
        """Those beyond the limit are refused; the others work, and all do when some have gone."""
        many = []
        try:
            for _ in range(2100):
                many.append(Raw(self.address))
        except OSError:
            pass
        self.assertGreater(len(many), 500)
        for raw in many:
            raw.close()
        wait_until(lambda: self.metric('postdate_http_connections') <= 3, 15, 'them to go')
