"""Recurring schedules: each occurrence comes once, whichever gateway lives; what was missed; what people do to a schedule."""
import datetime as dt
import json
import time

from harness import LiveTest, wait_until


class Recur(LiveTest):
    def inbox_of(self, p, *keys):
        p.client().queue('q', bind=keys)
        return p.consumer('q')

    def nominals(self, inbox, name):
        return [m.headers['x-postdate-nominal'] for m in inbox.all() if m.headers.get('x-postdate-recur') == name]

    def test_as_many_as_were_left_out_are_said(self):
        """Of 107 that were missed the last hundred come, with missed = all, and 7 do not."""
        p = self.place()
        p.psql("select postdate.recur_set('all', '@every 1m', 'k', 'x'::text, missed => 'all'), postdate.recur_set('one', '@every 1m', 'k', 'x'::text)")
        for minutes, left_out in ((100, 0), (107, 7), (150, 50), (300, 100)):
            p.psql("delete from postdate.message where routing_key = 'k'; update postdate.recur set last = null, last_nominal = null, message = null, skipped = 0")
            for name, said in (('all', left_out), ('one', min(minutes - 1, 100))):
                p.psql(f"with r as (select r, r.anchor - interval '{minutes} min' as first from postdate.recur r where name = '{name}') "
                       "select postdate.recur_step(r, first, (r).anchor - interval '1 s' + (r).grace, (r).grace, 0) from r")
                headers = p.psql("select properties_json -> 'headers' ->> 'x-postdate-missed' from postdate.message m "
                                 f"where routing_key = 'k' and recur is null and properties_json -> 'headers' ->> 'x-postdate-recur' = '{name}' order by due, id")
                self.assertEqual(len(headers), 1 if name == 'one' else 100, (minutes, name))
                self.assertEqual([h[0] for h in headers if h[0] not in (None, '')], [str(said)] if said else [], (minutes, name))

    def test_one_that_is_removed_and_set_again_keeps_its_rhythm(self):
        p = self.place()
        make = "select postdate.recur_set('tick', '@every 7m', 'k', 'x'::text)"
        anchor = "select anchor from postdate.recur where name = 'tick'"
        p.psql(make)
        p.psql("update postdate.recur set anchor = anchor - interval '100 s' where name = 'tick'")
        was = p.value(anchor)
        p.psql("select postdate.recur_remove('tick')")
        upcoming = p.value(make + "; ").strip()
        self.assertEqual(p.value(anchor), was)
        self.assertEqual(p.value(f"select extract(epoch from '{upcoming}'::timestamptz - '{was}'::timestamptz)::bigint % 420"), '0')
        p.psql("select postdate.recur_remove('tick')")
        p.psql(make.replace('7m', '8m'))
        self.assertNotEqual(p.value(anchor), was, 'it is another one')

    def test_two_gateways_and_one_dies(self):
        p = self.place()
        first, _ = p.gateway(), p.gateway()
        inbox = self.inbox_of(p, 'tick')
        p.psql("select postdate.recur_set('a', '@every 1s', 'tick', 'x'::text); select postdate.recur_set('b', '@every 1s', 'tick', 'y'::text)")
        began = time.monotonic()
        wait_until(lambda: len(inbox.all()) >= 4, 15, 'the first occurrences')
        first.kill9()
        time.sleep(1.5)
        p.gateway()
        time.sleep(max(0, 10 - (time.monotonic() - began)))
        p.psql("select postdate.recur_remove('a'), postdate.recur_remove('b')")
        wait_until(lambda: p.value("select count(*) from postdate.message_now where settled_at is null") == '0', 15, 'the last ones')
        for name in ('a', 'b'):
            came = sorted(set(self.nominals(inbox, name)))
            self.assertGreaterEqual(len(came), 9)
            self.assertEqual(came, list(range(came[0], came[-1] + 1, 1000)), f'{name}: one each second')
        # once each; what was in flight when the one died may come again, under its id
        messages = inbox.all()
        self.assertEqual(len({m.id for m in messages}), len({(m.headers['x-postdate-recur'], m.headers['x-postdate-nominal']) for m in messages}))
        self.assertLessEqual(len(messages) - len({m.id for m in messages}), 2)
        for m in messages:
            self.assertGreaterEqual(m.at_ms, m.headers['x-postdate-nominal'], 'none early')
            self.assertEqual((m.routing_key, m.body), ('tick', b'x' if m.headers['x-postdate-recur'] == 'a' else b'y'))

    def test_a_crowd_is_claimed_in_portions(self):
        """Each of them makes its next one: a thousand at once took 0.4 s, and what else was due waited."""
        p = self.place(transport='timer')
        at = p.value("select to_char(now() at time zone 'UTC' + interval '30 s', 'SS MI HH24 \"* * *\"')")
        p.psql(f"select count(postdate.recur_set('r' || i, '{at}', 'k', 'x'::text)) from generate_series(1, 600) i")
        p.gateway()
        wait_until(lambda: p.value('select count(last) from postdate.recur') == '600', 60, 'all to come once')
        self.assertLessEqual(int(p.value('select max(n) from (select count(*) as n from postdate.recur group by xmin::text) x')), 250, 'of one transaction')

    def test_after_an_outage(self):
        """Nothing ran for a quarter of an hour, and of other schedules for a week: what was missed is made up for as each says. Their rows are
        moved back to when the outage began. Half of it is more than grace ago; what is due since the gateway runs is never late by so much,
        and no full hour of the others is near."""
        p = self.place()
        g = p.gateway()
        inbox = self.inbox_of(p, 'one', 'all', 'none', 'late')
        g.term()
        far = p.value("select extract(minute from now() + interval '30 min')::int")
        for missed in ('one', 'all', 'none'):
            p.psql(f"select postdate.recur_set('{missed}', '*/10 * * * * *', '{missed}', 'x'::text, missed => '{missed}', grace => '450 s')")
            p.psql(f"select postdate.recur_set('{missed}-week', '{far} * * * *', '{missed}', 'x'::text, missed => '{missed}')")
        p.psql("select postdate.recur_set('late', '* * * * * *', 'late', 'x'::text, grace => '1 hour')")
        for name, span in (('%week', '7 days'), ('one', '15 min'), ('all', '15 min'), ('none', '15 min')):
            p.psql(f"update postdate.message m set late_at = greatest(now(), m.late_at) - interval '{span}' from postdate.recur r where r.message = m.id and r.name like '{name}'; "
                   f"update postdate.recur set nominal = nominal - interval '{span}', look_at = now() - interval '{span}' where name like '{name}'")
        wait_until(lambda: p.value("select now() > nominal + interval '2 s' from postdate.recur where name = 'late'") == 't', 10, 'some that are due')
        g = p.gateway()
        def headers(name):
            return [(m.headers['x-postdate-nominal'], m.headers.get('x-postdate-missed', 0)) for m in inbox.all() if m.headers['x-postdate-recur'] == name]
        def missing(name):
            came = sorted({n for n, _ in headers(name)})
            return (came[-1] - came[0]) // (1000 if name == 'late' else 10_000) + 1 - len(came)
        wait_until(lambda: all(len(headers(n)) >= 8 for n in ('one', 'all', 'none', 'late')) and len(headers('all-week')) >= 100 and headers('one-week'), 60, 'the occurrences')
        wait_until(lambda: all(missing(n) == 0 for n in ('one', 'all', 'late')), 30, 'one of each time')
        hour = 3600 * 1000
        # often: one is made up for, and says how many were not; none says so with the next; late enough was none
        for name in ('one', 'all', 'none', 'late'):
            came = sorted(headers(name))
            self.assertEqual(len({n for n, _ in came}), len(came), f'{name}: none twice')
            self.assertEqual(sum(m for _, m in came) >= 2, name in ('one', 'none'), (name, came))
        # every hour of a week
        self.assertEqual(headers('none-week'), [])
        self.assertEqual([m for _, m in headers('one-week')], [100], 'a hundred and more are counted as a hundred')
        week = sorted(headers('all-week'))
        self.assertEqual([n for n, _ in week], list(range(week[0][0], week[0][0] + 100 * hour, hour)), 'the last hundred')
        self.assertEqual([m for _, m in week[1:]], [0] * 99)
        self.assertTrue(66 <= week[0][1] <= 69, 'of the 168 hours, so many were left out')
        self.assertEqual(headers('one-week')[0][0], week[-1][0])
        self.assertTrue(g.lines_with('recur one-week: more than 100 missed'))
        wait_until(lambda: p.value("select count(*) from postdate.recur where nominal < now() - interval '1 min' or error is not null") == '0', 30, 'all to be up to date')

    def test_what_people_do(self):
        p = self.place()
        p.gateway()
        inbox = self.inbox_of(p, 'r', 's')
        value = p.value
        p.psql("select postdate.recur_set('a', '@every 1d', 'r', 'one'::text, headers => '{\"n\": 1}')")
        self.assertEqual(value("select count(*) from postdate.messages where key = 'recur/a' and state = 'scheduled'"), '1')
        run = value("select postdate.recur_run('a')")
        m = inbox.wait(1)[0]
        self.assertEqual((m.id, m.body, m.headers['n'], m.headers['x-postdate-recur']), (run, b'one', 1, 'a'))
        # changed: the old occurrence never comes
        p.psql("select postdate.recur_set('a', '@every 1s', 's', 'two'::text)")
        self.assertEqual(inbox.wait(2)[1].body, b'two')
        # paused: nothing; what was due meanwhile counts as missed
        self.assertEqual(value("select postdate.recur_pause('a')"), 't')
        p.psql("select postdate.recur_pause('a')")
        wait_until(lambda: value("select count(*) from postdate.message_now where settled_at is null") == '0', 10, 'what was on its way')
        time.sleep(0.3)
        before = len(inbox.all())
        time.sleep(2.5)
        self.assertEqual(len(inbox.all()), before)
        self.assertEqual(value("select postdate.recur_resume('a')"), 't')
        after = wait_until(lambda: len(inbox.all()) > before and inbox.all()[before], 10, 'the one that is made up for')
        self.assertGreaterEqual(after.headers['x-postdate-missed'], 1)
        # cancelled by its key: that one is left out, the schedule goes on
        p.psql("select postdate.recur_set('a', '@every 1h', 's', 'three'::text)")
        first = value("select message from postdate.recur where name = 'a'")
        self.assertEqual(value("select postdate.cancel_key('recur/a')"), 'cancelled')
        self.assertEqual(value(f"select state from postdate.message_now where id = '{first}'"), 'cancelled')
        second = value("select message from postdate.recur where name = 'a'")
        self.assertNotEqual(second, first)
        self.assertEqual(value("select postdate.recur_remove('a')"), 't')
        self.assertEqual(value("select postdate.recur_remove('a')"), 'f')
        self.assertEqual(value(f"select state from postdate.message_now where id = '{second}'"), 'superseded')
        # who waits for the one before
        p.psql("select postdate.recur_set('b', '@every 1s', 'nobody', 'x'::text, overlap => 'skip', exchange => 'not.there')")
        wait_until(lambda: int(value("select count(*) from postdate.message_now where key = 'recur/b' and state = 'cancelled'")) >= 2, 15, 'two that are left out')
        self.assertEqual(value("select count(*) from postdate.message_now where key = 'recur/b' and attempts > 0"), '1', 'one waits for its exchange')

    def test_in_the_callers_transaction(self):
        p = self.place()
        p.gateway()
        inbox = self.inbox_of(p, 'r', 'k')
        s = p.session()
        s.run('begin')
        s.run("select postdate.recur_set('gone', '@every 1s', 'r', 'x'::text)")
        s.run("rollback")
        self.assertEqual(p.value("select (select count(*) from postdate.recur) + (select count(*) from postdate.message_now) + (select count(*) from postdate.key)"), '0')
        p.psql("select postdate.recur_set('kept', '@every 1s', 'k', 'x'::text)")
        inbox.wait(1)
        # whoever has the schedule in an open transaction holds up this one, and no other
        s.run('begin')
        s.run("select postdate.recur_pause('kept')")
        p.psql("select postdate.recur_set('other', '@every 1s', 'r', 'x'::text)")
        wait_until(lambda: len(self.nominals(inbox, 'other')) >= 3, 10, 'the other one')
        s.run('rollback')
        count = len(self.nominals(inbox, 'kept'))
        wait_until(lambda: len(self.nominals(inbox, 'kept')) >= count + 3, 10, 'the one that was held up')
        came = self.nominals(inbox, 'kept')
        self.assertEqual(came, list(range(came[0], came[-1] + 1, 1000)), 'all of them, once')
        s.close()

    def test_nothing_carries_it_on(self):
        """The row is gone, as after somebody's hand in the tables: the janitor sees to it."""
        p = self.place()
        p.psql("select postdate.recur_set('a', '@every 1h', 'r', 'x'::text)")
        p.psql("delete from postdate.message; update postdate.recur set look_at = now()")
        g = p.gateway()
        wait_until(lambda: p.value("select count(*) from postdate.message_now m join postdate.recur r on r.message = m.id and m.recur = r.id") == '1', 15, 'its next one')
        self.assertTrue(g.lines_with('recur a: its next occurrence was missing'))

    def test_the_rules_of_a_zone_change(self):
        p = self.place()
        p.psql("select postdate.recur_set('a', '0 */6 * * *', 'r', 'x'::text, zone => 'Europe/Berlin'), postdate.recur_set('b', '30 0,6,12,18 * * *', 'r', 'x'::text, zone => 'Europe/Berlin')")
        p.psql("select postdate.recur_zones()")
        right = p.psql('select name, nominal from postdate.recur order by name')
        first = p.value("select string_agg(message::text, ' ') from postdate.recur")
        # as if another rule had been in force when they were computed
        p.psql("update postdate.recur set nominal = nominal + interval '1 hour'; update postdate.recur_zone set mark = 'another'")
        g = p.gateway()
        wait_until(lambda: p.psql('select name, nominal from postdate.recur order by name') == right, 15, 'the right times')
        self.assertTrue(g.lines_with('the rules of Europe/Berlin have changed: 2 next occurrences'))
        self.assertEqual(p.value("select count(*) from postdate.message_now where state = 'superseded' and '" + first + "' ~ id::text"), '2')
        self.assertEqual(p.value("select count(*) from postdate.message_now m join postdate.recur r on r.message = m.id and m.due = r.nominal and m.state = 'scheduled'"), '2')

    def test_the_command_line(self):
        p = self.place()
        def cli(*args, rc=0, **more):
            code, out, err = p.cli('recur', *args, **more)
            self.assertEqual(code, rc, out + err)
            return out if rc == 0 else err
        cli('set', 'r', '--cron', '0 9 * * mon-fri', '--zone', 'Europe/Berlin', '-k', 'report', '--body', 'x', '--jitter', '30s', '--header', 'n=1')
        cli('set', 'bytes', '--cron', '@daily', '-k', 'report', '-', stdin=b'\xff\x00')
        self.assertEqual([line.split()[0] for line in cli('list').splitlines()], ['NAME', 'bytes', 'r'])
        shown = json.loads(cli('show', 'r', '--json'))
        self.assertEqual([shown[k] for k in ('cron', 'zone', 'jitter', 'grace', 'missed', 'headers', 'body')],
                         ['0 9 * * mon-fri', 'Europe/Berlin', '30s', '1m', 'one', {'n': 1}, 'x'])
        self.assertRegex(cli('show', 'r'), r'(?m)^next +(....-..-..)T09:00:00[+]0[12]:00  \1T0[78]:00:00.000Z \(in ')
        self.assertEqual(json.loads(cli('show', 'bytes', '--json'))['body_base64'], '/wA=')
        self.assertEqual(len(cli('preview', 'r', '-n', '3').splitlines()), 3)
        p.psql("select postdate.recur_set('over', '0 9 * * *', 'k', 'x'::text, until_at => now() + interval '2 days'); update postdate.recur set nominal = null where name = 'over'")
        self.assertEqual(p.cli('recur', 'preview', 'over')[1:], ('', 'postdate: schedule "over" has ended: no time follows\n'))
        for option in (('--zone', 'Asia/Tokyo'), ('--dialect', 'cron'), ('--dst', 'skip'), ('--from', '2026-10-25T00:00:00Z')):
            self.assertIn('not to a name', cli('preview', 'r', *option, rc=64))
        self.assertIn('clock goes back', cli('preview', '--cron', '30 2 * * *', '--zone', 'Europe/Berlin', '--from', '2026-10-25T00:00:00Z', '-n', '1'))
        self.assertIn('"23"', cli('set', 'r', '--cron', '0 25 * * *', '-k', 'k', '--body', '', rc=65))
        # as Spring and Quartz write it
        fields = ('--cron', '0 0 9 ? * 2', '-k', 'report', '--body', 'x')
        refused = cli('set', 'q', *fields, rc=65)
        for words in ('read TUE', 'reads MON', '--dialect quartz'):
            self.assertIn(words, refused)
        cli('set', 'q', *fields, '--dialect', 'quartz')
        self.assertEqual([json.loads(cli('show', 'q', '--json'))[k] for k in ('cron', 'dialect')], ['0 0 9 ? * 2', 'quartz'])
        self.assertRegex(cli('show', 'q'), r'(?m)^dialect +quartz$')
        for dialect, weekday in (('quartz', 1), ('cron', 2)):
            out = cli('preview', '--cron', '0 0 9 ? * 2', '--dialect', dialect, '-n', '1')
            self.assertEqual(dt.date.fromisoformat(out[:10]).isoweekday(), weekday, out)
        self.assertIn('Allowed are cron', cli('set', 'q', *fields, '--dialect', 'spring', rc=65))
        cli('set', 'q', *fields, '--dialect', 'cron')
        self.assertEqual(dt.date.fromisoformat(cli('preview', 'q', '-n', '1')[:10]).isoweekday(), 2)
        cli('remove', 'q')
        cli('pause', 'r')
        self.assertIn('paused', cli('show', 'r'))
        # set again: what is not given has its default again, and the pause stays
        cli('set', 'r', '--cron', '0 9 * * mon-fri', '-k', 'report', '--body', 'y')
        again = json.loads(cli('show', 'r', '--json'))
        self.assertEqual([again[k] for k in ('zone', 'jitter', 'headers', 'body', 'paused')], ['UTC', '0s', {}, 'y', True])
        cli('resume', 'r')
        self.assertRegex(cli('run', 'r'), r'^[0-9a-f-]{36}\n$')
        cli('remove', 'r')
        cli('remove', 'r', rc=66)
        cli('show', rc=64)
        cli('pause', 'r', '--cron', 'x', rc=64)
        cli(rc=64)
