"""Far ahead a partition has a month. It becomes days before it begins, or once it has grown; few partitions are few locks."""
import threading

import harness
import web
from doctor_kit import Doctor
from harness import LiveTest, Place, Session, Stack, run_psql, wait_until

FAR_DAYS = 100
# Rows of a month, at random places in it. A large body is not compressed.
ROWS = """insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body)
select d, d, postdate.id_make(d), 'g', 'postdate.delivery', 'far', '\\x100002', convert_to(repeat('x', {size}), 'UTF8')
  from (select date_trunc('milliseconds', timestamptz '{first} 00:00+00' + random() * interval '27 days') as d from generate_series(1, {count})) x"""


class Months(LiveTest):
    who_waits = 'timer'

    def month(self, p, days=FAR_DAYS):
        """First day and name of the partition of the month in that many days."""
        first = p.value(f"select (date_trunc('month', now() at time zone 'utc' + interval '{days} days'))::date")
        return first, 'message_' + first[:7].replace('-', '')

    def tables(self, p, names):
        return [row[0] for row in p.psql(f"select relname from pg_class where relnamespace = 'postdate'::regnamespace and relkind = 'r' and relname ~ '{names}' order by 1")]

    def is_days(self, p, name):
        return name not in self.tables(p, f'^{name}') and len(self.tables(p, f'^{name}')) >= 28

    def fill(self, p, first, count, size):
        p.psql(ROWS.format(first=first, count=count, size=size))

    def content(self, p):
        return p.value("select md5(string_agg(m::text, '' order by id)) from postdate.message m")

    def superuser(self, p):
        return p.postgres.replace('user=postdate', 'user=postgres')

    def test_two_years_are_days_and_then_months(self):
        p = self.place(max_delay='730d')
        names = self.tables(p, '^message_[0-9]')
        days, months = [n for n in names if len(n) == 16], [n for n in names if len(n) == 14]
        self.assertLess(len(days), 50)
        self.assertIn(len(months), (23, 24))
        self.assertLess(days[-1][:14], months[0], 'no month has both')
        last = p.value("select to_char(now() + interval '730 days', 'YYYYMM')")
        self.assertGreaterEqual(months[-1], f'message_{last}')
        g = p.gateway()
        for delay in ('13 days', '20 days', '45 days', '100 days', '365 days', '729 days'):
            message = p.value(f"select postdate.schedule('k', 'x', '{delay}')")
            self.assertEqual(p.value(f"select postdate.reschedule('{message}', '{delay}')"), 'rescheduled')
        c = p.client()
        c.publish('far', b'', {'x-delay': 700 * 86_400_000})
        wait_until(lambda: p.counts() == {'scheduled': 7, 'superseded': 6}, 10, 'the published one to be stored')
        self.assertEqual(p.cli('migrate')[1].count(' 0 partitions created'), 1)
        self.assertEqual(len(p.cli('list', '--state', 'scheduled')[1].splitlines()), 8, 'with a heading')
        self.assertEqual(g.term(), 0)

    def test_a_month_with_rows_is_divided_and_an_older_snapshot_sees_all_of_them(self):
        p = self.place(max_delay='400d')
        first, name = self.month(p)
        self.fill(p, first, 30_000, 700)
        mine = p.value(f"select postdate.schedule('far', 'mine', due_at => '{first} 12:00+00', key => 'mine')")
        before, count = self.content(p), p.value('select count(*) from postdate.message')
        old = p.session()
        old.run('begin isolation level repeatable read')
        old.run('select count(*) from postdate.settings')
        g = p.gateway()
        wait_until(lambda: self.is_days(p, name), 150, 'the month to be divided')  # a lock there is tried again after a minute
        self.assertEqual(self.content(p), before, 'ids and all else are the same')
        self.assertEqual(old.run('select count(*) from postdate.message')[0][0], count)
        self.assertEqual(old.run(f"select id from postdate.message('{mine}')"), [[mine]])
        self.assertEqual(old.run("select postdate.cancel_key('mine')"), [['cancelled']])
        old.run('commit')
        old.close()
        self.assertRegex(p.cli('show', mine)[1], r'(?m)^state +cancelled\b')
        g.wait_log('divided 1 months into days')
        self.assertEqual(p.cli('migrate')[1].count(' 0 partitions created'), 1)
        self.assertEqual(g.term(), 0)

    def test_a_small_month_stays(self):
        p = self.place(max_delay='400d')
        first, name = self.month(p)
        self.fill(p, first, 100, 700)
        g = p.gateway()
        g.wait_log('ready')
        wait_until(lambda: p.value("select count(*) from postdate.forecast") != '0', 30, 'the janitor to have been at its duties')
        self.assertEqual(self.tables(p, f'^{name}'), [name])
        self.assertEqual(g.term(), 0)

    def test_a_month_that_holds_too_much_stays_and_it_is_said(self):
        p = self.place(max_delay='400d')
        first, name = self.month(p)
        p.psql(f'alter table postdate.{name} alter body set storage external')
        self.fill(p, first, 140, 1_000_000)
        g = p.gateway()
        g.wait_log(f'{name} is too large to be divided into days')
        self.assertEqual(self.tables(p, f'^{name}'), [name])
        self.assertEqual(p.counts(), {'scheduled': 140})
        self.assertEqual(g.term(), 0)

    def test_who_meets_the_division_waits_or_is_told_so(self):
        """It stands still while the month has been copied and not yet dropped."""
        p = self.place(max_delay='400d')
        first, name = self.month(p)
        self.fill(p, first, 30_000, 700)
        one, two, three = (p.value(f"select postdate.schedule('far', 'x', due_at => '{first} {hour}:00+00')") for hour in (8, 9, 10))
        run_psql(self.superuser(p), "create table public.hold as select true as held; grant all on public.hold to postdate; create function public.stand_still() returns event_trigger language plpgsql as "
                 "$$ begin while exists (select from public.hold) loop perform pg_sleep(0.02); end loop; end $$; "
                 "create event trigger stand_still on ddl_command_start when tag in ('DROP TABLE') execute function public.stand_still()")
        g = p.gateway()
        inbox = p.consumer('q', bind='k')
        month_table = name.replace('message_', 'message_month_')
        wait_until(lambda: p.value("select count(*) from pg_locks where mode = 'AccessExclusiveLock' and granted "
                                   f"and relation = to_regclass('postdate.{month_table}')") == '1'
                   and p.value("select count(*) from pg_stat_activity where wait_event = 'PgSleep'") != '0', 30, 'the division to stand still')
        s = p.session()
        s.run("set lock_timeout = '200 ms'")
        for query in (f"select postdate.cancel('{one}')", f"select postdate.reschedule('{one}', '1 hour')", f"select * from postdate.message('{one}')"):
            self.assertIn('lock timeout', s.run(query)[0][0], query)
        self.assertEqual(p.cli('cancel', one)[0], 75, 'busy')
        answers = []
        waiting = p.session()
        thread = threading.Thread(target=lambda: answers.extend(waiting.run(f"select postdate.cancel('{two}')")))
        thread.start()
        self.assertIn(first[:7], p.cli('status')[1])
        p.psql("select postdate.schedule('k', 'now', '0 s'), postdate.schedule('far', 'other', '300 days')")
        self.assertEqual(inbox.wait(1)[0].body, b'now', 'all else goes on')
        self.assertEqual(answers, [])
        p.psql('delete from public.hold')
        thread.join(30)
        self.assertEqual(answers, [['cancelled']])
        wait_until(lambda: self.is_days(p, name), 30, 'the month to be divided')
        self.assertEqual(s.run(f"select postdate.cancel('{one}')"), [['cancelled']])
        self.assertEqual(p.cli('cancel', three)[0], 0)
        wait_until(lambda: p.counts() == {'scheduled': 30_001, 'cancelled': 3, 'delivered': 1}, 10, 'nothing to be missing')
        for session in (s, waiting):
            session.close()
        self.assertEqual(g.term(), 0)

    def test_a_month_that_somebody_reads_is_divided_later(self):
        p = self.place(max_delay='400d')
        first, name = self.month(p)
        self.fill(p, first, 30_000, 700)
        reader = p.session()
        reader.run('begin')
        reader.run(f'select count(*) from postdate.{name}')
        g = p.gateway()
        inbox = p.consumer('q', bind='k')
        p.psql("select postdate.schedule('k', 'now', '0 s')")
        inbox.wait(1)
        wait_until(lambda: p.value("select count(counted_at) from postdate.forecast_round") == '2', 30, 'the janitor to go on')
        self.assertEqual(self.tables(p, f'^{name}'), [name])
        reader.run('commit')
        reader.close()
        self.assertEqual(g.term(), 0)
        p.gateway()  # instead of a minute
        wait_until(lambda: self.is_days(p, name), 30, 'the month to be divided')

    def test_a_lock_on_a_month_delays_only_its_messages(self):
        p = self.place(max_delay='400d')
        first, name = self.month(p)
        ahead_ms = int(p.value(f"select (extract(epoch from timestamptz '{first} 12:00+00' - now()) * 1000)::bigint"))
        g = p.gateway()
        inbox, c, http = p.consumer('q', bind='k'), p.client(), web.Web(g.http())
        held = p.session()
        held.run('begin')
        held.run(f'lock table postdate.{name} in access exclusive mode')
        c.publish('far', b'', {'x-delay': ahead_ms})
        c.publish('k', b'now', {'x-delay': 0})
        self.assertEqual(inbox.wait(1)[0].body, b'now')
        one = http.post('/v1/messages', {'routing_key': 'far', 'delay_ms': ahead_ms, 'body': ''})
        self.assertEqual((one.status, one.problem), (503, 'day-locked'))
        self.assertEqual(http.post('/v1/messages', {'routing_key': 'far', 'delay_ms': ahead_ms - 40 * 86_400_000, 'body': ''}).status, 201)
        self.assertIn(f'locked       {first[:7]}: not counted', p.cli('status')[1])
        held.run('rollback')
        held.close()
        wait_until(lambda: p.value(f'select count(*) from postdate.{name}') == '1', 10, 'that of the locked month to be stored')
        http.close()
        self.assertEqual(g.term(), 0)

    def test_days_that_belong_to_the_whole_table_stay_and_their_month_is_completed(self):
        """As a database has them whose days were made before there were months."""
        p = self.place()
        first, name = self.month(p, 60)
        p.day(first[:8] + '10')
        rc, out, err = p.cli('migrate', env={'POSTDATE_DELIVERY_MAX_DELAY': '120d'})
        self.assertEqual((rc, err), (0, ''), out)
        self.assertTrue(self.is_days(p, name))
        self.assertEqual(self.tables(p, f"^{self.month(p)[1]}"), [self.month(p)[1]])
        self.assertEqual(p.value("select count(*) from pg_inherits i join pg_class c on c.oid = i.inhrelid where i.inhparent = 'postdate.message'::regclass "
                                 f"and c.relname ~ '^{name}'"), str(len(self.tables(p, f'^{name}'))))

    def test_what_is_over_goes_with_the_table_of_its_month(self):
        p = self.place()
        first, name = self.month(p, -100)
        table = name.replace('message_', 'message_month_')
        from_id, to_id = p.psql(f"select postdate.id_floor(d), postdate.id_floor(d + interval '1 month') from (select timestamptz '{first} 00:00+00') x (d)")[0]
        bounds = f"for values from ('{from_id}') to ('{to_id}')"
        p.psql(f'create table postdate.{table} (like postdate.message including all) partition by range (id); '
               f'alter table postdate.message attach partition postdate.{table} {bounds}; '
               f'create table postdate.{name} (like postdate.message including all); alter table postdate.{table} attach partition postdate.{name} {bounds}')
        p.psql("insert into postdate.message (due, next_at, settled_at, id, state, hold, exchange, routing_key, properties, body) "
               f"select d, d, d, postdate.id_make(d), 'delivered', 'g', '', 'k', '', '' from (select timestamptz '{first} 12:00+00') x (d)")
        g = p.gateway()
        wait_until(lambda: self.tables(p, f'^{name}') == [], 20, 'the month to be dropped')
        self.assertEqual(g.term(), 0)
        p.gateway()  # instead of an hour
        wait_until(lambda: p.value(f"select to_regclass('postdate.{table}') is null") == 't', 20, 'its table to be dropped')


