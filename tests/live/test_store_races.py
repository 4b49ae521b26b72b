"""The protocol by which messages are stored, cancelled, claimed and taken over (docs/internals/store.md), in every order of its steps,
and that mistakes are found that are planted into it.

test_store_race has the same at random, with more sessions.
"""
import random

from harness import LiveTest
from store_kit import COMMITTED, LOOK, RELEASE, REPEATABLE, Result, insert, make_claim, prepare
from test_faults2 import OwnPostgres
from steps_kit import PAUSE, Course, Steps, all_orders, function_text, plant, some_orders

# Before which text of which function a session may pause.
PAUSES = [
    ('postdate.claim_next', 'if (select last_value from postdate.fence) <', 'claim.fence'),
    ('test.claim', 'return query', 'claim.read'),
    ('postdate.message_lock', 'select * into m from postdate.message x', 'cancel.lock'),
    ('postdate.message_lock', 'exit when m.state', 'cancel.fence'),
    ('postdate.message_supersede', 'select * into m from postdate.message x', 'cancel.lock'),
    ('postdate.message_supersede', 'm := postdate.message_stands(m);', 'cancel.fence'),
    ('postdate.claim_pass', 'insert into postdate.batch', 'pass.note'),
    ('postdate.late_look', 'if newest is null', 'look.mark'),
    ('postdate.batch_release', 'locked := array', 'release.lock'),
]
INSTANCES = ('insert into postdate.instance (id, name, backend_pid, version, running_since) overriding system value '
             'select i, i, 0, 1, now() from generate_series(1, 3) i on conflict do nothing')
FENCE_MOVES = ("perform test.pause('claim.fence'); if (select last_value from postdate.fence) < postdate.id_ms(ends) "
               "then perform setval('postdate.fence', postdate.id_ms(ends)); end if;")
CLAIM, CANCEL = ('claim.fence', 'claim.read'), ('cancel.lock', 'cancel.fence')

# What is wrong, in which functions, where it is found, and what is wrong then.
MISTAKES = [
    ('who stores reads the fence before the transaction has its id', 'store_then_looks', 'never claimed',
     [('postdate.fence_for_store', [(' := pg_current_xact_id()', '')])]),
    ('the fence is moved after the rows are read', 'cancel', 'claimed, though cancelled',
     [('postdate.claim_next', [(FENCE_MOVES, '')]), ('test.claim', [('exit when found;', f'{FENCE_MOVES} exit;')])]),
    ('the fence is not moved', 'cancel', 'claimed, though cancelled', [('postdate.claim_next', [(FENCE_MOVES, '')])]),
    ('who cancels does not read the fence after the lock', 'cancel', 'claimed, though cancelled',
     [('postdate.message_lock', [('return postdate.message_stands(m);', 'm.next_at := m.due; return m;')])]),
    ('a claim takes what is locked', 'cancel', 'claimed, though cancelled', [('test.claim', [("m.xmax::text <> '0'", 'false')])]),
    ('nothing looks after what was locked', 'cancel_undone', 'never claimed', [('postdate.late_look', [('unnest(b.skipped) i where', 'unnest(b.skipped) i where false and')])]),
    ('nothing looks after late commits', 'store', 'never claimed', [('postdate.late_look', [('if newest is null', 'if true')])]),
    ('the mark is made before the newest claim is read', 'mark', 'never claimed',
     [('postdate.late_look', [('select f.to_id into newest from postdate.frontier f where pg_current_xact_id_if_assigned() is null;',
                      "perform pg_current_xact_id(), test.pause('look.id'); select f.to_id into newest from postdate.frontier f;")])]),
    ('only what a snapshot lists is waited for', 'store_then_looks', 'never claimed',
     [('postdate.late_look', [('x.to_id <= was.upto', 'true'), ('where x < was.below and', 'where')])]),
    ('a row is known by its xmin', 'store_then_looks', 'never claimed',
     [('postdate.late_look', [('not pg_visible_in_snapshot(m.born, b.snapshot)', 'not pg_visible_in_snapshot(m.xmin::text::xid8, b.snapshot)')]),
      ('postdate.late_find', [('m.born = any (born_in)', 'm.xmin::text::xid8 = any (born_in)')])]),
    ('a take-over takes what its claim skipped', 'owner_dies', 'in doubt, though nobody had it', [('postdate.batch_left', [(' and m.id <> all (b.skipped)', '')])]),
    ('a take-over takes what its claim did not see', 'owner_dies_late', 'in doubt, though nobody had it',
     [('postdate.batch_left', [('and pg_visible_in_snapshot(m.born, b.snapshot)', '')])]),
    ('a take-over looks behind the position only', 'owner_dies_with_one_pending', 'never claimed', [('postdate.batch_left', [('m.id = any (p.pending)', 'false')])]),
]


