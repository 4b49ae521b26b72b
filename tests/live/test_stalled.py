"""A queue that confirms nothing delays no other. A quorum queue without a leader does that; on one node, one whose process is suspended."""
import time

import harness
from door import Door, port_of, with_hosts
from handover_kit import handover
from harness import LiveTest, free_ports, now_ms, wait_until


class Queue:
    """A quorum queue that can stand still: its server's process is suspended, so that it takes nothing and answers nobody."""

    def __init__(self, place, name):
        self.place = place
        self.name = name
        self.client = place.client()
        self.client.channel.queue_declare(name, durable=True, arguments={'x-queue-type': 'quorum'})

    def call(self, function):
        self.place.eval_queue(self.name, f'sys:{function}(amqqueue:get_pid(Q)).')

    def suspend(self):
        self.call('suspend')

    def resume(self):
        self.call('resume')

    def bodies(self):
        out = []
        while (m := self.client.get(self.name)) is not None:
            out.append(m.body)
        return out


class Stalled(LiveTest):
    weight = 14
    who_waits = 'timer'

    def stream(self, p, what, seconds, count, key='live', begin_ms=5000):
        """Lateness of a steady stream to another queue."""
        inbox = p.load('consume', '--queue', key, '--exchange', 'postdate.delivery', '--bind', key, '--expect', count,
                       '--timeout-s', seconds + begin_ms // 1000 + 35, '--idle-s', 0.5).wait_consuming()
        p.load('publish', '--routing-key', key, '--count', count, '--delay-spread-ms', f'{begin_ms},{begin_ms + 1000 * seconds}').result()
        return inbox, what, count

    def late_ms(self, stream):
        inbox, what, count = stream
        r = inbox.result()
        print(f'note stalled: {what}: {count} messages to another queue: at most {r["max_ms"]:.1f} ms late, p99 {r["p99_ms"]:.1f} ms, p50 {r["p50_ms"]:.1f} ms',
              flush=True)
        self.assertEqual((r['missing'], r['early']), (0, 0), r)
        self.assertEqual(r['duplicates'], 0, r)
        return r['max_ms']

    def place_with(self, **options):
        """A place, and a queue that stands still, to which the gateway's channel has published before."""
        p = self.place()
        dead = Queue(p, 'dead')
        g = p.gateway(**options)
        p.psql("select postdate.schedule('dead', 'first', '0 s', exchange => '')")
        self.assertEqual(dead.client.wait_get('dead').body, b'first')
        wait_until(lambda: p.counts() == {'delivered': 1}, 5, 'it to be settled')
        p.psql('delete from postdate.message')
        dead.suspend()
        return p, g, dead

    def goes_on(self, p, dead, bodies, others, doubted=0):
        """It does, and all are there, once."""
        dead.resume()
        at = now_ms()
        wait_until(lambda: p.counts() == {'delivered': len(bodies) + others}, 15 + len(bodies) // 20, 'the rest to be delivered')
        print(f'note stalled: the {len(bodies)} were delivered {now_ms() - at} ms after it went on', flush=True)
        there = dead.bodies()
        self.assertEqual(sorted(set(there)), sorted(bodies))
        self.assertLessEqual(len(there) - len(bodies), doubted, [b[:20] for b in there])

    def stall(self, stalled, seconds, count, doubted=0, **options):
        p, g, dead = self.place_with(**options)
        p.psql(f"select postdate.schedule('dead', i::text, '6 s', exchange => '') from generate_series(1, {stalled}) i")
        self.late_ms(self.stream(p, f'{stalled} to a queue that stands still', seconds, count))  # all of it, before that queue goes on
        self.goes_on(p, dead, [str(i + 1).encode() for i in range(stalled)], count, doubted)
        return g

    def suspend_for(self, p, process, at_ms, for_ms):
        """RabbitMQ's process of that kind for the channel of the gateway's publisher, from at_ms on; other connections are served
        meanwhile. rabbitmqctl may take seconds to begin."""
        name = '{<<"connection_name">>, longstr, <<"postdate publisher">>}'
        p.stack.rabbitmqctl('eval', f'''
            Suspended = [P ||
                C <- rabbit_networking:connections(),
                [{{client_properties, Client}}, {{vhost, <<"{p.vhost}">>}}, {{name, Connection}}] <-
                    [catch rabbit_networking:connection_info(C, [client_properties, vhost, name])],
                lists:member({name}, Client),
                P <- processes(),
                {{dictionary, D}} <- [process_info(P, dictionary)],
                lists:member({{process_name, {{{process}, {{Connection, 1}}}}}}, D)],
            timer:sleep(max(0, {at_ms} - erlang:system_time(millisecond))),
            [sys:suspend(P) || P <- Suspended],
            timer:sleep({for_ms}),
            [catch sys:resume(P) || P <- Suspended].''')

    def held_up(self, p, what, hold, begin_ms, **options):
        """What came of a stream at 300 a second meanwhile. hold(at_ms) holds the gateway's publishes up from at_ms on."""
        g = p.gateway(POSTDATE_LOG_LEVEL='debug', **options)
        at_ms = now_ms() + begin_ms + 2000
        inbox, _, _ = self.stream(p, what, 5, 1500, begin_ms=begin_ms)
        hold(at_ms)
        r = inbox.result()
        print(f'note stalled: {what}: {r["duplicates"]} twice; at most {r["max_ms"]:.1f} ms late, p50 {r["p50_ms"]:.1f} ms', flush=True)
        self.assertEqual((r['missing'], r['early']), (0, 0), r)
        self.assertGreaterEqual(len(g.lines_with('switching to another connection')), 1, g.log())
        return r

    def suspended(self, process, for_ms):
        p = self.place()
        return self.held_up(p, f'{process} suspended for {for_ms} ms', lambda at_ms: self.suspend_for(p, process, at_ms, for_ms), begin_ms=8000)

    @harness.not_san  # it waits more than it computes
    def test_a_channel_that_answers_slowly_doubles_nothing(self):
        """What was in flight was published again on another connection at once, although it was there already."""
        self.assertEqual(self.suspended('rabbit_writer', 1200)['duplicates'], 0)

    def test_a_channel_that_stays_held_up_loses_nothing(self):
        r = self.suspended('rabbit_channel', 8000)
        self.assertLess(r['max_ms'], 7000 * harness.slowness())  # it is waited for, but not for as long as this

    def test_a_broker_that_stands_still_on_every_connection_gets_nothing_twice(self):
        """Each one was given up after a moment, with all that was unconfirmed on it, for another one that stood still, too; and the
        first one when the newest one was heard again, although RabbitMQ had only just gone on."""
        p = self.place()
        door = Door(free_ports(1)[0], port_of(p.amqp)).open()
        self.addCleanup(door.close)

        def hold(at_ms):
            time.sleep(max(0, at_ms - now_ms()) / 1000)
            door.hold_publishes()
            wait_until(lambda: door.held, 20, 'the first to be held up')  # from then on
            time.sleep(9.5)
            wait_until(lambda: len(door.held) >= 3, 10, 'three connections to be held up')
            door.release_publishes(1.5)
        r = self.held_up(p, 'publishes held up on each connection for 9.5 s', hold, begin_ms=2000, POSTDATE_AMQP_URL=with_hosts(p.amqp, door.address))
        self.assertEqual(r['duplicates'], 0)

    @harness.not_san  # as a hundred, but for the numbers
    def test_one_message_to_a_queue_that_stands_still_delays_no_other(self):
        """Confirm tags ran on until 4,096 lay between the first unconfirmed one and the next."""
        self.stall(1, 8, 4800)

    def test_a_hundred_messages_to_a_queue_that_stands_still_delay_no_other(self):
        """RabbitMQ reads nothing more from a channel that has 32 unconfirmed publishes to one quorum queue."""
        g = self.stall(100, 5, 1500)
        self.assertEqual(len(g.lines_with('confirms nothing')), 1, g.log())
        g.wait_log('confirms everything again')

    @harness.only_full
    def test_a_thousand_messages_for_twenty_seconds(self):
        for transport in ('timer', 'ttl', 'plugin'):
            with self.subTest(transport):
                self.stall(1000, 20, 4000, doubted=40, **handover(transport, grace='20s', what='all'))
    test_a_thousand_messages_for_twenty_seconds.vhosts = 3

    def test_what_waits_for_its_confirm_does_not_fill_the_memory(self):
        """Its row is given back, in doubt; the confirm that comes later settles it all the same."""
        p, g, dead = self.place_with()
        bodies = [bytes([65 + i]) * 2_000_000 for i in range(6)]
        for i in range(6):
            p.psql(f"select postdate.schedule('dead', repeat(chr({65 + i}), 2000000), '0 s', exchange => '')")
        given_back = "select count(*) from postdate.message_now where owner is null and state = 'claimed' and error like 'RabbitMQ has not confirmed%'"
        wait_until(lambda: int(p.value(given_back)) > 0, 10, 'some to be given back')
        p.psql("select postdate.schedule('other', 'x', '0 s', exchange => '')")
        p.client().queue('other')
        wait_until(lambda: p.value("select state from postdate.message_now where routing_key = 'other'") == 'delivered', 10, 'another to be delivered')
        self.goes_on(p, dead, bodies, 1, doubted=4)  # what was in flight is in doubt
