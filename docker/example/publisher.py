"""Publishes messages with different delays to Postdate, the longest first, and ends. Any AMQP client can do this."""
import os
import time

import pika

DELAYS_MS = (10000, 5000, 2000, 1000, 500)


def main():
    with open(os.environ['APP_AMQP_URL_FILE'], encoding='ascii') as f:
        connection = pika.BlockingConnection(pika.URLParameters(f.read().strip()))
    channel = connection.channel()
    channel.confirm_delivery()  # returning from basic_publish then means: safe in Postdate's intake queue
    for delay in DELAYS_MS:
        channel.basic_publish(
            exchange='postdate', routing_key='app.reminder', body=f'asked for {delay} ms'.encode(),
            properties=pika.BasicProperties(
                delivery_mode=2, headers={'x-delay': delay, 'sent_ms': int(time.time() * 1000)}))
        print(f'published, to arrive in {delay} ms')
    connection.close()


if __name__ == '__main__':
    main()
