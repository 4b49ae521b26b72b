"""What listens in front of the broker, and plays another host or a broker in trouble."""
import select
import socket
import threading
import time
import urllib.parse

BASIC_PUBLISH = b'\x00\x3c\x00\x28'  # AMQP 0-9-1: class 60, method 40


def with_hosts(url, *hosts):
    """The same URL with these instead of its host."""
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rsplit('@', 1)[0] + '@' + ','.join(hosts)))


def port_of(url):
    return urllib.parse.urlsplit(url).port


class Door:
    """A port that leads to the broker while it is open, and refuses connections while it is not."""

    def __init__(self, port, target):
        self.port, self.target = port, target
        self.address = f'127.0.0.1:{port}'
        self.listener, self.pairs = None, []
        self.still, self.goes = set(), threading.Event()
        self.holding, self.held = False, []
        self.mute, self.unanswered = False, []
        self.lag_s = 0  # by so much each answer is late

    def open(self, buffered=None):
        """buffered: so many bytes that nobody has read are taken from a sender, about."""
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if buffered:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffered)
        self.listener.bind(('127.0.0.1', self.port))
        self.listener.listen(100)
        threading.Thread(target=self.serve, args=(self.listener,), daemon=True).start()
        return self

    def serve(self, listener):
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            if self.mute:
                self.unanswered.append(near)
                continue
            far = socket.create_connection(('127.0.0.1', self.target))
            self.pairs.append((near, far))
            threading.Thread(target=self.pump, args=(near, far), daemon=True).start()

    @staticmethod
    def read(ready):
        data = ready.recv(65536)
        if not data:
            raise ConnectionError
        return data

    def pump(self, near, far):
        try:
            while True:
                for ready in select.select([near, far], [], [])[0]:
                    if near in self.still:
                        self.goes.wait()
                    data = self.read(ready)
                    if self.holding and ready is near and BASIC_PUBLISH in data:
                        self.hold(near, far)
                    if self.lag_s and ready is far:
                        time.sleep(self.lag_s)
                    (far if ready is near else near).sendall(data)
        except (OSError, ValueError):
            self.end(near, far)

    def hold(self, near, far):
        """What the client says waits; it hears what the broker says."""
        released = threading.Event()
        self.held.append(released)
        while not released.is_set():
            if select.select([far], [], [], 0.02)[0]:
                near.sendall(self.read(far))

    def hold_publishes(self):
        """From now on each connection stands still with its next publish: the broker takes logins, and answers to no publish."""
        self.holding = True

    def release_publishes(self, pause_s):
        """They go on one after the other, the newest first."""
        self.holding = False
        while self.held:
            self.held.pop().set()
            time.sleep(pause_s)

    def say_nothing(self):
        """To who connects from now on; what is connected goes on."""
        self.mute = True

    def stand_still(self):
        """What is connected now: nothing goes through, and nobody is told, until go_on()."""
        self.still = {near for near, _ in self.pairs}

    def go_on(self):
        self.goes.set()

    @staticmethod
    def end(*sockets):
        for s in sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        """Nothing listens, and all connections end."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for pair in self.pairs:
            self.end(*pair)
        self.pairs = []
