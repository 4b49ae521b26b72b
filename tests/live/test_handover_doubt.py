"""RabbitMQ dies while what it waited with falls due into a classic queue that nobody reads. Such a queue writes what comes
without a confirm to disk only when it is idle; the receipts were on disk at once. Nothing may be missing."""
import datetime
import re
import time
import urllib.parse

import pika

import harness
from handover_kit import Checks, OwnServers, handover
from harness import LiveTest, now_ms, wait_until

COUNT = 4000
AHEAD_MS = (10_000, 20_000, 40_000)  # the longer ones for a machine that is too busy for handing them over in time
SPREAD_MS = 8000
SAID = r'published again|may have lost'


def hand_all_over(p, c, count, queues, aheads_ms):
    """Publishes them to the key 'k'; returns when the first is due, with all of them handed over half a second before that.
    aheads_ms: how far ahead they are due; the longer ones for a machine that is too busy."""
    for ahead_ms in aheads_ms:
        first_due_ms = now_ms() + ahead_ms
        c.publish_burst('k', [b'%d' % i for i in range(count)], {'x-delay': ahead_ms})
        wait_until(lambda: p.counts() == {'handed': count} or now_ms() > first_due_ms - 500, 60, 'all to be handed over', 0.05)
        if now_ms() < first_due_ms - 500:
            return first_due_ms
        wait_until(lambda: p.counts() == {'delivered': count}, 60, 'another try', 0.05)
        for queue in queues:
            c.channel.queue_purge(queue)
        p.psql('delete from postdate.message')
    raise AssertionError(f'{count} were never handed over within {aheads_ms[-1] / 1000:.0f} s')


class Doubts(Checks):
    time_limit_s = 300

    def fall_due(self, p, blow, **settings):
        """Hands COUNT messages over and calls blow() when a third of them was let go; in the end all are in the queue that
        nobody read. Returns (gateway, result of draining it)."""
        g = p.gateway(**handover(self.transport, grace='10s', **settings))
        for ahead_ms in AHEAD_MS:
            key = f'due.{ahead_ms}'
            p.client().queue('unread.' + key, key)
            inbox = p.load('consume', '--queue', key, '--exchange', 'postdate.delivery', '--bind', key, '--expect', COUNT,
                           '--timeout-s', 200, '--idle-s', 1, '--retry').wait_consuming()
            first_due_ms = now_ms() + ahead_ms
            p.load('publish', '--routing-key', key, '--count', COUNT, '--delay-spread-ms',
                   f'{ahead_ms},{ahead_ms + SPREAD_MS}').result()
            while self.states(p, key) != {'handed': COUNT} and now_ms() < first_due_ms:
                time.sleep(0.1)
            if now_ms() < first_due_ms:
                break
            inbox.process.kill()
        else:
            self.fail(f'{COUNT} were never handed over within {AHEAD_MS[-1] / 1000:.0f} s')
        wait_until(lambda: self.states(p, key).get('delivered', 0) >= COUNT / 3, 60, 'a third to be let go', 0.05)
        blow()
        wait_until(lambda: self.states(p, key) == {'delivered': COUNT}, 90, 'all to be delivered', 0.1)
        read = inbox.result(200)
        self.assertEqual((read['missing'], read['early'], read['unexpected']), (0, 0, 0), read)
        r = p.load('consume', '--queue', 'unread.' + key, '--expect', COUNT, '--timeout-s', 60, '--idle-s', 2).result()
        print(f'note {self.transport}: {COUNT} handed over, {self.id().rsplit(".", 1)[-1]}: {r["missing"]} missing and '
              f'{r["duplicates"]} duplicates in the queue that nobody read; {read["duplicates"]} duplicates in the other; '
              f'{g.lines_with(SAID)}', flush=True)
        self.assertEqual((r['missing'], r['unexpected']), (0, 0), r)
        return g, r

    def assert_said_once(self, g):
        g.wait_log(SAID)
        self.assertEqual(len(g.lines_with(SAID)), 1, g.log())

    def states(self, p, key):
        return {state: int(n) for state, n in
                p.psql(f"select state, count(*) from postdate.message where routing_key = '{key}' group by 1")}


