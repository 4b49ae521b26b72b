"""SQL as a way in: inside the caller's transaction, as a person types it."""
import os
import subprocess
import threading
import time
import uuid

import harness
from harness import LiveTest, SharedTest, now_ms, run_psql, wait_until


def psql_error(url, query):
    """(SQLSTATE, the whole text) of a query that must fail."""
    done = subprocess.run(['psql', '-AtXq', '-v', 'ON_ERROR_STOP=1', '-v', 'VERBOSITY=verbose', '-v', 'SHOW_CONTEXT=never', '-d', url,
                           '-c', query], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          check=False, timeout=60)
    text = done.stderr.decode()
    if done.returncode == 0:
        raise AssertionError(f'no error: {query}')
    return text.split('ERROR:')[1].split(':')[0].strip(), text


class Sql(SharedTest):
    def sql(self, query):
        return self.p.value(query)

    def state(self, message_id):
        return self.sql(f"select state from postdate.message where id = '{message_id}'")

    def test_rolled_back_leaves_nothing_and_committed_arrives(self):
        inbox, key = self.inbox()
        self.p.psql('create table orders (id int)')
        s = self.p.session()
        s.run('begin')
        s.run('insert into orders values (1)')
        s.run(f"select postdate.schedule('{key}', 'rolled back', '400 ms', key => 'order-1')")
        s.run('rollback')
        s.run('begin')
        s.run('insert into orders values (2)')
        s.run(f"select postdate.schedule('{key}', 'committed', '900 ms', key => 'order-1')")
        s.run('commit')
        s.close()
        self.assertEqual(inbox.wait_body(b'committed').body, b'committed')
        self.assertEqual([m.body for m in inbox.all()], [b'committed'])
        self.assertEqual(self.p.psql('select id from orders'), [['2']])
        self.assertEqual(self.sql(f"select count(*) from postdate.message where routing_key = '{key}'"), '1')

    def test_due_soon_leaves_on_its_millisecond(self):
        inbox, key = self.inbox()
        for i, delay_ms in enumerate((30, 120, 300, 800, 1400)):
            self.p.psql(f"select postdate.schedule('{key}', '{i}', '{delay_ms} ms')")
            m = inbox.wait_body(str(i).encode())
            late_ms = m.at_ms - m.due_ms
            self.assertGreaterEqual(late_ms, 0, 'early')
            self.assertLess(late_ms, 250 * harness.SLOWNESS, f'{delay_ms} ms ahead')

    def test_calls_as_a_person_types_them(self):
        calls = ["'k', 'hello', '15 minutes'",
                 "'k', 'hello', delay => '15 minutes'",
                 "'k', 'hello', due_at => '2026-12-01 10:00+01'",
                 "routing_key => 'k', body => 'hello', due_at => now() + interval '1 hour'",
                 "'k', '\\x00ff'::bytea, '1h'", "'k', '{\"a\":1}'::json, '1h'", "'k', '{\"a\":1}'::jsonb, '1h'",
                 "'k', jsonb_build_object('a', 1), '1h', headers => '{\"n\": 1}', properties => '{\"priority\": 3}'",
                 "'k', 'x'::varchar, '1h', exchange => '', hold => 'gateway'",
                 "'', '', '-1 day'"]
        p = self.place(max_delay='60d')
        for call in calls:
            self.assertEqual(len(p.value(f'select postdate.schedule({call})')), 36, call)
        body = p.psql("select encode(body, 'escape'), properties ->> 'content_type' from postdate.messages order by created_at")
        self.assertEqual(body[5], ['{"a":1}', 'application/json'])
        self.assertEqual(body[6], ['{"a": 1}', 'application/json'])
        self.assertEqual(body[4][0], '\\000\\377')

    def test_wrong_arguments_name_value_and_what_is_allowed(self):
        wrong = [("'k', 'x'", '22023', 'exactly one of delay and due_at'),
                 ("'k', 'x', '1h', now()", '22023', 'exactly one'),
                 ("'k', 'x', '4000 days'", '22023', 'max_delay'),
                 ("'k', 'x', due_at => 'infinity'", '22023', 'max_delay'),
                 ("repeat('k', 256), 'x', '1h'", '22023', '255'),
                 ("null, 'x', '1h'", '22023', 'routing_key'), ("'k', null::text, '1h'", '22023', 'body'),
                 ("'k', 'x', '1h', key => ''", '22023', '1 to 255'),
                 ("'k', 'x', '1h', on_conflict => 'mayhap'", '22023', 'keep, replace, reject'),
                 ("'k', 'x', '1h', hold => 'me'", '22023', 'gateway, broker'),
                 ("'k', 'x', '1h', exchange => repeat('e', 300)", '22023', '255'),
                 ("'k', repeat('x', 9000000), '1h'", '22023', 'max_body'),
                 ("'k', 'x', '1h', headers => '[]'", '22023', 'object'),
                 ("'k', 'x', '1h', headers => '{\"x-delay\": 5}'", '22023', 'reserved'),
                 ("'k', 'x', '1h', headers => '{\"CC\": \"a\"}'", '22023', 'array of strings'),
                 ("'k', 'x', '1h', headers => '{\"n\": 1e30}'", '22023', '64-bit'),
                 ("'k', 'x', '1h', headers => '{\"n\": {\"!bytes\": \"%%\"}}'", '22023', 'base64'),
                 ("'k', 'x', '1h', headers => jsonb_build_object('h', repeat('x', 130000))", '22023', '122880'),
                 ("'k', 'x', '1h', properties => '{\"priority\": 256}'", '22023', '0 to 255'),
                 ("'k', 'x', '1h', properties => '{\"user_id\": \"me\"}'", '22023', 'header'),
                 ("'k', 'x', '1h', properties => '{\"colour\": 1}'", '22023', 'content_type'),
                 ("'k', 'x', 'soonish'", '22007', 'soonish')]
        for arguments, code, words in wrong:
            got, text = psql_error(self.p.postgres, f'select postdate.schedule({arguments})')
            self.assertEqual(got, code, text)
            self.assertIn(words, text)
            if code == '22023':
                self.assertRegex(text, r'(?s)DETAIL:.*HINT:')

    def test_headers_and_properties_are_encoded_when_published(self):
        inbox, key = self.inbox()
        headers = ('{"n": 1, "big": 9007199254740993, "d": 2.5, "t": true, "v": null, "s": "\u00e4", "a": [1, {"b": "c"}], '
                   '"x": {"!bytes": "AAEC"}, "CC": []}')
        properties = ('{"priority": 7, "type": "t", "correlation_id": "c", "reply_to": "r", "timestamp": 1700000000, '
                      '"expiration": "60000", "app_id": "a", "content_encoding": "e"}')
        message_id = self.sql(f"select postdate.schedule('{key}', '{{\"q\": 1}}'::json, '300 ms', headers => '{headers}', "
                              f"properties => '{properties}')")
        m = inbox.wait(1)[0]
        for name, value in {'n': 1, 'big': 9007199254740993, 'd': 2.5, 't': True, 'v': None, 's': '\u00e4',
                            'a': [1, {'b': 'c'}]}.items():
            self.assertEqual(m.headers[name], value, name)
        self.assertEqual(bytes(m.headers['x']), b'\x00\x01\x02')
        p = m.properties
        self.assertEqual((p.priority, p.type, p.correlation_id, p.reply_to, p.timestamp, p.expiration, p.app_id,
                          p.content_encoding, p.content_type, p.delivery_mode),
                         (7, 't', 'c', 'r', 1700000000, '60000', 'a', 'e', 'application/json', 2))
        self.assertEqual((m.id, m.properties.message_id, m.body), (message_id, message_id, b'{"q": 1}'))
        rc, out, err = self.p.cli('show', message_id, '--json')
        self.assertEqual(rc, 0, err)
        self.assertIn('9007199254740993', out)

    def test_what_the_checks_let_pass_can_be_encoded(self):
        """The largest and oddest that is allowed arrives: nothing becomes `failed` over its headers."""
        inbox, key = self.inbox()
        deep = '1'
        for _ in range(30):
            deep = f'[{deep}]'
        odd = ["jsonb_build_object('h', repeat('x', 122860))", f"'{{\"d\": {deep}}}'",
               "'{\"a\": 9223372036854775807, \"b\": -9223372036854775808, \"c\": 1.0e-300, \"d\": 123456789012345.678901234567890}'",
               "jsonb_build_object(repeat('n', 255), jsonb_build_object(repeat('m', 255), '{}'::jsonb))",
               "(select jsonb_object_agg('h' || i, i % 2 = 0) from generate_series(1, 9000) i)", "'{}'"]
        for expression in odd:
            self.p.psql(f"select postdate.schedule('{key}', 'x', '100 ms', headers => {expression})")
        inbox.wait(len(odd), 20)
        self.assertEqual(self.sql(f"select count(*) from postdate.messages where routing_key = '{key}' and state = 'failed'"), '0')

    def test_what_could_not_be_encoded_is_refused(self):
        """Accepted, these would become `failed` at their due time, or take a hundred times the memory that they count for."""
        wrong = ['properties => \'{"timestamp": "2026-01-01T24:00:00Z"}\'', 'properties => \'{"timestamp": "9999-12-31T23:59:59-15:00"}\'',
                 'headers => \'{"x": {"!bytes": "AB=="}}\'', 'headers => \'{"x": {"!bytes": "AAB="}}\'',
                 "headers => jsonb_build_object('n', ('0.' || repeat('0', 400) || '1')::numeric)"]
        for arguments in wrong:
            self.assertEqual(psql_error(self.p.postgres, f"select postdate.schedule('k', 'x', '1h', {arguments})")[0], '22023', arguments)

    def test_no_setting_of_the_caller_changes_what_is_stored(self):
        inbox, key = self.inbox()
        s = self.p.session()
        for setting in ('standard_conforming_strings = off', "intervalstyle = 'sql_standard'", "bytea_output = 'escape'",
                        "timezone = 'Asia/Kolkata'", "datestyle = 'German, DMY'", 'transform_null_equals = on', 'array_nulls = off'):
            s.run('set ' + setting)
        self.assertEqual(len(s.run(f"select postdate.schedule('{key}', 'text', '100 ms')")[-1][0]), 36)
        s.run(f"select postdate.schedule('{key}', '[1]'::json, '100 ms')")
        s.run(f'select postdate.schedule_many(\'[{{"routing_key": "{key}", "body": "many", "delay_ms": 100}}]\')')
        s.close()
        self.assertEqual({m.body for m in inbox.wait(3)}, {b'text', b'[1]', b'many'})
        self.assertEqual({m.body: (m.properties.delivery_mode, m.properties.content_type) for m in inbox.all()},
                         {b'text': (2, None), b'many': (2, None), b'[1]': (2, 'application/json')})

    def test_two_batches_that_replace_the_same_keys_do_not_deadlock(self):
        _, key = self.inbox()

        def items(*names):
            return '[' + ','.join(f'{{"routing_key": "{key}", "body": "x", "delay": "1h", "key": "dl-{n}", "on_conflict": "replace"}}'
                                  for n in names) + ']'
        self.p.psql(f"select postdate.schedule_many('{items(1, 2)}')")
        sessions = [self.p.session() for _ in range(3)]
        for s in sessions:
            self.addCleanup(s.close)
        sessions[0].run('begin')
        sessions[0].run("select key from postdate.key where key = 'dl-2' for update")
        answers = []
        threads = []
        for s, names in zip(sessions[1:], ((2, 1), (1, 2))):
            statement = f"select ordinal, error from postdate.schedule_many('{items(*names)}')"
            threads.append(threading.Thread(target=lambda s=s, q=statement: answers.append(s.run(q))))
            threads[-1].start()
            wait_until(lambda: self.sql("select count(*) from pg_stat_activity where datname = current_database() and "
                                        "wait_event_type = 'Lock'") == str(len(threads)), 10, 'it to wait')
        sessions[0].run('rollback')
        for t in threads:
            t.join()
        self.assertEqual(answers, [[['1', ''], ['2', '']]] * 2)

    def test_an_open_transaction_delays_nobody(self):
        inbox, key = self.inbox()
        self.p.psql(f"select postdate.schedule('{key}', 'kept', '1500 ms', key => 'open')")
        s = self.p.session()
        s.run('begin')
        s.run(f"select postdate.schedule('{key}', 'never', '200 ms', key => 'open-too')")
        s.run(f"select postdate.schedule('{key}', 'never', '200 ms', key => 'open')")  # finds the one above and keeps it
        self.c.publish(key, b'amqp', {'x-delay': 300})
        self.p.psql(f"select postdate.schedule('{key}', 'other', '300 ms')")
        inbox.wait_body(b'amqp')
        inbox.wait_body(b'other')
        m = inbox.wait_body(b'kept')
        self.assertLess(m.at_ms - m.due_ms, 500 * harness.SLOWNESS)
        s.run('rollback')
        s.close()
        self.assertEqual(sorted(m.body for m in inbox.all()), [b'amqp', b'kept', b'other'])

    def test_cancel_answers_the_same_again(self):
        _, key = self.inbox()
        one = self.sql(f"select postdate.schedule('{key}', 'x', '1h', key => 'c-1')")
        for _ in range(2):
            self.assertEqual(self.sql(f"select postdate.cancel('{one}')"), 'cancelled')
            self.assertEqual(self.sql("select postdate.cancel_key('c-1')"), 'cancelled')
        self.assertEqual(self.sql(f"select postdate.cancel('{uuid.uuid4()}')"), 'not_found')
        self.assertEqual(self.sql("select postdate.cancel_key('no such key')"), 'not_found')
        self.assertEqual(self.sql(f"select postdate.reschedule('{one}', '1h')"), 'too_late')

    def test_what_was_answered_is_flushed_whatever_the_session_says(self):
        _, key = self.inbox()
        one = self.sql(f"select postdate.schedule('{key}', 'x', '1h')")
        for call in (f"schedule('{key}', 'x', '1h')", f"reschedule('{one}', '2h')", f"cancel('{one}')"):
            s = self.p.session()
            s.run('set synchronous_commit = off')
            s.run('begin')
            s.run(f'select postdate.{call}')
            self.assertEqual(s.run('show synchronous_commit'), [['on']], call)
            s.run('commit')
            s.close()

    def test_a_cancel_rolled_back_is_none(self):
        inbox, key = self.inbox()
        one = self.sql(f"select postdate.schedule('{key}', 'x', '1500 ms')")
        s = self.p.session()
        s.run('begin')
        self.assertEqual(s.run(f"select postdate.cancel('{one}')"), [['cancelled']])
        s.run('rollback')
        s.close()
        self.assertEqual(inbox.wait(1)[0].id, one)

    def test_every_id_of_a_chain_of_fifty_moves_works(self):
        inbox, key = self.inbox()
        first = self.sql(f"select postdate.schedule('{key}', 'moved', '1h', headers => '{{\"h\": 1}}', key => 'chain')")
        ids = [first]
        for i in range(50):
            self.assertEqual(self.sql(f"select postdate.reschedule('{ids[i // 2]}', '{i + 1} h')"), 'rescheduled')
            ids.append(self.sql("select id from postdate.key where key = 'chain'"))
        self.assertEqual(len(set(ids)), 51)
        for old in ids:
            self.assertIn(ids[-1], self.p.cli('show', old, '--json')[1])
        self.assertEqual(self.sql(f"select count(*) from postdate.message where routing_key = '{key}' and state = 'scheduled'"), '1')
        self.assertEqual(self.sql(f"select postdate.reschedule('{first}', '200 ms')"), 'rescheduled')
        m = inbox.wait(1)[0]
        self.assertEqual((m.body, m.headers['h']), (b'moved', 1))
        wait_until(lambda: self.sql(f"select postdate.cancel('{first}')") == 'too_late', 5, 'the settlement')

    def test_replace_from_sql_and_amqp_keeps_old_ids_good(self):
        inbox, key = self.inbox()
        first = self.sql(f"select postdate.schedule('{key}', 'first', '1h', key => 'debounce')")
        second = self.sql(f"select postdate.schedule('{key}', 'second', '1h', key => 'debounce', on_conflict => 'replace')")
        self.assertEqual(self.sql(f"select postdate.moved_latest('{first}')"), second)
        self.c.publish(key, b'third', {'x-delay': 600, 'x-postdate-key': 'debounce', 'x-postdate-on-conflict': 'replace'})
        third = inbox.wait(1)[0]
        self.assertEqual(third.body, b'third')
        for old in (first, second):
            self.assertEqual(self.sql(f"select postdate.moved_latest('{old}')"), third.id)
        wait_until(lambda: self.sql(f"select postdate.cancel('{first}')") == 'too_late', 5, 'the settlement')

    def test_failed_is_kept_with_its_reason_and_can_be_retried(self):
        p, key = self.p, 'failing'
        one = self.sql(f"select postdate.schedule('{key}', 'x', '100 ms', key => 'f-1')")
        # what the settler writes when no attempt is left
        p.psql(f"update postdate.message set next_at = next_at + interval '1 h' where id = '{one}' and owner is null")
        wait_until(lambda: self.state(one) == 'scheduled' and not self.sql(
            f"select owner from postdate.message where id = '{one}' and owner is not null"), 10, 'it to wait')
        p.psql(f"update postdate.message set state = 'failed', settled_at = now(), error = 'no such luck', attempts = 3 where id = '{one}'")
        self.assertEqual(self.sql(f"select postdate.retry('{uuid.uuid4()}')"), 'not_found')
        inbox, _ = self.inbox(key)
        rc, out, err = p.cli('retry', '-k', key, '--dry-run')
        self.assertEqual((rc, out), (0, '1 would be retried\n'), err)
        rc, out, err = p.cli('retry', '-k', key)
        self.assertEqual((rc, out), (0, '1 of 1 retried\n'), err)
        self.assertEqual(inbox.wait(1)[0].id, one)
        wait_until(lambda: self.state(one) == 'delivered', 5, 'the settlement')
        self.assertEqual(self.sql(f"select postdate.retry('{one}')"), 'not_failed')

    def test_schedule_many_answers_for_each_item(self):
        inbox, key = self.inbox()
        items = ('[{"routing_key":"%(k)s","delay_ms":200,"body":"a"}, {"routing_key":"%(k)s","delay":"200ms","json":{"b":[1]}}, '
                 '{"routing_key":"%(k)s","delay":"nonsense","body":"c"}, 5, {"routing_key":"%(k)s","delay_ms":300,"body":"d","key":"many"}, '
                 '{"routing_key":"%(k)s","delay_ms":300,"body":"e","key":"many"}, '
                 '{"routing_key":"%(k)s","delay_ms":300,"body":"f","key":"many","on_conflict":"reject"}, '
                 '{"routing_key":"%(k)s","delay_ms":300,"body":"g","headers":{"x-delay":1}}, '
                 '{"routing_key":"%(k)s","due_at":"2020-01-01T00:00:00Z","body_base64":"aA==","headers":{"n":1}}, '
                 '{"routing_key":"%(k)s","delay_ms":1,"body":"i","colour":"red"}]') % {'k': key}
        rows = self.p.psql(f"select ordinal, id, error from postdate.schedule_many('{items}')")
        self.assertEqual([r[0] for r in rows], [str(i) for i in range(1, 11)])
        self.assertEqual([bool(r[1]) for r in rows], [True, True, False, False, True, True, False, False, True, False])
        self.assertEqual(rows[4][1], rows[5][1], 'kept')
        for i, word in ((2, 'nonsense'), (3, 'object'), (6, 'taken'), (7, 'reserved'), (9, 'colour')):
            self.assertIn(word, rows[i][2])
        self.assertEqual(sorted(m.body for m in inbox.wait(4)), [b'a', b'd', b'h', b'{"b": [1]}'])
        code, text = psql_error(self.p.postgres, "select postdate.schedule_many('{}')")
        self.assertEqual(code, '22023', text)

    def test_reading_the_view_costs_what_the_message_is_large(self):
        """Not the square of it: an array and a table with as many entries as fit."""
        found = self.p.psql(
            f"set statement_timeout = '{5 * harness.SLOWNESS}s'; with t as (select '\\x016141'::bytea || int4send(60000) || "
            "convert_to(repeat('V', 60000), 'UTF8') || string_agg('\\x04'::bytea || convert_to(lpad(to_hex(i), 4, '0') || 'V', 'UTF8'), '') || "
            "'\\x01617401' as b from generate_series(1, 10000) i) select jsonb_array_length(h -> 'a'), (select count(*) from jsonb_object_keys(h)) "
            "from (select postdate.wire_properties('\\x2000' || int4send(octet_length(b)) || b) -> 'headers' as h from t offset 0) x")
        self.assertEqual(found, [['60000', '10001']], 'of two with one name the first counts')

    def test_the_view_shows_amqp_and_sql_messages_alike(self):
        _, key = self.inbox()
        self.c.publish(key, b'x', {'x-delay': 3_600_000, 'n': 5, 'f': 2.5, 's': 'text', 'l': [1, True, None], 't': {'a': 'b'}, 'neg': -3},
                       priority=4, content_type='text/plain')
        wait_until(lambda: self.sql(f"select count(*) from postdate.message where routing_key = '{key}'") == '1', 5, 'intake')
        where = f"from postdate.messages where routing_key = '{key}'"
        self.assertEqual(self.sql(f"""select headers = '{{"x-delay": -3600000, "n": 5, "f": 2.5, "s": "text", "l": [1, true, null],
                                      "t": {{"a": "b"}}, "neg": -3}}' and properties = '{{"delivery_mode": 2, "priority": 4,
                                      "content_type": "text/plain"}}' {where}"""), 't',
                         self.p.psql(f'select headers, properties {where}'))


