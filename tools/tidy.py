#!/usr/bin/env python3
"""tidy.py FILE ... -- FLAG ...: clang-tidy 14 on each file, as a compiler with these flags sees it, JOBS at a time.

Prints what it finds; exit 1 when it finds anything, 69 when clang-tidy-14 is missing. Findings that were looked at and are
none are listed in KNOWN: that list may only shrink, so an entry that is not needed any more is a finding, too.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

TIDY = 'clang-tidy-14'
# The analyzer, and the checks of bugprone but for those that are a matter of taste or find nothing here but constants.
CHECKS = ('-* clang-analyzer-* bugprone-* -bugprone-branch-clone -bugprone-easily-swappable-parameters '
          '-bugprone-implicit-widening-of-multiplication-result -bugprone-macro-parentheses -bugprone-narrowing-conversions '
          '-bugprone-not-null-terminated-result -bugprone-reserved-identifier -clang-analyzer-optin.performance.Padding '
          '-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling').split()

# The analyzer sees one file at a time. It does not know that err_set of another file returns -1 always, that a length of
# 0 goes with a null pointer, or what a function of another file wrote.
ANALYZER = {
    'amqp/connection/broker_frames.c': 'core.UndefinedBinaryOperatorResult',
    'gateway/cli/schedule/line_reader.c': 'core.NonNullParamChecker',
    'gateway/config/config.c': 'core.NonNullParamChecker',
    'sql/connection/pg_values.c': 'core.NonNullParamChecker',
    'sql/pipeline/settle.c': 'core.NullDereference core.NonNullParamChecker',
}
KNOWN = {(path, f'clang-analyzer-{check}') for path, checks in ANALYZER.items() for check in checks.split()} | {
    ('core/message/wire.c', 'bugprone-signed-char-misuse'),      # the sign is wanted: an AMQP octet with one
    ('gateway/json/json_document.c', 'bugprone-signed-char-misuse'),  # it is called with ASCII only
}
FINDING = re.compile(r'^(\S+?):(\d+):\d+: (?:warning|error): (.*) \[([\w.,-]+)\]$', re.M)


def tidy(path, flags):
    """{(file, line, text, check)}"""
    done = subprocess.run([TIDY, '--quiet', '--checks=' + ','.join(CHECKS), path, '--', *flags], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    out = done.stdout.decode(errors='replace')
    found = {(os.path.relpath(f), int(line), text, check) for f, line, text, check in FINDING.findall(out)}
    if done.returncode != 0 and not found:
        found.add((path, 0, f'{TIDY} ended with {done.returncode}: {done.stderr.decode(errors="replace")[-500:]}', 'none'))
    return found


def main(arguments):
    if not shutil.which(TIDY):
        print(f'{TIDY} is missing. Debian 12: apt-get install {TIDY}. Newer systems have other versions, which find other things.',
              file=sys.stderr)
        return 69
    split = arguments.index('--')
    files, flags = arguments[:split], arguments[split + 1:]
    began, found = time.monotonic(), set()
    jobs = int(os.environ.get('JOBS') or os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for some in pool.map(lambda path: tidy(path, flags), files):
            found |= some
    for path, line, text, check in sorted(found):
        if (path, check) not in KNOWN:
            print(f'{path}:{line}: {text} [{check}]', file=sys.stderr)
    seen = {(path, check) for path, _, _, check in found}
    for path, check in sorted(KNOWN - seen):
        print(f'{path}: {check} is found no more: take it from KNOWN of tools/tidy.py', file=sys.stderr)
    print(f'clang-tidy: {len(files)} files in {time.monotonic() - began:.0f} s')
    return 1 if seen ^ KNOWN else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
