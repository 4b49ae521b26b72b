"""A Postgres of a test class's own, whose clock it sets."""
import os
import sys

import harness
from harness import ROOT, Stack

sys.path.insert(0, os.path.join(ROOT, 'tests', 'clocks'))
from moved_clocks import MovedClocks  # noqa: E402


def postgres_with_clock(cls, name):
    """For setUpClass: (clocks, the stack with that Postgres and the RabbitMQ of all tests)."""
    clocks = MovedClocks(ROOT)
    cls.addClassCleanup(clocks.close)
    servers = Stack.own(cls.addClassCleanup, name)
    before = {k: os.environ.get(k) for k in clocks.env}
    os.environ.update(clocks.env)
    try:
        servers.command('start-postgres')
    finally:
        for variable, value in before.items():
            os.environ.pop(variable) if value is None else os.environ.update({variable: value})
    main = harness.stack()
    servers.env = dict(main.env, POSTDATE_POSTGRES_URL=servers.load().env['POSTDATE_POSTGRES_URL'])
    servers.vhosts = main.vhosts
    return clocks, servers
