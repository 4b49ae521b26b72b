"""Feed: messages that wait in the database are handed over to the broker by `postdate feed`; then a start with a full window."""
import json
import time

from harness import wait_until
from kit import SOON, Lane, memory_mib
from limits import message

SHAPE = 'feed: handing over to the broker'
BANDS = 3
HANDED = f"select count(*) from postdate.message_now where state = 'handed' and settled_at is null and {SOON}"


def fill(lane, count):
    """A third is due in an hour and a bit, a third in two hours, a third in three. By the fastest way in, held by the broker."""
    for band in range(BANDS):
        line = json.dumps({**message(f'{60 * (band + 1)}m'), 'hold': 'broker'}) + '\n'
        rc, _, err = lane.place.cli('schedule', '--batch', '-', stdin=line * count, timeout=300,
                                    env={'POSTDATE_HANDOVER_TRANSPORT': lane.transport})
        if rc != 0:
            raise AssertionError(err)


def hand_over(bench, lane, row, count):
    """One feed for each band: three runs, together a full window."""
    for band in range(BANDS):
        window, want, began = f'{90 + 60 * band}m', str(count * (band + 1)), time.monotonic()
        rc, _, err = lane.place.cli('feed', '--window', window, env={'POSTDATE_HANDOVER_TRANSPORT': lane.transport}, timeout=120)
        if rc != 0:
            raise AssertionError(err)
        wait_until(lambda want=want: lane.place.value(HANDED) == want, 180, f'{want} to be handed over', 0.2)
        row.add(rate=count / (time.monotonic() - began))
    row.note(f'{count * BANDS:,} handed over, in {BANDS} feeds')
    bench.say(f'feed: {row.what}: {row.values()}')


def restart(bench, lane, row):
    """From exec to ready, with all that waiting; nothing may be handed over again."""
    before = lane.place.value(HANDED)
    for _ in range(max(BANDS, bench.sizes.runs)):
        lane.stop()
        began = time.monotonic()
        lane.start(POSTDATE_HANDOVER_FEEDER='cron')
        row.add(seconds=time.monotonic() - began, mib=memory_mib(lane.gateways[0].process.pid))
    if lane.place.value(HANDED) != before:
        raise AssertionError(f'{before} were handed over before, {lane.place.value(HANDED)} after')
    bench.say(f'feed: {row.what}: {row.values()}')


def measure(bench):
    count = bench.sizes.feed // BANDS
    for transport in reversed(bench.transports):  # the plugin last: what it keeps makes it slow
        if transport == 'bare':
            continue
        name = bench.lane_name(transport)
        row, again = bench.report.row(SHAPE, name), bench.report.row(SHAPE, f'{name}: start of the gateway with a full window')
        with row.trying(bench.say), again.trying(bench.say), Lane(bench, transport, POSTDATE_HANDOVER_FEEDER='cron') as lane:
            fill(lane, count)
            hand_over(bench, lane, row, count)
            restart(bench, lane, again)
