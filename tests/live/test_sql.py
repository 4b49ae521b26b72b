"""SQL as a way in: inside the caller's transaction, as a person types it."""
import json
import os
import re
import threading
import uuid

import harness
from harness import LiveTest, SharedTest, psql_error, run_psql, wait_until
from web import Web


class Sql(SharedTest):
    def sql(self, query):
        return self.p.value(query)

    def state(self, message_id):
        return self.sql(f"select state from postdate.message_now where id = '{message_id}'")

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
        self.assertEqual(self.sql(f"select count(*) from postdate.message_now where routing_key = '{key}'"), '1')

    def test_due_soon_leaves_on_its_millisecond(self):
        inbox, key = self.inbox()
        late = []
        for i, delay_ms in enumerate((30, 120, 300, 800, 1400)):
            self.p.psql(f"select postdate.schedule('{key}', '{i}', '{delay_ms} ms')")
            m = inbox.wait_body(str(i).encode())
            late.append(m.at_ms - m.due_ms)
        self.assertGreaterEqual(min(late), 0, 'early')
        self.assertLess(sorted(late)[2], 250 * harness.slowness(), late)  # whoever only looks each second is later

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
        out = self.p.run('show', message_id, '--json')
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
        self.assertLess(m.at_ms - m.due_ms, 5000 * harness.slowness())
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
        self.assertEqual(self.sql(f"select count(*) from postdate.message_now where routing_key = '{key}' and state = 'scheduled'"), '1')
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
        p.psql(f"update postdate.message set next_at = coalesce(next_at, due) + interval '1 h' where id = '{one}' and owner is null")
        wait_until(lambda: self.state(one) == 'scheduled' and not self.sql(
            f"select owner from postdate.message_now where id = '{one}' and owner is not null"), 10, 'it to wait')
        p.psql(f"update postdate.message set next_at = coalesce(next_at, due), state = 'failed', settled_at = now(), error = 'no such luck', attempts = 3 where id = '{one}'")
        self.assertEqual(self.sql(f"select postdate.retry('{uuid.uuid4()}')"), 'not_found')
        inbox, _ = self.inbox(key)
        self.assertEqual(p.run('retry', '-k', key, '--dry-run'), '1 would be retried\n')
        self.assertEqual(p.run('retry', '-k', key), '1 of 1 retried\n')
        self.assertEqual(inbox.wait(1)[0].id, one)
        wait_until(lambda: self.state(one) == 'delivered', 5, 'the settlement')
        self.assertEqual(self.sql(f"select postdate.retry('{one}')"), 'not_failed')

    def test_schedule_many_reads_every_item_alike(self):
        """Plain ones by expressions, others one by one: the same due time, or the same error."""
        when = ['250ms', '0s', '90 s', '5min', '1h', '2 d', '5 m', '1.5h', 'PT5M', '-1h', '1 mon', '999999d', 'soon', '', 7, None]
        for value in when:
            item = {'routing_key': 'k', 'body': 'x', 'delay': value}
            pair = json.dumps([item, {**item, 'on_conflict': 'keep'}]).replace("'", "''")
            with self.subTest(delay=value):
                ids = self.p.psql(f"select left(id::text, 13), error from postdate.schedule_many('{pair}') order by ordinal")
                self.assertEqual(len(ids), 2)
                self.assertEqual(ids[0], ids[1])

    def test_schedule_many_answers_for_each_item(self):
        inbox, key = self.inbox()
        items = ('[{"routing_key":"%(k)s","delay_ms":200,"body":"a"}, {"routing_key":"%(k)s","delay":"200ms","json":{"b":[1]}}, '
                 '{"routing_key":"%(k)s","delay":"nonsense","body":"c"}, 5, {"routing_key":"%(k)s","delay_ms":300,"body":"d","key":"many"}, '
                 '{"routing_key":"%(k)s","delay_ms":300,"body":"e","key":"many"}, '
                 '{"routing_key":"%(k)s","delay_ms":300,"body":"f","key":"many","on_conflict":"reject"}, '
                 '{"routing_key":"%(k)s","delay_ms":300,"body":"g","headers":{"x-delay":1}}, '
                 '{"routing_key":"%(k)s","due_at":"2020-01-01T00:00:00Z","body_base64":"aA==","headers":{"n":1}}, '
                 '{"routing_key":"%(k)s","delay_ms":1,"body":"i","colour":"red"}]') % {'k': key}
        rows = self.p.psql(f"select * from postdate.schedule_many('{items}')")
        self.assertEqual([r[0] for r in rows], [str(i) for i in range(1, 11)])
        self.assertEqual([bool(r[1]) for r in rows], [True, True, False, False, True, True, False, False, True, False])
        self.assertEqual(rows[4][1], rows[5][1], 'kept')
        for i, word in ((2, 'nonsense'), (3, 'object'), (6, 'taken'), (7, 'reserved'), (9, 'colour')):
            self.assertIn(word, rows[i][2])
        self.assertEqual([r[3] for r in rows], ['', '', '22023', '22023', '', '', '23505', '22023', '', '22023'], 'also of PostgreSQL\'s own 22007')
        self.assertEqual([r[4] for r in rows], ['f', 'f', '', '', 'f', 't', '', '', 'f', ''])
        self.assertEqual(sorted(m.body for m in inbox.wait(4)), [b'a', b'd', b'h', b'{"b": [1]}'])
        code, text = psql_error(self.p.postgres, "select postdate.schedule_many('{}')")
        self.assertEqual(code, '22023', text)

    def test_schedule_many_says_what_was_kept_as_http_does(self):
        """Of a key that a waiting message has, of one that is free again, and of those that take it or must not have it."""
        _, key = self.inbox()
        web = Web(self.gw.http())

        def items(prefix):
            return [{'routing_key': key, 'delay': '1h', 'body': 'x', **more} for more in (
                {}, {'key': prefix + 'held'}, {'key': prefix + 'free'}, {'key': prefix + 'held', 'on_conflict': 'replace'}, {'key': prefix + 'new'},
                {'key': prefix + 'new'}, {'key': prefix + 'held', 'on_conflict': 'reject'})]
        answers = []
        for prefix in ('many-http-', 'many-sql-'):
            held, free = (self.sql(f"select postdate.schedule('{key}', 'x', '1h', key => '{prefix}{name}')") for name in ('held', 'free'))
            self.assertEqual(self.sql(f"select postdate.cancel('{free}')"), 'cancelled')
            if prefix == 'many-http-':
                results = web.post('/v1/messages', {'messages': items(prefix)}).json['results']
                answers.append([{200: 't', 201: 'f'}.get(r['status'], '') for r in results])
                ids = [r.get('id', '') for r in results]
            else:
                rows = self.p.psql(f"select id, error, sqlstate, kept from postdate.schedule_many('{json.dumps(items(prefix))}') order by ordinal")
                ids = [r[0] for r in rows]
                answers.append([r[3] for r in rows])
                self.assertEqual([r[2] for r in rows], [''] * 6 + ['23505'])
            self.assertEqual((ids[1] == held, ids[2] == free, ids[4] == ids[5]), (True, False, True), prefix)
        self.assertEqual(answers, [['f', 't', 'f', 'f', 'f', 't', '']] * 2)
        s = self.p.session()
        self.addCleanup(s.close)
        taken = [{'routing_key': key, 'delay': '1h', 'body': 'x', 'key': 'many-owned', **more} for more in ({}, {'on_conflict': 'replace'})]
        one = self.sql(f"select postdate.schedule('{key}', 'x', '1h', key => 'many-owned')")
        s.run('begin')
        s.run(f"update postdate.message set next_at = coalesce(next_at, due), state = 'claimed', owner = 0 where id = '{one}'")
        self.assertEqual([[r[0], *r[2:]] for r in s.run(f"select id, left(error, 0), sqlstate, kept from postdate.schedule_many('{json.dumps(taken)}') order by ordinal")],
                         [[one, '', 't'], ['', '55000', '']])
        s.run('rollback')

    def test_schedule_many_asks_for_a_unit(self):
        """Over HTTP such a delay is refused; PostgreSQL would take it for seconds: 900000 for ten days."""
        _, key = self.inbox()
        times = [{'delay': '900000'}, {'delay': ' -1.5'}, {'delay': '1h', 'spread': '600'}, {'delay': '15 min'}, {'delay': '1h', 'spread': 'PT10M'}]
        rows = self.p.psql(f"select id, error from postdate.schedule_many('{json.dumps([{'routing_key': key, 'body': 'x', **t} for t in times])}')")
        self.assertEqual([bool(r[0]) for r in rows], [False, False, False, True, True], rows)
        for row, field in zip(rows, ('delay', 'delay', 'spread')):
            self.assertIn(f'{field} has no unit', row[1])

    def test_nobody_changes_what_views_show(self):
        """Nor the owner, whose DELETE would go through to the table: messages would be gone, in no state."""
        _, key = self.inbox()
        self.p.psql(f"select postdate.schedule('{key}', 'x', '1h')")
        self.p.psql("select postdate.recur_set('looked-at', '@yearly', 'k', 'x'::text)")
        for view, change in (('messages', f"set due_at = now() where routing_key = '{key}'"), ('recurring_changes', "set who = 'me'"),
                             ('recurring', "set paused = true"), ('rates', 'set paused = true')):
            for statement in (f'update postdate.{view} {change}', f"delete from postdate.{view} {change[change.find('where'):] if 'where' in change else ''}"):
                self.assertRegex(psql_error(self.p.postgres, f'explain {statement}; {statement}')[1], 'cannot ', statement)
        code, text = psql_error(self.p.postgres, f"delete from postdate.messages where routing_key = '{key}'")
        self.assertEqual(code, '0A000', text)
        self.assertRegex(text, r'(?s)postdate.messages cannot be changed.*DELETE.*postdate.cancel')
        self.assertEqual(self.p.psql(f"select state, due_at > now() from postdate.messages where routing_key = '{key}'"), [['scheduled', 't']])
        self.p.psql("select postdate.recur_remove('looked-at')")

    def test_the_documents_list_the_columns_of_each_view(self):
        for path, view, begins in (('sql.md', 'messages', 'The view contains all messages: '), ('sql.md', 'rates', 'The view contains the [rates]: '),
                                   ('recurring.md', 'recurring', '`postdate.recurring` contains '),
                                   ('recurring.md', 'recurring_changes', '`postdate.recurring_changes` contains ')):
            with open(os.path.join(harness.ROOT, 'docs', path), encoding='utf-8') as f:
                text = ' '.join(re.sub(r'\([^)]*\)', '', f.read()).split())
            listed = re.search(re.escape(begins) + r'(.*?)\. ', text)[1]
            columns = self.p.psql(f"select attname from pg_attribute where attrelid = 'postdate.{view}'::regclass and attnum > 0 order by attnum")
            self.assertEqual([[name] for name in re.findall('`([a-z_]+)`', listed)], columns, view)

    def test_the_view_has_a_next_time_while_there_is_one(self):
        _, key = self.inbox()
        waits, cancelled, delivered = (self.sql(f"select postdate.schedule('{key}', 'x', '{delay}')") for delay in ('1h', '1h', '0'))
        self.assertEqual(self.sql(f"select postdate.cancel('{cancelled}')"), 'cancelled')
        shown = f"select state, next_at = due_at from postdate.messages where routing_key = '{key}'"
        wait_until(lambda: self.p.psql(f"{shown} and id = '{delivered}'") == [['delivered', '']], 10, 'the settlement')
        self.assertEqual(self.p.psql(f"{shown} and id in ('{waits}', '{cancelled}') order by 1"), [['cancelled', ''], ['scheduled', 't']])
        self.assertEqual(self.p.psql(f"select next_at from postdate.message('{cancelled}')"), [['']])

    def test_reading_the_view_costs_what_the_message_is_large(self):
        """Not the square of it: an array and a table with as many entries as fit."""
        found = self.p.psql(
            f"set statement_timeout = '{5 * harness.slowness()}s'; with t as (select '\\x016141'::bytea || int4send(60000) || "
            "convert_to(repeat('V', 60000), 'UTF8') || string_agg('\\x04'::bytea || convert_to(lpad(to_hex(i), 4, '0') || 'V', 'UTF8'), '') || "
            "'\\x01617401' as b from generate_series(1, 10000) i) select jsonb_array_length(h -> 'a'), (select count(*) from jsonb_object_keys(h)) "
            "from (select postdate.wire_properties('\\x2000' || int4send(octet_length(b)) || b) -> 'headers' as h from t offset 0) x")
        self.assertEqual(found, [['60000', '10001']], 'of two with one name the first counts')

    def test_the_view_shows_amqp_and_sql_messages_alike(self):
        _, key = self.inbox()
        self.c.publish(key, b'x', {'x-delay': 3_600_000, 'n': 5, 'f': 2.5, 's': 'text', 'l': [1, True, None], 't': {'a': 'b'}, 'neg': -3},
                       priority=4, content_type='text/plain')
        wait_until(lambda: self.sql(f"select count(*) from postdate.message_now where routing_key = '{key}'") == '1', 5, 'intake')
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
        for user, query in (('t_producer', 'select * from postdate.message_now'), ('t_producer', 'select * from postdate.messages'),
                            ('t_producer', 'select * from postdate.key'), ('t_reader', 'select * from postdate.message_now'),
                            ('t_reader', "select postdate.schedule('k', 'x', '1h')"), ('t_nobody', 'select * from postdate.messages'),
                            ('t_nobody', "select postdate.schedule('k', 'x', '1h')"),
                            ('t_producer', f"select postdate.do_cancel('{one}', null)"),
                            ('t_producer', "select postdate.moved_note(gen_random_uuid(), gen_random_uuid())")):
            self.assertEqual(psql_error(url(user), query)[0], '42501', (user, query))


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
