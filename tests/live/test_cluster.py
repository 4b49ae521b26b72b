"""A cluster of three nodes, and what happens to them: nothing is lost, early, or delivered after a cancel that said yes.

The promises are made for every transport, by a class for each; the short form has all of them with the timer."""
import itertools
import json
import os
import re
import signal
import time

import cluster_kit
import harness
import pika
from handover_kit import EXIT, RUNGS, handover
from harness import LiveTest, wait_until

TARGET, INTAKE = 'q', 'postdate.intake'
servers = None  # of all classes here: they run in one process, one after the other
numbers = itertools.count(1)


def start_servers():
    global servers
    if servers is None:
        servers = cluster_kit.ClusterStack(harness.stack())
        harness.at_end_of_job(end_servers)
    return servers


def end_servers():
    global servers
    servers.close()
    servers = None


class Promises:
    together = 'cluster'
    vhosts = 0
    weight = 250
    time_limit_s = 300  # a node may take a minute to boot where much else runs
    gateways = 2

    @classmethod
    def setUpClass(cls):
        start_servers()

    def setUp(self):
        self.cluster = servers.cluster
        self.cluster.wait_whole()
        servers.vhost(f'cluster-{next(numbers)}')
        self.p = self.place(stack=servers)

    def traffic(self, nodes=None, solo=None, **env):
        """Gateways, each with all hosts, or each with one of them; a target queue, and messages under way. solo: a node that
        alone has a second target."""
        for node in nodes or [None] * self.gateways:
            self.p.gateway(wait=False, POSTDATE_AMQP_URL=servers.url_of(self.p.vhost, node), POSTDATE_RETRY_FIRST='200ms',
                           POSTDATE_RETRY_MAX='2s', POSTDATE_RETRY_ATTEMPTS='1000', POSTDATE_HANDOVER_WINDOW='6m',
                           POSTDATE_HANDOVER_MIN_AHEAD='1s', **env)
        for g in self.p.gateways:
            g.wait_ready(60)
        channel = cluster_kit.Link(servers, self.p.vhost, solo or 0).open()
        channel.queue_declare(TARGET, durable=True, arguments=cluster_kit.QUORUM)
        channel.queue_bind(TARGET, 'postdate.delivery', 'k')
        if solo is not None:
            channel.queue_declare('solo', durable=True, arguments={**cluster_kit.QUORUM, 'x-quorum-initial-group-size': 1})
            channel.queue_bind('solo', 'postdate.delivery', 'solo')
        channel.connection.close()
        return cluster_kit.Traffic(self.p, self.id()).start((TARGET,) if solo is None else (TARGET, 'solo'))

    def finish(self, traffic):
        """And what is asked for now comes as if nothing had been."""
        traffic.schedule(20, 0.5, 2, prefix='after')
        traffic.finish()
        for g in self.p.gateways:
            self.assertIsNone(g.process.poll(), g.log())

    def test_gateways_on_different_nodes(self):
        traffic = self.traffic(nodes=[0, 1, 2])
        messages = traffic.schedule(90, 1, 4)
        on_nodes = [int(self.cluster.erlang('length(rabbit_networking:local_connections()).', n)) for n in range(3)]
        traffic.cancel(dict(list(messages.items())[60:]))
        self.finish(traffic)
        self.assertTrue(all(count >= 5 for count in on_nodes), on_nodes)

    def test_leaders_move(self):
        traffic = self.traffic()
        messages = traffic.schedule(150, 1, 6)
        for node in (0, 1, 2, 0):
            for queue in (TARGET, INTAKE):
                self.cluster.wait_led_by(self.p.vhost, queue, node)
            time.sleep(0.5)  # some messages go by each
        traffic.cancel(dict(list(messages.items())[100:]))
        self.finish(traffic)

    def test_a_node_is_lost_with_all_leaders_and_comes_back(self):
        """Some messages go to a queue that is on that node only."""
        victim = 1
        traffic = self.traffic(solo=victim)
        for queue in (TARGET, INTAKE):
            self.cluster.wait_led_by(self.p.vhost, queue, victim)
        messages = traffic.schedule(200, 1, 21)
        traffic.schedule(20, 4, 10, key='solo', prefix='solo')
        began = time.monotonic()
        self.cluster.kill(victim)
        wait_until(lambda: self.cluster.leader(self.p.vhost, TARGET) not in (None, victim), 30, 'another leader')
        traffic.cancel(dict(list(messages.items())[::4]))
        while time.monotonic() - began < 20:
            time.sleep(0.1)
        self.cluster.start(victim)
        if self.cluster.elect(self.p.vhost, 'solo', victim):
            print('note cluster: RabbitMQ left a queue of one node without leader', flush=True)
        self.finish(traffic)

    def test_a_minority_is_cut_off(self):
        """The node that leads the queues, and may have connections of the gateways."""
        victim = 2
        traffic = self.traffic()
        for queue in (TARGET, INTAKE):
            self.cluster.wait_led_by(self.p.vhost, queue, victim)
        messages = traffic.schedule(150, 1, 12)
        self.cluster.cut(victim)
        try:
            wait_until(lambda: self.cluster.leader(self.p.vhost, TARGET) not in (None, victim), 30, 'another leader')
            self.assertEqual(self.cluster.seen_by(victim), 1)
            traffic.cancel(dict(list(messages.items())[::3]))
            time.sleep(5)  # how long it stays away
        finally:
            self.cluster.join(victim)
        self.cluster.wait_whole()
        self.finish(traffic)

    def test_a_node_stands_still(self):
        """Connections to it stay, and nothing answers: what falls due meanwhile goes by way of the others."""
        victim = 1
        traffic = self.traffic(POSTDATE_AMQP_HEARTBEAT='2s')
        for queue in (TARGET, INTAKE):
            self.cluster.wait_led_by(self.p.vhost, queue, victim)
        pid = self.cluster.pid(victim)
        os.kill(pid, signal.SIGSTOP)
        try:
            wait_until(lambda: self.cluster.leader(self.p.vhost, TARGET, 0) not in (None, victim), 60, 'another leader')
            messages = traffic.schedule(100, 1, 4)
            wait_until(lambda: not set(messages) & set(traffic.missing()), 90, 'those that fall due while it stands still')
        finally:
            os.kill(pid, signal.SIGCONT)
        try:
            self.cluster.wait_whole(20)
        except TimeoutError:
            # Whom the others had given up does not always find back to them by itself: RabbitMQ is restarted there.
            self.cluster.kill(victim)
            self.cluster.start(victim)
            self.cluster.wait_whole()
        self.finish(traffic)

    def test_rolling_restart(self):
        traffic = self.traffic()
        messages = traffic.schedule(150, 1, 15)
        late = traffic.schedule(50, 20, 60, prefix='late')
        for node in range(3):
            self.cluster.restart_app(node)
            traffic.cancel(dict(list(messages.items())[node::7]))
            traffic.cancel(dict(list(late.items())[node::3]))
        self.finish(traffic)

    def test_the_node_of_the_targets_is_killed_while_thousands_fall_due(self):
        """It leads a quorum queue, and has a classic one; the gateway is on another. All arrive once it is back."""
        victim, count, key_of = 1, 3000, {'quorum': cluster_kit.QUORUM, 'classic': {}}
        g = self.p.gateway(wait=False, POSTDATE_AMQP_URL=servers.url_of(self.p.vhost, 0), POSTDATE_RETRY_FIRST='200ms',
                           POSTDATE_RETRY_MAX='2s', POSTDATE_RETRY_ATTEMPTS='1000', POSTDATE_HANDOVER_WINDOW='6m')
        g.wait_ready(60)
        channel = cluster_kit.Link(servers, self.p.vhost, victim).open()
        for key, arguments in key_of.items():
            channel.queue_declare(key, durable=True, arguments=arguments)
            channel.queue_bind(key, 'postdate.delivery', key)
        channel.connection.close()
        self.cluster.wait_led_by(self.p.vhost, 'quorum', victim)
        first_ms = harness.now_ms() + 20_000
        for key in key_of:
            self.p.load('publish', '--routing-key', key, '--count', count, '--due-at-ms', first_ms, '--due-rate', 200).result()
        waiting = {'scheduled': 2 * count} if self.who_waits == 'timer' else {'handed': 2 * count}
        wait_until(lambda: self.p.counts() == waiting or harness.now_ms() > first_ms - 500, 20, 'all to wait')
        self.assertEqual(self.p.counts(), waiting)
        self.cluster.kill(victim)
        time.sleep(20)
        self.cluster.start(victim)
        self.cluster.wait_whole()
        wait_until(lambda: self.p.counts() == {'delivered': 2 * count}, 90, 'all to be delivered')
        for key in key_of:
            inbox = self.p.load('consume', '--queue', key, *(['--quorum'] if key == 'quorum' else []), '--expect', count,
                                '--timeout-s', 60, '--idle-s', 2)
            r = inbox.result()
            print(f'note cluster, {self.who_waits}: {key}: {r["distinct"]} of {count}, {r["duplicates"]} twice, {r["early"]} early', flush=True)
            self.assertEqual((r['missing'], r['early']), (0, 0), r)


