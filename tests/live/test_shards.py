"""Several intake queues: each message goes to one of them, once, however many there are and were, and whoever changes that."""
import collections
import threading

import pika
import pika.exceptions

from doctor_kit import Doctor
from handover_kit import OwnServers
from harness import LiveTest, wait_until

INTAKE = 'postdate.intake'


def names(count):
    return [INTAKE] + [f'{INTAKE}.{i}' for i in range(2, count + 1)]


class ShardsTest(LiveTest):
    who_waits = 'timer'

    def setUp(self):
        self.p = self.place()

    def sharded(self, queues, by='random', **env):
        return self.p.gateway(POSTDATE_INTAKE_QUEUES=queues, POSTDATE_INTAKE_QUEUES_BY=by, **env)

    def bindings(self, source):
        """Names of what an exchange leads to."""
        out = self.p.stack.rabbitmqctl('-q', 'list_bindings', '-p', self.p.vhost, 'source_name', 'destination_name')
        return sorted(line.split('\t')[1] for line in out.splitlines() if line.split('\t')[0] == source)

    def depths(self, count):
        c = self.p.client()
        return [c.depth(name) for name in names(count)]

    def publish(self, count, headers=lambda i: {}, **properties):
        c = self.p.client()
        for i in range(count):
            c.publish('k', b'%d' % i, {'x-delay': 10, **headers(i)}, mandatory=True, **properties)

    def assert_once(self, inbox, bodies):
        got = collections.Counter(m.body for m in inbox.wait(len(bodies), 20))
        self.assertEqual(got, collections.Counter(bodies))


class Shards(ShardsTest):
    def test_random_spreads_and_delivers_once(self):
        g = self.sharded(3)
        self.assertEqual(self.bindings('postdate'), ['postdate.shards.random'])
        self.assertEqual(self.bindings('postdate.shards.random'), names(3))
        inbox = self.p.consumer('q', bind='k')
        g.term()
        self.publish(90)
        depths = self.depths(3)
        self.assertEqual(sum(depths), 90)
        self.assertTrue(all(n > 10 for n in depths), depths)
        # In what may be another RabbitMQ, all is moved anew.
        self.assertEqual(self.p.cli('migrate', '--rebind')[0], 0)
        self.assertEqual(self.p.value("select moving from postdate.shards where place = 'intake'"), 't')
        self.sharded(3)
        self.assertEqual(self.p.value("select moving from postdate.shards where place = 'intake'"), 'f')
        self.assert_once(inbox, [b'%d' % i for i in range(90)])

    def test_one_key_goes_to_one_queue(self):
        g = self.sharded(3, 'key')
        inbox = self.p.consumer('q', bind='k')
        g.term()
        for key in range(12):
            before = self.depths(3)
            self.publish(4, lambda i, key=key: {'x-postdate-key': str(key), 'x-postdate-on-conflict': 'replace', 'x-delay': 2500})
            changed = [now - then for now, then in zip(self.depths(3), before)]
            self.assertEqual(sorted(changed), [0, 0, 4], (key, changed))
        self.assertTrue(all(self.depths(3)), self.depths(3))
        self.sharded(3, 'key')
        self.assert_once(inbox, [b'3'] * 12)  # of one key the last one is stored last, and delivered alone

    def test_what_is_left_in_the_third_queue_is_read_with_one(self):
        self.sharded(3).term()
        inbox = self.p.consumer('q', bind='k')
        self.publish(60)
        self.assertTrue(all(self.depths(3)))
        g = self.sharded(1)
        self.assertEqual(self.bindings('postdate.shards.random'), [INTAKE])
        self.assert_once(inbox, [b'%d' % i for i in range(60)])
        self.assertEqual(self.depths(3), [0, 0, 0])
        g.term()
        self.publish(20)
        self.assertEqual(self.depths(3), [20, 0, 0])

    def test_a_deleted_queue_and_exchange_are_there_again(self):
        self.sharded(3)
        inbox = self.p.consumer('q', bind='k')
        c = self.p.client()
        c.channel.queue_delete(names(3)[2])
        wait_until(lambda: self.depths(3)[2] == 0 and self.bindings('postdate.shards.random') == names(3), 15, 'the queue')
        c.channel.exchange_delete('postdate.shards.random')
        wait_until(lambda: self.bindings('postdate.shards.random') == names(3), 30, 'the exchange')
        self.publish(30)
        self.assert_once(inbox, [b'%d' % i for i in range(30)])

    def test_routes_and_what_expires(self):
        route = {'POSTDATE_ROUTE': 'later = postdate.delivery'}
        self.sharded(1, **route).term()
        self.assertEqual(self.bindings('later'), [INTAKE])
        self.sharded(2).term()  # does not know the route, which stays as it is
        self.assertEqual(self.bindings('later'), [INTAKE])
        self.sharded(3, **route).term()
        self.assertEqual(self.bindings('later'), ['postdate.shards.random'])
        c = self.p.client()
        for i in range(30):
            c.publish('k', b'%d' % i, {'x-delay': 10}, exchange='later', expiration='1')
        wait_until(lambda: c.depth(INTAKE + '.expired') == 30, 10, 'them to expire')
        inbox = self.p.consumer('q', bind='k')
        self.sharded(3, **route)
        self.assert_once(inbox, [b'%d' % i for i in range(30)])
        self.assertFalse([m.headers for m in inbox.all() if 'x-death' in m.headers or 'x-first-death-queue' in m.headers])

    def test_who_is_configured_otherwise_says_so_and_reads_all(self):
        first = self.sharded(1)
        second = self.sharded(3)
        first.wait_log(r'intake.queues: a gateway that started later has set 3, by random; this one has 1', 30)
        second.term()
        self.assertEqual(self.bindings('postdate.shards.random'), names(3))
        inbox = self.p.consumer('q', bind='k')
        self.publish(30)
        self.assert_once(inbox, [b'%d' % i for i in range(30)])


