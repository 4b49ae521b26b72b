"""Installs what a test needs of other languages' registries, once, under build/examples."""
import fcntl
import os
import shutil
import subprocess

import harness

CACHE = os.path.join(harness.ROOT, 'build', 'examples')
INSTALL_LIMIT_S = 120  # Go compiles its own library, too


def run(command, folder=None, env=None, limit_s=60):
    """(exit code, output)"""
    done = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=limit_s * harness.slowness(), check=False)
    return done.returncode, done.stdout.decode(errors='replace')


def installed(test, name, files, *commands):
    """The folder with these files after these commands; made anew when they change. Skips the test when one fails."""
    os.makedirs(CACHE, exist_ok=True)
    with open(os.path.join(CACHE, name + '.lock'), 'w', encoding='utf-8') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        return install(test, os.path.join(CACHE, name), files, commands)


def install(test, folder, files, commands):
    mark, wanted = os.path.join(folder, '.installed'), repr((files, commands))
    if os.path.exists(mark):
        with open(mark, encoding='utf-8') as f:
            if f.read() == wanted:
                return folder
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for path, text in files.items():
        with open(os.path.join(folder, path), 'w', encoding='utf-8') as f:
            f.write(text)
    for command in commands:
        try:
            code, out = run(command, folder, None, INSTALL_LIMIT_S)
        except subprocess.TimeoutExpired:
            code, out = 1, f'took longer than {INSTALL_LIMIT_S} s'
        if code != 0:
            test.skipTest(f'{" ".join(command[:3])} ... did not work here (no network?): {out.strip()[-200:]}')
    with open(mark, 'w', encoding='utf-8') as f:
        f.write(wanted)
    return folder
