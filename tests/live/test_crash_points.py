"""A gateway dies at each named point, and the next one finishes what it began; or it loses a connection there, and does so
itself. tests/shim/points.txt has the points, tests/shim the library that does that to the production program.

A run: messages of all kinds wait in the queues, and a gateway starts that will die; when it is dead another one, which must
deliver each of them. Points that nobody reaches fail."""
import concurrent.futures
import json
import os
import re
import signal

import harness
from handover_kit import NEVER, handover
from harness import LiveTest, now_ms, wait_until

SHIM = os.path.join(harness.ROOT, 'build', 'tests', 'shim.so')
POINTS = os.path.join(harness.ROOT, 'tests', 'shim', 'points.txt')
SIDE_BY_SIDE = 2  # places, and so gateways, of each class


def read_points():
    """[(point, who: any or broker)]; test_relay goes through the others."""
    with open(POINTS, encoding='utf-8') as f:
        lines = [line.split(None, 3) for line in f if line.strip() and not line.startswith('#')]
    return [(point, who) for point, who, _, _ in lines if who != 'relay']


def points_of(transport, cut):
    """The full form has every point with each transport that it belongs to, the short form with one of them in turn. There
    connections are not cut before something is sent: nothing is in doubt then."""
    found = []
    for number, (point, who) in enumerate(read_points()):
        transports = ('timer', 'ttl', 'plugin') if who == 'any' else ('ttl', 'plugin')
        plain = cut and point.endswith('.before') and 'confirm' not in point
        if transport in transports and (harness.FULL or not plain and transport == transports[number % len(transports)]):
            found.append(point)
    return found


