import os
import pika

connection = pika.BlockingConnection(pika.URLParameters(os.environ['AMQP_URL']))
channel = connection.channel()
channel.queue_declare('shop.reminders', durable=True)
channel.queue_bind('shop.reminders', exchange='postdate.delivery', routing_key='order.*')

def on_message(channel, method, properties, body):
    print(body.decode(), properties.headers, flush=True)
    channel.basic_ack(method.delivery_tag)

channel.basic_consume('shop.reminders', on_message)
channel.start_consuming()
