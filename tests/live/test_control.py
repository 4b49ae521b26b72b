"""The control queue, as pika uses it."""
import json
import os
import re
import subprocess
import sys
import time
import uuid

import pika

import harness
from broker_users import documented_user
from harness import LiveTest, SharedTest, wait_until
from test_tokens import make_token
from web import Web

QUEUE = 'postdate.control'
HOUR = {'op': 'schedule', 'delay': '1h', 'body': 'x'}


class Requester:
    """Asks and waits for the answer, by a reply queue of its own or by direct reply-to."""

    def __init__(self, url, direct=False):
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self.answers = {}
        self.reply_to = 'amq.rabbitmq.reply-to' if direct else \
            self.channel.queue_declare('', exclusive=True).method.queue
        self.channel.basic_consume(self.reply_to, self._take, auto_ack=True)

    def _take(self, channel, method, properties, body):
        self.answers[properties.correlation_id] = (properties, json.loads(body))

    def send(self, request, correlation_id=None, reply_to=True, **properties):
        correlation_id = correlation_id or str(uuid.uuid4())
        body = request if isinstance(request, bytes) else json.dumps(request).encode()
        reply_to = self.reply_to if reply_to is True else reply_to
        self.channel.basic_publish('', QUEUE, body, pika.BasicProperties(
            correlation_id=correlation_id, reply_to=reply_to, delivery_mode=2, **properties))
        return correlation_id

    def wait(self, correlation_id, deadline_s=15):
        end = time.monotonic() + deadline_s * harness.slowness()
        while correlation_id not in self.answers:
            if time.monotonic() > end:
                raise AssertionError('no answer over the control queue')
            self.connection.process_data_events(time_limit=0.02)
        return self.answers.pop(correlation_id)

    def ask(self, request, **properties):
        return self.wait(self.send(request, **properties))[1]

    def close(self):
        self.connection.close()


