"""Which refusal is a second copy of one that was counted, and which another message: nothing is lost, nothing is counted twice."""
import signal
import time
import uuid

import harness
from handover_kit import metric
from harness import wait_until
from test_crash_points import SHIM
from test_retries import QUORUM, RETRY, RetryKit

DEAD = 'select count(*) from postdate.lineage where died_at is not null'
KNOWN = 'postdate_dead_letters_total{to="nowhere"}'


def attempts(messages):
    return [m.headers.get('x-postdate-attempt', 1) for m in messages]


class Copies(RetryKit):
    def accepted_at_second(self, p, queue):
        return self.refuser(p, queue, lambda m: m.headers.get('x-postdate-attempt') == 2)

    def test_an_audit_copy_that_is_published_again_later(self):
        """The same id and content as one that was refused once, and then accepted."""
        p, c = self.start()
        for queue, arguments in (('work', RETRY), ('audit', {})):
            c.queue(queue, 'k', arguments=arguments)
        self.policy(p, '*', first='100 ms')
        r = self.accepted_at_second(p, 'work')
        c.publish('k', b'paid', {'x-delay': 10})
        self.assertEqual(attempts(r.wait(2)), [1, 2])
        copy = c.wait_get('audit')
        wait_until(lambda: p.counts() == {'delivered': 2}, 10, 'it to be settled')
        c.channel.basic_publish('postdate.delivery', 'k', copy.body, copy.properties)
        again = r.wait(4)[2:]
        self.assertEqual(attempts(again), [1, 2])
        self.assertEqual({m.id for m in r.messages}, {copy.id}, 'it is the same message to who sees it')
        self.assertEqual(metric(p.gateways[0], KNOWN), 0)

    def test_two_that_are_the_same(self):
        """A consumer publishes what it received twice, with its headers: each has all its attempts."""
        p, c = self.start()
        self.policy(p, '*', attempts=3, first='100 ms')
        for queue, arguments in (('one', RETRY), ('two', QUORUM)):
            c.queue(queue, arguments=arguments)
            id = str(uuid.uuid4())
            for _ in range(2):
                c.publish(queue, b'same', {'x-postdate-id': id}, exchange='')
            r = self.refuser(p, queue)
            self.assertEqual(sorted(attempts(r.wait(6))), [1, 1, 2, 2, 3, 3], queue)
            self.assertEqual({m.id for m in r.messages}, {id})
            wait_until(lambda queue=queue: p.value(f"{DEAD} and queue = '{queue}' and failed = 3") == '2', 10, 'both dead letters')
        self.assertEqual(p.run('dead', 'requeue', '--queue', 'one'), '2 of 2 requeued\n')
        wait_until(lambda: p.value(f"{DEAD} and queue = 'one'") == '2', 10, 'both to be dead again')

    def test_there_and_back_with_its_headers(self):
        """What one queue's consumer passes on, another's gives back: refused there once more."""
        p, c = self.start()
        for queue in ('a', 'b'):
            c.queue(queue, arguments=RETRY)
        self.policy(p, '*', attempts=4, first='100 ms')
        a = self.refuser(p, 'a', lambda m: m.headers.get('x-postdate-attempt') == 3)
        c.publish('a', b'x', {'mine': 1}, exchange='')
        first = a.wait(3)
        time.sleep(0.3)
        c.publish('a', b'x', {**first[1].headers, 'x-postdate-attempt': 2}, exchange='')
        self.assertEqual(attempts(a.wait(6))[3:], [2, 2, 3])

    def dies_before_it_acknowledges(self, **named):
        p = self.place()
        p.gateway(wait=False, LD_PRELOAD=SHIM, POSTDATE_CRASH='accept.after')
        c = p.client()
        wait_until(lambda: p.sessions() and self.has_exchange(p, 'postdate.return'), 10, 'the exchanges of retries')
        c.queue('work', arguments=RETRY)
        self.policy(p, '*', first='500 ms')
        r = self.accepted_at_second(p, 'work')
        c.publish('work', b'x', exchange='', **named)
        self.assertEqual(p.gateways[0].wait(), -signal.SIGKILL)
        self.assertEqual(p.value('select count(*) from postdate.lineage'), '1')
        g = p.gateway()
        wait_until(lambda: metric(g, KNOWN) == 1, 20, 'the second copy')
        self.assertIn('that RabbitMQ redelivered after being counted', g.log())
        self.assertEqual(attempts(r.wait(2)), [1, 2])
        time.sleep(1)
        self.assertEqual((len(r.messages), p.value('select count(*) from postdate.lineage')), (2, '1'))

    @harness.not_san
    def test_a_gateway_dies_before_it_acknowledges(self):
        """The refusal was counted, and RabbitMQ delivers it again: left out."""
        self.dies_before_it_acknowledges(headers={'x-postdate-id': str(uuid.uuid4())})

    @harness.not_san
    def test_a_gateway_dies_and_only_the_publisher_named_the_message(self):
        self.dies_before_it_acknowledges(message_id='order 7')

    @harness.not_san
    def test_a_copy_that_was_not_counted_when_a_gateway_died(self):
        """Delivered again, too, and like one that was counted, but for the time at which it was refused."""
        p = self.place()
        p.gateway(wait=False, LD_PRELOAD=SHIM, POSTDATE_CRASH='accept.before:2')
        c = p.client()
        wait_until(lambda: p.sessions() and self.has_exchange(p, 'postdate.return'), 10, 'the exchanges of retries')
        c.queue('work', arguments=RETRY)
        self.policy(p, '*', first='20 s')
        r = self.refuser(p, 'work')
        id = str(uuid.uuid4())
        for n in (1, 2):
            c.publish('work', b'x', {'x-postdate-id': id}, exchange='')
            r.wait(n)
            time.sleep(1.1)
        self.assertEqual(p.gateways[0].wait(), -signal.SIGKILL)
        self.assertEqual(p.value('select count(*) from postdate.lineage'), '1')
        p.gateway()
        wait_until(lambda: p.value('select count(*) from postdate.lineage') == '2', 10, 'both')
        self.assertEqual(p.counts(), {'scheduled': 2})

    def test_forged_attempts(self):
        """They cost their publisher attempts; they make no loop, and leave a dead letter of that name as it is."""
        p, c = self.start()
        c.queue('work', arguments=RETRY)
        self.policy(p, '*', attempts=4, first='50 ms')
        r = self.refuser(p, 'work')
        mine = {'x-postdate-id': str(uuid.uuid4()), 'x-postdate-queue': 'work'}
        for forged in (-5, 0, 1001, 2**62, 'many', 1.5, True):
            c.publish('work', b'%r' % forged, {**mine, 'x-postdate-id': str(uuid.uuid4()), 'x-postdate-attempt': forged}, exchange='')
        wait_until(lambda: p.value(DEAD + ' and failed = 4') == '7', 20, 'all to be dead')
        self.assertEqual(len(r.messages), 28)
        c.publish('work', b'old', {**mine, 'x-postdate-attempt': 3}, exchange='')
        wait_until(lambda: p.value(DEAD) == '8', 10, 'it to be dead')
        self.assertEqual(len(r.messages), 30)
        c.publish('work', b'new', {**mine, 'x-postdate-attempt': 900}, exchange='')
        wait_until(lambda: p.value(DEAD) == '9', 10, 'the other one to be dead')
        self.assertEqual(len(r.messages), 34)
        self.assertEqual(p.psql(f"select failed, convert_from(body, 'UTF8') from postdate.lineage where id = '{mine['x-postdate-id']}'"), [['4', 'old']])

    def test_what_the_database_refuses_is_rejected_alone(self):
        p, c = self.start()
        p.psql("create function public.refuse() returns trigger language plpgsql as $$ begin raise 'no such text' using errcode = '22021'; end $$; "
               "create trigger refuse before insert on postdate.lineage for each row when (new.routing_key = 'bad') execute function public.refuse()")
        c.channel.exchange_declare('shop', 'fanout')
        c.queue('work', bind='', exchange='shop', arguments=RETRY)
        self.policy(p, '*', first='50 ms')
        for n in range(20):
            c.publish('bad' if n == 7 else 'good', b'%d' % n, exchange='shop')
        r = self.accepted_at_second(p, 'work')
        r.wait(20 + 19)
        rejected = c.wait_get('postdate.rejected')
        self.assertEqual(rejected.body, b'7')
        self.assertIn('no such text', rejected.headers['x-postdate-error'])
        self.assertEqual(metric(p.gateways[0], 'postdate_messages_rejected_total{reason="database"}'), 1)
        self.assertEqual(metric(p.gateways[0], 'postdate_dead_letters_total{to="queue"}'), 19)


