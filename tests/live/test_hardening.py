"""What the programs and units are given against attackers: looked for in the files as built, and tried."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

import harness
from harness import LiveTest, now_ms, wait_until
from web import Web

CHECK = os.path.join(harness.ROOT, 'tools', 'check_hardening.sh')
SOURCE = '#include <stdio.h>\nint main(int n, char **v) { char b[64]; snprintf(b, sizeof b - n, "%s", v[0]); return puts(b); }\n'
FLAGS = ['-O2', '-D_FORTIFY_SOURCE=3', '-fstack-protector-strong', '-fPIE', '-pie', '-Wl,-z,now']


@harness.not_san
class Programs(LiveTest):
    vhosts = 0

    def check(self, *programs):
        done = subprocess.run([CHECK, *programs], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False, timeout=60)
        return done.returncode, done.stdout.decode()

    def test_both_programs_have_it_all(self):
        programs = [os.path.join(harness.BIN_DIR, name) for name in ('postdated', 'postdate')]
        self.assertEqual(self.check(*programs), (0, ''))

    def test_the_check_sees_what_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, 'x.c'), os.path.join(folder, 'x')
            with open(source, 'w', encoding='ascii') as f:
                f.write(SOURCE)
            for flags, text in ((['-no-pie'], 'not position-independent'), (['-Wl,-z,lazy'], 'bound late'),
                                (['-Wl,-z,norelro'], 'no RELRO'), (['-Wl,-z,execstack'], 'stack is executable'),
                                (['-Wl,-rpath,/x'], 'rpath'), (['-U_FORTIFY_SOURCE'], 'no fortified'),
                                (['-fno-stack-protector'], 'no stack protector')):
                with self.subTest(flags):
                    subprocess.run(['gcc', *FLAGS, *flags, '-o', program, source], check=True, stderr=subprocess.DEVNULL)
                    code, out = self.check(program)
                    self.assertEqual(code, 1)
                    self.assertIn(text, out)


@harness.not_san
class Units(LiveTest):
    """packaging/*.service"""
    EXPOSURE = 1.1  # systemd's figure, 0 to 10; less is better

    def unit(self, name, folder):
        with open(os.path.join(harness.ROOT, 'packaging', name), encoding='utf-8') as f:
            text = f.read().replace('@PREFIX@', '/usr')
        path = os.path.join(folder, name)
        with open(path, 'w', encoding='utf-8') as f:
            f.write(text)
        return path

    def analyze(self, *args):
        return subprocess.run(['systemd-analyze', *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, timeout=60).stdout.decode()

    def test_memory_is_bounded_and_versions_are_said(self):
        docker = os.path.join(harness.ROOT, 'docker')
        with tempfile.TemporaryDirectory() as folder:
            with open(self.unit('postdated.service', folder), encoding='utf-8') as f:
                self.assertRegex(f.read(), r'(?m)^MemoryMax=1G$')
        with open(os.path.join(docker, 'compose.yaml'), encoding='utf-8') as f:
            compose = f.read()
        services = re.split(r'(?m)^  (?=[a-z])', compose[compose.index('\nservices:\n'):compose.index('\nvolumes:')])[1:]
        self.assertGreater(len(services), 6)
        for service in services:
            self.assertTrue('mem_limit: ' in service or '<<: *gateway' in service or '<<: *example' in service, service)
        self.assertRegex(compose, r'x-gateway: &gateway\n  <<: \*hardened\n  mem_limit: ')
        named = re.findall(r'(?m)^    image: (\S+)$', compose)
        for name in ('Dockerfile', 'Dockerfile.rabbitmq-plugin', 'Dockerfile.rabbitmq-exchange', 'example/Dockerfile'):
            with open(os.path.join(docker, name), encoding='utf-8') as f:
                text = f.read()
            values = dict(re.findall(r'(?m)^ARG (\w+)=(\S+)', text))
            named += [re.sub(r'\$\{(\w+)\}', lambda m: values[m[1]], base) for base in re.findall(r'(?m)^FROM (\S+)', text)]
        for image in named:
            if not image.endswith(':local'):
                self.assertRegex(image, r'\d+\.\d+(-slim)?\}?$')

    def copy_for_image(self, name, folder):
        """Only what the Dockerfile copies, and Docker's list of what it may see lets through."""
        with open(os.path.join(harness.ROOT, 'docker', name), encoding='utf-8') as f:
            copied = [line.split()[1:] for line in f if re.match(r'COPY (?!--from)', line)]
        with open(os.path.join(harness.ROOT, 'docker', name + '.dockerignore'), encoding='utf-8') as f:
            seen = re.findall(r'(?m)^!(\S+)$', f.read())
        for *sources, target in copied:
            for source in sources:
                self.assertIn(source, seen)
                to = os.path.join(folder, source if target == './' else target)
                os.makedirs(os.path.dirname(to), exist_ok=True)
                (shutil.copytree if os.path.isdir(os.path.join(harness.ROOT, source)) else shutil.copy)(
                    os.path.join(harness.ROOT, source), to)

    def test_the_images_have_what_is_needed(self):
        for name, command in (('Dockerfile', ['make', '-n', 'all', 'install', 'DESTDIR=/out', 'PREFIX=/usr']),
                              ('Dockerfile.rabbitmq-exchange', ['tools/exchange_type.sh', 'out'])):
            with self.subTest(name), tempfile.TemporaryDirectory() as folder:
                self.copy_for_image(name, folder)
                done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      check=False, timeout=120)
                self.assertEqual(done.returncode, 0, done.stdout.decode()[-2000:])

    def test_exposure(self):
        if not shutil.which('systemd-analyze') or '--offline' not in self.analyze('--help'):
            self.skipTest('no systemd-analyze that can do it offline')
        with tempfile.TemporaryDirectory() as folder:
            for name in ('postdated.service', 'postdate-feed.service'):
                out = self.analyze('security', '--offline=true', '--no-pager', self.unit(name, folder))
                level = re.search(r'Overall exposure level for .*: ([0-9.]+)', out)
                self.assertTrue(level, out)
                self.assertLessEqual(float(level.group(1)), self.EXPOSURE, out)

    def need_namespaces(self):
        if os.geteuid() != 0 or os.uname().machine != 'x86_64' or not shutil.which('systemd-analyze'):
            self.skipTest('needs root, x86_64 and systemd-analyze')
        if subprocess.run(['unshare', '--mount', 'true'], check=False, stderr=subprocess.DEVNULL).returncode != 0:
            self.skipTest('mount namespaces are not allowed here')

    def confined(self, p, program, *args, **env):
        """Starts it as by postdated.service; (process, log file)."""
        sockets = urllib.parse.parse_qs(urllib.parse.urlsplit(p.postgres).query)['host'][0]
        user = os.stat(sockets)  # nobody else may enter that folder
        folder = tempfile.mkdtemp(prefix='postdate-unit-', dir='/var/tmp')
        self.addCleanup(shutil.rmtree, folder)
        os.chmod(folder, 0o755)
        copy, log = shutil.copy(program, folder), os.path.join(folder, 'log')
        os.chmod(copy, 0o755)
        unit = os.path.join(harness.ROOT, 'packaging', 'postdated.service')
        command = ['unshare', '--mount', sys.executable, os.path.join(harness.ROOT, 'tests', 'live', 'confine.py'), unit,
                   str(user.st_uid), str(user.st_gid), copy, *args]
        with open(log, 'wb') as f:
            process = subprocess.Popen([*harness.DIE_WITH_PARENT, *command], stdin=subprocess.DEVNULL, stdout=f, stderr=f,
                                       env=p.env(CONFINE_NEEDS=os.path.realpath(sockets) + '/', **env))
        p.children.append(process)
        return process, log

    def text(self, log):
        with open(log, encoding='utf-8', errors='replace') as f:
            return f.read()

    def test_the_gateway_works_as_confined_as_that(self):
        self.need_namespaces()
        p = self.place()
        process, log = self.confined(p, os.path.join(harness.BIN_DIR, 'postdated'))
        wait_until(lambda: 'ready:' in self.text(log) or process.poll() is not None, 20, 'the gateway to be ready')
        self.assertIsNone(process.poll(), self.text(log))
        inbox = p.consumer('q', bind='k')
        at = now_ms()
        p.client().publish('k', b'held', {'x-delay': 300})
        p.client().publish('k', b'handed', {'x-delay': 2500})
        self.assert_on_time(inbox.wait_body(b'held'), at, 300)
        self.assert_on_time(inbox.wait_body(b'handed'), at, 2500)
        address = re.search(r'http://([0-9.]+):([0-9]+)', self.text(log)).groups()
        web = Web((address[0], int(address[1])))
        self.addCleanup(web.close)
        self.assertEqual(web.post('/v1/messages', {'routing_key': 'k', 'delay': '1h', 'body': ''}).status, 201)
        wait_until(lambda: p.counts() == {'delivered': 2, 'scheduled': 1}, 10, 'all to be settled')
        process.terminate()
        self.assertEqual(process.wait(20), 0, self.text(log))
        self.assertNotRegex(self.text(log), r'\b(warn|error) ')

    def test_the_confinement_is_one(self):
        self.need_namespaces()
        p = self.place(migrate=False)
        attempts = {'touch /var/tmp/x': 'Read-only', 'ls /proc/self': 'No such file', 'chroot / true': 'not permitted',
                    'chown 0 /tmp': 'not permitted', 'unshare --user true': 'not permitted'}
        for command, text in attempts.items():
            with self.subTest(command):
                process, log = self.confined(p, '/bin/sh', '-c', command)
                self.assertNotEqual(process.wait(20), 0)
                self.assertIn(text, self.text(log))
