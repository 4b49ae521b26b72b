"""What waits in other schedulers comes to Postdate by the programs of docs/examples (docs/from-others.md): all of it, once, when it is due there.

Tables have the columns and types that the libraries give them, entries are as they write them; the page names the sources. Redis is a server
of the test's own; without redis-server these tests are skipped.
"""
import base64
import datetime as dt
import json
import os
import shutil
import subprocess
import tempfile

import harness
from harness import SharedTest, wait_until
from test_examples import EXAMPLES

UTC = dt.timezone.utc
AT = (dt.datetime.now(UTC) + dt.timedelta(days=1)).replace(second=15, microsecond=250000)  # all entries are due from here on, a minute apart
COUNT = 25


def due(i):
    return AT + dt.timedelta(minutes=i)


def protobuf(number, value):
    """A field of at most 127 bytes, or a small number."""
    return bytes([number << 3, value]) if isinstance(value, int) else bytes([number << 3 | 2, len(value)]) + value


class Export(SharedTest):
    who_waits = 'timer'
    time_limit_s = 120

    def program(self, name, *args, ok=True, **env):
        """Runs a program of the page with our `postdate` in PATH: (exit code, what it said)."""
        path = harness.BIN_DIR + os.pathsep + os.environ['PATH']
        command = ['/usr/bin/python3' if name.endswith('.py') else 'sh', os.path.join(EXAMPLES, name), *args]
        done = subprocess.run(command, env=self.p.env(PATH=path, JOBS_URL=self.p.postgres, AMQP_URL=self.p.amqp, **env), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60 * harness.slowness(), check=False)
        out = done.stdout.decode()
        self.assertEqual(done.returncode == 0, ok, out)
        return out

    def stored(self, prefix):
        """[[key, routing key, due, exchange, headers, body]] of what has such a key."""
        return self.p.psql("select key, routing_key, to_char(due_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.MS'), exchange, headers, convert_from(body, 'UTF8') "
                           f"from postdate.messages where key like '{prefix}/%' order by due_at")

    def exported(self, before, prefix, name, *args, **env):
        """All of them, once, however often it is run; with the due times of there. Returns what is stored."""
        self.assertEqual(before, COUNT)
        self.assertIn(f'accepted {COUNT}, kept 0, rejected 0', self.program(name, *args, **env))
        self.assertIn(f'accepted 0, kept {COUNT}, rejected 0', self.program(name, *args, **env))
        rows = self.stored(prefix)
        self.assertEqual([r[2] for r in rows], [f'{due(i):%Y-%m-%d %H:%M:%S}.250' for i in range(COUNT)])
        return rows

    def count(self, query):
        return int(self.p.value(query))