class Locks(Doctor):
    """A server as it is installed: max_connections 100, max_locks_per_transaction 64."""

    def own_server(self):
        servers = Stack.own(self.addCleanup, 'locks')
        servers.command('start-postgres')
        url = f"postgresql:///postdate?host={servers.directory}/postgres/run&port=5432&user=postgres"
        run_psql(url, 'alter system set max_connections = 100')
        servers.command('stop-postgres')
        servers.command('start-postgres')
        self.assertEqual(run_psql(url, "select current_setting('max_locks_per_transaction'), current_setting('max_connections')"), [['64', '100']])
        return url

    def test_sixteen_read_everything_and_sixteen_one_message(self):
        url = self.own_server()
        p = Place(harness.stack(), migrate=False)
        self.addCleanup(p.close)
        env = {'POSTDATE_POSTGRES_URL': url, 'POSTDATE_DELIVERY_MAX_DELAY': None}
        p.run('migrate', env=env)
        found = self.doctor(p, **env)
        self.assert_ok(found, 'database.locks')
        self.assert_ok(found, 'database.partitions')
        one = run_psql(url, "select postdate.schedule('k', 'x', '600 days')")[0][0]
        sessions = [Session(url) for _ in range(32)]
        for i, s in enumerate(sessions):
            s.run('begin')
            rows = s.run('select count(*) from postdate.messages' if i % 2 else f"select count(*) from postdate.messages where id = '{one}'")
            self.assertEqual(rows, [['1']], f'{i} read at the same time')
        locks = sessions[1].run('select count(*) from pg_locks where pid = pg_backend_pid()')
        self.assertLess(int(locks[0][0]), 1000)
        for s in sessions:
            s.close()
