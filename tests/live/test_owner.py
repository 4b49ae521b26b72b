"""A vhost belongs to one database and remembers it; a database belongs to one broker."""
import json
import re
import time
import urllib.parse

from harness import LiveTest, Place, now_ms, wait_until


class Owner(LiveTest):
    def second(self, p):
        """Another database, on p's vhost."""
        other = Place(p.stack, migrate=False)
        other.vhost, other.amqp = p.vhost, p.amqp
        self.addCleanup(other.close)
        other.migrate()
        return other

    def identity(self, p):
        return p.value('select identity from postdate.meta')

    def finding(self, p, check):
        rc, out, err = p.cli('doctor', '--json')
        self.assertEqual(err, '')
        found = [x for x in json.loads(out)['checks'] if x['check'] == check]
        self.assertEqual(len(found), 1, out)
        return found[0], rc

    def refused(self, p, **env):
        g = p.gateway(wait=False, **env)
        self.assertEqual(g.wait(), 78, g.log())
        return g.lines_with('belongs to another database')

    def all_arrive(self, p, count=20):
        """Messages published now reach the database, and are delivered, of this gateway alone."""
        inbox, c, at = p.consumer('q', bind='k'), p.client(), now_ms()
        for i in range(count):
            c.publish('k', b'%d' % i, {'x-delay': 500 if i % 2 else 3000})
        for m in inbox.wait(count):
            self.assertGreaterEqual(m.at_ms, at + (500 if int(m.body) % 2 else 3000), 'early')
        wait_until(lambda: p.counts() == {'delivered': count}, 10, 'all to be settled')

    def test_a_second_database_is_refused_whoever_waits(self):
        p = self.place(copied=False)
        p.gateway()
        other = self.second(p)
        for transport in ('timer', 'ttl'):
            with self.subTest(transport):
                said = self.refused(other, POSTDATE_HANDOVER_TRANSPORT=transport)
                self.assertEqual(len(said), 1)
                for part in (f"vhost '{p.vhost}'", self.identity(p), self.identity(other), 'add_vhost', '--rebind'):
                    self.assertIn(part, said[0])
        p.gateway()  # any number of the same database
        found, rc = self.finding(other, 'broker.vhost')
        self.assertEqual((found['status'], rc), ('fail', 1))
        self.assertIn(self.identity(p), found['detail'])
        self.assertRegex(found['remedy'], 'add_vhost.*--rebind')
        self.assertEqual(self.finding(p, 'broker.vhost')[0]['status'], 'ok')
        self.all_arrive(p)

    def test_one_that_begins_beside_another_on_another_node_waits_for_its_claim(self):
        """Nodes of a cluster may give themselves different names, and two gateways begin at once: the other one has recorded the name
        of its node, and not claimed the vhost yet."""
        p = self.place(copied=False)
        p.client().channel.exchange_delete('postdate.owner')
        p.psql("update postdate.meta set broker = 'rabbit@elsewhere'")
        g = p.gateway(wait=False)
        time.sleep(0.5)
        p.client().channel.exchange_declare('postdate.owner', 'fanout', durable=True,
                                            arguments={'alternate-exchange': f'postdate.{self.identity(p)}'})
        g.wait_ready()
        self.all_arrive(p)
        self.assertNotEqual(p.value('select broker from postdate.meta'), 'rabbit@elsewhere')

    def test_who_takes_a_vhost_over_says_so(self):
        p = self.place(copied=False)
        g = p.gateway()
        other = self.second(p)
        rc, _, err = other.cli('migrate', '--rebind')
        self.assertEqual(rc, 75)
        self.assertRegex(err, f"{self.identity(p)}.*'postdate.intake'.*stop them first")
        self.assertEqual(g.term(), 0)
        self.assertEqual(other.cli('migrate', '--rebind')[0], 0)
        other.gateway()
        self.assertEqual(len(self.refused(p)), 1)
        self.all_arrive(other)

    def test_a_broker_that_comes_back_empty_is_the_same(self):
        p = self.place(copied=False)
        self.assertEqual(p.gateway().term(), 0)
        name = f'<<"{p.vhost}">>'
        p.stack.rabbitmqctl('eval', f'rabbit_vhost:delete({name}, <<"test">>), rabbit_vhost:add({name}, <<"test">>), '
                            f'rabbit_auth_backend_internal:set_permissions(<<"guest">>, {name}, <<".*">>, <<".*">>, <<".*">>, <<"test">>), ok.')
        self.assertEqual(self.finding(p, 'broker.vhost')[0]['status'], 'ok')
        g = p.gateway()
        self.assertEqual(g.lines_with('belongs'), [])
        self.assertEqual(len(self.refused(self.second(p))), 1)

    def test_nodes_of_a_cluster_have_different_names(self):
        """By default each calls the cluster after itself."""
        p = self.place(copied=False)
        self.assertEqual(p.gateway().term(), 0)
        name = p.value('select broker from postdate.meta')
        p.psql("update postdate.meta set broker = 'rabbit@another-node'")
        self.assertEqual(self.finding(p, 'broker.owner')[0]['status'], 'ok')
        p.gateway()
        self.assertEqual(p.value('select broker from postdate.meta'), name)

    def test_an_exchange_of_that_name_that_says_nothing_is_anothers(self):
        p = self.place(copied=False)
        p.client().channel.exchange_delete('postdate.owner')
        p.client().channel.exchange_declare('postdate.owner', 'direct', durable=True)
        self.assertRegex(self.refused(p)[0], 'another database of Postdate .unknown')
        self.assertEqual(p.cli('migrate', '--rebind')[0], 0)
        p.gateway()

    def test_a_vhost_that_cannot_remember_and_nodes_of_different_names(self):
        """A gateway without the right to the exchange that remembers: the node's name must not keep it from starting."""
        p = self.place(copied=False)
        self.assertEqual(p.gateway().term(), 0)
        p.psql("update postdate.meta set broker = 'rabbit@another-node'")
        user, others = urllib.parse.urlsplit(p.amqp).username, r'^(?!postdate\.owner$)'
        p.stack.rabbitmqctl('set_permissions', '-p', p.vhost, user, others, others, others)
        g = p.gateway()
        self.assertTrue(g.lines_with('cannot record the database'), g.log())

    def test_the_first_migrate_on_one_node_and_all_else_on_others(self):
        """The gateway's start, and a migrate at each start as the systemd unit does, both on a node of another name."""
        p = self.place(copied=False)
        p.psql("update postdate.meta set broker = 'rabbit@another-node'")
        rc, out, err = p.cli('migrate')
        self.assertEqual(rc, 0, out + err)
        p.gateway()

    def test_another_broker_is_refused(self):
        p = self.place(copied=False)
        p.client().channel.exchange_delete('postdate.owner')  # another broker knows nothing of this database
        p.psql("update postdate.meta set broker = 'rabbit@elsewhere'")
        g = p.gateway(wait=False)
        self.assertEqual(g.wait(), 78, g.log())
        said = g.lines_with("belongs to RabbitMQ cluster 'rabbit@elsewhere'")
        self.assertTrue(said and re.search('--rebind', said[0]), g.log())
        self.assertIsNone(p.client().depth('postdate.intake'), 'something was declared there')
        self.assertEqual(p.cli('migrate', '--rebind')[0], 0)
        p.gateway()
