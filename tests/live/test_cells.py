"""Several Postdates: an id tells which one made it, and what one does not have is looked for in the others."""
import json
import os
import tempfile
import threading
import uuid

from doctor_kit import Doctor
from handover_kit import OwnServers
from harness import LiveTest, wait_until
from web import Web, described, ready_address

AWAY = 'postgresql://127.0.0.1:1/nowhere'
LIVE = "from postdate.message_now where state in ('scheduled', 'handed')"


def cell_of(message_id):
    return uuid.UUID(message_id).bytes[7]


def dead_letter(place):
    return place.value("""insert into postdate.lineage (id, expires_at, died_at, failed, queue, exchange, routing_key, reason, hash, failed_at, reasons, properties, body)
                          select gen_random_uuid(), now() + interval '1 day', now(), 1, 'gone', '', 'gone', 'rejected', '', '{}', '{}', '', '' returning id""")


class CellNumber(LiveTest):
    def test_each_id_has_the_number(self):
        p = self.place()
        web = Web(p.gateway(POSTDATE_CELL_NUMBER=173).http())
        c = p.client()
        c.publish('k', b'x', {'x-delay': 3600_000, 'x-postdate-key': 'by-amqp'})
        wait_until(lambda: p.value(f'select count(*) {LIVE}') == '1', 10, 'the one from AMQP to be stored')
        ids = {'amqp': p.value(f'select id {LIVE}')}
        ids['http'] = web.post('/v1/messages', {'routing_key': 'k', 'body': 'x', 'delay': '1h'}).json['id']
        ids['moved'] = web.ask('PATCH', f'/v1/messages/{ids["http"]}', {'delay_ms': 7200_000}).json['id']
        ids['sql'] = p.value("select postdate.schedule('k', 'x'::text, delay => '1 hour')")
        ids['sql spread'] = p.value("select postdate.schedule('k', 'x'::text, delay => '1 hour', spread => '1 minute')")
        ids['many'] = p.value("""select id from postdate.schedule_many('[{"routing_key": "k", "body": "x", "delay_ms": 3600000}]')""")
        ids['many, not plain'] = p.value("""select id from postdate.schedule_many('[{"routing_key": "k", "body": "x", "delay_ms": 3600000, "headers": {"a": 1}}]')""")
        out = p.run('schedule', '-k', 'k', '--delay', '1h', '--body', 'x')
        ids['cli'] = out.strip()
        p.run('schedule', '--batch', '-', stdin='{"routing_key": "batch", "body": "x", "delay": "1h"}\n')
        ids['cli batch'] = p.value(f"select id {LIVE} and routing_key = 'batch'")
        self.assertEqual({way: cell_of(i) for way, i in ids.items()}, {way: 173 for way in ids})
        p.run('recur', 'set', 'often', '--cron', '@every 1s', '-k', 'nobody', '--body', 'x', '--exchange', '')
        wait_until(lambda: int(p.value("select count(*) from postdate.message_now where key = 'recur/often'")) >= 3, 15, 'three occurrences')
        self.assertEqual({cell_of(r[0]) for r in p.psql("select id from postdate.message_now where key = 'recur/often'")}, {173})

    def test_making_an_id_is_an_expression(self):
        """A function call for each message would cost more than storing it."""
        p = self.place()
        for cell in ('s.cell', '(select x.cell from postdate.settings x)', 'null'):
            plan = p.psql(f'explain (verbose) select postdate.id_make(now(), {cell}) from postdate.settings s')
            self.assertNotIn('id_make', str(plan))
            self.assertIn('gen_random_uuid', str(plan))

    def test_retries_and_dead_letters_have_it(self):
        p = self.place()
        p.gateway(POSTDATE_CELL_NUMBER=9)
        self.assertEqual(p.cli('retry-policy', 'set', 'refused', '--attempts', '2', '--first', '1h')[0], 0)
        c = p.client()
        c.queue('refused', arguments={'x-dead-letter-exchange': 'postdate.retry'})
        c.publish('refused', b'x', exchange='')
        method = wait_until(lambda: c.channel.basic_get('refused')[0], 10, 'a message to refuse')
        c.channel.basic_reject(method.delivery_tag, requeue=False)
        wait_until(lambda: p.value(f"select count(*) {LIVE} and exchange = 'postdate.return'") == '1', 10, 'its retry')
        self.assertEqual(cell_of(p.value(f"select id {LIVE} and exchange = 'postdate.return'")), 9)
        dead_letter(p)
        self.assertEqual(p.value("select postdate.dead_requeue(id, queue, due_at => now() + interval '1 hour') from postdate.lineage where queue = 'gone'"), 't')
        self.assertEqual(cell_of(p.value("select message from postdate.lineage where queue = 'gone'")), 9)

    def test_a_database_keeps_its_number(self):
        p = self.place()
        web = Web(p.gateway().http())
        message = {'routing_key': 'k', 'body': 'x', 'delay': '1h'}
        self.assertGreater(len({cell_of(web.post('/v1/messages', message).json['id']) for _ in range(40)}), 10)
        self.assertEqual(p.cli('migrate', env={'POSTDATE_CELL_NUMBER': '3'})[0], 0)
        other = p.gateway(wait=False, POSTDATE_CELL_NUMBER=4)
        self.assertEqual(other.wait(20), 78)
        self.assertIn('cell.number is 4, but this database is cell 3', other.log())
        rc, _, err = p.cli('migrate', env={'POSTDATE_CELL_NUMBER': '4'})
        self.assertEqual((rc, 'this database is cell 3' in err), (78, True), err)
        late = Web(p.gateway().http())
        self.assertEqual(cell_of(late.post('/v1/messages', message).json['id']), 3, 'also where it is not configured')
        rc, _, err = p.cli('status', env={'POSTDATE_CELL_NUMBER': '256'})
        self.assertEqual((rc, 'write a whole number from 0 to 255' in err), (78, True), err)


