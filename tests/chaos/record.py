"""The ledger's lines and bodies, and who writes them.

A line is a letter and its fields, separated by single spaces; `-` stands for nothing. Times `t_us` are CLOCK_REALTIME
in microseconds, due times `…_ms` are milliseconds since 1970. A *ref* names one logical message: CELL-WRITER-NUMBER.

In CELL.RUN.sent, by the workload; attempts before anything is sent, answers after they came:
    A ref t_us way exchange key lo_ms [at]      attempt. lo_ms: the earliest due time that the answer could mean (see
                                                lo_ms()). at: a point in time, not a delay
    K ref t_us id due_ms                accepted; id and due_ms as the answer says them, `-` where it does not
    R ref t_us why                      certainly refused: must not arrive
    U ref t_us why                      nobody knows; a later K or nothing
    C ref t_us way                      cancel asked          c ref t_us cancelled|too_late|unknown
    M ref t_us lo_ms                    reschedule asked      m ref t_us ok|too_late|unknown
    P ref t_us newref asked|yes|no|unknown      newref takes the place of ref by its key
In CELL.RUN.seen, by the witness:
    D ref t_us again id verdict exchange key    delivery. again: 0; how often the queue had delivered it before; `r` when
                                                it says "again" and not how often. verdict: ok, or bad for a body whose
                                                checksum is wrong
    D … attempt accepted|rejected classic|quorum        where the consumer rejects by chance: x-postdate-attempt (1 without),
                                                what it answers after this line, of what type its queue is
In CELL.RUN.dead, at the end, what the database has of messages that no attempt is left for:
    X ref t_us id failed reason verdict exchange key    failed: how many attempts; verdict: as above, bad without properties
In *.faults, by whoever injects them:
    F t_start_us t_end_us kind cell|* detail    t_end_us: when it was healed

Files are append-only. A line that has no end was torn by the death of its writer, and counts for nothing.
"""
import os
import threading
import time
import zlib

PAD_MAX = 1 << 20

# The policy where consumers reject: deliveries in all, and the waits between them, which have no jitter.
RETRY_ATTEMPTS, RETRY_FIRST_MS, RETRY_FACTOR, RETRY_MAX_MS = 4, 200, 3, 1500
REJECTED_ALWAYS, REJECTED_BY_CHANCE = 6, 30  # percent of the messages, of the attempts


def now_us():
    return time.time_ns() // 1000


def lo_ms(sent_us, delay_ms):
    """The earliest due time that a relative delay may lead to. Due times are whole milliseconds, and a stamp of the
    moment of sending loses its microseconds; so the tolerance is what is below one millisecond, and no more."""
    return sent_us // 1000 + delay_ms


def make_body(ref, pad):
    """ref, checksum, padding. pad: bytes of any kind."""
    if len(pad) > PAD_MAX:
        raise ValueError(f'padding of {len(pad)} bytes: allowed are {PAD_MAX}')
    head = ref.encode() + b' '
    return head + b'%08x ' % zlib.crc32(pad, zlib.crc32(head)) + pad


def read_body(body):
    """(ref, whether the checksum is right); ref None when there is none."""
    head, _, rest = body.partition(b' ')
    if not head or len(rest) < 9 or rest[8:9] != b' ':
        return None, False
    try:
        return head.decode('ascii'), int(rest[:8], 16) == zlib.crc32(rest[9:], zlib.crc32(head + b' '))
    except ValueError:
        return None, False


def percent_of(ref, attempt):
    """0 to 99, the same each time; the checksum is mixed, as those of two attempts differ by the same bits in each message."""
    x = zlib.crc32(f'{ref} {attempt}'.encode())
    x = ((x ^ x >> 16) * 0x7feb352d) & 0xffffffff
    x = ((x ^ x >> 15) * 0x846ca68b) & 0xffffffff
    return (x ^ x >> 16) % 100


def rejects(ref, attempt):
    """What a consumer that rejects by chance does with this delivery; witness.c has the same."""
    return percent_of(ref, 0) < REJECTED_ALWAYS or percent_of(ref, attempt) < REJECTED_BY_CHANCE


def retry_wait_ms(failed):
    return min(RETRY_MAX_MS, RETRY_FIRST_MS * RETRY_FACTOR ** (failed - 1))


def word(text):
    """Any text as one field."""
    return '_'.join(str(text).split())[:120] or '-'


class Writer:
    """Appends lines to one file; each write() is one or more whole lines. Any thread may write."""

    def __init__(self, directory, cell, kind='sent'):
        """kind: the file's ending. The file is a new one: the run's number makes its refs differ from an earlier
        process's of the same cell."""
        os.makedirs(directory, exist_ok=True)
        self.lock = threading.Lock()
        self.cell, self.run = cell, 0
        while True:
            self.run += 1
            self.path = os.path.join(directory, f'{cell}.{self.run}.{kind}')
            try:
                self.file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
                return
            except FileExistsError:
                continue

    def write(self, lines):
        """lines: an iterable of texts without their ends. They are with the kernel when this returns, so they outlive
        this process."""
        data = memoryview(''.join(line + '\n' for line in lines).encode('ascii', 'replace'))
        with self.lock:
            while data:
                data = data[os.write(self.file, data):]

    def close(self):
        os.close(self.file)


class Faults(Writer):
    """The file of injected faults."""

    def __init__(self, directory):
        super().__init__(directory, 'all', 'faults')

    def add(self, start_us, end_us, kind, cell='*', detail='-'):
        self.write([f'F {start_us} {end_us} {word(kind)} {cell} {word(detail)}'])
