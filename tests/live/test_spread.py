"""What has a spread is delivered at a time within it after its due time: drawn once, known at once, never before."""
import json

import harness
from harness import LiveTest, now_ms, wait_until
from web import Web

SPREAD = 'x-postdate-spread'
LIVE = "from postdate.message_now where state in ('scheduled', 'handed')"


class Spread(LiveTest):
    def test_one_name_is_drawn_the_same_by_every_way_in(self):
        p = self.place()
        web = Web(p.gateway().http())
        c = p.client()
        at = now_ms() + 48 * 3600_000
        when = f'to_timestamp({at} / 1000.0)'
        rfc = p.value(f"""select to_char({when} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')""")
        for name in ('a', 'order-17', 'ü€\\', 'x' * 255):
            drawn = set()
            for named in ('id', 'key'):
                fields = {'key': f'{name}'} if named == 'key' else {'properties': {'message_id': name}}
                ways = {
                    'amqp': lambda: c.publish('k', b'x', {'x-postdate-at': at, SPREAD: '10m', **({'x-postdate-key': name} if named == 'key' else {})},
                                              **({} if named == 'key' else {'message_id': name})),
                    'http': lambda: self.assertIn(web.post('/v1/messages', {'routing_key': 'k', 'body': 'x', 'due_at': rfc, 'spread': '10m', **fields}).status, (200, 201)),
                    'sql': lambda: p.psql(f"select postdate.schedule_many($j$[{json.dumps({'routing_key': 'k', 'body': 'x', 'due_at': rfc, 'spread': '10 minutes', **fields})}]$j$)"),
                    'one': lambda: p.psql("select postdate.schedule('k', 'x'::text, due_at => {}, spread => '10 minutes', {})".format(
                        when, f"key => '{name}'" if named == 'key' else "properties => $j$" + json.dumps(fields['properties']) + "$j$")),
                }
                seen = []
                for way, store in ways.items():
                    store()
                    wait_until(lambda: p.value(f'select count(*) {LIVE}') == '1', 10, f'{way} to be stored')
                    seen.append(int(p.value(f'select (extract(epoch from due) * 1000)::bigint {LIVE}')) - at)
                    p.psql(f'select postdate.cancel(id) {LIVE}')
                self.assertEqual(len(set(seen)), 1, (name, named, seen))
                self.assertTrue(0 <= seen[0] <= 600_000, seen)
                drawn.add(seen[0])
            self.assertEqual(len(drawn), 2)

    def test_what_is_not_possible_is_refused(self):
        p = self.place()
        web = Web(p.gateway().http())
        c = p.client()
        for spread, delay, says in (('soon', 0, 'is not allowed'), (-5, 0, 'is not allowed'), ('1d', 3 * 86400_000 - 3600_000, 'ends too far ahead')):
            c.publish('k', b'x', {'x-delay': delay, SPREAD: spread})
            m = c.wait_get('postdate.rejected')
            self.assertIn(f'{SPREAD}: ', m.headers['x-postdate-error'])
            self.assertIn(says, m.headers['x-postdate-error'])
        answer = web.post('/v1/messages', {'routing_key': 'k', 'body': 'x', 'delay': '1h', 'spread': '10m', 'deadline': p.value(
            """select to_char((now() + interval '65 minutes') at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')""")})
        self.assertEqual(answer.status, 422)
        self.assertIn('lies before the due time', answer.body.decode())
        with self.assertRaisesRegex(Exception, 'the spread ends too far ahead'):
            p.psql("select postdate.schedule('k', 'x'::text, delay => '1 hour', spread => '3 years')")
        with self.assertRaisesRegex(Exception, 'the spread is not allowed'):
            p.psql("select postdate.schedule('k', 'x'::text, delay => '1 hour', spread => '-1 s')")
        self.assertEqual(p.value('select count(*) from postdate.message_now'), '0')

    def test_none_early_and_none_after_it(self):
        p = self.place()
        p.gateway()
        c = p.client()
        c.queue('q', 'k')
        p.psql("select count(postdate.schedule('k', i::text, due_at => now() + interval '%d s', spread => '4 s')) "
               "from generate_series(1, 2000) i" % (10 * harness.slowness()))  # none is stored when that is past
        first, last = (int(x) for x in p.psql("select (extract(epoch from min(due)) * 1000)::bigint, (extract(epoch from max(due)) * 1000)::bigint "
                                              "from postdate.message_now")[0])
        self.assertTrue(3500 < last - first <= 4000, last - first)  # of 2,000 the ends are near both ends
        per_quarter = p.psql(f"select count(*) from postdate.message_now group by floor((extract(epoch from due) * 1000 - {first}) / 1001)")
        self.assertTrue(all(400 < int(n) < 600 for n, in per_quarter), per_quarter)  # 5 standard deviations
        cancelled = p.value("select postdate.cancel(id) from postdate.message_now order by due desc limit 1")
        self.assertEqual(cancelled, 'cancelled')  # until its own time, not that of the others
        wait_until(lambda: c.depth('q') == 1999, 30, 'the others')
        self.assertGreaterEqual(now_ms(), last - 1500)
        self.assertEqual(p.value("select count(*) from postdate.message_now where state = 'delivered' and settled_at < due"), '0')
