"""The forecast: what is counted while messages come and go is what waits, by whichever way they came, and the slow count mends the rest."""
import json
import time

from harness import LiveTest, wait_until
from test_tokens import Caller, make_token
from web import Web

TRUTH = ("select exchange, floor(extract(epoch from due) / 60)::int, count(*) from postdate.message_now where settled_at is null"
         " and due >= date_trunc('minute', now()) + interval '2 minutes' group by 1, 2 order by 1, 2")
COUNTED = ("select exchange, (extract(epoch from at) / 60)::int, n from postdate.forecast where grain = 60 and n <> 0"
           " and at >= date_trunc('minute', now()) + interval '2 minutes' order by 1, 2")


class Forecast(LiveTest):
    def agree(self, p, what):
        """As they are, without the slow count: so that is what the triggers and the programs noted."""
        p.psql('select postdate.forecast_fold(100000)')
        wait_until(lambda: p.psql(COUNTED) == p.psql(TRUTH), 3, what)

    def test_every_way_in_and_out_is_counted(self):
        p = self.place()
        self.agree(p, 'nothing')
        p.psql("select postdate.schedule('k', 'x'::text, delay => i * interval '3 minutes', exchange => 'e' || i % 3, key => 'k' || i) from generate_series(1, 40) i")
        p.psql("""select postdate.schedule_many('[{"routing_key":"k","delay":"1h","body":"x"},{"routing_key":"k","delay":"90m","body":"x"}]')""")
        self.agree(p, 'SQL')
        code, _, err = p.cli('schedule', '--batch', '-', stdin=b''.join(
            json.dumps({'routing_key': 'k', 'delay_ms': 200000 + i * 7000, 'body': 'x', 'exchange': f'e{i % 4}'}).encode() + b'\n' for i in range(2500)))
        self.assertEqual(code, 0, err)
        self.agree(p, 'the command line')
        p.psql("select postdate.cancel_key('k1', 'e1'), postdate.cancel_key('k1', 'e1'), postdate.cancel_key('none', 'e1')")
        p.psql("select postdate.schedule('k', 'y'::text, delay => '5 hours', exchange => 'e2', key => 'k2', on_conflict => 'replace')")
        p.psql("select postdate.schedule('k', 'y'::text, delay => '6 hours', exchange => 'e0', key => 'k3')")  # kept
        p.psql("select postdate.reschedule(id, delay => '7 hours') from postdate.messages where key = 'k4'")
        p.psql("begin; select postdate.schedule('k', 'y'::text, delay => '8 hours'); rollback")
        self.agree(p, 'cancelled, replaced, moved')
        self.assertEqual(p.cli('cancel', '--exchange', 'e3')[0], 0)
        self.assertEqual(p.cli('reschedule', '--exchange', 'e1', '--shift', '1h')[0], 0)
        p.psql("select postdate.recur_set('r', '@every 1h', 'k', 'x'::text)")
        self.agree(p, 'by filter, and a schedule')
        gw = p.gateway()
        web = Web(gw.http())
        web.post('/v1/messages', {'messages': [{'routing_key': 'k', 'delay': f'{m}m', 'body': 'x', 'exchange': 'http'} for m in range(5, 25)]})
        one = web.post('/v1/messages', {'routing_key': 'k', 'delay': '3h', 'body': 'x', 'key': 'replaced'}).json
        web.post('/v1/messages', {'routing_key': 'k', 'delay': '4h', 'body': 'x', 'key': 'replaced', 'on_conflict': 'replace'})
        self.assertEqual(one['state'], 'scheduled')
        client = p.client()
        for i in range(50):
            client.publish('k', b'x', {'x-delay': 200_000 + i * 60_000})
        wait_until(lambda: p.value("select count(*) from postdate.message_now where exchange = 'postdate.delivery' and hold = 'b'") == '50', 15, 'intake')
        self.agree(p, 'HTTP and AMQP')
        for table in ('3600', '86400'):
            self.assertEqual(p.psql(f'select at, exchange, n from postdate.forecast where grain = {table} and n > 0 order by 1, 2'),
                             p.psql(f"select to_timestamp(floor(extract(epoch from at) / {table}) * {table}), exchange, sum(n) from postdate.forecast"
                                    " where grain = 60 group by 1, 2 having sum(n) > 0 order by 1, 2"))

    def test_the_slow_count_mends_what_is_wrong(self):
        p = self.place()
        p.psql("select postdate.schedule('k', 'x'::text, delay => i * interval '1 minute', exchange => 'e' || i % 3) from generate_series(3, 3000) i")
        p.psql('truncate postdate.forecast, postdate.forecast_change')  # as before the migration
        p.psql("insert into postdate.forecast values (60, date_trunc('minute', now()) + interval '5 hours', 'gone', 7)")
        p.gateway()
        wait_until(lambda: p.psql(COUNTED) == p.psql(TRUTH), 45, 'the slow count to be through')
        self.assertNotEqual(p.value('select counted_at from postdate.forecast_state'), '')
        # in pieces, the smallest being a minute
        p.psql("update postdate.forecast set n = n + 1 where grain = 60 and at > now() + interval '10 minutes'")
        pieces = p.value('create function pieces(most bigint) returns int language plpgsql as $$ declare at timestamptz := to_timestamp(0); n int := 0; begin'
                         " while at < now() + interval '5 days' loop at := postdate.forecast_correct(at, 30, most); n := n + 1; end loop; return n; end $$;"
                         ' select pieces(100)')
        self.assertGreater(int(pieces), 28)
        self.agree(p, 'all pieces')

    def test_what_the_api_says(self):
        p = self.place()
        gw = p.gateway(POSTDATE_HTTP_TOKENS='on')
        description = Web(gw.http()).get('/openapi.json').json
        some, every = (Caller(gw.http(), make_token(p, e), description) for e in ('a', '*'))
        wait_until(lambda: every.get('/v1/forecast').status == 200, 10, 'the token')
        hour = p.value("select to_char(date_trunc('hour', now()) at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:00:00\"Z\"')")
        p.psql(f"select postdate.schedule('k', 'x'::text, due_at => '{hour}'::timestamptz + interval '3 hours 1 minute', exchange => 'a') from generate_series(1, 30)")
        p.psql(f"select postdate.schedule('k', 'x'::text, due_at => '{hour}'::timestamptz + interval '3 hours 2 minutes', exchange => 'b') from generate_series(1, 70)")
        wait_until(lambda: every.get('/v1/forecast').json['total'] == 100, 30, 'the counts to be added up')
        all_of_it = every.get('/v1/forecast?step=1h').json
        self.assertEqual([(b['count'], dict(zip(all_of_it['exchanges'], b['by_exchange']))) for b in all_of_it['buckets']], [(100, {'a': 30, 'b': 70})])
        self.assertEqual((all_of_it['rate_per_s'], all_of_it['rate_is_measured'], all_of_it['bursts']), (1000, False, []))
        minutes = every.get('/v1/forecast?step=1m').json
        self.assertEqual([b['count'] for b in minutes['buckets']], [30, 70])
        self.assertEqual(some.get('/v1/forecast?step=1h').json['buckets'][0]['count'], 30)
        self.assertEqual(some.get('/v1/forecast?exchange=b').problem, 'exchange-not-allowed')
        self.assertEqual(every.get('/v1/forecast?exchange=b').json['total'], 70)
        self.assertEqual(every.get('/v1/forecast?from=2031-01-01T00:00:00Z').json['buckets'], [])
        for wrong in ('step=90s', 'step=61m', 'step=1m&until=2099-01-01T00:00:00Z', 'step=1h&until=2099-01-01T00:00:00Z', 'from=x',
                      'until=2020-01-01T00:00:00Z', 'step=', 'step=-1m', 'what=1', 'from=' + 'x' * 100):
            self.assertEqual(every.get('/v1/forecast?' + wrong).problem, 'invalid-request', wrong)
        # a burst of three seconds' work at the rate that is taken, and one more minute of as much behind it
        p.psql(f"insert into postdate.forecast select 60, '{hour}'::timestamptz + interval '5 hours' + i * interval '1 minute', 'c', 120000 from generate_series(0, 1) i")
        p.psql(f"insert into postdate.forecast values (3600, '{hour}'::timestamptz + interval '5 hours', 'c', 240000)")
        bursts = every.get('/v1/forecast?step=1m').json['bursts']
        self.assertEqual([(b['count'], b['drain_ms']) for b in bursts], [(120000, 120000), (120000, 180000)])
        for step in ('5m', '1h', '6h'):  # found by minutes, whatever the step; which are counted from the hour, so that both are in one
            coarse = every.get(f'/v1/forecast?step={step}&from={hour}').json['bursts']
            self.assertEqual(len(coarse), 1, step)
            self.assertGreaterEqual(coarse[0]['drain_ms'], 240000, step)
        code, out, err = p.cli('forecast', '--json', '--step', '1m')
        self.assertEqual((code, json.loads(out)['bursts']), (0, bursts), err)
        code, out, err = p.cli('forecast')
        self.assertEqual((code, err), (0, ''))
        self.assertRegex(out, r'(?m)^240100 due from .* UTC, by 1 h$')
        self.assertRegex(out, r'(?m)^\d{4}-\d\d-\d\dT\d\d:00 +240000 #{40} burst: 4 min$')
        self.assertRegex(out, r'(?m)^ +70 for b$')
        self.assertIn('burst: 3 min', p.cli('forecast', '--step', '1m')[1])
        self.assertEqual(p.cli('forecast', '--step', '90s')[0], 64)
        # those with the most are named, though many come before them
        p.psql(f"insert into postdate.forecast select 60, '{hour}'::timestamptz + interval '1 hour', 'few.' || i, 1 from generate_series(1, 30) i")
        self.assertEqual(every.get('/v1/forecast?step=1m').json['exchanges'][:3], ['c', 'b', 'a'])
        p.psql("delete from postdate.forecast where exchange like 'few.%'")
        wait_until(lambda: 'postdate_due_messages{within_seconds="86400"} 240100' in Web(gw.http()).get('/metrics').body.decode(), 20, 'the metric')

    def test_two_gateways_count_nothing_twice(self):
        p = self.place()
        p.gateway(), p.gateway()
        began = time.monotonic()
        while time.monotonic() - began < 12:
            p.psql("select postdate.schedule('k', 'x'::text, delay => '2 hours', exchange => 'e' || i % 3) from generate_series(1, 20) i")
        wait_until(lambda: p.value('select count(*) from postdate.forecast_change') == '0', 30, 'all to be added up')
        wait_until(lambda: p.psql(COUNTED) == p.psql(TRUTH), 15, 'both to agree')
