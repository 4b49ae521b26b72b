"""A broker that does what a broker may do, by the dice: confirms come one by one in any order, for many at once, or again; messages are refused, or
come back; a channel is closed, a connection ends. A ledger has what became of each publish, and knows the rules."""
import random
import select
import socket
import struct
import time

import hostile_broker
from hostile_broker import ACK, NACK, PUBLISH, RETURN, ack, frame, method, short

BODY, HEADER = 3, 2
CHANNEL_CLOSE, CHANNEL_CLOSE_OK = (20, 40), (20, 41)
MOMENT_S = 0.002  # between what it does, while nothing comes


class Publish:
    """fate: None while nothing was said about it."""

    def __init__(self, exchange, routing_key, head, body):
        self.at_ms, self.fate = time.time() * 1000, None
        self.exchange, self.routing_key, self.head, self.body = exchange, routing_key, head, body


class Connection(hostile_broker.Connection):
    def __init__(self, broker, sock):
        super().__init__(broker, sock)
        self.open, self.closing = {}, False

    def serve(self):
        try:
            super().serve()
        finally:
            self.forget()

    def read(self):
        while not self.buffer and self.open and not select.select([self.sock], [], [], MOMENT_S)[0]:
            self.act()
        return super().read()

    def answer(self, channel, number, arguments):
        if number == PUBLISH:
            self.take_publish(arguments)
            return False
        if number == CHANNEL_CLOSE_OK:
            self.closing, self.published = False, 0
            return False
        return not self.closing and super().answer(channel, number, arguments)

    def take_publish(self, arguments):
        n = arguments[2]
        exchange, key = arguments[3:3 + n], arguments[4 + n:4 + n + arguments[3 + n]]
        head = super().read()[2]
        body, left = b'', struct.unpack('>Q', head[4:12])[0]
        while len(body) < left:
            body += super().read()[2]
        if self.closing:
            return  # RabbitMQ does not see it
        self.published += 1
        self.open[self.published] = Publish(exchange, key, head, body)
        if not exchange.startswith(b'postdate') and exchange:  # those are the gateway's own, by which it asks
            self.broker.ledger.publishes.setdefault(body, []).append(self.open[self.published])

    def act(self):
        broker = self.broker
        mine = [tag for tag, p in self.open.items() if p.routing_key not in broker.silent]
        if not mine:
            return
        if broker.behaves:
            what, tag = self.confirm_many, mine[-1]
        else:
            acts = {self.confirm_one: 60, self.confirm_many: 60, self.refuse_one: 6, self.refuse_many: 2, self.give_back: 6, self.close_channel: 0.3, self.end: 0.3}
            new = [f for f in acts if f.__name__ not in broker.done]  # each soon, for there may be few acts in all
            what = broker.dice.choice(new) if new and broker.dice.random() < 0.2 else broker.dice.choices(list(acts), list(acts.values()))[0]
            tag = broker.dice.choice(mine)
        broker.done.add(what.__name__)
        what(tag)

    def settle(self, tag, fate, number=ACK, multiple=False):
        """Said of this one, or of all up to it, but for those of which nothing is said."""
        upto = [t for t in self.open if t <= tag] if multiple else [tag]
        tags = [t for t in upto if self.open[t].routing_key not in self.broker.silent]
        for t in tags:
            self.open.pop(t).fate = fate
        self.send(*([ack(tag, True, number)] if multiple and tags == upto else [ack(t, False, number) for t in tags]))

    def confirm_one(self, tag):
        self.settle(tag, 'taken')
        if self.broker.dice.random() < 0.1:
            self.send(ack(tag))  # again

    def confirm_many(self, tag):
        self.settle(tag, 'taken', multiple=True)

    def refuse_one(self, tag):
        self.settle(tag, 'refused', NACK)

    def refuse_many(self, tag):
        self.settle(tag, 'refused', NACK, multiple=True)

    def give_back(self, tag):
        p = self.open[tag]
        self.send(method(RETURN, struct.pack('>H', 312) + short(b'NO_ROUTE') + short(p.exchange) + short(p.routing_key)), frame(HEADER, 1, p.head),
                  frame(BODY, 1, p.body))
        self.settle(tag, 'returned')

    def forget(self):
        for p in self.open.values():
            p.fate = 'unknown'
        self.open = {}

    def close_channel(self, tag):
        p = self.open[tag]
        self.forget()
        self.closing = True
        self.send(method(CHANNEL_CLOSE, struct.pack('>H', 404) + short(b"NOT_FOUND - no exchange '" + p.exchange + b"'") + struct.pack('>HH', *PUBLISH)))

    def end(self, _tag):
        """What was said before arrives."""
        self.forget()
        self.sock.shutdown(socket.SHUT_WR)
        while self.sock.recv(65536):
            pass
        raise ConnectionError


class Ledger:
    def __init__(self):
        self.publishes = {}

    def count(self):
        """{body: how often it was published}"""
        return {body: len(of) for body, of in list(self.publishes.items())}

    def breaches(self, due_ms, once=True):
        """due_ms: {body: when it is due}, of all that are said to be delivered. once: nobody died meanwhile."""
        for body, due in due_ms.items():
            fates = [p.fate for p in self.publishes.get(body, [])]
            if 'taken' not in fates:
                yield f'{body} is said to be delivered, and was not: {fates}'
            elif once and fates.index('taken') < len(fates) - 1:
                yield f'{body} was published again after it was confirmed: {fates}'
            if any(p.at_ms < due for p in self.publishes.get(body, [])):
                yield f'{body} came early'
        for body in set(self.publishes) - set(due_ms):
            yield f'{body} is not said to be delivered: {[p.fate for p in self.publishes[body]]}'


class AnyBroker(hostile_broker.HostileBroker):
    """behaves: it only confirms. silent: routing keys of which nothing is said."""
    connection_class = Connection

    def __init__(self, real_url, seed):
        super().__init__(real_url)
        self.dice, self.ledger, self.done = random.Random(seed), Ledger(), set()
        self.behaves, self.silent = False, set()

    def unanswered(self, routing_key):
        return sum(p.fate is None and p.routing_key == routing_key for of in list(self.ledger.publishes.values()) for p in of)
