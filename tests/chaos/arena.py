"""What a chaos run happens in: one Postgres (and a spare node), one RabbitMQ and a cluster of three, the proxy, and the
cells.

A cell is a database, a vhost, a transport, a few gateways behind links of the proxy, a workload that schedules, cancels
and moves messages, and a witness that writes down what arrives. The servers' faults hit all cells, a gateway's or a
link's only one.
"""
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pika

from cluster import Cluster
from disk import Disk
from gateway import Gateway
from ledger import Follower
from proxy import Proxy
from record import RETRY_ATTEMPTS, RETRY_FACTOR, RETRY_FIRST_MS, RETRY_MAX_MS
from refusals import open_refusals
from servers import DIE, ROOT, Postgres, Rabbit, wait_until
from witness import Witness

HERE = os.path.dirname(os.path.abspath(__file__))
OUT_QUEUE, SIDE_QUEUE = 'chaos.out', 'chaos.side'
TARGETS = {OUT_QUEUE: ('chaos.a', 'chaos.b'), SIDE_QUEUE: ('chaos.c',)}  # each queue's routing keys: a message goes to one
DELIVERY, SECOND, RETRY = 'postdate.delivery', 'chaos.second', 'postdate.retry'
GRACE = '2s'
NOTHING = dict.fromkeys(('attempted', 'accepted', 'delivered', 'open', 'owed', 'newest_accept_us',
                         'newest_delivered_attempt_us'), 0)

# name: (transport, gateways, types of the consumer's two queues); harmed is as ttl; those of BROKER_DELIVERS: RabbitMQ does the last hop; those of
# REJECTS: consumers reject by chance, their queues dead-letter to postdate.retry; seasons is of tests/seasons; those of SHARDED have several intake and exit queues; those of
# TWO_DATABASES are two Postdates behind one exchange, half of the gateways each
BROKER_DELIVERS = ('ttl-broker',)
HARMED = {'harmed': 0.001}  # so many of its messages are to harm the others: harm.py
REJECTS = ('retry', 'cluster-retry', 'seasons')
SHARDED, SHARDS = ('shards', 'cluster-shards'), 3
TWO_DATABASES, FEED = ('cells',), 'chaos.cells'
BOTH_QUORUM, BOTH_CLASSIC, ONE_OF_EACH, QUORUM_FIRST = ('quorum', 'quorum'), ('classic', 'classic'), ('classic', 'quorum'), ('quorum', 'classic')
CELLS = {
    'timer': ('timer', 3, BOTH_QUORUM),
    'ttl': ('ttl', 2, BOTH_CLASSIC),
    'plugin': ('plugin', 2, BOTH_QUORUM),
    'plugin-alone': ('plugin', 1, BOTH_CLASSIC),
    'ttl-broker': ('ttl', 2, BOTH_QUORUM),
    'native': ('native', 2, BOTH_QUORUM),
    'harmed': ('ttl', 2, BOTH_CLASSIC),
    'retry': ('ttl', 2, ONE_OF_EACH),
    'shards': ('ttl', 2, BOTH_QUORUM),
    'cells': ('ttl', 4, BOTH_QUORUM),
    'seasons': ('timer', 2, BOTH_QUORUM),
    'cluster-timer': ('timer', 3, BOTH_QUORUM),
    'cluster-ttl': ('ttl', 2, BOTH_QUORUM),
    'cluster-plugin': ('plugin', 2, QUORUM_FIRST),
    'cluster-native': ('native', 2, QUORUM_FIRST),
    'cluster-retry': ('timer', 2, BOTH_QUORUM),
    'cluster-shards': ('ttl', 2, BOTH_QUORUM),
}
# A queue of the quorum type lets go what it dead-letters when it is confirmed.
QUEUE_TYPES = {'classic': {}, 'quorum': {'x-queue-type': 'quorum'}}
RETRYING = {'classic': {'x-dead-letter-exchange': RETRY},
            'quorum': {'x-dead-letter-exchange': RETRY, 'x-dead-letter-strategy': 'at-least-once', 'x-overflow': 'reject-publish'}}
STILL_S = 5  # what is under way changes sooner


def bind_targets(channel, exchange):
    for queue, keys in TARGETS.items():
        for key in keys:
            channel.queue_bind(queue, exchange, key)


