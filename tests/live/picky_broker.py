"""A broker that confirms what is published, after a moment, and closes the channel or the connection over what it does not like.

What is published behind a refused message is ignored until the client has answered, as RabbitMQ does it.
"""
import select
import struct

import hostile_broker
from hostile_broker import CLOSE, PUBLISH, ack, method, short

CHANNEL_CLOSE, CHANNEL_CLOSE_OK = (20, 40), (20, 41)
CODES = (311, 320, 402, 403, 404, 405, 406, 501, 502, 503, 504, 505, 506, 530, 540, 541)  # all of AMQP 0-9-1 that end something
CONFIRM_S = 0.004


class Connection(hostile_broker.Connection):
    def __init__(self, broker, sock):
        super().__init__(broker, sock)
        self.unconfirmed, self.closing, self.confirms = [], None, False

    def read(self):
        while not self.buffer and self.unconfirmed and not select.select([self.sock], [], [], CONFIRM_S)[0]:
            self.confirm()
        return super().read()

    def confirm(self):
        with self.broker.lock:
            self.broker.taken.extend(self.unconfirmed)
        self.send(ack(self.published, True))
        self.unconfirmed = []

    def answer(self, channel, number, arguments):
        self.confirms = self.confirms or number == (85, 10)
        if number == PUBLISH:
            self.take_publish()
            return False
        if number in (CHANNEL_CLOSE_OK, (10, 51)):
            self.closing, self.unconfirmed, self.published = None, [], 0
            return number == (10, 51)
        return self.closing is None and super().answer(channel, number, arguments)

    def take_publish(self):
        head = super().read()[2]
        body, left = b'', struct.unpack('>Q', head[4:12])[0]
        while len(body) < left:
            body += super().read()[2]
        if self.closing is not None:
            self.closing.append(body)
            return
        if not self.confirms:
            return
        self.published += 1
        if body.startswith(b'bad') or (self.broker.revokes and self.broker.refused):
            self.refuse(body)
        else:
            self.unconfirmed.append(body)

    def refuse(self, body):
        """Notes who was in flight: those before it that are not confirmed. The list grows by what comes behind it."""
        code, by_connection, cause = self.broker.way
        company = self.unconfirmed
        self.closing = company
        with self.broker.lock:
            self.broker.refused.setdefault(body, []).append(company)
        arguments = struct.pack('>H', code) + short(b"PICKY - access to topic 'k' in exchange" if code == 403 else b'PICKY - not this one') + struct.pack('>HH', *cause)
        self.send(method(CLOSE, arguments, 0) if by_connection else method(CHANNEL_CLOSE, arguments))


class PickyBroker(hostile_broker.HostileBroker):
    """way: (code, by closing the connection?, class and method that are named as the cause). revokes: after the first one that
    it does not like, it likes none."""
    connection_class = Connection

    def __init__(self, real_url):
        super().__init__(real_url)
        self.way, self.revokes, self.taken, self.refused = (406, False, PUBLISH), False, [], {}

    def be_picky(self, code, by_connection, named):
        self.way = (code, by_connection, PUBLISH if named else (0, 0))
        with self.lock:
            self.taken, self.refused = [], {}
        self.be_hostile({})
