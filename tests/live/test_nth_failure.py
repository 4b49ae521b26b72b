"""The Nth allocation, or the Nth call on a connection to Postgres, of the command line fails, once or for good: each run
ends with a documented exit code and a word on why, never by a signal; what was answered is what the database has; and the next
run works. So does a gateway, with all its connections. `make faults-full` takes every N, the short form a dozen or so."""
import concurrent.futures
import itertools
import json
import os
import re
import subprocess

import harness
from harness import LiveTest
from test_crash_points import SIDE_BY_SIDE, Scene

SHIM = os.path.join(harness.ROOT, 'build', 'tests', 'shim.so')
EXIT_CODES = {0, 1, 65, 66, 69, 70, 75, 77, 78}  # 1: only where some may fail
NEVER_REACHED = 10**9
# What fails, and how many N of each the short form takes.
WAYS = [('malloc:{}', 8), ('malloc:{}:forever', 5), ('malloc:{}@libpq', 6), ('recv:{}', 5), ('recv:{}:short', 2),
        ('send:{}', 4), ('send:{}:forever', 2), ('connect:{}', 1), ('poll:{}', 4)]
BATCH = 5
LIMIT_S = 15
POOL = 4000 if harness.FULL else 300


def spread(count, wanted, every=harness.FULL):
    """`wanted` numbers of 1..count, evenly; or every one."""
    if every or count <= wanted:
        return list(range(1, count + 1))
    return sorted({1 + i * (count - 1) // (wanted - 1) if wanted > 1 else count for i in range(wanted)})


class Command:
    """One command of the command line, again and again; each run has a tag of its own."""
    output_is_fixed = False
    some_may_fail = False

    def __init__(self, p):
        self.p = p

    def args(self, tag):
        raise NotImplementedError

    def stdin(self, tag):
        return b''

    def wrong(self, tag, code, out, words):
        """What does not fit the answer, as text, or nothing. For what was refused, both are allowed: a lost answer leaves it
        unknown."""
        return None


class Schedule(Command):
    def args(self, tag):
        return ('schedule', '-k', 'k', '--delay', '1h', '--body', tag, '--header', 'a=1', '--property', 'priority=3',
                '--key', 'key.' + tag)

    def wrong(self, tag, code, out, words):
        rows = self.p.psql(f"select id, octet_length(properties) from postdate.message_now where key = 'key.{tag}'")
        if code == 0 and [r[0] for r in rows] != [out.strip()]:
            return f'it printed {out!r}, there is {rows}'
        if rows and rows[0][1] != self.size():
            return f'it was stored with {rows[0][1]} bytes of properties instead of {self.size()}'
        return f'there are {rows}' if len(rows) > 1 else None

    def size(self):
        return self.p.psql("select octet_length(properties) from postdate.message_now where key = 'key.reference'")[0][0]


class Batch(Command):
    some_may_fail = True

    def args(self, tag):
        return 'schedule', '--batch', '-'

    def stdin(self, tag):
        return b''.join(json.dumps({'routing_key': 'k', 'delay': '1h', 'body': f'{tag}.{i}', 'headers': {'n': i}}).encode()
                        + b'\n' for i in range(BATCH))

    def wrong(self, tag, code, out, words):
        count = int(self.p.value(f"select count(*) from postdate.message_now where convert_from(body, 'UTF8') like '{tag}.%'"))
        said = re.search(r'accepted (\d+)', words)
        unknown = 'may or may not be stored' in words or not said
        if count not in ((BATCH,) if code == 0 else (0, BATCH) if unknown else (int(said.group(1)),)):
            return f'{count} of {BATCH} were stored'
        return None


class Changing(Command):
    """Something that is done to a message; `pool` has as many as can be needed."""
    verb, state, after = '', 'scheduled', ''

    def __init__(self, p):
        super().__init__(p)
        rows = p.psql(f"select postdate.schedule('k', 'b', delay => '1 h') from generate_series(1, {POOL})")
        self.pool = iter([r[0] for r in rows])
        self.ids = {}
        if self.state == 'failed':
            p.psql("update postdate.message set next_at = coalesce(next_at, due), state = 'failed', settled_at = now()")

    def args(self, tag):
        self.ids[tag] = next(self.pool)
        return self.verb, self.ids[tag]

    def wrong(self, tag, code, out, words):
        state = self.p.value(f"select state from postdate.message_now where id = '{self.ids[tag]}'")
        allowed = (self.after,) if code == 0 else (self.state, self.after)
        return None if state in allowed else f'it is {state}'


class Cancel(Changing):
    verb, after = 'cancel', 'cancelled'


class Reschedule(Changing):
    verb, after = 'reschedule', 'superseded'

    def args(self, tag):
        return *super().args(tag), '--delay', '2h'


class Retry(Changing):
    verb, state, after = 'retry', 'failed', 'scheduled'


class Show(Command):
    output_is_fixed = True

    def __init__(self, p):
        super().__init__(p)
        self.id = p.psql("select postdate.schedule('k', 'shown', delay => '1 h', headers => '{\"a\": [1, {\"b\": null}]}')")[0][0]

    def args(self, tag):
        return 'show', self.id, '--json'


class List(Command):
    output_is_fixed = True

    def __init__(self, p):
        super().__init__(p)
        p.psql("select postdate.schedule('listed', 'x', delay => '1 h', key => 'l' || i) from generate_series(1, 20) i")

    def args(self, tag):
        return 'list', '--routing-key', 'listed', '--json'


class Status(Command):
    def args(self, tag):
        return 'status', '--json'

    def wrong(self, tag, code, out, words):
        if code != 0:
            return None
        return None if len(json.loads(out)) == len(self.reference()) else f'it printed {out}'

    def reference(self):
        return json.loads(self.p.cli('status', '--json')[1])


class Token(Command):
    def args(self, tag):
        return 'token', 'create', '--exchange', 'orders', '--exchange', tag

    def wrong(self, tag, code, out, words):
        rows = self.p.psql(f"select array_length(exchanges, 1) from postdate.token where '{tag}' = any (exchanges)")
        if rows != [['2']] if code == 0 else rows not in ([], [['2']]):
            return f'there are {rows}'
        return None


class Migrate(Command):
    def args(self, tag):
        return ('migrate',)


@harness.not_san
class NthFailure(LiveTest):
    vhosts = 0
    weight = 80
    time_limit_s = 3000 if harness.FULL else 240
    numbers = itertools.count()

    def once(self, command, fail, tag=None):
        """(tag, exit code, stdout, stderr without the library's lines, what the library said)"""
        tag = tag or f't{next(self.numbers)}'
        env = command.p.env(LD_PRELOAD=SHIM, **({'POSTDATE_FAIL': fail} if fail else {}))
        try:
            done = subprocess.run([os.path.join(harness.BIN_DIR, 'postdate'), *command.args(tag)], env=env,
                                  input=command.stdin(tag), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  timeout=LIMIT_S, check=False)
        except subprocess.TimeoutExpired as e:
            return tag, -1, '', f'it ran for more than {LIMIT_S} s', (e.stderr or b'').decode(errors='replace')
        lines = done.stderr.decode(errors='replace').splitlines()
        ours = [line for line in lines if line.startswith('shim:')]
        return tag, done.returncode, done.stdout.decode(), '\n'.join(x for x in lines if x not in ours), '\n'.join(ours)

    def check(self, command, fail, reference):
        tag, code, out, words, said = self.once(command, fail)
        wrong = command.wrong(tag, code, out, words)
        if code not in EXIT_CODES or (code == 1 and not command.some_may_fail):
            wrong = f'it ended with {code}'
        elif code != 0 and not words:
            wrong = f'exit {code} without a word'
        elif code == 0 and command.output_is_fixed and out != reference:
            wrong = f'it printed {out!r} instead of {reference!r}'
        return f'{" ".join(command.args("t"))[:60]} with {fail}: {wrong} ({words!r}, {said!r})' if wrong else None

    def sweep(self, kind):
        p = self.place()
        command = kind(p)
        _, code, reference, words, _ = self.once(command, None, 'reference')
        self.assertEqual(code, 0, words)
        runs = []
        for way, wanted in WAYS:
            said = self.once(command, way.format(NEVER_REACHED))[4]
            count = int(re.search(r'not failed: \w+, time (\d+)', said).group(1))
            runs.extend(way.format(n) for n in spread(count, wanted))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            wrong = [w for w in pool.map(lambda fail: self.check(command, fail, reference), runs) if w]
        self.assertEqual(wrong, [], f'{len(wrong)} of {len(runs)} runs')
        tag, code, out, words, _ = self.once(command, None)
        self.assertEqual((code, command.wrong(tag, code, out, words)), (0, None), words)


for kind in (Schedule, Batch, Cancel, Reschedule, Retry, Show, List, Status, Token, Migrate):
    setattr(NthFailure, 'test_' + kind.__name__.lower(), lambda self, kind=kind: self.sweep(kind))


@harness.not_san
class GatewayNthFailure(LiveTest):
    """The gateway's turn: one failure at a time, while it starts and works; nothing is lost by it."""
    vhosts = SIDE_BY_SIDE
    weight = 95
    time_limit_s = 12000 if harness.FULL else 300
    # A run like this has some 230, 1,300, 95, 170, 590, 180, 270, 400 and 20 of them; the full form counts, and takes all
    # of them, or 200.
    ways = {'malloc:{}': (66, 80, 100, 120, 140, 170, 210), 'malloc:{}@libpq': (400, 1100),
            'malloc:{}@librabbitmq': (40, 80), 'recv:{}@postgres': (60, 130), 'recv:{}@amqp': (200, 450),
            'send:{}@postgres': (60, 140), 'send:{}@amqp': (100, 240), 'poll:{}': (200, 330), 'connect:{}': (9,)}

    def test_each_is_survived(self):
        scenes = [Scene(self.place(transport='ttl'), 'ttl', True) for _ in range(SIDE_BY_SIDE)]
        if harness.FULL:
            self.ways = {way: spread(scenes[0].count_calls(way), 200, False) for way in self.ways}
        runs = [way.format(n) for way, numbers in self.ways.items() for n in numbers]

        def go(index):
            mine = runs[index::SIDE_BY_SIDE]
            return [w for i, fail in enumerate(mine) if (w := scenes[index].run_failing(fail, i + 1))]
        with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            wrong = [w for found in pool.map(go, range(SIDE_BY_SIDE)) for w in found]
        self.assertEqual(wrong, [], f'{len(wrong)} of {len(runs)} runs')

    def test_a_lost_answer_is_not_taken_for_that_of_the_next_statement(self):
        """libpq said that all was well with the connection; intake could prepare that statement never again."""
        scene = Scene(self.place(transport='timer'), 'timer', True)
        self.assertIsNone(scene.run_failing('poll:1@store_batch_insert', 1))
        self.assertIn('shim: failed poll, time 1', self.places[0].gateways[1].log())
