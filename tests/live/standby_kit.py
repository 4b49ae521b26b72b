"""A primary of the test's own and the standby that streams from it: cut off, promoted, and asked what it has.

    class Some(StandbyTest):
        def test(self):
            pg = self.pair()             # a primary, without a standby
            p = self.place_on(pg)        # a database on it; gateways and commands find whoever takes writes
            pg.add_standby()             # synchronous; add_standby(synchronous=False) only follows
            pg.cut_off()                 # it runs, and hears nothing any more
            pg.cancel_waits()            # pg_cancel_backend for each commit that waits for it
            with pg.waits_are_cancelled(): ...   # each, as soon as it waits
            pg.kill_one_waiting()        # or kill -9: the primary recovers, and shows what waited
            pg.fail_over()               # the primary is lost, the standby promoted: it has what it heard of
            pg.ask(p, 'select ...')      # on whoever is the primary now; on='spare': on the standby
"""
import concurrent.futures
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading

import harness
from harness import LiveTest, wait_until

sys.path.append(os.path.join(harness.ROOT, 'tests', 'chaos'))
import servers  # noqa: E402


class Pair(servers.Postgres):
    @contextlib.contextmanager
    def waits_are_cancelled(self):
        """As: a list of how many there were each time."""
        ends, counts = threading.Event(), []

        def cancel():
            while not ends.wait(0.02):
                counts.append(self.cancel_waits())
        thread = threading.Thread(target=cancel)
        thread.start()
        try:
            yield counts
        finally:
            ends.set()
            thread.join()

    def ask(self, place, query, on='primary'):
        return getattr(self, on).psql(query, place.standby_database)

    def kill_one_waiting(self):
        """The kernel kills a session whose commit waits; returns once the primary has recovered from that."""
        servant = "select pid from pg_stat_activity where backend_type = 'checkpointer'"
        before = self.primary.psql(servant)
        os.kill(int(wait_until(self.waiting, 30, 'a commit to wait for the standby')[0][0]), signal.SIGKILL)

        def recovered():
            try:
                return self.primary.psql(servant) != before
            except RuntimeError:
                return False
        wait_until(recovered, 60, 'the primary to recover')

    def fail_over(self):
        self.primary.end(signal.SIGKILL)
        self.promote()


class StandbyTest(LiveTest):
    def pair(self):
        """Its servers end with the test."""
        directory = tempfile.mkdtemp(prefix='standby-', dir=os.environ['STACK_DIR'])
        os.chmod(directory, 0o755)
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        pg = Pair(directory, 600 << 20)
        self.addCleanup(pg.close)
        return pg

    def place_on(self, pg, name='stored', **options):
        """A place whose database is on the pair, under that name."""
        p = self.place(migrate=False, **options)
        pg.primary.psql(f'create database {name} owner postdate')
        p.standby_database, p.postgres = name, pg.url(name)
        p.migrate()
        return p

    def at_once(self, call, *args):
        """It waits for an answer meanwhile; its result() is that."""
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        return pool.submit(call, *args)