class Control(SharedTest):
    def setUp(self):
        super().setUp()
        self.r = Requester(self.p.amqp)
        self.addCleanup(self.r.close)

    def name(self):
        return self.id().rsplit('.', 1)[-1]

    def schedule(self, **fields):
        answer = self.r.ask(dict(HOUR, routing_key=self.name(), **fields))
        self.assertEqual(answer['status'], 201, answer)
        return answer

    def test_headers_that_ask_for_something_are_refused_by_name(self):
        """The body says all; who writes it into a header is told so, and nothing is done. What Postdate writes on what it delivers is no matter."""
        for header, value, instead in (('x-postdate-kye', 'k', 'fields'), ('x-postdate-key', 'k', 'fields'), ('X-Delay', 5000, 'fields'), ('x-delay', '5s', 'fields'),
                                       ('x-opt-delivery-time', 1, 'fields'), ('Idempotency-Key', 'a', 'message-id'), ('authorization', 'Bearer x', 'token'), ('If-Match', 'x', 'if_match')):
            answer = self.r.ask(dict(HOUR, routing_key=self.name()), headers={header: value})
            self.assertEqual((answer['status'], answer['type'].rsplit(':', 1)[-1]), (400, 'invalid-request'), (header, answer))
            self.assertRegex(answer['detail'], f'^{header}: .*{instead}')
        answer = self.r.ask(dict(HOUR, routing_key=self.name()), headers={'x-postdate-id': 'a', 'x-postdate-due': 1, 'x-delay': -5, 'x-delayed': 1, 'team': 'a'})
        self.assertEqual(answer['status'], 201, answer)
        self.assertEqual(self.p.value(f"select count(*) from postdate.message_now where routing_key = '{self.name()}'"), '1')

    def test_many_at_once(self):
        answer = self.r.ask({'op': 'schedule', 'messages': [{'routing_key': self.name(), 'delay': '1h', 'body': str(i)}
                                                            for i in range(50)] + [{'routing_key': 'x'}]})
        self.assertEqual([r['status'] for r in answer['results']], [201] * 50 + [422])
        filters = {'routing_key': self.name()}
        self.assertEqual(self.r.ask({'op': 'cancel', 'filter': filters, 'dry_run': True})['matched'], 50)
        shift = {'op': 'reschedule', 'filter': filters, 'shift_ms': 1000}
        self.assertEqual(self.r.ask(shift)['status'], 400)  # a second delivery would shift twice
        key = str(uuid.uuid4())
        for _ in range(2):
            answer = self.r.ask(shift, message_id=key)
            self.assertEqual((answer['status'], answer['changed']), (200, 50))
        spread = self.p.value('select count(*) from postdate.message_now where state = \'superseded\' '
                              f"and routing_key = '{self.name()}'")
        self.assertEqual(spread, '50')  # shifted once
        self.assertEqual(self.r.ask({'op': 'cancel', 'filter': filters})['changed'], 50)

    def test_a_message_id_schedules_once(self):
        request, key = dict(HOUR, routing_key=self.name()), str(uuid.uuid4())
        first = self.r.ask(request, message_id=key)
        again = self.r.ask(request, message_id=key)
        self.assertEqual((first['status'], again), (201, first))
        other = self.r.ask(dict(request, body='y'), message_id=key)
        self.assertEqual(other['status'], 422)
        self.assertEqual(self.p.value(f"select count(*) from postdate.message_now where routing_key = '{self.name()}'"), '1')

    def test_metrics_count_it_apart_from_http(self):
        def counted():
            text = Web(self.gw.http()).get('/metrics').body.decode()
            return [int(re.search(rf'(?m)^postdate_messages_{what}_total\{{way="{way}"\}} (\d+)$', text)[1])
                    for what in ('accepted', 'kept') for way in ('http', 'control')]
        before = counted()
        self.schedule(key=self.name())
        self.assertEqual(self.r.ask(dict(HOUR, routing_key=self.name(), key=self.name()))['status'], 200)
        wait_until(lambda: [a - b for a, b in zip(counted(), before)] == [0, 1, 0, 1], 10, 'one stored, one kept')
        message = {'routing_key': self.name(), 'delay': '1h', 'body': 'x'}
        self.assertEqual(Web(self.gw.http()).post('/v1/messages', {'messages': [message] * 2}).status, 200)
        wait_until(lambda: [a - b for a, b in zip(counted(), before)] == [2, 1, 0, 1], 10, 'two more by HTTP')

    def test_the_documented_example(self):
        with open(os.path.join(harness.ROOT, 'docs', 'examples', 'control.py'), encoding='utf-8') as f:
            code = f.read()
        done = []
        for page, name in (('control-queue.md', 'clerk'), ('install.md', 'shop')):
            url = documented_user(self, self.p, name, 'docs', page)
            done.append(subprocess.run([sys.executable, '-c', code.replace('timeout_s=10', 'timeout_s=3') if done else code],
                                       env=self.p.env(AMQP_URL=url), capture_output=True, text=True, timeout=60))
        self.assertRegex(done[0].stdout, r'^201 [0-9a-f-]{36}\n20[0-9T:.-]+Z\ncancelled\n$', done[0].stderr)
        self.assertIn('no answer: may this user write to amq.default?', done[1].stderr)

    def test_direct_reply_to(self):
        direct = Requester(self.p.amqp, direct=True)
        self.addCleanup(direct.close)
        for i in range(20):
            correlation_id = direct.send(dict(HOUR, routing_key=self.name()), correlation_id=f'n-{i}')
            properties, answer = direct.wait(correlation_id)
            self.assertEqual((answer['status'], properties.content_type), (201, 'application/json'))

    def test_bad_requests_are_answered_once_and_gone(self):
        cases = [(b'', 400), (b'{', 400), (b'[]', 422), (b'"x"', 422), (b'\xff\xfe', 400), (b'{"op":"show","op":"list"}', 400),
                 (b'{' * 5000, 422), ({}, 422), ({'op': 'steal'}, 422), ({'op': 5}, 422), ({'op': None}, 422),
                 ({'op': 'show'}, 400), ({'op': 'show', 'id': 5}, 422), ({'op': 'show', 'id': 'no-uuid'}, 404),
                 ({'op': 'show', 'id': 'x', 'color': 'red'}, 400), ({'op': 'cancel', 'id': ''}, 422),
                 ({'op': 'cancel', 'key': 'nobody'}, 404), ({'op': 'reschedule', 'delay': '1h'}, 422),
                 ({'op': 'reschedule', 'id': str(uuid.uuid4()), 'delay': '1h'}, 404), ({'op': 'retry'}, 422),
                 ({'op': 'retry', 'id': str(uuid.uuid4()), 'x': '1'}, 422), ({'op': 'show', 'filter': {}}, 422),
                 ({'op': 'cancel', 'filter': {'key': 'x'}, 'id': 'x'}, 422), ({'op': 'cancel', 'id': None}, 422), ({'op': 'list', 'page_size': 0}, 400),
                 ({'op': 'list', 'state': ['failed']}, 422), ({'op': 'schedule'}, 422), ({'op': 'stats', 'token': 5}, 422),
                 (dict(HOUR, routing_key='r', id='x'), 422), (dict(HOUR, routing_key='r', delay='soon'), 422),
                 (dict(HOUR, routing_key='r', body='y' * 2_200_000), 413)]
        sent = [(self.r.send(request), request, status) for request, status in cases]
        for correlation_id, request, status in sent:
            properties, answer = self.r.wait(correlation_id)
            self.assertEqual(answer['status'], status, (str(request)[:80], answer))
            self.assertTrue(answer['type'].startswith('urn:postdate:problem:'))
            self.assertEqual(properties.content_type, 'application/problem+json')
        wait_until(lambda: self.c.depth(QUEUE) == 0, 10, 'the queue to be empty')
        self.assertEqual(self.gw.process.poll(), None)

    def test_an_answer_that_nobody_takes_disturbs_nothing(self):
        key = self.name()
        for reply_to in (None, 'no.such.queue', 'amq.rabbitmq.reply-to.gone', 'postdate.control', 'postdate.intake',
                         'postdate.rejected', 'x' * 255):
            self.r.send(dict(HOUR, routing_key=key), reply_to=reply_to)
        gone = Requester(self.p.amqp)
        gone.send(dict(HOUR, routing_key=key))
        gone.close()
        count = f"select count(*) from postdate.message_now where routing_key = '{key}'"
        wait_until(lambda: self.p.value(count) == '8', 10, 'all eight to be stored')
        self.schedule()
        wait_until(lambda: self.c.depth(QUEUE) == 0, 10, 'the queue to be empty')
        self.assertEqual(self.p.value(f"select count(*) from postdate.message_now where routing_key in ('{QUEUE}', 'postdate.intake')"),
                         '0')
        self.assertEqual(self.c.depth('postdate.rejected'), 0)

    def test_a_locked_row_does_not_stop_the_others(self):
        m = self.schedule()
        session = self.p.session()
        session.run('begin')
        session.run(f"select id from postdate.message where id = '{m['id']}' for update")
        stuck = self.r.send({'op': 'cancel', 'id': m['id']})
        self.schedule()
        self.assertEqual(self.r.ask({'op': 'show', 'id': m['id']})['status'], 200)
        self.assertNotIn(stuck, self.r.answers, 'the others had to wait for it')
        self.assertEqual(self.r.wait(stuck)[1]['status'], 503)
        session.run('rollback')
        session.close()
        self.assertEqual(self.r.ask({'op': 'cancel', 'id': m['id']})['status'], 200)