class SqlRoles(LiveTest):
    def test_the_roles_see_no_table(self):
        p = self.place()
        one = p.value("select postdate.schedule('k', 'x', '1h')")
        p.stack.psql("drop role if exists t_producer; drop role if exists t_reader; create role t_producer login in role "
                     "postdate_producer; create role t_reader login in role postdate_reader; create role t_nobody login")
        self.addCleanup(p.stack.psql, 'drop role t_producer; drop role t_reader; drop role t_nobody')
        self.addCleanup(p.close)

        def url(user):
            return p.postgres.replace('user=postdate', f'user={user}')
        self.assertIn('t_producer', url('t_producer'))
        made = run_psql(url('t_producer'), "select postdate.schedule('k', 'x', '1h', headers => '{\"a\":1}')")[0][0]
        self.assertEqual(run_psql(url('t_producer'), f"select postdate.reschedule('{made}', '2h')"), [['rescheduled']])
        self.assertEqual(run_psql(url('t_producer'), f"select postdate.cancel('{made}')"), [['cancelled']])
        rows = run_psql(url('t_producer'), "select error is null from postdate.schedule_many('[{\"routing_key\":\"k\",\"delay\":\"1h\",\"body\":\"\"}]')")
        self.assertEqual(rows, [['t']])
        self.assertEqual(run_psql(url('t_reader'), f"select state, headers, properties from postdate.messages where id = '{one}'")[0][0], 'scheduled')
        for user, query in (('t_producer', 'select * from postdate.message'), ('t_producer', 'select * from postdate.messages'),
                            ('t_producer', 'select * from postdate.key'), ('t_reader', 'select * from postdate.message'),
                            ('t_reader', "select postdate.schedule('k', 'x', '1h')"), ('t_nobody', 'select * from postdate.messages'),
                            ('t_nobody', "select postdate.schedule('k', 'x', '1h')"),
                            ('t_producer', f"select postdate.do_cancel('{one}', null)"),
                            ('t_producer', "select postdate.moved_note(gen_random_uuid(), gen_random_uuid())")):
            self.assertEqual(psql_error(url(user), query)[0], '42501', (user, query))


