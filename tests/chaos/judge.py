"""The verdict over a ledger: what was lost, early, doubled, delivered in spite of an answer; how late; after which fault."""
import glob
import os
from array import array
from bisect import bisect_left, bisect_right

from book import (ACCEPTED, AGAIN_UNKNOWN, CANCELLED, MOVE_DOUBT, MOVED, NONE, REFUSED, TOO_LATE, Book)
from moments import crowded_seconds, largest_moments
from record import RETRY_ATTEMPTS, rejects, retry_wait_ms

# What a fault leaves may come to light later than something has arrived again: what was published, and whose confirm got lost, is
# published again when its turn comes.
AFTERMATH_US = 5_000_000
STANDBY_LAGS = 'postgres.lag_promoted'
# After the promotion gateways may deliver what they had claimed before: they end their lease with the session that dies, and it lasts 8 s where
# nothing tells them. Here it dies at once. Until they have said again what they delivered in the lag, "cancelled" is answered for it: they wait for
# each other for 8 s at most, and 72 ms were measured. Both are stricter than what is promised, and that long a machine under faults needs.
IN_MEMORY_US = 1_000_000
SAID_AGAIN_US = 5_000_000
# What publishers had a confirm for waits in the intake queue at first: with PostgreSQL away before, for some time.
STORED_LATER_US = 15_000_000
CLOCK_AHEAD = ('clock.database', 'clock.day_ahead')  # their detail begins with "ahead MS ms"
# With these RabbitMQ, or a node of it, goes. What a classic queue dead-letters in that moment may be lost: it waits for no confirm.
BROKER_GOES = ('rabbitmq.kill', 'rabbitmq.stop_app', 'rabbitmq.wiped', 'cluster.')
SHOWN = 20  # refs that are named of each kind of finding
PERCENTILES = (('p50', 0.5), ('p95', 0.95), ('p99', 0.99), ('p999', 0.999), ('max', 1.0))
# What must be empty. Duplicates are allowed under faults, and only reported then.
FORBIDDEN = ('lost', 'early', 'cancelled_delivered', 'superseded_delivered', 'refused_delivered', 'mangled', 'other_id',
             'contradicted', 'over_attempts', 'miscounted', 'unprovoked')
FINDINGS = FORBIDDEN + ('duplicated',)
COUNTS = ('attempted', 'accepted', 'refused', 'unknown', 'unknown_arrived', 'cancelled', 'replaced', 'rescheduled', 'delivered',
          'redelivered', 'rejected', 'dead', 'lost_by_queue', 'lost_by_lag', 'undone_by_lag', 'excused', 'crowd_delivered', 'crowd_doubled')


class Verdict:
    """Counts and findings of one cell."""

    def __init__(self):
        self.counts = dict.fromkeys(COUNTS, 0)
        self.numbers = dict.fromkeys(FINDINGS, 0)
        self.named = {name: [] for name in FINDINGS}

    def find(self, finding, ref, why):
        self.numbers[finding] += 1
        if len(self.named[finding]) < SHOWN:
            self.named[finding].append(f'{ref}: {why}')


def read(directory, broker_delivers=()):
    """The book of a folder, and the files whose last line was torn."""
    book, torn = Book(broker_delivers), []
    for kind in ('faults', 'sent', 'seen', 'dead'):
        for path in sorted(glob.glob(os.path.join(glob.escape(directory), f'*.*.{kind}'))):
            name = os.path.basename(path)
            cell = name.rsplit('.', 2)[0]
            with open(path, encoding='ascii', errors='replace', newline='\n') as f:
                for number, line in enumerate(f, 1):
                    if line[-1] == '\n':
                        book.apply(line[:-1], cell, f'{name}:{number}')
                    else:
                        torn.append(f'{name}:{number}')
        if kind == 'sent':
            book.finish()
    book.faults.sort()
    return book, torn


def ms(us):
    return f'{us / 1000:.3f} ms'


def recovered_us(fault):
    return fault['end_us'] + (fault['recovery_us'] or 0)


