"""A PgBouncer in front of a place's database: /usr/sbin/pgbouncer, or the program that POSTDATE_TEST_PGBOUNCER names."""
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.parse

from harness import DIE_WITH_PARENT, free_port, wait_until

PROGRAM = os.environ.get('POSTDATE_TEST_PGBOUNCER', '/usr/sbin/pgbouncer')


def need_pgbouncer(case):
    if not os.path.exists(PROGRAM):
        case.skipTest('pgbouncer is not installed')


def bouncer(case, p, mode, pool_size=20):
    """Returns (URL through it, URL of its console)."""
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(p.postgres).query))
    folder = tempfile.mkdtemp(prefix='postdate-pool-', dir='/tmp')
    case.addCleanup(shutil.rmtree, folder, True)
    port = free_port()
    with open(os.path.join(folder, 'users'), 'w', encoding='utf-8') as f:
        f.write('"postdate" ""\n')
    with open(os.path.join(folder, 'ini'), 'w', encoding='utf-8') as f:
        f.write(f'[databases]\n* = host={query["host"]} port={query.get("port", 5432)} user=postdate\n[pgbouncer]\n'
                f'listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n'
                f'auth_file = {folder}/users\npool_mode = {mode}\nadmin_users = postdate\ndefault_pool_size = {pool_size}\n'
                f'ignore_startup_parameters = extra_float_digits\n')
    command = [PROGRAM, '-q', os.path.join(folder, 'ini')]
    if os.geteuid() == 0:
        for name in ('', 'users', 'ini'):
            os.chmod(os.path.join(folder, name), 0o755)
        owner = os.stat(query['host']).st_uid
        command = ['setpriv', '--reuid', str(owner), '--clear-groups', '--'] + command
    child = subprocess.Popen(DIE_WITH_PARENT + command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
    p.children.append(child)

    def listens():
        with contextlib.suppress(OSError), socket.create_connection(('127.0.0.1', port), 1):
            return True
    wait_until(listens, 10, 'PgBouncer to listen')
    url = f'postgresql://postdate@127.0.0.1:{port}/'
    return url + p.database, url + 'pgbouncer'
