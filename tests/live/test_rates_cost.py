"""What rates cost those who claim: the rate of an exchange is looked for once, however many of its messages are due."""
import harness
import plan_kit
from harness import LiveTest, wait_until
from store_kit import LOOK, make_claim, prepare

EXCHANGES, EACH = 100, 20
NIL, LAST = '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff'
CALLS = "select coalesce((select calls from pg_stat_user_functions where funcname = 'rate_of'), 0)"
RATED = 'select count(*) from postdate.message where rate is not null'
# Plain, due within the next seconds.
MESSAGES = """
insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body)
select d, {next_at}, postdate.id_make(d), '{hold}', 'e' || 1 + i % {exchanges}, {routing_key}, '', ''
  from generate_series(1, {count}) i, lateral (select date_trunc('milliseconds', now()) + interval '3 s' + i * interval '1 ms' as d) x"""


class RatesCost(LiveTest):
    vhosts = 0

    def setUp(self):
        self.p = self.place()
        harness.stack().psql(f"alter database {self.p.database} set track_functions = 'pl'")
        make_claim(self.p.psql)
        plan_kit.set_rates(self.p)

    def claim_all(self, routing_key):
        """How often a rate was looked for."""
        count = EXCHANGES * EACH
        self.p.psql(MESSAGES.format(exchanges=EXCHANGES, count=count, routing_key=routing_key, hold='g', next_at='null'))
        s = self.p.session()
        self.assertEqual(s.run("select count(*) from test.claim(now() + interval '20 s', 5000, 100000000, 1)"), [['0']])
        wait_until(lambda: s.run(LOOK) and s.run(RATED) == [[str(count)]], 30, 'all to wait for slots')
        return self.calls(s)

    def calls(self, session):
        session.close()
        return wait_until(lambda: int(self.p.value(CALLS)), 20, 'the session to tell what it called')

    def test_the_rate_of_an_exchange_is_looked_for_once_a_claim(self):
        """Where each message asked, a look at what claims had left aside took 175 ms of the claims' thread."""
        self.assertLessEqual(self.claim_all("'k' || i"), 4 * EXCHANGES)

    def test_with_a_rate_of_a_routing_key_once_for_each_of_them(self):
        self.p.psql("select postdate.rate_set('e1', 5, routing_key => 'other.*')")
        self.assertLessEqual(self.claim_all("'k' || i % 2"), 4 * EXCHANGES)
        self.assertEqual(self.p.value('select count(*) from postdate.message m join postdate.rate r on r.id = m.rate where r.exchange <> m.exchange'), '0')

    def test_and_once_for_what_rabbitmq_may_hold(self):
        """The gateway holds what has a rate."""
        count = EXCHANGES * EACH // 2
        self.p.psql(MESSAGES.format(exchanges=EXCHANGES, count=count, routing_key="'k' || i", hold='b', next_at='d'))
        self.p.psql("select postdate.rate_remove('e7')")
        s = self.p.session()
        prepare(s.run, 'handing_claim')
        handed = s.run(f"execute handing_claim (now() + interval '1 minute', 'epoch', '{NIL}', {count}, 100000000, 1, '{LAST}', 5000)")
        self.assertEqual(len(handed), EACH // 2)
        self.assertLessEqual(self.calls(s), EXCHANGES)
        self.assertEqual(self.p.value("select count(*) from postdate.message where hold = 'g'"), str(count - EACH // 2))
