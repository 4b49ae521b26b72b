"""RabbitMQ without anything that it had: a vhost that somebody deleted and made anew, or a broker that was replaced by an empty one. What waited
there is delivered from the database, when it is due."""
import harness
from door import Door, port_of, with_hosts
from handover_kit import NEVER, OwnServers, handover
from harness import LiveTest, free_ports, now_ms, wait_until

COUNT = 300
WAIT_MS = 15_000


class Anew:
    pace = 1
    lost = 1  # it is said once
    time_limit_s = 600

    def make_anew(self, p):
        p.stack.rabbitmqctl('delete_vhost', p.vhost)
        p.stack.rabbitmqctl('add_vhost', p.vhost)
        p.stack.rabbitmqctl('set_permissions', '-p', p.vhost, 'guest', '.*', '.*', '.*')

    def hand_over(self, p, count=COUNT):
        c = p.client()
        self.first_due_ms = now_ms() + WAIT_MS * self.pace
        for i in range(count):
            c.publish('k', b'%d' % i, {'x-delay': WAIT_MS * self.pace + i * 10})
        wait_until(lambda: p.counts() == {'handed': count} and p.value('select count(*) from postdate.handing') == '0'
                   or now_ms() > self.first_due_ms, 300, 'RabbitMQ to have them all')
        self.check_in_time()

    def handed_over(self, count=COUNT):
        """A place in which no gateway runs any more."""
        p = self.place()
        g = p.gateway(**handover(self.transport, grace=NEVER))
        self.hand_over(p, count)
        self.assertEqual(g.term(), 0)
        return p

    def check_in_time(self):
        """What is due within two seconds is not given back."""
        if now_ms() > self.first_due_ms - 3000:
            raise harness.TooSlow('the first was due before the vhost was found to be another one')

    def assert_on_time(self, p, gateways):
        """The grace is an hour."""
        self.check_in_time()
        inbox = p.consumer('q', declare=True, bind='k')
        inbox.wait(COUNT, WAIT_MS * self.pace / 1000 + 30)
        late = max(m.at_ms - m.due_ms for m in inbox.all())
        print(f'note new vhost: {len(inbox.all())} arrived, the last one {late:.0f} ms late', flush=True)
        self.assertEqual((len(inbox.all()), len({m.id for m in inbox.all()})), (COUNT, COUNT))
        self.assertGreaterEqual(min(m.at_ms - m.due_ms for m in inbox.all()), 0)
        said = [g.lines_with(f'has lost {COUNT} handed-over messages') for g in gateways]
        self.assertEqual(sum(map(len, said)), self.lost, said)
        self.assertEqual([g.term() for g in gateways], [0] * len(gateways))

    @harness.given_time
    def test_one_that_is_made_anew_under_two_gateways(self):
        p = self.place()
        gateways = [p.gateway(**handover(self.transport, grace=NEVER)) for _ in range(2)]
        self.hand_over(p)
        self.make_anew(p)
        wait_until(lambda: self.check_in_time() or (not self.lost or any(g.lines_with('handed-over messages') for g in gateways)) and p.stack.rabbitmqctl('-q', 'list_exchanges', '-p', p.vhost, 'name').count('postdate.delivery'),
                   90, 'it to be found out')
        self.assert_on_time(p, gateways)

    @harness.given_time
    def test_one_that_is_made_anew_while_no_gateway_runs(self):
        p = self.handed_over()
        self.make_anew(p)
        self.assert_on_time(p, [p.gateway(**handover(self.transport, grace=NEVER))])


class NewVhost(Anew, OwnServers, LiveTest):
    """Without the plugin, which keeps what it holds."""
    transport = 'ttl'
    plugins = ''
    together = 'bare servers'

    @harness.given_time
    def test_a_deleted_exchange_gives_nothing_back(self):
        """The rungs hold it still: it would come twice."""
        p = self.handed_over(20)
        c = p.client()
        for exchange in self.exchanges(p):
            c.channel.exchange_delete(exchange)
        g = p.gateway(**handover(self.transport, grace=NEVER))
        self.check_in_time()
        self.assertEqual((p.counts(), g.lines_with('handed-over messages')), ({'handed': 20}, []))

    @harness.given_time
    def test_a_row_that_somebody_has_locked_keeps_no_other(self):
        p = self.handed_over(20)
        self.make_anew(p)
        locker = p.session()
        locker.run("begin; select from postdate.message where body = '7' for update")
        g = p.gateway(**handover(self.transport, grace=NEVER))
        self.check_in_time()
        self.assertEqual(len(g.lines_with('has lost 19 handed-over messages')), 1, g.log())
        locker.run('rollback')
        self.assertEqual(g.term(), 0)

    @harness.not_san
    @harness.given_time
    def test_a_slow_rabbitmq(self):
        """A session of PostgreSQL is idle in its transaction for longer than the others may be."""
        self.pace = 10 * harness.slowness()
        p = self.handed_over(20)
        self.make_anew(p)
        door = Door(free_ports(1)[0], port_of(p.amqp)).open()
        self.addCleanup(door.close)
        door.lag_s = 0.05
        g, began_ms = p.gateway(POSTDATE_AMQP_URL=with_hosts(p.amqp, door.address), wait=False, **handover(self.transport, grace=NEVER)), now_ms()
        g.wait_log('has lost 20 handed-over messages', 80)
        print(f'note new vhost: found out after {(now_ms() - began_ms) / 1000:.1f} s by a slow RabbitMQ', flush=True)
        self.check_in_time()
        self.assertEqual(g.term(), 0)

    def exchanges(self, p):
        out = p.stack.rabbitmqctl('-q', 'list_exchanges', '-p', p.vhost, 'name')
        return [name for name in out.split() if name.startswith('postdate.ttl')]


class NewVhostPlugin(Anew, LiveTest):
    """It lets out what it holds, also when the vhost was another one meanwhile."""
    transport = 'plugin'
    lost = 0
