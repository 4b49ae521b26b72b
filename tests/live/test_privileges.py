"""The logins that the documents tell to make, on both servers: enough for everything, and for nothing else."""
import json
import os
import re
import subprocess
import urllib.parse

import pika
import pika.exceptions

import harness
from handover_kit import handover, relayed
from harness import LiveTest, now_ms, postgres_url, psql_error, run_psql, wait_until
from broker_users import delete_user, url_of
from test_control import Requester
from test_faults2 import OwnPostgres
from test_tokens import Caller, make_token
from web import Web

PASSWORD = 'a password / with & signs'


def document(*path):
    with open(os.path.join(harness.ROOT, *path), encoding='utf-8') as f:
        return f.read()


class Servers(OwnPostgres):
    def rabbitmqctl(self, *args, **options):
        return harness.stack().rabbitmqctl(*args, **options)


@harness.not_san
class LeastPrivilege(LiveTest):
    weight = 60
    vhosts = 3
    together = True

    @classmethod
    def setUpClass(cls):
        """A Postgres in which the documented statements were run, word for word but for the names of role and database."""
        cls.servers = Servers.own(cls.addClassCleanup, 'least').start()
        statements = re.search(r'(?s)```sql\n(create role postdate .*?)```', document('docs', 'security.md')).group(1)
        for statement in re.sub(r'\bpostdate\b', 'least', statements).split(';'):
            if statement.strip():
                cls.servers.psql(statement)

    def place(self, **options):
        p = harness.Place(self.servers, migrate=False, **options)
        self.places = [p]
        self.addCleanup(p.close, drop=False)
        p.database = 'least'
        p.postgres = self.login('least')
        return p

    def login(self, role, database='least'):
        return postgres_url(self.servers.postgres, database).replace('user=postdate', f'user={role}')

    def add_user(self, p, *template):
        """The user of a definitions file, in the place's vhost; its URL."""
        made = subprocess.run([os.path.join(harness.ROOT, 'plugins-config', 'make_definitions.sh'),
                               os.path.join(harness.ROOT, *template)], input=PASSWORD.encode(), stdout=subprocess.PIPE, check=True)
        definitions = json.loads(made.stdout)
        user = f'{definitions["users"][0]["name"]}-{p.vhost}'
        definitions['vhosts'] = []
        definitions['users'][0]['name'] = definitions['permissions'][0]['user'] = user
        definitions['permissions'][0]['vhost'] = p.vhost
        path = os.path.join(harness.stack().directory, f'definitions-{user}.json')
        with open(path, 'w', encoding='utf-8') as f:
            json.dump(definitions, f)
        self.addCleanup(os.remove, path)
        os.chmod(path, 0o644)
        p.stack.rabbitmqctl('import_definitions', path)
        self.addCleanup(delete_user, p.stack, user)
        return url_of(p, user, urllib.parse.quote(PASSWORD, safe=''))

    def test_the_documents_name_the_same_patterns(self):
        found = re.search(r"set_permissions postdate '(.*)' '(.*)' '(.*)'", document('docs', 'install.md')).groups()
        rights = json.loads(document('plugins-config', 'definitions.json'))['permissions'][0]
        self.assertEqual(found, (rights['configure'], rights['write'].replace(')$', '|orders)$'), rights['read']))
        table = document('plugins-config', 'README.md').replace('\\|', '|')
        for what in ('configure', 'write', 'read'):
            self.assertIn(f'| {what} | `{rights[what]}` |', table)
        shop = re.search(r"set_permissions shop '(.*)' '(.*)' '(.*)'", document('docs', 'security.md')).groups()
        app = json.loads(document('docker', 'definitions-app.json'))['permissions'][0]
        self.assertEqual(tuple(x.replace('shop', 'app') for x in shop), (app['configure'], app['write'], app['read']))

    def test_enough_for_every_way_in_and_for_nothing_else(self):
        p = self.place(transport='ttl')
        gateway_url = self.add_user(p, 'plugins-config', 'definitions.json')
        app_url = self.add_user(p, 'docker', 'definitions-app.json')
        env = {'POSTDATE_AMQP_URL': gateway_url, 'POSTDATE_HTTP_TOKENS': 'on'}
        rc, out, err = p.cli('migrate', env=env)
        self.assertEqual((rc, err), (0, ''), out)  # no word about roles that are missing
        inbox = None
        for transport in ('ttl', 'timer') if p.stack.no_plugin else ('ttl', 'plugin', 'timer'):
            inbox = self.run_with(p, transport, app_url, inbox, env)
        self.refused_by_rabbitmq(p, gateway_url, {
            'declare a queue': lambda ch: ch.queue_declare('mine'),
            'declare an exchange': lambda ch: ch.exchange_declare('mine', 'topic'),
            'delete a queue': lambda ch: ch.queue_delete('foreign'),
            'purge a queue': lambda ch: ch.queue_purge('foreign'),
            'read a queue': lambda ch: ch.basic_get('foreign'),
            'bind a queue': lambda ch: ch.queue_bind('foreign', 'postdate.delivery', '#'),
            'read an exchange': lambda ch: ch.queue_bind('postdate.intake', 'amq.topic', '#'),
            'publish elsewhere': lambda ch: ch.basic_publish('amq.topic', 'k', b''),
        })
        self.refused_by_rabbitmq(p, app_url, {
            'control': lambda ch: ch.basic_publish('', 'postdate.control', b'{"op":"stats"}'),
            'deliver past the gateway': lambda ch: ch.basic_publish('postdate.delivery', 'k', b''),
            'forge what RabbitMQ waited with': lambda ch: ch.basic_publish('', 'postdate.exit', b''),
            'read what RabbitMQ waited with': lambda ch: ch.basic_get('postdate.exit'),
            'read what comes in': lambda ch: ch.basic_get('postdate.intake'),
            'read what was refused': lambda ch: ch.basic_get('postdate.rejected'),
            'see what comes in': lambda ch: ch.queue_bind('app.q', 'postdate', ''),
            'purge': lambda ch: ch.queue_purge('postdate.intake'),
            'delete an exchange': lambda ch: ch.exchange_delete('postdate'),
        })
        self.refused_by_postgres()

    def test_the_gateway_carries_nothing_to_its_own_queues(self):
        """With its own rights it would: so an application could have cancelled what others scheduled."""
        p = self.place(transport='timer')
        gateway_url, app_url = self.add_user(p, 'plugins-config', 'definitions.json'), self.add_user(p, 'docker', 'definitions-app.json')
        self.assertEqual(p.cli('migrate', '--rebind')[0], 0)  # the database is the class's, the vhost the test's
        g = p.gateway(POSTDATE_AMQP_URL=gateway_url)
        app = harness.Client(app_url)
        p.clients.append(app)
        victim = p.cli('schedule', '-k', 'k', '--delay', '1h', '--body', 'x')[1].strip()
        request = json.dumps({'op': 'cancel', 'id': victim})
        for key, headers in (('postdate.control', {}), ('app.q', {'CC': ['postdate.control']}), ('postdate.exit', {}),
                             ('postdate.intake.expired', {})):
            with self.subTest(f'AMQP: {key} {headers}'):
                app.publish(key, request.encode(), {'x-postdate-exchange': '', **headers})
                parked = p.client().wait_get('postdate.rejected')
                self.assertIn("gateway's own queue", parked.headers['x-postdate-error'])
                self.assertNotIn('CC', parked.headers)
        app.publish('k', request.encode(), {'x-delay': 'soon', 'CC': ['postdate.control']})
        self.assertEqual(p.client().wait_get('postdate.rejected').headers['x-postdate-cc'], ['postdate.control'])
        web = Web(g.http())
        self.addCleanup(web.close)
        answer = web.post('/v1/messages', {'exchange': '', 'routing_key': 'postdate.control', 'delay_ms': 0, 'body': request})
        self.assertEqual((answer.status, answer.problem), (422, 'invalid-message'), answer)
        made = run_psql(self.login('shop'), f"select postdate.schedule('postdate.control', '{request}', '0 s', exchange => '')")[0][0]
        wait_until(lambda: "gateway's own queue" in (p.value(f"select error from postdate.messages where id = '{made}'") or ''), 10,
                   'the one from SQL to be refused')
        self.assertEqual(p.value(f"select state from postdate.messages where id = '{victim}'"), 'scheduled')

    def run_with(self, p, transport, app_url, inbox, env):
        g = p.gateway(**env, **handover(transport))
        self.assertTrue(g.lines_with(rf'ready\b.*transport {transport}'), g.log())
        app = harness.Client(app_url)
        p.clients.append(app)
        if inbox is None:
            app.queue('app.q', 'k')
            inbox = harness.Consumer(app_url, 'app.q')
            p.clients.append(inbox)
        admin = p.client()
        work = admin.queue('work.' + transport)
        at, delay = now_ms(), 500 if transport == 'timer' else 2500  # long enough to be handed over
        app.publish('k', transport.encode(), {'x-delay': delay})
        app.publish(work, b'by the default exchange', {'x-delay': 300, 'x-postdate-exchange': ''})
        app.publish('k', b'bad', {'x-delay': 'soon'})
        token = make_token(p, 'postdate.delivery', name=transport, env=env)
        caller = Caller(g.http(), token)
        wait_until(lambda: caller.get('/v1/messages').status == 200, 5, 'the tokens to be read')
        self.assertEqual(caller.post('/v1/messages', {'routing_key': 'k', 'delay_ms': 200, 'body': 'http ' + transport}).status, 201)
        requester = Requester(p.amqp)
        self.addCleanup(requester.close)
        self.assertEqual(requester.ask({'op': 'schedule', 'routing_key': 'k', 'delay_ms': 200, 'body': 'control ' + transport,
                                        'token': token})['status'], 201)
        run_psql(self.login('shop'), f"select postdate.schedule('k', 'sql {transport}', '200 ms')")
        self.assertEqual(p.cli('schedule', '-k', 'k', '--delay', '200ms', '--body', 'cli ' + transport, env=env)[0], 0)
        self.assert_on_time(inbox.wait_body(transport.encode()), at, delay)
        for way in ('http', 'control', 'sql', 'cli'):
            inbox.wait_body(f'{way} {transport}'.encode())
        self.assertEqual(admin.wait_get(work).body, b'by the default exchange')
        self.assertIn('x-postdate-error', admin.wait_get('postdate.rejected').headers)
        wait_until(lambda: set(p.counts()) == {'delivered'}, 10, 'all to be settled')
        self.assertGreaterEqual(int(run_psql(self.login('report'), 'select count(*) from postdate.messages')[0][0]), 6)
        through = relayed(g)  # the plain one, and a busy gateway or not, that by the default exchange
        self.assertIn(through, (0,) if transport == 'timer' else (1, 2))
        self.assertEqual(g.lines_with('refused|cannot|not asked|denied'), [], g.log())
        self.assertEqual(g.term(), 0)
        return inbox

    def refused_by_rabbitmq(self, p, url, attempts):
        p.client().queue('foreign')
        for what, attempt in attempts.items():
            with self.subTest(what), pika.BlockingConnection(pika.URLParameters(url)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                with self.assertRaises(pika.exceptions.ChannelClosedByBroker) as caught:
                    attempt(channel)
                self.assertEqual(caught.exception.reply_code, 403)

    def refused_by_postgres(self):
        self.servers.psql('create database private')
        self.servers.psql('revoke all on database private from public')
        attempts = (('least', 'create role more'), ('least', 'create database more'), ('least', 'select rolpassword from pg_authid'),
                    ('least', "copy (select 1) to program 'true'"), ('least', "select pg_read_file('/etc/passwd')"),
                    ('least', 'alter system set fsync = off'), ('least', 'alter role shop superuser'),
                    ('shop', 'select * from postdate.message_now'), ('shop', 'select * from postdate.messages'),
                    ('shop', 'select * from postdate.token'), ('shop', 'insert into postdate.meta default values'),
                    ('shop', "update postdate.message set next_at = coalesce(next_at, due), state = 'scheduled'"), ('shop', 'create table postdate.mine (n int)'),
                    ('shop', 'create schema mine'), ('shop', 'set role least'),
                    ('report', "select postdate.schedule('k', 'x', '1h')"), ('report', 'select * from postdate.token'),
                    ('report', 'delete from postdate.messages'), ('report', 'select body from postdate.message'))
        for role, statement in attempts:
            with self.subTest(f'{role}: {statement}'):
                self.assertIn(psql_error(self.login(role), statement)[0], ('42501', '55000'))  # 55000: a view that nobody can write
        for role, database in (('least', 'private'), ('nobody', 'least')):
            with self.subTest(f'{role} in {database}'):
                self.servers.psql("do $$ begin create role nobody login; exception when duplicate_object then null; end $$")
                done = subprocess.run(['psql', '-d', self.login(role, database), '-c', ''], stdin=subprocess.DEVNULL,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=20)
                self.assertIn('permission denied for database', done.stderr.decode())
