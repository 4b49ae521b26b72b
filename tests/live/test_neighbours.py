"""What one exchange, queue or message of the broker does wrong harms no other."""
import re
import shlex

import harness
from amqp10 import Publisher, utf8
from door import Door, port_of, with_hosts
from handover_kit import OwnServers, handover
from harness import LiveTest, free_ports, now_ms, wait_until


class WrongExchange(LiveTest):
    def test_a_route_that_is_no_fanout_any_more_stops_no_other(self):
        """Somebody declares it anew, with another type, and the intake connects again."""
        p = self.place()
        gw = p.gateway(POSTDATE_ROUTE='first=postdate.delivery,second=postdate.delivery')
        c = p.client()
        c.channel.exchange_delete('first')
        c.channel.exchange_declare('first', 'direct', durable=True)
        self.reconnect(p)
        c, inbox = p.client(), p.consumer('q', bind='k')
        c.publish('k', b'by the intake', {'x-delay': 1})
        c.publish('k', b'by another route', {'x-delay': 1}, exchange='second')
        inbox.wait(2, 20)
        gw.wait_log("cannot redeclare deleted queues, exchanges or bindings: .*'first'", 45)

    def test_a_delivery_exchange_of_another_type_stops_no_other(self):
        p = self.place()
        p.gateway()
        c = p.client()
        c.channel.exchange_delete('postdate.delivery')
        c.channel.exchange_declare('postdate.delivery', 'direct', durable=True)
        self.reconnect(p)
        c, inbox = p.client(), p.consumer('q', bind='k')
        c.queue('work')
        c.publish('k', b'as it leads now', {'x-delay': 1})
        c.publish('work', b'elsewhere', {'x-delay': 1, 'x-postdate-exchange': ''})
        inbox.wait(1, 20)
        self.assertEqual(c.wait_get('work', 20).body, b'elsewhere')

    @staticmethod
    def reconnect(p):
        p.stack.rabbitmqctl('close_all_connections', '--vhost', p.vhost, 'a test')


class FullOfRefused(LiveTest):
    def test_refused_dead_letters_keep_no_other_while_nothing_takes_them(self):
        p = self.place()
        gw = p.gateway()
        p.stack.rabbitmqctl('set_policy', '-p', p.vhost, 'full', r'^postdate\.rejected$', '{"max-length":1}')
        c = p.client()
        c.queue('work', arguments={'x-dead-letter-exchange': 'postdate.retry'})
        c.publish('postdate.rejected', b'fills it', exchange='')
        c.publish('postdate.rejected', b'fills it', exchange='')
        c.publish_burst('postdate.retry', [b'nobody refused this %d' % i for i in range(1900)], exchange='')
        gw.wait_log('cannot move [0-9]+ rejected dead letters? to postdate.rejected')
        began_ms = now_ms()
        c.publish('work', b'again', exchange='')
        method, _, _ = c.channel.basic_get('work')
        c.channel.basic_reject(method.delivery_tag, requeue=False)
        self.assertEqual(c.wait_get('work', 20).headers['x-postdate-attempt'], 2)
        print(f'note neighbours: it came back after {now_ms() - began_ms} ms', flush=True)
        p.stack.rabbitmqctl('clear_policy', '-p', p.vhost, 'full')
        wait_until(lambda: c.depth('postdate.rejected') >= 1900, 60, 'them to be moved')
        self.assertEqual(c.depth('postdate.retry'), 0)
    test_refused_dead_letters_keep_no_other_while_nothing_takes_them.time_limit_s = 120


