"""Several gateways on one database and broker: they share the work, and what one of them leaves behind is taken over."""
import os
import signal
import time

import harness
from harness import LiveTest, now_ms, wait_until

COUNT = 500 if harness.SAN else 2000
BURST = 20_000
IN_FLIGHT = 1024 + 256  # docs/guarantees.md: what the death of a gateway can double
BATCH = 2000   # what a publisher has in its hands: unconfirmed at most
LEASE_S = 10


class Gateways(LiveTest):
    weight = 25
    time_limit_s = 180
    who_waits = 'timer'

    def begin(self, spread, count=COUNT, timeout_s=60, quorum=False):
        """count messages, and their consumer."""
        p = self.p
        self.inbox = p.load('consume', '--queue', 'q', '--exchange', 'postdate.delivery', '--bind', 'k', '--expect', count,
                            '--timeout-s', timeout_s, '--idle-s', 1, '--retry', *['--quorum'] * quorum).wait_consuming()
        p.load('publish', '--routing-key', 'k', '--count', count, '--delay-spread-ms', spread).result()

    def finish(self, duplicates_at_most=0, count=COUNT):
        r = self.inbox.result()
        self.assertEqual((r['missing'], r['early'], r['unexpected']), (0, 0, 0), r)
        self.assertLessEqual(r['duplicates'], duplicates_at_most, r)
        wait_until(lambda: self.p.counts() == {'delivered': count}, 15, 'all to be settled')
        return r

    def wait_claimed(self, count):
        wait_until(lambda: self.p.claimed() >= count, 15, f'{count} to be claimed')

    def owned(self, instances):
        return int(self.p.value(f"select count(*) from postdate.message_now where owner in ({','.join(instances)})"))

    def instances(self):
        return [r[0] for r in self.p.psql('select id from postdate.instance order by id')]

    @harness.not_san
    def test_the_claims_of_a_dead_one_are_taken_over_within_a_second(self):
        """Of its connection's death; a machine that is busy with other things gets another try."""
        p = self.p = self.place()
        first = p.gateway(POSTDATE_DELIVERY_LEAD='60s')
        self.begin('14000,15000')
        self.wait_claimed(COUNT)
        for attempt in range(4):
            old = self.instances()
            other = p.gateway(POSTDATE_DELIVERY_LEAD='60s')
            first.kill9()
            gone = "select count(*) from pg_stat_activity where application_name = 'postdate lease keeper' " \
                   f"and datname = '{p.database}'"
            wait_until(lambda: p.value(gone) == '1', 10, 'its session to end', 0.005)
            died = time.monotonic()
            wait_until(lambda: self.owned(old) == 0, 30, 'its claims to be let go', 0.005)
            took_s = time.monotonic() - died
            print(f'note gateways: {COUNT} claims of a dead gateway were let go {took_s * 1000:.0f} ms after its session had '
                  'ended; the servers were healthy', flush=True)
            first = other
            if took_s < 1.0 * harness.slowness():
                break
            self.wait_claimed(COUNT)
        else:
            self.fail('more than a second each time')
        other.wait_log('took over from 1 gateway')
        other.wait_log(r'recovered \d+ messages? without a recorded outcome: .*; the first: [0-9a-f]{8}-[0-9a-f-]{27}$')
        self.finish()

    def test_a_paused_one_is_replaced_when_its_lease_ends_and_wakes_up_harmless(self):
        """It sleeps in the middle of publishing. What it had in its hands may arrive twice, under the same id; the rest is
        the other one's."""
        p = self.p = self.place()
        first = p.gateway(POSTDATE_DELIVERY_LEAD='60s')
        self.begin('3000,6000')
        self.wait_claimed(COUNT)
        wait_until(lambda: p.counts().get('delivered', 0) > COUNT // 4, 15, 'a quarter to be delivered')
        first.pause()
        stopped = time.monotonic()
        beat = "select extract(epoch from clock_timestamp() - heartbeat_at) from postdate.instance"
        since_beat_s = float(p.value(beat))
        old = self.instances()
        second = p.gateway(POSTDATE_DELIVERY_LEAD='60s')
        while self.owned(old) > 0:
            self.assertLess(time.monotonic() - stopped, (LEASE_S + 5) * harness.slowness(), 'not taken over')
            time.sleep(0.05)
        took_s = time.monotonic() - stopped
        self.assertGreater(took_s, LEASE_S - since_beat_s - 0.5, 'before its lease had ended')
        print(f'note gateways: a stopped gateway was replaced {took_s:.1f} s after its stop, {took_s + since_beat_s:.1f} s '
              'after its last heartbeat', flush=True)
        wait_until(lambda: p.counts().get('delivered') == COUNT, 20, 'the other one to deliver the rest')
        first.resume()
        wait_until(lambda: len(self.instances()) == 2, 20, 'it to be booked again')
        r = self.finish(duplicates_at_most=BATCH)
        print(f'note gateways: it woke up, and {r["duplicates"]} messages arrived twice', flush=True)
        self.assertEqual((first.term(), second.term()), (0, 0))
        self.assertEqual(p.counts(), {'delivered': COUNT})
        self.assertEqual(p.client().depth('q'), 0)

    @harness.not_san
    def test_one_that_stood_still_together_with_the_others_is_not_ended(self):
        """As after a suspend of all machines: who wakes first finds the heartbeats of the others old. Their sessions live on."""
        p = self.place()
        g, other = p.gateway(), p.session()
        other.run("insert into postdate.instance (name, backend_pid, running_since, version) values ('other', pg_backend_pid(), now(), 1)")
        other.run(f"""do $$ begin for i in 1..8 loop
            update postdate.instance set heartbeat_at = clock_timestamp() - interval '{LEASE_S + 1} s' where name = 'other'; commit;
            perform pg_sleep(0.1);
            update postdate.instance set heartbeat_at = clock_timestamp() where name = 'other'; commit;
            perform pg_sleep(2);
        end loop; end $$""")
        self.assertEqual(other.run("select count(*) from postdate.instance where name = 'other' and backend_pid = pg_backend_pid()"), [['1']])
        other.run("delete from postdate.instance where name = 'other'")
        other.close()
        self.assertEqual(g.term(), 0)

    def test_one_that_dies_while_the_database_stands_still_leaves_few_duplicates(self):
        """What it published and could not settle: it stops publishing at 50, when it had nothing to do before. The database goes on, or
        does not."""
        p = self.p = self.place()
        first = p.gateway(POSTDATE_DELIVERY_LEAD='60s')
        p.client().queue('q', 'k')
        p.load('publish', '--routing-key', 'k', '--count', COUNT, '--due-at-ms', now_ms() + 4000).result()
        self.wait_claimed(COUNT)
        settler = int(p.value("select pid from pg_stat_activity where application_name = 'postdate settler' "
                              f"and datname = '{p.database}'"))
        os.kill(settler, signal.SIGSTOP)
        try:
            depths = [0]

            def stands():
                depths.append(p.client().depth('q'))
                return depths[-1] > 0 and depths[-1] == depths[-2]
            wait_until(stands, 30, 'the gateway to stop publishing', 0.5)
            first.kill9()
        finally:
            os.kill(settler, signal.SIGCONT)
        published = depths[-1]
        print(f'note gateways: {published} were published and not settled', flush=True)
        self.assertLess(published, 300)  # 500 where the database's pace does not count; and what was unconfirmed
        p.gateway()
        wait_until(lambda: p.counts() == {'delivered': COUNT}, 40, 'all to be delivered')
        self.assertLessEqual(p.client().depth('q'), COUNT + published)

    def killed_in_a_burst(self, quorum):
        """Of two gateways the older one, again and again, each time that a few thousand more have come."""
        p = self.p = self.place()
        kills, gateways = 0, [p.gateway(), p.gateway()]
        self.begin('9000,9500', BURST, 150, quorum)
        for share in (1, 2, 3):
            wait_until(lambda share=share: p.counts().get('delivered', 0) >= BURST * share // 4, 120, f'{share} quarters to be delivered', 0.05)
            gateways.pop(0).kill9()
            kills += 1
            gateways.append(p.gateway())
        r = self.finish(kills * IN_FLIGHT, BURST)
        print(f'note gateways: {kills} kills in a burst of {BURST} to a {"quorum" if quorum else "classic"} queue: {r["duplicates"]} '
              'came twice', flush=True)

    @harness.not_san  # as for a burst
    def test_what_comes_twice_of_a_burst_is_what_was_in_flight(self):
        self.killed_in_a_burst(quorum=False)

    @harness.not_san
    def test_what_comes_twice_of_a_burst_to_a_quorum_queue_is_what_was_in_flight(self):
        self.killed_in_a_burst(quorum=True)

    def test_an_end_of_all_sessions_ends_one_instance(self):
        """The settler notices last that its session is gone, with all in its hands that the publishers gave back. That is no reason to end
        the instance which was booked meanwhile."""
        p = self.p = self.place()
        p.gateway(POSTDATE_DELIVERY_LEAD='60s')
        p.client().queue('q', 'k')
        p.load('publish', '--routing-key', 'k', '--count', 100, '--due-at-ms', now_ms() + 59_000).result()
        last = 'select last_value from postdate.instance_id_seq'
        for ended in range(4):
            wait_until(lambda n=ended: int(p.value(last)) > n, 20, 'an instance')
            self.wait_claimed(100)
            wait_until(lambda: p.value('select bool_and(heartbeat_at > started_at + interval \'1 s\') from postdate.instance') == 't',
                       20, 'the second heartbeat')
            self.assertEqual(p.value(last), str(ended + 1))
            p.psql("select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'postdate %' "
                   f"and datname = '{p.database}'")

    def test_four_share_the_work_without_duplicates(self):
        count = COUNT * 2
        p = self.p = self.place()
        gateways = [p.gateway() for _ in range(4)]
        self.begin('1500,3500', count)
        self.finish(count=count)
        for g in gateways:
            self.assertEqual(g.term(), 0)


class HandingGateways(LiveTest):
    """The same where RabbitMQ waits."""
    weight = 20

    def test_four_hand_over_and_one_is_killed_and_one_is_paused(self):
        """Its claims, what it had taken from the exit queue, and its part of the ladder are the others'."""
        p = self.p = self.place(transport='ttl')
        env = {'POSTDATE_HANDOVER_WINDOW': '6m', 'POSTDATE_HANDOVER_MIN_AHEAD': '300ms'}
        gateways = [p.gateway(**env) for _ in range(4)]
        Gateways.begin(self, '3000,5000')
        wait_until(lambda: p.counts().get('delivered', 0) > COUNT // 4, 20, 'a quarter to be delivered')
        gateways[0].kill9()
        gateways[1].pause()
        r = self.inbox.result()
        gateways[1].resume()
        self.assertEqual((r['missing'], r['early'], r['unexpected']), (0, 0, 0), r)
        self.assertLessEqual(r['duplicates'], BATCH, r)
        wait_until(lambda: p.counts() == {'delivered': COUNT}, 40, 'all to be settled')
        self.assertEqual([g.term() for g in gateways[1:]], [0, 0, 0])
        print(f'note gateways: four handed over, one killed, one paused: {r["duplicates"]} duplicates', flush=True)
