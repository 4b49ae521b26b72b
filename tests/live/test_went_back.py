"""A database that went back: restored from a backup beside a RabbitMQ that holds messages, or a standby that lagged and was promoted."""
import json
import signal
import subprocess
import time

import harness
from handover_kit import handover, metric
from harness import LiveTest, wait_until
from standby_kit import StandbyTest

WINDOW = '8s'
DELAY_MS = 22000  # beyond the window when the backup is taken, and due after the restore


def doctor(p, check):
    return [x for x in json.loads(p.cli('doctor', '--json')[1])['checks'] if x['check'] == check][0]


class Backup:
    """Of a place's database, as pg_dump makes it."""

    def __init__(self, place):
        self.place = place
        self.dump = subprocess.run(['pg_dump', '--schema=postdate', place.postgres], capture_output=True, check=True, timeout=120).stdout

    def restore(self):
        p = self.place
        p.asker.close()
        subprocess.run(['psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-d', p.postgres, '-c', 'drop schema postdate cascade'], check=True,
                       stderr=subprocess.DEVNULL, timeout=120)
        subprocess.run(['psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-d', p.postgres], input=self.dump, stdout=subprocess.DEVNULL, check=True,
                       timeout=120)


class Restored:
    """The procedure of docs/operations.md, Restore, step by step."""
    transport = None

    def publish(self, client, name, count, **headers):
        for i in range(count):
            client.publish('k', f'{name} {i}', {'x-delay': DELAY_MS, **{k: v + str(i) for k, v in headers.items()}})

    def ids(self, p, like):
        # Bodies tell who is who.
        return [row[0] for row in p.psql(f"select id from postdate.message where convert_from(body, 'UTF8') like '{like}' order by 1")]

    def run_procedure(self, what, keys):
        env = handover(self.transport, grace='6s', window=WINDOW, what=what)
        p = self.place(transport=self.transport)
        g = p.gateway(**env)
        inbox = p.consumer('q', bind='k')
        c = p.client()
        key = {'x-postdate-key': 'a'} if keys else {}
        self.publish(c, 'cancelled', 60, **({'x-postdate-key': 'c'} if keys else {}))
        self.publish(c, 'kept', 40, **key)
        wait_until(lambda: p.counts() == {'scheduled': 100}, 15, 'all to be stored')
        wait_until(lambda: int(p.value('select number from postdate.history')) > 0, 15, 'a point to be noted')
        backup = Backup(p)
        self.publish(c, 'later', 40, **({'x-postdate-key': 'l'} if keys else {}))
        wait_until(lambda: p.counts() == {'handed': 140}, 40, 'all to be handed over')
        time.sleep(1.5)  # RabbitMQ is told of a later point than the backup has
        self.assertEqual(g.term(), 0)

        backup.restore()
        self.assertEqual(p.counts(), {'scheduled': 100})
        answers = [p.cli('cancel', *self.ids(p, 'cancelled%'))]
        self.assertEqual([a[0] for a in answers], [0], answers)
        self.assertEqual(p.counts(), {'scheduled': 40, 'cancelled': 60})

        g = p.gateway(**env)
        self.assertTrue(g.lines_with('the database went back'), g.log())
        self.assertEqual(doctor(p, 'database.history')['status'], 'warn')  # until what RabbitMQ held then is due
        self.assertIn('went back', p.cli('status')[1])
        inbox.wait(80, 90)
        self.assertEqual(metric(g, 'postdate_messages_stored_again_total'), 40)
        wait_until(lambda: p.counts() == {'cancelled': 60, 'delivered': 80}, 60, f'all to be settled, not {p.counts()}')
        time.sleep(2)  # what comes twice comes now
        bodies = sorted(m.body.decode() for m in inbox.all())
        self.assertEqual(bodies, sorted([f'kept {i}' for i in range(40)] + [f'later {i}' for i in range(40)]))
        wait_until(lambda: metric(g, 'postdate_database_went_back_timestamp_seconds') > 1e9, 60, 'the figures to be read again')
        self.assertEqual(g.term(), 0)

    def test_what_rabbitmq_held_is_stored_again_however_late_it_is_released(self):
        """No gateway runs until all of that is overdue."""
        env = handover(self.transport, grace='2s', window=WINDOW)
        p = self.place(transport=self.transport)
        g = p.gateway(**env)
        inbox = p.consumer('q', bind='k')
        c = p.client()
        wait_until(lambda: int(p.value('select number from postdate.history')) > 0, 15, 'a point to be noted')
        backup = Backup(p)
        for i in range(60):
            c.publish('k', f'later {i}', {'x-delay': 7000})
        wait_until(lambda: p.counts() == {'handed': 60}, 15, 'all to be handed over')
        time.sleep(1.5)
        g.kill9()
        backup.restore()
        g = p.gateway(**env)
        wait_until(lambda: g.lines_with('the database went back'), 15, 'it to be found')
        g.kill9()
        until = p.value('select look_until from postdate.history')
        wait_until(lambda: p.value(f"select now() > timestamptz '{until}' + interval '2 s'") == 't', 40, 'all to be overdue')
        g = p.gateway(**env)
        inbox.wait(60, 60)
        time.sleep(3)
        self.assertEqual(len(inbox.all()), 60)
        self.assertEqual(metric(g, 'postdate_messages_without_row_total'), 0)

    def test_what_is_cancelled_after_a_restore_never_comes(self):
        self.run_procedure('plain', False)

    def test_what_is_cancelled_after_a_restore_never_comes_where_rabbitmq_holds_all(self):
        self.run_procedure('all', True)


