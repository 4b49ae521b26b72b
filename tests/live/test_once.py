"""`postdated --once`, which `postdate feed` starts when no gateway runs: it takes in, delivers, hands over, and ends by itself."""
import os
import signal
import subprocess
import time

import harness
from handover_kit import Checks, handover, held_by_broker
from harness import LiveTest, now_ms, wait_until

MINUTE_MS = 60_000
TTL = handover('ttl', feeder='cron', window='1h')


class Once(Checks, LiveTest):
    """A place in which a gateway has declared everything, and has gone."""
    transport = 'ttl'
    env = TTL

    def begin(self, **more):
        p = self.place()
        self.env = {**self.env, **more}
        self.run_once(p)
        return p

    def start_once(self, p, *args, env=None):
        process = subprocess.Popen([*harness.DIE_WITH_PARENT, os.path.join(harness.BIN_DIR, 'postdated'), '--once', *args],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   env=p.env(**{**self.env, **(env or {})}))
        p.children.append(process)
        return process

    def end(self, process, timeout_s=60):
        """(exit code, what it said)"""
        out, error = process.communicate(timeout=timeout_s * harness.slowness())
        harness.check_sanitizers('postdated --once', error.decode())
        self.assertEqual(out, b'')
        return process.returncode, error.decode()

    def run_once(self, p, env=None):
        code, error = self.end(self.start_once(p, env=env))
        self.assertEqual(code, 0, error)
        return error

    def feed(self, p, *args, code=0, env=None):
        rc, out, error = p.cli('feed', *args, env={**self.env, **(env or {})})
        self.assertEqual((rc, out), (code, ''), error)
        self.assertEqual(self.alive(p), 0, 'something was left running')
        return error

    def alive(self, p):
        return int(p.value("select count(*) from pg_stat_activity where datname = current_database() and application_name like 'postdate %'"))


