"""A claimed range is settled by one row that says what is delivered: whatever is locked, and whatever the database forgot."""
import harness
from harness import wait_until
from test_locked_days import Days

COUNT, REFUSED = 40, 20
NO_RETRY = {'POSTDATE_RETRY_FIRST': '1h', 'POSTDATE_RETRY_MAX': '1h'}  # not within the lead, either
NOT_PLAIN = 'state, next_at, attempts, error, settled_at, owner, isolate'
PLAIN = "'scheduled', null, 0, null, null, null, null"
# Of a database that fails over to a standby that lags: it has heard of the claims, and of nothing after them.
FORGETS = ("begin; lock table postdate.batch; select count(pg_terminate_backend(pid)) from pg_stat_activity "
           "where datname = current_database() and application_name like 'postdate%' and pid <> pg_backend_pid(); "
           "delete from postdate.batch_position; update postdate.batch set done = false, settled_at = null where owner > 0; select setval('postdate.settled', 0); "
           f'update postdate.message set ({NOT_PLAIN}) = ({PLAIN}); commit')


class SettleRanges(Days):
    who_waits = 'timer'

    def begin(self, ahead_s=4, **settings):
        """Messages, of which one cannot be routed, are claimed long before they are due, in one batch: all are within the lead."""
        self.p = p = self.place()
        self.settings = {'POSTDATE_DELIVERY_LEAD': '60s', 'POSTDATE_RETRY_FIRST': '300ms', 'POSTDATE_RETRY_MAX': '300ms',
                         'POSTDATE_RETRY_ATTEMPTS': '1000', **settings}
        self.g = p.gateway(**self.settings)
        self.inbox = p.consumer('q', bind='k')
        at = f"date_trunc('milliseconds', clock_timestamp()) + interval '{ahead_s * harness.slowness()} s'"
        p.psql(f"select postdate.schedule(case i when {REFUSED} then 'nowhere' else 'k' end, i::text, due_at => d + i * interval '1 ms') "
               f'from (select {at} as d) x, generate_series(1, {COUNT}) i')
        self.refused = p.value("select id from postdate.message where routing_key = 'nowhere'")
        wait_until(lambda: p.claimed() == COUNT, 10, 'all to be claimed')

    def hold_refused(self):
        held = self.p.session()
        held.run('begin')
        held.run(f"select from postdate.message where id = '{self.refused}' for update")
        return held

    def bind_nowhere(self):
        c = self.p.client()
        c.channel.queue_bind('q', 'postdate.delivery', 'nowhere')

    def assert_each_came_once(self):
        wait_until(lambda: self.p.counts() == {'delivered': COUNT}, 30, 'all to be settled')
        self.assertEqual(sorted(int(m.body) for m in self.inbox.all()), list(range(1, COUNT + 1)))

    def test_a_refused_message_that_somebody_has_locked_puts_no_other_in_doubt(self):
        self.begin()
        held = self.hold_refused()
        self.inbox.wait(COUNT - 1, 30)
        wait_until(lambda: self.p.counts() == {'delivered': COUNT - 1, 'claimed': 1}, 10, 'the others to be settled')
        self.assertEqual(self.g.term(), 0)
        self.assertEqual(self.p.counts(), {'delivered': COUNT - 1, 'claimed': 1})
        self.bind_nowhere()
        self.free(held)
        self.p.gateway(**self.settings)
        self.assert_each_came_once()

    def test_what_is_delivered_of_a_locked_day_is_settled(self):
        self.begin()
        name = self.p.day(self.p.value(f"select (postdate.id_due('{self.refused}') at time zone 'utc')::date"))
        held = self.lock(self.p, name)
        self.inbox.wait(COUNT - 1, 30)
        settled = 'select count(*) from postdate.batch_now where upto = to_id'
        wait_until(lambda: self.p.value(settled) == '1', 10, 'the others to be settled')
        self.free(held)
        self.bind_nowhere()
        self.assert_each_came_once()
        self.assertEqual(self.g.term(), 0)

    def test_what_a_standby_had_not_heard_of_is_told_to_it_again(self):
        """One message was refused, and its row said so: that is lost, too, and it must not pass for delivered."""
        self.begin(**NO_RETRY)
        self.inbox.wait(COUNT - 1, 30)
        wait_until(lambda: self.p.value('select count(*) from postdate.batch where not done') == '0', 10, 'all to be settled')
        self.bind_nowhere()
        s = self.p.session()
        s.run(FORGETS)
        s.close()
        self.assert_each_came_once()
        self.assertEqual(self.g.term(), 0)

    def test_a_batch_with_the_same_number_is_another_one(self):
        """After a failover numbers are given again, that the standby had not heard of. What was delivered is said by its ids then."""
        self.begin(**NO_RETRY)
        self.p.psql("update postdate.batch set claimed_at = claimed_at - interval '1 s'")
        self.inbox.wait(COUNT - 1, 30)
        wait_until(lambda: self.p.counts() == {'delivered': COUNT - 1, 'scheduled': 1}, 10, 'the refused one to be written down')
        self.assertEqual(self.p.value('select count(*) from postdate.batch_position'), '0')
