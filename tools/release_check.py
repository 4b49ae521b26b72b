#!/usr/bin/python3
"""release_check.py: may this commit be released? (`make release-check`; most of it needs root, and a day on two cores)

  ONLY=words       only the steps with one of these words in their names; the page is written when none is left and none failed
  SUITES="bookworm trixie sid"   the Debians of the matrix
  SEEDS="1 2"      of the runs with random steps: chaos, seasons
  STACK_PLUGINS_DIR=dir   RabbitMQ's delayed-message plugin, for chaos and benchmark

A clean clone of the commit in build/release/COMMIT is what is checked; nothing may be changed in the checkout. What passed
is not done again: stopped, or mended outside of the tree, it goes on where it was. What failed runs again. What a long step said
of another commit counts if only documents, or tests of other suites, have changed since. The page names that commit.
The page docs/releases/VERSION.md says what ran, for how long, with which figures, and what was skipped and why; the
benchmark's tables go to docs/internals/figures.md and docs/performance, the artifacts to build/release/COMMIT/artifacts.

Exit: 0 everything passed (what was skipped is on the page), 1 something failed, 64 wrong words, 65 the checkout is changed, 130
interrupted.
"""
import collections
import datetime
import glob
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'bench'))
sys.dont_write_bytecode = True
from report import BEGIN, END, write_between_markers  # noqa: E402
SKIPPED = (69, 77)  # EX_UNAVAILABLE, EX_NOPERM: what it needs is not there
# Lines of the ledger's report: numbers, doubles by fault, the verdict.
JUDGED = r'^(accepted|unknown|delivered|cancelled|all  |verdict|skipped:|\d+ faults) *'
PLUGIN = 'the real plugin' if os.environ.get('STACK_PLUGINS_DIR') else "the plugin's double"
# `figures`: the lines of its output that say what came out; without, the last one is.
# `tests`: the parts of tests/ that a long step uses. It also depends on everything that APART does not name. Without it, the step runs on each commit.
Step = collections.namedtuple('Step', 'name what command figures tests', defaults=('',))
APART = ('docs', '*.md', 'man', '.ci', 'docker', 'packaging', 'tests', 'tools/chart*', 'tools/check*', 'tools/deb.sh', 'tools/dist.sh', 'tools/matrix*',
         'tools/release_check.py', 'tools/sbom.py')
MADE_BY = ('tests/tests.mk', 'tests/fuzz/fuzz.mk', 'packaging/*.mk')
ARENA = 'chaos/[!f]* chaos/follow.py clocks shim tools plugin_double'  # chaos without its faults
CHAOS = f'chaos {ARENA}'
SEASONS = f'seasons {ARENA} live/cron_kit.py'
POWERCUT = f'{ARENA} chaos/faults.py chaos/faults_power.py chaos/faults_gateway.py'  # no other fault strikes
BENCH = 'bench tools chaos clocks console plugin_double live/harness live/wire.py live/web.py live/*_kit.py'


def steps(suites, seeds):
    """What is done, in this order."""
    matrix = 'MATRIX_DIR="$RELEASE_DIR/matrix/{0}" make -s matrix TEST=all SUITES={0}'  # of its own each: two can run at a time
    return [
        Step('check', 'rooms, documents, format, linters', 'make -s check && make -s tidy', None),
        Step('model', 'the protocol of the store in every order of its steps, with the large bounds', 'make -s model FULL=1', None),
        Step('fuzz', 'each harness for five minutes', 'make -s fuzz FUZZ_SECONDS=300', r'^\w+( +\d+){5}$|findings$', 'fuzz'),
        Step('chart', 'the Helm chart', 'make -s chart', None),
        Step('artifacts', 'tarball, chart and exchange type, twice: the same bytes', ARTIFACTS, r'^the same: '),
        *[Step(f'matrix-{s}', f'{s} from nothing: make demo, make test TEST=all, packages', matrix.format(s), rf'^{s} ') for s in suites],
        Step('patroni', 'failovers of Patroni', 'make -s test TEST=live ONLY=Patroni', r'^\d+ passed'),
        *[Step(f'seasons-{n}', f'fourteen months of a moved clock, seed {n}', f'SEED={n} make -s seasons', None, SEASONS) for n in seeds],
        Step('powercut', 'a hundred power cuts', 'make -s powercut', JUDGED, POWERCUT),
        *[Step(f'chaos-{n}', f'a thousand faults in all cells, seed {n}', f'SEED={n} FAULTS=1000 make -s chaos', JUDGED, CHAOS) for n in seeds],
        Step('benchmark', 'every figure and its target', 'PUBLISH=1 BUDGET_S=0 make -s bench', r'^targets: ', BENCH),
    ]


