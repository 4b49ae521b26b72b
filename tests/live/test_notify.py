"""PostgreSQL's queue of NOTIFY is full: what only hints makes nothing fail."""
import os

import harness
from doctor_kit import Doctor
from harness import LiveTest, psql_error, run_psql, wait_until
from own_postgres import FULL, NotifyQueue
from web import Web, ready_address

DEAD = """insert into postdate.lineage (id, queue, exchange, routing_key, properties, body, died_at, failed, expires_at, reason, hash, failed_at, reasons)
          values (gen_random_uuid(), 'q', '', 'q', '', '', now(), 1, now() + interval '1 d', 'rejected', '', '{}', '{}')"""
BY_SQL = ("rate_set('slow', 5)", "rate_pause('slow')", "rate_resume('slow')", "rate_remove('slow')", "recur_run('each.second')",
          "recur_remove('each.second')")
BY_COMMAND = (('rate', 'set', 'slow', '5/s'), ('rate', 'pause', 'slow'), ('rate', 'resume', 'slow'), ('rate', 'remove', 'slow'),
              ('token', 'create', '--name', 'new', '--exchange', 'e'), ('token', 'revoke', 'new'))


class FullNotifyQueue(Doctor):
    who_waits = 'timer'
    weight = 40
    time_limit_s = 900

    def setUp(self):
        super().setUp()
        self.queue = NotifyQueue(self, 'notify')
        self.p = self.place(stack=self.queue.servers)

    def schedule_everywhere(self, web, client, n):
        """By each way in, what is due at once and a little later."""
        for delay in (0, 1500):
            answer = web.post('/v1/messages', {'routing_key': 'k', 'delay': f'{delay}ms', 'body': f'http {n}'})
            self.assertEqual(answer.status, 201, answer)
            client.publish('k', b'amqp %d' % n, headers={'x-delay': delay})
            self.p.psql(f"select postdate.schedule('k', 'sql {n}'::text, delay => '{delay} ms')")
            done = self.p.cli('schedule', '-k', 'k', '--delay', f'{delay}ms', '--body', f'cli {n}')
            self.assertEqual(done[0], 0, done)

    def change_what_notified(self):
        for call in BY_SQL:
            self.p.psql(f'select postdate.{call}')
        for command in BY_COMMAND:
            done = self.p.cli(*command)
            self.assertEqual(done[0], 0, (command, done))
        self.p.psql(DEAD)
        self.assertEqual(self.p.psql('select postdate.dead_requeue(id, queue) from postdate.lineage'), [['t']])

    def doctor_told(self, pid):
        """What doctor finds; None: PostgreSQL has not named the holder, which it does once in five seconds, to whoever asks."""
        found = self.doctor(self.p)
        return found if f'pid {pid} ' in found['database.notify'][0]['detail'] else None

    def test_full(self):
        gateway = self.p.gateway()
        c = self.p.client()
        for queue in ('k', 'r'):
            c.queue(queue, queue)
        inbox, each_second = self.p.consumer('k'), self.p.consumer('r')
        web = Web(ready_address(gateway))
        self.p.psql("select postdate.recur_set('each.second', '@every 1s', 'r', 'x'::text)")
        pid = self.queue.hold()
        self.queue.fill()
        self.assertIn(FULL, psql_error(self.queue.url, 'notify nothing')[1])

        before = len(each_second.all())
        for n in range(5):
            self.schedule_everywhere(web, c, n)
        inbox.wait(40, 30)
        each_second.wait(before + 5, 30)
        self.change_what_notified()

        gateway.wait_log('queue of NOTIFY', 30)
        said = gateway.lines_with('queue of NOTIFY')
        self.assertEqual(len(said), 1, gateway.log())
        self.assertIn(f'pid {pid} of bystander (forgetful', said[0])
        ratio = [line.split()[1] for line in web.get('/metrics').body.decode().splitlines() if line.startswith('postdate_notify_queue_ratio ')]
        self.assertGreater(float(ratio[0]), 0.9)
        self.assert_finding(wait_until(lambda: self.doctor_told(pid), 30, 'doctor to be told who it is'), 'database.notify', 'warn', f'pid {pid} of bystander (forgetful', 'pg_terminate_backend')

        self.queue.let_go()
        gateway.wait_log('queue of NOTIFY is less than half full again', 30)
        run_psql(self.queue.url, 'notify nothing')
        self.assert_ok(self.doctor(self.p), 'database.notify')


class NotifyHolder(LiveTest):
    def test_that_nobody_is_seen_is_an_answer(self):
        with open(os.path.join(harness.ROOT, 'sql', 'query', 'health_notify_holder.sql'), encoding='utf-8') as f:
            rows = self.place().psql(f.read().replace('$1', '0'))
        self.assertEqual(len(rows), 1)
