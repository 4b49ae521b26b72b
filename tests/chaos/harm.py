"""Messages that would harm others if they could: one in so many of a cell's, each kind in turn. They are in no ledger and go to
no queue of the witnesses; what the ledger says of all others is the verdict over them."""
import itertools
import random
import threading
import time
import uuid

import pika
import pika.exceptions

from shared import Pace

ERRORS = (pika.exceptions.AMQPError, OSError)
LARGE = 'x' * 130_800  # with what RabbitMQ adds on the way more than a frame of 131,072 bytes may have
SOON = {'x-delay': 1500}
RETRY_QUEUE, FULL_QUEUE, CIRCLE = 'harm.retry', 'harm.full', 'harm.circle'


def prepare(channel):
    """A queue that dead-letters to postdate.retry what comes, one that is full, and a way from the deliveries back to the intake."""
    channel.queue_declare(RETRY_QUEUE, durable=True, arguments={'x-dead-letter-exchange': 'postdate.retry', 'x-message-ttl': 1})
    channel.queue_declare(FULL_QUEUE, durable=True, arguments={'x-max-length': 0, 'x-overflow': 'reject-publish'})
    channel.queue_bind(FULL_QUEUE, 'postdate.delivery', FULL_QUEUE)
    channel.exchange_bind('postdate', 'postdate.delivery', CIRCLE)


def to_intake(channel, key='harm.nowhere', body=b'harm', exchange='postdate', headers=None, **properties):
    channel.basic_publish(exchange, key, body, pika.BasicProperties(headers={**SOON, **(headers or {})}, **properties))


def to_default(channel, queue, body=b'harm', headers=None, **properties):
    channel.basic_publish('', queue, body, pika.BasicProperties(headers=headers, delivery_mode=2, **properties))


def nested(depth):
    return {'a': nested(depth - 1)} if depth else {}


def reply_to(channel):
    channel.basic_consume('amq.rabbitmq.reply-to', lambda *_: None, auto_ack=True)
    to_intake(channel, reply_to='amq.rabbitmq.reply-to')


KINDS = {
    'large header, dead-lettered': lambda c: to_default(c, RETRY_QUEUE, headers={'large': LARGE}),
    'large header, expired on its way in': lambda c: to_intake(c, headers={'large': LARGE}, expiration='0'),
    'reply_to of a requester that goes': reply_to,
    'malformed reply-to as routing key': lambda c: to_intake(c, 'amq.rabbitmq.reply-to.g2dkAAhub2RlQGhvc3Q=.x', headers={'x-postdate-exchange': ''}),
    'x-death that is no array of tables': lambda c: to_intake(c, headers={'x-death': ['a', 'b']}),
    'circle': lambda c: to_intake(c, CIRCLE, headers={'x-delay': 10}),
    'missing exchange': lambda c: to_intake(c, headers={'x-postdate-exchange': 'harm.missing'}),
    'no queue': to_intake,
    'full queue': lambda c: to_intake(c, FULL_QUEUE),
    'copy to a queue of the gateway': lambda c: to_intake(c, headers={'CC': ['postdate.exit'], 'BCC': ['postdate.control']}),
    'tables in tables': lambda c: to_intake(c, headers=nested(200)),
    'nonsense for a delay': lambda c: to_intake(c, headers={'x-delay': 'tomorrow', 'x-postdate-at': -1}),
    'user of somebody else': lambda c: to_default(c, 'postdate.exit', user_id='guest'),
    'foreign in the exit queue': lambda c: to_default(c, 'postdate.exit', b'x' * 100_000, headers={'a': 1}),
    'id of no message in the exit queue': lambda c: to_default(c, 'postdate.exit', headers={'x-postdate-id': str(uuid.uuid4())}),
    'ping of no time': lambda c: to_default(c, 'postdate.exit', b'', headers={'x-postdate-ping': -(2 ** 62)}),
    'proof of nothing': lambda c: to_default(c, 'postdate.exit', bytes(160), headers={'x-postdate-id': str(uuid.UUID(int=0)), 'x-postdate-delivered': ''}),
    'no request': lambda c: to_default(c, 'postdate.control', b'\xff' * 1000, reply_to='harm.nobody'),
    'no dead letter': lambda c: to_default(c, 'postdate.retry', headers={'x-death': 'none', 'x-postdate-attempt': -5}),
}


class Harm(threading.Thread):
    def __init__(self, shared, share):
        super().__init__(name='harm', daemon=True)
        self.shared, self.pace = shared, Pace(shared, share)
        kinds = list(KINDS)
        random.Random(f'{shared.config["seed"]} {shared.config["name"]} harm').shuffle(kinds)
        self.kinds = itertools.cycle(kinds)

    def run(self):
        prepared = False
        while not self.shared.stopping.wait(0.2):
            if not prepared or self.pace.take(1):
                prepared = self.send(next(self.kinds) if prepared else None) or prepared

    def send(self, kind):
        """On a connection of its own, which it may cost."""
        try:
            connection = pika.BlockingConnection(pika.URLParameters(self.shared.config['amqp_url'] + '?heartbeat=0&socket_timeout=3&blocked_connection_timeout=3'))
            try:
                channel = connection.channel()
                if kind:
                    KINDS[kind](channel)
                    connection.sleep(0.05)
                else:
                    prepare(channel)
            finally:
                connection.close()
            self.shared.count('harm', kind or 'prepared')
            return True
        except ERRORS as e:
            self.shared.count('harm', f'{kind or "prepare"}: {type(e).__name__}')
            time.sleep(0.5)
            return False