class Publisher(threading.Thread):
    """With confirms, mandatory; knows what was returned."""

    def __init__(self, place):
        super().__init__(daemon=True)
        self.place, self.ending = place, threading.Event()
        self.confirmed, self.returned = [], []
        self.start()

    def run(self):
        c = self.place.client()
        i = 0
        while not self.ending.is_set():
            try:
                c.publish('k', b'%d' % i, {'x-delay': 10, 'x-postdate-key': str(i % 50), 'x-postdate-on-conflict': 'keep'}
                          if i % 7 == 0 else {'x-delay': 10}, mandatory=True, message_id=str(i))
            except pika.exceptions.UnroutableError:
                self.returned.append(i)
            if i % 7:
                self.confirmed.append(b'%d' % i)
            i += 1


class Changes(ShardsTest):
    time_limit_s = 180

    def test_the_number_and_the_way_change_while_messages_flow(self):
        gateways = [self.sharded(1), self.sharded(1)]
        inbox = self.p.consumer('q', bind='k')
        publisher = Publisher(self.p)
        changes = [(3, 'random'), (2, 'key'), (1, 'key'), (4, 'routing-key'), (3, 'message-id'), (3, 'random'), (1, 'random'), (2, 'random')]
        for i, (queues, by) in enumerate(changes):
            old = gateways.pop(0)
            # Two start at once, with different settings; one is killed over it.
            new = self.p.gateway(wait=False, POSTDATE_INTAKE_QUEUES=queues, POSTDATE_INTAKE_QUEUES_BY=by)
            victim = self.p.gateway(wait=False, POSTDATE_INTAKE_QUEUES=4 - i % 4, POSTDATE_INTAKE_QUEUES_BY=['random', 'key'][i % 2])
            threading.Event().wait(0.15 * i)
            victim.kill9()
            new.wait_ready()
            gateways.append(new)
            old.term()
        publisher.ending.set()
        publisher.join(20)
        self.assertEqual(publisher.returned, [])
        self.assertGreater(len(publisher.confirmed), 500)
        wanted = set(publisher.confirmed)
        wait_until(lambda: wanted <= {m.body for m in inbox.all()}, 40, 'all of them')
        # Who is killed between publish and settle leaves what it published to be published again, under the same id.
        ids = collections.defaultdict(list)
        for m in inbox.all():
            ids[m.body].append(m.id)
        again = sum(len(all_of) - 1 for all_of in ids.values())
        print(f'note shards: {len(wanted)} messages, {again} published again by who took over from a killed gateway', flush=True)
        self.assertEqual({body: all_of for body, all_of in ids.items() if len(set(all_of)) > 1}, {}, 'stored twice')
        self.assertLess(again, 4 * len(changes))
        wait_until(lambda: sum(self.depths(4)) == 0, 10, 'nothing to be left')


class NoPlugin(OwnServers, Doctor):
    who_waits = 'timer'

    def type_of_exchange(self, does, name):
        """RabbitMQ forgets what a plugin has registered when it is started without it, not when it is disabled."""
        module = {'x-random': 'rabbit_exchange_type_random', 'x-consistent-hash': 'rabbit_exchange_type_consistent_hash'}[name]
        self.servers.rabbitmqctl('eval', f'rabbit_registry:{does}(exchange, <<"{name}">>' + (f', {module}' if does == 'register' else '') + ').')

    def test_who_needs_a_plugin_that_is_missing_does_not_start_and_others_go_on(self):
        p = self.place(transport='timer')
        g = p.gateway()
        for name in ('x-random', 'x-consistent-hash'):
            self.type_of_exchange('unregister', name)
            self.addCleanup(self.type_of_exchange, 'register', name)
        for by, plugin in (('random', 'rabbitmq_random_exchange'), ('key', 'rabbitmq_consistent_hash_exchange')):
            env = {'POSTDATE_INTAKE_QUEUES': 3, 'POSTDATE_INTAKE_QUEUES_BY': by}
            refused = p.gateway(wait=False, **env)
            self.assertEqual(refused.wait(), 78)
            self.assertIn('rabbitmq-plugins enable ' + plugin, refused.log())
            self.assert_finding(self.doctor(p, **env), 'broker.shards', 'fail', 'does not know the exchange type', 'rabbitmq-plugins enable ' + plugin)
        inbox = p.consumer('q', bind='k')
        p.client().publish('k', b'x', {'x-delay': 10}, mandatory=True)
        inbox.wait(1)
        g.term()
        p.gateway()
        self.type_of_exchange('register', 'x-random')
        p.gateway(POSTDATE_INTAKE_QUEUES=3)
        self.assert_finding(self.doctor(p, POSTDATE_INTAKE_QUEUES=3), 'broker.shards', 'ok', '3 intake queues, of which 3 get messages, by random; messages in each: 0, 0, 0')
        self.assert_finding(self.doctor(p), 'broker.shards', 'warn', 'the gateway that started last has set 3, by random', 'same intake.queues')
        p.stop_for_good()
        _, out, _ = p.cli('drop-topology', '--yes')
        self.assertRegex(out, 'deleted')
        self.assertEqual([p.client().depth(name) for name in names(3)], [None, None, None])
