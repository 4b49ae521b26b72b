"""run_tests.py PLAIN_DIR SAN_DIR: the tests. TEST says which:

  short   units, and the live tests that tests/short names, with the plain build; ONLY: whatever has that name
  all     every test. Units run with the plain build and with the sanitizer build; a live test with the sanitizer build where
          it can, else with the plain one. With ONLY or POSTDATE_TEST_FULL=1 it is with both
  live    all live tests with the plain build, and nothing else

Unit tests run as they are; live tests run against one private Postgres and RabbitMQ (in /dev/shm or build/teststack),
which are started here and removed at the end. The last line is `N passed, N failed, N skipped`. Exit: 0 when none failed and some passed or were skipped.
ONLY=words in the environment runs only what has one of the words in its name.
STACK_PLUGINS_DIR=folder runs them with the real delayed-message plugin that is in there, instead of with its double; a RabbitMQ
that can have neither runs without, and the tests that need it are skipped. POSTDATE_TEST_LIMIT_S: how long the live tests of a build may take.
"""
import ctypes
import glob
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SHM, SHM_ROOM = '/dev/shm', 4 << 30
PLUGIN_DOUBLE = os.path.join(TOP, 'build', 'plugin-double')
UNIT_LIMIT_S = 120
LIVE_LIMIT_S = int(os.environ.get('POSTDATE_TEST_LIMIT_S', '3600'))
PR_SET_CHILD_SUBREAPER = 36
OUTPUT_MAX = 20_000  # characters of a program that failed, the last ones
TEST = os.environ.get('TEST', 'all')
ONLY = os.environ.get('ONLY', '').split()
NO_SUCH_TEST = 64  # run.py's exit code

sys.path.insert(0, os.path.join(TOP, 'tests'))
sys.dont_write_bytecode = True
from runner_report import Report, counts, say  # noqa: E402


def stack_dir():
    """In memory, where there is room: the servers flush for every commit and confirm, and what is killed with -9 loses
    nothing either way. POSTDATE_TEST_DISK=1: on the disk."""
    try:
        room = os.statvfs(SHM)
        if room.f_bavail * room.f_frsize >= SHM_ROOM and not os.environ.get('POSTDATE_TEST_DISK'):
            return f'{SHM}/postdate-{os.getuid()}-{hashlib.sha1(TOP.encode()).hexdigest()[:8]}'
    except OSError:
        pass
    return os.path.join(TOP, 'build', 'teststack')


STACK_DIR = stack_dir()


def wanted(name):
    return not ONLY or any(word in name for word in ONLY)


# --- unit tests: cmocka programs, asked for TAP ------------------------------------------------------------------
def run_program(program, *arguments):
    """(passed, failed, skipped, output)"""
    env = dict(os.environ, CMOCKA_MESSAGE_OUTPUT='tap')
    env.setdefault('UBSAN_OPTIONS', 'print_stacktrace=1')
    try:
        done = subprocess.run([program, *arguments], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=UNIT_LIMIT_S, check=False)
        output, code = done.stdout.decode(errors='replace'), done.returncode
    except FileNotFoundError:
        return 0, 1, 0, f'{program} was not built'
    except subprocess.TimeoutExpired as e:
        output, code = (e.stdout or b'').decode(errors='replace') + f'\nstill running after {UNIT_LIMIT_S} s', 1
    lines = output.splitlines()
    failed = sum(line.startswith('not ok') for line in lines)
    skipped = sum(line.startswith('ok') and '# skip' in line.lower() for line in lines)
    passed = sum(line.startswith('ok') for line in lines) - skipped
    if code != 0 and failed == 0:  # a crash, or a sanitizer's report
        failed = 1
    if passed + failed + skipped == 0:
        failed, output = 1, output + '\nthe program ran no test'
    return passed, failed, skipped, output


def run_programs(label, build, sources, arguments=lambda name: ()):
    """The program that was built from each of these files."""
    report = Report(label)
    for source in sorted(glob.glob(os.path.join(TOP, sources))):
        name = os.path.splitext(os.path.basename(source))[0]
        if wanted(name):
            began = time.monotonic()
            passed, failed, skipped, output = run_program(os.path.join(build, 'tests', name), *arguments(name))
            report.tell(name, time.monotonic() - began, passed, failed, skipped, output[-OUTPUT_MAX:])
    report.end()
    return report


def run_units(label, build):
    return run_programs(f'unit, {label}', build, 'tests/unit/test_*.c')


def replay_corpora(label, build):
    """Every input of tests/fuzz/corpus to its harness: what fuzzing once found stays found."""
    return run_programs(f'fuzz corpora, {label}', build, 'tests/fuzz/fuzz_*.c',
                        lambda name: (os.path.join(TOP, 'tests', 'fuzz', 'corpus', name.removeprefix('fuzz_')),))


