"""Faults of the network between a gateway and its servers."""
from faults import fault


def struck_links(x):
    """The link to one server of one gateway; sometimes of all of the cell's gateways."""
    number, _ = x.pick()
    nodes = x.cell.amqp_links()
    server = x.rng.choice(['amqp', 'pg', *(nodes if len(nodes) > 1 else [])])  # all nodes of RabbitMQ, or one
    every = x.rng.random() < 0.3
    links = [name for name in x.cell.links(None if every else number) if name.split('.')[-1].startswith(server)]
    return links, f'{server} of {"every gateway" if every else f"gateway {number}"}'


def strike(x, what, low_s, high_s, **mode):
    links, whose = struck_links(x)
    x.begin(f'{what}: {whose}')
    try:
        for link in links:
            x.arena.proxy.mode(link, **mode)
        x.wait(low_s, high_s)
    finally:
        for link in links:
            x.arena.proxy.mode(link)


@fault('network.cut', weight=4)
def network_cut(x):
    strike(x, 'reset, and new connections too', 0.3, 4, cut=True)


@fault('network.reset', weight=5)
def network_reset(x):
    links, whose = struck_links(x)
    x.begin(f'reset once: {whose}')
    for link in links:
        x.arena.proxy.reset(link)


@fault('network.hole', weight=2)
def network_hole(x):
    """Nothing goes through, nobody is told; longer than time-outs now and then."""
    strike(x, 'silence', *(x.rng.choice([(0.5, 2), (1, 4), (10, 14)])), hole=True)


@fault('network.one_way', weight=3)
def network_one_way(x):
    direction = x.rng.choice(['up', 'down'])
    strike(x, f'nothing goes {direction}', 0.5, 5, **{direction: False})


@fault('network.slow', weight=2)
def network_slow(x):
    strike(x, 'pieces of 1,400 bytes, 20 ms each', 1, 4, delay_ms=20, piece=1400)


@fault('network.slice', weight=3)
def network_slice(x):
    strike(x, 'one byte at a time', 1, 4, piece=1)


@fault('network.commit_cut', weight=4)
def network_commit_cut(x):
    """The answers to COMMITs are lost with their connections: done or not done, nobody knows."""
    links = [name for name in x.cell.links() if '.pg' in name]
    count = x.rng.randint(1, 3)
    x.begin(f'the answers to {count} commits of each gateway are lost')
    before = sum(x.arena.proxy.events(link)['commits_cut'] for link in links)
    try:
        for link in links:
            x.arena.proxy.mode(link, cut_commit=count)
        x.wait(1, 3)
    finally:
        for link in links:
            x.arena.proxy.mode(link)
    x.detail += f': {sum(x.arena.proxy.events(link)["commits_cut"] for link in links) - before} were'
