"""docs/migrate.md, "With the exchange type": from the delayed-message plugin (or its double) to Postdate's exchange type, and back, under an application
that publishes all the time and changes nothing; each message arrives once, at its time, by a ledger of its own. Long:
POSTDATE_MOVE_S=300 POSTDATE_MOVE_RATE=500 POSTDATE_MOVE_LONGEST_S=3600 (how long it publishes before the move and before the way back,
messages a second, the longest delay; POSTDATE_MOVE_UNTIL, seconds since 1970, ends it earlier by shorter delays), with STACK_PLUGINS_DIR for the
plugin."""
import collections
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time

import pika.exceptions

import harness
from harness import LiveTest, Stack, wait_until
from plugin_application import KINDS

PLUGIN, TYPE = 'rabbitmq_delayed_message_exchange', 'postdate_exchange'
MODULE = "element(2, rabbit_registry:lookup_module(exchange, 'x-delayed-message'))."
WAITING = ('lists:sum([proplists:get_value(messages_delayed, rabbit_exchange:info(X, [messages_delayed]), 0) || X <- rabbit_exchange:list(), '
           'element(3, X) =:= \'x-delayed-message\']).')
PUBLISHES_S = int(os.environ.get('POSTDATE_MOVE_S', '6'))
RATE = int(os.environ.get('POSTDATE_MOVE_RATE', '100'))
LONGEST_MS = 1000 * int(os.environ.get('POSTDATE_MOVE_LONGEST_S', '25'))
DELAYS = [LONGEST_MS * i // 24 for i in range(1, 25)]
USER = 'application'


class Application:
    """plugin_application.py, and what its ledger says."""

    def __init__(self, test, place):
        self.ledger = os.path.join(test.servers.directory, 'ledger')
        self.lines, self.unread = open(self.ledger, 'w+', encoding='utf-8'), ''
        test.addCleanup(self.lines.close)
        self.owed, self.came, self.bodies, self.lost = {}, [], set(), []
        url = place.amqp.replace('guest:guest@', f'{USER}:s3cret@')
        env = {**os.environ, 'APPLICATION_URL': url, 'APPLICATION_LEDGER': self.ledger, 'APPLICATION_RATE': str(RATE),
               'APPLICATION_DELAYS': ','.join(map(str, [min(1000, LONGEST_MS), *DELAYS])),
               'APPLICATION_UNTIL': os.environ.get('POSTDATE_MOVE_UNTIL', 'inf')}
        self.process = subprocess.Popen([*harness.DIE_WITH_PARENT, sys.executable, os.path.join(os.path.dirname(__file__), 'plugin_application.py')], env=env)
        test.addCleanup(self.process.wait)
        test.addCleanup(self.process.kill)

    def read(self):
        """What is new in it; it may have millions of lines in the end."""
        self.unread += self.lines.read()
        *lines, self.unread = self.unread.split('\n')
        for what, body, *words in (line.split() for line in lines):
            if what == '+':
                self.owed[body] = [int(w) for w in words]
            elif what == '-':
                self.came.append((body, int(words[0]), words[1] == '1'))
                self.bodies.add(body)
            else:
                self.lost.append(' '.join((body, *words)))
        return self

    def ask_to_end(self):
        self.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)  # two signals at once are one


