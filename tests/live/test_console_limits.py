"""What the console relies on: exact names in filters of dead letters, and lines of the log that name the message or the change."""
import json
import tempfile

import harness
from harness import LiveTest, wait_until
from web import Web

DEAD = """insert into postdate.lineage (id, expires_at, died_at, failed, queue, exchange, routing_key, reason, hash, failed_at, reasons, properties, body)
    select postdate.id_make(now() - n * interval '1 s'), now() + interval '30 days', now() - n * interval '1 s', 1, q, '', '', 'rejected', '', '{}', '{}', '', ''
      from unnest(array['a*', 'ab', 'a' || chr(92) || '*', 'a' || chr(92) || 'b']) with ordinality as t (q, n)"""


class Names(LiveTest):
    def test_a_star_in_the_name_of_a_queue_is_no_pattern_behind_a_backslash(self):
        p = self.place()
        web = Web(p.gateway().http())
        self.addCleanup(web.close)
        p.psql(DEAD)

        def matched(**filter_):
            return web.post('/v1/dead:drop', {'filter': filter_, 'dry_run': True}).json['matched']
        self.assertEqual(matched(queue='a*'), 4)
        self.assertEqual([matched(queue=q) for q in ('a\\*', 'ab', 'a\\\\\\*', 'a\\\\b', 'a\\b')], [1, 1, 1, 1, 1])
        self.assertEqual((matched(exchange='', queue='a\\*'), matched(exchange='x'), matched(routing_key='')), (1, 0, 4))
        self.assertEqual(web.post('/v1/dead:drop', {'filter': {'queue': 'a\\*'}}).json['changed'], 1)
        self.assertEqual(p.value("select string_agg(queue, ' ' order by died_at desc) from postdate.lineage"), 'ab a\\* a\\b')


class Lines(LiveTest):
    def test_a_message_that_ends_undelivered_is_named(self):
        p = self.place()
        gw = p.gateway(POSTDATE_RETRY_ATTEMPTS='1')
        web = Web(gw.http())
        self.addCleanup(web.close)
        m = web.post('/v1/messages', {'exchange': 'missing', 'routing_key': 'k', 'delay': '0s', 'body': 'x'}).json
        gw.wait_log(f'message {m["id"]} failed: ')
        before = len([line for line in gw.log().splitlines() if ' failed: ' in line])
        many = [{'exchange': 'missing', 'routing_key': 'k', 'delay': '0s', 'body': 'x'}] * 100
        self.assertEqual(web.post('/v1/messages', {'messages': many}).status, 200)
        wait_until(lambda: p.value("select count(*) from postdate.message_now where state = 'failed'") == '101', 30, 'all to fail')
        said = len([line for line in gw.log().splitlines() if ' failed: ' in line])
        self.assertLessEqual(said - before, 10)

    def test_what_is_refused_is_named_and_a_flood_of_it_is_some_lines(self):
        p = self.place()
        gw = p.gateway()
        c = p.client()
        c.publish('k', b'x', {'x-delay': 'soon', 'traceparent': '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'})
        gw.wait_log(r'moved 1 message to postdate.rejected, the first \(traceparent 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\)'
                    ' because: x-delay')
        for i in range(30):
            c.publish('k', b'x', {'x-delay': 'soon'}, message_id=f'order-{i}')
            wait_until(lambda: f'postdate_messages_rejected_total{{reason="invalid"}} {i + 2}\n' in self.metrics(gw), 10, 'it to be refused')
        gw.wait_log(r'moved 1 message to postdate.rejected, the first \(message-id order-0\)')
        self.assertEqual(len(gw.lines_with('moved .* to postdate.rejected')), 10)

    def metrics(self, gw):
        return Web(gw.http()).get('/metrics').body.decode()

    def test_what_replaces_is_in_the_audit(self):
        p = self.place()
        gw = p.gateway()
        web = Web(gw.http())
        self.addCleanup(web.close)
        message = {'routing_key': 'k', 'delay': '1h', 'body': 'x', 'key': 'one'}
        first = web.post('/v1/messages', message).json
        second = web.post('/v1/messages', dict(message, on_conflict='replace')).json
        gw.wait_log(f'audit: by .*: schedule.*{second["id"]}')
        self.assertNotIn(first['id'], '\n'.join(line for line in gw.log().splitlines() if 'audit: ' in line))

    def test_applying_schedules_is_in_the_servers_log(self):
        p = self.place()
        name = p.value('select gen_random_uuid()')
        text = json.dumps({'schedules': {name: {'cron': '@every 1h', 'routing_key': 'k', 'body': 'x'}}}).encode()
        with tempfile.NamedTemporaryFile(suffix=name) as file:
            file.write(text)
            file.flush()
            for more in (['--dry-run'], []):
                p.run('recur', 'apply', file.name, '--prefix', name, *more)
        with harness.stack().postgres_log() as f:
            said = [line for line in f if 'postdate audit' in line and name in line]
        self.assertEqual(len(said), 1, said)
        self.assertIn(': 1 changed, exit 0', said[0])
