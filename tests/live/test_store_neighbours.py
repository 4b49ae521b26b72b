"""What others do in the same database, and what comes all at once, keeps back no message that the gateway holds (docs/internals/store.md).
A prepared transaction is in test_faults2, a lock on a day in test_locked_days, a dump that is restored in test_copies, a clock that is set
in test_clocks, a database that forgets in test_restart, a failover in test_patroni."""
import os
import threading
import time

import harness
from harness import LiveTest, now_ms, wait_until

HERD = 100_000 if harness.FULL else 20_000


class Neighbours(LiveTest):
    weight = 15

    def setUp(self):
        self.p = self.place()
        self.p.gateway(POSTDATE_HANDOVER_TRANSPORT='timer')
        self.inbox = self.p.consumer('q', bind='#')

    def session(self, *queries):
        s = self.p.session()
        self.addCleanup(s.close)
        for query in queries:
            s.run(query)
        return s

    def schedule(self, count, delay, key='k'):
        self.p.psql(f"select postdate.schedule('{key}', i::text, delay => {delay}) from generate_series(1, {count}) i")

    def spread(self, count, key='k'):
        """So many over the next four seconds; some are due soon after the call, so all of this may be in the way of a claim."""
        self.schedule(count, "i * interval '4 s' / " + str(count), key)

    def all_once(self, count, deadline_s=20):
        """They come while whatever is in the way still is."""
        self.inbox.wait(count, deadline_s)
        time.sleep(0.3)
        got = self.inbox.all()
        self.assertEqual(len({m.id for m in got}), len(got))
        self.assertEqual(len(got), count)
        self.assertGreaterEqual(min(m.at_ms - m.due_ms for m in got), 0)
        late = max(m.at_ms - m.due_ms for m in got)
        print(f'note neighbours of the store: {self.id().rsplit(".", 1)[-1]}: at most {late:.0f} ms late', flush=True)

    def test_a_transaction_that_stored_something_and_goes_idle(self):
        """Its own message is late, for it is committed late. No other is."""
        idle = self.session('begin', "select postdate.schedule('idle', 'idle', delay => '1 s')")
        self.spread(300)
        self.all_once(300)
        idle.run('commit')
        self.inbox.wait_body(b'idle', 5)

    def test_a_transaction_that_has_nothing_to_do_with_it_and_goes_idle(self):
        self.session('begin', 'create temp table t (x int)', 'insert into t values (1)')
        self.spread(300)
        self.all_once(300)
        self.schedule(1, "interval '500 ms'")  # what it hides from no claim waits for it no longer than others do
        self.all_once(301)

    def test_a_snapshot_that_is_held(self):
        self.session('begin isolation level repeatable read', 'select count(*) from postdate.message')
        self.spread(300)
        self.all_once(300)

    def test_days_that_are_rewritten_and_indexed_anew(self):
        day = self.p.value("select min(relname) from pg_class where relname = 'message_' || to_char(now() at time zone 'utc', 'YYYYMMDD')")
        over = threading.Event()

        def rewrite():
            while not over.is_set():
                for query in (f'vacuum full postdate.{day}', f'reindex table postdate.{day}', 'reindex table postdate.batch', 'vacuum full postdate.batch'):
                    harness.run_psql(self.p.postgres, query)
                    over.wait(0.2)
        thread = threading.Thread(target=rewrite, daemon=True)
        thread.start()
        try:
            self.spread(400)
            self.all_once(400)
        finally:
            over.set()
            thread.join()

    def test_hundreds_of_cancels_of_the_same_range(self):
        """Each by a transaction of its own, while the range is about to be claimed. Whoever heard yes never gets it."""
        count, sessions = 400, 8
        due = now_ms() + 3500
        ids = [row[0] for row in self.p.psql(f"select postdate.schedule('k', i::text, due_at => to_timestamp({due} / 1000.0)) from generate_series(1, {count}) i")]
        cancelled, lock = set(), threading.Lock()

        def cancel(some):
            s = self.p.session()
            for number, i in enumerate(some):
                wait_ms = due - 900 + number * 900 * sessions // count - now_ms()
                time.sleep(max(wait_ms, 0) / 1000)
                if s.run(f"select postdate.cancel('{i}')")[0][0] == 'cancelled':
                    with lock:
                        cancelled.add(i)
            s.close()
        threads = [threading.Thread(target=cancel, args=(ids[n::sessions],), daemon=True) for n in range(sessions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertNotIn(len(cancelled), (0, count), 'the race was no race')
        self.all_once(count - len(cancelled))
        self.assertEqual({m.id for m in self.inbox.all()} & cancelled, set())

    def test_a_claim_whose_gateway_stands_still(self):
        """Between the look and the range: PostgreSQL throws it out after a second, and the others claim."""
        self.spread(300)
        s = self.session('begin')
        s.run("select * from postdate.claim_next(now() + interval '1 s', 1000, 8000000)")
        self.all_once(300)

    def test_bodies_as_large_as_they_may_be(self):
        """A claim is bounded by bytes, and takes one at least."""
        size = 8 * 1024 * 1024
        c = self.p.client()
        due = now_ms() + 4000
        for _ in range(6):
            c.publish('k', os.urandom(1) * size, {'x-postdate-at': due})
        self.inbox.wait(6, 40)
        self.assertEqual({len(m.body) for m in self.inbox.all()}, {size})


@harness.not_san
class Herd(LiveTest):
    weight = 60

    def test_all_that_is_due_in_one_millisecond(self):
        p = self.place()
        p.gateway(POSTDATE_HANDOVER_TRANSPORT='timer')
        inbox = p.load('consume', '--queue', 'q', '--exchange', 'postdate.delivery', '--bind', 'k', '--expect', HERD, '--timeout-s', 120,
                       '--idle-s', 1).wait_consuming()
        p.load('publish', '--routing-key', 'k', '--count', HERD, '--due-at-ms', now_ms() + HERD // 2 + 5000).result(120)
        r = inbox.result(150)
        self.assertEqual((r['missing'], r['early'], r['duplicates']), (0, 0, 0), r)
        wait_until(lambda: p.counts() == {'delivered': HERD}, 20, 'all to be settled')
