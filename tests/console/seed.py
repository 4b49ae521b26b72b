"""A place in which a console has something to show: messages in every state, a burst, dead letters, schedules, a policy."""
import json
import os
import sys
import time
import urllib.parse

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'live'))
from harness import wait_until  # noqa: E402
from web import Web  # noqa: E402

GATEWAY = {'POSTDATE_RETRY_ATTEMPTS': '1', 'POSTDATE_DELIVERY_MAX_DELAY': '60d'}
EXCHANGES = ('orders', 'invoices', 'mail')
RETRYING = {'x-dead-letter-exchange': 'postdate.retry'}
HOUR = 3600


def exactly(queue):
    """As a pattern."""
    return queue.replace('\\', '\\\\').replace('*', '\\*')


class Seeded:
    """What was put in, by name."""

    def __init__(self, place, gateway):
        self.p = place
        self.address = gateway.http()
        wait_until(lambda: Web(self.address).get('/readyz').status == 200, 20, '/readyz')
        self.web = Web(self.address)
        self.client = place.client()

    def schedule(self, **fields):
        answer = self.web.post('/v1/messages', dict({'exchange': 'orders', 'routing_key': 'order.reminder', 'body': 'still in the cart'}, **fields))
        assert answer.status in (200, 201), answer
        return answer.json

    def batch(self, messages):
        answer = self.web.post('/v1/messages', {'messages': messages})
        assert answer.status == 200 and all(r['status'] == 201 for r in answer.json['results']), answer

    def declare(self):
        for exchange in EXCHANGES:
            self.client.channel.exchange_declare(exchange, 'topic', durable=True)

    def wait_state(self, state, count, limit_s=20):
        wait_until(lambda: len(self.web.get(f'/v1/messages?state={state}').json['messages']) >= count, limit_s, f'{count} messages to be {state}')

    def fill_ahead(self):
        """A day of orders, denser at some hours, and a burst in two hours."""
        now = int(time.time())
        wave = [12, 9, 14, 22, 31, 26, 18, 9, 6, 4, 3, 5]
        messages = [{'exchange': e, 'routing_key': f'{e[:-1]}.reminder', 'key': f'{e[:-1]}-{hour}-{i}', 'json': {'n': i, 'of': e},
                     'due_at': time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(now + 120 + hour * HOUR + i * 97))}
                    for hour in range(12) for x, e in enumerate(EXCHANGES[:2]) for i in range(wave[hour] // (x + 1))]
        messages += [{'exchange': 'mail', 'routing_key': 'newsletter', 'body': 'news',
                      'due_at': time.strftime('%Y-%m-%dT%H:%M:00Z', time.gmtime(now + 2 * HOUR))}] * 400
        for i in range(0, len(messages), 1000):
            self.batch(messages[i:i + 1000])

    def deliver(self):
        self.client.channel.queue_declare('done')
        self.client.channel.queue_bind('done', 'orders', 'order.done')
        for i in range(8):
            self.schedule(routing_key='order.done', delay_ms=0, key=f'done-{i}')
        self.wait_state('delivered', 8)

    def wait_for_another_attempt(self):
        """Refused, for their exchange was missing, and not tried soon; it is there by now."""
        ids = [self.schedule(exchange='not-yet', routing_key='again', delay_ms=0, key=f'again-{i}')['id'] for i in range(4)]
        wait_until(lambda: all(self.web.get('/v1/messages/' + i).json['state'] == 'failed' for i in ids), 20, 'the refusals')
        self.p.psql("update postdate.message set state = 'scheduled', settled_at = null, attempts = 1, next_at = now() + interval '2 hours' where exchange = 'not-yet'")
        self.client.channel.exchange_declare('not-yet', 'fanout', durable=True)
        self.client.channel.queue_bind('done', 'not-yet')

    def fail(self):
        for i in range(3):
            self.schedule(exchange='missing', routing_key=f'nowhere.{i}', delay_ms=0, key=f'failed-{i}')
        self.wait_state('failed', 3)

    def die(self, queue='invoices.new', count=6):
        self.client.channel.queue_declare(queue, durable=True, arguments=RETRYING)
        self.client.channel.queue_bind(queue, 'invoices', 'invoice.new')
        self.p.cli('retry-policy', 'set', 'invoices.*', '--attempts', '1')
        self.p.cli('rate', 'set', 'newsletters', '30/min')
        for i in range(count):
            self.schedule(exchange='invoices', routing_key='invoice.new', delay_ms=0, json={'invoice': i, 'customer': {'name': 'Ada', 'vip': True}},
                          body=None, headers={'trace': f'00-{i:032x}', 'n': i})

        self.refuse(queue, count)

    def refuse(self, queue, count):
        """Until so many of them are dead letters."""
        def refused():
            method, _, _ = self.client.channel.basic_get(queue)
            if method:
                self.client.channel.basic_reject(method.delivery_tag, requeue=False)
            return len(self.web.get('/v1/dead?' + urllib.parse.urlencode({'queue': exactly(queue)})).json['dead_letters']) >= count
        wait_until(refused, 30, f'dead letters of {queue}')

    def die_elsewhere(self):
        """Two groups of two, for who deletes them."""
        queue = 'mail.bounces'
        self.client.channel.queue_declare(queue, durable=True, arguments=RETRYING)
        self.client.channel.queue_bind(queue, 'mail', 'bounce.*')
        self.p.cli('retry-policy', 'set', queue, '--attempts', '1')
        for i in range(4):
            self.schedule(exchange='mail', routing_key=f'bounce.{i % 2}', delay_ms=0, key=f'bounce-{i}')
        self.refuse(queue, 4)

    def die_at_once(self, queue):
        """One, whatever the queue is called."""
        self.client.channel.queue_declare(queue, durable=True, arguments=RETRYING)
        self.p.cli('retry-policy', 'set', '*', '--attempts', '1')
        self.client.publish(queue, b'x', exchange='')
        self.refuse(queue, 1)

    def doubt(self):
        """A message of which nobody knows whether it was delivered, and which is not tried soon."""
        self.in_doubt = self.schedule(key='in-doubt', delay='3h')['id']
        self.p.psql(f"update postdate.message set state = 'claimed', next_at = now() + interval '2 hours' where id = '{self.in_doubt}'")

    def burst(self):
        """Two minutes' work at the rate that is taken where none was seen, in one minute in five hours."""
        self.p.psql("insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body) select d, d, postdate.id_make(d), 'g', 'flood', "
                    "'flood', '', 'x' from (select date_trunc('hour', now()) + interval '5 hours' as d from generate_series(1, 120000)) g")

    def recur(self):
        for args in (('report', '--cron', '0 9 * * mon-fri', '--zone', 'Europe/Berlin', '-k', 'report.daily', '--header', 'team=sales', '--property',
                      'type=daily-report', '--body', json.dumps({'kind': 'daily'})),
                     ('cleanup', '--cron', '@every 15m', '-k', 'cleanup', '--body', 'x'),
                     ('billing', '--cron', '30 2 1 * *', '--zone', 'America/New_York', '-k', 'billing.run', '--body', 'run', '--overlap', 'skip')):
            code, _, err = self.p.cli('recur', 'set', *args)
            assert code == 0, err
        self.p.cli('recur', 'pause', 'cleanup')

    def all(self):
        self.declare()
        self.fill_ahead()
        self.deliver()
        self.wait_for_another_attempt()
        self.fail()
        self.die()
        self.die_elsewhere()
        self.doubt()
        self.recur()
        self.moved = self.schedule(key='moved-1', delay='3h', json={'order': 42, 'lines': [{'sku': 'A-1', 'n': 2}], 'note': None}, body=None,
                                   headers={'traceparent': '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'}, properties={'priority': 3})
        self.first_id = self.moved['id']
        self.moved = self.web.ask('PATCH', '/v1/messages/' + self.first_id, {'delay': '4h'}).json
        cancelled = self.schedule(key='cancelled-1', delay='5h')
        self.web.ask('DELETE', '/v1/messages/' + cancelled['id'])
        return self
