"""The chaos suite in its short form: a few dozen faults of all kinds on each transport, while messages flow, and a
ledger that judges."""
import os
import re
import subprocess
import sys

import harness
from harness import LiveTest

FAULTS = 45


@harness.not_san
class Chaos(LiveTest):
    """Its servers are its own, and end with it."""
    vhosts = 0
    weight = 200
    time_limit_s = 480

    def test_short_form(self):
        env = dict(os.environ, SEED='1', FAULTS=str(FAULTS), RATE='20', CELLS='timer,ttl,plugin-alone', POSTDATE_BIN_DIR=harness.BIN_DIR)
        done = subprocess.run([*harness.DIE_WITH_PARENT, sys.executable, os.path.join(harness.ROOT, 'tests', 'chaos', 'run.py')],
                              env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False, timeout=self.time_limit_s - 10)
        out = done.stdout.decode()
        self.assertEqual(done.returncode, 0, out)
        faults, kinds = map(int, re.search(r'(\d+) faults of (\d+) kinds', out).groups())
        self.assertGreaterEqual(faults, 40, out)
        self.assertGreaterEqual(kinds, 12, out)
        print('note ' + out.splitlines()[-1], flush=True)
