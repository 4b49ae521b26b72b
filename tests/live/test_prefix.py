"""amqp.prefix: several Postdates, each with a database of its own, live in one vhost and deliver to the same exchanges."""
import json
import os

from broker_users import documented_user
from doctor_kit import Doctor
from harness import LiveTest, now_ms, wait_until
from test_retries import QUORUM, Refuser
from web import Web


class PrefixKit(LiveTest):
    def two(self, transport=None, **env):
        """Two places in one vhost, each with a gateway."""
        one = self.place(transport=transport)
        two = self.place(transport=transport, vhost=one.vhost, prefix='cell2')
        one.gateway(**env)
        two.gateway(**env)
        return one, two

    def publish_to_both(self, c, count, delays=(500, 4000), second='cell2'):
        for i in range(count):
            for exchange in ('postdate', second):
                c.publish('k', b'%s %d' % (exchange.encode(), i), {'x-delay': delays[i % 2]}, exchange=exchange)

    def names(self, p):
        """Of all queues and exchanges in the vhost but RabbitMQ's own."""
        listed = [p.stack.rabbitmqctl('-q', f'list_{kind}', '-p', p.vhost, 'name', '--no-table-headers') for kind in ('queues', 'exchanges')]
        return {name for text in listed for name in text.split() if not name.startswith('amq.')}


