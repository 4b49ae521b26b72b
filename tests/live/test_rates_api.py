"""Rates as people set and see them: command line, SQL, HTTP, control queue."""
import json

import harness
from harness import LiveTest, run_psql, wait_until


class RateCommands(LiveTest):
    def setUp(self):
        super().setUp()
        self.p = self.place()

    def run_cli(self, *args, code=0, says=''):
        found, out, err = self.p.cli('rate', *args)
        self.assertEqual(found, code, (args, out, err))
        self.assertIn(says, err)
        return out

    def rates(self):
        rates = [json.loads(line) for line in self.run_cli('list', '--json').splitlines()]
        for r in rates:
            self.assertRegex(r.pop('changed_at'), r'^20\d\d-\d\d-\d\dT')
            self.assertEqual(r.pop('changed_by'), self.p.value('select session_user'))
        return rates

    def test_set_list_remove(self):
        self.run_cli('set', 'orders', '200/s', says='exchange "orders" gets at most 200/s from now on')
        orders = {'exchange': 'orders', 'routing_key': '*', 'rate': '200/s', 'burst': 4, 'paused': False, 'waiting': 0, 'drained_at': None}
        self.assertEqual(self.rates(), [orders])
        self.run_cli('set', 'orders', '12000/min', '--burst', '400')
        self.assertEqual(self.rates(), [dict(orders, burst=400)])
        self.run_cli('set', 'orders', '30/min', '-k', 'slow.*', says='exchange "orders", routing key "slow.*" gets at most 30/min')
        slow = dict(orders, routing_key='slow.*', rate='30/min', burst=1)
        self.assertEqual(self.rates(), [dict(orders, burst=400), slow])
        out = self.run_cli('list').splitlines()
        self.assertEqual(out[0].split(), ['RATE', 'BURST', 'STATE', 'WAITING', 'DRAINED', 'EXCHANGE', 'ROUTING-KEY'])
        self.assertEqual([line.split() for line in out[1:]], [['200/s', '400', 'active', '0', '-', 'orders', '*'], ['30/min', '1', 'active', '0', '-', 'orders', 'slow.*']])
        self.run_cli('remove', 'orders', says='the rate of exchange "orders" is removed')
        self.run_cli('remove', 'orders', code=66, says='no rate is set for the exchange "orders" and the routing key "*"')
        self.assertEqual(self.rates(), [slow])
        self.run_cli('remove', 'orders', '--routing-key', 'slow.*')
        self.assertEqual(self.rates(), [])
        self.p.psql("select postdate.rate_set('by sql', 3.14159, 7)")
        self.assertEqual(self.rates(), [dict(orders, exchange='by sql', rate='3.14159/s', burst=7)])

    def test_the_default_exchange_has_one_too(self):
        self.run_cli('set', '', '5/s', '-k', 'work')
        self.assertEqual([(r['exchange'], r['routing_key']) for r in self.rates()], [('', 'work')])
        self.assertEqual(self.run_cli('list').splitlines()[1].split()[-2:], ['""', 'work'])
        self.p.gateway()
        c = self.p.client()
        c.queue('work')
        self.p.psql("select postdate.schedule('work', 'x', '0 s', exchange => '') from generate_series(1, 10)")
        wait_until(lambda: self.p.value("select count(*) from postdate.message_now where state = 'delivered'") == '10', 20, 'the ten')

    def test_pause_and_resume(self):
        self.run_cli('pause', 'orders', code=66, says='no rate is set')
        self.run_cli('resume', 'orders', code=66, says='no rate is set')
        self.run_cli('set', 'orders', '200/s')
        self.run_cli('pause', 'orders', says='is paused')
        self.assertEqual([(r['rate'], r['paused']) for r in self.rates()], [('200/s', True)])
        self.assertEqual(self.run_cli('list').splitlines()[1].split()[2], 'paused')
        self.run_cli('resume', 'orders', says='is resumed')
        self.assertEqual([(r['rate'], r['paused']) for r in self.rates()], [('200/s', False)])
        self.run_cli('set', 'orders', '0', says='gets nothing from now on')
        self.assertEqual([(r['rate'], r['paused']) for r in self.rates()], [('0', True)])
        self.run_cli('resume', 'orders', code=65, says='is 0, which pauses: set another rate, or remove it')
        self.run_cli('set', 'orders', '1/s')
        self.assertEqual([(r['rate'], r['paused']) for r in self.rates()], [('1/s', False)])

    def test_show_tells_which_one_counts(self):
        for exchange, rate, more in (('*', '1000/s', ()), ('orders.*', '100/s', ()), ('orders.eu', '10/s', ()), ('orders.eu', '1/s', ('-k', 'slow.*'))):
            self.run_cli('set', exchange, rate, *more)
        for words, rate in ((('mails',), '1000/s'), (('orders.de',), '100/s'), (('orders.eu',), '10/s'), (('orders.eu', '-k', 'slow.one'), '1/s'), (('orders.eu', '-k', 'k'), '10/s')):
            self.assertEqual(json.loads(self.run_cli('show', *words, '--json'))['rate'], rate, words)
        self.assertRegex(self.run_cli('show', 'orders.de'), r'(?s)^exchange     orders\.\*\nrouting key  \*\nrate         100/s\nburst        2\nwaiting      0\nchanged      20.* ago\) by \S+\n$')
        self.run_cli('remove', '*')
        self.run_cli('show', 'mails', code=66, says='no rate counts for messages with the exchange "mails" and the routing key "*"')

    def test_what_is_wrong_is_named(self):
        for args, word in ((('set', 'orders'), 'and a rate'), (('set', 'orders', '200'), 'has no unit'), (('set', 'orders', '2/w'), 'allowed: such as 200/s'),
                           (('set', 'orders', '1000001/s'), 'out of range'), (('set', 'orders', '1/s', '--burst', '0'), '1 to 1000000'),
                           (('set', 'x' * 256, '1/s'), 'up to 255'), (('set', 'x', '1/s', '-k', 'y' * 256), 'up to 255'), (('list', 'x'), 'no argument'),
                           (('list', '-k', 'x'), 'belong to'), (('pause', 'x', '--burst', '3'), 'belong to set'), (('show',), 'one exchange'), ((), 'say set')):
            code, _, err = self.p.cli('rate', *args)
            self.assertEqual(code, 64, (args, err))
            self.assertIn(word, err, args)
        self.assertEqual(self.rates(), [])

    def test_who_changed_it_is_in_the_log_of_postgresql(self):
        key = self.p.value('select gen_random_uuid()')
        for args in (('set', key, '5/s'), ('pause', key), ('resume', key), ('remove', key), ('remove', key)):
            self.p.cli('rate', *args)
        with harness.stack().postgres_log() as f:
            said = [line.split('this machine: ')[1].rstrip() for line in f if 'postdate audit' in line and key in line]
        self.assertEqual(said, [f'rate set {key} 5/s: 1 changed, exit 0', f'rate pause {key}: 1 changed, exit 0', f'rate resume {key}: 1 changed, exit 0',
                                f'rate remove {key}: 1 changed, exit 0', f'rate remove {key}: 1 changed, exit 66'])

    def test_a_message_says_what_it_waits_for(self):
        p = self.p
        self.run_cli('set', 'postdate.delivery', '1/min')
        p.gateway()
        p.consumer('q', declare=True, bind='k')
        p.psql("select postdate.schedule('k', 'x', '0 s') from generate_series(1, 5)")
        wait_until(lambda: p.value('select count(*) from postdate.message where rate is not null') == '4', 20, 'four to wait')
        message_id = p.value('select id from postdate.message where rate is not null order by id limit 1')
        code, out, err = p.cli('show', message_id)
        self.assertRegex(out, r"\nwaits for    the rate of 'postdate\.delivery' \(1/min\): about 20\d\d-\d\d-\d\dT[0-9:.]+Z\n")
        self.assertEqual((code, err), (0, ''))
        found = json.loads(p.cli('show', '--json', message_id)[1])['rate']
        self.assertRegex(found.pop('slot_at'), '^20')
        self.assertEqual(found, {'exchange': 'postdate.delivery', 'routing_key': '*', 'rate': '1/min', 'paused': False})
        rate, = self.rates()
        self.assertEqual(rate['waiting'], 4)
        self.assertRegex(self.run_cli('list').splitlines()[1], r'^1/min +1 active +4 in [34] min')
        self.assertRegex(self.run_cli('show', 'postdate.delivery'), r'\nwaiting      4\ndrained      about 20\S+Z \(in [34] min')
        self.run_cli('pause', 'postdate.delivery')
        self.assertIn("\nwaits for    the rate of 'postdate.delivery' (1/min), which is paused\n", p.cli('show', message_id)[1])
        self.assertEqual(json.loads(p.cli('show', '--json', message_id)[1])['rate']['slot_at'], None)
        self.assertEqual(p.cli('cancel', message_id)[0], 0)
        self.assertNotIn('waits for', p.cli('show', message_id)[1])
        self.assertNotIn('rate', json.loads(p.cli('show', '--json', message_id)[1]))

    def test_readers_see_them_and_nobody_but_the_owner_sets_them(self):
        p = self.p
        self.run_cli('set', 'orders', '5/s')
        role = 't_rates_' + p.database
        p.stack.psql(f'create role {role} login in role postdate_reader')
        self.addCleanup(p.stack.psql, f'drop role {role}')
        url = p.postgres.replace('user=postdate', f'user={role}')
        self.assertEqual(run_psql(url, 'select exchange, waiting, postdate.rate_slot(gen_random_uuid()) from postdate.rates'), [['orders', '0', '']])
        for who in ('postdate_reader', 'postdate_producer'):
            for f in ('rate_set(text, double precision, integer, text)', 'rate_pause(text, text)', 'rate_resume(text, text)', 'rate_remove(text, text)'):
                self.assertEqual(p.value(f"select has_function_privilege('{who}', 'postdate.{f}', 'execute')"), 'f', (who, f))
