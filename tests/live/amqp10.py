"""A publisher that speaks AMQP 1.0, as small as it gets: one message at a time, and any value of any type in it."""
import socket
import struct
import urllib.parse

NULL = b'\x40'


def variable(code, data):
    """A string, symbol, binary, list or map, by the code of its short form."""
    return bytes([code, len(data)]) + data if len(data) < 256 else bytes([code + 16]) + struct.pack('>I', len(data)) + data


def sym(text):
    return variable(0xa3, text.encode())


def utf8(text):
    return variable(0xa1, text.encode())


def fixed(code, form, value):
    return bytes([code]) + struct.pack(form, value)


def uint(n):
    return fixed(0x70, '>I', n)


def ulong(n):
    return fixed(0x80, '>Q', n)


def timestamp(ms):
    return fixed(0x83, '>q', ms)


def listed(*items):
    data = b''.join(items)
    return b'\xd0' + struct.pack('>II', 4 + len(data), len(items)) + data


def mapped(pairs):
    data = b''.join(k + v for k, v in pairs)
    return b'\xd1' + struct.pack('>II', 4 + len(data), 2 * len(pairs)) + data


def described(number, value):
    return b'\0\x53' + bytes([number]) + value


class Publisher:
    OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, SASL_MECHANISMS, SASL_INIT, SASL_OUTCOME = \
        0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x40, 0x41, 0x44

    def __init__(self, url, address):
        parts = urllib.parse.urlsplit(url)
        self.sock = socket.create_connection((parts.hostname, parts.port), timeout=20)
        self.sent = 0
        vhost = urllib.parse.unquote(parts.path[1:])
        self.hello(3)
        self.wait(self.SASL_MECHANISMS)
        secret = f'\0{parts.username or "guest"}\0{parts.password or "guest"}'.encode()
        self.send(self.SASL_INIT, sym('PLAIN'), variable(0xa0, secret), kind=1)
        self.wait(self.SASL_OUTCOME)
        self.hello(0)
        self.send(self.OPEN, utf8('test'), utf8(f'vhost:{vhost}'))
        self.wait(self.OPEN)
        self.send(self.BEGIN, NULL, uint(0), uint(100), uint(100))
        self.wait(self.BEGIN)
        self.send(self.ATTACH, utf8('link'), uint(0), b'\x42', NULL, NULL, described(0x28, listed()),
                  described(0x29, listed(utf8(address))), NULL, NULL, uint(0))
        self.wait(self.ATTACH)
        self.wait(self.FLOW)

    def hello(self, protocol):
        self.sock.sendall(b'AMQP' + bytes([protocol, 1, 0, 0]))
        answer = self.take(8)
        assert answer[:5] == b'AMQP' + bytes([protocol]), answer

    def take(self, count):
        data = b''
        while len(data) < count:
            more = self.sock.recv(count - len(data))
            if not more:
                raise ConnectionError('RabbitMQ closed the AMQP 1.0 connection')
            data += more
        return data

    def send(self, number, *fields, kind=0, payload=b''):
        body = described(number, listed(*fields)) + payload
        self.sock.sendall(struct.pack('>IBBH', 8 + len(body), 2, kind, 0) + body)

    def wait(self, number):
        """The body of the next frame of that kind."""
        while True:
            size, offset, _, _ = struct.unpack('>IBBH', self.take(8))
            body = self.take(size - 8)[4 * (offset - 2):]
            if body and body[2] == number:
                return body
            if body and body[2] in (0x16, 0x17, 0x18):
                raise ConnectionError(f'RabbitMQ ended the AMQP 1.0 link: {body!r}')

    def publish(self, body, annotations=(), properties=()):
        """Pairs of encoded keys and values; returns when RabbitMQ has accepted it."""
        message = described(0x70, listed(b'\x41'))  # durable
        if annotations:
            message += described(0x72, mapped(annotations))
        if properties:
            message += described(0x74, mapped(properties))
        message += described(0x75, variable(0xa0, body))
        self.send(self.TRANSFER, uint(0), uint(self.sent), variable(0xa0, b'%d' % self.sent), uint(0), b'\x42', payload=message)
        self.sent += 1
        outcome = self.wait(self.DISPOSITION)
        assert b'\0\x53\x24' in outcome, outcome

    def close(self):
        self.sock.close()
