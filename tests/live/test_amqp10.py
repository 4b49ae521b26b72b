"""What publishers ask for by AMQP 1.0: RabbitMQ before 4.0 hands it over encoded, later ones as headers."""
import struct
import unittest

import harness
from amqp10 import Publisher, fixed, listed, mapped, sym, timestamp, uint, ulong, utf8, variable
from harness import SharedTest, now_ms, wait_until

HOUR_MS = 3_600_000
START = '''
Dir = filename:dirname(code:lib_dir(rabbit)),
[code:add_pathz(P) || N <- ["amqp10_common", "rabbitmq_amqp1_0"], P <- filelib:wildcard(Dir ++ "/" ++ N ++ "-*/ebin")],
case application:ensure_all_started(rabbitmq_amqp1_0) of {ok, _} -> code:ensure_loaded(rabbit_amqp1_0_reader), started; _ -> none end.'''


class Amqp10(SharedTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        client = cls.p.client()
        version = client.connection._impl.server_properties['version']
        version = version.decode() if isinstance(version, bytes) else version
        cls.encoded = int(version.split('.')[0]) < 4
        if cls.encoded and 'started' not in harness.stack().rabbitmqctl('eval', START):
            raise unittest.SkipTest(f'RabbitMQ {version} came without its plugin rabbitmq_amqp1_0')

    def publisher(self, key):
        name = 'exchange' if self.encoded else 'exchanges'
        p = Publisher(self.p.amqp, f'/{name}/postdate/{key}')
        self.addCleanup(p.close)
        return p

    def test_delays_of_every_kind(self):
        inbox, key = self.inbox()
        p = self.publisher(key)
        delay = 1200
        kinds = [('x-delay', v) for v in (ulong(delay), uint(delay), fixed(0x81, '>q', delay), fixed(0x71, '>i', delay),
                                          fixed(0x61, '>h', delay), fixed(0x82, '>d', delay), utf8(str(delay)))] + \
                [('x-opt-delivery-delay', v) for v in (ulong(delay), utf8(str(delay)))]
        sent = {}
        for i, (name, value) in enumerate(kinds):
            for where in ('annotations', 'properties'):
                body = b'%d %s' % (i, where.encode())
                sent[body] = now_ms(), name
                p.publish(body, **{where: [((sym if where == 'annotations' else utf8)(name), value)]})
        p.publish(b'now')
        inbox.wait(len(sent) + 1)
        for m in inbox.all():
            if m.body == b'now':
                continue
            at, name = sent[m.body]
            self.assert_on_time(m, at, delay)
            self.assertEqual(m.headers.get('x-delay'), -delay if name == 'x-delay' else None, m.body)
            self.assertNotIn('x-opt-delivery-delay', m.headers)
            self.assertFalse([h for h in m.headers if h.startswith('x-amqp-1.0-')], m.headers)

    def test_a_point_in_time_is_not_cut_to_the_second(self):
        inbox, key = self.inbox()
        p = self.publisher(key)
        at = (now_ms() + 2000) // 1000 * 1000 + 800
        p.publish(b'then', annotations=[(sym('x-opt-delivery-time'), timestamp(at))])
        m = inbox.wait(1)[0]
        self.assertGreaterEqual(m.at_ms, at)
        if self.encoded:
            self.assertEqual(m.due_ms, at)
        else:  # RabbitMQ 4 makes whole seconds of it
            self.assertEqual(m.due_ms, at // 1000 * 1000 + 999)

    def test_key_exchange_and_what_is_not_ours(self):
        inbox, key = self.inbox()
        p = self.publisher(key)
        p.publish(b'kept', annotations=[(sym('x-postdate-key'), utf8('mine')), (sym('x-delay'), ulong(HOUR_MS)), (sym('x-mine'), uint(7))],
                  properties=[(utf8('n'), fixed(0x54, '>b', 5))])
        wait_until(lambda: self.p.value("select state from postdate.messages where key = 'mine'") == 'scheduled', 10, 'it to be stored')
        self.assertEqual(self.p.cli('reschedule', '--key', 'mine', '--delay', '0s')[0], 0)
        m = inbox.wait(1)[0]
        self.assertEqual(m.body, b'kept')
        self.assertNotIn('x-postdate-key', m.headers)
        self.assertEqual(m.headers['x-delay'], -HOUR_MS)
        if self.encoded:
            sections = {name: value if isinstance(value, bytes) else value.encode() for name, value in m.headers.items()
                        if name.startswith('x-amqp-1.0-')}
            pairs = mapped([(sym('x-mine'), uint(7))])
            self.assertEqual(sections['x-amqp-1.0-message-annotations'], b'\0\x53\x72' + pairs)
            self.assertEqual(sections['x-amqp-1.0-app-properties'], b'\0\x53\x74' + mapped([(utf8('n'), b'\x54\x05')]))
        else:
            self.assertEqual((m.headers['x-mine'], m.headers['n']), (7, 5))

    def test_a_delay_that_nobody_understands_is_parked(self):
        _, key = self.inbox()
        p = self.publisher(key)
        values = {b'text': sym('soon'), b'list': listed(uint(1)), b'map': mapped([(sym('ms'), uint(1))]), b'null': b'\x40',
                  b'boolean': b'\x41'}
        # RabbitMQ 4 leaves out what AMQP 0-9-1 has no type for; before 4.2 its channel ends over it, whoever consumes.
        if self.encoded:
            values.update({b'endless': fixed(0x82, '>d', float('inf')), b'decimal': b'\x74' + struct.pack('>I', 5), b'char': b'\x73' + struct.pack('>I', 53),
                           b'binary': variable(0xa0, b'5000'), b'time': timestamp(5000)})
        for body, value in values.items():
            p.publish(body, annotations=[(sym('x-delay'), value)])
            error = self.rejected(body).headers['x-postdate-error']
            self.assertRegex(error, '^x-delay: .* is not a number of milliseconds', body)

    def test_what_nobody_could_publish_by_amqp_0_9_1_is_parked(self):
        """RabbitMQ closes the channel of who does, with all that is in flight there."""
        if self.encoded:
            self.skipTest('RabbitMQ before 4.0 makes no properties of them')
        _, key = self.inbox()
        p = self.publisher(key)
        for name in ('CC', 'BCC'):
            p.publish(name.encode(), properties=[(utf8(name), utf8('elsewhere'))])
            self.assertRegex(self.rejected(name.encode()).headers['x-postdate-error'], f'^headers: "{name}" is no array')
        p.publish(b'expires', annotations=[(sym('x-basic-expiration'), sym('soon'))])
        self.assertRegex(self.rejected(b'expires').headers['x-postdate-error'], '^expiration: "soon" is no number')

    def test_sections_that_nobody_can_read_are_parked(self):
        """RabbitMQ makes none; who publishes by AMQP 0-9-1 can write anything."""
        for name in ('x-amqp-1.0-message-annotations', 'x-amqp-1.0-app-properties'):
            self.c.publish('k', name.encode(), {name: b'\0\x53\x72\xc1\xff', 'x-delay': 5})
            self.assertRegex(self.rejected(name.encode()).headers['x-postdate-error'], f'^{name}: 5 bytes that are not ')
