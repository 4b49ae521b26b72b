"""psql: a call, a session that holds a transaction, one that is asked again and again."""
import os
import re
import select
import subprocess
import threading
import time
import urllib.parse

from .settings import DIE_WITH_PARENT


def postgres_url(base, database):
    # urlunsplit drops the // of an empty host: libpq wants it
    parts = urllib.parse.urlsplit(base)
    query = '?' + parts.query if parts.query else ''
    return f'{parts.scheme}://{parts.netloc}/{urllib.parse.quote(database)}{query}'


def run_psql(url, query, check=True):
    done = subprocess.run(['psql', '-AtXq', '-F', '\t', '-v', 'ON_ERROR_STOP=1', '-d', url, '-c', query],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False,
                          timeout=120)
    if check and done.returncode != 0:
        raise AssertionError(f'psql: {done.stderr.decode().strip()}\nquery: {query}')
    return [line.split('\t') for line in done.stdout.decode().splitlines()]


def psql_error(url, query):
    """(SQLSTATE, the whole text) of a query that must fail."""
    done = subprocess.run(['psql', '-AtXq', '-v', 'ON_ERROR_STOP=1', '-v', 'VERBOSITY=verbose', '-v', 'SHOW_CONTEXT=never', '-d', url,
                           '-c', query], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False, timeout=60)
    text = done.stderr.decode()
    if done.returncode == 0:
        raise AssertionError(f'no error: {query}')
    return text.split('ERROR:')[1].split(':')[0].strip(), text


# As sessions of gateways have it: compiling what is asked once costs more processor time than the answer.
WITHOUT_JIT = {**os.environ, 'PGOPTIONS': '-c jit=off'}


class Asker:
    """A psql that stays open for what tests look at again and again: a new one, and a server process for it, cost ten
    times as much as a question does. Only for queries that change nothing, in the session neither."""
    ASKS = re.compile(r"\s*(select|show)\b(?!.*(;|\\|advisory|terminate|set_config|pg_backend_pid|postdate\.\w+\())", re.I | re.S)
    TIMEOUT_S = 120

    def __init__(self):
        self.url = self.process = None
        self.lock = threading.Lock()

    def ask(self, url, query):
        """The rows; None when somebody else has to ask."""
        if not self.ASKS.match(query) or not self.lock.acquire(blocking=False):
            return None
        try:
            if self.url != url:
                self.close()
            if not self.process:
                self.process = subprocess.Popen(DIE_WITH_PARENT + ['psql', '-AtXq', '-F', '\t', '-d', url], stdin=subprocess.PIPE,
                                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=WITHOUT_JIT)
                self.url = url
            self.process.stdin.write(f'{query}\n;\n\\echo {self.END} :ERROR\n'.encode())
            self.process.stdin.flush()
            return self.answer(query)
        except OSError:
            self.close()  # the server ended its session, and it itself
            return None
        finally:
            self.lock.release()

    END = '--end-of-the-answer--'

    def answer(self, query):
        out, until = b'', time.monotonic() + self.TIMEOUT_S
        end = re.compile(rb'^' + self.END.encode() + rb' (true|false)\n\Z', re.M)
        while not (found := end.search(out)):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))
            if not ready:
                self.close()
                raise AssertionError(f'psql: no answer within {self.TIMEOUT_S} s\nquery: {query}')
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                raise BrokenPipeError
            out += more
        text = out[:found.start()].decode()
        if found[1] == b'true':
            raise AssertionError(f'psql: {text.strip()}\nquery: {query}')
        return [line.split('\t') for line in text.splitlines()]

    def close(self):
        if self.process:
            self.process.kill()
            self.process.communicate()  # closes what leads to it
        self.process = None


class Session:
    """A psql that stays open, to hold a transaction."""

    def __init__(self, url):
        self.process = subprocess.Popen(DIE_WITH_PARENT + ['psql', '-AtXq', '-F', '\t', '-d', url], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        bufsize=1)

    def run(self, statement):
        self.process.stdin.write(statement + ';\n\\echo --done--\n')
        self.process.stdin.flush()
        lines = []
        for line in self.process.stdout:
            if line.strip() == '--done--':
                return [x.split('\t') for x in lines]
            lines.append(line.rstrip('\n'))
        raise AssertionError(f'psql ended: {lines}')

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=10)
        self.process.stdout.close()
