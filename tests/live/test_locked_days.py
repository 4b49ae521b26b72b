"""What somebody does to the table of one day stops nobody else: claims, settling, storing, taking over, looking, starting, tidying up."""

import harness
import web
from harness import LiveTest, wait_until

ROW = """
insert into postdate.message (due, next_at, id, state, settled_at, owner, hold, exchange, routing_key, properties, body)
select d, {next_at}, postdate.id_make(d), '{state}', {settled_at}, {owner}, 'g', 'postdate.delivery', '{routing_key}', '\\x100002', '{body}'
  from (select timestamptz '{day} 12:00+00') x (d) returning id
"""


class Days(LiveTest):
    who_waits = 'timer'

    def day(self, p, ago):
        """(first instant's date, partition) of that day, which exists afterwards."""
        day = p.value(f"select ((now() at time zone 'utc') - interval '{ago} days')::date")
        return day, p.day(day)

    def row(self, p, day, state='scheduled', settled_at='null', owner='null', next_at='d', routing_key='k', body='old'):
        return p.value(ROW.format(day=day, state=state, settled_at=settled_at, owner=owner, next_at=next_at, routing_key=routing_key,
                                  body=body).strip())

    def lock(self, p, *partitions, mode='access exclusive'):
        s = p.session()
        s.run('begin')
        for name in partitions:
            s.run(f'lock table postdate.{name} in {mode} mode')
        return s

    def free(self, session):
        session.run('rollback')
        session.close()

    def assert_flows(self, p, c, tag, delays=(0, 300, 1200)):
        """Messages of today arrive on time, and are settled."""
        published = {}
        for delay in delays:
            body = f'{tag} {delay}'
            published[body] = (harness.now_ms(), delay)
            c.publish('k', body.encode(), {'x-delay': delay})
        for _ in delays:
            m = c.wait_get('q', 10)
            at_ms, delay = published.pop(m.body.decode())
            self.assertGreaterEqual(m.at_ms, at_ms + delay, 'early')
            self.assertLess(m.at_ms - at_ms - delay, 1500 * harness.slowness(), 'late')


