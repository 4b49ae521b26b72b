"""AMQP field tables, every type exactly.

pika 1.2 picks integer widths itself, can't send floats, and reads 'l' as unsigned and 'd' as a whole number. Importing
this module teaches it all types: a header value `Wire(kind, payload)` is sent as those very bytes, and a received
table remembers its bytes in `.raw`, so that tests can compare without loss.
"""
import datetime
import decimal
import struct

import pika.data

_FIXED = {'t': '>?', 'b': '>b', 'B': '>B', 's': '>h', 'u': '>H', 'I': '>i', 'i': '>I', 'l': '>q', 'L': '>Q',
          'f': '>f', 'd': '>d'}


class Wire:
    """A value with its AMQP type letter; payload is the Python value for fixed types, else the raw bytes."""

    def __init__(self, kind, value=None, raw=None):
        self.kind = kind
        self.raw = raw if raw is not None else self._pack(kind, value)

    @staticmethod
    def _pack(kind, value):
        if kind in _FIXED:
            return struct.pack(_FIXED[kind], value)
        if kind == 'V':
            return b''
        if kind == 'T':
            return struct.pack('>Q', value)
        if kind in 'Sx':
            return struct.pack('>I', len(value)) + value
        if kind == 'D':
            return struct.pack('>Bi', *value)
        raise ValueError(kind)

    def __repr__(self):
        return f'Wire({self.kind!r}, raw={self.raw!r})'


class Table(dict):
    """A decoded table; raw holds its entries as they came."""
    raw = b''


def _encode_value(pieces, value):
    if isinstance(value, Wire):
        pieces.append(value.kind.encode() + value.raw)
        return 1 + len(value.raw)
    if isinstance(value, float):
        return _encode_value(pieces, Wire('d', value))
    return _encode_before(pieces, value)


def _decode_value(encoded, offset):
    kind = encoded[offset:offset + 1].decode('latin-1')
    offset += 1
    if kind in _FIXED:
        size = struct.calcsize(_FIXED[kind])
        return struct.unpack_from(_FIXED[kind], encoded, offset)[0], offset + size
    if kind == 'V':
        return None, offset
    if kind == 'T':
        seconds = struct.unpack_from('>Q', encoded, offset)[0]
        try:
            return datetime.datetime.utcfromtimestamp(seconds), offset + 8
        except (ValueError, OverflowError):
            return seconds, offset + 8
    if kind == 'D':
        places, value = struct.unpack_from('>Bi', encoded, offset)
        return decimal.Decimal(value) * decimal.Decimal(10) ** -places, offset + 5
    if kind == 'F':
        return _decode_table(encoded, offset)
    length = struct.unpack_from('>I', encoded, offset)[0]
    offset += 4
    data = encoded[offset:offset + length]
    if kind == 'S':
        try:
            return data.decode('utf-8'), offset + length
        except UnicodeDecodeError:
            return data, offset + length
    if kind == 'x':
        return data, offset + length
    if kind == 'A':
        items, at, end = [], offset, offset + length
        while at < end:
            item, at = _decode_value(encoded, at)
            items.append(item)
        return items, end
    raise ValueError(f'unknown field type {kind!r}')


def _decode_table(encoded, offset):
    length = struct.unpack_from('>I', encoded, offset)[0]
    offset += 4
    end = offset + length
    table = Table()
    table.raw = encoded[offset:end]
    while offset < end:
        name, offset = pika.data.decode_short_string(encoded, offset)
        table[name], offset = _decode_value(encoded, offset)
    return table, end


def entries(raw):
    """{name: bytes of type letter and value} of a table's raw bytes."""
    out, offset = {}, 0
    while offset < len(raw):
        length = raw[offset]
        name = raw[offset + 1:offset + 1 + length]
        start = offset + 1 + length
        _, offset = _decode_value(raw, start)
        out[name.decode('utf-8')] = raw[start:offset]
    return out


def encoded(value):
    """Bytes of type letter and value, as they are sent."""
    pieces = []
    pika.data.encode_value(pieces, value)
    return b''.join(pieces)


_encode_before = pika.data.encode_value
pika.data.encode_value = _encode_value
pika.data.decode_value = _decode_value
pika.data.decode_table = _decode_table
