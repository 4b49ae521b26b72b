"""Where duplicates come from: moments in which many came together, and messages that were due at once.

A cell that has a million messages due in one second has a smaller share of duplicates than others, since no more of them are
in flight than of a thousand. So they are counted apart.
"""
from collections import Counter

AT_ONCE = 100_000  # as many are due in one second: a crowd
TOGETHER_US = 1_500_000  # duplicates that are no farther apart belong to one moment
BEFORE_US = 5_000_000  # faults that had ended no longer before are named
SHOWN = 10


def crowded_seconds(tables):
    """{cell: seconds in which a crowd was due}"""
    due = {}
    for table in tables:
        due.setdefault(table.cell, Counter()).update(ms // 1000 for ms in table.due_ms if ms)
    return {cell: {second for second, n in seconds.items() if n >= AT_ONCE} for cell, seconds in due.items()}


def largest_moments(doubled, faults):
    """doubled: {cell: [(arrival, first arrival) in us]}; faults: of the judge. The largest ones first."""
    moments = []
    for cell, arrivals in doubled.items():
        together = []
        for arrival in sorted(arrivals):
            if together and arrival[0] - together[-1][0] > TOGETHER_US:
                moments.append(moment_of(cell, together, faults))
                together = []
            together.append(arrival)
        moments.append(moment_of(cell, together, faults))
    return sorted(moments, key=lambda m: -m['count'])[:SHOWN]


def moment_of(cell, together, faults):
    start_us, end_us = together[0][0], together[-1][0]
    from_us = min(first_us for _, first_us in together)
    near = {f['kind'] for f in faults if f['cell'] in ('*', cell) and f['start_us'] <= end_us and
            f['end_us'] >= min(from_us, start_us) - BEFORE_US}
    return {'cell': cell, 'count': len(together), 'start_us': start_us, 'first_us': from_us,
            'faults': sorted(near)}
