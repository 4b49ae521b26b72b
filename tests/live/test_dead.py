"""Dead letters as people manage them: command line, HTTP, control queue."""
import json
import os
import uuid

from harness import ROOT, LiveTest, wait_until
from test_tokens import make_token
from web import Web, described, ready_address

DEAD = "select count(*) from postdate.lineage where died_at is not null"


def bury(p, count, queue='work', exchange='shop', key='k', reason='rejected', ago='1 h', body='x'):
    """Dead letters as the gateway stores them, the first one the oldest. Their ids, oldest first."""
    rows = p.psql(f"""
        insert into postdate.lineage (id, expires_at, died_at, failed, queue, exchange, routing_key, reason, hash, failed_at, reasons, properties, body)
        select gen_random_uuid(), now() + interval '30 days', now() - interval '{ago}' + i * interval '1 s', 3, '{queue}', '{exchange}', '{key}',
               '{reason}', 'h', array[now() - interval '3 h', now() - interval '2 h', now() - interval '1 h'], '{{rejected,expired,{reason}}}', '', '{body}'
          from generate_series(1, {count}) i
        returning id, died_at""")
    return [row[0] for row in sorted(rows, key=lambda r: r[1])]


class DeadCommands(LiveTest):
    def setUp(self):
        super().setUp()
        self.p = self.place()

    def run_cli(self, *args, code=0):
        found, out, err = self.p.cli(*args)
        self.assertEqual(found, code, (args, out, err))
        return out

    def listed(self, *args):
        return [json.loads(line) for line in self.run_cli('dead', 'list', '--json', *args).splitlines()]

    def test_list_and_filters(self):
        work = bury(self.p, 3)
        other = bury(self.p, 2, queue='other.one', exchange='', key='other.one', reason='expired', ago='2 h')
        self.assertEqual([d['id'] for d in self.listed()], other + work)
        self.assertEqual([d['id'] for d in self.listed('--limit', '3')], other + work[:1])
        for args, ids in ((('--queue', 'work'), work), (('--queue', 'other.*'), other), (('--queue', 'o'), []), (('--queue', '*'), other + work),
                          (('--queue', 'w_rk'), []), (('--reason', 'expired'), other), (('--exchange', 'shop'), work), (('--exchange', ''), other),
                          (('-k', 'k'), work), (('-k', 'k', '--queue', 'other*'), [])):
            self.assertEqual([d['id'] for d in self.listed(*args)], ids, args)
        first = self.listed()[0]
        self.assertEqual({k: first[k] for k in ('queue', 'state', 'reason', 'exchange', 'routing_key', 'failed', 'body_bytes')},
                         {'queue': 'other.one', 'state': 'dead', 'reason': 'expired', 'exchange': '', 'routing_key': 'other.one', 'failed': 3,
                          'body_bytes': 1})
        self.assertIn('other.one', self.run_cli('dead', 'list'))

    def test_a_list_of_many_pages_is_whole(self):
        ids = bury(self.p, 1203)
        self.p.psql("update postdate.lineage set died_at = date_trunc('minute', died_at)")  # many at the same time
        found = [d['id'] for d in self.listed('--limit', '5000')]
        self.assertEqual((len(found), set(found)), (1203, set(ids)))

    def test_groups(self):
        bury(self.p, 3)
        bury(self.p, 2, reason='expired')
        bury(self.p, 5, queue='other')
        groups = [json.loads(line) for line in self.run_cli('dead', 'list', '--group', '--json').splitlines()]
        self.assertEqual([(g['queue'], g['reason'], g['exchange'], g['routing_key'], g['count']) for g in groups],
                         [('other', 'rejected', 'shop', 'k', 5), ('work', 'rejected', 'shop', 'k', 3), ('work', 'expired', 'shop', 'k', 2)])
        self.assertLess(groups[0]['oldest_at'], groups[0]['newest_at'])
        self.assertEqual(len(self.run_cli('dead', 'list', '--group', '--queue', 'work').splitlines()), 3)

    def test_show(self):
        one, = bury(self.p, 1, body='the body')
        shown = json.loads(self.run_cli('dead', 'show', one, '--json'))
        self.assertEqual((shown['id'], shown['body'], shown['state']), (one, 'the body', 'dead'))
        self.assertEqual([a['reason'] for a in shown['attempts']], ['rejected', 'expired', 'rejected'])
        self.assertEqual([a['at'] for a in shown['attempts']], sorted(a['at'] for a in shown['attempts']))
        text = self.run_cli('dead', 'show', one)
        for word in ('the body', 'work', 'shop', 'rejected', 'expired'):
            self.assertIn(word, text)
        self.p.psql(f"insert into postdate.lineage select (jsonb_populate_record(l, '{{\"queue\": \"second\"}}')).* from postdate.lineage l")
        self.assertIn('"second", "work"', self.p.cli('dead', 'show', one)[2])
        self.assertEqual(json.loads(self.run_cli('dead', 'show', one, '--queue', 'second', '--json'))['queue'], 'second')
        self.run_cli('dead', 'show', '00000000-0000-4000-8000-000000000000', code=66)

    def test_requeue_and_drop_by_id(self):
        a, b, c = bury(self.p, 3)
        self.assertEqual(self.run_cli('dead', 'requeue', a, b, '--dry-run'), f'{a} would be requeued\n{b} would be requeued\n')
        self.assertEqual(self.p.value(DEAD), '3')
        self.assertEqual(self.run_cli('dead', 'requeue', a), f'{a} requeued\n')
        self.assertEqual(self.run_cli('dead', 'requeue', a, code=66), f'{a} not found\n')
        self.assertEqual(self.run_cli('dead', 'requeue', a, b, code=1), f'{a} not found\n{b} requeued\n')
        self.assertEqual(json.loads(self.run_cli('dead', 'show', a, '--json'))['state'], 'waiting')
        self.assertIn('waits', self.p.cli('show', a)[2])
        self.assertIn('dead letter', self.p.cli('show', c)[2])
        self.assertEqual(self.run_cli('dead', 'drop', c), f'{c} dropped\n')
        self.run_cli('dead', 'show', c, code=66)
        self.assertEqual(self.p.psql("select routing_key, exchange from postdate.message_now"), [['k', 'postdate.return']] * 2)

    def test_requeue_by_filter_with_a_rate(self):
        bury(self.p, 450)
        bury(self.p, 5, queue='other')
        self.assertEqual(self.run_cli('dead', 'requeue', '--queue', 'work', '--rate', '10/s', '--dry-run'), '450 would be requeued\n')
        self.assertEqual(self.p.value(DEAD), '455')
        self.assertEqual(self.run_cli('dead', 'requeue', '--queue', 'wor*', '--rate', '10/s'), '450 of 450 requeued\n')
        span, steps, most = self.p.psql(
            'select extract(epoch from max(due) - min(due)), count(distinct due), max(step) from'
            ' (select due, extract(epoch from due - lag(due) over (order by due)) as step from postdate.message_now) m')[0]
        self.assertAlmostEqual(float(span), 44.9, delta=1)  # a little of the first second has passed
        self.assertGreater(int(steps), 440)
        self.assertEqual(float(most), 0.1)
        self.assertEqual(self.p.value(DEAD), '5')
        self.assertEqual(self.run_cli('dead', 'requeue', '--queue', 'other'), '5 of 5 requeued\n')
        bury(self.p, 3000)
        code, _, err = self.p.cli('dead', 'requeue', '--queue', '*', '--rate', '1/h')
        self.assertEqual((code, self.p.value(DEAD)), (65, '3000'), err)
        self.assertIn('allowed: at most', err)

    def test_drop_by_filter(self):
        bury(self.p, 250)
        bury(self.p, 2, reason='expired')
        self.assertEqual(self.run_cli('dead', 'drop', '--reason', 'rejected', '--dry-run'), '250 would be dropped\n')
        self.assertEqual(self.run_cli('dead', 'drop', '--reason', 'rejected'), '250 of 250 dropped\n')
        self.assertEqual(self.p.value(DEAD), '2')
        self.assertEqual(self.run_cli('dead', 'drop', '--all', '--dry-run'), '2 would be dropped\n')
        self.assertEqual(self.run_cli('dead', 'drop', '--all'), '2 of 2 dropped\n')
        self.assertEqual(self.p.value(DEAD), '0')

    def test_what_is_wrong_is_named(self):
        one, = bury(self.p, 1)
        for args, word in ((('drop',), 'give ids, or filters'), (('requeue', '--rate', '5/s'), 'give ids'), (('requeue', '--queue', '*', '--rate', '5'), '50/s'),
                           (('list', '--reason', 'reject'), 'delivery_limit'), (('requeue', 'x'), 'no id'), (('list', '--limit', '0'), '--limit'),
                           (('requeue', one, '--reason', 'rejected'), 'give ids'), (('drop', '--queue', 'q', '--rate', '1/s'), '--rate'),
                           (('list', '--dry-run'), '--dry-run'), (('list', '--all'), '--all'), (('drop', one, '--all'), 'or --all'), (('drop', '--queue', 'q', '--all'), '--all'),
                            (('show',), 'one id'), ((), 'specify list'), (('drop', '--queue', 'q', '--json'), '--json')):
            code, _, err = self.p.cli('dead', *args)
            self.assertEqual(code, 64, (args, err))
            self.assertIn(word, err, args)
        self.assertEqual(self.p.value(DEAD), '1')


