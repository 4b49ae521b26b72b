"""Rates as people set and see them: command line, SQL, HTTP, control queue."""
import json
import urllib.parse

import harness
from harness import LiveTest, run_psql, wait_until
from test_tokens import make_token
from web import Web, described, ready_address


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

    def test_a_rate_is_shown_in_the_shortest_unit_that_has_it(self):
        shown = {'0': '0', '200': '200/s', '1.5': '1.5/s', '1': '1/s', '0.5': '30/min', '0.25': '15/min', '1 / 3.0': '20/min', '100 / 3600.0': '100/h',
                 '1.5 / 60': '1.5/min', '10 / 86400.0': '10/d', '0.0001': '8.64/d', '1000000': '1000000/s', '12.25': '12.25/s', '1000000 / 3600.0': '1000000/h',
                 '3.14159': '3.14159/s', '0.0314159': '113.09724/h', '1 - 1e-12': '1/s'}
        for per_second, text in shown.items():
            self.assertEqual(self.p.value(f'select postdate.rate_shown(({per_second})::float8)'), text)
        seconds = "case split_part(t, '/', 2) when 's' then 1 when 'min' then 60 when 'h' then 3600 when 'd' then 86400 end"
        self.assertEqual(self.p.value(f"select count(*) from (select x, postdate.rate_shown(x) as t from (select 10.0 ^ (i / 50.0 - 4) as x from generate_series(0, 500) i) r) r "
                                      f"where abs(split_part(t, '/', 1)::float8 / {seconds} - x) > x * 1e-8"), '0')

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
        self.run_cli('resume', 'orders', code=65, says='the rate is 0. It was set to 0, which pauses. Set another rate, or remove it.')
        self.run_cli('set', 'orders', '1/s')
        self.assertEqual([(r['rate'], r['paused']) for r in self.rates()], [('1/s', False)])

    def test_show_tells_which_one_counts(self):
        for exchange, rate, more in (('*', '1000/s', ()), ('orders.*', '100/s', ()), ('orders.eu', '10/s', ()), ('orders.eu', '1/s', ('-k', 'slow.*'))):
            self.run_cli('set', exchange, rate, *more)
        for words, rate in ((('mails',), '1000/s'), (('orders.de',), '100/s'), (('orders.eu',), '10/s'), (('orders.eu', '-k', 'slow.one'), '1/s'), (('orders.eu', '-k', 'k'), '10/s')):
            self.assertEqual(json.loads(self.run_cli('show', *words, '--json'))['rate'], rate, words)
        self.assertRegex(self.run_cli('show', 'orders.de'), r'(?s)^exchange     orders\.\*\nrouting key  \*\nrate         100/s\nburst        2\nwaiting      0\nchanged      20.* ago\) by \S+\n$')
        self.run_cli('remove', '*')
        self.run_cli('show', 'mails', code=66, says='no rate applies to messages with the exchange "mails" and the routing key "*"')

    def test_what_is_wrong_is_named(self):
        for args, word in ((('set', 'orders'), 'and a rate'), (('set', 'orders', '200'), 'has no unit'), (('set', 'orders', '2/w'), 'allowed: such as 200/s'),
                           (('set', 'orders', '1000001/s'), 'out of range'), (('set', 'orders', '1/s', '--burst', '0'), '1 to 1000000'),
                           (('set', 'x' * 256, '1/s'), 'up to 255'), (('set', 'x', '1/s', '-k', 'y' * 256), 'up to 255'), (('list', 'x'), 'no argument'),
                           (('list', '-k', 'x'), 'an option of'), (('pause', 'x', '--burst', '3'), 'an option of set'), (('show',), 'one exchange'), ((), 'specify set')):
            code, _, err = self.p.cli('rate', *args)
            self.assertEqual(code, 64, (args, err))
            self.assertIn(word, err, args)
        self.assertEqual(self.rates(), [])

    def test_who_changed_it_is_in_the_log_of_postgresql(self):
        key = self.p.value('select gen_random_uuid()')
        for args in (('set', key, '5/s'), ('show', key), ('pause', key), ('resume', key), ('remove', key), ('remove', key)):
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
        other = p.value(f"select id from postdate.message where rate is not null and id <> '{message_id}' order by id limit 1")
        code, out, _ = p.cli('reschedule', other, '--delay', '1h')
        self.assertEqual((code, out.split()[1]), (0, 'rescheduled'))
        self.assertNotIn('rate', json.loads(p.cli('show', '--json', other)[1]))
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