class ExportSql(Export):
    def test_pgboss(self):
        self.p.psql("""create schema pgboss;
            create type pgboss.job_state as enum ('created', 'retry', 'active', 'completed', 'cancelled', 'failed');
            create table pgboss.job (id uuid not null default gen_random_uuid(), name text not null, priority integer not null default 0, data jsonb,
                state pgboss.job_state not null default 'created', retry_limit integer not null default 2, retry_count integer not null default 0,
                start_after timestamptz not null default now(), started_on timestamptz, singleton_key text, created_on timestamptz not null default now(),
                completed_on timestamptz, output jsonb, policy text, primary key (name, id)) partition by list (name);
            create table pgboss.job_mail partition of pgboss.job for values in ('mail')""")
        self.p.psql(f"""insert into pgboss.job (name, data, state, start_after)
            select 'mail', jsonb_build_object('n', i, 'to', E'a\\\\b "ä"\\n'), case when i % 5 = 0 then 'retry' else 'created' end::pgboss.job_state,
                   '{AT}'::timestamptz + i * interval '1 minute' from generate_series(0, {COUNT - 1}) i
            union all select 'mail', '{{}}', s::pgboss.job_state, now() from unnest('{{active,completed,cancelled,failed}}'::text[]) s""")
        rows = self.exported(self.count("select count(*) from pgboss.job where state in ('created', 'retry')"), 'pgboss', 'export_pgboss.sh')
        self.assertEqual({r[1] for r in rows}, {'mail'})
        self.assertEqual([json.loads(r[5]) for r in rows], [{'n': i, 'to': 'a\\b "ä"\n'} for i in range(COUNT)])

    def test_graphile_worker(self):
        self.p.psql("""create schema graphile_worker;
            create table graphile_worker._private_tasks (id int primary key generated always as identity, identifier text not null unique);
            create table graphile_worker._private_jobs (id bigint primary key generated always as identity, job_queue_id int, task_id int not null,
                payload json not null default '{}', priority smallint not null default 0, run_at timestamptz not null default now(),
                attempts smallint not null default 0, max_attempts smallint not null default 25, last_error text, created_at timestamptz not null default now(),
                updated_at timestamptz not null default now(), key text unique, locked_at timestamptz, locked_by text, revision integer not null default 0, flags jsonb,
                is_available boolean generated always as (locked_at is null and attempts < max_attempts) stored not null);
            insert into graphile_worker._private_tasks (identifier) values ('other'), ('send_mail')""")
        self.p.psql(f"""insert into graphile_worker._private_jobs (task_id, payload, run_at, attempts, locked_at)
            select 2, ('{{"n":' || i || E',\\n "to": "x"}}')::json, '{AT}'::timestamptz + i * interval '1 minute', 0, null::timestamptz from generate_series(0, {COUNT - 1}) i
            union all select 1, '{{}}', now(), 25, null union all select 1, '{{}}', now(), 1, now()""")
        rows = self.exported(self.count('select count(*) from graphile_worker._private_jobs where locked_at is null and attempts < max_attempts'), 'graphile', 'export_graphile.sh')
        self.assertEqual({r[1] for r in rows}, {'send_mail'})
        self.assertEqual([json.loads(r[5])['n'] for r in rows], list(range(COUNT)))

    def test_river(self):
        self.p.psql("""create type river_job_state as enum ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled');
            create table river_job (id bigserial primary key, state river_job_state not null default 'available', attempt smallint not null default 0,
                max_attempts smallint not null, attempted_at timestamptz, created_at timestamptz not null default now(), finalized_at timestamptz,
                scheduled_at timestamptz not null default now(), priority smallint not null default 1, args jsonb not null, attempted_by text[], errors jsonb[],
                kind text not null, metadata jsonb not null default '{}', queue text not null default 'default', tags varchar(255)[] not null default '{}')""")
        self.p.psql(f"""insert into river_job (state, max_attempts, scheduled_at, args, kind, finalized_at)
            select case i % 3 when 0 then 'available' when 1 then 'scheduled' else 'retryable' end::river_job_state, 25, '{AT}'::timestamptz + i * interval '1 minute',
                   jsonb_build_object('n', i), 'email_send', null from generate_series(0, {COUNT - 1}) i
            union all select s::river_job_state, 25, now(), '{{}}', 'done', now() from unnest('{{cancelled,completed,discarded}}'::text[]) s""")
        rows = self.exported(self.count("select count(*) from river_job where state in ('available', 'scheduled', 'retryable')"), 'river', 'export_river.sh')
        self.assertEqual({(r[1], json.loads(r[4])['queue']) for r in rows}, {('email_send', 'default')})
        self.assertEqual([json.loads(r[5]) for r in rows], [{'n': i} for i in range(COUNT)])

    def test_db_scheduler(self):
        self.p.psql("""create table scheduled_tasks (task_name text not null, task_instance text not null, task_data bytea, execution_time timestamptz,
            picked boolean not null, picked_by text, last_success timestamptz, last_failure timestamptz, consecutive_failures int, last_heartbeat timestamptz,
            version bigint not null, priority smallint, state text, primary key (task_name, task_instance))""")
        self.p.psql(f"""insert into scheduled_tasks (task_name, task_instance, task_data, execution_time, picked, version)
            select 'remind', 'order-' || i, convert_to(jsonb_build_object('n', i, 'long', repeat('x', 100))::text, 'UTF8'), '{AT}'::timestamptz + i * interval '1 minute', false, 1
              from generate_series(0, {COUNT - 1}) i
            union all select 'nightly', 'recurring', null, now(), false, 1 union all select 'remind', 'now', null, now(), true, 1""")
        rows = self.exported(self.count("select count(*) from scheduled_tasks where not picked and task_instance <> 'recurring'"), 'db-scheduler', 'export_dbscheduler.sh')
        self.assertEqual([(r[0], r[1], json.loads(r[4])['task_instance'], json.loads(r[5])['n']) for r in rows],
                         [(f'db-scheduler/remind/order-{i}', 'remind', f'order-{i}', i) for i in range(COUNT)])

    def test_quartz(self):
        self.p.psql("""create table qrtz_job_details (sched_name varchar(120) not null, job_name varchar(200) not null, job_group varchar(200) not null,
                description varchar(250), job_class_name varchar(250) not null, is_durable bool not null, is_nonconcurrent bool not null, is_update_data bool not null,
                requests_recovery bool not null, job_data bytea, primary key (sched_name, job_name, job_group));
            create table qrtz_triggers (sched_name varchar(120) not null, trigger_name varchar(200) not null, trigger_group varchar(200) not null,
                job_name varchar(200) not null, job_group varchar(200) not null, description varchar(250), next_fire_time bigint, prev_fire_time bigint,
                priority integer, trigger_state varchar(16) not null, trigger_type varchar(8) not null, start_time bigint not null, end_time bigint,
                calendar_name varchar(200), misfire_instr smallint, job_data bytea, primary key (sched_name, trigger_name, trigger_group));
            create table qrtz_simple_triggers (sched_name varchar(120) not null, trigger_name varchar(200) not null, trigger_group varchar(200) not null,
                repeat_count bigint not null, repeat_interval bigint not null, times_triggered bigint not null, primary key (sched_name, trigger_name, trigger_group));
            create table qrtz_cron_triggers (sched_name varchar(120) not null, trigger_name varchar(200) not null, trigger_group varchar(200) not null,
                cron_expression varchar(120) not null, time_zone_id varchar(80), primary key (sched_name, trigger_name, trigger_group));
            insert into qrtz_job_details values ('S', 'remind', 'shop', null, 'Remind', true, false, false, false, 'of the job')""")
        self.p.psql(f"""insert into qrtz_triggers (sched_name, trigger_name, trigger_group, job_name, job_group, next_fire_time, trigger_state, trigger_type, start_time, job_data)
            select 'S', 't' || i, 'G', 'remind', 'shop', {int(AT.timestamp() * 1000)} + i * 60000, 'WAITING', 'SIMPLE', 0, convert_to('order=' || i, 'UTF8')
              from generate_series(0, {COUNT - 1}) i
            union all values ('S', 'each', 'G', 'remind', 'shop', 1, 'WAITING', 'SIMPLE', 0, ''::bytea),
                             ('S', 'week day', 'G', 'remind', 'shop', 1, 'WAITING', 'CRON', 0, ''), ('S', 'paused', 'G', 'remind', 'shop', 1, 'PAUSED', 'CRON', 0, 'own');
            insert into qrtz_simple_triggers select sched_name, trigger_name, trigger_group, case trigger_name when 'each' then -1 else 0 end, 1000, 0
              from qrtz_triggers where trigger_type = 'SIMPLE';
            insert into qrtz_cron_triggers values ('S', 'week day', 'G', '0 0/15 9-17 ? * 2-6', 'Europe/Berlin'), ('S', 'paused', 'G', '0 0 9 LW * ? 2027-2050', null)""")
        before = self.count("select count(*) from qrtz_triggers join qrtz_simple_triggers using (sched_name, trigger_name, trigger_group) where repeat_count = 0")
        rows = self.exported(before, 'quartz', 'export_quartz.sh')
        self.assertEqual([(r[0], r[1], r[5]) for r in rows], [(f'quartz/S/G/t{i}', 'remind', f'order={i}') for i in range(COUNT)])
        self.p.psql("select postdate.recur_set('other', '@daily', 'k', 'x'::text)")
        said = self.program('export_quartz_cron.sh', '--dry-run')
        self.assertEqual(said.splitlines()[:2], ['+ quartz-G.paused', '+ quartz-G.week_day'])
        self.assertIn('2 added, 0 changed, 0 removed (a dry run', said)
        self.assertIn('2 added', self.program('export_quartz_cron.sh'))
        self.assertNotIn('added', self.program('export_quartz_cron.sh'))
        self.assertEqual(self.p.psql("select name, cron, dialect, zone, paused, convert_from(body, 'UTF8'), routing_key from postdate.recurring order by name"), [
            ['other', '@daily', '', 'UTC', 'f', 'x', 'k'],
            ['quartz-G.paused', '0 0 9 LW * ? 2027-2050', 'quartz', 'UTC', 't', 'own', 'remind'],
            ['quartz-G.week_day', '0 0/15 9-17 ? * 2-6', 'quartz', 'Europe/Berlin', 'f', 'of the job', 'remind']])
        days = self.p.psql("select distinct extract(isodow from local::timestamptz at time zone 'Europe/Berlin') from postdate.recur_upcoming('quartz-G.week_day', 400) order by 1")
        self.assertEqual([d[0] for d in days], list('12345'))
        self.p.psql("update qrtz_cron_triggers set cron_expression = '0 0 9 ? * FRI-MON' where trigger_name = 'paused'")
        said = self.program('export_quartz_cron.sh', ok=False)
        self.assertIn('"quartz-G.paused": cron: day of week "fri-mon" begins behind its end', said)