class Prefix(PrefixKit):
    def check_both(self, transport, count=10, **env):
        """Each takes what is published to it, holds it in its own lists, and delivers it by the exchange that both share."""
        one, two = self.two(transport, **env)
        inbox, at = one.consumer('q', bind='k'), now_ms()
        self.publish_to_both(one.client(), count)
        for p in (one, two):
            wait_until(lambda p=p: sum(p.counts().values()) == count, 10, 'all to be stored, each where it was published')
        for m in inbox.wait(2 * count):
            self.assertGreaterEqual(m.at_ms, at + (4000 if int(m.body.split()[1]) % 2 else 500), 'early')
        for p, name in ((one, b'postdate'), (two, b'cell2')):
            wait_until(lambda p=p: p.counts() == {'delivered': count}, 10, 'all to be settled')
            listed = [json.loads(line) for line in p.cli('list', '--json')[1].splitlines()]
            sent = {m.properties.headers['x-postdate-id'] for m in inbox.messages if m.body.startswith(name)}
            self.assertEqual({m['id'] for m in listed}, sent)
        self.assertEqual(len({m.body for m in inbox.messages}), len(inbox.messages), 'twice')
        return one, two

    def test_two_in_one_vhost_with_the_timer(self):
        self.check_both('timer')

    def test_two_in_one_vhost_with_ttl(self):
        self.check_both('ttl', POSTDATE_HANDOVER_MIN_AHEAD='1s')

    def test_two_in_one_vhost_with_the_plugin(self):
        self.check_both('plugin', POSTDATE_HANDOVER_MIN_AHEAD='1s')

    def test_two_in_one_vhost_with_rabbitmq_s_last_hop(self):
        self.check_both('ttl', POSTDATE_HANDOVER_MIN_AHEAD='1s', POSTDATE_HANDOVER_LAST_HOP='broker')

    def test_the_plugin_s_import_leaves_what_another_one_holds(self):
        one, two = self.two('plugin')
        one.client().publish('k', b'x', {'x-delay': 3600000}, exchange='cell2')
        wait_until(lambda: two.counts() == {'handed': 1}, 10, 'it to be handed over')
        for p in (one, two):
            rc, out, err = p.cli('import', 'plugin', '--dry-run', '--rabbitmqctl', os.path.join(p.stack.directory, 'rabbitmqctl'))
            self.assertEqual(rc, 0, out + err)
            self.assertNotIn('.delayed', out + err)

    def test_dead_letters_come_to_the_one_that_is_named(self):
        one, two = self.two('timer')
        c = one.client()
        c.queue('work', 'k', arguments={**QUORUM, 'x-dead-letter-exchange': 'cell2.retry'})
        refuser = Refuser(one.amqp, 'work', accept=lambda m: m.properties.headers.get('x-postdate-attempt', 1) >= 2)
        self.addCleanup(refuser.close)
        c.publish('k', b'x', {'x-delay': 100}, exchange='cell2')
        first, second = refuser.wait(2)
        self.assertEqual(second.properties.headers['x-postdate-id'], first.properties.headers['x-postdate-id'])
        self.assertEqual((first.method.exchange, second.method.exchange), ('postdate.delivery', 'cell2.return'))
        wait_until(lambda: two.counts() == {'delivered': 2}, 10, 'the second one to be settled')
        self.assertEqual(two.value("select count(*) from postdate.message_now where exchange = 'postdate.return'"), '1')
        self.assertEqual(one.counts(), {})
        self.assertIn('"dead-letter-exchange":"cell2.retry"', two.cli('retry-policy', 'show', 'work')[1])

    def test_one_goes_and_leaves_the_other(self):
        """Neither touches what begins with its own name and more."""
        one, two = self.two('ttl', POSTDATE_HANDOVER_MIN_AHEAD='1s')
        third = self.place(transport='ttl', vhost=one.vhost, prefix='cell22')
        inbox = one.consumer('q', bind='k')
        third.gateway()
        two.stop_for_good()
        others = {name for name in self.names(one) if not name.startswith('cell2.') and name != 'cell2'}
        rc, out, err = two.cli('drop-topology', '--yes')
        self.assertEqual(rc, 0, out + err)
        self.assertEqual(self.names(one), others)
        one.client().publish('k', b'one', {'x-delay': 2500})
        one.client().publish('k', b'three', {'x-delay': 2500}, exchange='cell22')
        self.assertEqual({m.body for m in inbox.wait(2)}, {b'one', b'three'})
        wait_until(lambda: one.counts() == third.counts() == {'delivered': 1}, 10, 'both to be settled')
        one.stop_for_good()
        rc, out, err = one.cli('drop-topology', '--yes')
        self.assertEqual(rc, 0, out + err)
        self.assertEqual({name for name in self.names(one) if not name.startswith('cell22')}, {'q', 'postdate.delivery'})
        one.client().publish('k', b'more', {'x-delay': 1}, exchange='cell22')
        inbox.wait_body(b'more', 10)

    def test_a_name_belongs_to_one_database(self):
        one, two = self.two('timer')
        third = self.place(vhost=one.vhost, prefix='cell2')
        g = third.gateway(wait=False)
        self.assertEqual(g.wait(), 78, g.log())
        self.assertEqual(len(g.lines_with("prefix 'cell2' in vhost .* belongs to another database .*amqp.prefix")), 1, g.log())

    def test_a_database_keeps_its_prefix(self):
        """Until somebody says that its messages are to go under other names. What waited under the old ones comes, too."""
        p = self.place(transport='ttl')
        p.gateway(POSTDATE_HANDOVER_MIN_AHEAD='1s', POSTDATE_HANDOVER_GRACE='1s')
        inbox = p.consumer('q', bind='k')
        p.client().publish('k', b'x', {'x-delay': 6000})
        wait_until(lambda: p.counts() == {'handed': 1}, 10, 'it to be handed over')
        self.assertEqual(p.gateways[0].term(), 0)
        p.prefix = 'orders'
        g = p.gateway(wait=False)
        self.assertEqual(g.wait(), 78, g.log())
        for code, said in ((78, g.log()), (78, p.cli('migrate')[2])):
            for part in ("prefix 'postdate'", "'orders'", 'amqp.prefix = postdate', '--rebind'):
                self.assertIn(part, said)
        self.assertEqual(p.cli('migrate')[0], 78)
        self.assertEqual(p.value('select prefix from postdate.settings'), 'postdate')
        rc, out, err = p.cli('migrate', '--rebind')
        self.assertEqual(rc, 0, out + err)
        self.assertEqual(p.psql('select s.prefix, m.prefix from postdate.settings s, postdate.meta m'), [['orders', 'orders']])
        p.gateway(POSTDATE_HANDOVER_GRACE='1s')
        inbox.wait(1)
        p.client().publish('k', b'y', {'x-delay': 1}, exchange='orders')
        inbox.wait_body(b'y', 10)
        self.assertEqual([m.body for m in inbox.messages], [b'x', b'y'])

    def test_the_rights_to_its_own_names_are_enough(self):
        """As docs/scale.md has them. With these it cannot reach the other one's exchanges."""
        one = self.place(transport='ttl')
        one.gateway()
        two = self.place(transport='ttl', vhost=one.vhost, prefix='postdate-1')
        two.amqp = documented_user(self, two, 'cell1', 'docs', 'scale.md')
        two.gateway(POSTDATE_HANDOVER_MIN_AHEAD='1s')
        inbox, c = one.consumer('q', bind='k'), one.client()
        self.publish_to_both(c, 2, delays=(300, 3000), second='postdate-1')
        c.publish('k', b'stray', {'x-delay': 1, 'x-postdate-exchange': 'postdate'}, exchange='postdate-1')
        inbox.wait(4)
        wait_until(lambda: two.counts() == {'delivered': 2, 'scheduled': 1}, 10, 'the stray one to be refused')
        self.assertEqual(two.psql("select error like '%ACCESS_REFUSED%' from postdate.message_now where state = 'scheduled'"), [['t']])
        rc, out, err = two.cli('doctor', '--json')
        found = {f['check']: f['status'] for f in json.loads(out)['checks']}
        self.assertEqual((found['broker.permissions'], found['broker.vhost']), ('ok', 'ok'), out + err)

    def test_what_is_no_prefix(self):
        p = self.place(migrate=False)
        for prefix in ('a b', 'ä', 'amq.x', 'amq', 'x' * 33, 'a..b', '.a', 'a.', 'a.exit', 'a.b.ttl', 'postdate.delivery', 'a/b', 'a*'):
            with self.subTest(prefix):
                rc, _, err = p.cli('status', env={'POSTDATE_AMQP_PREFIX': prefix})
                self.assertEqual(rc, 78, err)
                self.assertIn(f'POSTDATE_AMQP_PREFIX: "{prefix}" is no prefix of names', err)
                self.assertIn('allowed: 1 to 32', err)

    def test_a_prefix_below_another(self):
        """`postdate.b` has no name that `postdate` has."""
        one = self.place(transport='ttl')
        two = self.place(transport='ttl', vhost=one.vhost, prefix='postdate.b')
        one.gateway()
        before = self.names(one)
        two.gateway()
        self.assertTrue(all(name.startswith('postdate.b') for name in self.names(one) - before))
        two.stop_for_good()
        self.assertEqual(two.cli('drop-topology', '--yes')[0], 0)
        self.assertEqual(self.names(one), before)