class Move(LiveTest):
    vhosts = 0
    weight = 150
    time_limit_s = 600 + 4 * PUBLISHES_S + LONGEST_MS // 500
    together = 'exchange move'

    def setUp(self):
        self.servers = Stack.own(self.addCleanup, 'move', None, 'file')
        self.servers.start()
        self.servers.need_plugin()
        self.servers.make_vhosts(['move'])
        self.p = harness.Place(self.servers, transport='ttl')
        self.addCleanup(self.p.close, drop=False)

    def plugins(self, *args):
        rc, said = self.servers.rabbitmq_plugins(*args)
        self.assertEqual(rc, 0, said)
        return said

    def may_publish(self, may):
        """To the exchanges of the type. A channel goes on with what it was allowed when it was opened."""
        write = '.*' if may else f'^(?!({"|".join(KINDS)})$)'
        self.servers.rabbitmqctl('set_permissions', '-p', 'move', USER, '.*', write, '.*')
        if not may:
            self.servers.rabbitmqctl('close_all_user_connections', USER, 'for a minute no delayed messages')

    def test_there_and_back(self):
        self.servers.rabbitmqctl('add_user', USER, 's3cret')
        self.may_publish(True)
        a = Application(self, self.p)
        wait_until(lambda: len(a.read().came) >= 50, 60, 'the plugin to deliver')
        time.sleep(PUBLISHES_S)
        self.p.gateway()
        self.there()
        before = len(a.read().owed)
        wait_until(lambda: len(a.read().owed) > before + 3 * RATE, 60, 'more to be published')
        wait_until(lambda: self.p.counts().get('scheduled', 0) + self.p.counts().get('handed', 0) > RATE, 60, 'the gateway to have some')
        time.sleep(PUBLISHES_S)
        self.back()
        before = len(a.read().owed)
        wait_until(lambda: len(a.read().owed) > before + RATE, 60, 'more to be published')
        time.sleep(PUBLISHES_S / 5)
        a.ask_to_end()
        wait_until(lambda: len(a.read().bodies) >= len(a.owed), LONGEST_MS / 1000 + 120, 'all to arrive', 0.5)
        a.ask_to_end()
        a.process.wait(30)
        self.judge(a.read())

    def there(self):
        self.may_publish(False)
        mappings = [f'--exchange={kind}={kind}' for kind in KINDS]
        waited = self.servers.rabbitmqctl('eval', WAITING).strip()
        since = time.monotonic()
        rc, said, error = self.p.cli('import', 'plugin', *mappings, '--margin', '10s', '--rabbitmqctl', os.path.join(self.servers.directory, 'rabbitmqctl'),
                                     timeout=600)
        self.assertEqual(rc, 0, said + error)
        print(f'note exchange move: {waited} waited in the plugin, import {time.monotonic() - since:.1f} s', flush=True)
        wait_until(lambda: int(self.servers.rabbitmqctl('eval', WAITING)) == 0, 120, 'the plugin to deliver what was due within the margin')
        self.plugins('disable', PLUGIN)
        self.plugins('enable', TYPE)
        self.assertIn('postdate_exchange', self.servers.rabbitmqctl('eval', MODULE))
        self.may_publish(True)
        print(f'note exchange move: {time.monotonic() - since:.1f} s without a publish', flush=True)

    def back(self):
        self.may_publish(False)
        self.plugins('enable', PLUGIN)
        self.plugins('disable', TYPE)
        self.may_publish(True)

    def judge(self, a):
        came = [body for body, _, _ in a.came]
        again = sum(redelivered for _, _, redelivered in a.came)
        tried = sum(owed[2] > 1 for owed in a.owed.values())
        late = sorted(at_ms - a.owed[body][1] for body, at_ms, _ in a.came if body in a.owed)
        print(f'note exchange move: {len(a.owed)} confirmed, {len(came)} arrived, {len(came) - len(set(came))} of them twice, {again} redelivered, {tried} sent '
              f'again, {len(a.lost)} connections lost, {self.p.psql("select count(*) from postdate.message_now")[0][0]} by Postdate; late: median '
              f'{statistics.median(late)} ms, 99 % {late[len(late) * 99 // 100]} ms, most {late[-1]} ms', flush=True)
        self.assertEqual(sorted(set(a.owed) ^ set(came)), [])
        # Twice came only what the application sent twice, or got without being able to say so, as a connection of its own ended.
        allowed = collections.Counter({body: owed[2] for body, owed in a.owed.items()})
        allowed.update(body for body, _, redelivered in a.came if redelivered)
        self.assertEqual({body: n for body, n in collections.Counter(came).items() if n > allowed[body]}, {})
        early = {body: (at_ms, a.owed[body]) for body, at_ms, _ in a.came if body in a.owed and at_ms < a.owed[body][0]}
        self.assertEqual(early, {})

    def test_a_connection_that_was_open_before(self):
        """It may be closed; but from RabbitMQ 3.13 on it may not decide for its node that a module routes whose plugin is disabled."""
        self.p.gateway()
        for steps in (('disable', PLUGIN), ('enable', TYPE)), (('enable', PLUGIN), ('disable', TYPE)):
            before = self.p.client()
            before.channel.exchange_declare('e', 'x-delayed-message', durable=True, arguments={'x-delayed-type': 'fanout'})
            before.queue('q', 'k', exchange='e')
            before.publish('k', b'before', {'x-delay': 1}, exchange='e')
            for step in steps:
                self.plugins(*step)
            with contextlib.suppress(pika.exceptions.AMQPError):
                before.publish('k', b'old', {'x-delay': 1}, exchange='e')
            c = self.p.client()
            c.publish('k', b'new', {'x-delay': 1}, exchange='e')
            wait_until(lambda c=c: (m := c.get('q')) and m.body == b'new', 30, f'what is published after {steps}')

    def test_both_enabled(self):
        """Whoever enables it beside the plugin is told, and the plugin stays in charge, also at the next boot."""
        before = self.servers.rabbitmqctl('eval', MODULE)
        rc, said = self.servers.rabbitmq_plugins('enable', TYPE)
        self.assertNotEqual(rc, 0, said)
        self.assertEqual(self.servers.rabbitmqctl('eval', MODULE), before)
        self.plugins('disable', TYPE)
        self.assertEqual(self.servers.rabbitmqctl('eval', MODULE), before)