class ExportRedis(Export):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.redis = None
        if shutil.which('redis-server') is None or shutil.which('redis-cli') is None:
            return
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.socket = os.path.join(cls.folder.name, 'redis')
        cls.redis = subprocess.Popen([*harness.DIE_WITH_PARENT, 'redis-server', '--port', '0', '--unixsocket', cls.socket, '--save', '', '--dir', cls.folder.name],
                                     stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(lambda: (cls.redis.kill(), cls.redis.wait()))

    def setUp(self):
        super().setUp()
        if self.redis is None:
            self.skipTest('redis-server is not installed')
        wait_until(lambda: os.path.exists(self.socket) and self.ask('ping') == 'PONG', 20, 'Redis to be up')
        self.ask('flushall')

    def ask(self, *words):
        done = subprocess.run(['redis-cli', '-s', self.socket, *[w if isinstance(w, bytes) else str(w).encode() for w in words]],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
        return done.stdout.decode(errors='replace').strip()

    def exported(self, before, prefix, name, *args, **env):
        # redis-cli has no address for a Unix socket: a redis-cli in front of it names the socket instead
        front = os.path.join(self.folder.name, 'bin')
        os.makedirs(front, exist_ok=True)
        with open(os.path.join(front, 'redis-cli'), 'w', encoding='utf-8') as f:
            f.write(f'#!/bin/sh\nshift 2\nexec {shutil.which("redis-cli")} -s {self.socket} "$@"\n')
        os.chmod(os.path.join(front, 'redis-cli'), 0o755)
        before_path, os.environ['PATH'] = os.environ['PATH'], front + os.pathsep + os.environ['PATH']
        try:
            return super().exported(before, prefix, name, *args, REDIS_URL='redis://localhost', **env)
        finally:
            os.environ['PATH'] = before_path

    def test_sidekiq(self):
        for i in range(COUNT):
            job = '{"class":"Mailer","args":[%d,"ä\\n",9007199254740993],"queue":"mail","jid":"j%d","retry":true,"created_at":1795768840.5}' % (i, i)
            self.ask('zadd', 'schedule', f'{due(i).timestamp():.7f}', job)
        rows = self.exported(int(self.ask('zcard', 'schedule')), 'sidekiq', 'export_sidekiq.sh')
        self.assertEqual({r[1] for r in rows}, {'mail'})
        self.assertEqual(rows[3][5], '{"class":"Mailer","args":[3,"ä\\n",9007199254740993],"queue":"mail","jid":"j3","retry":true,"created_at":1795768840.5}')

    def test_bullmq(self):
        for i in range(COUNT):
            at_ms = int(due(i).timestamp() * 1000)
            self.ask('hset', f'bull:mail:{i + 1}', 'name', 'welcome', 'data', '{"n":%d, "to":"ä"}' % i, 'opts', '{"delay":60000}', 'timestamp', at_ms - 60000, 'delay', 60000)
            self.ask('zadd', 'bull:mail:delayed', at_ms * 4096 + i % 3, i + 1)
        before = int(self.ask('zcard', 'bull:mail:delayed'))
        self.ask('hset', 'bull:mail:repeat:x:1', 'name', 'nightly', 'data', '{}')
        self.ask('zadd', 'bull:mail:delayed', 1, 'repeat:x:1')
        rows = self.exported(before, 'bullmq', 'export_bullmq.sh', 'mail')
        self.assertEqual([(r[0], r[1], r[5]) for r in rows], [(f'bullmq/mail/{i + 1}', 'welcome', '{"n":%d, "to":"ä"}' % i) for i in range(COUNT)])

    def test_asynq(self):
        for i in range(COUNT):
            task = protobuf(1, b'email:send') + protobuf(2, b'{"n": %d}' % i) + protobuf(3, b'id-%d' % i) + protobuf(4, b'default') + protobuf(5, 25)
            self.ask('hset', f'asynq:{{default}}:t:id-{i}', 'msg', task, 'state', 'scheduled')
            self.ask('zadd', 'asynq:{default}:scheduled', due(i).timestamp(), f'id-{i}')
        rows = self.exported(int(self.ask('zcard', 'asynq:{default}:scheduled')), 'asynq', 'export_asynq.sh', 'default')
        self.assertEqual([(r[0], r[1], r[5]) for r in rows], [(f'asynq/id-{i}', 'email:send', '{"n": %d}' % i) for i in range(COUNT)])

    def test_celery(self):
        for i in range(COUNT):
            headers = {'lang': 'py', 'task': 'shop.remind', 'id': f'id-{i}', 'shadow': None, 'eta': due(i).isoformat(), 'expires': None, 'group': None, 'retries': 0,
                       'timelimit': [None, None], 'root_id': f'id-{i}', 'parent_id': None, 'argsrepr': f'({i},)', 'kwargsrepr': '{}', 'stamps': {}}
            properties = {'correlation_id': f'id-{i}', 'reply_to': 'r', 'delivery_mode': 2, 'delivery_info': {'exchange': '', 'routing_key': 'celery'}, 'priority': 0,
                          'body_encoding': 'base64', 'delivery_tag': f'tag-{i}'}
            task = {'body': base64.b64encode(json.dumps([[i], {}, {}]).encode()).decode(), 'content-encoding': 'utf-8', 'content-type': 'application/json',
                    'headers': headers, 'properties': properties}
            if i % 2:
                self.ask('hset', 'unacked', f'tag-{i}', json.dumps([task, '', 'celery']))
                self.ask('zadd', 'unacked_index', due(0).timestamp(), f'tag-{i}')
            else:
                self.ask('lpush', 'celery', json.dumps(task))
        before = int(self.ask('hlen', 'unacked')) + int(self.ask('llen', 'celery'))
        task['headers']['eta'] = None
        self.ask('lpush', 'celery', json.dumps(task))
        rows = self.exported(before, 'celery', 'export_celery_redis.sh')
        self.assertEqual([(r[0], r[1], r[3], r[5]) for r in rows], [(f'celery/id-{i}', 'celery', '', json.dumps([[i], {}, {}])) for i in range(COUNT)])
        headers = json.loads(rows[0][4])
        self.assertEqual((headers['task'], headers['timelimit'], 'eta' in headers), ('shop.remind', [None, None], False))


class ExportRabbit(Export):
    def test_celery(self):
        """With an ETA in a moment: moved, and in the same queue again when it is due."""
        self.c.queue('celery')
        eta = harness.now_ms() + 2500
        for i in range(COUNT):
            at = dt.datetime.fromtimestamp((eta if i < 2 else due(i).timestamp() * 1000) / 1000, UTC).isoformat()
            self.c.publish('celery', json.dumps([[i], {}, {}]).encode(), {'id': f'id-{i}', 'task': 't', 'eta': at, 'shadow': None}, exchange='',
                           content_type='application/json', correlation_id=f'id-{i}')
        self.c.publish('celery', b'now', {'id': 'now', 'task': 't', 'eta': None}, exchange='')
        self.assertEqual(self.program('move_celery.py'), f'{COUNT} moved, 1 without an ETA left\n')
        self.assertTrue(self.program('move_celery.py').startswith('0 moved'))
        wait_until(lambda: self.count("select count(*) from postdate.messages where key like 'celery/%'") == COUNT, 20, 'all of them to be stored')
        came = {m.body: m for m in [self.c.wait_get('celery') for _ in range(3)]}
        self.assertEqual(sorted(came), [b'[[0], {}, {}]', b'[[1], {}, {}]', b'now'])
        for m in (came[b'[[0], {}, {}]'], came[b'[[1], {}, {}]']):
            self.assertGreaterEqual(m.at_ms, eta)
            self.assertEqual((m.headers['task'], m.headers['eta'], m.properties.content_type), ('t', None, 'application/json'))
