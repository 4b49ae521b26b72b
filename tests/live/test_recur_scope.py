"""Schedules of others, and texts that are long: what a token, or a SQL user, learns and holds up by them."""
import base64

from harness import LiveTest, wait_until
from test_tokens import Caller, make_token

DAILY = {'cron': '0 9 * * *', 'routing_key': 'k', 'body': 'secret'}


class Scopes(LiveTest):
    def setUp(self):
        super().setUp()
        self.p = self.place()
        tokens = [make_token(self.p, name, name=name) for name in ('a', 'b')]
        self.gw = self.p.gateway(POSTDATE_HTTP_TOKENS='on')
        self.a, self.b = (Caller(self.gw.http(), token) for token in tokens)
        wait_until(lambda: self.a.get('/v1/messages').status == self.b.get('/v1/messages').status == 200, 10, 'the tokens to be known')
        answer = self.b.ask('PUT', '/v1/recurring/nightly', dict(DAILY, exchange='b', headers={'n': 1}))
        self.assertEqual(answer.status, 201, answer)

    def test_a_foreign_schedule_that_is_held_delays_nobody(self):
        session = self.p.session()
        session.run('begin')
        session.run("select name from postdate.recur where name = 'nightly' for update")
        got = [self.a.ask(method, '/v1/recurring/nightly' + suffix, body)
               for method, suffix, body in (('PUT', '', dict(DAILY, exchange='a')), ('DELETE', '', None), ('POST', ':pause', {}), ('POST', ':run', {}))]
        self.assertEqual([(a.status, a.problem) for a in got], [(403, 'exchange-not-allowed')] + [(404, 'not-found')] * 3)
        session.run('rollback')
        session.close()
        self.assertEqual(self.b.get('/v1/recurring/nightly').json['exchange'], 'b')

    def test_what_would_be_changed_shows_a_sql_user_no_bodies(self):
        rows = self.p.psql("select name, change, old - 'from', fields from postdate.recur_apply('{}', true, '')")
        self.assertEqual([row[:2] for row in rows], [['nightly', '-']])
        self.assertNotIn('secret', rows[0][2])
        self.assertNotIn('headers', rows[0][2])
        self.assertIn('0 9 * * *', rows[0][2])

    def test_lengths_are_asked_for_before_letters(self):
        for field, value in (('cron', '0 ' * 500_000), ('zone', 'Europe/' * 100_000), ('grace', '1' * 900_000), ('jitter', '1s' * 400_000), ('from', '2' * 900_000)):
            answer = self.a.ask('PUT', '/v1/recurring/long', dict(DAILY, exchange='a', **{field: value}))
            self.assertEqual((answer.status, answer.problem), (422, 'invalid-message'), answer)
            self.assertIn(f'recur: {field} is too long. It has {len(value)} bytes. Allowed are up to 1000.', answer.json['detail'])
        body = {k: v for k, v in DAILY.items() if k != 'body'}
        large = base64.b64encode(b'\xff' * 2_000_000).decode()
        self.assertEqual(self.a.ask('PUT', '/v1/recurring/large', dict(body, exchange='a', body_base64=large)).status, 201)
        self.assertEqual(self.a.get('/v1/recurring/large').json['body_base64'], large)
        for wrong in (large[:-1], large[:100] + '\n' + large[100:], '=', 'YQ', 'YR==', 'Y'):
            answer = self.a.ask('PUT', '/v1/recurring/wrong', dict(body, exchange='a', body_base64=wrong))
            self.assertIn('body_base64 is not base64', answer.json['detail'])

    def test_many_at_once_do_not_reach_the_gateways_own_exchanges(self):
        for exchange in ('postdate', 'postdate.exit', 'postdate.receipts'):
            rows = self.p.psql("select ordinal, id is null, error from postdate.schedule_many("
                               f"""'[{{"routing_key": "k", "delay_ms": 60000, "body": "x", "exchange": "{exchange}"}}]')""")
            self.assertEqual(rows[0][:2], ['1', 't'], rows)
            self.assertIn("one of the gateway's own", rows[0][2].replace("''", "'"))
