"""Postgres dies or doubts while messages come in. On a Postgres of the test's own, beside the common RabbitMQ."""
import os
import shutil
import subprocess
import tempfile
import time
import unittest
from unittest import mock

import harness
from harness import LiveTest, Stack, wait_until
from web import Web


class OwnPostgres(Stack):
    @property
    def amqp(self):
        return harness.stack().amqp

    def start(self):
        self.command('start-postgres')
        self.vhosts = harness.stack().vhosts
        return self.load()


class Standby(LiveTest):
    """The gateway's server comes back as a standby, and is promoted."""
    weight = 20

    def test_a_standby_is_not_ready_until_it_is_promoted(self):
        servers = OwnPostgres.own(self.addCleanup, 'standby').start()
        p = harness.Place(servers)
        self.addCleanup(p.close, drop=False)
        web = lambda path: Web(address).get(path)
        address = p.gateway().http()
        wait_until(lambda: web('/readyz').status == 200, 10, '/readyz')
        folder = os.path.join(servers.directory, 'postgres')
        servers.command('stop-postgres')
        data = next(d for d, _, files in os.walk(folder) if 'PG_VERSION' in files and 'postgresql.conf' in files)
        with open(os.path.join(data, 'standby.signal'), 'w', encoding='utf-8') as f:
            os.chown(f.fileno(), os.stat(data).st_uid, os.stat(data).st_gid)
        servers.command('start-postgres', check=False)
        wait_until(lambda: 'is a standby' in web('/readyz').json.get('detail', ''), 30, '/readyz to say why not')
        self.assertEqual((web('/readyz').status, web('/livez').status), (503, 200))
        servers.psql('select pg_promote()')
        wait_until(lambda: web('/readyz').status == 200, 30, '/readyz after the promotion')


class DoubtfulCommits(LiveTest):
    """What its tests share."""
    servers = None

    def place(self, **options):
        """Never dropped: the whole Postgres is."""
        p = harness.Place(self.servers, **options)
        self.places = [p]
        self.addCleanup(p.close, drop=False)
        return p

    def stored(self, p):
        return int(p.value('select count(*) from postdate.message_now'))

    def standby(self, name):
        self.servers.psql(f"alter system set synchronous_standby_names = '{name}'")
        self.servers.psql('select pg_reload_conf()')

    def waits_for_standby(self, p, thread):
        return p.psql(f"select pid from pg_stat_activity where application_name like 'postdate {thread}' "
                      f"and wait_event = 'SyncRep' and datname = '{p.database}'")

    def doubtful(self, p, cancels):
        """Publishes a message whose commit waits for a standby that never comes, and cancels that wait."""
        c = p.client()
        c.queue('q', 'k')
        self.addCleanup(self.standby, '')
        self.standby('nosuch')
        wait_until(lambda: self.waits_for_standby(p, '%'), 10, 'the setting to be in force, as a heartbeat shows')
        c.publish('k', b'doubtful', message_id='doubtful')
        for _ in range(cancels):
            rows = wait_until(lambda: self.waits_for_standby(p, 'intake'), 10, 'the intake to wait for the standby')
            self.servers.psql(f'select pg_cancel_backend({rows[0][0]})')
        wait_until(lambda: self.stored(p) == 1, 5, 'it to be visible')
        return c

    def assert_arrives_once(self, p, g, c):
        self.standby('')
        self.assertEqual(c.wait_get('q', 15).body, b'doubtful')
        wait_until(lambda: p.counts() == {'delivered': 1}, 15, 'it to be settled')
        g.wait_ready()  # the row may have been delivered before its redelivery was looked at
        for _ in range(5):  # what it has not acknowledged when it ends is there again
            wait_until(lambda: c.depth('postdate.intake') == 0, 15, 'the redelivery to be taken')
            self.assertEqual(g.term(), 0)
            if c.depth('postdate.intake') == 0:
                break
            g = p.gateway()
        self.assertEqual([c.depth(q) for q in ('postdate.intake', 'q', 'postdate.rejected')], [0, 0, 0])
        self.assertEqual(self.stored(p), 1)


