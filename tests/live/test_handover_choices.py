"""Who may be handed over, who can still cancel, and what becomes of what waits when gateways and transports change."""

import harness
from handover_kit import Checks, handover
from harness import LiveTest, SharedTest, now_ms, wait_until


class WhatAll(Checks):
    """handover.what = all: what somebody could cancel is handed over too, and then it is too late."""
    WINDOW_MS = 4000

    def schedule(self, key, delay_ms, *args):
        """From the command line; its id."""
        out = self.p.run('schedule', '-k', key, '--delay', f'{delay_ms}ms', *args, env=self.gateway_env)
        return out.strip()

    def state(self, message_id):
        return self.p.value(f"select state from postdate.message_now where id = '{message_id}'")

    def cancel(self, *args):
        rc, out, error = self.p.cli('cancel', *args)
        return rc, out + error

    def wait_state(self, message_id, state):
        wait_until(lambda: self.state(message_id) == state, 10, f'{message_id} to be {state}')

    def test_keys_and_the_command_line_are_handed_over_and_then_it_is_too_late(self):
        inbox, key = self.inbox()
        at = now_ms()
        self.c.publish(key, b'key', {'x-delay': 3500, 'x-postdate-key': 'k.' + key})
        ids = [self.schedule(key, 3500, '--body', 'cli'),
               self.schedule(key, 3500, '--body', 'cli key', '--key', 'cli.' + key)]
        for i in ids:
            self.wait_state(i, 'handed')
        handed = f"select count(*) from postdate.message_now where routing_key = '{key}' and state = 'handed'"
        wait_until(lambda: self.p.value(handed) == '3', 10, 'the one with a key to be handed over')
        for args in ((ids[0],), (ids[0],), ('--key', 'k.' + key), ('--key', 'cli.' + key)):
            rc, words = self.cancel(*args)
            self.assertEqual(rc, 1, words)
            self.assertIn('too late', words)
        inbox.wait(3)
        for i in ids:
            self.wait_state(i, 'delivered')
        self.assert_each_once_and_not_early(inbox, {b: at + 3500 for b in (b'key', b'cli', b'cli key')})
        self.assert_held_by(self.p, inbox.all())

    def test_the_command_line_does_as_the_gateway_does_not_as_its_own_configuration_says(self):
        """It may run on another machine, with nothing but the database's address."""
        inbox, key = self.inbox()
        out = self.p.run('schedule', '-k', key, '--delay', '2500ms', '--body', 'x')
        self.wait_state(out.strip(), 'handed')
        inbox.wait(1)
        self.wait_state(out.strip(), 'delivered')

    def test_cancelled_before_the_hand_over_never_arrives(self):
        inbox, key = self.inbox()
        delay = self.WINDOW_MS + 3000
        cancelled = [self.schedule(key, delay, '--body', 'no'), self.schedule(key, delay, '--body', 'no', '--key', key)]
        later = self.schedule(key, delay + 300, '--body', 'later')
        for args in ((cancelled[0],), ('--key', key)):
            rc, words = self.cancel(*args)
            self.assertEqual(rc, 0, words)
            self.assertIn('cancelled', words)
        self.assertEqual([m.id for m in inbox.wait(1, 20)], [later])
        self.wait_state(later, 'delivered')
        self.assert_held_by(self.p, inbox.all())
        self.assertEqual([self.state(i) for i in cancelled], ['cancelled'] * 2)

    def test_an_own_wish_keeps_it_in_the_gateway_and_an_expiration_does_not_run_meanwhile(self):
        inbox, key = self.inbox()
        at = now_ms()
        self.c.publish(key, b'wish', {'x-delay': 2000, 'x-postdate-hold': 'gateway'}, expiration='1500')
        self.c.publish(key, b'expiration', {'x-delay': 2000}, expiration='1500')
        self.c.publish(key, b'both', {'x-delay': 2000, 'x-postdate-hold': 'broker'}, expiration='1500')
        line = f'{{"routing_key":"{key}","delay_ms":2000,"body":"batch","properties":{{"expiration":"1500"}}}}\n'
        self.p.run('schedule', '--batch', '-', stdin=line, env=self.gateway_env)
        inbox.wait(4)
        self.assert_each_once_and_not_early(
            inbox, {b: at + 2000 for b in (b'expiration', b'wish', b'both', b'batch')})
        self.assert_held_by(self.p, [m for m in inbox.all() if m.body == b'wish'], 'timer')
        self.assert_held_by(self.p, [m for m in inbox.all() if m.body != b'wish'])
        self.assertEqual({m.properties.expiration for m in inbox.all()}, {'1500'})


@harness.not_san
class TtlWhatAll(WhatAll, SharedTest):
    weight = 20
    transport = 'ttl'
    gateway_env = handover('ttl', what='all', window='4s')


@harness.not_san  # as ttl, but for the broker
@harness.only_full
class PluginWhatAll(WhatAll, SharedTest):
    weight = 20
    transport = 'plugin'
    gateway_env = handover('plugin', what='all', window='4s')


