"""`postdate import plugin` where RabbitMQ is a cluster: each node has messages of its own in the plugin, and is asked by itself."""
import json
import os
import re

import pika

import cluster_kit
import harness
import test_cluster
from harness import LiveTest, now_ms

SHIM = os.path.join(harness.ROOT, 'build', 'tests', 'shim.so')
MAPS = ('--exchange', 'old=new', '--margin', '1s')
WAITING = ('T = list_to_atom("rabbit_delayed_message" ++ atom_to_list(node())), '
           'length([1 || {{_, {{_, D, X}}, _, _}} <- ets:tab2list(T), is_integer(D), element(2, element(2, X)) =:= <<"{vhost}">>]).')


@harness.not_san  # the shim is loaded before everything
class ImportCluster(LiveTest):
    together = 'cluster'  # its servers
    vhosts = 0
    weight = 100
    time_limit_s = 300

    @classmethod
    def setUpClass(cls):
        cls.servers = test_cluster.start_servers()

    def setUp(self):
        self.servers.need_plugin()
        self.servers.cluster.wait_whole()
        self.servers.vhost(f'cluster-{next(test_cluster.numbers)}')
        self.p = self.place(stack=self.servers, transport='timer')
        self.nodes = self.servers.cluster.nodes
        self.due = {}
        channel = cluster_kit.Link(self.servers, self.p.vhost, 0).open()
        channel.exchange_declare('old', 'x-delayed-message', durable=True, arguments={'x-delayed-type': 'topic'})
        channel.exchange_declare('new', 'topic', durable=True)
        channel.queue_declare('work', durable=True)
        channel.queue_bind('work', 'new', '#')
        channel.connection.close()

    def publish(self, node, name, count, delay_ms):
        """They wait on the node that takes them."""
        channel = cluster_kit.Link(self.servers, self.p.vhost, node).open()
        channel.confirm_delivery()
        for i in range(count):
            body = f'{name} {i}'.encode()
            ms = delay_ms + 5 * i  # a batch has whole due times
            self.due[body] = now_ms() + ms
            channel.basic_publish('old', 'k', body, pika.BasicProperties(delivery_mode=2, headers={'x-delay': ms}))
        channel.connection.close()

    def waiting(self):
        return [int(self.servers.cluster.erlang(WAITING.format(vhost=self.p.vhost), n)) for n in range(3)]

    def run_import(self, *args, expect=0, **env):
        env = {'RABBITMQCTL': os.path.join(self.servers.directory, 'rabbitmqctl'), **env}
        rc, out, err = self.p.cli('import', 'plugin', *MAPS, *args, env=env, timeout=120)
        self.assertEqual(rc, expect, out + err)
        return out, err

    def assert_stored(self, out, *counts):
        self.assertEqual(re.findall(r'(?m)^old +new +(\d+) +(\d+) +0 +0$', out), [(str(n), str(n)) for n in counts], out)

    def test_each_node_has_its_own(self):
        for node in (0, 1):
            self.publish(node, f'node {node}', 5 + node, 3_630_000)
        self.assertEqual(self.waiting(), [5, 6, 0])
        out, err = self.run_import('--batch', 2)
        self.assert_stored(out, 5)
        for node in (1, 2):
            self.assertIn(f'node {self.nodes[node]} may have waiting messages, too: import them with --node {self.nodes[node]}', err)
        self.assertEqual(self.waiting(), [0, 6, 0])
        self.assert_stored(self.run_import('--batch', 4, '--node', self.nodes[1])[0], 6)
        self.assertEqual(self.waiting(), [0, 0, 0])
        out, err = self.run_import('--node', self.nodes[2])
        self.assertNotIn('runs, too', err)
        self.assertEqual(self.p.cli('reschedule', '--exchange', 'new', '--shift=-1h')[0], 0)
        self.due = {body: ms - 3_600_000 for body, ms in self.due.items()}
        self.p.gateway()
        inbox = harness.Consumer(self.servers.url_of(self.p.vhost, 0), 'work')
        self.addCleanup(inbox.close)
        inbox.wait(11, 120)
        self.assertEqual(sorted(m.body for m in inbox.all()), sorted(self.due), 'each once')
        for m in inbox.all():
            self.assertGreaterEqual(m.at_ms, self.due[m.body], f'{m.body!r} was early')

    def test_all_nodes_by_one_command_and_one_proof(self):
        """One that does not answer is said, and ends nothing for the others."""
        for node in (0, 1, 2):
            self.publish(node, f'node {node}', 4 + node, 3_600_000)
        proof = os.path.join(self.servers.directory, f'{self.p.vhost}.proof')
        nodes = [word for node in ('nobody@localhost', *self.nodes) for word in ('--node', node)]
        out, err = self.run_import('--dry-run', *nodes, expect=69)
        self.assertEqual(self.waiting(), [4, 5, 6])
        out, err = self.run_import('--proof', proof, *nodes, expect=69)
        self.assertIn('nobody@localhost', err)
        self.assert_stored(out, 4, 5, 6)
        self.assertEqual((self.waiting(), self.p.counts()), ([0, 0, 0], {'scheduled': 15}))
        with open(proof, encoding='utf-8') as f:
            lines = [json.loads(line) for line in f]
        self.assertEqual([x['end'] for x in lines if 'end' in x], self.nodes)
        self.assertEqual([sum(x.get('node') == node for x in lines) for node in self.nodes], [4, 5, 6])
        rc, out, err = self.p.cli('import', 'verify', proof)
        self.assertEqual((rc, err), (0, ''))
        self.assertRegex(out, r'in the file +15\n.*scheduled +15\b')

    def test_killed_on_one_node_while_another_has_its_own(self):
        """What was taken on a node is awoken by the next run there, and by none of another node."""
        for node in (0, 1):
            self.publish(node, f'node {node}', 6, 3_600_000)
        self.run_import('--node', self.nodes[1], '--batch', 4, expect=-9, LD_PRELOAD=SHIM, POSTDATE_CRASH='import_lock.before')
        self.assertEqual(self.waiting(), [6, 2, 0])
        out, err = self.run_import('--node', self.nodes[0])
        self.assert_stored(out, 6)
        self.assertNotIn('an earlier run', err)
        self.assertEqual(self.p.counts(), {'scheduled': 6})
        out, err = self.run_import('--node', self.nodes[1])
        self.assertIn('stored 4 messages that an earlier run had removed', err)
        self.assertEqual((self.waiting(), self.p.counts()), ([0, 0, 0], {'scheduled': 12}))
