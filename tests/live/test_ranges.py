"""Claimed ranges of plain messages, and what somebody has locked in them."""
import harness
from harness import wait_until
from store_kit import NOT_LOOKED_AT, make_claim
from test_crash_points import SHIM
from test_locked_days import Days

BATCH = """
with row as (
    insert into postdate.message (due, id, hold, exchange, routing_key, properties, body)
    select d, postdate.id_make(d), 'g', 'postdate.delivery', 'k', '\\x100002', '{body}'
      from (select date_trunc('second', now()) - interval '{ago} s' as d) x returning id, due),
batch as (
    insert into postdate.batch (owner, from_id, to_id, snapshot)
    select {owner}, postdate.id_floor(due), postdate.id_ceiling(due), pg_snapshot '100000000:100000000:' from row)
select id from row
"""


def begin_at(p, ago):
    """As if there had been no claim since then."""
    p.psql("delete from postdate.batch; insert into postdate.batch (owner, from_id, to_id, done) "
           f"select 0, d, d, true from postdate.id_ceiling(now() - interval '{ago}') d; update postdate.late_mark set looked = to_id, upto = to_id from postdate.frontier")
    look_again(p)


def look_again(p):
    """What is open is not looked for before what was settled once: a test that makes something there says so."""
    p.psql("select setval('postdate.settled', 0)")


