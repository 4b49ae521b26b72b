"""Programs and servers die in the middle: nothing is lost, nothing is early, everything recovers alone."""
import time

import pika

import harness
from harness import LiveTest, Stack, now_ms, wait_until
from test_gateways import LEASE_S

COUNT = 20_000 if harness.FULL else 4000


def delivered_at_least(p, count):
    return lambda: int(p.value("select count(*) from postdate.message_now where state = 'delivered'")) >= count


class Flow:
    """COUNT messages that fall due over some seconds, and what came of them."""

    def __init__(self, p, count=COUNT, spread='2500,8000', timeout_s=90):
        self.p, self.count = p, count
        self.inbox = p.load('consume', '--queue', 'flow', '--exchange', 'postdate.delivery', '--bind', 'flow',
                            '--expect', count, '--timeout-s', timeout_s, '--idle-s', 1, '--retry').wait_consuming()
        self.publisher = p.load('publish', '--routing-key', 'flow', '--count', count, '--delay-spread-ms', spread,
                                '--retry', '--timeout-s', timeout_s)

    def check(self, test, duplicates_at_most=None):
        self.publisher.result()
        r = self.inbox.result()
        test.assertEqual((r['missing'], r['early'], r['unexpected']), (0, 0, 0), r)
        if duplicates_at_most is not None:
            test.assertLessEqual(r['duplicates'], duplicates_at_most, r)
        return r


