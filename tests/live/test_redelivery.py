"""What RabbitMQ gives to intake a second time is stored once, under one id."""
import os
import sys
import threading

import harness
from harness import LiveTest, now_ms, wait_until
from test_trouble import Gate

sys.path.append(os.path.join(harness.ROOT, 'tests', 'chaos'))
from proxy import Proxy  # noqa: E402

HOUR_MS = 3_600_000


@harness.not_san
class Redelivery(LiveTest):
    def test_by_another_gateway_while_the_first_one_still_commits(self):
        """Its commit outlives its connection to RabbitMQ; the other one looked, found nothing, and stored it again."""
        p = self.place()
        gateways = [p.gateway(), p.gateway()]
        gate = Gate(p)
        c = p.client()
        c.publish('gate', b'once', {'x-delay': HOUR_MS}, message_id='once')
        gate.wait()
        p.stack.rabbitmqctl('close_all_connections', '-p', p.vhost, 'a test')
        c = p.client()
        # The other one has it by now, or the same one waits with it.
        opener = threading.Timer(1.5, gate.session.run, ['select pg_advisory_unlock(4711)'])
        opener.start()
        opener.join()
        wait_until(lambda: c.depth('postdate.intake') == 0 and not gate.waiting(), 15, 'the intake queue to be empty')
        for g in gateways:
            self.assertEqual(g.term(), 0)
        self.assertEqual(p.value('select count(*) from postdate.message_now'), '1')
        self.assertEqual(c.depth('postdate.intake'), 0)

    def assert_stored_once(self, p, stopped, count):
        """RabbitMQ gives what the stopped gateway had to another one, which stores it; then the stopped one goes on, and is
        through with what it had when it consumes again."""
        stored = 'select count(*) from postdate.message_now'
        p.stack.rabbitmqctl('close_all_connections', '-p', p.vhost, 'a test')
        c = p.client()
        p.gateway()
        wait_until(lambda: p.value(stored) == str(count), 15, 'the other one to store all')
        consumers = lambda: c.channel.queue_declare('postdate.intake', passive=True).method.consumer_count  # noqa: E731
        wait_until(lambda: consumers() == 1, 15, 'the stopped one to be gone')
        stopped.resume()
        wait_until(lambda: consumers() == 2, 30, 'the stopped one to be back')
        wait_until(lambda: c.depth('postdate.intake') == 0, 15, 'the intake queue to be empty')
        for g in p.gateways:
            self.assertEqual(g.term(), 0)
        self.assertEqual(p.value(stored), str(count))

    def test_by_another_gateway_while_the_first_one_is_stopped_with_a_batch_in_its_hands(self):
        """Its transaction is gone when it wakes up; it stored the batch again."""
        p = self.place()
        stopped = p.gateway()
        gate = Gate(p)
        c = p.client()
        c.publish('gate', b'once', {'x-delay': HOUR_MS}, message_id='once')
        pid = gate.wait()[0]
        stopped.pause()
        p.value(f'select pg_terminate_backend({pid})')
        gate.open()
        self.assert_stored_once(p, stopped, 1)

    def test_by_another_gateway_while_the_first_one_is_stopped_in_a_transaction(self):
        """PostgreSQL ends what would be committed when it wakes up."""
        p = self.place()
        stopped = p.gateway()
        gate = Gate(p, deferred=False)
        c = p.client()
        c.publish('gate', b'once', {'x-delay': HOUR_MS}, message_id='once')
        gate.wait()
        stopped.pause()
        gate.open()  # the statement ends, and nobody says commit
        self.assert_stored_once(p, stopped, 1)

    def test_by_another_gateway_while_they_wait_to_be_read_by_a_stopped_one(self):
        """It woke up, read them as if they were its own, and stored them, before it read that its connection was closed."""
        p = self.place()
        stopped = p.gateway(POSTDATE_INTAKE_PREFETCH=20)
        stopped.pause()
        c = p.client()
        for i in range(100):
            c.publish('q', b'%d' % i, {'x-delay': HOUR_MS}, message_id=f'm{i}')
        self.assert_stored_once(p, stopped, 100)

    def test_a_message_that_looks_like_one_before_is_another_one(self):
        """A consumer publishes again what it got, while another gateway stores redeliveries."""
        p = self.place()
        p.gateway()
        c = p.client()
        for number in (1, 2, 3):
            c.publish('q', b'again', {'x-delay': HOUR_MS}, message_id='same')
            wait_until(lambda n=number: p.value('select count(*) from postdate.message_now') == str(n), 10, f'{number} to be stored')
            p.psql("begin; select nextval('postdate.redelivery'); commit")

    def test_a_thousand_redeliveries_after_a_quiet_hour(self):
        """Each batch of one message is a note. All of them are looked through for each batch with redeliveries, while all other
        intakes wait: joined one by one, that took seconds for each batch."""
        p = self.place()
        g = p.gateway()
        g.term()
        p.psql("insert into postdate.intake_batch (consumer, message_ids, ids) select n % 10, array['quiet-' || n], "
               "array[gen_random_uuid()] from generate_series(1, 40000) n")
        p.psql('analyze postdate.intake_batch')  # as autovacuum does sooner or later
        c = p.client()
        for i in range(6000):
            c.publish('k', b'again', {'x-delay': HOUR_MS}, message_id=f'again-{i}')
        reader = p.client()
        reader.channel.basic_qos(prefetch_count=6000)
        taken = sum(1 for _ in zip(range(6000), reader.channel.consume('postdate.intake', inactivity_timeout=20)))
        reader.connection.close()
        self.assertEqual(taken, 6000)
        began_ms = now_ms()
        p.gateway()
        wait_until(lambda: p.value('select count(*) from postdate.message_now') == '6000', 120, 'all to be stored')
        print(f'note redelivery: 6,000 redeliveries after 40,000 notes in {(now_ms() - began_ms) / 1000:.1f} s', flush=True)
        self.assertLess(now_ms() - began_ms, 15_000 * harness.slowness())

    def test_what_a_session_stored_last_is_remembered_until_it_cannot_come_back(self):
        """Its acknowledgements may be read much later than they were sent: by number, not by time."""
        p = self.place()
        old = "now() - interval '20 s'"
        p.psql("insert into postdate.intake_batch (consumer, stored_at, message_ids, ids) values "
               f"(1, {old}, '{{a}}', array[gen_random_uuid()]), (1, now(), '{{b}}', array[gen_random_uuid()]), "
               f"(2, {old}, '{{c}}', array[gen_random_uuid()]), (2, now(), array_fill('d'::text, array[200000]), "
               'array_fill(gen_random_uuid(), array[200000]))')
        p.gateway()
        noted = "select string_agg(message_ids[1], '' order by id) from postdate.intake_batch"
        wait_until(lambda: p.value(noted) != 'abcd', 15, 'what cannot come back to be forgotten')
        self.assertEqual(p.value(noted), 'abd')

    def test_each_session_notes_its_own(self):
        p = self.place()
        p.gateway()
        c = p.client()
        for name in ('one', 'two'):
            c.publish('q', name.encode(), {'x-delay': HOUR_MS}, message_id=name)
            wait_until(lambda: p.value(f"select count(*) from postdate.intake_batch where '{name}' = any (message_ids)") == '1',
                       10, f'{name} to be stored')
            p.stack.rabbitmqctl('close_all_connections', '-p', p.vhost, 'a test')
            c = p.client()
        self.assertEqual(p.value('select count(distinct consumer) from postdate.intake_batch'), '2')


@harness.not_san
class LateProbe(LiveTest):
    def test_a_probe_that_comes_late_is_nobodys_message(self):
        """It was taken for a message, and delivered to whoever had bound with #."""
        p = self.place()
        proxy = Proxy()
        self.addCleanup(proxy.close)
        host, port = p.amqp.split('@')[1].split('/')[0].split(':')
        own = proxy.add('amqp', (host, int(port)))
        proxy.mode('amqp', hold_text='postdate.probe.', hold_count=3, hold_ms=3000)
        p.gateway(POSTDATE_AMQP_URL=p.amqp.replace(f':{port}/', f':{own}/'))
        self.assertGreaterEqual(proxy.events('amqp')['held'], 1)
        c = p.client()
        c.publish('q', b'mine', {'x-delay': HOUR_MS})
        wait_until(lambda: p.counts() and c.depth('postdate.intake') == 0, 15, 'the message to be stored')
        self.assertEqual(p.psql('select routing_key from postdate.message_now'), [['q']])
