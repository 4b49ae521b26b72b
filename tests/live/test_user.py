"""The same programs, servers and scripts as an ordinary user."""
import os
import pwd
import shutil
import subprocess
import sys
import tempfile

import harness
from harness import LiveTest, now_ms, wait_until


@harness.with_both  # it is what users have
class Scenario(LiveTest):
    """Once through everything: migrate, gateway, schedule, cancel, deliver, stop."""

    def test_whole_scenario(self):
        p = self.place()
        g = p.gateway()
        inbox = p.consumer('q', bind='k')
        at = now_ms()
        p.client().publish('k', b'amqp', {'x-delay': 500})
        out = p.run('schedule', '-k', 'k', '--delay', '700ms', '--body', 'cli')
        cancelled = p.run('schedule', '-k', 'k', '--delay', '30s', '--body', 'never')
        self.assertEqual(p.cli('cancel', cancelled.strip())[0], 0)
        self.assert_on_time(inbox.wait_body(b'amqp'), at, 500)
        self.assertEqual(inbox.wait_body(b'cli').id, out.strip())
        wait_until(lambda: p.counts() == {'delivered': 2, 'cancelled': 1}, 5, 'all to be settled')
        self.assertEqual(g.term(), 0)


@harness.not_san
class OrdinaryUser(LiveTest):
    weight = 50
    vhosts = 0

    def test_the_whole_scenario_as_an_ordinary_user(self):
        if os.geteuid() != 0:
            self.skipTest('not root: the other tests have shown it')
        user = pwd.getpwnam('nobody')
        home = tempfile.mkdtemp(prefix='postdate-user-', dir='/var/tmp')
        self.addCleanup(shutil.rmtree, home, True)
        self.copy_tree(home)
        subprocess.run(['chown', '-R', f'{user.pw_uid}:{user.pw_gid}', home], check=True)
        run_as = ['setpriv', '--reuid', str(user.pw_uid), '--regid', str(user.pw_gid), '--clear-groups', '--']
        env = {'PATH': os.environ['PATH'], 'HOME': home, 'STACK_DIR': harness.note_stack(os.path.join(home, 'stack'), home),
               'POSTDATE_BIN_DIR': os.path.join(home, 'build'), 'POSTDATE_TEST_WORKERS': '1'}
        stack = run_as + [os.path.join(home, 'tools', 'stack.sh')]
        options = dict(env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, check=False, timeout=100)
        self.addCleanup(subprocess.run, stack + ['clean'], **options)
        done = subprocess.run(stack + ['start'], **options)
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        run = [sys.executable, os.path.join(home, 'tests', 'live', 'run.py'), 'Scenario']
        done = subprocess.run(run_as + run, **options)
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        self.assertIn('2 passed', done.stdout.decode())

    def copy_tree(self, home):
        os.chmod(home, 0o755)
        os.makedirs(os.path.join(home, 'build'))
        for name in ('postdate', 'postdated'):
            shutil.copy(os.path.join(harness.BIN_DIR, name), os.path.join(home, 'build'))
        for name in ('tools', 'plugins-config'):
            shutil.copytree(os.path.join(harness.ROOT, name), os.path.join(home, name))
        for name in ('live', 'chaos', 'clocks', 'console'):  # run.py loads all tests to find one, and some use parts of these
            shutil.copytree(os.path.join(harness.ROOT, 'tests', name), os.path.join(home, 'tests', name))
        shutil.copy(os.path.join(harness.ROOT, 'tests', 'runner_report.py'), os.path.join(home, 'tests'))
