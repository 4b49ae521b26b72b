"""Every statement of sql/query over a million of what grows: it reads what it is about, whatever PostgreSQL believes of the tables."""
import sys

import plan_kit
import plan_values
import harness
from harness import LiveTest
from harness.postgres import postgres_url, run_psql

ROWS, BUFFERS = 30000, 25000
# What reads more, and why that is meant.
MORE_ROWS = {
    'batch_claim': (300000, 'a hundred rates are looked through for each row'),
    'claim_handed_count': (50000, 'counts 20,000 that RabbitMQ holds'),
    'claim_once_left': (200000, 'counts what is left'),
    'forecast_count': (60000, 'a piece of 10,000'),
    'forecast_minutes': (80000, 'counts 20,000 that wait for slots'),
    'forecast_state': (200000, 'the minutes of a hundred writers'),
    'handing_claim': (200000, 'as batch_claim'),
    'handing_lost': (200000, 'writes all 20,000 that RabbitMQ has lost'),
    'health_room': (500000, 'doctor counts dead letters to 100,000'),
    'history_delivered': (60000, 'each id that it is told, and its batch'),
    'import_drop': (150000, 'reading all of its table costs what 200 look-ups cost'),
    'import_known': (250000, 'as import_drop'),
    'import_lock': (250000, 'as import_drop'),
    'import_proof': (250000, 'as import_drop'),
    'import_read': (250000, 'as import_drop'),
    'migrate_batch_restored': (1500000, 'writes all rows, once after a restore'),
    'prune_keys': (250000, 'asks 16,000 keys of a day how their messages stand'),
    'rate_ask': (100000, 'counts 20,000 that wait for slots'),
    'rates': (100000, 'as rate_ask'),
    'recur_clock': (400000, 'what is tried again, each schedule, claim and Idempotency-Key, where the clock was set back and never else'),
    'recur_claim': (60000, 'a thousand schedules, step by step'),
    'recur_claim_each': (200000, 'the same, one by one'),
    'slo_read': (200000, 'the minutes of a hundred writers'),
    'status_scheduled': (60000, 'reads past what is settled behind the frontier'),
    'status_waiting': (250000, 'as status_scheduled, and what falls due while this test runs'),
    'store_batch_prune': (150000, 'each note of the intake, once a minute'),
    'store_dedupe_candidates': (120000, 'each note of the intake, once a batch that has redeliveries'),
}
MORE_BUFFERS = {
    'batch_claim': 120000, 'claim_once_left': 80000, 'forecast_minutes': 80000, 'handing_lost': 800000, 'migrate_batch_restored': 3500000, 'prune_keys': 100000,
    'rate_ask': 110000, 'rates': 110000, 'recur_claim': 150000, 'recur_clock': 250000, 'status_waiting': 100000, 'recur_claim_each': 150000,
}
NOT_PREPARED = {'migrate_meta_create'}


@harness.only_full  # what the server analyses by itself meanwhile decides with how long it takes; PostgreSQL 17 was not tried
class LargePlans(LiveTest):
    weight = 60
    time_limit_s = 900

    def fill(self):
        p = self.place()
        superuser = postgres_url(p.stack.postgres, p.database).replace('user=postdate', 'user=postgres')
        p.psql(plan_kit.ONE_PARTITION)
        run_psql(superuser, "do $$ declare r record; begin for r in select oid::regclass as t from pg_class where relnamespace = 'postdate'::regnamespace and relkind = 'r' "
                            "loop execute format('alter table %s set (autovacuum_enabled = off)', r.t); end loop; end $$")
        plan_kit.set_rates(p)
        plan_kit.fill(p, 0.001)
        plan_kit.set_schedules(p, 100)
        p.psql('analyze')
        plan_kit.fill(p, 1)
        plan_kit.set_schedules(p, 10000)
        plan_kit.begin_now(p)
        return p, superuser

    def values(self, explainer, name, text):
        types = plan_kit.types_of(text)
        expressions = plan_values.VALUES.get(name) or [plan_values.DEFAULTS[t] for t in types]
        self.assertEqual(len(expressions), len(types), f'{name}: parameters in plan_values.py')
        if not types:
            return []
        found = explainer.session.run('select ' + ', '.join(f'quote_nullable(({x})::{t}::text)' for x, t in zip(expressions, types)))[0]
        return [f'{v}::{t}' for v, t in zip(found, types)]

    def faults(self, superuser, statistics):
        explainer = plan_kit.Explainer(superuser)
        by_index = plan_kit.settings_by_index()
        self.assertEqual(len(by_index), 6)
        everything = {n: t for n, t in plan_kit.statements().items() if n not in NOT_PREPARED} | plan_values.FUNCTIONS
        for name, text in everything.items():
            try:
                read = explainer.read(name, text, self.values(explainer, name, text), by_index if 'by_index.' in text else ())
            except AssertionError as e:  # all of them in one run, for the fill takes most of it
                yield str(e)
                continue
            print(f'    {statistics}: {name}: {read}', file=sys.stderr)
            if read.rows > MORE_ROWS.get(name, (ROWS,))[0] or read.buffers > MORE_BUFFERS.get(name, BUFFERS):
                yield f'{name}, statistics {statistics}: {read}'
        explainer.close()

    def test_each_statement_reads_what_it_is_about(self):
        p, superuser = self.fill()
        faults = list(self.faults(superuser, 'of the first rows'))
        plan_kit.forget_statistics(superuser)
        faults += self.faults(superuser, 'none')
        p.psql('analyze')
        faults += self.faults(superuser, 'of today')
        self.assertEqual(faults, [])
