"""What tests move the clocks of programs with: the library of clocks.c and the file that it reads."""
import mmap
import os
import shutil
import struct
import tempfile

LIBRARY = 'build/tests/clocks.so'


class MovedClocks:
    """Clocks of the programs that were started with `env`. Offsets in seconds, at first 0; setting one takes effect at
    once."""

    def __init__(self, root, within='/var/tmp'):
        """within: a folder that whoever runs those programs can enter (Postgres is an ordinary user)."""
        self.folder = tempfile.mkdtemp(prefix='postdate-clocks-', dir=within)
        os.chmod(self.folder, 0o755)
        library = shutil.copy(os.path.join(root, LIBRARY), self.folder)
        path = os.path.join(self.folder, 'offsets')
        with open(path, 'wb') as f:
            f.write(bytes(32))
        os.chmod(path, 0o644)
        with open(path, 'r+b') as f:
            self.map = mmap.mmap(f.fileno(), 32)
        self.env = {'LD_PRELOAD': library, 'CLOCKS_FILE': path}
        self.realtime_s = self.monotonic_s = 0.0

    def _write(self, first, seconds):
        self.map[8 * first:8 * first + 8] = struct.pack('=q', round(seconds * 1e9))

    def set_time(self, ahead_s):
        """CLOCK_REALTIME is that far ahead of the system's."""
        self.realtime_s = ahead_s
        self._write(0, ahead_s)

    def stood_still(self, seconds):
        """For so long the processes were stopped: their machine's clocks were, too. They still are stopped now."""
        self.monotonic_s -= seconds
        self._write(1, self.monotonic_s)
        self._write(2, self.monotonic_s)

    def slow_syncs(self, seconds):
        """Each flush to the disk takes that much longer."""
        self._write(3, seconds)

    def close(self):
        self.map.close()
        shutil.rmtree(self.folder, ignore_errors=True)
