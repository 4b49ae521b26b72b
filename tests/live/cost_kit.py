"""What PostgreSQL spends on messages: processor time, bytes of WAL, rows of messages that are written again."""
import glob
import os

from harness import run_psql

REWRITES = "select coalesce(sum(n_tup_upd), 0) from pg_stat_user_tables where schemaname = 'postdate' and relname ~ '^message_[0-9]'"
TOLD_S = 2  # after so long it has counted what a session did


def superuser(place):
    return place.postgres.replace('user=postdate', 'user=postgres')


def wal_bytes(place):
    return int(run_psql(superuser(place), "select pg_current_wal_lsn() - '0/0'")[0][0])


def stat_of(pid):
    """[] of one that has ended."""
    try:
        with open(f'/proc/{pid}/stat', encoding='ascii') as f:
            return f.read().rpartition(')')[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def processor_s(parent):
    """Processor time of a process and its children, those that ended included."""
    stats = [stat_of(path.split('/')[2]) for path in glob.glob('/proc/[0-9]*')]
    return sum(sum(map(int, s[11:13])) for s in [*(s for s in stats if s and int(s[1]) == parent), stat_of(parent)]
               ) / os.sysconf('SC_CLK_TCK') + sum(map(int, stat_of(parent)[13:15])) / os.sysconf('SC_CLK_TCK')


def spent(place):
    """(seconds of processor time, bytes of WAL, rows written again) so far: of the whole server, the rows of this database."""
    postmaster = int(run_psql(superuser(place), "select split_part(pg_read_file('postmaster.pid'), E'\\n', 1)")[0][0])
    return processor_s(postmaster), wal_bytes(place), int(place.value(REWRITES))
