"""The window and `postdate feed`, with the gateway's own feeder off: RabbitMQ holds what was fed, and nothing else."""
import os
import pty
import re
import select
import subprocess
import time

import harness
from handover_kit import Checks, handover, held_by_broker
from harness import LiveTest, now_ms, wait_until

MINUTE_MS = 60_000


def cron(transport, **more):
    return handover(transport, feeder='cron', window=more.pop('window', '1h'), **more)


class Feeding(Checks):
    def begin(self, gateways=1, **more):
        p = self.place()
        self.env = cron(self.transport, **more)
        for _ in range(gateways):
            p.gateway(**self.env)
        return p

    def store(self, p, key, delays):
        """Messages with these delays, stored."""
        c = p.client()
        for i, delay in enumerate(delays):
            c.publish(key, b'%d' % i, {'x-delay': delay})
        wait_until(lambda: self.rows(p, key) == {'scheduled': len(delays)}, 10, f'{key} to be stored')

    def rows(self, p, key):
        return {state: int(n) for state, n in p.psql(
            f"select state, count(*) from postdate.message_now where routing_key = '{key}' group by 1")}

    def feed(self, p, *args):
        """(what it printed, what it said); it has to end with 0."""
        rc, out, error = p.cli('feed', *args, env=self.env)
        self.assertEqual(rc, 0, error)
        return out, error

    def feed_silently(self, p, *args):
        self.assertEqual(self.feed(p, *args), ('', ''))

    def wait_settled_handed(self, p, count):
        """Until so many are handed over and none is about to be."""
        wait_until(lambda: (p.counts().get('handed', 0), p.counts().get('claimed', 0)) == (count, 0), 15,
                   f'{count} to be handed over')

    def fed_until(self, p):
        return p.value('select fed_until from postdate.meta')


class Windows(Feeding):
    def test_rabbitmq_holds_exactly_what_was_fed(self):
        p = self.begin()
        self.store(p, 'first', [8 * MINUTE_MS + 100 * i for i in range(30)])
        self.store(p, 'second', [15 * MINUTE_MS + 100 * i for i in range(20)])
        self.store(p, 'third', [40 * MINUTE_MS + 100 * i for i in range(10)])
        self.store(p, 'beyond', [100 * MINUTE_MS + 100 * i for i in range(5)])
        p.client().publish('key', b'key', {'x-delay': 8 * MINUTE_MS, 'x-postdate-key': 'k'})
        self.check(p, 0, scheduled=66)
        self.feed_silently(p, '--window', '10m')
        self.check(p, 30, scheduled=36)
        self.assertEqual(self.rows(p, 'first'), {'handed': 30})

        fed = self.fed_until(p)
        out, _ = self.feed(p, '--dry-run', '--window', '20m')
        self.assertRegex(out, r'(?m)^would hand over +20$')
        self.assertRegex(out, r'(?m)^RabbitMQ holds +30 of at most ')
        self.assertEqual(self.fed_until(p), fed, 'a dry run moves nothing')
        self.check(p, 30, scheduled=36)

        self.feed_silently(p, '--window', '20m')
        self.check(p, 50, scheduled=16)
        fed = self.fed_until(p)
        self.feed_silently(p, '--window', '10m')
        self.assertEqual(self.fed_until(p), fed, 'never back')

        at_once = [p.start_cli('feed', env=self.env) for _ in range(4)]
        self.assertEqual([(x.communicate(timeout=60), x.returncode) for x in at_once], [((b'', b''), 0)] * 4)
        self.check(p, 60, scheduled=6)
        self.assertEqual(self.rows(p, 'beyond'), {'scheduled': 5})
        self.assertEqual(self.rows(p, 'key'), {'scheduled': 1}, 'somebody may still cancel it')
        self.assertIn('in RabbitMQ  60 of at most', p.cli('status', env=self.env)[1])

    def check(self, p, in_broker, scheduled):
        wait_until(lambda: p.counts() == {k: n for k, n in (('handed', in_broker), ('scheduled', scheduled)) if n}, 15,
                   f'{in_broker} to be handed over and {scheduled} to stay')
        self.assertEqual(held_by_broker(p, self.transport), in_broker)

    def test_what_the_feed_missed_arrives_on_time_and_each_only_once(self):
        """Two gateways, three feeds at once; what is due after the fed point stays with the gateways."""
        p = self.begin(gateways=2)
        fed_inbox, missed_inbox = p.consumer('q.fed', bind='fed'), p.consumer('q.missed', bind='missed')
        began_ms, c, due_in_ms = now_ms(), p.client(), {'fed': 8000, 'missed': 13_000}
        for key, count in (('fed', 200), ('missed', 100)):
            c.publish_burst(key, [b'%s %d' % (key.encode(), i) for i in range(count)],
                            {'x-postdate-at': began_ms + due_in_ms[key]})
        wait_until(lambda: p.counts() == {'scheduled': 300}, 8, 'all to be stored')
        window = f'{began_ms + 10_500 - now_ms()}ms'  # to between the two
        at_once = [p.start_cli('feed', '--window', window, env=self.env) for _ in range(3)]
        self.assertEqual([(x.communicate(timeout=60), x.returncode) for x in at_once], [((b'', b''), 0)] * 3)
        fed_inbox.wait(200, 30)
        missed_inbox.wait(100, 30)
        self.wait_delivered(p, 300)
        for inbox, key, holder in ((fed_inbox, 'fed', 'broker'), (missed_inbox, 'missed', 'timer')):
            bodies = [b'%s %d' % (key.encode(), i) for i in range(len(inbox.all()))]
            self.assert_each_once_and_not_early(inbox, dict.fromkeys(bodies, began_ms + due_in_ms[key]))
            self.assert_held_by(p, inbox.all(), holder)
            for m in inbox.all():
                self.assertLess(m.at_ms, m.due_ms + 10_000 * harness.slowness(), 'without the feed, it waited')


