"""Logins beside the gateway's own: those without any right, which stop nothing, and several of the gateway's."""
import json
import os

from harness import ROOT, LiveTest, Session, run_psql, wait_until
from web import Web

COUNT = 300
CLASS = 1886352244  # of advisory locks: "post"


class Logins(LiveTest):
    who_waits = 'timer'

    def login(self, p, name, member=False):
        """The URL of a login of its own; member: of the role that owns the schema."""
        role = f'{name}_{p.database}'
        p.stack.psql(f'create role {role} login')
        self.addCleanup(p.stack.psql, f'drop role if exists {role}')
        self.addCleanup(p.close)  # before that
        if member:
            p.stack.psql(f'grant postdate to {role}')
        return p.postgres.replace('user=postdate', f'user={role}')

    def stranger(self, p):
        """A session of a login that has no right but to connect."""
        s = Session(self.login(p, 'stranger'))
        p.children.append(s.process)
        return s

    def owned(self, p, instance):
        return int(p.value(f'select count(*) from postdate.message_now where owner = {instance}'))

    def instance(self, p):
        return p.value('select max(id) from postdate.instance')

    def claim(self, p, **env):
        """A gateway that has claimed COUNT messages, and its instance."""
        g = p.gateway(POSTDATE_DELIVERY_LEAD='60s', **env)
        me = self.instance(p)
        p.load('publish', '--routing-key', 'k', '--count', COUNT, '--delay-spread-ms', '40000,50000').result()
        wait_until(lambda: self.owned(p, me) == COUNT, 15, 'all to be claimed')
        return g, me


class Strangers(Logins):
    def test_what_comes_in_waits_for_no_lock_of_a_stranger(self):
        p = self.place()
        self.stranger(p).run(f'select pg_advisory_lock({CLASS}, 0)')
        g = p.gateway()
        inbox, c = p.consumer('q', bind='k'), p.client()
        for i in range(10):
            c.publish('k', b'%d' % i, {'x-delay': 100})
        inbox.wait(10, 15)
        self.assertEqual(g.term(), 0)

    def test_the_days_are_made_and_dropped_and_counts_go_on(self):
        """Also `postdate migrate`, and the duties of the janitor."""
        p = self.place()
        stranger = self.stranger(p)
        last = p.value("select max(relname) from pg_class where relname ~ '^message_[0-9]{8}$'")
        p.psql(f'drop table postdate.{last}; create table postdate.message_20260101 (like postdate.message including all)')
        for i in range(-9, 0):
            stranger.run(f'select pg_advisory_lock({CLASS}, {i})')
        rc, out, err = p.cli('migrate', timeout=30)
        self.assertEqual((rc, err), (0, ''), out)
        self.assertEqual(p.value(f"select to_regclass('postdate.{last}') is not null"), 't')
        self.assertEqual(p.psql("select * from postdate.recur_apply('{}')"), [])
        g = p.gateway()
        p.cli('schedule', '-k', 'k', '--delay', '2h', '--body', 'x')
        wait_until(lambda: p.value("select to_regclass('postdate.message_20260101') is null") == 't', 20, 'a day to be dropped')
        wait_until(lambda: p.value('select count(*) from postdate.forecast') != '0', 25, 'the forecast to be counted')
        self.assertEqual(g.term(), 0)

    def test_an_idempotency_key_is_nobody_elses_by_the_lock_of_a_stranger(self):
        """Of what many transactions do, whose lock was a hash of the key."""
        p = self.place()
        web = Web(p.gateway().http())
        stranger = self.stranger(p)
        stranger.run(f"select pg_advisory_lock(hashtextextended('shift', hashtextextended('', {CLASS})))")
        p.cli('schedule', '-k', 'k', '--delay', '1h', '--body', 'x')
        for _ in range(2):
            answer = web.post('/v1/messages:reschedule', {'filter': {}, 'all': True, 'shift_ms': 60_000}, Idempotency_Key='shift')
            self.assertEqual((answer.status, answer.json), (200, {'matched': 1, 'changed': 1, 'dry_run': False}), answer.body)
        self.assertEqual(p.value('select count(*) from postdate.message_now'), '2', 'moved once')
        # Somebody took it and did not answer. He is at it if his session is one of the owner's that was there then.
        member, took = p.session(), 'update postdate.idempotency set status = null, holder_since = clock_timestamp(), holder = '
        for holder, since, status in ((member, '0', 409), (stranger, '0', 200), (member, '1 h', 200)):
            pid = holder.run('select pg_backend_pid()')[0][0]
            p.psql(f"{took}{pid}; update postdate.idempotency set holder_since = holder_since - interval '{since}'")
            answer = web.post('/v1/messages:reschedule', {'filter': {}, 'all': True, 'shift_ms': 60_000}, Idempotency_Key='shift')
            self.assertEqual(answer.status, status, answer.body)
        member.close()


