"""Servers that are slow, stopped or full, on servers of the test's own: what a gateway holds and says meanwhile, what its users
hear, and that everything goes on afterwards."""
import os
import signal
import subprocess
import time

import harness
from bounds_kit import Size
from handover_kit import OwnServers
from harness import LiveTest, wait_until
from web import Web

WINDOW = 2000  # unconfirmed publishes, at most
PREFETCH = 1000 + 2000 + 1000  # messages that the intake has unacknowledged: a batch, those set aside, those expired


@harness.not_san  # sizes are the subject
class Overload(OwnServers, LiveTest):
    time_limit_s = 150
    transport = 'timer'
    plugins = ''
    together = 'bare servers'

    def begin(self, **env):
        self.p = self.place(transport=self.transport)
        self.g = self.p.gateway(**env)
        self.c = self.p.client()
        self.c.queue('q', 'k')
        self.web = Web(self.g.http())
        self.addCleanup(self.web.close)
        return self.p

    def postgres(self, number):
        """A signal to all of its processes."""
        with open(os.path.join(self.servers.directory, 'env'), encoding='utf-8') as f:
            pid = next(x.split("'")[1] for x in f if 'STACK_POSTGRES_PID' in x)
        children = subprocess.run(['pgrep', '-P', pid], stdout=subprocess.PIPE, check=True).stdout.decode().split()
        for one in [pid, *children] if number == signal.SIGSTOP else [*children, pid]:
            try:
                os.kill(int(one), number)
            except ProcessLookupError:
                pass

    def schedule(self, count, delay, queue_key='k'):
        self.p.psql(f"select postdate.schedule('{queue_key}', 'x' || i, '{delay}') from generate_series(1, {count}) i")

    def wait_delivered(self, count):
        wait_until(lambda: self.p.counts().get('delivered') == count, 40, f'{count} to be delivered', 0.1)
        self.assertEqual(self.c.depth('q'), count)

    def alarm(self, on, off):
        count = 6000
        self.begin()
        size = Size(self.g)
        self.servers.rabbitmqctl(*on)  # first, for this takes seconds: RabbitMQ blocks one that publishes, none that is done
        try:
            self.schedule(count, '500 ms')
            self.g.wait_log('RabbitMQ blocks publishers', 40)
            past = "select now() > max(due) + interval '500 ms' from postdate.message_now"
            wait_until(lambda: self.p.value(past) == 't', 20, 'all to be due')
            # HTTP and cancel have nothing to do with the broker, which stays as it is until they are answered.
            answers = [self.web.post('/v1/messages', {'routing_key': 'k', 'body': 'x', 'delay': '1h'}) for _ in range(20)]
            self.assertEqual({a.status for a in answers}, {201}, answers)
            for a in answers:
                self.assertEqual(self.web.ask('DELETE', '/v1/messages/' + a.json['id']).status, 200)
            self.assertEqual(self.web.get('/readyz').status, 200)
            # What is not on its way to the broker is not held.
            wait_until(lambda: self.p.claimed() <= WINDOW, 15, 'all but the window to be put back')
            self.assertIn('postdate_broker_blocked 1', self.web.get('/metrics').body.decode())
        finally:
            self.servers.rabbitmqctl(*off)
        wait_until(lambda: self.p.counts().get('delivered') == count, 60, 'all to be delivered', 0.1)
        self.assertGreaterEqual(self.c.depth('q'), count)
        self.assertLessEqual(self.c.depth('q'), count + WINDOW, 'more duplicates than were in flight')
        size.stop(f'{count} due during {on[0]}; {self.c.depth("q") - count} duplicates')
        self.assertLess(size.grown_mib(), 40)
        self.assertLess(size.descriptors, size.descriptors_before + 12)  # the sessions that HTTP opens for its first requests
        self.assertLess(size.log_lines(), 12, self.g.log())

    def test_a_memory_alarm_stops_publishing_and_nothing_else(self):
        self.alarm(['set_vm_memory_high_watermark', '0.00001'], ['set_vm_memory_high_watermark', '0.4'])

    @harness.only_full  # the same for a gateway
    def test_a_disk_alarm_stops_publishing_and_nothing_else(self):
        self.alarm(['set_disk_free_limit', '1000000GB'], ['set_disk_free_limit', '50MB'])

    def test_a_stopped_database_while_messages_stream_in(self):
        """They wait in the queue, unacknowledged up to the prefetch; HTTP says so instead of waiting for ever."""
        count = 12_000
        self.begin()
        size = Size(self.g)
        publisher = self.p.load('publish', '--routing-key', 'k', '--count', count, '--delay-spread-ms', '0,500')
        wait_until(lambda: int(self.p.value('select count(*) from postdate.message_now')) > 500, 15, 'some to be stored', 0.01)
        self.postgres(signal.SIGSTOP)
        try:
            publisher.result()  # the broker takes them all the same
            answer = self.web.post('/v1/messages', {'routing_key': 'k', 'body': 'x', 'delay': '1h'})
            self.assertEqual(answer.status, 503, answer)
            self.assertIn('retry-after', answer.headers)
            self.assertEqual(self.web.get('/livez').status, 200)
            unacknowledged = self.servers.rabbitmqctl('-q', 'list_queues', '-p', self.p.vhost, 'name',
                                                      'messages_unacknowledged')
            held = next(int(x.split('\t')[1]) for x in unacknowledged.splitlines() if x.startswith('postdate.intake\t'))
            self.assertLessEqual(held, PREFETCH)
        finally:
            self.postgres(signal.SIGCONT)
        wait_until(lambda: self.c.depth('q') >= count, 60, 'all to be delivered', 0.1)
        wait_until(lambda: self.c.depth('postdate.intake') == 0, 20, 'the intake queue to be empty', 0.1)
        size.stop(f'{count} messages and a database that stands still, {held} unacknowledged')
        self.assertLess(size.grown_mib(), 40)
        self.assertLess(size.descriptors, size.descriptors_before + 12)
        self.assertLess(size.log_lines(), 20, self.g.log())

    def test_connections_that_are_cut_again_and_again(self):
        """Nothing leaks, and the log does not say each time the same."""
        count = 3000
        self.begin()
        self.schedule(count, '2 s')
        size = Size(self.g)
        cut = 'lists:foreach(fun(_) -> [exit(P, kill) || P <- rabbit_networking:local_connections()], timer:sleep(300) end, ' \
              'lists:seq(1, 8)), ok.'
        self.servers.rabbitmqctl('eval', cut)
        for _ in range(6):
            self.servers.psql("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'postdate %'")
            time.sleep(0.2)
        self.c = self.p.client()
        wait_until(lambda: self.p.counts().get('delivered') == count, 60, 'all to be delivered', 0.1)
        self.assertGreaterEqual(self.c.depth('q'), count)
        wait_until(lambda: size.open_descriptors() <= size.descriptors_before + 2, 20, 'descriptors to be given back')
        size.stop('connections cut 8 times at RabbitMQ and 6 times at Postgres')
        self.assertLess(size.grown_mib(), 40)
        self.assertLess(size.descriptors, size.descriptors_before + 12)
        self.assertLess(size.log_lines(), 120, self.g.log())
