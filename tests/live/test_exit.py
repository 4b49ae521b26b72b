"""Several exit queues (exit.queues): what RabbitMQ waited with comes out by each of them, and is delivered once."""
import harness
import test_once
import test_relay
from handover_kit import Checks, handover
from harness import LiveTest, now_ms, wait_until

QUEUES = 3
EXITS = ['postdate.exit', *(f'postdate.exit.{i}' for i in range(2, QUEUES + 1))]


class SharedExit:
    """Every gateway of the place has so many exit queues, and what comes out goes to all of them before a test begins."""
    queues = QUEUES

    def place(self, **options):
        p = super().place(**options)
        start = p.gateway

        def gateway(*args, **env):
            g = start(*args, **{'POSTDATE_EXIT_QUEUES': self.queues, **env})
            if args != (False,) and env.get('wait', True):
                wait_until(lambda: p.value('select exit_bound = exit_wanted from postdate.meta') == 't', 20, 'the exit queues to be bound')
            return g
        p.gateway = gateway
        return p


class Exit(SharedExit, Checks):
    weight = 30

    def depths(self, p):
        return [p.client().depth(name) for name in EXITS]

    def test_each_has_some_and_all_are_delivered_once(self):
        p = self.place()
        options = handover(self.transport, lead='1s')
        g = p.gateway(**options)
        inbox = p.consumer('k', bind='k')
        sent = self.publish_many(p, 'k', [6000 + 20 * i for i in range(60)])
        self.wait_held(p, 60)
        self.assertEqual(g.term(), 0)
        wait_until(lambda: sum(self.depths(p)) >= 60, 20, 'all to come out')
        print(f'note exit, {self.transport}: {self.depths(p)} in the exit queues', flush=True)
        self.assertGreater(min(self.depths(p)), 3)
        p.gateway(**options)
        inbox.wait(60, 20)
        self.wait_delivered(p, 60)
        self.assertEqual(sorted(m.body for m in inbox.all()), sorted(sent))
        self.assertEqual(self.depths(p), [0] * QUEUES)
        wait_until(lambda: p.value('select cardinality(relay_pings) = 3 and array_position(relay_pings, null) is null from postdate.instance') == 't',
                   10, 'a ping to come through each')


class TtlExit(Exit, LiveTest):
    transport = 'ttl'
