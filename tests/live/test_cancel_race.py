"""An answer `cancelled` is a promise, whoever asks and whoever waits: cancels by HTTP and by SQL race the due times.

POSTDATE_CANCEL_ROUNDS says how many rounds of 200 there are; 50 is the full form.
"""
import http.client
import json
import os
import random
import threading
import time

import harness
from harness import LiveTest, now_ms, run_psql, wait_until
from web import Web, ready_address

ROUNDS = int(os.environ.get('POSTDATE_CANCEL_ROUNDS', '1' if harness.SAN else '5'))
COUNT = 200           # cancels of a round, half of them by HTTP
SPREAD_MS = 200       # their due times lie within
EVERY_MS = 1200       # from one round to the next
LEAD_MS = 500
WINDOW_MS = 2000      # how far ahead the broker gets what it is to hold
SQL_SESSIONS = 20
ANSWERS = {(200, ''): 'cancelled', (409, 'too-late'): 'too_late', (404, 'not-found'): 'not_found'}


class Target:
    """A message, and the instant at which somebody tries to cancel it."""

    def __init__(self, number, due_ms, held_by_broker, rng):
        self.number, self.due_ms = number, due_ms
        self.hold = 'broker' if held_by_broker else 'gateway'
        self.key = f'race-{number}' if number % 4 == 0 else None
        self.by_http, self.from_http = number % 2 == 0, number % 8 < 4
        # It is claimed between a lead and half a lead before it is due, or handed over a window before.
        self.at_ms = due_ms + (-WINDOW_MS + rng.uniform(-300, 300) if held_by_broker else -LEAD_MS + rng.uniform(-90, 200))
        if number % 20 == 19:
            self.at_ms = due_ms + rng.uniform(-10, 10)
        self.id = self.answer = None

    def message(self):
        due = time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(self.due_ms // 1000)) + f'.{self.due_ms % 1000:03}Z'
        m = {'routing_key': 'race', 'body': str(self.number), 'due_at': due, 'hold': self.hold}
        return dict(m, key=self.key) if self.key else m

    def http_path(self):
        return f'/v1/messages?key={self.key}' if self.key else f'/v1/messages/{self.id}'

    def sql(self):
        return f"select postdate.cancel_key('{self.key}')" if self.key else f"select postdate.cancel('{self.id}')"


def http_answer(connection, target):
    connection.request('DELETE', target.http_path())
    response = connection.getresponse()
    body = json.loads(response.read())
    return ANSWERS.get((response.status, body.get('type', '').rsplit(':', 1)[-1]), (response.status, body))


def sleep_until(at_ms):
    time.sleep(max(0.0, at_ms / 1000 - time.time()))


class CancelRaces(LiveTest):
    weight = 12
    time_limit_s = 120 + 3 * ROUNDS

    @harness.given_time
    def test_timer(self):
        self.race({}, lambda number: False)

    @harness.not_san
    @harness.given_time
    def test_ttl(self):
        self.race({'POSTDATE_HANDOVER_TRANSPORT': 'ttl', 'POSTDATE_HANDOVER_WINDOW': f'{WINDOW_MS}ms',
                   'POSTDATE_HANDOVER_MIN_AHEAD': '200ms', 'POSTDATE_HANDOVER_GRACE': '1h'}, lambda number: number % 3 > 0)

    def race(self, env, held_by_broker):
        p = self.place()
        self.address = ready_address(p.gateway(**env))
        inbox = p.consumer('q', bind='race')
        rng, first_due = random.Random(5), now_ms() + (5000 + 200 * ROUNDS) * harness.slowness() * self.pace
        targets = [Target(n, first_due + n // COUNT * EVERY_MS + rng.randrange(SPREAD_MS), held_by_broker(n), rng)
                   for n in range(ROUNDS * COUNT)]
        self.schedule(p, targets)
        if now_ms() >= min(t.at_ms for t in targets):
            raise harness.TooSlow('scheduling took until the first round')
        self.cancel_all(p, targets)
        self.check(p, inbox, targets)

    def schedule(self, p, targets):
        """In batches, alternately by HTTP and by SQL, so that each way cancels what either made."""
        web = Web(self.address)
        for from_http in (True, False):
            part = [t for t in targets if t.from_http == from_http]
            for at in range(0, len(part), 1000):
                some = part[at:at + 1000]
                messages = json.dumps([t.message() for t in some])
                if from_http:
                    ids = [r['id'] for r in web.ask('POST', '/v1/messages', f'{{"messages":{messages}}}').json['results']]
                else:
                    ids = [r[0] for r in run_psql(p.postgres, f"select coalesce(id::text, error) from postdate.schedule_many('{messages}') order by ordinal")]
                for target, message_id in zip(some, ids):
                    target.id = message_id
        web.close()

    def cancel_all(self, p, targets):
        by_http = [t for t in targets if t.by_http]
        by_sql = [t for t in targets if not t.by_http]
        jobs = [(self.cancel_by_http, by_http[i::COUNT // 2]) for i in range(COUNT // 2)]
        jobs += [(self.cancel_by_sql, by_sql[i::SQL_SESSIONS]) for i in range(SQL_SESSIONS)]
        threads = [threading.Thread(target=job, args=(p, sorted(part, key=lambda t: t.at_ms))) for job, part in jobs]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def cancel_by_http(self, _p, targets):
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        connection.connect()
        for target in targets:
            sleep_until(target.at_ms)
            target.answer = http_answer(connection, target)
        connection.close()

    def cancel_by_sql(self, p, targets):
        session = p.session()
        for target in targets:
            sleep_until(target.at_ms)
            target.answer = session.run(target.sql())[0][0]
        session.close()

    def check(self, p, inbox, targets):
        unsettled = "select count(*) from postdate.message_now where state not in ('cancelled', 'delivered')"
        wait_until(lambda: p.value(unsettled) == '0', 30, 'all to be settled')
        state = dict(p.psql('select id, state from postdate.message_now'))
        delivered = {i for i, s in state.items() if s == 'delivered'}
        try:
            wait_until(lambda: len(inbox.all()) >= len(delivered), 20, 'all deliveries')
        except AssertionError:
            lost = delivered - {m.id for m in inbox.all()}
            self.fail(f'{len(lost)} never came, such as {[vars(t) for t in targets if t.id in lost][:3]}; the consumer '
                      f'{"lives" if inbox.thread.is_alive() else "died"}, {p.client().depth("q")} are in the queue')
        # Asked again, the other way round, each answers the same; by then nothing more may arrive.
        connection, session = http.client.HTTPConnection(*self.address, timeout=60), p.session()
        for target in targets:
            again = session.run(target.sql())[0][0] if target.by_http else http_answer(connection, target)
            self.assertEqual(again, target.answer, f'asked again about {vars(target)}')
        session.close()
        connection.close()
        arrived = [m.id for m in inbox.all()]
        self.assertEqual(len(arrived), len(set(arrived)), 'something was delivered twice')
        arrived = set(arrived)
        self.assertEqual(len(state), len(targets))
        for target in targets:
            wanted = {'cancelled': ('cancelled', False), 'too_late': ('delivered', True)}.get(target.answer)
            self.assertEqual((state[target.id], target.id in arrived), wanted, vars(target))
        for by_http in (True, False) if ROUNDS >= 5 else ():  # one round may go one way
            for hold in {t.hold for t in targets}:
                seen = {t.answer for t in targets if t.by_http == by_http and t.hold == hold}
                self.assertEqual(seen, {'cancelled', 'too_late'}, f'no race: by_http={by_http}, held by {hold}')
