"""From one release to the next while messages flow (docs/operations.md, "Upgrade Postdate"). The next one is made of the same sources, and
its schema has a step more: tests/schema."""
import json
import re

import harness
from harness import LiveTest, wait_until
from web import Web

NEXT = 'tests/next'
RATE = 100 if harness.SAN else 500
SECONDS = 50
LEASE_MS = 10_000


class Upgrade(LiveTest):
    weight = 80
    time_limit_s = 900

    def wait_delivered(self, seconds):
        """As many more as are due in that time."""
        delivered = "select count(*) from postdate.message_now where state = 'delivered'"
        least = int(self.p.value(delivered)) + self.rate * seconds
        wait_until(lambda: int(self.p.value(delivered)) >= least or self.publisher.process.poll() is not None, 60, f'{self.rate * seconds} more to be delivered', 0.3)

    def migrate_beside_a_reader(self):
        """It gives way each time, so the reader holds up nothing else; and it says whom it waits for."""
        reader = self.p.session()
        reader.run("set application_name = 'a report'; begin; select count(*) from postdate.message where id is null")
        pid = int(reader.run('select pg_backend_pid()')[0][0])
        migration = self.p.start_cli('migrate', release=NEXT)
        self.assertRegex(migration.stderr.readline().decode(),
                         rf'held by pid {pid} of \w+ \(a report\), idle in transaction, its query began at \d\d:\d\d:\d\dZ')
        self.wait_delivered(5)
        reader.run('rollback')
        out, err = migration.communicate(timeout=60 * harness.slowness())
        self.assertEqual((migration.returncode, 'version 2 (upgraded from version 1' in out.decode()), (0, True), err)
        self.assert_indexed()

    def assert_indexed(self):
        """All of each partition, and of each month's table."""
        lacking = "select count(*) from pg_index where indexrelid::regclass::text ~ 'next_step' and not indisvalid"
        tables = "select count(*) from pg_class where relnamespace = 'postdate'::regnamespace and relname ~ '^message_.*[0-9]$' and relkind in ('r', 'p')"
        built = "select count(*) from pg_class where relname ~ 'next_step' and relname <> 'message_next_step' and relkind in ('i', 'I')"
        self.assertEqual((self.p.value(lacking), self.p.value(built)), ('0', self.p.value(tables)))

    def replace(self, gateway, release):
        """As a service does: it stops, then the other program starts."""
        self.assertEqual(gateway.term(), 0)
        other = self.p.gateway(release=release)
        self.wait_delivered(3)
        return other

    def use(self, release):
        """What reaches the database by other ways than AMQP."""
        p = self.p
        for args in (('schedule', '-k', 'other', '--key', 'one', '--delay', '1h', '--body', 'x'), ('cancel', '--key', 'one'), ('list',), ('status',), ('migrate',)):
            rc, out, err = p.cli(*args, release=release)
            self.assertEqual(rc, 0, (release, args, out, err))

    @harness.given_time
    def test_schema_first_then_one_gateway_after_the_other_and_one_back(self):
        p = self.p = self.place()
        gateways = [p.gateway(), p.gateway()]
        self.use('')
        count, self.rate = RATE * SECONDS, RATE // self.pace
        inbox = p.load('consume', '--queue', 'q', '--exchange', 'postdate.delivery', '--bind', 'k', '--expect', count,
                       '--timeout-s', 60 + SECONDS * self.pace, '--idle-s', 2).wait_consuming()
        self.publisher = p.load('publish', '--routing-key', 'k', '--count', count, '--rate', self.rate, '--delay-spread-ms', '300,6000',
                                '--timeout-s', 60 + SECONDS * self.pace)
        self.wait_delivered(2)
        self.migrate_beside_a_reader()
        self.use('')
        gateways[0] = self.replace(gateways[0], NEXT)
        gateways[1] = self.replace(gateways[1], NEXT)
        gateways[0] = self.replace(gateways[0], '')
        if self.publisher.process.poll() is not None:
            raise harness.TooSlow('the load ended before the upgrade')
        self.use(NEXT)
        sent, r = self.publisher.result(60 + SECONDS * self.pace), inbox.result(60 + SECONDS * self.pace)
        print(f"note upgrade: {sent['sent']} messages at {sent['rate']}/s: lost {r['missing']}, early {r['early']}, twice {r['duplicates']}, "
              f"lateness p50 {r['p50_ms']:.0f}, p99 {r['p99_ms']:.0f}, most {r['max_ms']:.0f} ms", flush=True)
        self.assertEqual((r['missing'], r['early'], r['duplicates'], r['unexpected']), (0, 0, 0, 0), r)
        self.assertEqual([g.term() for g in gateways], [0, 0])
        taken_over = [line for g in p.gateways for line in g.lines_with('took over from')]
        self.assertEqual(taken_over, [], 'what stopped left something behind')
        if r['max_ms'] > LEASE_MS * harness.slowness():
            raise harness.TooSlow(f"late by {r['max_ms']:.0f} ms")

    def assert_versions(self, web, release, *versions):
        """Everything that shows gateways has theirs, and says whether they differ."""
        p = self.p
        shown = ', '.join(versions)

        def seen():
            o = web.get('/v1/overview').json
            return sorted(g['version'] for g in o['gateways'] if g['alive']) == sorted(versions) and o
        overview = wait_until(seen, 30, f'the overview to have {shown}')
        differ = [f for f in overview['findings'] if f['name'] == 'gateways.versions']
        status = json.loads(p.cli('status', '--json', release=release)[1])
        self.assertEqual([g['version'] for g in status['gateways'] if g['alive']], list(versions))
        text = p.cli('status', release=release)[1]
        for version in versions:
            self.assertRegex(text, rf'  alive, .*started .*\n +version {re.escape(version)}\n')
        (doctor,) = [f for f in json.loads(p.cli('doctor', '--json', release=release)[1])['checks'] if f['check'] == 'gateways']
        if len(versions) == 1:
            self.assertEqual((differ, status['findings'], doctor['status']), ([], [], 'ok'), doctor)
            self.assertRegex(text, r'(?m)^health +ok$')
            return
        self.assertEqual([(f['severity'], f['text']) for f in differ], [('warn', f'gateways run different versions: {shown}')])
        self.assertIn('finish the upgrade', differ[0]['remedy'])
        self.assertEqual(([f['name'] for f in status['findings']], doctor['status']), (['gateways.versions'], 'warn'), doctor)
        self.assertIn(f'2 alive, of different versions: {shown}', doctor['detail'])
        self.assertIn('finish the upgrade', doctor['remedy'])
        self.assertRegex(text, r'(?m)^health +gateways run different versions: see postdate doctor$')

    def test_two_versions_side_by_side_are_said_until_one_is_left(self):
        p = self.p = self.place()
        ours, later = (p.cli('--version', release=r)[1].split()[1] for r in ('', NEXT))
        one = p.gateway()
        self.assert_versions(Web(one.http()), '', ours)
        self.assertEqual(p.cli('migrate', release=NEXT)[0], 0)
        two = p.gateway(release=NEXT)
        self.assert_versions(Web(one.http()), '', ours, later)
        self.assert_versions(Web(two.http()), NEXT, ours, later)
        self.assertEqual(one.term(), 0)
        self.assert_versions(Web(two.http()), NEXT, later)
        self.assertEqual(two.term(), 0)

    def test_who_is_too_old_or_too_new_says_so_and_keeps_nothing(self):
        p = self.p = self.place()
        early = p.gateway(wait=False, release=NEXT)
        self.assertEqual(early.wait(), 78)
        self.assertEqual(len(early.lines_with('schema postdate is at version 1, this program needs 2: run `postdate migrate`')), 1)
        g = p.gateway(POSTDATE_DELIVERY_LEAD='60s')
        inbox = p.consumer('q', declare=True, bind='k')
        p.load('publish', '--routing-key', 'k', '--count', 100, '--delay-ms', 9000).result()
        wait_until(lambda: p.claimed() + p.counts().get('handed', 0) == 100, 15, 'all to be claimed or handed over')
        self.assertEqual(p.cli('migrate', release=NEXT)[0], 0)
        p.psql('update postdate.meta set version = 3, oldest_gateway = 2')
        p.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'postdate %' and datname = '{p.database}'")
        self.assertEqual(g.wait(30), 78, g.log())
        self.assertEqual(len(g.lines_with('at version 3, for programs of version 2 or newer, and this one has version 1')), 1, g.log())
        refused = p.gateway(wait=False)
        self.assertEqual((refused.wait(), p.cli('migrate')[0], p.cli('list')[0]), (78, 78, 78))
        p.gateway(release=NEXT)
        inbox.wait(100, 30)
        self.assertEqual(len({m.id for m in inbox.all()}), len(inbox.all()))

    def test_no_step_leaves_a_running_gateway_behind(self):
        p = self.p = self.place()
        g = p.gateway()
        p.psql('update postdate.instance set version = 0')
        rc, _, err = p.cli('migrate', release=NEXT)
        self.assertEqual((rc, p.value('select version from postdate.meta')), (75, '1'), err)
        self.assertTrue(re.search(r'gateways run that do not know version 1: \S+ \(version 0\)', err), err)
        self.assertEqual(g.term(), 0)
        self.assertEqual(p.cli('migrate', release=NEXT)[0], 0)

    def test_indexes_whose_building_was_interrupted_are_made_anew(self):
        p = self.p = self.place()
        other = p.session()
        other.run('begin isolation level repeatable read; select 1')
        migration = p.start_cli('migrate', release=NEXT)
        self.assertIn('waiting for a lock', migration.stderr.readline().decode())
        p.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'postdate' and datname = '{p.database}'")
        self.assertEqual(migration.wait(30 * harness.slowness()), 69)
        half = "select count(*) from pg_index join pg_class c on c.oid = indexrelid where c.relname ~ '[0-9]_message_next_step' and c.relkind = 'i' and not indisvalid"
        self.assertEqual(p.value(half), '1')
        other.run('rollback')
        self.assertEqual(p.cli('migrate', release=NEXT)[0], 0)
        self.assert_indexed()
