"""What goes wrong in the middle: gateways killed between commit and acknowledgement, locks, a database that goes away
during a commit. Postgres is made to wait by triggers that want an advisory lock which the test holds."""
import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
import urllib.parse

from harness import LiveTest, not_san, now_ms, wait_until
from test_control import QUEUE, Requester
from test_http import DUE, HttpTest
from web import Raw, Web

GATE = """
create function {schema}.gate() returns trigger language plpgsql as $$
begin
    if new.routing_key like 'gate%' then perform set_config('lock_timeout', '0', true), pg_advisory_xact_lock_shared(4711); end if;
    return null;
end $$;
create constraint trigger gate after insert on {schema}.message {deferred} for each row execute function {schema}.gate()
"""


class Gate:
    """Transactions that insert a message with a routing key like gate% stop, in the middle or (deferred) at their
    commit, until it is opened."""

    def __init__(self, place, deferred=True):
        self.place = place
        place.psql(GATE.format(schema='postdate', deferred='deferrable initially deferred' if deferred else ''))
        self.session = place.session()
        self.session.run('select pg_advisory_lock(4711)')

    def waiting(self):
        return [row[0] for row in self.place.psql(
            "select pid from pg_locks where locktype = 'advisory' and objid = 4711 and not granted and "
            "database = (select oid from pg_database where datname = current_database())")]

    def wait(self, count=1):
        return wait_until(lambda: len(self.waiting()) >= count and self.waiting(), 15, 'the gate to be reached')

    def open(self):
        self.session.run('select pg_advisory_unlock(4711)')
        wait_until(lambda: not self.waiting(), 10, 'the gate to be passed')


class Relay:
    """Between a gateway and Postgres. Dropped, the gateway's connections end, and Postgres hears nothing of it."""

    def __init__(self, url):
        found = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)
        name = f'.s.PGSQL.{found["port"][0]}'
        self.server = os.path.join(found['host'][0], name)
        self.directory = tempfile.mkdtemp(prefix='relay')
        self.url = url.replace(found['host'][0], self.directory)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(self.directory, name))
        self.listener.listen(50)
        self.pairs, self.dropped = [], []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.server)
            self.pairs.append((client, server))
            for ends in ((client, server), (server, client)):
                threading.Thread(target=self.pump, args=ends, daemon=True).start()

    @staticmethod
    def pump(source, sink):
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass

    def drop(self):
        self.dropped, self.pairs = self.dropped + self.pairs, []
        for client, _ in self.dropped:
            client.close() if client.fileno() < 0 else client.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listener.close()
        for pair in self.pairs + self.dropped:
            for end in pair:
                end.close()
        shutil.rmtree(self.directory)


class KilledControl(LiveTest):
    def kill_between_commit_and_ack(self, request, **properties):
        """The request's answer from the next gateway."""
        p = self.p = self.place()
        gw = p.gateway()
        r = Requester(p.amqp)
        self.addCleanup(r.close)
        gate = Gate(p)
        sent = r.send(request, **properties)
        gate.wait()
        gw.pause()
        gate.open()  # committed, and the gateway doesn't know
        wait_until(lambda: self.count() == '1', 10, 'the commit')
        gw.kill9()
        self.assertEqual(r.answers, {})
        p.gateway()
        answer = r.wait(sent)[1]
        client = p.client()
        wait_until(lambda: client.depth(QUEUE) == 0, 10, 'the queue to be empty')
        return answer

    def count(self):
        return self.p.value("select count(*) from postdate.message_now where routing_key = 'gate'")

    def test_with_a_message_id_the_answer_is_the_first_one(self):
        request = dict(DUE, op='schedule', routing_key='gate')
        answer = self.kill_between_commit_and_ack(request, message_id='once')
        stored = self.p.value('select id from postdate.message_now')
        self.assertEqual((answer['status'], answer['id'], self.count()), (201, stored, '1'))

    def test_with_a_key_the_message_is_there_already(self):
        request = dict(DUE, op='schedule', routing_key='gate', key='k')
        answer = self.kill_between_commit_and_ack(request)
        stored = self.p.value('select id from postdate.message_now')
        self.assertEqual((answer['status'], answer['id'], self.count()), (200, stored, '1'))

    def test_whenever_it_is_killed_each_request_is_done_once(self):
        p = self.p = self.place()
        r = Requester(p.amqp)
        self.addCleanup(r.close)
        r.channel.queue_declare(QUEUE, durable=True, arguments={
            'x-queue-type': 'quorum', 'x-delivery-limit': 20, 'x-overflow': 'reject-publish', 'x-dead-letter-exchange': '',
            'x-dead-letter-routing-key': 'postdate.rejected'})
        total = 300
        for i in range(total):
            r.send(dict(DUE, op='schedule', routing_key='chaos', body=str(i)), message_id=f'chaos-{i}')
        query = 'select count(*), count(distinct convert_from(body, \'UTF8\')) from postdate.message_now'
        for goal in (1, 60, 130):
            gw = p.gateway()
            wait_until(lambda: int(p.psql(query)[0][0]) >= goal, 20, f'{goal} to be stored', 0.001)
            gw.kill9()
        p.gateway()
        wait_until(lambda: p.client().depth(QUEUE) == 0 and p.psql(query)[0][1] == str(total), 30, 'all to be stored')
        self.assertEqual(p.psql(query)[0], [str(total)] * 2)


