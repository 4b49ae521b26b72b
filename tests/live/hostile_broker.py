"""A server that speaks AMQP as long as it likes and then misbehaves, behind a port that can also lead to the real one.

It is no RabbitMQ and imitates none: it says yes to everything that the gateway asks for, believes nothing and keeps
nothing. A trick is a function that is called once, with one connection, at a certain stage of it: `hello` (instead of
any answer), `tune` (instead of connection.tune), `open` (instead of connection.open-ok), `consume` (when a consumer
waits), `publish` (when a message came, instead of its confirm). After a trick this end of the connection is closed, or, if
it is not to be quick, left open: then the gateway has to end it.
"""
import os
import socket
import struct
import threading
import urllib.parse

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
END = b'\xce'
FRAME_MAX = 131072
HELLO = b'AMQP\0\0\x09\x01'
START, START_OK, TUNE, TUNE_OK, OPEN, OPEN_OK = (10, 10), (10, 11), (10, 30), (10, 31), (10, 40), (10, 41)
CLOSE, CLOSE_OK = (10, 50), (10, 51)
CONSUME, PUBLISH, DELIVER, RETURN, ACK, NACK = (60, 20), (60, 40), (60, 60), (60, 50), (60, 80), (60, 120)


def short(text):
    return bytes([len(text)]) + text


def table(entries):
    return struct.pack('>I', len(entries)) + entries


def frame(kind, channel, payload, end=END, size=None):
    return struct.pack('>BHI', kind, channel, len(payload) if size is None else size) + payload + end


def method(number, arguments=b'', channel=1):
    return frame(METHOD, channel, struct.pack('>HH', *number) + arguments)


def start(properties=b'', mechanisms=b'PLAIN AMQPLAIN', version=(0, 9)):
    return method(START, bytes(version) + table(properties) + table(mechanisms) + table(b'en_US'), 0)


def tune(channels=2047, frame_max=FRAME_MAX, heartbeat=60):
    return method(TUNE, struct.pack('>HIH', channels, frame_max, heartbeat), 0)


def ack(tag, multiple=False, number=ACK, channel=1):
    return method(number, struct.pack('>QB', tag, multiple), channel)


def deliver(tag=1, consumer=b'postdate', redelivered=False):
    return method(DELIVER, short(consumer) + struct.pack('>QB', tag, redelivered) + short(b'postdate') + short(b'k'))


def header(size, properties=b'\0\0', cls=60, channel=1):
    return frame(HEADER, channel, struct.pack('>HHQ', cls, 0, size) + properties)


def nested(levels):
    """Entries of a table: an array in an array in …"""
    inner = b''.join(b'A' + struct.pack('>I', 5 * (levels - 1 - i)) for i in range(levels))
    return short(b'a') + inner


