"""A database of an earlier release comes along: messages in each state, schedules, dead letters, rates, policies, tokens. tests/schema has a dump for
each release, which `POSTDATE_KEEP_SCHEMA=1 make test ONLY=test_released_schema` makes there; the one of today's schema is always made, and used."""
import glob
import gzip
import os
import subprocess

import harness
from doors import dead
from handover_kit import handover
from harness import LiveTest, wait_until
from web import Web

NEXT = 'tests/next'
RATE, SECONDS = 100, 20
FOLDER = os.path.join(harness.ROOT, 'tests', 'schema')
OWED = "routing_key = 'k' and exchange = 'postdate.delivery' and due < now() + interval '1 minute' and state in ('scheduled', 'claimed', 'handed')"
ENDED = """select state::text, count(*) from postdate.message_now
            where state in ('cancelled', 'superseded', 'failed', 'expired') and key is distinct from 'recur/tick' group by 1 order by 1"""
OBJECTS = {'token': 'select name from postdate.token', 'rate': 'select exchange, per_second from postdate.rates', 'policy': 'select pattern from postdate.retry_policy',
           'dead letter': "select queue, reason from postdate.lineage where died_at is not null", 'schedule': 'select name, paused from postdate.recur'}


def version_of(p):
    return p.cli('--version')[1].split()[1].split('+')[0]


class ReleasedSchema(LiveTest):
    weight = 10
    time_limit_s = 300

    def fill(self):
        """A database with everything, as a gateway leaves it that was killed. Its dump."""
        p = self.place(transport='ttl', max_delay='100d')
        p.psql("select postdate.rate_set('slow', 0.001), postdate.retry_policy_set('q'), "
               "postdate.recur_set('tick', '*/5 * * * * *', 'tick', 'x'::text), postdate.recur_set('paused', '@daily', 'tick', 'x'::text), postdate.recur_pause('paused')")
        dead(p, 'q')
        p.run('token', 'create', '--name', 'shop', '--exchange', 'postdate.delivery')
        g = p.gateway(**handover('ttl', grace='3s', lead='10s'), POSTDATE_RETRY_ATTEMPTS=1)
        inbox, web = p.consumer('first', bind='now'), Web(g.http())
        self.assertEqual(web.post('/v1/messages', {'routing_key': 'k', 'delay': '50s', 'body': 'once'}, Idempotency_Key='one').status, 201)
        p.psql("select postdate.schedule('now', 'x', '0') from generate_series(1, 20); select postdate.schedule('k', 'x', '0', exchange => 'missing')")
        p.psql("select postdate.schedule('k', 'late', '0', exchange => 'slow', deadline => now() + interval '1 s') from generate_series(1, 3)")
        p.psql("select postdate.schedule('k', 'x', '50 s', key => 'kept'), postdate.schedule('k', 'x', '50 s', key => 'other'), "
               "postdate.schedule('k', 'x', '50 s', key => 'gone'), postdate.schedule('far', 'x', '40 days')")
        p.psql("select postdate.cancel_key('gone'), postdate.schedule('k', 'y', '50 s', key => 'other', on_conflict => 'replace')")
        p.psql("select postdate.schedule('k', 'handed', '50 s', hold => 'broker') from generate_series(1, 50)")
        inbox.wait(20)
        wanted = {'delivered', 'failed', 'expired', 'cancelled', 'superseded', 'handed', 'scheduled'}
        wait_until(lambda: wanted <= set(p.counts()) and p.counts()['handed'] >= 50, 30, 'messages in each state')
        p.psql("select postdate.schedule('k', 'claimed', '8 s') from generate_series(1, 30)")
        wait_until(lambda: p.claimed() >= 30, 10, 'some to be claimed')
        g.kill9()
        return subprocess.run(['pg_dump', '--schema=postdate', p.postgres], capture_output=True, check=True, timeout=120).stdout

    def come_along(self, dump):
        """By the program of today and that of the next release, side by side, while messages come and go."""
        p = self.place(migrate=False, transport='ttl', max_delay='100d')
        subprocess.run(['psql', '-qX', '-v', 'ON_ERROR_STOP=1', '-d', p.postgres], input=dump, stdout=subprocess.DEVNULL, check=True, timeout=120)
        p.run('migrate', '--rebind')
        p.psql("update postdate.lineage set expires_at = now() + interval '1 day' where died_at is not null returning 1")  # of an old dump, too
        owed = {row[0] for row in p.psql(f'select id from postdate.message_now where {OWED}')}
        self.assertGreaterEqual(len(owed), 80)
        before, ended = {what: p.psql(query) for what, query in OBJECTS.items()}, p.psql(ENDED)
        self.assertEqual({what for what, rows in before.items() if not rows}, set(), 'in the dump')
        self.assertEqual(p.value("select key from postdate.key where key = 'kept'"), 'kept')
        self.assertEqual([state for state, _ in ended], ['cancelled', 'expired', 'failed', 'superseded'])
        env, count = handover('ttl', grace='3s'), RATE * SECONDS
        old = p.gateway(**env)
        inbox, ticks = p.consumer('q', bind='k'), p.consumer('ticks', bind='tick')
        load = p.load('consume', '--queue', 'load', '--exchange', 'postdate.delivery', '--bind', 'load', '--expect', count,
                      '--timeout-s', 60 + SECONDS * self.pace, '--idle-s', 2).wait_consuming()
        publisher = p.load('publish', '--routing-key', 'load', '--count', count, '--rate', RATE // self.pace, '--delay-spread-ms', '300,4000',
                           '--timeout-s', 60 + SECONDS * self.pace)
        self.assertIn('version 2 (upgraded from version 1', p.run('migrate', release=NEXT))
        new = p.gateway(release=NEXT, **env)
        wait_until(lambda: len(ticks.all()) >= 2, 30, 'the schedule to go on')
        self.assertEqual(old.term(), 0)
        publisher.result(60 + SECONDS * self.pace)
        r = load.result(60 + SECONDS * self.pace)
        self.assertEqual((r['missing'], r['early'], r['duplicates'], r['unexpected']), (0, 0, 0, 0), r)
        self.assertLess(r['max_ms'], 5000 * harness.slowness(), r)
        wait_until(lambda: owed <= {m.id for m in inbox.all()}, 90, 'all that the dump has')
        came = [m.id for m in inbox.all() if m.id in owed]
        self.assertEqual(len(came), len(set(came)), 'once each')
        self.assertEqual({what: p.psql(query) for what, query in OBJECTS.items()}, before)
        self.assertEqual(p.psql(ENDED), ended)
        self.assertEqual(p.value("select state from postdate.message_now where routing_key = 'far' and due > now()") or 'scheduled', 'scheduled')
        self.assertEqual(new.term(), 0)

    @harness.given_time
    def test_the_one_of_today(self):
        dump = self.fill()
        if os.environ.get('POSTDATE_KEEP_SCHEMA'):
            version = version_of(self.places[0])
            with gzip.GzipFile(os.path.join(FOLDER, f'{version}.sql.gz'), 'wb', mtime=0) as f:
                f.write(dump)
        self.come_along(dump)

    @harness.given_time
    def test_each_that_was_released(self):
        released = sorted(glob.glob(os.path.join(FOLDER, '*.sql.gz')))
        if not released:
            self.skipTest('there is no release yet')
        for path in released:
            with self.subTest(os.path.basename(path)), gzip.open(path) as f:
                self.come_along(f.read())