class Cells:
    """Two databases, and a file that names them, and what else a test gives it."""

    def cells(self, *numbers):
        self.both = [self.place()]
        self.both += [self.place(vhost=self.both[0].vhost, prefix=f'c{n}') for n in numbers[1:]]
        for p, n in zip(self.both, numbers):
            self.assertEqual(p.cli('migrate', env={'POSTDATE_CELL_NUMBER': n})[0], 0)
        self.file = tempfile.NamedTemporaryFile('w', suffix='.conf')
        self.addCleanup(self.file.close)
        self.write(*(f'[cell c{n}]\npostgres.url = {p.postgres}\nnumber = {n}\n' for p, n in zip(self.both, numbers)))
        return self.both

    def write(self, *sections):
        self.file.seek(0)
        self.file.truncate()
        self.file.write('\n'.join(sections))
        self.file.flush()

    def away(self, *places):
        """A third cell that nobody can reach, before those that are there."""
        self.write(f'[cell gone]\npostgres.url = {AWAY}\nnumber = 99\n',
                   *(f'[cell c{n}]\npostgres.url = {p.postgres}\n' for n, p in enumerate(places or self.both)))

    def ask(self, *args, code=0):
        rc, out, err = self.both[0].cli(*args, '--cells', self.file.name, env={'POSTDATE_POSTGRES_URL': AWAY})
        self.assertEqual(rc, code, (args, out, err))
        return out, err

    def schedule(self, place, **fields):
        args = ', '.join(f"{k} => {v}" for k, v in {'delay': "interval '1 hour'", **fields}.items())
        return place.value(f"select postdate.schedule('k', 'x'::text, {args})")


