"""postgres.url names several hosts: the gateway finds the one that takes writes, and the next one after it."""
import os
import shutil
import signal
import sys
import tempfile

import harness
from harness import LiveTest, wait_until

sys.path.append(os.path.join(harness.ROOT, 'tests', 'chaos'))
import servers  # noqa: E402


@harness.not_san
class PostgresHosts(LiveTest):
    weight = 2

    def postgres(self):
        """A primary that this test may kill, and room for its standby."""
        directory = tempfile.mkdtemp(prefix='hosts-', dir=os.environ['STACK_DIR'])
        os.chmod(directory, 0o755)
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        pg = servers.Postgres(directory, 600 << 20)
        self.addCleanup(pg.close)
        return pg

    def test_a_promotion_while_messages_flow_loses_nothing(self):
        """Each commit was on both. What was accepted before the primary's end is delivered by way of the new one."""
        count = 2000
        pg = self.postgres()
        p = self.place(migrate=False)
        pg.primary.psql('create database hosts owner postdate')
        p.postgres = pg.url('hosts')
        p.migrate()
        pg.add_standby()
        g = p.gateway()
        inbox = p.load('consume', '--queue', 'flow', '--exchange', 'postdate.delivery', '--bind', 'flow', '--expect', count,
                       '--timeout-s', 60, '--idle-s', 1, '--retry').wait_consuming()
        publisher = p.load('publish', '--routing-key', 'flow', '--count', count, '--rate', count // 4, '--delay-spread-ms', '0,8000',
                           '--retry', '--timeout-s', 60)
        wait_until(lambda: int(pg.primary.psql('select count(*) from postdate.message_now', 'hosts')[0][0]) >= count // 3, 30,
                   'a third to be stored')
        pg.primary.end(signal.SIGKILL)
        pg.promote()
        self.assertEqual(pg.primary.psql('select pg_is_in_recovery()'), [['f']])
        publisher.result()
        r = inbox.result()
        self.assertEqual((r['missing'], r['early'], r['unexpected']), (0, 0, 0), r)
        wait_until(lambda: p.counts().get('delivered', 0) >= count and len(p.counts()) == 1, 20, 'all to be settled on the new primary')
        self.assertEqual(len(g.lines_with('PostgreSQL is back after')), 1, g.log())
        print(f"note hosts: {r['duplicates']} of {count} came twice over the promotion", flush=True)
        p.run('status')
        self.assertEqual(g.term(), 0)