ARTIFACTS = '''
for n in 1 2; do
    make -s dist chart-archive exchange-type
    mkdir -p "$RELEASE_DIR/artifacts-$n"
    cp build/dist/postdate-*.tar.gz build/dist/*.tgz build/exchange-type/*.ez "$RELEASE_DIR/artifacts-$n"
    make -s clean
    sleep 2
done
for file in "$RELEASE_DIR"/artifacts-1/*; do
    cmp "$file" "$RELEASE_DIR/artifacts-2/${file##*/}"
    echo "the same: ${file##*/}"
done'''


def output(*command, where=ROOT):
    return subprocess.run(command, cwd=where, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def say(text):
    print(f'release-check: {text}', file=sys.stderr, flush=True)


def refuse(code, text):
    say(text)
    sys.exit(code)


def duration(seconds):
    minutes = round(seconds / 60)
    return f'{seconds:.0f} s' if seconds < 90 else f'{minutes // 60} h {minutes % 60} min' if minutes > 90 else f'{minutes} min'


class Release:
    def __init__(self, commit, plan):
        self.commit, self.plan = commit, plan
        self.folder = os.path.join(ROOT, 'build', 'release', commit[:12])
        self.tree = os.path.join(self.folder, 'tree')

    def clone(self):
        if not os.path.isdir(self.tree):
            os.makedirs(self.folder, exist_ok=True)
            output('git', 'clone', '-q', '--no-local', ROOT, self.tree + '.new')
            output('git', 'checkout', '-q', '--detach', self.commit, where=self.tree + '.new')
            os.rename(self.tree + '.new', self.tree)

    def results(self, step):
        """What came of it, the latest last: {"commit", "command", "plugin", "tries", "code", "seconds", "said", "ended"}, one for each commit where
        all that it is made of is the same."""
        found = []
        for path in glob.glob(os.path.join(os.path.dirname(self.folder), '*', f'{step.name}.json')):
            with open(path, encoding='utf-8') as f:
                r = json.load(f)
            if (r.get('command'), r.get('plugin')) == (step.command, PLUGIN) and self.same(step, r['commit']):
                found.append(r)
        return sorted(found, key=lambda r: r['ended'])

    def result(self, step):
        """The last one, with the tries of all, or nothing."""
        found = self.results(step)
        return {**found[-1], 'tries': sum(r['tries'] for r in found)} if found else None

    def same(self, step, other):
        """Whether nothing that the step is made of differs between that commit and this one."""
        parts = [*MADE_BY, *(f'tests/{part}' for part in step.tests.split())]
        rest = ['.', *(f':(exclude){path}' for path in APART)]
        return other == self.commit or step.tests != '' and all(
            subprocess.run(['git', 'diff', '--quiet', other, self.commit, '--', *paths], cwd=ROOT, stderr=subprocess.DEVNULL, check=False).returncode == 0
            for paths in (parts, rest))

    def run(self, step):
        say(f'{step.name}: {step.what}')
        tries = 1 + sum(r['tries'] for r in self.results(step) if r['commit'] == self.commit)
        began, log = time.monotonic(), os.path.join(self.folder, f'{step.name}.log')
        with open(log, 'wb') as f:
            child = subprocess.Popen(['setpriv', '--pdeathsig', 'TERM', '--', 'bash', '-euc', step.command], cwd=self.tree, stdin=subprocess.DEVNULL, stdout=f,
                                     stderr=subprocess.STDOUT, start_new_session=True, env=dict(os.environ, RELEASE_DIR=self.folder, ONLY=''))
            try:
                code = child.wait()
            except BaseException:
                os.killpg(child.pid, signal.SIGTERM)
                child.wait()
                raise
        with open(log, encoding='utf-8', errors='replace') as f:
            lines = [line.rstrip() for line in f if line.strip()]
        said = [line for line in lines if step.figures and re.search(step.figures, line)] or lines[-1:]
        result = {'commit': self.commit, 'command': step.command, 'plugin': PLUGIN, 'tries': tries, 'code': code, 'seconds': time.monotonic() - began,
                  'said': said[-20:], 'ended': datetime.datetime.now(datetime.timezone.utc).isoformat()}
        path = os.path.join(self.folder, f'{step.name}.json')
        with open(path + '.new', 'w', encoding='utf-8') as f:
            json.dump(result, f, indent=1)
        os.replace(path + '.new', path)
        say(f'{step.name}: {word(result)} in {duration(result["seconds"])}' + ('' if code == 0 else f'; see {os.path.relpath(log)}'))
        return result

    def keep(self):
        """The artifacts, with their checksums, and the benchmark's tables."""
        kept = os.path.join(self.folder, 'artifacts')
        shutil.rmtree(kept, ignore_errors=True)
        os.makedirs(kept)
        places = [('artifacts-1', '')] + [(f'matrix/{s.name[7:]}/{s.name[7:]}.packages', s.name[7:]) for s in self.plan if s.name.startswith('matrix-')]
        for place, suite in places:
            folder = os.path.join(self.folder, place)
            for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
                if name.endswith(('.deb', '.tar.gz', '.tgz', '.ez', '.spdx.json')) and (not suite or not name.endswith('.tar.gz')):
                    os.makedirs(os.path.join(kept, suite), exist_ok=True)
                    shutil.copy2(os.path.join(folder, name), os.path.join(kept, suite, name))
        sums = []
        for folder, _, names in sorted(os.walk(kept)):
            for name in sorted(names):
                with open(os.path.join(folder, name), 'rb') as f:
                    sums.append(f'{hashlib.sha256(f.read()).hexdigest()}  {os.path.relpath(os.path.join(folder, name), kept)}')
        with open(os.path.join(kept, 'SHA256SUMS'), 'w', encoding='ascii') as f:
            f.write(''.join(s + '\n' for s in sums))
        measured = self.result(next(s for s in self.plan if s.name == 'benchmark'))
        if measured and measured['code'] == 0:
            tree = os.path.join(os.path.dirname(self.folder), measured['commit'][:12], 'tree')
            copy_table(*(os.path.join(top, 'docs/internals/figures.md') for top in (tree, ROOT)))
            shutil.copytree(os.path.join(tree, 'docs/performance'), os.path.join(ROOT, 'docs/performance'), dirs_exist_ok=True)
        return sums

    def word(self, result):
        """What came out, the number of tries, and the commit where it ran, if it is another one."""
        tries = f", try {result['tries']}" if result['tries'] > 1 else ''
        return word(result) + tries + ('' if result['commit'] == self.commit else f", on {result['commit'][:12]}")

    def page(self, version, results, sums):
        lines = [f'# {version}', '', f'    make release-check     # commit {self.commit[:12]}', '',
                 *textwrap.wrap(f'What ran before this release, on {machine()}, with {PLUGIN}. The tables of the benchmark are in '
                                '[figures](../internals/figures.md#figures). Where another commit is named, the programs and the suite are the same.', 108), '',
                 '| step | what | result | took | ended, UTC |', '|---|---|---|---|---|']
        for step, result in results:
            lines.append(f'| {step.name} | {step.what} | {self.word(result)} | {duration(result["seconds"])} | {result["ended"][:16].replace("T", " ")} |')
        lines += ['', 'What they printed:', '']
        for step, result in results:
            lines += [f'    {step.name}: {line.strip()}' for line in result['said']]
        lines += ['', 'Checksums (SHA-256):', '', *(f'    {s}' for s in sums)]
        path = os.path.join(ROOT, 'docs', 'releases', f'{version}.md')
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, 'w', encoding='utf-8') as f:
            f.write('\n'.join(lines) + '\n')
        return os.path.relpath(path)


