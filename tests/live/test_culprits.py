"""A message that makes RabbitMQ close a channel or a connection is tried alone; those beside it go on, and come once."""
import json
import statistics

from broker_users import add_user, delete_user
from harness import LiveTest, now_ms, wait_until
from picky_broker import CODES, PickyBroker
from web import Web

REPLY_TO = 'amq.rabbitmq.reply-to'


class Culprits(LiveTest):
    who_waits = 'timer'
    weight = 8

    def send(self, p, good, bad, **wrong):
        """So many, due together; the bad ones among them, as no door would let them in."""
        due = now_ms() + 8000
        for what, count, exchange in (('good', good, 'postdate.delivery'), ('bad', bad, wrong.get('exchange', 'postdate.delivery'))):
            p.psql(f"select postdate.schedule('k', '{what} ' || i, due_at => to_timestamp(({due} + i * 2000 / {count}) / 1000.0), exchange => '{exchange}') "
                   f'from generate_series(0, {count - 1}) i')
        p.psql("update postdate.message set next_at = coalesce(next_at, due), " + ', '.join(f"{column} = '{value}'" for column, value in wrong.items()) + " where convert_from(body, 'utf8') like 'bad %'")
        return due

    def assert_harmless(self, what, good, bad, **wrong):
        """The errors that the bad ones have."""
        p = self.place()
        gw = p.gateway()
        inbox = p.consumer('q', bind='k')
        due = self.send(p, good, bad, **wrong)
        try:
            wait_until(lambda: len({m.body for m in inbox.all()}) >= good, 45, 'all good ones')
        except AssertionError as e:
            print(f'note culprits: {what}: {e}', flush=True)
        tried = "select error from postdate.message_now where body like 'bad %' and error is not null"
        wait_until(lambda: len(p.psql(tried)) == bad, 20, 'the bad ones to be refused')
        first = {}
        for m in inbox.all():
            first.setdefault(m.body, m.at_ms - m.due_ms)
        late = sorted(first.values())
        print(f'note culprits: {what}: {len(inbox.all()) - len(first)} came twice, {good - len(first)} are missing, '
              f'late: median {statistics.median(late):.0f} ms, most {late[-1]:.0f}', flush=True)
        self.assertEqual((len(inbox.all()), len(first)), (good, good))
        wait_until(lambda: p.counts().get('delivered') == good, 15, 'all to be settled')
        return [row[0] for row in p.psql(tried)], gw

    def test_a_few_with_a_reply_to_of_a_requester(self):
        errors, _ = self.assert_harmless('3 reply_to among 3,000', 3000, 3, properties_json=json.dumps({'properties': {'reply_to': REPLY_TO}}))
        for error in errors:
            self.assertIn(f'reply_to: "{REPLY_TO}"', error)

    def test_many_with_a_reply_to_of_a_requester(self):
        self.assert_harmless('30 reply_to among 5,000', 5000, 30, properties_json=json.dumps({'properties': {'reply_to': REPLY_TO}}))

    def test_answers_to_nobody(self):
        """RabbitMQ 3.10 closes the connection, with 541."""
        self.assert_harmless('5 routing keys among 5,000', 5000, 5, exchange='', routing_key=REPLY_TO + '.g2gCZAAQ.x')

    def test_over_what_a_channel_was_closed_goes_alone_from_then_on(self):
        """With each error code of AMQP 0-9-1; but 404 speaks of the exchange, and 320 of no message."""
        self.be_picky([(code, False, True) for code in CODES if code not in (320, 404)] + [(406, False, False), (541, False, False)])

    def test_over_what_a_connection_was_closed_goes_alone_from_then_on(self):
        self.be_picky([(code, True, False) for code in CODES if code != 320] + [(501, True, True), (530, True, True), (540, True, True)])

    def test_a_connection_that_somebody_ends_makes_nobody_go_alone(self):
        """320: an operator did, or RabbitMQ stops. The log tells, not who was in flight with it: the others are delivered, some each
        time, until it is the last one."""
        p = self.place()
        broker = PickyBroker(p.amqp)
        self.addCleanup(broker.close)
        gw = p.gateway(POSTDATE_AMQP_URL=broker.url)
        p.consumer('q', bind='k')
        broker.be_picky(320, True, False)
        p.psql("select postdate.schedule('k', case i when 30 then 'bad' else 'good ' || i end, '300 ms') from generate_series(1, 40) i")
        wait_until(lambda: len(broker.refused.get(b'bad', [])) >= 3, 15, 'it to be tried again')
        broker.be_real()
        wait_until(lambda: p.counts() == {'delivered': 40}, 15, 'all to be delivered')
        self.assertEqual(gw.term(), 0)
        self.assertFalse(gw.lines_with('published alone'), gw.log())

    def test_a_right_that_is_taken_away_leaves_in_doubt_what_was_taken_before(self):
        """RabbitMQ refuses a routing key now; what was in flight a moment ago, it may have taken."""
        p = self.place()
        broker = PickyBroker(p.amqp)
        self.addCleanup(broker.close)
        gw = p.gateway(POSTDATE_AMQP_URL=broker.url, POSTDATE_RETRY_FIRST='50ms', POSTDATE_RETRY_MAX='100ms')
        broker.be_picky(403, False, True)
        broker.revokes = True
        p.psql("select postdate.schedule('k', 'first'::text, '1 ms')")
        wait_until(lambda: broker.taken, 15, 'the exchange to be known')
        p.psql("select postdate.schedule('k', case i when 30 then 'bad' else 'good ' || i end, '300 ms') from generate_series(1, 40) i")
        left = "select count(*) from postdate.message_now where body like 'good %' and state <> 'delivered' and attempts < 2"
        wait_until(lambda: broker.refused and p.value(left) == '0', 15, 'all others to be refused')
        gw.kill9()
        company = ', '.join(f"'{body.decode()}'" for body in broker.refused[b'bad'][0])
        self.assertTrue(company, 'none was in flight with it')
        self.assertEqual(p.psql(f"select distinct postdate.cancel(id) from postdate.message_now where body in ({company})"), [['too_late']])

    def test_a_routing_key_without_a_right_among_others_has_an_end(self):
        """In doubt, for it was in flight with others when the channel was closed: its attempts ended never."""
        p = self.place()
        user = 'topics-' + p.vhost
        self.addCleanup(delete_user, p.stack, user)
        url = add_user(p, user, 'secret', '.*', '.*', '.*')
        p.stack.rabbitmqctl('set_topic_permissions', '-p', p.vhost, user, 'postdate.delivery', '^good', '.*')
        gw = p.gateway(POSTDATE_AMQP_URL=url, POSTDATE_RETRY_FIRST='50ms', POSTDATE_RETRY_MAX='100ms', POSTDATE_RETRY_ATTEMPTS=5)
        inbox = p.consumer('q', declare=True, bind='#')
        p.psql("select postdate.schedule('good', 'first'::text, '1 ms')")
        inbox.wait(1, 20)  # so the exchange is known to be good
        p.psql("with at as (select clock_timestamp() + interval '1 s' as due) "
               "select count(postdate.schedule(case i when 30 then 'bad' else 'good' end, i::text, due_at => due)) from generate_series(1, 60) i, at")
        wait_until(lambda: p.counts() == {'delivered': 60, 'failed': 1}, 30, 'the end of each')
        bad = p.psql("select id, attempts, doubted, error from postdate.message_now where routing_key = 'bad'")[0]
        self.assertEqual(bad[1:3], ['5', 't'])
        self.assertRegex(bad[3], "^may have been delivered; no attempt is left: .*403.*'bad'")
        self.assertEqual(p.value(f"select postdate.cancel('{bad[0]}')"), 'too_late')
        self.assertNotIn(b'30', {m.body for m in inbox.all()})
        gw.wait_log(f'message {bad[0]} failed: may have been delivered')
        # Once the right is there, it can be tried again: as in doubt as before.
        p.stack.rabbitmqctl('set_topic_permissions', '-p', p.vhost, user, 'postdate.delivery', '.*', '.*')
        self.assertEqual(p.value(f"select postdate.retry('{bad[0]}')"), 'retried')
        wait_until(lambda: p.counts() == {'delivered': 61}, 30, 'its delivery')

    def be_picky(self, ways):
        p = self.place()
        broker = PickyBroker(p.amqp)
        self.addCleanup(broker.close)
        gw = p.gateway(POSTDATE_AMQP_URL=broker.url, POSTDATE_RETRY_FIRST='50ms', POSTDATE_RETRY_MAX='100ms')
        for way in ways:
            with self.subTest(way=way):
                broker.be_picky(*way)
                self.try_one(p, broker, 40)
        gw.wait_log('RabbitMQ closed a connection or channel because of message [0-9a-f-]{36}, which is published alone from now on')
        broker.be_real()
        self.assertEqual(gw.term(), 0)

    def try_one(self, p, broker, count):
        p.psql('delete from postdate.message')
        p.psql("select postdate.schedule('k', case when i % 20 = 7 then 'bad ' else 'good ' end || i, '300 ms') "
               f'from generate_series(1, {count}) i')
        goods, bads = {b'good %d' % i for i in range(1, count + 1) if i % 20 != 7}, {b'bad %d' % i for i in range(7, count + 1, 20)}
        wait_until(lambda: goods <= set(broker.taken), 15, 'all good ones')
        wait_until(lambda: all(len(broker.refused.get(bad, [])) >= 3 for bad in bads), 15, 'the bad ones to be tried')
        for bad in bads:
            tried = broker.refused[bad]
            self.assertLess(len(tried[1]), 16, (bad, tried))  # a suspect waits for the others' confirms, but not for long: a busy machine confirms late
            # Nor for a destination that confirms nothing for half a second, as on a busy machine.
            later = [len(company) for company in tried[2:] if company]
            self.assertTrue(len(later) <= 1 and sum(later) < 8, (bad, tried))
        for body in goods:
            self.assertLessEqual(broker.taken.count(body), 1 + len(bads), body)