class RestoredTtl(Restored, LiveTest):
    who_waits = transport = 'ttl'


class RestoredPlugin(Restored, LiveTest):
    who_waits = transport = 'plugin'


class Counted(LiveTest):
    """What was due in the forgotten time is counted by whoever finds it, and nobody waits for that."""

    def find(self, p, number):
        return p.value(f"select coalesce(h.lost_due, -1) from postdate.history x, postdate.history_note(x.lineage, {number}, now(), now(), 1000) h")

    def test_what_is_not_settled_is_counted_unless_its_day_is_locked(self):
        p = self.place()
        p.psql("select postdate.schedule('k', 'x', delay => '0 s') from generate_series(1, 5)")
        p.psql("select postdate.schedule('k', 'later', delay => '1 h')")
        first = p.value('select min(id::text) from postdate.message')
        p.psql(f"update postdate.message set state = 'cancelled', settled_at = now(), next_at = due where id = '{first}'")
        self.assertEqual(self.find(p, 1000), '4')
        session = p.session()
        session.run('begin')
        session.run(f"lock table postdate.{p.day(p.value('select (now() at time zone $$UTC$$)::date'))}")
        self.assertEqual(self.find(p, 2000), '-1')
        self.assertEqual(p.value('select lost_number from postdate.history'), '2001', 'it is found all the same')
        session.run('rollback')
        self.assertEqual(self.find(p, 3000), '4')
        session.close()