class Members(Logins):
    vhosts = 2

    def test_claims_are_let_go_whoever_may_end_whose_session(self):
        """One gateway is stopped, another one killed, each with a login of its own: the third may end neither's session."""
        p = self.place()
        logins = [self.login(p, name, member=True) for name in ('one', 'two', 'three')]
        stopped, stopped_id = self.claim(p, POSTDATE_POSTGRES_URL=logins[0])
        stopped.pause()
        wait_until(lambda: p.value('select heartbeat_at < clock_timestamp() - interval \'3 s\' from postdate.instance') == 't', 15,
                   'it to be silent')
        killed = p.gateway(POSTDATE_DELIVERY_LEAD='60s', POSTDATE_POSTGRES_URL=logins[1])
        killed_id = self.instance(p)
        third = p.gateway(POSTDATE_DELIVERY_LEAD='60s', POSTDATE_POSTGRES_URL=logins[2])
        p.psql(f'update postdate.message set next_at = coalesce(next_at, due), owner = {killed_id} where id in (select id from postdate.message_now limit {COUNT // 2})')
        killed.kill9()
        for what in (killed_id, stopped_id):
            wait_until(lambda w=what: self.owned(p, w) == 0, 25, f'the claims of instance {what} to be let go')
        self.assertEqual(third.lines_with('take-over: .*42501'), [])
        stopped.resume()
        stopped.wait_log('another gateway took over from it')
        self.assertEqual((stopped.term(), third.term()), (0, 0))

    def test_what_a_dead_gateway_holds_is_overdue(self):
        """Nobody was left to let it go; it was nowhere counted."""
        p = self.place()
        g, me = self.claim(p)
        g.kill9()
        p.psql(f"update postdate.message set next_at = now() - interval '1 minute', owner = {me}")
        status = json.loads(p.cli('status', '--json')[1])
        self.assertEqual(status['overdue']['count'], COUNT)
        self.assertIsNotNone(status['overdue']['oldest'])
        self.assertEqual(self.owned(p, me), COUNT)

    def test_all_that_is_made_belongs_to_the_owner_of_the_schema(self):
        """A day that a member made could not be dropped by the others."""
        p = self.place()
        last = p.value("select max(relname) from pg_class where relname ~ '^message_[0-9]{8}$'")
        p.psql(f'drop table postdate.{last}')
        self.assertEqual(p.gateway(POSTDATE_POSTGRES_URL=self.login(p, 'one', member=True)).term(), 0)
        self.assertEqual(p.value(f"select tableowner from pg_tables where schemaname = 'postdate' and tablename = '{last}'"), 'postdate')

    def test_migrate_by_a_member_or_a_superuser_leaves_all_to_the_owner(self):
        for who in ('a member', 'a superuser'):
            with self.subTest(who):
                p = self.place(migrate=False)
                url = self.login(p, 'one', member=True) if who == 'a member' else p.postgres.replace('user=postdate', 'user=postgres')
                rc, out, err = p.cli('migrate', env={'POSTDATE_POSTGRES_URL': url})
                self.assertEqual((rc, err), (0, ''), out)
                self.assertEqual(p.psql("select distinct pg_get_userbyid(relowner) from pg_class where relnamespace = 'postdate'::regnamespace"
                                        " union select pg_get_userbyid(proowner) from pg_proc where pronamespace = 'postdate'::regnamespace"
                                        " union select pg_get_userbyid(nspowner) from pg_namespace where nspname = 'postdate'"),
                                 [['postdate']])
                g = p.gateway()
                inbox = p.consumer('q', bind='k')
                p.client().publish('k', b'x', {'x-delay': 100})
                inbox.wait(1)
                self.assertEqual(g.term(), 0)

    def test_a_login_that_is_no_member_is_told_what_to_grant(self):
        p = self.place()
        url = self.login(p, 'other')
        role = f'other_{p.database}'
        rc, _, err = p.cli('migrate', env={'POSTDATE_POSTGRES_URL': url})
        self.assertEqual(rc, 77, err)
        self.assertIn(f'grant postdate to {role}', err)
        g = p.gateway(wait=False, POSTDATE_POSTGRES_URL=url)
        self.assertEqual(g.wait(), 77, g.log())
        self.assertTrue(g.lines_with(f'grant postdate to {role}'), g.log())