class BrokerDiesUnread(Doubts, OwnServers):
    def restart(self, how):
        self.servers.command(how + '-rabbitmq')
        self.servers.command('start-rabbitmq')

    @harness.not_san
    def test_killed_while_they_fall_due(self):
        g, _ = self.fall_due(self.place(), lambda: self.restart('kill'))
        self.assert_said_once(g)

    @harness.not_san
    def test_another_gateway_that_knows_of_no_death_reads_the_receipts(self):
        """One that was started since. The one that lived on, paused until after the other has settled all, finds them;
        and what it then reads, sent before RabbitMQ died, is no sign of life of later. More than its prefetch."""
        count, p, grace_s = 2500, self.place(), 3
        first = p.gateway(**handover(self.transport, grace=f'{grace_s}s'))
        c = p.client()
        c.queue('unread', 'k')
        wait_until(lambda: p.stack.rabbitmqctl('list_queues', '-p', p.vhost, '--silent', 'name').count('postdate.mark.') == 1, 20,
                   'its mark to be placed')
        hand_all_over(p, c, count, ['unread'], (5000, 12_000, 24_000))
        first.pause()
        wait_until(lambda: p.client().depth('unread') == count, 45, 'RabbitMQ to let them go')
        time.sleep(1)  # for what is written when a queue has been idle for 0.2 s
        self.restart('kill')
        p.client().channel.queue_purge('unread')
        p.gateway(**handover(self.transport, grace=f'{grace_s}s'))
        wait_until(lambda: p.counts() == {'delivered': count}, 60, 'the other one to believe the receipts')
        time.sleep(grace_s + 1)
        first.resume()
        wait_until(lambda: p.client().depth('unread') == count, 60, 'all that was lost to be published again')
        wait_until(lambda: p.counts() == {'delivered': count}, 20, 'all to be settled')

    @harness.not_san
    def test_killed_while_the_gateway_can_not_settle(self):
        """The receipts are unread when the broker dies."""
        p = self.place()

        def blow():
            holder = p.session()
            holder.run('begin')
            holder.run("select count(*) from (select from postdate.message for update) m")
            wait_until(lambda: p.client().depth('postdate.receipts') > 0, 30, 'receipts to be left unread', 0.05)
            self.servers.command('kill-rabbitmq')
            holder.run('rollback')
            holder.close()
            self.servers.command('start-rabbitmq')

        g, _ = self.fall_due(p, blow)
        self.assert_said_once(g)

    @harness.not_san
    def test_lost_connections_make_no_duplicates(self):
        p = self.place()
        delivered = "select count(*) from postdate.message where state = 'delivered'"

        def blow():
            self.servers.rabbitmqctl('eval', '[exit(P, kill) || P <- rabbit_networking:local_connections()], ok.')
            wait_until(lambda: int(p.value(delivered)) >= COUNT / 2, 60, 'half to be let go', 0.05)
            self.servers.rabbitmqctl('eval', 'rabbit_networking:close_all_connections(<<"test">>), ok.')

        g, r = self.fall_due(p, blow)
        self.assertEqual(g.lines_with(SAID), [])
        self.assertEqual(r['duplicates'], 0, r)

    @harness.not_san
    def test_a_proper_stop_puts_only_what_fell_due_since_shortly_before_in_doubt(self):
        g, r = self.fall_due(self.place(), lambda: self.restart('stop'))
        self.assertEqual(g.lines_with('died without a proper stop'), [])
        # A third was let go before, and most of that is not published again.
        self.assertLess(r['duplicates'], COUNT * 0.85, r)


def keeps_transient_exchanges(client):
    """Why postdate.open is still there after a start of this broker, or nothing."""
    version = client.connection._impl.server_properties['version']  # pika tells it nowhere else
    version = version.decode() if isinstance(version, bytes) else version
    khepri_only = tuple(int(x) for x in re.findall(r'\d+', version)[:2]) >= (4, 3)
    return f'RabbitMQ {version} keeps its metadata in Khepri, where a non-durable exchange outlives a start' if khepri_only else None


