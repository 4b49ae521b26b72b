"""What RabbitMQ waited with is delivered by a gateway: with nothing but RabbitMQ, to targets that refuse, by whichever gateway
lives, once, and not early."""
import collections
import os
import signal
import time

import pika

import harness
from handover_kit import RUNGS, Checks, OwnServers, handover, metric, relayed
from wire import Wire  # noqa
from harness import LiveTest, now_ms, wait_until
from test_crash_points import SHIM

AWAY_S, AWAY_RATE = (60, 1000) if harness.FULL else (12, 250)
TARGETS = {'classic': {}, 'quorum': {'x-queue-type': 'quorum'}}
IN_FLIGHT = 1024 + 256  # docs/guarantees.md: what the death of a gateway can double
PROOF_POINTS = ('proof.before', 'proof.half', 'proof.after', 'proof_confirm.before')
REFUSED = 1000 if harness.FULL else 60


class Relay(Checks):
    def due_together(self, p, count, ahead_ms, key='k'):
        """Hands over so many that are due within a second; when the first is."""
        first_ms = now_ms() + ahead_ms
        p.load('publish', '--routing-key', key, '--count', count, '--due-at-ms', first_ms, '--due-rate', count).result()
        wait_until(lambda: p.counts().get('handed', 0) == count, ahead_ms / 1000 - 1, f'{count} to be handed over')
        return first_ms

    def expect(self, p, count, key='k', timeout_s=60):
        return p.load('consume', '--queue', key, '--exchange', 'postdate.delivery', '--bind', key, '--expect', count,
                      '--timeout-s', timeout_s, '--idle-s', 1, '--retry').wait_consuming()

    def all_there(self, inbox, what, deadline_s=120):
        r = inbox.result(deadline_s)
        print(f'note relay, {self.transport}: {what}: {r["missing"]} missing, {r["early"]} early, {r["duplicates"]} twice, '
              f'lateness p50 {r["p50_ms"]:.1f}, p99 {r["p99_ms"]:.1f}, at most {r["max_ms"]:.1f} ms', flush=True)
        self.assertEqual((r['missing'], r['early'], r['unexpected']), (0, 0, 0), r)
        return r

    def close_relays(self, p):
        """The connections over which gateways take from the exit queue."""
        closed = p.stack.rabbitmqctl('eval', 'length([rabbit_networking:close_connection(C, "a test") || [{pid, C}, {vhost, V}, {client_properties, P}] <- '
                                     f'rabbit_networking:connection_info_all([pid, vhost, client_properties]), V =:= <<"{p.vhost}">>, '
                                     'lists:member({<<"connection_name">>, longstr, <<"postdate relay">>}, P)]).')
        return int(closed)


