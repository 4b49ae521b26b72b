"""What the tests of handing over share: settings, who waits where, and how to make RabbitMQ lose it.

The plugin is the double of tests/plugin_double unless STACK_PLUGINS_DIR named the real one when the servers started.
"""
import functools
import itertools
import random
import re

import harness
from harness import Stack, now_ms, wait_until
from web import Web

EXIT = 'postdate.exit'
RUNGS = [f'postdate.ttl.r16g100.l{level}.d{digit}' for level in (4, 3, 2, 1, 0) for digit in range(15, 0, -1)]
TTL_EXIT = 'postdate.ttl.exit'
DELAYED = 'postdate.delayed'
# Everything that waits, of the double and of the real plugin alike.
LOSE_DELAYED = ('[mnesia:clear_table(T) || T <- mnesia:system_info(tables), '
                'string:prefix(atom_to_list(T), "rabbit_delayed_message") =/= nomatch], ok.')
RESCUE_GRACE_MS = 1000
NUMBERS = itertools.count()
NEVER = '1h'  # as a grace: what the broker does not deliver fails the test


def handover(transport, grace=NEVER, min_ahead='300ms', window='6m', lead='150ms', **more):
    """The settings of a gateway; a short window makes a low ladder, which is quicker to declare. What is nearer than twice the
    lead is not handed over: a short one lets tests do with short delays."""
    env = {'transport': transport, 'grace': grace, 'min_ahead': min_ahead, 'window': window, **more}
    return {'POSTDATE_DELIVERY_LEAD': lead, **{'POSTDATE_HANDOVER_' + k.upper(): v for k, v in env.items()}}


def who_held(p, messages):
    """{body: 'broker' or 'timer'}. Consumers can't see it. A row that was handed over is to be rescued after its grace, and keeps
    that time when it is delivered."""
    ids = ', '.join(f"'{m.id}'" for m in messages)
    rows = dict(p.psql(f"select id, case when next_at > due then 'broker' else 'timer' end from postdate.message_now where id in ({ids})"))
    return {m.body: rows[m.id] for m in messages}


def metric(g, name):
    """A counter or a gauge of that gateway; -1: it has none, or not yet."""
    web = Web(g.http())
    try:
        found = re.search(rf'^{name} (\d+)', web.get('/metrics').body.decode(), re.M)
        return int(found[1]) if found else -1
    finally:
        web.close()


def relayed(g):
    """How many messages that gateway has taken from the exit queue."""
    return metric(g, 'postdate_messages_relayed_total')


def held_by_broker(p, transport):
    """How many messages wait in RabbitMQ, counted there."""
    if transport == 'ttl':
        c = p.client()
        try:
            return sum(c.depth(queue) or 0 for queue in RUNGS)
        finally:
            c.close()
    if transport == 'native':
        return int(p.eval_queue(EXIT, '{ok, {_, O}, _} = ra:local_query(amqqueue:get_pid(Q), fun rabbit_fifo:overview/1), '
                                'maps:get(num_delayed_messages, O).'))
    # The real plugin and its double both answer this.
    erlang = (f'X = rabbit_misc:r(<<"{p.vhost}">>, exchange, <<"{DELAYED}">>), '
              'case rabbit_exchange:lookup(X) of {ok, E} -> proplists:get_value(messages_delayed, '
              'rabbit_exchange:info(E, [messages_delayed])); _ -> 0 end.')
    return int(p.stack.rabbitmqctl('eval', erlang))


class Checks:
    """What the test classes below share; `transport` says who waits."""
    transport = 'timer'

    @property
    def broker_waits(self):
        return self.transport != 'timer'

    def assert_held_by(self, p, messages, holder=None):
        """All of them; by default by the one that the transport says."""
        holder = holder or ('broker' if self.broker_waits else 'timer')
        self.assertEqual(who_held(p, messages), {m.body: holder for m in messages})

    def wait_held(self, p, count, deadline_s=15):
        """Until so many messages wait: handed, if the broker is to wait, else with the gateway."""
        state = 'handed' if self.broker_waits else 'scheduled'
        wait_until(lambda: p.counts().get(state, 0) == count, deadline_s, f'{count} messages {state}')

    def wait_delivered(self, p, count, deadline_s=15):
        wait_until(lambda: p.counts() == {'delivered': count}, deadline_s, f'{count} messages, all delivered')

    def assert_each_once_and_not_early(self, inbox, sent):
        """sent: {body: earliest time}"""
        messages = inbox.all()
        self.assertEqual(sorted(m.body for m in messages), sorted(sent))
        for m in messages:
            self.assertGreaterEqual(m.at_ms, sent[m.body], f'{m.body!r} was early')
            self.assertGreaterEqual(m.at_ms, m.due_ms, f'{m.body!r} was early')
            self.assertIsNotNone(m.id)

    def publish_many(self, p, key, delays, least_bytes=0):
        """A message for each delay, shuffled; {body: earliest time}."""
        c, sent = p.client(), {}
        numbered = list(enumerate(delays))
        random.Random(7).shuffle(numbered)
        for number, delay in numbered:
            body = f'{number} {delay}'.ljust(least_bytes).encode()
            sent[body] = now_ms() + delay
            c.publish(key, body, {'x-delay': delay})
        return sent


class OwnServers(Checks):
    """The plugin's messages are all in one table of the broker: losing them must not disturb other tests. The classes
    share these servers and use them one after the other, because starting them costs as much as many a test."""
    weight = 90
    vhosts = 0
    together = 'own servers'  # those without the plugin have a name of their own
    plugins = None            # the folder; None: as for the shared servers
    places_most = 6           # so many a class may have
    exchange_type = False     # Postdate's own instead of the plugin; those with it have a `together` of their own, too

    @classmethod
    def setUpClass(cls):
        cls.servers = own_servers(cls.plugins, cls.exchange_type)
        cls.servers.start()  # if they do not run
        cls.servers.make_vhosts([f'{cls.__name__.lower()}{i}' for i in range(cls.places_most)])

    def place(self, **options):
        """Never dropped: the whole stack is."""
        if not self.servers.vhosts:  # tests that were too slow began again
            self.servers.make_vhosts([f'more{next(NUMBERS)}'])
        p = harness.Place(self.servers, **options)
        self.places = [p]
        self.addCleanup(p.close, drop=False)
        return p


@functools.cache
def own_servers(plugins, exchange_type):
    name = 'type' if exchange_type else 'own' if plugins is None else 'bare'
    servers = Stack.own(harness.at_end_of_job, name, plugins, exchange_type)
    harness.at_end_of_job(own_servers.cache_clear)
    return servers
