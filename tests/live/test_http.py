"""The HTTP interface as a client uses it. Every answer is checked against /openapi.json."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import urllib.parse

import harness
from harness import LiveTest, SharedTest, now_ms, wait_until
from web import Web, described, ready_address

DUE = {'delay': '1h', 'body': 'x'}


class HttpTest(SharedTest):
    def setUp(self):
        super().setUp()
        self.address = ready_address(self.gw)
        self.web = described(self, self.address)

    def name(self):
        return self.id().rsplit('.', 1)[-1]

    def schedule(self, **fields):
        answer = self.web.post('/v1/messages', dict({'routing_key': self.name()}, **dict(DUE, **fields)))
        self.assertEqual(answer.status, 201, answer)
        return answer.json

    def problem(self, answer, status, problem):
        self.assertEqual((answer.status, answer.problem), (status, problem), answer)
        self.assertEqual(answer.headers['content-type'], 'application/problem+json')
        self.assertEqual(answer.json['status'], status)


class Calls(HttpTest):
    def test_a_scheduled_message_arrives_on_its_millisecond(self):
        inbox, key = self.inbox()
        at = now_ms()
        answer = self.web.post('/v1/messages', {'routing_key': key, 'delay_ms': 700, 'json': {'n': 1},
                                                'headers': {'h': 'v'}, 'properties': {'priority': 3}})
        self.assertEqual(answer.status, 201)
        self.assertEqual(answer.headers['location'], '/v1/messages/' + answer.json['id'])
        m = inbox.wait(1)[0]
        self.assert_on_time(m, at, 700)
        self.assertEqual((m.body, m.id, m.headers['h']), (b'{"n": 1}', answer.json['id'], 'v'))
        self.assertEqual((m.properties.priority, m.properties.content_type), (3, 'application/json'))

    def test_what_is_due_at_once_leaves_at_once(self):
        inbox, key = self.inbox()
        at = now_ms()
        self.schedule(routing_key=key, delay=None, delay_ms=0)
        self.assert_on_time(inbox.wait(1)[0], at, 0, 400)

    def test_show_is_what_schedule_said_and_full_adds_the_body(self):
        m = self.schedule(key='show-1', body='grüße')
        self.assertEqual(self.web.get('/v1/messages/' + m['id']).json, m)
        full = self.web.get(f'/v1/messages/{m["id"]}?view=full').json
        self.assertEqual(full, dict(m, body='grüße'))
        m = self.schedule(body=None, body_base64='/wA=')
        self.assertEqual(self.web.get(f'/v1/messages/{m["id"]}?view=full').json['body_base64'], '/wA=')

    def test_head_is_get_without_the_body(self):
        m = self.schedule()
        got, head = self.web.get('/v1/messages/' + m['id']), self.web.ask('HEAD', '/v1/messages/' + m['id'])
        self.assertEqual((head.status, head.body), (200, b''))
        self.assertEqual(head.headers['content-length'], got.headers['content-length'])

    def test_what_is_not_there_is_404(self):
        for method, body in (('GET', None), ('DELETE', None), ('PATCH', {'delay': '1h'})):
            self.problem(self.web.ask(method, '/v1/messages/no-uuid', body), 404, 'not-found')
        self.problem(self.web.get('/v2'), 404, 'no-such-route')
        self.problem(self.web.get('/v1/messages/a/b'), 404, 'no-such-route')

    def test_cancelled_twice_is_cancelled(self):
        m = self.schedule(key='cancel-1')
        for _ in range(2):
            answer = self.web.ask('DELETE', '/v1/messages/' + m['id'])
            self.assertEqual((answer.status, answer.json['state']), (200, 'cancelled'))
        m = self.schedule(key='cancel ä+2')
        answer = self.web.ask('DELETE', '/v1/messages?key=' + urllib.parse.quote('cancel ä+2'))
        self.assertEqual((answer.status, answer.json['id']), (200, m['id']))

    def test_a_delivered_message_is_too_late(self):
        inbox, key = self.inbox()
        m = self.schedule(routing_key=key, delay=None, delay_ms=0)
        inbox.wait(1)
        path = '/v1/messages/' + m['id']
        wait_until(lambda: self.web.get(path).json['state'] == 'delivered', 10, 'it to be settled')
        self.problem(self.web.ask('DELETE', path), 409, 'too-late')
        self.problem(self.web.ask('PATCH', path, {'delay': '1h'}), 409, 'too-late')

    def test_a_rescheduled_message_arrives_then_and_old_ids_lead_to_it(self):
        inbox, key = self.inbox()
        m = self.schedule(routing_key=key)
        moved = self.web.ask('PATCH', '/v1/messages/' + m['id'], {'due_at': '2099-01-01T00:00:00Z'})
        self.problem(moved, 422, 'invalid-message')  # beyond max_delay
        at = now_ms()
        moved = self.web.ask('PATCH', '/v1/messages/' + m['id'], {'delay_ms': 800})
        self.assertEqual(moved.status, 200, moved)
        self.assertNotIn('former_ids', m)
        now = self.web.get('/v1/messages/' + m['id']).json
        self.assertEqual((now['id'], now['former_ids']), (moved.json['id'], [m['id']]))
        self.assert_on_time(inbox.wait(1)[0], at, 800)
        for body in ({}, {'delay': '1h', 'delay_ms': 1}, {'delay': 'soon'}, {'delay_ms': -1}, {'delay_ms': 1.5},
                     {'due_at': '2026-11-22'}, {'due_at': 5}, {'delay': '1h', 'x': 1}):
            self.problem(self.web.ask('PATCH', '/v1/messages/' + m['id'], body), 422, 'invalid-message')

    def test_keys_keep_replace_reject(self):
        first = self.schedule(key='k1')
        kept = self.web.post('/v1/messages', dict(DUE, routing_key='other', key='k1'))
        self.assertEqual((kept.status, kept.json), (200, first))
        refused = self.web.post('/v1/messages', dict(DUE, routing_key='r', key='k1', on_conflict='reject'))
        self.problem(refused, 409, 'key-taken')
        second = self.schedule(key='k1', on_conflict='replace')
        self.assertNotEqual(second['id'], first['id'])
        listed = self.web.get('/v1/messages?key=k1&state=scheduled').json['messages']
        self.assertEqual([m['id'] for m in listed], [second['id']])

    def test_a_batch_has_a_result_each_in_order(self):
        good = dict(DUE, routing_key=self.name())
        items = [good, {'routing_key': 'x'}, dict(good, key='b1'), dict(good, key='b1'),
                 dict(good, key='b1', on_conflict='reject'), 5, dict(good, x=1)]
        answer = self.web.post('/v1/messages', {'messages': items})
        self.assertEqual(answer.status, 200)
        results = answer.json['results']
        self.assertEqual([r['status'] for r in results], [201, 422, 201, 200, 409, 422, 422])
        self.assertEqual(results[3]['id'], results[2]['id'])
        for r in results[:3:2]:
            self.assertEqual(self.web.get('/v1/messages/' + r['id']).json['due_at'], r['due_at'])
        self.assertIn('due time is missing', results[1]['detail'])

    def test_a_batch_of_a_thousand_and_not_one_more(self):
        good = dict(DUE, routing_key=self.name())
        answer = self.web.post('/v1/messages', {'messages': [good] * 1000})
        self.assertEqual(len({r['id'] for r in answer.json['results']}), 1000)
        for wrong in ([good] * 1001, [], {}, None, 'x'):
            self.problem(self.web.post('/v1/messages', {'messages': wrong}), 422, 'invalid-message')
        self.problem(self.web.post('/v1/messages', {'messages': [good], 'x': 1}), 422, 'invalid-message')

    def test_pages_give_every_message_once_in_due_order(self):
        ids = [self.schedule(delay=None, delay_ms=3_600_000 + 1000 * (i % 7))['id'] for i in range(23)]
        query = f'/v1/messages?routing_key={self.name()}&page_size=5'
        got, token, pages = [], '', 0
        while token is not None:
            page = self.web.get(query + ('&page_token=' + token if token else '')).json
            got += [(m['due_at'], m['id']) for m in page['messages']]
            token, pages = page['next_page_token'], pages + 1
        self.assertEqual(pages, 5)
        self.assertEqual(got, sorted(got))
        self.assertEqual(sorted(i for _, i in got), sorted(ids))

    def test_a_page_token_is_bound_to_its_filter_and_cannot_be_changed(self):
        for _ in range(3):
            self.schedule()
        query = f'/v1/messages?routing_key={self.name()}&page_size=1'
        token = self.web.get(query).json['next_page_token']
        self.assertEqual(self.web.get(f'{query}&page_token={token}').status, 200)
        other = 'B' if token[20] != 'B' else 'C'
        for wrong in (token[:20] + other + token[21:], token[:-1], token + 'A', 'x', '%ff'):
            self.problem(self.web.get(f'{query}&page_token={wrong}'), 400, 'invalid-request')
        self.problem(self.web.get(f'/v1/messages?page_size=1&page_token={token}'), 400, 'invalid-request')

    def test_filters(self):
        m = self.schedule(exchange='orders', key='f1')
        day = m['due_at'][:10]
        for query in ('exchange=orders', 'state=scheduled&exchange=orders', 'key=f1&exchange=orders',
                      f'exchange=orders&due_after={day}T00:00:00Z',
                      'exchange=orders&due_before=2098-01-01T00:00:00%2B01:00',
                      'exchange=orders&due_before=2098-01-01T00:00:00+01:00'):
            self.assertEqual([x['id'] for x in self.web.get('/v1/messages?' + query).json['messages']], [m['id']], query)
        for query in ('state=failed&exchange=orders', 'exchange=order', 'exchange=orders&due_before=' + day + 'T00:00:00Z'):
            self.assertEqual(self.web.get('/v1/messages?' + query).json['messages'], [], query)
        for query in ('state=lost', 'state=', 'due_after=today', 'x=1', 'key=a&key=b', 'page_size=0', 'page_size=1001',
                      'page_size=', 'page_size=1e2', 'key=%zz', 'key=%0', 'key=a%00b', 'key=%ff', 'key=' + 'k' * 256,
                      '&'.join(f'p{i}=1' for i in range(40))):
            self.problem(self.web.get('/v1/messages?' + query), 400, 'invalid-request')

    def test_a_filter_without_its_value_is_not_all_messages(self):
        m = self.schedule()
        for condition in ('routing_key', 'key', 'exchange'):
            self.problem(self.web.post('/v1/messages:cancel', {'filter': {condition: None}}), 422, 'invalid-message')
        self.assertEqual(self.web.get('/v1/messages/' + m['id']).json['state'], 'scheduled')

    def test_bulk_counts_first_and_then_changes(self):
        for _ in range(5):
            self.schedule()
        body = {'filter': {'routing_key': self.name(), 'state': 'scheduled'}}
        dry = self.web.post('/v1/messages:cancel', dict(body, dry_run=True)).json
        self.assertEqual(dry, {'matched': 5, 'changed': 0, 'dry_run': True})
        moved = self.web.post('/v1/messages:reschedule', dict(body, shift_ms=3_600_000), Idempotency_Key='bulk-1')
        self.assertEqual(moved.json, {'matched': 5, 'changed': 5, 'dry_run': False})
        again = self.web.post('/v1/messages:reschedule', dict(body, shift_ms=3_600_000), Idempotency_Key='bulk-1')
        self.assertEqual(again.json, moved.json, 'not moved a second time')
        due = self.web.get(f'/v1/messages?state=scheduled&routing_key={self.name()}').json['messages']
        rows = self.p.value(f"select count(*) from postdate.message_now where routing_key = '{self.name()}' and state = 'superseded'")
        self.assertEqual((len(due), rows), (5, '5'))
        self.assertEqual(self.web.post('/v1/messages:retry', body).json['changed'], 0)
        done = self.web.post('/v1/messages:cancel', body).json
        self.assertEqual(done, {'matched': 5, 'changed': 5, 'dry_run': False})
        for path, wrong in (('cancel', {}), ('cancel', {'filter': 1}), ('cancel', {'filter': {'x': 'y'}}),
                            ('cancel', {'filter': {'key': 1}}), ('cancel', {'filter': {}, 'dry_run': 'yes'}),
                            ('cancel', {'filter': {}, 'shift_ms': 1}), ('reschedule', {'filter': {}}),
                            ('reschedule', {'filter': {'key': 'x'}, 'shift_ms': 10 ** 17}), ('retry', {'filter': {}, 'z': 1})):
            answer = self.web.post('/v1/messages:' + path, wrong)
            self.assertIn(answer.status, (400, 422), (path, wrong, answer))

    def test_an_empty_filter_changes_nothing_unless_all_is_meant(self):
        """What a program sends whose variables have no value."""
        m = self.schedule()
        calls = {'messages:cancel': {}, 'messages:retry': {}, 'messages:fail': {}, 'messages:reschedule': {'shift_ms': 1000},
                 'dead:drop': {}, 'dead:requeue': {}}
        for call, more in calls.items():
            for dry_run in (False, True):
                answer = self.web.post('/v1/' + call, {'filter': {}, 'dry_run': dry_run, **more})
                self.assertEqual((answer.status, answer.problem), (422, 'invalid-message'), (call, answer))
                self.assertIn('"all": true', answer.json['detail'])
            for wrong in ({'filter': {'exchange': 'x'}, 'all': True}, {'filter': {}, 'all': False}, {'filter': {}, 'all': None}):
                self.assertEqual(self.web.post('/v1/' + call, {**wrong, **more}).status, 422, (call, wrong))
        self.assertEqual(self.web.get('/v1/messages/' + m['id']).json['state'], 'scheduled')
        dry = self.web.post('/v1/messages:cancel', {'filter': {}, 'all': True, 'dry_run': True}).json
        self.assertGreaterEqual(dry['matched'], 1)

    def test_health_and_metrics(self):
        self.schedule()
        self.assertEqual(self.web.get('/livez').status, 200)
        stats = self.web.get('/v1/stats').json
        self.assertEqual((stats['broker'], stats['database']), ('up', 'up'))
        self.assertIn(f'(transport {stats["transport"]})', self.gw.log())
        wait_until(lambda: self.web.get('/v1/stats').json['messages']['scheduled'] >= 1, 10, 'it to be counted')
        text = self.web.get('/metrics').body.decode()
        for line in text.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) (postdate|process)_[a-z_]+ .+|(postdate|process)_[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? -?[0-9.e+Inf-]+)$')
        names = [x.split()[2] for x in text.splitlines() if x.startswith('# TYPE')]
        self.assertEqual(len(names), len(set(names)), 'a metric twice')
        for wanted in ('postdate_lateness_seconds_bucket{le="+Inf"}', 'postdate_database_up 1', 'postdate_broker_up 1',
                       'postdate_messages{state="scheduled"}', 'postdate_oldest_overdue_seconds'):
            self.assertIn(wanted, text)
        if shutil.which('promtool'):
            subprocess.run(['promtool', 'check', 'metrics'], input=text.encode(), check=True)

    def test_the_description_is_valid(self):
        """With Redocly's linter where it is installed; its own references in any case."""
        root = self.web.get('/openapi.json').json
        for name in re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(root)):
            node = root
            for part in name.split('/'):
                node = node[part]
        paths = {(m, p) for p, item in root['paths'].items() for m in item if m != 'parameters'}
        self.assertEqual(len(paths), 47)
        redocly = shutil.which('redocly') or os.environ.get('REDOCLY', '')
        if redocly:
            with tempfile.NamedTemporaryFile('w', suffix='.json') as f:
                json.dump(root, f)
                f.flush()
                done = subprocess.run([redocly, 'lint', f.name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            self.assertEqual(done.returncode, 0, done.stdout.decode())


class Sparse(LiveTest):
    """Few match among many: a page ends before its search takes long, and its token goes on."""
    weight = 8
    FEW, DAYS = 7, 3

    def test_pages_that_end_early_give_every_message_once(self):
        p = self.place(max_delay='10d')
        p.psql(f"""insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body)
                   select d, d, postdate.id_make(d), 'g', 'postdate.delivery', 'many', '', ''
                     from (select date_trunc('milliseconds', now() + interval '1 day' + random() * interval '{self.DAYS} days') as d from generate_series(1, 80000)) x""")
        p.psql('analyze postdate.message')
        web = Web(p.gateway(POSTDATE_DELIVERY_MAX_DELAY='10d').http())
        self.addCleanup(web.close)
        few = [web.post('/v1/messages', {'routing_key': 'few', 'exchange': 'rare', 'body': '', 'delay': f'{24 + i * 24 * self.DAYS // self.FEW}h'}) for i in range(self.FEW)]
        self.assertEqual({a.status for a in few}, {201}, few)
        few = [a.json['id'] for a in few]
        for query, expected in (('exchange=rare', few), ('routing_key=few', few), ('routing_key=few&state=scheduled', few), ('exchange=none', []), ('state=handed', []),
                                ('key=none', [])):
            found, token, early, pages = [], '', 0, 0
            while token is not None:
                page = web.get(f'/v1/messages?{query}&page_size=5' + (f'&page_token={token}' if token else '')).json
                found += [m['id'] for m in page['messages']]
                token, pages = page['next_page_token'], pages + 1
                if 'searched_until' in page:
                    early += 1
                    self.assertIsNotNone(token)
                    self.assertLess(len(page['messages']), 5)
                    self.assertTrue(all(m['due_at'] <= page['searched_until'] for m in page['messages']), page)
                self.assertLess(pages, 2000)
            self.assertEqual(found, expected, query)
            self.assertEqual(early > 0, query != 'key=none', f'{query}: {pages} pages')
        # and all of them where there is no filter, or one that most match
        for query in ('', '&state=scheduled', '&exchange=postdate.delivery'):
            page = web.get('/v1/messages?page_size=1000' + query).json
            self.assertEqual((len(page['messages']), 'searched_until' in page), (1000, False), query)


class Idempotency(HttpTest):
    def count(self):
        return self.p.value(f"select count(*) from postdate.message_now where routing_key = '{self.name()}'")

    def test_the_same_key_answers_the_same_and_stores_once(self):
        body = dict(DUE, routing_key=self.name())
        first = self.web.post('/v1/messages', body, Idempotency_Key='i1')
        again = self.web.post('/v1/messages', body, Idempotency_Key='i1')
        self.assertEqual((again.status, again.body), (201, first.body))
        self.assertEqual(self.count(), '1')
        self.problem(self.web.post('/v1/messages', dict(body, body='y'), Idempotency_Key='i1'), 422, 'idempotency-mismatch')
        batch = {'messages': [body] * 3}
        first = self.web.post('/v1/messages', batch, Idempotency_Key='i2')
        self.assertEqual(self.web.post('/v1/messages', batch, Idempotency_Key='i2').body, first.body)
        self.assertEqual(self.count(), '4')

    def test_what_was_refused_may_be_mended_under_the_same_key(self):
        body = {'routing_key': self.name(), 'body': 'x'}
        self.problem(self.web.post('/v1/messages', body, Idempotency_Key='m1'), 422, 'invalid-message')
        self.assertEqual(self.web.post('/v1/messages', dict(body, delay='1h'), Idempotency_Key='m1').status, 201)

    def test_twins_at_the_same_moment_store_once(self):
        body = dict(DUE, routing_key=self.name())
        answers, start = [], threading.Barrier(12)

        def one():
            web = Web(self.address)
            start.wait()
            answers.append(web.post('/v1/messages', body, Idempotency_Key='twin'))
            web.close()
        threads = [threading.Thread(target=one) for _ in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual({a.status for a in answers}, {201}, answers)
        self.assertEqual(len({a.body for a in answers}), 1)
        self.assertEqual(self.count(), '1')

    def test_keys_must_be_plain(self):
        for wrong in ('', 'a b', 'ä', 'k' * 256):
            answer = self.web.ask('POST', '/v1/messages', dict(DUE, routing_key='r'), {'Idempotency-Key': wrong.encode()})
            self.problem(answer, 400, 'invalid-request')


class Restart(LiveTest):
    def test_an_idempotency_key_survives_a_restart(self):
        p = self.place()
        body = dict(DUE, routing_key='r')
        answers = []
        for _ in range(2):
            g = p.gateway()
            answers.append(Web(g.http()).post('/v1/messages', body, Idempotency_Key='restart').body)
            self.assertEqual(g.term(), 0)
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(p.value('select count(*) from postdate.message_now'), '1')

    def test_two_gateways_cannot_listen_on_one_address(self):
        p = self.place()
        host, port = p.gateway().http()
        g = p.gateway(wait=False, POSTDATE_HTTP_LISTEN=f'{host}:{port}')
        self.assertEqual(g.wait(), 78)
        self.assertIn(f'cannot listen on {host}:{port}', g.log())
        g = p.gateway(POSTDATE_HTTP_LISTEN='off')
        self.assertEqual(g.lines_with('listening'), [])

    def test_without_a_broker_it_stores_and_without_a_database_it_says_so(self):
        p = self.place()
        g = p.gateway(wait=False, POSTDATE_AMQP_URL=re.sub(r':\d+/', ':1/', p.amqp))
        web = Web(g.http())
        self.assertEqual(web.get('/livez').status, 200)
        wait_until(lambda: web.get('/readyz').status == 200, 10, '/readyz')
        answer = web.post('/v1/messages', dict(DUE, routing_key='r'))
        self.assertEqual(answer.status, 201, answer)
        self.assertEqual(web.get('/v1/stats').json['broker'], 'away')
        g = p.gateway(wait=False, POSTDATE_POSTGRES_URL='postgresql:///none?host=/nonexistent')
        web = Web(g.http())
        self.assertEqual(web.get('/livez').status, 200)
        for answer in (web.get('/readyz'), web.post('/v1/messages', dict(DUE, routing_key='r')), web.get('/v1/messages')):
            self.assertEqual((answer.status, answer.problem), (503, 'not-ready'))
            self.assertGreaterEqual(int(answer.headers['retry-after']), 1)
        self.assertEqual(web.get('/metrics').status, 200)


class GroupCommit(LiveTest):
    weight = 5

    def test_64_clients_share_commits(self):
        p = self.place()
        g = p.gateway()
        each, ids, lock = (10 if harness.SAN else 40), [], threading.Lock()

        def one():
            web = Web(g.http())
            for _ in range(each):
                answer = web.post('/v1/messages', dict(DUE, routing_key='r'))
                with lock:
                    ids.append(answer.json['id'] if answer.status == 201 else answer)
            web.close()
        threads = [threading.Thread(target=one) for _ in range(64)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(set(map(str, ids))), 64 * each)
        self.assertEqual(p.value('select count(*) from postdate.message_now'), str(64 * each))
        text = Web(g.http()).get('/metrics').body.decode()
        commits = int(re.search(r'^postdate_http_commits_total (\d+)', text, re.M).group(1))
        transactions = int(p.value("select count(distinct xmin::text) from postdate.message"))
        self.assertEqual(commits, transactions)
        self.assertLess(transactions, 64 * each / 2)


class DatabaseAway(LiveTest):
    weight = 10

    def test_it_answers_503_and_goes_on_when_the_database_is_back(self):
        p = self.place()
        g = p.gateway()
        web = Web(g.http())
        self.assertEqual(web.post('/v1/messages', dict(DUE, routing_key='r')).status, 201)
        # Its sessions end, also in the middle: a request is then either stored, or said not to be.
        p.psql('select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() '
               "and datname = current_database() and application_name like 'postdate http%'")
        self.assertEqual(web.post('/v1/messages', dict(DUE, routing_key='r')).status, 201)
        self.assertEqual(web.get('/v1/messages').status, 200)
        p.stack.psql(f'alter database {p.database} allow_connections false')
        p.stack.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{p.database}'")
        for answer in (web.post('/v1/messages', dict(DUE, routing_key='r')), web.get('/v1/messages')):
            self.assertEqual(answer.status, 503, answer)
            self.assertIn('retry-after', answer.headers)
        wait_until(lambda: web.get('/readyz').status == 503, 10, '/readyz to say no')
        self.assertEqual(web.get('/livez').status, 200)
        p.stack.psql(f'alter database {p.database} allow_connections true')
        wait_until(lambda: web.post('/v1/messages', dict(DUE, routing_key='r')).status == 201, 15, 'it to store again')
        wait_until(lambda: web.get('/readyz').status == 200, 10, '/readyz')
        self.assertEqual(p.value('select count(*) from postdate.message_now'), '3')

    def test_a_database_that_takes_no_writes_is_not_ready(self):
        p = self.place()
        web = Web(p.gateway().http())
        wait_until(lambda: web.get('/readyz').status == 200, 10, '/readyz')
        p.stack.psql(f'alter database {p.database} set default_transaction_read_only = on')
        p.stack.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{p.database}'")
        wait_until(lambda: web.get('/readyz').status == 503, 10, '/readyz to say no')
        wait_until(lambda: 'default_transaction_read_only' in web.get('/readyz').json['detail'], 10, 'the reason')
        self.assertEqual(web.post('/v1/messages', dict(DUE, routing_key='r')).status, 503)
        p.stack.psql(f'alter database {p.database} reset default_transaction_read_only')
        p.stack.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{p.database}'")
        wait_until(lambda: web.get('/readyz').status == 200, 15, '/readyz')