class Gateways(Relay):
    weight = 30

    def test_another_gateway_delivers_what_a_dead_one_had_taken(self):
        p = self.place()
        options = {**handover(self.transport, min_ahead='1s'), 'POSTDATE_DELIVERY_LEAD': '8s'}
        first = p.gateway(**options)
        inbox = self.expect(p, 500)
        due_ms = self.due_together(p, 500, 18_000)
        wait_until(lambda: relayed(first) == 500, 25, 'the first to have taken them')
        p.gateway(**options)
        first.kill9()
        begun = now_ms() >= due_ms  # on a machine that is that busy
        r = self.all_there(inbox, 'the gateway that had taken them was killed')
        self.assertLessEqual(r['duplicates'], IN_FLIGHT if begun else 0)
        self.wait_delivered(p, 500)

    @harness.not_san  # as for a heartbeat
    def test_one_that_dies_while_it_looks_up_what_a_dead_one_had_taken(self):
        p = self.place()
        options = handover(self.transport, grace='20s')
        for number, point in enumerate(('relay_claim.before', 'relay_claim.after')):
            first = p.gateway(LD_PRELOAD=SHIM, POSTDATE_CRASH='relay_publish.before:1', **options)
            inbox = self.expect(p, 50, key=f'k{number}')
            c = p.client()
            c.queue(f'copies{number}', f'k{number}')
            self.due_together(p, 50, 6_000, key=f'k{number}')
            wait_until(lambda: first.lines_with('died at relay_publish.before'), 20, 'the first one to die')
            second = p.gateway(wait=False, LD_PRELOAD=SHIM, POSTDATE_CRASH=f'{point}:1', **options)
            wait_until(lambda: second.lines_with(f'died at {point}'), 20, f'the second one to die at {point}')
            delivered = c.depth(f'copies{number}')  # by the second one, for what nobody had taken before needs no looking up; it may not be settled
            p.gateway(**options)
            r = self.all_there(inbox, f'one died, the next one at {point}')
            self.assertLessEqual(r['duplicates'], delivered)
            self.assertLess(r['max_ms'], 15_000, 'they waited for grace')
            self.wait_delivered(p, 50 * (number + 1))
            p.gateways[-1].kill9()

    def test_one_that_is_paused_past_grace_publishes_nothing_twice(self):
        p = self.place()
        options = {**handover(self.transport, min_ahead='1s', grace='3s'), 'POSTDATE_DELIVERY_LEAD': '4s',
                   'POSTDATE_AMQP_HEARTBEAT': '2s'}
        first = p.gateway(**options)
        inbox = self.expect(p, 300)
        due_ms = self.due_together(p, 300, 13_000)
        wait_until(lambda: p.client().depth('postdate.exit') == 0 and now_ms() > due_ms - 3000, 15, 'the first to have taken them')
        first.pause()
        try:
            p.gateway(**options)
            self.wait_delivered(p, 300, 60)
        finally:
            first.resume()
        time.sleep(2)
        r = self.all_there(inbox, 'the gateway that had taken them stood still')
        self.assertEqual(r['duplicates'], 0)
        self.assertEqual(p.client().depth('k'), 0)

    def test_one_that_is_paused_for_a_heartbeat_publishes_nothing_twice(self):
        """RabbitMQ gives what it had taken to another one, once two heartbeats did not come; they may be short ones. Here its relay's
        connection is closed meanwhile, and those of its publishers are not. So nothing tells it but the time, until it has read
        that far: heartbeats of RabbitMQ's come first. It wakes up while they fall due."""
        p = self.place()
        options = {**handover(self.transport, min_ahead='1s', grace='60s'), 'POSTDATE_DELIVERY_LEAD': '6500ms', 'POSTDATE_AMQP_HEARTBEAT': '3s'}
        first = p.gateway(**options)
        inbox = self.expect(p, 1000)
        due_ms = now_ms() + 15_000
        p.load('publish', '--routing-key', 'k', '--count', 1000, '--due-at-ms', due_ms, '--due-rate', 500).result()
        wait_until(lambda: relayed(first) == 1000 and now_ms() > due_ms - 4000, 20, 'the first to have taken them')
        paused_s = time.monotonic()
        first.pause()
        try:
            wait_until(lambda: time.monotonic() > paused_s + 2.7, 4, 'a heartbeat to be sent to it')
            self.close_relays(p)
            p.gateway(**options)
            wait_until(lambda: 'handed' not in p.counts() and now_ms() > due_ms + 100, 20, 'the other one to have them')
        finally:
            first.resume()
        self.wait_delivered(p, 1000)
        r = self.all_there(inbox, 'the gateway that had taken them stood still for a heartbeat')
        self.assertEqual(r['duplicates'], 0)
        self.assertEqual(p.client().depth('k'), 0)

    def test_connections_that_are_closed_double_nothing(self):
        """The other gateway gets what the first one has published and is about to settle, and looks a quarter of a second after it was due.
        What is not settled by then, on a busy machine, may come twice, and nothing else."""
        p = self.place()
        for _ in range(2):
            p.gateway(**handover(self.transport, grace='20s'))
        count, closed = 1200, 0
        inbox = p.consumer('k', bind='k')
        first_ms = now_ms() + 6000
        p.load('publish', '--routing-key', 'k', '--count', count, '--due-at-ms', first_ms, '--due-rate', 100).result()
        wait_until(lambda: now_ms() > first_ms, 20, 'the first to be due')
        while closed < 16 and now_ms() < first_ms + 11_000:
            closed += self.close_relays(p)
        self.assertGreater(closed, 0)
        wait_until(lambda: len({m.id for m in inbox.all()}) == count, 60, 'all of them')
        self.wait_delivered(p, count, 60)
        wait_until(lambda: p.client().depth('k') == 0, 10, 'what came twice')
        self.assertEqual([m.id for m in inbox.all() if m.at_ms < m.due_ms], [], 'early')
        twice = sorted({i for i, n in collections.Counter(m.id for m in inbox.all()).items() if n > 1})
        slow = {i for i, in p.psql("select id from postdate.message_now where settled_at >= due + interval '250 ms'")}
        print(f'note relay, {self.transport}: {closed} connections of relays closed: {len(twice)} twice, {len(slow)} settled late', flush=True)
        self.assertEqual([i for i in twice if i not in slow], [])

    @harness.given_time
    def test_what_rabbitmq_gives_to_another_one_behind_its_back_comes_once(self):
        """As when a node loses sight of another one for a moment: what the consumers there have goes to others."""
        p = self.place()
        options = {**handover(self.transport, min_ahead='1s'), 'POSTDATE_DELIVERY_LEAD': f'{4 * self.pace}s'}
        first = p.gateway(**options)
        inbox = self.expect(p, 300)
        due_ms = self.due_together(p, 300, 5000 + 8000 * self.pace)  # what is nearer than twice the lead is not handed over
        wait_until(lambda: relayed(first) == 300, 15 + 4 * self.pace, 'the first to have taken them')
        p.gateway(**options)
        p.eval_queue('postdate.exit', '[ra:process_command(amqqueue:get_pid(Q), Command) || Command <- [{down, element(1, C), noconnection} '
                     '|| C <- rabbit_amqqueue:consumers(Q)] ++ [{nodeup, node()}]], ok.')
        if now_ms() >= due_ms:
            raise harness.TooSlow('the other gateway had not been given them in time')
        r = self.all_there(inbox, 'RabbitMQ gave them to another gateway, too')
        self.assertLessEqual(r['duplicates'], 5)  # what is not settled a quarter of a second after it was due; 166 before
        self.assertLess(r['max_ms'], 2000 * harness.slowness())
        self.wait_delivered(p, 300)
        self.assertEqual(p.client().depth('k'), 0, 'delivered a second time')

    @harness.given_time
    def test_an_exit_queue_that_gives_nothing_holds_nothing_up_for_long(self):
        """As one that RabbitMQ has lost, or that has no majority: everything waits in it, also the pings."""
        p = self.place()
        g = p.gateway(**handover(self.transport, grace='3s'))
        inbox = self.expect(p, 100, timeout_s=120)
        due_ms = self.due_together(p, 100, 10_000 * self.pace)
        queue = f"'{p.vhost}_postdate.exit'"
        p.stack.rabbitmqctl('eval', f'sys:suspend({queue}).')
        try:
            if now_ms() >= due_ms - 1000:
                raise harness.TooSlow('the exit queue was not suspended in time')
            r = self.all_there(inbox, 'the exit queue gives nothing')
            self.assertLess(r['max_ms'], 60_000 * harness.slowness())
            self.assertEqual(r['duplicates'], 0)
            g.wait_log('queue postdate.exit has delivered nothing for 30 s: no more messages are handed over', 10)
            _, out, _ = p.cli('doctor')
            self.assertIn("the queue 'postdate.exit' delivers nothing", out)
            self.assertIn(f"rabbitmqctl delete_queue -p '{p.vhost}' postdate.exit", out)
            self.wait_delivered(p, 100)
            at_ms = now_ms() + 5000
            other = p.load('consume', '--queue', 'other', '--exchange', 'postdate.delivery', '--bind', 'other', '--expect', 50,
                           '--timeout-s', 60, '--idle-s', 1).wait_consuming()
            p.load('publish', '--routing-key', 'other', '--count', 50, '--due-at-ms', at_ms, '--due-rate', 50).result()
            late = self.all_there(other, 'what came after that')
            self.assertLess(late['p99_ms'], 2000 * harness.slowness())  # the gateway holds it
        finally:
            p.stack.rabbitmqctl('eval', f'sys:resume({queue}).')
        g.wait_log('queue postdate.exit delivers messages again', 30)
        wait_until(lambda: p.client().depth('postdate.exit') == 0, 20, 'what was in there to be looked up')
        self.assertEqual(p.client().depth('k'), 0, 'delivered a second time')
        p.load('publish', '--routing-key', 'k', '--count', 20, '--due-at-ms', now_ms() + 10_000, '--due-rate', 20).result()
        wait_until(lambda: p.counts().get('handed') == 20, 9, 'messages to be handed over again')

    def test_what_a_purge_of_the_exit_queue_lost_is_rescued(self):
        p = self.place()
        options = {**handover(self.transport, grace='1s')}
        g = p.gateway(**options)
        due_ms = self.due_together(p, 50, 6_000)
        inbox = self.expect(p, 50)
        self.assertEqual(g.term(), 0)
        c = p.client()
        wait_until(lambda: (c.depth('postdate.exit') or 0) >= 50, 15, 'all to come out')  # and a ping that nobody took
        c.channel.queue_purge('postdate.exit')
        self.assertGreater(now_ms(), due_ms - 1000)
        p.gateway(**options)
        self.assertEqual(self.all_there(inbox, 'the exit queue was purged')['duplicates'], 0)
        self.wait_delivered(p, 50)

    def test_a_deleted_exit_queue_is_there_again(self):
        p = self.place()
        p.gateway(**handover(self.transport, grace='2s'))
        inbox = self.expect(p, 40)
        self.due_together(p, 20, 6_000)
        p.client().channel.queue_delete('postdate.exit')
        wait_until(lambda: p.client().depth('postdate.exit') is not None, 10, 'it to be there again')
        p.load('publish', '--routing-key', 'k', '--count', 20, '--start', 20, '--delay-ms', 4000).result()
        self.assertEqual(self.all_there(inbox, 'the exit queue was deleted')['duplicates'], 0)
        self.wait_delivered(p, 40)


