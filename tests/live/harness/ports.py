"""Ports for servers of a test's own, and for what is to refuse connections."""
import itertools
import os
import socket

# No system gives these to who asks for any port, as gateways do for HTTP and all clients for their connections. stack.sh has higher ones.
PORTS = range(10_000, 20_000)
port_numbers = itertools.count(os.getpid() * 97)  # processes that run at the same time begin far apart


def free_ports(count):
    """All different, and free until the test uses them, or for as long as it wants them refused."""
    ports = []
    while len(ports) < count:
        port = PORTS[next(port_numbers) % len(PORTS)]
        try:
            socket.create_server(('127.0.0.1', port)).close()
        except OSError:
            continue
        ports.append(port)
    return ports


def free_port():
    return free_ports(1)[0]