class Burials(RetryKit):
    """What cannot go back."""

    def test_it_is_counted_and_keeps_its_headers(self):
        p, c = self.start()
        trap = '\x12x-postdate-attemptI\0\0\0\x07'
        c.queue('gone', arguments=RETRY)
        self.policy(p, '*', first='3 s')
        r = self.refuser(p, 'gone')
        c.publish('gone', b'x', {'a': trap, 'retry-count': 0}, exchange='')
        r.wait(1)
        wait_until(lambda: p.value('select count(*) from postdate.lineage') == '1', 20, 'the rejected message to be stored')
        c.channel.queue_delete('gone')
        wait_until(lambda: p.value(DEAD) == '1', 40, 'the dead letter')
        # The return has a row of its own; what consumers know it by is what a trace is joined with.
        self.assertEqual(len(p.gateways[0].lines_with(f"message [0-9a-f-]+ .x-postdate-id {p.value('select id from postdate.lineage')}. failed: ")), 1)
        wait_until(lambda: metric(p.gateways[0], 'postdate_dead_letters_total{to="dead"}') == 1, 5, 'the count')
        wait_until(lambda: metric(p.gateways[0], 'postdate_dead_letters_kept') == 1, 30, 'the gauge')
        c.queue('gone')
        self.assertEqual(p.cli('dead', 'requeue', '--queue', 'gone')[0], 0)
        back = c.wait_get('gone')
        self.assertEqual((back.headers['a'], back.headers['x-postdate-attempt'], back.headers['retry-count']), (trap, 1, 0))

    def test_after_an_outage_of_days(self):
        """Both were due long ago: one ended before the outage, one ends after it."""
        p = self.place()
        day = p.value("select to_char(now() - interval '5 days', 'YYYY-MM-DD')")
        p.day(day)
        p.psql(f"""
            with made as (
                insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body, state, settled_at, deadline)
                select at, at, postdate.id_make(at), 'g', 'postdate.return', 'k', '\\x100002', 'x', s::postdate.message_state,
                       case when s = 'failed' then at + interval '1 min' end, at + interval '1 h'
                  from (values (timestamptz '{day} 12:00:00+00', 'failed'), (timestamptz '{day} 12:00:00+00', 'scheduled')) v (at, s)
                returning id, state)
            insert into postdate.lineage (id, message, expires_at, failed, queue, exchange, routing_key, reason, hash, failed_at, reasons)
            select gen_random_uuid(), id, now() + interval '9 d', 1, state::text, 'shop', 'k', 'rejected', 'h', array[now()], '{{rejected}}' from made""")
        p.gateway()
        reasons = 'select queue, reason from postdate.lineage where died_at is not null order by 1'
        wait_until(lambda: p.psql(reasons)[:1] == [['failed', 'return_failed']], 20, 'the one of before')
        p.gateways[0].term()
        p.psql("update postdate.message set next_at = coalesce(next_at, due), state = 'expired', settled_at = now(), owner = null where state in ('scheduled', 'claimed')")
        p.gateway()  # instead of an hour
        wait_until(lambda: p.psql(reasons) == [['failed', 'return_failed'], ['scheduled', 'deadline']], 20, 'both')

    def test_a_deadline_holds_for_a_requeue_too(self):
        p, c = self.start()
        c.queue('work', arguments=RETRY)
        self.policy(p, 'work', attempts=1)
        r = self.refuser(p, 'work')
        deadline = int(time.time() * 1000) + 2500
        c.publish('work', b'x', {'x-postdate-deadline': deadline}, exchange='')
        wait_until(lambda: p.value(DEAD) == '1', 10, 'the dead letter')
        self.assertEqual(p.cli('dead', 'requeue', '--queue', 'work')[0], 0)  # in time
        r.wait(2)
        wait_until(lambda: p.value(DEAD) == '1' and time.time() * 1000 > deadline, 10, 'the dead letter, and the deadline')
        self.assertEqual(p.cli('dead', 'requeue', '--queue', 'work')[0], 0)
        wait_until(lambda: p.value('select reason from postdate.lineage where died_at is not null') == 'deadline', 30, 'it to be dead again')
        time.sleep(0.5)
        self.assertEqual(len(r.messages), 2)

    def test_a_dead_letter_is_kept_as_long_as_the_policy_says(self):
        p, c = self.start()
        for queue, keep in (('short', '2 s'), ('long', '1 h')):
            c.queue(queue, arguments=RETRY)
            self.policy(p, queue, attempts=1, keep_dead=f"'{keep}'")
            self.refuser(p, queue)
            c.publish(queue, b'x', exchange='')
        wait_until(lambda: p.value(DEAD) == '2', 10, 'both dead letters')
        time.sleep(2.2)
        p.gateways[0].term()
        p.gateway()  # instead of a minute
        wait_until(lambda: p.psql('select queue from postdate.lineage') == [['long']], 20, 'one to be forgotten')