class Order:
    """Messages of an order, what is done with them, and what came of it. `first` and `last` are stored before, `between` is
    stored meanwhile; all are due within 4 ms."""

    def __init__(self, number, start_ms):
        base = start_ms + number * 100
        self.setup = []
        self.horizon = f'to_timestamp({base + 50} / 1000.0)'
        self.earlier, self.between, self.first, self.last = (f'{base + i:012x}'[:8] + '-' + f'{base + i:012x}'[8:] + '-8000-8000-000000000000' for i in range(4))
        self.result = Result([self.first, self.last])

    def claim(self, owner):
        return f'select {owner}, id, batch from test.claim({self.horizon}, 100, 1000000, {owner})'

    def skip(self):
        return f'select postdate.claim_pass(postdate.id_ceiling({self.horizon}))'

    def claimed_before(self):
        """There is a claim already, after which nobody has looked yet."""
        self.setup = [insert(self.earlier, 0), f"select from test.claim(postdate.id_due('{self.earlier}'), 100, 1000000, 3)"]
        return self

    def store(self, end='commit', steps=3):
        """In a savepoint, so that the row's xmin is not the id of the transaction."""
        fence = 'begin; select postdate.fence_for_store() as fence \\gset'
        row = f'savepoint s; {insert(self.between, ":fence")}; release s'

        def heard(sql, _):
            if sql.endswith(end):
                self.result.store([self.between], end)
        return Course('store', [fence, row, end] if steps == 3 else [fence, f'{row}; {end}'], (), heard)

    def cancel(self, end='commit', isolation=COMMITTED, replace=False):
        answers = []

        def heard(sql, rows):
            answers.extend(row[0] for row in rows)
            if sql == end == 'commit' and answers in (['cancelled'], ['t']):
                self.result.cancelled.add(self.first)
        call = f"select postdate.message_supersede('{self.first}', '{self.earlier}')" if replace else f"select postdate.cancel('{self.first}')"
        begins = [f'begin isolation level {isolation}; savepoint s; {call}']
        if isolation != COMMITTED:  # its snapshot is older than what it does
            begins = [f'begin isolation level {isolation}; do $$ begin perform from postdate.message; end $$', f'savepoint s; {call}']
        return Course('cancel', [*begins, end], CANCEL, heard)

    def gateway(self, *statements, name='gateway', points=()):
        def heard(sql, rows):
            self.result.errors += [row[0] for row in rows if 'ERROR:' in row[0]]
            if 'test.claim' in sql:
                self.result.claims += [(row[1], row[0], False) for row in rows if len(row) == 3]
        return Course(name, statements, points, heard)

    def settles(self, owner):
        """The last one is delivered, the first one is not yet."""
        def heard(sql, _):
            if 'pending' in sql:
                self.result.delivered.add(self.last)
        return Course('owner', [f"begin; insert into postdate.batch_position (batch, settled_at, upto, pending) select id, now(), '{self.last}', array['{self.first}']::uuid[] from postdate.batch where owner = {owner} and not done",
                                'commit'], (), heard)

    def claimed_by(self, owner):
        self.setup = [insert(self.first, 0), insert(self.last, 0), self.claim(owner)]
        self.result.claims += [(one, str(owner), False) for one in (self.first, self.last)]
        return self

    def dies(self, owner):
        self.result.dead.add(str(owner))
        return f'delete from postdate.instance where id = {owner}; {RELEASE}'