class SilentToNew(LiveTest):
    def test_receipts_that_nobody_can_judge_keep_no_other(self):
        """RabbitMQ goes on with the connections that it has, and takes no new one."""
        p = self.place()
        door = Door(free_ports(1)[0], port_of(p.amqp)).open()
        self.addCleanup(door.close)
        p.gateway(POSTDATE_AMQP_URL=with_hosts(p.amqp, door.address), **handover('ttl', last_hop='broker'))
        inbox, c, delay_ms = p.consumer('q', bind='k'), p.client(), 5000 * harness.slowness()
        for i in range(30):
            c.publish('k', b'by RabbitMQ %d' % i, {'x-delay': delay_ms + i * 100})
            c.publish('k', b'by the gateway %d' % i, {'x-delay': delay_ms + i * 100, 'x-postdate-hold': 'broker'}, expiration='600000')
        wait_until(lambda: p.counts().get('handed') == 60, 4, 'all to be handed over')
        door.say_nothing()
        inbox.wait(60, 30)
        late = sorted(m.at_ms - m.due_ms for m in inbox.all() if m.body.startswith(b'by the gateway'))
        print(f'note neighbours: late by {late[len(late) // 2]} ms (median), {late[-1]} at most', flush=True)
        self.assertGreaterEqual(late[0], 0)
        self.assertLess(late[-1], 6000)  # a connection that is not answered is given up after ten seconds
        wait_until(lambda: p.counts() == {'delivered': 60}, 30, 'all to be settled')
        self.assertEqual(len(inbox.all()), 60)


class ReadsNothing(LiveTest):
    who_waits = 'timer'

    def test_a_connection_that_is_not_read_is_given_up_in_the_middle_of_a_message(self):
        """What does not fit into the sockets' buffers waits in a send, for 20 s, by our deadline or the kernel's
        (TCP_USER_TIMEOUT). New connections are read."""
        p = self.place()
        door = Door(free_ports(1)[0], port_of(p.amqp)).open(buffered=65536)
        self.addCleanup(door.close)
        gw = p.gateway(POSTDATE_AMQP_URL=with_hosts(p.amqp, door.address), POSTDATE_AMQP_HEARTBEAT='60s', POSTDATE_INTAKE_MAX_BODY='16MiB',
                       POSTDATE_LOG_LEVEL='debug')
        c, count = p.client(), 3
        c.queue('q', 'k')
        for i in range(count):
            c.publish('k', b'%d' % i * 16_000_000, {'x-delay': 8000 * harness.slowness()})
        wait_until(lambda: p.counts().get('scheduled') == count, 7, 'all to be stored')
        door.stand_still()
        gw.wait_log('publisher: cannot send: RabbitMQ at', 40)
        wait_until(lambda: c.depth('q') == count, 30, 'all to be delivered')
        door.go_on()
        wait_until(lambda: p.counts() == {'delivered': count}, 30, 'all to be settled')


class TooLargeToWait(OwnServers, LiveTest):
    """On servers that no other test uses at the same time: the limit is that of a whole RabbitMQ."""

    def test_what_rabbitmq_does_not_take_doubles_no_other(self):
        """By SQL a message may be larger than max_message_size: RabbitMQ closes the channel that hands it over, and has those before it."""
        p = self.place()
        p.stack.rabbitmqctl('eval', self.limit(1_000_000))
        self.addCleanup(p.stack.rabbitmqctl, 'eval', self.limit(16_777_216))
        p.gateway(**handover('ttl', what='all', grace='3s'))
        inbox, count = p.consumer('q', bind='k'), 2000
        for large in range(10):
            p.psql(f"select postdate.schedule('k', i::text, '5 s') from generate_series({large * 200}, {large * 200 + 199}) i; "
                   "select postdate.schedule('k', repeat('x', 2000000), '5 s')")
        inbox.wait(count, 40)
        wait_until(lambda: p.counts().get('delivered') == count, 30, 'all others to be settled')
        bodies = [m.body for m in inbox.all()]
        print(f'note neighbours: {len(bodies) - len(set(bodies))} came twice, the latest {max(m.at_ms - m.due_ms for m in inbox.all())} ms late', flush=True)
        self.assertEqual(len(bodies), len(set(bodies)))

    @staticmethod
    def limit(size):
        return f'application:set_env(rabbit, max_message_size, {size}), catch persistent_term:put(max_message_size, {size}), ok.'


