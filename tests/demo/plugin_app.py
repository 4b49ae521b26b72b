"""The demo with PLUGIN_APP=1: an application that was written for the delayed-message plugin, on a RabbitMQ without it. It knows the plugin's
exchange type and header, and nothing of Postdate. What held its messages is asked afterwards, with the command line.
Exit: 0 all arrived once, none early, and Postdate had those that waited; 1 otherwise.
"""
import json
import os
import queue
import sys
import threading
import time

from demo import connect, postdate, publish_all, wait_for_gateway

MESSAGES = [('six seconds', 6000), ('at once', None), ('half a second', 500), ('three seconds', 3000), ('one second', 1000)]
LIMIT_S = 25.0


def application(arrivals, bound):
    """Declares and binds as for the plugin, and consumes."""
    channel = connect().channel()
    channel.exchange_declare('orders', 'x-delayed-message', durable=True, arguments={'x-delayed-type': 'topic'})
    channel.queue_declare('orders.work', durable=True)
    channel.queue_bind('orders.work', 'orders', 'order.*')
    channel.basic_consume('orders.work', lambda _c, m, p, body: arrivals.put(
        (time.monotonic(), body.decode(), m.exchange, (p.headers or {}).get('x-delay'))), auto_ack=True)
    bound.set()
    channel.start_consuming()


def collect(arrivals, sent):
    """Prints arrivals as they come; returns what is wrong."""
    delays, seen, wrong = dict(MESSAGES), {}, []
    print(f"\n  {'message':<18}{'x-delay':>10}{'arrived after':>16}   exchange   x-delay then", flush=True)
    until = time.monotonic() + LIMIT_S
    while time.monotonic() < until and len(seen) < len(sent):
        try:
            at, name, exchange, x_delay = arrivals.get(timeout=0.2)
        except queue.Empty:
            continue
        seen[name] = seen.get(name, 0) + 1
        after_ms = (at - sent[name]) * 1000
        print(f"  {name:<18}{delays[name] if delays[name] else '':>10}{after_ms / 1000:>14.3f} s   {exchange:<10} {x_delay or ''}", flush=True)
        if after_ms < (delays[name] or 0):
            wrong.append(f'{name!r} was early')
    return wrong + [f'{name!r} arrived {seen.get(name, 0)} times' for name in sent if seen.get(name, 0) != 1]


def main():
    wait_for_gateway()
    connection = connect()
    version = connection._impl.server_properties['version']  # noqa: SLF001
    with open(os.path.join(os.environ['STACK_DIR'], 'rabbitmq', 'enabled_plugins'), encoding='utf-8') as f:
        enabled = f.read().strip()
    print(f'\nRabbitMQ {version} runs with the plugins {enabled}\nAn application of the delayed-message plugin declares an exchange of the type '
          f'x-delayed-message, binds a queue, and publishes {len(MESSAGES)} messages.', flush=True)
    arrivals, bound = queue.Queue(), threading.Event()
    threading.Thread(target=application, args=(arrivals, bound), daemon=True).start()
    if not bound.wait(10):
        sys.exit('It could not declare or bind.')
    sent = publish_all(connection, MESSAGES, 'orders', 'order.new')
    wrong = collect(arrivals, sent)
    time.sleep(0.3)  # what has arrived is being settled
    rows = [json.loads(line) for line in postdate('list', '--exchange', 'orders', '--json').splitlines()]
    waited = sum(delay is not None for _, delay in MESSAGES)
    if len(rows) != waited:
        wrong.append(f'Postdate knows {len(rows)} of the {waited} that were to wait')
    if wrong:
        print('\nNot as it should be: ' + '; '.join(wrong) + '.', flush=True)
        return 1
    print(f'\nAll {len(sent)} arrived once, none early. {waited} of them waited in Postdate: each is in PostgreSQL. The other one did not wait,\n'
          'and RabbitMQ routed it alone. The application knows neither.', flush=True)
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
