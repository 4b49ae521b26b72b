"""Several exit queues (exit.queues): what RabbitMQ waited with comes out by each of them, and is delivered once."""
import os
import threading

import harness
import test_cluster
import test_relay
from door import Door, port_of, with_hosts
from handover_kit import Checks, handover
from harness import LiveTest, free_ports, now_ms, wait_until

QUEUES = 3
EXITS = ['postdate.exit', *(f'postdate.exit.{i}' for i in range(2, QUEUES + 1))]


class SharedExit:
    """Every gateway of the place has so many exit queues, and what comes out goes to all of them before a test begins."""
    queues = QUEUES

    def place(self, **options):
        p = super().place(**options)
        start = p.gateway

        def gateway(*args, **env):
            g = start(*args, **{'POSTDATE_EXIT_QUEUES': self.queues, **env})
            if args != (False,) and env.get('wait', True):
                wait_until(lambda: p.value('select exit_queues = 1 or exit_bound = exit_wanted from postdate.meta') == 't', 20, 'the exit queues to be bound')
            return g
        p.gateway = gateway
        return p


class Exit(SharedExit, Checks):
    weight = 30

    def depths(self, p):
        return [p.client().depth(name) for name in EXITS]

    def test_each_has_some_and_all_are_delivered_once(self):
        p = self.place()
        options = handover(self.transport, lead='1s')
        g = p.gateway(**options)
        inbox = p.consumer('k', bind='k')
        sent = self.publish_many(p, 'k', [6000 + 20 * i for i in range(60)])
        self.wait_held(p, 60)
        self.assertEqual(g.term(), 0)
        wait_until(lambda: sum(self.depths(p)) >= 60, 20, 'all to come out')
        print(f'note exit, {self.transport}: {self.depths(p)} in the exit queues', flush=True)
        self.assertGreater(min(self.depths(p)), 3)
        p.gateway(**options)
        inbox.wait(60, 20)
        self.wait_delivered(p, 60)
        self.assertEqual(sorted(m.body for m in inbox.all()), sorted(sent))
        self.assertEqual(self.depths(p), [0] * QUEUES)
        wait_until(lambda: p.value('select cardinality(relay_pings) = 3 and array_position(relay_pings, null) is null from postdate.instance') == 't',
                   10, 'a ping to come through each')

    @harness.given_time
    def test_one_that_gives_nothing_holds_up_no_other_and_loses_nothing(self):
        """As one without a leader: the others go on; what is in there is not taken for lost before it counts as dead."""
        p = self.place()
        g = p.gateway(**handover(self.transport, grace='1s'))
        inbox = p.load('consume', '--queue', 'k', '--exchange', 'postdate.delivery', '--bind', 'k', '--expect', 150,
                       '--timeout-s', 120, '--idle-s', 1).wait_consuming()
        first_ms = now_ms() + 8000 * self.pace
        p.load('publish', '--routing-key', 'k', '--count', 150, '--due-at-ms', first_ms, '--due-rate', 150).result()
        wait_until(lambda: p.counts() == {'handed': 150}, 8 * self.pace - 1, 'all to be handed over')
        queue = f"'{p.vhost}_{EXITS[2]}'"
        wait_until(lambda: now_ms() > first_ms - 6000, 60, 'less than half a minute to be left until it counts as dead')
        p.stack.rabbitmqctl('eval', f'sys:suspend({queue}).')
        try:
            if now_ms() >= first_ms - 1000:
                raise harness.TooSlow('the exit queue was not suspended in time')
            wait_until(lambda: now_ms() > first_ms + 15_000, 40, 'the others to be there, and the stuck ones to be overdue')
            delivered = p.counts()['delivered']
            self.assertGreater(delivered, 30)  # the shares of three queues are by chance: 50 to 115 of 150 came by two of them
            self.assertLess(delivered, 140)
            late = p.value("select count(*) from postdate.message_now where settled_at > due + interval '5 s'")
            self.assertEqual(late, '0', 'what came out by the others was late, or what is stuck was taken for lost')
            g.wait_log('queue postdate.exit.3 has delivered nothing for 30 s: no more messages are handed over', 40)
            self.assertIn("the queue 'postdate.exit.3' delivers nothing", p.cli('doctor')[1])
            r = inbox.result(120)
        finally:
            p.stack.rabbitmqctl('eval', f'sys:resume({queue}).')
        print(f'note exit, {self.transport}: {delivered} of 150 came out by two queues, the others at most {r["max_ms"]:.0f} ms late', flush=True)
        self.assertEqual((r['missing'], r['early'], r['duplicates']), (0, 0, 0), r)
        g.wait_log('queue postdate.exit.3 delivers messages again', 40)
        wait_until(lambda: self.depths(p) == [0] * QUEUES, 20, 'what was in there to be looked up')
        self.wait_delivered(p, 150)
        self.assertEqual(p.client().depth('k'), 0, 'delivered a second time')

    @harness.given_time
    def test_who_starts_while_one_gives_nothing_reads_the_others(self):
        """It stands still: what asks for it waits, and with it its channel."""
        self.start_without(2, 'sys:suspend({0})', 'sys:resume({0})')

    @harness.given_time
    def test_who_starts_while_the_first_one_is_dead_reads_the_others(self):
        """RabbitMQ could not bring it back: who reads from it loses the connection (541)."""
        self.start_without(0, 'ra:stop_server(quorum_queues, {{{0}, node()}})', 'ra:restart_server(quorum_queues, {{{0}, node()}})')

    def start_without(self, number, end, begin):
        p = self.place()
        options = handover(self.transport)
        g = p.gateway(**options)
        inbox = p.consumer('k', bind='k')
        self.publish_many(p, 'k', [4000 * self.pace + 10 * i for i in range(60)])
        self.wait_held(p, 60, 5 * self.pace)
        self.assertEqual(g.term(), 0)
        wait_until(lambda: sum(self.depths(p)) >= 60, 20, 'all to come out')
        stuck, queue = self.depths(p)[number], f"'{p.vhost}_{EXITS[number]}'"
        p.stack.rabbitmqctl('eval', end.format(queue) + '.')
        from_ms = now_ms()
        try:
            g = p.gateway(wait=False, **options)
            inbox.wait(60 - stuck, 15 * self.pace)
        finally:
            p.stack.rabbitmqctl('eval', begin.format(queue) + '.')
        print(f'note exit, {self.transport}: a gateway that started without {EXITS[number]} had read the others after {now_ms() - from_ms} ms', flush=True)
        inbox.wait(60, 60)
        self.wait_delivered(p, 60)
        self.assertEqual(len(inbox.all()), 60)

    @harness.given_time
    def test_what_waits_in_one_is_not_taken_for_lost_because_of_pings_through_the_others(self):
        """Somebody has what is in it, also the pings, in the place of the gateway."""
        p = self.place()
        p.gateway(**handover(self.transport, grace='1s'))
        inbox = p.consumer('k', bind='k')
        first_ms = now_ms() + 6000 * self.pace
        # Of small ones that come ahead of time the gateway reads more by a second consumer, which would share the queue with the taker.
        sent = self.publish_many(p, 'k', [first_ms - now_ms() + 10 * i for i in range(60)], 9000)
        self.wait_held(p, 60, 5 * self.pace)
        taker, had = p.client(), []
        ours = "[{element(2, C), element(1, C)} || C <- rabbit_amqqueue:consumers(Q)]"
        theirs = p.eval_queue(EXITS[2], f"{ours}.")
        taker.channel.basic_consume(EXITS[2], lambda *message: had.append(message))
        p.eval_queue(EXITS[2], f'[ra:process_command(amqqueue:get_pid(Q), rabbit_fifo:make_checkout(C, cancel, #{{}})) || C = {{T, _}} <- {ours}, '
                     'string:prefix(T, "exit/") =/= nomatch], ok.')
        if now_ms() >= first_ms - 500:
            raise harness.TooSlow('messages were due before the consumer was another one')
        self.assertIn('exit/3/0', theirs)
        wait_until(lambda: taker.channel.connection.process_data_events(0.1) or now_ms() > first_ms + 8000, 30, 'the others to be overdue')
        stuck = sum(m[2].headers is not None and 'x-postdate-id' in m[2].headers for m in had)
        print(f'note exit, {self.transport}: {stuck} of 60 were in that queue, {len(inbox.all())} delivered', flush=True)
        self.assertGreater(stuck, 5)
        self.assertEqual(len(inbox.all()), 60 - stuck, 'what was in that queue was taken for lost')
        taker.close()
        inbox.wait(60, 60)
        self.wait_delivered(p, 60)
        self.assertEqual(sorted(m.body for m in inbox.all()), sorted(sent))

    def test_any_number_of_them_at_any_time_loses_and_doubles_nothing(self):
        """Gateways with different numbers come and go while messages come out."""
        p = self.place()
        options = handover(self.transport, min_ahead='500ms')
        count, rate = 2400, 60
        first = p.gateway(**options, POSTDATE_EXIT_QUEUES=1)
        inbox = p.load('consume', '--queue', 'k', '--exchange', 'postdate.delivery', '--bind', 'k', '--expect', count,
                       '--timeout-s', 120, '--idle-s', 1).wait_consuming()
        first_ms = now_ms() + 6000
        p.load('publish', '--routing-key', 'k', '--count', count, '--due-at-ms', first_ms, '--due-rate', rate).result()
        self.assertEqual(p.psql('select exit_queues, exit_bound from postdate.meta'), [['1', '0']])
        seen = []
        for number in (3, 1, 2):
            g = p.gateway(**options, POSTDATE_EXIT_QUEUES=number)
            seen.append(p.psql('select exit_queues, exit_bound from postdate.meta')[0])
            left_ms = now_ms() + 2000
            wait_until(lambda: now_ms() > left_ms, 5, 'messages to come out')
            self.assertEqual(first.term(), 0)
            first = g
        self.assertEqual(seen, [['3', '3'], ['3', '1'], ['3', '2']])
        self.assertLess(now_ms(), first_ms + 1000 * count / rate, 'all came out before the end')
        r = inbox.result(120)
        print(f'note exit, {self.transport}: {count} while the number of exit queues changed: lateness p99 {r["p99_ms"]:.1f} ms, {r["duplicates"]} twice',
              flush=True)
        self.assertEqual((r['missing'], r['early'], r['duplicates']), (0, 0, 0), r)
        self.wait_delivered(p, count)
        wait_until(lambda: self.depths(p) == [0] * QUEUES, 10, 'what is left in those that are not bound to be taken')