@harness.not_san
class ClusterTimer(Promises, LiveTest):
    who_waits = 'timer'
    only_full = ('test_the_node_of_the_targets_is_killed_while_thousands_fall_due',)

    def test_several_intake_queues_are_led_by_several_nodes_and_one_is_killed(self):
        traffic = self.traffic(POSTDATE_INTAKE_QUEUES='3')
        victim = self.cluster.leaders_apart(self.p.vhost, (INTAKE, INTAKE + '.2', INTAKE + '.3'))[1]
        time.sleep(2)
        self.cluster.kill(victim)
        time.sleep(5)
        self.cluster.start(victim)
        self.finish(traffic)

    def test_several_intake_queues_need_their_plugin_on_each_node(self):
        url = servers.url_of(self.p.vhost)
        self.p.gateway(POSTDATE_AMQP_URL=url)
        self.cluster.erlang('rabbit_registry:unregister(exchange, <<"x-random">>).', 2)
        self.addCleanup(self.cluster.erlang, 'rabbit_registry:register(exchange, <<"x-random">>, rabbit_exchange_type_random).', 2)
        refused = self.p.gateway(wait=False, POSTDATE_AMQP_URL=url, POSTDATE_INTAKE_QUEUES='3')
        self.assertEqual(refused.wait(), 78)
        self.assertIn(f'RabbitMQ at 127.0.0.1:{self.cluster.ports[2]} does not know the exchange type x-random', refused.log())
        self.assertIn('rabbitmq-plugins enable rabbitmq_random_exchange', refused.log())
        client = harness.Client(servers.url_of(self.p.vhost, 2))
        self.addCleanup(client.connection.close)
        client.publish('k', b'x', {'x-delay': 10}, mandatory=True)  # nothing was changed


