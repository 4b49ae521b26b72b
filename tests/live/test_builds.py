"""Two builds of one version: each says of which commit it is, and one whose schema was made of other files is refused with what to do."""
import os
import re
import shutil
import subprocess
import tempfile

import harness
from doctor_kit import Doctor
from harness import LiveTest

NEXT = 'tests/next'
COMMIT = r'\+\d{8}\.[0-9a-f]{7}(\.changed)?'
OLDER = 'alter table postdate.meta drop column if exists fingerprint, drop column if exists made_by, drop column prefix'
OTHER = "update postdate.meta set fingerprint[1] = '0123456789abcdef', made_by[1] = '1.0.0-dev+20261101.0123456'"


def version_of(top, release='1.0.0-dev'):
    return subprocess.run([os.path.join(top, 'tools', 'version.sh'), release], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


class OtherBuild(Doctor):
    def assert_refused(self, p, *said):
        """By each program that reads the schema, in one line."""
        g = p.gateway(wait=False)
        self.assertEqual(g.wait(), 78, g.log())
        lines, self_said = [g.lines_with('schema postdate was made by')], p.cli('--version')[1].split()[1]
        for args in (('list',), ('status',), ('migrate',), ('schedule', '-k', 'k', '--delay', '1h', '--body', 'x')):
            rc, out, err = p.cli(*args)
            self.assertEqual((rc, out), (78, ''), err)
            lines.append(err.splitlines())
        for found in lines:
            self.assertEqual(len(found), 1, found)
            for word in (*said, self_said, 'drop schema postdate cascade', 'postdate migrate --rebind'):
                self.assertIn(word, found[0])
        self.assert_finding(self.doctor(p), 'database.schema', 'fail', *said, remedy='migrate --rebind')

    def test_the_schema_of_another_one_is_refused_and_what_is_said_leads_out(self):
        p = self.place()
        g = p.gateway()
        p.psql("select postdate.schedule('k', 'waits', interval '1 hour')")
        self.assertEqual(g.term(), 0)
        p.psql(OTHER)
        self.assert_refused(p, 'was made by 1.0.0-dev+20261101.0123456 (0123456789abcdef)')
        p.psql('drop schema postdate cascade')
        rc, out, err = p.cli('migrate', '--rebind')
        self.assertEqual(rc, 0, out + err)
        inbox = p.consumer('q', declare=True, bind='k')
        p.gateway()
        p.psql("select postdate.schedule('k', 'comes', interval '1 second')")
        self.assertEqual([m.body for m in inbox.wait(1, 20)], [b'comes'])
        self.assert_ok(self.doctor(p), 'database.schema')

    def test_one_from_before_there_were_fingerprints(self):
        p = self.place()
        p.psql(OLDER)
        self.assert_refused(p, 'was made by an older development version')

    def test_a_gateway_that_runs_ends_when_its_schema_is_made_anew_by_another_one(self):
        p = self.place()
        g = p.gateway()
        p.psql(OTHER)
        p.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'postdate %' and datname = '{p.database}'")
        self.assertEqual(g.wait(30), 78, g.log())
        self.assertEqual(len(g.lines_with(re.escape(f"this is {p.cli('--version')[1].split()[1]} ("))), 1, g.log())

    def test_a_newer_schema_counts_by_the_step_that_both_know(self):
        p = self.place()
        self.assertEqual(p.cli('migrate', release=NEXT)[0], 0)
        self.assertEqual(p.cli('list')[0], 0, 'a step was added to what this one made')
        p.psql("update postdate.meta set fingerprint[2] = 'fedcba9876543210'")
        self.assertEqual((p.cli('list')[0], p.cli('list', release=NEXT)[0]), (0, 78))
        p.psql(OTHER)
        self.assertEqual(p.cli('list')[0], 78)


class Versions(LiveTest):
    vhosts = 0

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.top = os.path.join(self.folder.name, 'postdate')

    def run_in(self, *command, **env):
        return subprocess.run(command, cwd=self.top, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**{k: v for k, v in os.environ.items() if not k.startswith(('GIT_', 'MAKE'))}, **env}).stdout

    def commit(self):
        """A repository of two files and of tools/version.sh."""
        os.makedirs(os.path.join(self.top, 'tools'))
        for name in ('version.sh', 'dist.sh'):
            shutil.copy(os.path.join(harness.ROOT, 'tools', name), os.path.join(self.top, 'tools'))
        who = ('-c', 'user.name=a', '-c', 'user.email=a@example.com')
        self.run_in('git', 'init', '-q')
        self.run_in('git', 'add', '.')
        self.run_in('git', *who, 'commit', '-q', '-m', 'one', GIT_COMMITTER_DATE='2026-11-28T23:30:00-0500', GIT_AUTHOR_DATE='2020-01-01T00:00:00Z')
        return self.run_in('git', 'rev-parse', 'HEAD').strip()

    def test_the_programs_say_it(self):
        version = version_of(harness.ROOT)
        self.assertRegex(version, r'^1\.0\.0-dev(%s)?$' % COMMIT)
        for program in ('postdate', 'postdated'):
            said = subprocess.run([os.path.join(harness.BIN_DIR, program), '--version'], check=True, stdout=subprocess.PIPE, text=True).stdout
            self.assertRegex(said, r'^%s \d+\.\d+\.\d+(-dev(%s)?)?\n$' % (program, COMMIT))

    def test_date_and_commit_are_those_of_the_commit(self):
        commit = self.commit()
        self.assertEqual(version_of(self.top), f'1.0.0-dev+20261129.{commit[:7]}', 'its date in UTC')
        self.assertEqual(version_of(self.top, '1.0.0'), '1.0.0', 'a release is one')
        with open(os.path.join(self.top, 'tools', 'dist.sh'), 'a', encoding='utf-8') as f:
            f.write('# and this\n')
        self.assertEqual(version_of(self.top), f'1.0.0-dev+20261129.{commit[:7]}.changed')

    def test_a_tarball_carries_it_and_is_the_same_each_time(self):
        commit = self.commit()
        sums = set()
        for number in range(2):
            tarball = os.path.join(self.folder.name, str(number), 'postdate-x.tar.gz')
            sums.add(self.run_in('tools/dist.sh', tarball, SOURCE_DATE_EPOCH='1700000000', TZ=('UTC', 'Asia/Kathmandu')[number]))
        self.assertEqual(len(sums), 1, sums)
        self.assertEqual(self.run_in('git', 'status', '--porcelain'), '')
        subprocess.run(['tar', '-C', self.folder.name, '-xf', tarball], check=True)
        unpacked = os.path.join(self.folder.name, 'postdate-x')
        self.assertEqual(version_of(unpacked), f'1.0.0-dev+20261129.{commit[:7]}', 'without Git')
        subprocess.run(['git', 'init', '-q', self.folder.name], check=True)
        self.assertEqual(version_of(unpacked), f'1.0.0-dev+20261129.{commit[:7]}', "below somebody else's repository")
        shutil.rmtree(os.path.join(self.top, '.git'))
        self.assertEqual(version_of(self.top), '1.0.0-dev', 'files alone')

    def test_a_released_file_is_never_edited(self):
        os.makedirs(os.path.join(self.top, 'sql', 'schema'))
        os.makedirs(os.path.join(self.top, 'sql', 'query'))
        files = ['sql/query/migrate_meta_create.sql', 'sql/schema/001_10_a.sql', 'sql/schema/001_20_b.sql', 'sql/schema/002_10_c.sql']
        for name in files:
            with open(os.path.join(self.top, name), 'w', encoding='utf-8') as f:
                f.write(f'select {len(name)};\n')
        released = os.path.join(self.top, 'sql', 'schema', 'released')
        with open(released, 'w', encoding='utf-8') as f:
            f.write('# VERSION FINGERPRINT\n')
        embed = (os.path.join(harness.ROOT, 'tools', 'embed_sql.sh'), 'gen', *files)

        def fingerprints():
            self.run_in(*embed)
            with open(os.path.join(self.top, 'gen', 'sql_embedded.c'), encoding='utf-8') as f:
                return re.findall(r'^    "([0-9a-f]{16})", /\* version \d', f.read(), re.M)
        one, two = fingerprints()
        with open(released, 'a', encoding='utf-8') as f:
            f.write(f'1 {one}\n')
        with open(os.path.join(self.top, files[3]), 'a', encoding='utf-8') as f:
            f.write('select 2;\n')
        self.assertEqual(fingerprints()[0], one)
        self.assertNotEqual(fingerprints()[1], two, 'what is not released may change')
        for name in files[:3]:
            with open(os.path.join(self.top, name), 'a', encoding='utf-8') as f:
                f.write('-- a word\n')
            with self.assertRaises(subprocess.CalledProcessError) as refused:
                self.run_in(*embed)
            self.assertIn('schema version 1 is released', refused.exception.stdout)
            with open(os.path.join(self.top, name), 'w', encoding='utf-8') as f:
                f.write(f'select {len(name)};\n')
        self.assertEqual(fingerprints()[0], one)
