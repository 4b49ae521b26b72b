"""A database with a million of what grows, and what each statement reads of it."""
import glob
import json
import os
import re

from harness import ROOT
from harness.postgres import Session, run_psql

# Messages of one kind, by their state: due {start} seconds from now on, one each {step} seconds.
ROWS = """
insert into postdate.message (due, next_at, settled_at, created_at, id, owner, rate, attempts, state, hold, exchange, routing_key, key, error, properties, body)
select d, {next_at}, {settled_at}, d - interval '1 day', postdate.id_make(d), {owner}, {rate}, {attempts}, '{state}', '{hold}', 'e' || i % 100, 'k', {key}, {error}, '', 'x'
  from generate_series(1, {rows}) i, lateral (select date_trunc('milliseconds', now()) + ({start} + i * {step}) * interval '1 s' as d) x"""
KINDS = (
    dict(rows=600000, start=-30000, step=0.05),                                                     # delivered, plain
    dict(rows=300000, start=0, step=0.1, key="case when i % 3 = 0 then 'key ' || i end"),           # scheduled, plain
    dict(rows=40000, start=-30000, step=0.5, state='delivered', next_at='d', settled_at='d', attempts=1),
    dict(rows=20000, start=-20000, step=0.5, state='cancelled', next_at='d', settled_at='d'),
    dict(rows=10000, start=-20000, step=0.5, state='superseded', next_at='d', settled_at='d'),
    dict(rows=5000, start=-20000, step=0.5, state='failed', next_at='d', settled_at='d', attempts=9, error="'no'"),
    dict(rows=20000, start=1, step=0.5, next_at='d'),
    dict(rows=5000, start=-600, step=0.1, next_at="now() + interval '1 hour'", attempts=1, error="'no'"),
    dict(rows=20000, start=2, step=0.5, hold='b', next_at='d'),
    dict(rows=20000, start=1, step=0.5, state='handed', hold='b', next_at="d + interval '5 s'"),
    dict(rows=2000, start=-10, step=0.001, state='claimed', next_at='d', owner='1'),
    dict(rows=2000, start=-10, step=0.001, state='claimed', next_at='d', owner='999'),
    dict(rows=20000, start=-100, step=0.001, next_at="'infinity'", rate='1 + i % 100'),
)
OTHERS = """
insert into postdate.batch (owner, from_id, to_id, settled_at, done, snapshot)
select 1, postdate.id_floor(t), postdate.id_floor(t + interval '49 ms'), t, true, pg_current_snapshot()
  from generate_series(1, {n}) i, lateral (select now() - interval '50000 s' + i * interval '49.9 ms' as t) x
on conflict do nothing;
insert into postdate.batch (owner, from_id, to_id, snapshot)
select case when i % 2 = 0 then 1 else 999 end, postdate.id_floor(t), postdate.id_floor(t + interval '9 ms'), pg_current_snapshot()
  from generate_series(1, {few}) i, lateral (select now() - interval '90 ms' + i * interval '10 ms' as t) x;
update postdate.late_mark set upto = b.to_id, looked = least(looked, b.from_id) from (select min(x.from_id::text)::uuid as from_id, max(x.to_id::text)::uuid as to_id from (select from_id, to_id from postdate.batch order by id desc limit {few}) x) b;
insert into postdate.moved (id, first_id) select postdate.id_make(now() + i * interval '1 ms'), postdate.id_make(now()) from generate_series(1, {n}) i;
update postdate.moved m set first_id = m.id, latest_id = x.id
  from (select id from postdate.moved limit 1) x where m.id in (select id from postdate.moved offset 1 limit {n} / 10);
insert into postdate.key (exchange, key, due, id) select exchange, key, due, id from postdate.message where key is not null on conflict do nothing;
insert into postdate.key (exchange, key, due, id) select 'e', 'other ' || i, now() + i * interval '1 s', postdate.id_make(now() + i * interval '1 s') from generate_series(1, {n}) i on conflict do nothing;
insert into postdate.intake_batch (consumer, message_ids, ids) select i % 16, array['m' || i], array[gen_random_uuid()] from generate_series(1, {n} / 50) i;
insert into postdate.idempotency (principal, key, body_hash, status, created_at) select '', 'i' || i, sha256('x'), 201, now() - i * interval '10 ms' from generate_series(1, {n} / 5) i on conflict do nothing;
insert into postdate.lineage (id, message, expires_at, died_at, failed, queue, exchange, routing_key, reason, hash, failed_at, reasons, refusals)
select postdate.id_make(t), case when i % 2 = 0 then gen_random_uuid() end, t + interval '30 days', case when i % 2 = 1 then t end, 3, 'q' || i % 100, 'e', 'k', 'rejected', sha256('x'), array[t], '{{rejected}}', '{{}}'
  from generate_series(1, {n} / 5) i, lateral (select now() - i * interval '1 s' as t) x;
insert into postdate.slo_count (at, grain, writer, delivered, late, again, again_late, again_later)
select date_trunc('minute', now()) - i / 100 * interval '1 min', 60, i % 100, 1, 0, 0, 0, 0 from generate_series(1, least(40000, {n})) i on conflict do nothing;
insert into postdate.import (id, node, run, due, message, hash, source, exchange, routing_key, properties, body)
select postdate.id_make(now() + i * interval '1 s'), 'n', 'r', now(), case when i % 2 = 0 then gen_random_uuid() end, '', 'x', 'x', 'k', '', '' from generate_series(1, {n} / 10) i;
insert into postdate.forecast (at, exchange, n, minutes) select date_trunc('hour', now()) + i % 1000 * interval '1 hour', 'e' || i % 100, 60, array_fill(1, '{{60}}') from generate_series(1, {n} / 20) i on conflict do nothing;
insert into postdate.handing (owner, ids) select 1, array(select id from postdate.message where state = 'handed' limit 100) from generate_series(1, {few});
insert into postdate.recur_change (name, who, what) select 'r' || i % 10000, 'x', 'set' from generate_series(1, {n} / 20) i;
"""


