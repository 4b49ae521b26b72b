"""Partitions by due day: made ahead of need, dropped whole once everything in them is settled, never with anything live."""
import subprocess

from harness import LiveTest, wait_until
from web import Web

ROW = """
insert into postdate.message (due, next_at, settled_at, id, state, hold, exchange, routing_key, properties, body)
values ('{day} 12:00+00', '{next_at}', {settled}, postdate.id_make('{day} 12:00+00'), '{state}', 'g', '', 'nowhere', '', '');
"""


class Partitions(LiveTest):
    def day(self, p, ago, rows):
        """A past day with rows [(state, settled_at or None)]; returns its partition's name."""
        day = p.value(f"select (now() - interval '{ago} days')::date")
        name = p.day(day)
        for state, settled, next_at in rows:
            p.psql(ROW.format(day=day, state=state, next_at=next_at,
                              settled=f"now() - interval '{settled}'" if settled else 'null'))
        return name

    def partitions(self, p):
        return [row[0] for row in p.psql(
            "select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid"
            " where c.relnamespace = 'postdate'::regnamespace and c.relkind = 'r'")]

    def has(self, p, name):
        return name in self.partitions(p)

    def test_settled_days_are_dropped_and_live_ones_stay(self):
        p = self.place()
        far = '2099-01-01'
        old = self.day(p, 60, [('delivered', '59 days', far), ('failed', '40 days', far), ('cancelled', '50 days', far), ('expired', '40 days', far)])
        empty = self.day(p, 61, [])
        young = self.day(p, 20, [('delivered', '19 days', far), ('failed', '19 days', far)])
        late = self.day(p, 19, [('expired', '18 days', far)])
        live = self.day(p, 62, [('delivered', '61 days', far), ('scheduled', None, far)])
        doubt = self.day(p, 63, [('claimed', None, far)])
        p.gateway()
        wait_until(lambda: not self.has(p, old) and not self.has(p, empty), 20, 'the settled days to be dropped')
        self.assertTrue(self.has(p, young), 'a failed message is kept for 30 days')
        self.assertTrue(self.has(p, late), 'an expired one, too')
        self.assertTrue(self.has(p, live), 'a scheduled message is never dropped')
        self.assertTrue(self.has(p, doubt), 'a message in doubt is never dropped')
        wait_until(lambda: p.value("select to_regclass('postdate.%s') is null" % old) == 't', 10, 'not only detached')

    def test_a_reader_in_an_open_transaction_stops_neither_drop_for_ever_nor_delivery(self):
        p = self.place()
        old = self.day(p, 60, [('delivered', '59 days', '2099-01-01')])
        reader = p.session()
        reader.run('begin isolation level repeatable read')
        reader.run('select count(*) from postdate.message_now')
        p.gateway()
        client = p.client()
        client.queue('work', bind='work')
        for delay in (0, 300, 2500):
            client.publish('work', str(delay).encode(), {'x-delay': delay})
        bodies = [client.wait_get('work').body for _ in range(3)]
        self.assertEqual(bodies, [b'0', b'300', b'2500'])
        reader.run('commit')
        reader.close()

    def test_a_partition_left_detached_by_a_crash_is_brought_back_or_dropped(self):
        p = self.place()
        live = self.day(p, 62, [('scheduled', None, '2099-01-01')])
        done = self.day(p, 60, [('delivered', '59 days', '2099-01-01')])
        for name in (live, done):
            p.psql(f'alter table postdate.message detach partition postdate.{name}')
        p.gateway()
        wait_until(lambda: self.has(p, live), 20, 'the live day to be attached again')
        wait_until(lambda: p.value(f"select to_regclass('postdate.{done}') is null") == 't', 20, 'the settled one to go')

    def test_one_half_detached_by_a_crash_delays_no_other(self):
        p = self.place()
        first, half = [self.day(p, ago, [('delivered', '59 days', '2099-01-01')]) for ago in (61, 60)]
        reader = p.session()
        reader.run('begin isolation level repeatable read')
        reader.run('select count(*) from postdate.message_now')
        detach = subprocess.Popen(['psql', '-qX', '-d', p.postgres, '-c', f'alter table postdate.message detach partition postdate.{half} concurrently'],
                                  stderr=subprocess.DEVNULL)
        pending = f"select inhdetachpending from pg_inherits where inhrelid = 'postdate.{half}'::regclass"
        wait_until(lambda: p.value(pending) == 't', 10, 'it to be half detached')
        p.psql("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query like 'alter table%concurrently'")
        reader.close()
        self.assertNotEqual(detach.wait(30), 0)
        g = p.gateway()
        wait_until(lambda: p.value(f"select coalesce(to_regclass('postdate.{first}'), to_regclass('postdate.{half}')) is null") == 't', 20, 'both to go')
        self.assertEqual(g.lines_with('warn .*partition'), [])

    def test_what_forbids_each_detach_is_said(self):
        p = self.place()
        self.day(p, 60, [('delivered', '59 days', '2099-01-01')])
        p.psql('create table everything_else (like postdate.message including all); alter table postdate.message attach partition everything_else default')
        p.gateway().wait_log('dropping settled partitions: .*default partition', 20)


class DroppedDay(LiveTest):
    """A day that somebody dropped is made again when it is missed."""
    transport = 'timer'

    def test_today_dropped_is_made_again_and_nothing_is_rejected(self):
        p = self.place()
        gateway = p.gateway()
        c = p.client()
        c.queue('q', 'k')
        inbox = p.consumer('q')
        today = p.value("select to_char(now() at time zone 'UTC', 'YYYYMMDD')")
        p.psql(f'drop table postdate.message_{today}')
        for n in range(50):
            c.publish('k', b'x', {'x-delay': 2000})
        web = Web(gateway.http())
        self.addCleanup(web.close)
        statuses = [web.post('/v1/messages', {'routing_key': 'k', 'body': 'x', 'delay': '2s'}).status for _ in range(3)]
        self.assertLessEqual(set(statuses), {201, 503})
        inbox.wait(50 + statuses.count(201), 40)
        self.assertEqual(c.depth('postdate.rejected'), 0)
        self.assertIn('created 1 partitions', gateway.log())
