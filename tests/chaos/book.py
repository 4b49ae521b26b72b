"""What the ledger's lines say, message by message, in arrays: two million messages take some 150 MB.

Lines of one file are applied in their order; all .sent files before .seen ones, since a delivery is looked up among the
attempts.
"""
from array import array

from record import rejects

NONE, ATTEMPTED, REFUSED, UNKNOWN, ACCEPTED = range(5)

# What was asked about a message later, and answered.
CANCEL_ASKED, CANCELLED, TOO_LATE, REPLACE_ASKED, REPLACED, REPLACE_NO, MOVE_DOUBT, MOVED = (1 << i for i in range(8))

AGAIN_UNKNOWN = 255  # delivered "again", and not said how often
LAST_EXCHANGE = 'postdate.last'  # what consumers see of a message that RabbitMQ itself delivered
RETURN_EXCHANGE = 'postdate.return'  # and of one that they had rejected
CANCEL_WORKS_US = 30_000_000  # so long a gateway works at a request (http.timeout), whether or not somebody waits for the answer
GROW = 4096
NUMBER_MAX = 20_000_000


class Table:
    """The messages of one writer, by their number."""
    COLUMNS = {'state': 'B', 'asked': 'B', 'route': 'H', 'way': 'B', 'sent_us': 'q', 'lo_ms': 'q', 'due_ms': 'q',
               'absolute': 'B', 'accepted_us': 'q', 'id': 'q', 'seen_us': 'q', 'seen_again': 'B', 'seen_id': 'q'}
    __slots__ = ('prefix', 'cell', *COLUMNS)

    def __init__(self, prefix):
        self.prefix = prefix
        self.cell = prefix.rpartition('-')[0]
        for name, code in self.COLUMNS.items():
            setattr(self, name, array(code))

    def grow(self, number):
        room = number + GROW - len(self.state)
        for name in self.COLUMNS:
            column = getattr(self, name)
            column.frombytes(bytes(room * column.itemsize))

    def ref(self, number):
        return f'{self.prefix}-{number}'


class Tries:
    """What is known of a message that a consumer rejected."""
    __slots__ = ('queue_type', 'deliveries')

    def __init__(self, queue_type):
        self.queue_type = queue_type
        self.deliveries = {}  # attempt: [(t_us, again, id)]; without the first if that was not rejected


def hashed(text):
    """An id as a number; 0 for none. Equal ids give equal numbers within this process."""
    return 0 if text == '-' else hash(text) or 1


def again_of(text):
    return min(int(text), AGAIN_UNKNOWN - 1) if text.isdigit() else AGAIN_UNKNOWN


