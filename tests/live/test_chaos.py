"""The chaos suite in its short form: a few dozen faults, one of each kind at least, while messages flow, and a ledger that
judges."""
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
    time_limit_s = 900  # the run itself limits each recovery and the end, and says which one took too long

    def run_chaos(self, seed, faults, cells, only=''):
        """Faults, and kinds of them, that struck."""
        env = dict(os.environ, SEED=str(seed), FAULTS=str(faults), RATE='20', CELLS=cells, ONLY=only, POSTDATE_BIN_DIR=harness.BIN_DIR)
        with subprocess.Popen([*harness.DIE_WITH_PARENT, sys.executable, os.path.join(harness.ROOT, 'tests', 'chaos', 'run.py')], env=env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            try:
                out = process.communicate(timeout=self.time_limit_s - 60)[0].decode()
            except subprocess.TimeoutExpired:
                process.terminate()  # it ends its servers
                out = process.communicate(timeout=50)[0].decode() + '\nended: it took too long'
        self.assertEqual(process.returncode, 0, out)
        print('note ' + out.splitlines()[-1], flush=True)
        return [*map(int, re.search(r'(\d+) faults of (\d+) kinds', out).groups()), out]

    def test_short_form(self):
        faults, kinds, out = self.run_chaos(1, FAULTS, 'timer,ttl,plugin-alone')
        self.assertGreaterEqual(faults, 40, out)
        self.assertGreaterEqual(kinds, 38, out)  # all that do not need a cluster, but for what this machine or user can't do


@harness.not_san
@harness.only_full
class ChaosOfCluster(Chaos):
    """What only a cluster of three nodes can have happen to its exit queues and targets."""

    def test_short_form(self):
        faults, kinds, out = self.run_chaos(2, 6, 'cluster-ttl', only='exit,leaderless')
        self.assertEqual((faults, kinds), (6, 5), out)


@harness.not_san
@harness.only_full
class ChaosOfRetries(Chaos):
    """Consumers that reject and die, and what may strike between a rejection and its count."""

    def test_short_form(self):
        faults, kinds, out = self.run_chaos(3, 16, 'retry', only='consumer,gateway.kill,gateway.point,postgres.immediate,rabbitmq.kill')
        self.assertEqual((faults, kinds), (16, 5), out)
        rejected, dead = (int(re.search(rf'^{word} +([\d,]+)', out, re.M)[1].replace(',', ''))
                          for word in ('rejected by the consumer', 'of these dead in the end'))
        self.assertGreater(rejected, 100, out)
        self.assertGreater(dead, 5, out)
