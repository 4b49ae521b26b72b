"""Servers whose processes stand still while their kernel takes connections and bytes: a disk that hangs, a machine that swaps."""
import os
import shutil
import signal
import sys
import tempfile

import harness
from handover_kit import OwnServers, metric
from harness import LiveTest, wait_until
from web import Web

sys.path.append(os.path.join(harness.ROOT, 'tests', 'chaos'))
import servers  # noqa: E402

COUNT = 400


@harness.not_san  # the tmpfs of each is large
class FrozenPostgres(LiveTest):
    """Nobody says that it is gone. It is asked over another connection, given up, and the next host is tried."""
    weight = 5
    who_waits = 'timer'

    def begin(self, standby=False):
        directory = tempfile.mkdtemp(prefix='frozen-', dir=os.environ['STACK_DIR'])
        os.chmod(directory, 0o755)
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        self.pg = servers.Postgres(directory, 600 << 20)
        self.addCleanup(self.pg.close)
        self.p = self.place(migrate=False)
        self.node = self.pg.primary
        self.node.psql('create database frozen owner postdate')
        self.p.postgres = self.pg.url('frozen') if standby else f'postgresql:///frozen?host={self.node.run}&user=postdate'
        self.p.migrate()
        if standby:
            self.pg.add_standby()
        self.g = self.p.gateway()
        self.c = self.p.client()
        self.c.queue('q', 'k')
        wait_until(lambda: self.ready() == 200, 20, 'readiness')

    def get(self, path):
        web = Web(self.g.http())
        try:
            return web.get(path)
        finally:
            web.close()

    def ready(self):
        return self.get('/readyz').status

    def metrics(self):
        return self.get('/metrics').body.decode()

    def freeze(self):
        self.node.stand_still()
        self.addCleanup(lambda: self.node.alive() and self.node.go_on())

    def schedule(self, node, count, what, delay='0 s'):
        node.psql(f"select count(postdate.schedule('k', '{what}-' || i, interval '{delay}')) from generate_series(1, {count}) i", 'frozen')

    def bodies(self, count, deadline_s=60):
        """All that is in the queue, once there are so many different ones."""
        came = []

        def enough():
            while (m := self.c.get('q')) is not None:
                came.append(m.body.decode())
            return len(set(came)) >= count
        wait_until(enough, deadline_s, f'{count} to be delivered')
        return came

    def test_one_that_stands_still_is_said_to_be_away_until_it_goes_on(self):
        """While messages come in and fall due."""
        self.begin()
        publisher = self.p.load('publish', '--routing-key', 'k', '--count', COUNT, '--rate', 100, '--delay-spread-ms', '0,20000')
        wait_until(lambda: self.c.depth('q') > COUNT // 10, 30, 'some to be delivered')
        self.freeze()
        wait_until(lambda: self.ready() == 503, 60, '/readyz to say that it is away')
        self.assertRegex(self.metrics(), r'(?m)^postdate_database_up 0$')
        self.g.wait_log(rf'no answer from PostgreSQL at {self.node.run}:5432 within 5 s; trying again until it works', 60)
        publisher.result()
        self.node.go_on()
        wait_until(lambda: self.ready() == 200, 60, '/readyz to say that it is back')
        self.g.wait_log('PostgreSQL is back after')
        wait_until(lambda: self.p.counts() == {'delivered': COUNT}, 90, 'all to be delivered')
        doubled = self.c.depth('q') - COUNT
        print(f'note frozen: {doubled} of {COUNT} came twice', flush=True)
        self.assertTrue(0 <= doubled <= 256, doubled)  # what was published and not settled: docs/internals/decisions/in-flight.md, "At most 256 unsettled"
        self.assertEqual(len(self.g.lines_with('trying again until it works')), 1, self.g.log())
        self.assertEqual(self.g.term(), 0)

    def test_commands_end_that_are_under_way(self):
        self.begin()
        self.node.psql("begin; select 1; commit", 'frozen')
        watching = self.p.start_cli('status', '--watch')
        wait_until(lambda: watching.poll() is None and b'scheduled' in watching.stdout.readline(), 10, 'the first screen')
        self.freeze()
        rc, out, err = self.p.cli('list')
        self.assertEqual(rc, 69, out + err)
        self.assertIn('timeout expired', err)
        rc, out, err = self.p.cli('doctor')
        self.assertEqual(rc, 1, out + err)
        self.node.go_on()
        watching.send_signal(signal.SIGINT)

    def test_another_one_is_promoted_while_the_old_primary_stands_still(self):
        """What is stored on the new one is delivered, although the old one takes connections."""
        self.begin(standby=True)
        self.schedule(self.node, COUNT, 'old', '8 s')
        self.freeze()
        new = self.pg.spare
        new.psql('select pg_promote(true, 60)')
        new.psql("alter system set synchronous_standby_names = ''")
        new.psql('select pg_reload_conf()')
        self.schedule(new, COUNT, 'new')
        came = self.bodies(2 * COUNT, 120)
        self.assertEqual(len(came), 2 * COUNT)
        self.g.wait_log(rf'no answer from PostgreSQL at {self.node.run}:5432')
        self.assertEqual(self.ready(), 200)
        self.assertRegex(self.metrics(), r'(?m)^postdate_database_up 1$')
        # It is a primary of its own when it wakes up, until somebody ends it. Nobody listens to it any more.
        self.node.go_on()
        self.schedule(new, 10, 'later')
        self.assertEqual(len(self.bodies(10)), 10)
        self.assertEqual(self.g.term(), 0)

    def test_what_takes_long_is_waited_for_while_the_server_lives(self):
        """A commit that waits for its standby, a lock that a migration waits for: longer than any silence that is a reason to ask."""
        self.begin(standby=True)
        self.pg.spare.stand_still()
        self.addCleanup(lambda: self.pg.spare.alive() and self.pg.spare.go_on())
        before = self.sessions()
        self.c.publish('k', b'waits', {'x-delay': 100})
        wait_until(lambda: self.node.psql("select 1 from pg_stat_activity where wait_event = 'SyncRep' and application_name = 'postdate intake' "
                                          "and now() - state_change > interval '12 s'"), 40, 'a commit to wait for long')
        self.assertEqual(self.g.lines_with('no answer'), [])
        self.assertLessEqual(self.sessions(), before + 15)  # nothing was given up, and its session left behind
        self.pg.spare.go_on()
        self.assertEqual(self.c.wait_get('q', 30).body, b'waits')
        self.assertEqual(self.g.term(5), 0)  # what the forecast rests after such a commit ends, too

    def sessions(self):
        return int(self.node.psql("select count(*) from pg_stat_activity where usename = 'postdate' and application_name <> 'postdate probe'")[0][0])


@harness.not_san  # waits for heartbeats
class FrozenRabbitMQ(OwnServers, LiveTest):
    who_waits = 'timer'

    def signal_nodes(self, number):
        for pid in self.servers.load().env['STACK_RABBITMQ_PID'].split():
            os.kill(int(pid), number)

    def test_one_that_stands_still_is_said_to_be_away_until_it_goes_on(self):
        """Heartbeats notice it on idle connections, and on busy ones the limit of each request."""
        p = self.place(transport='timer')
        g = p.gateway(POSTDATE_AMQP_HEARTBEAT='2s')
        c = p.client()
        c.queue('q', 'k')
        p.psql(f"select count(postdate.schedule('k', i::text, i * interval '50 ms')) from generate_series(1, {COUNT}) i")
        wait_until(lambda: p.counts().get('delivered', 0) > COUNT // 10, 30, 'some to be delivered')
        c.close()
        self.signal_nodes(signal.SIGSTOP)
        try:
            g.wait_log('RabbitMQ at .*; trying again until it works', 60)
            wait_until(lambda: metric(g, 'postdate_broker_up') == 0, 60, 'the metric to say that it is away')
            wait_until(lambda: p.value("select now() > max(due) from postdate.message_now") == 't', 60, 'all to be due')
            rc, out, err = p.cli('doctor', timeout=120)
            self.assertEqual(rc, 1, out + err)
        finally:
            self.signal_nodes(signal.SIGCONT)
        g.wait_log('RabbitMQ is back after', 60)
        wait_until(lambda: p.counts() == {'delivered': COUNT}, 90, 'all to be delivered')
        doubled = p.client().depth('q') - COUNT
        print(f'note frozen: RabbitMQ stood still, {doubled} of {COUNT} came twice', flush=True)
        self.assertTrue(0 <= doubled <= 256, doubled)
        wait_until(lambda: metric(g, 'postdate_broker_up') == 1, 30, 'the metric')
        self.assertEqual(len(g.lines_with('trying again until it works')), 1, g.log())
        self.assertEqual(g.term(), 0)
