import os
import urllib.request
import pika

def call(url):
    try:
        urllib.request.urlopen(url, timeout=10).close()
        return True
    except OSError as problem:
        print(url, problem, flush=True)
        return False

def on_message(channel, method, properties, body):
    if call(body.decode()):
        channel.basic_ack(method.delivery_tag)
    else:
        channel.basic_reject(method.delivery_tag, requeue=False)

connection = pika.BlockingConnection(pika.URLParameters(os.environ['AMQP_URL']))
channel = connection.channel()
channel.basic_qos(prefetch_count=10)
channel.basic_consume('shop.webhooks', on_message)
channel.start_consuming()
