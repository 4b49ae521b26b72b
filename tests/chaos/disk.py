"""A disk whose cache a power cut empties, for the servers of a run: disk.c, a loop device, ext4 as it is by default.

As a real disk it may have written any part of what was not flushed, in any order, and may have torn a page. So what
ext4, PostgreSQL and RabbitMQ do about that is tried as they are.
"""
import os
import re
import subprocess
import threading

from servers import DIE, LAUNCHER, wait_until

MIB = 2048
NEEDED = ('/dev/fuse', '/dev/loop-control')


def why_not():
    """Why this machine or user cannot have one; None if it can."""
    if os.geteuid() != 0:
        return 'only root can mount a disk'
    missing = [path for path in NEEDED if not os.access(path, os.R_OK | os.W_OK)]
    return f'{" and ".join(missing)} not there' if missing else None


def call(*words):
    done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(f'{" ".join(words)}: {done.stdout.strip()}')
    return done.stdout.strip()


class Disk:
    def __init__(self, build, folder):
        """folder: where it is to be seen; one for the device is made beside it."""
        self.folder, self.fuse, self.loop = folder, folder + '.device', None
        self.lock = threading.Lock()
        os.mkdir(folder, 0o755)
        os.mkdir(self.fuse, 0o700)
        self.process = LAUNCHER.start([*DIE, os.path.join(build, 'tests', 'chaos', 'disk'), self.fuse, str(MIB)],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        if self.process.stdout.readline() != 'mounted\n':
            raise RuntimeError('disk: it did not mount, see above')
        call('mkfs.ext4', '-q', '-E', 'nodiscard,lazy_itable_init=0,lazy_journal_init=0', os.path.join(self.fuse, 'disk'))
        self.attach()
        os.chmod(folder, 0o755)

    def order(self, text):
        with self.lock:
            self.process.stdin.write(text + '\n')
            self.process.stdin.flush()
            return self.process.stdout.readline().strip()

    def attach(self):
        self.loop = call('losetup', '--show', '-f', os.path.join(self.fuse, 'disk'))
        call('mount', '-t', 'ext4', self.loop, self.folder)

    def detach(self):
        def unmounted():
            try:
                call('umount', self.folder)
                return True
            except RuntimeError:
                return False
        wait_until(unmounted, 60, f'{self.folder}: all who use it to have ended', 0.1)
        call('losetup', '-d', self.loop)
        bound = f'/sys/block/{os.path.basename(self.loop)}/loop/backing_file'
        wait_until(lambda: not os.path.exists(bound), 60, f'{self.loop} to be free', 0.02)
        self.loop = None

    def sync(self):
        """What is there now is there after each cut."""
        call('sync', '-f', self.folder)

    def cut(self, rng):
        """The power fails: nobody is told any more that anything is written. (kept, cached) in pieces of 512 bytes."""
        percent, piece = rng.choice([0, 50, 90, 100, rng.randrange(101)]), rng.choice([512, 4096])
        kept, cached = re.fullmatch(r'cut (\d+) of (\d+) sectors', self.order(f'cut {rng.getrandbits(48)} {percent} {piece}')).groups()
        return int(kept), int(cached)

    def restore(self):
        """After cut(), when whoever wrote has been killed: it is there again, as it was left."""
        self.order('release')
        self.detach()
        self.order('mend')
        self.attach()

    def close(self):
        try:
            self.order('mend')
            if self.loop:
                self.detach()
            call('umount', self.fuse)
        finally:
            self.process.stdin.close()
            self.process.wait(30)
            self.process.stdout.close()
