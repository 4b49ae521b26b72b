"""One supervised postdated of a chaos run: restarted when it ends, as systemd would, and watched for its size."""
import os
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request

from servers import DIE, ROOT, MovedClocks

RESTART_AFTER_S = 0.2


def free_port():
    with socket.create_server(('127.0.0.1', 0)) as s:
        return s.getsockname()[1]


class Gateway:
    """`settings` is its environment; `shim` the library that knows crash points, or None; `work` a folder that goes;
    `clocks` those of its machine, None: its own."""

    def __init__(self, name, settings, log_path, build, shim, work, clocks=None):
        self.name, self.settings, self.log_path, self.build, self.shim = name, settings, log_path, build, shim
        self.http = f'127.0.0.1:{free_port()}'
        self.wanted, self.process, self.armed = False, None, None
        self.clocks = clocks or MovedClocks(ROOT, work)
        self.own_clocks = clocks is None
        self.exits, self.most_kib, self.most_files, self.starts = [], 0, 0, 0
        self.changed = threading.Condition()
        self.pause_ends_at = 0
        threading.Thread(target=self._supervise, daemon=True).start()

    # --- asked for by faults
    def start(self):
        with self.changed:
            self.wanted = True
            self.changed.notify_all()

    def crash(self, number=signal.SIGKILL):
        """Sends a signal that should end it; the supervisor starts it again."""
        with self.changed:
            if self.process is not None and self.process.poll() is None:
                self.process.send_signal(number)

    def halt(self, number=signal.SIGKILL):
        """It ends, and stays away until start()."""
        with self.changed:
            self.wanted = False
        self.crash(number)

    def stand_still(self, pause):
        """As its machine would: stopped while pause() lasts, and no clock of its machine counts that time."""
        with self.changed:
            process = self.process
            if process is None or process.poll() is not None:
                return
            process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        try:
            pause()
        finally:
            with self.changed:
                if self.process is process and process.poll() is None:  # not killed and started again meanwhile
                    self.clocks.stood_still(time.monotonic() - began)
                    process.send_signal(signal.SIGCONT)

    def arm(self, point, count):
        """The next start dies by itself at that point of the pipeline."""
        with self.changed:
            self.armed = f'{point}:{count}'

    def running(self):
        with self.changed:
            return self.process is not None and self.process.poll() is None

    def pid(self):
        with self.changed:
            return self.process.pid if self.process is not None and self.process.poll() is None else None

    def end(self, deadline_s=40):
        """SIGTERM for good; its exit code."""
        with self.changed:
            self.wanted = False
            process = self.process
            self.changed.notify_all()
        if process is None:
            self._close_clocks()
            return None
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        try:
            return process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return 'had to be killed'
        finally:
            self._close_clocks()

    def _close_clocks(self):
        if self.own_clocks:
            self.clocks.close()

    def relayed(self):
        """How many messages it has taken from the exit queue since it started; 0 if it does not say."""
        try:
            with urllib.request.urlopen(f'http://{self.http}/metrics', timeout=0.5) as answer:
                found = re.search(rb'^postdate_messages_relayed_total (\d+)', answer.read(), re.M)
        except OSError:
            return 0
        return int(found[1]) if found else 0

    # --- inside
    def _launch(self):
        env = {k: v for k, v in os.environ.items() if not k.startswith('POSTDATE_')}
        env.update(self.settings, POSTDATE_HTTP_LISTEN=self.http, POSTDATE_CONFIG='/dev/null')
        env.update(self.clocks.env)
        if self.armed and self.shim:
            env['LD_PRELOAD'] += ':' + self.shim
            env['POSTDATE_CRASH'] = self.armed
        with open(self.log_path, 'ab') as log:
            self.process = subprocess.Popen([*DIE, os.path.join(self.build, 'postdated')], env=env, cwd=ROOT,
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.starts += 1

    def _supervise(self):
        while True:
            with self.changed:
                while not self.wanted:
                    self.changed.wait()
                self._launch()
                self.armed = None
                process = self.process
            code = process.wait()
            with self.changed:
                self.exits.append((time.time(), code))
            time.sleep(RESTART_AFTER_S)

    def measure(self):
        """Notes its greatest size; cheap, called now and then."""
        pid = self.pid()
        if pid is None:
            return
        try:
            with open(f'/proc/{pid}/status', encoding='utf-8') as f:
                kib = [int(x.split()[1]) for x in f if x.startswith('VmRSS')]
            files = len(os.listdir(f'/proc/{pid}/fd'))
        except OSError:
            return
        self.most_kib = max([self.most_kib, *kib])
        self.most_files = max(self.most_files, files)
