"""What gateways and callers ask of the store, in SQL, and what must come of it."""
import os

from harness import ROOT

RELEASE = "select postdate.batch_release(null, '{}', '{}', 500)"
LOOK = "select postdate.late_look('{}', '{}')"
COMMITTED, REPEATABLE = 'read committed', 'repeatable read'


def insert(one, fence):
    return ("insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body) "
            f"select d, postdate.next_at_of(d, 'g', {fence}), '{one}', 'g', 'x', 'k', '', '' from postdate.id_due('{one}') d")


def prepare(run, *names):
    for name in names:
        with open(os.path.join(ROOT, 'sql', 'query', name + '.sql'), encoding='utf-8') as f:
            run(f'prepare {name} as ' + f.read())


class Result:
    """What was stored, cancelled and claimed, as each session heard it. claims: id, owner, whether it was said to be in doubt; in the
    order of the claims. delivered: by owners that died then."""

    def __init__(self, stored=()):
        self.stored, self.cancelled, self.claims, self.errors, self.dead, self.delivered = list(stored), set(), [], [], set(), set()

    def store(self, ids, end):
        self.stored += ids if end == 'commit' else []

    def faults(self):
        claims = {one: [] for one in self.stored}
        for one, owner, doubt in self.claims:
            if one not in claims:
                yield 'claimed, though not stored'
            else:
                claims[one].append((owner, doubt))
        yield from self.errors
        for one, owners in claims.items():
            if one in self.cancelled:
                if owners:
                    yield 'claimed, though cancelled'
            elif not owners or owners[-1][0] in self.dead and one not in self.delivered:
                yield 'never claimed'
            else:
                yield from self.faults_of(owners)

    def faults_of(self, owners):
        if owners[0][1]:
            yield 'in doubt, though nobody had it'
        for (before, _), (_, doubt) in zip(owners, owners[1:]):
            if before not in self.dead:
                yield 'claimed twice'
            elif not doubt:
                yield 'claimed as new, though it was in doubt'