class CellsCommands(Cells, LiveTest):
    def test_what_is_named_is_found_wherever_it_is(self):
        a, b = self.cells(1, 2)
        x, y, z = self.schedule(a), self.schedule(b, key="'k'"), self.schedule(b)
        for i, cell in ((x, 'c1'), (y, 'c2')):
            out, err = self.ask('show', i)
            self.assertIn(i, out)
            self.assertIn(f'{i}: in cell {cell}', err)
            out, _ = self.ask('show', i, '--json')
            self.assertEqual((json.loads(out)['id'], json.loads(out)['cell']), (i, cell))
        out, err = self.ask('show', '--key', 'k')
        self.assertIn(y, out)
        self.assertIn('this key: in cell c2', err)
        out, err = self.ask('reschedule', x, z, '--delay', '2h')
        self.assertEqual([line.split()[:2] for line in out.splitlines()], [[x, 'rescheduled'], [z, 'rescheduled']])
        out, err = self.ask('cancel', x, z)
        self.assertEqual(out.splitlines(), [f'{x} cancelled', f'{z} cancelled'])
        self.assertEqual([p.value("select count(*) from postdate.message_now where state = 'cancelled'") for p in (a, b)], ['1', '1'])
        self.ask('retry', y, code=1)
        nobody = '01937f5e-4c00-8a1b-9c2d-3e4f5a6b7c8d'
        out, err = self.ask('cancel', nobody, code=66)
        self.assertEqual(out.splitlines(), [f'{nobody} not found'])
        self.assertEqual(self.ask('cancel', nobody, y, code=1)[0].splitlines(), [f'{nobody} not found', f'{y} cancelled'])
        self.assertIn('no message has the id', self.ask('show', nobody, code=66)[1])
        self.assertIn('no message', self.ask('show', '--key', 'none', code=66)[1])
        dead = dead_letter(b)
        self.assertIn(f'cell c2: no message has the id {dead}; it is a dead letter of queue "gone"', self.ask('show', dead, code=66)[1])

    def test_a_cell_that_the_file_lacks_is_told_by_its_number(self):
        a, _ = self.cells(1, 2)
        lacking = '01937f5e-4c00-8a1b-9c2d-3e4f5a6b7c8d'
        says = 'the number of its cell is 27, which is not in '
        self.assertIn(says, self.ask('show', lacking, code=66)[1])
        self.assertNotIn(says, self.ask('show', lacking.replace('8a1b', '8a02'), code=66)[1])
        web = described(self, ready_address(a.gateway(POSTDATE_CELLS_FILE=self.file.name)))
        answer = web.get(f'/v1/messages/{lacking}')
        self.assertEqual(answer.status, 404)
        self.assertIn(says, answer.json['detail'])
        self.assertNotIn(says, web.get(f'/v1/messages/{lacking.replace("8a1b", "8a02")}').json['detail'])

    def test_a_key_is_cancelled_in_every_cell(self):
        a, b = self.cells(1, 2)
        ids = [self.schedule(p, key="'twice'") for p in (a, b)]
        out, err = self.ask('cancel', '--key', 'twice')
        self.assertEqual(sorted(out.splitlines()), sorted(f'{i} cancelled' for i in ids))
        self.assertEqual([f'this key: in cell {c}' in err for c in ('c1', 'c2')], [True, True], err)
        self.schedule(b, key="'once'")
        self.ask('cancel', '--key', 'once')
        self.ask('cancel', '--key', 'never', code=66)
        live = self.schedule(b, key="'ended'")
        a.psql("update postdate.message set state = 'delivered', next_at = due, settled_at = now() where id = '%s'" % self.schedule(a, key="'ended'"))
        self.assertIn(live, self.ask('show', '--key', 'ended')[0], 'one that was delivered in another cell hides none that waits')
        out, err = self.ask('show', '--key', 'twice')
        self.assertEqual([i in out for i in ids], [True, True], out)
        self.schedule(b, key="'once'")
        self.away()
        out, err = self.ask('cancel', '--key', 'once', code=69)
        self.assertIn('cancelled', out)
        self.assertIn('cell gone could not be queried and may have it', err)

    def test_who_cannot_be_asked_leaves_it_open(self):
        a, _ = self.cells(1, 2)
        x = self.schedule(a)
        self.away()
        out, err = self.ask('show', x)
        self.assertIn(x, out)
        self.assertIn('cell gone: ', err, 'it is asked first, for no number fits')
        err = self.ask('show', '01937f5e-4c00-8a1b-9c2d-3e4f5a6b7c8d', code=69)[1]
        self.assertIn('not in any cell that answered, but cell gone could not be queried and may have it', err)
        out, err = self.ask('list', code=69)
        self.assertIn(x, out)
        self.assertIn('cell gone: ', err)

    def test_lists_are_one_after_the_other(self):
        a, b = self.cells(1, 2)
        x, y = self.schedule(a), self.schedule(b)
        out, _ = self.ask('list')
        self.assertLess(out.index('== cell c1 =='), out.index(x))
        self.assertLess(out.index('== cell c2 =='), out.index(y))
        out, _ = self.ask('list', '--json')
        self.assertEqual([(m['cell'], m['id']) for m in map(json.loads, out.splitlines())], [('c1', x), ('c2', y)])
        for command in (['status'], ['forecast'], ['dead', 'list'], ['rate', 'list'], ['recur', 'list'], ['retry-policy', 'list']):
            self.assertEqual([line for line in self.ask(*command)[0].splitlines() if line.startswith('==')], ['== cell c1 ==', '== cell c2 =='], command)
        self.assertEqual(json.loads(self.ask('status', '--json')[0].split('\n}\n')[0] + '}')['cell'], 'c1')
        rc, out, _ = a.cli('list', '--json', env={'POSTDATE_CELLS': self.file.name})
        self.assertEqual((rc, len(out.splitlines())), (0, 2))
        rc, out, _ = a.cli('--cells', self.file.name, 'list', '--json')
        self.assertEqual((rc, len(out.splitlines())), (0, 2), 'before the command')
        rc, out, _ = a.cli('-c', '/dev/null', 'list', '--json', env={'POSTDATE_CELLS': self.file.name})
        self.assertEqual((rc, len(out.splitlines())), (0, 1), '--config chooses one')

    def test_what_is_for_one_database_says_so(self):
        self.cells(1)
        for args in (['migrate'], ['cancel', '--state', 'failed'], ['schedule', '-k', 'k', '--delay', '1h', '--body', 'x'], ['status', '--watch'],
                     ['rate', 'show', 'e'], ['doctor']):
            self.assertIn('choose', self.ask(*args, code=64)[1])

    def test_mistakes_of_the_file_are_named(self):
        self.cells(1)
        for text, says in (('[cell a]\n', ':1: cell a has no postgres.url'), ('', 'it names no cell: allowed are 1 to 64'), ('[cells]\n', ':1: unknown section [cells]'),
                           ('[cell a b]\n', ':1: unknown section [cell a b]'), ('[cell a]\nurl=x\n', ':2: cell a: unknown option url'),
                           ('[cell a]\npostgres.url=dbname=x\nnumber=256\n', ':3: cell a: number: "256" is not allowed: write a whole number from 0 to 255'),
                           ('[cell a]\npostgres.url=dbname=x\npostgres.url=dbname=y\n', ':3: cell a: postgres.url is set before'),
                           ('[cell a]\npostgres.url=dbname=x\n[cell a]\n', ':3: cell a: begun before, on line 1'),
                           ('[cell a]\npostgres.url=dbname=x\nnumber=1\n[cell b]\nnumber=1\npostgres.url=dbname=x', ':5: cell b: cell a has the number 1, too (line 3)'),
                           ('[cell a]\npostgres.url=nonsense\n', ':2: cell a: postgres.url is not a PostgreSQL address'),
                           ('\n'.join(f'[cell c{n}]\npostgres.url=dbname=x' for n in range(65)), 'allowed are 1 to 64 cells')):
            self.write(text)
            self.assertIn(says, self.ask('list', code=78)[1])
        self.write('[cell a]\npostgres.url=postgresql://a:secret@127.0.0.1:1/x\n')
        os.chmod(self.file.name, 0o644)
        err = self.ask('list', code=69)[1]
        self.assertIn('every user of this machine may read it: chmod o-r', err)
        self.assertNotIn('secret', err)
        self.file.close()
        self.assertIn('cannot read the list of cells: No such file', self.ask('list', code=78)[1])


