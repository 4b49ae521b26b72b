"""A Postgres of a test class's own, beside the RabbitMQ of all tests: for what would harm the others."""
import contextlib
import os
import shutil
import tempfile
import threading

import harness
from harness import Session, Stack, run_psql

FULL = 'too many notifications in the NOTIFY queue'


def own_postgres(add_cleanup, name, prepare=None):
    """The stack with that Postgres, which has no template of a migrated database. prepare(stack, data folder): between its first start, that
    made its files, and the second one."""
    servers = Stack.own(add_cleanup, name)
    servers.command('start-postgres')
    main = harness.stack()
    servers.env = dict(main.env, POSTDATE_POSTGRES_URL=servers.load().env['POSTDATE_POSTGRES_URL'])
    if prepare:
        data = servers.psql('show data_directory')[0][0]
        servers.command('stop-postgres')
        prepare(servers, data)
        servers.command('start-postgres')
    servers.vhosts = main.vhosts
    return servers


class NotifyQueue:
    """PostgreSQL's queue of NOTIFY, which somebody fills who may do nothing but connect: he listens, and leaves a transaction open. Up to
    PostgreSQL 16 it takes 8 GB and some minutes; these are put beside the data, on a disk, and only where POSTDATE_TEST_NOTIFY=1 asks for it."""
    PAYLOAD = 7900
    ROWS = 4000

    def __init__(self, case, name):
        self.case = case
        self.servers = own_postgres(case.addCleanup, name, self.prepare)
        self.servers.psql('create role bystander login')
        self.url = self.servers.postgres.replace('/postdate?', '/postgres?').replace('user=postdate', 'user=bystander')

    def prepare(self, servers, data):
        with open(os.path.join(data, 'PG_VERSION'), encoding='utf-8') as f:
            self.small = int(f.read()) >= 17
        if not self.small and not os.environ.get('POSTDATE_TEST_NOTIFY'):
            self.case.skipTest('before PostgreSQL 17 the queue has 8 GB, and POSTDATE_TEST_NOTIFY=1 is not set')
        if self.small:
            with open(os.path.join(data, 'stack.conf'), 'a', encoding='utf-8') as f:
                f.write('max_notify_queue_pages = 64\n')
            return
        folder = tempfile.mkdtemp(prefix='postdate-notify-', dir='/var/tmp')
        harness.note_stack(servers.directory, folder)
        self.case.addCleanup(shutil.rmtree, folder, True)
        owner = os.stat(data)
        os.chown(folder, owner.st_uid, owner.st_gid)
        shutil.rmtree(os.path.join(data, 'pg_notify'))
        os.symlink(folder, os.path.join(data, 'pg_notify'))

    def usage(self):
        return float(run_psql(self.url, 'select pg_notification_queue_usage()')[0][0])

    def hold(self):
        """An application that forgot its transaction; its pid."""
        self.holder = Session(self.url + '&application_name=forgetful')
        self.case.addCleanup(self.holder.close)
        self.holder.run('listen nothing')
        self.holder.run('begin')
        return int(self.holder.run('select pg_backend_pid()')[0][0])

    def fill(self, until=2.0):
        """As full as that; 2: to the end."""
        rows = 8 if self.small else self.ROWS
        text = (f"do $$ begin perform pg_notify('nothing', i || repeat('x', {self.PAYLOAD})) from generate_series(1, {rows}) i; end $$")
        stop = threading.Event()

        def send():
            with contextlib.suppress(AssertionError):
                while not stop.is_set() and (until > 1 or self.usage() < until):
                    run_psql(self.url, ';'.join([text] * (1 if self.small else 10)))
            stop.set()
        senders = [threading.Thread(target=send) for _ in range(1 if self.small else 2)]
        for s in senders:
            s.start()
        for s in senders:
            s.join()
        # the last bytes of it, for a short one
        while until > 1:
            try:
                run_psql(self.url, "notify nothing, 'x'; notify nothing, 'y'")
            except AssertionError as e:
                self.case.assertIn(FULL, str(e))
                return

    def let_go(self):
        self.holder.close()
