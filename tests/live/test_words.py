"""What is nearly right is named for what it is, and no advice means something else than was meant."""
import json
import os
import tempfile

from harness import LiveTest, now_ms, wait_until


class CronWords(LiveTest):
    vhosts = 0

    def setUp(self):
        super().setUp()
        self.p = self.place()

    def refused(self, cron):
        rc, out, err = self.p.cli('recur', 'preview', '--cron', cron, '-n', '1')
        self.assertEqual((rc, out), (65, ''), cron)
        return err

    def test_quartz(self):
        """Its question mark stands beside weekdays that count from 1 for Sunday."""
        words = self.refused('0 0 12 ? * 2')
        self.assertIn('read TUE; Quartz, where 1 is Sunday, reads MON.', words)
        self.assertIn('read SUN; Quartz, where 1 is Sunday, reads SAT.', self.refused('0 0 12 ? * 7'))
        self.assertIn('read TUE-SAT; Quartz, where 1 is Sunday, reads MON-FRI.', self.refused('0 0 12 ? * 2-6'))
        self.assertIn('--dialect quartz', words)
        for cron in ('0 0 12 ? * MON-FRI', '0 0 12 2 * ?'):
            self.assertEqual(self.p.cli('recur', 'preview', '--cron', cron, '-n', '1')[0], 0, cron)

    def test_24_is_midnight(self):
        words = self.refused('0 24 * * *')
        self.assertIn('hour "24" is out of range', words)
        self.assertIn('Midnight is 0. The nearest right one: "0".', words)
        self.assertIn('The nearest right one: "0".', self.refused('60 * * * *'))
        self.assertIn('The nearest right one: "23".', self.refused('0 25 * * *'))
        self.assertIn('The nearest right one: "0-23".', self.refused('0 0-24 * * *'))
        self.assertIn('The nearest right one: "7".', self.refused('0 0 * * 8'))

    def test_a_time_zone_in_front(self):
        for front in ('TZ=Europe/Berlin', 'CRON_TZ="Europe/Berlin"', 'tz = Europe/Berlin'):
            words = self.refused(front + ' 0 9 * * *')
            self.assertIn('the time zone is no part of the expression', words)
            self.assertIn('--zone on the command line', words)
            self.assertIn('The nearest right one: "0 9 * * *" with the zone "Europe/Berlin".', words)
        self.assertIn('--zone', self.refused('TZ=nonsense'))

    def test_characters_that_look_like_others(self):
        words = self.refused('0 9\u00a0* * *')
        self.assertIn('the character U+00A0 at column 4 is not understood', words)
        self.assertIn('a blank of another kind', words)
        self.assertIn('The nearest right one: "0 9 * * *".', words)
        self.assertIn('The nearest right one: "0 9 * * mon-fri".', self.refused('0 9 * * mon\u2013fri'))
        self.assertIn('the character U+2217 at column 5', self.refused('0 9 \u2217 * *'))

    def test_yaml_without_quotes(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'schedules.yaml')
            for cron in ('*/5 * * * *', '* * * * *', '*a * * * *', '@every 90s', '@daily'):
                with open(path, 'w', encoding='utf-8') as f:
                    f.write(f'schedules:\n  a:\n    cron: {cron}\n    routing_key: k\n    body: x\n')
                rc, _, err = self.p.cli('recur', 'apply', path)
                self.assertEqual(rc, 65, err)
                self.assertRegex(err, r'line 3: .* \(in YAML a text that begins with \* or @ needs quotes: cron: "\*/5 \* \* \* \*"\)')

    def test_a_byte_order_mark(self):
        line = json.dumps({'routing_key': 'k', 'delay': '1h', 'body': 'x'}) + '\n'
        rc, out, err = self.p.cli('schedule', '--batch', '-', stdin=b'\xef\xbb\xbf' + 2 * line.encode())
        self.assertEqual((rc, self.p.counts()), (0, {'scheduled': 2}), out + err)
        rc, _, err = self.p.cli('schedule', '--batch', '-', stdin=line.encode() + b'\xef\xbb\xbf' + line.encode())
        self.assertEqual(rc, 1, 'in the middle it is an error: ' + err)
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (('a.yaml', 'schedules: {a: {cron: "0 9 * * *", routing_key: k, body: x}}'),
                               ('b.json', '{"schedules": {"b": {"cron": "0 9 * * *", "routing_key": "k", "body": "x"}}}')):
                path = os.path.join(folder, name)
                with open(path, 'wb') as f:
                    f.write(b'\xef\xbb\xbf' + text.encode())
                rc, out, err = self.p.cli('recur', 'apply', path)
                self.assertEqual(rc, 0, out + err)

    def test_names_of_headers_in_any_case_by_sql(self):
        for name in ('X-Delay', 'X-Postdate-Key', 'x-Opt-Delivery-Time'):
            with self.assertRaisesRegex(AssertionError, f'{name} is reserved'):
                self.p.psql(f"select postdate.schedule('k', 'x'::text, delay => '1 h', headers => '{{\"{name}\": 1}}')")
            rc, _, err = self.p.cli('schedule', '-k', 'k', '--delay', '1h', '--body', 'x', '--header', f'{name}=1')
            self.assertEqual(rc, 65, err)
            self.assertIn('is reserved', err)


class HeaderWords(LiveTest):
    def test_names_of_headers_in_any_case(self):
        p = self.place()
        p.gateway()
        inbox = p.consumer('q', bind='k')
        c, began = p.client(), now_ms()
        c.publish('k', b'later', {'X-Delay': 1500, 'X-Postdate-Key': 'mine', 'X-Own': 'kept'})
        c.publish('k', b'second', {'X-OPT-Delivery-Delay': '1500', 'X-POSTDATE-ON-CONFLICT': 'reject', 'x-postdate-KEY': 'mine'})
        self.assertIn("x-postdate-key: 'mine'", c.wait_get('postdate.rejected').headers['x-postdate-error'])
        m = inbox.wait_body(b'later')
        self.assertGreaterEqual(m.at_ms, began + 1500)
        self.assertEqual({k: v for k, v in m.headers.items() if k.lower() not in ('x-postdate-id', 'x-postdate-due')},
                         {'x-delay': -1500, 'X-Own': 'kept'})
        wait_until(lambda: p.counts() == {'delivered': 1}, 10, 'it to be settled')


class TurkishWords(LiveTest):
    vhosts = 0

    def test_great_letters_in_a_turkish_database(self):
        """There lower('FRI') is no 'fri'."""
        p = self.place(migrate=False)
        if int(p.value('show server_version_num')) < 150000:
            self.skipTest('ICU for a whole database came with PostgreSQL 15')
        p.asker.close()
        p.stack.psql(f'drop database {p.database}')
        p.stack.psql(f"create database {p.database} owner postdate template template0 locale_provider icu icu_locale 'tr-TR'")
        p.migrate()
        self.assertNotEqual(p.value("select lower('FRI')"), 'fri')
        for name in ('X-OPT-DELIVERY-TIME', 'X-POSTDATE-ID', 'X-DELAY'):
            with self.assertRaisesRegex(AssertionError, f'{name} is reserved'):
                p.psql(f"select postdate.schedule('k', 'x'::text, delay => '1 h', headers => '{{\"{name}\": 1}}')")
        for great in ('0 9 * * FRI', '@DAILY', '@EVERY 1MIN'):
            self.assertEqual(*(p.cli('recur', 'preview', '--cron', cron, '-n', '1')[:2] for cron in (great, great.lower())))
        self.assertEqual(p.value("select postdate.zone_check('asia/istanbul')"), 'Asia/Istanbul')
