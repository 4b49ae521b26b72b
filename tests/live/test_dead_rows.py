"""What is asked often reads nothing that is dead, done or kept: under a held snapshot, and with a million claims of days before.

Judged by the buffers that a statement reads, when its session knows the plans.
"""
import json
import os

from harness import LiveTest, wait_until
from store_kit import keep_claims, make_claim, query_text

MANY = 1_000_000 if os.environ.get('POSTDATE_TEST_FULL') else 200_000
# As gateways set it, so that plans are theirs.
SESSION = ("set enable_seqscan = off; set enable_bitmapscan = off; set enable_hashjoin = off; set enable_mergejoin = off; set enable_sort = off; "
           'set enable_incremental_sort = off; set jit = off; set plan_cache_mode = force_custom_plan; set synchronous_commit = off')
# Ten messages, 0.1 s after those of the round before, are stored, claimed, delivered in four steps, and late commits looked for.
ROUNDS = """do $rounds$
declare
    due timestamptz;
    ids uuid[];
    name bigint;
    at timestamptz;
begin
    for i in {first} .. {last} loop
        due := timestamptz '{base}' + i * interval '100 ms';
        insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body)
        select d, postdate.next_at_of(d, 'g', postdate.fence_for_store()), postdate.id_make(d), 'g', 'x', 'k', '', ''
          from generate_series(0, 9) k, lateral (select due + k * interval '1 ms') x (d);
        commit;
        select array_agg(c.id), max(c.batch), max(c.claimed_at) into ids, name, at from test.claim(due + interval '50 ms', 1000, 1000000, 1) c;
        commit;
        for k in 1 .. 4 loop
            perform postdate.batch_settle(array[name], array[case k when 4 then ids[10] else ids[k * 2] end], array[(k = 4)::integer], 1, '{{}}', '{{}}', array[at]);
            commit;
        end loop;
        perform postdate.late_look('{{}}', '{{}}');
        commit;
    end loop;
end $rounds$"""


