"""The daemon and the load generator, as running processes."""
import glob
import json
import os
import re
import signal
import subprocess
import threading

from .settings import BIN_DIR, DIE_WITH_PARENT, SANITIZER_WORDS, slowness
from .waiting import wait_until


class Gateway:
    """One running postdated."""

    def __init__(self, place, env, release=''):
        self.lines = []
        self.changed = threading.Condition()
        self.process = subprocess.Popen([*DIE_WITH_PARENT, os.path.join(BIN_DIR, release, 'postdated')],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        env=place.env(**env))
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            with self.changed:
                self.lines.append(line.decode(errors='replace').rstrip('\n'))
                self.changed.notify_all()
        with self.changed:
            self.changed.notify_all()
        self.process.stderr.close()

    def log(self):
        with self.changed:
            return '\n'.join(self.lines)

    def lines_with(self, pattern):
        return [x for x in self.log().splitlines() if re.search(pattern, x, re.I)]

    def wait_log(self, pattern, deadline_s=15.0):
        def found():
            if not self.lines_with(pattern) and self.process.poll() is not None and not self.reader.is_alive():
                raise AssertionError(f'postdated ended with {self.process.returncode} before logging "{pattern}"')
            return self.lines_with(pattern)
        return wait_until(found, deadline_s, f'a log line with "{pattern}"')

    def http(self):
        """(host, port) of its HTTP interface."""
        line = self.wait_log(r'listening on http://')[0]
        host, port = re.search(r'http://([0-9.]+):([0-9]+)', line).groups()
        return host, int(port)

    def wait_ready(self, deadline_s=60.0):
        """A busy machine takes its time to declare a ladder's queues."""
        self.wait_log(r'\bready\b', deadline_s)
        return self

    def term(self, deadline_s=15.0):
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait(deadline_s)

    def wait(self, deadline_s=60.0):
        try:
            self.process.wait(deadline_s * slowness())
        except subprocess.TimeoutExpired:
            raise AssertionError(f'postdated did not end within {deadline_s * slowness():.0f} s') from None
        self.reader.join(5)
        return self.process.returncode

    def pause(self):
        """SIGSTOP; it has stopped when this returns, which the signal alone does not say."""
        self.process.send_signal(signal.SIGSTOP)

        def stopped():
            for name in glob.glob(f'/proc/{self.process.pid}/task/*/stat'):
                with open(name, encoding='utf-8') as f:
                    if f.read().rsplit(')', 1)[1].split()[0] != 'T':
                        return False
            return True
        wait_until(stopped, 10, 'every thread to be stopped')

    def cpu_s(self):
        """What all its threads have used."""
        with open(f'/proc/{self.process.pid}/stat', encoding='utf-8') as f:
            return sum(int(ticks) for ticks in f.read().rsplit(')', 1)[1].split()[11:13]) / os.sysconf('SC_CLK_TCK')

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill9(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.reader.join(5)

    def condition(self):
        code = self.process.poll()
        return 'which runs' if code is None else f'which ended with {code}'

    def sanitizer_reports(self):
        text = self.log()
        return [f'sanitizer report of a gateway:\n{text[:6000]}' for w in SANITIZER_WORDS if w in text][:1]


class Load:
    def __init__(self, place, args):
        self.args = args
        self.errors = []
        self.json = None
        command = [os.path.join(BIN_DIR, 'tests', 'tools', 'load'), args[0], '--url', place.amqp]
        self.process = subprocess.Popen(DIE_WITH_PARENT + command + [str(a) for a in args[1:]],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)
        place.children.append(self.process)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.errors.append(line.strip())

    def wait_consuming(self, deadline_s=10.0):
        wait_until(lambda: any(x.startswith('consuming') for x in self.errors) or self.process.poll() is not None,
                   deadline_s, 'the consumer to start')
        if self.process.poll() is not None:
            raise AssertionError(f'load {self.args}: exit {self.process.returncode}: {self.errors}')
        return self

    def result(self, deadline_s=120.0):
        if self.json is None:
            self.process.wait(deadline_s * slowness())
            self.reader.join(5)
            out = self.process.stdout.read().strip()
            if not out:
                raise AssertionError(f'load {self.args}: exit {self.process.returncode}: {self.errors}')
            self.json = json.loads(out.splitlines()[-1])
        return self.json
