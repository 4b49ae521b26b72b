"""Time: tests never sleep for a fixed time, they wait for a condition with a deadline."""
import time

from .settings import slowness


def now_ms():
    return time.time_ns() // 1_000_000


def wait_until(condition, deadline_s=10.0, what='the condition', interval_s=0.02):
    """Polls until condition() is true and returns its value; fails with `what` after deadline_s."""
    began = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited_s = time.monotonic() - began
        if waited_s > deadline_s * slowness():
            raise AssertionError(f'waited {deadline_s * slowness():.0f} s in vain for {what}')
        time.sleep(max(interval_s, min(waited_s / 20, 0.1)))  # most conditions ask a server, and others wait, too
