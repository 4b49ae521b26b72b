"""More work than there is room for."""
import time

from faults import fault


@fault('load.tenfold', weight=1)
def load_tenfold(x):
    x.begin(f'{x.cell.rate * 10} messages a second')
    x.cell.tell(rate=x.cell.rate * 10)
    try:
        x.wait(2, 4)
    finally:
        x.cell.tell(rate=x.cell.rate)


@fault('load.crowd', weight=1)
def load_crowd(x):
    """Thousands that are due in the same second."""
    count = x.rng.choice([2000, 5000, 10000])
    due_ms = int(time.time() * 1000) + 6000
    x.begin(f'{count} due in one second')
    x.cell.tell(flood=count, due_ms=due_ms, way=x.rng.choice(['http', 'sql', 'amqp']))
    time.sleep(7.5)
