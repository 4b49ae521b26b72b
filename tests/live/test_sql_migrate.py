"""Databases of earlier versions are upgraded with the messages that are in them."""
import os

import harness
from harness import LiveTest, now_ms, wait_until


class SqlMigrate(LiveTest):
    def place_of_version(self, version):
        """A place whose schema was made by the steps up to that version; it has the partitions of today and tomorrow."""
        p = self.place(migrate=False)
        p.psql("create schema postdate; create table postdate.meta (one boolean primary key default true check (one), version integer "
               f"not null, broker text, vhost text, fed_until timestamptz); insert into postdate.meta (version) values ({version})")
        steps = os.path.join(harness.ROOT, 'sql', 'schema')
        for name in sorted(os.listdir(steps)):
            if int(name[:3]) <= version:
                with open(os.path.join(steps, name), encoding='utf-8') as f:
                    p.psql('set search_path = pg_catalog; ' + f.read())
        for start, end, day in p.psql("select t, t + interval '24 hours', to_char(t at time zone 'utc', 'YYYYMMDD') from "
                                      "generate_series(date_trunc('day', now(), 'UTC'), now() + interval '1 day', interval '24 hours') t"):
            p.psql(f"create table postdate.message_{day} partition of postdate.message for values from ('{start}') to ('{end}')")
        return p

    def test_whoever_is_in_the_way_is_named(self):
        """An open transaction; and another migration, which waits for it, too."""
        p = self.place()
        other = p.session()
        other.run("set application_name = 'a report'; begin; lock table postdate.meta in share mode")
        one = p.start_cli('migrate')
        pid = int(other.run('select pg_backend_pid()')[0][0])
        said = one.stderr.readline().decode()
        self.assertRegex(said, rf'waiting for a lock, for at most 120 s: it is held by pid {pid} of \w+ \(a report\), idle in transaction')
        two = p.start_cli('migrate')
        self.assertRegex(two.stderr.readline().decode(), r'it is held by .*pid \d+ of postdate \(postdate\)')
        other.run('rollback')
        for process in (one, two):
            self.assertEqual(process.wait(60 * harness.SLOWNESS), 0)

    @harness.not_san
    def test_a_version_1_database_with_messages_is_upgraded(self):
        p = self.place_of_version(1)
        due = min(now_ms() + 4000 * harness.SLOWNESS, (now_ms() // 86_400_000 + 1) * 86_400_000 - 1)
        p.psql(f"insert into postdate.message (due, next_at, id, hold, exchange, routing_key, key, properties, body) "
               f"select t, t, (lpad(to_hex({due}), 12, '0') || '8' || substr(replace(gen_random_uuid()::text, '-', ''), 14))::uuid, 'g', "
               f"'postdate.delivery', 'old', 'k-' || i, '\\x100002', convert_to('old ' || i, 'UTF8') "
               f"from generate_series(1, 3) i, (select timestamptz 'epoch' + {due} * interval '1 ms') x (t)")
        p.psql('insert into postdate.key select exchange, key, due, id from postdate.message')
        rc, out, err = p.cli('migrate')
        self.assertEqual(rc, 0, err)
        self.assertIn('upgraded from version 1', out)
        self.assertEqual(p.cli('migrate')[0], 0, 'again')
        self.assertEqual(p.value("select postdate.cancel_key('k-3')"), 'cancelled')
        one = p.value("select id from postdate.key where key = 'k-2'")
        self.assertEqual(p.value(f"select postdate.reschedule('{one}', '500 ms')"), 'rescheduled')
        p.gateway()
        inbox = p.consumer('q', bind='old')
        p.psql("select postdate.schedule('old', 'new', '100 ms', headers => '{\"h\": 1}')")
        wait_until(lambda: p.value("select count(*) from postdate.message where state in ('scheduled', 'claimed')") == '0', 20,
                   'all to be settled')
        self.assertIn(b'old 1', [m.body for m in inbox.wait(2)])
        self.assertNotIn(b'old 3', [m.body for m in inbox.all()])

    def test_a_version_13_database_with_a_message_that_was_tried_is_upgraded(self):
        """Whether to publish it alone was read from the text of its error until then; now a column says it."""
        p = self.place_of_version(13)
        p.psql('create table postdate.message_20990101 (like postdate.message including all); '
               'create view mine as select id, state from postdate.messages')
        one = p.value("select postdate.schedule('k', 'tried', '4 s')")
        p.psql(f"update postdate.message set attempts = 2, error = 'unroutable: NO_ROUTE (312)' where id = '{one}'")
        rc, out, err = p.cli('migrate')
        self.assertEqual(rc, 0, err)
        self.assertIn('upgraded from version 13', out)
        columns = "select count(*) from pg_attribute where attname in ('isolate', 'deadline') and attrelid in ('postdate.message_20990101'::regclass, 'postdate.message'::regclass)"
        self.assertEqual(p.value(columns), '4', 'also of a day that is not attached')
        self.assertEqual(p.psql('select state from mine'), [['scheduled']], 'views of users stay')
        rights = "select count(*) from pg_proc where proname = 'schedule' and has_function_privilege('postdate_producer', oid, 'execute')"
        self.assertEqual(p.value(rights), '4')
        p.psql('drop table postdate.message_20990101')
        p.gateway()
        self.assertEqual([m.id for m in p.consumer('q', bind='k').wait(1)], [one])

    @harness.not_san
    def test_what_was_refused_is_noted_to_be_published_alone_and_what_was_unroutable_is_not(self):
        p = self.place()
        p.gateway(POSTDATE_RETRY_FIRST='1h', POSTDATE_RETRY_MAX='1h')
        p.psql("select postdate.schedule('nowhere', 'x', '0')")
        p.psql("select postdate.schedule('k', 'x', '0', exchange => 'missing')")
        tried = 'select count(*) from postdate.message where attempts = 1'
        wait_until(lambda: p.value(tried) == '2', 20, 'both to be tried')
        self.assertEqual(p.psql('select routing_key, isolate from postdate.message order by 1'), [['k', 't'], ['nowhere', 'f']])
