"""Recurring schedules: what was decided stays decided, one that is locked harms no other, jitter loses none, and how the last one ended."""
import time

import harness
from harness import LiveTest, now_ms, wait_until

ZONE = "zone => 'Europe/Berlin'"


class RecurDecided(LiveTest):
    """Without a gateway: what the functions leave in the tables."""
    vhosts = 0

    def setUp(self):
        super().setUp()
        self.p = self.place()

    def set(self, name, cron, more='', body='x'):
        return self.p.value(f"select postdate.recur_set('{name}', '{cron}', 'k', '{body}'::text{', ' + more if more else ''})")

    def nominals(self, name):
        """Of each occurrence that is or was to come, the nominal time."""
        return [int(x) for x, in self.p.psql("select properties_json -> 'headers' ->> 'x-postdate-nominal' from postdate.message_now "
                                             f"where key = 'recur/{name}' and state in ('scheduled', 'delivered', 'claimed', 'failed') order by 1")]

    def rules_changed(self):
        """As if tzdata had been updated."""
        self.p.psql("select postdate.recur_zones(); update postdate.recur_zone set mark = 'another'")
        return self.p.psql('select postdate.recur_zones()')

    def test_a_zones_rules_bring_nothing_back(self):
        p = self.p
        # none before it was set; it runs each half hour, at fixed times
        self.set('new', '0,30 0-23 * * *', ZONE)
        self.set('moved', '0 * * * *', ZONE)
        self.set('cancelled', '0 * * * *', ZONE)
        new = self.nominals('new')
        p.psql("select postdate.reschedule(message, due_at => nominal + interval '1 minute') from postdate.recur where name = 'moved'")
        p.psql("select postdate.cancel_key('recur/cancelled')")
        before = [self.nominals(n) for n in ('moved', 'cancelled')]
        self.assertEqual([len(x) for x in before], [2, 1])
        self.assertEqual(self.rules_changed(), [])
        self.assertEqual(self.nominals('new'), new)
        self.assertEqual([self.nominals(n) for n in ('moved', 'cancelled')], before)
        # and with another body the one that was cancelled or moved does not come back
        self.set('cancelled', '0 * * * *', ZONE, 'another')
        self.set('moved', '0 * * * *', ZONE, 'another')
        self.assertEqual([self.nominals(n) for n in ('moved', 'cancelled')], before)
        self.assertEqual(p.value("select last = (select id from postdate.message_now where state = 'scheduled' and recur is null) from postdate.recur where name = 'moved'"), 't',
                         'the one that was moved is the last one')

    def test_other_times_begin_now(self):
        self.set('a', '0 0 1 1 *')
        self.p.psql("select postdate.cancel_key('recur/a')")
        self.set('a', '0 0 * * *')
        self.assertLess(self.nominals('a')[0], now_ms() + 86_400_000, 'what was cancelled was a year away')
        # it is one of the new times, too: it stays cancelled
        self.p.psql("select postdate.cancel_key('recur/a')")
        self.set('a', '0 0,12 * * *')
        noon_or_midnight = self.nominals('a')[0]
        cancelled = int(self.p.value("select extract(epoch from max(due)) * 1000 from postdate.message_now where state = 'cancelled' and due < now() + interval '1 day'").split('.')[0])
        self.assertNotEqual(noon_or_midnight, cancelled)
        self.assertLess(noon_or_midnight, now_ms() + 86_400_000 * 3 // 2)

    def test_a_mark_of_a_zone_grows_old(self):
        p = self.p
        self.set('a', '0 9 * * *', ZONE)
        self.set('utc', '0 9 * * *')
        p.psql("select postdate.recur_zones(); update postdate.recur_zone set from_at = from_at - interval '201 days', mark = postdate.zone_print(zone, from_at - interval '201 days')")
        s = p.session()
        s.run('begin')
        s.run('select postdate.recur_zones()')
        self.assertEqual(p.value('select count(*) from (select from postdate.recur for update skip locked) x'), '2', 'none is locked that stays as it is')
        s.run('rollback')
        s.close()
        self.assertEqual(p.psql('select postdate.recur_zones()'), [])
        self.assertEqual(p.psql("select zone, from_at > now() - interval '2 days' from postdate.recur_zone"), [['Europe/Berlin', 't']])

    def test_paused_ones_hear_of_new_rules(self):
        p = self.p
        self.set('a', '0 9 * * *', ZONE)
        p.psql('select postdate.recur_zones()')
        right = p.value('select nominal from postdate.recur')
        p.psql("select postdate.recur_pause('a'); update postdate.recur set nominal = nominal + interval '1 hour'; update postdate.recur_zone set mark = 'another'")
        self.assertEqual(len(p.psql('select postdate.recur_zones()')), 1)
        self.assertEqual((p.value('select nominal from postdate.recur'), p.value('select message is null from postdate.recur')), (right, 't'))
        p.psql("select postdate.recur_resume('a')")
        self.assertEqual(p.value("select due from postdate.message_now where state = 'scheduled'"), right)

    def test_made_up_ones_wait_for_the_one_before(self):
        p = self.p
        for name in ('resumed', 'looked'):
            self.set(name, '0 * * * *', "overlap => 'skip', missed => 'all'")
            p.psql(f"update postdate.recur set last = postdate.recur_run('{name}'), last_nominal = now() where name = '{name}'")
        run = "id in (select last from postdate.recur)"
        for state, made in (("state = 'scheduled'", 0), ("state = 'failed', settled_at = now()", 0), ("state = 'delivered', settled_at = now()", 1)):
            p.psql(f"update postdate.message set next_at = coalesce(next_at, due), {state} where {run}")
            before = p.value('select count(*) from postdate.message_now where recur is null')
            p.psql("select postdate.recur_pause('resumed'); update postdate.recur set nominal = nominal - interval '5 hours' where name = 'resumed'; select postdate.recur_resume('resumed')")
            p.psql("update postdate.message set late_at = now() - interval '5 hours' where id = (select message from postdate.recur where name = 'looked'); "
                   "update postdate.recur set nominal = nominal - interval '5 hours', look_at = now() where name = 'looked'; select postdate.recur_look(10)")
            came = int(p.value(f"select count(*) from postdate.message_now where recur is null and state = 'scheduled' and not {run.replace('last', 'message')}")) - (state == "state = 'scheduled'") * 2
            self.assertEqual(came, made * 2, (state, before))
        self.assertEqual(p.psql('select skipped from postdate.recur'), [['0'], ['0']])

    def test_what_follows_missed_ones_can_be_claimed(self):
        """Of a schedule of each second, it was within grace by less than a second: claimed a moment later it was missed, too."""
        p = self.p
        self.set('a', '* * * * * *', "grace => '20 s'")
        p.psql("update postdate.message set late_at = now() - interval '1 hour' where id = (select message from postdate.recur); "
               "update postdate.recur set nominal = nominal - interval '1 hour', look_at = now()")
        self.assertRegex(p.value('select postdate.recur_look(10)'), 'more than 100 missed')
        made = 'from postdate.message m join postdate.recur r on r.message = m.id'
        left_s = f'select extract(epoch from m.late_at - m.created_at)::float {made}'
        self.assertGreaterEqual(float(p.value(left_s)), 5)
        ids = f'select array_agg(r.id), array_agg(m.id) {made}'
        self.assertEqual(p.value(f"select postdate.recur_claim(s, i) from ({ids}) x (s, i)"), '{}', 'none is left out')
        self.assertGreaterEqual(float(p.value(left_s)), 5, 'the next one')

    def test_how_the_last_one_ended(self):
        p = self.p
        self.set('a', '0 * * * *')
        p.psql("update postdate.recur set last = postdate.recur_run('a'), last_nominal = now()")
        last = p.value('select last from postdate.recur')
        state = lambda: p.value("select last_state from postdate.recurring")  # noqa: E731
        self.assertEqual(state(), 'scheduled')
        p.psql(f"update postdate.message set next_at = coalesce(next_at, due), state = 'delivered', settled_at = now() where id = '{last}'")
        self.assertEqual(state(), 'delivered')
        back = p.value("select postdate.schedule('q', 'x', delay => '1 hour')")
        p.psql("insert into postdate.lineage (id, message, changed_at, expires_at, failed, queue, exchange, routing_key, reason, hash, failed_at, reasons) "
               f"values ('{last}', '{back}', now(), now() + interval '1 day', 1, 'q', '', 'k', 'rejected', '', array[now()], array['rejected'])")
        self.assertEqual(state(), 'refused')
        p.psql("update postdate.lineage set message = null, died_at = now()")
        self.assertEqual(state(), 'dead')
        p.psql("delete from postdate.lineage")
        # moved: wherever it is now
        p.psql(f"update postdate.message set next_at = coalesce(next_at, due), state = 'failed' where id = '{last}'; select postdate.reschedule('{last}', '1 hour')")
        self.assertEqual(state(), 'scheduled')

    def test_it_is_known_when_its_day_has_been_dropped(self):
        p = self.p
        day = p.value("select (now() - interval '60 days')::date")
        name = p.day(day)
        self.set('a', '0 0 1 * *')
        p.psql("insert into postdate.message (due, next_at, settled_at, id, state, hold, exchange, routing_key, properties, body) "
               f"select d, d, d + interval '250 ms', postdate.id_make(d), 'delivered', 'g', '', 'k', '', '' from (select timestamptz '{day} 12:00+00' as d) x; "
               f"update postdate.recur set last_nominal = m.due, last = m.id from postdate.message_now m where m.due = '{day} 12:00+00'")
        p.psql(f"select postdate.recur_keep('{name}'); drop table postdate.{name}")
        self.assertEqual(p.psql("select last_state, last_lateness from postdate.recurring"), [['delivered', '00:00:00.25']])
        # one that was moved is plain
        name = p.day(day)
        p.psql("with m as (insert into postdate.message (due, id, hold, exchange, routing_key, properties, body) "
               f"select d, postdate.id_make(d), 'g', '', 'k', '', '' from (select timestamptz '{day} 13:00+00' as d) x returning id, due), "
               "b as (insert into postdate.batch (owner, from_id, to_id, settled_at, done, snapshot) "
               "select 1, postdate.id_floor(due), postdate.id_ceiling(due), due + interval '500 ms', true, pg_current_snapshot() from m) "
               "update postdate.recur set last_nominal = m.due, last = m.id from m")
        p.psql(f"select postdate.recur_keep('{name}'); drop table postdate.{name}")
        self.assertEqual(p.psql("select last_state, last_lateness from postdate.recurring"), [['delivered', '00:00:00.5']])
        p.psql("update postdate.recur set last = postdate.id_make(now())")
        self.assertEqual(p.value("select last_state is null from postdate.recurring"), 't', 'of another one nothing is known')

    def test_a_change_keeps_last_and_its_time_together(self):
        p = self.p
        self.set('a', '* * * * *', "jitter => '1 h', grace => '1 h'")
        p.psql("update postdate.recur set nominal = nominal - interval '10 minutes'")
        self.set('a', '* * * * *', "jitter => '1 h', grace => '1 h'", 'another')
        self.assertEqual(p.value("select (m.properties_json -> 'headers' ->> 'x-postdate-nominal') is not null and r.last_nominal < now() - interval '8 minutes' "
                                 "from postdate.recur r join postdate.message m on m.id = r.last"), 't', 'what was due already is the last one')
        p.psql("update postdate.message set late_at = now() - interval '1 second' where recur is not null; update postdate.recur set nominal = nominal - interval '5 minutes'")
        last = p.psql('select last, last_nominal from postdate.recur')
        self.set('a', '* * * * *', "jitter => '1 h', grace => '1 h'", 'a third')
        self.assertEqual(p.psql('select last, last_nominal from postdate.recur'), last, 'what was too late never came')


class RecurZoneGone(LiveTest):
    """A time zone that PostgreSQL no longer knows, as those of tzdata-legacy after an upgrade to Debian 13."""
    GONE = "update postdate.recur set zone = 'America/Gone' where name = 'gone'"
    SET = "select postdate.recur_set('{}', '{}', 'k', '{}'::text, zone => '{}')"

    def test_other_zones_are_looked_at_and_it_is_said_once(self):
        p = self.place()
        for name, zone in (('gone', 'America/New_York'), ('berlin', 'Europe/Berlin'), ('paris', 'Europe/Paris')):
            p.psql(self.SET.format(name, '0 9 * * *', name, zone))
        self.assertEqual(p.psql('select postdate.recur_zones()'), [])
        right = p.psql("select name, nominal from postdate.recur where name <> 'gone' order by 1")
        p.psql(f"{self.GONE}; update postdate.recur set nominal = nominal + interval '1 hour'; update postdate.recur_zone set mark = 'another'")
        said = [line for line, in p.psql('select postdate.recur_zones()')]
        self.assertRegex('\n'.join(said), 'does not know the time zone America/Gone .*: 1 schedules .*the first is gone.*tzdata-legacy')
        self.assertEqual(len(said), 3, said)
        self.assertEqual(p.psql("select name, nominal from postdate.recur where name <> 'gone' order by 1"), right)
        self.assertEqual(p.psql('select postdate.recur_zones()'), [], 'it was said')
        # it is back
        p.psql("update postdate.recur set zone = 'America/New_York' where name = 'gone'; "
               "delete from postdate.recur_zone where zone = 'America/New_York'; update postdate.recur_zone set zone = 'America/New_York' where zone = 'America/Gone'")
        self.assertEqual([line for line, in p.psql('select postdate.recur_zones()')],
                         ['recur: the rules of America/New_York have changed: 1 next occurrences recomputed'])

    def test_a_schedule_that_fails_stops_no_other_of_its_zone(self):
        p = self.place()
        for name in ('a', 'broken', 'z'):
            p.psql(self.SET.format(name, '0 9 * * *', name, 'Europe/Berlin'))
        right = p.value("select nominal from postdate.recur where name = 'a'")
        p.psql("select postdate.recur_zones(); update postdate.recur set nominal = nominal + interval '1 hour'; update postdate.recur_zone set mark = 'another'; "
               "update postdate.recur set grace = interval '170000000 years' where name = 'broken'")
        said = [line for line, in p.psql('select postdate.recur_zones()')]
        self.assertRegex('\n'.join(said), 'not all .*: broken: ')
        self.assertEqual(p.psql("select distinct nominal from postdate.recur where name in ('a', 'z')"), [[right]])

    def test_its_occurrences_can_be_cancelled_and_moved_alone_and_with_others(self):
        p = self.place()
        plain = p.value("select postdate.schedule('k', 'x'::text, delay => '1 h')")
        p.psql(self.SET.format('gone', '0 * * * *', 'x', 'America/New_York') + ';' + self.GONE)
        carrier = p.value('select message from postdate.recur')
        rc, out, err = p.cli('cancel', carrier, plain)
        self.assertEqual((rc, p.counts()), (0, {'cancelled': 2}), out + err)
        self.assertEqual(p.value("select look_at <= now() from postdate.recur"), 't', 'the janitor is asked')
        self.assertRegex(p.value('select postdate.recur_look(10)'), 'recur gone: cannot create its next occurrence: time zone "America/Gone"')

    def test_its_error_is_said_once_and_other_schedules_go_on(self):
        p = self.place(transport='timer')
        g = p.gateway()
        inbox = p.consumer('q', bind='k')
        for name, zone in (('gone', 'America/New_York'), ('other', 'Europe/Berlin')):
            p.psql(self.SET.format(name, '*/2 * * * * *', name, zone))
        inbox.wait_body(b'gone', 15)
        p.psql(self.GONE)
        g.wait_log('recur gone: cannot create its next occurrence: time zone "America/Gone" not recognized', 40)
        self.assertIn('America/Gone', p.value("select error from postdate.recurring where name = 'gone'"))
        p.psql("update postdate.recur set look_at = now() where name = 'gone'")  # a minute later
        wait_until(lambda: p.value("select look_at > now() from postdate.recur where name = 'gone'") == 't', 30, 'the next look')
        self.assertEqual(len(g.lines_with('recur gone: cannot')), 1, g.log())
        count = sum(m.body == b'other' for m in inbox.all())
        wait_until(lambda: sum(m.body == b'other' for m in inbox.all()) > count + 1, 15, 'the other schedule')


class RecurLocked(LiveTest):
    """Somebody has something locked in an open transaction."""

    @harness.given_time
    def test_a_crowd_of_locked_schedules_delays_no_other_message(self):
        p = self.place(transport='timer')
        p.gateway()
        p.client().queue('q', bind=['k', 'plain'])
        inbox = p.consumer('q')
        due_ms = (now_ms() // 1000 + 8 * self.pace) * 1000
        p.psql(f"select count(postdate.recur_set('s' || i, '@every 1h', 'k', 'x'::text, from_at => to_timestamp({due_ms // 1000}))) from generate_series(1, 1200) i")
        s = p.session()
        s.run('begin')
        s.run('select count(*) from (select from postdate.recur for update) x')
        p.psql(f"select postdate.schedule('plain', 'x'::text, due_at => to_timestamp({due_ms // 1000 + 0.001}))")
        if now_ms() >= due_ms:
            raise harness.TooSlow('1,200 schedules were not made and locked in time')
        m = inbox.wait(1, 15 + 8 * self.pace)[0]
        self.assertEqual((m.routing_key, len(inbox.all())), ('plain', 1))
        s.run('rollback')
        s.close()
        inbox.wait(1201, 30)

    def test_a_locked_day_delays_the_schedules_of_that_day(self):
        """Those that are claimed together with it go on."""
        p = self.place(transport='timer')
        g = p.gateway()
        p.client().queue('q', bind=['far', 'tick'])
        inbox = p.consumer('q')
        begin = now_ms() // 1000 + 4
        day = p.value(f"select 'message_' || to_char(to_timestamp({begin}) at time zone 'UTC' + interval '1 day', 'YYYYMMDD')")
        p.psql(f"select postdate.recur_set('tick', '@every 1s', 'tick', 'x'::text, from_at => to_timestamp({begin})); "
               f"select count(postdate.recur_set('far' || i, '@every 24h', 'far', 'x'::text, from_at => to_timestamp({begin}))) from generate_series(1, 5) i")
        s = p.session()
        s.run('begin')
        s.run(f'lock table postdate.{day} in access exclusive mode')
        ticks = lambda: [m for m in inbox.all() if m.routing_key == 'tick']  # noqa: E731
        wait_until(lambda: len(ticks()) >= 6, 40, 'those of each second')
        late = [m.at_ms - m.headers['x-postdate-nominal'] for m in ticks()]
        self.assertLess(max(late), 8000, late)
        self.assertEqual(sum(m.routing_key == 'far' for m in inbox.all()), 5, 'these come, too')
        s.run('rollback')
        s.close()
        wait_until(lambda: p.value("select count(*) from postdate.recur where name like 'far%' and message is not null and nominal > now() + interval '12 h'") == '5', 30, 'their next ones')
        self.assertEqual(p.value('select count(*) from postdate.recur where error is not null'), '0')
        self.assertEqual(g.lines_with('recur .*missed'), [])

    def test_apply_locks_what_it_changes(self):
        p = self.place()
        file = """{"a": {"cron": "@daily", "routing_key": "k", "body": "x"}, "b": {"cron": "@daily", "routing_key": "k", "body": "%s"}}"""
        p.psql(f"select from postdate.recur_apply('{file % 'x'}')")
        s = p.session()
        free = lambda: p.value("select coalesce(string_agg(name, ' ' order by name), '') from (select name from postdate.recur for update skip locked) x")  # noqa: E731
        for dry, left in (('true', 'a b'), ('false', 'a')):
            s.run('begin')
            self.assertEqual(s.run(f"select change, name from postdate.recur_apply('{file % 'y'}', {dry})"), [['~', 'b']])
            self.assertEqual(free(), left, 'dry run' if dry == 'true' else 'what is equal is not locked')
            s.run('rollback')
        s.run('begin')
        self.assertEqual(s.run("select change, name from postdate.recur_apply('{}', true)"), [['-', 'a'], ['-', 'b']])
        self.assertEqual(free(), 'a b')
        s.run('rollback')
        s.close()


class RecurJitter(LiveTest):
    def test_longer_than_the_interval(self):
        """None is lost, none overtakes another, and none comes later than the jitter."""
        p = self.place(transport='timer')
        g = p.gateway()
        inbox = p.consumer('q', declare=True, bind='k')
        p.psql("select postdate.recur_set(n, '* * * * * *', 'k', 'x'::text, jitter => '10 s', grace => '5 s') from unnest('{a,b,c}'::text[]) n")
        came = lambda n: [m for m in inbox.all() if m.headers['x-postdate-recur'] == n]  # noqa: E731
        wait_until(lambda: all(len(came(n)) >= 12 for n in 'abc'), 60, 'a dozen of each')
        time.sleep(0.3)
        for n in 'abc':
            at = [m.headers['x-postdate-nominal'] for m in came(n)]
            self.assertEqual(sorted(at), list(range(at[0], at[0] + 1000 * len(at), 1000)), n)
            for m in came(n):
                self.assertNotIn('x-postdate-missed', m.headers)
                self.assertTrue(0 <= m.due_ms - m.headers['x-postdate-nominal'] <= 10_000 + 500, m.headers)
        self.assertEqual(g.lines_with('missed since'), [])