class SqlMigrate(LiveTest):
    def old(self, version):
        """A place with the schema as it was, and today's partition."""
        p = self.place(migrate=False)
        p.psql("create schema postdate; create table postdate.meta (one boolean primary key default true check (one), version integer "
               f"not null, broker text, vhost text, fed_until timestamptz); insert into postdate.meta (version) values ({version})")
        folder = os.path.join(harness.ROOT, 'sql', 'schema')
        for name in sorted(os.listdir(folder)):
            if int(name[:3]) <= version:
                with open(os.path.join(folder, name), encoding='utf-8') as f:
                    p.psql('set search_path = pg_catalog; ' + f.read())
        start, end, day = p.psql("select t, t + interval '24 hours', to_char(t at time zone 'utc', 'YYYYMMDD') "
                                 "from date_trunc('day', now(), 'UTC') t")[0]
        p.psql(f"create table postdate.message_{day} partition of postdate.message for values from ('{start}') to ('{end}')")
        return p

    @harness.not_san
    def test_a_version_1_database_with_messages_is_upgraded(self):
        p = self.old(1)
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
        p = self.old(13)
        p.psql('create table postdate.message_20990101 (like postdate.message including all)')
        one = p.value("select postdate.schedule('k', 'tried', '4 s')")
        p.psql(f"update postdate.message set attempts = 2, error = 'unroutable: NO_ROUTE (312)' where id = '{one}'")
        rc, out, err = p.cli('migrate')
        self.assertEqual(rc, 0, err)
        self.assertIn('upgraded from version 13', out)
        columns = "select count(*) from pg_attribute where attname in ('isolate', 'recur', 'late_at') and attrelid in ('postdate.message_20990101'::regclass, 'postdate.message'::regclass)"
        self.assertEqual(p.value(columns), '6', 'also of a day that is not attached')
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