class Mixed(Relay, LiveTest):
    transport = 'ttl'
    weight = 30

    def test_held_and_relayed_messages_in_turn_are_settled_at_once(self):
        p = self.place()
        p.gateway(**handover(self.transport))
        count, rate = (1200, 200) if harness.SAN else (2400, 400)
        p.client().queue('k', 'k')
        p.psql("select count(postdate.schedule('k', 'x', due_at => now() + interval '4 s' + i * interval '1 s' / %d, "
               "hold => case i %% 2 when 0 then 'gateway' else 'broker' end)) from generate_series(1, %d) i" % (rate, count))
        self.wait_delivered(p, count, 60)
        ms = float(p.value('select 1000 * percentile_cont(0.5) within group (order by extract(epoch from settled_at - due)) from postdate.message_now'))
        print(f'note relay, {self.transport}: held and relayed in turn: half of them settled {ms:.0f} ms after they were due', flush=True)
        self.assertLess(ms, 2500 * harness.slowness())  # 4,000 where a batch ends at the first message of the other kind


    @staticmethod
    def lock_waits(p):
        with harness.stack().postgres_log() as f:
            return sum(f'postdate settler@{p.database} ' in line and 'lock timeout' in line for line in f)

    def test_what_only_looks_like_a_proof_settles_nothing(self):
        p = self.place()
        g = p.gateway(**handover(self.transport))
        inbox = self.expect(p, 20)
        self.due_together(p, 20, 6_000)
        ids = [row[0] for row in p.psql('select id from postdate.message_now order by id')]
        raw = [bytes.fromhex(i.replace('-', '')) for i in ids]
        client = p.client()
        for body in (raw[0][:15], raw[0] + b'x', raw[0] + bytes(16), raw[0] * 501):
            client.channel.basic_publish('', 'postdate.exit', body, pika.BasicProperties(
                headers={'x-postdate-id': ids[0], 'x-postdate-delivered': ''}))
        self.assertEqual(self.all_there(inbox, 'false proofs')['duplicates'], 0)
        self.wait_delivered(p, 20)
        self.assertEqual(len(g.lines_with('another client publishes to postdate.exit.*the first:')), 1)
        wait_until(lambda: p.client().depth('postdate.exit') == 0, 10, 'the false ones to be removed')

    def test_rows_that_somebody_has_locked_hold_up_no_other(self):
        """They are delivered, and cannot be settled: they count for nothing at which publishers stop."""
        p = self.place()
        p.gateway(**handover(self.transport, grace='20s'))
        count, rate = 600, 200
        inbox, other = self.expect(p, count), p.consumer('locked', bind='locked')
        first_ms = now_ms() + 8000
        for key in ('k', 'locked'):
            p.load('publish', '--routing-key', key, '--count', count, '--due-at-ms', first_ms, '--due-rate', rate).result()
        wait_until(lambda: p.counts() == {'handed': 2 * count}, (first_ms - now_ms()) / 1000 - 1, 'all to be handed over')
        session = p.session()
        session.run("begin; select count(*) from (select from postdate.message where routing_key = 'locked' for update) l")
        waits, locked_ms = self.lock_waits(p), now_ms()
        r = self.all_there(inbox, f'beside {count} whose rows are locked')
        waits, locked_ms = self.lock_waits(p) - waits, now_ms() - locked_ms
        print(f'note relay: for locked rows the settler waited {waits} times in {locked_ms / 1000:.1f} s', flush=True)
        wait_until(lambda: len(other.all()) == count, 20, 'the others, too')
        session.run('rollback')
        session.close()
        self.assertEqual(r['duplicates'], 0)
        self.assertGreater(waits, 0)
        self.assertLessEqual(waits, locked_ms / 1000 + 1, 'not each batch waits for them')
        self.assertLess(r['p99_ms'], 2000 * harness.slowness())
        self.wait_delivered(p, 2 * count, 60)

    def test_held_ones_that_cannot_be_settled_hold_up_none_that_rabbitmq_released(self):
        p = self.place()
        p.gateway(**handover(self.transport, grace='20s', lead='3s', min_ahead='1s'))
        count, held = 300, 900
        inbox, other = self.expect(p, count), p.consumer('held', bind='held')
        first_ms = now_ms() + 10_000
        p.load('publish', '--routing-key', 'k', '--count', count, '--due-at-ms', first_ms, '--due-rate', 50).result()
        p.psql(f"select count(postdate.schedule('held', 'x', due_at => to_timestamp({(first_ms + 1000) / 1000}))) from generate_series(1, {held})")
        wait_until(lambda: p.claimed() == held, 20, 'those that the gateway holds to be claimed')
        settler = int(p.value("select pid from pg_stat_activity where application_name = 'postdate settler' "
                              f"and datname = '{p.database}'"))
        os.kill(settler, signal.SIGSTOP)
        try:
            r = self.all_there(inbox, f'nothing is settled, beside {held} that the gateway held')
            print(f'note relay: {len(other.all())} of {held} held ones were published meanwhile', flush=True)
        finally:
            os.kill(settler, signal.SIGCONT)
        self.assertEqual(r['duplicates'], 0)
        self.assertLess(r['max_ms'], 3000 * harness.slowness())
        wait_until(lambda: len({m.id for m in other.all()}) == held, 60, 'the others, too')
        self.wait_delivered(p, count + held, 60)


