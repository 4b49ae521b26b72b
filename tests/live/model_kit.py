"""Plays steps of tests/model/held.pml on sessions of PostgreSQL, with the functions and queries of the gateway, and compares what is true after each of them.

A walk is what spin prints of one order of steps with -DSTEPS: each step by the name that stands beside it in the model, by the process that takes it, and the
variables after it. Message m of a walk is due at base + 10 ms * (m + 1), so that times and ids of the database tell the numbers of the model.
"""
import contextlib
import json

from model_walk import PAUSES, QUERIES, Differs, Session
from steps_kit import PAUSE, Stepped, function_text, plant
from store_kit import LOOK, query_text

# What is true in the database, in the words of the model.
STATE = """
create or replace function test.state(base bigint) returns jsonb language sql set search_path = pg_catalog, pg_temp as $$
with m as materialized (
    select (postdate.id_ms(x.id) - base) / 10 - 1 as m, x.id, x.next_at is null as plain,
           case when x.next_at is null then 'PLAIN' when x.settled_at is not null then upper(x.state::text) when x.owner is not null then 'OWNED'
                when x.rate is not null then 'WAITS' else 'OPEN' end as st,
           x.owner, x.state = 'claimed' as doubt, x.born,
           (select n.state from postdate.message_now n where n.id = x.id) as seen
      from postdate.message x
     where x.id >= postdate.id_floor(timestamptz 'epoch' + base * interval '1 ms') and x.id < postdate.id_floor(timestamptz 'epoch' + (base + 50) * interval '1 ms'))
select jsonb_build_object(
    'messages', (select jsonb_object_agg(m, jsonb_build_object('id', id, 'st', st, 'owner', owner, 'doubt', doubt, 'seen', seen)) from m),
    'fence', (select last_value - base from postdate.fence),
    'frontier', (select postdate.id_ms(to_id) - base from postdate.frontier),
    'looked', (select postdate.id_ms(looked) - base from postdate.late_mark order by id desc limit 1),
    'upto', (select postdate.id_ms(upto) - base from postdate.late_mark order by id desc limit 1),
    'late', (select jsonb_agg(m.m) from postdate.late l, m where m.id = any (l.ids)),
    'table', (select jsonb_agg(id) from postdate.instance),
    'claims', (select jsonb_object_agg((postdate.id_ms(b.to_id) - base) / 10 - 1, jsonb_build_object(
                   'id', b.id, 'from_id', b.from_id, 'from', postdate.id_ms(b.from_id) - base, 'owner', b.owner, 'done', b.done, 'back', b.again_at is not null,
                   'took', (select jsonb_agg(m.m) from m where m.plain and m.id > b.from_id and m.id <= b.to_id and pg_visible_in_snapshot(m.born, b.snapshot) and m.id <> all (b.skipped)),
                   'settled', (select jsonb_agg(m.m) from m where m.plain and m.id > b.from_id and m.id <= p.upto and m.id <> all (p.pending)),
                   'claimed_at', b.claimed_at, 'upto', p.upto))
                 from postdate.batch b left join postdate.batch_position p on p.batch = b.id
                where b.to_id > postdate.id_floor(timestamptz 'epoch' + base * interval '1 ms')))
$$"""
# After a walk: nothing of it is left to anybody.
CLEAR = """
delete from postdate.instance; delete from postdate.late; delete from postdate.key;
update postdate.message set next_at = due, settled_at = now(), owner = null, rate = null, state = 'delivered' where settled_at is null;
update postdate.batch set done = true, again_at = null, settled_at = now() where not done; delete from postdate.batch_position;
update postdate.late_mark set looked = to_id, upto = to_id, below = '3', running = '{}', since = '{}' from postdate.frontier"""
FAR = "now() + interval '10 days'"


