"""What consumers refuse comes back to the very queue after a wait, and is kept as a dead letter when no attempt is left."""
import threading
import time

import pika

import harness
from harness import LiveTest, Received, wait_until
from broker_users import add_user, delete_user

RETRY = {'x-dead-letter-exchange': 'postdate.retry'}
QUORUM = {**RETRY, 'x-queue-type': 'quorum', 'x-dead-letter-strategy': 'at-least-once', 'x-overflow': 'reject-publish'}


class Refuser:
    """Consumes a queue; accepts what `accept` says, refuses the rest without requeue."""

    def __init__(self, url, queue, accept=lambda m: False):
        self.messages, self.queue, self.accept, self.stopping = [], queue, accept, False
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=50)
        self.channel.basic_consume(queue, self._take)
        self.thread = threading.Thread(target=self._loop, daemon=True)
        self.thread.start()

    def _take(self, channel, method, properties, body):
        m = Received(method, properties, body, time.time() * 1000)
        if self.accept(m):
            channel.basic_ack(method.delivery_tag)
        else:
            channel.basic_reject(method.delivery_tag, requeue=False)
        self.messages.append(m)

    def _loop(self):
        while not self.stopping:
            self.connection.process_data_events(0.05)

    def close(self):
        self.stopping = True
        self.thread.join()
        self.connection.close()

    def wait(self, count, deadline_s=20):
        wait_until(lambda: len(self.messages) >= count, deadline_s, f'{count} deliveries to {self.queue}')
        return self.messages[:count]


class RetryKit(LiveTest):
    def start(self, **options):
        p = self.place()
        p.gateway(**options)
        c = p.client()
        wait_until(lambda: p.sessions() and self.has_exchange(p, 'postdate.return'), 10, 'the exchanges of retries')
        return p, c

    def has_exchange(self, p, name):
        c = p.client()
        try:
            c.channel.exchange_declare(name, passive=True)
            return True
        except pika.exceptions.ChannelClosed:
            return False

    def refuser(self, p, queue, accept=lambda m: False):
        r = Refuser(p.amqp, queue, accept)
        self.addCleanup(r.close)
        return r

    def policy(self, p, pattern, attempts=10, first='200 ms', factor=2, most='1 h', **more):
        extra = ''.join(f', {k} => {v}' for k, v in more.items())
        p.psql(f"select postdate.retry_policy_set('{pattern}', {attempts}, '{first}', {factor}, '{most}', 0{extra})")


