"""One bad message, target, lock or open transaction does not delay the others."""
import re

import harness
from harness import LiveTest, now_ms, wait_until
from web import Web


class OpenTransactions(LiveTest):
    """Somebody else's transaction stays open while messages come in and go out."""

    def flow(self, p, count=300, prefix='flow'):
        """Messages get through, none lost, none twice, without waiting for the transaction."""
        inbox = p.load('consume', '--queue', prefix, '--exchange', 'postdate.delivery', '--bind', prefix, '--expect',
                       count, '--timeout-s', 20, '--idle-s', 0.3).wait_consuming()
        p.load('publish', '--routing-key', prefix, '--count', count, '--delay-spread-ms', '300,1300').result()
        r = inbox.result()
        self.assertEqual((r['missing'], r['early'], r['duplicates']), (0, 0, 0), r)
        self.assertLess(r['max_ms'], 5000 * harness.slowness(), r)

    def test_a_held_snapshot_stops_nothing(self):
        p = self.place()
        p.gateway()
        s = p.session()
        s.run('begin isolation level repeatable read')
        s.run('select count(*) from postdate.message_now')
        self.flow(p)
        s.run('commit')
        s.close()

    def test_statistics_of_a_quiet_moment_do_not_slow_settling_down(self):
        """By them nobody owns a message, so looking for those of one owner seems to cost nothing; a held snapshot keeps all that it ever owned."""
        count, read = 4000, "select coalesce(sum(idx_tup_read), 0) from pg_stat_all_indexes where indexrelname like 'message%owner_idx'"
        p = self.place()
        gateway = p.gateway()
        inbox = p.consumer('q', bind='herd')
        due = p.value("select clock_timestamp() + interval '5 s'")
        p.psql(f"select postdate.schedule('herd', 'x', due_at => '{due}') from generate_series(1, {count})")
        p.psql('analyze postdate.message')
        s = p.session()
        s.run('begin isolation level repeatable read')
        s.run('select count(*) from postdate.message_now')
        inbox.wait(count, 60)
        wait_until(lambda: p.counts().get('delivered') == count, 20, 'all to be settled')
        s.run('commit')
        s.close()
        self.assertEqual(gateway.term(), 0)  # sessions that end count what they read
        self.assertLess(int(p.value(read)), 5 * count)  # the last look, when it leaves, reads as many; each batch would read as many as went before

    def test_a_locked_row_holds_only_itself(self):
        p = self.place()
        p.gateway()
        inbox = p.consumer('q', bind='locked')
        c = p.client()
        c.publish('locked', b'locked', {'x-delay': 1500})
        wait_until(lambda: p.counts().get('scheduled') == 1, 5, 'the message to be stored')
        s = p.session()
        s.run('begin')
        self.assertEqual(len(s.run("select id from postdate.message where routing_key = 'locked' for update")), 1)
        self.flow(p)
        past = "select now() > due + interval '300 ms' from postdate.message_now where routing_key = 'locked'"
        wait_until(lambda: p.value(past) == 't', 5, 'its due time')
        self.assertEqual(inbox.all(), [])
        s.run('commit')
        self.assertEqual(inbox.wait(1)[0].body, b'locked')
        s.close()

    def test_an_uncommitted_key_holds_only_the_message_with_that_key(self):
        p = self.place()
        p.gateway()
        inbox = p.consumer('q', bind='keyed')
        s = p.session()
        s.run('begin')
        s.run("insert into postdate.key (exchange, key, due, id) values ('postdate.delivery', 'open', now(), "
              'gen_random_uuid())')
        c = p.client()
        c.publish('keyed', b'open', {'x-delay': 100, 'x-postdate-key': 'open'})
        c.publish('keyed', b'other', {'x-delay': 100, 'x-postdate-key': 'other'})
        inbox.wait_body(b'other')
        self.flow(p)
        self.assertEqual([m.body for m in inbox.all()], [b'other'])
        s.run('rollback')
        inbox.wait_body(b'open')
        s.close()

    def test_more_with_a_held_key_than_have_room_are_all_kept(self):
        """Their order counts, so none of them gives way: what is behind them waits until the key is free."""
        p = self.place()
        gw = p.gateway()
        s = p.session()
        s.run('begin')
        s.run("insert into postdate.key (exchange, key, due, id) values ('postdate.delivery', 'open', now(), "
              'gen_random_uuid())')
        c, total = p.client(), 4000  # of which 2,000 have room
        c.publish('before', b'x', {'x-delay': 3_600_000})
        c.publish_burst('keyed', [b'%d' % n for n in range(total)],
                        {'x-delay': 3_600_000, 'x-postdate-key': 'open', 'x-postdate-on-conflict': 'replace'})
        c.publish('behind', b'x', {'x-delay': 3_600_000})
        stored = "select string_agg(distinct routing_key, ' ' order by routing_key) from postdate.message_now"
        gw.wait_log('the gateway can buffer no more')
        wait_until(lambda: p.value(stored) == 'before', 10, 'what came before them to be stored')
        s.run('rollback')
        s.close()
        wait_until(lambda: p.value(stored) == 'before behind keyed', 60, 'all to be stored')
        last = "select convert_from(body, 'UTF8') from postdate.message_now where state = 'scheduled' and key = 'open'"
        wait_until(lambda: p.value(last) == str(total - 1), 60, 'the last one to replace all before it')

    def test_a_share_lock_on_the_table_of_a_reader_stops_nothing(self):
        p = self.place()
        p.gateway()
        s = p.session()
        s.run('begin')
        s.run('lock table postdate.message in access share mode')
        self.flow(p)
        s.close()


