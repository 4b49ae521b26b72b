"""Reading a ledger while it is written: cheap enough for several looks a second."""
import glob
import os

import record
from book import ACCEPTED, Book

GRAIN_MS = 100


class Cell:
    """What is known of one cell so far."""

    def __init__(self):
        self.attempted = self.accepted = self.delivered = self.open = 0
        self.newest_accept_us = 0             # when the latest answer "accepted" came
        self.newest_delivered_attempt_us = 0  # when the newest of the messages that have arrived was attempted
        self.due = {}                         # due time in grains: how many are open then

    def shift(self, due_ms, by):
        grain = due_ms // GRAIN_MS
        self.open += by
        left = self.due.get(grain, 0) + by
        if left:
            self.due[grain] = left
        else:
            del self.due[grain]

    def owed(self, now_ms):
        now = now_ms // GRAIN_MS
        return sum(count for grain, count in self.due.items() if grain < now)


class FollowBook(Book):
    """Counts on, line by line."""

    def __init__(self):
        super().__init__()
        self.cells = {}

    def cell(self, name):
        cell = self.cells.get(name)
        if cell is None:
            cell = self.cells[name] = Cell()
        return cell

    def apply(self, line, cell, where):
        if line[:1] in 'AF':
            super().apply(line, cell, where)
            if line[:1] == 'A':
                self.cell(cell).attempted += 1
            return
        try:
            table, n = self.find(line.split(' ', 2)[1])
        except (KeyError, ValueError, IndexError):
            super().apply(line, cell, where)  # it says what is wrong
            return
        before = self.standing(table, n)
        super().apply(line, cell, where)
        self.note(self.cell(table.cell), table, n, before)

    def standing(self, table, n):
        accepted, seen = table.state[n] == ACCEPTED, table.seen_us[n] > 0
        is_open = accepted and not seen and not self.may_be_missing(table, n)
        return accepted, seen, table.due_ms[n] if is_open else None

    def note(self, cell, table, n, before):
        accepted, seen, due_ms = self.standing(table, n)
        if accepted and not before[0]:
            cell.accepted += 1
            cell.newest_accept_us = max(cell.newest_accept_us, table.accepted_us[n])
        if seen and not before[1]:
            cell.delivered += 1
            cell.newest_delivered_attempt_us = max(cell.newest_delivered_attempt_us, table.sent_us[n])
        if due_ms != before[2]:
            if before[2] is not None:
                cell.shift(before[2], -1)
            if due_ms is not None:
                cell.shift(due_ms, 1)


class Tail:
    """The whole lines that a file has gained. A torn end is read anew each time: who writes on may have cut it off."""

    def __init__(self, path):
        self.path, self.offset, self.number = path, 0, 0
        self.cell = os.path.basename(path).rsplit('.', 2)[0]

    def read(self):
        try:
            with open(self.path, 'rb') as f:
                f.seek(self.offset)
                data = f.read()
        except FileNotFoundError:
            return []
        data = data[:data.rfind(b'\n') + 1]
        self.offset += len(data)
        return data.decode('ascii', 'replace').split('\n')[:-1]

    def apply(self, lines, book):
        for line in lines:
            self.number += 1
            book.apply(line, self.cell, f'{os.path.basename(self.path)}:{self.number}')


class Follower:
    """One thread's own."""

    def __init__(self, directory):
        self.directory = directory
        self.book = FollowBook()
        self.tails = {}

    def poll(self):
        """{cell: {attempted, accepted, delivered, open, owed, newest_accept_us, newest_delivered_attempt_us}} of all lines
        written by now. delivered counts each message once; open: accepted, neither delivered nor cancelled or
        replaced; owed: those of them that were due (by what the sender knows) at least GRAIN_MS ago."""
        # What has arrived by now was attempted before: the attempts are read after the deliveries, and applied first.
        seen = [(tail, tail.read()) for tail in self.find('seen')]
        for kind in ('faults', 'sent'):
            for tail in self.find(kind):
                tail.apply(tail.read(), self.book)
        for tail, lines in seen:
            tail.apply(lines, self.book)
        now_ms = record.now_us() // 1000
        return {name: {'attempted': c.attempted, 'accepted': c.accepted, 'delivered': c.delivered, 'open': c.open,
                       'owed': c.owed(now_ms), 'newest_accept_us': c.newest_accept_us,
                       'newest_delivered_attempt_us': c.newest_delivered_attempt_us}
                for name, c in self.book.cells.items()}

    def find(self, kind):
        for path in sorted(glob.glob(os.path.join(glob.escape(self.directory), f'*.*.{kind}'))):
            if path not in self.tails:
                self.tails[path] = Tail(path)
            yield self.tails[path]
