"""Retry policies as people set them: command line, HTTP, control queue, SQL."""
import json
import shlex
import urllib.parse

import harness
from harness import LiveTest, psql_error, wait_until
from test_tokens import make_token
from web import Web, described, ready_address


class PolicyCommands(LiveTest):
    def setUp(self):
        super().setUp()
        self.p = self.place()

    def run_cli(self, *args, code=0):
        found, out, err = self.p.cli('retry-policy', *args)
        self.assertEqual(found, code, (args, out, err))
        return out

    def policies(self):
        """Without the built-in one, which is the last."""
        *those_set, built_in = [json.loads(line) for line in self.run_cli('list', '--json').splitlines()]
        self.assertEqual((built_in['is_default'], built_in['attempts']), (True, 10))
        return those_set

    def test_set_list_remove(self):
        self.run_cli('set', 'orders.*', '--attempts', '5', '--first', '250ms', '--factor', '1.5', '--max', '1h30m', '--jitter', '0%', '--on',
                     'rejected,expired', '--keep-dead', '7d')
        orders = {'pattern': 'orders.*', 'attempts': 5, 'first': '250ms', 'factor': 1.5, 'max': '1h30m', 'jitter': 0, 'on': ['rejected', 'expired'],
                  'keep_dead': '7d'}
        self.assertEqual(self.policies(), [orders])
        self.run_cli('set', 'orders.*')
        default = {'pattern': 'orders.*', 'attempts': 10, 'first': '1s', 'factor': 2.0, 'max': '1h', 'jitter': 10,
                   'on': ['rejected', 'delivery_limit'], 'keep_dead': '30d'}
        self.assertEqual(self.policies(), [default])
        self.assertEqual(len(self.run_cli('list').splitlines()), 3)
        self.run_cli('remove', 'orders.*')
        self.run_cli('remove', 'orders.*', code=66)
        self.assertEqual(self.policies(), [])
        self.p.psql("select postdate.retry_policy_set('by.sql')")
        self.assertEqual(self.policies(), [dict(default, pattern='by.sql')])

    def test_show_tells_which_one_counts(self):
        self.run_cli('set', '*', '--attempts', '2')
        self.run_cli('set', 'orders.*', '--attempts', '4', '--first', '10s', '--max', '30s')
        shown = json.loads(self.run_cli('show', 'orders.new', '--json'))
        self.assertEqual((shown['pattern'], shown['is_default'], shown['waits']), ('orders.*', False, ['10s', '20s', '30s']))
        self.assertEqual(json.loads(self.run_cli('show', 'order', '--json'))['pattern'], '*')
        self.run_cli('remove', '*')
        shown = json.loads(self.run_cli('show', 'order', '--json'))
        self.assertEqual((shown['is_default'], len(shown['waits'])), (True, 9))
        self.assertIn('10s, 20s, 30s', self.run_cli('show', 'orders.new'))
        # No command takes a right away that the user has.
        self.assertRegex(self.run_cli('show', 'orders.new'), r"(?s)second of its patterns: orders\\\.new\n.*list_user_permissions 'guest'\n"
                                                             r"rabbitmqctl set_permissions -p '[^']*' 'guest' …\n$")

    def test_the_command_that_it_shows_makes_retries_work(self):
        p, queue = self.p, "it's (a) queue.+"
        p.gateway()
        c = p.client()
        for kind in ('quorum', 'classic'):
            name = queue + kind
            c.queue(name, arguments={'x-queue-type': kind})
            text = self.run_cli('show', name).splitlines()
            command = text[next(i for i, line in enumerate(text) if line.lower().startswith(kind)) + 1]
            harness.stack().rabbitmqctl(*shlex.split(command)[1:])
            self.run_cli('set', name, '--first', '50ms')
            c.publish(name, b'x', exchange='')
            method = wait_until(lambda: c.channel.basic_get(name)[0], 10, 'the first delivery')
            c.channel.basic_reject(method.delivery_tag, requeue=False)
            self.assertEqual(c.wait_get(name, 15).headers['x-postdate-attempt'], 2)

    def test_what_is_wrong_is_named(self):
        for args, word in ((('set',), 'pattern'), (('set', 'q', '--attempts', '0'), '1 to 1000'), (('set', 'q', '--attempts', 'x'), '--attempts'),
                           (('set', 'q', '--first', '1x'), '--first'), (('set', 'q', '--first', '2h'), 'longer than max'),
                           (('set', 'q', '--factor', '0.5'), '1 to 100'), (('set', 'q', '--jitter', '101%'), '0 to 100'),
                           (('set', 'q', '--on', 'nack'), 'delivery_limit'), (('set', ''), '1 to 255'), (('list', 'x'), 'no argument'),
                           (('show',), 'queue'), (('remove', '--attempts', '3', 'q'), 'an option of set'), ((), 'specify set')):
            code, _, err = self.p.cli('retry-policy', *args)
            self.assertEqual(code, 64, (args, err))
            self.assertIn(word, err, args)
        self.assertEqual(self.policies(), [])


