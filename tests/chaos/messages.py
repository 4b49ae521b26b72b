"""What the workload sends: seeded, so that a seed gives the same messages again (their times are those of the run)."""
import random
import time

import record

SOON_MS, LONGEST_MS = 6000, 20_000
TEXT = 'abcdefghijklmnopqrstuvwxyz 0123456789 "\'\\{}äöü€'


class Message:
    """due is 'delay' (counted from when it is sent) or 'at'. lo_ms is set when it is about to be sent."""
    __slots__ = ('ref', 'way', 'body', 'exchange', 'routing_key', 'key', 'delay_ms', 'due_ms', 'lo_ms', 'sent_us', 'id', 'hold',
                 'replaces')

    def __init__(self, ref, way):
        self.ref, self.way = ref, way
        self.key = self.delay_ms = self.due_ms = self.id = self.hold = self.replaces = None

    def attempt(self):
        """Its line, to be written right before it is sent."""
        self.sent_us = record.now_us()
        self.lo_ms = self.due_ms if self.delay_ms is None else record.lo_ms(self.sent_us, self.delay_ms)
        return (f'A {self.ref} {self.sent_us} {self.way} {record.word(self.exchange)} {record.word(self.routing_key)} {self.lo_ms}'
                + (' at' if self.delay_ms is None else ''))

    def accepted(self, due_ms=None):
        return f'K {self.ref} {record.now_us()} {self.id or "-"} {"-" if due_ms is None else due_ms}'

    def refused(self, why):
        return f'R {self.ref} {record.now_us()} {record.word(why)}'

    def unknown(self, why):
        return f'U {self.ref} {record.now_us()} {record.word(why)}'


def rfc3339(ms):
    return time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(ms // 1000)) + f'.{ms % 1000:03}Z'


class Maker:
    """Makes one way's messages; one thread's own."""

    def __init__(self, config, run, way):
        self.rng = random.Random(f'{config["seed"]} {config["name"]} {run} {way}')
        self.prefix = f'{config["name"]}-{way}{run}-'
        self.way, self.number, self.spread_ms = way, 0, config.get('spread_ms', 0)
        self.exchanges = config.get('exchanges', ['postdate.delivery'])
        self.routing_keys = config.get('routing_keys', ['chaos.a', 'chaos.b', 'chaos.c'])

    def message(self, binary=False):
        m = Message(f'{self.prefix}{self.number}', self.way)
        self.number += 1
        rng, size = self.rng, self.rng.randrange(30, 240)
        pad = rng.randbytes(size) if binary else ''.join(rng.choices(TEXT, k=size)).encode()
        m.body = record.make_body(m.ref, pad)
        m.exchange, m.routing_key = rng.choice(self.exchanges), rng.choice(self.routing_keys)
        return m

    def mixed(self, binary=False):
        """One of the ordinary mix: mostly due within six seconds, or, with a spread, as many in each of its scales; a third at an absolute
        time."""
        m, rng = self.message(binary), self.rng
        kind = rng.random()
        delay_ms = 0 if kind < 0.04 else int(SOON_MS * (self.spread_ms / SOON_MS) ** rng.random()) if self.spread_ms else rng.randrange(200, SOON_MS) if kind < 0.85 else rng.randrange(SOON_MS, LONGEST_MS)
        if rng.random() < 0.35:
            m.due_ms = record.now_us() // 1000 + delay_ms
        else:
            m.delay_ms = delay_ms
        return m

    def due_between(self, from_ms, to_ms, binary=False):
        m = self.message(binary)
        m.due_ms = self.rng.randrange(from_ms, max(from_ms + 1, to_ms))
        return m

    @staticmethod
    def give_key(m):
        """A name that no other message has."""
        m.key = 'key.' + m.ref
