"""Everybody at once stores, cancels, claims, settles, puts back, dies and is taken over: what the orders of test_store_races have too few sessions for.

POSTDATE_STORE_RACE_S says for how long messages are stored.
"""
import collections
import contextlib
import itertools
import os
import queue
import random
import threading
import uuid

from harness import LiveTest, now_ms, wait_until
from steps_kit import Stepped
from store_kit import COMMITTED, LOOK, RELEASE, REPEATABLE, Result, insert, make_claim, prepare

SECONDS = float(os.environ.get('POSTDATE_STORE_RACE_S', '6'))
GOES_ON, DONE, BACK, WAITS = range(4)  # as enum batch_end
NIL, LAST = str(uuid.UUID(int=0)), 'ffffffff-ffff-ffff-ffff-ffffffffffff'
REAP = 'update postdate.message m set owner = null where m.owner is not null and not exists (select from postdate.instance i where i.id = m.owner)'
# As if what was put back for a target that stands still had been so for a minute, and what was scattered then had waited for its time.
SCATTER = """
update postdate.batch set back_since = back_since - interval '61 s', again_at = clock_timestamp()
 where id in (select id from postdate.batch where back_since is not null and again_at is not null for update skip locked);
select postdate.batch_scatter('{}', '{}', 3);
update postdate.message set next_at = due
 where id = any (array(select id from postdate.message where state = 'scheduled' and next_at > now() + interval '30 s' for update skip locked))"""
UNSETTLED = "select count(*) from postdate.message_now where state in ('scheduled', 'claimed')"


