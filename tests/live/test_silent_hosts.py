"""Hosts of postgres.url and amqp.url that do not answer: off, so that packets are dropped, or hung."""
import os
import socket
import subprocess
import threading
import time
import urllib.parse

import harness
from door import port_of, with_hosts
from harness import LiveTest
from silent import Gone, Hung


class SilentHosts(LiveTest):
    """Each has a limit of its own, and the next one is tried: PostgreSQL and RabbitMQ by the same rule."""
    who_waits = 'timer'
    weight = 3

    def setUp(self):
        self.p = self.place()
        self.hung, self.gone = Hung(), Gone()
        self.addCleanup(self.hung.close)
        self.addCleanup(self.gone.close)

    def postgres(self, *ports, **options):
        """The URL with these before the host that there is: a number is a port of this machine, '' the real one."""
        parts = urllib.parse.urlsplit(self.p.postgres)
        real = dict(urllib.parse.parse_qsl(parts.query))
        hosts = ','.join('127.0.0.1' if port else real['host'] for port in ports)
        numbers = ','.join(str(port or real.get('port', 5432)) for port in ports)
        query = {**real, 'host': hosts, 'port': numbers, **options}
        return f"postgresql://{parts.path}?{urllib.parse.urlencode(query, safe='/,')}"

    def both(self, *silent):
        """Environment of a program: two of them before the host that there is, of either server."""
        return {'POSTDATE_POSTGRES_URL': self.postgres(*(s.port for s in silent), '', target_session_attrs='read-write'),
                'POSTDATE_AMQP_URL': with_hosts(self.p.amqp, *(s.address for s in silent), f'127.0.0.1:{port_of(self.p.amqp)}')}

    def test_a_gateway_finds_the_one_that_answers(self):
        c = self.p.client()
        g = self.p.gateway(wait=False, **self.both(self.gone, self.hung))
        g.wait_ready(90)
        c.queue('q', 'k')
        c.publish('k', b'through', {'x-delay': 300})
        self.assertEqual(c.wait_get('q').body, b'through')
        self.assertEqual(g.term(40), 0)

    def test_in_the_middle(self):
        """Behind one that refuses, and behind one that answers but is none for us: PostgreSQL says which database it lacks."""
        with socket.socket() as refusing:
            refusing.bind(('127.0.0.1', 0))
            url = self.postgres(refusing.getsockname()[1], self.gone.port, self.hung.port, '')
            rc, out, err = self.p.cli('status', env={'POSTDATE_POSTGRES_URL': url})
        self.assertEqual(rc, 0, out + err)

    def test_every_command(self):
        env = self.both(self.hung, self.gone)
        commands = {'status': 0, 'list': 0, 'migrate': 0, 'schedule -k k --delay 1h --body x': 0, 'cancel --key nothing': 66, 'doctor': None,
                    'forecast': 0, 'recur list': 0, 'dead list': 0, 'token list': 0, 'feed': 0}
        running = {c: self.p.start_cli(*c.split(), env=env) for c in commands}
        said = {}
        for command, expected in commands.items():
            out, err = running[command].communicate(timeout=150 * harness.slowness())
            said[command] = f'{command}: {out.decode()}{err.decode()}'
            if expected is not None:
                self.assertEqual(running[command].returncode, expected, said[command])
        self.assertRegex(said['doctor'], r'(?m)ok +database.connection')
        self.assertRegex(said['doctor'], r'(?m)^warn +broker.hosts +2 of 3 hosts')

    def test_once(self):
        done = subprocess.run([*harness.DIE_WITH_PARENT, os.path.join(harness.BIN_DIR, 'postdated'), '--once'], env=self.p.env(**self.both(self.hung, self.gone)),
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=150 * harness.slowness(), check=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode())

    def test_none_answers(self):
        """The error names each of them."""
        url = self.postgres(self.gone.port, self.hung.port, connect_timeout=2)
        rc, out, err = self.p.cli('status', env={'POSTDATE_POSTGRES_URL': url})
        self.assertEqual(rc, 69, out + err)
        for one in (self.gone, self.hung):
            self.assertRegex(err, rf'"?127\.0\.0\.1"?[^;]*port {one.port} failed: timeout expired')

    def test_connect_timeout_gives_a_slow_one_its_time(self):
        """In the URL, or in the environment as libpq has it."""
        address = urllib.parse.urlsplit(self.p.postgres)
        real = dict(urllib.parse.parse_qsl(address.query))
        with socket.create_server(('127.0.0.1', 0)) as slow:
            threading.Thread(target=serve_slowly, args=(slow, f"{real['host']}/.s.PGSQL.{real.get('port', 5432)}", 7), daemon=True).start()
            port = slow.getsockname()[1]
            running = [self.p.start_cli('status', env=env) for env in (
                {'POSTDATE_POSTGRES_URL': self.postgres(port, connect_timeout=60)},
                {'POSTDATE_POSTGRES_URL': self.postgres(port), 'PGCONNECT_TIMEOUT': '60'},
                {'POSTDATE_POSTGRES_URL': self.postgres(port)})]
            said = [(c.communicate(timeout=60 * harness.slowness()), c.returncode) for c in running]
            self.assertEqual([code for _, code in said], [0, 0, 69], said)
            slow.shutdown(socket.SHUT_RDWR)


def serve_slowly(listener, target, after_s):
    """Says nothing for so long, and is then what listens there."""
    def serve(near):
        time.sleep(after_s)  # the host's slowness; no test waits for it
        far = socket.socket(socket.AF_UNIX)
        far.connect(target)
        for a, b in ((near, far), (far, near)):
            threading.Thread(target=pump, args=(a, b), daemon=True).start()
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=serve, args=(near,), daemon=True).start()


def pump(a, b):
    try:
        while data := a.recv(65536):
            b.sendall(data)
        b.shutdown(socket.SHUT_WR)
    except OSError:
        pass
