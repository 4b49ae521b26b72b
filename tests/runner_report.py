"""What the test runners print: tools/run_tests.py and tests/live/run.py say the same things in the same words.

    ok     0.4s test_cancel.Cancel.test_an_unknown_id_is_not_found
    skip   0.0s test_doctor.DoctorBasics.test_clocks (faketime is not installed)
    FAIL   1.2s test_lease: 1 of 3 failed
        and below it, indented, why
    live, plain build: 1251 passed, 0 failed, 2 skipped in 312 s

A line stands for one live test, or for one unit test program or corpus, whose tests are counted one by one.
"""
import time


def say(text):
    print(text, flush=True)


def counts(passed, failed, skipped):
    return f'{passed} passed, {failed} failed, {skipped} skipped'


class Report:
    """One group of tests: `live, plain build`."""

    def __init__(self, label):
        self.label = label
        self.passed = self.failed = self.skipped = 0
        self.began = time.monotonic()

    def add(self, passed, failed, skipped):
        self.passed += passed
        self.failed += failed
        self.skipped += skipped

    def tell(self, name, seconds, passed=0, failed=0, skipped=0, text=''):
        """One test, or a program with several. text: why it failed or was skipped."""
        self.add(passed, failed, skipped)
        total = passed + failed + skipped
        word = 'FAIL' if failed else 'ok  ' if passed else 'skip'
        note = ''
        if failed and total > 1:
            note = f': {failed} of {total} failed'
        elif total > 1:
            note = f' ({total} tests)'
        elif word == 'skip' and text:
            note = f' ({text})'
        say(f'{word} {seconds:5.1f}s {name}{note}')
        if failed and text:
            say('    ' + text.replace('\n', '\n    '))

    def fault(self, text):
        """Something went wrong that is no test; it counts as one that failed."""
        self.failed += 1
        say(f'FAIL {text}')

    def end(self):
        if not self.passed + self.failed + self.skipped:
            return  # none was wanted
        say(f'{self.label}: {counts(self.passed, self.failed, self.skipped)} in {time.monotonic() - self.began:.0f} s')
