"""The database's clock was a day ahead for a moment, and was set back: what it left in the future holds up nothing."""
import time

import harness
from clock_kit import postgres_with_clock
from harness import LiveTest, wait_until
from web import Web

DAY_S = 86400
MOMENT_S = 20
SOON_S = 10


@harness.not_san
class ClockWasADayAhead(LiveTest):
    """Its own Postgres, whose clock is set."""
    weight = 60
    time_limit_s = 400
    vhosts = 5
    together = True

    @classmethod
    def setUpClass(cls):
        cls.clocks, cls.servers = postgres_with_clock(cls, 'clock_back')

    def setUp(self):
        self.clocks.set_time(0)

    def begin(self, **env):
        p = self.place(stack=self.servers, transport='timer')
        g = p.gateway(POSTDATE_RETRY_FIRST='500ms', POSTDATE_RETRY_MAX='2s', POSTDATE_RETRY_ATTEMPTS='1000', **{'POSTDATE_KEYS_KEY_MEMORY': '2s', **env})
        inbox = p.consumer('q', declare=True, bind='k')
        return p, g, inbox

    def bodies(self, inbox):
        return [m.body for m in inbox.all()]

    def comes(self, inbox, body, count=1):
        wait_until(lambda: self.bodies(inbox).count(body) >= count, SOON_S * harness.slowness(), f'{count} of {body}')

    def moment(self, p, step_s):
        """The clock is wrong, and messages flow meanwhile."""
        self.clocks.set_time(step_s)
        until = time.monotonic() + MOMENT_S
        while time.monotonic() < until:
            p.psql("select postdate.schedule('k', 'meanwhile', delay => '0 s')")
            time.sleep(0.5)
        self.clocks.set_time(0)

    def run_one(self, step_s):
        p, g, inbox = self.begin()
        p.psql("select postdate.rate_set('postdate.delivery', 20)")
        p.psql("select postdate.recur_set('tick', '@every 2s', 'k', 'tick'::text)")
        p.psql("select postdate.schedule('k', 'refused', delay => '0 s', exchange => 'later')")
        p.psql("select postdate.schedule('k', 'keyed', delay => '0 s', key => 'one')")
        web = Web(g.http())
        self.addCleanup(web.close)
        post = {'routing_key': 'k', 'body': 'once', 'delay_ms': 1}
        self.comes(inbox, b'tick', 2)
        self.comes(inbox, b'keyed')
        self.moment(p, step_s)
        ticks = self.bodies(inbox).count(b'tick')
        p.psql("select postdate.schedule('k', 'after', delay => '0 s') from generate_series(1, 40)")
        self.comes(inbox, b'after', 40)
        self.comes(inbox, b'tick', ticks + 2)
        first = web.post('/v1/messages', post, Idempotency_Key='a')
        again = web.post('/v1/messages', post, Idempotency_Key='a')
        self.assertEqual((first.status, first.json['id']), (201, again.json['id']))
        p.psql("select postdate.schedule('k', 'keyed again', delay => '0 s', key => 'one', on_conflict => 'keep')")
        self.comes(inbox, b'keyed again')
        c = p.client()
        c.channel.exchange_declare('later', 'fanout', durable=True)
        c.queue('l', 'k')
        c.channel.queue_bind('l', 'later', 'k')
        later = p.consumer('l')
        wait_until(lambda: b'refused' in self.bodies(later), SOON_S * harness.slowness(), 'the refused one to be tried again')
        other = p.gateway()
        self.assertTrue(other)
        g.kill9()
        p.psql("select postdate.schedule('k', 'by the other', delay => '0 s')")
        wait_until(lambda: b'by the other' in self.bodies(inbox), 2 * SOON_S * harness.slowness(), 'another gateway to go on')

    def test_a_day_ahead_and_back(self):
        self.run_one(DAY_S)

    def test_a_day_back_and_ahead(self):
        self.run_one(-DAY_S)

    def beats(self, p, count=3):
        """The gateway has looked at the database so many times since."""
        first = int(p.value('select number from postdate.history'))
        wait_until(lambda: int(p.value('select number from postdate.history')) >= first + count, SOON_S * harness.slowness(), 'the gateway to look')

    def test_what_is_remembered_counts_from_when_the_clock_was_right(self):
        p, g, inbox = self.begin(POSTDATE_KEYS_KEY_MEMORY='1h')
        keyed = "select postdate.schedule('k', 'keyed', delay => '0 s', key => 'one', on_conflict => 'keep')"
        post = {'routing_key': 'k', 'body': 'once', 'delay_ms': 1}
        self.beats(p)
        self.clocks.set_time(DAY_S)
        self.beats(p)
        holder = p.value(keyed)
        web = Web(g.http())
        answered = web.post('/v1/messages', post, Idempotency_Key='a').json['id']
        self.comes(inbox, b'keyed')
        self.comes(inbox, b'once')
        wait_until(lambda: p.value('select count(*) from postdate.message_now where settled_at is null') == '0', SOON_S * harness.slowness(), 'all to be settled')
        self.clocks.set_time(0)
        self.beats(p)
        self.assertEqual(p.value(keyed), holder, 'the key is free at once')
        self.assertEqual(web.post('/v1/messages', post, Idempotency_Key='a').json['id'], answered)
        web.close()
        self.clocks.set_time(2 * 3600)
        self.assertNotEqual(p.value(keyed), holder, 'the key is taken two hours later')
        self.comes(inbox, b'keyed', 2)
        self.clocks.set_time(DAY_S + 3600)
        g.kill9()
        web = Web(p.gateway().http())  # a janitor that begins forgets what is old
        self.addCleanup(web.close)
        wait_until(lambda: web.post('/v1/messages', post, Idempotency_Key='a').json['id'] != answered, SOON_S * harness.slowness(),
                   'the answer to be forgotten after a day')

    def test_a_lease_of_the_moment_runs_out(self):
        p, g, _ = self.begin()
        other = p.gateway()
        self.clocks.set_time(DAY_S)
        ahead = f"select count(*) from postdate.instance where heartbeat_at > to_timestamp({time.time() + DAY_S / 2})"
        wait_until(lambda: p.value(ahead) == '2', SOON_S * harness.slowness(), 'heartbeats of both')
        self.beats(p)
        self.addCleanup(other.resume)
        other.pause()
        self.clocks.set_time(0)
        wait_until(lambda: p.value('select count(*) from postdate.instance') == '1', 4 * SOON_S * harness.slowness(), 'the lease of one that stands still to run out')
