"""Recurring schedules over HTTP and the control queue: one implementation, conditions, tokens, pages, who changed what."""
import datetime as dt
import json
import re
import threading

from harness import LiveTest, wait_until
from test_control import Requester
from test_tokens import Caller, make_token
from web import Web, described, ready_address

DAILY = {'cron': '0 9 * * *', 'zone': 'Europe/Berlin', 'routing_key': 'daily', 'body': 'x'}


class RecurHttp(LiveTest):
    def setUp(self):
        super().setUp()
        self.p = self.place()

    def open(self, **env):
        return ready_address(self.p.gateway(**env))

    def ask(self, web, method, path, body=None, status=200, **headers):
        answer = web.ask(method, '/v1/recurring' + path, body, {k.replace('_', '-'): v for k, v in headers.items()} | ({'Content-Type': 'application/json'} if body is not None else {}))
        self.assertEqual(answer.status, status, (method, path, answer))
        return answer

    def test_set_show_run_pause_remove(self):
        web = described(self, self.open())
        inbox = self.p.consumer('q', declare=True, bind='daily')
        made = self.ask(web, 'PUT', '/daily', dict(DAILY, headers={'n': 1}, body='grüße', jitter='30s', missed='all'), 201)
        s = made.json
        self.assertEqual(list(s)[:3], ['name', 'cron', 'zone'])
        self.assertEqual((s['name'], s['jitter'], s['grace'], s['missed'], s['headers'], s['body'], s['paused'], s['exchange']),
                         ('daily', '30s', '1m', 'all', {'n': 1}, 'grüße', False, 'postdate.delivery'))
        self.assertEqual(made.headers['etag'], f'"{s["version"]}"')
        shown = self.ask(web, 'GET', '/daily')
        self.assertEqual((shown.json, shown.headers['etag']), (s, made.headers['etag']))
        self.assertEqual(web.get('/v1/messages/' + s['next_id']).json['key'], 'recur/daily')
        again = self.ask(web, 'PUT', '/daily', dict(DAILY, headers={'n': 1}, body='grüße', jitter='PT30S', missed='all'))
        self.assertEqual(again.headers['etag'], made.headers['etag'], 'the same definition is no change')
        ran = self.ask(web, 'POST', '/daily:run', {}).json['id']
        m = inbox.wait(1)[0]
        self.assertEqual((m.id, m.headers['x-postdate-recur']), (ran, 'daily'))
        twice = [self.ask(web, 'POST', '/daily:run', {}, Idempotency_Key='once').json['id'] for _ in range(2)]
        self.assertEqual(twice[0], twice[1])
        inbox.wait(2)
        paused = self.ask(web, 'POST', '/daily:pause', {}).json
        self.assertEqual((paused['paused'], paused['next_id']), (True, None))
        self.assertFalse(self.ask(web, 'POST', '/daily:resume', {}).json['paused'])
        # bytes and JSON as they were sent
        self.assertEqual(self.ask(web, 'PUT', '/bytes', {'cron': '@daily', 'routing_key': 'k', 'body_base64': '/wA='}, 201).json['body_base64'], '/wA=')
        exact = '{"cron":"@daily","routing_key":"daily","json":{"b" : 1.10, "a":19.99}}'
        web.ask('PUT', '/v1/recurring/json', exact)
        self.ask(web, 'POST', '/json:run', {})
        self.assertEqual(inbox.wait(3)[2].body, b'{"b" : 1.10, "a":19.99}')
        # which day of the week a number is
        quartz = dict(DAILY, cron='0 0 9 ? * 2')
        self.assertIn('reads MON', self.ask(web, 'PUT', '/quartz', quartz, 422).json['detail'])
        self.assertEqual(self.ask(web, 'PUT', '/quartz', dict(quartz, dialect='quartz'), 201).json['dialect'], 'quartz')
        self.assertIsNone(s['dialect'])
        for dialect, weekday in (('quartz', 1), ('cron', 2)):
            at = self.ask(web, 'GET', f':preview?cron=0%200%209%20%3F%20*%202&n=1&dialect={dialect}').json['times'][0]['local']
            self.assertEqual(dt.date.fromisoformat(at[:10]).isoweekday(), weekday, at)
        self.ask(web, 'GET', ':preview?cron=0%200%209%20%3F%20*%202', status=400)
        self.ask(web, 'DELETE', '/quartz')
        # pages
        for i in range(3):
            self.ask(web, 'PUT', f'/p{i}', DAILY, 201)
        page = self.ask(web, 'GET', '?page_size=4').json
        self.assertEqual([x['name'] for x in page['recurring']], ['bytes', 'daily', 'json', 'p0'])
        self.assertNotIn('body', page['recurring'][0])
        page = self.ask(web, 'GET', '?page_size=4&page_token=' + page['next_page_token']).json
        self.assertEqual(([x['name'] for x in page['recurring']], page['next_page_token']), (['p1', 'p2'], None))
        self.ask(web, 'GET', '?page_token=AAAA', status=400)
        # the next times
        times = self.ask(web, 'GET', ':preview?name=p0&n=2').json['times']
        self.assertEqual(len(times), 2)
        times = self.ask(web, 'GET', ':preview?cron=30%202%20*%20*%20*&zone=Europe/Berlin&from=2026-03-28T12:00:00Z&n=1').json['times']
        self.assertEqual(times, [{'at': '2026-03-29T01:00:00.000Z', 'local': '2026-03-29T03:00:00+02:00', 'mark': 'clock goes forward to 03:00 at 02:00'}])
        for query in ('', '?n=1', '?name=p0&cron=@daily', '?cron=@daily&n=0', '?cron=@daily&n=1001', '?cron=0%2025%20*%20*%20*', '?cron=@daily&zone=CET',
                      '?cron=@daily&from=today', '?cron=@daily&dst=x%00'):
            self.ask(web, 'GET', ':preview' + query, status=400)
        self.ask(web, 'GET', ':preview?name=nobody', status=404)
        # removed
        self.assertEqual(self.ask(web, 'DELETE', '/daily').json, {'removed': True})
        self.ask(web, 'DELETE', '/daily', status=404)
        self.assertEqual(web.get('/v1/messages/' + self.ask(web, 'GET', '/p0').json['next_id']).json['state'], 'scheduled')
        for body, word in ((dict(DAILY, cron='0 25 * * *'), '"23"'), (dict(DAILY, colour=1), 'colour is no field'), (dict(DAILY, cron=5), 'cron is no string'),
                           (dict(DAILY, exchange='postdate'), "gateway's own"), (dict(DAILY, exchange='', routing_key='postdate.intake'), "gateway's own queue"),
                           (dict(DAILY, headers={'x-delay': 1}), 'reserved'), (dict(DAILY, until='2020-01-01T00:00:00Z'), 'never run'), ({}, 'body is missing')):
            answer = self.ask(web, 'PUT', '/wrong', body, 422)
            self.assertIn(word, answer.json['detail'])
        for name in ('a%20b', '%C3%A4', 'x' * 201, '-a'):
            self.ask(web, 'PUT', '/' + name, DAILY, 422)
            self.ask(web, 'GET', '/' + name, status=404)

    def test_conditions(self):
        web = described(self, self.open())
        first = self.ask(web, 'PUT', '/a', DAILY, 201, If_None_Match='*').headers['etag']
        self.ask(web, 'PUT', '/a', DAILY, 412, If_None_Match='*')
        self.ask(web, 'PUT', '/a', DAILY, 400, If_None_Match='"x"')
        self.ask(web, 'PUT', '/b', DAILY, 412, If_Match='*')
        second = self.ask(web, 'PUT', '/a', dict(DAILY, cron='0 8 * * *'), 200, If_Match=f'"no", {first}').headers['etag']
        self.assertNotEqual(second, first)
        for wrong in (first, f'W/{second}', '"no","other"', '""'):
            self.ask(web, 'PUT', '/a', DAILY, 412, If_Match=wrong)
            self.ask(web, 'DELETE', '/a', status=412, If_Match=wrong)
            for what in ('pause', 'resume', 'run'):
                self.ask(web, 'POST', '/a:' + what, {}, 412, If_Match=wrong)
        self.assertEqual(self.ask(web, 'GET', '/a').json['cron'], '0 8 * * *')
        third = self.ask(web, 'POST', '/a:pause', {}, If_Match=second).headers['etag']
        self.ask(web, 'POST', '/a:resume', {}, 412, If_Match=second)
        self.ask(web, 'POST', '/a:run', {}, If_Match=third)
        self.ask(web, 'DELETE', '/a', If_Match='*')
        # the same name again is another one
        self.ask(web, 'PUT', '/a', DAILY, 201)
        self.ask(web, 'DELETE', '/a', status=412, If_Match=third)
        # of many who want to be the first one is
        address, answers = web.address, []
        def make(i):
            one = Web(address)
            answers.append(one.ask('PUT', '/v1/recurring/race', dict(DAILY, body=str(i)), {'If-None-Match': '*', 'Content-Type': 'application/json'}).status)
            one.close()
        threads = [threading.Thread(target=make, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(sorted(answers), [201] + [412] * 7)
        self.assertEqual(len(self.ask(web, 'GET', '/race:history').json['changes']), 1)

    def test_conditions_tell_nothing_of_others(self):
        """A name that another token has is answered as one that is not there, wherever that can be."""
        web = described(self, self.open(POSTDATE_HTTP_TOKENS='on'))
        a, b = (Caller(web.address, make_token(self.p, e, name='team ' + e)) for e in ('a', 'b'))
        wait_until(lambda: all(x.get('/v1/recurring').status == 200 for x in (a, b)), 10, 'the tokens')
        self.assertEqual(a.ask('PUT', '/v1/recurring/mine', dict(DAILY, exchange='a')).status, 201)
        for conditions in ({'If_None_Match': '*'}, {'If_Match': '*'}, {'If_Match': '"1-0"'}, {'If_Match': '"1-0"', 'If_None_Match': '*'}):
            for method, suffix, body in (('PUT', '', dict(DAILY, exchange='b')), ('DELETE', '', None), ('POST', ':pause', {}), ('POST', ':resume', {}), ('POST', ':run', {})):
                theirs, nobody = (b.ask(method, f'/v1/recurring/{name}{suffix}', body, **conditions) for name in ('mine', f'nobody{len(conditions)}'))
                if method == 'PUT' and 'If_Match' not in conditions:
                    self.assertEqual((theirs.status, nobody.status), (403, 201), 'one name is one schedule')
                    b.ask('DELETE', '/v1/recurring/nobody1')
                else:
                    self.assertEqual((theirs.status, theirs.body.replace(b'mine', b'')), (nobody.status, re.sub(rb'nobody\d', b'', nobody.body)), (method, suffix, conditions))
                    self.assertNotIn('already', nobody.json['detail'], (method, suffix, conditions))
                    self.assertEqual(nobody.status, 412 if 'If_Match' in conditions else 404)
        for method, suffix, body in (('PUT', '', dict(DAILY, exchange='a')), ('DELETE', '', None), ('POST', ':run', {})):
            self.assertIn('already', a.ask(method, '/v1/recurring/mine' + suffix, body, If_None_Match='*').json['detail'])

    def test_a_nul_is_refused_by_the_name_of_its_field(self):
        web = described(self, self.open())
        for field, value in (('body', 'a\0b'), ('cron', '@daily\0'), ('zone', '\0'), ('json', {'a': ['\0']}), ('headers', {'a': {'b': 'x\0'}}),
                             ('properties', {'app_id': '\0'}), ('exchange', '\0'), ('routing_key', '\0'), ('grace', '1m\0')):
            definition = {k: v for k, v in DAILY.items() if not (field == 'json' and k == 'body')} | {field: value}
            answer = self.ask(web, 'PUT', '/nul', definition, 422)
            self.assertIn(field, answer.json['detail'])
            self.assertIn('NUL', answer.json['detail'])
        plain = {k: v for k, v in DAILY.items() if k != 'body'}
        self.assertEqual(self.ask(web, 'PUT', '/nul', dict(DAILY, body='a\\u0000b'), 201).json['body'], 'a\\u0000b', 'a backslash and letters')
        self.ask(web, 'PUT', '/nul', dict(plain, body_base64='AA=='))
        large = '{"n":[1e999,-' + '9' * 400 + ']}'
        text = json.dumps(plain)[:-1] + ',"json":' + large + '}'
        self.assertEqual(self.ask(web, 'PUT', '/nul', text).json['body'], large, 'what is only carried')

    def test_what_a_token_sees(self):
        address = self.open(POSTDATE_HTTP_TOKENS='on')
        a, b, default = (Caller(address, make_token(self.p, e, name='team ' + e)) for e in ('a', 'b', ''))
        wait_until(lambda: all(x.get('/v1/recurring').status == 200 for x in (a, b, default)), 10, 'the tokens')
        put = dict(DAILY, exchange='a')
        self.assertEqual(a.ask('PUT', '/v1/recurring/mine', put, Content_Type='application/json').status, 201)
        self.assertEqual([x['name'] for x in a.get('/v1/recurring').json['recurring']], ['mine'])
        self.assertEqual(b.get('/v1/recurring').json['recurring'], [])
        self.assertEqual(len(a.get('/v1/recurring:preview?name=mine').json['times']), 10)
        for caller, name, body in ((b, 'mine', dict(DAILY, exchange='b')), (b, 'other', put), (b, 'other', DAILY), (a, 'mine', dict(DAILY, exchange='b')),
                                   (default, 'cc', dict(DAILY, exchange='', headers={'CC': ['x']}))):
            answer = caller.ask('PUT', '/v1/recurring/' + name, body, Content_Type='application/json')
            self.assertEqual((answer.status, answer.problem), (403, 'exchange-not-allowed'), (name, body))
        self.assertEqual(default.ask('PUT', '/v1/recurring/q', dict(DAILY, exchange='', routing_key='postdate.control'), Content_Type='application/json').status, 422)
        changes = a.get('/v1/recurring/mine:history').json['changes']
        self.assertEqual([(c['what'], c['who'].split(', ')[1]) for c in changes], [('set', 'token "team a"')])
        # moved to another exchange, it takes along only what happens from then on
        self.p.psql("select postdate.recur_set('mine', '0 9 * * *', 'daily', 'x'::text, exchange => 'b'); select postdate.recur_run('mine')")
        self.assertEqual(a.get('/v1/recurring/mine:history').status, 404)
        self.assertEqual([c['what'] for c in b.get('/v1/recurring/mine:history').json['changes']], ['run'])

    def test_somebody_else_makes_it_just_now(self):
        """A name that is free when it is looked at, and then is a schedule beyond the token's scope: it is not taken over."""
        p, s, outcomes = self.p, self.p.session(), []
        self.addCleanup(s.close)
        s.run('begin')
        s.run("select postdate.recur_set('n', '@daily', 'k', 'theirs'::text, exchange => 'b')")
        mine = json.dumps(dict(DAILY, exchange='a', body='mine'))
        other = threading.Thread(target=lambda: outcomes.extend(p.psql(f"select outcome from postdate.recur_ask('set', 'n', '{mine}', '{{a}}', 'token 1', null, false)")))
        other.start()
        wait_until(lambda: p.value("select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'") == '1', 20, 'who waits')
        s.run('commit')
        other.join()
        self.assertEqual(outcomes, [['exchange']])
        self.assertEqual(p.psql("select exchange, convert_from(body, 'UTF8') from postdate.recur"), [['b', 'theirs']])

    def test_conditions_of_the_control_queue(self):
        self.open()
        r = Requester(self.p.amqp)
        self.addCleanup(r.close)
        made = r.ask(dict(DAILY, op='recur_set', name='c', if_none_match='*'))
        self.assertEqual(made['status'], 201)
        self.assertEqual(r.ask(dict(DAILY, op='recur_set', name='c', if_none_match='*'))['status'], 412)
        self.assertEqual(r.ask(dict(DAILY, op='recur_set', name='c', if_match=made['version'], body='y'))['status'], 200)
        self.assertEqual(r.ask({'op': 'recur_pause', 'name': 'c', 'if_match': made['version']})['status'], 412)
        self.assertEqual(r.ask(dict(DAILY, op='recur_set', name='c', if_match=5))['status'], 422)
        self.assertEqual(len(r.ask({'op': 'recur_preview', 'cron': '0 0 9 ? * 2', 'dialect': 'quartz', 'n': '2'})['times']), 2)

    def test_history(self):
        p = self.p
        p.psql("select postdate.recur_set('a', '0 9 * * *', 'k', 'one'::text); select postdate.recur_set('a', '0 8 * * *', 'k', 'two'::text); select postdate.recur_set('a', '0 8 * * *', 'k', 'two'::text)")
        for word in ('pause', 'pause', 'resume', 'run', 'remove'):
            self.assertEqual(p.cli('recur', word, 'a')[0], 0)
        out = p.run('recur', 'show', 'a', '--history')
        lines = out.splitlines()
        self.assertEqual([re.search(r'(\w+) +by ', line)[1] for line in lines if not line.startswith(' ')], ['remove', 'run', 'resume', 'pause', 'set', 'made'])
        self.assertIn('    cron: "0 9 * * *" -> "0 8 * * *"', lines)
        self.assertIn('    body: "one" -> "two"', lines)
        self.assertIn('postdate recur (', lines[0])
        self.assertEqual([c['what'] for c in json.loads(p.cli('recur', 'show', 'a', '--history', '--json')[1])], ['remove', 'run', 'resume', 'pause', 'set', 'set'])
        shown = [[c[name] or '' for name in ('who', 'what', 'id')] for c in json.loads(p.cli('recur', 'show', 'a', '--history', '--json')[1])]
        self.assertEqual(p.psql("select who, what, id from postdate.recurring_changes where name = 'a' order by at desc"), shown)
        self.assertEqual([bool(c[2]) for c in shown], [False, True, False, False, False, False])
        self.assertEqual(p.cli('recur', 'show', 'nobody', '--history')[0], 66)
        # what the passing of time does is no change; the last twenty are kept, and runs apart from what was set
        p.psql("select postdate.recur_set('b', '@every 1s', 'k', 'x'::text)")
        g = p.gateway()
        p.consumer('q', declare=True, bind='k').wait(3)
        self.assertEqual(p.value("select count(*) from postdate.recurring_changes where name = 'b'"), '1')
        p.psql("select postdate.recur_run('b') from generate_series(1, 30)")
        self.assertEqual(p.value("select string_agg(n || ' ' || what, ', ' order by what) from (select what, count(*) as n from postdate.recurring_changes where name = 'b' group by what) x"), '20 run, 1 set')
        p.psql("update postdate.recur_change set at = at - interval '91 days'")
        g.term()
        g = p.gateway()
        wait_until(lambda: p.value("select string_agg(distinct name, ' ') from postdate.recurring_changes") == 'b', 10, 'what was removed long ago to be forgotten')
        p.psql("select postdate.recur_set('long', '@daily', 'k', repeat('x', 5000))")
        self.assertEqual(p.value("select new ->> 'body_bytes' from postdate.recurring_changes where name = 'long'"), '5000')