class SqlSettings(LiveTest):
    def test_what_the_database_has_set_for_all_changes_nothing(self):
        p = self.place(migrate=False)
        for setting in ('standard_conforming_strings = off', "default_transaction_isolation = 'serializable'", "datestyle = 'German'",
                        "search_path = ''", "timezone = 'Asia/Kolkata'", 'synchronous_commit = off'):
            p.stack.psql(f'alter database {p.database} set {setting}')
        p.migrate()
        p.gateway()
        inbox = p.consumer('q', bind='k')
        p.psql("select postdate.schedule('k', 'sql', '0', key => 'a')")
        p.client().publish('k', b'amqp', {'x-delay': 100})
        self.assertEqual({m.body for m in inbox.wait(2)}, {b'sql', b'amqp'})


class SqlRace(LiveTest):
    weight = 8
    rounds = int(os.environ.get('POSTDATE_CANCEL_ROUNDS', '2'))  # 50 is the full form

    def test_200_cancels_race_200_due_times(self):
        p = self.place()
        p.gateway()
        inbox = p.consumer('q', bind='race.#')
        answers = {}
        for number in range(1 if harness.SAN else self.rounds):
            answers.update(self.round(p, number))
        settled = "select count(*) from postdate.message where state not in ('cancelled', 'delivered')"
        wait_until(lambda: p.value(settled) == '0', 20, 'all to be settled')
        state = dict(p.psql('select id, state from postdate.message'))
        wait_until(lambda: len(inbox.all()) >= sum(s == 'delivered' for s in state.values()), 10, 'all deliveries')
        arrived = [m.id for m in inbox.all()]
        self.assertEqual(len(arrived), len(set(arrived)), 'delivered once')
        for message_id, answer in answers.items():
            self.assertEqual(answer == 'cancelled', message_id not in arrived, (message_id, answer, state[message_id]))
            self.assertEqual(state[message_id], 'cancelled' if answer == 'cancelled' else 'delivered')
        self.assertEqual(set(answers.values()), {'cancelled', 'too_late'}, 'the race was no race')

    def round(self, p, number, count=200, sessions=4):
        """Due times spread over a second; each is cancelled about half a second (the lead) before."""
        due = now_ms() + 2500 * harness.SLOWNESS
        ids = [r[0] for r in p.psql(
            f"select id from generate_series(0, {count - 1}) i, lateral postdate.schedule('race.{number}', i::text, "
            f"due_at => timestamptz 'epoch' + ({due} + i * 5) * interval '1 ms') id order by i")]
        answers = {}

        def cancel(part):
            s = p.session()
            for i in range(part, count, sessions):
                at = due + i * 5 - 500 - (i % 7 - 3) * 40
                while now_ms() < at:
                    time.sleep(0.001)
                answers[ids[i]] = s.run(f"select postdate.cancel('{ids[i]}')")[0][0]
            s.close()
        threads = [threading.Thread(target=cancel, args=(n,)) for n in range(sessions)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(answers), count)
        return answers

    def test_cancelling_after_a_gateway_was_killed_between_publish_and_settle(self):
        p = self.place()
        g = p.gateway()
        inbox = p.consumer('q', bind='killed')
        due = now_ms() + 2000 * harness.SLOWNESS
        ids = [r[0] for r in p.psql(f"select postdate.schedule('killed', i::text, due_at => timestamptz 'epoch' + ({due} + i) * interval '1 ms') "
                                    "from generate_series(1, 400) i")]
        inbox.wait(100)
        g.kill9()
        answers = dict(p.psql("select id, postdate.cancel(id) from (select unnest('{%s}'::uuid[]) as id) i" % ','.join(ids)))
        self.assertIn('too_late', answers.values())
        p.gateway()
        wait_until(lambda: p.value("select count(*) from postdate.message where state not in ('cancelled', 'delivered')") == '0', 30, 'the rest')
        wait_until(lambda: len({m.id for m in inbox.all()}) >= sum(a == 'too_late' for a in answers.values()), 10, 'all deliveries')
        arrived = {m.id for m in inbox.all()}
        for one, answer in answers.items():
            self.assertEqual(answer == 'cancelled', one not in arrived, (one, answer))

    @harness.not_san
    def test_replace_racing_the_due_time_delivers_exactly_one(self):
        p = self.place()
        p.gateway()
        inbox = p.consumer('q', bind='debounce')
        count, due, s = 60, now_ms() + 2500 * harness.SLOWNESS, p.session()
        first = [r[0] for r in p.psql(
            f"select id from generate_series(0, {count - 1}) i, lateral postdate.schedule('debounce', 'old', key => 'k' || i, "
            f"due_at => timestamptz 'epoch' + ({due} + i * 40) * interval '1 ms') id order by i")]
        second = {}
        for i in range(count):
            at = due + i * 40 - 500 + (i % 9 - 4) * 60  # about the lead before: when it is claimed
            while now_ms() < at:
                time.sleep(0.001)
            out = s.run(f"select postdate.schedule('debounce', 'new', '800 ms', key => 'k{i}', on_conflict => 'replace')")
            if len(out[0][0]) == 36:
                second[first[i]] = out[0][0]
            else:
                self.assertIn('too late to replace', out[0][0])
        s.close()
        wait_until(lambda: p.value("select count(*) from postdate.message where state in ('scheduled', 'claimed')") == '0', 15, 'the end')
        state = dict(p.psql('select id, state from postdate.message'))
        wait_until(lambda: len(inbox.all()) >= sum(x == 'delivered' for x in state.values()), 10, 'all deliveries')
        arrived = [m.id for m in inbox.all()]
        self.assertEqual(len(arrived), len(set(arrived)))
        for old in first:
            if state[old] == 'superseded':
                self.assertNotIn(old, arrived)
                self.assertIn(second[old], arrived)
            else:  # refused, or replaced only after its delivery: then both are messages of their own
                self.assertIn(old, arrived)
        self.assertEqual({state[i] for i in first}, {'superseded', 'delivered'}, 'the race was no race')


