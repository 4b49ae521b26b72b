"""Patroni moves the primary elsewhere while messages flow: nothing accepted is lost, nothing is early, nothing cancelled comes."""
import contextlib
import heapq
import http.client
import json
import os
import random
import shutil
import tempfile
import threading
import time
import unittest

import harness
from harness import LiveTest, now_ms, wait_until
from patroni_kit import Patroni, why_no_patroni
from web import ready_address

RATE, COUNT = 200, 6000   # of the stream by AMQP
SPREAD_MS = '0,8000'
CLIENTS, EVERY_S, CANCELLED = 8, 0.2, 0.7  # who schedule by HTTP and mostly change their minds
ANSWER_S = 5
GOES_ON_S = 90            # what the next primary stores is delivered within


class Ledger:
    """Clients that schedule messages by HTTP and cancel most of them, and ask about a cancel until there is an answer. What
    was accepted is owed; what a cancel said yes to must never come."""

    def __init__(self, address, consumer):
        self.address, self.consumer = address, consumer
        self.stopping = threading.Event()
        self.not_before, self.accepted_at, self.cancelled, self.gone = {}, {}, set(), []
        self.threads = [threading.Thread(target=self.work, args=(n,), daemon=True) for n in range(CLIENTS)]
        for thread in self.threads:
            thread.start()

    def work(self, number):
        rng, connection, pending, sent, turn = random.Random(number), [None], [], 0, time.time()
        while not self.stopping.is_set() or pending:
            if pending and pending[0][0] <= time.time():
                _, body, path = heapq.heappop(pending)
                if not self.cancel(connection, body, path):
                    heapq.heappush(pending, (time.time() + EVERY_S, body, path))
            elif time.time() >= turn and not self.stopping.is_set():
                body, delay_ms, sent = f'{number}-{sent}', rng.randint(1000, 8000), sent + 1
                path = self.schedule(connection, body, delay_ms)
                turn = time.time() + EVERY_S
                if path and rng.random() < CANCELLED:
                    heapq.heappush(pending, (time.time() + rng.uniform(0, delay_ms / 1000), body, path))
            time.sleep(0.01)

    def schedule(self, connection, body, delay_ms):
        """Where it is; None when it was not accepted, or nobody knows."""
        self.not_before[body] = now_ms() + delay_ms
        status, answer = self.ask(connection, 'POST', '/v1/messages', json.dumps({'routing_key': 'ledger', 'body': body, 'delay_ms': delay_ms}))
        if status != 201:
            return None
        self.accepted_at[body] = time.time()
        return f'/v1/messages/{answer["id"]}'

    def cancel(self, connection, body, path):
        """False: no answer that would say anything."""
        status, _ = self.ask(connection, 'DELETE', path)
        if status == 200:
            self.cancelled.add(body)
        elif status == 404:
            self.gone.append(body)
        return status in (200, 404, 409)

    def ask(self, kept, method, path, body=None):
        """(status, JSON); (0, {}) without an answer."""
        try:
            kept[0] = kept[0] or http.client.HTTPConnection(*self.address, timeout=ANSWER_S)
            kept[0].request(method, path, body, {'Content-Type': 'application/json'} if body else {})
            response = kept[0].getresponse()
            return response.status, json.loads(response.read() or b'{}')
        except (OSError, http.client.HTTPException):
            kept[0].close()
            kept[0] = None
            return 0, {}

    def arrived(self):
        return {m.body.decode() for m in self.consumer.all()}

    def goes_on_since(self, at):
        """Whether something came that was accepted after that."""
        return any(self.accepted_at.get(body, 0) > at for body in self.arrived())

    def stop(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), 'a cancel has no answer'

    def missing(self):
        return sorted(set(self.accepted_at) - self.cancelled - self.arrived())

    def early(self):
        return [(m.body, self.not_before[m.body.decode()] - m.at_ms) for m in self.consumer.all() if m.at_ms < self.not_before[m.body.decode()]]

    def wrong(self):
        return sorted(self.cancelled & self.arrived())


