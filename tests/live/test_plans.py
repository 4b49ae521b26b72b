"""Statements whose cost must not hang on what PostgreSQL's planner believes of a day."""
import time

import harness
from harness import LiveTest, wait_until


class Plans(LiveTest):
    def explained(self, p, words):
        """The plans, in PostgreSQL's log, of the statements with these words."""
        with harness.stack().postgres_log() as f:
            entries, entry = [], []
            for line in f:
                if line.startswith('\t'):
                    entry.append(line)
                else:
                    entries.append(''.join(entry))
                    entry = [line]
            entries.append(''.join(entry))
        return [e for e in entries if f'@{p.database} ' in e and 'plan:' in e and words in e]

    def place_that_explains(self):
        p = self.place()
        for name, value in (('session_preload_libraries', 'auto_explain'), ('auto_explain.log_min_duration', '0'), ('auto_explain.log_nested_statements', 'on')):
            harness.stack().psql(f"alter database {p.database} set {name} = '{value}'")
        return p

    def test_a_few_failed_attempts_are_found_by_their_ids(self):
        """Not by comparing each with each, where a list of n reads itself n times: 2,000 failed attempts took 16 s to settle."""
        p = self.place_that_explains()
        p.gateway(POSTDATE_RETRY_FIRST='200ms', POSTDATE_RETRY_MAX='200ms')
        p.psql("select postdate.schedule('k', 'x', delay => '0 s', exchange => 'nowhere') from generate_series(1, 8)")
        wait_until(lambda: p.value('select min(attempts) from postdate.message_now') not in ('0', None), 20, 'an attempt each')
        found = wait_until(lambda: self.explained(p, 'unnest(ids, states'), 10, 'the plan in the log')
        for plan in found:
            self.assertNotIn('Nested Loop', plan)

    def test_counting_reads_the_index_that_is_meant(self):
        """A range of ids could be answered by the primary key, too: it would read all that is settled, of a day without statistics."""
        p = self.place_that_explains()
        p.psql("insert into postdate.message (due, next_at, settled_at, id, state, hold, exchange, routing_key, properties, body) "
               "select d, d, d, postdate.id_make(d), 'delivered', 'g', '', 'k', '', '' from generate_series(1, 20000) i, "
               "lateral (select date_trunc('day', now(), 'UTC') + i * interval '1 ms') x (d)")
        for statistics in ('none', 'of the day'):
            with self.subTest(statistics):
                seen = len(self.explained(p, 'order by owner limit $4'))
                self.assertEqual(p.cli('status')[0], 0)
                found = wait_until(lambda n=seen: self.explained(p, 'order by owner limit $4')[n:], 10, 'the plan in the log')
                for plan in found:
                    self.assertLessEqual(plan.count('pkey on'), plan.count('(id > '), 'but for what an open claim has')
                    self.assertIn('owner_idx', plan)
                for plan in self.explained(p, 'with dead as materialized'):
                    self.assertLessEqual(plan.count('pkey on message'), plan.count('(id > '), 'from the frontier on, or of an open claim')
                p.psql('analyze postdate.message')

    def test_a_page_of_a_list_comes_in_the_order_of_the_primary_key(self):
        """The view of how messages stand joined another table, so each page read and sorted the whole day: 505 ms instead of 1, of 200,000."""
        p = self.place_that_explains()
        p.psql("insert into postdate.message (due, id, hold, exchange, routing_key, properties, body) "
               "select d, postdate.id_make(d), 'g', '', 'k', '', '' from generate_series(1, 3000) i, "
               "lateral (select date_trunc('milliseconds', now()) + i * interval '1 ms' as d) x")
        p.psql('analyze postdate.message')
        self.assertEqual(p.cli('list', '--limit', '10')[0], 0)
        found = wait_until(lambda: self.explained(p, 'Without bodies'), 10, 'the plan in the log')
        for plan in found:
            self.assertNotIn('Sort', plan)
            self.assertNotIn('Nested Loop', plan)

    def test_looking_for_claims_of_the_dead_reads_none_of_the_living(self):
        """A held snapshot keeps what they settled in the index of what is owned, as a busy day does until the next vacuum."""
        count = 4000
        read = "select coalesce(sum(idx_tup_read), 0) from pg_stat_all_indexes where indexrelname like 'message%owner_idx'"
        p = self.place_that_explains()
        p.gateway()
        inbox = p.consumer('q', bind='k')
        s = p.session()
        s.run('begin isolation level repeatable read')
        s.run('select count(*) from postdate.message_now')
        p.psql(f"select count(postdate.schedule('k', 'x', delay => '0 s')) from generate_series(1, {count})")
        inbox.wait(count, 60)
        wait_until(lambda: p.counts().get('delivered') == count, 20, 'all to be settled')
        p.gateway()
        time.sleep(2)  # sessions count what they read after a second
        before, looks = int(p.value(read)), len(self.explained(p, 'gap.above'))
        wait_until(lambda: len(self.explained(p, 'gap.above')) >= looks + 4, 40, 'two sweeps of both')
        time.sleep(2)
        self.assertLess(int(p.value(read)) - before, count)
        for plan in self.explained(p, 'gap.above'):
            if ' http counts@' not in plan:  # they count what is plain, too, between two ids
                self.assertNotIn('pkey on message', plan)
        s.run('commit')
        s.close()
