"""PostgreSQL's disk is full: it is said, by everything that is asked; and when there is space again, all comes, each once."""
import os
import shutil
import subprocess
import tempfile

from doctor_kit import Doctor
from harness import wait_until
from own_postgres import own_postgres
from web import Web, ready_address

DISK_MB = 160
MESSAGES = 3000


class FullDisk(Doctor):
    who_waits = 'timer'
    weight = 30
    time_limit_s = 300

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest('only root can mount the small disk that this fills')
        self.servers = own_postgres(self.addCleanup, 'full', self.prepare)
        self.p = self.place(stack=self.servers)

    def prepare(self, servers, data):
        """The databases are on a disk of their own; the WAL is not, without which PostgreSQL stops."""
        self.disk = tempfile.mkdtemp(prefix='postdate-full-', dir='/tmp')
        self.addCleanup(shutil.rmtree, self.disk, True)
        subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={DISK_MB}m,mode=755', 'tmpfs', self.disk], check=True)
        self.addCleanup(subprocess.run, ['umount', '-l', self.disk], check=False)
        base = os.path.join(self.disk, 'base')
        subprocess.run(['cp', '-a', os.path.join(data, 'base'), base], check=True)
        os.chmod(self.disk, 0o755)
        shutil.rmtree(os.path.join(data, 'base'))
        os.symlink(base, os.path.join(data, 'base'))

    def fill(self):
        """To the last byte; returns what to remove."""
        path = os.path.join(self.disk, 'balloon')
        with open(path, 'wb', buffering=0) as f:
            try:
                while True:
                    f.write(b'x' * (1 << 16))
            except OSError:
                pass
        return path

    def metric(self, web, name):
        return [float(line.split()[1]) for line in web.get('/metrics').body.decode().splitlines() if line.startswith(name + ' ')][0]

    def test_said_and_over(self):
        gateway = self.p.gateway()
        c = self.p.client()
        c.queue('k', 'k')
        inbox = self.p.consumer('k')
        web = Web(ready_address(gateway))
        self.p.psql(f"select count(postdate.schedule('k', i::text, delay => interval '3 s' + i * interval '10 ms')) from generate_series(1, {MESSAGES}) i")
        inbox.wait(20, 30)
        balloon = self.fill()
        wait_until(lambda: web.get('/readyz').status == 503, 40, '/readyz to say that it is not ready')
        self.assertIn('no space left', web.get('/readyz').body.decode())
        self.assertEqual(self.metric(web, 'postdate_database_up'), 0)
        gateway.wait_log(r'(claimer|settler).*53100', 40)
        wait_until(lambda: self.p.value("select count(*) > 0 from postdate.messages where state = 'scheduled' and due_at < now() - interval '3 s'") == 't', 60,
                   'messages to be overdue')
        self.assert_finding(self.doctor(self.p), 'database.space', 'fail', 'no space left', 'free space')
        out = self.p.cli('status')[1]
        self.assertIn('PostgreSQL has no space left', out)
        warnings = gateway.lines_with('53100')
        self.assertLess(len(warnings), 12, 'one that repeats is one line')

        os.unlink(balloon)
        wait_until(lambda: web.get('/readyz').status == 200, 30, '/readyz')
        self.assertEqual(self.metric(web, 'postdate_database_up'), 1)
        inbox.wait(MESSAGES, 90)
        self.assertEqual(sorted(int(m.body) for m in inbox.all()), list(range(1, MESSAGES + 1)), 'each once')
        gateway.wait_log(r'(claimer|settler).*it works again', 30)
        self.assert_ok(self.doctor(self.p), 'database.space')
        self.assertNotIn('no space left', self.p.cli('status')[1])
