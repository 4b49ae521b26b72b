"""Every operation at every door: over HTTP, the control queue and the command line one request has one answer, whether it is good, wrong, not
allowed, about what is not there, or the database is away. The rows are those of doors.py; what the program lists is the measure that none is missing."""
import functools
import re

from doors import COMMANDS, OTHERS, ROWS, ROWS_OF, Asks, plain, printed
from harness import LiveTest, SharedTest, wait_until
from test_tokens import make_token
from web import Web, operation_of, ready_address

PROBLEMS = {401: 'unauthorized', 403: 'exchange-not-allowed', 404: 'not-found'}


def each(rows):
    """Runs a test for each of the rows: all of those that fail are told."""
    def mark(test):
        @functools.wraps(test)
        def run(self):
            for row in rows:
                with self.subTest(str(row)):
                    test(self, row)
        return run
    return mark


class DoorTest(Asks, SharedTest):
    def setUp(self):
        super().setUp()
        address = ready_address(self.gw)
        self.root = Web(address).get('/openapi.json').json
        self.open_doors(address, self.root)

    def unchanged(self, request, ask):
        """What it answers; all that has the request's name is the same after it."""
        rows = ROWS_OF.replace('@', request.name)
        before = self.p.psql(rows)
        answer = ask(request)
        self.assertEqual(self.p.psql(rows), before, answer)
        return answer

    def answers(self, request, token=None):
        """By both doors that take fields, of what changes nothing."""
        answers = [self.unchanged(request, lambda r, door=door: door(r, token)) for door in (self.http, self.control)]
        return [a for a in answers if a is not None]

    def refused(self, request, token=None):
        """With the same words at each door."""
        answers = self.answers(request, token)
        self.assertEqual(len({a.refusal() for a in answers}), 1, answers)
        self.assertGreaterEqual(answers[0].status, 400, answers)
        return answers[0]

    def cli(self, request, *more, **env):
        """(exit code, standard output, standard error)"""
        return self.p.cli(*request.words, *more, env=env)


class Doors(DoorTest):
    """With all rights."""

    def test_every_operation_of_the_program_has_its_row(self):
        described = {f'{m.upper()} {path}' for path, item in self.root['paths'].items() if path.startswith('/v1/') for m in item if m != 'parameters'}
        self.assertEqual({row.call for row in ROWS} - {None}, described)
        allowed = self.control.requester.ask({'op': 'none'})['detail'].rsplit(' are ', 1)[1]
        self.assertEqual({row.op for row in ROWS}, set(allowed.split(', ')))
        told = [line.split('\t') for line in self.p.cli('--print-commands')[1].splitlines()]
        verbs = {f'{x[1]} {x[2]}' for x in told if x[0] == 'verb'}
        commands = verbs | {x[1] for x in told if x[0] == 'command'} - {v.split()[0] for v in verbs}
        lines = [row.command for row in ROWS if row.command] + COMMANDS
        self.assertEqual({c for c in commands if any((line + ' ').startswith(c + ' ') for line in lines)} | OTHERS, commands)

    @each(ROWS)
    def test_a_good_request_has_one_answer(self, row):
        answers = []
        for door in (self.http, self.control):
            request = self.request(row)
            answer = door(request)
            if answer is not None:
                self.assertEqual(answer.status, row.status, answer)
                answers.append(plain(request, answer.value))
                self.assertEqual(answer.value.get('changed', 1), 1)
        if row.command:
            request = self.request(row)
            rc, out, err = self.cli(request)
            self.assertEqual(rc, 0, (request.words, out, err))
            self.assertTrue(re.search(row.says, out + err), (request.words, out, err))
            if '--json' in request.words:
                answers.append(plain(request, printed(out)))
        for other in answers[1:]:
            self.assertEqual(other, answers[0])

    @each(ROWS)
    def test_a_wrong_field_is_named_and_changes_nothing(self, row):
        for change in ({'nonsense': 'x'}, row.bad):
            if change:
                problem = self.refused(self.request(row, change=change))
                self.assertIn(problem.status, (400, 422), problem)
                self.assertRegex(problem.detail, list(change.get('filter', change))[-1] + '|no other field|no fields|nothing else')

    @each([row for row in ROWS if row.command])
    def test_a_wrong_word_is_named_and_changes_nothing(self, row):
        request = self.request(row)
        rc, out, err = self.unchanged(request, lambda r: self.cli(r, '--nonsense'))
        self.assertEqual((rc, out), (64, ''), err)
        self.assertIn('unknown option --nonsense', err)
        if row.changed():
            request = self.request(row, change=row.bad)
            rc, out, err = self.unchanged(request, self.cli)
            self.assertIn(rc, (64, 65), (request.words, err))
            self.assertEqual((out, err.count('\n')), ('', 1), (request.words, err))

    @each(ROWS)
    def test_what_is_not_there_is_said_not_to_be_there(self, row):
        if row.call:
            self.assertEqual('404' in operation_of(self.root, *row.call.split())['responses'], row.one, 'as it is described')
        if row.one:
            problem = self.refused(self.request(row, there=False))
            self.assertEqual((problem.status, problem.problem), (404, 'not-found'), problem)
        if row.one and row.command:
            request = self.request(row, there=False)
            rc, out, err = self.cli(request)
            self.assertEqual(rc, 66, (request.words, out, err))
            self.assertIn(request.fields.get('id', request.name), out + err)

    def commands(self):
        return [self.request(row).words for row in ROWS if row.command] + [line.split() for line in COMMANDS]

    def test_a_role_of_postgresql_without_rights_may_nothing(self):
        role = 'doors_' + self.p.database
        self.p.psql(f'create role {role} login')
        self.addCleanup(self.p.stack.psql, f'drop role {role}')
        for words in self.commands():
            with self.subTest(words):
                rc, out, err = self.p.cli(*words, env={'POSTDATE_POSTGRES_URL': re.sub(r'user=\w+', 'user=' + role, self.p.postgres)})
                self.assertEqual((rc, out, err.count('\n')), (77, '', 1), err)

    def test_a_command_without_its_database(self):
        for words in self.commands():
            with self.subTest(words):
                rc, out, err = self.p.cli(*words, env={'POSTDATE_POSTGRES_URL': 'postgresql:///postdate?host=/nonexistent'})
                self.assertEqual((rc, out, err.count('\n')), (69, '', 1), err)
                self.assertIn('/nonexistent', err)