class ControlTokens(SharedTest):
    gateway_env = {'POSTDATE_HTTP_TOKENS': 'on', 'POSTDATE_HTTP_LISTEN': 'off'}

    def setUp(self):
        super().setUp()
        self.r = Requester(self.p.amqp)
        self.addCleanup(self.r.close)

    def test_a_token_is_asked_for_and_limits(self):
        a, b = make_token(self.p, 'a'), make_token(self.p, 'b')
        wait_until(lambda: self.r.ask({'op': 'stats', 'token': b})['status'] == 200, 5, 'the tokens to be known')
        mine = self.r.ask(dict(HOUR, token=a, exchange='a', routing_key='k', key='k1'))
        self.assertEqual(mine['status'], 201)
        self.assertEqual(self.r.ask({'op': 'show', 'id': mine['id'], 'token': ''})['status'], 401)
        self.assertEqual(self.r.ask(dict(HOUR, token=b, routing_key='k'))['status'], 403)
        self.assertEqual(self.r.ask({'op': 'list', 'token': b})['messages'], [])
        self.assertEqual(self.r.ask({'op': 'cancel', 'token': b, 'filter': {}})['status'], 422)
        self.assertEqual(self.r.ask({'op': 'cancel', 'token': b, 'filter': {}, 'all': True})['matched'], 0)
        self.assertNotIn('messages', self.r.ask({'op': 'stats', 'token': b}))
        self.assertEqual(self.r.ask({'op': 'show', 'token': a, 'id': mine['id']})['state'], 'scheduled')
        # a message-id belongs to its token
        same = str(uuid.uuid4())
        first = self.r.ask(dict(HOUR, token=a, exchange='a', routing_key='k'), message_id=same)
        second = self.r.ask(dict(HOUR, token=b, exchange='b', routing_key='k'), message_id=same)
        self.assertEqual((first['status'], second['status'], second['exchange']), (201, 201, 'b'))
        self.assertNotIn(a, self.gw.log())


