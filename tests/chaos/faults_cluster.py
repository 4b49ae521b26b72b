"""Faults of RabbitMQ's nodes where there are three: one at a time, so that two are left to serve."""
import os
import signal

from arena import OUT_QUEUE
from faults import fault
from faults_broker import EXIT, retry

INTAKE = 'postdate.intake'


def pick_node(x):
    return x.rng.randrange(len(x.arena.cluster.nodes))


def has_exit(cell):
    return cell.on_cluster and cell.transport != 'timer'


def pick_cell(x, queue):
    return x.rng.choice([c for c in x.arena.cells.values() if c.on_cluster and (queue != EXIT or has_exit(c))])


def leader_of(x, queue):
    """Its number; any node if the queue has no leader right now."""
    node = x.arena.cluster.leader(pick_cell(x, queue).vhost, queue)
    return pick_node(x) if node is None else node


def away(x, node, end):
    """It is gone for a while, and back."""
    cluster = x.arena.cluster
    end(node)
    x.wait(0.5, 12)
    cluster.start(node)


@fault('cluster.node_killed', scope='cluster', weight=2)
def node_killed(x):
    node = pick_node(x)
    x.begin(f'node {node} kill -9')
    away(x, node, x.arena.cluster.kill)


@fault('cluster.node_stopped', scope='cluster')
def node_stopped(x):
    node = pick_node(x)
    x.begin(f'node {node} SIGTERM')
    away(x, node, x.arena.cluster.stop)


@fault('cluster.target_leader_killed', scope='cluster', weight=2)
def target_leader_killed(x):
    node = leader_of(x, OUT_QUEUE)
    x.begin(f'node {node}, which leads a target queue, kill -9')
    away(x, node, x.arena.cluster.kill)


@fault('cluster.intake_leader_killed', scope='cluster', weight=2)
def intake_leader_killed(x):
    node = leader_of(x, INTAKE)
    x.begin(f'node {node}, which leads an intake queue, kill -9')
    away(x, node, x.arena.cluster.kill)


@fault('cluster.exit_leader_killed', scope='cluster', weight=2, only=has_exit)
def exit_leader_killed(x):
    """While messages come out of RabbitMQ's waiting room."""
    for cell in x.arena.cells.values():
        if has_exit(cell):
            cell.fall_due(300, 2, 8)
    x.wait(2, 4)
    node = leader_of(x, EXIT)
    x.begin(f'node {node}, which leads an exit queue, kill -9')
    away(x, node, x.arena.cluster.kill)


@fault('cluster.exit_leader_moved', weight=3, only=has_exit)
def exit_leader_moved(x):
    """While messages come out of RabbitMQ's waiting room: to each of the others, and where a rebalance has it."""
    cluster, vhost = x.arena.cluster, x.cell.vhost
    x.cell.fall_due(300, 2, 6)
    x.wait(2, 3)
    nodes = x.rng.sample(range(len(cluster.nodes)), len(cluster.nodes))
    x.begin(f'leader of {EXIT} moved to nodes {", ".join(map(str, nodes))}, rebalanced')
    for node in nodes:
        retry(lambda n=node: cluster.lead(vhost, EXIT, n))
        x.wait(0.1, 1)
    retry(lambda: cluster.rebalance(vhost, EXIT))


@fault('cluster.rolling_restart', scope='cluster', weight=2)
def rolling_restart(x):
    x.begin('stop_app and start_app of each node in turn')
    for node in range(len(x.arena.cluster.nodes)):
        x.arena.cluster.restart_app(node)


@fault('cluster.leaders_moved', scope='cluster', weight=5)
def leaders_moved(x):
    x.begin('leaders of intake and target moved')
    for cell in [c for c in x.arena.cells.values() if c.on_cluster]:
        for queue in (INTAKE, OUT_QUEUE):
            x.arena.cluster.lead(cell.vhost, queue, pick_node(x))
            x.wait(0.1, 0.5)


@fault('cluster.node_cut', scope='cluster', weight=4)
def node_cut(x):
    """A minority of one: it stops to serve (or, with Khepri, can do nothing) until it sees the others again."""
    node, cluster = leader_of(x, OUT_QUEUE) if x.rng.random() < 0.5 else pick_node(x), x.arena.cluster
    x.begin(f'node {node} cut off from the others')
    cluster.cut(node)
    try:
        x.wait(2, 12)
    finally:
        cluster.join(node)
    cluster.wait_whole()


@fault('cluster.node_hung', scope='cluster', weight=2)
def node_hung(x):
    """Its machine stands still: connections stay, nothing answers."""
    node, cluster = pick_node(x), x.arena.cluster
    pid = cluster.pid(node)
    x.begin(f'node {node} stands still')
    os.kill(pid, signal.SIGSTOP)
    try:
        x.wait(2, 12)
    finally:
        os.kill(pid, signal.SIGCONT)
    cluster.wait_whole()


@fault('cluster.close_connections', scope='cluster', weight=3)
def close_connections(x):
    node = pick_node(x)
    x.begin(f'close_all_connections of node {node}')
    x.arena.cluster.erlang('[catch rabbit_networking:close_connection(P, "chaos") || P <- rabbit_networking:local_connections()], ok.', node)