class Unconvertible(LiveTest):
    """By AMQP 1.0 a message may have what RabbitMQ 4.0 cannot deliver to any AMQP 0-9-1 consumer."""

    def prepare(self):
        p = self.place()
        version = p.stack.rabbitmqctl('version').strip()
        if not '4.0' <= version < '4.2':
            self.skipTest('needs RabbitMQ 4.0 or 4.1')
        return p

    def publish_unconvertible(self, p, address):
        publisher = Publisher(p.amqp, address)
        self.addCleanup(publisher.close)
        publisher.publish(b'poison', properties=[(utf8('n'), b'\x98' + bytes(16))])  # a UUID

    def cure(self, p, gw, queue):
        """As the log says."""
        gw.wait_log(f"RabbitMQ cannot convert a message in '{queue}'", 30)
        command = shlex.split(re.search(rf"'{queue}'.*rabbitmqctl (set_policy .*?); clear", gw.log())[1])
        p.stack.rabbitmqctl(*command)

    def test_the_policy_that_the_log_names_takes_it_away_and_no_other(self):
        p = self.prepare()
        self.assertEqual(p.gateway().term(), 0)
        inbox, c = p.consumer('q', bind='k'), p.client()
        c.publish('k', b'before', {'x-delay': 1}, message_id='before')
        self.publish_unconvertible(p, '/exchanges/postdate/k')
        c.publish_burst('k', [b'%d' % i for i in range(300)], {'x-delay': 1})
        self.cure(p, p.gateway(wait=False), 'postdate.intake')
        wait_until(lambda: c.depth('postdate.rejected') > 0, 60, 'it to be moved')
        wait_until(lambda: len({m.body for m in inbox.all()}) == 301, 20, 'all others to be delivered')
        self.assertEqual(c.depth('postdate.rejected'), 1)
        self.assertLess(len(inbox.all()), 500)  # without a message-id: one each time the channel ends, at most
    test_the_policy_that_the_log_names_takes_it_away_and_no_other.time_limit_s = 150

    def test_what_consumers_refused_goes_on_in_the_same_way(self):
        p = self.prepare()
        gw, c = p.gateway(), p.client()
        c.queue('short', arguments={'x-message-ttl': 1, 'x-dead-letter-exchange': 'postdate.retry'})
        c.queue('work', arguments={'x-dead-letter-exchange': 'postdate.retry'})
        self.publish_unconvertible(p, '/queues/short')
        self.cure(p, gw, 'postdate.retry')
        for i in range(50):
            c.publish('work', b'%d' % i, exchange='')
        for _ in range(50):
            c.channel.basic_reject(c.channel.basic_get('work')[0].delivery_tag, requeue=False)
        wait_until(lambda: c.depth('work') == 50, 60, 'all to come back')
        wait_until(lambda: c.depth('postdate.rejected') == 1, 30, 'it to be moved')
    test_what_consumers_refused_goes_on_in_the_same_way.time_limit_s = 150

    def test_what_somebody_puts_into_the_exit_queue_is_moved_in_the_same_way(self):
        p = self.prepare()
        gw = p.gateway(**handover('ttl', grace='20s'))
        inbox, c = p.consumer('q', bind='k'), p.client()
        for i in range(200):
            c.publish('k', b'%d' % i, {'x-delay': 12_000 + i * 20})
        wait_until(lambda: p.counts().get('handed') == 200, 11, 'all to be handed over')
        self.publish_unconvertible(p, '/queues/postdate.exit')
        self.cure(p, gw, 'postdate.exit')
        wait_until(lambda: c.depth('postdate.rejected') > 0, 60, 'it to be moved')
        inbox.wait(200, 40)
        wait_until(lambda: p.counts() == {'delivered': 200}, 30, 'all to be settled')
        self.assertEqual(len(inbox.all()), 200)
    test_what_somebody_puts_into_the_exit_queue_is_moved_in_the_same_way.time_limit_s = 150