class PostgresFaults(DoubtfulCommits):
    weight = 50
    vhosts = 3
    together = True

    @classmethod
    def setUpClass(cls):
        cls.servers = OwnPostgres.own(cls.addClassCleanup, 'pgfaults').start()

    @harness.only_full
    @harness.not_san
    def test_killed_while_messages_stream_in(self):
        """The intake crashed when its first attempt to connect again, in the middle of a batch, failed."""
        count = 3000 if harness.SAN else 12_000
        p = self.place()
        g = p.gateway()
        inbox = p.load('consume', '--queue', 'flow', '--exchange', 'postdate.delivery', '--bind', 'flow', '--expect',
                       count, '--timeout-s', 60, '--idle-s', 1, '--retry').wait_consuming()
        publisher = p.load('publish', '--routing-key', 'flow', '--count', count, '--rate', count // 6,
                           '--delay-spread-ms', '0,1000', '--retry', '--timeout-s', 60)
        for part in (0.1, 0.5):
            wait_until(lambda: self.stored(p) >= count * part, 30, f'{part:.0%} to be stored', 0.005)
            self.servers.command('kill-postgres')
            time.sleep(0.5)  # absent for some attempts
            self.servers.command('start-postgres')
            self.assertIsNone(g.process.poll(), 'the gateway goes on')
        publisher.result()
        r = inbox.result()
        self.assertEqual((r['missing'], r['early'], r['unexpected']), (0, 0, 0), r)
        wait_until(lambda: p.counts() == {'delivered': count}, 15, 'all to be settled')
        self.assertEqual(g.term(), 0)

    def test_a_commit_that_is_only_local_is_not_acknowledged(self):
        """When the wait for the standby is cancelled, Postgres reports success with a warning. The message has no
        headers at all: its redelivery has some (x-delivery-count), and is still recognised as the same."""
        p = self.place()
        g = p.gateway()
        c = self.doubtful(p, cancels=1)
        wait_until(lambda: self.waits_for_standby(p, 'intake'), 10, 'the intake to wait for the standby again')
        g.kill9()
        wait_until(lambda: c.depth('postdate.intake') == 1, 10, 'it to be in the intake queue again')
        self.assert_arrives_once(p, p.gateway(wait=False), c)

    def test_a_commit_that_stays_only_local_is_not_stored_or_parked_again(self):
        """The check whether it was committed may fail, too: then the check must be repeated, not the storing."""
        p = self.place()
        g = p.gateway()
        self.assert_arrives_once(p, g, self.doubtful(p, cancels=2))


class GermanPostgres(DoubtfulCommits):
    """The server's texts are in another language: none of them decides anything."""
    weight = 15
    vhosts = 2
    together = True
    LOCALE = 'de_DE.UTF-8'

    @classmethod
    def setUpClass(cls):
        cls.servers = OwnPostgres.own(cls.addClassCleanup, 'german')
        locales = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, locales)
        os.chmod(locales, 0o755)  # Postgres runs as another user
        try:
            subprocess.run(['localedef', '-i', 'de_DE', '-f', 'UTF-8', os.path.join(locales, cls.LOCALE)], check=True,
                           capture_output=True)
        except (OSError, subprocess.CalledProcessError) as e:
            raise unittest.SkipTest(f'no locale {cls.LOCALE} can be made here: {e}')
        with mock.patch.dict(os.environ, LOCPATH=locales):
            cls.servers.start()
        cls.servers.psql(f"alter system set lc_messages = '{cls.LOCALE}'")
        cls.servers.psql('select pg_reload_conf()')

    def setUp(self):
        super().setUp()
        with self.assertRaises(AssertionError) as refused:
            self.servers.psql('select 1 from nowhere')
        if 'existiert nicht' not in str(refused.exception):
            self.skipTest(f'this PostgreSQL has no German texts: {refused.exception}')

    def test_a_commit_that_is_only_local_is_not_acknowledged(self):
        p = self.place()
        g = p.gateway()
        c = self.doubtful(p, cancels=1)
        wait_until(lambda: self.waits_for_standby(p, 'intake'), 10, 'the intake to wait for the standby again')
        self.assertEqual(c.depth('postdate.intake'), 0, 'it is not acknowledged, nor given back')
        self.assert_arrives_once(p, g, c)

    def test_what_is_wrong_with_a_login_is_known(self):
        p = self.place()
        unknown = harness.postgres_url(self.servers.postgres, 'nowhere')
        rc, _, err = p.cli('status', env={'POSTDATE_POSTGRES_URL': unknown})
        self.assertIn('existiert nicht', err)
        self.assertEqual(rc, 78, err)


class Prepared(LiveTest):
    """Two-phase commit: transactions that are prepared, and committed later, by another session."""
    weight = 15

    def test_what_was_scheduled_in_it_is_delivered_once_it_is_committed(self):
        servers = OwnPostgres.own(self.addCleanup, 'prepared').start()
        servers.psql('alter system set max_prepared_transactions = 5')
        servers.command('stop-postgres')
        servers.start()
        p = harness.Place(servers)
        self.places = [p]
        self.addCleanup(p.close, drop=False)
        p.gateway()
        inbox = p.consumer('q', bind='k')
        s = p.session()
        self.addCleanup(s.close)
        soon = "select count(postdate.schedule('k', 'x'::text, delay => '0 s'))"
        s.run('begin')
        s.run(soon)
        self.assertIn('cannot PREPARE a transaction that has executed LISTEN, UNLISTEN, or NOTIFY', str(s.run("prepare transaction 'a'")))
        s.run('begin')
        s.run('set local postdate.notify = off')
        s.run(soon)
        s.run("select postdate.recur_set('r', '@every 1s', 'r', 'x'::text), postdate.recur_run('r')")
        s.run("select postdate.schedule('later', 'x'::text, delay => '1 h', key => 'mine'), postdate.cancel_key('mine')")
        self.assertEqual(s.run("prepare transaction 'b'"), [])
        self.assertEqual((p.counts(), inbox.all()), ({}, []))
        p.psql("commit prepared 'b'")
        inbox.wait(1, 10)
        self.assertEqual(s.run("show postdate.notify"), [['']], 'it ended with the transaction')
        s.run(soon)
        self.assertEqual(len(inbox.wait(2, 10)), 2)
