"""What gateways and callers ask of the store, in SQL, and what must come of it."""
import os

from harness import ROOT

RELEASE = "select postdate.batch_release(null, '{}', '{}', 500)"
LOOK = "select postdate.late_look('{}', '{}')"
# Ranges in which there may be rows, but for those of transactions that run, in whichever database.
NOT_LOOKED_AT = "select (select count(*) from postdate.late) + (select count(*) from postdate.late_mark k, postdate.frontier f where k.looked < f.to_id)"
COMMITTED, REPEATABLE = 'read committed', 'repeatable read'


def insert(one, fence):
    return ("insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body) "
            f"select d, postdate.next_at_of(d, 'g', {fence}), '{one}', 'g', 'x', 'k', '', '' from postdate.id_due('{one}') d")


def keep_claims(count, step_ms):
    """Claims that are done and kept: one each step_ms, up to an hour ago."""
    return ("insert into postdate.batch (owner, from_id, to_id, settled_at, done, snapshot) "
            f"select 1, postdate.id_floor(d - interval '{step_ms} ms'), postdate.id_floor(d), d, true, '5:5:' "
            f"from generate_series(1, {count}) ago, lateral (select now() - interval '1 h' - ago * interval '{step_ms} ms') x (d)")


def query_text(name):
    with open(os.path.join(ROOT, 'sql', 'query', name + '.sql'), encoding='utf-8') as f:
        return f.read()


def prepare(run, *names):
    for name in names:
        run(f'prepare {name} as ' + query_text(name))


def make_claim(run):
    """A function of the two statements with which a gateway claims (batch_claim in sql/pipeline/batch.c), each with a snapshot of its own."""
    read = query_text('batch_claim').replace('$1', 'begins').replace('$2', 'ends').replace('$3', 'instance_id')
    run(f"""
create schema if not exists test;
create function test.claim(horizon timestamptz, rows_max integer, bytes_max bigint, instance_id integer)
returns table (due timestamptz, id uuid, next_at timestamptz, doubt boolean, attempts integer, hold "char", exchange text, routing_key text, key text, properties bytea,
               body bytea, isolate boolean, properties_json text, clock timestamptz, deadline timestamptz, aside boolean, kept boolean, batch bigint, claimed_at timestamptz)
language plpgsql set search_path = pg_catalog, pg_temp set plan_cache_mode = force_custom_plan as $claim$
#variable_conflict use_column
declare
    begins uuid;
    ends uuid;
    before uuid;
begin
    loop
        select c.begins, c.ends into begins, ends from postdate.claim_next(horizon, rows_max, bytes_max) c;
        if ends is null or ends = before then return; end if;
        before := ends;
        return query {read};
        exit when found;
    end loop;
end $claim$""")


class Result:
    """What was stored, cancelled and claimed, as each session heard it. claims: id, owner, whether it was said to be in doubt; in the
    order of the claims, with an owner None where one was put back. delivered: by owners that died then."""

    def __init__(self, stored=()):
        self.stored, self.cancelled, self.claims, self.errors, self.dead, self.delivered = list(stored), set(), [], [], set(), set()

    def store(self, ids, end):
        self.stored += ids if end == 'commit' else []

    def put_back(self, ids):
        """Before the statement that does it: from its commit on others may claim them."""
        self.claims += [(one, None, False) for one in ids]

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
                if owners and owners[-1][0] is not None:
                    yield 'claimed, though cancelled'
            elif not owners or owners[-1][0] is None or owners[-1][0] in self.dead and one not in self.delivered:
                yield 'never claimed'
            else:
                yield from self.faults_of(owners)

    def faults_of(self, owners):
        if owners[0][1]:
            yield 'in doubt, though nobody had it'
        for (before, _), (owner, doubt) in zip(owners, owners[1:]):
            if before is None:
                if doubt:
                    yield 'in doubt, though it was put back'
            elif owner is None:
                continue
            elif before not in self.dead:
                yield 'claimed twice'
            elif not doubt:
                yield 'claimed as new, though it was in doubt'
