"""The chaos suite's ledger is tested itself: by tests/chaos/test_ledger.py, which is run from here."""
import os
import sys

import harness
from harness import LiveTest

sys.path.append(os.path.join(harness.ROOT, 'tests', 'chaos'))
import test_ledger  # noqa: E402


class ChaosLedger(test_ledger.Ledger, LiveTest):
    vhosts = 0
    together = True
    not_san = True  # none of it is compiled
