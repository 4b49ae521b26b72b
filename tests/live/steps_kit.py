"""Sessions of PostgreSQL that go on step by step, in every order.

A step is a statement, or the part of one up to the next pause. A pause is planted into the text of a function, in the database of the
test; there a session waits for an advisory lock, which needs no transaction id and no snapshot that would change what is tested.
"""
import os
import select
import subprocess
import time

from harness import DIE_WITH_PARENT, WITHOUT_JIT, slowness

PAUSE = '''
create schema if not exists test;
create or replace function test.pause(point text) returns void language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if point <> all (string_to_array(current_setting('test.points', true), ',')) is not false then return; end if;
    raise notice 'at %', point;
    perform pg_advisory_lock(current_setting('test.session')::int, hashtext(point));
    perform pg_advisory_unlock(current_setting('test.session')::int, hashtext(point));
end $$'''
END = '--end-of-the-answer--'
DEADLINE_S = 30


class Stepped:
    """A psql whose statement is begun, and heard of later."""

    def __init__(self, url, number=0):
        self.number, self.buffer, self.rows, self.points = number, b'', [], ()
        self.process = subprocess.Popen(DIE_WITH_PARENT + ['psql', '-AtXq', '-F', '\t', '-d', url], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=WITHOUT_JIT)
        self.pid = self.run(f"set test.session = {number}; select pg_backend_pid()")[0][0]

    def begin(self, statement):
        self.rows = []
        self.process.stdin.write(f'{statement}\n;\n\\echo {END}\n'.encode())
        self.process.stdin.flush()

    def hear(self, timeout_s):
        """'end', the name of the pause where it waits, or None: nothing yet. The rows of the answer are in self.rows."""
        while True:
            while b'\n' in self.buffer:
                line, self.buffer = self.buffer.split(b'\n', 1)
                line = line.decode()
                if line == END:
                    return 'end'
                if line.startswith('NOTICE:  at '):
                    return line.split()[-1]
                self.rows.append(line.split('\t'))
            if not select.select([self.process.stdout], [], [], timeout_s)[0]:
                return None
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise AssertionError(f'psql ended: {self.buffer.decode()} {self.rows}')
            self.buffer += more

    def run(self, statement, may_fail=False):
        self.begin(statement)
        if self.hear(DEADLINE_S * slowness()) != 'end':
            raise AssertionError(f'psql: no answer to {statement}')
        if not may_fail and self.error():
            raise AssertionError(f'psql: {self.error()}\nquery: {statement}')
        return self.rows

    def error(self):
        return next((row[0] for row in self.rows if 'ERROR:' in row[0]), None)

    def close(self):
        self.process.kill()
        self.process.communicate()


class Course:
    """What one session does in an order: its statements, and how far it has come."""

    def __init__(self, name, statements, points=(), heard=lambda sql, rows: None):
        """heard: gets each statement and its rows when it has ended. points: the pauses that it makes."""
        self.name, self.statements, self.points, self.heard = name, list(statements), tuple(points), heard
        self.session = self.at = None
        self.blocked = False

    def step(self, controller):
        if self.at:
            controller.run(f"select pg_advisory_unlock({self.session.number}, hashtext('{self.at}'))")
            self.at = None
        else:
            self.session.begin(self.statements[0])
        self.blocked = True  # until it is heard of

    def listen(self, timeout_s):
        what = self.session.hear(timeout_s)
        if what is None:
            return
        self.blocked = False
        if what == 'end':
            self.heard(self.statements.pop(0), self.session.rows)
        else:
            self.at = what

    def stands(self):
        return 'is blocked' if self.blocked else f'at {self.at}' if self.at else 'has ended' if not self.statements else 'between statements'


class Steps:
    """Lets courses go on, one step of one of them at a time."""

    def __init__(self, url):
        self.url, self.controller, self.sessions = url, Stepped(url), []

    def close(self):
        for s in [self.controller] + self.sessions:
            s.close()

    def run(self, courses, choose):
        """choose(how many) says which of those that can go on does. Returns the order."""
        while len(self.sessions) < len(courses):
            self.sessions.append(Stepped(self.url, len(self.sessions) + 1))
        locks = ''
        for course, session in zip(courses, self.sessions):
            course.session = session
            if session.points != course.points:
                session.run(f"set test.points = '{','.join(course.points)}'")
                session.points = course.points
            locks += ''.join(f", pg_advisory_lock({session.number}, hashtext('{p}'))" for p in course.points)
        self.controller.run(f'select pg_advisory_unlock_all(){locks}')
        order = []
        while any(c.statements for c in courses):
            free = [c for c in courses if c.statements and not c.blocked]
            if free:
                course = free[choose(len(free))]
                what = course.at or course.statements[0][:70]
                course.step(self.controller)
            self.settle(courses, not free)
            order.append(f'{course.name}: {what} … {course.stands()}' if free else 'all were blocked')
        return order

    def settle(self, courses, deadlock):
        """Until each session is idle, at a pause, or waits for a lock that another one has."""
        until = time.monotonic() + DEADLINE_S * slowness()
        while True:
            for c in courses:
                if c.blocked:
                    c.listen(0.02)
            running = {c.session.pid for c in courses if c.blocked}
            if not running:
                return
            waits = {row[0] for row in self.controller.run("select pid from pg_locks where not granted and locktype <> 'advisory'")}
            if running <= waits and not deadlock:
                return
            if time.monotonic() > until:
                raise AssertionError('no session goes on: ' + ', '.join(f'{c.name} {c.stands()}' for c in courses))
            deadlock = deadlock and all(c.blocked for c in courses if c.statements)


def all_orders(run, most=100_000):
    """Calls run(choose) for each order there is, until it returns something true, which is returned, with how many orders there were."""
    path = []  # of each choice: how many there were, which is taken
    for number in range(1, most + 1):
        depth = 0

        def choose(count):
            nonlocal depth
            if depth == len(path):
                path.append([count, 0])
            assert path[depth][0] == count, 'the same steps led elsewhere'
            depth += 1
            return path[depth - 1][1]
        if fault := run(choose):
            return fault, number
        while path and path[-1][1] + 1 == path[-1][0]:
            path.pop()
        if not path:
            return None, number
        path[-1][1] += 1
    raise AssertionError(f'more than {most} orders')


def some_orders(run, rng, most):
    for number in range(1, most + 1):
        if fault := run(rng.randrange):
            return fault, number
    return None, most


def function_text(session, function):
    return '\n'.join('\t'.join(row) for row in session.run(f"select pg_get_functiondef('{function}'::regproc)"))


def plant(session, function, changes):
    """Replaces texts, each of which is there once, in a function of the database."""
    text = function_text(session, function)
    for old, new in changes:
        if text.count(old) != 1:
            raise AssertionError(f'{function}: {old!r} is there {text.count(old)} times')
        text = text.replace(old, new)
    session.run(text)
