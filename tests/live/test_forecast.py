"""The forecast: what is counted is what waits, by whichever way it came, piece by piece."""
import json
import time

from harness import LiveTest, wait_until
from test_tokens import Caller, make_token
from web import Web

TRUTH = ("select exchange, floor(extract(epoch from due) / 60)::int, count(*) from postdate.message_now where settled_at is null"
         " and due >= date_trunc('minute', now()) + interval '2 minutes' group by 1, 2 order by 1, 2")
COUNTED = ("select exchange, (extract(epoch from at) / 60)::int, n from postdate.forecast_minute"
           " where at >= date_trunc('minute', now()) + interval '2 minutes' order by 1, 2")
HOUR = "insert into postdate.forecast (at, exchange, minutes, n) values ({}, '{}', {}, {})"
ROUND = "do $$ begin while postdate.forecast_count('all', 400, 100000) loop end loop; end $$"


class Forecast(LiveTest):
    def agree(self, p, what):
        def counted():
            p.psql(ROUND)
            return p.psql(COUNTED) == p.psql(TRUTH)
        wait_until(counted, 10, what)

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
        self.assertEqual(p.psql('select at, exchange, n from postdate.forecast where n > 0 order by 1, 2'),
                         p.psql("select hour, exchange, sum(n) from postdate.forecast_minute group by 1, 2 having sum(n) > 0 order by 1, 2"))

    def test_what_is_wrong_is_counted_anew(self):
        p = self.place()
        p.psql("select postdate.schedule('k', 'x'::text, delay => i * interval '1 minute', exchange => 'e' || i % 3) from generate_series(3, 3000) i")
        p.psql(HOUR.format("date_trunc('hour', now()) + interval '5 hours'", 'gone', 'array_fill(7, array[60])', 420))
        p.gateway()
        wait_until(lambda: p.psql(COUNTED) == p.psql(TRUTH), 45, 'the count to be through')
        self.assertEqual(p.value('select count(counted_at) from postdate.forecast_round'), '2')

    def pieces(self, p, most):
        """How many a round has."""
        p.psql("create or replace function pieces(most bigint) returns int language plpgsql as $$ declare n int := 1; begin"
               " while postdate.forecast_count('all', 30, most) loop n := n + 1; end loop; return n; end $$")
        return int(p.value(f'select pieces({most})'))

    def test_a_round_in_small_pieces(self):
        """Many due in one minute, too, of which no piece is more than it may be."""
        p = self.place()
        p.psql("select postdate.schedule('k', 'x'::text, delay => i * interval '1 minute', exchange => 'e' || i % 3) from generate_series(3, 1000) i")
        p.psql("select postdate.schedule('k', 'x'::text, due_at => date_trunc('minute', now()) + interval '90 minutes 1 second', exchange => 'e' || i % 3)"
               " from generate_series(1, 1000) i")
        self.assertGreater(self.pieces(p, 100), 19)
        self.assertEqual(p.psql(COUNTED), p.psql(TRUTH))
        written = "select string_agg(xmin::text, ' ' order by at, exchange) from postdate.forecast"
        before = p.value(written)
        self.assertGreater(self.pieces(p, 50), 39)
        self.assertEqual(p.psql(COUNTED), p.psql(TRUTH))
        self.assertEqual(p.value(written), before, 'what has not changed is not written')

    def test_a_locked_day_is_passed_by(self):
        p = self.place()
        p.psql("select postdate.schedule('k', 'x'::text, due_at => (date_trunc('day', now() at time zone 'utc') + d * interval '1 day' + interval '1 minute')"
               " at time zone 'utc', exchange => 'day ' || d) from unnest(array[1, 2, 3]) d")
        day = p.value("select ((now() at time zone 'utc') + interval '2 days')::date")
        locker = p.session()
        locker.run(f'begin; lock table postdate.{p.day(day)} in access exclusive mode')
        p.psql('truncate postdate.forecast')
        p.gateway()
        counted = "select string_agg(exchange, ',' order by at) from postdate.forecast_minute where n = 1"
        wait_until(lambda: p.value(counted) == 'day 1,day 3', 60, 'those beside it')
        locker.run('rollback')
        locker.close()
        wait_until(lambda: p.value(counted) == 'day 1,day 2,day 3', 60, 'all of them')

    def test_what_took_long_to_count_rests_before_it_is_counted_again(self):
        """Ten million were counted all the time, at 4.5 % of a core."""
        p = self.place()
        last = "update postdate.forecast_round set counted_at = now() - interval '{} min', through_at = now() - interval '{} min'"
        p.psql("select postdate.schedule('k', 'x'::text, delay => '5 hours')")
        self.agree(p, 'one')
        counted = p.psql(COUNTED)
        p.psql(last.format(9, 1))  # it took 8 minutes
        p.psql("select postdate.schedule('k', 'x'::text, delay => d) from (values (interval '1 hour'), ('6 hours')) v (d)")
        p.psql(ROUND)
        self.assertEqual(p.psql(COUNTED), counted)
        p.psql(ROUND.replace("'all'", "'soon'"))
        self.assertEqual(len(p.psql(COUNTED)), len(counted) + 1, 'what is due soon')
        p.psql(last.format(34, 26))
        self.agree(p, 'all after three times as long')
        p.psql(last.format(9, -1))
        p.psql("select postdate.schedule('k', 'x'::text, delay => '7 hours')")
        self.agree(p, 'the clock was set back')

    def test_what_the_api_says(self):
        p = self.place()
        gw = p.gateway(POSTDATE_HTTP_TOKENS='on')
        description = Web(gw.http()).get('/openapi.json').json
        some, every = (Caller(gw.http(), make_token(p, e), description) for e in ('a', '*'))
        wait_until(lambda: every.get('/v1/forecast').status == 200, 10, 'the token')
        hour = p.value("select to_char(date_trunc('hour', now()) at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:00:00\"Z\"')")
        p.psql(f"select postdate.schedule('k', 'x'::text, due_at => '{hour}'::timestamptz + interval '3 hours 1 minute', exchange => 'a') from generate_series(1, 30)")
        p.psql(f"select postdate.schedule('k', 'x'::text, due_at => '{hour}'::timestamptz + interval '3 hours 2 minutes', exchange => 'b') from generate_series(1, 70)")
        wait_until(lambda: every.get('/v1/forecast').json['total'] == 100, 30, 'all to be counted')
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
        nobody = p.session()  # counts meanwhile
        nobody.run('begin; select name from postdate.forecast_round for update')
        # a burst of three seconds' work at the rate that is taken, and one more minute of as much behind it
        p.psql(HOUR.format(f"'{hour}'::timestamptz + interval '5 hours'", 'c', 'array[120000, 120000] || array_fill(0, array[58])', 240000))
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
        for i in range(1, 31):
            p.psql(HOUR.format(f"'{hour}'::timestamptz + interval '1 hour'", f'few.{i}', 'array[1] || array_fill(0, array[59])', 1))
        self.assertEqual(every.get('/v1/forecast?step=1m').json['exchanges'][:3], ['c', 'b', 'a'])
        p.psql("delete from postdate.forecast where exchange like 'few.%'")
        wait_until(lambda: 'postdate_due_messages{within_seconds="86400"} 240100' in Web(gw.http()).get('/metrics').body.decode(), 20, 'the metric')
        nobody.close()

    def test_two_gateways_count_nothing_twice(self):
        p = self.place()
        p.gateway(), p.gateway()
        began = time.monotonic()
        while time.monotonic() - began < 12:
            p.psql("select postdate.schedule('k', 'x'::text, delay => '2 hours', exchange => 'e' || i % 3) from generate_series(1, 20) i")
        wait_until(lambda: p.psql(COUNTED) == p.psql(TRUTH), 30, 'both to agree')