class Book:
    def __init__(self, broker_delivers=()):
        self.broker_delivers = broker_delivers  # names of cells
        self.tables = {}
        self.routes, self.route_numbers = [], {}
        self.ways, self.way_numbers = [], {}
        self.cancels = {}     # (table, number): [t_us of those that have no answer yet, or none that says anything]
        self.moves = {}       # (table, number): lo_ms of a reschedule that has no answer yet
        self.doubts = {}      # (table, number): the lowest lo_ms of those whose answer is unknown
        self.replaced = {}    # (table, number): (t_us of the answer yes)
        self.answered = {}    # (table, number): t_us of the last answer yes to what was asked about it later
        self.faults = []      # (start_us, end_us, kind, cell or *, detail)
        self.extra = []       # further deliveries: (table, number, t_us, again, id)
        self.tries = {}       # (table, number): Tries
        self.dead = {}        # (table, number): [(t_us, id, failed, reason)]
        self.mangled = []     # (cell, what, where)
        self.unreadable = []  # (where, line)
        self.actions = {k: getattr(self, 'take_' + v) for k, v in {
            'A': 'attempt', 'K': 'accepted', 'R': 'refused', 'U': 'unknown', 'C': 'cancel', 'c': 'cancel_answer',
            'M': 'move', 'm': 'move_answer', 'P': 'replace', 'D': 'delivery', 'X': 'dead', 'F': 'fault'}.items()}

    def apply(self, line, cell, where):
        """One line without its end. cell: whose file it is; where: file and line, for what is reported."""
        fields = line.split(' ')
        try:
            self.actions[fields[0]](fields, cell, where)
        except (KeyError, IndexError, ValueError, OverflowError):
            self.unreadable.append((where, line[:200]))

    def number_of(self, text, names, numbers, most):
        number = numbers.get(text)
        if number is None:
            if len(names) > most:
                raise ValueError(text)
            number = numbers[text] = len(names)
            names.append(text)
        return number

    def find(self, ref):
        """(table, number) of a message that was attempted; KeyError when it was not."""
        prefix, _, number = ref.rpartition('-')
        table, number = self.tables[prefix], int(number)
        if not 0 <= number < len(table.state) or table.state[number] == NONE:
            raise KeyError(ref)
        return table, number

    # --- the workload's lines ------------------------------------------------------------------------------------
    def take_attempt(self, f, _cell, _where):
        prefix, _, number = f[1].rpartition('-')
        table = self.tables.get(prefix)
        if table is None:
            table = self.tables[prefix] = Table(prefix)
        number = int(number)
        if number >= len(table.state):
            if number > NUMBER_MAX:
                raise ValueError(number)
            table.grow(number)
        if table.state[number] != NONE:
            raise ValueError(f'{f[1]} is attempted twice')
        table.sent_us[number] = int(f[2])
        table.way[number] = self.number_of(f[3], self.ways, self.way_numbers, 250)
        table.route[number] = self.number_of((f[4], f[5]), self.routes, self.route_numbers, 65000)
        table.lo_ms[number] = table.due_ms[number] = int(f[6])
        table.absolute[number] = f[7:] == ['at']
        table.state[number] = ATTEMPTED

    def take_accepted(self, f, _cell, _where):
        table, n = self.find(f[1])
        if f[4] != '-' and not table.asked[n] & MOVED:
            table.due_ms[n] = int(f[4])
        table.accepted_us[n], table.id[n], table.state[n] = int(f[2]), hashed(f[3]), ACCEPTED

    def take_refused(self, f, _cell, _where):
        table, n = self.find(f[1])
        if table.state[n] == ATTEMPTED:  # an earlier try in doubt stays in doubt
            table.state[n] = REFUSED

    def take_unknown(self, f, _cell, _where):
        table, n = self.find(f[1])
        if table.state[n] in (ATTEMPTED, REFUSED):
            table.state[n] = UNKNOWN

    def take_cancel(self, f, _cell, _where):
        table, n = self.find(f[1])
        table.asked[n] |= CANCEL_ASKED
        self.cancels.setdefault((table, n), []).append(int(f[2]))

    def take_cancel_answer(self, f, _cell, _where):
        """One without an answer may be at work still, waiting for a lock; its message may be released, and cancelled by it,
        after another one was too late."""
        table, n = self.find(f[1])
        answer = {'cancelled': CANCELLED, 'too_late': TOO_LATE, 'unknown': 0}[f[3]]
        if answer == CANCELLED:
            self.answered[table, n] = int(f[2])
        asked_us = self.cancels.get((table, n), [])
        if answer and asked_us:
            asked_us.pop()
        if answer != TOO_LATE or all(int(f[2]) - us > CANCEL_WORKS_US for us in asked_us):
            table.asked[n] |= answer

    def take_move(self, f, _cell, _where):
        table, n = self.find(f[1])
        table.absolute[n] = True  # moves name a point in time
        self.doubt_move(table, n)
        self.moves[table, n] = int(f[3])

    def take_move_answer(self, f, _cell, _where):
        table, n = self.find(f[1])
        if f[3] == 'ok':
            self.answered[table, n] = int(f[2])
            lo_ms = self.moves.pop((table, n))
            # One in doubt may still be done after this one.
            table.lo_ms[n] = min(lo_ms, self.doubts.get((table, n), lo_ms))
            table.due_ms[n] = lo_ms
            table.asked[n] |= MOVED
        elif f[3] == 'too_late':
            del self.moves[table, n]
        else:
            self.doubt_move(table, n)

    def doubt_move(self, table, n):
        """The last reschedule, if it has no answer, may have been done or not."""
        lo_ms = self.moves.pop((table, n), None)
        if lo_ms is not None:
            self.doubts[table, n] = min(lo_ms, self.doubts.get((table, n), lo_ms))
            table.lo_ms[n] = min(lo_ms, table.lo_ms[n])
            table.due_ms[n] = max(lo_ms, table.due_ms[n])
            table.asked[n] |= MOVE_DOUBT | MOVED

    def take_replace(self, f, _cell, _where):
        table, n = self.find(f[1])
        table.asked[n] |= {'asked': REPLACE_ASKED, 'yes': REPLACED, 'no': REPLACE_NO, 'unknown': 0}[f[4]]
        if f[4] == 'yes':
            self.replaced[table, n] = self.answered[table, n] = int(f[2])

    # --- the witness's lines -------------------------------------------------------------------------------------
    def take_delivery(self, f, cell, where):
        t_us, again, attempt = int(f[2]), again_of(f[3]), int(f[8]) if f[8:] else 1
        found = self.look_up(f[1], f[5], 'body', cell, where)
        if found is None:
            return
        table, n = found
        route, wanted = (f[6], f[7]), self.routes[table.route[n]]
        if attempt > 1:
            wanted = (RETURN_EXCHANGE, wanted[1])
        if route != wanted and (cell not in self.broker_delivers or route != (LAST_EXCHANGE, wanted[1])):
            self.mangled.append((cell, f'{f[1]}: came by {"/".join(route)} instead of {"/".join(wanted)}', where))
        delivery = (t_us, again, hashed(f[4]))
        if f[8:]:
            self.take_try(table, n, delivery, attempt, f[8:])
        if attempt == 1:
            self.deliver(table, n, delivery)

    def look_up(self, ref, verdict, what, cell, where):
        """(table, number) of what came, None for what nobody sent or has another content."""
        try:
            table, n = self.find(ref)
        except (KeyError, ValueError):
            self.mangled.append((cell, f'{ref}: nobody sent it', where))
            return None
        if verdict != 'ok':
            self.mangled.append((cell, f'{ref}: its {what} is not what was sent', where))
            return None
        if table.cell != cell:
            self.mangled.append((cell, f'{ref}: came in cell {cell}', where))
        return table, n

    def take_try(self, table, n, delivery, attempt, fields):
        _, answer, queue_type = fields
        rejected = rejects(table.ref(n), attempt)
        if answer != ('rejected' if rejected else 'accepted') or queue_type not in ('classic', 'quorum') or attempt < 1:
            raise ValueError(fields)
        if rejected or attempt > 1:
            tries = self.tries.setdefault((table, n), Tries(queue_type))
            tries.deliveries.setdefault(attempt, []).append(delivery)

    def deliver(self, table, n, delivery):
        t_us, again, id_number = delivery
        if table.seen_us[n]:
            self.extra.append((table, n, t_us, again, id_number))
        else:
            table.seen_us[n], table.seen_again[n], table.seen_id[n] = delivery

    def take_dead(self, f, cell, where):
        t_us, failed = int(f[2]), int(f[4])
        found = self.look_up(f[1], f[6], 'dead letter', cell, where)
        if found is None:
            return
        table, n = found
        wanted = self.routes[table.route[n]]
        if (f[7], f[8]) != wanted:
            self.mangled.append((cell, f'{f[1]}: its dead letter names {f[7]}/{f[8]} instead of {"/".join(wanted)}', where))
        self.dead.setdefault((table, n), []).append((t_us, hashed(f[3]), failed, f[5]))

    def take_fault(self, f, _cell, _where):
        self.faults.append((int(f[1]), int(f[2]), f[3], f[4], ' '.join(f[5:])))

    def finish(self):
        """After the last .sent line: reschedules without an answer are in doubt."""
        for table, n in list(self.moves):
            self.doubt_move(table, n)

    # --- questions ------------------------------------------------------------------------------------------------
    def may_be_missing(self, table, n):
        """Whether an accepted message need not arrive: something that was asked about it did, or may have, ended it."""
        asked = table.asked[n]
        if asked & (CANCELLED | REPLACED):
            return True
        return bool(asked & CANCEL_ASKED and not asked & TOO_LATE) or bool(asked & REPLACE_ASKED and not asked & REPLACE_NO)

    def was_replaced_in_time(self, table, n):
        """Whether the answer yes came before the message was due. Later, it may have been delivered before it was replaced:
        that is allowed, and its key was free then. So was it delivered before, when the database's clock was ahead (without
        that it was early, which is found)."""
        t_us = self.replaced.get((table, n))
        return t_us is not None and t_us < table.lo_ms[n] * 1000 and not 0 < table.seen_us[n] < t_us
