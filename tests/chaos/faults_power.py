"""The servers' machine dies, not their processes: what was not flushed to its disk (disk.py) is gone. Each kind does it in another
moment of the gateways' work; in half of the cases the gateways are on the same machine."""
import glob
import os
import signal
import threading
import time

from faults import fault
from faults_gateway import LEASE_S

CROWD = 3000
BACKLOG_S = 4


def on_disk(cell):
    return cell.arena.disk is not None and not cell.on_cluster


def cure_segments(folder):
    """What docs/operations.md has an operator do: RabbitMQ cannot open a segment file whose beginning is zeros, and its quorum queues
    come to a stop. No such file was ever flushed, so all that it is for is in RabbitMQ's WAL. Their number."""
    count = 0
    for path in glob.glob(os.path.join(folder, 'mnesia', '*', 'quorum', '*', '*', '*.segment')):
        with open(path, 'rb') as f:
            torn = f.read(8) == bytes(8)
        if torn:
            os.unlink(path)
            count += 1
    return count


def cut_power(x, detail):
    """Returns when both servers run again."""
    arena, gateways_too = x.arena, x.rng.random() < 0.5
    x.begin(f'{detail}{", the gateways die, too" if gateways_too else ""}')
    kept, cached = arena.disk.cut(x.rng)
    # They wait for the disk, and can't die before it is released: all have to be killed by then.
    pids = arena.postgres.primary.strike()
    arena.rabbit.strike()
    if gateways_too:
        for g in arena.gateways():
            g.crash()
    arena.disk.order('release')
    arena.postgres.primary.bury(pids)
    arena.rabbit.stack('kill-rabbitmq')
    arena.disk.restore()
    x.detail += f', {kept} of {cached} sectors in the cache were written'
    cured = cure_segments(arena.disk.folder)
    if cured:
        x.detail += f', {cured} segment files of RabbitMQ without a beginning were deleted'
    starting = threading.Thread(target=arena.postgres.primary.start)
    starting.start()
    arena.rabbit.stack('start-rabbitmq')
    starting.join()


@fault('power.intake', scope='server', weight=2, only=on_disk)
def power_intake(x):
    """While much is published and stored."""
    cells = list(x.arena.cells.values())
    for cell in cells:
        cell.tell(rate=cell.rate * 5)
    x.wait(0.5, 3)
    try:
        cut_power(x, 'while much is stored')
    finally:
        for cell in cells:
            cell.tell(rate=cell.rate)


@fault('power.claims', scope='server', weight=2, only=on_disk)
def power_claims(x):
    """About when thousands are due in the same second."""
    wait_s = x.rng.uniform(3.8, 6)
    for cell in x.arena.cells.values():
        cell.tell(flood=CROWD // len(x.arena.cells), due_ms=int(time.time() * 1000) + 4000, way=x.rng.choice(['http', 'sql', 'amqp']))
    time.sleep(wait_s)
    cut_power(x, f'{1000 * (wait_s - 4):.0f} ms after the second in which {CROWD} are due began')


@fault('power.drain', scope='server', weight=2, only=on_disk)
def power_drain(x):
    """While gateways that were away deliver what is overdue."""
    cells = list(x.arena.cells.values())
    for cell in cells:
        cell.halt_gateways(signal.SIGTERM)
        cell.tell(flood=CROWD // len(cells), due_ms=int(time.time() * 1000), way='sql')
    time.sleep(BACKLOG_S)
    for cell in cells:
        cell.start_gateways()
    wait_s = x.rng.uniform(0.1, 2.5)
    time.sleep(wait_s)
    cut_power(x, f'{1000 * wait_s:.0f} ms after all gateways came back')


@fault('power.take_over', scope='server', weight=2, only=on_disk)
def power_take_over(x):
    """About when the others take what a dead gateway had claimed."""
    dead = [x.rng.choice(cell.gateways) for cell in x.arena.cells.values()]
    for g in dead:
        g.halt()
    wait_s = x.rng.uniform(0, LEASE_S + 3)
    time.sleep(wait_s)
    try:
        cut_power(x, f'{wait_s:.1f} s after the death of a gateway in each cell')
    finally:
        for g in dead:
            g.start()
