"""What this run is: which programs, with sanitizers or without, how patient."""
import glob
import os

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), '..', '..', '..'))
BIN_DIR = os.path.abspath(os.environ.get('POSTDATE_BIN_DIR', os.path.join(ROOT, 'build')))
SANITIZER_WORDS = ('ERROR: AddressSanitizer', 'runtime error:', 'LeakSanitizer', 'ThreadSanitizer')
SAN = os.environ.get('POSTDATE_TEST_SET') == 'san'
REST = os.environ.get('POSTDATE_TEST_SET') == 'rest'
FULL = bool(os.environ.get('POSTDATE_TEST_FULL'))  # the thousands that tests lose and find again are more

# The psql in PATH is a Perl program on Debian that finds the real one, and takes five times as long.
os.environ['PATH'] = ':'.join(sorted(glob.glob('/usr/lib/postgresql/*/bin'), key=lambda x: float(x.split('/')[-2]))[-1:]
                              + [os.environ['PATH']])

# No program outlives its test, whatever happens to the test.
DIE_WITH_PARENT = ['setpriv', '--pdeathsig', 'KILL']


SANITIZERS_COST = 3 if SAN else 1  # so many times as much time; of counts that follow from it, too


def slowness():
    """So many times as much time as on a quiet machine has what must not last for ever: deadlines, and bounds of how late a message
    may be. For sanitizers, and for a load of more than a dozen for each processor, now or in the last minutes: this run itself makes
    half of that."""
    return SANITIZERS_COST * min(4, max(1, round(max(os.getloadavg()[:2]) / (8 * os.cpu_count()))))


def check_sanitizers(what, text):
    for word in SANITIZER_WORDS:
        if word in text:
            raise AssertionError(f'{what}: sanitizer report:\n{text[:6000]}')
