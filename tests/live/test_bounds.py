"""Under overload a gateway stays within its bounds: memory, descriptors, what it holds and what it logs. Sizes are asserted,
never speed."""
import socket

import harness
from bounds_kit import Size
from harness import LiveTest, now_ms, wait_until
from web import Web

HELD_MIB = 24    # docs/guarantees.md: what is held at once
RESULT_MIB = 16  # a claim's rows as they came, and heaps of many threads
SLACK_MIB = 12


@harness.not_san  # sanitizers keep memory
class Memory(LiveTest):
    """What waits is many times as large as what may be held."""
    weight = 12
    time_limit_s = 400 if harness.FULL else 200
    who_waits = 'timer'

    def fill(self, p, count, body, properties_json='null'):
        """All due at once, 4 s from now."""
        due = now_ms() + 4000
        p.psql("insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, properties_json, body) "
               f"select t, t, (lpad(to_hex({due}), 12, '0') || '8' || substr(replace(gen_random_uuid()::text, '-', ''), 14))"
               f"::uuid, 'g', 'postdate.delivery', 'k', case when j is null then '\\x100002'::bytea else '' end, j, {body} "
               f"from generate_series(1, {count}) i, (select timestamptz 'epoch' + {due} * interval '1 ms') x (t), "
               f"(select {properties_json}::jsonb) y (j)")

    def drain(self, p, g, count, what):
        size = Size(g)
        wait_until(lambda: p.counts().get('delivered') == count, 300 if harness.FULL else 120, f'{count} messages to be delivered', 0.2)
        self.assertEqual(p.client().depth('q'), count)
        size.stop(what)
        self.assertLess(size.grown_mib(), HELD_MIB + RESULT_MIB)
        self.assertLess(size.descriptors, size.descriptors_before + 8)  # a connection or two may be made again

    def test_json_headers_that_compress_well(self):
        count = 500
        p = self.place()
        g = p.gateway()
        p.client().queue('q', 'k')
        self.fill(p, count, "'x'", "jsonb_build_object('headers', jsonb_build_object('h', repeat('x', 120000)))")
        self.assertEqual(p.value('select min(pg_column_size(properties_json)) > 120000 from postdate.message_now'), 't', 'stored as they are')
        self.drain(p, g, count, f'{count * 120 // 1024} MiB of JSON headers due at once')

    def test_many_due_at_once(self):
        count, size_b = (1_000_000, 500) if harness.FULL else (30_000, 4000)
        p = self.place()
        g = p.gateway()
        p.client().queue('q', 'k')
        self.fill(p, count, f"convert_to(repeat('x', {size_b}), 'UTF8')")
        self.drain(p, g, count, f'{count * size_b // 2**20} MiB due at once')

    def test_large_bodies_that_cannot_be_stored(self):
        """They stay in the queue, unacknowledged at most. There is no room for three, so they come again."""
        p = self.place()
        g = p.gateway()
        c = p.client()
        session = p.session()
        session.run('begin')
        session.run('lock table postdate.message in exclusive mode')
        size = Size(g)
        for _ in range(20):
            c.publish('large', b'x' * 7_000_000, {'x-delay': 3_600_000})
        began = int(p.value('select last_value from postdate.redelivery'))
        wait_until(lambda: int(p.value('select last_value from postdate.redelivery')) > began + 12, 60, 'it to have read them again and again')
        session.run('rollback')
        session.close()
        wait_until(lambda: p.counts() == {'scheduled': 20}, 60, 'all to be stored', 0.1)
        size.stop('140 MB in 20 bodies, and a database that takes nothing')
        self.assertLess(size.log_lines(), 12, g.log())  # that there is no room ends and begins anew, some seconds apart
        self.assertLess(size.grown_mib(), 64)