class Scene:
    """One place, with everything that messages can need, and the runs in it, one after the other."""

    def __init__(self, p, transport, cut):
        self.p = p
        # Where the confirm of a hand-over is lost, rescue delivers what the broker does not have.
        self.settings = {**handover(transport, grace='1s' if cut else NEVER, window='20s'),
                         'POSTDATE_RETRY_FIRST': '100ms', 'POSTDATE_RETRY_MAX': '300ms', 'POSTDATE_RETRY_ATTEMPTS': '1000'}
        self.gateway()  # declares what the others find
        self.client = p.client()
        self.inbox = p.consumer('q', bind='k')
        self.rejected = p.consumer('postdate.rejected')
        self.client.queue('answers')
        p.gateways[0].kill9()

    def gateway(self, **env):
        return self.p.gateway(**env, **self.settings)

    def ask(self, request):
        self.client.publish('postdate.control', json.dumps(request).encode(), exchange='', reply_to='answers',
                            correlation_id='c')

    def work(self, name, requests=True):
        """{body: earliest time}; what is refused and what is cancelled are not among them. With requests to the control queue,
        which can be answered with a failure, or without."""
        expected = {}

        def send(what, delay, key='k', **headers):
            body = f'{name} {what}'
            expected[body.encode()] = now_ms() + delay
            self.client.publish(key, body.encode(), {'x-delay': delay, **headers}, message_id=body)
        for i in range(3):
            send(f'now {i}', 0)
            send(f'soon {i}', 1000)
            send(f'held {i}', 900, **{'x-postdate-hold': 'gateway'})
        send('fed', 1000, **{'x-postdate-hold': 'broker', 'x-postdate-key': f'f.{name}'})  # handed over by a claim, for it has a key
        send('returned', 0, key=f'late.{name}')  # nothing is bound there yet
        self.client.publish('k', f'{name} bad'.encode(), {'x-delay': 'soon'}, message_id=f'{name} bad')
        if not requests:
            return expected
        self.p.psql(f"select postdate.schedule('k', '{name} cancelled', delay => '1 h', key => 'c.{name}')")
        self.ask({'op': 'cancel', 'key': f'c.{name}'})
        expected[f'{name} asked'.encode()] = now_ms() + 500
        self.ask({'op': 'schedule', 'routing_key': 'k', 'delay_ms': 500, 'key': f's.{name}', 'body': f'{name} asked'})
        return expected

    def end_at(self, point, number, expected, cut):
        """A gateway, and work until it ends there, or one of its connections: on a busy machine the first messages may be
        due before they can be handed over. Returns the gateway, what was wrong, and the names of the work."""
        how, g, names = ('CUT', 'cut') if cut else ('CRASH', 'died'), None, []
        for more, patience_s in enumerate((15, 5, 5)):
            names.append(f'{number}.{more}')
            expected.update(self.work(names[-1]))
            g = g or self.p.gateway(wait=False, LD_PRELOAD=SHIM, **{f'POSTDATE_{how[0]}': f'{point}:1'}, **self.settings)
            said = f'shim: {how[1]} at {point}, time 1'
            try:
                wait_until(lambda: g.lines_with(said) or g.process.poll() is not None, patience_s, said)
            except AssertionError:
                continue
            if cut and g.process.poll() is not None:
                return g, f'{point}: the gateway ended with {g.wait()}', names
            if not cut and (g.wait() != -signal.SIGKILL or not g.lines_with(said)):
                return g, f'{point}: the gateway ended with {g.wait()} instead of being killed there', names
            return g, None, names
        return g, f'{point}: nobody came there', names

    def run(self, point, number, cut):
        """What was wrong, as text, or nothing."""
        expected = {}
        g, wrong, names = self.end_at(point, number, expected, cut)
        for name in names:
            self.client.channel.queue_bind('q', 'postdate.delivery', f'late.{name}')
        if not cut:
            g.kill9()
            g = self.gateway()
        bad = {f'{name} bad'.encode() for name in names}
        try:
            wait_until(lambda: set(expected) <= {m.body for m in self.inbox.all()}, 30, f'all of {point} to arrive')
            wait_until(lambda: bad <= {m.body for m in self.rejected.all()}, 10, 'the refused ones')
            wait_until(lambda: set(self.p.counts()) <= {'delivered', 'cancelled'}, 30, f'all of {point} to be settled')
        except AssertionError as e:
            missing = set(expected) - {m.body for m in self.inbox.all()}
            wrong = f'{wrong or point}: {e}; missing: {sorted(missing)}; states: {self.p.counts()}'
        g.kill9()
        if wrong:
            self.clear()
        return wrong or self.judge(point, number, names, expected)

    def run_failing(self, fail, number):
        """The same with POSTDATE_FAIL: the gateway goes on, or ends with a word and a code, and the next one goes on."""
        expected = self.work(f'{number}.0', requests=False)
        g = self.p.gateway(wait=False, LD_PRELOAD=SHIM, POSTDATE_FAIL=fail, **self.settings)
        self.client.channel.queue_bind('q', 'postdate.delivery', f'late.{number}.0')

        def arrived():
            return set(expected) <= {m.body for m in self.inbox.all()} and \
                f'{number}.0 bad'.encode() in {m.body for m in self.rejected.all()} and \
                set(self.p.counts()) <= {'delivered', 'cancelled'}
        wrong = None
        try:
            wait_until(lambda: arrived() or g.process.poll() is not None, 30, 'all to arrive')
            if g.process.poll() is not None:
                code = g.wait()
                words = g.lines_with('^(?!shim:)')
                wrong = None if code > 0 and words else f'{fail}: it ended with {code}: {g.log()[-300:]}'
                g = self.gateway()
                wait_until(arrived, 30, 'all to arrive from the next one')
        except AssertionError as e:
            missing = set(expected) - {m.body for m in self.inbox.all()}
            wrong = f'{fail}: {e}; missing: {sorted(missing)}; states: {self.p.counts()}; {g.log()[-300:]}'
        g.kill9()
        if wrong:
            self.clear()
        return wrong or self.judge(fail, number, [], expected)

    def count_calls(self, call):
        """How many of them a gateway makes that starts, does some work and stops."""
        name = f'{call.format(0)} counted'
        expected = self.work(name, requests=False)
        g = self.gateway(LD_PRELOAD=SHIM, POSTDATE_FAIL=call.format(10**9))
        self.client.channel.queue_bind('q', 'postdate.delivery', f'late.{name}')
        wait_until(lambda: set(expected) <= {m.body for m in self.inbox.all()}, 20, 'all to arrive')
        wait_until(lambda: set(self.p.counts()) <= {'delivered', 'cancelled'}, 15, 'all to be settled')
        g.term()
        return int(re.search(r'not failed: \w+, time (\d+)', g.log()).group(1))

    def clear(self):
        """The next run begins with nothing in the way."""
        self.p.psql("update postdate.message set next_at = coalesce(next_at, due), state = 'delivered', settled_at = now(), owner = null "
                    'where settled_at is null')

    def judge(self, point, number, names, expected):
        seen = {}
        for m in self.inbox.all():
            if m.body.startswith(b'%d.' % number):
                seen.setdefault(m.body, []).append(m)
        wrong = [f'unexpected: {b}' for b in seen if b not in expected]
        for body, copies in seen.items():
            if len(copies) > 2 or len({m.id for m in copies}) != 1:
                wrong.append(f'{body}: {len(copies)} copies, ids {[m.id for m in copies]}')
            wrong.extend(f'{body}: early' for m in copies if m.at_ms < max(expected.get(body, 0), m.due_ms))
        twice = self.p.psql("select body, count(*) from postdate.message_now where convert_from(body, 'UTF8') "
                            f"like '{number}.%' group by 1 having count(*) > 1")
        if twice:
            wrong.append(f'stored twice: {twice}')
        states = {self.p.value(f"select state from postdate.message_now m join postdate.key k using (id) where k.key = 'c.{n}'")
                  for n in names}
        if names and states != {'cancelled'}:
            wrong.append(f'what was cancelled is {states}')
        return f'{point}: {wrong}' if wrong else None


@harness.not_san  # the production programs; a sanitizer's runtime wants to be loaded first
class Points:
    transport = None
    cut = False
    vhosts = SIDE_BY_SIDE
    weight = 95
    time_limit_s = 2000 if harness.FULL else 300

    def test_each_point(self):
        points = points_of(self.transport, self.cut)
        self.assertGreater(len(points), 2)
        places = [self.place(transport=self.transport) for _ in range(SIDE_BY_SIDE)]

        def go(index):
            scene = Scene(places[index], self.transport, self.cut)
            mine = points[index::SIDE_BY_SIDE]
            return [w for i, point in enumerate(mine) if (w := scene.run(point, i, self.cut))]
        with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            wrong = [w for found in pool.map(go, range(SIDE_BY_SIDE)) for w in found]
        self.assertEqual(wrong, [])


class TimerCrashPoints(Points, LiveTest):
    transport = 'timer'


class TtlCrashPoints(Points, LiveTest):
    transport = 'ttl'


class PluginCrashPoints(Points, LiveTest):
    transport = 'plugin'


class TimerCutPoints(Points, LiveTest):
    transport = 'timer'
    cut = True


@harness.only_full
class TtlCutPoints(Points, LiveTest):
    transport = 'ttl'
    cut = True


class PluginCutPoints(Points, LiveTest):
    transport = 'plugin'
    cut = True