# What runs beside each other: lists of courses.
STORING = {
    'store': lambda o: [o.store(), o.gateway('begin; ' + o.claim(1), 'commit', points=CLAIM)],
    'store_undone': lambda o: [o.store('rollback'), o.gateway(o.claim(1), LOOK, LOOK, points=['claim.read'])],
    'store_then_looks': lambda o: [o.store(), o.gateway(o.claim(1), LOOK, LOOK, points=CLAIM)],
    'mark': lambda o: [o.claimed_before().store(steps=2), o.gateway(LOOK, LOOK, name='looker', points=['look.id', 'look.mark']), o.gateway(o.claim(1))],
    'pass_then_looks': lambda o: [o.store(), o.gateway(o.skip(), LOOK, LOOK, points=['pass.note'])],
    'two_claim': lambda o: [o.gateway(o.claim(i), name=f'gateway {i}', points=CLAIM) for i in (1, 2)],
}
CANCELLING = {
    'cancel': lambda o: [o.cancel(), o.gateway('begin; ' + o.claim(1), 'commit', points=CLAIM)],
    'cancel_undone': lambda o: [o.cancel('rollback'), o.gateway(o.claim(1), LOOK, points=CLAIM)],
    'cancel_undone_by_savepoint': lambda o: [o.cancel('rollback to s; commit'), o.gateway(o.claim(1), LOOK, points=CLAIM)],
    'cancel_repeatable_read': lambda o: [o.cancel(isolation=REPEATABLE), o.gateway(o.claim(1), LOOK, points=CLAIM)],
    'cancel_then_looks': lambda o: [o.cancel(), o.gateway(o.claim(1), LOOK, LOOK, points=['claim.read'])],
    'replace': lambda o: [o.cancel(replace=True), o.gateway(o.claim(1), LOOK, points=CLAIM)],
    'cancel_passed': lambda o: [o.cancel(), o.gateway(o.skip(), LOOK, LOOK, points=['pass.note'])],
}
TAKING_OVER = {
    'owner_dies': lambda o: [o.cancel(), o.gateway(o.claim(2), o.dies(2), LOOK, points=['release.lock'])],
    'owner_dies_undone': lambda o: [o.cancel('rollback', REPEATABLE), o.gateway(o.claim(2), o.dies(2), LOOK)],
    'two_take_over': lambda o: [o.gateway(o.claim(2), o.dies(2), points=['release.lock']), o.gateway(RELEASE, LOOK, name='another', points=['release.lock'])],
    'owner_dies_with_one_pending': lambda o: [o.claimed_by(2).settles(2), o.gateway(o.dies(2), LOOK, RELEASE, points=['release.lock'])],
    'owner_dies_late': lambda o: [o.store(), o.gateway(o.claim(2), o.dies(2), LOOK, LOOK)],
}
# Too many for all of their orders.
LARGE = {
    'all': lambda o: [o.store(), o.cancel(isolation=REPEATABLE), o.gateway(o.claim(1), points=CLAIM), o.gateway(LOOK, LOOK, LOOK, name='looker', points=['look.mark'])],
    'all_die': lambda o: [o.store(), o.cancel('rollback'), o.gateway(o.claim(2), o.dies(2), points=[*CLAIM, 'release.lock']), o.gateway(LOOK, LOOK, name='looker')],
    'two_cancel': lambda o: [o.cancel(), o.cancel('rollback', REPEATABLE), o.gateway(o.claim(1), LOOK, points=CLAIM)],
}