class TtlExit(Exit, LiveTest):
    transport = 'ttl'


class PluginExit(Exit, LiveTest):
    transport = 'plugin'


class SlowBind(Door):
    """Holds the first request to bind postdate.exit to the ladder itself, and what follows it."""
    REQUEST = b'\x00\x32\x00\x14\x00\x00\x0dpostdate.exit\x11postdate.ttl.exit'

    def __init__(self, *where):
        super().__init__(*where)
        self.caught, self.let_go = threading.Event(), threading.Event()

    def read(self, ready):
        data = Door.read(ready)
        if self.REQUEST in data and not self.caught.is_set():
            self.caught.set()
            self.let_go.wait(60)
        return data


class ExitFirst(LiveTest):
    @harness.given_time
    def test_who_still_binds_as_if_there_were_one_is_waited_for(self):
        """Else what comes out would go both ways."""
        p = self.place()
        options = handover('ttl')
        door = SlowBind(free_ports(1)[0], port_of(p.amqp))
        door.open()
        self.addCleanup(door.close)
        self.addCleanup(door.let_go.set)
        p.gateway(wait=False, POSTDATE_AMQP_URL=with_hosts(p.amqp, door.address), **options)
        self.assertTrue(door.caught.wait(30), 'the gateway does not bind')
        p.gateway(wait=False, POSTDATE_EXIT_QUEUES=QUEUES, **options)
        wait_until(lambda: p.value('select exit_queues from postdate.meta') == str(QUEUES), 20, 'the other one to start')
        from_ms = now_ms()
        wait_until(lambda: now_ms() > from_ms + 9000 or p.value('select exit_bound from postdate.meta') != '0', 12, 'what comes out to be moved')
        self.assertEqual(p.value('select exit_bound from postdate.meta'), '0', 'moved while somebody was about to bind')
        door.let_go.set()
        wait_until(lambda: p.value('select exit_bound from postdate.meta') == str(QUEUES), 20, 'the exit queues to be bound')
        out = p.stack.rabbitmqctl('-q', 'list_bindings', '-p', p.vhost, 'source_name', 'destination_name')
        self.assertNotIn('postdate.ttl.exit\tpostdate.exit\n', out)

    def test_a_host_that_is_away_is_left_out(self):
        p = self.place()
        nobody = f'127.0.0.1:{free_ports(1)[0]}'
        g = p.gateway(POSTDATE_AMQP_URL=with_hosts(p.amqp, f'127.0.0.1:{port_of(p.amqp)}', nobody), POSTDATE_EXIT_QUEUES=QUEUES, **handover('ttl'))
        wait_until(lambda: p.value('select exit_bound from postdate.meta') == str(QUEUES), 30, 'the exit queues to be bound')
        g.wait_log('exit.queues: cannot query a host of amqp.url for its plugins and bindings', 5)


