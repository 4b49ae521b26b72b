"""What callers share is emptied by none of them: those who hold the most give way, and all others are answered."""
import resource
import socket
import threading
import time

from harness import LiveTest, wait_until
from test_one_caller import Crowd
from test_control import QUEUE, Requester
from test_tokens import HOUR, Caller, make_token
from test_trouble import Gate

KIB = 1024


class Holders:
    """Connections that send a request but for its end, or take no answer, and come back when they are cut off."""

    def __init__(self, address, requests):
        self.address, self.stopping, self.began = address, threading.Event(), [threading.Event() for _ in requests]
        self.again = 0
        self.threads = [threading.Thread(target=self.hold, args=(*both,), daemon=True) for both in zip(requests, self.began)]
        for thread in self.threads:
            thread.start()

    def hold(self, request, began):
        while not self.stopping.is_set():
            try:
                with socket.create_connection(self.address, timeout=0.5) as s:
                    s.sendall(request)
                    began.set()
                    while not self.stopping.is_set():
                        try:
                            if not request.endswith(b'\r\n\r\n') and s.recv(1):
                                break
                            time.sleep(0.1)
                        except socket.timeout:
                            pass
            except OSError:
                pass
            self.again += 1

    def wait(self):
        for event in self.began:
            event.wait(30)

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)


def head(method, path, token, length=None):
    body = f'Content-Type: application/json\r\nContent-Length: {length}\r\n' if length is not None else ''
    return f'{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{body}\r\n'.encode()


class Shares(LiveTest):
    def begin(self, **roles):
        """Callers by name, each with a token of the exchange of its name."""
        self.p = self.place()
        self.tokens = {name: make_token(self.p, name, name=name, role=role) for name, role in roles.items()}
        self.address = self.p.gateway(POSTDATE_HTTP_TOKENS='on').http()
        callers = {name: Caller(self.address, token) for name, token in self.tokens.items()}
        for caller in callers.values():
            self.addCleanup(caller.web.close)
            wait_until(lambda: caller.get('/v1/messages').status == 200, 10, 'the token to be known')
        return callers

    def hold(self, requests):
        holders = Holders(self.address, requests)
        self.addCleanup(holders.stop)
        holders.wait()
        return holders

    def post_each_size(self, caller, exchange, times):
        refused = {}
        for kib in (1, 2, 4, 5, 8, 16, 64, 128, 255):
            body = 'x' * (kib * KIB - 200)
            answers = [caller.post('/v1/messages', dict(HOUR, exchange=exchange, body=body)).status for _ in range(times)]
            if set(answers) != {201}:
                refused[f'{kib} KiB'] = len([a for a in answers if a != 201])
        return refused

    def test_bodies_that_do_not_end_refuse_nobody_else(self):
        b = self.begin(a='read', b='operate')['b']
        size = 255 * KIB
        self.hold([head('POST', '/v1/messages:cancel', self.tokens['a'], size) + b'{' + b' ' * (size - 2)] * 110)
        self.assertEqual(self.post_each_size(b, 'b', 100), {})

    def test_answers_that_several_callers_do_not_take_refuse_nobody_else(self):
        callers = self.begin(a='operate', b='operate', c='operate', d='operate', e='operate')
        ids = {name: c.post('/v1/messages', dict(HOUR, exchange=name, body='x' * 4_000_000)).json['id'] for name, c in callers.items()}
        self.hold([head('GET', f'/v1/messages/{ids[name]}?view=full', self.tokens[name]) for name in 'abcd' for _ in range(12)])
        answers = [callers['e'].get(f'/v1/messages/{ids["e"]}?view=full').status for _ in range(20)]
        self.assertEqual(answers, [200] * 20)

    def test_large_requests_do_not_delay_the_small_ones_of_another(self):
        callers = self.begin(a='operate', b='operate')
        crowd = Crowd(self.address, self.tokens['a'], [('POST', '/v1/messages', dict(HOUR, exchange='a', body='x' * 7_000_000))] * 3)
        self.addCleanup(crowd.stop)
        wait_until(lambda: crowd.answered() >= 3, 30, 'large ones to be stored')
        before, small = crowd.answered(), 60
        answers = [callers['b'].post('/v1/messages', dict(HOUR, exchange='b')).status for _ in range(small)]
        large = crowd.answered() - before
        self.assertEqual(answers, [201] * small)
        self.assertLess(large, small / 3, 'each small one waited for large ones')
        self.assertLessEqual({a.status for a in crowd.stop()}, {201, 503})  # three of them are all the memory that bodies have

    def test_connections_of_one_caller_refuse_nobody_else(self):
        b = self.begin(a='read', b='operate')['b']
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4000), hard))
        request = head('GET', '/v1/messages/' + '0' * 36, self.tokens['a'])
        sockets = []
        self.addCleanup(lambda: [s.close() for s in sockets])
        for _ in range(2100):  # more than the gateway takes
            s = socket.create_connection(self.address, timeout=30)
            s.sendall(request)
            sockets.append(s)
        for _ in range(5):
            other = Caller(self.address, self.tokens['b'])
            other.web.connection.timeout = 10
            self.assertEqual(other.get('/v1/messages').status, 200)
            other.web.close()
        self.assertEqual(b.get('/v1/messages').status, 200)


