"""Several intake queues: each message goes to one of them, once, however many there are and were, and whoever changes that."""
import threading
import time

import pika
import pika.exceptions

from harness import LiveTest, wait_until

INTAKE = 'postdate.intake'


def names(count):
    return [INTAKE] + [f'{INTAKE}.{i}' for i in range(2, count + 1)]


class ShardsTest(LiveTest):
    who_waits = 'timer'

    def sharded(self, queues, by='random', **env):
        return self.p.gateway(POSTDATE_INTAKE_QUEUES=queues, POSTDATE_INTAKE_QUEUES_BY=by, **env)

    def bindings(self, source):
        """Names of what an exchange leads to."""
        out = self.p.stack.rabbitmqctl('-q', 'list_bindings', '-p', self.p.vhost, 'source_name', 'destination_name')
        return sorted(line.split('\t')[1] for line in out.splitlines() if line.split('\t')[0] == source)

    def depths(self, count):
        c = self.p.client()
        return [c.depth(name) for name in names(count)]


class Shards(ShardsTest):
    def setUp(self):
        self.p = self.place()

    def test_random_spreads_and_delivers_once(self):
        g = self.sharded(3)
        self.assertEqual(self.bindings('postdate'), ['postdate.shards.random'])
        self.assertEqual(self.bindings('postdate.shards.random'), names(3))
        inbox = self.p.consumer('q', bind='k')
        g.term()
        c = self.p.client()
        for i in range(90):
            c.publish('k', b'%d' % i, {'x-delay': 10}, mandatory=True)
        depths = self.depths(3)
        self.assertEqual(sum(depths), 90)
        self.assertTrue(all(n > 10 for n in depths), depths)
        self.sharded(3)
        got = [m.body for m in inbox.wait(90)]
        self.assertEqual(sorted(got), sorted(b'%d' % i for i in range(90)))