class Targets(Relay):
    time_limit_s = 120 if not harness.FULL else 1200

    def test_a_target_that_refuses_gets_all_in_the_end_and_delays_no_other(self):
        for kind, arguments in TARGETS.items():
            with self.subTest(kind):
                p = self.place()
                p.gateway(**handover(self.transport))
                c = p.client()
                c.queue('full', 'full', arguments={'x-max-length': 5, 'x-overflow': 'reject-publish', **arguments})
                inbox = self.expect(p, 200)
                at = now_ms()
                for i in range(REFUSED):
                    c.publish('full', b'%d' % i, {'x-delay': 4000})
                p.load('publish', '--routing-key', 'k', '--count', 200, '--due-at-ms', at + 5000, '--due-rate', 100).result()
                r = self.all_there(inbox, 'another target refuses')
                self.assertLess(r['p99_ms'], 2000 * harness.slowness())
                got = set()

                def drain():
                    while (m := c.get('full')) is not None:
                        self.assertGreaterEqual(m.at_ms, at + 4000)
                        got.add(m.body)
                    return len(got) == REFUSED
                wait_until(drain, REFUSED, f'all {REFUSED} to arrive')
                self.wait_delivered(p, 200 + REFUSED, 60)
    test_a_target_that_refuses_gets_all_in_the_end_and_delays_no_other.vhosts = 2