class ByFilter(LiveTest):
    """Operations by filter that take long: they stop at a gate, until the test ends."""

    def begin(self, names, gated):
        self.p = self.place()
        self.tokens = {name: make_token(self.p, name, name=name) for name in names}
        self.gw = self.p.gateway(POSTDATE_HTTP_TOKENS='on')
        self.callers = {name: self.caller(name) for name in names}
        for name, caller in self.callers.items():
            wait_until(lambda c=caller: c.get('/v1/messages').status == 200, 10, 'the token to be known')
            for key in ('gate0', 'gate1') if name in gated else ('k',):
                self.assertEqual(caller.post('/v1/messages', dict(HOUR, exchange=name, routing_key=key)).status, 201)
        self.gate = Gate(self.p, deferred=False)
        self.addCleanup(self.gate.session.close)

    def caller(self, name):
        caller = Caller(self.gw.http(), self.tokens[name])
        self.addCleanup(caller.web.close)
        return caller

    @staticmethod
    def shift(key):
        return {'filter': {'routing_key': key}, 'shift_ms': 60_000}

    def test_operations_by_filter_of_some_callers_hold_up_nobody_elses(self):
        self.begin('abcdef', gated='ab')
        threads = [threading.Thread(target=self.caller(name).post, args=('/v1/messages:reschedule', self.shift(key)), daemon=True)
                   for key in ('gate0', 'gate1') for name in 'ab']
        for thread in threads:
            thread.start()
        self.gate.wait(3)
        answers = {name: self.callers[name].post('/v1/messages:reschedule', self.shift('k')) for name in 'cdef'}
        self.assertEqual({name: (a.status, a.json.get('changed')) for name, a in answers.items()}, dict.fromkeys('cdef', (200, 1)))
        self.gate.open()
        for thread in threads:
            thread.join(60)

    def test_slow_requests_of_one_token_do_not_fill_the_control_queue(self):
        self.begin('ab', gated='a')
        r = Requester(self.p.amqp)
        self.addCleanup(r.close)
        total, places = 40, 16
        slow = [r.send(dict(self.shift(f'gate{n % 2}'), op='reschedule', token=self.tokens['a']), message_id=f's{n}') for n in range(total)]
        self.gate.wait(2)
        quick = [r.send(dict(HOUR, op='schedule', exchange='b', routing_key='k', token=self.tokens['b'])) for _ in range(3)]
        self.assertEqual([r.wait(q, 40)[1]['status'] for q in quick], [201] * 3)
        refused = {r.answers[s][1]['type'] for s in slow if s in r.answers}
        self.assertEqual(refused, {'urn:postdate:problem:overloaded'})
        # few more than had to, and none that runs
        self.assertGreaterEqual(len([s for s in slow if s not in r.answers]), places // 2)
        self.assertNotIn(slow[0], r.answers)
        self.gate.open()
        statuses = [r.wait(s, 60)[1]['status'] for s in slow]
        self.assertEqual(set(statuses), {200, 503})
        client = self.p.client()
        wait_until(lambda: client.depth(QUEUE) == 0, 10, 'the queue to be empty')