class Ranges(Days):
    who_waits = 'timer'

    def place_with_gateway(self):
        p = self.place()
        g, c = p.gateway(), p.client()
        c.queue('q', 'k')
        self.day(p, 1)
        return p, g, c

    def test_a_row_that_is_locked_keeps_no_other_claim_of_a_dead_gateway(self):
        p, g, c = self.place_with_gateway()
        owner = p.value('select max(id) from postdate.instance')
        first = p.value(BATCH.format(body='locked', ago=3600, owner=owner))
        p.value(BATCH.format(body='free', ago=1800, owner=owner))
        look_again(p)
        held = p.session()
        held.run('begin')
        held.run(f"select from postdate.message where id = '{first}' for update")
        p.psql('update postdate.batch set owner = 987654')
        self.assertEqual(c.wait_get('q', 25).body, b'free')
        self.free(held)
        self.assertEqual(c.wait_get('q', 25).body, b'locked')
        wait_until(lambda: p.counts() == {'delivered': 2}, 10, 'both to be settled')
        self.assertEqual(g.term(), 0)

    def test_a_day_that_is_locked_keeps_no_other_claim_of_a_dead_gateway(self):
        p, g, c = self.place_with_gateway()
        _, name = self.day(p, 4)
        held = self.lock(p, name)
        p.psql("insert into postdate.batch (owner, from_id, to_id, snapshot) select 987654, postdate.id_floor(d), postdate.id_ceiling(d + interval '1 h'), "
               "pg_current_snapshot() from (select now() - interval '4 days' as d) x")
        p.value(BATCH.format(body='free', ago=1800, owner=987654))
        look_again(p)
        self.assertEqual(c.wait_get('q', 25).body, b'free')
        self.free(held)
        wait_until(lambda: p.value('select count(*) from postdate.batch where not done') == '0', 25, 'the other claim to be let go')
        self.assertEqual(g.term(), 0)

    def test_what_was_locked_for_a_moment_comes_though_another_day_is_locked(self):
        p, g, c = self.place_with_gateway()
        _, name = self.day(p, -2)
        held, caller = self.lock(p, name), p.session()
        message = p.value("select postdate.schedule('k', 'free', '2 s')")
        caller.run('begin')
        self.assertEqual(caller.run(f"select postdate.cancel('{message}')"), [['cancelled']])
        self.free(caller)
        self.assertEqual(c.wait_get('q', 25).body, b'free')
        self.free(held)
        self.assertEqual(g.term(), 0)

    def test_claims_go_around_a_locked_day_however_old_it_is(self):
        """Locks were looked for thirty days back: with an older one nothing was claimed any more."""
        p, g, c = self.place_with_gateway()
        self.assertEqual(g.term(), 0)
        days = [self.day(p, ago) for ago in (43, 42, 41)]
        begin_at(p, '50 days')
        for (day, _), body in zip(days, ('before', 'locked', 'behind')):
            self.row(p, day, next_at='null', body=body)
        held = self.lock(p, days[1][1])
        g = p.gateway()
        self.assertEqual([c.wait_get('q', 15).body for _ in range(2)], [b'before', b'behind'])
        self.assert_flows(p, c, 'locked')
        self.assertEqual(p.value(f"select count(*) from postdate.batch b where b.owner = 0 and b.to_id = postdate.id_floor('{days[2][0]} 00:00+00')"), '1',
                         'that day was passed, and no other')
        self.free(held)
        self.assertEqual(c.wait_get('q', 15).body, b'locked')
        self.assertEqual(g.term(), 0)

    def test_many_ranges_of_a_locked_day_keep_no_other_from_being_looked_at(self):
        """A claim passes a locked day with a range each time, for as long as the lock lasts."""
        p = self.place()
        day, _ = self.day(p, 1)
        row = p.value(BATCH.format(body='free', ago=1, owner=987654))
        p.psql("insert into postdate.late (from_id, to_id) "
               f"select postdate.id_floor(d), postdate.id_ceiling(d) from (select timestamptz '{day} 00:00+00' + i * interval '1 ms' as d "
               "from generate_series(1, 301) i) x; insert into postdate.late (from_id, to_id, ids) "
               f"values ('{row}', '{row}', '{{{row}}}')")
        self.assertEqual(p.value(f"select postdate.late_look(array[timestamptz '{day} 00:00+00'], array[timestamptz '{day} 24:00+00'])"), '1')

    def test_what_is_locked_in_crowds_is_passed_in_one_claim(self):
        p = self.place()
        make_claim(p.psql)
        p.psql("insert into postdate.instance (name, backend_pid, version, running_since) values ('one', 1, 1, now())")
        p.psql("select count(postdate.schedule('k', 'locked', '10 min')) from generate_series(1, 25)")
        held = p.session()
        held.run('begin')
        held.run('select from postdate.message for update')
        free = p.value("select postdate.schedule('k', 'free', '11 min')")
        claimed = "select id from test.claim(now() + interval '1 h', 10, 1000000, (select max(id) from postdate.instance))"
        self.assertEqual(p.psql(claimed), [[free]])
        self.assertEqual(p.value('select count(*) from postdate.batch where not done'), '1', 'a claim of nothing is over')
        self.free(held)

    def test_a_range_is_over_with_the_last_row_that_is_scattered(self):
        """Else it is taken again, though nothing is left of it; what was delivered is not merged until then."""
        p = self.place()
        make_claim(p.psql)
        owner = p.value("insert into postdate.instance (name, backend_pid, version, running_since) values ('one', 1, 1, now()) returning id")
        p.psql("select count(postdate.schedule('k', 'body', '10 min')) from generate_series(1, 6)")
        self.assertEqual(p.value(f"select count(*) from test.claim(now() + interval '1 h', 10, 1000000, {owner})"), '6')
        p.psql("update postdate.batch set owner = 0, again_at = now(), back_since = now() - interval '61 s' where not done")
        for done in 'ft':
            self.assertEqual(p.value("select postdate.batch_scatter('{}', '{}', 3)"), '3')
            self.assertEqual(p.value('select done and again_at is null from postdate.batch order by to_id desc limit 1'), done)
        self.assertEqual(p.psql(f"select * from postdate.batch_again({owner}, '{{}}', '{{}}', 0)"), [])

    @harness.not_san
    def test_a_range_of_which_nothing_is_left_belongs_to_no_gateway_that_failed_to_end_it(self):
        """What was delivered before it would not be merged until that gateway ends."""
        p = self.place()
        p.psql('insert into postdate.batch (owner, from_id, to_id, snapshot, again_at) '
               'select 0, f.to_id, postdate.id_ceiling(now()), pg_current_snapshot(), now() from postdate.frontier f')
        p.gateway(LD_PRELOAD=SHIM, POSTDATE_CUT='batch_settle.before:1').wait_log('cut at batch_settle.before')
        wait_until(lambda: p.value('select count(*) from postdate.batch where not done') == '0', 10, 'the range to be over')

    def test_what_is_not_plain_is_not_read_by_each_look(self):
        """RabbitMQ holds thousands of messages, and few are plain: a look passes what it has read, and late commits there are found."""
        p = self.place()
        make_claim(p.psql)
        p.psql("insert into postdate.instance (name, backend_pid, version, running_since) values ('one', 1, 1, now())")
        begin_at(p, '20 min')
        held = ("insert into postdate.message (due, next_at, id, state, hold, exchange, routing_key, properties, body) select d, {}, postdate.id_make(d), "
                "'scheduled', '{}', 'x', 'k', '', '' from (select date_trunc('second', now()) - i * interval '50 ms' as d from generate_series(1, {}) i) x")
        p.psql(held.format('d', 'b', 3000))
        claims = "select count(*) from test.claim({}, 10, 1000000, (select max(id) from postdate.instance))"
        for horizon in ("now() - interval '1 min'", 'now()'):
            self.assertEqual(p.value(claims.format(horizon)), '0')
        self.assertEqual(p.value("select to_id > postdate.id_ceiling(now() - interval '10 s') from postdate.frontier"), 't')
        p.psql(held.format('null', 'g', 1200))
        opened = []

        def all_are_looked_at():
            opened.append(int(p.value("select postdate.late_look('{}', '{}')")))
            return p.value(NOT_LOOKED_AT) == '0'
        wait_until(all_are_looked_at, 30, 'all to be looked at')
        self.assertGreaterEqual(sum(opened), 1000)
