"""Faults of the consumer, where it rejects by chance."""
from faults import fault


@fault('consumer.killed', weight=4, only=lambda cell: cell.rejects)
def consumer_killed(x):
    """What it had not answered comes again, to its next process."""
    number = x.rng.randrange(len(x.cell.witnesses))
    x.begin(f'witness {number + 1} kill -9')
    x.cell.witnesses[number].crash(lambda: x.wait(0, 3))
