"""PostgreSQL as Patroni runs it: three machines, a primary, a synchronous standby and another one, and etcd, which is the judge.

As a program it says whether that can be here: exit 0, or 1 and the reason.
"""
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request

from harness import run_psql, wait_until
from machines import Lan, why_not
from servers import postgres_bin

PROGRAMS = ('patroni', 'etcd')
USER = 'postdate'
# A leader that says nothing for so long is none any more. Patroni's own default is 30 s.
TTL_S = 10
BEGINS_S = 90  # for a cluster to be made, or to be whole again after a fault


def why_no_patroni():
    """Why there can be no such cluster here; '' when there can."""
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    return f'{missing[0]} is not installed' if missing else why_not()


@functools.cache
def etcd_api():
    """Before 3.0.3 a leader that was frozen takes its lock back by way of etcd's newer interface, whoever has it meanwhile."""
    said = subprocess.run(['patroni', '--version'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout.decode()
    return 'etcd' if [int(n) for n in re.findall(r'\d+', said)[:3]] < [3, 0, 3] else 'etcd3'


class Patroni:
    """Members are known by their number."""

    def __init__(self, directory):
        self.directory = directory
        os.chmod(directory, 0o755)
        self.lan = Lan(3)
        self.nodes = range(3)
        for name in ('etcd', *map(str, self.nodes)):
            os.mkdir(self.path(name), 0o700)
            shutil.chown(self.path(name), 'postgres', 'postgres')
        try:
            self.start_etcd()
            for node in self.nodes:
                self.configure(node)
                self.start(node)
            self.wait_whole()
            run_psql(self.url('postgres', user='postgres'), f'create role {USER} login createdb createrole')
        except BaseException:
            self.close()
            raise

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def address(self, node):
        return self.lan.machines[node].address

    # --- what runs
    def start_etcd(self):
        here = self.lan.switch.address
        self.lan.switch.run(['etcd', '--name', 'judge', '--data-dir', self.path('etcd', 'data'), '--unsafe-no-fsync', *(['--enable-v2'] if etcd_api() == 'etcd' else []),
                             '--listen-client-urls', f'http://{here}:2379', '--advertise-client-urls', f'http://{here}:2379',
                             '--listen-peer-urls', f'http://{here}:2380', '--initial-advertise-peer-urls', f'http://{here}:2380',
                             '--initial-cluster', f'judge=http://{here}:2380', '--logger', 'zap', '--log-outputs', 'stderr'], self.path('etcd.log'))

    def configure(self, node):
        here = self.address(node)
        trust = ['local all all trust', 'host all all all trust', 'host replication all all trust']
        with open(self.path(f'{node}.yml'), 'w', encoding='utf-8') as f:
            json.dump({
                'scope': 'postdate', 'name': str(node),
                'restapi': {'listen': f'{here}:8008', 'connect_address': f'{here}:8008'},
                etcd_api(): {'host': f'{self.lan.switch.address}:2379'},
                'bootstrap': {
                    'dcs': {'ttl': TTL_S, 'loop_wait': 1, 'retry_timeout': 3, 'synchronous_mode': True,
                            'postgresql': {'use_pg_rewind': True, 'use_slots': True, 'parameters': {
                                'max_connections': 100, 'max_wal_size': '128MB', 'min_wal_size': '32MB', 'wal_keep_size': '64MB'}}},
                    'initdb': [{'encoding': 'UTF8'}, 'no-locale', 'no-sync', {'auth': 'trust'}]},
                'postgresql': {
                    'listen': f'{here}:5432', 'connect_address': f'{here}:5432', 'bin_dir': postgres_bin(), 'use_unix_socket': True,
                    'data_dir': self.path(str(node), 'data'), 'pgpass': self.path(str(node), 'pgpass'), 'pg_hba': trust,
                    'basebackup': [{'checkpoint': 'fast'}, 'no-sync'],
                    'authentication': {'superuser': {'username': 'postgres'}, 'replication': {'username': 'replicator'}},
                    'parameters': {'unix_socket_directories': self.path(str(node)), 'shared_buffers': '64MB',
                                   'dynamic_shared_memory_type': 'mmap'}}}, f)  # so that nothing of a killed one stays behind

    def start(self, node):
        self.lan.machines[node].run(['patroni', self.path(f'{node}.yml')], self.path(f'{node}.log'))

    def kill(self, node):
        """Everything there but the machine itself, whose kernel says from now on that nobody listens."""
        machine = self.lan.machines[node]
        machine.signal(signal.SIGSTOP)  # nothing is started any more
        machine.signal(signal.SIGKILL)
        wait_until(lambda: not machine.processes(), 20, f'the processes of member {node} to end')

    def freeze(self, node, *names):
        """The kernel there goes on taking connections, and data."""
        assert self.lan.machines[node].signal(signal.SIGSTOP, *names), f'member {node} runs no {names}'

    def thaw(self, node):
        self.lan.machines[node].signal(signal.SIGCONT)

    def close(self):
        self.lan.close()

    # --- what it says
    def ask(self, node, path, body=None):
        """(status, JSON) of that member's Patroni; (0, None) without an answer."""
        request = urllib.request.Request(f'http://{self.address(node)}:8008{path}', body and json.dumps(body).encode(),
                                         {'Content-Type': 'application/json'})
        try:
            with urllib.request.urlopen(request, timeout=60 if body else 2) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
        except OSError:
            return 0, None

    def leader(self, but=None):
        """Who has the lock, and takes writes."""
        return next((node for node in self.nodes if node != but and self.ask(node, '/primary')[0] == 200), None)

    def wait_leader(self, but, deadline_s=90):
        """The one after `but`: it is found among the others."""
        return wait_until(lambda: [n for n in [self.leader(but)] if n is not None], deadline_s, f'another leader than {but}')[0]

    def is_whole(self):
        """All are there, on one timeline, and commits wait for one of the standbys."""
        leader = self.leader()
        status, text = (0, None) if leader is None else self.ask(leader, '/cluster')
        members = json.loads(text)['members'] if status == 200 else []
        return (len(members) == len(self.nodes) and {m['state'] for m in members} <= {'running', 'streaming'} and
                len({m.get('timeline') for m in members}) == 1 and self.streams(leader))

    def streams(self, leader):
        """Whether the primary itself says so."""
        try:
            return run_psql(self.url('postgres', user='postgres', hosts=[leader]),
                            "select count(*) >= 2 and bool_or(sync_state in ('sync', 'quorum')) from pg_stat_replication "
                            "where state = 'streaming'") == [['t']]
        except (AssertionError, subprocess.TimeoutExpired):
            return False

    def wait_whole(self, deadline_s=BEGINS_S):
        try:
            wait_until(self.is_whole, deadline_s, 'three members in step', 0.2)
        except AssertionError as e:
            raise AssertionError(f'{e}: {[self.ask(n, "/patroni") for n in self.nodes]}\n{self.log_tail()}') from None

    def switch_over(self, leader):
        """As `patronictl switchover` does; whichever standby is in step takes over."""
        status, text = self.ask(leader, '/switchover', {'leader': str(leader)})
        assert status == 200, f'switchover: {status} {text}'

    def make_database(self, name):
        """Everywhere: a standby that has it not yet would end a connection attempt, which then tries no other host."""
        run_psql(self.url('postgres', user='postgres'), f'create database {name} owner {USER}')
        for node in self.nodes:
            url = self.url('postgres', user='postgres', hosts=[node]).replace('=read-write', '=any')
            wait_until(lambda: run_psql(url, f"select 1 from pg_database where datname = '{name}'"), 20, f'{name} on member {node}')

    def url(self, database, user=USER, hosts=None):
        """As docs/operations.md has it."""
        hosts = ','.join(self.address(n) for n in (self.nodes if hosts is None else hosts))
        return f'postgresql://{user}@{hosts}/{database}?target_session_attrs=read-write&connect_timeout=3'

    def log_tail(self, lines=15):
        def tail(name):
            with open(self.path(name), encoding='utf-8', errors='replace') as f:
                return f'--- {name}\n' + ''.join(f.readlines()[-lines:])
        return '\n'.join(tail(f'{n}.log') for n in self.nodes)


if __name__ == '__main__':
    sys.exit(why_no_patroni() or 0)