def ms_until_noon():
    """Tomorrow's, UTC: chunks end where a day does."""
    return 86_400_000 - now_ms() % 86_400_000 + 43_200_000


class KilledBulk(LiveTest):
    def test_a_bulk_shift_that_was_killed_is_finished_under_its_key(self):
        p = self.place()
        gw = p.gateway()
        web = Web(gw.http())
        noon_ms = ms_until_noon()
        total = 450  # three chunks; the gate is in the second
        items = [dict(DUE, routing_key='gate' if i == 300 else 'k', delay_ms=noon_ms + i * 1000, delay=None, body=str(i))
                 for i in range(total)]
        self.assertEqual(web.post('/v1/messages', {'messages': items}).status, 200)
        before = dict(p.psql("select convert_from(body, 'UTF8'), due from postdate.message_now"))
        self.assertEqual(len(before), total)
        gate = Gate(p, deferred=False)
        body = {'filter': {}, 'all': True, 'shift_ms': 7_200_000}
        first = threading.Thread(target=self.ask, args=(gw.http(), body))
        first.start()
        worker = gate.wait()[0]
        busy = web.post('/v1/messages:reschedule', body, Idempotency_Key='shift')
        self.assertEqual((busy.status, busy.problem), (409, 'in-progress'))
        self.assertIn('retry-after', busy.headers)
        gw.kill9()
        first.join()
        p.psql(f'select pg_terminate_backend({worker})')
        gate.open()
        self.assertEqual(p.counts()['superseded'], 200, 'one chunk was done')
        web = Web(p.gateway().http())
        other = web.post('/v1/messages:reschedule', dict(body, shift_ms=1), Idempotency_Key='shift')
        self.assertEqual((other.status, other.problem), (422, 'idempotency-mismatch'))
        rest = web.post('/v1/messages:reschedule', body, Idempotency_Key='shift')
        self.assertEqual((rest.status, rest.json['changed']), (200, 250), rest)
        again = web.post('/v1/messages:reschedule', body, Idempotency_Key='shift')
        self.assertEqual(again.body, rest.body)
        wrong = p.psql("select convert_from(m.body, 'UTF8'), m.due from postdate.message_now m where state = 'scheduled'")
        self.assertEqual(len(wrong), total)
        shifted = p.psql("select count(*) from postdate.message_now a join postdate.message b on a.state = 'superseded' and "
                         "b.state = 'scheduled' and b.due = a.due + interval '2 h'")
        self.assertEqual(shifted, [[str(total)]], 'each was shifted once')

    def test_nobody_waits_behind_bulk_operations_and_a_stop_ends_them_between_two_chunks(self):
        p = self.place()
        gw = p.gateway()
        web = Web(gw.http())
        noon_ms = ms_until_noon()
        items = [dict(DUE, routing_key=f'gate{i % 2}', delay_ms=noon_ms + i * 1000, delay=None) for i in range(450)]
        done = web.post('/v1/messages', {'messages': items}).json['results']
        gate = Gate(p, deferred=False)
        answers = []

        def shift(address, key):
            return Web(address).post('/v1/messages:reschedule', {'filter': {'routing_key': key}, 'shift_ms': 7_200_000},
                                     Idempotency_Key=key)
        address = gw.http()
        threads = [threading.Thread(target=lambda k=key: answers.append(shift(address, k))) for key in ('gate0', 'gate1', 'third')]
        for t in threads[:2]:
            t.start()
        gate.wait(2)
        threads[2].start()
        self.assertEqual(web.get('/v1/messages/' + done[-1]['id']).status, 200)
        self.assertEqual(web.ask('DELETE', '/v1/messages/' + done[-1]['id']).status, 200)
        gw.process.send_signal(signal.SIGTERM)
        wait_until(lambda: b'stopping' in web.get('/readyz').body, 20, 'the stop to reach those who work')
        gate.open()
        for t in threads:
            t.join()
        self.assertEqual(gw.wait(), 0)
        self.assertEqual({(a.status, a.problem) for a in answers}, {(503, 'not-ready')}, answers)
        self.assertEqual(p.counts(), {'scheduled': 449, 'superseded': 400, 'cancelled': 1}, 'one chunk of each')
        rest = shift(p.gateway().http(), 'gate0')
        self.assertEqual((rest.status, rest.json['changed']), (200, 25), rest)

    def test_signals_do_not_prolong_a_stop(self):
        """Each SIGHUP, which reads the settings of the log again, began the 30 s of the stop anew."""
        p = self.place()
        gate, gw = Gate(p), p.gateway()
        address = gw.http()
        asking = threading.Thread(target=self.ask, args=(address, {'routing_key': 'gate0', 'delay': '1h', 'body': 'x'}, '/v1/messages'))
        asking.start()
        gate.wait()
        gw.process.send_signal(signal.SIGTERM)
        wait_until(lambda: gw.process.poll() is not None or gw.process.send_signal(signal.SIGHUP) or time.sleep(5), 90, 'the stop to end')
        self.assertEqual(gw.wait(), 1)
        gw.wait_log('shutdown timed out')
        gate.open()
        asking.join()

    @staticmethod
    def ask(address, body, path='/v1/messages:reschedule'):
        try:
            Web(address).post(path, body, Idempotency_Key='shift')
        except OSError:
            pass  # the gateway is killed