class Away(Relay, OwnServers):
    weight = 60
    time_limit_s = 300

    def test_deliveries_go_on_while_postgres_is_away(self):
        p = self.place()
        g = p.gateway(**handover(self.transport, grace='10s'))
        count = AWAY_S * AWAY_RATE
        inbox = self.expect(p, count, timeout_s=2 * AWAY_S + 60)
        first_ms = now_ms() + 8000 + count // 2
        p.load('publish', '--routing-key', 'k', '--count', count, '--due-at-ms', first_ms, '--due-rate', AWAY_RATE).result()
        wait_until(lambda: p.counts() == {'handed': count}, (first_ms - now_ms()) / 1000 - 1, 'all to be handed over')
        self.servers.command('stop-postgres')
        r = self.all_there(inbox, f'{count} at {AWAY_RATE}/s while Postgres is away', 2 * AWAY_S + 60)
        self.assertEqual(r['duplicates'], 0)
        self.assertLess(r['max_ms'], 3000 * harness.slowness())
        self.servers.command('start-postgres')
        self.wait_delivered(p, count, 60)
        time.sleep(12)  # past grace
        self.assertEqual(p.client().depth('k'), 0, 'delivered a second time')
        self.assertEqual(g.term(), 0)

    def test_what_waits_for_postgres_and_an_old_ping_end_no_deliveries(self):
        """More comes back from a lost connection than a gateway takes ahead, and all of it has to be looked up. The ping was sent
        before Postgres went: it does not say that others have it."""
        p, waiting, others = self.place(), 5000, 300
        g = p.gateway(**handover(self.transport, grace='20s', lead='5s', min_ahead='1s'))
        p.client().queue('k', 'k')
        inbox = self.expect(p, others, key='others', timeout_s=120)
        first_ms = now_ms() + 25_000
        p.load('publish', '--routing-key', 'k', '--count', waiting, '--due-at-ms', first_ms, '--due-rate', 5000).result()
        p.load('publish', '--routing-key', 'others', '--count', others, '--due-at-ms', first_ms + 16_000, '--due-rate', 100).result()
        wait_until(lambda: p.counts() == {'handed': waiting + others}, (first_ms - now_ms()) / 1000 - 8, 'all to be handed over')
        wait_until(lambda: relayed(g) > waiting / 2, 30, 'a part of them to be taken')
        away_ms = now_ms()
        self.servers.command('stop-postgres')
        cpu_s, cpu_ms = g.cpu_s(), now_ms()
        wait_until(lambda: now_ms() > first_ms - 1500, 10, 'it to wait')
        self.assertLess(g.cpu_s() - cpu_s, (now_ms() - cpu_ms) / 2000 + 0.1, 'it does not wait, it spins')
        self.close_relays(p)
        wait_until(lambda: now_ms() > away_ms + 10_000, 20, 'the ping to be old')
        p.client().channel.basic_publish('', 'postdate.exit', b'', pika.BasicProperties(headers={'x-postdate-ping': away_ms}))
        r = self.all_there(inbox, f'{waiting} wait for Postgres')
        self.assertEqual(r['duplicates'], 0)
        self.servers.command('start-postgres')
        self.wait_delivered(p, waiting + others, 60)
        self.assertEqual(p.client().depth('k'), waiting)

    def test_a_gateway_that_dies_meanwhile_doubles_only_the_last_moment(self):
        p = self.place()
        options = handover(self.transport, grace='10s')
        first, count, rate = p.gateway(**options), AWAY_S * AWAY_RATE // 2, AWAY_RATE
        inbox = self.expect(p, count, timeout_s=90 + AWAY_S)
        first_ms = now_ms() + 8000 + count // 4
        p.load('publish', '--routing-key', 'k', '--count', count, '--due-at-ms', first_ms, '--due-rate', rate).result()
        wait_until(lambda: p.counts() == {'handed': count}, (first_ms - now_ms()) / 1000 - 1, 'all to be handed over')
        self.servers.command('stop-postgres')
        wait_until(lambda: now_ms() > first_ms + 750 * count // rate, 60 + AWAY_S, 'three quarters to be delivered')
        first.kill9()
        self.servers.command('start-postgres')
        p.gateway(**options)
        r = self.all_there(inbox, 'a gateway killed while Postgres is away', 120 + AWAY_S)
        self.assertLess(r['duplicates'], rate * harness.SANITIZERS_COST)  # without proofs three quarters
        self.wait_delivered(p, count, 60)
        time.sleep(12)  # past grace
        self.assertEqual(p.client().depth('k'), 0, 'delivered a second time')

    def test_one_that_dies_while_nothing_is_settled_doubles_only_the_last_moment(self):
        """The database is there, and answers nothing."""
        p = self.place()
        options, count, rate = handover(self.transport, grace='20s'), 2000, 500
        first = p.gateway(**options)
        inbox = self.expect(p, count, timeout_s=90)
        first_ms = now_ms() + 8000
        p.load('publish', '--routing-key', 'k', '--count', count, '--due-at-ms', first_ms, '--due-rate', rate).result()
        wait_until(lambda: p.counts() == {'handed': count}, (first_ms - now_ms()) / 1000 - 1, 'all to be handed over')
        wait_until(lambda: now_ms() > first_ms + 500, 30, 'some to be delivered')
        settler = int(p.value("select pid from pg_stat_activity where application_name = 'postdate settler' "
                              f"and datname = '{p.database}'"))
        os.kill(settler, signal.SIGSTOP)
        try:
            wait_until(lambda: now_ms() > first_ms + 3000, 30, 'more to be delivered')
            first.kill9()
        finally:
            os.kill(settler, signal.SIGCONT)
        p.gateway(**options)
        r = self.all_there(inbox, 'a gateway killed while nothing is settled')
        self.assertLess(r['duplicates'], 250 * harness.SANITIZERS_COST)  # of 2,000; 103 to 128 on busy machines, and 154, 162 with proofs of what is 0.3 s old
        self.wait_delivered(p, count, 60)
        self.assertEqual(p.client().depth('k'), 0, 'delivered a second time')

    def test_one_that_dies_with_its_proofs_doubles_only_what_they_prove(self):
        """At each point of tests/shim/points.txt to which only a gateway without a database comes."""
        p = self.place()
        options, count, rate = handover(self.transport, grace='4s'), 300, 100
        p.gateway(**options).kill9()
        for number, point in enumerate(PROOF_POINTS if harness.FULL else PROOF_POINTS[2:3]):
            inbox = self.expect(p, count, key=f'k{number}', timeout_s=90)
            first_ms = now_ms() + 9000
            p.load('publish', '--routing-key', f'k{number}', '--count', count, '--due-at-ms', first_ms, '--due-rate', rate).result()
            g = p.gateway(wait=False, LD_PRELOAD=SHIM, POSTDATE_CRASH=f'{point}:1', **options)
            wait_until(lambda n=number: p.counts() == {'delivered': n * count, 'handed': count} or n == 0 and p.counts() == {'handed': count},
                       (first_ms - now_ms()) / 1000 - 1, 'all to be handed over')
            wait_until(lambda: now_ms() > first_ms + 500, 10, 'some to be delivered')
            self.servers.command('stop-postgres')
            wait_until(lambda: g.lines_with(f'died at {point}'), 20, f'the gateway to come to {point}')
            self.servers.command('start-postgres')
            p.gateway(**options)
            r = self.all_there(inbox, f'a gateway that died at {point}')
            self.assertLess(r['duplicates'], rate * harness.SANITIZERS_COST)
            self.wait_delivered(p, (number + 1) * count, 60)
            time.sleep(5)  # past grace
            self.assertEqual(p.client().depth(f'k{number}'), 0, 'delivered a second time')
            p.gateways[-1].kill9()


class TtlGateways(Gateways, LiveTest):
    transport = 'ttl'

    @harness.not_san
    def test_what_a_look_up_had_claimed_when_it_failed_is_published(self):
        """What is sent and unconfirmed for long is claimed without its content, and here the next query fails. Where the database has gone
        back meanwhile, what is to be published again leaves its content to the next look-up."""
        p, count = self.place(), 200
        g = p.gateway(LD_PRELOAD=SHIM, POSTDATE_CUT='relay_look.before:1', POSTDATE_RETRY_FIRST='10s', POSTDATE_RETRY_MAX='10s',
                      **handover(self.transport, grace='10s'))
        c = p.client()
        c.queue('full', 'full')
        p.stack.rabbitmqctl('set_policy', '-p', p.vhost, 'full', '^full$', '{"max-length":0,"overflow":"reject-publish"}')
        due_ms = now_ms() + 6000
        p.load('publish', '--routing-key', 'full', '--count', count, '--due-at-ms', due_ms, '--due-rate', 100_000).result()
        wait_until(lambda: p.counts() == {'handed': count}, 5, 'all to be handed over')
        wait_until(lambda: metric(g, r'postdate_publish_retries_total\{reason="in_doubt"\}') == count, 10, 'all to be rejected')  # tried again 5 to 10 s after they were due
        row, history = p.session(), p.session()
        row.run("begin; select id from postdate.message where state = 'handed' limit 1 for update")
        p.psql('update postdate.history set number = 0')
        g.wait_log('the database went back')
        history.run('begin; lock table postdate.history')  # no look-up on a new connection
        g.wait_log('cut at relay_look.before')
        wait_until(lambda: now_ms() > due_ms + 10_500, 11, 'all to be tried again')
        for session in (history, row):
            session.run('rollback')
            session.close()
        p.stack.rabbitmqctl('clear_policy', '-p', p.vhost, 'full')
        self.wait_delivered(p, count, 40)
        self.assertEqual(c.depth('full'), count)

    def test_consumers_that_rabbitmq_has_forgotten_are_made_anew(self):
        """As after a node was cut off: nobody tells the gateways."""
        p = self.place()
        p.gateway(**handover(self.transport, grace='3s'))
        p.gateway(**handover(self.transport, grace='3s'))
        inbox = self.expect(p, 50)
        self.due_together(p, 50, 8_000)
        p.eval_queue('postdate.exit', '[ra:process_command(amqqueue:get_pid(Q), rabbit_fifo:make_checkout('
                     '{element(2, C), element(1, C)}, cancel, #{})) || C <- rabbit_amqqueue:consumers(Q)], ok.')
        self.assertEqual(p.client().channel.queue_declare('postdate.exit', passive=True).method.consumer_count, 0)
        r = self.all_there(inbox, 'RabbitMQ has forgotten the consumers')
        self.assertEqual(r['duplicates'], 0)
        self.assertLess(r['max_ms'], 60_000)
        self.wait_delivered(p, 50)

    def test_one_without_a_database_leaves_what_comes_to_those_that_have_one(self):
        p, count = self.place(), 3000
        role = f'cut_off_{p.database}'
        p.stack.psql(f'create role {role} login in role postdate')
        self.addCleanup(p.stack.psql, f'drop role {role}')
        p.gateway(**handover(self.transport, grace='3s'))
        url = p.env()['POSTDATE_POSTGRES_URL'].replace('user=postdate', f'user={role}')
        alone = p.gateway(**handover(self.transport, grace='3s'), POSTDATE_POSTGRES_URL=url)
        inbox = self.expect(p, count, timeout_s=120)
        first_ms = now_ms() + 6000
        p.load('publish', '--routing-key', 'k', '--count', count, '--due-at-ms', first_ms, '--due-rate', 100).result()
        wait_until(lambda: now_ms() > first_ms, 20, 'the first to be due')
        p.stack.psql(f'alter role {role} nologin')
        p.stack.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}'")
        cut_ms = now_ms()
        alone.wait_log('while other gateways can: no more messages are consumed', 40)
        self.assertGreater(now_ms() - cut_ms, 14_000)
        # Its proofs go to the other, also those that it had taken itself: nobody takes for lost what they prove.
        wait_until(lambda: p.psql("select count(*) from postdate.message_now where state = 'handed' and due < now() - interval '3 s'") == [['0']],
                   20, 'what it delivered to be settled')
        r = self.all_there(inbox, 'one of two has no database')
        self.assertLess(r['duplicates'], 30)
        self.assertLess(r['max_ms'], 60_000)
        self.wait_delivered(p, count)
        p.stack.psql(f'alter role {role} login')
        sent = self.publish_many(p, 'after', [3000] * 10)
        again = p.consumer('after', bind='after')
        again.wait(len(sent), 20)
        alone.term()

    @harness.given_time
    def test_what_comes_out_much_too_early_waits(self):
        """As under a policy that shortens the waiting: the gateways hold it from then on, also what a gateway had that is dead."""
        p = self.place()
        p.gateway(**handover(self.transport))
        inbox = self.expect(p, 30)
        due_ms = self.due_together(p, 30, 20_000 * self.pace)
        c, dies, moved, had = p.client(), p.client(), 0, []
        dies.channel.basic_consume('postdate.exit', lambda *message: had.append(message))
        for rung in RUNGS:
            while c.depth(rung) and (m := c.get(rung)) is not None:
                c.channel.basic_publish('', 'postdate.exit', m.body, pika.BasicProperties(headers=m.headers, delivery_mode=2))
                moved += 1
        self.assertGreater(moved, 10)  # a busy machine may have let some of them come out
        dies.channel.connection.process_data_events(1)
        self.assertGreater(len(had), 3)
        dies.close()
        wait_until(lambda: p.counts().get('scheduled', 0) == moved, 10, 'the gateways to hold them')
        if now_ms() >= due_ms:
            raise harness.TooSlow('they were due before they had been moved')
        r = self.all_there(inbox, 'let go much too early')
        self.assertEqual(r['duplicates'], 0)
        self.assertLess(r['max_ms'], 2000 * harness.slowness())
        self.wait_delivered(p, 30)


