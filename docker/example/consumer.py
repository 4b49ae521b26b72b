"""Prints what Postdate delivers, with how long it was on its way. Reconnects when the broker is away."""
import os
import time

import pika


def on_message(channel, method, properties, body):
    headers = properties.headers or {}
    now_ms = time.time() * 1000
    late_ms = now_ms - headers['x-postdate-due'] if 'x-postdate-due' in headers else float('nan')
    way_ms = now_ms - headers.get('sent_ms', now_ms)
    print(f"{body.decode()}: arrived after {way_ms:.0f} ms, {late_ms:.0f} ms after it was due")
    channel.basic_ack(method.delivery_tag)


def consume(url):
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.queue_declare('app.reminders', durable=True, arguments={'x-queue-type': 'quorum'})
    channel.queue_bind('app.reminders', exchange='postdate.delivery', routing_key='app.*')
    channel.basic_qos(prefetch_count=100)
    channel.basic_consume('app.reminders', on_message)
    print('waiting for messages')
    channel.start_consuming()


def main():
    with open(os.environ['APP_AMQP_URL_FILE'], encoding='ascii') as f:
        url = f.read().strip()
    while True:
        try:
            consume(url)
        except (pika.exceptions.AMQPError, OSError) as error:
            print(f'{error!r}: again in 2 s')
            time.sleep(2)


if __name__ == '__main__':
    main()