class ExitBack(Checks, LiveTest):
    transport = 'ttl'

    @harness.given_time
    def test_back_to_one_that_needs_no_plugin(self):
        """As docs/internals/scale.md says, with messages on their way."""
        p = self.place()
        options = handover(self.transport, min_ahead='500ms')
        bound = 'select exit_bound from postdate.meta'
        g = p.gateway(POSTDATE_EXIT_QUEUES=QUEUES, **options)
        wait_until(lambda: p.value(bound) == str(QUEUES), 20, 'the exit queues to be bound')
        inbox = p.consumer('k', bind='k')
        sent = self.publish_many(p, 'k', [25000 * self.pace + 50 * i for i in range(100)])
        wait_until(lambda: p.counts() == {'handed': 100}, 12 * self.pace, 'all to be handed over')
        self.assertEqual(g.term(), 0)
        g = p.gateway(POSTDATE_EXIT_QUEUES=1, **options)
        wait_until(lambda: p.value(bound) == '1', 10, 'one queue to be bound')
        self.assertEqual(g.term(), 0)
        p.psql('update postdate.meta set exit_queues = 1, exit_bound = 0')
        p.gateway(POSTDATE_EXIT_QUEUES=1, **options)
        bindings = lambda: p.stack.rabbitmqctl('-q', 'list_bindings', '-p', p.vhost, 'source_name', 'destination_name')
        wait_until(lambda: 'postdate.ttl.exit\tpostdate.exit\n' in bindings(), 20, 'it to be bound by itself')
        p.client().channel.exchange_delete('postdate.exit.shards')
        inbox.wait(100, 60)
        self.wait_delivered(p, 100)
        self.assertEqual(sorted(m.body for m in inbox.all()), sorted(sent))
        self.assertEqual(p.value(bound), '0')


