"""More work than there is room for, and less than there is."""
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


@fault('rate.set', weight=3)
def rate_set(x):
    """All that is due waits for slots, or for the end of a pause; then the rate is another one, and then there is none."""
    first, then = x.rng.choice([0, 3, 40]), x.rng.choice([20, 300, 2000])
    x.begin(f'{first}/s, then {then}/s')
    try:
        x.cell.set_rate(first)
        x.wait(0.5, 3)
        x.cell.set_rate(then)
        x.wait(1, 4)
    finally:
        x.cell.set_rate(None)