class Player:
    """Walks on one database. sessions: one for each process of the model, kept from walk to walk."""

    def __init__(self, url, base_ms):
        self.url, self.base, self.controller, self.sessions = url, base_ms, Stepped(url), {}
        sql = self.controller.run
        sql(PAUSE)
        texts = {}
        for function, before, point in PAUSES:
            text = texts.get(function) or function_text(self.controller, function)
            if before not in text:
                raise AssertionError(f'{function}: {before!r} is not there')
            texts[function] = text.replace(before, f"perform test.pause('{point}'); {before}")
        for text in texts.values():
            sql(text)
        sql(STATE)
        self.version = sql('select version from postdate.meta')[0][0]
        sql(CLEAR)

    def close(self):
        for session in self.sessions.values():
            session.stepped.close()
        self.controller.close()

    def session(self, pid):
        """All that a walk may need, for a mistake in a query is planted into each."""
        if pid not in self.sessions:
            self.sessions[pid] = Session(self.url, pid, self.controller)
        return self.sessions[pid]

    @contextlib.contextmanager
    def mistake(self, where, old, new):
        """In a function of the schema, or in a query of sql/query."""
        if where in QUERIES:
            text = query_text(where)
            if text.count(old) != 1:
                raise AssertionError(f'{where}: {old!r} is there {text.count(old)} times')
            self.prepare(where, text.replace(old, new))
            yield
            self.prepare(where, text)
        else:
            text = function_text(self.controller, where)
            plant(self.controller, where, [(old, new)])
            yield
            self.controller.run(text)

    def prepare(self, name, text):
        for session in self.sessions.values():
            session.stepped.run(f'deallocate {name}; prepare {name} as {text}')

    def play(self, steps, keeps=0):
        """keeps: the model's KEEPS. Raises Differs where the database does something else, with the steps up to there. Returns how many steps were compared."""
        Walk(self, keeps).play(steps)
        return len(steps)