class BadTargets(LiveTest):
    QUICK = {'POSTDATE_RETRY_ATTEMPTS': 2, 'POSTDATE_RETRY_FIRST': '100ms', 'POSTDATE_RETRY_MAX': '200ms'}
    PATIENT = {'POSTDATE_RETRY_ATTEMPTS': 1000, 'POSTDATE_RETRY_FIRST': '100ms', 'POSTDATE_RETRY_MAX': '500ms'}

    def wait_failed(self, p, routing_key):
        query = f"select state, attempts, error from postdate.message_now where routing_key = '{routing_key}'"
        return wait_until(lambda: next((r for r in p.psql(query) if r[0] == 'failed'), None), 10,
                          f'{routing_key} to fail')

    def test_unroutable_messages_fail_with_a_reason_while_others_go_on(self):
        p = self.place()
        p.gateway(**self.QUICK)
        inbox = p.consumer('q', bind='good')
        c = p.client()
        at = now_ms()
        c.publish('nobody.listens', b'', {'x-delay': 100})
        c.publish('no-such-queue', b'', {'x-delay': 100, 'x-postdate-exchange': ''})
        c.publish('lost', b'', {'x-delay': 100, 'x-postdate-exchange': 'no-such-exchange'})
        c.publish('good', b'good', {'x-delay': 200})
        self.assert_on_time(inbox.wait(1)[0], at, 200)
        for routing_key, word in (('nobody.listens', 'rout'), ('no-such-queue', 'rout'), ('lost', 'no-such-exchange')):
            with self.subTest(routing_key=routing_key):
                _, attempts, error = self.wait_failed(p, routing_key)
                self.assertEqual(attempts, '2')
                self.assertIn(word, error.lower())

    def test_a_target_that_appears_later_gets_its_messages(self):
        p = self.place()
        p.gateway(**self.PATIENT)
        c = p.client()
        c.publish('k', b'exchange', {'x-delay': 100, 'x-postdate-exchange': 'later'})
        c.publish('later.queue', b'queue', {'x-delay': 100, 'x-postdate-exchange': ''})
        wait_until(lambda: p.value('select min(attempts) >= 2 from postdate.message_now') == 't', 10, 'some attempts')
        c.queue('later.queue')
        c.channel.exchange_declare('later', 'direct')
        c.queue('later.bound', 'k', 'later')
        self.assertEqual(c.wait_get('later.bound').body, b'exchange')
        self.assertEqual(c.wait_get('later.queue').body, b'queue')
        wait_until(lambda: p.counts() == {'delivered': 2}, 5, 'both to be settled')

    def test_a_full_queue_is_tried_again_until_there_is_room(self):
        p = self.place()
        gateway = p.gateway(**self.PATIENT)
        web = Web(gateway.http())
        self.addCleanup(web.close)
        c = p.client()
        c.queue('full', arguments={'x-max-length': 5, 'x-overflow': 'reject-publish'})
        other = p.consumer('q', bind='good')
        for i in range(15):
            c.publish('full', str(i).encode(), {'x-delay': 50, 'x-postdate-exchange': ''})
        wait_until(lambda: p.counts().get('delivered') == 5, 10, 'the queue to be full')
        at = now_ms()
        c.publish('good', b'good', {'x-delay': 100})
        self.assert_on_time(other.wait(1)[0], at, 100)
        gateway.wait_log("Messages to exchange '', routing key 'full' \\(the first: [0-9a-f-]{36}\\) are rejected: .*queue may be full")
        wait_until(lambda: self.refusing(web) == (1, 1), 5, 'it to be counted')
        inbox = p.consumer('full')
        self.assertEqual(sorted(int(m.body) for m in inbox.wait(15)), list(range(15)))
        wait_until(lambda: p.counts() == {'delivered': 16}, 5, 'all to be settled')
        gateway.wait_log('no longer rejected')
        self.assertEqual(self.refusing(web), (0, 0))
        self.assertEqual(len(gateway.lines_with('rejected')), 2)

    def refusing(self, web):
        gauge = re.search(r'^postdate_addresses_refusing ([0-9]+)$', web.get('/metrics').body.decode(), re.M)
        return int(gauge[1]), web.get('/v1/stats').json['refusing']

    def test_two_thousand_to_a_missing_exchange_do_not_delay_the_good_ones(self):
        p = self.place()
        p.gateway(**self.PATIENT)
        bad, good = (500, 100) if harness.SAN else (2000, 200)
        inbox = p.load('consume', '--queue', 'good', '--exchange', 'postdate.delivery', '--bind', 'good', '--expect',
                       good, '--timeout-s', 30, '--idle-s', 1).wait_consuming()
        p.load('publish', '--routing-key', 'bad', '--target', 'no-such-exchange', '--count', bad,
               '--delay-spread-ms', '1000,3000').result()
        p.load('publish', '--routing-key', 'good', '--count', good, '--delay-spread-ms', '1000,3000').result()
        r = inbox.result()
        self.assertEqual((r['missing'], r['early'], r['duplicates']), (0, 0, 0), r)
        self.assertLess(r['max_ms'], 5000 * harness.slowness(), r)
        self.assertEqual(p.value("select count(*) from postdate.message_now where routing_key = 'bad' "
                                 "and state in ('delivered', 'failed')"), '0')