class LockedDays(Days):
    def test_a_lock_on_an_old_day_stops_nothing_and_is_said(self):
        """VACUUM FULL, REINDEX and SET TABLESPACE on the partition of five days ago: nothing was delivered, and nothing said."""
        p = self.place()
        day, name = self.day(p, 5)
        g = p.gateway()
        c = p.client()
        c.queue('q', 'k')
        self.assert_flows(p, c, 'before')
        held = self.lock(p, name)
        waiting = p.start_cli('list', '--state', 'delivered')
        self.assert_flows(p, c, 'locked')
        g.wait_log(rf'{name} is locked by pid \d+ of postdate')
        self.assert_flows(p, c, 'still locked')
        http = web.Web(g.http())
        self.assertEqual(http.get('/v1/stats').json['locked_days'], [day])
        ready = http.get('/readyz')
        self.assertEqual((ready.status, ready.json), (200, {'status': 'ready', 'locked_days': [day], 'broker_reopening': False}))
        self.assertIn('postdate_locked_partitions 1\n', http.get('/metrics').body.decode())
        self.assertEqual(http.post('/v1/messages', {'routing_key': 'k', 'delay': '1d', 'body': ''}).status, 201)
        today = p.value("select (now() at time zone 'utc')::date")
        self.assertEqual(http.get(f'/v1/messages?due_after={today}T00:00:00Z').status, 200)
        out = p.run('status')
        self.assertIn(f'locked       {day}: not counted, by pid ', out)
        self.assertEqual(waiting.wait(20), 75, 'a list of that day says that it is busy')
        self.free(held)
        g.wait_log(r'no partition is locked any more')
        self.assertEqual(len(g.lines_with('is locked by')), 1, 'said once')
        self.assertEqual(http.get('/v1/stats').json['locked_days'], [])
        http.close()
        self.assertEqual(g.term(), 0)

    def test_what_waits_in_it_is_delivered_when_the_lock_is_gone(self):
        p = self.place()
        day, name = self.day(p, 5)
        c = p.client()
        g = p.gateway()
        c.queue('q', 'k')
        held = self.lock(p, name, mode='share')  # as REINDEX; readers may go on
        g.wait_log(f'{name} is locked')
        self.assert_flows(p, c, 'locked')
        self.free(held)
        held = self.lock(p, name)
        row = held.run(ROW.format(day=day, state='scheduled', settled_at='null', owner='null', next_at='d', routing_key='k', body='old').strip())
        held.run('commit')
        held.close()
        m = c.wait_get('q', 15)
        self.assertEqual((m.body, m.id), (b'old', row[0][0]))

    def test_settling_goes_around_it(self):
        """A message of that day is published while its day is locked: it is settled later, all others at once."""
        p = self.place()
        day, name = self.day(p, 3)
        g = p.gateway(POSTDATE_DELIVERY_LEAD='6s')
        c = p.client()
        c.queue('q', 'k')
        c.queue('old', 'old')
        self.row(p, day, next_at="now() + interval '4 s'", routing_key='old')
        wait_until(lambda: p.value(f'select count(*) from postdate.{name} where owner is not null') == '1', 4, 'it to be claimed')
        held = self.lock(p, name)
        self.assertEqual(c.wait_get('old', 10).body, b'old')
        self.assert_flows(p, c, 'locked')
        today = p.value("select (now() at time zone 'utc')::date")
        others = f"select count(*) from postdate.message_now where id >= postdate.id_floor('{today} 00:00+00') and state = 'delivered'"
        wait_until(lambda: p.value(others) == '3', 5, 'the others to be settled')
        self.free(held)
        wait_until(lambda: p.counts() == {'delivered': 4}, 10, 'it to be settled')
        self.assertEqual((c.depth('old'), c.depth('q')), (0, 0), 'nothing came twice')
        self.assertEqual(g.term(), 0)

    def test_a_lock_on_a_future_day_delays_only_that_days_messages(self):
        p = self.place()
        _, name = self.day(p, -2)
        ahead_ms = 2 * 86400 * 1000
        g = p.gateway()
        c = p.client()
        c.queue('q', 'k')
        held = self.lock(p, name)
        http = web.Web(g.http())
        for i in range(40):
            c.publish('far', b'', {'x-delay': ahead_ms})
            c.publish('k', str(i).encode(), {'x-delay': 0})
        self.assertEqual(sorted(int(c.wait_get('q').body) for _ in range(40)), list(range(40)))
        batch = http.post('/v1/messages', {'messages': [{'routing_key': 'near', 'delay': '1h', 'body': ''},
                                                        {'routing_key': 'far', 'delay_ms': ahead_ms, 'body': ''}]})
        self.assertEqual([r['status'] for r in batch.json['results']], [201, 503], batch)
        self.assertEqual(batch.json['results'][1]['type'], 'urn:postdate:problem:day-locked')
        one = http.post('/v1/messages', {'routing_key': 'far', 'delay_ms': ahead_ms, 'body': ''})
        self.assertEqual((one.status, one.problem), (503, 'day-locked'))
        self.assert_flows(p, c, 'locked')
        self.free(held)
        wait_until(lambda: p.value(f'select count(*) from postdate.{name}') == '40', 10, 'those of the locked day to be stored')
        wait_until(lambda: c.depth('postdate.intake') == 0, 5, 'the intake to be empty')
        http.close()
        self.assertEqual(g.term(), 0)

    def test_what_there_is_no_room_for_comes_again_and_nothing_else_does(self):
        p = self.place()
        _, name = self.day(p, -2)
        self.assertEqual(p.gateway().term(), 0)
        c = p.client()
        for _ in range(3):  # the third one is too much; what comes with it is stored
            c.publish('far', b'x' * 7_000_000, {'x-delay': 2 * 86400 * 1000})
        for i in range(5):
            c.publish('near', str(i).encode(), {'x-delay': 3_600_000})
        wait_until(lambda: c.depth('postdate.intake') == 8, 10, 'all to be in the queue')
        held = self.lock(p, name, mode='exclusive')
        began = int(p.value('select last_value from postdate.redelivery'))
        g = p.gateway()
        wait_until(lambda: p.value("select count(*) from postdate.message_now where routing_key = 'near'") == '5', 20, 'the others to be stored')
        wait_until(lambda: int(p.value('select last_value from postdate.redelivery')) > began + 8, 60, 'what was read to come again and again')
        self.free(held)
        wait_until(lambda: p.value(f'select count(*) from postdate.{name}') == '3', 20, 'those of the locked day to be stored')
        wait_until(lambda: c.depth('postdate.intake') == 0, 5, 'the intake to be empty')
        self.assertEqual(p.counts(), {'scheduled': 8}, 'some were stored twice')
        self.assertEqual(len(g.lines_with('can buffer no more')), 1, g.log())
        self.assertEqual(g.term(), 0)

    def test_a_gateway_starts_and_migrate_runs_while_another_one_is_at_the_partitions(self):
        """Exit 75 after five seconds, and the systemd unit runs migrate at each start."""
        p = self.place()
        last = p.value("select max(relname) from pg_class where relname ~ '^message_[0-9]{8}$'")
        p.psql(f'drop table postdate.{last}')
        held = p.session()
        held.run("begin; select from postdate.gate where name = 'partitions' for update")
        rc, out, err = p.cli('migrate')
        self.assertEqual(rc, 0, err)
        self.assertRegex(err, r'^postdate: waiting for a lock, for at most 120 s: it is held by pid \d+ of \S+ \([^\n]*\n$')
        self.assertIn('1 left to the gateway that is creating them', out)
        g = p.gateway()
        c = p.client()
        c.queue('q', 'k')
        self.assert_flows(p, c, 'meanwhile', delays=(0, 100))
        held.close()
        wait_until(lambda: p.cli('migrate')[0] == 0 and p.value(f"select to_regclass('postdate.{last}') is not null") == 't', 30,
                   'the server to have ended that session, and the last day to be made')
        self.assertEqual(g.term(), 0)