class Retries(RetryKit):
    def test_it_comes_back_until_it_is_accepted(self):
        p, c = self.start()
        for kind, arguments in (('classic', RETRY), ('quorum', QUORUM)):
            queue = 'orders.' + kind
            c.queue(queue, arguments=arguments)
            c.channel.exchange_declare('shop', 'topic')
            c.channel.queue_bind(queue, 'shop', 'order.' + kind)
            self.policy(p, queue)
            r = self.refuser(p, queue, lambda m: m.headers.get('x-postdate-attempt') == 4)
            c.publish('order.' + kind, b'body', {'n': 1, 'x-custom': 'ä'}, exchange='shop', priority=3, correlation_id='c', type='t')
            first, *rest = r.wait(4)
            self.assertNotIn('x-postdate-attempt', first.headers)
            self.assertEqual([m.headers['x-postdate-attempt'] for m in rest], [2, 3, 4])
            self.assertEqual(len({m.id for m in rest}), 1)
            for m in rest:
                self.assertEqual((m.body, m.routing_key, m.headers['n'], m.headers['x-custom']), (b'body', 'order.' + kind, 1, 'ä'))
                self.assertEqual((m.properties.priority, m.properties.correlation_id, m.properties.type), (3, 'c', 't'))
                self.assertEqual(m.headers['x-death'][0]['count'], m.headers['x-postdate-attempt'] - 1)
            waits = [b.at_ms - a.at_ms for a, b in zip(r.messages, r.messages[1:])]
            for wait, least in zip(waits, (200, 400, 800)):
                self.assertTrue(least <= wait < least + 1500, waits)
            time.sleep(1)
            self.assertEqual(len(r.messages), 4)

    def test_after_the_last_attempt_it_is_dead(self):
        p, c = self.start()
        c.queue('orders', arguments=RETRY)
        self.policy(p, 'orders', attempts=3, first='50 ms')
        r = self.refuser(p, 'orders')
        c.publish('orders', b'never', exchange='')
        r.wait(3)
        wait_until(lambda: p.value('select count(*) from postdate.lineage where died_at is not null') == '1', 10, 'the dead letter')
        row = p.psql("select queue, exchange, routing_key, failed, reason, cardinality(failed_at), reasons::text, convert_from(body, 'UTF8') "
                     'from postdate.lineage')[0]
        self.assertEqual(row, ['orders', '', 'orders', '3', 'rejected', '3', '{rejected,rejected,rejected}', 'never'])
        self.assertEqual({m.headers['x-postdate-id'] for m in r.messages[1:]}, {p.value('select id from postdate.lineage')})
        p.gateways[0].wait_log('1 message was rejected for good by consumers; the first: ' + r.messages[1].headers['x-postdate-id']
                               + ', after 3 deliveries, in queue orders')
        time.sleep(0.5)
        self.assertEqual(len(r.messages), 3)
        # again by hand: the attempts are counted anew, the id stays
        self.assertEqual(p.value("select postdate.dead_requeue(id, queue) from postdate.lineage"), 't')
        again = r.wait(6)[3:]
        self.assertEqual({m.id for m in again}, {r.messages[1].id})
        wait_until(lambda: p.value('select count(*) from postdate.lineage where died_at is not null') == '1', 10, 'the dead letter again')

    def test_two_queues_refuse_one_message(self):
        p, c = self.start()
        for q in ('a', 'b'):
            c.queue(q, bind='both', arguments=RETRY)
        self.policy(p, '*', attempts=3, first='100 ms')
        a, b = self.refuser(p, 'a', lambda m: m.headers.get('x-postdate-attempt') == 2), self.refuser(p, 'b')
        c.publish('both', b'one', {'x-delay': 50})
        b.wait(3)
        a.wait(2)
        time.sleep(1)
        self.assertEqual((len(a.messages), len(b.messages)), (2, 3))
        self.assertEqual(len({m.id for m in a.messages + b.messages}), 1, 'one id all the way')

    def test_a_queue_that_is_gone(self):
        p, c = self.start()
        c.queue('gone', arguments=RETRY)
        self.policy(p, '*', first='4 s')
        r = self.refuser(p, 'gone')
        c.publish('gone', b'x', exchange='')
        r.wait(1)
        wait_until(lambda: p.value('select count(*) from postdate.lineage') == '1', 10, 'the refusal to be taken')  # not gone with the queue
        c.channel.queue_delete('gone')
        wait_until(lambda: p.value('select reason from postdate.lineage where died_at is not null') == 'return_failed', 40, 'the dead letter')
        self.assertRegex(p.value('select error from postdate.lineage'), "404.*no queue 'gone'")

    def test_an_exchange_that_somebody_deletes(self):
        """postdate.return, and all its bindings: it is declared again when the next message goes back."""
        p, c = self.start()
        for queue in ('known', 'new'):
            c.queue(queue, arguments=RETRY)
        self.policy(p, '*', first='300 ms', factor=1)
        known = self.refuser(p, 'known', lambda m: m.headers.get('x-postdate-attempt') == 4)
        new = self.refuser(p, 'new', lambda m: m.headers.get('x-postdate-attempt') == 2)
        c.publish('known', b'x', exchange='')
        known.wait(2)
        c.channel.exchange_delete('postdate.return')
        c.publish('new', b'y', exchange='')
        self.assertEqual(known.wait(4)[-1].headers['x-postdate-attempt'], 4)
        self.assertEqual(new.wait(2)[-1].headers['x-postdate-attempt'], 2)
        self.assertEqual(p.value('select count(*) from postdate.lineage where died_at is not null'), '0')

    def test_a_permission_that_is_missing_for_a_while(self):
        """The queue is there: so its messages wait, and are not dead letters after three attempts to bind it."""
        p = self.place()
        user = f'narrow-{p.vhost}'
        url = add_user(p, user, 'secret', '.*', '^(postdate|amq[.]default)', '.*')
        self.addCleanup(delete_user, p.stack, user)
        p.gateway(POSTDATE_AMQP_URL=url, POSTDATE_RETRY_FIRST='100ms', POSTDATE_RETRY_MAX='200ms', POSTDATE_RETRY_ATTEMPTS='1000')
        wait_until(lambda: self.has_exchange(p, 'postdate.return'), 10, 'the exchanges of retries')
        c = p.client()
        c.queue('work', arguments=RETRY)
        self.policy(p, 'work', first='100 ms')
        r = self.refuser(p, 'work', lambda m: m.headers.get('x-postdate-attempt', 1) == 2)
        c.publish('work', b'mine', exchange='')
        tried = "select coalesce(max(attempts), 0) from postdate.message_now where exchange = 'postdate.return' and state = 'scheduled'"
        wait_until(lambda: int(p.value(tried)) >= 5, 20, 'five attempts to bind the queue')
        p.stack.rabbitmqctl('set_permissions', '-p', p.vhost, user, '.*', '.*', '.*')
        self.assertEqual([m.body for m in r.wait(2)], [b'mine', b'mine'])
        self.assertEqual(p.value('select count(*) from postdate.lineage where died_at is not null'), '0')

    def test_what_nobody_dead_lettered_is_rejected(self):
        p, c = self.start()
        c.publish('postdate.retry', b'straight', {'x-death': [{'queue': 'x', 'reason': 'rejected'}]}, exchange='')
        found = []

        def rejected():
            m = c.channel.basic_get('postdate.rejected', auto_ack=True)
            if m[0]:
                found.append(m)
            return found
        wait_until(rejected, 10, 'it to be rejected')
        self.assertIn('postdate.retry', found[0][1].headers['x-postdate-error'])
        p.gateways[0].wait_log(r'moved 1 dead letter to postdate.rejected, the first \(without an id\) because: published to')
        c.publish('postdate.retry', b'straight', {'x-postdate-id': 'forged-1'}, exchange='', message_id='m')
        p.gateways[0].wait_log(r'moved 1 dead letter to postdate.rejected, the first \(x-postdate-id forged-1\) because: published to')
        with self.assertRaises(pika.exceptions.ChannelClosedByBroker):
            c.publish('k', b'x', exchange='postdate.retry')
            c.connection.process_data_events(1)

    def test_expired_ones_are_dead_unless_the_policy_says_so(self):
        p, c = self.start()
        for queue in ('short', 'again'):
            c.queue(queue, arguments={**RETRY, 'x-message-ttl': 300})
        self.policy(p, 'again', attempts=3, first='100 ms', reasons="'{expired}'")
        c.publish('short', b's', exchange='')
        c.publish('again', b'a', exchange='')
        dead = "select queue, reason, failed from postdate.lineage where died_at is not null order by queue"
        wait_until(lambda: p.psql(dead) == [['again', 'expired', '3'], ['short', 'expired', '1']], 15, 'both to be dead')

    def test_what_a_consumer_publishes_again_with_its_headers_is_not_lost(self):
        """Two messages under one id and attempt: the second is another one by its content."""
        p, c = self.start()
        c.queue('split', arguments=RETRY)
        self.policy(p, '*', first='100 ms')
        r = self.refuser(p, 'split', lambda m: m.headers.get('x-postdate-attempt', 1) >= 2 and m.body != b'whole')
        c.publish('split', b'whole', exchange='')
        received = r.wait(2)[1]
        for part in (b'left', b'right'):
            c.publish('split', part, {**received.headers, 'x-postdate-attempt': 1}, exchange='')
        wait_until(lambda: {b'left', b'right'} <= {m.body for m in r.messages if m.headers.get('x-postdate-attempt', 1) > 1}, 20,
                   'both parts to come back')

    def test_gateways_die_meanwhile(self):
        p, c = self.start()
        c.queue('work', arguments=QUORUM)
        self.policy(p, '*', first='300 ms', factor=1)
        accepted = []

        def accept(m):
            good = m.headers.get('x-postdate-attempt', 1) >= 3
            if good:
                accepted.append(m.body)
            return good
        self.refuser(p, 'work', accept)
        bodies = [b'%d' % i for i in range(400)]
        p.gateway()
        c.publish_burst('work', bodies, exchange='')
        for _ in range(4):
            time.sleep(0.4)
            p.gateways[-1].kill9()
            p.gateway()
        wait_until(lambda: len(set(accepted)) == len(bodies), 60, 'all to be accepted')
        print(f'note retries, gateways killed: {len(bodies)} refused twice, {len(accepted) - len(bodies)} accepted twice', flush=True)
        wait_until(lambda: p.value("select count(*) from postdate.message_now where state <> 'delivered'") == '0', 20, 'all to be settled')
        self.assertEqual(p.value('select count(*) from postdate.lineage where died_at is not null'), '0')

    def test_a_burst_of_refusals_is_counted_once_each(self):
        p, c = self.start()
        c.queue('burst', arguments=RETRY)
        self.policy(p, '*', attempts=3, first='100 ms')
        r = self.refuser(p, 'burst')
        c.publish_burst('burst', [b'%d' % i for i in range(1000)], exchange='')
        wait_until(lambda: p.value('select count(*) from postdate.lineage where died_at is not null') == '1000', 60, 'all to be dead')
        self.assertEqual(p.psql('select distinct failed from postdate.lineage'), [['3']])
        self.assertEqual(len(r.messages), 3000)

    def test_many_at_once_and_a_queue_that_always_fails(self):
        """Ten queues refuse all they have, at once; an eleventh refuses again and again, which delays nobody."""
        p, c = self.start()
        count = 5000 if harness.FULL else 500
        self.policy(p, 'work.*', first='2 s')
        self.policy(p, 'always', attempts=1000, first='20 ms', factor=1)
        queues = ['work.%d' % i for i in range(10)]
        for queue in [*queues, 'always']:
            c.queue(queue, arguments=RETRY)
        always = self.refuser(p, 'always')
        c.publish_burst('always', [b'x'] * 50, exchange='')
        for queue in queues:
            c.publish_burst(queue, [b'%d' % i for i in range(count)], exchange='')
        consumers = [self.refuser(p, queue, lambda m: m.headers.get('x-postdate-attempt') == 2) for queue in queues]
        for r in consumers:
            r.wait(2 * count, 120)
            self.assertEqual(len({m.body for m in r.messages if 'x-postdate-attempt' in m.headers}), count)
        late = "percentile_cont(%s) within group (order by extract(epoch from settled_at - due) * 1000)"
        row = p.psql(f"select count(*), {late % 0.5}, {late % 0.99}, max(extract(epoch from settled_at - due)) from postdate.message_now "
                     "where exchange = 'postdate.return' and state = 'delivered' and routing_key <> 'always'")[0]
        print(f'note retries: {row[0]} back from ten queues, settled late by ms p50 {float(row[1]):.0f}, p99 {float(row[2]):.0f}; '
              f'{len(always.messages)} deliveries to the one that always fails', flush=True)
        self.assertEqual(int(row[0]), 10 * count)
        self.assertGreater(len(always.messages), 100)

    def test_further_routing_keys_are_not_used_again(self):
        """CC stays on the message, and leads nowhere when it goes back; nor does a dead-letter routing key change anything."""
        p, c = self.start()
        c.channel.exchange_declare('shop', 'topic')
        c.queue('a', bind='k1', exchange='shop', arguments={**RETRY, 'x-dead-letter-routing-key': 'another'})
        c.queue('b', bind=['k1', 'k2'], exchange='shop', arguments=RETRY)
        self.policy(p, '*', first='100 ms')
        a, b = self.refuser(p, 'a', lambda m: m.headers.get('x-postdate-attempt') == 3), self.refuser(p, 'b', lambda m: True)
        c.publish('k1', b'x', {'CC': ['k2']}, exchange='shop')
        last = a.wait(3)[-1]
        self.assertEqual((last.routing_key, last.headers['CC']), ('k1', ['k2']))
        time.sleep(1)
        self.assertEqual((len(a.messages), len(b.messages)), (3, 1))
