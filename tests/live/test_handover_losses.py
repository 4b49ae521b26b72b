"""Thousands of messages wait in RabbitMQ. It is killed, loses them all, or no gateway runs: all arrive, and none is early."""
import time

import harness
from handover_kit import EXIT, LOSE_DELAYED, RESCUE_GRACE_MS, RUNGS, Checks, OwnServers, handover, held_by_broker
from harness import LiveTest, now_ms, wait_until

COUNT = 20_000 if harness.FULL else 3000
# How far ahead messages are due. Handing over 20,000 takes 2-4 s on an idle machine; one that is too busy gets another try.
AHEAD_MS = (12_000, 25_000, 50_000) if harness.FULL else (10_000, 20_000, 40_000)
SPREAD_MS = 7000 if harness.FULL else 3000  # no more at once than a ladder on a busy machine can let go


class Thousands(Checks):
    time_limit_s = 240

    def hand_over(self, p, act):
        """Hands COUNT messages to the broker and calls act() before the first is due. Returns (name of queue and routing
        key, its consumer)."""
        for ahead_ms in AHEAD_MS:
            key = f'due.{ahead_ms}'
            inbox = p.load('consume', '--queue', key, '--exchange', 'postdate.delivery', '--bind', key, '--expect', COUNT,
                           '--timeout-s', 120, '--idle-s', 1, '--retry').wait_consuming()
            first_due_ms = now_ms() + ahead_ms
            p.load('publish', '--routing-key', key, '--count', COUNT, '--delay-spread-ms',
                   f'{ahead_ms},{ahead_ms + SPREAD_MS}').result()
            if self.all_handed(p, key, first_due_ms):
                act()
                if now_ms() < first_due_ms:
                    return key, inbox
                self.fail('the machine was too busy: the first was due before the blow')
            inbox.result()
            self.wait_all(p, key, 'delivered')
        return self.fail(f'{COUNT} were never handed over within {AHEAD_MS[-1] / 1000:.0f} s')

    def states(self, p, key):
        return dict(p.psql(f"select {harness.STATE}, count(*) from postdate.message_now where routing_key = '{key}' group by 1"))

    def all_handed(self, p, key, first_due_ms):
        """False when there would be less than 4 s left to do something."""
        late = False
        while self.states(p, key) != {'handed': str(COUNT)} and not late:
            time.sleep(0.1)
            late = now_ms() > first_due_ms - 4000
        return not late

    def wait_all(self, p, key, state, deadline_s=30):
        wait_until(lambda: self.states(p, key) == {state: str(COUNT)}, deadline_s, f'all of {key} to be {state}')

    def result(self, inbox, what):
        """What the consumer counted, after the checks that hold always; printed, because duplicates are to be seen."""
        r = inbox.result(180)
        print(f'note {self.transport}: {COUNT} handed over, {what}: {r["missing"]} missing, {r["early"]} early, '
              f'{r["duplicates"]} duplicates ({r["redelivered"]} deliveries flagged redelivered), lateness '
              f'{r["min_ms"]:.0f} ms to {r["max_ms"]:.0f} ms', flush=True)
        self.assertEqual((r['missing'], r['early'], r['unexpected']), (0, 0, 0), r)
        return r


class BrokerDies(Thousands, OwnServers):
    time_limit_s = 300

    def test_rabbitmq_killed_while_it_holds_thousands(self):
        p = self.place()
        p.gateway(**handover(self.transport, grace='1s'))
        # Some fall due while it is away, some when it is back.
        key, inbox = self.hand_over(p, lambda: self.servers.command('kill-rabbitmq'))
        self.servers.command('start-rabbitmq')
        self.result(inbox, 'RabbitMQ killed with -9')
        self.wait_all(p, key, 'delivered')

    def test_all_that_waits_in_the_broker_is_destroyed(self):
        p = self.place()
        p.gateway(**handover(self.transport, grace=f'{RESCUE_GRACE_MS}ms'))
        key, inbox = self.hand_over(p, lambda: self.lose(p))
        r = self.result(inbox, 'all of them destroyed in RabbitMQ')
        self.assertGreaterEqual(r['min_ms'], RESCUE_GRACE_MS, 'one arrived that was not rescued: what was lost?')
        self.assertEqual(r['duplicates'], 0)
        self.wait_all(p, key, 'delivered')


