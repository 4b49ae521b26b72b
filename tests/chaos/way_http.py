"""Scheduling by HTTP, single messages and batches. An answer that did not come is asked for again under the same
Idempotency-Key, as a careful client would."""
import datetime
import http.client
import json
import random
import threading
import time

import record
from messages import Maker, rfc3339
from shared import Pace, Plans

BATCH_MAX, FLOOD_BATCH = 40, 1000
LIMIT_S = 6.0           # for an answer
BACK_OFF_S = 0.05
TRIES = 4               # of a request whose answer did not come
TRIES_S = 20.0          # and no longer than that
STAY = 40               # requests to one gateway before the next one's turn
REPLACE_AHEAD_MS = 1500
DOUBT = ('unknown-outcome',)
JSON = {'Content-Type': 'application/json'}


class Lost(Exception):
    """The request went out, and no whole answer came."""


class Answer:
    def __init__(self, status, data):
        self.status = status
        try:
            self.json = json.loads(data) if data else {}
        except ValueError:
            self.json = {}
        kind = self.json.get('type') if isinstance(self.json, dict) else None
        self.problem = str(kind or '').rsplit(':', 1)[-1]

    @property
    def is_doubtful(self):
        return self.problem in DOUBT or self.status == 500

    def why(self):
        return f'{self.status}-{self.problem or "answer"}'


def ms_of(text):
    try:
        parsed = datetime.datetime.fromisoformat(text.replace('Z', '+00:00'))
    except (AttributeError, ValueError):
        return None
    return round(parsed.timestamp() * 1000)


class Web:
    """One kept connection to one of the gateways; the next one when it is refused, or has served for a while."""

    def __init__(self, addresses, rng):
        self.addresses = [(host, int(port)) for host, _, port in (a.rpartition(':') for a in addresses)]
        self.at = rng.randrange(len(self.addresses))
        self.connection, self.served = None, 0

    def open(self):
        """False: this gateway does not take connections; the next call tries another one. Nothing was sent."""
        if self.served >= STAY:
            self.drop()
        if self.connection is not None:
            return True
        connection = http.client.HTTPConnection(*self.addresses[self.at], timeout=LIMIT_S)
        try:
            connection.connect()
        except OSError:
            self.drop()
            return False
        self.connection, self.served = connection, 0
        return True

    def drop(self):
        """Closes the connection; the next gateway is next."""
        if self.connection is not None:
            self.connection.close()
        self.connection, self.served = None, 0
        self.at = (self.at + 1) % len(self.addresses)

    def ask(self, method, path, body=None, headers=None):
        """After open() said True."""
        self.served += 1
        try:
            self.connection.request(method, path, None if body is None else body.encode(),
                                    {**(JSON if body is not None else {}), **(headers or {})})
            response = self.connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as e:
            self.drop()
            raise Lost(type(e).__name__) from None
        if response.will_close:
            self.drop()
        return Answer(response.status, data)


def item_of(m):
    item = {'routing_key': m.routing_key, 'body': m.body.decode(), 'exchange': m.exchange}
    if m.delay_ms is None:
        item['due_at'] = rfc3339(m.due_ms)
    else:
        item['delay_ms'] = m.delay_ms
    for name in ('key', 'hold'):
        if getattr(m, name) is not None:
            item[name] = getattr(m, name)
    if m.replaces:
        item['on_conflict'] = 'replace'
    return item