@harness.only_full  # the relay is the same
class PluginGateways(Gateways, LiveTest):
    transport = 'plugin'


class TtlTargets(Targets, LiveTest):
    transport = 'ttl'


@harness.only_full
class PluginTargets(Targets, LiveTest):
    transport = 'plugin'


@harness.not_san
class TtlAway(Away, LiveTest):
    transport = 'ttl'

    def test_a_target_that_refuses_meanwhile_holds_up_no_other(self):
        """What it refuses is large, and waits for the database without its content."""
        p = self.place()
        p.gateway(**handover(self.transport, grace='10s'))
        c, count, large = p.client(), 200, 24
        c.queue('full', 'full', arguments={'x-max-length': 1, 'x-overflow': 'reject-publish'})
        inbox = self.expect(p, count)
        first_ms = now_ms() + 10_000
        for i in range(large):
            c.publish('full', b'%d' % i + bytes(1 << 20), {'x-delay': int(first_ms - now_ms())})
        p.load('publish', '--routing-key', 'k', '--count', count, '--due-at-ms', first_ms + 3000, '--due-rate', 40).result()
        wait_until(lambda: p.counts() == {'handed': count + large}, (first_ms - now_ms()) / 1000 - 1, 'all to be handed over')
        self.servers.command('stop-postgres')
        r = self.all_there(inbox, 'another target refuses while Postgres is away')
        self.servers.command('start-postgres')
        self.assertLess(r['max_ms'], 5000 * harness.slowness())
        self.assertEqual(r['duplicates'], 0)
        got = set()

        def drain():
            while (m := c.get('full')) is not None:
                got.add(m.body[:2])
            return len(got) == large
        wait_until(drain, 60, 'the large ones to arrive')


