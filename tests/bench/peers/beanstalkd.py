"""beanstalkd: jobs in the memory of one server, with a log on disk; spoken to directly.

Its delays are whole seconds from the moment of the put. Due times that it can express are therefore what it is measured with: in
the steady shape every job is put a whole number of seconds before it is due; the herd's jobs wait in a tube that is paused until
the instant. Due times between two seconds would come up to a second late.

Protocol: https://github.com/beanstalkd/beanstalkd/blob/master/doc/protocol.txt
"""
import math
import selectors
import socket
import tempfile
import time

from servers import INSTALLED, Missing, Server, version_of

BODY_BYTES = 256
CHUNK = 1000  # puts that are sent without waiting for answers
PUT_CONNECTIONS = 2
RESERVE_CONNECTIONS = 32
TTR_S = 300
STORE_AHEAD_S = 3600
PATIENCE_S = 60

SETTINGS = {
    'store': f'put, {CHUNK} pipelined, {PUT_CONNECTIONS} connections',
    'run': f'{RESERVE_CONNECTIONS} connections, each sends delete and the next reserve together; Python',
    'durability': 'a binlog (-b), synced every 50 ms (the default of -f)',
    'due times': 'whole seconds after the put, as it demands: others would be up to 1 s late; the herd: pause-tube until the instant',
    'source': 'https://github.com/beanstalkd/beanstalkd/blob/master/doc/protocol.txt, beanstalkd(1)',
}


def put(number, due_s, delay_s):
    return b'put 0 %d %d %d\r\n%s\r\n' % (delay_s, TTR_S, BODY_BYTES, f'{due_s:.6f} {number} '.encode().ljust(BODY_BYTES, b'x'))


def connect(port):
    s = socket.create_connection(('127.0.0.1', port), 10)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return s


class Putter:
    def __init__(self, port):
        self.socket, self.expected, self.rest = connect(port), 0, b''
        self.socket.settimeout(PATIENCE_S)

    def send(self, commands):
        self.socket.sendall(b''.join(commands))
        self.expected += len(commands)

    def wait(self):
        """Until every put that was sent is answered."""
        while self.expected:
            data = self.socket.recv(1 << 18)
            if not data:
                raise Missing('beanstalkd closed the connection')
            *lines, self.rest = (self.rest + data).split(b'\r\n')
            self.expected -= len(lines)
            for line in lines:
                if not line.startswith((b'INSERTED ', b'PAUSED')):
                    raise Missing(f'beanstalkd answered {line[:60].decode(errors="replace")!r}')


def store(port, count, delay_s):
    """Seconds that it took."""
    due_s = time.time() + delay_s
    chunks = [[put(i, due_s, delay_s) for i in range(first, min(first + CHUNK, count))] for first in range(0, count, CHUNK)]
    putters = [Putter(port) for _ in range(PUT_CONNECTIONS)]
    began = time.monotonic()
    for number, chunk in enumerate(chunks):
        # The others' puts are on their way while this one waits.
        putters[number % PUT_CONNECTIONS].wait()
        putters[number % PUT_CONNECTIONS].send(chunk)
    for putter in putters:
        putter.wait()
    took_s = time.monotonic() - began
    for putter in putters:
        putter.socket.close()
    return took_s


def store_paced(port, count, per_second, delay_s):
    """Every job when it is delay_s before its due time; the first due time."""
    putter, began, number = Putter(port), time.time(), 0
    while number < count:
        now = time.time()
        until = min(count, int((now - began) * per_second) + 1)
        if until > number:
            putter.send([put(i, now + delay_s, delay_s) for i in range(number, until)])
            putter.wait()
            number = until
        time.sleep(max(0, began + number / per_second - time.time()))
    putter.socket.close()
    return began + delay_s


