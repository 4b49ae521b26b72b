"""What a test of the console needs besides the gateway: Debian's Chromium, Node.js, and three packages of npm."""
import fcntl
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, '..', '..')
CACHE = os.path.abspath(os.path.join(ROOT, 'build', 'console-modules'))
INSTALL_LIMIT_S = 120


class Missing(Exception):
    """Why there is no browser test here."""


def find_browser():
    for name in ('chromium', 'chromium-browser', 'google-chrome'):
        path = shutil.which(name)
        if path:
            return path
    raise Missing('chromium is not installed')


def install_modules():
    """The folder that has node_modules, as package-lock.json says; installed once."""
    for program in ('node', 'npm'):
        if not shutil.which(program):
            raise Missing(f'{program} is not installed')
    os.makedirs(CACHE, exist_ok=True)
    with open(os.path.join(CACHE, 'lock'), 'w', encoding='utf-8') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mark, wanted = os.path.join(CACHE, 'installed'), ''
        for name in ('package.json', 'package-lock.json'):
            with open(os.path.join(HERE, name), encoding='utf-8') as f:
                wanted += f.read()
        if os.path.exists(mark):
            with open(mark, encoding='utf-8') as f:
                if f.read() == wanted:
                    return CACHE
        for name in ('package.json', 'package-lock.json'):
            shutil.copy(os.path.join(HERE, name), CACHE)
        run_npm()
        with open(mark, 'w', encoding='utf-8') as f:
            f.write(wanted)
    return CACHE


def run_npm():
    try:
        done = subprocess.run(['npm', 'ci', '--ignore-scripts', '--no-audit', '--no-fund'], cwd=CACHE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=INSTALL_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise Missing(f'npm ci took longer than {INSTALL_LIMIT_S} s') from None
    if done.returncode != 0:
        raise Missing(f'npm ci did not work here (no network?): {done.stdout.decode(errors="replace").strip()[-300:]}')
