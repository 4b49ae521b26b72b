"""Keys that are taken are decided together: each costs about what a fresh one does, and one that is locked stops no other."""
import json
import re
import threading

from harness import LiveTest, run_psql

COUNT = 5000


class TakenKeys(LiveTest):
    transport = 'timer'

    def setUp(self):
        super().setUp()
        self.p = self.place()
        database = self.p.value('select current_database()')
        run_psql(self.p.postgres.replace('user=postdate', 'user=postgres'), f'alter database "{database}" set track_functions = pl')

    def run_batch(self, on_conflict, count, delay):
        lines = '\n'.join(json.dumps({'routing_key': 'k', 'body': 'x', 'delay_ms': int(delay * 1000), 'key': f'key-{n}', 'on_conflict': on_conflict})
                          for n in range(count))
        return self.p.cli('schedule', '--batch', '-', stdin=lines)

    def schedule(self, on_conflict='keep', count=COUNT, delay=3600):
        """So many keys by --batch: its exit code, and how often one key was decided alone."""
        before = self.decided_alone()
        code, _, err = self.run_batch(on_conflict, count, delay)
        print(f'note keys: {on_conflict}: {err.strip().splitlines()[-1]}', flush=True)
        return code, self.decided_alone() - before

    def decided_alone(self):
        return int(self.p.value("select coalesce(sum(calls), 0) from pg_stat_user_functions where funcname = 'key_decide'"))

    def states(self):
        return {state: int(n) for state, n in self.p.psql('select state, count(*) from postdate.message_now group by 1')}

    def test_kept(self):
        self.schedule()
        self.assertEqual(self.schedule(), (0, 0))
        self.assertEqual(self.states(), {'scheduled': COUNT})

    def test_replaced(self):
        self.schedule()
        self.assertEqual(self.schedule('replace', delay=7200), (0, 0))
        self.assertEqual(self.states(), {'scheduled': COUNT, 'superseded': COUNT})
        self.assertEqual(self.p.value('select count(*) from postdate.key k join postdate.message m using (id) where m.state <> $$scheduled$$'), '0')
        old = self.p.value("select id from postdate.message where state = 'superseded' limit 1")
        self.assertEqual(json.loads(self.p.cli('show', old, '--json')[1])['state'], 'scheduled')  # by its old id

    def test_cancelled_before(self):
        self.schedule()
        self.p.psql('select postdate.cancel(id) from postdate.message')
        self.assertEqual(self.schedule(), (0, 0))
        self.assertEqual(self.states(), {'scheduled': COUNT, 'cancelled': COUNT})

    def test_rejected(self):
        self.schedule(count=100)
        self.assertEqual(self.schedule('reject', count=200), (1, 0))
        self.assertEqual(self.states(), {'scheduled': 200})

    def test_what_is_published_with_them_holds_up_no_neighbour(self):
        self.p.gateway()
        c = self.p.client()
        c.queue('q', 'neighbour')
        inbox = self.p.consumer('q')
        self.run_batch('keep', COUNT, 3600)
        before = self.decided_alone()
        for n in range(COUNT):
            c.publish('k', b'y', {'x-delay': 7200_000, 'x-postdate-key': f'key-{n}', 'x-postdate-on-conflict': 'replace'})
        c.publish('neighbour', b'z', {'x-delay': 1})
        inbox.wait_body(b'z')
        message = self.p.value("select extract(epoch from settled_at - due) from postdate.message_now where routing_key = 'neighbour'")
        waited = self.p.value("select extract(epoch from max(created_at) - min(created_at)) from postdate.message where convert_from(body, 'UTF8') = 'y'")
        print(f'note keys: {COUNT} published with taken keys were stored within {waited} s; the neighbour was {message} s late', flush=True)
        self.assertLess(self.decided_alone() - before, 50)

    def test_many_batches_and_cancels_of_the_same_keys_at_once(self):
        """Whatever comes first, a key has one live message, and its row names it."""
        self.p.gateway()
        stored, lock, count, rounds = [], threading.Lock(), 300, 4

        def store(on_conflict, delay):
            for _ in range(rounds):
                _, _, err = self.run_batch(on_conflict, count, delay)
                with lock:
                    stored.append(int(re.search(r'accepted ([0-9]+)', err).group(1)))

        def cancel():
            for _ in range(rounds):
                run_psql(self.p.postgres, f"select count(postdate.cancel_key('key-' || n)) from generate_series(0, {count - 1}) n")

        threads = [threading.Thread(target=store, args=args) for args in (('replace', 3600), ('replace', 1.5), ('keep', 3600), ('keep', 1), ('reject', 3600))]
        threads.append(threading.Thread(target=cancel))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        live = "select m.key, count(*) from postdate.message_now m where m.state in ('scheduled', 'claimed') group by 1 having count(*) > 1"
        self.assertEqual(self.p.psql(live), [])
        self.assertEqual(int(self.p.value('select count(*) from postdate.message')), sum(stored))
        unnamed = """select m.key, m.id from postdate.message_now m where m.state in ('scheduled', 'claimed')
                        and not exists (select from postdate.key k where k.key = m.key and k.exchange = m.exchange and k.id = m.id)"""
        self.assertEqual(self.p.psql(unnamed), [])

    def test_some_of_them_are_locked(self):
        self.schedule(count=1000)
        session = self.p.session()
        session.run('begin')
        session.run("select from postdate.key where key in ('key-7', 'key-500') for update")
        session.run("select from postdate.message where key = 'key-900' for update")
        code, alone = self.schedule('replace', count=1000)
        self.assertEqual(code, 1)
        self.assertLess(alone, 60)
        self.assertEqual(self.states(), {'scheduled': 1000, 'superseded': 997})
        session.run('rollback')
        session.close()
        self.assertEqual(self.schedule('replace', count=1000)[0], 0)
        self.assertEqual(self.states(), {'scheduled': 1000, 'superseded': 1997})