# --- live tests -----------------------------------------------------------------------------------------------
def run_live(build, test_set, totals):
    """run.py reports each test and their sum itself, in the same form."""
    with tempfile.TemporaryDirectory(prefix='postdate-test-') as directory:
        summary = os.path.join(directory, 'summary.json')
        env = dict(os.environ, POSTDATE_BIN_DIR=os.path.abspath(build), POSTDATE_TEST_SET=test_set,
                   POSTDATE_TEST_SUMMARY=summary, STACK_DIR=STACK_DIR)
        words = ONLY or ['--short'] * (TEST == 'short')
        command = [sys.executable, os.path.join(TOP, 'tests', 'live', 'run.py'), *words]
        with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL) as process:
            try:
                process.wait(LIVE_LIMIT_S)
            except subprocess.TimeoutExpired:
                totals.fault(f'the live tests took longer than {LIVE_LIMIT_S} s')
            finally:
                end(process)
        try:
            with open(summary, encoding='utf-8') as f:
                found = json.load(f)
            totals.add(found['passed'], found['failed'], found['skipped'])
        except (OSError, ValueError, KeyError):
            if not ONLY or process.returncode != NO_SUCH_TEST:
                totals.fault(f'the live tests ended with exit code {process.returncode} and no summary')


def end(process):
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


# --- servers and processes -----------------------------------------------------------------------------------------
def stack(command, directory=STACK_DIR, quiet=False):
    return subprocess.run([os.path.join(TOP, 'tools', 'stack.sh'), command], env=dict(os.environ, STACK_DIR=directory),
                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL if quiet else None, check=False).returncode


def provide_plugin():
    """All servers get the delayed-message plugin: the real one if STACK_PLUGINS_DIR names its folder, else its double, which says
    itself where RabbitMQ cannot have it (exit 3)."""
    if not os.environ.get('STACK_PLUGINS_DIR'):
        done = subprocess.run([os.path.join(TOP, 'tools', 'plugin_double.sh'), PLUGIN_DOUBLE], stdin=subprocess.DEVNULL, check=False)
        if done.returncode == 3:
            os.environ['STACK_PLUGINS_DIR'] = ''
            return
        done.check_returncode()
        os.environ['STACK_PLUGINS_DIR'] = PLUGIN_DOUBLE
    os.environ['STACK_PLUGINS_DIR'] = os.path.abspath(os.environ['STACK_PLUGINS_DIR'])


def clean_stacks():
    for directory in glob.glob(STACK_DIR + '*'):
        stack('clean', directory, quiet=True)


def command_line(pid, name):
    try:
        with open(f'/proc/{pid}/cmdline', encoding='utf-8', errors='replace') as f:
            return f.read().replace('\0', ' ').strip()[:200] or name
    except OSError:
        return name


def children():
    """Living processes whose parent is this one: as a subreaper it inherits what others leave behind."""
    found = []
    for path in glob.glob('/proc/[0-9]*/stat'):
        try:
            with open(path, encoding='utf-8', errors='replace') as f:
                head, tail = f.read().rsplit(')', 1)
        except OSError:
            continue
        state, parent = tail.split()[:2]
        if int(parent) == os.getpid() and state not in 'ZX':
            found.append((int(head.split()[0]), head.split('(', 1)[1]))
    return found


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def end_leftovers():
    """Command lines of processes that tests left running; they are ended."""
    until = time.monotonic() + 3
    while children() and time.monotonic() < until:
        reap()
        time.sleep(0.1)
    names = []
    while left := children():
        for pid, name in left:
            names.append(f'{command_line(pid, name)} ({pid})')
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
        reap()
    reap()
    return names


def run_all(plain, san, totals):
    clean_stacks()
    reports = [run_units('plain build', plain)] if TEST != 'live' else []
    if TEST == 'all':
        reports += [run_units('sanitizer build', san), replay_corpora('sanitizer build', san)]
    for report in reports:
        totals.add(report.passed, report.failed, report.skipped)
    say('Starting a private Postgres and a private RabbitMQ ...')
    try:
        provide_plugin()
    except subprocess.CalledProcessError:
        totals.fault('the double of the delayed-message plugin could not be built')
        return
    whole = TEST != 'all' or ONLY or os.environ.get('POSTDATE_TEST_FULL')
    builds = [(plain, 'all' if whole else 'rest')] + [(san, 'san')] * (TEST == 'all')
    for build, test_set in builds:
        # Fresh ones for each: RabbitMQ makes vhosts three times as slowly where there are hundreds.
        if stack('start') != 0:
            totals.fault('the servers did not start')
            return
        run_live(build, test_set, totals)
        stack('clean', quiet=True)


def main(plain, san):
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    signal.signal(signal.SIGHUP, signal.getsignal(signal.SIGTERM))
    os.chdir(TOP)
    totals, interrupted = Report('all'), False
    try:
        run_all(plain, san, totals)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        clean_stacks()
        left = end_leftovers()
    if left and not interrupted:
        totals.fault('processes were left behind: ' + ', '.join(left))
    if interrupted:
        say('interrupted')
    say(counts(totals.passed, totals.failed, totals.skipped))
    return 130 if interrupted else 0 if totals.failed == 0 and totals.passed + totals.skipped > 0 else 1


if __name__ == '__main__':
    if len(sys.argv) != 3:
        sys.exit('usage: run_tests.py PLAIN_BUILD_DIR SANITIZER_BUILD_DIR')
    sys.exit(main(sys.argv[1], sys.argv[2]))