@harness.not_san
class TtlWindows(Windows, LiveTest):
    weight = 12
    transport = 'ttl'


@harness.not_san  # as ttl, but for the broker
@harness.only_full
class PluginWindows(Windows, LiveTest):
    weight = 12
    transport = 'plugin'


@harness.not_san
class FeedSpeaks(Feeding, LiveTest):
    """What it says, and when."""
    weight = 8
    transport = 'ttl'
    FED = r'fed until \S+: '

    def on_a_terminal(self, p, *args):
        """Starts `postdate` on a terminal of its own; (process, function that returns all that it has shown so far)."""
        master, slave = pty.openpty()
        self.addCleanup(os.close, master)
        command = [*harness.DIE_WITH_PARENT, os.path.join(harness.BIN_DIR, 'postdate'), *args]
        process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=p.env(**self.env))
        p.children.append(process)
        os.close(slave)
        shown = bytearray()

        def read():
            try:
                while select.select([master], [], [], 0)[0]:
                    shown.extend(os.read(master, 65536))
            except OSError:  # it has ended
                pass
            return shown.decode()
        return process, read

    def lock(self, p, condition):
        """A transaction that has the rows: gateways pass them by."""
        s = p.session()
        s.run('begin')
        s.run(f'select count(*) from (select from postdate.message where {condition} for update) l')
        return s

    def test_a_progress_bar_on_a_terminal(self):
        p = self.begin()
        self.store(p, 'half', [30 * MINUTE_MS] * 20)
        self.store(p, 'locked', [30 * MINUTE_MS] * 20)
        session = self.lock(p, "routing_key = 'locked'")
        process, shown = self.on_a_terminal(p, 'feed')
        wait_until(lambda: re.search(r'\r\[#{12}\.{12}\] +50 %  20 messages', shown()), 9, 'half a bar')
        session.run('rollback')
        session.close()
        self.assertEqual(process.wait(30), 0)
        self.assertRegex(shown(), r'\r\x1b\[Kpostdate: ' + self.FED + '40 handed over in .* 0 wait')
        self.wait_settled_handed(p, 40)

    def test_what_a_gateway_is_handing_over_is_waited_for(self):
        p = self.begin()
        self.store(p, 'k', [10 * MINUTE_MS] * 5)
        p.psql("update postdate.message set state = 'handed';"
               'insert into postdate.handing (owner, ids) select max(i.id), (select array_agg(id) from postdate.message) from postdate.instance i')
        feed = p.start_cli('feed', '--verbose', '--window', '20m', env=self.env)
        wait_until(lambda: p.value("select fed_until > now() from postdate.meta") == 't', 10, 'the feed to begin')
        time.sleep(1)  # it looks several times
        self.assertIsNone(feed.poll(), 'they are not handed over yet')
        p.psql('delete from postdate.handing')
        _, error = feed.communicate(timeout=30)
        self.assertRegex(error.decode(), '5 handed over in .* 0 wait; RabbitMQ holds 5 of at most')

    def test_words_only_when_asked_or_when_nothing_moves(self):
        p = self.begin()
        self.store(p, 'k', [10 * MINUTE_MS] * 5)
        out, error = self.feed(p, '--verbose', '--window', '20m')
        self.assertEqual(out, '')
        self.assertRegex(error, '^postdate: ' + self.FED + '5 handed over in .* 0 wait; RabbitMQ holds 5 of at most')
        self.wait_settled_handed(p, 5)
        self.store(p, 'locked', [30 * MINUTE_MS] * 3)
        session = self.lock(p, "routing_key = 'locked'")
        began = time.monotonic()
        out, error = self.feed(p)
        session.close()
        self.assertGreaterEqual(time.monotonic() - began, 10)
        self.assertEqual(out, '')
        self.assertRegex(error, r'^postdate: no gateway handed anything over for 10 s; 3 messages due before \S+ wait')

    def test_a_full_broker_ends_the_feed(self):
        p = self.begin(max_messages='10')
        self.store(p, 'k', [30 * MINUTE_MS] * 25)
        out, error = self.feed(p, '--verbose')
        self.assertEqual(out, '')
        self.assertRegex(error, r'wait \(handover.max_messages is reached\)')
        self.wait_settled_handed(p, 10)
        self.assertRegex(self.feed(p, '--dry-run')[0],
                         r'(?m)^would hand over +0, then handover.max_messages is reached\nRabbitMQ holds +10 of at most 10$')

    def test_without_a_gateway_it_becomes_one(self):
        p = self.begin()
        self.store(p, 'k', [30 * MINUTE_MS] * 7)
        self.assertEqual(p.gateways[0].term(), 0)
        self.assertRegex(self.feed(p, '--dry-run')[0], r'(?m)^would hand over +7$')
        self.assertEqual(p.counts(), {'scheduled': 7}, 'a dry run starts nothing')
        process, shown = self.on_a_terminal(p, 'feed')
        wait_until(lambda: shown() is not None and process.poll() is not None, 30, 'the feed to end')
        self.assertEqual(process.returncode, 0)
        self.assertRegex(shown(), '^postdate: ' + self.FED + 'no gateway runs, postdated --once hands over what waits, 7; RabbitMQ holds 0 of')
        self.assertEqual(p.counts(), {'handed': 7})
        self.assertEqual(held_by_broker(p, 'ttl'), 7)

    @harness.needs_vhosts(0)
    def test_a_transport_that_hands_nothing_over_and_servers_that_are_not_there(self):
        p = self.place(migrate=False)
        timer = handover('timer')
        self.assertEqual(p.cli('feed', env=timer), (0, '', ''))
        rc, out, error = p.cli('feed', '-v', env=timer)
        self.assertEqual((rc, out), (0, ''))
        self.assertIn('handover.transport is timer', error)
        ttl = cron('ttl')
        rc, out, error = p.cli('feed', env=ttl)
        self.assertEqual((rc, out), (78, ''), error)
        self.assertIn('postdate migrate', error)
        for args in ((), ('--dry-run',), ('-v',)):
            rc, out, error = p.cli('feed', *args, env={**ttl, 'POSTDATE_POSTGRES_URL': 'postgresql://127.0.0.1:1/x'})
            self.assertEqual((rc, out), (69, ''), error)
            self.assertEqual(len(error.splitlines()), 1, error)
        for window in ('10ms', '2h', 'soon'):
            rc, out, error = p.cli('feed', '--window', window, env=ttl)
            self.assertEqual((rc, out), (64, ''), error)
            self.assertIn(window, error)
