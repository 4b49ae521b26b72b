"""A target that stands still for a moment, while thousands fall due to it. What is claimed as a range and not begun stays in memory or
goes back as a range: its rows are not written. Judged by what PostgreSQL counts, on servers of its own."""
import threading
import time

import harness
from cost_kit import TOLD_S, spent
from harness import LiveTest, Stack, now_ms, wait_until

COUNT, SPREAD_MS, BEGIN_MS = 20000, 2500, 8000
WAL_MOST = 500  # bytes a message: row by row it would be 1,400 and more; what gateways write each second counts, too, on a slow machine for long
BATCHES = "select n_tup_ins, n_tup_upd from pg_stat_user_tables where schemaname = 'postdate' and relname = 'batch'"


class LateConfirms(LiveTest):
    weight = 60
    vhosts = 0
    together = True
    time_limit_s = 300

    @classmethod
    def setUpClass(cls):
        cls.servers = Stack.own(cls.addClassCleanup, 'late').start()
        cls.servers.make_vhosts([f'l{i}' for i in range(8)])

    def place(self, **options):
        """Never dropped: the whole stack is."""
        p = harness.Place(self.servers, transport='timer', **options)
        self.places = [*getattr(self, 'places', []), p]
        self.addCleanup(p.close, drop=False)
        return p

    def target(self, p, name):
        c = p.client()
        c.channel.queue_declare(name, durable=True)
        c.channel.queue_bind(name, 'postdate.delivery', name)

    def due(self, p, at_ms, keys, count=COUNT, spread_ms=SPREAD_MS):
        """Messages that fall due from then on, to each of the keys in turn."""
        keys = "', '".join(keys)
        p.psql(f"""
            insert into postdate.message (due, id, hold, exchange, routing_key, properties, body)
            select d, postdate.id_make(d), 'g', 'postdate.delivery', (array['{keys}'])[1 + i % cardinality(array['{keys}'])], '\\x100002', repeat('x', 256)::bytea
              from (select i, date_trunc('milliseconds', to_timestamp({at_ms / 1000}) + i * interval '1 ms' * {spread_ms} / {count}) as d
                      from generate_series(1, {count}) i) x""")

    def suspend(self, p, queue, at_ms, for_ms, times=1, pause_ms=400):
        """Returns when it goes on for good."""
        p.eval_queue(queue, f"""P = amqqueue:get_pid(Q), timer:sleep(max(0, {at_ms} - erlang:system_time(millisecond))),
            [begin sys:suspend(P, infinity), timer:sleep({for_ms}), sys:resume(P, infinity), timer:sleep({pause_ms}) end || _ <- lists:seq(1, {times})].""")

    def measure(self, p):
        return *spent(p), [int(n) for n in p.psql(BATCHES)[0]]

    def cost(self, what, hold, keys=('q',)):
        """What a message costs from before it is due until it is settled, while hold(p, g, at_ms) does something to somebody."""
        p = self.place()
        g = p.gateway()
        for key in keys:
            self.target(p, key)
            p.psql(f"select postdate.schedule('{key}', 'first', '0 s')")
        wait_until(lambda: p.counts() == {'delivered': len(keys)}, 10, 'the first ones')
        at_ms = now_ms() + BEGIN_MS
        self.due(p, at_ms, keys)
        time.sleep(TOLD_S)
        before = self.measure(p)
        hold(p, g, at_ms)
        wait_until(lambda: p.counts() == {'delivered': COUNT + len(keys)}, 180, 'all to be settled', 0.5)
        time.sleep(TOLD_S)
        after = self.measure(p)
        c = p.client()
        there = sum(c.channel.queue_declare(key, passive=True).method.message_count for key in keys)
        cpu, wal, rewrites = ((a - b) / COUNT for a, b in zip(after[:3], before[:3]))
        batches = [a - b for a, b in zip(after[3], before[3])]
        twice = there - COUNT - len(keys)
        print(f'note late confirms: {what}: {wal:.0f} B of WAL, {cpu * 1e6:.0f} µs of PostgreSQL, {rewrites:.3f} rewrites a message; '
              f'{batches[0]} claims, {batches[1]} writes of theirs; {twice} twice', flush=True)
        self.assertGreaterEqual(twice, 0)
        return p, wal, rewrites, twice

    def wait_for_some(self, p, share):
        wait_until(lambda: p.counts().get('delivered', 0) >= COUNT * share, 60, f'{share:.0%} to be delivered', 0.02)

    def test_a_target_that_confirms_late_makes_no_message_dearer(self):
        """All that had waited for half a second went back row by row, and was claimed again row by row."""
        _, calm, _, _ = self.cost('calm', lambda p, g, at_ms: None)
        p, wal, rewrites, twice = self.cost('the target stands still for 0.9 s, three times',
                                            lambda p, g, at_ms: self.suspend(p, 'q', at_ms + 300, 900, 3))
        self.assertLess(rewrites, 0.02)
        self.assertLess(wal, calm + WAL_MOST)
        self.assertEqual(twice, 0)
        log = p.gateways[0]
        self.assertEqual(len(log.lines_with('confirms nothing')), 1, log.log())
        self.assertEqual(len(log.lines_with('confirms everything again')), 1, log.log())

    def test_more_than_memory_keeps_goes_back_as_ranges(self):
        """Of two targets one stands still for so long that nothing is kept for it any more; the other one has its messages meanwhile."""
        def hold(p, _, at_ms):
            p.eval_queue('q', f'timer:sleep(max(0, {at_ms + 300} - erlang:system_time(millisecond))), sys:suspend(amqqueue:get_pid(Q), infinity).')
            wait_until(lambda: p.value('select count(*) from postdate.batch where back_since is not null') != '0', 60, 'ranges to be put back', 0.1)
            wait_until(lambda: p.counts()['delivered'] >= COUNT // 2, 20, 'the other target to have its messages')
            p.eval_queue('q', 'sys:resume(amqqueue:get_pid(Q), infinity).')
        _, wal, rewrites, twice = self.cost('one of two targets stands still until ranges are put back', hold, ('q', 'other'))
        self.assertLess(rewrites, 0.25)  # row by row it would be 1; RabbitMQ 4.0 with PostgreSQL 17: 0.12, 3.10 with 15: 0.00
        self.assertLess(wal, WAL_MOST)
        self.assertLess(twice, 600)  # what was in flight when it had been silent for five seconds

    def test_what_a_lost_connection_leaves_goes_back_as_ranges(self):
        def hold(p, _, at_ms):
            for share in (0.1, 0.3, 0.5):
                self.wait_for_some(p, share)
                self.servers.rabbitmqctl('eval', f'[rabbit_networking:close_connection(C, "test") || C <- rabbit_networking:connections(), '
                                         f'rabbit_networking:connection_info(C, [vhost]) == [{{vhost, <<"{p.vhost}">>}}]].')
        _, wal, rewrites, twice = self.cost('the connections are closed three times', hold)
        self.assertLess(rewrites, 0.15)  # what was in flight: 512 at most, each time
        self.assertLess(wal, WAL_MOST)
        self.assertLess(twice, 3 * 512)

    def test_what_an_alarm_leaves_goes_back_as_ranges(self):
        def hold(p, _, at_ms):
            for share in (0.1, 0.4):
                self.wait_for_some(p, share)
                self.servers.rabbitmqctl('set_vm_memory_high_watermark', '0.0000001')
                time.sleep(2)
                self.servers.rabbitmqctl('set_vm_memory_high_watermark', '0.4')
        _, wal, rewrites, twice = self.cost('an alarm, twice', hold)
        self.assertLess(rewrites, 0.05)
        self.assertLess(wal, WAL_MOST)
        self.assertEqual(twice, 0)

    def test_what_a_stop_leaves_goes_back_as_ranges(self):
        def hold(p, g, at_ms):
            for share in (0.1, 0.4):
                self.wait_for_some(p, share)
                self.assertEqual(g.term(), 0)
                self.assertEqual(p.value('select count(*) from postdate.batch where not done and again_at is null'), '0')
                g = p.gateway()
        _, wal, rewrites, twice = self.cost('the gateway is stopped twice', hold)
        self.assertLess(rewrites, 0.02)
        self.assertLess(wal, WAL_MOST)
        self.assertEqual(twice, 0)

    def test_what_a_lost_lease_leaves_goes_back_as_ranges(self):
        """But for what was in flight: nobody knows of that whether it may have come."""
        def hold(p, _, at_ms):
            for share in (0.1, 0.4):
                self.wait_for_some(p, share)
                p.psql("select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'postdate lease keeper'")
        _, wal, rewrites, twice = self.cost('the lease is lost twice', hold)
        self.assertLess(rewrites, 0.1)
        self.assertLess(wal, WAL_MOST)
        self.assertLess(twice, 2 * 512)

    def test_what_waits_for_a_dead_target_can_be_cancelled(self):
        """Some at a time: its rows are written then."""
        p = self.place()
        p.gateway()
        for key in ('dead', 'other'):
            self.target(p, key)
            p.psql(f"select postdate.schedule('{key}', 'first', '0 s')")
        wait_until(lambda: p.counts() == {'delivered': 2}, 10, 'the first ones')
        at_ms = now_ms() + 4000
        self.due(p, at_ms, ('dead', 'other'), 2, 1)
        self.due(p, at_ms + 12000, ('dead', 'other'), 1000, 1)  # when nothing is kept in memory any more
        thread = threading.Thread(target=self.suspend, args=(p, 'dead', at_ms - 500, 35000))
        thread.start()
        self.addCleanup(thread.join)
        wait_until(lambda: p.value('select count(*) > 0 from postdate.batch where back_since is not null and again_at is not null') == 't', 30, 'the range to be put back')
        wait_until(lambda: p.counts()['delivered'] == 503, 10, 'the others to be delivered')
        minute = "update postdate.batch set again_at = now(), back_since = now() - interval '61 s' where again_at is not null"
        p.psql(minute)
        cancelled = """select count(*) from (select postdate.cancel(id) as c from postdate.message_now where state = 'scheduled' and routing_key = 'dead') x where c = 'cancelled'"""
        wait_until(lambda: p.counts().get('scheduled', 0) >= 50, 20, 'some to be scheduled again')
        n = int(p.value(cancelled))
        self.assertGreaterEqual(n, 50)
        thread.join()
        self.assertEqual(p.value('select count(*) from postdate.message_now where error is null and state = \'scheduled\''), '0')
        p.psql("update postdate.message set next_at = now() where state = 'scheduled' and next_at > now()")
        wait_until(lambda: p.counts() == {'delivered': 1004 - n, 'cancelled': n}, 90, 'the others to be delivered')