class Surroundings(Logins):
    """What an administrator of the database may have set up beside."""

    def superuser(self, p):
        return p.postgres.replace('user=postdate', 'user=postgres')

    def test_all_goes_on_beside_a_publication_for_all_tables(self):
        p = self.place()
        self.assertEqual(p.psql("select relname from pg_class where relnamespace = 'postdate'::regnamespace and relkind in ('r', 'p') and not exists "
                                "(select from pg_index where indrelid = pg_class.oid and indisprimary)"), [])
        run_psql(self.superuser(p), 'create publication everything for all tables')
        g = p.gateway()
        inbox, c = p.consumer('q', bind='k'), p.client()
        for i in range(20):
            c.publish('k', b'%d' % i, {'x-delay': 100 + i, 'x-postdate-key': f'key {i % 7}'})
        p.cli('schedule', '-k', 'k', '--delay', '2h', '--body', 'x')
        inbox.wait(7)
        wait_until(lambda: p.value('select count(*) from postdate.forecast') != '0', 25, 'the forecast to be counted')
        p.psql("update postdate.forecast set at = at - interval '4 days'")
        wait_until(lambda: p.value("select count(*) from postdate.forecast where at < now() - interval '2 days'") == '0', 25, 'the old to be removed')
        self.assertEqual(g.lines_with('replica identity'), [])
        self.assertEqual(g.term(), 0)

    def test_only_far_days_that_may_not_be_made_are_a_warning(self):
        p = self.place()
        last = p.value("select max(relname) from pg_class where relname ~ '^message_[0-9]{8}$'")
        p.psql(f'drop table postdate.{last}')
        run_psql(self.superuser(p), "create function public.no_ddl() returns event_trigger language plpgsql as "
                 "$$ begin raise exception 'no DDL here'; end $$; create event trigger no_ddl on ddl_command_start when tag in ('CREATE TABLE') execute function no_ddl()")
        self.addCleanup(run_psql, self.superuser(p), 'drop event trigger if exists no_ddl')
        g = p.gateway()
        self.assertTrue(g.lines_with('1 partitions far ahead are missing and cannot be created: .*no DDL here'), g.log())
        inbox = p.consumer('q', bind='k')
        p.client().publish('k', b'x', {'x-delay': 100})
        inbox.wait(1)
        self.assertEqual(g.term(), 0)
        rc, _, err = p.cli('migrate')
        self.assertEqual(rc, 0, err)
        self.assertIn('cannot be created', err)

    def test_a_locked_key_keeps_no_other_from_being_forgotten(self):
        p = self.place()
        p.cli('schedule', '-k', 'k', '--delay', '1h', '--body', 'x')  # days behind the last one that has a message are not looked at
        p.psql("insert into postdate.key select '', 'old ' || i, now() - interval '70 days', postdate.id_make(now() - interval '70 days')"
               " from generate_series(1, 20) i")
        held = p.session()
        held.run("begin; select from postdate.key where key = 'old 7' for update")
        g = p.gateway()
        wait_until(lambda: p.psql('select key from postdate.key') == [['old 7']], 15, 'all others to be forgotten')
        held.close()
        self.assertEqual(g.term(), 0)

    def test_a_key_that_passes_on_while_keys_are_forgotten_stays(self):
        """The program's own statement, held up between its view of the data and the key: by then a new message has it."""
        p = self.place()
        with open(os.path.join(ROOT, 'sql/query/prune_keys.sql'), encoding='utf-8') as f:
            query = f.read()
        self.assertEqual(query.count('and not exists ('), 1)
        query = query.replace('and not exists (', 'and (select pg_advisory_xact_lock_shared(7)::text) is not null and not exists (')
        p.psql("insert into postdate.key select '', 'k', date_trunc('day', now(), 'UTC'), postdate.id_make(date_trunc('day', now(), 'UTC'))")
        taker = p.session()
        taker.run("begin; select pg_advisory_lock(7); update postdate.key set id = postdate.id_make(due)")
        janitor = p.session()
        janitor.run(f'prepare prune as {query}')
        janitor.process.stdin.write("execute prune (date_trunc('day', now(), 'UTC'), date_trunc('day', now(), 'UTC') + interval '1 day', 0, 100, "
                                    "postdate.id_floor(date_trunc('day', now(), 'UTC')), postdate.id_floor(now() + interval '1 day'));\n")
        janitor.process.stdin.flush()
        wait_until(lambda: p.value("select count(*) from pg_locks where locktype = 'advisory' and objid = 7 and not granted "
                                   "and database = (select oid from pg_database where datname = current_database())") == '1', 10, 'it to be held up')
        taker.run('insert into postdate.message (due, next_at, created_at, id, hold, exchange, routing_key, key, properties, body) '
                  "select due, due, now(), id, 'g', '', 'k', 'k', '', '' from postdate.key; commit; select pg_advisory_unlock(7)")
        janitor.run('select 1')
        self.assertEqual(p.value('select key from postdate.key'), 'k')
        taker.close()
        janitor.close()
