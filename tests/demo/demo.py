"""The demo's client: publishes with an x-delay header, as users of the delayed-message plugin do, and consumes.

It knows nothing of Postdate but the exchange's name and that header. One message is scheduled, and cancelled, with the
command line. Exit: 0 all arrived once, none early, the cancelled one did not, and RabbitMQ held those that it should; 1
otherwise.
"""
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time

import pika

# Published in this order: a long delay first must not hold up the shorter ones behind it.
MESSAGES = [('ten seconds', 10000), ('three seconds', 3000), ('half a second', 500), ('seven and a half', 7500),
            ('one second', 1000), ('five seconds', 5000), ('one and a half', 1500)]
CANCELLED, CANCELLED_DELAY = 'cancelled', '4s'
# Those due later than this are handed to RabbitMQ, if it is to wait; for nearer ones the detour is not worth it
# (handover.min_ahead, 2 s).
HANDED_FROM_MS = 2000
SURELY_HANDED_MS = 5000  # a busy machine may not get round to the nearer ones in time; then the gateway keeps them
RUN_S = 11.0
SLOWEST_S = 25.0

URL = os.environ['POSTDATE_AMQP_URL']
POSTDATE = os.environ['DEMO_POSTDATE']


def connect():
    return pika.BlockingConnection(pika.URLParameters(URL))


def gateway_runs():
    try:
        with open(f"/proc/{os.environ['DEMO_GATEWAY_PID']}/stat", encoding='utf-8') as f:
            return f.read().rsplit(')', 1)[1].split()[0] not in 'ZX'
    except OSError:
        return False


def wait_for_gateway():
    """Until the gateway says that it is ready; returns the transport that it uses."""
    until = time.monotonic() + 30
    while time.monotonic() < until and gateway_runs():
        with open(os.environ['DEMO_GATEWAY_LOG'], encoding='utf-8') as f:
            ready = re.search(r'\bready: .*\(transport (\w+)\)', f.read())
        if ready:
            return ready[1]
        time.sleep(0.05)
    sys.exit('The gateway did not start.')


def describe(transport):
    if transport == 'timer':
        return 'The gateway itself waits, with everything (transport timer).'
    double = ', with a test double of the plugin' if transport == 'plugin' and os.environ.get('DEMO_PLUGIN') else ''
    return f'RabbitMQ waits, with what is due later than in 2 s (transport {transport}{double}).'


def consume(arrivals, ready):
    connection = connect()
    channel = connection.channel()
    name = channel.queue_declare('', exclusive=True).method.queue
    channel.queue_bind(name, 'postdate.delivery', 'demo.#')
    channel.basic_consume(name, lambda _c, _m, p, body: arrivals.put(
        (time.monotonic(), body.decode(), p.headers['x-postdate-id'])), auto_ack=True)
    ready.set()
    channel.start_consuming()


def postdate(*arguments):
    done = subprocess.run([POSTDATE, *arguments], stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode != 0:
        sys.exit(f'postdate {arguments[0]} failed with exit code {done.returncode}')
    return done.stdout.strip()


def publish_all(connection, messages=MESSAGES, exchange='postdate', key='demo.message'):
    """messages: of (name, delay in ms; None: without one). When each was sent."""
    channel = connection.channel()
    channel.confirm_delivery()
    sent = {}
    for name, delay_ms in messages:
        sent[name] = time.monotonic()
        channel.basic_publish(exchange, key, name.encode(),
                              pika.BasicProperties(headers={} if delay_ms is None else {'x-delay': delay_ms}, delivery_mode=2))
    return sent


def show_held(count):
    """Until RabbitMQ holds that many, by the gateway's book. The ids of all that it was seen to hold: a consumer sees no
    difference."""
    held, until = set(), time.monotonic() + 2.5
    while True:
        now = [json.loads(line)['id'] for line in postdate('list', '--state', 'handed', '--json').splitlines()]
        held.update(now)
        if len(now) >= count or time.monotonic() > until:
            break
        time.sleep(0.05)
    print(f'RabbitMQ holds {len(now)} of them now, until shortly before they are due.')
    return held


def collect(arrivals, sent, by_broker, handed):
    """Prints arrivals as they come; returns what is wrong."""
    delays = dict(MESSAGES)
    seen, wrong, lateness, held = {}, [], [], 0
    begin = min(sent.values())
    print(f"\n  {'message':<18}{'delay asked':>14}{'arrived after':>16}{'late by':>12}   held by", flush=True)
    while True:
        passed = time.monotonic() - begin
        if passed > SLOWEST_S or (passed > RUN_S and len(seen) == len(sent)):
            break
        try:
            at, name, message_id = arrivals.get(timeout=0.2)
        except queue.Empty:
            continue
        if name not in sent:
            wrong.append(f'{name!r} arrived although it was cancelled')
            continue
        seen[name] = seen.get(name, 0) + 1
        after_ms = (at - sent[name]) * 1000
        late_ms = after_ms - delays[name]
        lateness.append(late_ms)
        holder = 'RabbitMQ' if message_id in handed else 'gateway'
        print(f'  {name:<18}{delays[name] / 1000:>12.3f} s{after_ms / 1000:>14.3f} s{late_ms:>9.1f} ms   {holder}',
              flush=True)
        if late_ms < 0:
            wrong.append(f'{name!r} arrived {-late_ms:.1f} ms early')
        held += holder == 'RabbitMQ'
        if holder == 'RabbitMQ' and name not in by_broker:
            wrong.append(f'{name!r} was held by RabbitMQ')
        if holder != 'RabbitMQ' and name in by_broker and delays[name] >= SURELY_HANDED_MS:
            wrong.append(f'{name!r} was not held by RabbitMQ')
    for name in sent:
        if seen.get(name, 0) != 1:
            wrong.append(f'{name!r} arrived {seen.get(name, 0)} times instead of once')
    return wrong, lateness, held


def main():
    transport = wait_for_gateway()
    connection = connect()
    arrivals, ready = queue.Queue(), threading.Event()
    threading.Thread(target=consume, args=(arrivals, ready), daemon=True).start()
    if not ready.wait(10):
        sys.exit('The consumer could not connect.')

    print(f'\n{describe(transport)}\n'
          f'\nAn ordinary AMQP client now publishes {len(MESSAGES)} messages to the exchange "postdate", each with an x-delay'
          '\nheader, in no particular order. Another consumes what comes out of "postdate.delivery".')
    message_id = postdate('schedule', '-k', 'demo.message', '--delay', CANCELLED_DELAY, '--body', CANCELLED)
    sent = publish_all(connection)
    postdate('cancel', message_id)
    print(f'One more, due in {CANCELLED_DELAY}, was scheduled with "postdate schedule" and cancelled:\n  {message_id}')
    by_broker = {n for n, delay_ms in MESSAGES if delay_ms >= HANDED_FROM_MS} if transport != 'timer' else set()
    handed = show_held(len(by_broker)) if by_broker else set()

    wrong, lateness, held = collect(arrivals, sent, by_broker, handed)
    if wrong:
        print('\nNot as it should be: ' + '; '.join(wrong) + '.', flush=True)
        return 1
    print(f'\nAll {len(sent)} arrived once, none early, the latest {max(lateness):.1f} ms late, {held} of them held '
          f'by RabbitMQ (transport {transport}).\nThe cancelled one did not arrive.', flush=True)
    return 0


if __name__ == '__main__':
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
