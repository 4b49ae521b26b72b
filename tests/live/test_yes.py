"""A yes is as safe as the database's commits are, whether it rests on what was written or on what was read: with a synchronous standby,
what was answered is there when that one is promoted."""

import tempfile
import time

import harness
from doors import ROWS, Asks, path_of
from harness import wait_until
from standby_kit import StandbyTest
from test_control import Requester
from test_dead import bury
from web import Web, ready_address

HOUR = {'routing_key': 'k', 'delay': '1h', 'body': 'x'}
DAY = time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time.time() + 86400))


@harness.not_san  # the tmpfs of each server is large
class Yes(StandbyTest):
    weight = 20
    who_waits = 'timer'

    def begin(self, **env):
        """A gateway on a primary whose standby is in step."""
        self.pg = self.pair()
        self.p = self.place_on(self.pg)
        self.pg.add_standby()
        self.address = ready_address(self.p.gateway(**env))

    def ask(self, method, path, body=None, **headers):
        web = Web(self.address)
        try:
            return web.ask(method, path, body, {k.replace('_', '-'): v for k, v in headers.items()})
        finally:
            web.close()

    def schedule(self, **fields):
        answer = self.ask('POST', '/v1/messages', HOUR | fields)
        self.assertEqual(answer.status, 201, answer)
        return answer.json['id']

    def state(self, message_id):
        return self.pg.ask(self.p, f"select state from postdate.message_now where id = '{message_id}'")[0][0]


class HttpYes(Asks, Yes):
    """Every operation that HTTP has."""

    def test_no_operation_says_yes_to_what_the_standby_has_not(self):
        """While each wait for it is cancelled: the first answer, and that to the repetition."""
        self.begin()
        requests = [path_of(self.request(row)) for row in ROWS if row.call and row.changes]
        requests = [(method, path, {'due_at': DAY} if method == 'PATCH' else body) for method, path, body in requests]  # which the second one says again
        self.pg.cut_off()
        wrong = []
        with self.pg.waits_are_cancelled():
            for n, (method, path, body) in enumerate(requests):
                for headers in [{}] + [{'Idempotency_Key': f'once{n}'}] * (method == 'POST'):
                    answers = [self.ask(method, path, body, **headers) for _ in range(2)]
                    wrong += [f'{method} {path} {headers}: {a}' for a in answers if a.status != 503 or a.problem != 'unknown-outcome']
                    wrong += [f'{method} {path} {headers}: {a}' for a in answers if 'nothing was' in str(a.json)]
            self.assertEqual(self.ask('GET', '/v1/messages').status, 200, 'who only looks waits for nobody')
        self.assertEqual(wrong, [])
        self.pg.rejoin()
        for request in requests:
            answer = self.ask(*request)
            self.assertIn(answer.status, (200, 201, 404, 409), (request, answer))


