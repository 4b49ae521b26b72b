"""Walks of tests/model/held.pml, and the sessions on which model_kit plays them."""
import os
import re
import subprocess
import tempfile

from harness import ROOT, slowness
from steps_kit import DEADLINE_S, Stepped
from store_kit import query_text


MODEL = os.path.join(ROOT, 'tests', 'model', 'held.pml')
QUERIES = ('claim', 'batch_next', 'batch_claim', 'batch_again', 'batch_read', 'batch_settle', 'settle_lock', 'settle_delivered', 'settle_other', 'history_delivered',
           'instance_register', 'instance_reap', 'instance_release', 'instance_release_lock')
# Before which text of which function a session pauses. Where the text is there more than once, each of them.
PAUSES = [
    ('postdate.fence_for_store', 'return (select', 'store.id'),
    ('postdate.message_lock', 'select * into m from postdate.message x', 'lock.row'),
    ('postdate.message_lock', 'exit when m.state', 'lock.fence'),
    ('postdate.message_supersede', 'select * into m from postdate.message x', 'replace.row'),
    ('postdate.message_supersede', 'm := postdate.message_stands(m);', 'replace.fence'),
    ('postdate.key_decide', "standing := postdate.key_standing(holder, key_memory_ms);\n            continue when standing = 'live'", 'key.again'),
    ('postdate.key_decide', "if standing = 'live' and not", 'key.decided'),
    ('postdate.key_decide', 'perform from postdate.key k', 'key.wanted'),
    ('postdate.key_decide', "standing := postdate.key_standing(holder, key_memory_ms);\n        if standing <> 'free'", 'key.found'),
    ('postdate.key_decide', "standing := postdate.key_standing(holder, key_memory_ms);\n        continue when standing <> 'free'", 'key.looks'),
    ('postdate.key_decide', 'standing := null;\n        insert', 'key.begins'),
    ('postdate.claim_next', 'if (select last_value from postdate.fence) <', 'claim.fence'),
    ('postdate.claim_pass', 'if (select last_value from postdate.fence) <', 'pass.fence'),
    ('postdate.claim_pass', 'insert into postdate.batch', 'pass.note'),
    ('postdate.late_look', 'if newest is null', 'look.newest'),
    ('postdate.late_look', 'running := pg_current_snapshot();', 'look.mark'),
    ('postdate.late_look', 'for b in select x.from_id, x.to_id, x.snapshot, x.skipped', 'look.running'),
    ('postdate.late_look', 'stays := postdate.late_open(', 'look.finds'),
    ('postdate.late_open', 'if not exists (select from postdate.rate', 'look.locks'),
    ('postdate.batch_release', 'locked := array', 'release.locks'),
]
POINTS = sorted({point for _, _, point in PAUSES})
STEP = re.compile(r'^\s*STEP +(.*)$', re.M)


class Differs(AssertionError):
    """The database does not do, or is not, what the model says."""


class Step:
    """What spin printed of one: by which process (its pid), its name, which message or claim it is about; the variables after it."""

    def __init__(self, line):
        head, tail = (part.split() for part in line.split('|'))
        self.pid, self.name = int(head[0]), head[1]
        self.arg, self.me, self.mine, self.one, self.doubted = ([int(word) for word in head[2:]] + [0] * 4)[:5]
        n = [int(word) for word in tail[3:]]
        self.st, self.owner, (self.doubt, self.delivered, self.fence, self.frontier) = tail[:3], n[:3], n[3:7]
        self.b_is, self.b_done, self.b_back = n[7:10]
        self.b_from, self.b_owner, self.b_took, self.b_settled = n[10:13], n[13:16], n[16:19], n[19:22]
        self.looked, self.upto, self.late, self.table, self.lives = n[22:27]

    def claim_of(self, m):
        return next((b for b in range(m, 3) if self.b_is >> b & 1), None)

    def seen(self, m):
        """The state that users see."""
        st, b = self.st[m], self.claim_of(m)
        if st == 'PLAIN':
            if m + 1 > self.fence:
                return 'scheduled'
            took = b is not None and self.b_took[b] >> m & 1
            return 'delivered' if took and (self.b_settled[b] >> m & 1 or self.b_done >> b & 1) else 'claimed'
        if st in ('OPEN', 'WAITS'):
            return 'claimed' if self.doubt >> m & 1 else 'scheduled'
        return 'claimed' if st == 'OWNED' else st.lower()


def walk(bounds, seed):
    """The steps of one order, at random."""
    words = [f'-D{word}' for word in bounds.split()]
    with tempfile.TemporaryDirectory(prefix='postdate-model-') as folder:
        said = subprocess.run(['spin', '-T', f'-n{seed}', '-DSTEPS', *words, MODEL], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
    return [Step(line) for line in STEP.findall(said) if '|' in line]


class Session:
    """One process of the model: a session that goes on up to a pause, or the end of what it was told."""

    def __init__(self, url, number, controller):
        self.stepped, self.number, self.controller, self.at, self.open, self.busy = Stepped(url, number), number, controller, None, False, False
        for name in QUERIES:
            self.stepped.run(f'prepare {name} as {query_text(name)}')
        self.stepped.run(f"set test.points = '{','.join(POINTS)}'")
        self.locks(POINTS)
        self.passed = []

    def locks(self, points):
        self.controller.run('select ' + ', '.join(f"pg_advisory_lock({self.number}, hashtext('{point}'))" for point in points))

    def start(self, sql, *points):
        self.passed = []
        self.tell(sql)
        self.open = sql.startswith('begin') or self.open
        return self.hear(points)

    def go(self, *points):
        """On, past other points, to one of these or the end; which of them. Where it has ended, there it is."""
        return self.on(points) if self.at else 'end'

    def on(self, points):
        point, self.at = self.at, None
        self.controller.run(f"select pg_advisory_unlock({self.number}, hashtext('{point}'))")
        return self.hear(points, point)

    def hear(self, points, left=None):
        for _ in range(int(DEADLINE_S * slowness() / 0.2)):
            what = self.stepped.hear(0.2)
            if what is not None:
                break
            if self.controller.run(f"select from pg_locks where not granted and locktype <> 'advisory' and pid = {self.stepped.pid}"):
                raise Differs('the session waits for somebody')
        else:
            raise AssertionError('no answer')
        if left:
            self.locks([left])
        if what == 'end':
            self.busy = False
            return what
        self.at = what
        self.passed.append(what)
        return what if what in points else self.on(points)

    def tell(self, sql):
        self.busy = True
        self.stepped.begin(sql)

    def run(self, sql):
        self.tell(sql)
        if self.hear(()) != 'end' or self.stepped.error():
            raise Differs(f'{sql}: {self.stepped.error()}')
        return self.stepped.rows

    def ends(self, how):
        """Commits or rolls back, wherever it is."""
        if self.busy:
            self.controller.run(f'select pg_cancel_backend({self.stepped.pid})')
            while (what := self.stepped.hear(DEADLINE_S)) != 'end':
                if what is None:
                    raise AssertionError('a session does not end')
            self.at, self.busy = None, False
        self.stepped.run(how, may_fail=True)
        self.open = False