class Cell:
    def __init__(self, arena, name, seed, rate, **more):
        """more: of the workload's configuration."""
        self.arena, self.name, self.seed, self.rate, self.more = arena, name, seed, rate, more
        self.transport, count, types = CELLS[name]
        self.queue_types, self.rejects = dict(zip(TARGETS, types)), name in REJECTS
        self.last_hop = 'broker' if name in BROKER_DELIVERS else 'gateway'
        self.on_cluster = name.startswith('cluster-')
        self.rabbit = arena.cluster if self.on_cluster else arena.rabbit
        self.vhost, self.database, self.user = f'c-{name}', 'c_' + name.replace('-', '_'), f'gw-{name}'
        self.databases = [self.database] + [self.database + '_2'] * (name in TWO_DATABASES)
        self.intakes = ['postdate.intake' + (f'.{n}' if n > 1 else '') for n in range(1, SHARDS + 1 if name in SHARDED else 2)]
        self.directory = os.path.join(arena.evidence, name)
        os.makedirs(self.directory)
        self.workload, self.witnesses, self.dead_letters = None, [], {}
        self.rate_lock, self.rate_asked, self.limit = threading.Lock(), False, None
        self.status, self.status_at = {}, 0
        self.refusals, self.refusals_at = None, 0  # those that are open, and since when just these
        self.rabbit.make_vhost(self.vhost, ['guest', self.user])
        for database in self.databases:
            arena.postgres.primary.psql(f'create database {database} owner postdate')
        self.gateways = [self._gateway(i, i * len(self.databases) // count) for i in range(count)]
        for home in range(len(self.databases)):
            self._migrate(home)
        for g in self.gateways:
            g.start()

    # --- gateways
    def links(self, number=None):
        """Names of the links: of one gateway, or of all."""
        return [f'{self.name}.{i}.{server}' for i in range(len(self.gateways)) if number in (None, i)
                for server in (*self.amqp_links(), 'pg-a', 'pg-b')]

    def amqp_links(self):
        """One for each node of the broker."""
        return ['amqp'] if len(self.rabbit.ports) == 1 else [f'amqp-{n}' for n in range(1, len(self.rabbit.ports) + 1)]

    def _gateway(self, number, home):
        arena, ports = self.arena, {}
        targets = {**{link: ('127.0.0.1', port) for link, port in zip(self.amqp_links(), self.rabbit.ports)},
                   **{os.path.basename(n.directory): n.socket for n in arena.postgres.nodes}}
        for server, target in targets.items():
            ports[server] = arena.proxy.add(f'{self.name}.{number}.{server}', target)
        arena.proxy.listen(f'{self.name}.{number}.{os.path.basename(arena.postgres.spare.directory)}', False)
        settings = {
            'POSTDATE_POSTGRES_URL': f'postgresql://postdate@127.0.0.1:{ports["pg-a"]},127.0.0.1:{ports["pg-b"]}/'
                                     f'{self.databases[home]}?target_session_attrs=read-write&gssencmode=disable&sslmode=disable',
            'POSTDATE_AMQP_URL': self.rabbit.url(self.vhost, self.user, [ports[link] for link in self.amqp_links()]),
            'POSTDATE_AMQP_HEARTBEAT': '5s', 'POSTDATE_DELIVERY_MAX_DELAY': arena.max_delay, 'POSTDATE_DELIVERY_ALLOW': '*',
            'POSTDATE_HANDOVER_TRANSPORT': self.transport, 'POSTDATE_HANDOVER_LAST_HOP': self.last_hop,
            'POSTDATE_HANDOVER_GRACE': GRACE, 'POSTDATE_HANDOVER_MIN_AHEAD': '1s', 'POSTDATE_HANDOVER_WINDOW': '6m',
            'POSTDATE_RETRY_FIRST': '200ms', 'POSTDATE_RETRY_MAX': '2s', 'POSTDATE_RETRY_ATTEMPTS': '1000', **self._of_home(home),
        }
        if self.name in SHARDED:
            settings.update({'POSTDATE_INTAKE_QUEUES': str(SHARDS), 'POSTDATE_EXIT_QUEUES': str(SHARDS)})
        return Gateway(f'{self.name}.{number}', settings, os.path.join(self.directory, f'gateway-{number}.log'), arena.build,
                       arena.shim, arena.work, arena.clocks)

    def _of_home(self, home):
        """Settings of one of several Postdates; each finds what the others have."""
        if len(self.databases) == 1:
            return {}
        path = os.path.join(self.directory, 'cells.conf')
        with open(path, 'w', encoding='utf-8') as f:
            for number, database in enumerate(self.databases):
                f.write(f'[cell {number}]\npostgres.url = {self.arena.postgres.url(database)}\nnumber = {number}\n')
        return {'POSTDATE_AMQP_PREFIX': f'postdate{home or ""}', 'POSTDATE_CELL_NUMBER': str(home), 'POSTDATE_CELLS_FILE': path,
                'POSTDATE_CELL_EXCHANGE': FEED, 'POSTDATE_CELL_EXCHANGE_BY': 'message-id'}

    def _migrate(self, home):
        env = dict(os.environ, POSTDATE_CONFIG='/dev/null', POSTDATE_POSTGRES_URL=self.arena.postgres.url(self.databases[home]),
                   POSTDATE_DELIVERY_MAX_DELAY=self.arena.max_delay, POSTDATE_DELIVERY_ALLOW='*', **self._of_home(home))
        subprocess.run([os.path.join(self.arena.build, 'postdate'), 'migrate'], env=env, check=True, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if self.rejects:
            self.arena.postgres.primary.psql(
                f"select postdate.retry_policy_set('chaos.*', {RETRY_ATTEMPTS}, '{RETRY_FIRST_MS} ms', {RETRY_FACTOR}, "
                f"'{RETRY_MAX_MS} ms', 0)", self.database)

    # --- the consumer's side
    def amqp(self):
        return pika.BlockingConnection(pika.URLParameters(
            self.rabbit.url(self.vhost) + '?heartbeat=0&blocked_connection_timeout=30&socket_timeout=20'))

    def depth_of_intake(self):
        """What publishers have a confirm for, and no gateway has read."""
        connection = self.amqp()
        try:
            channel = connection.channel()
            return sum(channel.queue_declare(queue, passive=True).method.message_count for queue in self.intakes)
        finally:
            connection.close()

    def waiting(self, most):
        """How many wait to be delivered, counted up to `most`: counting a million would be a load of its own."""
        return sum(int(self.arena.postgres.primary.psql(
            f"select count(*) from (select from postdate.message_now where state in ('scheduled', 'claimed', 'handed') "
            f"and routing_key like 'chaos.%' limit {most}) s", database)[0][0]) for database in self.databases)

    def declare_target(self):
        """The consumer's queues and their bindings; an exchange of the user's beside the gateway's own."""
        def done():
            try:
                connection = self.amqp()
                channel = connection.channel()
                channel.exchange_declare(DELIVERY, 'topic', passive=True)
                if self.rejects:
                    channel.exchange_declare(RETRY, passive=True)
                channel.exchange_declare(SECOND, 'topic', durable=True)
                for queue, kind in self.queue_types.items():
                    channel.queue_declare(queue, durable=True, arguments={**QUEUE_TYPES[kind],
                                                                          **(RETRYING[kind] if self.rejects else {})})
                for exchange in (DELIVERY, SECOND):
                    bind_targets(channel, exchange)
                connection.close()
                return True
            except pika.exceptions.AMQPError:
                return False
        wait_until(done, 60, f'{self.name}: the delivery exchange')

    def start_load(self):
        """A witness for each queue, and the workload."""
        arena = self.arena
        for number, queue in enumerate(TARGETS, 1):
            self.witnesses.append(Witness(
                [os.path.join(arena.build, 'tests', 'chaos', 'witness'), '--url', self.rabbit.url(self.vhost), '--queue', queue,
                 '--out', os.path.join(arena.evidence, f'{self.name}.{number}.seen'),
                 *(['--rejects', self.queue_types[queue]] if self.rejects else [])],
                os.path.join(self.directory, f'witness-{number}.log'), arena.clocks and arena.clocks.env))
        config = os.path.join(self.directory, 'cell.json')
        with open(config, 'w', encoding='utf-8') as f:
            json.dump({'name': self.name, 'dir': arena.evidence, 'amqp_url': self.rabbit.url(self.vhost),
                       'postgres_url': arena.postgres.url(self.database), 'http': [g.http for g in self.gateways],
                       # Asked again, a request must come to the database that was asked before; who looks for a message may ask any.
                       **({'intake': FEED, 'http': [g.http for g in self.gateways[:len(self.gateways) // 2]],
                           'http_later': [g.http for g in self.gateways]} if len(self.databases) > 1 else {}),
                       'cli': os.path.join(arena.build, 'postdate'), 'seed': self.seed, 'rate': self.rate,
                       **({'harm': HARMED[self.name]} if self.name in HARMED else {}), **self.more,
                       'exchanges': [DELIVERY, SECOND], 'routing_keys': [key for keys in TARGETS.values() for key in keys]}, f)
        self.workload = subprocess.Popen([*DIE, sys.executable, os.path.join(HERE, 'workload.py'), config], text=True, bufsize=1,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         env=dict(os.environ, **(arena.clocks.env if arena.clocks else {})),
                                         stderr=open(os.path.join(self.directory, 'workload.log'), 'wb'))
        threading.Thread(target=self._read_status, daemon=True).start()

    def _read_status(self):
        for line in self.workload.stdout:
            self.status, self.status_at = json.loads(line), time.time()

    def tell(self, **order):
        self.workload.stdin.write(json.dumps(order) + '\n')
        self.workload.stdin.flush()

    def set_rate(self, rate):
        """Of all its messages, a second; None: there is none."""
        with self.rate_lock:
            self.rate_asked, self.limit = True, rate
            self.ask_for_rate()

    def ask_for_rate(self):
        """Until PostgreSQL answers."""
        query = "select postdate.rate_remove('*')" if self.limit is None else f"select postdate.rate_set('*', {self.limit})"

        def once():
            try:
                self.arena.postgres.primary.psql(query, self.database)
                return True
            except RuntimeError:
                return False
        wait_until(once, 120, 'PostgreSQL to take a rate', 0.5)

    def rate_again(self):
        """A standby that was promoted may lack the last one."""
        with self.rate_lock:
            if self.rate_asked:
                self.ask_for_rate()

    def owed(self):
        """Accepted, due for a while, and not delivered."""
        return self.arena.state(self.name)['owed']

    def fall_due(self, count, from_s, to_s):
        """So many plain messages, which RabbitMQ may wait with, are due between so many seconds from now; when the last one is."""
        wait_until(lambda: self.status_at, 60, f'{self.name}: the workload to run')
        now_ms = int(time.time() * 1000)
        self.tell(handed=count, from_ms=now_ms + int(from_s * 1000), to_ms=now_ms + int(to_s * 1000))
        return now_ms / 1000 + to_s

    def taken(self):
        """How many of what came out of RabbitMQ's waiting room the gateways have taken and not acknowledged; '?' if nobody can say."""
        try:
            return self.rabbit.count(self.vhost, 'postdate.exit', 'query_messages_checked_out')
        except RuntimeError:
            return '?'

    def in_intake(self):
        """What publishers have a confirm for, and the database does not have: in an intake queue, or taken from it by a gateway."""
        return sum(int(self.rabbit.count(self.vhost, queue, 'query_messages_total')) for queue in self.intakes)

    def dead(self):
        """Also of those that were there when it was asked before. (id that consumers saw, queue, failed, reason, exchange, routing key, when in microseconds, properties kept, body) of each dead letter."""
        rows = self.arena.postgres.primary.psql(
            "select coalesce(postdate.wire_properties(properties) -> 'headers' ->> 'x-postdate-id', id::text), queue, failed, reason, exchange, routing_key, (extract(epoch from died_at) * 1000000)::int8, "
            "octet_length(properties) > 0, encode(body, 'hex') from postdate.lineage where died_at is not null", self.database, 120)
        self.dead_letters.update((tuple(row), (*row[:8], bytes.fromhex(row[8]))) for row in rows)
        return list(self.dead_letters.values())

    def refusals_settled(self, asked):
        """Whether each rejection has led to another delivery or to a dead letter (of those of classic queues: or is lost, perhaps),
        and nothing has changed for a while. asked: since when this is waited for, by the monotonic clock."""
        found = open_refusals(self.arena.evidence, self.name, [row[8] for row in self.dead()])
        if found != self.refusals:
            self.refusals, self.refusals_at = found, time.monotonic()
        return 'quorum' not in found.values() and time.monotonic() - max(asked, self.refusals_at) > STILL_S

    def halt_gateways(self, number):
        """All of them end, and stay away."""
        for g in self.gateways:
            g.halt(number)
        wait_until(lambda: not any(g.running() for g in self.gateways), 60, f'{self.name}: all gateways to end')

    def start_gateways(self):
        for g in self.gateways:
            g.start()
        wait_until(lambda: all(g.running() for g in self.gateways), 10, f'{self.name}: all gateways to be started')

    def close(self):
        codes = [g.end() for g in self.gateways]
        for process in (self.workload, *(w.process for w in self.witnesses)):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        return codes


class Arena:
    def __init__(self, evidence, work, build, tmpfs_bytes, short=False, power=False, begins_s=None):
        """evidence: a folder that stays; work: one that goes; short: what would last for a minute lasts for some seconds; power: the servers
        of one node have a disk whose power can be cut; begins_s: all programs but RabbitMQ have the same clock, PostgreSQL's, and
        that says so many seconds since 1970."""
        self.evidence, self.work, self.build, self.short = evidence, work, build, short
        shim = os.path.join(build, 'tests', 'shim.so')
        self.shim = shim if os.path.exists(shim) else None
        self.cells, self.max_delay = {}, '400d' if begins_s else '3d'
        self.changed, self.changed_enough = threading.Condition(), threading.Event()
        self.states, self.states_at, self.closed = {}, 0, False
        self.rabbit = self.cluster = self.postgres = self.proxy = self.disk = None
        try:
            self.proxy = Proxy()
            self.disk = Disk(build, os.path.join(work, 'disk')) if power else None
            self.postgres = Postgres(work, 0 if power else tmpfs_bytes, self.disk and self.disk.folder)
            self.clocks = self.postgres.clocks if begins_s else None
            if begins_s:
                self.clocks.set_time(begins_s - time.time())
        except BaseException:
            self.close()
            raise

    def start_brokers(self, names, plugins):
        """Those that these cells use."""
        try:
            if not all(name.startswith('cluster-') for name in names):
                self.rabbit = Rabbit(os.path.join(self.work, 'mq'), plugins, self.disk and self.disk.folder)
            if any(name.startswith('cluster-') for name in names):
                self.cluster = Cluster(os.path.join(self.work, 'mq3'), plugins)
                # Publishers and consumers come in by a door that leads to whichever node is there.
                self.cluster.port = self.proxy.add('cluster.door', [['127.0.0.1', port] for port in self.cluster.ports])
        except BaseException:
            self.close()
            raise

    def add_cells(self, names, seed, rate, **more):
        for i, name in enumerate(names):
            self.cells[name] = Cell(self, name, seed * 100 + i, rate, **more)
        for cell in self.cells.values():
            cell.declare_target()
        time.sleep(2)  # a quorum queue that was declared right before a kill -9 of RabbitMQ 3.10 has no leader ever after
        if self.disk:
            self.disk.sync()

    def show_primary(self):
        """Where the primary is, something listens; where the spare is, connections are refused."""
        for node in self.postgres.nodes:
            for cell in self.cells.values():
                for link in cell.links():
                    if link.endswith(os.path.basename(node.directory)):
                        self.proxy.listen(link, node is self.postgres.primary)
        for cell in self.cells.values():
            cell.rate_again()

    def start_load(self):
        for cell in self.cells.values():
            cell.start_load()
        self.follower = Follower(self.evidence)
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self):
        while not self.closed:
            states = self.follower.poll()
            with self.changed:
                self.states, self.states_at = states, time.monotonic()
                self.changed.notify_all()
            self.changed_enough.wait(0.15)

    def state(self, cell):
        """What the ledger says by now: read after this was asked."""
        asked = time.monotonic()
        with self.changed:
            if not self.changed.wait_for(lambda: self.states_at - 0.15 > asked or self.closed, 60):
                raise TimeoutError('the ledger is not followed any more')
            return self.states.get(cell, NOTHING)

    def gateways(self):
        return [g for cell in self.cells.values() for g in cell.gateways]

    def close(self):
        """Everything ends, whatever happens; {cell: exit codes of its gateways}."""
        self.closed = True
        self.changed_enough.set()
        codes, errors = {}, []
        for name, cell in self.cells.items():
            try:
                codes[name] = cell.close()
            except Exception as e:  # noqa: BLE001  the others have to end, too
                errors.append(e)
        for part in (self.proxy, self.postgres, self.rabbit, self.cluster, self.disk):
            try:
                if part is not None:
                    part.close()
            except Exception as e:  # noqa: BLE001
                errors.append(e)
        if errors:
            raise errors[0]
        return codes