@harness.not_san
@harness.only_full
class PluginAway(Away, LiveTest):
    transport = 'plugin'


@harness.not_san
class TimerAway(Relay, OwnServers, LiveTest):
    transport = 'timer'

    def test_a_gateway_that_dies_after_the_database_doubles_only_the_last_moment(self):
        """Of a backlog: what was not settled, and what the database forgot when it crashed."""
        p, count = self.place(), 30_000
        first = p.gateway(POSTDATE_HANDOVER_TRANSPORT='timer')
        inbox = self.expect(p, count, timeout_s=120)
        due_ms = now_ms() + 15_000
        p.load('publish', '--routing-key', 'k', '--count', count, '--due-at-ms', due_ms, '--due-rate', 30_000).result()
        wait_until(lambda: now_ms() > due_ms + 700, 60, 'the first of them to be delivered')
        self.servers.command('kill-postgres')
        time.sleep(1)
        first.kill9()
        self.servers.command('start-postgres')
        p.gateway(POSTDATE_HANDOVER_TRANSPORT='timer')
        r = self.all_there(inbox, f'{count} in a backlog, Postgres killed, and the gateway a second later')
        self.assertLess(r['duplicates'], 30 * harness.SANITIZERS_COST)
        self.wait_delivered(p, count, 60)
        self.assertEqual(p.client().depth('k'), 0, 'delivered a second time')