class Walk:
    def __init__(self, player, keeps):
        player.base += 1000
        self.player, self.base, self.sql = player, player.base, player.controller.run
        self.key, self.ids, self.new_ids, self.real, self.claims, self.told = f'k{self.base}', {}, {}, {}, {}, []
        self.keeps = keeps
        self.looking, self.inexact = None, False

    def play(self, steps):
        try:
            for number, step in enumerate(steps):
                self.told.append(f'{step.pid} {step.name} {step.arg}')
                try:
                    self.take(self.player.session(step.pid), step)
                    self.compare(step)
                except Differs as e:
                    if self.inexact:
                        return
                    raise Differs(f'{e}\n    after {", ".join(self.told)}\n    (step {number + 1} of {len(steps)})') from e
        finally:
            for session in self.player.sessions.values():
                session.ends('rollback')
            self.sql(CLEAR)

    def take(self, session, step):
        if self.looking not in (None, step.pid):
            self.among = True
        getattr(self, step.name)(session, step)

    # --- what is true ---
    def compare(self, step):
        is_ = json.loads(self.sql(f'select test.state({self.base})')[0][0])
        messages, claims = is_['messages'] or {}, is_['claims'] or {}
        self.claims = claims
        self.ids.update({int(m): x['id'] for m, x in messages.items()})

        def same(what, here, there):
            if here != there:
                raise Differs(f'{step.name}: {what} is {here} in PostgreSQL, {there} in the model')
        for m in range(3):
            x, st = messages.get(str(m)), step.st[m]
            same(f'message {m}', x['st'] if x else 'NONE', st)
            if not x:
                continue
            same(f'what users see of message {m}', x['seen'], step.seen(m))
            if st == 'OWNED':
                same(f'the owner of message {m}', x['owner'], self.real.get(step.owner[m]))
            if st in ('OPEN', 'WAITS'):
                same(f'whether message {m} is in doubt', x['doubt'], bool(step.doubt >> m & 1))
        for what in ('fence', 'frontier'):
            same(what, self.time(is_[what]), getattr(step, what))
        if self.looking is None:
            same('looked', self.time(is_['looked']), step.looked)
            same('upto', self.time(is_['upto']), step.upto)
            same('late', self.mask(is_['late']), step.late)
        same('instances', set(is_['table'] or []), {self.real[n] for n in range(1, 8) if step.table >> n & 1})
        same('claims', {int(b) for b in claims}, {b for b in range(3) if step.b_is >> b & 1})
        for b in (int(b) for b in claims):
            self.compare_claim(step, b, claims[str(b)], same)

    def compare_claim(self, step, b, x, same):
        plain = sum(1 << m for m in range(3) if step.st[m] == 'PLAIN')
        same(f'where claim {b} begins', self.time(x['from']), step.b_from[b])
        same(f'whether claim {b} is done', x['done'], bool(step.b_done >> b & 1))
        same(f'what claim {b} took', self.mask(x['took']), step.b_took[b] & plain)
        if not x['done']:
            same(f'whether claim {b} is put back', x['back'], bool(step.b_back >> b & 1))
            same(f'whose claim {b} is', x['owner'], self.real.get(step.b_owner[b], 0))
            same(f'what is settled of claim {b}', self.mask(x['settled']) & step.b_took[b], step.b_settled[b] & plain)

    @staticmethod
    def mask(numbers):
        return sum(1 << n for n in set(numbers or []))

    @staticmethod
    def time(ms):
        return max(0, int(ms // 10))

    def due(self, m):
        return f"(timestamptz 'epoch' + {self.base + 10 * (m + 1)} * interval '1 ms')"

    def id_of(self, m):
        return self.ids.get(m) or self.bound(m)

    def bound(self, m):
        """The least id of message m; that of the next one is above it."""
        text = f'{self.base + 10 * (m + 1):012x}'
        return f'{text[:8]}-{text[8:]}-8000-8000-000000000000'

    def of_one(self, m):
        return f"'{{{self.id_of(m)}}}', '{self.bound(m)}', '{self.bound(m + 1)}'"

    def only(self, b):
        """Days that are said to be locked: all but the range of claim b."""
        x = self.claims[str(b)]
        first, last = self.base + x['from'], self.base + 10 * (b + 1)
        at = lambda ms: f"timestamptz 'epoch' + {ms} * interval '1 ms'"
        return f"array['-infinity', {at(last + 1)}], array[{at(first)}, 'infinity']"

    @staticmethod
    def answer(session):
        return session.stepped.rows[-1][0] if session.stepped.rows else None

    @staticmethod
    def expect(what, here, there):
        if here != there:
            raise Differs(f'{what}: {here} in PostgreSQL, {there} in the model')

    # --- who stores, cancels, moves ---
    def store_id(self, session, step):
        if not session.at:
            session.start(f"begin; select postdate.schedule('k', 'b', due_at => {self.due(step.arg)}, hold => 'gateway')", 'store.id')
        self.expect('who stores', session.at, 'store.id')
        if not self.sql(f'select backend_xid from pg_stat_activity where pid = {session.stepped.pid} and backend_xid is not null'):
            raise Differs('who stores has no id yet')

    def store_fence(self, session, step):
        self.expect('who stores', session.go(), 'end')
        if session.stepped.error():
            raise Differs(session.stepped.error())

    def commit(self, session, step):
        if session.at:
            raise Differs(f'what commits is at {session.at}')
        if session.open:
            session.ends('commit')

    def rollback(self, session, step):
        session.go()
        session.ends('rollback')

    def cancel_in_vain(self, session, step):
        self.expect('cancelling', session.start(f"begin; select postdate.cancel('{self.id_of(step.arg)}')", 'lock.row'), 'end')
        self.expect('cancelling', self.answer(session) == 'cancelled', step.st[step.arg] == 'CANCELLED')
        session.ends('rollback')

    def cancel_looks(self, session, step):
        self.expect('cancelling', session.start(f"begin; select postdate.cancel('{self.id_of(step.arg)}')", 'lock.row'), 'lock.row')

    def move_looks(self, session, step):
        self.expect('moving', session.start(f"begin; select result from postdate.do_reschedule('{self.id_of(0)}', {self.due(step.arg)}, null, null)", 'lock.row'), 'lock.row')

    def move_in_vain(self, session, step):
        session.start(f"begin; select result from postdate.do_reschedule('{self.id_of(0)}', {self.due(step.arg)}, null, null)")
        self.expect('moving', self.answer(session) == 'done', False)
        session.ends('rollback')

    def lock(self, session, step):
        self.expect('locking', session.go('lock.fence'), 'lock.fence')

    def lock_again(self, session, step):
        self.expect('locking', session.go('lock.row', 'store.id'), 'lock.row')

    def lock_in_vain(self, session, step):
        self.too_late(session, step)
        session.ends('rollback')

    def too_late(self, session, step):
        self.expect('what comes too late', session.go(), 'end')
        if self.answer(session) in ('cancelled', 'done') and step.st[step.arg] != 'CANCELLED':
            raise Differs(f'what comes too late in the model is {self.answer(session)}')

    def in_time(self, session, step):
        session.go('store.id')
        if session.at != 'store.id' and self.answer(session) != 'cancelled':
            raise Differs(f'what comes in time in the model is {self.answer(session)}')

    # --- keys ---
    def key_begins(self, session, step, *points):
        """The decision begins, where it has not, and goes on to these points."""
        if session.at:
            return session.go(*points)
        conflict = 'keep' if self.keeps >> step.arg & 1 else 'replace'
        return session.start(f"begin; select postdate.schedule('k', 'b', due_at => {self.due(step.arg)}, hold => 'gateway', key => '{self.key}', on_conflict => '{conflict}')", *points)

    def key_new(self, session, step):
        self.expect('the key', self.key_begins(session, step, 'key.found', 'store.id'), 'store.id')

    def key_found(self, session, step):
        self.expect('the key', self.key_begins(session, step, 'key.found', 'store.id'), 'key.found')

    def key_wanted(self, session, step):
        self.expect('the key', session.go('key.wanted', 'store.id'), 'key.wanted')

    def key_kept(self, session, step):
        self.expect('the key', session.go('store.id'), 'end')

    def key_locked(self, session, step):
        self.expect('the key', session.go('key.looks', 'key.begins', 'store.id'), 'key.looks')

    def key_gone(self, session, step):
        self.expect('the key', session.go('key.looks', 'key.begins', 'store.id'), 'key.begins')

    def key_free(self, session, step):
        self.expect('the key', session.go('store.id', 'replace.row', 'key.begins'), 'store.id')

    def key_refused(self, session, step):
        self.expect('the key', session.go('store.id', 'replace.row', 'key.begins'), 'end')

    def key_live(self, session, step):
        self.expect('the key', session.go('store.id', 'replace.row'), 'replace.row')

    def key_lock(self, session, step):
        self.expect('the key', session.go('replace.fence', 'store.id'), 'replace.fence')

    def key_replaces(self, session, step):
        self.expect('the key', session.go('key.again', 'store.id'), 'store.id')

    def key_late(self, session, step):
        self.expect('the key', session.go('key.again', 'store.id'), 'key.again')

    # --- gateways ---
    def born(self, session, step):
        self.real[step.me] = int(session.run(f"execute instance_register ('g', 'timer', 0, {self.player.version}, 'v')")[0][0])

    def dies(self, session, step):
        session.ends('rollback')
        self.sleeps(session, step, step.me)

    def sleeps(self, _, step, me=None):
        if me or step.arg:
            self.sql(f"update postdate.instance set heartbeat_at = 'epoch' where id = {self.real[me or step.arg]}")

    def claim_next(self, session, step):
        began = f"begin; execute batch_next ({self.due(step.arg)}, 100, 1000000, '{{}}', '{{}}'); set local idle_in_transaction_session_timeout = 0"
        self.expect('a claim', session.start(began, 'claim.fence', 'pass.fence'), 'claim.fence')

    def claim_fence(self, session, step):
        self.expect('a claim', session.go(), 'end')
        session.range = session.stepped.rows[-1]

    def claim_rows(self, session, step):
        begins, ends = session.range
        rows = session.run(f"execute batch_claim ('{begins}', '{ends}', {self.real[step.me]})")
        self.expect('what a claim takes', self.mask(self.number(row[1]) for row in rows), step.mine)

    def number(self, one):
        return (int(one.replace('-', '')[:12], 16) - self.base) // 10 - 1

    def claim_commit(self, session, step):
        session.ends('commit')

    def pass_begins(self, session, step):
        self.expect('a claim', session.start(f'select postdate.claim_pass(postdate.id_ceiling({self.due(step.arg)}))', 'pass.fence'), 'pass.fence')

    def pass_fence(self, session, step):
        self.expect('a claim', session.go('pass.note'), 'pass.note')

    def pass_commit(self, session, step):
        self.expect('a claim', session.go(), 'end')

    def again(self, session, step):
        found = session.run(f'begin; execute batch_again ({self.real[step.me]}, {self.only(step.arg)}, 0)')
        if not found:
            raise Differs('a range that was put back is not taken again')
        rows = session.run(f"execute batch_read ('{found[0][2]}', '{found[0][3]}', {found[0][0]}, '{found[0][4]}')")
        session.run('commit')
        self.expect('what is left of a range', self.mask(self.number(row[1]) for row in rows), step.mine)

    def scatter(self, session, step):
        session.run(f"update postdate.batch set back_since = clock_timestamp() - interval '61 s', again_at = clock_timestamp() where id = {self.claims[str(step.arg)]['id']}; "
                    f'select postdate.batch_scatter({self.only(step.arg)}, 100)')

    def claim_one(self, session, step):
        m = step.arg
        rows = session.run(f"execute claim ({FAR}, 'epoch', '{self.bound(m)}', 10, 1000000, {self.real[step.me]}, '{self.bound(m + 1)}', 'epoch')")
        self.expect('what is claimed by its own row', [(row[1], row[3]) for row in rows], [(self.id_of(m), 't' if step.doubted else 'f')])

    def settle(self, session, step, end=0):
        """mine: what it has in hand still, also the one that is settled now."""
        m, b = step.arg, step.claim_of(step.arg)
        self.settles(session, step, b, end, step.mine & ~(1 << m))

    def settles(self, session, step, b, end, in_hand):
        x, settled = self.claims[str(b)], step.b_settled[b]
        done = [n for n in range(3) if settled >> n & 1]
        upto = self.id_of(done[-1]) if done else x['upto'] or x['from_id']
        pending = [self.id_of(n) for n in done[-1:] for n in range(n) if step.b_took[b] >> n & 1 and not settled >> n & 1 and step.st[n] == 'PLAIN']
        missed = session.run(f"execute batch_settle ('{{{x['id']}}}', '{{{upto}}}', '{{{end}}}', {self.real[step.me]}, '{{{','.join([str(x['id'])] * len(pending))}}}', "
                             f"'{{{','.join(pending)}}}', array['{x['claimed_at']}'::timestamptz])")
        self.expect('what its owner does not have any more', missed, [])

    def done(self, session, step):
        self.settles(session, step, step.arg, 1, 0)

    def back(self, session, step):
        self.settles(session, step, step.arg, 2, step.mine)

    def settle_one(self, session, step):
        ids = self.of_one(step.arg)
        session.run(f'begin; execute settle_lock ({ids}, {self.real[step.me]}, false, false, false); execute settle_delivered ({ids}, {self.real[step.me]}, false); commit')

    def settle_missed(self, session, step):
        if step.one:
            self.settle_one(session, step)
        session.run(f"execute history_delivered ('{{{self.id_of(step.arg)}}}')")

    def settle_other(self, session, step, state, flag=''):
        ids = self.of_one(step.arg)
        session.run(f'begin; execute settle_lock ({ids}, {self.real[step.me]}, false, false, false); '
                    f"execute settle_other ({ids}, {self.real[step.me]}, '{{{state}}}', array[{self.due(step.arg)}], '{{refused}}', '{{1}}', array['{flag}'], false, false); commit")

    def refused(self, session, step):
        self.settle_other(session, step, 'claimed' if step.doubted else 'scheduled')

    def expired(self, session, step):
        self.settle_other(session, step, 'failed' if step.doubted else 'expired', 'd' if step.doubted else '')

    def passes(self, session, step):
        """The gateway knows by its clock; and that RabbitMQ has confirmed something PostgreSQL is told only when it is settled."""

    confirmed = passes

    # --- what is done a few times a second ---
    def look_newest(self, session, step):
        self.looking, self.among = step.pid, False
        session.start(LOOK, 'look.newest')

    def look_mark(self, session, step):
        session.go('look.mark')

    def look_running(self, session, step):
        session.go('look.running')

    def look_finds(self, session, step):
        self.among = False
        session.go('look.finds')

    def look_locks(self, session, step):
        session.go('look.locks')

    def look_opens(self, session, step):
        """Where it looks at several ranges, it finds and opens one after the other. The model does so with all of them at once: if others did something meanwhile, it may be another order."""
        session.go()
        self.inexact = self.inexact or self.among and session.passed.count('look.finds') > 1
        self.looking = None

    def reap(self, session, step):
        session.run(f"execute instance_reap (0, '{{{','.join(str(n) for n in self.real.values())}}}', 3600000)")

    def release_locks(self, session, step):
        session.start(f'select postdate.batch_release(null, {self.only(step.arg)}, 500)', 'release.locks')

    def release(self, session, step):
        self.expect('a release', session.go(), 'end')

    def orphan(self, session, step):
        m = step.arg
        session.run(f"begin; execute instance_release_lock ('{self.bound(m)}', '{self.bound(m + 1)}', 10, null); execute instance_release ({self.of_one(m)}, null); commit")