class ControlFaults(LiveTest):
    def test_a_killed_gateway_leaves_its_requests_to_the_next(self):
        p = self.place()
        gw = p.gateway()
        r = Requester(p.amqp)
        self.addCleanup(r.close)
        session = p.session()
        session.run('begin')
        session.run("lock table postdate.message in exclusive mode")  # nothing is stored for now
        sent = [r.send(dict(HOUR, routing_key='k', body=str(i)), message_id=f'm-{i}') for i in range(8)]
        client = p.client()
        wait_until(lambda: client.depth(QUEUE) == 0, 10, 'the gateway to have read them')
        self.assertEqual(r.answers, {})
        gw.kill9()
        session.run('rollback')
        session.close()
        p.gateway()
        for correlation_id in sent:
            self.assertEqual(r.wait(correlation_id)[1]['status'], 201)
        self.assertEqual(p.value("select count(*) from postdate.message_now where routing_key = 'k'"), '8')

    def test_a_database_that_is_away_is_waited_for(self):
        p = self.place()
        gw = p.gateway()
        r = Requester(p.amqp)
        self.addCleanup(r.close)
        self.assertEqual(r.ask(dict(HOUR, routing_key='k'))['status'], 201)
        connections = "select pg_terminate_backend(pid) from pg_stat_activity where datname = '%s'" % p.database
        p.stack.psql(f'alter database {p.database} with allow_connections false')
        p.stack.psql(connections)
        # one of a kind that must not be done twice, and some more than are read at once
        sent = [r.send(dict(HOUR, routing_key='k'), message_id=f'm-{i}') for i in range(20)]
        gw.wait_log(r'trying again until it works')
        end = time.monotonic() + 1.5
        while time.monotonic() < end:  # they stay unanswered
            r.connection.process_data_events(time_limit=0.1)
        self.assertEqual(r.answers, {})
        p.stack.psql(f'alter database {p.database} with allow_connections true')
        for correlation_id in sent:
            self.assertEqual(r.wait(correlation_id, 20)[1]['status'], 201)
        self.assertEqual(p.value('select count(*) from postdate.message_now'), '21')
        self.assertEqual(len(gw.lines_with('trying again until it works')), 1)
        self.assertEqual(gw.term(), 0)

    def test_what_takes_the_gateway_down_again_and_again_is_parked(self):
        p = self.place()
        self.assertEqual(p.gateway().term(), 0)
        r = Requester(p.amqp)
        self.addCleanup(r.close)
        r.send({'op': 'stats'}, correlation_id='poison')
        client = p.client()
        for _ in range(21):  # as many gateways that die over it (RabbitMQ 4.3 does not count a nack)
            dying = p.client()
            wait_until(lambda d=dying: d.channel.basic_get(QUEUE)[0], 10, 'it to be delivered again')
            dying.close()
        wait_until(lambda: client.depth('postdate.rejected') == 1, 10, 'it to be parked')
        self.assertEqual(client.depth(QUEUE), 0)
        p.gateway()
        self.assertEqual(r.ask({'op': 'stats'})['status'], 200)
        self.assertEqual(client.get('postdate.rejected').properties.correlation_id, 'poison')

    def test_a_deleted_control_queue_comes_back(self):
        p = self.place()
        gw = p.gateway()
        client = p.client()
        client.channel.queue_delete(QUEUE)
        wait_until(lambda: client.depth(QUEUE) is not None, 15, 'the queue to be declared again')
        r = Requester(p.amqp)
        self.addCleanup(r.close)
        self.assertEqual(r.ask({'op': 'stats'})['status'], 200)
        self.assertEqual(gw.term(), 0)

    def test_a_control_queue_of_another_kind_stops_nothing_else(self):
        p = self.place()
        client = p.client()
        client.channel.queue_declare(QUEUE, durable=True)  # classic
        gw = p.gateway()
        gw.wait_log("the control queue can't be used")
        consumer = p.consumer('q', declare=True)
        client.channel.queue_declare('postdate.delivery.test', durable=True)
        client.publish('q', b'x', {'x-delay': 100, 'x-postdate-exchange': ''})
        consumer.wait(1)
        client.channel.queue_delete(QUEUE)
        gw.wait_log('the control queue can be used again')
        self.assertEqual(len(gw.lines_with("can't be used")), 1)