def fill(p, share):
    """share: 1 a million, 0.001 the first rows."""
    with_defaults = dict(next_at='null', settled_at='null', owner='null', rate='null', attempts=0, state='scheduled', hold='g', key='null', error='null')
    for kind in KINDS:
        k = dict(with_defaults, **kind)
        k['rows'] = max(1, int(k['rows'] * share))
        p.psql(ROWS.format(**k))
    for statement in OTHERS.format(n=int(1000000 * share), few=max(1, int(20 * share))).split(';\n'):
        if statement.strip():
            p.psql(statement)


# All messages are in one partition, at whichever time of the day this runs: a plan hangs on how large one is. It has the name of yesterday's month.
ONE_PARTITION = """
do $$
declare
    begins timestamptz := date_trunc('day', now(), 'UTC') - interval '1 day';
    name text := to_char(begins at time zone 'UTC', '"message_"YYYYMM');
    part regclass;
begin
    for part in select i.inhrelid::regclass from pg_inherits i where i.inhparent = 'postdate.message'::regclass loop
        execute format('drop table %s', part);
    end loop;
    execute format('create table postdate.%I (like postdate.message including all)', name);
    execute format('alter table postdate.message attach partition postdate.%I for values from (%L) to (%L)', name, postdate.id_floor(begins), postdate.id_floor(begins + interval '4 days'));
end $$"""


def set_rates(p):
    p.psql("insert into postdate.rate (exchange, routing_key, per_second, burst) select 'e' || i, '*', 10, 1 from generate_series(1, 100) i")
    p.psql("insert into postdate.instance (running_since, backend_pid, version, name) values (now(), 1, 1, 'g')")


def begin_now(p):
    """What is plain and due by now has been claimed."""
    p.psql("insert into postdate.batch (owner, from_id, to_id, done) select 0, f.to_id, postdate.id_ceiling(now()), true from postdate.frontier f where f.to_id < postdate.id_ceiling(now()); select setval('postdate.fence', floor(extract(epoch from now()) * 1000)::bigint)")


def set_schedules(p, count):
    """Due in about 12 hours, and each day: as long as this runs, none of them comes."""
    p.psql("select count(postdate.recur_set('r' || i, to_char(now() at time zone 'UTC' + interval '12 hours', 'MI HH24 \"* * *\"'), 'k', 'x'::text, exchange => 'e')) from generate_series(1, %d) i" % count)


