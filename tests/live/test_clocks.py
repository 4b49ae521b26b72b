"""Nothing is early when a clock stands still or is set: the gateway's machine was paused, the database's clock was set forward
or back. Messages come by every way in, across the moment of it.

Early is judged by time as it passed: a consumer must not get it sooner after its publisher began to send it than its delay.
What was accepted before the database's clock was set is due by that clock."""
import datetime
import sys
import threading
import time

import harness
from clock_kit import MovedClocks, postgres_with_clock
from harness import ROOT, LiveTest, now_ms, wait_until
from test_control import Requester
from web import Web


class Senders:
    """One thread for each way in; each sends a message every so often and notes when it began to."""

    def __init__(self, p, g, key, delay_ms, every_s=0.05, **fields):
        self.key, self.delay_ms, self.every_s, self.fields = key, delay_ms, every_s, fields
        self.sent, self.errors, self.stopping = {}, [], threading.Event()
        self.p, self.client, self.web, self.session = p, p.client(), Web(g.http()), p.session()
        self.requester = Requester(p.amqp)
        self.threads = [threading.Thread(target=self._loop, args=(way,), daemon=True)
                        for way in (self.amqp, self.http, self.control, self.sql)]
        for t in self.threads:
            t.start()

    def amqp(self, body):
        headers = {'x-delay': self.delay_ms} | ({'x-postdate-hold': self.fields['hold']} if self.fields else {})
        self.client.publish(self.key, body, headers)

    def object(self, body):
        return dict(self.fields, routing_key=self.key, body=body.decode(), delay_ms=self.delay_ms)

    def http(self, body):
        answer = self.web.post('/v1/messages', self.object(body))
        if answer.status != 201:
            raise AssertionError(f'{answer.status} {answer.json}')

    def control(self, body):
        answer = self.requester.ask(dict(self.object(body), op='schedule'))
        if answer['status'] != 201:
            raise AssertionError(answer)

    def sql(self, body):
        hold = ''.join(f", hold => '{v}'" for v in self.fields.values())
        answer = self.session.run(f"select postdate.schedule('{self.key}', '{body.decode()}', '{self.delay_ms} ms'{hold})")
        if len(answer) != 1 or len(answer[0][0]) != 36:
            raise AssertionError(answer)

    def _loop(self, way):
        number = 0
        try:
            while not self.stopping.is_set():
                number += 1
                body = f'{way.__name__} {number}'.encode()
                self.sent[body] = now_ms()
                way(body)
                time.sleep(self.every_s)
        except Exception as e:  # pylint: disable=broad-except
            self.errors.append(f'{way.__name__}: {e!r}')

    def after(self, count, since_ms=0, ways=('amqp', 'http', 'control', 'sql')):
        """Waits until each way has begun to send so many since then."""
        wait_until(lambda: self.errors or all(
            sum(b.startswith(w.encode()) and at >= since_ms for b, at in list(self.sent.items())) >= count for w in ways),
            20, f'{count} messages by each way')

    def stop(self):
        self.stopping.set()
        for t in self.threads:
            t.join(20 * harness.slowness())
        self.session.close()
        self.web.close()
        self.requester.close()
        if self.errors:
            raise AssertionError(self.errors)


class Clocks(LiveTest):
    DELAY_MS = 1200

    def arrivals(self, inbox, senders, deadline_s=15):
        """{body: (published ms, received ms, due ms)}, each exactly once."""
        got = inbox.wait(len(senders.sent), deadline_s)
        self.assertEqual(sorted(m.body for m in got), sorted(senders.sent))
        return {m.body: (senders.sent[m.body], m.at_ms, m.due_ms) for m in got}

    def earliest(self, arrivals):
        """{way: ms by which its earliest message came after its delay}, and says it."""
        found = {}
        for body, (published_ms, at_ms, _) in arrivals.items():
            way = body.split()[0].decode()
            found[way] = min(found.get(way, 1e9), at_ms - published_ms - self.DELAY_MS)
        print(f'    {self.id().rsplit(".", 1)[-1]}: earliest after due: '
              + ', '.join(f'{w} {round(ms)} ms' for w, ms in sorted(found.items())), file=sys.stderr)
        return found

    def assert_not_early(self, arrivals):
        self.assertEqual({w: round(ms) for w, ms in self.earliest(arrivals).items() if ms < 0}, {})

    def hold_claims(self, p):
        """Nobody looks into the database, so the gateway learns nothing of its clock; call the result to let go."""
        session = p.session()
        session.run('begin')
        session.run('lock table postdate.instance in access exclusive mode')
        return session.close


@harness.not_san
class GatewayStoodStill(Clocks):
    """Its machine was paused: the clocks that count on were not read, those that it has do not know."""
    weight = 8
    PAUSE_S = 2.0

    def stand_still(self, g, clocks):
        g.pause()
        began = time.monotonic()
        time.sleep(self.PAUSE_S)  # the pause itself
        clocks.stood_still(time.monotonic() - began)
        g.resume()

    def run_one(self, transport, wanted='', **fields):
        clocks = MovedClocks(ROOT)
        self.addCleanup(clocks.close)
        p = self.place(transport=transport)
        g = p.gateway(**clocks.env)
        if wanted and not g.lines_with(f'transport {wanted}'):
            self.skipTest(f'this broker cannot wait by {wanted}')
        p.client().queue('q', 'k')
        inbox = p.consumer('q')
        senders = Senders(p, g, 'k', self.DELAY_MS, **fields)
        senders.after(5)
        let_go = self.hold_claims(p)
        self.stand_still(g, clocks)
        resumed_ms = now_ms()
        senders.after(4, resumed_ms)
        let_go()
        senders.after(10, resumed_ms)
        senders.stop()
        self.assert_not_early(self.arrivals(inbox, senders))

    def test_gateway_holds(self):
        self.run_one('timer')

    def test_ttl(self):
        self.DELAY_MS = 3000
        self.run_one('ttl', hold='broker')

    def test_plugin(self):
        self.DELAY_MS = 3000
        self.run_one('auto', 'plugin', hold='broker')


