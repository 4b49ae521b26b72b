"""`postdate doctor` about the database: schema, rights, settings of the server, a pooler in between."""
import os

import harness
from doctor_kit import Doctor
from harness import Place, Stack, free_port, run_psql, wait_until
from pooler_kit import bouncer, need_pgbouncer


class DoctorDatabase(Doctor):
    def test_time_zones(self):
        p = self.place()
        p.psql("select postdate.recur_set('a', '0 9 * * *', 'k', 'x'::text, zone => 'Europe/Berlin'), "
               "postdate.recur_set('b', '0 9 * * *', 'k', 'x'::text, zone => 'America/New_York')")
        p.psql('select postdate.recur_zones()')
        self.assert_finding(self.doctor(p), 'database.zones', 'ok', '2 are used')
        p.psql("update postdate.recur set zone = 'America/Gone' where name = 'b'; update postdate.recur_zone set mark = 'another'")
        found = self.doctor(p)
        self.assert_finding(found, 'database.zones', 'fail', 'America/Gone (1)', 'tzdata-legacy')
        self.assert_finding(found, 'database.zones', 'warn', 'Europe/Berlin', 'restart')

    def test_away_or_not_there(self):
        p = self.place(migrate=False)
        found = self.doctor(p, POSTDATE_POSTGRES_URL=f'postgresql://u:s3cret@127.0.0.1:{free_port()}/x')
        self.assert_finding(found, 'database.connection', 'fail', 'refused', 'start PostgreSQL')
        self.assertNotIn('s3cret', self.said)
        for check in ('database.schema', 'clock.database', 'messages'):
            self.assert_finding(found, check, 'skip', 'no connection')
        self.assert_finding(found, 'broker.connection', 'ok')
        self.assert_finding(self.doctor(p, POSTDATE_POSTGRES_URL=p.postgres.replace(p.database, 'nothing_here')),
                            'database.connection', 'fail', 'nothing_here', 'createdb -O postdate -E UTF8 -T template0 nothing_here')
        self.assert_finding(self.doctor(p, POSTDATE_POSTGRES_URL=p.postgres.replace('user=postdate', 'user=nobody1')),
                            'database.connection', 'fail', 'nobody1', 'sudo -u postgres createuser nobody1')

    def test_schema(self):
        p = self.place(migrate=False)
        self.assert_finding(self.doctor(p), 'database.schema', 'fail', 'no schema', 'postdate migrate')
        p.migrate()
        self.assert_ok(self.doctor(p), 'database.schema', 'database.rights')
        version = p.value('select version from postdate.meta')
        p.psql('update postdate.meta set version = 9999, oldest_gateway = 9998')
        self.assert_finding(self.doctor(p), 'database.schema', 'fail', '9999', 'newer version')
        p.psql('update postdate.meta set version = 0')
        found = self.doctor(p)
        self.assertEqual(found['database.schema'][0]['status'], 'fail')
        self.assert_finding(found, 'database.rights', 'skip', 'schema')
        p.psql(f'update postdate.meta set version = {version}, oldest_gateway = 0')
        self.assert_ok(self.doctor(p), 'database.schema')

    def test_rights(self):
        p = self.place(migrate=False)
        role = 'r_' + p.database
        superuser = p.postgres.replace('user=postdate', 'user=postgres')
        run_psql(superuser, f'create role {role} login')
        self.addCleanup(run_psql, superuser, f'drop owned by {role}; drop role {role}')
        url = p.postgres.replace('user=postdate', 'user=' + role)
        self.assert_finding(self.doctor(p, POSTDATE_POSTGRES_URL=url), 'database.schema', 'fail', remedy='grant create')
        p.migrate()
        self.assert_finding(self.doctor(p, POSTDATE_POSTGRES_URL=url), 'database.schema', 'fail', remedy='owner')
        p.psql(f'grant usage on schema postdate to {role}; grant select on all tables in schema postdate to {role}')
        found = self.doctor(p, POSTDATE_POSTGRES_URL=url)
        self.assert_finding(found, 'database.rights', 'fail', 'message', '"postdate"')
        p.psql(f'grant all on all tables in schema postdate to {role}')
        found = self.doctor(p, POSTDATE_POSTGRES_URL=url)
        self.assert_finding(found, 'database.rights', 'fail', 'partitions', '"postdate"')
        run_psql(superuser, f'grant postdate to {role}')
        self.assert_ok(self.doctor(p, POSTDATE_POSTGRES_URL=url), 'database.rights')

    def test_roles_of_sql_users(self):
        p = self.place()
        self.assert_ok(self.doctor(p), 'database.roles')
        p.psql('revoke select on postdate.messages from postdate_reader')
        found = self.doctor(p)
        self.assert_finding(found, 'database.roles', 'warn', 'lacking rights in the schema postdate: postdate_reader',
                            'postdate migrate')
        self.assert_nothing_failed(found)
        p.psql('revoke usage on schema postdate from postdate_producer')
        self.assert_finding(self.doctor(p), 'database.roles', 'warn', 'postdate_producer, postdate_reader')
        p.migrate()
        self.assert_ok(self.doctor(p), 'database.roles')

    def test_partitions(self):
        p = self.place()
        self.assert_finding(self.doctor(p, POSTDATE_DELIVERY_MAX_DELAY='30d'), 'database.partitions', 'warn', 'max_delay',
                            'postdate migrate')
        day = p.value("select to_char(current_date + 2, 'YYYYMMDD')")
        p.psql(f'drop table postdate.message_{day}')
        self.assert_finding(self.doctor(p), 'database.partitions', 'fail', '1 of the days', 'postdate migrate')
        p.migrate()
        self.assert_ok(self.doctor(p), 'database.partitions')
        for (name,) in p.psql("select relname from pg_class where relname ~ '^message_[0-9]{8}$' and relkind = 'r'"):
            p.psql(f'drop table postdate.{name}')
        self.assert_finding(self.doctor(p), 'database.partitions', 'fail', 'they end', 'postdate migrate')

    def test_durability_and_read_only(self):
        p = self.place()
        p.psql(f'alter database {p.database} set synchronous_commit = off')
        self.assert_finding(self.doctor(p), 'database.durability', 'warn', 'synchronous_commit', 'alter role')
        p.psql(f'alter database {p.database} reset synchronous_commit')
        p.psql(f'alter database {p.database} set default_transaction_read_only = on')
        self.assert_finding(self.doctor(p), 'database.server', 'fail', 'read_only', 'default_transaction_read_only = off')
        p.stack.psql(f'alter database {p.database} reset default_transaction_read_only')
        self.assert_ok(self.doctor(p), 'database.server', 'database.durability')

    def test_messages(self):
        p = self.place()
        found = self.doctor(p)
        self.assert_finding(found, 'gateways', 'warn', 'none is ready', 'may wait for RabbitMQ')
        self.assert_ok(found, 'messages.overdue', 'messages.failed', 'messages.retrying')
        self.assertEqual(p.cli('schedule', '-k', 'k', '--delay', '1ms', '--body', 'x')[0], 0)
        p.psql("update postdate.message set next_at = now() - interval '1 min'")
        self.assert_finding(self.doctor(p), 'messages.overdue', 'warn', '1, the oldest', 'gateway')
        g = p.gateway(POSTDATE_RETRY_ATTEMPTS='1')
        wait_until(lambda: p.counts() == {'failed': 1}, 10, 'it to fail: nothing is bound')
        found = self.doctor(p)
        self.assert_finding(found, 'messages.failed', 'warn', '1 could not', 'list --state failed')
        self.assert_ok(found, 'gateways', 'messages.overdue')
        self.assertEqual(g.term(), 0)