class Workers:
    """Connections that reserve, note when, and delete."""

    def __init__(self, port, count):
        self.missing, self.again = count, 0
        self.due_s, self.ran_s = [0.0] * count, [0.0] * count
        self.selector = selectors.EpollSelector()
        for _ in range(RESERVE_CONNECTIONS):
            s = connect(port)
            s.sendall(b'reserve\r\n')
            self.selector.register(s, selectors.EVENT_READ, [b''])

    def take(self, job):
        now = time.time()
        due, number, _ = job.split(b' ', 2)
        number = int(number)
        if self.ran_s[number]:
            self.again += 1
            return
        self.due_s[number], self.ran_s[number] = float(due), now
        self.missing -= 1

    def answer(self, key):
        data = key.data[0] + key.fileobj.recv(4096)
        if data.startswith(b'DELETED\r\n'):
            data = data[9:]
        line, _, rest = data.partition(b'\r\n')
        if len(rest) >= BODY_BYTES + 2:
            self.take(rest)
            key.fileobj.sendall(b'delete %s\r\nreserve\r\n' % line.split()[1])
            data = b''
        elif line and not b'RESERVED 1'.startswith(line[:9]):
            raise Missing(f'beanstalkd answered {line[:60].decode(errors="replace")!r}')
        key.data[0] = data

    def run(self, until_s):
        while self.missing:
            if time.time() > until_s:
                raise Missing(f'{self.missing} of {len(self.ran_s)} jobs were not run {PATIENCE_S} s after they were due')
            for key, _ in self.selector.select(1):
                self.answer(key)
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()

    def result(self, first_due_s, due_s=None):
        late_ms = sorted((ran - (due_s or due)) * 1000 for ran, due in zip(self.ran_s, self.due_s))
        seconds = max(self.ran_s) - first_due_s

        def part(p):
            return late_ms[max(0, math.ceil(len(late_ms) * p) - 1)]
        return {'seconds': seconds, 'rate': len(late_ms) / seconds, 'p50_ms': part(0.5), 'p99_ms': part(0.99), 'p999_ms': part(0.999),
                'max_ms': late_ms[-1], 'min_ms': late_ms[0], 'again': self.again}


def measure_store(port, counts):
    seconds = store(port, counts['store'], STORE_AHEAD_S)
    return {'shape': 'store', 'seconds': seconds, 'rate': counts['store'] / seconds}


def measure_steady(port, counts):
    count, delay_s = counts['steady_rate'] * counts['steady_s'], counts['steady_s'] + 2
    first_due_s = store_paced(port, count, counts['steady_rate'], delay_s)
    workers = Workers(port, count)
    workers.run(first_due_s + counts['steady_s'] + PATIENCE_S)
    return dict(workers.result(first_due_s), shape='steady')


def measure_herd(port, counts):
    putter = Putter(port)
    # The pause is longer than the delay, and than storing takes; it is set again, to the second, when all are stored.
    putter.send([b'pause-tube default 60\r\n'])
    putter.wait()
    delay_s, pause_s = 1, 3
    store(port, counts['herd'], delay_s)
    workers = Workers(port, counts['herd'])
    due_s = time.time() + pause_s
    putter.send([b'pause-tube default %d\r\n' % pause_s])
    putter.wait()
    workers.run(due_s + PATIENCE_S)
    putter.socket.close()
    return dict(workers.result(due_s, due_s), shape='herd')


def measure(counts, runs):
    """Yields the settings, then every result; each has a server of its own, because beanstalkd cannot be emptied."""
    yield {'settings': SETTINGS}
    for function, times in ((measure_store, runs), (measure_steady, 1), (measure_herd, runs)):
        for _ in range(times):
            with tempfile.TemporaryDirectory(prefix='beanstalkd-', dir=INSTALLED) as folder:
                server = Server('beanstalkd', 'beanstalkd', lambda port, f=folder: ['-l', '127.0.0.1', '-p', str(port), '-b', f])
                try:
                    yield function(server.port, counts)
                except OSError as why:
                    raise Missing(f'beanstalkd: {why}') from why
                finally:
                    server.stop()


def version():
    return version_of('beanstalkd', '-v', r'([0-9][0-9.]*)')