@harness.not_san
class ClusterTtl(Promises, LiveTest):
    who_waits = 'ttl'
    only_full = ('test_gateways_on_different_nodes', 'test_leaders_move', 'test_a_minority_is_cut_off', 'test_rolling_restart',
                 'test_a_node_is_lost_with_all_leaders_and_comes_back')

    def test_a_gateway_starts_while_a_node_is_away(self):
        """The node has the queues in which RabbitMQ waits: the gateway holds the messages meanwhile."""
        victim = 1
        first = self.p.gateway(wait=False, POSTDATE_AMQP_URL=servers.url_of(self.p.vhost, victim),
                               POSTDATE_HANDOVER_WINDOW='6m')
        first.wait_ready(60)
        self.assertEqual(first.term(), 0)
        self.p.gateways.remove(first)
        self.cluster.kill(victim)
        try:
            traffic = self.traffic(nodes=[0, 2])
            traffic.schedule(50, 1, 4)
            wait_until(lambda: len(traffic.seen) > 50, 30, 'deliveries')
            self.doctor_names_the_node(victim)
        finally:
            self.cluster.start(victim)
        self.finish(traffic)

    def doctor_names_the_node(self, victim):
        _, out, _ = self.p.cli('doctor', '--json', '--rabbitmqctl', os.path.join(servers.directory, 'rabbitmqctl'),
                               env={**handover('ttl'), 'POSTDATE_AMQP_URL': servers.url_of(self.p.vhost)})
        found = {f['check']: f for f in json.loads(out)['checks'] if f['status'] == 'fail'}
        version = servers.rabbitmqctl('version')  # 4.0 answers nothing for long, as it waits for the node
        says = 'is down or inaccessible' if version < '4' else "cannot look up queue 'postdate.ttl.*no answer in time"
        self.assertRegex(found['handover.messages']['detail'], says, out)
        self.assertIn('queues do not answer, among them \'postdate.ttl', found['broker.down']['detail'], out)
        self.assertIn(self.cluster.nodes[victim] + ', which is down', found['broker.down']['detail'], out)

    def without_a_leader(self, queue, running):
        """For some looks at it; one of its three members is away already."""
        wait_until(lambda: self.cluster.leader(self.p.vhost, queue, running[0]) in running, 30, 'another leader')
        node = self.cluster.leader(self.p.vhost, queue, running[0])
        self.cluster.stop_member(self.p.vhost, queue, node)
        time.sleep(4)
        self.cluster.start_member(self.p.vhost, queue, node)

    def test_what_is_lost_with_a_node_that_stays_away_is_rescued(self):
        """RabbitMQ goes on counting the consumers that came by that node, until it is back. While the exit queue has no leader,
        it counts none."""
        count = 200
        for _ in range(self.gateways):
            self.p.gateway(wait=False, **handover('ttl', grace='2s', min_ahead='1s'))
        for g in self.p.gateways:
            g.wait_ready(60)
        inbox = self.p.load('consume', '--queue', TARGET, '--quorum', '--exchange', 'postdate.delivery', '--bind', 'k', '--expect', count,
                            '--timeout-s', 120, '--idle-s', 1, '--retry').wait_consuming()
        ports = [re.findall(r'relay: .*RabbitMQ at 127\.0\.0\.1:(\d+)', g.log())[-1] for g in self.p.gateways]
        victim = self.cluster.ports.index(int(ports[0]))
        first_ms = harness.now_ms() + 20_000
        self.p.load('publish', '--routing-key', 'k', '--count', count, '--due-at-ms', first_ms, '--due-rate', count).result()
        wait_until(lambda: self.p.counts() == {'handed': count}, 15, 'all to wait')
        channel = cluster_kit.Link(servers, self.p.vhost, victim).open()
        lost = 0
        for rung in RUNGS:
            try:
                lost += channel.queue_purge(rung).method.message_count
            except pika.exceptions.ChannelClosedByBroker:  # a level that this window does not need
                channel = channel.connection.channel()
        channel.connection.close()
        self.cluster.kill(victim)
        try:
            self.without_a_leader(EXIT, [n for n in range(3) if n != victim])
            wait_until(lambda: self.p.counts() == {'delivered': count}, 120, f'{lost} to be rescued')
        except AssertionError as e:
            counted = cluster_kit.Link(servers, self.p.vhost, 1 if victim == 0 else 0).open().queue_declare(EXIT, passive=True).method.consumer_count
            noted = self.p.value('select sum(relay_consumers[1]) from postdate.instance')
            raise AssertionError(f'{e}: RabbitMQ counts {counted} consumers of {EXIT}, the gateways have noted {noted}; '
                                 f'{self.p.counts()}') from None
        finally:
            self.cluster.start(victim)
        print(f'note cluster: {lost} of {count} rescued {harness.now_ms() - first_ms - 1000} ms after they were due, while a node was away',
              flush=True)
        self.assertGreater(lost, count / 2)
        r = inbox.result()
        self.assertEqual((r['missing'], r['early'], r['duplicates']), (0, 0, 0), r)


@harness.not_san
@harness.only_full
class ClusterPlugin(Promises, LiveTest):
    who_waits = 'plugin'