class DoorsWithTokens(DoorTest):
    """Who has no token, one that only reads, or one for other exchanges."""
    gateway_env = {'POSTDATE_HTTP_TOKENS': 'on'}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.all, cls.reader, cls.stranger = (make_token(cls.p, e, name=name, role=role) for e, name, role in
                                             (('*', 'all', None), ('*', 'reader', 'read'), ('other', 'stranger', None)))

    def setUp(self):
        super().setUp()
        whoami = self.request(next(row for row in ROWS if row.op == 'whoami'))
        for token in (self.all, self.reader, self.stranger):
            wait_until(lambda t=token: self.http(whoami, t).status == 200, 10, 'the token to be known')

    @each(ROWS)
    def test_without_a_token_nothing_is_told(self, row):
        request = self.request(row)
        for token in (None, 'x', self.all[:-1], 'pdt_' + '0' * 32):
            problem = self.refused(request, token)
            self.assertEqual((problem.status, problem.problem), (401, 'unauthorized'))
            self.assertNotIn(request.name, str(problem.value))

    @each(ROWS)
    def test_a_reader_changes_nothing(self, row):
        request = self.request(row)
        if row.changes:
            problem = self.refused(request, self.reader)
            self.assertEqual((problem.status, problem.problem), (403, 'role-not-allowed'), problem)
            self.assertIn('the role read', problem.detail)
        else:
            self.assertEqual({a.status for a in self.answers(request, self.reader)}, {200})

    @each(ROWS)
    def test_a_token_for_other_exchanges_finds_nothing_and_changes_nothing(self, row):
        """What is another's is answered as what is not there."""
        request = self.request(row)
        if row.foreign == 200:
            for answer in self.answers(request, self.stranger):
                self.assertEqual((answer.status, request.name in str(answer.value)), (200, False), answer)
            return
        problem = self.refused(request, self.stranger)
        self.assertEqual((problem.status, problem.problem), (row.foreign, PROBLEMS[row.foreign]), problem)
        if row.foreign == 404:
            missing = self.request(row, there=False)
            self.assertEqual(plain(request, problem.value), plain(missing, self.refused(missing, self.stranger).value))

    @each(ROWS)
    def test_one_for_all_exchanges_may_all(self, row):
        for door in (self.http, self.control):
            answer = door(self.request(row), self.all)
            self.assertEqual(answer.status if answer else row.status, row.status, answer)


class DoorsWithoutADatabase(Asks, LiveTest):
    """HTTP says so, and the control queue answers when it is back."""
    weight = 5
    COUNTED = ('stats', 'overview')  # by the gateway: they are told without

    def test_while_the_database_is_away(self):
        p = self.p = self.place()
        address = ready_address(p.gateway())
        self.open_doors(address)
        requests = [(self.request(row), self.request(row)) for row in ROWS]
        p.stack.psql(f'alter database {p.database} with allow_connections false')
        p.stack.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{p.database}'")
        wait_until(lambda: Web(address).get('/v1/stats').json['database'] == 'away', 20, 'the gateway to find it out')
        sent = []
        for request, other in requests:
            sent.append((other, self.control.send(other)))
            self.assert_away(request, self.http(request), ('database-away', 'not-ready'))
        self.control.requester.connection.process_data_events(time_limit=0)
        early = [request.row.op for request, i in sent if i in self.control.requester.answers]
        self.assertEqual(set(early) - set(self.COUNTED), set())
        p.stack.psql(f'alter database {p.database} with allow_connections true')
        for request, i in sent:
            answer = self.control.wait(i)
            self.assertEqual(answer.status, request.row.status, (request, answer))

    def test_before_there_is_one(self):
        p = self.p = self.place()
        gateway = p.gateway(wait=False, POSTDATE_POSTGRES_URL='postgresql:///none?host=/nonexistent')
        self.open_doors(gateway.http())
        for row in ROWS:
            request = self.request(row)
            self.assert_away(request, self.http(request), ('not-ready',))

    def assert_away(self, request, answer, problems):
        if answer and request.row.op in self.COUNTED:
            self.assertIn('away', str(answer.value['database']), (request, answer))
        elif answer:
            self.assertEqual((answer.status, answer.problem in problems), (503, True), (request, answer))
