#!/usr/bin/python3
"""Finds and runs the live tests against the private servers whose environment is in $STACK_DIR/env.

    run.py [WORD...]      only tests whose full name contains one of the words. Exit: 0 none failed, 1 some did,
                          64 no test has that name, 69 no servers, 130 interrupted
    run.py --short        those that tests/short names

POSTDATE_BIN_DIR        the programs (default: build)
POSTDATE_TEST_SET       san: all but what is marked not_san; rest: what that leaves out, and what is marked with_both
POSTDATE_TEST_SUMMARY   a file for the counts, as JSON
POSTDATE_TEST_WORKERS   how many tests run at the same time at most (default: six for each processor; pace.py)
POSTDATE_TEST_FULL=1    20,000 messages where gateways and servers die, instead of 3,000 or 4,000; more with the plugin that also
                        runs with TTL queues (words run those, too)

Tests run in worker processes, one class (SharedTest) or one test at a time; what they start dies with them.
"""
import glob
import importlib.util
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.append(os.path.dirname(HERE))
sys.dont_write_bytecode = True
import harness  # noqa: E402
import pace  # noqa: E402
from runner_report import Report, say  # noqa: E402

TEST_LIMIT_S = 120


def load_modules():
    modules = []
    for path in sorted(glob.glob(os.path.join(HERE, 'test_*.py'))):
        name = os.path.splitext(os.path.basename(path))[0]
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        modules.append(module)
    return modules


class Job:
    """What must run in one process: a test, or a class whose tests share something."""

    def __init__(self, case, names, full):
        one = getattr(case, names[0]) if len(names) == 1 else case
        self.names = full
        self.weight = getattr(one, 'weight', case.weight)
        self.vhosts_wanted = getattr(one, 'vhosts', case.vhosts)
        self.vhosts = []
        self.vhosts_before = 0  # how many have been made when the last of them is

    def add(self, full):
        """Another class of the same group."""
        self.names = self.names + full


def find_jobs(words):
    """Heavy ones come first. `together`: True keeps the tests of a class in one process; a name, those of all the classes
    that have it."""
    jobs, groups = [], {}
    for module in load_modules():
        for case in vars(module).values():
            if not isinstance(case, type) or not issubclass(case, harness.LiveTest):
                continue
            if case.__module__ != module.__name__:
                continue
            names = [n for n in unittest.defaultTestLoader.getTestCaseNames(case) if wanted(case, n, words)]
            full = [f'{module.__name__}.{case.__name__}.{n}' for n in names]
            if not full:
                continue
            group = getattr(case, 'together', None)
            if isinstance(group, str) and group in groups:
                groups[group].add(full)
            elif isinstance(group, str):
                groups[group] = Job(case, names, full)
                jobs.append(groups[group])
            elif issubclass(case, harness.SharedTest) or getattr(case, 'together', False):
                jobs.append(Job(case, names, full))
            else:
                jobs.extend(Job(case, [n], [f]) for n, f in zip(names, full))
    return sorted(jobs, key=lambda j: -j.weight)


class Vhosts:
    """All are made by one call, because each takes rabbitmqctl a second or two; the tests begin meanwhile."""
    LIMIT_S = 600  # for all of them, on a machine that has much else to do

    def __init__(self, stack, jobs):
        self.stack, self.made, self.error = stack, 0, None
        run = f'{int(time.time()) % 0xfffff:x}-{os.getpid()}'  # two runs may begin in the same second
        names = []
        for number, job in enumerate(jobs):
            job.vhosts = [f'v{run}-{number}-{i}' for i in range(job.vhosts_wanted)]
            names += job.vhosts
            job.vhosts_before = len(names)
        self.counter = stack.vhost_counter()
        threading.Thread(target=self.make, args=(names,), daemon=True).start()

    def make(self, names):
        try:
            if names:
                self.stack.make_vhosts(names, self.counter, self.LIMIT_S)
            self.made = len(names)
        except (AssertionError, OSError, subprocess.TimeoutExpired) as e:
            self.error = e

    def wait_for(self, job):
        """Until those of job are made."""
        while job.vhosts and not self.error and self.made < job.vhosts_before:
            self.made = max(self.made, harness.size_of(self.counter))
            time.sleep(0.05)
        if self.error and job.vhosts:
            raise SystemExit(f'no vhosts for the tests: {self.error}')


