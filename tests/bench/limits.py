"""The limits that figures are compared with, measured between them: the broker's (publish, confirm and consume, nothing
else) and the database's (COPY of the same rows into a plain table)."""
import json
import os
import subprocess
import time

from kit import BODY_BYTES, harness
from cost_kit import superuser

RAW = 'raw publish, confirm, consume'
COPY = 'raw COPY'
INSERT = 'raw INSERT'
BATCH = 1000


def message(delay='1h'):
    return {'routing_key': 'bench', 'delay': delay, 'body': 'x' * BODY_BYTES}


def run(command, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          timeout=300, **options)
    if done.returncode != 0:
        raise AssertionError(f'{command[0]} failed ({done.returncode}): {done.stdout.decode()[-1000:]}')
    return done.stdout.decode()


class RawBroker:
    """One publisher with confirms, one consumer, one classic queue."""

    def __init__(self, bench):
        self.bench = bench
        self.place = bench.place(migrate=False)

    def measure(self, count):
        r = self.place.load('raw', '--count', count, '--timeout-s', 300).result(320)
        if r['missing']:
            raise AssertionError(f"{r['missing']} messages of the raw run are missing")
        return r['rate']


class RawCopy:
    """The rows that `schedule_many` makes, kept in binary files and copied into a plain table with the same columns and
    indexes: one session, a transaction for each file."""
    ROWS = 5000  # to a transaction, as in a chunk of `postdate schedule --batch`; smaller ones are slower

    def __init__(self, place, folder, count):
        self.url, self.folder = superuser(place), folder
        self.files = max(1, count // self.ROWS)
        call = f"select count(*) from postdate.schedule_many('{json.dumps([message()] * BATCH)}');\n"
        self.psql('fill.sql', call * (self.files * self.ROWS // BATCH))
        harness.run_psql(self.url, 'create table bench_copy (like postdate.message including all)')
        self.psql('save.sql', ''.join(
            f"\\copy (select * from postdate.message order by id offset {i * self.ROWS} limit {self.ROWS}) to '{self.path(f'rows-{i}')}' (format binary)\n"
            for i in range(self.files)))

    def path(self, name):
        return os.path.join(self.folder, name)

    def psql(self, name, script):
        with open(self.path(name), 'w', encoding='utf-8') as f:
            f.write(script)
        run(['psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', self.url, '-f', self.path(name)])

    def measure(self):
        """Rows a second."""
        harness.run_psql(self.url, 'truncate bench_copy')  # of RawInsert's rows, too
        script = ''.join(f"\\copy bench_copy from '{self.path(f'rows-{i}')}' (format binary)\n" for i in range(self.files))
        began = time.monotonic()
        self.psql('copy.sql', script)
        return self.files * self.ROWS / (time.monotonic() - began)


class RawInsert:
    """The row that `schedule` makes, by a bare INSERT into that plain table: one by one, a thousand in a transaction."""
    ROW = ("insert into bench_copy (due, created_at, id, hold, exchange, routing_key, properties, body) values (now() + interval '1 hour', now(), "
           "gen_random_uuid(), 'g', 'postdate.delivery', 'bench', '\\x100002', convert_to('%s', 'UTF8'));\n" % message()['body'])
    SCRIPT = 'begin;\n' + ROW * BATCH + 'commit;\n'

    def __init__(self, place):
        self.url = superuser(place)
        harness.run_psql(self.url, 'grant all on bench_copy to postdate')

    def empty(self):
        harness.run_psql(self.url, 'truncate bench_copy')

    def rows(self):
        return int(harness.run_psql(self.url, 'select count(*) from bench_copy')[0][0])
