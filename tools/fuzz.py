"""fuzz.py run|keep HARNESS...: runs libFuzzer harnesses (build/fuzz, see tests/fuzz/fuzz.mk), or keeps what they found.

run: each for FUZZ_SECONDS of CPU time, two at a time, from tests/fuzz/corpus and what earlier runs left in build/fuzz/corpus. Prints a
line for each; exit 1 when there is a finding: its input is in build/fuzz/findings, its report in build/fuzz/NAME.log.
keep: the smallest set of inputs that reaches the same code becomes tests/fuzz/corpus/NAME. Seeds and regressions, whose
names do not end in eight hex digits, stay whatever they reach.
"""
import concurrent.futures
import glob
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OUT = os.path.join(TOP, 'build', 'fuzz')
SOURCES = os.path.join(TOP, 'tests', 'fuzz')
AT_ONCE = 2
LONGEST = 4096  # bytes of an input
INTERRUPTED = 72  # what libFuzzer exits with after SIGTERM
FILES_MAX, BYTES_MAX = 150, 200 * 1024  # of one corpus
DICTIONARIES = {'wire': 'amqp', 'accept': 'amqp', 'broker': 'amqp', 'json_message': 'json', 'json_document': 'json', 'stored_json': 'json',
                'ndjson': 'json', 'control': 'http', 'framing': 'http'}
SANITIZERS = {'ASAN_OPTIONS': 'detect_leaks=1:allocator_may_return_null=1', 'UBSAN_OPTIONS': 'print_stacktrace=1'}


def corpus(name):
    return os.path.join(SOURCES, 'corpus', name)


def command(name, *options):
    program = [os.path.join(OUT, 'fuzz_' + name), f'-max_len={LONGEST}', '-timeout=20', '-report_slow_units=86400', '-rss_limit_mb=1024']
    dictionary = os.path.join(SOURCES, 'dict', DICTIONARIES.get(name, name) + '.dict')
    return program + list(options) + ([f'-dict={dictionary}'] if os.path.exists(dictionary) else [])


def cpu_seconds(pid):
    """of a child that was not waited for yet"""
    with open(f'/proc/{pid}/stat', encoding='ascii', errors='replace') as f:
        user, system = f.read().rpartition(')')[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf('SC_CLK_TCK')


def run_for(fuzzer, seconds):
    """Ends a fuzzer that ran that long, its own time and not the wall's: others may want the machine meanwhile. Its exit code."""
    while fuzzer.poll() is None:
        if cpu_seconds(fuzzer.pid) >= seconds:
            fuzzer.send_signal(signal.SIGTERM)
            return fuzzer.wait()
        time.sleep(0.2)
    return fuzzer.returncode


def run(name, seconds):
    """(name, executions, coverage, features, inputs, findings)"""
    found = os.path.join(OUT, 'corpus', name)
    findings = os.path.join(OUT, 'findings', name + '-')
    log = os.path.join(OUT, name + '.log')
    for directory in (found, os.path.dirname(findings)):
        os.makedirs(directory, exist_ok=True)
    for old in glob.glob(findings + '*'):
        os.remove(old)
    with open(log, 'wb') as out:
        with subprocess.Popen(
                command(name, '-print_final_stats=1', f'-artifact_prefix={findings}', found, corpus(name)),
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                env=dict(os.environ, **SANITIZERS)) as fuzzer:
            code = run_for(fuzzer, seconds)
    with open(log, encoding='utf-8', errors='replace') as f:
        text = f.read()
    last = re.findall(r'#(\d+)\t\w+ +cov: (\d+) ft: (\d+) corp: (\d+)', text)
    count = len(glob.glob(findings + '*')) or int(code not in (0, INTERRUPTED))
    return (name, *(last[-1] if last else (0, 0, 0, 0)), count)


def run_all(names, seconds):
    print(f'{len(names)} harnesses, {seconds} s of CPU time each, {AT_ONCE} at a time', flush=True)
    print(f'{"harness":<14}{"executions":>12}{"coverage":>10}{"features":>10}{"inputs":>8}{"findings":>10}', flush=True)
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for job in concurrent.futures.as_completed([pool.submit(run, name, seconds) for name in names]):
            name, executions, coverage, features, inputs, findings = job.result()
            print(f'{name:<14}{executions:>12}{coverage:>10}{features:>10}{inputs:>8}{findings:>10}', flush=True)
            bad += findings
    print(f'{bad} findings' + (': see build/fuzz/findings and build/fuzz/*.log' if bad else ''))
    return 1 if bad else 0


def readable_name(data):
    words = re.sub(rb'[^A-Za-z0-9]+', b'-', data).decode().strip('-').lower()[:28].strip('-')
    return '-'.join(x for x in (words, hashlib.sha1(data).hexdigest()[:8]) if x)


def read(path):
    with open(path, 'rb') as f:
        return f.read()


def keep(name):
    """Merges by reached edges alone: counters would keep thousands."""
    target, found = corpus(name), os.path.join(OUT, 'corpus', name)
    os.makedirs(target, exist_ok=True)
    with tempfile.TemporaryDirectory() as merged:
        stay = {p: read(p) for p in sorted(glob.glob(os.path.join(target, '*')))
                if not re.search(r'(^|-)[0-9a-f]{8}$', os.path.basename(p))}
        for path in stay:
            shutil.copy(path, merged)
        sources = [d for d in (target, found) if os.path.isdir(d)]
        subprocess.run(command(name, '-merge=1', '-use_counters=0', merged, *sources), stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        known = set(stay.values())
        new = sorted({read(p) for p in glob.glob(os.path.join(merged, '*'))} - known, key=len)
    for path in glob.glob(os.path.join(target, '*')):
        if path not in stay:
            os.remove(path)
    count, size = len(stay), sum(map(len, known))
    for data in new:
        if count >= FILES_MAX or size + len(data) > BYTES_MAX:
            break
        with open(os.path.join(target, readable_name(data)), 'wb') as f:
            f.write(data)
        count, size = count + 1, size + len(data)
    left_out = len(stay) + len(new) - count
    print(f'{name}: {count} inputs, {size} bytes' + (f' ({left_out} left out)' if left_out else ''))


def main(what, harnesses):
    names = [h.removeprefix('fuzz_') for h in harnesses]
    if what == 'run':
        return run_all(names, int(os.environ.get('FUZZ_SECONDS', '1200')))
    for name in names:
        keep(name)
    return 0


if __name__ == '__main__':
    if len(sys.argv) < 3 or sys.argv[1] not in ('run', 'keep'):
        sys.exit('usage: fuzz.py run|keep HARNESS...')
    sys.exit(main(sys.argv[1], sys.argv[2:]))