class Rounds(Once):
    weight = 12

    def test_what_waits_is_taken_in_and_handed_over(self):
        p = self.begin()
        c = p.client()
        c.publish_burst('later', [b'%d' % i for i in range(1500)], {'x-delay': 30 * MINUTE_MS})
        c.publish('beyond', b'beyond', {'x-delay': 100 * MINUTE_MS})
        c.publish('key', b'key', {'x-delay': 30 * MINUTE_MS, 'x-postdate-key': 'k'})
        self.assertEqual(p.counts(), {})
        self.assertEqual(self.feed(p), '')
        self.assertEqual(p.counts(), {'handed': 1500, 'scheduled': 2})
        self.assertEqual(held_by_broker(p, 'ttl'), 1500)
        self.assertEqual(c.depth('postdate.intake'), 0)
        self.assertRegex(self.feed(p, '--verbose'), r'^postdate: fed until \S+: no gateway runs, .* what waits, 0; RabbitMQ holds 1500 of')

    def assert_handed(self, p):
        if p.counts() == {'delivered': 1}:
            raise harness.TooSlow('it was due before RabbitMQ had it')
        self.assertEqual(p.counts(), {'handed': 1})

    @harness.given_time
    def test_what_is_due_is_delivered(self):
        """Overdue, from the exit queue, held by the gateway and due in a moment; what is due later than that waits for the next round."""
        p = self.begin()
        inbox = p.consumer('q', bind='#')
        c, sent = p.client(), {}
        for body, delay, key in ((b'exit', 7000 * harness.slowness() * self.pace, None), (b'overdue', 1000, 'a'), (b'soon', 5000, 'b'), (b'later', 10 * MINUTE_MS, 'c')):
            headers = {'x-delay': delay, **({'x-postdate-key': key} if key else {})}
            sent[body] = now_ms() + delay
            if body == b'exit':
                c.publish('k', body, headers)
                self.run_once(p)  # the broker waits with it
                self.feed(p)
                self.assert_handed(p)
            elif body != b'soon':
                c.publish('k', body, headers)
        wait_until(lambda: c.depth('postdate.exit') == 1, 15 * self.pace, 'RabbitMQ to have let it go')
        self.assertEqual(inbox.all(), [])
        sent[b'soon'] = now_ms() + 1500
        c.publish('k', b'soon', {'x-delay': 1500, 'x-postdate-key': 'b'})
        self.run_once(p)
        self.assertEqual(p.counts(), {'delivered': 3, 'scheduled': 1})
        del sent[b'later']
        self.assert_each_once_and_not_early(inbox, sent)
        self.assertEqual(c.depth('postdate.exit'), 0)

    @harness.given_time
    def test_what_rabbitmq_lost_is_rescued(self):
        p = self.begin(POSTDATE_HANDOVER_GRACE='1s')
        inbox, c = p.consumer('q', bind='k'), p.client()
        c.publish('k', b'lost', {'x-delay': 6000 * harness.slowness() * self.pace})
        self.run_once(p)
        self.feed(p)
        self.assert_handed(p)
        wait_until(lambda: c.depth('postdate.exit') == 1, 15 * self.pace, 'RabbitMQ to have let it go')
        c.channel.queue_purge('postdate.exit')
        wait_until(lambda: p.value('select next_at < now() from postdate.message_now') == 't', 15, 'the grace to be over')
        self.run_once(p)
        self.assertEqual([m.body for m in inbox.wait(1)], [b'lost'])
        self.assertEqual(p.counts(), {'delivered': 1})

    def test_a_steady_stream_does_not_keep_it(self):
        p = self.begin()
        load = p.load('publish', '--routing-key', 'k', '--count', 6000, '--delay-ms', 2000, '--rate', 200)
        p.consumer('q', bind='k')
        wait_until(lambda: p.client().depth('postdate.intake') > 100, 15, 'the stream to flow')
        self.run_once(p)
        self.assertIsNone(load.process.poll(), 'the stream has ended before')
        self.assertGreater(p.counts().get('delivered', 0), 100)
        load.process.terminate()

    def test_the_internal_feeder_and_the_gateway_that_waits_itself(self):
        p = self.begin(POSTDATE_HANDOVER_FEEDER='internal')
        c = p.client()
        c.publish('k', b'1', {'x-delay': 30 * MINUTE_MS})
        self.run_once(p)
        self.assertEqual(p.counts(), {'handed': 1})
        c.publish('k', b'2', {'x-delay': 30 * MINUTE_MS})
        self.run_once(p, env=handover('timer'))
        self.assertEqual(p.counts(), {'handed': 1, 'scheduled': 1})

    def test_a_policy_that_changes_the_waiting_is_said(self):
        p = self.begin()
        p.stack.rabbitmqctl('set_policy', '-p', p.vhost, '--apply-to', 'queues', 'all', '.*', '{"max-length": 3}')
        p.client().publish('k', b'1', {'x-delay': 30 * MINUTE_MS})
        error = self.feed(p, code=75)
        self.assertRegex(error, r"^[^\n]*--once: 1 messages due before \S+ stay in the database, because a RabbitMQ policy changes how it holds messages")
        self.assertEqual(len(error.splitlines()), 1, error)
        self.assertEqual(p.counts(), {'scheduled': 1})

    def test_orders_in_the_control_queue_are_done(self):
        p = self.begin()
        c = p.client()
        answers = c.channel.queue_declare('', exclusive=True).method.queue
        c.publish('postdate.control', b'{"operation":"schedule","message":{"routing_key":"k","delay":"30m","body":"x"}}', exchange='',
                  reply_to=answers, correlation_id='1', content_type='application/json')
        self.run_once(p)
        self.assertIsNotNone(c.get(answers))
        self.assertEqual(c.depth('postdate.control'), 0)

    def test_sigterm_and_a_port_that_is_taken(self):
        p = self.begin()
        other = p.gateway(**self.env)
        c = p.client()
        c.publish('k', b'1', {'x-delay': 30 * MINUTE_MS})
        self.run_once(p, env={'POSTDATE_HTTP_LISTEN': ':'.join(map(str, other.http()))})
        other.term()
        c.publish('q', b'soon', {'x-delay': 3000, 'x-postdate-key': 'x'})
        process = self.start_once(p, env={'POSTDATE_DELIVERY_LEAD': '10s'})
        wait_until(lambda: p.claimed() == 1, 15, 'it to be claimed')
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(process)[0], -signal.SIGTERM)
        self.assertNotIn('delivered', p.counts())