class CellsFeed(LiveTest):
    """Cells of one vhost behind one exchange."""
    EXCHANGE = 'postdate.cells'

    def cell(self, prefix, **env):
        p = self.place(**({'vhost': self.first.vhost, 'prefix': prefix} if self.first else {}), transport='timer')
        self.first = self.first or p
        p.gateway(POSTDATE_CELL_EXCHANGE=self.EXCHANGE, POSTDATE_CELL_EXCHANGE_BY=self.by, **env)
        return p

    def setUp(self):
        self.first, self.by = None, 'key'

    def publish(self, client, numbers, delay='1h', keys=None):
        for n in numbers:
            client.publish('k', b'%d' % n, {'x-delay': delay if isinstance(delay, int) else 3600_000, 'x-postdate-key': f'key {n % keys if keys else n}',
                                            'x-postdate-on-conflict': 'reject'}, exchange=self.EXCHANGE, mandatory=True)

    def stored(self, *places):
        return [int(p.value('select count(*) from postdate.message_now')) for p in places]

    def test_each_key_goes_to_one_cell_and_all_arrive_once(self):
        a, b = self.cell('postdate'), self.cell('two')
        inbox, c = a.consumer('q', bind='k'), a.client()
        self.publish(c, range(500), delay=3000)
        got = inbox.wait(500, 30)
        self.assertEqual(sorted(int(m.body) for m in got), list(range(500)))
        for p in (a, b):
            wait_until(lambda p=p: set(p.counts()) == {'delivered'}, 10, 'all to be settled')
        self.assertEqual(len(inbox.messages), 500, 'twice')
        counts = self.stored(a, b)
        self.assertTrue(all(n > 100 for n in counts), counts)

    def test_one_key_one_cell_and_the_rest_together(self):
        self.by = 'message-id'
        a, b = self.cell('postdate'), self.cell('two')
        c = a.client()
        for n in range(60):
            c.publish('k', b'x', {'x-delay': 3600_000}, exchange=self.EXCHANGE, mandatory=True, message_id=f'm{n % 6}')
        wait_until(lambda: sum(self.stored(a, b)) == 60, 10, 'all to be stored')
        where = {}
        for p in (a, b):
            for (name,) in p.psql("select unnest(message_ids) from postdate.intake_batch"):
                where.setdefault(name, set()).add(p.prefix)
        self.assertEqual((len(where), {len(v) for v in where.values()}), (6, {1}), where)
        before = self.stored(a, b)
        for n in range(10):
            c.publish('k', b'x', {'x-delay': 3600_000}, exchange=self.EXCHANGE, mandatory=True)
        wait_until(lambda: sum(self.stored(a, b)) == 70, 10, 'all to be stored')
        self.assertEqual(sorted(y - x for x, y in zip(before, self.stored(a, b))), [0, 10], 'without the property all go to one')

    def test_weight_0_drains(self):
        a, b = self.cell('postdate'), self.cell('two', POSTDATE_CELL_WEIGHT=3)
        inbox, c = a.consumer('q', bind='k'), a.client()
        self.publish(c, range(100), delay=4000)
        wait_until(lambda: sum(self.stored(a, b)) == 100, 10, 'all to be stored')
        before = self.stored(a, b)
        self.assertGreater(before[1], before[0])
        b.gateways[-1].term()
        b.gateway(POSTDATE_CELL_EXCHANGE=self.EXCHANGE, POSTDATE_CELL_EXCHANGE_BY='key', POSTDATE_CELL_WEIGHT=0).wait_log('cell.weight is 0')
        self.publish(c, range(100, 200), delay=4000)
        inbox.wait(200, 20)
        self.assertEqual(self.stored(a, b), [before[0] + 100, before[1]])
        b.gateways[-1].term()
        b.gateway(POSTDATE_CELL_EXCHANGE=self.EXCHANGE, POSTDATE_CELL_EXCHANGE_BY='key', POSTDATE_CELL_WEIGHT=1)
        self.publish(c, range(200, 300), delay=0)
        inbox.wait(300, 20)
        self.assertGreater(self.stored(b)[0], before[1], 'it takes again')
        self.assertEqual(len(inbox.messages), 300)

    def test_a_cell_is_added_under_load(self):
        a, b = self.cell('postdate'), self.cell('two')
        inbox, stop, sent = a.consumer('q', bind='k'), threading.Event(), []

        def load():
            c = a.client()
            while not stop.is_set():
                self.publish(c, [len(sent)], delay=1000)
                sent.append(None)
        loader = threading.Thread(target=load)
        loader.start()
        try:
            wait_until(lambda: len(sent) > 200, 20, 'a load')
            d = self.cell('three')
            wait_until(lambda: self.stored(d)[0] > 50, 20, 'the third to get its share')
        finally:
            stop.set()
            loader.join()
        got = inbox.wait(len(sent), 20)
        self.assertEqual(sorted(int(m.body) for m in got), list(range(len(sent))))
        wait_until(lambda: all(set(p.counts()) == {'delivered'} for p in (a, b, d)), 10, 'all to be settled')
        self.assertEqual(len(inbox.messages), len(sent), 'twice')

    def test_what_does_not_fit_is_refused(self):
        a = self.cell('postdate')
        b = self.place(vhost=a.vhost, prefix='two', transport='timer')
        g = b.gateway(wait=False, POSTDATE_CELL_EXCHANGE=self.EXCHANGE, POSTDATE_CELL_EXCHANGE_BY='routing-key')
        self.assertEqual(g.wait(20), 78)
        self.assertIn('cell.exchange_by', g.log())
        c = a.client()
        c.publish('k', b'x', {'x-delay': 0, 'x-postdate-exchange': self.EXCHANGE})
        self.assertIn("the gateway's own", c.wait_get('postdate.rejected').headers['x-postdate-error'])