class Locks(HttpTest):
    def test_a_locked_key_is_503_and_nothing_is_stored(self):
        m = self.schedule(key='locked')
        session = self.p.session()
        self.addCleanup(session.close)
        session.run('begin')
        session.run("select key from postdate.key where key = 'locked' for update")
        body = dict(DUE, routing_key=self.name(), key='locked', on_conflict='replace')
        answer = self.web.post('/v1/messages', body)
        self.problem(answer, 503, 'key-locked')
        self.assertIn('retry-after', answer.headers)
        batch = self.web.post('/v1/messages', {'messages': [body, dict(DUE, routing_key=self.name())]}).json['results']
        self.assertEqual([r['status'] for r in batch], [503, 201])
        self.assertEqual(batch[0]['type'], 'urn:postdate:problem:key-locked')
        session.run('rollback')
        self.assertEqual(self.web.post('/v1/messages', body).status, 201)
        self.assertEqual(self.web.get('/v1/messages/' + m['id']).json['state'], 'scheduled', 'the old id leads on')

    def test_a_locked_message_is_overloaded(self):
        m = self.schedule()
        session = self.p.session()
        self.addCleanup(session.close)
        session.run('begin')
        session.run(f"select id from postdate.message where id = '{m['id']}' for update")
        path = '/v1/messages/' + m['id']
        answers = [self.web.ask('DELETE', path), self.web.ask('PATCH', path, {'delay': '2h'})]
        bulk = self.web.post('/v1/messages:cancel', {'filter': {'routing_key': self.name()}}).json
        session.run('rollback')
        for answer in answers:
            self.problem(answer, 503, 'overloaded')
            self.assertIn('retry-after', answer.headers)
        self.assertEqual((bulk['matched'], bulk['changed']), (1, 0), 'what is locked is left out')
        self.assertEqual(self.web.get(path).json, m)

    def test_more_bodies_at_once_than_there_is_room_for(self):
        body = json.dumps(dict(DUE, routing_key=self.name(), body='x' * 7_000_000)).encode()
        head = f'POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n'
        clients = [Raw(self.address).send(head.encode() + body[:-1]) for _ in range(4)]
        answers = [c.send(body[-1:]).answer() for c in clients]
        for c in clients:
            c.close()
        self.assertEqual(sorted({a.status for a in answers}), [201, 503], answers)
        for answer in answers:
            if answer.status == 503:
                self.problem(answer, 503, 'overloaded')
        self.assertEqual(self.p.value(f"select count(*) from postdate.message_now where routing_key = '{self.name()}'"),
                         str([a.status for a in answers].count(201)))

    def test_replaced_within_one_batch(self):
        """The first one was never stored; its id leads to the one that replaced it."""
        items = [dict(DUE, routing_key=self.name(), key='deb', on_conflict='replace', body=str(i)) for i in range(3)]
        results = self.web.post('/v1/messages', {'messages': items}).json['results']
        self.assertEqual([(r['status'], r['state']) for r in results],
                         [(201, 'superseded'), (201, 'superseded'), (201, 'scheduled')])
        for r in results:
            found = self.web.get(f'/v1/messages/{r["id"]}?view=full').json
            self.assertEqual((found['id'], found['body']), (results[2]['id'], '2'))
        self.assertEqual(self.p.value(f"select count(*) from postdate.message_now where routing_key = '{self.name()}'"), '1')