class DeadRows(LiveTest):
    vhosts = 0
    weight = 10
    time_limit_s = 300

    def setUp(self):
        self.p = self.place()
        make_claim(self.p.psql)
        self.p.psql("insert into postdate.instance (id, name, backend_pid, version, running_since) overriding system value values (1, '1', 0, 1, now())")
        self.base = self.p.value("select date_trunc('second', now()) + interval '10 min'")
        self.s = self.session()
        self.rounds = 0

    def session(self):
        s = self.p.session()
        s.run(SESSION)
        self.addCleanup(s.close)
        return s

    def claim(self, count):
        self.s.run(ROUNDS.format(first=self.rounds + 1, last=self.rounds + count, base=self.base))
        self.rounds += count

    def buffers(self, statement):
        """The second time, for the first one reads the catalogs."""
        self.s.run(statement)
        rows = self.s.run(f'explain (analyze, buffers, format json) {statement}')
        plan = json.loads('\n'.join(row[0] for row in rows))[0]['Plan']
        return plan['Shared Hit Blocks'] + plan['Shared Read Blocks'] + plan['Shared Dirtied Blocks']

    def asked(self):
        """What is asked of the claims while messages flow, and when a gateway has died."""
        one = self.p.value('select id from postdate.message where next_at is null order by id limit 1 offset 30')
        day = self.p.value("select string_agg(quote_literal(b), ', ') from (values (postdate.id_floor(date_trunc('day', now()))), "
                           "(postdate.id_floor(date_trunc('day', now()) + interval '2 d'))) x (b)")
        self.s.run('deallocate all')
        for name, types in (('status_waiting', 'uuid, uuid, bigint, bigint'), ('claim_once_left', 'timestamptz, timestamptz, bigint, uuid, uuid'),
                            ('settle_delivered', 'uuid[], uuid, uuid, integer, boolean')):
            self.s.run(f'prepare {name} ({types}) as {query_text(name)}')
        return {
            'settled_to': 'select postdate.settled_to()',
            'a look-up': f"select * from postdate.message_now where id = '{one}'",
            'a cancel': f"select postdate.cancel('{one}')",
            'a key': f"select postdate.key_standing('{one}', 3600000)",
            'the next claim': f"select postdate.claim_next(timestamptz '{self.base}', 1000, 1000000)",
            'late commits': "select postdate.late_look('{}', '{}')",
            'take-over': "select postdate.batch_release(null, '{}', '{}', 1000)",
            'what waits': f'execute status_waiting ({day}, 1000, 10000)',
            'what a round has left': f'execute claim_once_left (now(), now(), 1000, {day})',
            'a proof': f"execute settle_delivered ('{{{one}}}', {day}, 1, true)",
        }

    def read(self):
        return {what: self.buffers(statement) for what, statement in self.asked().items()}

    def assert_no_more(self, before, now):
        """The planner may look at some more pages, to find how large the largest id is, and a look at all claims has some more of them: a tenth
        of a buffer each. A dozen dead rows each were thousands."""
        for what, buffers in now.items():
            room = 20 if what in ('settled_to', 'a look-up', 'a cancel', 'a key') else 150
            self.assertLessEqual(buffers, before[what] + room, f'{what}: {before} before, {now} now')

    def test_a_held_snapshot_makes_nothing_dearer(self):
        """Each claim left a dozen dead rows, and each look-up passed all of them: 8,922 buffers after 17 minutes of 300 messages a second."""
        held = self.p.session()
        self.addCleanup(held.close)
        held.run('begin isolation level repeatable read')
        held.run('select count(*) from postdate.message')
        self.claim(60)
        before = self.read()
        self.claim(600)
        now = self.read()
        print(f'note dead rows: buffers under a held snapshot, after 60 claims {before}, after 660 {now}')
        self.assert_no_more(before, now)

    def test_claims_that_are_done_are_not_read(self):
        """Three million of them, which are kept for four days: a take-over read all of them, once for each claim that it let go."""
        self.claim(20)
        before = self.read()
        self.p.psql(keep_claims(MANY, 100))
        now = self.read()
        print(f'note dead rows: buffers with 20 claims {before}, with {MANY} more that are done {now}')
        self.assert_no_more(before, now)

    def test_claims_of_one_second_become_one(self):
        """Nobody can tell, but by how many there are."""
        stands = ("select md5(string_agg(format('%s %s %s %s', id, state, date_trunc('second', settled_at), attempts), ',' order by id)), count(*), "
                  "count(*) filter (where state = 'delivered') from postdate.message_now")
        self.claim(60)
        self.p.psql("update postdate.batch set settled_at = date_trunc('hour', now()) + id * interval '125 ms' where owner = 1")
        # as if they had ended: other transactions run on this server, too
        self.p.psql("update postdate.late_mark set looked = to_id, running = '{}', since = '{}' from postdate.frontier")
        before = self.p.psql(stands)
        self.assertEqual(before[0][1:], ['600', '600'])
        frontier = self.p.value('select to_id from postdate.frontier')
        wait_until(lambda: self.p.value('select postdate.batch_merge(20)') == 'f', 20, 'all to be merged')
        self.assertEqual(self.p.psql(stands), before)
        self.assertEqual(self.p.value('select to_id from postdate.frontier'), frontier)
        seconds = int(self.p.value("select count(distinct date_trunc('second', settled_at)) from postdate.batch"))
        self.assertIn(seconds, range(2, 20))
        self.assertLessEqual(int(self.p.value('select count(*) from postdate.batch')), seconds)
        self.assertEqual(self.p.value('select count(*) from (select from_id, lag(to_id) over (order by to_id) as before from postdate.batch) b where from_id <> before'), '0',
                         'they leave no gap')
        self.claim(5)
        self.assertEqual(self.p.value("select count(*) from postdate.message_now where state = 'delivered'"), '650')

    def test_transactions_of_others_are_written_down_once(self):
        """Each claim waited for each of them by a row of its own, which was written again whenever one ended: 6,548 times for 332 claims."""
        written = ("select sum(n_tup_ins + n_tup_upd + n_tup_del) from pg_stat_user_tables where schemaname = 'postdate' and relname in ('late', 'late_mark', 'frontier')")
        others = [self.p.session() for _ in range(20)]
        for s in others:
            self.addCleanup(s.close)
            s.run('begin; select pg_current_xact_id()')
        self.claim(3)
        self.s.run('select pg_stat_force_next_flush()')
        before = int(self.p.value(written))
        for s in others:
            self.claim(3)
            s.run('commit')
        self.claim(3)
        self.s.run('select pg_stat_force_next_flush()')
        self.s.run('select 1')
        self.assertLessEqual(int(self.p.value(written)) - before, 2 * 63)

        def are_forgotten():
            self.claim(1)  # other transactions run on this server, too
            return self.p.value('select cardinality(running) from postdate.late_mark') == '0'
        wait_until(are_forgotten, 30, 'all to be forgotten')