class HttpWay(threading.Thread):
    """way: 'http' for single messages, 'batch' for many at once, which does the floods, too."""

    def __init__(self, shared, way, share):
        super().__init__(name=way, daemon=True)
        self.shared, self.way, self.pace = shared, way, Pace(shared, share)
        self.maker, self.plans = Maker(shared.config, shared.writer.run, way), Plans(shared, way)
        self.rng = random.Random(f'{shared.config["seed"]} {shared.config["name"]} {way} choices')
        self.web = Web(shared.config['http'], self.rng)
        self.named = []  # accepted with a key, which may be replaced
        self.job, self.next_batch = None, 10

    def run(self):
        while not self.shared.stopping.is_set():
            messages = self.next_messages()
            if not messages:
                self.shared.doing[self.name] = 'paused' if self.shared.paused else 'waiting'
                time.sleep(0.01)
            else:
                ended = self.send(messages)
                if self.job and ended != 'not-stored':
                    self.shared.job_done(self.job, len(messages))
                    self.job = self.job if self.job.left > 0 else None
                elif self.job:
                    self.shared.stopping.wait(0.2)
        self.web.drop()

    def next_messages(self):
        if self.way == 'http':
            return [self.single()] if self.pace.take(1) else None
        self.job = self.job or self.shared.next_job('http')
        if self.job:
            return [self.maker.due_between(self.job.from_ms, self.job.to_ms) for _ in range(min(FLOOD_BATCH, self.job.left))]
        count = self.pace.take(self.next_batch, self.next_batch)
        if count:
            self.next_batch = self.rng.randrange(4, BATCH_MAX)
        return [self.choose_hold(self.maker.mixed()) for _ in range(count)]

    def choose_hold(self, m):
        m.hold = 'broker' if self.rng.random() < 0.2 else None
        return m

    def single(self):
        m = self.maker.mixed()
        old = self.to_replace() if self.rng.random() < 0.12 else None
        if old:
            m.key, m.exchange, m.replaces = old.key, old.exchange, old
        elif self.rng.random() < 0.3:
            self.maker.give_key(m)
        else:
            self.choose_hold(m)
        return m

    def to_replace(self):
        now_ms = record.now_us() // 1000
        self.named = [m for m in self.named if m.lo_ms > now_ms + REPLACE_AHEAD_MS]
        return self.named.pop(self.rng.randrange(len(self.named))) if self.named else None

    # --- one request, however often it takes -------------------------------------------------------------------------
    def send(self, messages):
        """'stored', 'unknown', 'not-stored'."""
        key = f'{messages[0].ref}'
        body = json.dumps({'messages': [item_of(m) for m in messages]} if self.way == 'batch' else item_of(messages[0]))
        if not self.wait_open():
            return 'not-stored'
        self.shared.doing[self.name] = 'sending'
        self.shared.attempt(messages)
        if messages[0].replaces:
            self.note_replace(messages[0], 'asked')
        doubt, until = False, time.monotonic() + TRIES_S
        for _ in range(TRIES):
            try:
                answer = self.web.ask('POST', '/v1/messages', body, {'Idempotency-Key': key})
                if not answer.is_doubtful:
                    return self.note(messages, answer, doubt)
                why = answer.why()
            except Lost as e:
                why = str(e)
            if not doubt:
                self.shared.answer(self.way, [m.unknown(why) for m in messages])
            doubt = True
            self.shared.doing[self.name] = 'asking again'
            if not self.wait_open(until):
                break
        if messages[0].replaces:
            self.note_replace(messages[0], 'unknown')
        return 'unknown'

    def wait_open(self, until=None):
        """Until a gateway takes the connection. False: stopping, or the time (monotonic) is up."""
        while not self.web.open():
            self.shared.doing[self.name] = 'no gateway takes connections'
            if self.shared.stopping.wait(BACK_OFF_S) or (until and time.monotonic() > until):
                return False
        return not self.shared.stopping.is_set()

    def note(self, messages, answer, doubt):
        if answer.status in (200, 201):
            results = answer.json['results'] if self.way == 'batch' else [{**answer.json, 'status': answer.status}]
            lines = [self.line_of(m, r) for m, r in zip(messages, results)]
        elif doubt:
            return 'unknown'  # an earlier try may have stored it all the same
        else:
            lines = [m.refused(answer.why()) for m in messages]
        self.shared.answer(self.way, lines)
        if messages[0].replaces:
            self.note_replace(messages[0], 'yes' if lines[0][0] == 'K' else 'no')
        for m in messages if not self.job else ():
            if m.id is not None and m.key is not None and self.rng.random() < 0.5:
                self.named.append(m)
            elif m.id is not None:
                self.plans.make(m)
        return 'stored' if lines[0][0] == 'K' else 'not-stored'

    @staticmethod
    def line_of(m, result):
        if result.get('status') in (200, 201) and result.get('id'):
            m.id = result['id']
            return m.accepted(ms_of(result.get('due_at')))
        return m.refused(f'{result.get("status")}-{str(result.get("type", "")).rsplit(":", 1)[-1]}')

    def note_replace(self, m, answer):
        self.shared.writer.write([f'P {m.replaces.ref} {record.now_us()} {m.ref} {answer}'])
