"""How many live tests run at the same time: as many as keep the machine busy, for most wait most of the time, and no more, because
tests that wait for each other's work measure that.
"""
import os
import time

LEAST = 4
MOST = 6 * (os.cpu_count() or 1)
IDLE_SHARE = 0.12  # of the processors: below, nothing is added
LOOK_S = 0.7       # what was begun last is at work by then
ROOM_BYTES = 3 << 30  # a test with a cluster of its own takes a gigabyte


def read_idle():
    """(idle, all) processor time since boot, in ticks. What runs nicely counts as idle: it gives way."""
    with open('/proc/stat', encoding='ascii') as f:
        ticks = [int(n) for n in f.readline().split()[1:9]]
    return ticks[1] + ticks[3] + ticks[4], sum(ticks)


def read_room():
    with open('/proc/meminfo', encoding='ascii') as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith('MemAvailable'))


class Pace:
    def __init__(self, most):
        self.least, self.most = min(LEAST, most), most
        self.looked_at, self.before = time.monotonic(), read_idle()

    def allows(self, running):
        """Whether one more may begin beside so many. To be asked again after LOOK_S."""
        if running < self.least:
            return True
        now = time.monotonic()
        if running >= self.most or now - self.looked_at < LOOK_S:
            return False
        (idle, total), self.before, self.looked_at = self.before, read_idle(), now
        idle, total = self.before[0] - idle, self.before[1] - total
        return idle > IDLE_SHARE * total and read_room() > ROOM_BYTES