class CellsHttp(Cells, LiveTest):
    """A gateway of one cell answers for what the others have."""

    def gateway(self, **env):
        a, b = self.cells(1, 2)
        self.g = a.gateway(POSTDATE_CELLS_FILE=self.file.name, **env)
        return a, b, described(self, ready_address(self.g))

    def test_what_another_cell_has_is_answered_with_its_name(self):
        a, b, web = self.gateway()
        x, y, z = self.schedule(b, key="'k'"), self.schedule(b), self.schedule(a)
        answer = web.get(f'/v1/messages/{x}?view=full')
        self.assertEqual((answer.status, answer.json['id'], answer.json['cell'], answer.json['body']), (200, x, 'c2', 'x'))
        self.assertEqual(web.get('/v1/messages?key=k').json['messages'], [], 'a list is of this cell')
        self.assertNotIn('cell', web.get(f'/v1/messages/{z}').json)
        moved = web.ask('PATCH', f'/v1/messages/{x}', {'delay_ms': 7200_000})
        self.assertEqual((moved.status, moved.json['cell']), (200, 'c2'))
        self.assertEqual(web.ask('DELETE', '/v1/messages?key=k').json['cell'], 'c2')
        self.assertEqual(b.value(f"select state from postdate.message_now where id = '{moved.json['id']}'"), 'cancelled')
        too_late = web.post(f'/v1/messages/{y}:retry', {})
        self.assertEqual((too_late.status, too_late.json['cell']), (409, 'c2'))
        self.assertEqual(web.ask('DELETE', f'/v1/messages/{y}').json['cell'], 'c2')
        b.psql(f"update postdate.message set state = 'failed', next_at = due, error = 'x', settled_at = now() where id = '{self.schedule(b)}'")
        failed = b.value("select id from postdate.message_now where state = 'failed'")
        self.assertEqual(web.post(f'/v1/messages/{failed}:retry', {}).json['cell'], 'c2')
        nobody = web.get('/v1/messages/01937f5e-4c00-8a1b-9c2d-3e4f5a6b7c8d')
        self.assertEqual((nobody.status, nobody.problem), (404, 'not-found'))
        dead = web.get(f'/v1/messages/{dead_letter(b)}')
        self.assertEqual((dead.status, dead.json['cell']), (404, 'c2'))
        self.assertIn('it is a dead letter of queue "gone"', dead.json['detail'])
        self.assertEqual(web.get('/v1/messages/nonsense').status, 404)
        self.assertEqual(web.ask('DELETE', '/v1/messages?key=none').status, 404)

    def cancel(self, web, key, status=200):
        answer = web.ask('DELETE', f'/v1/messages?key={key}')
        self.assertEqual(answer.status, status, answer.body)
        return answer.json

    def states(self, *places):
        return [{r[0] for r in p.psql('select state from postdate.message_now')} for p in places]

    def test_a_key_is_cancelled_in_all_cells(self):
        a, b, web = self.gateway()
        for p in (a, b):
            self.schedule(p, key="'both'")
        self.cancel(web, 'both')
        self.assertEqual(self.states(a, b), [{'cancelled'}, {'cancelled'}])
        x = self.schedule(b, key="'both'")
        answer = self.cancel(web, 'both')
        self.assertEqual((answer['id'], answer['state'], answer['cell']), (x, 'cancelled', 'c2'), 'one that was cancelled before hides none that waits')
        self.assertEqual(self.states(b), [{'cancelled'}])

    def test_a_key_that_was_delivered_in_one_cell(self):
        a, b, web = self.gateway()
        inbox = a.consumer('q', bind='k')

        def deliver(key):
            before = len(inbox.messages)
            done = self.schedule(a, key=f"'{key}'", delay="interval '0'")
            inbox.wait(before + 1, 10)
            wait_until(lambda: a.value(f"select state from postdate.message_now where id = '{done}'") == 'delivered', 10, 'it to be settled')
            return done
        done, x = deliver('one'), self.schedule(b, key="'one'")
        self.assertEqual(self.cancel(web, 'one')['id'], x)
        self.assertEqual(self.states(b), [{'cancelled'}])
        self.assertEqual(self.cancel(web, 'one')['id'], x, 'it says the same twice')
        self.schedule(b, key="'two'")
        self.assertEqual(self.cancel(web, 'two')['cell'], 'c2')
        done = deliver('two')
        answer = self.cancel(web, 'two', 409)
        self.assertIn(done, answer['detail'])
        self.assertNotIn('cell', answer, 'it is the own one')

    def test_too_late_for_a_key_in_one_cell(self):
        a, b, web = self.gateway()
        self.schedule(a, key="'k'")
        x = self.schedule(b, key="'k'")
        b.psql(f"update postdate.message set state = 'handed', next_at = due where id = '{x}'")
        for _ in range(2):
            answer = self.cancel(web, 'k', 409)
            self.assertIn(f'message {x} is being delivered', answer['detail'])
            self.assertIn('cancelled in cell c1', answer['detail'])
            self.assertEqual((answer['type'], answer['cell']), ('urn:postdate:problem:too-late', 'c2'))
            self.assertEqual(self.states(a, b), [{'cancelled'}, {'handed'}])
        self.assertIn('409 too-late', self.g.log(), 'it changed something')

    def test_a_key_and_a_cell_that_is_away(self):
        a, b = self.cells(1, 2)
        self.away(a, b)
        web = described(self, ready_address(a.gateway(POSTDATE_CELLS_FILE=self.file.name)))
        self.schedule(b, key="'k'")
        for _ in range(2):
            answer = self.cancel(web, 'k', 503)
            self.assertIn('cell gone could not be queried', answer['detail'])
            self.assertIn('cancelled in cell c1', answer['detail'])
            self.assertEqual(self.states(b), [{'cancelled'}])
        answer = self.cancel(web, 'none', 503)
        self.assertEqual((answer['type'], 'nothing was changed' in answer['detail']), ('urn:postdate:problem:database-away', True), answer)

    def test_the_control_queue_does_too(self):
        a, b, _ = self.gateway()
        x, c = self.schedule(b), a.client()
        reply = c.channel.queue_declare('', exclusive=True).method.queue

        def ask(**request):
            c.publish('postdate.control', json.dumps(request).encode(), exchange='', reply_to=reply, correlation_id='1')
            return json.loads(c.wait_get(reply).body)
        answer = ask(op='cancel', id=x)
        self.assertEqual((answer['status'], answer['state'], answer['cell']), (200, 'cancelled', 'c2'))
        before = self.schedule(a, key="'k'")
        a.psql(f"select postdate.cancel('{before}')")
        y = self.schedule(b, key="'k'")
        answer = ask(op='show', key='k')
        self.assertEqual((answer['id'], answer['cell']), (y, 'c2'), 'the one that waits')
        answer = ask(op='cancel', key='k')
        self.assertEqual((answer['id'], answer['state']), (y, 'cancelled'))
        self.assertEqual(ask(op='show', key='k')['id'], y, 'the last one')
        self.assertEqual(ask(op='show', key='none')['status'], 404)

    def test_a_cell_that_is_away(self):
        a, b = self.cells(1, 2)
        self.away(a, b)
        web = described(self, ready_address(a.gateway(POSTDATE_CELLS_FILE=self.file.name)))
        x = self.schedule(b)
        self.assertEqual(web.get(f'/v1/messages/{x}').json['cell'], 'c1', 'who is away hides nothing')
        answer = web.get('/v1/messages/01937f5e-4c00-8a1b-9c2d-3e4f5a6b7c8d')
        self.assertEqual((answer.status, answer.problem), (503, 'database-away'))
        self.assertIn('cell gone could not be queried', answer.body.decode())
        self.assertIn('retry-after', answer.headers)
        self.assertEqual(web.get(f'/v1/messages/{self.schedule(a)}').status, 200)

    def test_the_scope_is_that_of_the_gateway_asked(self):
        a, b, _ = self.gateway(POSTDATE_HTTP_TOKENS='on')
        rc, token, err = a.cli('token', 'create', '--exchange', 'mine')
        self.assertEqual(rc, 0, err)
        web, bearer = Web(self.g.http()), {'Authorization': f'Bearer {token.strip()}'}
        mine, other = self.schedule(b, exchange="'mine'"), self.schedule(b)
        wait_until(lambda: web.ask('GET', f'/v1/messages/{mine}', headers=bearer).status == 200, 10, 'the token to count')
        self.assertEqual(web.ask('GET', f'/v1/messages/{other}', headers=bearer).status, 404)
        self.assertEqual(web.ask('DELETE', f'/v1/messages/{other}', headers=bearer).status, 404)
        self.assertEqual(b.value(f"select state from postdate.message_now where id = '{other}'"), 'scheduled')

    def test_a_database_that_went_away_and_came_back(self):
        a, b, web = self.gateway()
        x = self.schedule(b)
        self.assertEqual(web.get(f'/v1/messages/{x}').status, 200)
        b.stack.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{b.database}' and application_name = 'postdate http cell'")
        self.assertEqual(web.ask('DELETE', f'/v1/messages/{x}').json['state'], 'cancelled')

    def test_two_cancel_at_once(self):
        a, b, _ = self.gateway()
        address, ids = self.g.http(), [self.schedule(b) for _ in range(20)]
        there = b.gateway()

        def cancel(to, out):
            web = Web(to)
            out.extend(web.ask('DELETE', f'/v1/messages/{i}').status for i in ids)
        answers = [[], []]
        threads = [threading.Thread(target=cancel, args=(to, out)) for to, out in zip((address, there.http()), answers)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(b.value("select count(*) from postdate.message_now where state = 'cancelled'"), '20')
        self.assertEqual({*answers[0], *answers[1]} - {503}, {200}, answers)


class CellsDoctor(Cells, Doctor):
    def test_it_knows_cells(self):
        a, b = self.cells(1, 2)
        env = {'POSTDATE_CELL_EXCHANGE': 'postdate.cells', 'POSTDATE_CELLS_FILE': self.file.name, 'POSTDATE_CELL_NUMBER': '1'}
        self.assert_finding(self.doctor(a, **env), 'cell.exchange', 'warn', 'does not exist yet', 'rabbitmq_consistent_hash_exchange')
        a.gateway(**env)
        found = self.doctor(a, **env)
        self.assert_finding(found, 'cell.number', 'ok', 'this database is cell 1')
        self.assert_finding(found, 'cell.exchange', 'ok', 'by message-id; messages without one all go to the same cell')
        self.assert_finding(found, 'cells', 'ok', 'cell c2 answers')
        self.assert_finding(self.doctor(a, **env | {'POSTDATE_CELL_NUMBER': '5'}), 'cell.number', 'fail', 'this database is cell 1', 'cell.number = 1')
        self.assert_finding(self.doctor(a, **env, POSTDATE_CELL_EXCHANGE_BY='key'), 'cell.exchange', 'fail', 'cell.exchange_by', 'the same')
        self.assert_finding(self.doctor(a, **env, POSTDATE_CELL_WEIGHT='0'), 'cell.exchange', 'warn', 'no new messages')
        self.write(f'[cell c1]\npostgres.url = {a.postgres}\nnumber = 9\n[cell gone]\npostgres.url = {AWAY}\n')
        found = self.doctor(a, **env)
        self.assert_finding(found, 'cells', 'fail', 'cell c1 has the number 9')
        self.assert_finding(found, 'cells', 'warn', 'cell gone: ')
        self.assertNotIn('cells', self.doctor(b))


class CellsOwnServers(OwnServers, LiveTest):
    def test_the_broker_comes_back(self):
        """RabbitMQ makes its ring anew when it starts, and gateways bind again: nothing is lost, and no weight is doubled."""
        env = {'POSTDATE_CELL_EXCHANGE': 'postdate.cells', 'POSTDATE_CELL_EXCHANGE_BY': 'key'}
        a = self.place(transport='timer')
        b = self.place(transport='timer', vhost=a.vhost, prefix='two')
        self.places = [a, b]
        for p, weight in ((a, 1), (b, 3)):
            p.gateway(POSTDATE_CELL_WEIGHT=weight, **env)

        def publish(c, first):
            for n in range(first, first + 200):
                c.publish('k', b'x', {'x-delay': 3600_000, 'x-postdate-key': f'key {n}'}, exchange='postdate.cells', mandatory=True)

        def stored():
            return [int(p.value('select count(*) from postdate.message_now')) for p in (a, b)]
        publish(a.client(), 0)
        wait_until(lambda: sum(stored()) == 200, 15, 'all to be stored')
        before = stored()
        self.servers.command('stop-rabbitmq')
        self.servers.start()
        for p in (a, b):
            wait_until(lambda p=p: len(p.gateways[0].lines_with('RabbitMQ is back')) > 0, 40, 'the gateways to be back')
        publish(a.client(), 200)
        wait_until(lambda: sum(stored()) == 400, 15, 'all to be stored')
        after = [y - x for x, y in zip(before, stored())]
        self.assertGreater(after[1], 2 * after[0], (before, after))

    def test_the_plugin_is_named(self):
        p = self.place(transport='timer')
        self.servers.rabbitmqctl('eval', 'rabbit_registry:unregister(exchange, <<"x-consistent-hash">>).')
        try:
            g = p.gateway(wait=False, POSTDATE_CELL_EXCHANGE='postdate.cells')
            self.assertEqual(g.wait(30), 78)
            self.assertIn('rabbitmq-plugins enable rabbitmq_consistent_hash_exchange', g.log())
        finally:
            self.servers.rabbitmqctl('eval', 'rabbit_registry:register(exchange, <<"x-consistent-hash">>, rabbit_exchange_type_consistent_hash).')
        p.gateway(POSTDATE_CELL_EXCHANGE='postdate.cells')