class DeadCost(LiveTest):
    def test_one_is_shown_without_a_plan_for_each_day(self):
        """A statement that may need any day locks them all while it is planned."""
        p = self.place(max_delay='60d')
        with open(os.path.join(ROOT, 'sql', 'query', 'dead_show.sql'), encoding='utf-8') as f:
            query = f.read().replace('$1', f"'{bury(p, 1)[0]}'").replace('$2', "'work'")
        partitions = int(p.value("select count(*) from pg_partition_tree('postdate.message') where isleaf"))
        self.assertGreater(partitions, 15)
        session = p.session()
        session.run('begin')
        session.run(query)
        locked = int(session.run("select count(*) from pg_locks l join pg_inherits i on i.inhrelid = l.relation where l.pid = pg_backend_pid()")[0][0])
        self.assertLess(locked, 3)


class DeadHttp(LiveTest):
    def setUp(self):
        super().setUp()
        self.p = self.place()

    def open(self, **env):
        return ready_address(self.p.gateway(**env))

    def test_pages_and_filters(self):
        ids = bury(self.p, 25, queue='ä' * 100)
        other = bury(self.p, 4, queue='other', reason='expired', ago='3 h')
        web, found, token = described(self, self.open()), [], None
        while True:
            answer = web.get('/v1/dead?page_size=7' + (f'&page_token={token}' if token else ''))
            self.assertEqual(answer.status, 200, answer)
            found += [d['id'] for d in answer.json['dead_letters']]
            token = answer.json['next_page_token']
            if not token:
                break
        self.assertEqual(found, other + ids)
        for query, expected in (('queue=other', other), ('queue=oth*', other), ('reason=expired', other), ('exchange=shop', other + ids),
                                ('exchange=', []), ('routing_key=k&queue=%C3%A4*', ids)):
            self.assertEqual([d['id'] for d in web.get('/v1/dead?' + query).json['dead_letters']], expected, query)
        token = web.get('/v1/dead?page_size=3&queue=other').json['next_page_token']
        for query in ('', '&queue=oth*', '&queue=other&reason=expired'):  # of another list
            self.assertEqual(web.get(f'/v1/dead?page_token={token}{query}').status, 400)
        self.assertEqual(web.get(f'/v1/dead?page_token={token[:-1]}{"B" if token[-1] == "A" else "A"}&queue=other').status, 400)
        self.assertEqual(len(web.get(f'/v1/dead?page_token={token}&queue=other').json['dead_letters']), 1)
        for query in ('page_size=0', 'page_size=1001', 'reason=nack', 'queue=' + 'q' * 256, 'state=dead'):
            self.assertEqual(web.get('/v1/dead?' + query).status, 400, query)

    def test_groups_and_one(self):
        one, *_ = bury(self.p, 3, body='the body')
        web = described(self, self.open())
        groups = web.get('/v1/dead:groups?queue=wor*').json
        self.assertEqual(([(g['queue'], g['count']) for g in groups['groups']], groups['complete']), ([('work', 3)], True))
        shown = web.get('/v1/dead/' + one).json
        self.assertEqual((shown['body'], shown['state'], len(shown['attempts'])), ('the body', 'dead', 3))
        self.assertEqual(web.get(f'/v1/dead/{one}?queue=other').status, 404)
        self.assertEqual(web.get('/v1/dead/nonsense').status, 404)
        answer = web.get('/v1/messages/' + one)
        self.assertEqual((answer.status, 'dead letter of queue "work"' in answer.json['detail']), (404, True), answer)
        self.p.psql("insert into postdate.lineage select (jsonb_populate_record(l, '{\"queue\": \"second\"}')).* from postdate.lineage l")
        self.assertIn('"second", "work"', web.get('/v1/dead/' + one).json['detail'])

    def test_requeue_and_drop(self):
        ids = bury(self.p, 5)
        bury(self.p, 300, queue='other')
        web = described(self, self.open())
        self.assertEqual(web.post('/v1/dead:requeue', {'ids': ids[:2], 'dry_run': True}).json, {'matched': 2, 'changed': 0, 'dry_run': True})
        self.assertEqual(web.post('/v1/dead:requeue', {'ids': ids[:2]}).json['changed'], 2)
        self.assertEqual(web.post('/v1/dead:requeue', {'ids': ids[:3]}).json, {'matched': 1, 'changed': 1, 'dry_run': False})
        self.assertEqual(web.post('/v1/dead:requeue', {'filter': {'queue': 'oth*'}, 'rate': '10/m'}).json['changed'], 300)
        self.assertGreater(float(self.p.value('select extract(epoch from max(due) - min(due)) from postdate.message_now')), 29.5 * 60)
        self.assertEqual(web.post('/v1/dead:drop', {'filter': {}, 'all': True, 'dry_run': True}).json['matched'], 2)
        self.assertEqual(web.post('/v1/dead:drop', {'ids': [ids[3]]}).json['changed'], 1)
        self.assertEqual(web.post('/v1/dead:drop', {'filter': {}, 'all': True}).json['changed'], 1)
        self.assertEqual(self.p.value(DEAD), '0')

    def test_a_repeated_request_is_done_once(self):
        web = described(self, self.open())
        bury(self.p, 2)
        first = web.post('/v1/dead:drop', {'filter': {'queue': 'work'}}, Idempotency_Key='one')
        bury(self.p, 3)
        again = web.post('/v1/dead:drop', {'filter': {'queue': 'work'}}, Idempotency_Key='one')
        self.assertEqual((again.status, again.json, first.json['changed']), (200, first.json, 2))
        self.assertEqual(self.p.value(DEAD), '3')
        self.assertEqual(web.post('/v1/dead:requeue', {'filter': {'queue': 'work'}}, Idempotency_Key='one').status, 422)

    def test_a_token_sees_its_exchanges_only(self):
        mine, theirs = bury(self.p, 2, exchange='mine'), bury(self.p, 2, exchange='theirs')
        address = self.open(POSTDATE_HTTP_TOKENS='on')
        caller = Web(address)
        headers = {'Authorization': 'Bearer ' + make_token(self.p, 'mine')}
        wait_until(lambda: caller.ask('GET', '/v1/dead', None, headers).status == 200, 10, 'the token')
        self.assertEqual([d['id'] for d in caller.ask('GET', '/v1/dead', None, headers).json['dead_letters']], mine)
        self.assertEqual([g['exchange'] for g in caller.ask('GET', '/v1/dead:groups', None, headers).json['groups']], ['mine'])
        for path in ('/v1/dead/', '/v1/messages/'):
            none, other = (caller.ask('GET', path + i, None, headers) for i in (str(uuid.uuid4()), theirs[0]))
            self.assertEqual((other.status, len(other.json['detail'])), (404, len(none.json['detail'])), other)
        self.assertIn('dead letter', caller.ask('GET', '/v1/messages/' + mine[0], None, headers).json['detail'])
        for verb in ('requeue', 'drop'):
            answer = caller.ask('POST', '/v1/dead:' + verb, json.dumps({'ids': theirs}), headers | {'Content-Type': 'application/json'})
            self.assertEqual((answer.status, answer.json['matched']), (200, 0))
        answer = caller.ask('POST', '/v1/dead:drop', json.dumps({'filter': {}, 'all': True}), headers | {'Content-Type': 'application/json'})
        self.assertEqual(answer.json['changed'], 2)
        self.assertEqual([row[0] for row in self.p.psql('select distinct exchange from postdate.lineage')], ['theirs'])

    def test_what_goes_back_reaches_its_queue(self):
        c = self.p.client()
        self.open()
        c.queue('work', arguments={'x-dead-letter-exchange': 'postdate.retry'})
        self.p.cli('retry-policy', 'set', 'work', '--attempts', '1')
        c.publish('work', b'once', {'n': 1}, exchange='')
        method = wait_until(lambda: c.channel.basic_get('work')[0], 10, 'the first delivery')
        c.channel.basic_reject(method.delivery_tag, requeue=False)
        wait_until(lambda: self.p.value(DEAD) == '1', 10, 'the dead letter')
        self.assertEqual(self.p.run('dead', 'requeue', '--queue', 'work', '--rate', '10/s'), '1 of 1 requeued\n')
        m = c.wait_get('work')
        self.assertEqual((m.body, m.headers['n'], m.headers['x-postdate-attempt']), (b'once', 1, 1))
