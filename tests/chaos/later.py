"""What is asked about accepted messages later: cancel and reschedule, by HTTP and by SQL. One thread for each, so that one
that hangs does not hold up the other."""
import random
import threading

import libpq
import record
from messages import rfc3339
from way_http import Lost, Web
from way_sql import Line

TRIES = 3
BACK_OFF_S = 0.05
MOVE_MIN_MS, MOVE_MAX_MS = 300, 6000
SURE = ", pg_logical_emit_message(true, 'chaos', '')"  # what is so already waits for the standby, too: docs/sql.md


def key_path(m):
    return f'/v1/messages?key={m.key}&exchange={m.exchange}'


class Asker(threading.Thread):
    """way: 'http' or 'sql'."""

    def __init__(self, shared, way):
        super().__init__(name=f'later {way}', daemon=True)
        self.shared, self.way = shared, way
        self.rng = random.Random(f'{shared.config["seed"]} {shared.config["name"]} later {way}')
        self.asking = ByHttp(shared, self.rng) if way == 'http' else BySql(shared, self.name)

    def run(self):
        while not self.shared.stopping.is_set():
            self.shared.doing[self.name] = 'waiting'
            item = self.shared.later[self.way].take(0.2)
            if item:
                action, m = item
                self.shared.doing[self.name] = action
                self.cancel(m) if action == 'cancel' else self.move(m)
        self.asking.drop()

    def again_until_known(self, before, ask):
        """'unknown' as long as no answer comes; asked again, it must be the same. before: writes the line of a try."""
        for _ in range(TRIES):
            while not self.asking.open():
                if self.shared.stopping.wait(BACK_OFF_S):
                    return 'unknown'
            before()
            answer = ask()
            if answer != 'unknown':
                return answer
            if self.shared.stopping.wait(BACK_OFF_S):
                break
        return 'unknown'

    def cancel(self, m):
        by_key = m.id is None or (m.key is not None and self.rng.random() < 0.5)
        answer = self.again_until_known(
            lambda: self.shared.writer.write([f'C {m.ref} {record.now_us()} {self.way}']), lambda: self.asking.cancel(m, by_key))
        self.finish('c', 'cancel', m, answer)

    def move(self, m):
        """To an absolute time: asked twice it means the same."""
        due_ms = record.now_us() // 1000 + self.rng.randrange(MOVE_MIN_MS, self.shared.config.get('spread_ms') or MOVE_MAX_MS)
        answer = self.again_until_known(
            lambda: self.shared.writer.write([f'M {m.ref} {record.now_us()} {due_ms}']), lambda: self.asking.move(m, due_ms))
        self.finish('m', 'reschedule', m, answer)

    def finish(self, letter, action, m, answer):
        self.shared.writer.write([f'{letter} {m.ref} {record.now_us()} {answer}'])
        self.shared.count('later', f'{action} {answer}')


class ByHttp:
    def __init__(self, shared, rng):
        self.shared, self.web = shared, Web(shared.config.get('http_later', shared.config['http']), rng)

    def open(self):
        return self.web.open()

    def drop(self):
        self.web.drop()

    def ask(self, method, path, body, good):
        """404: a message that is still in the intake queue has no key yet; either way it was not cancelled."""
        try:
            answer = self.web.ask(method, path, body)
        except Lost:
            return 'unknown'
        if answer.status in (404, 409):
            return 'too_late'
        return good if answer.status == 200 else 'unknown'

    def cancel(self, m, by_key):
        return self.ask('DELETE', key_path(m) if by_key else f'/v1/messages/{m.id}', None, 'cancelled')

    def move(self, m, due_ms):
        return self.ask('PATCH', f'/v1/messages/{m.id}', f'{{"due_at":"{rfc3339(due_ms)}"}}', 'ok')


class BySql:
    def __init__(self, shared, name):
        self.line = Line(shared, name)

    def open(self):
        return self.line.open() is not None

    def drop(self):
        self.line.drop()

    def ask(self, statement, *parameters):
        """A lone statement is its own transaction: its answer is complete after the commit."""
        connection = self.line.connection
        try:
            rows = connection.ask(statement, *parameters)[1]
        except libpq.Refused as e:
            if e.sqlstate[:2] in ('40', '55'):
                return 'unknown'  # a lock or a twin was in the way: ask again
            self.line.drop()
            return 'unknown'
        except libpq.Lost:
            self.line.drop()
            return 'unknown'
        if any('ommitted locally' in n for n in connection.notices):
            return 'unknown'
        return {'cancelled': 'cancelled', 'rescheduled': 'ok'}.get(rows[0][0], 'too_late')

    def cancel(self, m, by_key):
        if by_key:
            return self.ask('select postdate.cancel_key($1, $2)' + SURE, m.key, m.exchange)
        return self.ask('select postdate.cancel($1::uuid)' + SURE, m.id)

    def move(self, m, due_ms):
        return self.ask('select postdate.reschedule($1::uuid, due_at => $2::timestamptz)' + SURE, m.id, rfc3339(due_ms))