@harness.not_san  # the tmpfs of each server is large
class Promoted(StandbyTest):
    """An asynchronous standby that lacks some seconds takes over, while gateways live."""
    weight = 5

    def lag_begins(self, transport):
        """A place with 600 messages, of which some are delivered when the standby is cut off: (servers, place, settings and two gateways, inbox, how many)."""
        pg = self.pair()
        p = self.place_on(pg, transport=transport)
        env = handover(transport, grace='4s', window='6m') if transport != 'timer' else {}
        gateways = [p.gateway(**env) for _ in range(2)]
        inbox = p.consumer('q', bind='k')
        c = p.client()
        for i in range(600):
            c.publish('k', f'{i}', {'x-delay': 9000 + i * 20})
        wait_until(lambda: sum(p.counts().values()) == 600, 20, 'all to be stored')
        pg.add_standby(synchronous=False)
        inbox.wait(60, 60)
        pg.cut_off()
        return pg, p, env, gateways, inbox, len(inbox.all())

    def twice_in_the_end(self, p, inbox):
        wait_until(lambda: len({m.body for m in inbox.all()}) == 600, 90, 'all to come')
        wait_until(lambda: p.counts() == {'delivered': 600}, 60, 'all to be settled')
        time.sleep(6)  # what is rescued comes after the grace
        return len(inbox.all()) - 600

    def test_what_is_refused_while_no_database_is_there_and_forgotten_by_the_next_one_comes(self):
        """RabbitMQ had them, no queue takes them, and nobody can write that down."""
        pg = self.pair()
        p = self.place_on(pg, transport='ttl')
        g = p.gateway(**handover('ttl', grace='20s', window='6m'), POSTDATE_RETRY_FIRST='300ms', POSTDATE_RETRY_MAX='300ms')
        inbox = p.consumer('q', bind='k')
        wait_until(lambda: int(p.value('select number from postdate.history')) > 0, 15, 'a point to be noted')
        pg.add_standby(synchronous=False)
        pg.cut_off()
        time.sleep(2.5)  # a lag of less is not found
        c = p.client()
        for i in range(40):
            c.publish('k', f'{i}', {'x-delay': 8000})
        wait_until(lambda: p.counts() == {'handed': 40}, 15, 'all to be handed over')
        pg.primary.end(signal.SIGKILL)
        c.channel.queue_unbind('q', 'postdate.delivery', 'k')
        wait_until(lambda: g.lines_with('NO_ROUTE'), 30, 'them to be returned')
        time.sleep(1)
        pg.promote()
        wait_until(lambda: g.lines_with('the database went back'), 60, 'it to be found')
        c.channel.queue_bind('q', 'postdate.delivery', 'k')
        wait_until(lambda: len({m.body for m in inbox.all()}) == 40, 90, f'all to come, not {p.counts()}')
        self.assertEqual(metric(g, 'postdate_messages_without_row_total'), 0, g.log())

    def run_failover(self, transport, lag_s=2.5):
        pg, p, _, gateways, inbox, before = self.lag_begins(transport)
        time.sleep(lag_s)
        in_lag = len(inbox.all()) - before
        self.assertGreater(in_lag, 20)
        pg.fail_over()
        twice = self.twice_in_the_end(p, inbox)
        said = sum(metric(g, 'postdate_deliveries_said_again_total') for g in gateways)
        print(f'note went back: {transport}: {in_lag} delivered in the lag, {said} said again, {twice} twice', flush=True)
        for g in gateways:
            self.assertTrue(g.lines_with('the database went back'), g.log())
        self.assertEqual(twice, 0, '\n'.join(g.log() for g in gateways))

    def run_end_of_all(self, transport):
        """The gateways die with the primary: what they knew is gone, but for what RabbitMQ was told of how far the database had come."""
        pg, p, env, gateways, inbox, before = self.lag_begins(transport)
        wait_until(lambda: len(inbox.all()) >= before + 150, 60, 'deliveries in the lag')
        for g in gateways:
            g.kill9()
        pg.fail_over()
        g = p.gateway(**env)
        said = g.lines_with('the database went back')
        twice = self.twice_in_the_end(p, inbox)
        counted = json.loads(p.cli('status', '--json')[1])['went_back']['due']
        print(f'note went back: {transport}: all gateways died: {twice} twice, {counted} were due then', flush=True)
        self.assertGreater(twice, 100)
        self.assertLessEqual(twice, counted)
        self.assertLess(counted, twice + 250, 'and what was due just before and after that')
        self.assertIn(f'{counted} messages were due then', said[0])
        self.assertIn(f'{counted} messages were due then', doctor(p, 'database.history')['detail'])
        wait_until(lambda: metric(g, 'postdate_database_forgotten_due') == counted, 60, 'the figures to be read again')

    def test_what_comes_twice_where_all_gateways_died_is_counted_timer(self):
        self.run_end_of_all('timer')

    def test_what_comes_twice_where_all_gateways_died_is_counted_ttl(self):
        self.run_end_of_all('ttl')

    def test_what_was_delivered_in_the_lag_comes_once_timer(self):
        self.run_failover('timer')

    def test_what_was_delivered_in_the_lag_comes_once_ttl(self):
        self.run_failover('ttl')
