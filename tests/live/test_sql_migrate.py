"""The schema is made in one piece, or not at all."""
import os

import harness
from harness import LiveTest, run_psql, wait_until

# What everybody may call, and whether the role may call one that the next version makes.
OPEN = "select proname from pg_proc where pronamespace = 'postdate'::regnamespace and has_function_privilege('public', oid, 'execute')"
MAY_CANCEL = "select has_function_privilege('postdate_producer', 'postdate.cancel(uuid, integer)', 'execute')"


class SqlMigrate(LiveTest):
    def test_whoever_is_in_the_way_is_named(self):
        """An open transaction; and another migration, which waits for it, too."""
        p = self.place()
        other = p.session()
        other.run("set application_name = 'a report'; begin; lock table postdate.meta in share mode")
        one = p.start_cli('migrate')
        pid = int(other.run('select pg_backend_pid()')[0][0])
        said = one.stderr.readline().decode()
        self.assertRegex(said, rf'waiting for a lock, for at most 120 s: it is held by pid {pid} of \w+ \(a report\), idle in transaction')
        two = p.start_cli('migrate')
        self.assertRegex(two.stderr.readline().decode(), r'it is held by .*pid \d+ of postdate \((postdate|a report)\)')
        other.run('rollback')
        for process in (one, two):
            self.assertEqual(process.wait(60 * harness.slowness()), 0)

    def test_the_next_release_makes_its_step_and_no_other(self):
        p = self.place()
        one = p.value("select postdate.schedule('k', 'x', '1 h')")
        for said in ('upgraded from version 1', 'unchanged'):
            self.assertIn(f'schema postdate is at version 2 ({said}', p.cli('migrate', release='tests/next')[1])
        self.assertEqual(p.psql('select id, next_step is null from postdate.message'), [[one, 't']])
        self.assertIn('schema postdate is at version 2 (unchanged', p.cli('migrate')[1], 'which may be run by the unit of a gateway that is not replaced yet')

    def test_what_a_step_makes_is_closed_and_granted_before_its_indexes_are_built(self):
        """One who calls a function whose signature grows goes on, also while building waits for an old transaction."""
        p = self.place()
        one = p.value("select postdate.schedule('k', 'x', '1 h')")
        role = f'producer_{p.database}'
        p.stack.psql(f'create role {role} login in role postdate_producer')
        self.addCleanup(p.stack.psql, f'drop role {role}')
        self.addCleanup(p.close)  # before that
        caller, other = harness.Session(p.postgres.replace('user=postdate', f'user={role}')), p.session()
        p.children.append(caller.process)
        caller.run('prepare again as select postdate.cancel($1)')
        other.run('begin isolation level repeatable read; select 1')
        migration = p.start_cli('migrate', release='tests/next')
        wait_until(lambda: p.value('select version from postdate.meta') == '2', 30, 'the step')
        self.assertIn('waiting for a lock', migration.stderr.readline().decode())
        self.assertEqual((p.psql(OPEN), p.value(MAY_CANCEL)), ([], 't'))
        self.assertEqual(caller.run(f"execute again('{one}')"), [['cancelled']])
        other.run('rollback')
        self.assertEqual(migration.wait(60 * harness.slowness()), 0)

    def test_each_migration_closes_what_is_open_to_all(self):
        """Not what belongs to another role: the owner may not."""
        p = self.place()
        p.psql("create function postdate.later() returns int language sql as 'select 1'; create procedure postdate.later_too() language sql as ''")
        run_psql(p.postgres.replace('user=postdate', 'user=postgres'), "create function postdate.foreign() returns int language sql as 'select 1'")
        self.assertEqual(len(p.psql(OPEN)), 3)
        rc, out, err = p.cli('migrate')
        self.assertEqual((rc, 'unchanged' in out, err), (0, True, ''))
        self.assertEqual(p.psql(OPEN), [['foreign']])

    def test_a_migration_that_fails_leaves_nothing_behind(self):
        p = self.place(migrate=False)
        p.migrate()
        p.psql('drop schema postdate cascade; create schema postdate; create table postdate.slo_count ()')
        rc, _, err = p.cli('migrate')
        self.assertEqual(rc, 70, err)
        self.assertIn('slo', err)
        self.assertEqual(p.psql("select relname from pg_class where relnamespace = 'postdate'::regnamespace and relkind in ('r', 'p') order by 1"),
                         [['meta'], ['slo_count']])
        p.psql('drop table postdate.slo_count')
        p.migrate()
        p.psql("select postdate.schedule('k', 'x', '1 h')")

    @harness.not_san
    def test_what_was_refused_is_noted_to_be_published_alone_and_what_was_unroutable_is_not(self):
        p = self.place()
        p.gateway(POSTDATE_RETRY_FIRST='1h', POSTDATE_RETRY_MAX='1h')
        p.psql("select postdate.schedule('nowhere', 'x', '0')")
        p.psql("select postdate.schedule('k', 'x', '0', exchange => 'missing')")
        tried = 'select count(*) from postdate.message_now where attempts = 1'
        wait_until(lambda: p.value(tried) == '2', 20, 'both to be tried')
        self.assertEqual(p.psql('select routing_key, isolate from postdate.message_now order by 1'), [['k', 't'], ['nowhere', 'f']])