def short_words():
    with open(os.path.join(HERE, '..', 'short'), encoding='utf-8') as f:
        return [word for line in f if not line.startswith('#') for word in line.split()]


SHORT = []  # filled where it is asked for


def has_mark(case, name, mark):
    return getattr(case, mark, False) or getattr(getattr(case, name), mark, False)


def wanted(case, name, words):
    if harness.SAN and has_mark(case, name, 'not_san'):
        return False
    if harness.REST and not has_mark(case, name, 'not_san') and not has_mark(case, name, 'with_both'):
        return False
    more = getattr(case, 'only_full', False) or getattr(getattr(case, name), 'only_full', False)
    if not harness.FULL and not (words and words is not SHORT) and (more is True or more and name in more):
        return False
    full = f'{case.__module__}.{case.__name__}.{name}'
    return not words or any(w in full for w in words)


# --- a worker ----------------------------------------------------------------------------------------------------
class Result(unittest.TestResult):
    """Reports each test as one line of JSON to the main process."""

    def __init__(self, out):
        super().__init__()
        self.out = out
        self.began = time.monotonic()
        self.text = []
        self.skip = None

    def startTest(self, test):
        super().startTest(test)
        self.began, self.text, self.skip = time.monotonic(), [], None
        set_alarm(getattr(test, 'time_limit_s', TEST_LIMIT_S))

    def stopTest(self, test):
        signal.alarm(0)
        super().stopTest(test)
        self.send(test.id())

    def send(self, name):
        state = 'fail' if self.text else 'skip' if self.skip else 'ok'
        report = {'name': name, 'state': state, 'seconds': time.monotonic() - self.began,
                  'text': '\n'.join(self.text) or self.skip or ''}
        self.out.write(json.dumps(report) + '\n')
        self.out.flush()

    def failed(self, test, error):
        self.text.append(''.join(traceback.format_exception(*error)))
        if hasattr(test, 'logs') and len(self.text) == 1:
            self.text.append(test.logs())
        if not isinstance(test, unittest.TestCase):  # setUpClass, tearDownClass
            self.send(str(test))
            self.text = []

    addError = addFailure = failed

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.text.append(f'in {subtest}')
            self.failed(test, error)

    def addSkip(self, test, reason):
        self.skip = reason
        if not isinstance(test, unittest.TestCase):
            self.send(str(test))


def set_alarm(limit_s):
    """At the limit, or later where the machine is busier by then."""
    began = time.monotonic()

    def on_alarm(_signal, _frame):
        left_s = round(limit_s * harness.slowness() - (time.monotonic() - began))
        if left_s <= 0:
            raise AssertionError('the test took too long')
        signal.alarm(left_s)
    signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(limit_s * harness.slowness())


def worker():
    out = os.fdopen(os.dup(1), 'w')
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    load_modules()
    for line in sys.stdin:
        job = json.loads(line)
        harness.stack().vhosts = job['vhosts']
        suite = unittest.defaultTestLoader.loadTestsFromNames(job['names'])
        suite.run(Result(out))
        harness.end_of_job.close()
        out.write('{"done": true}\n')
        out.flush()


# --- the main process -------------------------------------------------------------------------------------------
class Worker:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), '--worker'], text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        self.left = []

    def give(self, job):
        self.left = list(job.names)
        self.process.stdin.write(json.dumps({'names': job.names, 'vhosts': job.vhosts}) + '\n')
        self.process.stdin.flush()

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)  # its gateways and clients too
        except ProcessLookupError:
            pass
        self.process.wait()


