"""A TCP proxy between the gateways and their servers, in a process of its own, told by JSON lines what to do to whom.

    p = Proxy()
    port = p.add('timer.1.amqp', ('127.0.0.1', 5672))     # or the path of a Unix socket, or a list of addresses that take turns
    p.mode('timer.1.amqp', cut=True)                      # see MODES; without anything: as a wire
    p.reset('timer.1.amqp')                               # every connection of that link ends with a RST
    p.events('timer.1.amqp')                              # {'connections': …, 'commits_cut': …}

One link has one listening port and any number of connections, so each gateway has links of its own.
"""
import asyncio
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time

CHUNK = 65536
NO_MODE = {
    'cut': False,       # connections are reset, new ones too
    'hole': False,      # nothing goes through either way, and nobody is told: a cable pulled out
    'up': True,         # client to server goes through
    'down': True,       # server to client goes through
    'delay_ms': 0,      # before each piece
    'piece': CHUNK,     # bytes in a piece
    'cut_commit': 0,    # the answer to so many commits is swallowed, its connection reset
    'hold_text': '',    # a connection that has sent this text hold_count times hears nothing for hold_ms
    'hold_count': 0,
    'hold_ms': 0,
}


# --- the orchestrator's side ---------------------------------------------------------------------------------------
class Proxy:
    def __init__(self):
        self.process = subprocess.Popen(['setpriv', '--pdeathsig', 'KILL', sys.executable, os.path.abspath(__file__)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.lock = threading.Lock()

    def _ask(self, **order):
        with self.lock:
            self.process.stdin.write(json.dumps(order) + '\n')
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())

    def add(self, name, target):
        return self._ask(op='add', name=name, target=target)['port']

    def mode(self, name, **mode):
        assert set(mode) <= set(NO_MODE), mode
        self._ask(op='mode', name=name, mode=dict(NO_MODE, **mode))

    def listen(self, name, on):
        """Off: connections are refused, as by a host on which that server does not run."""
        self._ask(op='listen', name=name, on=on)

    def reset(self, name):
        self._ask(op='reset', name=name)

    def events(self, name):
        return self._ask(op='events', name=name)

    def close(self):
        self.process.kill()
        self.process.wait()


# --- the proxy's own side --------------------------------------------------------------------------------------------
class Link:
    def __init__(self, target):
        self.target = target
        self.mode = dict(NO_MODE)
        self.changed = asyncio.Event()
        self.pairs = set()
        self.connections = self.commits_cut = self.held = 0
        self.port, self.server, self.place = 0, None, socket.socket()

    async def listen(self, on):
        if self.port == 0:
            # Stays bound, and never listens: while the link is off nobody else's connection gets the port.
            self.place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.place.bind(('127.0.0.1', 0))
            self.port = self.place.getsockname()[1]
        if on and self.server is None:
            self.server = await asyncio.start_server(self.serve, '127.0.0.1', self.port, backlog=1000, reuse_address=True)
        elif not on and self.server is not None:
            self.server.close()
            self.server = None

    def set_mode(self, mode):
        self.mode = mode
        self.changed.set()
        self.changed = asyncio.Event()
        if mode['cut']:
            self.reset()

    def reset(self):
        for pair in list(self.pairs):
            pair.reset()

    async def connect(self):
        if isinstance(self.target, str):
            return await asyncio.open_unix_connection(self.target)
        self.target.append(self.target.pop(0))
        for n, target in enumerate(list(self.target), 1):
            try:
                return await asyncio.open_connection(*target)
            except OSError:
                if n == len(self.target):
                    raise

    async def serve(self, reader, writer):
        self.connections += 1
        if self.mode['cut']:
            abort(writer)
            return
        try:
            up = await self.connect()
        except OSError:
            abort(writer)
            return
        pair = Pair(self, writer, up[1])
        self.pairs.add(pair)
        try:
            await pair.run(reader, up[0])
        finally:
            self.pairs.discard(pair)


def abort(writer):
    """Closes with a RST where there is one (TCP)."""
    sock = writer.get_extra_info('socket')
    if sock is not None and sock.family == socket.AF_INET:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
        except OSError:
            pass
    writer.transport.abort()


class Pair:
    def __init__(self, link, client, server):
        self.link, self.client, self.server = link, client, server
        self.said, self.deaf_until = 0, 0
        for writer in (client, server):
            sock = writer.get_extra_info('socket')
            if sock.family == socket.AF_INET:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def reset(self):
        abort(self.client)
        abort(self.server)

    async def run(self, client_reader, server_reader):
        tasks = [asyncio.ensure_future(self.pump(client_reader, self.server, 'up')),
                 asyncio.ensure_future(self.pump(server_reader, self.client, 'down'))]
        try:
            await asyncio.gather(*tasks)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for t in tasks:
                t.cancel()
            self.reset()

    async def pump(self, reader, writer, direction):
        link = self.link
        while data := await reader.read(CHUNK):
            while link.mode['hole'] or not link.mode[direction]:
                await link.changed.wait()
            if reader.exception() is not None:  # reset meanwhile: what has not gone through is with the sender, who took it back
                raise reader.exception()
            if direction == 'down' and link.mode['cut_commit'] > 0 and b'COMMIT\0' in data:
                link.mode['cut_commit'] -= 1
                link.commits_cut += 1
                self.reset()
                return
            mode = link.mode
            if direction == 'down':
                await asyncio.sleep(max(0, self.deaf_until - time.monotonic()))
            elif mode['hold_text'] and self.said < mode['hold_count']:
                self.said += data.count(mode['hold_text'].encode())
                if self.said >= mode['hold_count']:
                    link.held += 1
                    self.deaf_until = time.monotonic() + mode['hold_ms'] / 1000
            if mode['delay_ms'] == 0 and mode['piece'] >= CHUNK:
                writer.write(data)
                await writer.drain()
                continue
            for at in range(0, len(data), mode['piece']):
                if link.mode is not mode:  # the rest goes as the new mode says
                    writer.write(data[at:])
                    await writer.drain()
                    break
                if mode['delay_ms']:
                    await asyncio.sleep(mode['delay_ms'] / 1000)
                writer.write(data[at:at + mode['piece']])
                await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def main():
    links = {}
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        order = json.loads(line)
        answer, name = {}, order['name']
        if order['op'] == 'add':
            target = order['target']
            links[name] = Link(target if isinstance(target, str) else target if isinstance(target[0], list) else [target])
            await links[name].listen(True)
            answer['port'] = links[name].port
        elif order['op'] == 'listen':
            await links[name].listen(order['on'])
        elif order['op'] == 'mode':
            links[name].set_mode(order['mode'])
        elif order['op'] == 'reset':
            links[name].reset()
        elif order['op'] == 'events':
            answer = {'connections': links[name].connections, 'commits_cut': links[name].commits_cut, 'held': links[name].held}
        print(json.dumps(answer), flush=True)


if __name__ == '__main__':
    asyncio.run(main())