class StoreRaces(LiveTest):
    """On a PostgreSQL of its own: one mistake is found only while no transaction of others ends."""
    vhosts = 0
    weight = 40
    together = True
    time_limit_s = 1200  # the number of orders is what it is; each step has a deadline of its own

    @classmethod
    def setUpClass(cls):
        cls.servers = OwnPostgres.own(cls.addClassCleanup, 'races').start()
        cls.servers.psql('alter system set autovacuum = off')
        cls.servers.psql('select pg_reload_conf()')

    def setUp(self):
        self.p = self.place(stack=self.servers)
        self.steps = Steps(self.p.postgres)
        self.addCleanup(self.steps.close)
        self.sql = self.steps.controller.run
        self.sql(PAUSE)
        self.sql(INSTANCES)
        make_claim(self.sql)
        for function, before, point in PAUSES:
            self.plant(function, [(before, f"perform test.pause('{point}'); {before}")])
        prepare(self.sql, 'claim')
        self.start_ms = int(self.p.value('select extract(epoch from now())::bigint * 1000 + 3600000'))
        self.orders = 0

    def plant(self, function, changes):
        plant(self.steps.controller, function, changes)

    def text(self, function):
        return function_text(self.steps.controller, function)

    def runs(self, scenario):
        """A function that runs one order of the scenario, and returns what is wrong, if something is."""
        def run(choose):
            self.orders += 1
            order = Order(self.orders, self.start_ms)
            courses = scenario(order)
            self.sql('; '.join([INSTANCES, *order.setup, insert(order.first, 0) + ' on conflict do nothing', insert(order.last, 0) + ' on conflict do nothing']))
            done = self.steps.run(courses, choose)
            self.finish(order)
            faults = list(order.result.faults())
            return [', '.join(faults), *done] if faults else None
        return run

    def finish(self, order):
        """What gateways do again and again, as often as it takes: the first look only marks what it waits for."""
        end = f'{order.last[:14]}9000-8000-000000000000'
        release = f'{RELEASE}; {RELEASE}; ' if order.result.dead else ''
        rows = self.sql(f"{release}{order.claim(3)}; {LOOK}; {LOOK}; {LOOK}; "
                        f"execute claim ({order.horizon}, 'epoch', '{order.between}', 100, 1000000, 3, '{end}', 'epoch'); "
                        'update postdate.batch set done = true, settled_at = now() where not done')
        order.result.claims += [(row[1], row[0], False) for row in rows if len(row) == 3]
        order.result.claims += [(row[1], '3', row[3] == 't') for row in rows if len(row) > 10]

    def test_every_order_of_storing(self):
        self.run_all(STORING)

    def test_every_order_of_cancelling(self):
        self.run_all(CANCELLING)

    def test_every_order_of_taking_over(self):
        self.run_all(TAKING_OVER)

    def run_all(self, scenarios):
        for name, scenario in scenarios.items():
            fault, _ = all_orders(self.runs(scenario))
            self.assertIsNone(fault, '\n    '.join([name] + (fault or [])))

    def test_some_orders_of_many_steps(self):
        for name, scenario in LARGE.items():
            fault, _ = some_orders(self.runs(scenario), random.Random(5), 25)
            self.assertIsNone(fault, '\n    '.join([name] + (fault or [])))

    def test_planted_mistakes_are_found(self):
        for what, scenario, symptom, changes in MISTAKES:
            right = [self.text(function) for function, _ in changes]
            for function, texts in changes:
                self.plant(function, texts)
            fault, count = all_orders(self.runs({**STORING, **CANCELLING, **TAKING_OVER}[scenario]))
            self.assertIsNotNone(fault, f'{what}: not found in {count} orders')
            self.assertIn(symptom, fault[0], what)
            for text in right:
                self.sql(text)
            self.sql('delete from postdate.late; update postdate.late_mark set looked = to_id, running = $${}$$, since = $${}$$ from postdate.frontier; update postdate.message set next_at = due, settled_at = now(), state = $$delivered$$ where next_at is null')
