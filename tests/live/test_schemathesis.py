"""/openapi.json against Schemathesis, a stranger's tool: it makes thousands of requests of the description, good and bad ones, and judges the answers by it."""
import os
import subprocess
import sys
import unittest

import harness
from examples import installed
from harness import LiveTest
from web import ready_address

VERSION = 'schemathesis==4.32.5'
SEED = os.environ.get('POSTDATE_SCHEMATHESIS_SEED', '52')
# Left out: that whatever the description allows is accepted. It cannot say what a cron expression is, that two fields name the same, which page a
# token is of, or that an Idempotency-Key was used before; test_openapi has those cases by hand. 412 is how a wrong name is refused with If-Match.
CONFIG = """[checks.positive_data_acceptance]
enabled = false

[checks.negative_data_rejection]
expected-statuses = ["400", "401", "403", "404", "405", "406", "409", "412", "413", "415", "422", "428", "429"]
"""


@harness.not_san
class Schemathesis(LiveTest):
    """Skipped where it cannot be installed: it needs Python's package index once."""
    weight = 60
    time_limit_s = 540

    @unittest.skipIf(sys.version_info < (3, 10), 'Schemathesis needs Python 3.10')
    def test_it_finds_nothing(self):
        folder = installed(self, 'schemathesis', {'schemathesis.toml': CONFIG},
                           [sys.executable, '-m', 'venv', '--without-pip', 'venv'],
                           [sys.executable, '-m', 'pip', '--python', 'venv/bin/python3', 'install', '--quiet', '--disable-pip-version-check', VERSION])
        address = 'http://%s:%d' % ready_address(self.place().gateway())
        done = subprocess.run(['venv/bin/st', '--config-file', 'schemathesis.toml', 'run', address + '/openapi.json', '--phases', 'examples,coverage,fuzzing',
                               '--max-examples', '10', '--seed', SEED, '--continue-on-failure', '--suppress-health-check', 'all',
                               '--generation-database', 'none', '--no-color', '--request-timeout', '60'],
                              cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        out = done.stdout.decode(errors='replace')
        print('note schemathesis:', ' '.join(line.strip() for line in out.splitlines() if 'generated' in line or 'Tested:' in line), flush=True)
        self.assertEqual(done.returncode, 0, out[-12000:])