class FarHandOvers(Days):
    who_waits = 'ttl'

    def test_a_dead_ones_are_released_however_far_ahead_and_around_locks(self):
        p = self.place(max_delay='40d')
        near, far, locked = self.day(p, 4), self.day(p, -25), self.day(p, -1)
        for day, _ in (near, far, locked):
            self.row(p, day, state='handed', next_at="now() + interval '30 days'")
        p.psql('insert into postdate.handing (owner, ids) select 987654, array_agg(id) from postdate.message')
        p.psql(f'insert into postdate.handing (owner, ids) select 987654, array_agg(id) from postdate.{locked[1]}')
        self.row(p, near[0], state='claimed', owner='987654', next_at="now() + interval '30 days'")
        held = self.lock(p, locked[1])
        g = p.gateway()
        for _, name in (near, far):
            wait_until(lambda n=name: p.value(f"select count(*) from postdate.{n} where state = 'handed'") == '0', 5, f'that of {name}')
        wait_until(lambda: p.value(f"select count(*) from postdate.{near[1]} where owner is not null") == '0', 5, 'the claim beside it')
        self.assertEqual(p.psql('select cardinality(ids) from postdate.handing'), [['1'], ['1']])
        self.free(held)
        wait_until(lambda: p.value('select count(*) from postdate.handing') == '0', 25, 'that of the locked day')
        self.assertEqual(p.value(f"select state from postdate.{locked[1]}"), 'claimed')
        self.assertEqual(g.term(), 0)