class ExitMarks(LiveTest):
    def query(self, p, name):
        with open(os.path.join(harness.ROOT, 'sql', 'query', name), encoding='utf-8') as f:
            return p.psql(f.read())

    def test_a_gateway_that_knows_of_fewer_judges_by_all(self):
        p = self.place()
        p.psql('update postdate.meta set exit_queues = 3, exit_wanted = 3, exit_bound = 2; '
               'insert into postdate.instance (running_since, backend_pid, version, name, relay_at, relay_low, relay_pings, relay_consumers) '
               "values (now(), 0, 1, 'older', now(), now(), array[now()], '{1}'), "
               "(now(), 0, 1, 'newer', now(), now(), array[now() - interval '9 s', now() - interval '5 s', null], '{2,1,0}')")
        rows = self.query(p, 'relay_marks.sql')
        pings = [p.value(f"select round(extract(epoch from now() - '{row[2]}'))") if row[2] else None for row in rows]
        self.assertEqual((pings[0] < '5', pings[1] >= '5', pings[2]), (True, True, None), rows)
        self.assertEqual([row[3] for row in rows], ['3', '1', '0'])
        self.assertEqual({(row[8], row[9], row[10]) for row in rows}, {('3', '2', 'f')})
        self.query(p, 'relay_exit_bind.sql')  # one gateway does not read all of them
        self.assertEqual(p.value('select exit_bound from postdate.meta'), '2')
        p.psql("update postdate.instance set relay_consumers = '{1,1,1}'")
        self.query(p, 'relay_exit_bind.sql')
        self.assertEqual(p.value('select exit_bound from postdate.meta'), '3')


@harness.only_full  # the promises of one exit queue, with several
class TtlExitGateways(SharedExit, test_relay.TtlGateways):
    def test_what_a_purge_of_the_exit_queue_lost_is_rescued(self):
        p = self.place()
        options = handover(self.transport, grace='1s')
        g = p.gateway(**options)
        self.due_together(p, 50, 6_000)
        inbox = self.expect(p, 50)
        self.assertEqual(g.term(), 0)
        c = p.client()
        wait_until(lambda: sum(c.depth(name) for name in EXITS) >= 50, 15, 'all to come out')
        for name in EXITS:
            c.channel.queue_purge(name)
        p.gateway(**options)
        self.assertEqual(self.all_there(inbox, 'the exit queues were purged')['duplicates'], 0)
        self.wait_delivered(p, 50)


@harness.only_full  # proofs are in the first queue, what they prove came by any
class TtlExitAway(SharedExit, test_relay.TtlAway):
    pass


@harness.not_san
class ClusterExit(SharedExit, test_cluster.ClusterTtl):
    """Leaders on different nodes, one of which dies."""
    only_full = (*test_cluster.ClusterTtl.only_full, 'test_a_gateway_starts_while_a_node_is_away', 'test_a_node_stands_still',
                 'test_the_node_of_the_targets_is_killed_while_thousands_fall_due')

    def test_their_leaders_are_on_different_nodes(self):
        self.p.gateway(wait=False, **handover('ttl')).wait_ready(60)
        wait_until(lambda: self.p.value('select exit_bound from postdate.meta') == str(QUEUES), 20, 'the exit queues to be bound')
        # Where new ones are led RabbitMQ chooses by what else there is; this evens it out.
        leaders = self.cluster.leaders_apart(self.p.vhost, EXITS)
        print(f'note cluster: the exit queues are led by the nodes {leaders}', flush=True)
        self.assertGreater(len(set(leaders)), 1)