class LostYes(Yes):
    """Shown to its end: the primary is lost, and the standby takes over."""

    def test_a_cancel_whose_wait_was_cancelled(self):
        """The repetition is no yes, either. The standby has the message, and delivers it."""
        self.begin()
        inbox = self.p.consumer('q', bind='k')
        message_id = self.schedule(delay='40s')
        self.pg.cut_off()
        with self.pg.waits_are_cancelled():
            answers = [self.ask('DELETE', f'/v1/messages/{message_id}') for _ in range(3)]
        self.assertEqual([a.problem for a in answers], ['unknown-outcome'] * 3, answers)
        self.assertEqual(self.state(message_id), 'cancelled', 'it is visible on the primary')
        self.pg.fail_over()
        self.assertEqual(self.state(message_id), 'scheduled', 'the standby has nothing of it')
        inbox.wait(1, 90)
        wait_until(lambda: self.state(message_id) == 'delivered', 30, 'it to be settled')
        self.assertEqual(self.ask('DELETE', f'/v1/messages/{message_id}').problem, 'too-late')

    def test_a_cancel_whose_session_was_killed(self):
        """By nobody's doing but the kernel's. What waited is visible after the primary's recovery; the repetition waits."""
        self.begin()
        message_id = self.schedule(key='mine')
        self.pg.cut_off()
        first = self.at_once(self.ask, 'DELETE', f'/v1/messages/{message_id}')
        wait_until(lambda: any(name == 'postdate http' for _, name in self.pg.waiting()), 30, 'the cancel to wait')
        self.pg.kill_one_waiting()
        self.assertEqual(first.result().problem, 'unknown-outcome')
        self.assertEqual(self.state(message_id), 'cancelled', 'it is visible')
        while True:
            again = self.at_once(self.ask, 'DELETE', '/v1/messages?key=mine')
            wait_until(lambda: again.done() or any(name == 'postdate http' for _, name in self.pg.waiting()), 60, 'it to wait, too')  # noqa: B023
            if not again.done():
                break
            self.assertEqual(again.result().status, 503, again.result())  # the gateway has not found out yet that PostgreSQL is back
        self.pg.fail_over()
        self.assertIn(again.result().problem or again.result().status, ('unknown-outcome', 200))
        answer = wait_until(lambda: (a := self.ask('DELETE', '/v1/messages?key=mine')).status < 500 and a, 60, 'an answer of the new primary')
        self.assertEqual((answer.status, self.state(message_id)), (200, 'cancelled'))

    def test_a_claim_that_the_standby_has_not(self):
        """It is one of a message by itself, in a transaction without begin and commit. Nothing is published by it."""
        self.begin(POSTDATE_RETRY_FIRST='100ms', POSTDATE_RETRY_MAX='200ms')
        c = self.p.client()
        message_id = self.schedule(routing_key='nobody', delay='0s')
        wait_until(lambda: 'NO_ROUTE' in str(self.ask('GET', f'/v1/messages/{message_id}').json['error']), 30, 'it to be tried in vain')
        self.pg.cut_off()
        with self.pg.waits_are_cancelled() as counts:
            c.queue('q', 'nobody')
            wait_until(lambda: sum(counts) > 50, 60, 'waits to be cancelled')
            self.assertEqual(c.depth('q'), 0)
        self.pg.rejoin()
        self.assertEqual(c.wait_get('q', 90).body, b'x')

    def test_what_is_stored_already(self):
        """By its Idempotency-Key, and by its key."""
        self.begin()
        requests = [(HOUR, {'Idempotency_Key': 'once'}), (HOUR | {'key': 'mine'}, {}),
                    ({'messages': [HOUR | {'key': 'batch'}]}, {'Idempotency_Key': 'batch'})]
        self.pg.cut_off()
        with self.pg.waits_are_cancelled():
            answers = [self.ask('POST', '/v1/messages', body, **headers) for body, headers in requests for _ in range(2)]
        self.assertEqual([a.problem for a in answers], ['unknown-outcome'] * 6, answers)
        count = 'select count(*) from postdate.message_now'
        self.assertEqual(self.pg.ask(self.p, count), [['3']])
        self.pg.fail_over()
        self.assertEqual(self.pg.ask(self.p, count), [['0']])
        wait_until(lambda: self.ask('GET', '/readyz').status == 200, 60, 'the gateway to find the new primary')
        answers = [self.ask('POST', '/v1/messages', body, **headers) for body, headers in requests for _ in range(2)]
        self.assertEqual([a.status for a in answers], [201, 201, 201, 200, 200, 200], answers)
        self.assertEqual(self.pg.ask(self.p, count), [['3']])


