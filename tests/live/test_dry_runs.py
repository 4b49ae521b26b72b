"""Dry runs end after some seconds, however many rows are looked at. That they end after a million is tested where there are as many: test_overview."""
import time

from harness import LiveTest, wait_until
from web import Web

MESSAGES = """insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body)
    select d, d, postdate.id_make(d), 'g', 'e', 'k' || i % 3, '', '' from (select i, date_trunc('day', now()) + interval '2 days' + (i % 1000) * interval '1 s' as d from generate_series(1, {}) i) s"""
DEAD = """insert into postdate.lineage (id, expires_at, died_at, failed, queue, exchange, routing_key, reason, hash, failed_at, reasons, properties, body)
    select postdate.id_make(now() - i * interval '1 ms'), now() + interval '30 days', now() - i * interval '1 ms', 1, 'q' || i % 2, 'e', 'k', 'rejected', '', '{{}}', '{{}}', '', '' from generate_series(1, {}) i"""
# Every row takes its time, as where millions are looked at that do not match.
SLOW = """alter table {0} enable row level security; alter table {0} force row level security;
    create policy slow on {0} using (pg_sleep(0.05)::text is not null) with check (true)"""


class DryRuns(LiveTest):
    time_limit_s = 180

    def setUp(self):
        super().setUp()
        self.p = self.place()
        self.web = Web(self.p.gateway().http())
        self.addCleanup(self.web.close)

    def dry(self, op, filter_):
        began = time.monotonic()
        answer = self.web.post('/v1/' + op, {'filter': filter_, 'dry_run': True})
        return answer, time.monotonic() - began

    def test_some_seconds_are_enough(self):
        self.p.psql(MESSAGES.format(200))
        self.p.psql(DEAD.format(200))
        for table in ('postdate.message', 'postdate.lineage'):
            self.p.psql(SLOW.format(table))
        for op, filter_ in (('messages:cancel', {'exchange': 'e'}), ('dead:drop', {'queue': 'q*'})):
            answer, took_s = self.dry(op, filter_)
            self.assertEqual((answer.status, answer.json), (200, {'matched': 0, 'matched_is_minimum': True, 'changed': 0, 'dry_run': True}), op)
            self.assertLess(took_s, 200 * 0.05, 'all rows were looked at')
        self.assertEqual(self.p.cli('dead', 'drop', '--queue', 'q0', '--dry-run')[1][:9], 'at least ')
        for table in ('postdate.message', 'postdate.lineage'):
            self.p.psql(f'alter table {table} disable row level security')
        # The session that counted has no such limit afterwards.
        wait_until(lambda: self.dry('dead:drop', {'queue': 'q0'})[0].json.get('matched') == 100, 10, 'all to be counted')
        self.assertEqual(self.web.post('/v1/dead:drop', {'filter': {'queue': 'q*'}}).json['changed'], 200)