@harness.with_both  # how much memory
class Targets(LiveTest):
    """One that is missing delays no other."""
    weight = 15
    who_waits = 'timer'
    RETRY = {'POSTDATE_RETRY_ATTEMPTS': 1000, 'POSTDATE_RETRY_FIRST': '200ms', 'POSTDATE_RETRY_MAX': '1s'}

    def lateness(self, p, key, count, spread):
        inbox = p.load('consume', '--queue', key, '--exchange', 'postdate.delivery', '--bind', key, '--expect', count,
                       '--timeout-s', 40, '--idle-s', 0.3).wait_consuming()
        p.load('publish', '--routing-key', key, '--count', count, '--delay-spread-ms', spread).result()
        r = inbox.result()
        self.assertEqual((r['missing'], r['early'], r['duplicates']), (0, 0, 0), r)
        return r['p99_ms']

    def test_hundreds_of_missing_exchanges_and_a_full_queue_delay_no_other(self):
        count, bad, exchanges = (100, 300, 60) if harness.SAN else (400, 2000, 300)
        p = self.place()
        g = p.gateway(**self.RETRY)
        control_ms = self.lateness(p, 'control', count, '1000,2500')
        c = p.client()
        c.queue('full', arguments={'x-max-length': 1, 'x-overflow': 'reject-publish'})
        size = Size(g)
        p.psql("select postdate.schedule('bad', 'x', '1 s', exchange => 'missing.' || i %% %d) "
               "from generate_series(1, %d) i" % (exchanges, bad))
        p.psql("select postdate.schedule('full', 'x', '1 s', exchange => '') from generate_series(1, 200)")
        for attempt in range(3):
            ms = self.lateness(p, f'good.{attempt}', count, '1500,4000')
            print(f'note bounds: p99 lateness {ms:.1f} ms beside {bad} messages for {exchanges} missing exchanges and a full '
                  f'queue, {control_ms:.1f} ms alone', flush=True)
            if ms < 10 * control_ms + 250 * harness.slowness():
                break
        else:
            self.fail('the others were late each time')
        self.assertGreater(int(p.value("select count(*) from postdate.message_now where routing_key = 'bad' and attempts > 0")), 0)
        # Nor the first message to an exchange that nobody has asked for before: it stands in line with theirs, alone in flight.
        c.channel.exchange_declare('fresh', 'topic', durable=True)
        c.queue('fresh', '#', 'fresh')
        p.psql("select postdate.schedule('fresh', 'first', '1 s', exchange => 'fresh'), "
               "count(postdate.schedule('bad', 'x', '1 s', exchange => 'missing.again.' || i)) "
               f"from generate_series(1, {exchanges}) i")
        began_ms = now_ms()
        self.assertEqual(c.wait_get('fresh', 60).body, b'first')
        print(f'note bounds: the first one to a new exchange came after {now_ms() - began_ms} ms, due after 1 s', flush=True)
        self.assertLess(now_ms() - began_ms, 20_000 * harness.slowness())  # two round trips for each that is missing
        size.stop(f'{bad} messages for missing exchanges')
        self.assertLess(size.log_lines(), 20, g.log())
        self.assertLess(size.descriptors, size.descriptors_before + 8)  # a connection or two may be made again
        if not harness.SAN:
            self.assertLess(size.grown_mib(), HELD_MIB + SLACK_MIB)


@harness.with_both  # how much memory
class Clients(LiveTest):
    weight = 10

    def test_a_thousand_connections(self):
        """Some silent, some in the middle of a request; one more is served, and all are given back."""
        p = self.place()
        g = p.gateway()
        address = g.http()
        Web(address).get('/livez')
        size = Size(g)
        half = b'POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2000\r\n\r\n{'
        sockets = []
        for i in range(1000):
            s = socket.create_connection(address, timeout=20)
            s.sendall(half if i % 2 else half[:20])
            sockets.append(s)
        web = Web(address)
        self.assertEqual(web.get('/livez').status, 200)
        answer = web.post('/v1/messages', {'routing_key': 'k', 'body': 'x', 'delay': '1h'})
        self.assertEqual(answer.status, 201, answer)
        self.assertEqual(web.ask('DELETE', '/v1/messages/' + answer.json['id']).status, 200)
        for s in sockets:
            s.close()
        web.close()
        # But for connections to servers, which are made when they are needed first.
        wait_until(lambda: size.open_descriptors() <= size.descriptors_before + 20, 15, 'their descriptors to be given back')
        size.stop('1,000 HTTP connections')
        self.assertLess(size.descriptors, size.descriptors_before + 3 * 1000 + 10)  # a socket pair behind each
        self.assertLess(size.log_lines(), 5, g.log())
        if not harness.SAN:
            self.assertLess(size.grown_mib(), 1000 * 40 / 1024 + SLACK_MIB)
