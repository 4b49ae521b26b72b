"""The process of a witness, which a fault may kill."""
import os
import subprocess
import threading

from servers import DIE, LAUNCHER


class Witness:
    def __init__(self, words, log_path, env=None):
        self.words, self.log_path, self.env = words, log_path, dict(os.environ, **(env or {}))
        self.lock = threading.Lock()
        self.start()

    def start(self):
        with open(self.log_path, 'ab') as log:
            self.process = LAUNCHER.start([*DIE, *self.words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, env=self.env)

    def crash(self, away):
        """kill -9; away() is waited for, then it starts again. What it had written and not answered is delivered again."""
        with self.lock:
            self.process.kill()
            self.process.wait()
            away()
            self.start()

    def ended(self):
        """By itself."""
        if not self.lock.acquire(blocking=False):
            return False
        try:
            return self.process.poll() is not None
        finally:
            self.lock.release()
