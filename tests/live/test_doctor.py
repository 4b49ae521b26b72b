"""`postdate doctor`: its output and use, and servers that say nothing. Every finding is seen to fail and to pass on real servers."""
import contextlib
import os
import shutil
import socket
import tempfile

import harness
from harness import wait_until
from doctor_kit import Doctor

FAKETIME = '/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1'


@contextlib.contextmanager
def silent_server():
    """Takes connections and never says a word; yields its port."""
    with socket.create_server(('127.0.0.1', 0), backlog=16) as s:
        yield s.getsockname()[1]


class DoctorBasics(Doctor):
    who_waits = 'timer'

    def test_a_healthy_gateway(self):
        p = self.place()
        p.gateway()
        p.consumer('q', bind='k')
        found = self.doctor(p, '--rabbitmqctl', os.path.join(p.stack.directory, 'rabbitmqctl'))
        self.assert_nothing_failed(found)
        self.assert_ok(found, 'config', 'database.connection', 'database.pooling', 'database.server',
                       'database.durability', 'database.schema', 'database.rights', 'database.roles', 'database.zones', 'database.partitions',
                       'database.locks', 'database.transactions', 'clock.database', 'gateways', 'messages.overdue', 'messages.failed',
                       'broker.connection', 'broker.tls', 'broker.vhost', 'broker.owner', 'broker.permissions', 'broker.topology',
                       'broker.intake', 'broker.expired', 'broker.control', 'broker.exit', 'broker.retry', 'broker.rejected', 'broker.publish', 'handover.transport',
                       'handover.messages', 'rabbitmqctl', 'broker.policies', 'broker.bindings', 'broker.patterns',
                       'clock.broker')
        self.assertEqual(self.doctor(p)['broker.topology'][0]['status'], 'ok', 'it disturbed what is there')

    def test_lines_for_a_person(self):
        p = self.place(migrate=False)
        rc, out, err = p.cli('doctor')
        self.assertEqual((rc, err), (1, ''))
        lines = out.splitlines()
        at = next(i for i, line in enumerate(lines) if line.startswith('FAIL  database.schema  '))
        self.assertEqual(lines[at + 1], '      -> postdate migrate')
        self.assertRegex(out, r'(?m)^ok    config  ')
        self.assertRegex(out, r'(?m)^skip  messages  .*schema')

    def test_wrong_usage(self):
        p = self.place(migrate=False)
        self.assertEqual(p.cli('doctor', 'now')[0], 64)
        self.assertEqual(p.cli('doctor', '--fast')[0], 64)
        self.assertEqual(p.cli('doctor', '--rabbitmqctl')[0], 64)

    def test_the_configuration(self):
        p = self.place(migrate=False)
        with tempfile.NamedTemporaryFile('w', suffix='.conf') as f:
            f.write('[delivery]\nlead = soon\n[intake]\nquuee = x\n')
            f.flush()
            found = self.doctor(p, '-c', f.name)
            self.assert_finding(found, 'config', 'fail', f'{f.name}:2: delivery.lead', 'print-config-sample')
            self.assert_finding(found, 'config', 'fail', f'{f.name}:4: unknown option intake.quuee')
            self.assertEqual(found['database.connection'][0]['status'], 'skip')
            self.assertEqual(found['broker.connection'][0]['status'], 'skip')
            f.seek(0)
            f.truncate()
            f.write('[delivery]\nlead = 1s\n')
            f.flush()
            found = self.doctor(p, '-c', f.name, POSTDATE_DELIVERY_LEED='1s')
            self.assert_finding(found, 'config', 'ok', f.name)
            self.assert_finding(found, 'config', 'warn', 'POSTDATE_DELIVERY_LEED', 'unset')
        self.assert_finding(self.doctor(p, '-c', '/nowhere/postdate.conf'), 'config', 'fail', '/nowhere/postdate.conf')

    @harness.not_san
    def test_clocks(self):
        if not os.path.exists(FAKETIME):
            self.skipTest('libfaketime is not installed')
        p = self.place()
        for offset, status, word in (('-5s', 'warn', 'behind'), ('+5s', 'warn', 'ahead of'), ('+90s', 'fail', 'ahead')):
            found = self.doctor(p, LD_PRELOAD=FAKETIME, FAKETIME=offset)
            self.assert_finding(found, 'clock.database', status, word, 'time synchronisation')
        self.assert_ok(self.doctor(p), 'clock.database')


@harness.not_san
class DoctorSilence(Doctor):
    weight = 20
    vhosts = 0

    def test_servers_that_say_nothing(self):
        p = self.place(migrate=False)
        with silent_server() as postgres, silent_server() as rabbitmq:
            found = self.doctor(p, POSTDATE_POSTGRES_URL=f'postgresql://u@127.0.0.1:{postgres}/x',
                                POSTDATE_AMQP_URL=f'amqp://u:s3cret@127.0.0.1:{rabbitmq}/%2f')
        self.assert_finding(found, 'database.connection', 'fail', 'timeout expired')
        self.assert_finding(found, 'broker.connection', 'fail', 'no answer', 'amqp.url')
        self.assertNotIn('s3cret', self.said)

    def test_a_rabbitmqctl_that_says_nothing(self):
        p = self.place(migrate=False)
        script = os.path.join(tempfile.mkdtemp(dir='/tmp'), 'rabbitmqctl')
        self.addCleanup(shutil.rmtree, os.path.dirname(script), True)
        with open(script, 'w', encoding='utf-8') as f:
            f.write('#!/bin/sh\nsleep 1000 & echo $! >"$0.pid"; wait\n')
        os.chmod(script, 0o755)
        p.amqp = p.stack.amqp
        found = self.doctor(p, '--rabbitmqctl', script)
        self.assert_finding(found, 'rabbitmqctl', 'fail', 'no answer', 'as root')
        with open(script + '.pid', encoding='utf-8') as f:
            pid = int(f.read())
        def is_dead():
            with contextlib.suppress(FileNotFoundError), open(f'/proc/{pid}/stat', encoding='utf-8') as f:
                return f.read().rsplit(')', 1)[1].split()[0] in 'ZX'
            return True
        wait_until(is_dead, 5, 'what it had started to end')