class Judge:
    def __init__(self, book):
        self.book = book
        self.cells = {}
        self.ways = {}
        self.lateness = {'all': array('q'), 'calm': array('q')}
        self.calm_of = {}
        self.shadows = {}
        self.faults = [{'start_us': f[0], 'end_us': f[1], 'kind': f[2], 'cell': f[3], 'detail': f[4], 'duplicates': 0,
                        'recovery_us': None} for f in book.faults]
        self.clock_steps = [(f[0], f[1], int(f[4].split('_')[1]) * 1000) for f in book.faults if f[2] in CLOCK_AHEAD]
        self.lags = [(f[0], f[1]) for f in book.faults if f[2] == STANDBY_LAGS]
        self.farthest_us = 0  # from the end of a fault to a duplicate that is put down to it
        self.crowded = crowded_seconds(book.tables.values())
        self.doubled = {}     # cell: [(arrival, first arrival)]

    def cell(self, name):
        if name not in self.cells:
            self.cells[name] = Verdict()
        return self.cells[name]

    def run(self):
        for table in self.book.tables.values():
            self.cell(table.cell)
        for fault in self.book.faults:
            if fault[3] != '*':
                self.cell(fault[3])
        self.measure_recovery()
        self.cast_shadows()
        for cell, what, where in self.book.mangled:
            self.cell(cell).find('mangled', what, where)
        for table in self.book.tables.values():
            verdict = self.cell(table.cell)
            for n, state in enumerate(table.state):
                if state != NONE:
                    self.judge_message(verdict, table, n)
        self.judge_extra()
        for (table, n), tries in self.book.tries.items():
            self.judge_tries(self.cell(table.cell), table, n, tries)
        for table, n in self.book.dead.keys() - self.book.tries.keys():
            self.cell(table.cell).find('miscounted', table.ref(n), 'is dead, and was never rejected')
        return self

    # --- one message -----------------------------------------------------------------------------------------------
    def judge_message(self, verdict, table, n):
        counts, state, asked, seen_us = verdict.counts, table.state[n], table.asked[n], table.seen_us[n]
        counts['attempted'] += 1
        counts['rescheduled'] += bool(asked & MOVED)
        if state == ACCEPTED:
            counts['accepted'] += 1
            way = self.book.ways[table.way[n]]
            self.ways[way] = self.ways.get(way, 0) + 1
        elif state == REFUSED:
            counts['refused'] += 1
        else:
            counts['unknown'] += 1
            counts['unknown_arrived'] += seen_us > 0
        if asked & CANCELLED:
            counts['cancelled'] += 1
            if asked & TOO_LATE:
                verdict.find('contradicted', table.ref(n), 'its cancel was answered both cancelled and too late')
        in_time = bool(self.book.replaced) and self.book.was_replaced_in_time(table, n)
        counts['replaced'] += in_time
        if seen_us:
            self.judge_delivered(verdict, table, n, in_time)
        elif state == ACCEPTED:
            if self.book.may_be_missing(table, n):
                counts['excused'] += not (asked & CANCELLED or in_time)
            elif self.is_forgotten(table.accepted_us[n], STORED_LATER_US):
                counts['lost_by_lag'] += 1
            else:
                verdict.find('lost', table.ref(n), f'accepted at {table.accepted_us[n]}, due {table.due_ms[n]}')

    def judge_delivered(self, verdict, table, n, replaced_in_time):
        seen_us, ref = table.seen_us[n], table.ref(n)
        verdict.counts['delivered'] += 1
        verdict.counts['crowd_delivered'] += self.is_of_a_crowd(table, n)
        undone = self.is_undone(table, n)
        verdict.counts['undone_by_lag'] += undone
        if table.asked[n] & CANCELLED and not undone:
            verdict.find('cancelled_delivered', ref, f'delivered at {seen_us}')
        if replaced_in_time and not undone:
            verdict.find('superseded_delivered', ref, f'delivered at {seen_us}')
        if table.state[n] == REFUSED:
            verdict.find('refused_delivered', ref, f'delivered at {seen_us}')
        self.judge_early(verdict, table, n, seen_us)
        if table.id[n] and table.id[n] != table.seen_id[n] and not table.asked[n] & MOVED:
            verdict.find('other_id', ref, 'came under another id than it was accepted with')
        if table.asked[n] & MOVE_DOUBT:
            return
        late_us = seen_us - table.due_ms[n] * 1000
        self.lateness['all'].append(late_us)
        if not self.in_shadow(table.cell, table.sent_us[n], seen_us):
            self.lateness['calm'].append(late_us)
            self.calm_of.setdefault(table.cell, array('q')).append(late_us)

    def is_forgotten(self, t_us, before_us=0):
        """Whether PostgreSQL was told in the lag of a standby that was promoted, by the latest before_us after t_us."""
        return any(start_us - before_us <= t_us <= end_us for start_us, end_us in self.lags)

    def is_undone(self, table, n):
        """Its cancel, reschedule or replacement was answered, and forgotten; or the claim of what was delivered then was, and
        the answer came before a gateway had said so again."""
        answered_us, seen_us = self.book.answered.get((table, n), 0), table.seen_us[n]
        return bool(self.lags) and (self.is_forgotten(answered_us) or any(
            start_us <= answered_us <= end_us + SAID_AGAIN_US and start_us <= seen_us <= end_us + IN_MEMORY_US
            for start_us, end_us in self.lags))

    def judge_early(self, verdict, table, n, seen_us):
        if self.is_undone(table, n):
            return  # it comes when it was due before
        early_us = table.lo_ms[n] * 1000 - seen_us
        if early_us > 0 and early_us > self.clock_was_ahead_us(table, n, seen_us):
            verdict.find('early', table.ref(n), f'by {ms(early_us)}: delivered at {seen_us}, due {table.lo_ms[n]}')

    # --- a message that a consumer rejected ------------------------------------------------------------------------
    def judge_tries(self, verdict, table, n, tries):
        ref, deliveries, dead = table.ref(n), tries.deliveries, self.book.dead.get((table, n), [])
        last = max(deliveries)
        verdict.counts['rejected'] += 1
        if last > RETRY_ATTEMPTS:
            verdict.find('over_attempts', ref, f'attempt {last} of {RETRY_ATTEMPTS} came at {min(deliveries[last])[0]}')
        for attempt in range(2, last + 1):
            self.judge_attempt(verdict, table, n, attempt, deliveries)
        if not table.asked[n] & MOVED and any(d[1] != table.seen_id[n] for d in dead):
            verdict.find('other_id', ref, 'is dead under another id than it was delivered with')
        if not rejects(ref, last):
            if dead:
                verdict.find('miscounted', ref, f'is dead, and attempt {last} was accepted')
        elif dead:
            verdict.counts['dead'] += 1
            for _, _, failed, reason in dead:
                if failed != RETRY_ATTEMPTS or last < RETRY_ATTEMPTS or reason != 'rejected':
                    verdict.find('miscounted', ref, f'is dead after {failed} failures ({reason}), the last attempt was {last}')
        else:
            self.judge_unreturned(verdict, table, n, tries, last)

    def judge_attempt(self, verdict, table, n, attempt, deliveries):
        """One that is not the first."""
        came, before = deliveries.get(attempt), deliveries.get(attempt - 1)
        if not came:
            return  # the next one says it
        ref, (first_us, again, id_number) = table.ref(n), min(came)
        if not before or not rejects(ref, attempt - 1):
            verdict.find('miscounted', ref, f'attempt {attempt} came at {first_us}, and the one before was not rejected')
            return
        if id_number != table.seen_id[n] and not table.asked[n] & MOVED:
            verdict.find('other_id', ref, f'attempt {attempt} came under another id')
        before_us = min(before)[0]
        early_us = before_us + (retry_wait_ms(attempt - 1) - 1) * 1000 - first_us
        if early_us > max((us for start_us, end_us, us in self.clock_steps if start_us <= first_us and before_us < end_us), default=0):
            verdict.find('early', ref, f'attempt {attempt} by {ms(early_us)}: at {first_us}')
        # a message that RabbitMQ dead-lettered twice, at a fault, has all further attempts twice
        self.judge_copies(verdict, table, n, (first_us, again, id_number), sorted(came)[1:], table.seen_us[n])

    def judge_unreturned(self, verdict, table, n, tries, last):
        at_us = max(tries.deliveries[last])[0]
        if tries.queue_type == 'classic' and any(
                f['cell'] in ('*', table.cell) and f['kind'].startswith(BROKER_GOES) and
                f['start_us'] - AFTERMATH_US <= at_us <= recovered_us(f) + AFTERMATH_US for f in self.faults):
            verdict.counts['lost_by_queue'] += 1
        elif self.is_forgotten(at_us, STORED_LATER_US):
            verdict.counts['lost_by_lag'] += 1
        else:
            verdict.find('lost', table.ref(n), f'rejected at {at_us}, attempt {last}: it neither came again nor is dead')

    def clock_was_ahead_us(self, table, n, seen_us):
        """A point in time comes sooner when the database's clock is set forward, and so does what it counted before that. A
        delay that it counts from then on must last as long as ever."""
        return max((us for start_us, end_us, us in self.clock_steps if start_us <= seen_us and
                    table.sent_us[n] < (end_us if table.absolute[n] else start_us)), default=0)

    # --- further deliveries of a message ---------------------------------------------------------------------------
    def judge_extra(self):
        """What the queue says that it delivers again is its own doing. A second copy in the queue counts from 0 itself, so
        the same count twice means two copies; another id means another one in any case."""
        by_message = {}
        for table, n, t_us, again, id_number in self.book.extra:
            by_message.setdefault((table, n), []).append((t_us, again, id_number))
        for (table, n), more in by_message.items():
            verdict = self.cell(table.cell)
            for t_us, _, _ in more:
                self.judge_early(verdict, table, n, t_us)
            first = (table.seen_us[n], table.seen_again[n], table.seen_id[n])
            self.judge_copies(verdict, table, n, first, sorted(more), table.sent_us[n])

    def judge_copies(self, verdict, table, n, first, more, from_us):
        """first, more: deliveries of the same attempt; from_us: a fault before that explains nothing."""
        first_us, first_again, first_id = first
        copies, seen = {first_id: 1}, {(first_id, first_again): 1}
        for t_us, again, id_number in more:
            key = (id_number, again)
            seen[key] = seen.get(key, 0) + 1
            if id_number not in copies:
                copies[id_number] = 1
                self.duplicate(verdict, table, n, t_us, first_us, from_us)
                # What is stored and delivered in a lag is forgotten, and RabbitMQ gives it to the intake again if that could not acknowledge it.
                if not table.asked[n] & MOVED and not self.is_forgotten(first_us):
                    verdict.find('other_id', table.ref(n), f'came again under another id at {t_us}')
            elif again != AGAIN_UNKNOWN and seen[key] > copies[id_number]:
                copies[id_number] += 1
                self.duplicate(verdict, table, n, t_us, first_us, from_us)
            else:
                verdict.counts['redelivered'] += 1

    def duplicate(self, verdict, table, n, t_us, first_us, from_us):
        """Put down to the latest fault that had begun. Without one between its attempt (or shortly
        before) and now, nothing excuses it."""
        first = f'at {t_us}, first at {first_us}'
        self.doubled.setdefault(table.cell, []).append((t_us, first_us))
        verdict.counts['crowd_doubled'] += self.is_of_a_crowd(table, n)
        if not self.in_shadow(table.cell, from_us - AFTERMATH_US, t_us):
            verdict.find('unprovoked', table.ref(n), first)
        at = bisect_right(self.book.faults, (t_us, float('inf'))) - 1
        while at >= 0 and self.faults[at]['cell'] not in ('*', table.cell):
            at -= 1
        if at < 0:
            verdict.find('duplicated', table.ref(n), f'{first}, before any fault')
            return
        fault = self.faults[at]
        fault['duplicates'] += 1
        after_us = max(0, t_us - fault['end_us'])
        self.farthest_us = max(self.farthest_us, after_us)
        verdict.find('duplicated', table.ref(n), f"{first}, {ms(after_us)} after {fault['kind']}")

    def is_of_a_crowd(self, table, n):
        return table.due_ms[n] // 1000 in self.crowded[table.cell]

    # --- faults ----------------------------------------------------------------------------------------------------
    def measure_recovery(self):
        """A fault's recovery ends when the first message arrives that was attempted after it was healed; where it hit all
        cells, in the last of them that had any."""
        for name in self.cells:
            hits = [f for f in self.faults if f['cell'] in ('*', name)]
            ends = sorted({f['end_us'] for f in hits})
            if not ends:
                continue
            arrived = self.first_arrivals(name, ends)
            for fault in hits:
                first_us = arrived[bisect_left(ends, fault['end_us'])]
                if first_us is not None:
                    fault['recovery_us'] = max(fault['recovery_us'] or 0, first_us - fault['end_us'])

    def first_arrivals(self, cell, ends):
        """For each of the times: the first arrival of what was attempted after it, None when nothing was."""
        arrived = [None] * len(ends)
        for table in self.book.tables.values():
            if table.cell != cell:
                continue
            for sent_us, seen_us in zip(table.sent_us, table.seen_us):
                if seen_us:
                    at = bisect_left(ends, sent_us) - 1
                    if at >= 0 and (arrived[at] is None or seen_us < arrived[at]):
                        arrived[at] = seen_us
        for at in range(len(ends) - 2, -1, -1):
            later = arrived[at + 1]
            if later is not None and (arrived[at] is None or later < arrived[at]):
                arrived[at] = later
        return arrived

    def cast_shadows(self):
        """Per cell, the times of faults with their recovery, merged: (starts, ends)."""
        for name in self.cells:
            starts, ends = [], []
            for f in self.faults:
                if f['cell'] not in ('*', name):
                    continue
                end_us = recovered_us(f)
                if ends and f['start_us'] <= ends[-1]:
                    ends[-1] = max(ends[-1], end_us)
                else:
                    starts.append(f['start_us'])
                    ends.append(end_us)
            self.shadows[name] = starts, ends

    def in_shadow(self, cell, from_us, to_us):
        starts, ends = self.shadows[cell]
        at = bisect_right(starts, to_us) - 1  # the last one that began before the arrival
        return at >= 0 and ends[at] >= from_us

    # --- all of it -------------------------------------------------------------------------------------------------
    def kinds(self):
        kinds = {}
        for f in self.faults:
            k = kinds.setdefault(f['kind'], {'count': 0, 'duplicates': 0, 'recoveries': []})
            k['count'] += 1
            k['duplicates'] += f['duplicates']
            if f['recovery_us'] is not None:
                k['recoveries'].append(f['recovery_us'] / 1000)
        for k in kinds.values():
            r = sorted(k.pop('recoveries'))
            k.update(recovered=len(r), recovery_median_ms=r[len(r) // 2] if r else None,
                     recovery_slowest_ms=r[-1] if r else None)
        return dict(sorted(kinds.items()))


def percentiles_ms(values):
    """values: microseconds."""
    values = sorted(values)
    last = len(values) - 1
    return {'count': len(values), **{name: values[round(p * last)] / 1000 if values else None for name, p in PERCENTILES}}


def add_up(parts):
    total = {}
    for part in parts:
        for name, n in part.items():
            total[name] = total.get(name, 0) + n
    return total


def judge(directory, broker_delivers=()):
    """The verdict as plain data (what --json prints). broker_delivers: cells in which a loss is counted and breaks no promise."""
    book, torn = read(directory, broker_delivers)
    j = Judge(book).run()
    cells = {name: {**v.counts, **v.numbers} for name, v in sorted(j.cells.items())}
    named = {finding: [x for v in j.cells.values() for x in v.named[finding]][:SHOWN] for finding in FINDINGS}
    total = add_up(cells.values()) or dict.fromkeys(COUNTS + FINDINGS, 0)
    return {'total': total, 'cells': cells, 'named': named, 'ways': dict(sorted(j.ways.items())),
            'lateness_ms': {k: percentiles_ms(v) for k, v in j.lateness.items()},
            'calm_ms': {cell: percentiles_ms(v) for cell, v in sorted(j.calm_of.items())},
            'faults': len(j.faults), 'kinds': j.kinds(), 'duplicate_farthest_after_fault_ms': j.farthest_us / 1000,
            'moments': largest_moments(j.doubled, j.faults),
            'torn_lines': torn, 'unreadable_lines': [f'{where}: {line}' for where, line in book.unreadable[:SHOWN]],
            'unreadable': len(book.unreadable),
            'tolerated_losses': sum(cells[name]['lost'] for name in broker_delivers if name in cells),
            'broken': broken(cells, book, broker_delivers)}


def broken(cells, book, may_lose):
    """What makes the verdict bad: {word: count}."""
    counts = {name: sum(c[name] for cell, c in cells.items() if name != 'lost' or cell not in may_lose) for name in FORBIDDEN}
    found = {name: n for name, n in counts.items() if n}
    if book.unreadable:
        found['unreadable'] = len(book.unreadable)
    if not any(c['accepted'] for c in cells.values()):
        found['nothing_accepted'] = 1  # a ledger without messages proves nothing
    return found