def copy_table(source, target):
    """What `make bench` wrote there, and nothing around it."""
    with open(source, encoding='utf-8') as f:
        table = f.read().split(BEGIN, 1)[1].split(END, 1)[0]
    write_between_markers(target, table.strip('\n'))


def word(result):
    return 'passed' if result['code'] == 0 else 'skipped' if result['code'] in SKIPPED else 'failed'


def machine():
    with open('/proc/cpuinfo', encoding='ascii', errors='replace') as f:
        model = re.search(r'model name\s*: (.*)', f.read())
    memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') >> 30
    return f'{model[1] if model else platform.machine()}, {os.cpu_count()} cores, {memory} GiB, Linux {platform.release()}'


def main():
    plan = steps(os.environ.get('SUITES', 'bookworm trixie sid').split(), os.environ.get('SEEDS', '1 2').split())
    words = os.environ.get('ONLY', '').split()
    chosen = [s for s in plan if not words or any(w in s.name for w in words)]
    if not chosen:
        refuse(64, f"ONLY={' '.join(words)}: no step has such a name; there are {', '.join(s.name for s in plan)}")
    if output('git', 'status', '--porcelain', '--untracked-files=no'):
        refuse(65, 'files differ from the commit: commit them first, for a clone of the commit is what is checked')
    release = Release(output('git', 'rev-parse', 'HEAD'), plan)
    release.clone()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: sys.exit(128 + n))
    try:
        for step in chosen:
            before = release.result(step)
            if before and before['code'] == 0:
                say(f'{step.name}: as before, {release.word(before)}')
            else:
                release.run(step)
    except KeyboardInterrupt:
        say('interrupted; it goes on from here when it is called again')
        return 130
    results = [(step, release.result(step)) for step in plan]
    missing = [step.name for step, result in results if not result]
    failed = [step.name for step, result in results if result and word(result) == 'failed']
    if missing:
        say(f"not run yet: {', '.join(missing)}; the page is written when none is left and none failed")
    elif not failed:
        say(f"the page is {release.page(output('make', '-s', 'version'), results, release.keep())}")
    if failed:
        say(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
