"""A message that is in doubt for good is ended by hand: `postdate fail`, SQL, HTTP, the control queue."""
from harness import SharedTest, wait_until
from test_control import Requester
from test_stalled import Queue
from web import Web


class Fail(SharedTest):
    who_waits = 'timer'
    gateway_env = {'POSTDATE_RETRY_FIRST': '100ms', 'POSTDATE_RETRY_MAX': '200ms', 'POSTDATE_RETRY_ATTEMPTS': '1000'}

    def setUp(self):
        super().setUp()
        self.web = Web(self.gw.http())
        self.addCleanup(self.web.close)

    def row(self, message_id):
        return self.p.psql(f"select state, coalesce(error, '') from postdate.message_now where id = '{message_id}'")[0]

    def doubt(self, exchange):
        """The broker did not take it (a nack: perhaps another queue did), and then its exchange went."""
        channel = self.c.channel
        channel.exchange_declare(exchange, 'fanout')
        self.c.queue(exchange, '', exchange, arguments={'x-max-length': 1, 'x-overflow': 'reject-publish'})
        channel.basic_publish(exchange, '', b'fills it')
        message_id = self.p.value(f"select postdate.schedule('k', '{exchange}', '0 s', exchange => '{exchange}')")
        wait_until(lambda: 'nack' in self.row(message_id)[1], 10, 'a nack')
        channel.exchange_delete(exchange)
        wait_until(lambda: 'no exchange' in self.row(message_id)[1], 10, 'its exchange to be missed')
        self.assertEqual(self.p.value(f"select postdate.cancel('{message_id}')"), 'too_late')
        self.assertIn(self.p.value(f"select postdate.retry('{message_id}')"), ('retried', 'not_failed'), 'its next attempt comes at once, or is under way')
        return message_id

    def until_not_busy(self, ask, busy):
        """A gateway publishes it now and then."""
        last = []

        def done():
            last[:] = [ask()]
            return last[0] != busy
        wait_until(done, 10, 'no gateway to be publishing it')
        return last[0]

    def assert_failed(self, message_id, by):
        state, error = self.row(message_id)
        self.assertEqual(state, 'failed')
        self.assertRegex(error, r'^may have been delivered; ended by an operator \(' + by + r'\); before: .*no exchange')

    def test_by_the_command_line_and_then_retried(self):
        message_id = self.doubt('gone.cli')
        self.assertEqual(self.until_not_busy(lambda: self.p.cli('fail', message_id)[:2], (75, f'{message_id} busy: a gateway is publishing it, try again\n')),
                         (0, f'{message_id} failed\n'))
        self.assert_failed(message_id, 'postdate')
        self.assertEqual(self.p.cli('fail', message_id)[:2], (0, f'{message_id} failed\n'))
        self.assertEqual(self.p.cli('cancel', message_id)[:2], (1, f'{message_id} too late\n'))  # it may have been delivered
        self.assertEqual(self.p.cli('reschedule', message_id, '--delay', '1h')[:2], (1, f'{message_id} too late\n'))
        self.c.channel.exchange_declare('gone.cli', 'fanout')
        self.c.queue('again', '', 'gone.cli')
        self.assertEqual(self.p.cli('retry', message_id)[:2], (0, f'{message_id} retried\n'))
        self.assertEqual(self.c.wait_get('again').body, b'gone.cli')
        wait_until(lambda: self.row(message_id)[0] == 'delivered', 10, 'it to be settled')
        self.assertEqual(self.gw.lines_with('recovered .*' + message_id), [], 'nobody died')
        self.assertEqual(self.p.cli('fail', message_id)[:2], (1, f'{message_id} too late\n'))
        nobody = '00000000-0000-8000-8000-000000000000'
        self.assertEqual(self.p.cli('fail', nobody)[:2], (66, f'{nobody} not found\n'))

    def test_by_sql_http_control_queue_and_filter(self):
        by_sql, by_http, by_control, by_filter = [self.doubt('gone.' + way) for way in ('sql', 'http', 'control', 'filter')]
        self.assertEqual(self.until_not_busy(lambda: self.p.value(f"select postdate.fail('{by_sql}')"), 'busy'), 'failed')
        self.assertEqual(self.p.value(f"select postdate.fail('{by_sql}')"), 'failed')
        self.assertEqual(self.p.value("select postdate.fail('00000000-0000-8000-8000-000000000000')"), 'not_found')
        self.assert_failed(by_sql, 'postdate')
        self.assertEqual(self.p.value(f"select postdate.cancel('{by_sql}')"), 'too_late')
        self.assertEqual(self.p.value(f"select postdate.reschedule('{by_sql}', '1 hour')"), 'too_late')
        self.assertEqual(self.until_not_busy(lambda: self.web.post(f'/v1/messages/{by_http}:fail', {}).status, 409), 200)
        self.assert_failed(by_http, 'postdate')
        self.assertEqual(self.web.post(f'/v1/messages/{by_http}:retry', {'x': 1}).status, 422)
        retried = self.web.post(f'/v1/messages/{by_http}:retry', {})
        self.assertEqual(retried.status, 200, retried)
        self.assertEqual(retried.json['state'], 'claimed')  # in doubt, as before
        self.assertEqual(self.p.value(f"select postdate.cancel('{by_http}')"), 'too_late')
        self.gw.wait_log('audit: by .*: fail ' + by_http)
        requester = Requester(self.p.amqp)
        self.addCleanup(requester.close)
        self.assertEqual(self.until_not_busy(lambda: requester.ask({'op': 'fail', 'id': by_control})['status'], 409), 200)
        self.assert_failed(by_control, 'postdate')
        counts = wait_until(lambda: self.web.post('/v1/messages:fail', {'filter': {'exchange': 'gone.filter'}}).json['changed'], 10, 'one to be failed')
        self.assertEqual(counts, 1)
        self.assert_failed(by_filter, 'postdate')

    def test_not_while_a_gateway_is_publishing_it(self):
        dead = Queue(self.p, 'dead')
        self.p.psql("select postdate.schedule('dead', 'first', '0 s', exchange => '')")
        self.assertEqual(dead.client.wait_get('dead').body, b'first')
        dead.suspend()
        message_id = self.p.value("select postdate.schedule('dead', 'x', '0 s', exchange => '')")
        try:
            wait_until(lambda: self.row(message_id)[0] == 'claimed', 10, 'it to be claimed')
            self.assertEqual(self.p.value(f"select postdate.fail('{message_id}')"), 'busy')
            self.assertEqual(self.web.post(f'/v1/messages/{message_id}:fail', {}).problem, 'busy')
        finally:
            dead.resume()
        wait_until(lambda: self.row(message_id)[0] == 'delivered', 10, 'it to be delivered')
        self.assertEqual(dead.bodies(), [b'x'])

    def test_what_waits_is_ended_without_doubt(self):
        message_id = self.p.value("select postdate.schedule('k', 'x', '1 hour')")
        self.assertEqual(self.p.value(f"select postdate.fail('{message_id}')"), 'failed')
        self.assertEqual(self.row(message_id), ['failed', 'ended by an operator (postdate)'])
        self.assertEqual(self.p.value(f"select postdate.retry('{message_id}')"), 'retried')
        self.assertEqual(self.row(message_id)[0], 'scheduled')
        self.assertEqual(self.p.value(f"select postdate.fail('{message_id}')"), 'failed')
        self.assertEqual(self.p.value(f"select postdate.cancel('{message_id}')"), 'cancelled')
