"""RabbitMQ dies, or stops, while it waits: what falls due then, into queues that nobody reads, and of which some have no leader yet
when it starts. Nothing may be missing in any of them."""
import time

import harness
from handover_kit import Checks, OwnServers, handover, metric
from harness import LiveTest, now_ms, wait_until

COUNT = 4000 if harness.FULL else 2000
AHEAD_MS = (6000, 12_000, 24_000)  # the longer ones for a machine that is too busy for handing them over in time
SPREAD_MS = 4000


class Restarts(Checks):
    time_limit_s = 200

    def states(self, p, key):
        return {state: int(n) for state, n in
                p.psql(f"select {harness.STATE}, count(*) from postdate.message_now where routing_key = '{key}' group by 1")}

    def hand_over(self, p, count, spread_ms, declare):
        """So many for a key, by which declare(key) has bound the queues, handed over before the first is due; (key, when that is)."""
        for ahead_ms in AHEAD_MS:
            key = f'due.{ahead_ms}'
            declare(key)
            first_due_ms = now_ms() + ahead_ms
            p.load('publish', '--routing-key', key, '--count', count, '--delay-spread-ms', f'{ahead_ms},{ahead_ms + spread_ms}').result()
            while self.states(p, key) != {'handed': count} and now_ms() < first_due_ms:
                time.sleep(0.1)
            if now_ms() < first_due_ms - 2000:  # killing takes a while, too
                return key, first_due_ms
            wait_until(lambda: self.states(p, key) == {'delivered': count}, 60, 'another try', 0.05)
        return self.fail(f'{count} were never handed over within {AHEAD_MS[-1] / 1000:.0f} s')

    def read_all(self, p, queue, count, *how):
        r = p.load('consume', '--queue', queue, '--expect', count, '--timeout-s', 60, '--idle-s', 1, *how).result()
        self.assertEqual((r['missing'], r['early'], r['unexpected']), (0, 0, 0), f'{queue}: {r}')
        return r


class DueUnread(Restarts):
    def test_killed_while_they_fall_due(self):
        """A classic queue that nobody reads writes what was not confirmed to disk only when it is idle."""
        p = self.place()
        p.gateway(**handover(self.transport, grace='10s'))
        key, _ = self.hand_over(p, COUNT, SPREAD_MS, lambda key: p.client().queue(key, key))
        wait_until(lambda: self.states(p, key).get('delivered', 0) >= COUNT / 3, 60, 'a third to be delivered', 0.05)
        self.servers.command('kill-rabbitmq')
        self.servers.command('start-rabbitmq')
        wait_until(lambda: self.states(p, key) == {'delivered': COUNT}, 60, 'all to be delivered', 0.1)
        r = self.read_all(p, key, COUNT)
        print(f'note {self.transport}: {COUNT} handed over, RabbitMQ killed while they fell due: {r["duplicates"]} twice', flush=True)
        self.assertLess(r['duplicates'], COUNT / 4, 'more than what was unconfirmed')


class DueWhileAway(Restarts):
    """It lets them go as soon as it starts, when quorum queues, that of its exit too, have no leader yet and take nothing."""
    queues = 8
    count = 300

    def away(self, how, gateway_lives=True):
        p = self.place()
        settings = handover(self.transport, grace='3s')
        g = p.gateway(**settings)
        c = p.client()

        def declare(key):
            for i in range(self.queues):
                c.queue(f'{key}.{i}', key, arguments={'x-queue-type': 'quorum'})
            # RabbitMQ 3.10 may not find the quorum queue that was declared last when it is killed soon after, and no message for
            # it is ever confirmed then: let that be one that gets none.
            c.queue('last', arguments={'x-queue-type': 'quorum'})

        key, first_due_ms = self.hand_over(p, self.count, 100, declare)
        if not gateway_lives:
            g.kill9()
        self.servers.command(how + '-rabbitmq')
        time.sleep(max(0, (first_due_ms - now_ms()) / 1000 + 1))
        self.servers.command('start-rabbitmq')
        if not gateway_lives:
            g = p.gateway(**settings)
        wait_until(lambda: self.states(p, key) == {'delivered': self.count}, 60, 'all to be delivered', 0.1)
        # Twice only if a busy machine ended it after they were due, or a queue had no leader for long.
        in_doubt = metric(g, r'postdate_publish_retries_total\{reason="in_doubt"\}')
        print(f'note {self.transport}: RabbitMQ {how}, {self.count} due while it was away: {in_doubt} in doubt', flush=True)
        for i in range(self.queues):
            r = self.read_all(p, f'{key}.{i}', self.count, '--quorum')
            self.assertLessEqual(r['duplicates'], min(in_doubt, 256), f'more than what was in doubt, or than is in flight at most: {r}')


class BrokerRestarts(DueUnread, DueWhileAway, OwnServers):
    def test_due_while_it_was_killed(self):
        self.away('kill')

    @harness.not_san
    def test_due_while_it_was_stopped_and_no_gateway_ran(self):
        self.away('stop', gateway_lives=False)


class TtlRestarts(BrokerRestarts, LiveTest):
    transport = 'ttl'
    only_full = ('test_due_while_it_was_stopped_and_no_gateway_ran',)


@harness.not_san
class PluginRestarts(BrokerRestarts, LiveTest):
    transport = 'plugin'
    only_full = ('test_killed_while_they_fall_due', 'test_due_while_it_was_killed')


@harness.not_san
class NativeRestarts(BrokerRestarts, LiveTest):
    transport = 'native'


class WithoutRow(LiveTest):
    """What comes out of RabbitMQ and must be looked up, and of which the database has no row, is nothing that happens in silence."""
    who_waits = transport = 'ttl'

    def test_what_is_looked_up_and_has_no_row_is_logged_and_counted(self):
        p = self.place(transport=self.transport)
        env = handover(self.transport)
        first = p.gateway(**env)
        inbox = p.consumer('q', declare=True, bind='k')
        p.client().publish_burst('k', [b'%d' % i for i in range(30)], {'x-delay': 4000})
        wait_until(lambda: p.counts() == {'handed': 30}, 30, 'the hand-over')
        first.pause()  # it gets them from RabbitMQ, and publishes none
        due_ms = int(p.value('select max(extract(epoch from due) * 1000)::bigint from postdate.message'))
        wait_until(lambda: now_ms() > due_ms + 1000, 30, 'them to come out')
        self.assertEqual(p.value("with gone as (delete from postdate.message where id in (select id from postdate.message order by id limit 20) returning 1) "
                                 "select count(*) from gone"), '20')
        second = p.gateway(**env)
        wait_until(lambda: int(p.value('select count(*) from postdate.instance')) == 2, 30, 'both to be known')
        first.kill9()  # RabbitMQ says that they were delivered before
        inbox.wait(10, 60)
        wait_until(lambda: metric(second, 'postdate_messages_without_row_total') == 20, 60, 'the others to be counted')
        lines = second.lines_with('without a row in the database')
        self.assertTrue(1 <= len(lines) <= 20 and 'warn' in lines[0], second.log())
        wait_until(lambda: p.counts() == {'delivered': 10}, 30, 'them to be settled')
        self.assertEqual(len(inbox.all()), 10)
