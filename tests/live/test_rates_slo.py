"""What waited because of a rate is not late, however the rate ended: the objective counts from when it was let go."""
from handover_kit import metric
from harness import LiveTest, wait_until
from test_rates import SLOWLY_ASIDE
from test_slo import Slo

DELIVERY = 'postdate.delivery'
WAITS = "select count(*) from postdate.message where rate is not null"


class RatesAndTheObjective(LiveTest):
    slo, wait_counted = Slo.slo, Slo.wait_counted

    def begin(self, rate=0, transport='timer', **settings):
        self.p = self.place(transport=transport)
        if rate is not None:
            self.p.psql(f"select postdate.rate_set('{DELIVERY}', {rate})")
        self.gw = self.p.gateway(POSTDATE_SLO_LATE='2s', **settings)
        self.c = self.p.consumer('q', declare=True, bind='k')
        return self.p

    def schedule(self, count, delay='0 s'):
        self.p.psql(f"""with at as (select clock_timestamp() + interval '{delay}' as due)
            select count(postdate.schedule('k', i::text, due_at => at.due)) from generate_series(1, {count}) i, at""")

    def wait_overdue(self, count):
        """They wait for the rate, and would be late if they counted from their due time."""
        wait_until(lambda: self.p.value(WAITS + " and due < clock_timestamp() - interval '3 s'") == str(count), 30, f'{count} to wait for the rate')

    def figures(self):
        """Deliveries, and of these what counts from when a rate let it go."""
        return [metric(self.gw, f'postdate_{name}_seconds_count') for name in ('lateness', 'rate_waited')]

    def assert_none_counts_from_its_due_time(self, count):
        wait_until(lambda: len({m.id for m in self.c.all()}) == count, 60, 'all of them')
        wait_until(lambda: self.figures()[0] >= count, 20, 'the count')
        self.assertEqual(self.figures(), [count, count])

    def test_a_paused_rate_that_is_removed(self):
        p = self.begin()
        self.schedule(20)
        self.wait_overdue(20)
        p.psql(f"select postdate.rate_pause('{DELIVERY}')")
        p.psql(f"select postdate.rate_remove('{DELIVERY}')")
        self.assert_none_counts_from_its_due_time(20)
        self.assertEqual(self.wait_counted(self.gw, 20)['window']['late'], 0)
        self.schedule(5)
        self.c.wait(25, 20)
        wait_until(lambda: self.figures() == [25, 20], 20, 'those that were due later')

    def test_what_was_late_for_another_reason_is_late(self):
        """Due after the rate had gone, and no gateway ran; due before it, and not of its exchange."""
        p = self.begin()
        p.psql("select postdate.rate_set('other', 0)")
        p.psql(f"select postdate.rate_remove('{DELIVERY}')")
        self.assertEqual(self.gw.term(), 0)
        self.schedule(3)
        wait_until(lambda: p.value("select bool_and(due < clock_timestamp() - interval '3 s') from postdate.message") == 't', 10, 'three seconds')
        p.psql("select postdate.rate_remove('other')")
        self.gw = p.gateway(POSTDATE_SLO_LATE='2s')
        self.c.wait(3, 20)
        self.assertEqual(self.wait_counted(self.gw, 3)['window']['late'], 3)
        self.assertEqual(self.figures(), [3, 0])

    def test_a_rate_that_is_made_faster(self):
        p = self.begin(0.01)
        self.schedule(50)
        self.wait_overdue(49)
        p.psql(f"select postdate.rate_set('{DELIVERY}', 1000)")
        self.assert_none_counts_from_its_due_time(50)

    def test_a_rate_that_is_removed_while_it_gives_slots(self):
        p = self.begin(20)
        self.schedule(300)
        self.c.wait(40, 30)
        p.psql(f"select postdate.rate_remove('{DELIVERY}')")
        self.assert_none_counts_from_its_due_time(300)

    def test_one_that_fits_better_goes(self):
        """What waited for it waits for the one of all exchanges then."""
        p = self.begin()
        p.psql("select postdate.rate_set('*', 30)")
        self.schedule(30)
        self.wait_overdue(30)
        p.psql(f"select postdate.rate_remove('{DELIVERY}')")
        self.assert_none_counts_from_its_due_time(30)

    def test_what_rabbitmq_held(self):
        p = self.begin(None, transport='ttl')
        self.p.client().publish_burst('k', [str(i).encode() for i in range(30)], {'x-delay': 4000})
        wait_until(lambda: p.value("select count(*) from postdate.message where state = 'handed'") == '30', 10, 'the hand-over')
        p.psql(f"select postdate.rate_set('{DELIVERY}', 0)")
        self.wait_overdue(30)
        p.psql(f"select postdate.rate_remove('{DELIVERY}')")
        self.assert_none_counts_from_its_due_time(30)

    def test_a_gateway_that_dies_with_what_had_slots(self):
        p = self.begin(2000)
        self.schedule(400, '2 s')
        self.c.wait(1, 20)
        self.gw.kill9()
        p.psql(f"select postdate.rate_pause('{DELIVERY}')")
        self.gw = p.gateway(POSTDATE_SLO_LATE='2s')
        left = int(p.value("select count(*) from postdate.message_now where state in ('scheduled', 'claimed')"))
        wait_until(lambda: p.value(WAITS + " and due < clock_timestamp() - interval '1 s'") == str(left), 30, 'what is left')
        p.psql(f"select postdate.rate_remove('{DELIVERY}')")
        wait_until(lambda: len({m.id for m in self.c.all()}) == 400, 60, 'all of them')
        wait_until(lambda: self.figures()[0] >= left, 20, 'the count')
        self.assertEqual(*self.figures())

    def crowd(self, delay):
        """It is set aside so slowly that the rate goes before all of it is."""
        p = self.begin()
        p.psql(SLOWLY_ASIDE)
        self.schedule(4000, delay)
        wait_until(lambda: int(p.value(WAITS)) > 0, 30, 'the first ones')
        wait_until(lambda: p.value("select bool_and(due < clock_timestamp() - interval '1 s') from postdate.message") == 't', 30, 'a second')
        self.assertGreater(int(p.value("select count(*) from postdate.message where rate is null")), 0)
        p.psql(f"select postdate.rate_remove('{DELIVERY}')")
        self.assert_none_counts_from_its_due_time(4000)

    def test_a_crowd_that_was_due_at_once_and_is_not_set_aside_yet(self):
        self.crowd('0 s')

    def test_a_crowd_of_ranges_that_is_not_set_aside_yet(self):
        self.crowd('3 s')