@harness.not_san
class TtlBrokerDies(BrokerDies, LiveTest):
    transport = 'ttl'
    plugins = ''
    together = 'bare servers'
    only_full = ('test_rabbitmq_killed_while_it_holds_thousands',)

    def lose(self, p):
        """From the top, the way that messages go."""
        c = p.client()
        for queue in RUNGS:
            if c.depth(queue):
                c.channel.queue_purge(queue)
        self.assertEqual(held_by_broker(p, 'ttl'), 0)

    def test_auto_without_the_plugin_takes_the_ladder(self):
        """Where RabbitMQ does not wait by itself, either."""
        p = self.place()
        g = p.gateway(**handover('auto'))
        self.assertTrue(g.lines_with(rf'ready\b.*transport {"native" if p.stack.keeps_back else "ttl"}'), g.log())

    def test_a_plugin_that_is_missing_is_said_in_one_line(self):
        g = self.place().gateway(wait=False, **handover('plugin'))
        self.assertEqual(g.wait(), 78, g.log())
        lines = g.lines_with('handover.transport')
        self.assertEqual(len(lines), 1, g.log())
        self.assertRegex(lines[0], r'plugin.*x-delayed-message')
        self.assertEqual(g.lines_with(r'\bready\b'), [])


@harness.not_san
@harness.only_full  # as ttl; the chaos suite does it to both
class PluginBrokerDies(BrokerDies, LiveTest):
    transport = 'plugin'
    only_full = ('test_rabbitmq_killed_while_it_holds_thousands',)

    def lose(self, _):
        self.servers.rabbitmqctl('eval', LOSE_DELAYED)


@harness.not_san  # as ttl, but for the broker
class NativeBrokerDies(BrokerDies, LiveTest):
    transport = 'native'
    plugins = ''
    together = 'bare servers'

    def lose(self, p):
        p.client().channel.queue_purge(EXIT)
        self.assertEqual(held_by_broker(p, 'native'), 0)


# --- no gateway runs --------------------------------------------------------------------------------------------------
class GatewayGone(Thousands):
    weight = 60

    def arrive_without(self, stop, what):
        """stop(gateway) ends it after the hand-over; the next one finds all of them overdue by more than the grace."""
        p = self.place()
        g = p.gateway(**handover(self.transport, grace='1s'))
        key, inbox = self.hand_over(p, lambda: stop(g))
        c = p.client()
        wait_until(lambda: held_by_broker(p, self.transport) == 0, 60, 'RabbitMQ to let all go')
        self.assertGreater(c.depth(EXIT), COUNT * 0.9)
        g = p.gateway(POSTDATE_LOG_LEVEL='debug', **handover(self.transport, grace='1s'))
        r = self.result(inbox, f'the gateway ended by {what}')
        self.wait_all(p, key, 'delivered')
        self.assertEqual(g.term(), 0)
        # A ping, a proof, or what RabbitMQ had not yet noted as acknowledged may be left: it is not delivered a second time.
        another = p.gateway(**handover(self.transport, grace='1s'))
        wait_until(lambda: c.depth(EXIT) == 0, 10, 'the exit queue to be taken')
        self.assertEqual(another.term(), 0)
        if not g.lines_with('switching to another connection'):  # then what is in flight is published again: a busy machine
            self.assertEqual((r['duplicates'], c.depth(key)), (0, 0), 'delivered a second time')

    def test_sigterm(self):
        self.arrive_without(lambda g: self.assertEqual(g.term(), 0), 'SIGTERM')

    def test_kill_9(self):
        self.arrive_without(lambda g: g.kill9(), 'kill -9')


@harness.not_san  # the programs' part is that of test_transports' smaller ones
class TtlGatewayGone(GatewayGone, LiveTest):
    transport = 'ttl'
    only_full = ('test_kill_9',)


@harness.not_san
@harness.only_full
class PluginGatewayGone(GatewayGone, LiveTest):
    transport = 'plugin'


@harness.not_san
class NativeGatewayGone(GatewayGone, LiveTest):
    transport = 'native'