@harness.not_san
class DoctorOwnPostgres(Doctor):
    """Settings of the whole server, and a standby."""
    weight = 40
    vhosts = 0

    def test_settings_of_the_server(self):
        servers = Stack.own(self.addCleanup, 'doctor')
        servers.command('start-postgres')
        folder = os.path.join(servers.directory, 'postgres')
        url = f'postgresql:///postgres?host={folder}/run&port=5432&user=postgres'
        p = Place(harness.stack(), migrate=False)
        self.addCleanup(p.close)
        for name in ('fsync', 'full_page_writes'):
            run_psql(url, f'alter system set {name} = off')
            run_psql(url, 'select pg_reload_conf()')
            wait_until(lambda: run_psql(url, f'show {name}') == [['off']], 10, f'{name} to be off')
            found = self.doctor(p, POSTDATE_POSTGRES_URL=url)
            self.assert_finding(found, 'database.durability', 'warn', f'{name} is off', f'alter system set {name} = on')
            run_psql(url, f'alter system reset {name}')
            run_psql(url, 'select pg_reload_conf()')
            wait_until(lambda: run_psql(url, f'show {name}') == [['on']], 10, f'{name} to be on')
        self.assert_ok(self.doctor(p, POSTDATE_POSTGRES_URL=url), 'database.server', 'database.durability')
        self.check_roles(p, url)
        servers.command('stop-postgres')
        data = next(d for d, _, files in os.walk(folder) if 'PG_VERSION' in files and 'postgresql.conf' in files)
        signal_file = os.path.join(data, 'standby.signal')
        with open(signal_file, 'w', encoding='utf-8'):
            pass
        owner = os.stat(data)
        os.chown(signal_file, owner.st_uid, owner.st_gid)
        servers.command('start-postgres', check=False)
        self.assert_finding(self.doctor(p, POSTDATE_POSTGRES_URL=url), 'database.server', 'fail', 'standby',
                            'target_session_attrs')

    def check_roles(self, p, url):
        env = {'POSTDATE_POSTGRES_URL': url}
        self.assertEqual(p.cli('migrate', env=env)[0], 0)
        self.assert_ok(self.doctor(p, **env), 'database.roles')
        run_psql(url, 'drop owned by postdate_producer; drop role postdate_producer')
        self.assert_finding(self.doctor(p, **env), 'database.roles', 'ok', 'not there: postdate_producer; wanted only for SQL users')
        self.assertEqual(p.cli('migrate', env=env)[0], 0)
        self.assert_ok(self.doctor(p, **env), 'database.roles')
        run_psql(url, 'drop owned by postdate_producer, postdate_reader; drop role postdate_producer, postdate_reader; create role little login')
        run_psql(url, 'create database little owner little')
        little = {'POSTDATE_POSTGRES_URL': url.replace('/postgres?', '/little?').replace('user=postgres', 'user=little')}
        self.assertIn('CREATE ROLE postdate_producer', p.cli('migrate', env=little)[2])
        self.assertNotIn('CREATE ROLE', p.cli('migrate', env=little)[2])  # it would be said at each start of the unit
        self.assert_ok(self.doctor(p, **little), 'database.roles')


@harness.not_san
class DoctorPooler(Doctor):
    weight = 20

    def test_poolers(self):
        need_pgbouncer(self)
        p = self.place()
        url, _ = bouncer(self, p, 'session')
        found = self.doctor(p, POSTDATE_POSTGRES_URL=url)
        self.assert_finding(found, 'database.pooling', 'ok', 'through a pooler')
        self.assert_ok(found, 'database.schema')
        url, console = bouncer(self, p, 'transaction')
        found = self.doctor(p, POSTDATE_POSTGRES_URL=url)
        self.assert_finding(found, 'database.pooling', 'fail', 'shares sessions', 'pool_mode = session')
        self.assert_finding(found, 'database.schema', 'skip', 'pooler')
        run_psql(console, 'pause')
        found = self.doctor(p, POSTDATE_POSTGRES_URL=url)
        self.assert_finding(found, 'database.connection', 'fail', 'no answer')
        self.assert_finding(found, 'broker.connection', 'ok')
