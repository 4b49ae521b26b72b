"""Three nodes with Postdate's exchange type: one is killed while messages are published, and one does not know the type for a while."""
import os
import subprocess
import time

import cluster_kit
import harness
import pika
import pika.exceptions
from harness import LiveTest, wait_until

TARGET = 'q'


class Applications(cluster_kit.Traffic):
    """They know an exchange of the plugin's type."""
    exchange = 'orders'

    def publish_one(self, channel):
        delay_ms = self.rng.randint(500, 5000)
        body = f'amqp-{self.sent}'.encode()
        not_before = harness.now_ms() + delay_ms
        self.sent += 1
        channel.basic_publish(self.exchange, 'k', body, pika.BasicProperties(headers={'x-delay': delay_ms}, delivery_mode=2), mandatory=True)
        self.owed[body] = not_before


class TypeCluster(LiveTest):
    together = 'exchange cluster'
    vhosts = 0
    weight = 250
    time_limit_s = 500

    def setUp(self):
        os.environ['STACK_EXCHANGE_TYPE'] = '1'
        self.addCleanup(os.environ.pop, 'STACK_EXCHANGE_TYPE')
        self.servers = cluster_kit.ClusterStack(harness.stack(), 'cluster-typed')
        self.addCleanup(self.servers.close)
        self.cluster = self.servers.cluster
        self.cluster.wait_whole()
        self.servers.vhost('typed')
        self.p = self.place(stack=self.servers)
        for node in (0, 1):
            self.p.gateway(wait=False, POSTDATE_AMQP_URL=self.servers.url_of('typed', None if node else 2), POSTDATE_RETRY_FIRST='200ms', POSTDATE_RETRY_MAX='1s',
                           POSTDATE_RETRY_ATTEMPTS='1000', POSTDATE_HANDOVER_TRANSPORT='timer')
        for g in self.p.gateways:
            g.wait_ready(120)
        channel = cluster_kit.Link(self.servers, 'typed', 0).open()
        channel.exchange_declare('orders', 'x-delayed-message', durable=True, arguments={'x-delayed-type': 'topic'})
        channel.queue_declare(TARGET, durable=True, arguments=cluster_kit.QUORUM)
        channel.queue_bind(TARGET, 'orders', '#')
        channel.connection.close()

    def ctl(self, node, erlang):
        name = 'rabbitmqctl' + (f'-{node + 1}' if node else '')
        return subprocess.run([os.path.join(self.servers.directory, name), 'eval', erlang], check=True, stdout=subprocess.PIPE, timeout=120).stdout.decode()

    def test_a_node_dies_and_one_forgets_the_type(self):
        traffic = Applications(self.p, self.id()).start((TARGET,))
        wait_until(lambda: len(traffic.seen) >= 30, 60, 'some to arrive')
        self.cluster.kill(1)
        sent = len(traffic.owed)
        wait_until(lambda: len(traffic.owed) >= sent + 100, 120, 'more to be published without that node')
        self.cluster.start(1)
        self.cluster.wait_whole()
        self.forget_the_type()
        copies = traffic.finish(120)
        failed = self.p.psql("select 1 from postdate.message_now where state = 'failed'")
        print(f'note exchange cluster: {len(traffic.owed)} confirmed, {copies} second copies, {len(failed)} failed', flush=True)
        self.assertEqual(failed, [])

    def test_a_minority(self):
        """Two of three are gone: nobody is told that something is kept which is not, and the type is there again when they are."""
        traffic = Applications(self.p, self.id()).start((TARGET,))
        wait_until(lambda: len(traffic.seen) >= 30, 60, 'some to arrive')
        for node in (1, 2):
            self.cluster.kill(node)
        time.sleep(20)  # RabbitMQ takes some seconds to notice, and then the third does not serve
        confirmed = len(traffic.owed)
        for node in (1, 2):
            self.cluster.stack('start-node', node + 1)
        self.cluster.wait_whole()
        wait_until(lambda: len(traffic.owed) >= confirmed + 100, 120, 'more to be published')
        copies = traffic.finish(120)
        print(f'note exchange cluster: a minority: {len(traffic.owed)} confirmed, {confirmed} of them before it ended, {copies} second copies', flush=True)
        self.assertEqual(self.p.psql("select 1 from postdate.message_now where state = 'failed'"), [])

    def forget_the_type(self):
        """The node of the first gateway: what is due there is refused, and tried again."""
        # A channel of RabbitMQ before 3.13 that has used the type goes on with it, so all begin anew.
        self.ctl(2, 'postdate_exchange:disable().')
        self.ctl(2, '[rabbit_networking:close_connection(C, "test") || C <- rabbit_networking:local_connections()].')
        link = cluster_kit.Link(self.servers, 'typed', 2)
        with self.assertRaises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel = link.open()
            channel.confirm_delivery()
            channel.basic_publish('orders', 'k', b'refused', pika.BasicProperties(headers={'x-delay': 1000}))
        self.assertEqual(refused.exception.reply_code, 406)
        wait_until(lambda: self.p.psql("select 1 from postdate.message_now where error like '%406%'"), 60, 'the gateway to be refused')
        self.ctl(2, 'postdate_exchange:enable().')
