"""The gateway as a service: what it tells systemd, and Prometheus about itself; what is installed goes again."""
import os
import re
import socket
import subprocess
import tempfile

import harness
from harness import LiveTest, wait_until
from web import Web


class Service(LiveTest):
    def listen(self):
        """A socket as systemd's, and what came over it so far."""
        directory = tempfile.TemporaryDirectory(dir='/tmp')
        self.addCleanup(directory.cleanup)
        path = os.path.join(directory.name, 'notify')
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(s.close)
        s.bind(path)
        os.chmod(path, 0o666)
        s.setblocking(False)
        said = []

        def heard():
            while True:
                try:
                    said.extend(s.recv(4096).decode().split('\n'))
                except BlockingIOError:
                    return said
        return path, heard

    def test_systemd_is_told_of_start_life_and_end(self):
        p = self.place()
        path, heard = self.listen()
        gateway = p.gateway(NOTIFY_SOCKET=path, WATCHDOG_USEC=1000000)
        wait_until(lambda: 'STATUS=ready' in heard(), 10, 'ready to be told')
        self.assertEqual(heard()[0], 'READY=1')
        wait_until(lambda: heard().count('WATCHDOG=1') >= 3, 10, 'three signs of life')
        self.assertEqual(gateway.term(), 0)
        self.assertIn('STOPPING=1', heard())

    def test_it_is_up_while_it_waits_for_its_servers(self):
        p = self.place(migrate=False)
        path, heard = self.listen()
        gateway = p.gateway(wait=False, NOTIFY_SOCKET=path, WATCHDOG_USEC=1000000, POSTDATE_POSTGRES_URL='postgresql://127.0.0.1:1/none')
        wait_until(lambda: heard().count('WATCHDOG=1') >= 3, 20, 'three signs of life')
        self.assertEqual(heard()[:2], ['READY=1', 'STATUS=waits for PostgreSQL and RabbitMQ'])
        self.assertNotIn('STATUS=ready', heard())
        self.assertEqual(gateway.term(), 0)

    def test_metrics_of_the_process(self):
        p = self.place()
        gateway = p.gateway()
        web = Web(gateway.http())
        self.addCleanup(web.close)
        text = web.get('/metrics').body.decode()
        found = {name: float(value) for name, value in re.findall(r'^(process_\w+) (\S+)$', text, re.M)}
        with open(f'/proc/{gateway.process.pid}/status', encoding='utf-8') as f:
            status = f.read()
        self.assertEqual(set(found), {'process_cpu_seconds_total', 'process_resident_memory_bytes', 'process_virtual_memory_bytes',
                                      'process_open_fds', 'process_max_fds', 'process_start_time_seconds', 'process_threads'})
        self.assertEqual(found['process_threads'], int(re.search(r'Threads:\s+(\d+)', status)[1]))
        resident = int(re.search(r'VmRSS:\s+(\d+) kB', status)[1]) * 1024
        self.assertLess(abs(found['process_resident_memory_bytes'] - resident), resident / 2)
        self.assertLess(abs(found['process_start_time_seconds'] - os.stat(f'/proc/{gateway.process.pid}').st_ctime), 60)
        self.assertLess(abs(found['process_open_fds'] - len(os.listdir(f'/proc/{gateway.process.pid}/fd'))), 20)

    def test_what_is_installed_goes_again(self):
        with tempfile.TemporaryDirectory(dir='/tmp') as directory:
            def make(target, umask=-1):
                done = subprocess.run(['make', '-s', target, f'DESTDIR={directory}', 'PREFIX=/usr'], cwd=harness.ROOT, capture_output=True,
                                      text=True, check=False, timeout=300, umask=umask)
                self.assertEqual(done.returncode, 0, done.stderr)
                return sorted(os.path.join(at, name) for at, _, names in os.walk(directory) for name in names)
            make('all')
            installed = make('install', umask=0o077)
            self.assertIn(f'{directory}/usr/lib/sysusers.d/postdate.conf', installed)
            self.assertIn(f'{directory}/usr/bin/postdated', installed)
            self.assertEqual([path for path in installed if os.stat(path).st_mode & 0o444 != 0o444], [], 'whatever the umask')
            self.assertEqual(make('uninstall'), [])

    def test_a_sudo_that_does_not_find_what_was_installed_is_named(self):
        with tempfile.TemporaryDirectory(dir='/tmp') as directory:
            for path, said in (('', f'sudo does not look into {directory}/bin'), (f':{directory}/bin', '')):
                done = subprocess.run(['make', '-s', 'install', f'PREFIX={directory}'], cwd=harness.ROOT, capture_output=True, text=True,
                                      env={**os.environ, 'SUDO_COMMAND': 'make install', 'PATH': os.environ['PATH'] + path}, timeout=300)
                named = ''.join(line.split(':')[0].strip() for line in done.stdout.splitlines() if 'sudo' in line)
                self.assertEqual((done.returncode, named), (0, said), done.stdout + done.stderr)