class RateHttp(LiveTest):
    def setUp(self):
        super().setUp()
        self.p = self.place()

    def test_set_show_match_remove(self):
        web = described(self, ready_address(self.p.gateway()))
        names = ('orders.*', 'a/b:c?d %+#', 'ä', '*', 'x/pause')
        for name in names:
            path = '/v1/rates/' + urllib.parse.quote(name, safe='')
            answer = web.ask('PUT', path, {'rate': '12000/min', 'burst': 400})
            self.assertEqual(answer.status, 200, answer)
            expected = answer.json
            self.assertRegex(expected['changed_at'], '^20')
            self.assertEqual(expected, {'exchange': name, 'routing_key': '*', 'rate': '200/s', 'burst': 400, 'paused': False, 'waiting': 0, 'drained_at': None,
                                        'changed_at': expected['changed_at'], 'changed_by': self.p.value('select session_user')})
            self.assertEqual(web.get(path).json, expected)
            self.assertIn(expected, web.get('/v1/rates').json['rates'])
            self.assertEqual(web.ask('PUT', path, {k: expected[k] for k in ('exchange', 'routing_key', 'rate', 'burst')}).status, 200)
            self.assertEqual(web.ask('PUT', path, {'rate': '1/s', 'exchange': 'another'}).status, 422)
            for verb, paused in (('pause', True), ('pause', True), ('resume', False)):
                self.assertEqual(web.post(f'{path}/{verb}', {}).json['paused'], paused)
            self.assertEqual(web.ask('PUT', path + '?routing_key=slow.%2A', {'rate': '30/min'}).json['routing_key'], 'slow.*')
            self.assertEqual([web.get(path + key).json['rate'] for key in ('', '?routing_key=%2A', '?routing_key=slow.%2A')], ['200/s', '200/s', '30/min'])
            self.assertEqual(web.get(path + '?routing_key=slow.one').status, 404)
        for query, rate in (('exchange=orders.new', '200/s'), ('exchange=orders.new&routing_key=slow.one', '30/min'), ('exchange=orders.new&routing_key=k', '200/s')):
            self.assertEqual(web.get('/v1/rates:match?' + query).json['rate'], rate, query)
        self.assertEqual(web.get('/v1/rates:match').status, 400)
        self.assertEqual(len(web.get('/v1/rates').json['rates']), 10)
        for name in names:
            path = '/v1/rates/' + urllib.parse.quote(name, safe='')
            for key in ('', '?routing_key=slow.%2A'):
                self.assertEqual([web.ask('DELETE', path + key).status for _ in range(2)], [200, 404])
        self.assertEqual(web.get('/v1/rates').json, {'rates': []})
        nothing = web.get('/v1/rates:match?exchange=orders.new')
        self.assertEqual((nothing.status, nothing.json['title']), (404, 'There is nothing of this name'))
        for body, word in (({}, 'it is missing'), ({'rate': 5}, 'a string'), ({'rate': '5'}, 'has no unit'), ({'rate': '5/s', 'burst': 0}, '1 to 1000000'),
                           ({'rate': '1000001/s'}, 'out of range'), ({'rate': '5/s', 'colour': 1}, 'unknown field')):
            answer = web.ask('PUT', '/v1/rates/q', body)
            self.assertEqual((answer.status, word in answer.json['detail']), (422, True), answer)
        self.assertEqual(web.ask('PUT', '/v1/rates/q?routing_key=a', {'rate': '5/s', 'routing_key': 'b'}).status, 422)
        self.assertEqual(web.ask('PUT', '/v1/rates/' + 'q' * 256, {'rate': '5/s'}).status, 422)
        self.assertEqual(web.ask('PUT', '/v1/rates/q', {'rate': '0'}).json['paused'], True)
        self.assertEqual(web.post('/v1/rates/q/resume', {}).status, 422)
        for path in ('%', '%zz', '%00', '%ff'):
            self.assertEqual(web.get('/v1/rates/' + path).status, 400, path)
        self.assertEqual([web.ask(method, path).status for method, path in (('GET', '/v1/rates/q/pause'), ('POST', '/v1/rates/q'), ('GET', '/v1/rates/'))], [405, 405, 404])

    def test_the_default_exchange(self):
        web = described(self, ready_address(self.p.gateway()))
        answer = web.ask('PUT', '/v1/rates/amq.default?routing_key=work', {'rate': '5/s'}).json
        self.assertEqual((answer['exchange'], answer['routing_key']), ('', 'work'))
        self.assertEqual(web.get('/v1/rates:match?exchange=&routing_key=work').json['rate'], '5/s')
        self.assertEqual(web.ask('DELETE', '/v1/rates/amq.default?routing_key=work').status, 200)

    def test_only_a_token_for_all_exchanges_changes_them(self):
        web = Web(ready_address(self.p.gateway(POSTDATE_HTTP_TOKENS='on')))
        some, every = ({'Authorization': 'Bearer ' + make_token(self.p, e)} for e in ('orders', '*'))
        wait_until(lambda: web.ask('GET', '/v1/rates', None, every).status == 200, 10, 'the token')
        for name in ('orders', 'ord*', 'invoices'):
            self.assertEqual(web.ask('PUT', '/v1/rates/' + name, {'rate': '5/s'}, every).status, 200)
        self.assertIn("postdate token create --exchange '*'", web.ask('PUT', '/v1/rates/orders', {'rate': '9/s'}, some).json['detail'])
        seen = web.ask('GET', '/v1/rates', None, some).json['rates']
        self.assertEqual([(r['exchange'], r['waiting']) for r in seen], [('ord*', None), ('orders', 0)])
        self.assertEqual(web.ask('GET', '/v1/rates/orders', None, some).json['rate'], '5/s')
        foreign, nobody = (web.ask('GET', '/v1/rates/' + name, None, some) for name in ('invoices', 'nobody'))
        self.assertEqual((foreign.status, foreign.json['detail']), (404, nobody.json['detail'].replace('nobody', 'invoices')))
        self.assertEqual([web.ask('GET', '/v1/rates:match?exchange=' + e, None, some).status for e in ('orders', 'invoices', 'nobody')], [200, 404, 404])
        self.assertEqual(len(web.ask('GET', '/v1/rates', None, every).json['rates']), 3)

    def test_a_message_says_what_it_waits_for(self):
        p = self.p
        web = described(self, ready_address(p.gateway()))
        web.ask('PUT', '/v1/rates/postdate.delivery', {'rate': '1/min'})
        p.consumer('q', declare=True, bind='k')
        ids = [web.post('/v1/messages', {'routing_key': 'k', 'delay': '0s', 'body': 'x'}).json['id'] for _ in range(3)]
        wait_until(lambda: p.value('select count(*) from postdate.message where rate is not null') == '2', 20, 'two to wait')
        shown = [web.get('/v1/messages/' + i).json for i in ids]
        self.assertEqual(sorted('rate' in m for m in shown), [False, True, True])
        rate = next(m['rate'] for m in shown if 'rate' in m)
        self.assertRegex(rate.pop('slot_at'), '^20')
        self.assertEqual(rate, {'exchange': 'postdate.delivery', 'routing_key': '*', 'rate': '1/min', 'paused': False})
        self.assertEqual(web.get('/v1/rates/postdate.delivery').json['waiting'], 2)
        self.assertEqual(web.post('/v1/rates/postdate.delivery/pause', {}).json['drained_at'], None)
        rate = next(m['rate'] for m in (web.get('/v1/messages/' + i).json for i in ids) if 'rate' in m)
        self.assertEqual((rate['paused'], rate['slot_at']), (True, None))
