"""A key is the user's own name for a message: it schedules once."""
import threading

from harness import SharedTest, now_ms, wait_until


class Keys(SharedTest):
    def publish(self, routing_key, body, key, delay_ms=600, **control):
        headers = {'x-delay': delay_ms, 'x-postdate-key': key}
        headers.update({'x-postdate-' + name.replace('_', '-'): value for name, value in control.items()})
        self.c.publish(routing_key, body, headers)

    def stored(self, routing_key):
        """[(state, key)] of the messages with that routing key."""
        return self.p.psql(f"select state, key from postdate.message_now where routing_key = '{routing_key}' order by 1")

    def assert_only(self, inbox, routing_key, body):
        """That message, and no other: a message published later on the same route has come by then."""
        inbox.wait_body(body)
        self.c.publish(routing_key, b'marker', {'x-delay': 700})
        inbox.wait_body(b'marker')
        self.assertEqual([m.body for m in inbox.all()], [body, b'marker'])

    def test_the_same_key_twice_is_one_message(self):
        inbox, key = self.inbox()
        self.publish(key, b'first', 'twice')
        self.publish(key, b'second', 'twice')
        self.assert_only(inbox, key, b'first')

    def test_on_conflict_reject_parks_the_second(self):
        inbox, key = self.inbox()
        self.publish(key, b'first', 'rejecting')
        self.publish(key, b'second, refused', 'rejecting', on_conflict='reject')
        self.assertIn('rejecting', self.rejected(b'second, refused').headers['x-postdate-error'])
        self.assert_only(inbox, key, b'first')

    def test_on_conflict_replace_delivers_only_the_second(self):
        inbox, key = self.inbox()
        self.publish(key, b'first', 'replacing', 2500)
        wait_until(lambda: self.stored(key) == [['scheduled', 'replacing']], 5, 'the first to be stored')
        at = now_ms()
        self.publish(key, b'second', 'replacing', 1200, on_conflict='replace')
        self.assert_on_time(inbox.wait_body(b'second'), at, 1200)
        self.c.publish(key, b'marker', {'x-delay': 1500})
        inbox.wait_body(b'marker')
        self.assertEqual([m.body for m in inbox.all()], [b'second', b'marker'])
        self.assertIn(['superseded', 'replacing'], self.stored(key))

    def test_replacing_what_does_not_exist_schedules(self):
        inbox, key = self.inbox()
        self.publish(key, b'only', 'nothing-there', 200, on_conflict='replace')
        inbox.wait_body(b'only')

    def burst(self, routing_key, key, conflict):
        bodies = [b'%d' % i for i in range(20)]
        self.c.publish_burst(routing_key, bodies, {'x-delay': 1500, 'x-postdate-key': key,
                                                   'x-postdate-on-conflict': conflict})

    def test_one_key_many_times_in_one_batch_keeps_the_first(self):
        inbox, key = self.inbox()
        self.burst(key, 'burst-keep', 'keep')
        self.assert_only(inbox, key, b'0')

    def test_one_key_many_times_in_one_batch_replaces_up_to_the_last(self):
        inbox, key = self.inbox()
        self.burst(key, 'burst-replace', 'replace')
        self.assert_only(inbox, key, b'19')

    def test_one_key_many_times_in_one_batch_rejects_all_but_the_first(self):
        inbox, key = self.inbox()
        self.burst(key, 'burst-reject', 'reject')
        self.assert_only(inbox, key, b'0')
        self.assertIn('burst-reject', self.rejected(b'19').headers['x-postdate-error'])

    def test_a_delivered_key_is_remembered(self):
        inbox, key = self.inbox()
        self.publish(key, b'first', 'remembered', 100)
        inbox.wait_body(b'first')
        wait_until(lambda: self.stored(key) == [['delivered', 'remembered']], 5, 'the settlement')
        self.publish(key, b'second', 'remembered', 100)
        self.assert_only(inbox, key, b'first')

    def test_the_same_key_in_two_exchanges_is_two_messages(self):
        inbox, key = self.inbox()
        self.c.queue('own.queue')
        self.publish(key, b'delivery', 'shared', 200)
        self.publish('own.queue', b'default', 'shared', 200, exchange='')
        inbox.wait_body(b'delivery')
        self.assertEqual(self.c.wait_get('own.queue').body, b'default')

    def test_the_key_is_free_again_after_cancel(self):
        _, key = self.inbox()
        ids = []
        for _ in range(2):
            out = self.p.run('schedule', '-k', key, '--delay', '1h', '--key', 'freed', '--body', 'x')
            ids.append(out.strip())
            self.p.run('cancel', '--key', 'freed')
        self.assertNotEqual(*ids)

    def test_cli_prints_the_same_id_for_the_same_key(self):
        _, key = self.inbox()
        runs = [self.p.cli('schedule', '-k', key, '--delay', '1h', '--key', 'cli-key', '--body', str(i))
                for i in range(2)]
        self.assertEqual([rc for rc, _, _ in runs], [0, 0], runs)
        self.assertEqual(runs[0][1], runs[1][1])
        rc, out, _ = self.p.cli('show', '--key', 'cli-key', '--json')
        self.assertEqual(rc, 0)
        self.assertIn(runs[0][1].strip(), out)

    def test_racing_publishers_of_one_key_get_one_message(self):
        inbox, key = self.inbox()
        clients = [self.p.client() for _ in range(4)]

        def publish(number, client):
            for i in range(10):
                client.publish(key, f'{number}-{i}'.encode(), {'x-delay': 1500, 'x-postdate-key': 'raced'})
        threads = [threading.Thread(target=publish, args=(n, c)) for n, c in enumerate(clients)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        first = inbox.wait(1)[0]
        self.assert_only(inbox, key, first.body)
