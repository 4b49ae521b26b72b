"""Recurring schedules: each occurrence comes once, whichever gateway lives; what was missed; what people do to a schedule."""
import time

from harness import LiveTest, wait_until


class Recur(LiveTest):
    def nominals(self, inbox, name):
        return [m.headers['x-postdate-nominal'] for m in inbox.all() if m.headers.get('x-postdate-recur') == name]

    def test_two_gateways_and_one_dies(self):
        p = self.place()
        first, _ = p.gateway(), p.gateway()
        inbox = p.consumer('q', declare=True, bind='tick')
        p.psql("select postdate.recur_set('a', '@every 1s', 'tick', 'x'::text); select postdate.recur_set('b', '@every 1s', 'tick', 'y'::text)")
        began = time.monotonic()
        wait_until(lambda: len(inbox.all()) >= 4, 15, 'the first occurrences')
        first.kill9()
        time.sleep(1.5)
        p.gateway()
        time.sleep(max(0, 10 - (time.monotonic() - began)))
        p.psql("select postdate.recur_remove('a'), postdate.recur_remove('b')")
        wait_until(lambda: p.value("select count(*) from postdate.message where settled_at is null") == '0', 15, 'the last ones')
        for name in ('a', 'b'):
            came = sorted(set(self.nominals(inbox, name)))
            self.assertGreaterEqual(len(came), 9)
            self.assertEqual(came, list(range(came[0], came[-1] + 1, 1000)), f'{name}: one each second')
        # once each; what was in flight when the one died may come again, under its id
        messages = inbox.all()
        self.assertEqual(len({m.id for m in messages}), len({(m.headers['x-postdate-recur'], m.headers['x-postdate-nominal']) for m in messages}))
        self.assertLessEqual(len(messages) - len({m.id for m in messages}), 2)
        for m in messages:
            self.assertGreaterEqual(m.at_ms, m.headers['x-postdate-nominal'], 'none early')
            self.assertEqual((m.routing_key, m.body), ('tick', b'x' if m.headers['x-postdate-recur'] == 'a' else b'y'))
