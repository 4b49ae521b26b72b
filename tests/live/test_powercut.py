"""Power cuts in their short form: the servers' machine dies in each kind of moment, and the ledger judges; and it finds a disk that
says it has written what it has not, and a PostgreSQL that does not flush."""
import os
import subprocess
import sys

import harness
from harness import LiveTest

sys.path.append(os.path.join(harness.ROOT, 'tests', 'chaos'))
import disk  # noqa: E402


@harness.not_san
@harness.only_full
class PowerCuts(LiveTest):
    """Its servers are its own, and end with it."""
    vhosts = 0
    weight = 200
    time_limit_s = 900

    def cut(self, seed, cuts, **settings):
        """(exit code, what was printed)"""
        if disk.why_not():
            self.skipTest(disk.why_not())
        env = dict(os.environ, POWER='1', SEED=str(seed), FAULTS=str(cuts), RATE='20', CELLS='timer', MILLION='0', ONLY='',
                   POSTDATE_BIN_DIR=harness.BIN_DIR, **settings)
        done = subprocess.run([*harness.DIE_WITH_PARENT, 'unshare', '--mount', sys.executable,
                               os.path.join(harness.ROOT, 'tests', 'chaos', 'run.py')], env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=self.time_limit_s - 10)
        return done.returncode, done.stdout.decode()

    def test_each_moment(self):
        code, out = self.cut(1, 4)
        self.assertEqual(code, 0, out)
        self.assertIn('4 faults of 4 kinds', out)

    def test_disk_that_lies(self):
        code, out = self.cut(2, 2, PLANT='lie')
        self.assertEqual(code, 1, out)
        self.assertRegex(out, r'verdict: BROKEN: .*lost')

    def test_postgres_without_fsync(self):
        code, out = self.cut(3, 2, PLANT='fsync')
        self.assertEqual(code, 1, out)
        self.assertRegex(out, r'verdict: BROKEN: .*lost')