@harness.not_san  # as test_killed_while_they_fall_due to our code
class DueWhileAway(OwnServers):
    """What falls due while RabbitMQ is away is let go as soon as it starts. Quorum queues that have no leader yet take
    nothing then, nobody hears of it, and the receipt, for a classic queue, is there. So it finds no way and comes back."""
    time_limit_s = 200
    queues = 16
    count = 400

    def away(self, how, gateway_lives=True, refused=False):
        p = self.place()
        settings = handover(self.transport, grace='10s')
        g = p.gateway(**settings)
        if refused:
            self.refuse_for_a_while(p, g)
        c = p.client()
        names = [c.queue(f'quorum.{i}', 'k', arguments={'x-queue-type': 'quorum'}) for i in range(self.queues)]
        # RabbitMQ 3.10 may not find the quorum queue that was declared last when it is killed soon after, and no message for
        # it is ever confirmed then: let that be one that gets none.
        c.queue('last', arguments={'x-queue-type': 'quorum'})
        first_due_ms = hand_all_over(p, c, self.count, names, (6000, 12_000, 24_000))
        if not gateway_lives:
            g.kill9()
        self.servers.command(how + '-rabbitmq')
        time.sleep(max(0, (first_due_ms - now_ms()) / 1000 + 1))
        self.servers.command('start-rabbitmq')
        if not gateway_lives:
            p.gateway(**settings)
        wait_until(lambda: p.counts() == {'delivered': self.count}, 60, 'all to be delivered', 0.1)
        c = p.client()
        twice = 0
        for name in names:
            bodies = self.read_all(c, name)
            self.assertEqual(len(set(bodies)), self.count, f'{name}: lost')
            twice += len(bodies) - self.count
        print(f'note {self.transport}: {self.count} fell due while RabbitMQ was away ({how}), for {self.queues} quorum queues: '
              f'none missing, {twice / self.queues:.0f} twice in each', flush=True)
        if twice and (reason := keeps_transient_exchanges(c)):
            self.skipTest(f'{reason}, so what fell due is doubted: none lost, {twice / self.queues:.0f} of {self.count} came twice')
        self.assertEqual(twice, 0)

    def read_all(self, c, name):
        """The bodies in a queue. A quorum queue writes down what it gives out, so on a busy disk a pause is not the end."""
        bodies, give_up = [], time.monotonic() + 30
        for _, _, body in c.channel.consume(name, auto_ack=True, inactivity_timeout=0.5):
            if body is not None:
                bodies.append(body)
            elif len(set(bodies)) == self.count or time.monotonic() > give_up:
                break
        c.channel.cancel()
        return bodies

    def test_killed(self):
        self.away('kill')

    @harness.not_san
    def test_killed_soon_after_a_start(self):
        """The elections after the second start are waited for as well, and not only those after the first."""
        p = self.place()
        if reason := keeps_transient_exchanges(p.client()):
            self.skipTest(f'{reason}: the way is never closed')
        g = p.gateway(**handover(self.transport, grace='10s'), POSTDATE_LOG_LEVEL='debug')

        def closed():
            return g.lines_with('for 5000 ms what it lets go comes back')

        def is_open(c):
            channel = c.connection.channel()
            try:
                channel.exchange_declare('postdate.open', passive=True)
                channel.close()
                return True
            except pika.exceptions.ChannelClosedByBroker:
                return False

        for known in (0, 1):
            self.servers.command('kill-rabbitmq')
            self.servers.command('start-rabbitmq')
            wait_until(lambda: len(closed()) > known, 40, 'the gateway to find the way closed', 0.02)
        c = p.client()
        wait_until(lambda: is_open(c), 40, 'the gateway to open the way', 0.05)
        since = datetime.datetime.fromisoformat(closed()[-1].split()[0])
        self.assertGreaterEqual(datetime.datetime.now(datetime.timezone.utc) - since, datetime.timedelta(seconds=5))

    def refuse_for_a_while(self, p, g):
        user = urllib.parse.urlsplit(p.amqp).username
        self.addCleanup(self.servers.rabbitmqctl, 'set_permissions', '-p', p.vhost, user, '.*', '.*', '.*')
        self.servers.rabbitmqctl('set_permissions', '-p', p.vhost, user, '', '', '')
        self.servers.rabbitmqctl('eval', 'rabbit_networking:close_all_connections(<<"test">>), ok.')
        g.wait_log('finds no way for is not published again')
        self.servers.rabbitmqctl('set_permissions', '-p', p.vhost, user, '.*', '.*', '.*')
        g.wait_log('RabbitMQ can wait with messages again', 40)

    @harness.not_san
    def test_killed_after_rights_were_missing_for_a_while(self):
        """What comes back is read when the gateway may do so again."""
        self.away('kill', refused=True)

    def test_stopped_while_no_gateway_runs(self):
        """What comes back waits for one."""
        self.away('stop', gateway_lives=False)

    @harness.not_san
    def test_stopped(self):
        self.away('stop')


class TtlDueWhileAway(DueWhileAway, LiveTest):
    transport = 'ttl'
    # With rights missing, 75 of 400 came twice once in four runs: the hand-over that waits for receipts cannot rule it out.
    only_full = ('test_stopped', 'test_stopped_while_no_gateway_runs', 'test_killed_after_rights_were_missing_for_a_while')


class PluginDueWhileAway(DueWhileAway, LiveTest):
    transport = 'plugin'
    only_full = ('test_killed', 'test_stopped', 'test_killed_soon_after_a_start', 'test_killed_after_rights_were_missing_for_a_while')


class TtlUnread(BrokerDiesUnread, LiveTest):
    transport = 'ttl'
    only_full = ('test_killed_while_the_gateway_can_not_settle', 'test_lost_connections_make_no_duplicates',
                 'test_a_proper_stop_puts_only_what_fell_due_since_shortly_before_in_doubt')


@harness.not_san
class PluginUnread(BrokerDiesUnread, LiveTest):
    transport = 'plugin'
    only_full = ('test_killed_while_they_fall_due', 'test_another_gateway_that_knows_of_no_death_reads_the_receipts',
                 'test_killed_while_the_gateway_can_not_settle', 'test_lost_connections_make_no_duplicates',
                 'test_a_proper_stop_puts_only_what_fell_due_since_shortly_before_in_doubt')