@not_san
class CommitRace(LiveTest):
    def test_a_database_that_goes_away_during_the_commit(self):
        p = self.place()
        gw = p.gateway()
        gate = Gate(p)
        body = dict(DUE, routing_key='gate')
        answers = []

        def post():
            answers.append(Web(gw.http()).post('/v1/messages', body, Idempotency_Key='race'))
        # It comes back at once: the gateway looks what became of it, and stores it again.
        thread = threading.Thread(target=post)
        thread.start()
        p.psql(f'select pg_terminate_backend({gate.wait()[0]})')
        wait_until(gate.waiting, 15, 'a second try')
        gate.open()
        thread.join()
        self.assertEqual(answers[0].status, 201, answers)
        # It stays away: nobody knows, and asking again is safe.
        gate.session.run('select pg_advisory_lock(4711)')
        body['body'] = 'second'
        thread = threading.Thread(target=lambda: answers.append(
            Web(gw.http()).post('/v1/messages', body, Idempotency_Key='race-2')))
        thread.start()
        gate.wait()
        p.stack.psql(f'alter database {p.database} with allow_connections false')
        # All but the gate: its end would open it, and a commit might get through before its own end.
        p.stack.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{p.database}' and pid <> "
                     f"{gate.session.run('select pg_backend_pid()')[0][0]}")
        thread.join(40)
        p.stack.psql(f'alter database {p.database} with allow_connections true')
        gate.open()
        self.assertEqual((answers[1].status, answers[1].problem), (503, 'unknown-outcome'), answers)
        self.assertIn('retry-after', answers[1].headers)
        web = Web(gw.http())
        wait_until(lambda: web.post('/v1/messages', body, Idempotency_Key='race-2').status == 201, 20, 'the repetition')
        self.assertEqual(p.value('select count(*) from postdate.message_now'), '2')

    def start_behind_relay(self):
        p = self.place()
        relay = Relay(p.postgres)
        self.addCleanup(relay.close)
        return p, relay, p.gateway(POSTDATE_POSTGRES_URL=relay.url)

    def lose_the_answer(self, p, relay, gate):
        """The commit goes on, in a session whose client is gone; the next one meets its rows, or waits for its end."""
        gate.wait()
        relay.drop()
        wait_until(lambda: p.psql("select pid from pg_stat_activity where datname = current_database() and "
                                  "wait_event = 'transactionid' or pid in (select pid from pg_locks where "
                                  "relation = 'postdate.gate'::regclass and not granted)"), 15, 'a second try')
        gate.open()

    def test_a_commit_that_outlives_its_connection_is_answered_as_stored(self):
        p, relay, gw = self.start_behind_relay()
        answers = []
        gate = Gate(p)

        def post(number):
            answers.append(Web(gw.http()).post('/v1/messages', dict(DUE, routing_key='gate', body=str(number))))
        threads = [threading.Thread(target=post, args=(i,)) for i in range(5)]
        threads[0].start()
        gate.wait()
        for t in threads[1:]:  # they share a transaction: the second storer's
            t.start()
        gate.wait(2)
        self.lose_the_answer(p, relay, gate)
        for t in threads:
            t.join()
        self.assertEqual([a.status for a in answers], [201] * 5, answers)
        stored = p.psql('select id from postdate.message_now')
        self.assertEqual(sorted(stored), sorted([a.json['id']] for a in answers), 'each once, under the id of its answer')

    def test_what_came_by_amqp_is_not_refused_over_its_own_commit(self):
        p, relay, _ = self.start_behind_relay()
        client = p.client()
        gate = Gate(p)
        for i in range(3):
            client.publish('gate', str(i).encode(), {'x-delay': 3_600_000})
        self.lose_the_answer(p, relay, gate)
        wait_until(lambda: client.depth('postdate.intake') == 0 and sum(p.counts().values()) == 3, 15, 'all to be stored')
        self.assertEqual(client.depth('postdate.rejected'), 0)