@harness.only_full
class TimerTargets(Targets, LiveTest):
    transport = 'timer'


class ForgedPings(LiveTest):
    who_waits = 'ttl'

    def test_a_ping_of_no_time_stops_nothing(self):
        """Anybody who may publish to the default exchange can send one."""
        p = self.place()
        gw = p.gateway()
        c = p.client()
        for sent in (2**63 - 1, -2**63, 253402300799999, 0, now_ms() + 3_600_000):
            c.publish('postdate.exit', b'', {'x-postdate-ping': Wire('l', sent)}, exchange='')
        gw.wait_log('another client publishes to postdate.exit')
        wait_until(lambda: c.depth('postdate.exit') == 0, 10, 'them to be read')
        at = p.value('select clock_timestamp()')
        wait_until(lambda: p.value(f"select bool_and(relay_at > '{at}' and relay_pings[1] is not null and relay_pings[1] between now() - interval '1 min' and now() + interval '1 min') from postdate.instance") == 't', 15, 'the gateway to note what it took')
        inbox = p.consumer('q', bind='k')
        c.publish('k', b'held', {'x-delay': 4000})
        inbox.wait_body(b'held', 20)
        self.assertEqual(gw.lines_with('look-up|rescue of messages'), [])
        self.assertEqual(len(gw.lines_with('another client publishes')), 1)
        self.assertEqual(gw.term(), 0)

    def test_a_ping_of_a_clock_that_was_set_forward_is_no_message_of_somebody_elses(self):
        """Another gateway heard of it first: its ping is neither noted nor moved to postdate.rejected."""
        p = self.place()
        gw = p.gateway()
        c = p.client()
        c.publish('postdate.exit', b'', {'x-postdate-ping': Wire('l', now_ms() + 3_600_000)}, exchange='')
        c.publish('postdate.exit', b'a message', exchange='')
        wait_until(lambda: c.depth('postdate.rejected') > 0, 15, 'the message to be moved')
        self.assertEqual(c.wait_get('postdate.rejected').body, b'a message')
        self.assertEqual(c.depth('postdate.rejected'), 0)
        self.assertEqual(gw.term(), 0)


class Foreign(LiveTest):
    who_waits = 'ttl'

    def test_what_is_not_the_gateways_waits_for_the_rejected_queue_and_stops_nothing(self):
        """More of it than RabbitMQ sends ahead; and the gateway dies meanwhile."""
        count = 700
        p = self.place()
        gw = p.gateway(**handover('ttl'))
        c = p.client()
        p.stack.rabbitmqctl('set_policy', '-p', p.vhost, 'full', '^postdate.rejected$', '{"max-length":0}')
        c.publish_burst('postdate.exit', [b'%d' % i for i in range(count)], exchange='')
        gw.wait_log("cannot move another client's message")
        moved = c.depth('postdate.rejected')  # a quorum queue that is full takes some more
        self.assertLess(moved, 100)
        wait_until(lambda: c.depth('postdate.exit') == 0, 20, 'them to be read')
        inbox = p.consumer('q', bind='k')
        for i in range(2):
            c.publish('k', b'through the exit %d' % i, {'x-delay': 3000})
            inbox.wait_body(b'through the exit %d' % i, 20)
            if i == 0:
                gw.kill9()
                wait_until(lambda: c.depth('postdate.exit') >= count - moved, 20, 'them to be back')
                gw = p.gateway(**handover('ttl'))
        self.assertLess(c.depth('postdate.rejected'), count)
        p.stack.rabbitmqctl('clear_policy', '-p', p.vhost, 'full')
        wait_until(lambda: c.depth('postdate.rejected') >= count, 90, 'them to be moved')
        gw.wait_log('moved .* foreign messages? to postdate.rejected')
        self.assertEqual(gw.term(), 0)
        self.assertEqual(c.depth('postdate.exit'), 0)
        bodies = [c.get('postdate.rejected').body for _ in range(c.depth('postdate.rejected'))]
        self.assertEqual(set(bodies), {b'%d' % i for i in range(count)})
        self.assertLess(len(bodies), count + 100)
