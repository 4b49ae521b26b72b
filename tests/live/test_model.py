"""That the SQL does what the model of the store says (docs/internals/model.md): orders of steps that spin takes at random, step for step on sessions of PostgreSQL.

POSTDATE_MODEL_S says for how many seconds, POSTDATE_MODEL_WALKS how many of each kind at most.
"""
import os
import shutil
import time
import unittest

from harness import LiveTest
from model_kit import Player
from model_walk import Differs, walk
from test_faults2 import OwnPostgres

SECONDS = float(os.environ.get('POSTDATE_MODEL_S', '20'))
WALKS = int(os.environ.get('POSTDATE_MODEL_WALKS', '8'))
ONE = 'M=1 STORED=1 '
# What happens in a walk, and the model's bounds.
KINDS = [
    ('two messages that somebody cancels', 'CANCELS=3'),
    ('a gateway dies, two gateways', 'G=2 CRASHES=1 CANCELS=3'),
    ('it sleeps, dies, does not hear of its claim', 'G=2 SLEEPS=1 CRASHES=1 UNCLEAR=1 CANCELS=1'),
    ('refused, past its deadline, it dies', ONE + 'REFUSALS=1 DEADLINES=1 CANCELS=1 CRASHES=1'),
    ('a range is put back', 'BACKS=1 REFUSALS=1 CANCELS=1'),
    ('a message is moved', 'STORED=1 MOVES=2 CANCELS=1 CRASHES=1'),
    ('one key', 'STORED=0 KEYED=3 CANCELS=1 CRASHES=1'),
]


def skipped(step):
    """What a claim leaves out of its range, for somebody has or had it locked."""
    return sum(1 << m for m in range(step.arg + 1) if step.st[m] == 'PLAIN' and m + 1 > step.frontier and not step.mine >> m & 1) if step.name == 'claim_rows' else 0


def some(name, fits=lambda step: True):
    return lambda steps: any(step.name == name and fits(step) for step in steps)


def skipped_and_opened(steps):
    left = 0
    for step in steps:
        left |= skipped(step)
        if step.name == 'look_opens' and step.arg & left:
            return True
    return False


# What is wrong in the SQL, the bounds and steps of a walk in which it shows, where it is planted: which text becomes which.
FENCE_MOVES = "if (select last_value from postdate.fence) < postdate.id_ms(ends) then perform setval('postdate.fence', postdate.id_ms(ends)); end if;"
MISTAKES = [
    ('who stores has no id when it reads the fence', ONE, some('store_id'), 'postdate.fence_for_store', ' := pg_current_xact_id()', ''),
    ('who cancels does not read the fence after the lock', ONE + 'CANCELS=1', some('too_late'),
     'postdate.message_lock', 'return postdate.message_stands(m);', 'm.next_at := m.due; return m;'),
    ('a claim does not move the fence', ONE, some('claim_fence'), 'postdate.claim_next', FENCE_MOVES, ''),
    ('a claim takes what is locked', ONE + 'CANCELS=1', some('claim_rows', skipped), 'batch_claim', "m.xmax::text <> '0'", 'false'),
    ('nothing looks after what a claim skipped', ONE + 'CANCELS=1', skipped_and_opened, 'postdate.late_look', 'unnest(b.skipped) i where', 'unnest(b.skipped) i where false and'),
    ('nothing looks after late commits', ONE, some('look_opens'), 'postdate.late_look', 'if newest is null', 'if true'),
    ('what a dead gateway had claimed waits again as new', ONE + 'CRASHES=1', some('release', lambda step: step.doubt), 'postdate.batch_release', "set state = 'claimed', next_at", 'set next_at'),
    ('a row that a dead gateway had claimed waits again as new', 'G=2 CRASHES=1 CANCELS=3', some('orphan'), 'instance_release', 'set owner = null', "set owner = null, state = 'scheduled'"),
    ('a range that was delivered stays open', ONE, some('done'), 'postdate.batch_settle', 'set done = true, settled_at', 'set settled_at'),
    ('what was refused stays its gateway\'s', 'REFUSALS=1', some('refused', lambda step: step.one), 'postdate.settle_other', 'owner = null, rate = null, next_at', 'rate = null, next_at'),
    ('who replaces does not read the fence after the lock', 'STORED=0 KEYED=3', some('key_late'), 'postdate.message_supersede', 'm := postdate.message_stands(m);', 'm.next_at := m.due;'),
    ('a key that is taken late is replaced', 'STORED=0 KEYED=3', some('key_refused'), 'postdate.key_decide', "if standing = 'claimed' then return; end if;", ''),
]


class Model(LiveTest):
    """On a PostgreSQL of its own: what a look waits for is any transaction of the server."""
    vhosts = 0
    weight = 40
    together = True
    time_limit_s = 1200

    @classmethod
    def setUpClass(cls):
        if not shutil.which('spin'):
            raise unittest.SkipTest('spin is not installed')
        cls.servers = OwnPostgres.own(cls.addClassCleanup, 'model').start()
        cls.servers.psql('alter system set autovacuum = off')
        cls.servers.psql('select pg_reload_conf()')

    def setUp(self):
        self.p = self.place(stack=self.servers)
        self.player = Player(self.p.postgres, int(self.p.value('select extract(epoch from now())::bigint * 1000 + 3600000')))
        self.addCleanup(self.player.close)

    def test_the_sql_takes_the_steps_of_the_model(self):
        """As many as there is time for, of each kind one at least."""
        known, steps, until = set(), 0, time.monotonic() + SECONDS
        for seed in range(1, WALKS + 1):
            for what, bounds in KINDS:
                one = walk(bounds, seed)
                names = tuple((step.pid, step.name, step.arg) for step in one)
                if names in known or seed > 1 and time.monotonic() > until:
                    continue
                known.add(names)
                with self.subTest(what, seed=seed):
                    steps += self.player.play(one)
        print(f'{len(known)} walks, {steps} steps', flush=True)

    def test_mistakes_in_the_sql_are_found(self):
        for what, bounds, shows, where, old, new in MISTAKES:
            one = next((steps for steps in (walk(bounds, seed) for seed in range(1, 3000)) if shows(steps)), None)
            self.assertIsNotNone(one, f'{what}: no walk has its steps')
            for step in one:
                self.player.session(step.pid)
            with self.subTest(what), self.player.mistake(where, old, new):
                try:
                    self.player.play(one)
                except Differs as e:
                    print(f'{what}: found: {str(e).splitlines()[0]}', flush=True)
                else:
                    self.fail('not found')
