"""A dump that was restored elsewhere, and a gateway on it beside the original."""
import json
import subprocess

from harness import LiveTest, Place, wait_until


class Copies(LiveTest):
    who_waits = 'timer'

    def copy(self, p):
        """p's database under another name, on the same vhost."""
        other = Place(p.stack, migrate=False, transport='timer')
        other.vhost, other.amqp = p.vhost, p.amqp
        self.addCleanup(other.close)
        dump = subprocess.run(['pg_dump', '--schema=postdate', p.postgres], capture_output=True, check=True, timeout=120).stdout
        subprocess.run(['psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-d', other.postgres], input=dump, stdout=subprocess.DEVNULL, check=True,
                       timeout=120)
        return other

    def identity(self, p):
        return p.value('select identity from postdate.meta')

    def test_a_restored_dump_is_refused_beside_its_original(self):
        p = self.place(copied=False)
        first = p.gateway()
        cancelled = p.cli('schedule', '-k', 'k', '--delay', '30s', '--body', 'cancelled')[1].strip()
        p.cli('schedule', '-k', 'k', '--delay', '30s', '--body', 'once')
        other = self.copy(p)
        self.assertEqual(p.cli('cancel', cancelled)[0], 0)
        inbox = p.consumer('q', bind='k')
        g = other.gateway(wait=False)
        self.assertEqual(g.wait(), 78, g.log())
        self.assertTrue(g.lines_with('is a copy.*postdate migrate --rebind'), g.log())
        rc, _, err = other.cli('migrate')
        self.assertEqual(rc, 78, err)
        self.assertIn('--rebind', err)
        found = [x for x in json.loads(other.cli('doctor', '--json')[1])['checks'] if x['check'] == 'database.schema']
        self.assertEqual(found[0]['status'], 'fail')
        self.assertIn('--rebind', found[0]['remedy'])
        self.assertEqual(other.cli('list')[0], 0, 'it can be looked into')
        wait_until(lambda: p.counts() == {'cancelled': 1, 'delivered': 1}, 60, 'both to be settled')
        self.assertEqual([m.body for m in inbox.all()], [b'once'])
        self.assertEqual(first.term(), 0)

    def test_a_running_gateway_does_not_follow_the_name_to_a_copy(self):
        """As when the name of the server moves to one where a dump was restored. Here a copy takes the database's name."""
        p = self.place(copied=False)
        g = p.gateway()
        inbox = p.consumer('q', bind='k')
        cancelled = p.cli('schedule', '-k', 'k', '--delay', '6s', '--body', 'cancelled')[1].strip()
        p.cli('schedule', '-k', 'k', '--delay', '6s', '--body', 'once')
        original, name = p.database + '_original', p.database
        self.addCleanup(p.stack.psql, f'drop database if exists {original} with (force)')

        def rename(old, new):
            p.asker.close()
            p.stack.psql(f'alter database {old} allow_connections false')
            p.stack.psql(f"select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '{old}'")
            p.stack.psql(f'alter database {old} rename to {new}')

        rename(name, original)
        p.stack.psql(f'create database {name} owner postdate template {original}')
        g.wait_log('now connects to another database')
        p.stack.psql(f'alter database {original} allow_connections true')
        self.assertEqual(p.cli('cancel', cancelled, env={'POSTDATE_POSTGRES_URL': p.postgres.replace(name, original)})[0], 0)
        wait_until(lambda: p.value("select bool_and(due < clock_timestamp() - interval '1 s') from postdate.message_now"), 15, 'both to be due')
        self.assertEqual((p.counts(), inbox.all()), ({'scheduled': 2}, []))
        rename(name, name + '_copy')
        self.addCleanup(p.stack.psql, f'drop database if exists {name}_copy with (force)')
        rename(original, name)
        p.stack.psql(f'alter database {name} allow_connections true')
        wait_until(lambda: p.counts() == {'cancelled': 1, 'delivered': 1}, 30, 'both to be settled')
        self.assertEqual([m.body for m in inbox.all()], [b'once'])
        self.assertEqual(g.term(), 0)

    def test_rebind_makes_a_database_of_its_own_and_says_what_it_fences(self):
        p = self.place(copied=False)
        first = p.gateway()
        other = self.copy(p)
        old = self.identity(p)
        self.assertEqual(self.identity(other), old)
        rc, _, err = other.cli('migrate', '--rebind')
        self.assertEqual(rc, 75, err)
        self.assertRegex(err, f'{old}.*stop them first')
        self.assertEqual(first.term(), 0)
        rc, out, err = other.cli('migrate', '--rebind')
        self.assertEqual((rc, err), (0, ''))
        new = self.identity(other)
        self.assertNotEqual(new, old)
        self.assertIn(p.vhost, out)
        g = other.gateway()
        refused = p.gateway(wait=False)
        self.assertEqual(refused.wait(), 78, refused.log())
        self.assertTrue(refused.lines_with(f'belongs to another database of Postdate \\({new}; this one is {old}\\)'), refused.log())
        self.assertEqual(g.term(), 0)
        self.assertEqual(other.cli('migrate')[0], 0)

    def test_what_waits_in_a_dump_is_delivered_once_where_transactions_are_numbered_anew(self):
        p = self.place(copied=False)
        g = p.gateway()
        inbox = p.consumer('q', bind='k')
        p.psql("select count(postdate.schedule('k', 'due ' || i, '1 s')) from generate_series(1, 20) i")
        inbox.wait(20, 15)
        wait_until(lambda: p.counts() == {'delivered': 20}, 10, 'what was due to be settled')
        p.psql("select count(postdate.schedule('k', 'waits ' || i, '8 s')) from generate_series(1, 300) i")
        self.assertEqual(g.term(), 0)
        other = self.copy(p)
        # As a dump of an old server is in a new one: its transactions are of a far future.
        other.psql("alter table postdate.message disable trigger user; update postdate.message set born = (born::text::numeric + 1000000000)::text::xid8;"
                   "update postdate.batch set snapshot = format('%s:%s:', pg_snapshot_xmin(snapshot)::text::numeric + 1000000000,"
                   " pg_snapshot_xmax(snapshot)::text::numeric + 1000000000)::pg_snapshot where snapshot is not null;"
                   "alter table postdate.message enable trigger user;"
                  # As logical replication leaves it, which copies no sequence.
                  "select setval('postdate.fence', 1)")
        self.assertEqual(other.cli('migrate', '--rebind')[0], 0)
        self.assertEqual(other.value('select last_value >= postdate.id_ms(to_id) from postdate.fence, postdate.frontier'), 't')
        other.gateway()
        inbox.wait(320, 30)
        wait_until(lambda: other.counts() == {'delivered': 320}, 10, 'all to be settled')
        bodies = [m.body for m in inbox.all()]
        self.assertEqual((len(bodies), len(set(bodies))), (320, 320))

    def test_rebind_of_a_copy_for_another_vhost_says_both_identities(self):
        p = self.place(copied=False)
        other = self.copy(p)
        old = self.identity(p)
        rc, out, err = other.cli('migrate', '--rebind')
        self.assertEqual((rc, err), (0, ''))
        self.assertIn(old, out)
        self.assertIn(self.identity(other), out)
