"""Retry policies as people set them: command line, HTTP, control queue, SQL."""
import json
import shlex
import urllib.parse

import harness
from harness import LiveTest, wait_until


class PolicyCommands(LiveTest):
    def setUp(self):
        super().setUp()
        self.p = self.place()

    def run_cli(self, *args, code=0):
        found, out, err = self.p.cli('retry-policy', *args)
        self.assertEqual(found, code, (args, out, err))
        return out

    def policies(self):
        return [json.loads(line) for line in self.run_cli('list', '--json').splitlines()]

    def test_set_list_remove(self):
        self.run_cli('set', 'orders.*', '--attempts', '5', '--first', '250ms', '--factor', '1.5', '--max', '1h30m', '--jitter', '0%', '--on',
                     'rejected,expired', '--keep-dead', '7d')
        orders = {'pattern': 'orders.*', 'attempts': 5, 'first': '250ms', 'factor': 1.5, 'max': '1h30m', 'jitter': 0, 'on': ['rejected', 'expired'],
                  'keep_dead': '7d'}
        self.assertEqual(self.policies(), [orders])
        self.run_cli('set', 'orders.*')
        default = {'pattern': 'orders.*', 'attempts': 10, 'first': '1s', 'factor': 2.0, 'max': '1h', 'jitter': 10,
                   'on': ['rejected', 'delivery_limit'], 'keep_dead': '30d'}
        self.assertEqual(self.policies(), [default])
        self.assertEqual(len(self.run_cli('list').splitlines()), 3)
        self.run_cli('remove', 'orders.*')
        self.run_cli('remove', 'orders.*', code=66)
        self.assertEqual(self.policies(), [])
        self.p.psql("select postdate.retry_policy_set('by.sql')")
        self.assertEqual(self.policies(), [dict(default, pattern='by.sql')])

    def test_show_tells_which_one_counts(self):
        self.run_cli('set', '*', '--attempts', '2')
        self.run_cli('set', 'orders.*', '--attempts', '4', '--first', '10s', '--max', '30s')
        shown = json.loads(self.run_cli('show', 'orders.new', '--json'))
        self.assertEqual((shown['pattern'], shown['is_default'], shown['waits']), ('orders.*', False, ['10s', '20s', '30s']))
        self.assertEqual(json.loads(self.run_cli('show', 'order', '--json'))['pattern'], '*')
        self.run_cli('remove', '*')
        shown = json.loads(self.run_cli('show', 'order', '--json'))
        self.assertEqual((shown['is_default'], len(shown['waits'])), (True, 9))
        self.assertIn('10s, 20s, 30s', self.run_cli('show', 'orders.new'))

    def test_the_command_that_it_shows_makes_retries_work(self):
        p, queue = self.p, "it's (a) queue.+"
        p.gateway()
        c = p.client()
        for kind in ('quorum', 'classic'):
            name = queue + kind
            c.queue(name, arguments={'x-queue-type': kind})
            text = self.run_cli('show', name).splitlines()
            command = text[next(i for i, line in enumerate(text) if line.lower().startswith(kind)) + 1]
            harness.stack().rabbitmqctl(*shlex.split(command)[1:])
            self.run_cli('set', name, '--first', '50ms')
            c.publish(name, b'x', exchange='')
            method = wait_until(lambda: c.channel.basic_get(name)[0], 10, 'the first delivery')
            c.channel.basic_reject(method.delivery_tag, requeue=False)
            self.assertEqual(c.wait_get(name, 15).headers['x-postdate-attempt'], 2)

    def test_what_is_wrong_is_named(self):
        for args, word in ((('set',), 'pattern'), (('set', 'q', '--attempts', '0'), '1 to 1000'), (('set', 'q', '--attempts', 'x'), '--attempts'),
                           (('set', 'q', '--first', '1x'), '--first'), (('set', 'q', '--first', '2h'), 'longer than max'),
                           (('set', 'q', '--factor', '0.5'), '1 to 100'), (('set', 'q', '--jitter', '101%'), '0 to 100'),
                           (('set', 'q', '--on', 'nack'), 'delivery_limit'), (('set', ''), '1 to 255'), (('list', 'x'), 'no argument'),
                           (('show',), 'queue'), (('remove', '--attempts', '3', 'q'), 'belong to set'), ((), 'say set')):
            code, _, err = self.p.cli('retry-policy', *args)
            self.assertEqual(code, 64, (args, err))
            self.assertIn(word, err, args)
        self.assertEqual(self.policies(), [])
