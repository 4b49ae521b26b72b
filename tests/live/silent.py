"""Hosts that say nothing, as whoever connects to them sees it."""
import socket


class Hung:
    """Its kernel takes the connection, and nobody ever says a word."""

    def __init__(self):
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=200)
        self.port = self.listener.getsockname()[1]
        self.address = f'127.0.0.1:{self.port}'

    def close(self):
        self.listener.close()


class Gone(Hung):
    """Its packets are dropped: a port whose queue of connections is full."""

    def __init__(self):
        self.listener = socket.create_server(('127.0.0.1', 0), backlog=0)
        self.port = self.listener.getsockname()[1]
        self.address = f'127.0.0.1:{self.port}'
        self.waiting = []
        for _ in range(4):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(('127.0.0.1', self.port))
            self.waiting.append(one)

    def close(self):
        for one in self.waiting:
            one.close()
        super().close()
