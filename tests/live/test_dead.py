"""Dead letters as people manage them: command line, HTTP, control queue."""
import json

from harness import LiveTest

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
        self.assertEqual(self.p.psql("select routing_key, exchange from postdate.message"), [['k', 'postdate.return']] * 2)

    def test_requeue_by_filter_with_a_rate(self):
        bury(self.p, 450)
        bury(self.p, 5, queue='other')
        self.assertEqual(self.run_cli('dead', 'requeue', '--queue', 'work', '--rate', '10/s', '--dry-run'), '450 would be requeued\n')
        self.assertEqual(self.p.value(DEAD), '455')
        self.assertEqual(self.run_cli('dead', 'requeue', '--queue', 'wor*', '--rate', '10/s'), '450 of 450 requeued\n')
        span, steps, most = self.p.psql(
            'select extract(epoch from max(due) - min(due)), count(distinct due), max(step) from'
            ' (select due, extract(epoch from due - lag(due) over (order by due)) as step from postdate.message) m')[0]
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

    def test_what_is_wrong_is_named(self):
        one, = bury(self.p, 1)
        for args, word in ((('drop',), 'give ids, or filters'), (('requeue', '--rate', '5/s'), 'give ids'), (('requeue', '--queue', '*', '--rate', '5'), '50/s'),
                           (('list', '--reason', 'reject'), 'delivery_limit'), (('requeue', 'x'), 'no id'), (('list', '--limit', '0'), '--limit'),
                           (('requeue', one, '--reason', 'rejected'), 'give ids'), (('drop', '--queue', 'q', '--rate', '1/s'), '--rate'),
                           (('list', '--dry-run'), '--dry-run'), (('show',), 'one id'), ((), 'say list'), (('drop', '--queue', 'q', '--json'), '--json')):
            code, _, err = self.p.cli('dead', *args)
            self.assertEqual(code, 64, (args, err))
            self.assertIn(word, err, args)
        self.assertEqual(self.p.value(DEAD), '1')