class PolicyHttp(LiveTest):
    def setUp(self):
        super().setUp()
        self.p = self.place()

    def open(self, **env):
        return ready_address(self.p.gateway(**env))

    def test_set_show_match_remove(self):
        address = self.open()
        web = described(self, address)
        for pattern in ('orders.*', 'a/b:c?d %+#', 'ä', '*'):
            path = '/v1/retry-policies/' + urllib.parse.quote(pattern, safe='')
            answer = web.ask('PUT', path, {'attempts': 4, 'first': '2s', 'on': ['rejected', 'maxlen']})
            self.assertEqual(answer.status, 200, answer)
            expected = {'pattern': pattern, 'attempts': 4, 'first': '2s', 'factor': 2.0, 'max': '1h', 'jitter': 10, 'on': ['rejected', 'maxlen'],
                        'keep_dead': '30d'}
            self.assertEqual((answer.json, web.get(path).json), (expected, expected))
            self.assertEqual(web.ask('PUT', path, expected).status, 200)  # as it was read
            self.assertEqual(web.ask('PUT', path, dict(expected, pattern='x')).status, 422)
            self.assertIn(expected, web.get('/v1/retry-policies').json['policies'])
        match = web.get('/v1/retry-policies:match?queue=orders.new').json
        self.assertEqual((match['pattern'], match['waits'], match['is_default']), ('orders.*', ['2s', '4s', '8s'], False))
        for pattern in ('orders.*', 'a/b:c?d %+#', 'ä', '*'):
            path = '/v1/retry-policies/' + urllib.parse.quote(pattern, safe='')
            self.assertEqual([web.ask('DELETE', path).status for _ in range(2)], [200, 404])
        self.assertEqual(web.get('/v1/retry-policies').json, {'policies': []})
        self.assertTrue(web.get('/v1/retry-policies:match?queue=orders.new').json['is_default'])
        for body, word in (({'attempts': 0}, '1 to 1000'), ({'first': '1x'}, 'first'), ({'first': 5}, 'duration'), ({'first': '2h'}, 'longer than max'),
                           ({'factor': '2'}, 'factor'), ({'on': 'rejected'}, 'array'), ({'on': ['nack']}, 'maxlen'), ({'colour': 1}, 'unknown field')):
            answer = web.ask('PUT', '/v1/retry-policies/q', body)
            self.assertEqual((answer.status, word in answer.json['detail']), (422, True), answer)
        for path in ('%', '%zz', '%00'):
            self.assertEqual(web.get('/v1/retry-policies/' + path).status, 400)
        self.assertEqual(web.get('/v1/retry-policies:match').status, 400)
        self.assertEqual(web.ask('PUT', '/v1/retry-policies/' + 'q' * 256, {}).status, 422)

    def test_the_ten_thousandth_is_the_last(self):
        """The list has no pages, and a gateway reads no more. One that is there is still changed."""
        web = described(self, self.open(POSTDATE_HTTP_TIMEOUT='1m'))
        self.p.psql("insert into postdate.retry_policy (pattern, attempts, first, max, factor, jitter, reasons, keep_dead) "
                    "select 'q' || n, 10, '1 s', '1 h', 2, 10, '{rejected}', '30 d' from generate_series(1, 9999) n")
        self.assertEqual(web.ask('PUT', '/v1/retry-policies/last', {}).status, 200)
        said = 'there are too many retry policies. There are 10000. Set one for several queues, with *, or remove some.'
        answer = web.ask('PUT', '/v1/retry-policies/more', {})
        self.assertEqual((answer.status, answer.problem, answer.json['detail']), (422, 'invalid-message', said), answer)
        code, _, err = self.p.cli('retry-policy', 'set', 'more')
        self.assertEqual((code, said in err), (65, True), err)
        self.assertEqual(psql_error(self.p.postgres, "select postdate.retry_policy_set('more')")[0], '22023')
        self.assertEqual(web.ask('PUT', '/v1/retry-policies/last', {'attempts': 3}).status, 200)
        listed = web.get('/v1/retry-policies').json['policies']
        self.assertEqual((len(listed), [x['attempts'] for x in listed if x['pattern'] == 'last']), (10000, [3]))
        self.assertEqual(web.ask('DELETE', '/v1/retry-policies/q1').status, 200)
        self.assertEqual(web.ask('PUT', '/v1/retry-policies/more', {}).status, 200)

    def test_a_token_for_all_exchanges_lists_what_is_of_any(self):
        web = Web(self.open(POSTDATE_HTTP_TOKENS='on'))
        some, every = ({'Authorization': 'Bearer ' + make_token(self.p, e)} for e in ('orders', '*'))
        wait_until(lambda: web.ask('GET', '/v1/retry-policies', None, every).status == 200, 10, 'the token')
        self.assertEqual(web.ask('GET', '/v1/stats', None, some).status, 200)
        self.assertEqual(web.ask('PUT', '/v1/retry-policies/q', {}, dict(every, **{'Content-Type': 'application/json'})).status, 200)
        hour = {'routing_key': 'k', 'exchange': 'anything', 'delay': '1h', 'body': 'x'}
        made = web.ask('POST', '/v1/messages', hour, every)
        self.assertEqual(made.status, 201, made)
        self.assertEqual(web.ask('GET', '/v1/messages/' + made.json['id'], None, every).status, 200)
        self.assertEqual(web.ask('GET', '/v1/messages/' + made.json['id'], None, some).status, 404)
        self.assertEqual(len(web.ask('GET', '/v1/messages', None, every).json['messages']), 1)
        intake = dict(hour, exchange='', routing_key='postdate.intake')
        self.assertEqual(web.ask('POST', '/v1/messages', intake, every).status, 403)