class Run:
    def __init__(self, jobs):
        self.jobs = jobs
        self.vhosts = None
        self.total = sum(len(job.names) for job in jobs)
        self.result = Report(f'live, {"sanitizer" if harness.SAN else "plain"} build')
        self.failures = []
        self.slowest = []

    def report(self, r):
        self.slowest.append((round(r['seconds'], 1), r['name']))
        self.result.tell(r['name'], r['seconds'], passed=r['state'] == 'ok', failed=r['state'] == 'fail',
                         skipped=r['state'] == 'skip', text=r['text'])
        if r['state'] == 'fail':
            self.failures.append(r['name'])

    def take_line(self, w, line):
        """False when the worker has nothing to do."""
        if not line:
            for name in w.left:
                self.report({'name': name, 'state': 'fail', 'seconds': 0, 'text': 'the test process died'})
            return False
        r = json.loads(line)
        if 'done' in r:
            return False
        if r['name'] in w.left:
            w.left.remove(r['name'])
        elif r['state'] != 'ok' and w.left:  # a class's set-up: counts for all of its tests
            for name in w.left[1:]:
                self.report(dict(r, name=name, seconds=0, text='see the first test of its class'))
            r['name'], w.left = w.left[0], []
        self.report(r)
        return True

    def drive(self, workers, most):
        """workers: those that it starts are added."""
        selector = selectors.DefaultSelector()
        rate = pace.Pace(most)
        idle, busy = [], 0
        while busy or self.jobs:
            while self.jobs and rate.allows(busy):
                if not idle:
                    workers.append(Worker())
                    idle.append(workers[-1])
                w = idle.pop()
                job = self.jobs.pop(0)
                self.vhosts.wait_for(job)
                w.give(job)
                selector.register(w.process.stdout, selectors.EVENT_READ, w)
                busy += 1
            for key, _ in selector.select(pace.LOOK_S if self.jobs else None):
                w = key.data
                line = os_readline(w)
                if self.take_line(w, line):
                    continue
                selector.unregister(w.process.stdout)
                busy -= 1
                if line:
                    idle.append(w)


def os_readline(w):
    """One line without read-ahead, so that select() tells the truth about what is left."""
    line = bytearray()
    fd = w.process.stdout.fileno()
    while not line.endswith(b'\n'):
        byte = os.read(fd, 1)
        if not byte:
            return ''
        line += byte
    return line.decode()


def clean_other_stacks():
    """Those of tests that were interrupted; the others have cleaned up behind themselves."""
    for path, folder in harness.stacks_of_tests().items():
        if os.path.exists(path):
            subprocess.run([os.path.join(harness.ROOT, 'tools', 'stack.sh'), 'clean'], check=False,
                           env=dict(os.environ, STACK_DIR=path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


def main(words):
    signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        stack = harness.stack()
    except FileNotFoundError as missing:
        say(f'{missing.filename}: no servers run there (try: STACK_DIR=build/teststack tools/stack.sh start)')
        return 69
    os.environ['STACK_DIR'] = stack.directory
    stack.favour()
    short = words == ['--short']
    SHORT.extend(short_words() if short else [])
    run = Run(find_jobs(SHORT if short else words))
    nobodys = [w for w in SHORT if not any(w in name for job in run.jobs for name in job.names)]
    if nobodys:
        say(f"tests/short: no test is called {', '.join(nobodys)}")
        return 64
    if not run.total:
        say('live: no test has that name')
        return 64
    most = int(os.environ.get('POSTDATE_TEST_WORKERS', pace.MOST))
    run.vhosts = Vhosts(stack, run.jobs)
    os.environ['POSTDATE_TEST_TEMPLATE'] = harness.make_template(stack)
    say(f'{run.total} live tests; set-up took {time.monotonic() - run.result.began:.1f} s')
    workers = []
    try:
        run.drive(workers, most)
    finally:
        for w in workers:
            w.kill()
        clean_other_stacks()
    return finish(run)


def finish(run):
    say('slowest: ' + ', '.join(f'{name.rsplit(".", 1)[1] if "." in name else name} {s} s'
                                for s, name in sorted(run.slowest, reverse=True)[:5]))
    for name in run.failures:
        say(f'failed: {name}')
    run.result.end()
    if os.environ.get('POSTDATE_TEST_SUMMARY'):
        with open(os.environ['POSTDATE_TEST_SUMMARY'], 'w', encoding='utf-8') as f:
            json.dump({'passed': run.result.passed, 'failed': run.result.failed, 'skipped': run.result.skipped,
                       'failures': run.failures}, f)
    return 1 if run.failures else 0


if __name__ == '__main__':
    if sys.argv[1:] == ['--worker']:
        worker()
    else:
        try:
            sys.exit(main(sys.argv[1:]))
        except KeyboardInterrupt:
            say('interrupted')
            sys.exit(130)