class Feeds(Once):
    weight = 12

    def test_two_at_once_and_an_interrupted_one(self):
        p = self.begin()
        p.client().publish_burst('k', [b'%d' % i for i in range(800)], {'x-delay': 30 * MINUTE_MS})
        both = [p.start_cli('feed', env=self.env) for _ in range(3)]
        self.assertEqual([(x.communicate(timeout=90), x.returncode) for x in both], [((b'', b''), 0)] * 3)
        self.assertEqual(p.counts(), {'handed': 800})
        wait_until(lambda: self.alive(p) == 0, 5, 'nothing to be left running')
        c = p.client()
        c.publish('k', b'x', {'x-delay': 30 * MINUTE_MS})
        for sig in (signal.SIGINT, signal.SIGTERM):
            # Those who test ignore SIGINT, which programs inherit.
            process = subprocess.Popen(['env', '--default-signal=INT', *harness.DIE_WITH_PARENT, os.path.join(harness.BIN_DIR, 'postdate'), 'feed'],
                                       stdin=subprocess.DEVNULL, env=p.env(**self.env))
            p.children.append(process)
            wait_until(lambda: self.alive(p) > 5, 15, 'its gateway to run')
            process.send_signal(sig)
            self.assertEqual(process.wait(30), -sig)
            self.assertEqual(self.alive(p), 0)

    def test_a_gateway_that_goes_while_it_hands_over(self):
        p = self.begin()
        g = p.gateway(**self.env)
        p.client().publish_burst('k', [b'%d' % i for i in range(20)], {'x-delay': 30 * MINUTE_MS})
        wait_until(lambda: p.counts() == {'scheduled': 20}, 10, 'all to be stored')
        g.pause()
        process = p.start_cli('feed', env=self.env)
        wait_until(lambda: p.value('select fed_until > now() from postdate.meta') == 't', 10, 'the feed to begin')
        time.sleep(0.5)
        g.kill9()
        self.assertEqual(process.communicate(timeout=60), (b'', b''))
        self.assertEqual(process.returncode, 0)
        self.assertEqual(p.counts(), {'handed': 20})

    @harness.not_san  # it waits more than it computes
    def test_what_is_in_the_way(self):
        """No program; a broker that is away, which is waited for, not for ever; and one that can't wait."""
        p = self.begin()
        p.client().publish('k', b'1', {'x-delay': 30 * MINUTE_MS})
        alone = os.path.join('/var/tmp', f'postdate-alone-{os.getpid()}')
        os.makedirs(alone)
        self.addCleanup(subprocess.run, ['rm', '-rf', alone], check=False)
        subprocess.run(['cp', os.path.join(harness.BIN_DIR, 'postdate'), alone], check=True)
        done = subprocess.run([alone + '/postdate', 'feed'], env={**p.env(**self.env), 'PATH': '/usr/bin:/bin'}, capture_output=True, check=False,
                              timeout=60)
        self.assertEqual((done.returncode, done.stdout), (69, b''), done.stderr)
        self.assertRegex(done.stderr, rb'^postdate: fed until \S+, but no gateway runs, and postdated is neither beside postdate nor in PATH: '
                                      rb'messages are handed over when one starts\n$')
        away = {'POSTDATE_AMQP_URL': harness.with_path(f'amqp://127.0.0.1:{harness.free_port()}/', p.vhost)}
        no_postgres = {'POSTDATE_POSTGRES_URL': 'postgresql://127.0.0.1:1/x'}
        began = time.monotonic()
        feed, once = p.start_cli('feed', env={**self.env, **away}), self.start_once(p, env=no_postgres)
        error = feed.communicate(timeout=100)[1].decode()
        self.assertEqual(feed.returncode, 69, error)
        self.assertRegex(error, r'^[^\n]*--once: RabbitMQ could not be reached for 60 s[^\n]*\n$')
        code, error = self.end(once, 30)
        self.assertEqual(code, 69, error)
        self.assertRegex(error, r'--once: PostgreSQL could not be reached for 60 s')
        self.assertGreater(time.monotonic() - began, 55)


class Scenario(Once):
    """Once through, as whoever runs it: also an ordinary user, in test_user.py."""

    def test_feed_scenario_without_a_gateway(self):
        p = self.begin()
        p.client().publish('k', b'1', {'x-delay': 30 * MINUTE_MS})
        self.assertEqual(self.feed(p), '')
        self.assertEqual(p.counts(), {'handed': 1})
