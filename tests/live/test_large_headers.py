"""RabbitMQ sends headers that have grown past frame_max, by x-death. They are read, and stop nobody."""
import re
import statistics
import struct
import time

import harness
from harness import LiveTest, wait_until
from hostile_broker import BODY, deliver, frame, header, short, table
from picky_broker import PickyBroker
from test_retries import QUORUM, RetryKit
from web import Web

LARGE = {'large': 'x' * 131_000}  # with x-death more than a frame of 131,072 bytes may have
ACK = (60, 80)


def in_rejected(c, body):
    m = c.get('postdate.rejected')
    return m if m and m.body == body else None


class LargeHeaders(LiveTest):
    weight = 3

    def test_what_expired_on_its_way_in_keeps_nobody_waiting(self):
        p = self.place()
        p.gateway().term()
        c = p.client()
        c.publish('k', b'large', LARGE, expiration='1')
        for i in range(200):
            c.publish('k', b'expired %d' % i, expiration='1')
        wait_until(lambda: c.depth('postdate.intake.expired') == 201, 20, 'all to expire')
        gw = p.gateway()
        inbox = p.consumer('q', bind='k')
        for i in range(200):
            c.publish('k', b'%d' % i, {'x-delay': 10})
        try:
            wait_until(lambda: len({m.body for m in inbox.all()}) >= 400, 20, 'all small ones')
        finally:
            late = [m.at_ms - m.due_ms for m in inbox.all()] or [0]
            print(f'note large headers: {len(inbox.all())} deliveries, median lateness {statistics.median(late):.0f} ms', flush=True)
        large = wait_until(lambda: in_rejected(c, b'large'), 10, 'the large one')
        self.assertIn('(allowed: at most 122880)', large.headers['x-postdate-error'])
        self.assertEqual(len(inbox.all()), 400)
        self.assertEqual(gw.lines_with('not AMQP'), [])
        self.assertEqual(gw.term(), 0)

    def test_a_header_too_large_to_be_kept_is_refused_and_the_next_one_is_read(self):
        p = self.place()
        broker = PickyBroker(p.amqp)
        self.addCleanup(broker.close)
        gw = p.gateway(POSTDATE_AMQP_URL=broker.url)
        acknowledged = []

        def sends_a_header_of_3_MB(c):
            properties = struct.pack('>H', 1 << 13) + table(short(b'large') + b'S' + table(b'x' * 3_000_000))
            c.send(deliver(1, c.tag), header(5, properties), frame(BODY, 1, b'large'), deliver(2, c.tag), header(5), frame(BODY, 1, b'small'))
            while 2 not in acknowledged:
                _, _, payload = c.read()
                if struct.unpack('>HH', payload[:4]) == ACK:
                    tag, multiple = struct.unpack('>QB', payload[4:])
                    acknowledged.extend(range(1, tag + 1) if multiple else [tag])
        broker.be_hostile({'intake': [sends_a_header_of_3_MB]})
        wait_until(lambda: set(acknowledged) == {1, 2}, 20, 'both to be dealt with')
        wait_until(lambda: b'large' in broker.taken, 10, 'the large one to be rejected')
        gw.wait_log('moved 1 message to postdate.rejected')
        broker.be_real()
        self.assertEqual(gw.term(), 0)


class LargeRefusals(RetryKit):
    def test_a_refused_message_with_large_headers_keeps_no_other_from_coming_back(self):
        p, c = self.start()
        self.policy(p, '*', 3, '100 ms', 1, '1 s')
        c.queue('work', arguments=QUORUM)
        refuser = self.refuser(p, 'work')
        c.publish('work', b'large', LARGE, exchange='')
        for i in range(20):
            c.publish('work', b'%d' % i, exchange='')
        wait_until(lambda: len([m for m in refuser.messages if m.body != b'large']) == 60, 20, 'all small ones three times')
        wait_until(lambda: c.depth('postdate.retry') == 0, 10, 'nothing to be left over')
        row = "select error from postdate.message_now where convert_from(body, 'utf8') = 'large'"
        wait_until(lambda: 'properties and headers have' in (p.value(row) or ''), 10, 'the large one to be refused, with the reason')


class Reopened(LiveTest):
    time_limit_s = 200

    @harness.not_san  # it waits a minute
    def test_a_queue_of_the_gateway_that_does_not_answer_is_told(self):
        """To who consumes it, it looks empty."""
        p = self.place()
        gw = p.gateway()
        c = p.client()
        c.queue('q', 'k')
        web = Web(gw.http())
        self.addCleanup(web.close)
        p.eval_queue('postdate.intake', 'ra:stop_server(quorum_queues, amqqueue:get_pid(Q)).')
        began = time.monotonic()
        try:
            gw.wait_log("intake: queue 'postdate.intake': cannot stop consumer", 60)
            gw.wait_log('intake: its connection to RabbitMQ was lost 3 times in a row', 120)
            print(f'note it was told after {time.monotonic() - began:.0f} s', flush=True)
            self.assertIs(web.get('/readyz').json['broker_reopening'], True)
        finally:
            p.eval_queue('postdate.intake', 'ra:restart_server(quorum_queues, amqqueue:get_pid(Q)).')
        c.publish('k', b'afterwards', {'x-delay': 10})
        self.assertEqual(c.wait_get('q', 30).body, b'afterwards')
        self.assertEqual(gw.term(), 0)

    def test_a_connection_that_is_lost_again_and_again_is_told(self):
        p = self.place()
        broker = PickyBroker(p.amqp)
        self.addCleanup(broker.close)
        gw = p.gateway(POSTDATE_AMQP_URL=broker.url)
        web = Web(gw.http())
        self.addCleanup(web.close)
        self.assertIs(web.get('/readyz').json['broker_reopening'], False)

        def sends_nonsense(c):
            c.send(b'nonsense')
        broker.be_hostile({'intake': [sends_nonsense] * 3})
        gw.wait_log('intake: its connection to RabbitMQ was lost 3 times in a row soon after it was opened; now: .*not AMQP 0-9-1')
        self.assertEqual((web.get('/readyz').status, web.get('/readyz').json['broker_reopening']), (200, True))
        metrics = web.get('/metrics').body.decode()
        self.assertIn('\npostdate_broker_connections_reopening 1\n', metrics)
        self.assertGreaterEqual(int(re.search(r'^postdate_broker_connections_lost_total (\d+)$', metrics, re.M)[1]), 3)
        broker.be_real()
        self.assertEqual(gw.term(), 0)
