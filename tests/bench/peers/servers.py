"""The servers that the peers need, private to a run: Postgres, Redis, beanstalkd. And the libraries, from npm."""
import glob
import os
import re
import shutil
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'live'))
import harness  # noqa: E402

INSTALLED = os.path.join(harness.ROOT, 'build', 'bench', 'peers')
INSTALL_LIMIT_S = 120
START_LIMIT_S = 20


class Missing(Exception):
    """A peer cannot be measured here, and why."""


def say(text):
    print(text, file=sys.stderr, flush=True)


def version_of(program, option, pattern):
    done = subprocess.run([find_program(program) or 'false', option], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    found = re.search(pattern, done.stdout.decode())
    return found[1] if found else 'of unknown version'


def find_program(program):
    return shutil.which(program, path=os.environ.get('PATH', '') + ':/usr/sbin:/usr/bin')


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Server:
    """A child that listens on 127.0.0.1; it ends with stop(), and with this program, however that ends."""

    def __init__(self, program, package, arguments):
        path = find_program(program)
        if not path:
            raise Missing(f'{program} is not installed: apt-get install {package}')
        self.port = free_port()
        # In a session of its own: Ctrl-C is for this program, which still has to ask its clients to stop.
        self.process = subprocess.Popen(['setpriv', '--pdeathsig', 'KILL', '--', path, *arguments(self.port)],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True)
        try:
            self.wait(program)
        except BaseException:
            self.stop()
            raise

    def wait(self, program):
        until = time.monotonic() + START_LIMIT_S
        while time.monotonic() < until and self.process.poll() is None:
            try:
                socket.create_connection(('127.0.0.1', self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise Missing(f'{program} did not start (exit {self.process.poll()})')

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Postgres:
    """The stack's Postgres: the one in $STACK_DIR, which is left as it was found, or a private one, of which nothing is left."""

    def __init__(self):
        self.own_place = 'STACK_DIR' not in os.environ
        self.directory = os.environ.get('STACK_DIR') or os.path.join(harness.ROOT, 'build', 'bench', 'peers-stack')
        self.environment = dict(os.environ, STACK_DIR=self.directory)
        self.ran_before = 'Postgres runs' in self.stack('status', check=False)
        self.databases = []

    def start(self):
        self.stack('start-postgres')

    def stack(self, command, check=True):
        done = subprocess.run([os.path.join(harness.ROOT, 'tools', 'stack.sh'), command], env=self.environment, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        if check and done.returncode != 0:
            raise Missing(f'the private Postgres: {done.stdout.decode().strip()[-300:]}')
        return done.stdout.decode()

    def url(self, database='postdate'):
        with open(os.path.join(self.directory, 'env'), encoding='utf-8') as f:
            lines = dict(line[len('export '):].strip().split('=', 1) for line in f)
        return lines['POSTDATE_POSTGRES_URL'].strip("'").replace('postgresql:///postdate?', f'postgresql:///{database}?')

    def make_database(self, peer):
        name = f'peer_{peer.replace("-", "_")}_{os.getpid()}'
        harness.run_psql(self.url(), f'create database {name}')
        self.databases.append(name)
        return self.url(name)

    def version(self):
        return harness.run_psql(self.url(), "select split_part(current_setting('server_version'), ' ', 1)")[0][0]

    def stop(self):
        if self.own_place:
            self.stack('clean', check=False)
            return
        for name in self.databases:
            harness.run_psql(self.url(), f'drop database if exists {name} with (force)', check=False)
        if not self.ran_before:
            self.stack('stop-postgres', check=False)


def installed_for():
    """What the installed libraries were installed from."""
    texts = []
    for name in ('package.json', 'package-lock.json'):
        with open(os.path.join(HERE, name), encoding='utf-8') as f:
            texts.append(f.read())
    return '\n'.join(texts)


def install_libraries():
    """The folder with the peers' programs and node_modules, and the Node.js to run them with."""
    mark, wanted = os.path.join(INSTALLED, '.installed'), installed_for()
    os.makedirs(INSTALLED, exist_ok=True)
    if not (os.path.exists(mark) and open(mark, encoding='utf-8').read() == wanted):
        if not shutil.which('npm'):
            raise Missing('npm is not installed')
        say('  installing the libraries from npm, once')
        for name in ('package.json', 'package-lock.json'):
            shutil.copy(os.path.join(HERE, name), INSTALLED)
        try:
            # Not `npm ci`: it insists on optional parts for every system there is, and a registry's mirror may lack some.
            done = subprocess.run(['npm', 'install', '--ignore-scripts', '--no-audit', '--no-fund'], cwd=INSTALLED, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=INSTALL_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            raise Missing(f'npm install took longer than {INSTALL_LIMIT_S} s') from None
        if done.returncode != 0:
            errors = [line for line in done.stdout.decode(errors='replace').splitlines() if line.startswith('npm error ') and 'code' not in line]
            raise Missing(f'npm install did not work here (no network?): {" ".join(errors[:2])[:200]}')
        with open(mark, 'w', encoding='utf-8') as f:
            f.write(wanted)
    # Modules are looked for from where the importing file is.
    for path in glob.glob(os.path.join(HERE, '*.mjs')):
        shutil.copy(path, INSTALLED)
    node = glob.glob(os.path.join(INSTALLED, 'node_modules', 'node-linux-*', 'bin', 'node'))
    return INSTALLED, node[0] if node else shutil.which('node')


def build_go(name, library):
    """(program, version of the library): peers/NAME, built with the versions of its go.mod."""
    if not shutil.which('go'):
        raise Missing('there is no Go')
    folder, program = os.path.join(HERE, name), os.path.join(INSTALLED, name)
    os.makedirs(INSTALLED, exist_ok=True)
    try:
        done = subprocess.run(['go', 'build', '-o', program, '.'], cwd=folder, check=False, timeout=2 * INSTALL_LIMIT_S,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired:
        raise Missing(f'go build took longer than {2 * INSTALL_LIMIT_S} s') from None
    if done.returncode != 0:
        raise Missing(f'go build: {done.stdout.decode(errors="replace").strip()[-300:]}')
    with open(os.path.join(folder, 'go.mod'), encoding='utf-8') as f:
        return program, re.search(rf'{re.escape(library)} v(\S+)', f.read())[1]
