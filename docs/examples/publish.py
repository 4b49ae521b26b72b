import os
import pika

connection = pika.BlockingConnection(pika.URLParameters(os.environ['AMQP_URL']))
channel = connection.channel()
channel.confirm_delivery()
channel.basic_publish(
    exchange='postdate', routing_key='order.reminder', body=b'still in the cart',
    properties=pika.BasicProperties(delivery_mode=2, headers={'x-delay': 5000}))
connection.close()