class Janitor(Days):
    def test_each_duty_by_itself_and_each_day_too(self):
        """The first failure ended the round: no other day was dropped, no key, moved id or Idempotency-Key forgotten."""
        p = self.place()
        days = [self.day(p, ago) for ago in (63, 62, 61)]
        for day, _ in days:
            self.row(p, day, state='delivered', settled_at=f"timestamptz '{day} 12:00+00'")
        p.psql("insert into postdate.key values ('', 'gone', now() - interval '70 days', postdate.id_make(now() - interval '70 days'));"
               "insert into postdate.moved select i, i, i from postdate.id_make(now() - interval '90 days') i;"
               "insert into postdate.idempotency (principal, key, created_at, body_hash) values ('', 'k', now() - interval '3 days', '')")
        held = self.lock(p, days[0][1])
        g = p.gateway()
        wait_until(lambda: p.value(f"select to_regclass('postdate.{days[2][1]}') is null") == 't', 20, 'the third day to be dropped')
        self.assertEqual(p.value(f"select to_regclass('postdate.{days[1][1]}') is null"), 't')
        wait_until(lambda: p.value("select (select count(*) from postdate.moved) + (select count(*) from postdate.idempotency)") == '0',
                   20, 'moved ids and Idempotency-Keys to be forgotten')
        self.assertEqual(p.value('select count(*) from postdate.key'), '0')
        g.wait_log(rf'dropping settled partitions: postdate.{days[0][1]}: .*lock timeout')
        self.free(held)
        self.assertEqual(g.term(), 0)

    def test_a_large_day_is_not_read(self):
        """About 20 million rows took longer than the statement's minute, and the day was never dropped."""
        p = self.place()
        count = 20_000
        kept, gone, late = self.day(p, 20), self.day(p, 21), self.day(p, 9)
        for day, name in (kept, gone, late):
            p.psql(f"insert into postdate.{name} (due, next_at, id, state, settled_at, hold, exchange, routing_key, properties, body)"
                   f" select d, d, postdate.id_make(d), 'delivered', d, 'g', '', 'k', '', '' from generate_series(1, {count}) i,"
                   f" lateral (select timestamptz '{day} 00:00+00' + i * interval '1 ms') x (d)")
        self.row(p, kept[0], state='failed', settled_at=f"timestamptz '{kept[0]} 12:00+00'")
        self.row(p, late[0], state='delivered', settled_at="now() - interval '6 days'")
        last = self.day(p, 8)[1]  # empty: looked at after the others
        p.psql('analyze postdate.' + kept[1])
        g = p.gateway()
        wait_until(lambda: p.value(f"select to_regclass('postdate.{last}') is null") == 't', 20, 'the round to be over')
        self.assertEqual(p.value(f"select to_regclass('postdate.{gone[1]}') is null"), 't', 'all of it is older than its retention')
        for _, name in (kept, late):
            self.assertEqual(p.value(f"select to_regclass('postdate.{name}') is null"), 'f', 'one of its rows is to be kept')
        self.assertEqual(g.term(), 0)  # its sessions have said what they read
        read = "select coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int from pg_stat_user_tables where relname = '{}'"
        before = int(p.value(read.format(kept[1])))
        rows = int(p.value(f'select count(*) from postdate.{kept[1]}'))
        self.assertEqual(rows, count + 1)
        self.assertLess(before, 2 * count, 'it was counted once for stats, and not read once more')


class Lookups(Days):
    def test_a_message_by_id_reads_one_partition(self):
        """The view, asked by an id alone, took eight locks for each day there is, and out of shared memory beside others."""
        p = self.place(max_delay='60d')
        first = p.value("select postdate.schedule('k', 'x', '30 days')")
        self.assertEqual(p.psql(f"select postdate.reschedule('{first}', '40 days')"), [['rescheduled']])
        s = p.session()

        def partitions(query):
            s.run('begin')
            rows = s.run(query)
            read = s.run("select count(distinct i.inhrelid) from pg_locks l join pg_inherits i on i.inhrelid = l.relation "
                         "where l.pid = pg_backend_pid() and i.inhparent = 'postdate.message'::regclass")
            s.run('commit')
            return rows, int(read[0][0])

        s.run('set role postdate_reader')
        rows, read = partitions(f"select id, state, convert_from(body, 'UTF8') from postdate.message('{first}')")
        self.assertEqual((len(rows), rows[0][1:]), (1, ['scheduled', 'x']))
        self.assertLessEqual(read, 2, 'those of both ids')
        latest = rows[0][0]
        self.assertNotEqual(latest, first)
        self.assertEqual(partitions(f"select id from postdate.message('{latest}')"), ([[latest]], 1))
        self.assertEqual(partitions("select id from postdate.message('00000000-0000-8000-8000-000000000000')")[0], [])
        view = "select state from postdate.messages where id = "
        s.run(f'prepare by_id as {view} $1; prepare by_ids as select state from postdate.messages where id = any ($1)')
        for query in (f"{view} '{latest}'", f"execute by_id ('{latest}')", f"execute by_ids ('{{{latest}}}')",
                      f"select state from (values ('{latest}'::uuid)) as mine (id) join postdate.messages using (id)",
                      f"select state from postdate.messages where id >= postdate.id_floor(postdate.id_due('{latest}')) and id <= '{latest}'"):
            with self.subTest(query):
                self.assertEqual(partitions(query), ([['scheduled']], 1))
        s.close()
