"""Targets that have no majority delay no others: quorum queues of two members in a cluster of three nodes, of which one is killed."""
import threading
import time

import cluster_kit
import harness
import test_cluster
from harness import LiveTest, now_ms, wait_until

RATE, TARGETS = 25, 3
HEALTHY, DEAD = [f'healthy{i}' for i in range(TARGETS)], [f'dead{i}' for i in range(TARGETS)]


@harness.not_san
@harness.only_full
class Majority(LiveTest):
    together = 'cluster'
    vhosts = 0
    weight = 260
    time_limit_s = 400
    away_s = 55

    @classmethod
    def setUpClass(cls):
        cls.servers = test_cluster.start_servers()

    def setUp(self):
        self.cluster = self.servers.cluster
        self.cluster.wait_whole()
        self.vhost = f'majority-{next(test_cluster.numbers)}'
        self.servers.vhost(self.vhost)
        self.p = self.place(stack=self.servers, transport='timer')
        self.late, self.lock, self.over = {name: {} for name in HEALTHY + DEAD}, threading.Lock(), threading.Event()

    def declare(self, name, other):
        """On nodes 0 and `other`."""
        channel = cluster_kit.Link(self.servers, self.vhost, 0).open()
        channel.queue_declare(name, durable=True, arguments={**cluster_kit.QUORUM, 'x-quorum-initial-group-size': 1})
        channel.queue_bind(name, 'postdate.delivery', name)
        channel.connection.close()
        added = self.cluster.erlang(f'rabbit_quorum_queue:add_member(<<"{self.vhost}">>, <<"{name}">>, \'{self.cluster.nodes[other]}\', 10000).')
        self.assertEqual(added, 'ok')

    def consume(self, names, node):
        link = cluster_kit.Link(self.servers, self.vhost, node)
        while not self.over.is_set():
            try:
                channel = link.open()
                for name in names:
                    channel.basic_consume(name, self.take, auto_ack=True)
                while not self.over.is_set():
                    link.connection.process_data_events(time_limit=0.1)
            except cluster_kit.ERRORS:
                link.drop()
                time.sleep(0.2)
        link.drop()

    def take(self, _channel, method, _properties, body):
        at = time.time() * 1000
        with self.lock:
            self.late[method.routing_key].setdefault(body, []).append(at - int(body))

    def due(self, from_ms, seconds):
        names = "', '".join(HEALTHY + DEAD)
        count = seconds * RATE * 2 * TARGETS
        self.p.psql(f"""
            insert into postdate.message (due, id, hold, exchange, routing_key, properties, body)
            select d, postdate.id_make(d), 'g', 'postdate.delivery', (array['{names}'])[1 + i % {2 * TARGETS}], '\\x100002',
                   convert_to((extract(epoch from d) * 1000)::bigint::text, 'utf8')
              from (select i, date_trunc('milliseconds', to_timestamp({from_ms / 1000}) + i * interval '1 s' / {2 * TARGETS * RATE}) as d
                      from generate_series(1, {count}) i) x""")
        return count // (2 * TARGETS)

    def arrived(self, name):
        with self.lock:
            return len(self.late[name])

    def run_once(self, gateways):
        for _ in range(gateways):
            self.p.gateway(wait=False, POSTDATE_AMQP_URL=self.servers.url_of(self.vhost), POSTDATE_LOG_LEVEL='debug')
        for g in self.p.gateways:
            g.wait_ready(60)
        for i, name in enumerate(HEALTHY + DEAD):
            self.declare(name, 1 if i < TARGETS else 2)
        for name in DEAD:
            self.cluster.wait_led_by(self.vhost, name, 2)
        threads = [threading.Thread(target=self.consume, args=(names, 0)) for names in (HEALTHY, DEAD)]
        for thread in threads:
            thread.start()
        try:
            each = self.due(now_ms() + 5000, self.away_s + 15)
            time.sleep(8)
            self.cluster.kill(2)
            time.sleep(self.away_s)
            self.cluster.start(2)
            for name in HEALTHY + DEAD:
                wait_until(lambda name=name: self.arrived(name) == each, 120, f'all to arrive at {name}')
        finally:
            self.over.set()
            for thread in threads:
                thread.join(20)
        late = sorted(x[0] for name in HEALTHY for x in self.late[name].values())
        twice = sum(len(x) - 1 for name in HEALTHY for x in self.late[name].values())
        print(f'note majority: {gateways} gateways: {len(late)} messages to healthy targets: late p50 {late[len(late) // 2]:.0f} ms, '
              f'p99 {late[len(late) * 99 // 100]:.0f} ms, at most {late[-1]:.0f} ms; more than 6 s {sum(x > 6000 for x in late)}; {twice} twice', flush=True)
        return late, twice

    def test_targets_without_a_majority_delay_no_others(self):
        """What was in flight to the others on a connection that hung waited for as long as the new one hung, too."""
        late, _ = self.run_once(4)
        self.assertLess(late[-1], 6000 * harness.slowness())
