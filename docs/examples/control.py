import json
import os
import time
import uuid
import pika

connection = pika.BlockingConnection(pika.URLParameters(os.environ['AMQP_URL']))
channel = connection.channel()
answers = {}
channel.basic_consume('amq.rabbitmq.reply-to', auto_ack=True, on_message_callback=lambda channel, method, properties, body:
                      answers.update({properties.correlation_id: json.loads(body)}))


def ask(request, timeout_s=10):
    name = str(uuid.uuid4())
    channel.basic_publish('', 'postdate.control', json.dumps(request), pika.BasicProperties(
        reply_to='amq.rabbitmq.reply-to', correlation_id=name, message_id=name, delivery_mode=2))
    deadline = time.monotonic() + timeout_s
    while name not in answers and time.monotonic() < deadline:
        connection.process_data_events(time_limit=0.1)
    if name not in answers:
        raise TimeoutError('no answer: may this user write to amq.default?')
    return answers.pop(name)


made = ask({'op': 'schedule', 'routing_key': 'order.reminder', 'delay': '15m', 'body': 'still in the cart'})
print(made['status'], made['id'])
print(ask({'op': 'reschedule', 'id': made['id'], 'delay': '1h'})['due_at'])
print(ask({'op': 'cancel', 'id': made['id']})['state'])
connection.close()