class SqlOperations(LiveTest):
    """Bulk operations and the forgetting of old ids, from the command line."""

    def test_filters_shift_and_cancel(self):
        p = self.place()
        p.psql("select postdate.schedule('b.' || i % 3, 'x', i * interval '1 min', exchange => 'e' || i % 2) from generate_series(1, 600) i")
        rc, out, err = p.cli('reschedule', '-k', 'b.1', '--shift', '2h', '--dry-run')
        self.assertEqual((rc, out), (0, '200 would be rescheduled\n'), err)
        before = p.value("select sum(extract(epoch from due)) from postdate.message where state = 'scheduled'")
        rc, out, err = p.cli('reschedule', '-k', 'b.1', '--shift', '2h')
        self.assertEqual((rc, out), (0, '200 of 200 rescheduled\n'), err)
        after = p.value("select sum(extract(epoch from due)) from postdate.message where state = 'scheduled'")
        self.assertAlmostEqual(float(after) - float(before), 200 * 7200, delta=1)
        rc, out, err = p.cli('reschedule', '-k', 'b.1', '--shift=-1h')
        self.assertEqual((rc, out), (0, '200 of 200 rescheduled\n'), err)
        rc, out, err = p.cli('reschedule', '-k', 'b.1', '--shift', '3000d')
        self.assertEqual((rc, out), (1, '0 of 200 rescheduled\n'), err)
        self.assertRegex(err, 'left out 200: .*delivery.max_delay')
        s = p.session()
        s.run('begin')
        s.run("select id from postdate.message where routing_key = 'b.2' and exchange = 'e1' limit 1 for update")
        rc, out, err = p.cli('cancel', '-k', 'b.2', '--exchange', 'e1')
        self.assertEqual((rc, out), (1, '99 of 100 cancelled\n'), err)
        self.assertEqual(err, 'postdate: left out 1: claimed or locked meanwhile\n')
        s.run('rollback')
        s.close()
        self.assertEqual(p.cli('cancel', '-k', 'b.2', '--exchange', 'e1')[1], '1 of 1 cancelled\n')
        self.assertEqual(p.value("select count(*) from postdate.message where state = 'cancelled'"), '100')
        self.assertEqual(p.cli('cancel')[0], 64)
        self.assertEqual(p.cli('reschedule', '-k', 'x', '--delay', '1h')[0], 64)

    def test_one_by_one(self):
        p = self.place()
        one = p.cli('schedule', '-k', 'k', '--delay', '1h', '--key', 'a', '--body', 'x')[1].strip()
        rc, out, err = p.cli('reschedule', one, '--delay', '2h')
        self.assertEqual(rc, 0, err)
        two = out.split()[-1]
        self.assertEqual(out, f'{one} rescheduled {two}\n')
        self.assertEqual(p.cli('reschedule', '--key', 'a', '--at', '2020-01-01T00:00:00Z')[0], 0)
        self.assertEqual(p.cli('reschedule', one, '--delay', '800d')[0], 65)
        self.assertIn('"key":"a"', p.cli('list', '--key', 'a', '--json')[1])
        self.assertEqual(p.cli('retry', two)[0], 1)
        self.assertEqual(p.cli('cancel', one)[0], 0)
        self.assertEqual(p.cli('reschedule', two, '--delay', '1h')[0], 1)
        self.assertEqual(p.cli('reschedule', '01937f5e-4c00-8a1b-9c2d-3e4f5a6b7c8d', '--delay', '1h')[0], 66)

    def test_old_ids_work_after_their_partition_is_gone_and_are_forgotten_with_the_message(self):
        p = self.place()
        gone = p.value("select to_char(now() - interval '1 day', 'YYYYMMDD')")
        p.psql("insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body) select t, t, "
               "postdate.id_make(t), 'g', 'postdate.delivery', 'k', '\\x100002', 'x' from (select date_trunc('day', now(), 'UTC') - interval '1 hour') y (t)")
        old = p.value('select id from postdate.message')
        self.assertEqual(p.value(f"select postdate.reschedule('{old}', '1h')"), 'rescheduled')
        p.psql(f"alter table postdate.message detach partition postdate.message_{gone}; drop table postdate.message_{gone}")
        self.assertEqual(p.value(f"select postdate.reschedule('{old}', '2h')"), 'rescheduled')
        self.assertEqual(p.cli('show', old)[0], 0)
        orphan = str(uuid.uuid4())
        p.psql(f"select postdate.moved_note('{orphan}', '00000000-0000-8000-8000-000000000001')")
        p.gateway()
        wait_until(lambda: p.value(f"select count(*) from postdate.moved where first_id = '{orphan}'") == '0', 15, 'the janitor')
        self.assertEqual(p.value(f"select postdate.cancel('{old}')"), 'cancelled')
        # Delivered before its time, and removed since: its first row, of a later day, is still there.
        p.consumer('q', bind='k')
        far = p.value("select postdate.schedule('k', 'x', '2 days')")
        self.assertEqual(p.value(f"select postdate.reschedule('{far}', '0')"), 'rescheduled')
        wait_until(lambda: p.counts().get('delivered') == 1, 15, 'the delivery')
        self.assertEqual(p.value(f"select postdate.cancel('{far}')"), 'too_late')
        p.psql(f"with gone as (delete from postdate.moved where first_id = '{far}' returning id) "
               f"delete from postdate.message where id in (select id from gone) and id <> '{far}'")
        self.assertEqual(p.value(f"select postdate.cancel('{far}')"), 'not_found')