@harness.not_san
class DatabaseClockWasSet(Clocks):
    """Its own Postgres, whose clock is set while messages come in."""
    weight = 10
    vhosts = 6
    together = True
    STEP_S = 10.0

    @classmethod
    def setUpClass(cls):
        cls.clocks, cls.servers = postgres_with_clock(cls, 'clocks')

    def setUp(self):
        self.clocks.set_time(0)


    def run_one(self, transport, step_s, hold_claims=True, **fields):
        """The place, its arrivals, and when the clock was set."""
        p = self.place(stack=self.servers, transport=transport)
        g = p.gateway()
        p.client().queue('q', 'k')
        inbox = p.consumer('q')
        senders = Senders(p, g, 'k', self.DELAY_MS, **fields)
        senders.after(5)
        let_go = self.hold_claims(p) if hold_claims else lambda: None
        self.clocks.set_time(step_s)
        set_ms = now_ms() + 1
        senders.after(4, set_ms)
        let_go()
        senders.after(10, set_ms)
        senders.stop()
        return self.arrivals(inbox, senders, 15 + abs(step_s)), set_ms

    def test_forward(self):
        for transport, fields in (('timer', {}), ('ttl', {'hold': 'broker'})):
            self.clocks.set_time(0)
            self.DELAY_MS = 3000 if fields else 1200
            arrivals, set_ms = self.run_one(transport, self.STEP_S, **fields)
            self.assert_not_early({b: a for b, a in arrivals.items() if a[0] > set_ms})
            for _, at_ms, due_ms in arrivals.values():
                self.assertGreaterEqual(at_ms + (self.STEP_S * 1000 if at_ms >= set_ms else 0), due_ms)

    def test_back(self):
        """What is accepted from then on is neither early nor late, by the clock as it is now."""
        for transport, fields in (('timer', {}), ('ttl', {'hold': 'broker'})):
            self.clocks.set_time(0)
            self.DELAY_MS = 3000 if fields else 1200
            arrivals, set_ms = self.run_one(transport, -4.0, hold_claims=False, **fields)
            self.assert_not_early(arrivals)
            for published_ms, at_ms, due_ms in arrivals.values():
                if published_ms > set_ms:
                    self.assertGreaterEqual(at_ms - 4000, due_ms)
                    self.assertLess(at_ms - published_ms, self.DELAY_MS + 3500)

    def test_back_and_the_hand_over_goes_on(self):
        """What a gateway has heard of the exit queue was sent later, by the clock as it is now."""
        p = self.place(stack=self.servers, transport='ttl')
        p.gateway()
        wait_until(lambda: p.value('select relay_pings[1] from postdate.instance') != '', 10, 'a ping to come')
        self.clocks.set_time(-90)
        time.sleep(13)  # a queue that gives nothing for ten seconds gets nothing
        p.client().publish('k', b'after', {'x-delay': 5000, 'x-postdate-hold': 'broker'})
        wait_until(lambda: p.counts().get('handed', 0) == 1, 4, 'it to be handed over')

    def test_back_and_due_at_once_by_the_old_clock(self):
        """By SQL, which no gateway sees until it claims it: the claim tells the time by which it is judged. And points in
        time that are past by the old clock: the transaction that stores them says that they are not."""
        p = self.place(stack=self.servers, transport='timer')
        g = p.gateway()
        p.client().queue('q', 'k')
        inbox, session, web, client = p.consumer('q'), p.session(), Web(g.http()), p.client()
        self.addCleanup(web.close)

        def sql(name, due_ms):
            session.run(f"select postdate.schedule('k', '{name}', due_at => to_timestamp({due_ms} / 1000.0))")

        def http(name, due_ms):
            at = datetime.datetime.fromtimestamp(due_ms / 1000, datetime.timezone.utc).isoformat()
            self.assertEqual(web.post('/v1/messages', {'routing_key': 'k', 'body': name, 'due_at': at}).status, 201)

        def amqp(name, due_ms):
            client.publish('k', name.encode(), {'x-postdate-at': due_ms})

        came, step_s = {}, 0
        for i in range(3):
            for way in (sql, http, amqp):
                # Not farther: a look begins two seconds below the last one, only the sweep of each second at the beginning.
                step_s -= 1.5
                self.clocks.set_time(step_s)
                at_ms = now_ms()
                way(f'{way.__name__} {i}', int(at_ms + step_s * 1000) + 400)
                came[f'{way.__name__} {i}'] = inbox.wait(len(came) + 1)[-1].at_ms - at_ms
        session.close()
        self.assertEqual({k: v for k, v in came.items() if not 399 <= v < 1500}, {})