class Connection:
    """One of the gateway's, served by a thread of its own until one of the two ends it."""

    def __init__(self, broker, sock):
        self.broker, self.sock = broker, sock
        self.buffer = b''
        self.published = 0
        self.tag = b'postdate'

    def send(self, *pieces):
        for piece in pieces:
            self.sock.sendall(piece)

    def take(self, count):
        while len(self.buffer) < count:
            more = self.sock.recv(65536)
            if not more:
                raise ConnectionError
            self.buffer += more
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def read(self):
        kind, channel, size = struct.unpack('>BHI', self.take(7))
        payload = self.take(size)
        self.take(1)
        return kind, channel, payload

    def play(self, stage):
        """True when a trick was played; then nothing follows."""
        trick = self.broker.next_trick(stage)
        if trick is None:
            return False
        try:
            trick(self)
            if self.broker.quick:
                self.sock.shutdown(socket.SHUT_WR)  # what was sent still arrives
            while self.sock.recv(65536):
                pass
        finally:
            self.broker.note_end(trick)
        return True

    def serve(self):
        if self.take(8) != HELLO or self.play('hello'):
            return
        self.send(start())
        while True:
            kind, channel, payload = self.read()
            if kind == METHOD and self.answer(channel, struct.unpack('>HH', payload[:4]), payload[4:]):
                return

    def answer(self, channel, number, arguments):
        """True at the end."""
        if number == START_OK:
            if self.play('tune'):
                return True
            self.send(tune())
        elif number == OPEN:
            if self.play('open'):
                return True
            self.send(method(OPEN_OK, b'\0', 0))
        elif number == CLOSE:
            self.send(method(CLOSE_OK, b'', 0))
            return True
        elif number == CONSUME:
            at = 3 + arguments[2]
            queue = arguments[3:at]
            self.tag = arguments[at + 1:at + 1 + arguments[at]]
            self.send(method((60, 21), short(self.tag)))
            return queue == b'postdate.intake' and self.play('intake') or self.play('consume')
        elif number == PUBLISH:
            self.take_content()
            self.published += 1
            return self.play('publish')
        elif number == (50, 10):  # queue.declare
            self.send(method((50, 11), arguments[2:3 + arguments[2]] + struct.pack('>II', 0, 0)))
        elif number == (20, 10):
            self.send(method((20, 11), table(b'')))
        elif number in ((40, 10), (40, 20), (40, 30), (40, 40), (50, 20), (50, 50), (60, 10), (85, 10), (20, 40)):
            self.send(method((number[0], 51 if number == (40, 40) else number[1] + 1), b'', channel))
        elif number == (60, 30):  # basic.cancel
            self.send(method((60, 31), arguments[:1 + arguments[0]]))
        elif number in ((50, 30), (50, 40)):
            self.send(method((number[0], number[1] + 1), struct.pack('>I', 0)))
        return False

    def take_content(self):
        _, _, head = self.read()
        left = struct.unpack('>Q', head[4:12])[0]
        while left > 0:
            left -= len(self.read()[2])


class HostileBroker:
    """Listens on 127.0.0.1. Leads to the real broker until be_hostile()."""
    connection_class = Connection

    def __init__(self, real_url):
        self.acknowledged = False  # for a trick to tell
        parts = urllib.parse.urlsplit(real_url)
        self.real = (parts.hostname, parts.port)
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=100)
        port = self.listener.getsockname()[1]
        login = f'{parts.username}:{parts.password}@' if parts.username else ''
        self.url = urllib.parse.urlunsplit(parts._replace(netloc=f'{login}127.0.0.1:{port}'))
        self.lock = threading.Lock()
        self.hostile, self.quick, self.tricks, self.sockets, self.played = False, True, {}, set(), []
        self.ended = []  # tricks whose connection has ended
        self.connections = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def be_hostile(self, tricks, quick=True):
        """tricks: {stage: [function]}. Ends all connections."""
        with self.lock:
            self.hostile, self.quick, self.played, self.ended = True, quick, [], []
            self.tricks = {stage: list(functions) for stage, functions in tricks.items()}
        self.cut()

    def be_real(self):
        self.hostile = False
        self.cut()

    def next_trick(self, stage):
        with self.lock:
            left = self.tricks.get(stage)
            if not left:
                return None
            self.played.append(left[0].__name__)
            return left.pop(0)

    def note_end(self, trick):
        with self.lock:
            self.ended.append(trick.__name__)

    def left(self):
        with self.lock:
            return [f.__name__ for functions in self.tricks.values() for f in functions]

    def cut(self):
        with self.lock:
            sockets, self.sockets = self.sockets, set()
        for s in sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            with self.lock:
                self.sockets.add(client)
                self.connections += 1
            threading.Thread(target=self.serve if self.hostile else self.relay, args=(client,), daemon=True).start()

    def serve(self, client):
        with client:
            try:
                self.connection_class(self, client).serve()
            except (OSError, struct.error):
                pass  # it was ended, by the gateway or by cut()
            with self.lock:
                self.sockets.discard(client)

    def connect(self):
        return socket.create_connection(self.real)

    def relay(self, client):
        server = self.connect()
        back = threading.Thread(target=self.pump, args=(server, client), daemon=True)
        back.start()
        self.pump(client, server)
        back.join()
        client.close()
        server.close()

    def pump(self, source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self.part(source, sink)

    @staticmethod
    def part(*sockets):
        for s in sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
        self.cut()


def cpu_seconds(pid):
    with open(f'/proc/{pid}/stat', encoding='utf-8') as f:
        fields = f.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def resident_mib(pid):
    with open(f'/proc/{pid}/statm', encoding='utf-8') as f:
        return int(f.read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 2**20