class StoreRace(LiveTest):
    vhosts = 0
    weight = 40
    time_limit_s = 300

    def setUp(self):
        self.p = self.place()
        make_claim(self.p.psql)
        self.result, self.errors, self.known, self.threads = Result(), [], [], []
        self.stored, self.over, self.lock = threading.Event(), threading.Event(), threading.Lock()
        self.seeds, self.owners, self.deaths = itertools.count(1), itertools.count(1), queue.Queue()

    def member(self, act, until, *queries):
        """A thread with a session, that acts again and again."""
        session, rng = Stepped(self.p.postgres), random.Random(next(self.seeds))
        prepare(session.run, *queries)

        def live():
            try:
                while not until.is_set() and act(session.run, rng) != 'dead':
                    pass
            except Exception as e:  # pylint: disable=broad-except
                self.errors.append(repr(e))
            finally:
                session.close()
        self.threads.append(threading.Thread(target=live, daemon=True))
        self.threads[-1].start()
        return self.threads[-1]

    def keep_open(self, rng, share, longest_s):
        """Some transactions stay open for a while: that is what this is about."""
        if rng.random() < share:
            self.over.wait(rng.random() * longest_s)

    def stores(self, run, rng):
        ids = []
        for _ in range(rng.randrange(1, 12)):
            due = now_ms() + rng.choice([0, 30, rng.randrange(1500), rng.randrange(1500)])
            ids.append(str(uuid.UUID(bytes=due.to_bytes(6, 'big') + b'\x80' + rng.randbytes(9))))
        run('begin; select postdate.fence_for_store() as fence \\gset')
        rows = '; '.join(insert(one, ':fence') for one in ids)
        run(f'savepoint s; {rows}; release s' if rng.random() < 0.3 else rows)
        self.keep_open(rng, 0.2, 2)
        end = 'rollback' if rng.random() < 0.1 else 'commit'
        run(end)
        self.result.store(ids, end)
        with self.lock:
            self.known += [one for one in ids if end == 'commit' and rng.random() < 0.5]
        self.over.wait(rng.random() * 0.02)

    def cancels(self, run, rng):
        with self.lock:
            wanted = [self.known.pop(rng.randrange(len(self.known))) for _ in range(min(rng.randrange(1, 4), len(self.known)))]
        if not wanted:
            self.over.wait(0.02)
            return
        run('begin isolation level ' + rng.choice([COMMITTED, REPEATABLE]))
        answers = [(one, run(f"select postdate.cancel('{one}')", may_fail=True)[0][0]) for one in wanted]
        self.keep_open(rng, 0.2, 1.2)
        end = 'rollback' if rng.random() < 0.2 else 'commit'
        run(end)
        self.errors += [a for _, a in answers if 'ERROR:' in a and 'could not serialize' not in a and 'is aborted' not in a]
        if end == 'commit' and not any('ERROR:' in answer for _, answer in answers):
            self.result.cancelled.update(one for one, answer in answers if answer == 'cancelled')

    def gateway(self):
        """What an instance does, that dies in some batch; another follows it."""
        owner, lives_until = str(next(self.owners)), now_ms() + 1000
        self.p.psql(f"insert into postdate.instance (id, name, backend_pid, version, running_since) overriding system value values ({owner}, '{owner}', 0, 1, now())")

        def claims(run, rng):
            horizon = f'to_timestamp({now_ms() + 100} / 1000.0)'
            rows, upto = self.takes_again(run, owner) if rng.random() < 0.3 else ([], None)
            if not rows:
                rows = run(f'select {owner}, id, batch, claimed_at from test.claim({horizon}, 20, 1000000, {owner})')
                upto = run(f'select from_id from postdate.batch where id = {rows[0][2]}')[0][0] if rows else None
            self.result.claims += [(row[1], owner, False) for row in rows]
            dies = now_ms() > lives_until and not self.stored.is_set() and rng.random() < 0.2
            some = rows[:rng.randrange(len(rows) + 1)]
            end = GOES_ON if dies else rng.choice([BACK, WAITS]) if len(some) < len(rows) and rng.random() < 0.3 else DONE
            self.settles(run, rng, owner, rows, rows if end == DONE else some, upto, end)
            alone = run(f"execute claim ({horizon}, 'epoch', '{NIL}', 20, 1000000, {owner}, '{LAST}', 'epoch')")
            self.result.claims += [(row[1], owner, row[3] == 't') for row in alone]
            if dies:
                return self.dies(run, owner)
            if alone:
                run(f"execute settle_delivered ('{{{','.join(row[1] for row in alone)}}}', '{NIL}', '{LAST}', {owner}, false)")
                self.result.delivered.update(row[1] for row in alone)
            if not rows and not alone:
                self.over.wait(0.01)
            return None
        self.member(claims, self.over, 'claim', 'batch_again', 'batch_read', 'batch_settle', 'settle_delivered')

    def takes_again(self, run, owner):
        """What is left of a range that was put back, and up to where only what is pending is."""
        found = run(f"begin; execute batch_again ({owner}, '{{}}', '{{}}', 0)")
        rows = run(f"execute batch_read ('{found[0][2]}', '{found[0][3]}', {found[0][0]}, '{found[0][4]}')") if found else []
        run('commit')
        if found and not rows:  # here nothing but the scattering writes rows of such a range, and that ends it with the last one
            self.errors.append('nothing was left of what was put back')
        return [(owner, row[1], *found[0][:2]) for row in rows], found[0][4] if found else None

    def settles(self, run, rng, owner, rows, some, upto, end):
        """Some of its rows in the order of their ids; what takes long is pending for a while, and so is all up to upto that is not settled yet. The others
        are put back, unless they are left to whoever takes over."""
        waits, pending = [row[1] for row in rows if row[1] <= upto], []

        def settle(row, then=GOES_ON):
            _, one, batch, claimed_at = row
            open_ = pending + [i for i in waits if i > one]
            numbers = ','.join([batch] * len(open_))
            run(f"execute batch_settle ('{{{batch}}}', '{{{max(one, upto)}}}', '{{{then}}}', {owner}, '{{{numbers}}}', '{{{','.join(open_)}}}', "
                f"array['{claimed_at}'::timestamptz])")
        for i, row in enumerate(some):
            if rng.random() < 0.2:
                pending.append(row[1])
            elif i % 5 == 4:
                if pending and rng.random() < 0.5:
                    pending.pop(rng.randrange(len(pending)))
                settle(row)
                self.result.delivered.update(row[1] for row in some[:i + 1] if row[1] not in pending)
        if end == DONE and rows:
            pending.clear()
            settle(rows[-1], DONE)
            self.result.delivered.update(row[1] for row in rows)
        elif end in (BACK, WAITS):
            self.result.put_back(pending + [row[1] for row in rows[len(some):]])
            settle(some[-1] if some else (owner, NIL, *rows[0][2:]), end)
            self.result.delivered.update(row[1] for row in some if row[1] not in pending)

    def dies(self, run, owner):
        self.deaths.put(owner)
        self.result.dead.add(owner)
        run(f'delete from postdate.instance where id = {owner}')
        return 'dead'

    def looks(self, run, rng):
        run(LOOK)
        run(f'{RELEASE}; {REAP}')
        if rng.random() < 0.3:
            run(SCATTER)
        self.over.wait(rng.random() * 0.06)

    def is_unrelated(self, run, rng):
        """Its transaction has nothing to do with it, and delays nothing."""
        run('begin; select pg_current_xact_id()')
        self.stored.wait(4)
        run('commit')

    def wait_settled(self):
        """However long it takes a busy machine, as long as it goes on."""
        left, until = None, 0

        def ended():
            nonlocal left, until
            now_left = self.p.value(UNSETTLED)
            if now_left != left:
                left, until = now_left, now_ms() + 60_000  # a look at what is late is one statement, and takes long on a busy machine
            return left == '0' or now_ms() > until or self.errors
        wait_until(ended, 250, 'the end')
        if left != '0':
            for what in ('message_now where state in (\'scheduled\', \'claimed\') limit 50', 'batch where not done', 'late', 'late_mark', 'instance', 'frontier', 'fence'):
                print(f'stuck: {what}: {self.p.psql("select * from postdate." + what)}', flush=True)

    def test_everybody_at_once(self):
        callers = [self.member(act, self.stored) for act in [self.stores, self.cancels] * 4 + [self.is_unrelated]]
        for _ in range(3):
            self.gateway()
        self.member(self.looks, self.over)
        until = now_ms() + SECONDS * 1000
        while (left_ms := until - now_ms()) > 0:
            with contextlib.suppress(queue.Empty):
                self.deaths.get(timeout=left_ms / 1000)
                self.gateway()
        self.stored.set()
        for t in callers:
            t.join()
        self.gateway()  # others may have died just now
        self.wait_settled()
        self.over.set()
        for t in self.threads:
            t.join()
        self.assertEqual(self.errors, [])
        self.assertEqual(dict(collections.Counter(self.result.faults())), {})
        self.assertEqual(self.p.value(UNSETTLED), '0')
        put_back = {one for one, owner, _ in self.result.claims if owner is None}
        self.assertTrue(self.result.dead and self.result.cancelled and put_back, 'the race was no race')
