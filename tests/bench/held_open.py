"""Held open: a REPEATABLE READ transaction beside it, which keeps vacuum from removing what is dead. The same work before
it was opened and while it is: messages published and delivered at a constant rate, and a herd at the end."""
import time

import backlog
from herd import drain
from steady import WINDOWS, add_windows
from kit import wrong

SHAPE = 'held open: a REPEATABLE READ transaction, vacuum blocked'
RATE = 2000
DELAY_MS = 2000
HERD_S = 11  # storing one and draining it
AROUND_S = 75  # what is measured before, and putting away what there is afterwards
LEAST_S = 60  # of being held


def flow(lane, seconds):
    """Publishes at RATE what is due DELAY_MS later, for so long, while what is due is delivered."""
    queue, count = lane.queue('held'), RATE * seconds
    consumer = lane.consume(queue, count, seconds + 60, WINDOWS)
    lane.place.load('publish', '--exchange', 'postdate', '--routing-key', queue, '--count', count, '--rate', RATE,
                    '--delay-ms', DELAY_MS, '--timeout-s', seconds + 60).result(seconds + 90)
    result = consumer.result(seconds + 90)
    if result['missing']:
        raise AssertionError(f"{result['missing']} of {count} did not come")
    return result


def measure_part(bench, lane, words, seconds):
    """(lateness row, herd row) of one half."""
    late = bench.report.row(SHAPE, f'{RATE:,}/s in and out, {words}')
    with late.trying(bench.say):
        result = flow(lane, seconds)
        add_windows(late, result)
        late.add(whole_p99_ms=result['p99_ms'])
        bench.say(f'held open: {late.what}: {late.values()}')
    herd = bench.report.row(SHAPE, f'herd of {bench.sizes.herd:,}, {words}')
    with herd.trying(bench.say):
        for _ in range(bench.sizes.runs):
            result, _ = drain(lane, bench.sizes.herd)
            herd.add(rate=bench.sizes.herd / result['max_ms'] * 1000)
            herd.note(wrong(result))
        bench.say(f'held open: {herd.what}: {herd.values()}')
    return late, herd


def held_seconds(bench):
    """How long it is held, with the herds: as long as is wanted, where there is time for that."""
    wanted_s, budget_s = bench.sizes.held_s, bench.sizes.budget_s
    return min(wanted_s, max(LEAST_S, int(budget_s - bench.elapsed_s()) - AROUND_S)) if budget_s else wanted_s


def measure(bench):
    stored = backlog.of(bench).reach(bench.sizes.backlog)
    seconds = held_seconds(bench)
    with stored.lane() as lane:
        before = measure_part(bench, lane, 'without', 3 if bench.sizes.small else 12)
        session = stored.place.session()
        session.run('begin isolation level repeatable read')
        session.run('select 1 from postdate.meta')  # now it has its snapshot
        end = time.monotonic() + seconds
        held = measure_part(bench, lane, f'held for {seconds} s', max(seconds // 2, seconds - HERD_S * bench.sizes.runs))
        time.sleep(max(0, end - time.monotonic()))
        session.run('rollback')
        session.close()
    compare(before, held)
    backlog.release(bench)


def compare(before, held):
    held[0].aim('ratio', '<', 2, 'p99 of the whole time')
    held[1].aim('ratio', '≥', 0.9)
    for (old, new), figure in zip(zip(before, held), ('whole_p99_ms', 'rate')):
        if old.value(figure) and new.value(figure) is not None:
            new.against('that without', new.value(figure), old.value(figure))