class OtherYes(Yes):
    """The control queue, the command line, and other cells."""

    def test_the_control_queue_keeps_what_is_unknown(self):
        self.begin()
        requester = Requester(self.p.amqp)
        self.addCleanup(requester.close)
        message_id = self.schedule()
        self.pg.cut_off()
        with self.pg.waits_are_cancelled():
            asked = [requester.send({'op': 'cancel', 'id': message_id}) for _ in range(2)]
            wait_until(lambda: self.state(message_id) == 'cancelled', 30, 'it to be visible')
            with self.assertRaises(AssertionError, msg='a yes'):
                requester.wait(asked[0], 3)
            self.assertEqual(requester.answers, {})
        self.pg.rejoin()
        self.assertEqual([requester.wait(one, 60)[1]['status'] for one in asked], [200, 200])

    def asked_cell(self, request):
        """The answer once the cell was asked, which is left alone for a while after each failure."""
        answer = None

        def asked():
            nonlocal answer
            answer = self.ask(*request)
            return answer.status < 500 or 'may have done it' in answer.json['detail']
        wait_until(asked, 60, 'the cell to be asked')
        return answer

    def test_another_cell(self):
        """Its commits wait for its standby, as long as an answer of it is waited for; or their waits are cancelled."""
        self.begin()
        own = self.place(vhost=self.p.vhost, prefix='own')
        with tempfile.NamedTemporaryFile('w', suffix='.conf') as cells:
            cells.write(f'[cell own]\npostgres.url = {own.postgres}\n\n[cell other]\npostgres.url = {self.p.postgres}\n')
            cells.flush()
            self.address = ready_address(own.gateway(POSTDATE_CELLS_FILE=cells.name))
        ids = [self.p.value(f"select postdate.schedule('k', 'x'::text, '1 h', key => {key})") for key in ("'mine'", 'null', 'null', 'null')]
        asked = [('DELETE', '/v1/messages?key=mine', None), ('DELETE', f'/v1/messages/{ids[1]}', None), ('PATCH', f'/v1/messages/{ids[2]}', {'due_at': DAY})]
        self.assertEqual(self.ask('GET', f'/v1/messages/{ids[0]}').json['cell'], 'other')
        self.pg.cut_off()
        with self.pg.waits_are_cancelled():
            answers = [self.asked_cell(one) for one in asked for _ in range(2)]
        answers.append(self.asked_cell(('DELETE', f'/v1/messages/{ids[3]}', None)))
        self.assertEqual({a.problem for a in answers}, {'unknown-outcome'}, answers)
        self.pg.rejoin()
        for one in asked:
            wait_until(lambda: self.ask(*one).status in (200, 409), 60, 'an answer')

    def test_the_command_line(self):
        self.begin()
        ids = {kind: self.schedule() for kind in ('cancel', 'reschedule', 'fail')}
        for kind in ('by-filter', 'kept'):
            self.schedule(routing_key=kind, key=kind)
        bury(self.p, 1)
        self.assertEqual(self.p.cli('token', 'create', '--exchange', 'x', '--name', 'old')[0], 0)
        commands = [('cancel', ids['cancel']), ('fail', ids['fail']), ('cancel', '-k', 'by-filter'),
                    ('cancel', '--key', 'kept'), ('schedule', '-k', 'k', '--body', 'x', '--delay', '1h', '--key', 'again'),
                    ('rate', 'set', 'x', '5/s'), ('rate', 'pause', 'x'), ('retry-policy', 'set', 'q', '--attempts', '3'),
                    ('reschedule', ids['reschedule'], '--at', DAY), ('dead', 'drop', '--queue', 'work'),
                    ('token', 'create', '--exchange', 'x', '--name', 'new'), ('token', 'revoke', 'old'),
                    ('recur', 'set', 'r', '--cron', '0 9 1 1 *', '-k', 'k', '--body', 'x'), ('recur', 'pause', 'r')]
        self.pg.cut_off()
        with self.pg.waits_are_cancelled():
            codes = {command: [self.p.cli(*command) for _ in range(2)] for command in commands}
        wrong = {command: done for command, done in codes.items() if any(code == 0 for code, _, _ in done)}
        self.assertEqual(wrong, {})
        self.assertEqual({code for done in codes.values() for code, _, _ in done if code != 69} - {1, 65, 66}, set(), codes)


class NobodyKnows(Yes):
    """'Nothing was changed' is said only where nothing was sent that could change something."""

    def lock_out(self, allowed):
        self.pg.primary.psql(f"set synchronous_commit = local; alter database {self.p.standby_database} allow_connections {allowed}")

    def cut_sessions(self):
        self.pg.primary.psql("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'postdate %'")

    def test_an_answer_that_is_cut_off(self):
        """The database is away then. It has been cancelled, and paused."""
        self.begin()
        self.assertEqual(self.ask('PUT', '/v1/rates/x', {'rate': '5/s'}).status, 200)
        message_id = self.schedule()
        self.pg.cut_off()
        asked = [('DELETE', f'/v1/messages/{message_id}', None), ('POST', '/v1/rates/x/pause', {})]
        first = [self.at_once(self.ask, *one) for one in asked]
        wait_until(lambda: len([1 for _, name in self.pg.waiting() if name == 'postdate http']) == 2, 30, 'both to wait')
        self.lock_out('false')
        self.cut_sessions()
        answers = [one.result() for one in first]
        self.lock_out('true')
        self.assertEqual(self.state(message_id), 'cancelled')
        self.assertEqual(self.pg.ask(self.p, 'select paused from postdate.rates'), [['t']])
        for answer in answers:
            self.assertEqual((answer.status, answer.problem), (503, 'unknown-outcome'), answer)
            self.assertNotIn('nothing was changed', answer.json['detail'])
            self.assertIn('repeating the request is safe', answer.json['detail'])

    def test_what_was_not_sent(self):
        self.begin()
        message_id = self.schedule()
        self.lock_out('false')
        self.cut_sessions()
        answer = self.ask('DELETE', f'/v1/messages/{message_id}')
        self.assertEqual((answer.status, answer.problem), (503, 'database-away'), answer)
        self.assertIn('nothing was changed', answer.json['detail'])
        self.lock_out('true')
        self.assertEqual(self.state(message_id), 'scheduled')