@harness.not_san
@harness.only_full
class PatroniCluster(LiveTest):
    together = True
    vhosts = 5
    weight = 20
    time_limit_s = 300

    @classmethod
    def setUpClass(cls):
        if why_no_patroni():
            raise unittest.SkipTest(why_no_patroni())
        directory = tempfile.mkdtemp(prefix='patroni-', dir=os.environ['STACK_DIR'])
        cls.addClassCleanup(shutil.rmtree, directory, ignore_errors=True)
        cls.cluster = Patroni(directory)
        cls.addClassCleanup(cls.cluster.close)

    def logs(self):
        return super().logs() + '\n' + self.cluster.log_tail()

    def test_switchover(self):
        self.survive('switchover', self.cluster.switch_over, lambda leader: None)

    def test_killed_leader(self):
        """Patroni, PostgreSQL and all else there; the machine itself lives, so its kernel refuses connections."""
        self.survive('killed leader', self.cluster.kill, self.cluster.start)

    def test_frozen_leader(self):
        """PostgreSQL stands still, as where its disk hangs, and takes connections."""
        self.survive('frozen leader', lambda leader: self.cluster.freeze(leader, 'postgres'), self.cluster.thaw)

    def test_frozen_leader_with_its_patroni(self):
        self.survive('frozen leader with its Patroni', self.cluster.freeze, self.cluster.thaw)

    def test_network_cut_to_the_leader(self):
        """Nothing reaches it, nor is anybody told so."""
        self.survive('network cut', self.cluster.lan.cut, self.cluster.lan.mend)

    def own_place(self):
        p = self.place(migrate=False)
        self.cluster.make_database(p.database)
        p.postgres = self.cluster.url(p.database)
        p.migrate()
        return p

    def survive(self, name, fault, repair):
        """fault(leader), repair(leader). What the next leader stores is delivered before the old one is back."""
        cluster = self.cluster
        cluster.wait_whole()
        p = self.own_place()
        g = p.gateway()
        inbox = p.load('consume', '--queue', 'flow', '--exchange', 'postdate.delivery', '--bind', 'flow', '--expect', COUNT,
                       '--timeout-s', 240, '--idle-s', 1, '--retry').wait_consuming()
        ledger = Ledger(ready_address(g), p.consumer('ledger', bind='ledger'))
        publisher = p.load('publish', '--routing-key', 'flow', '--count', COUNT, '--rate', RATE, '--delay-spread-ms', SPREAD_MS,
                           '--retry', '--timeout-s', 240)
        wait_until(lambda: len(ledger.arrived()) >= 60, 30, 'messages to flow')
        old, at = cluster.leader(), [now_ms()]
        with contextlib.ExitStack() as whatever_happens:
            whatever_happens.callback(repair, old)
            fault(old)
            cluster.wait_leader(old)
            at.append(now_ms())
            wait_until(lambda: ledger.goes_on_since(at[1] / 1000), GOES_ON_S, 'what the new leader stored to be delivered')
            at.append(now_ms())
        cluster.wait_whole()
        publisher.result()
        ledger.stop()
        r = inbox.result()
        self.judge(p, ledger, r)
        self.note(name, ledger, r, at)
        self.assertEqual(g.term(), 0)

    def note(self, name, ledger, r, at):
        """at: when the fault was, when another led, when something that it stored had come by way of HTTP. RabbitMQ goes on
        delivering what it holds, so the pause begins when that is done: up to 8 s later. It ends with the new leader, and the
        gateway's round over the hosts."""
        since = [f'{(ms - at[0]) / 1000:.1f} s' for ms in (at[1], at[2], r['pause_at_ms'], r['pause_at_ms'] + r['pause_ms'])]
        print(f'note patroni: {name}: {r["distinct"]} by AMQP, {len(ledger.accepted_at)} by HTTP, {len(ledger.cancelled)} of these '
              f'cancelled; {r["duplicates"]} came twice. Another leader after {since[0]}, what it stored delivered after {since[1]}. '
              f'The longest pause of deliveries {r["pause_ms"] / 1000:.1f} s, from {since[2]} to {since[3]}; the latest message '
              f'{r["max_ms"] / 1000:.1f} s late', flush=True)

    def judge(self, p, ledger, r):
        self.assertEqual((r['missing'], r['early'], r['unexpected']), (0, 0, 0), r)
        self.assertEqual(ledger.gone, [], 'accepted, and unknown later')
        try:
            wait_until(lambda: not ledger.missing(), 60, 'all of the ledger')
        except AssertionError as e:
            raise AssertionError(f'{e}: {len(ledger.missing())} are missing: {ledger.missing()[:10]}') from None
        wait_until(lambda: set(p.counts()) <= {'delivered', 'cancelled'}, 60, 'all to be settled')
        self.assertEqual(ledger.early(), [])
        self.assertEqual(ledger.wrong(), [], 'delivered after a cancel that said yes')
        self.assertGreater(len(ledger.cancelled), 50)
