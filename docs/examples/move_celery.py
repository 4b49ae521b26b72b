"""Moves tasks with an ETA from a queue of Celery to Postdate. What is not confirmed stays in the queue."""
import os
import sys
import pika

queue = sys.argv[1] if len(sys.argv) > 1 else 'celery'
connection = pika.BlockingConnection(pika.URLParameters(os.environ['AMQP_URL']))
source, target = connection.channel(), connection.channel()
target.confirm_delivery()
moved = left = 0
for _ in range(source.queue_declare(queue, passive=True).method.message_count):
    method, properties, body = source.basic_get(queue)
    if method is None:
        break
    eta = (properties.headers or {}).get('eta')
    if not eta:
        left += 1  # unacknowledged: back in the queue when this ends
        continue
    zoned = eta[19:].lstrip('.0123456789') != ''
    properties.headers = {**properties.headers, 'eta': None, 'x-postdate-exchange': '',
                          'x-postdate-at': eta if zoned else eta + 'Z',
                          'x-postdate-key': 'celery/' + properties.headers['id']}
    target.basic_publish('postdate', queue, body, properties)
    source.basic_ack(method.delivery_tag)
    moved += 1
connection.close()
print(f'{moved} moved, {left} without an ETA left')