class CancelAgainstFeed(Checks):
    def test_cancelled_while_they_are_handed_over_is_one_or_the_other(self):
        p = self.place()
        env = handover(self.transport, what='all', feeder='cron', window='1h')
        p.gateway(**env)
        inbox = p.consumer('q', bind='k')
        count, c = 60, p.client()
        due = now_ms() + (15_000 if harness.SAN else 9000)
        for i in range(count):
            c.publish('k', b'%d' % i, {'x-postdate-at': due, 'x-postdate-key': f'k{i}'})
        wait_until(lambda: p.counts() == {'scheduled': count}, 10, 'all to be stored')
        ids = [r[0] for r in p.psql('select id from postdate.message_now order by id')]
        answers = {i: p.cli('cancel', i)[0] for i in ids[:5]}
        self.assertEqual(set(answers.values()), {0})
        feed = p.start_cli('feed', env=env)
        answers.update(self.cancel_all(p, ids[5:-5]))
        feed.communicate(timeout=60)
        self.assertEqual(feed.returncode, 0)
        late = self.cancel_all(p, ids[-5:])
        self.assertEqual(set(late.values()), {1}, 'they were handed over')
        answers.update(late)
        inbox.wait(sum(answers.values()), 30)
        expected = {i: 'cancelled' if rc == 0 else 'delivered' for i, rc in answers.items()}
        wait_until(lambda: dict(p.psql('select id, state from postdate.message_now')) == expected, 15,
                   'each to be what cancelling answered')
        self.assertEqual(sorted(m.id for m in inbox.all()), sorted(i for i, rc in answers.items() if rc == 1))

    def cancel_all(self, p, ids, at_once=4):
        """By a process each; {id: exit code}."""
        answers, left = {}, list(ids)
        while left:
            some, left = left[:at_once], left[at_once:]
            for i, process in [(i, p.start_cli('cancel', i)) for i in some]:
                process.communicate(timeout=60)
                answers[i] = process.returncode
        self.assertLessEqual(set(answers.values()), {0, 1})
        return answers


@harness.not_san
class TtlCancelAgainstFeed(CancelAgainstFeed, LiveTest):
    weight = 12
    transport = 'ttl'


@harness.not_san  # as ttl, but for the broker
@harness.only_full
class PluginCancelAgainstFeed(CancelAgainstFeed, LiveTest):
    weight = 12
    transport = 'plugin'


@harness.not_san
class Changes(Checks, LiveTest):
    weight = 18

    def test_from_ttl_to_plugin_to_timer_and_back_by_restarts(self):
        """Messages handed over, or held, under each; all fall due under the last."""
        p = self.place()
        inbox = None
        sent, due = {}, now_ms() + 18_000
        between = 'ttl' if p.stack.no_plugin else 'plugin'
        for number, transport in enumerate(('ttl', between, 'timer', 'ttl')):
            g = p.gateway(**handover(transport))
            inbox = inbox or p.consumer('q', bind='k')
            sent.update(self.publish_at(p, f'{number} {transport}', due))
            wait_until(lambda: sum(p.counts().get(s, 0) for s in ('handed', 'scheduled')) == len(sent), 10, 'storing')
            if transport != 'timer':
                handed = len(sent) - (20 if number == 3 else 0)
                wait_until(lambda: p.counts().get('handed', 0) >= handed, 10, f'{handed} to be handed over')
            self.assertEqual(g.term(), 0)
        self.assertEqual(inbox.all(), [], 'the machine was too busy')
        p.gateway(**handover('timer'))
        inbox.wait(len(sent), 40)
        self.wait_delivered(p, len(sent))
        self.assert_each_once_and_not_early(inbox, sent)
        for holder in ('broker', 'timer'):
            self.assert_held_by(p, [m for m in inbox.all() if (b'timer' in m.body) == (holder == 'timer')], holder)

    def publish_at(self, p, name, due_ms):
        c, sent = p.client(), {}
        for i in range(20):
            sent[f'{name} {i}'.encode()] = due_ms + 20 * i
            c.publish('k', f'{name} {i}'.encode(), {'x-postdate-at': due_ms + 20 * i})
        return sent


class TwoGateways(Checks):
    def test_two_gateways_hand_over_and_one_leaves(self):
        count = 1000 if harness.SAN else 6000
        p = self.place()
        first, _ = [p.gateway(**handover(self.transport, grace='1s')) for _ in range(2)]
        inbox = p.load('consume', '--queue', 'q', '--exchange', 'postdate.delivery', '--bind', 'k', '--expect', count,
                       '--timeout-s', 90, '--idle-s', 1.5).wait_consuming()
        p.load('publish', '--routing-key', 'k', '--count', count, '--delay-spread-ms', '2000,7000').result()
        wait_until(lambda: p.counts().get('delivered', 0) > count / 4, 30, 'a quarter to be delivered')
        self.assertEqual(first.term(), 0)
        r = inbox.result()
        self.assertEqual((r['missing'], r['early'], r['unexpected'], r['duplicates']), (0, 0, 0, 0), r)
        self.wait_delivered(p, count)


@harness.not_san
class TtlTwoGateways(TwoGateways, LiveTest):
    weight = 12
    transport = 'ttl'


@harness.not_san  # as ttl, but for the broker
@harness.only_full
class PluginTwoGateways(TwoGateways, LiveTest):
    weight = 12
    transport = 'plugin'
