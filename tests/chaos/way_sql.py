"""Scheduling by SQL: in transactions, some of which are rolled back and must leave nothing behind."""
import json
import threading
import time

import libpq
from messages import Maker, rfc3339
from shared import Pace, Plans

BATCH = 1000
ROLLBACK_SHARE = 0.12
BACK_OFF_S = 0.05
SCHEDULE = ("select postdate.schedule(routing_key => $1, body => $2::text, exchange => $3, key => $4, delay => $5::interval, "
            'due_at => $6::timestamptz, hold => $7)')
MANY = 'select ordinal, id, error from postdate.schedule_many($1::jsonb) order by ordinal'


def parameters(m):
    delay = None if m.delay_ms is None else f'{m.delay_ms} milliseconds'
    return (m.routing_key, m.body.decode(), m.exchange, m.key, delay, None if delay else rfc3339(m.due_ms), m.hold)


class Line:
    """A connection that is made again, for ever."""

    def __init__(self, shared, name):
        self.shared, self.name, self.connection = shared, name, None

    def open(self):
        """The connection; None when it cannot be had now."""
        if self.connection is None:
            self.shared.doing[self.name] = 'connecting'
            try:
                self.connection = libpq.Connection(self.shared.config['postgres_url'])
            except libpq.Lost:
                self.shared.stopping.wait(BACK_OFF_S)
        return self.connection

    def drop(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def commit(connection):
    """'yes', 'no' or 'unknown'. A standby that is not waited for any more makes the commit a local one: a promise that the
    next failover may break."""
    try:
        tag, _ = connection.ask('commit')
    except libpq.Refused as e:
        return 'no' if e.sqlstate[:2] in ('23', '40') else 'unknown'
    if tag != 'COMMIT':
        return 'no'
    return 'unknown' if any('ommitted locally' in n for n in connection.notices) else 'yes'


class SqlWay(threading.Thread):
    def __init__(self, shared, share):
        super().__init__(name='sql', daemon=True)
        self.shared, self.pace = shared, Pace(shared, share)
        self.maker, self.plans = Maker(shared.config, shared.writer.run, 'sql'), Plans(shared, 'sql')
        self.line = Line(shared, 'sql')
        self.job = None

    def run(self):
        while not self.shared.stopping.is_set():
            self.job = self.job or self.shared.next_job('sql')
            count = 1 if self.job else self.pace.take(5)
            if count == 0:
                self.shared.doing['sql'] = 'paused' if self.shared.paused else 'waiting'
                time.sleep(0.01)
            elif connection := self.line.open():
                self.shared.doing['sql'] = 'sending'
                if self.job:
                    self.send_flood(connection)
                else:
                    self.send_mix(connection, count)
        self.line.drop()

    def send_mix(self, connection, count):
        messages = [self.maker.mixed() for _ in range(count)]
        for m in messages:
            kind = self.maker.rng.random()
            if kind < 0.15:
                self.maker.give_key(m)
            m.hold = 'broker' if 0.15 < kind < 0.35 else None
        wanted = self.maker.rng.random() >= ROLLBACK_SHARE
        self.shared.attempt(messages)
        ended = self.transact(connection, messages, wanted)
        if ended == 'yes':
            self.shared.answer('sql', [m.accepted() for m in messages])
            for m in messages:
                self.plans.make(m)
        else:
            self.note(messages, ended)

    def note(self, messages, ended):
        """ended: 'unknown', or why nothing of it was stored."""
        if ended == 'unknown':
            self.shared.answer('sql', [m.unknown('commit') for m in messages])
        else:
            self.shared.answer('sql', [m.refused(ended) for m in messages])

    def transact(self, connection, messages, wanted):
        """'yes', 'unknown', or why nothing was stored."""
        sent = False
        try:
            connection.ask('begin')
            for m in messages:
                m.id = connection.ask(SCHEDULE, *parameters(m))[1][0][0]
            if not wanted:
                connection.ask('rollback')
                return 'rollback'
            sent = True
            ended = commit(connection)
            return 'aborted' if ended == 'no' else ended
        except libpq.Refused as e:
            self.line.drop()  # without a commit nothing stays
            return e.sqlstate
        except libpq.Lost:
            self.line.drop()
            return 'unknown' if sent else 'lost-before-commit'

    def send_flood(self, connection):
        job = self.job
        messages = [self.maker.due_between(job.from_ms, job.to_ms) for _ in range(min(BATCH, job.left))]
        data = json.dumps([{'routing_key': m.routing_key, 'body': m.body.decode(), 'exchange': m.exchange,
                            'due_at': rfc3339(m.due_ms)} for m in messages])
        self.shared.attempt(messages)
        sent, ended, rows = False, 'aborted', []
        try:
            connection.ask('begin')
            rows = connection.ask(MANY, data)[1]
            sent = True
            ended = commit(connection)
        except libpq.Refused as e:
            self.line.drop()
            ended = e.sqlstate
        except libpq.Lost:
            self.line.drop()
            ended = 'unknown' if sent else 'lost-before-commit'
        if ended == 'yes':
            for m, row in zip(messages, rows):
                m.id = row[1] or None
            self.shared.answer('sql', [m.accepted() if m.id else m.refused('error') for m in messages])
        else:
            self.note(messages, 'aborted' if ended == 'no' else ended)
            if ended != 'unknown':
                self.shared.stopping.wait(BACK_OFF_S)
                return  # nothing was stored: as many again
        self.shared.job_done(job, len(messages))
        self.job = job if job.left > 0 else None