class GatewayDies(LiveTest):
    weight = 20

    @harness.not_san
    def test_killed_three_times_while_thousands_fall_due(self):
        p = self.place()
        g = p.gateway()
        flow = Flow(p)
        for part in (0.1, 0.35, 0.6):
            wait_until(delivered_at_least(p, COUNT * part), 30, f'{part:.0%} to be delivered', 0.05)
            g.kill9()
            g = p.gateway()
        flow.check(self, duplicates_at_most=3 * 2000)
        wait_until(lambda: p.counts() == {'delivered': COUNT}, 15, 'all to be settled')

    def test_killed_while_it_takes_messages_in(self):
        p = self.place()
        g = p.gateway()
        flow = Flow(p, count=COUNT // 4, spread='1500,3000')
        for part in (0.1, 0.5):
            wait_until(lambda: int(p.value('select count(*) from postdate.message_now')) >= COUNT // 4 * part, 15,
                       'some to be stored', 0.005)
            g.kill9()
            g = p.gateway()
        flow.check(self)
        # A message stored just before the kill comes back from the queue; it is recognised, not stored twice.
        wait_until(lambda: set(p.counts()) == {'delivered'}, 15, 'all to be settled')
        self.assertEqual(p.counts(), {'delivered': COUNT // 4})

    def test_sigterm_drains_and_the_next_one_goes_on(self):
        p = self.place()
        g = p.gateway()
        flow = Flow(p, count=3000, spread='1000,4000')
        wait_until(delivered_at_least(p, 500), 15, '500 to be delivered')
        self.assertEqual(g.term(15), 0)
        self.assertEqual(p.claimed(), 0, 'claims are put back or settled')
        p.gateway()
        flow.check(self, duplicates_at_most=0)

    def test_sigterm_of_an_idle_gateway_is_quick(self):
        p = self.place()
        g = p.gateway()
        self.assertEqual(g.term(10), 0)

    def test_another_gateway_takes_over_what_a_dead_one_had_claimed(self):
        p = self.place(transport='timer')
        first = p.gateway(POSTDATE_DELIVERY_LEAD='1m')
        ahead_ms = min(8000 * harness.slowness() ** 2, 50_000)
        flow = Flow(p, count=5000, spread=f'{ahead_ms},{ahead_ms + 1000}')
        flow.publisher.result()
        wait_until(lambda: p.claimed() == 5000, 10, 'the first gateway to claim all')
        dead = p.value('select id from postdate.instance')
        p.gateway(POSTDATE_DELIVERY_LEAD='1m')
        first.kill9()
        beat = p.value(f'select heartbeat_at from postdate.instance where id = {dead}')
        wait_until(lambda: p.value(f'select count(*) from postdate.instance where id = {dead}') == '0', 30, 'it to be taken over')
        self.assertEqual(p.value(f"select now() < timestamptz '{beat}' + interval '{LEASE_S} s'"), 't', 'its lease was waited for')
        flow.check(self, duplicates_at_most=0)

    def test_two_gateways_share_the_work_without_duplicates(self):
        p = self.place()
        for _ in range(2):
            p.gateway()
        Flow(p, count=3000, spread='800,2500').check(self, duplicates_at_most=0)


class ServersDie(LiveTest):
    """On servers of their own."""
    weight = 100
    vhosts = 0
    together = True
    time_limit_s = 240

    @classmethod
    def setUpClass(cls):
        cls.servers = Stack.own(cls.addClassCleanup, 'faults').start()
        cls.servers.make_vhosts([f'f{i}' for i in range(10)])

    def setUp(self):
        self.servers.start()
        self.p = self.place(stack=self.servers)

    def place(self, **options):
        """Never dropped: the whole stack is."""
        self.assertTrue(self.servers.vhosts, 'setUpClass makes too few')
        p = harness.Place(options.pop('stack'), **options)
        self.places = [p]
        self.addCleanup(p.close, drop=False)
        return p

    def kill(self, *names):
        for name in names:
            self.servers.command('kill-' + name)

    def revive(self, *names):
        for name in names:
            self.servers.command('start-' + name)

    @harness.only_full
    @harness.not_san
    def test_rabbitmq_killed_three_times_while_thousands_fall_due(self):
        p = self.p
        p.gateway()
        flow = Flow(p)
        for part in (0.05, 0.3, 0.6):
            wait_until(delivered_at_least(p, COUNT * part), 60, f'{part:.0%} to be delivered', 0.05)
            self.kill('rabbitmq')
            self.revive('rabbitmq')
        flow.check(self)
        # What the broker has lost is waited for until handover.grace is over.
        wait_until(lambda: p.counts() == {'delivered': COUNT}, 60, 'all to be settled')

    @harness.only_full
    @harness.not_san
    def test_postgres_killed_three_times_while_thousands_fall_due(self):
        p = self.p
        p.gateway()
        flow = Flow(p)
        for part in (0.05, 0.3, 0.6):
            wait_until(delivered_at_least(p, COUNT * part), 60, f'{part:.0%} to be delivered', 0.05)
            self.kill('postgres')
            self.revive('postgres')
        flow.check(self)
        wait_until(lambda: p.counts() == {'delivered': COUNT}, 15, 'all to be settled')

    @harness.not_san
    def test_what_a_crashed_database_forgot_is_told_to_it_again(self):
        """Settles commit asynchronously. What was published stays in the gateways' memory until the database is back."""
        p = self.place(stack=self.servers, transport='timer')
        for _ in range(2):
            p.gateway()
        flow = Flow(p, spread='4000,8000')
        flow.publisher.result()
        for part in (0.1, 0.6):
            wait_until(delivered_at_least(p, COUNT * part), 60, f'{part:.0%} to be delivered', 0.005)
            self.kill('postgres')
            self.revive('postgres')
        flow.check(self, duplicates_at_most=0)
        wait_until(lambda: p.counts() == {'delivered': COUNT}, 15, 'all to be settled')

    @harness.not_san
    def test_servers_absent_at_start_are_waited_for_and_said_once(self):
        p = self.p
        self.kill('postgres', 'rabbitmq')
        g = p.gateway(wait=False)
        g.wait_log('postgres')
        time.sleep(3)  # waiting is the subject: several attempts, one line
        self.assertIsNone(g.process.poll(), g.log())
        self.assertEqual(len(g.lines_with('postgres')), 1, g.log())
        self.revive('postgres')
        g.wait_log('rabbitmq|amqp')
        said = len(g.lines_with(r'(rabbitmq|amqp).*(wait|refused|cannot|not reach)'))
        time.sleep(2)
        self.assertLessEqual(len(g.lines_with(r'(rabbitmq|amqp).*(wait|refused|cannot|not reach)')), max(said, 1) + 2)
        self.revive('rabbitmq')
        g.wait_ready()
        self.deliver_one(p)
        self.assertEqual(g.term(), 0)

    def deliver_one(self, p):
        inbox = p.consumer('one', bind='one')
        at = now_ms()
        p.client().publish('one', b'one', {'x-delay': 300})
        self.assert_on_time(inbox.wait(1)[0], at, 300)

    @harness.not_san
    def test_both_die_and_come_back(self):
        p = self.p
        g = p.gateway()
        self.deliver_one(p)
        c = p.client()
        c.queue('q', 'due')
        for i in range(300):
            c.channel.basic_publish('postdate', 'due', str(i).encode(),
                                    pika.BasicProperties(headers={'x-delay': 3000}, delivery_mode=2))
        wait_until(lambda: sum(p.counts().values()) == 301, 10, 'all to be stored')
        self.kill('rabbitmq', 'postgres')
        self.servers.start()
        inbox = p.consumer('q')
        wait_until(lambda: len({m.body for m in inbox.all()}) == 300, 30, 'all to arrive')
        self.assertFalse([m for m in inbox.all() if m.at_ms < m.due_ms])
        wait_until(lambda: set(p.counts()) == {'delivered'}, 10, 'all to be settled')
        self.assertEqual(g.term(), 0)

    def test_sigterm_while_servers_are_absent(self):
        p = self.p
        running = p.gateway()
        self.kill('postgres', 'rabbitmq')
        starting = p.gateway(wait=False)
        starting.wait_log('postgres')
        self.assertEqual(starting.term(15), 0)
        self.assertEqual(running.term(15), 0)

    @harness.only_full
    @harness.not_san
    def test_only_rabbitmq_absent_then_sigterm_loses_nothing(self):
        p = self.p
        g = p.gateway()
        c = p.client()
        c.queue('q', 'due')
        c.publish('due', b'kept', {'x-delay': 1500})
        wait_until(lambda: sum(p.counts().values()) == 1, 10, 'it to be stored')
        self.kill('rabbitmq')
        time.sleep(2)  # it falls due meanwhile
        self.assertEqual(g.term(15), 0)
        self.revive('rabbitmq')
        p.gateway()
        self.assertEqual(p.consumer('q').wait(1)[0].body, b'kept')
