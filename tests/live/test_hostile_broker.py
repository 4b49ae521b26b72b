"""A broker that misbehaves must not crash the gateway, make it spin or grow, or be believed; and once the real one is
back, everything goes on by itself. The tricks are in hostile_tricks.py."""
import struct
import time

import harness
from harness import LiveTest, wait_until
from hostile_broker import CLOSE, HostileBroker, cpu_seconds, method, resident_mib, short
from hostile_tricks import STALLS, TRICKS, delivers_again_to_the_same_consumer


class HostileTest(LiveTest):
    def begin(self, **env):
        self.p = self.place()
        self.broker = HostileBroker(self.p.amqp)
        self.addCleanup(self.broker.close)
        self.gw = self.p.gateway(POSTDATE_AMQP_URL=self.broker.url, POSTDATE_LOG_LEVEL='debug', **env)
        self.inbox = self.p.consumer('q', bind='k')

    def schedule(self, count):
        """Due at once; the gateway holds them."""
        self.p.psql("select postdate.schedule('k', i::text, delay => '0 s', hold => 'gateway') "
                    f'from generate_series(1, {count}) i')
        return {str(i).encode() for i in range(1, count + 1)}

    def assert_recovers(self, bodies):
        self.broker.be_real()
        wait_until(lambda: {m.body for m in self.inbox.all()} == bodies, 30, 'all messages, by the real broker')
        wait_until(lambda: self.p.counts() == {'delivered': len(bodies)}, 15, 'all to be settled')
        for line in self.gw.log().splitlines():
            self.assertTrue(line.isprintable(), repr(line))
        self.assertEqual(self.gw.term(), 0)


@harness.with_both  # how much memory
class Tricks(HostileTest):
    weight = 20

    def test_no_trick_hurts_or_is_believed(self):
        self.begin()
        self.broker.be_hostile(TRICKS)
        bodies = self.schedule(60)
        pid, began, cpu, memory = self.gw.process.pid, time.monotonic(), cpu_seconds(self.gw.process.pid), \
            resident_mib(self.gw.process.pid)
        try:
            wait_until(lambda: len(self.broker.ended) == sum(map(len, TRICKS.values())) or self.gw.process.poll() is not None, 40, 'all tricks to be played')
        except AssertionError as e:
            raise AssertionError(f'{e}: left are {self.broker.left()}') from None
        self.assertIsNone(self.gw.process.poll(), f'postdated ended after {self.broker.played[-5:]}')
        self.assertEqual(self.p.value("select count(*) from postdate.message_now where state in ('delivered', 'handed', 'failed')"),
                         '0', 'nothing was confirmed')
        share = (cpu_seconds(pid) - cpu) / (time.monotonic() - began)
        self.assertLess(share, 0.7, 'processor time: it spins')
        if not harness.SAN:
            self.assertLess(resident_mib(pid) - memory, 60, 'MiB more than before')
        self.assert_recovers(bodies)


class Stalls(HostileTest):
    weight = 20

    def test_no_stall_outlasts_the_gateways_patience(self):
        self.begin(POSTDATE_AMQP_HEARTBEAT='1s')
        self.broker.be_hostile(STALLS, quick=False)
        bodies = self.schedule(5)
        names = sorted(f.__name__ for functions in STALLS.values() for f in functions)
        pid, began, cpu = self.gw.process.pid, time.monotonic(), cpu_seconds(self.gw.process.pid)
        wait_until(lambda: sorted(self.broker.ended) == names, 20, 'the gateway to end all of them')
        self.assertLess((cpu_seconds(pid) - cpu) / (time.monotonic() - began), 0.5, 'processor time: it spins')
        self.assertNotIn('delivered', self.p.counts())
        self.assert_recovers(bodies)


class OtherWords(HostileTest):
    """What a code means does not depend on the words beside it."""

    def test_a_login_that_is_not_allowed_is_tried_again(self):
        def refuses(c):
            c.send(method(CLOSE, struct.pack('>H', 530) + short('NICHT ERLAUBT'.encode()) + bytes(4), 0))

        self.p = self.place()
        self.broker = HostileBroker(self.p.amqp)
        self.addCleanup(self.broker.close)
        self.broker.be_hostile({'open': [refuses] * 3})
        self.gw = self.p.gateway(wait=False, POSTDATE_AMQP_URL=self.broker.url)
        wait_until(lambda: len(self.broker.ended) == 3 or self.gw.process.poll() is not None, 15, 'it to try again')
        self.broker.be_real()
        self.gw.wait_ready()
        self.assertEqual(len(self.gw.lines_with('530 NICHT ERLAUBT; trying again')), 1, self.gw.log())


class Again(HostileTest):
    def test_a_redelivery_in_the_same_batch_is_stored_once(self):
        self.begin()
        self.broker.be_hostile({'intake': [delivers_again_to_the_same_consumer]}, quick=False)
        wait_until(lambda: self.broker.acknowledged, 20, 'all to be acknowledged')
        self.assertEqual(self.p.psql('select body from postdate.message_now order by 1'), [['\\x616263'], ['\\x78797a']])
