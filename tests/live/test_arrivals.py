"""What is handed over is claimed as it arrives (docs/internals/store.md, "The second lane"): transactions of all sizes and lengths, the
window, what comes too soon, what RabbitMQ loses."""
from harness import LiveTest, wait_until
from steps_kit import Stepped
from store_kit import LOOK, make_hand, prepare

ROWS = ("insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body) "
        "select d, null, postdate.id_make(d), 'b', 'x', '{key}', '', '' from generate_series(1, {count}) i, "
        "lateral (select date_trunc('milliseconds', clock_timestamp()) + interval '{delay} s' + i * interval '1 ms' as d) d")
NIL, LAST = '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff'


class Arrivals(LiveTest):
    vhosts = 0

    def setUp(self):
        self.p = self.place()
        self.sessions = []
        self.run_sql = self.session()
        make_hand(self.run_sql)
        self.run_sql("insert into postdate.instance (id, name, backend_pid, running_since) overriding system value values (1, '1', 0, now())")
        prepare(self.run_sql, 'settle_other', 'settle_delivered')

    def session(self):
        s = Stepped(self.p.postgres)
        self.addCleanup(s.close)
        return s.run

    def store(self, key, delay=3600, count=1, run=None):
        (run or self.run_sql)(ROWS.format(key=key, delay=delay, count=count))

    def window(self, seconds=7200):
        self.run_sql(f"select postdate.window_move(now() + interval '{seconds} s', 1000)")

    def hand(self, rows=100, ahead=2):
        """The keys of one claim."""
        return [row[0] for row in self.run_sql(f"select routing_key from test.hand(now() + interval '{ahead} s', {rows}, 1000000, 1)")]

    def hand_all(self, rows=100):
        claims = []
        while claim := self.hand(rows):
            claims.append(claim)
        return claims

    def wait_nothing_arrives(self):
        """Transactions of other databases are passed, too, and have to end."""
        wait_until(lambda: self.assertEqual(self.hand_all(), []) or self.run_sql('select count(*) from postdate.arriving') == [['0']], 30, 'all that was passed to end')

    def handed(self):
        """All that was claimed."""
        self.run_sql('update postdate.batch set done = true, settled_at = now() where not done')

    def id_of(self, key):
        return self.run_sql(f"select id from postdate.message where routing_key = '{key}'")[0][0]

    def states(self):
        return {key: state for key, state in self.run_sql("select routing_key, string_agg(distinct state::text, ' ') from postdate.message_now group by 1")}

    def cancel(self, key):
        return self.run_sql(f"select postdate.cancel(id) from postdate.message where routing_key = '{key}'")[0][0]

    def test_a_large_transaction_comes_in_pieces_and_small_ones_together(self):
        self.window()
        self.store('large', count=250)
        for i in range(5):
            self.store(f'small {i}')
        self.store('large too', count=120)
        claims = self.hand_all()
        self.assertEqual(sorted(len(claim) for claim in claims), [5, 20, 50, 100, 100, 100])
        self.assertEqual(sum(len(claim) for claim in claims), 375)
        self.assertEqual(set(self.states().values()), {'claimed'})
        self.assertEqual(self.run_sql('select lane, count(*) from postdate.batch group by 1 order by 1'), [['b', '1'], ['p', '5']])
        self.handed()
        self.assertEqual(set(self.states().values()), {'handed'})
        self.wait_nothing_arrives()

    def test_a_transaction_that_is_passed_comes_when_it_ends_and_others_wait_for_none(self):
        self.window()
        late, undone, unrelated = self.session(), self.session(), self.session()
        unrelated('begin; select pg_current_xact_id()')
        late('begin')
        self.store('late', run=late)
        undone('begin')
        self.store('undone', run=undone)
        self.store('one')
        self.assertEqual(self.hand_all(), [['one']])
        self.store('two')
        self.assertEqual(self.hand_all(), [['two']])
        late('commit')
        undone('rollback')
        self.assertEqual(self.hand_all(), [['late']])
        self.handed()
        self.assertEqual(self.states(), {'late': 'handed', 'one': 'handed', 'two': 'handed'})
        unrelated('commit')
        self.wait_nothing_arrives()

    def test_what_is_due_behind_the_window_arrives_when_the_window_moves(self):
        self.window(60)
        self.store('far')
        self.store('cancelled')
        self.store('locked')
        self.store('near', delay=30)
        self.assertEqual(self.hand_all(), [['near']])
        self.assertEqual(self.states(), {'far': 'scheduled', 'cancelled': 'scheduled', 'locked': 'scheduled', 'near': 'claimed'})
        self.assertEqual(self.cancel('cancelled'), 'cancelled')
        self.assertEqual(self.cancel('near'), 'too_late')
        lock = self.session()
        lock("begin; select from postdate.message where routing_key = 'locked' for update")
        self.window()
        self.assertEqual(self.hand_all(), [['far']])
        self.assertEqual(self.cancel('far'), 'too_late')
        lock('rollback')
        self.run_sql(LOOK)
        self.assertEqual(self.hand_all(), [['locked']])

    def test_what_is_due_too_soon_stays_with_the_gateway_and_can_be_cancelled(self):
        self.window()
        self.store('soon', delay=10)
        self.store('later')
        self.assertEqual(self.hand(ahead=60), ['later'])
        self.assertEqual(self.hand(ahead=2), [])
        self.assertEqual(self.states(), {'soon': 'scheduled', 'later': 'claimed'})
        self.assertEqual(self.cancel('soon'), 'cancelled')

    def test_what_was_not_handed_over_arrives_anew(self):
        self.window()
        self.store('a')
        self.assertEqual(self.hand_all(), [['a']])
        self.run_sql(f"execute settle_other ('{{{self.id_of('a')}}}', '{NIL}', '{LAST}', 1, array['scheduled'], array[null::timestamptz], array[null], array[0], array['p'], false)")
        self.handed()
        self.assertEqual(self.states(), {'a': 'scheduled'})
        self.assertEqual(self.hand_all(), [['a']])
        self.assertEqual(self.states(), {'a': 'claimed'})

    def test_what_rabbitmq_lost_is_in_doubt_and_what_is_over_is_forgotten(self):
        self.window()
        self.store('delivered', delay=20)
        self.store('lost', delay=30)
        self.store('held', delay=40)
        self.assertEqual([len(claim) for claim in self.hand_all(1)], [1, 1, 1])
        self.handed()
        self.run_sql(f"execute settle_delivered ('{{{self.id_of('delivered')}}}', '{NIL}', '{LAST}', null, true)")
        self.run_sql("update postdate.frontier set to_id = postdate.id_ceiling(now() + interval '50 s')")
        self.run_sql("select postdate.handed_close(now() + interval '35 s', 100)")
        self.assertEqual(self.states(), {'delivered': 'delivered', 'lost': 'claimed', 'held': 'handed'})
        self.assertEqual(self.run_sql("select next_at = due, owner, attempts from postdate.message where routing_key = 'lost'"), [['t', '', '1']])
        self.assertEqual(self.run_sql('select count(*) from postdate.batch'), [['1']])
        self.assertEqual(self.cancel('lost'), 'too_late')
