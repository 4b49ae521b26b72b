"""The kinds of faults: a table that faults_*.py fill.

A fault is a function of one `Injection`: it calls `x.begin(detail)` when it strikes, and returns when the cause is gone
again (healed). What it needs at random comes from `x.rng`, so that a seed replays it. Scope `cell`: it strikes one cell,
and one such runs in each cell at a time; `server`: all cells, one at a time; `alone`: as server, with no other fault; `cluster`: the
nodes of RabbitMQ's cluster, and the cells that use it, one at a time.
"""
import random
import time

KINDS = {}


class NotPossible(Exception):
    """This machine or user cannot do that; the kind is reported as skipped, with the reason."""


class NotNow(Exception):
    """It has to wait for something that takes minutes: the others of its track come first."""


class Kind:
    def __init__(self, name, scope, weight, run, only):
        self.name, self.scope, self.weight, self.run, self.only = name, scope, weight, run, only

    def fits(self, cell):
        return self.only is None or self.only(cell)

    def touches(self, cell):
        """Of those that concern servers: this cell's, too?"""
        if self.scope == 'cluster':
            return cell.on_cluster
        return not (self.name.startswith('rabbitmq.') and cell.on_cluster)


def fault(name, scope='cell', weight=1, only=None):
    """weight: how often compared to others of its scope; only: of which cells, a function."""
    def add(run):
        KINDS[name] = Kind(name, scope, weight, run, only)
        return run
    return add


class Injection:
    def __init__(self, arena, cell, kind, seed, may_wait=False):
        """may_wait: the fault may raise NotNow."""
        self.arena, self.cell, self.kind, self.may_wait = arena, cell, kind, may_wait
        self.rng = random.Random(seed)
        self.began_us, self.ended_us, self.detail = 0, 0, ''

    def begin(self, detail=''):
        self.began_us, self.detail = int(time.time() * 1e6), detail

    def pick(self):
        """One of the cell's gateways, and its number."""
        number = self.rng.randrange(len(self.cell.gateways))
        return number, self.cell.gateways[number]

    def wait(self, low_s, high_s):
        time.sleep(self.rng.uniform(low_s, high_s))


def load_all():
    import faults_broker  # noqa: F401
    import faults_cluster  # noqa: F401
    import faults_consumer  # noqa: F401
    import faults_gateway  # noqa: F401
    import faults_load  # noqa: F401
    import faults_network  # noqa: F401
    import faults_postgres  # noqa: F401
    import faults_power  # noqa: F401
    return KINDS