def session_settings():
    """What the gateways' sessions run with."""
    with open(os.path.join(ROOT, 'sql', 'connection', 'pg_session.c'), encoding='utf-8') as f:
        setup = f.read().split('session_setup[] =', 1)[1].split('static ', 1)[0]
    return [s for s in re.findall(r'set [a-z_]+ = [^;"]+;', setup) if 'PG_LOCK' not in s and 'client_min' not in s]


def settings_by_index():
    """What pg_begin_by_index sets, for statements that say that they run in such a transaction."""
    with open(os.path.join(ROOT, 'sql', 'connection', 'pg.c'), encoding='utf-8') as f:
        return re.findall(r'set local enable_[a-z_]+ = off', f.read())


def statements():
    """{name: its text}"""
    found = {}
    for path in sorted(glob.glob(os.path.join(ROOT, 'sql', 'query', '*.sql'))):
        with open(path, encoding='utf-8') as f:
            found[os.path.basename(path)[:-4]] = f.read()
    return found


def types_of(text):
    """Of the parameters, in order."""
    code = re.sub(r'--.*', '', text)
    found = dict(re.findall(r'\$(\d+)::([a-z_0-9]+(?:\[\])?)', code))
    most = max([int(n) for n in re.findall(r'\$(\d+)', code)], default=0)
    return [found.get(str(n), 'text') for n in range(1, most + 1)]


def forget_statistics(superuser):
    run_psql(superuser, "delete from pg_statistic s using pg_class c where c.oid = s.starelid and c.relnamespace = 'postdate'::regnamespace; "
                        "update pg_class set reltuples = -1, relpages = 0 where relnamespace = 'postdate'::regnamespace and relkind in ('r', 'i')")


class Read:
    """What a statement read, with what the functions did that it calls. rows: that came out of a table, an index or another part of the
    statement, or were thrown away there."""

    def __init__(self, output):
        self.plans, self.rows = [], 0
        decoder = json.JSONDecoder()
        for at in re.finditer(r'^[\[{]$', output, re.M):
            plan, _ = decoder.raw_decode(output[at.start():])
            self.plans.append(plan[0] if isinstance(plan, list) else plan)
        for plan in self.plans:
            self.visit(plan['Plan'])
        outer = self.plans[-1]['Plan'] if self.plans else {}
        self.buffers = outer.get('Shared Hit Blocks', 0) + outer.get('Shared Read Blocks', 0)

    def visit(self, node):
        parts = node.get('Plans', [])
        loops = node.get('Actual Loops', 1)
        removed = sum(node.get(f'Rows Removed by {x}', 0) for x in ('Filter', 'Join Filter', 'Index Recheck'))
        self.rows += loops * (removed + (0 if parts else node.get('Actual Rows', 0)))
        for part in parts:
            self.visit(part)

    def __str__(self):
        return f'{self.rows} rows, {self.buffers} buffers'


class Explainer:
    """A session that runs with the gateways' settings and says what each statement read; it changes nothing for long."""

    def __init__(self, superuser):
        self.session = Session(superuser)
        for s in ["load 'auto_explain'", *session_settings(), "set auto_explain.log_level = 'notice'", 'set auto_explain.log_nested_statements = on',
                  'set auto_explain.log_analyze = on', 'set auto_explain.log_buffers = on', 'set auto_explain.log_timing = off',
                  "set auto_explain.log_format = 'json'", "set client_min_messages = 'notice'"]:
            self.session.run(s.rstrip(';'))

    def read(self, name, text, values, pins=()):
        """pins: settings of the transaction. Raises what PostgreSQL says is wrong."""
        types = types_of(text)
        self.session.run(f'prepare {name} ({", ".join(types)}) as {text}' if types else f'prepare {name} as {text}')
        arguments = f'({", ".join(values)})' if types else ''
        for s in ['begin', *pins, 'set local auto_explain.log_min_duration = 0']:
            self.session.run(s)
        lines = self.session.run(f'explain (analyze, buffers, timing off, format json) execute {name}{arguments}')
        self.session.run('rollback')
        self.session.run(f'deallocate {name}')
        output = '\n'.join('\t'.join(line) for line in lines)
        if 'ERROR:' in output:
            raise AssertionError(f'{name}: ' + output[output.index('ERROR:'):][:400])
        return Read(output)

    def close(self):
        self.session.close()
