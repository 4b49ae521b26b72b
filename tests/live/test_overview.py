"""GET /v1/overview, and that a trace can be joined: traceparent travels untouched, whatever the way in."""
import json
import re
import time

from harness import LiveTest, wait_until
from test_control import Requester
from web import Web

PARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
STATE = 'vendor=t61rcWkgMzE'


class Overview(LiveTest):
    def test_gateways_and_what_is_wrong(self):
        p = self.place()
        first, second = p.gateway(), p.gateway()
        web = Web(first.http(), Web(first.http()).get('/openapi.json').json)

        def both():
            seen = web.get('/v1/overview').json
            return len([g for g in seen['gateways'] if g['alive']]) == 2 and seen
        seen = wait_until(both, 20, 'both gateways to be seen')
        self.assertEqual((seen['findings'], seen['broker']['state'], seen['database']['state']), ([], 'up', 'up'))
        self.assertEqual((seen['settings']['http.console'], seen['settings']['retry.attempts']), ('on', '20'))
        self.assertEqual([name for name in seen['settings'] if name.endswith('url')], [])
        second.kill9()
        p.psql("select postdate.schedule('k', 'x'::text, delay => '1 hour')")
        p.psql("update postdate.message set next_at = coalesce(next_at, due), state = 'failed', settled_at = now()")

        def found():
            return {f['name'] for f in web.get('/v1/overview').json['findings']} >= {'messages.failed'}
        wait_until(found, 20, 'what is wrong to be found')
        for f in web.get('/v1/overview').json['findings']:
            self.assertTrue(f['text'] and f['remedy'], f)

    def test_counts_are_fresh_though_nobody_asks(self):
        """The first scrape after a while shows what is, not what was at the one before."""
        p = self.place()
        web = Web(p.gateway().http())

        def counts():
            text = web.get('/metrics').body.decode()
            return {name: float(value) for name, value in re.findall(r'(?m)^postdate_(messages\{state="scheduled"\}|backlog_age_seconds) (\S+)$', text)}
        wait_until(lambda: 'backlog_age_seconds' in counts(), 20, 'the first count')
        p.psql("select postdate.schedule('k', 'x', delay => '1 hour') from generate_series(1, 61)")
        time.sleep(16)  # the age that is promised is the subject
        seen = counts()
        self.assertEqual(seen['messages{state="scheduled"}'], 61, seen)
        self.assertLess(seen['backlog_age_seconds'], 15)

    def test_a_million_of_one_state_hide_no_other(self):
        p = self.place()
        rows = """insert into {} (due, next_at, id, hold, exchange, routing_key, properties, body, state, settled_at)
            select d, d, postdate.id_make(d), 'g', 'e', 'k', '', '', '{}', {} from (select {} + i * interval '1 ms' as d from generate_series(1, {}) i) s"""
        # On a day of its own, which is looked at first; its indexes are made when it has the rows. Then what there is of the others.
        ago = "date_trunc('day', now()) - interval '3 days'"
        day = p.value(f"select ({ago})::date")
        table = 'postdate.message_' + day.replace('-', '')
        p.day(day, f"create table {table} (like postdate.message including defaults including constraints); {rows.format(table, 'failed', 'now()', ago, 1_000_001)}")
        p.psql(rows.format('postdate.message', 'delivered', 'd', "date_trunc('day', now())", 3))
        p.psql(rows.format('postdate.message', 'scheduled', 'null', "date_trunc('day', now()) + interval '2 days'", 2))
        p.psql(rows.format('postdate.message', 'cancelled', 'now()', "date_trunc('day', now()) + interval '2 days'", 4))
        web = Web(p.gateway().http())
        stats = wait_until(lambda: (web.get('/v1/stats').json or {}).get('messages') and web.get('/v1/stats').json, 30, 'counts')
        self.assertEqual({s: n for s, n in stats['messages'].items() if n}, {'failed': 1_000_000, 'delivered': 3, 'scheduled': 2, 'cancelled': 4})
        self.assertEqual((stats['counts_are_minimum'], stats['counted_only_in_part']), (True, ['failed']))
        code, out, err = p.cli('status', '--json')
        self.assertEqual((code, json.loads(out)['counted_only_in_part']), (0, ['failed']), err)
        # Dry runs end there, too, or when three seconds are over.
        dry = web.post('/v1/messages:cancel', {'filter': {'exchange': 'e'}, 'dry_run': True}).json
        self.assertTrue(dry['matched_is_minimum'], dry)
        self.assertLessEqual(dry['matched'], 1_000_000)
        self.assertRegex(p.cli('cancel', '--exchange', 'e', '--dry-run')[1], r'^at least \d+ would be cancelled$')
        few = wait_until(lambda: (d := web.post('/v1/messages:cancel', {'filter': {'exchange': 'e', 'state': 'scheduled'}, 'dry_run': True}).json)
                         and 'matched' in d and not d.get('matched_is_minimum') and d, 60, 'a dry run that ends within its three seconds')
        self.assertEqual((few['matched'], few['changed']), (2, 0))


class Traces(LiveTest):
    def test_traceparent_travels_untouched(self):
        p = self.place()
        gw = p.gateway()
        client = p.client()
        client.queue('q', bind=['trace'])
        inbox = p.consumer('q')
        headers = {'traceparent': PARENT, 'tracestate': STATE}
        message = {'routing_key': 'trace', 'delay': '0s', 'headers': headers}
        client.publish('trace', b'amqp', dict(headers, **{'x-delay': 100}))
        client.publish('trace', b'handed', dict(headers, **{'x-delay': 3500}))
        Web(gw.http()).post('/v1/messages', dict(message, body='http'))
        requester = Requester(p.amqp)
        self.addCleanup(requester.close)
        requester.ask(dict(message, op='schedule', body='control'))
        p.psql(f"select postdate.schedule('trace', 'sql'::text, delay => '0s', headers => '{json.dumps(headers)}')")
        p.cli('schedule', '-k', 'trace', '--delay', '0s', '--body', 'cli', '--header', 'traceparent=' + PARENT, '--header', 'tracestate=' + STATE)
        came = wait_until(lambda: len(inbox.all()) == 6 and inbox.all(), 30, 'all of them')
        self.assertEqual({m.body for m in came}, {b'amqp', b'handed', b'http', b'control', b'sql', b'cli'})
        for m in came:
            self.assertEqual((m.headers['traceparent'], m.headers['tracestate']), (PARENT, STATE), m.body)
            self.assertTrue(m.headers['x-postdate-id'])
