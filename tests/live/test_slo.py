"""The objective for lateness: every delivery is counted once, whoever makes it, and stays counted."""
import datetime
import json
import os
import re
import time

import harness
from harness import LiveTest, wait_until
from test_tokens import Caller, make_token
from web import Web

OVERDUE = """insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body, state)
             select d, d, postdate.id_make(d), 'g', 'postdate.delivery', 'k', '\\x100002', 'late', 'scheduled' from (select now() - interval '1 minute') x (d)"""
NOW = {'routing_key': 'k', 'delay': '0s', 'body': 'x'}


class Slo(LiveTest):
    who_waits = 'timer'

    def slo(self, gw):
        web = Web(gw.http())
        return Web(gw.http(), web.get('/openapi.json').json).get('/v1/slo').json

    def wait_counted(self, gw, delivered):
        wait_until(lambda: self.slo(gw)['window']['delivered'] == delivered, 15, f'{delivered} deliveries to be counted')
        return self.slo(gw)

    def test_the_page_says_how_to_list_late_ones(self):
        p = self.place(transport='timer')
        gw = p.gateway()
        p.client().queue('q', bind=['k'])
        self.assertEqual(gw.term(), 0)
        p.cli('schedule', '-k', 'k', '--delay', '0s', '--body', 'late')
        time.sleep(1.2)
        p.gateway()
        p.cli('schedule', '-k', 'k', '--delay', '1s', '--body', 'in time')
        wait_until(lambda: p.counts() == {'delivered': 2}, 15, 'both to be delivered')
        with open(os.path.join(harness.ROOT, 'docs', 'metrics.md'), encoding='utf-8') as f:
            sql, = re.findall(r'```sql\n(.*?)```', f.read(), re.S)
        hour, now = datetime.timedelta(hours=1), datetime.datetime.now(datetime.timezone.utc)
        for written, at in (('2026-12-24 08:00+01', now - hour), ('2026-12-24 09:00+01', now + hour)):
            self.assertIn(written, sql)
            sql = sql.replace(written, at.isoformat())
        self.assertIn("'5 s'", sql)
        in_time, late = (row[0] for row in p.psql('select settled_at - due_at from postdate.messages order by 1'))
        self.assertEqual(p.value(f"select interval '{late}' >= interval '1.2 s'"), 't', late)
        for more_than, rows in (('-1 day', 2), (in_time, 1), (late, 0)):  # however late a busy machine is
            self.assertEqual(len(p.psql(sql.replace('5 s', more_than).strip().rstrip(';'))), rows, more_than)

    def test_early_late_and_over_a_restart(self):
        p = self.place(transport='timer')
        gw = p.gateway(POSTDATE_SLO_LATE='30s', POSTDATE_SLO_TARGET='75%')
        p.client().queue('q', bind=['k'])
        self.assertEqual(self.slo(gw)['window'], {'delivered': 0, 'late': 0, 'share': None, 'budget_left': 1})
        self.assertIsNone(self.slo(gw)['since'])
        Web(gw.http()).post('/v1/messages', {'messages': [NOW] * 9})
        self.assertEqual(self.wait_counted(gw, 9)['window']['late'], 0)
        self.assertEqual(gw.term(), 0)
        p.psql(OVERDUE)
        first = p.gateway(POSTDATE_SLO_LATE='30s', POSTDATE_SLO_TARGET='75%')
        second = p.gateway(POSTDATE_SLO_LATE='30s', POSTDATE_SLO_TARGET='75%')
        one = self.wait_counted(second, 10)
        self.assertEqual(one['window'], {'delivered': 10, 'late': 1, 'share': 0.9, 'budget_left': 0.6})
        self.assertEqual(one['objective'], {'late_ms': 30000, 'target': 0.75, 'window_ms': 30 * 86400000})
        self.assertEqual({b['window']: (b['delivered'], b['late'], b['rate']) for b in one['burn']},
                         {w: (10, 1, 0.4) for w in ('5m', '30m', '1h', '6h', '1d', '3d')})
        self.assertEqual(one['after_retry'], {'delivered': 0, 'late': 0, 'late_since_attempt': 0})
        for _ in range(4):
            Web(first.http()).post('/v1/messages', NOW)
            Web(second.http()).post('/v1/messages', NOW)
        self.assertEqual(self.wait_counted(first, 18)['window']['late'], 1)
        self.assertEqual(p.value('select sum(delivered) from postdate.slo_count'), '18')
        code, out, err = p.cli('status', '--json', env={'POSTDATE_SLO_LATE': '30s', 'POSTDATE_SLO_TARGET': '75%'})
        self.assertEqual((code, json.loads(out)['slo']['window']['delivered']), (0, 18), err)
        wait_until(lambda: 'postdate_slo_window_ratio 0.94' in Web(first.http()).get('/metrics').body.decode(), 20, 'the metric')
        text = Web(first.http()).get('/metrics').body.decode()
        for line in ('postdate_slo_late_seconds 30', 'postdate_slo_target_ratio 0.75', 'postdate_slo_budget_left_ratio 0.77'):
            self.assertIn(line, text)
        self.assertRegex(text, r'postdate_slo_deliveries_total\{within="yes",attempt="first"\} \d')
        screen = p.cli('status', env={'POSTDATE_SLO_LATE': '30s', 'POSTDATE_SLO_TARGET': '75%'})[1]
        self.assertIn('objective    75% within 30 s in 30 d: 94.44% of 18; 78% of the budget left', screen)
        # Too few to judge, and more than all of it.
        for target, said in (('99.9%', 'of 18; too few to judge, which takes 1000'), ('94.5%', 'the budget is used up 1.0 times'), ('94%', '7% of the budget left')):
            screen = p.cli('status', env={'POSTDATE_SLO_LATE': '30s', 'POSTDATE_SLO_TARGET': target})[1]
            self.assertIn(said, screen)
        p.psql('update postdate.slo_count set delivered = 1000, late = 40')
        self.assertIn('the budget is used up ', p.cli('status', env={'POSTDATE_SLO_TARGET': '99.9%'})[1])

    def test_a_retry_is_kept_apart(self):
        p = self.place(transport='timer')
        gw = p.gateway(POSTDATE_SLO_LATE='3s', POSTDATE_RETRY_FIRST='8s')
        Web(gw.http()).post('/v1/messages', NOW)  # nothing is bound: it comes back
        wait_until(lambda: p.value('select max(attempts) from postdate.message_now') == '1', 10, 'the first attempt')
        p.client().queue('q', bind=['k'])
        one = self.wait_counted(gw, 1)
        self.assertEqual((one['window']['late'], one['after_retry']),
                         (1, {'delivered': 1, 'late': 1, 'late_since_attempt': 0}))
        text = Web(gw.http()).get('/metrics').body.decode()
        self.assertIn('postdate_slo_deliveries_total{within="no",attempt="again"} 1', text)
        since_due, since_attempt = 'postdate_lateness_seconds', 'postdate_lateness_since_attempt_seconds'
        for line in (since_due + '_count 1', since_due + '_bucket{le="2.5"} 0', since_attempt + '_count 1', since_attempt + '_bucket{le="2.5"} 1'):
            self.assertIn(line + '\n', text)
        self.assertGreater(float(re.search(since_due + r'_sum (\S+)', text)[1]), 2.5)
        # What is delivered at its first attempt is not among them.
        Web(gw.http()).post('/v1/messages', NOW)
        self.wait_counted(gw, 2)
        text = Web(gw.http()).get('/metrics').body.decode()
        self.assertIn(since_due + '_count 2\n', text)
        self.assertIn(since_attempt + '_count 1\n', text)

    def test_minutes_become_hours_and_old_ones_go(self):
        p = self.place(transport='timer')
        p.psql("insert into postdate.slo_count select date_trunc('hour', now()) - h * interval '1 hour' + m * interval '1 minute', 60, w, 10, 1, 0, 0, 0"
               ' from generate_series(1, 9) h, generate_series(0, 59) m, generate_series(1, 2) w')
        p.psql("insert into postdate.slo_count values (now() - interval '40 days', 3600, 0, 7, 7, 0, 0, 0)")
        gw = p.gateway()
        wait_until(lambda: p.value('select count(*) from postdate.slo_count where grain = 3600') == '2', 15, 'hours')
        self.assertEqual(p.psql('select sum(delivered), sum(late) from postdate.slo_count'), [[str(9 * 60 * 20), str(9 * 60 * 2)]])
        one = self.slo(gw)
        self.assertEqual(one['window']['delivered'], 9 * 60 * 20)
        self.assertEqual(one['window']['share'], 0.9)
        six = next(b for b in one['burn'] if b['window'] == '6h')
        self.assertTrue(5 * 1200 <= six['delivered'] <= 6 * 1200 + 20, six)

    def test_a_token_of_some_exchanges_is_not_told(self):
        p = self.place()
        gw = p.gateway(POSTDATE_HTTP_TOKENS='on')
        some, every = (Caller(gw.http(), make_token(p, e), Web(gw.http()).get('/openapi.json').json) for e in ('a', '*'))
        wait_until(lambda: every.get('/v1/slo').status == 200, 10, 'the token')
        self.assertEqual((some.get('/v1/slo').status, some.get('/v1/slo').problem), (403, 'exchange-not-allowed'))

    def test_what_is_no_objective_is_refused(self):
        p = self.place()
        for name, value in (('TARGET', '100%'), ('TARGET', '0%'), ('TARGET', '99.9'), ('TARGET', 'x%'), ('TARGET', 'nan%'),
                            ('LATE', '0s'), ('WINDOW', '1m')):
            code, _, err = p.cli('status', env={'POSTDATE_SLO_' + name: value})
            self.assertEqual(code, 78, (name, value))
            self.assertIn('slo_' + name.lower(), err.lower())