class Reserved(PrefixKit):
    def test_own_names_are_reserved_by_each_way_in(self):
        """Those of the prefix, and the mark of what goes back to a queue; not those of another Postdate, which are refused by rights."""
        p = self.place(transport='timer', prefix='cell2')
        gateway = p.gateway()
        web, c = Web(gateway.http()), p.client()
        c.channel.exchange_declare('cell22.x', 'fanout')
        c.channel.exchange_declare('postdate.x', 'fanout')
        for name, refused in (('cell2', True), ('cell2.x', True), ('postdate.return', True), ('cell22.x', False), ('postdate.x', False)):
            with self.subTest(name):
                before = c.depth('cell2.rejected')
                c.publish('k', b'x', {'x-delay': 3600000, 'x-postdate-exchange': name}, exchange='cell2')
                answer = web.post('/v1/messages', {'exchange': name, 'routing_key': 'k', 'delay': '1h', 'body': 'x'})
                self.assertEqual(answer.status, 422 if refused else 201, answer.body)
                said = self.ask_sql(p, name)
                self.assertEqual('the gateway' in said, refused, said)
                if refused:
                    wait_until(lambda n=before: c.depth('cell2.rejected') == n + 1, 10, 'it to be refused')
        wait_until(lambda: p.counts() == {'scheduled': 6}, 10, 'the others to be stored')
        rc, _, err = p.cli('schedule', '-k', 'cell2.exit', '--exchange', '', '--delay', '1h', '--body', 'x')
        self.assertEqual(rc, 65, err)
        self.assertIn('names do not begin with "cell2."', err)

    def ask_sql(self, p, exchange):
        try:
            p.psql(f"select postdate.schedule('k', 'x', delay => '1h', exchange => '{exchange}')")
            return ''
        except AssertionError as e:
            return str(e)


class Doctors(Doctor, PrefixKit):
    def test_each_tells_of_its_own(self):
        one, two = self.two('ttl')
        consumer = one.consumer('q', bind='k')
        self.assertIsNotNone(consumer)
        one.client().queue('work', 'k', arguments={**QUORUM, 'x-dead-letter-exchange': 'cell2.retry'})
        control = os.path.join(one.stack.directory, 'rabbitmqctl')
        for p in (one, two):
            found = self.doctor(p, '--rabbitmqctl', control)
            self.assert_nothing_failed(found)
            self.assert_ok(found, 'broker.vhost', 'broker.owner', 'broker.topology', 'broker.permissions', 'broker.rejected')
            named = [f for check, many in found.items() if check != 'plugin.messages' for f in many if 'cell2' in json.dumps(f)]
            self.assertEqual(named if p is one else [], [])
            self.assertNotIn('broker.foreign', found)
            self.assertEqual('retries.queues' in found, p is two)
        one.stack.rabbitmqctl('set_policy', '-p', one.vhost, 'short', r'^cell2\.', '{"message-ttl":100000000}', '--apply-to', 'queues')
        self.addCleanup(one.stack.rabbitmqctl, 'clear_policy', '-p', one.vhost, 'short')
        self.assert_nothing_failed(self.doctor(one, '--rabbitmqctl', control))
        self.assert_finding(self.doctor(two, '--rabbitmqctl', control), 'broker.policies', 'fail', "'cell2.")

    def test_what_the_plugin_holds_for_another_one_is_no_finding(self):
        one, two = self.two('plugin')
        for exchange in ('postdate', 'cell2'):
            one.client().publish('k', b'x', {'x-delay': 3600000}, exchange=exchange)
        for p, own, other in ((one, 'postdate', 'cell2'), (two, 'cell2', 'postdate')):
            wait_until(lambda p=p: p.counts() == {'handed': 1}, 10, 'it to be handed over')
            found = self.doctor(p, '--rabbitmqctl', os.path.join(p.stack.directory, 'rabbitmqctl'))
            self.assert_finding(found, 'plugin.messages', 'ok', f"'{own}.delayed', used by Postdate: 1 wait")
            self.assert_finding(found, 'plugin.messages', 'ok', f"'{other}.delayed' in vhost '{p.vhost}', used by another Postdate: 1 wait")
