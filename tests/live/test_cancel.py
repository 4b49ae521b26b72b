"""An answer `cancelled` means: never delivered."""
import time
import uuid

import harness
from harness import LiveTest, SharedTest, now_ms, wait_until


class Cancel(SharedTest):
    def schedule(self, key, delay, body='x', **options):
        args = [f'--{k}={v}' for k, v in options.items()]
        out = self.p.run('schedule', '-k', key, '--delay', delay, '--body', body, *args)
        return out.strip()

    def state(self, message_id):
        return self.p.value(f"select state from postdate.message_now where id = '{message_id}'")

    def test_cancelled_before_due_never_arrives(self):
        inbox, key = self.inbox()
        message_id = self.schedule(key, '2s', 'cancelled')
        self.assertEqual(self.p.cli('cancel', message_id)[0], 0)
        self.assertEqual(self.state(message_id), 'cancelled')
        later = self.schedule(key, '2s', 'later')
        self.assertEqual([m.id for m in inbox.wait(1)], [later])
        self.assertEqual(self.p.cli('cancel', message_id)[0], 0, 'asking again gives the same answer')

    def test_cancel_erases_the_body(self):
        _, key = self.inbox()
        message_id = self.schedule(key, '1h', 'a secret')
        where = f"where id = '{message_id}'"
        self.assertEqual(self.p.value(f"select convert_from(body, 'UTF8') from postdate.message_now {where}"), 'a secret')
        self.assertEqual(self.p.cli('cancel', message_id)[0], 0)
        self.assertEqual(self.p.psql(f'select octet_length(body) from postdate.message_now {where}'), [['0']])

    def test_after_delivery_it_is_too_late(self):
        inbox, key = self.inbox()
        message_id = self.schedule(key, '100ms')
        inbox.wait(1)
        wait_until(lambda: self.state(message_id) == 'delivered', 5, 'the settlement')
        for _ in range(2):
            rc, out, err = self.p.cli('cancel', message_id)
            self.assertEqual(rc, 1)
            self.assertRegex(out + err, r'too.late')
        self.assertEqual(self.state(message_id), 'delivered')

    def test_an_unknown_id_is_not_found(self):
        _, key = self.inbox()
        real = self.schedule(key, '1h')
        unknown = real[:-4] + ('0000' if real[-4:] != '0000' else '1111')
        rc, out, err = self.p.cli('cancel', unknown)
        self.assertEqual(rc, 66)
        self.assertIn(unknown, out + err)
        self.assertIn(self.p.cli('cancel', str(uuid.uuid4()))[0], (64, 66), 'an id of somebody else')
        self.assertEqual(self.p.cli('cancel', '--key', 'no-such-key')[0], 66)

    def test_several_ids_at_once(self):
        _, key = self.inbox()
        ids = [self.schedule(key, '1h') for _ in range(3)]
        self.assertEqual(self.p.cli('cancel', *ids)[0], 0)
        self.assertEqual([self.state(i) for i in ids], ['cancelled'] * 3)

    def test_a_plain_amqp_message_is_cancelled_by_its_id_too(self):
        inbox, key = self.inbox()
        self.c.publish(key, b'plain', {'x-delay': 60_000, 'x-postdate-hold': 'gateway'})
        query = f"select id from postdate.message_now where routing_key = '{key}'"
        message_id = wait_until(lambda: self.p.value(query), 5, 'the stored message')
        self.assertEqual(self.p.cli('cancel', message_id)[0], 0)
        self.assertEqual(self.state(message_id), 'cancelled')
        self.assertEqual(inbox.all(), [])

    def test_what_rabbitmq_holds_is_not_cancelled_but_says_so(self):
        inbox, key = self.inbox()
        self.c.publish(key, b'plain', {'x-delay': 3500})
        query = f"select id from postdate.message_now where routing_key = '{key}' and state = 'handed'"
        message_id = wait_until(lambda: self.p.value(query), 3, 'the message to be handed over')
        rc, out, _ = self.p.cli('cancel', message_id)
        self.assertEqual((rc, out.strip()), (1, f'{message_id} too late'))
        self.assertEqual(inbox.wait_body(b'plain').id, message_id)


@harness.not_san
class CancelRace(LiveTest):
    weight = 8

    @harness.given_time
    def test_cancelling_at_the_due_instant_is_cancelled_or_delivered_never_both(self):
        p = self.place()
        p.gateway()
        inbox = p.consumer('q', bind='race')
        count, at_once = (60, 6) if harness.SAN else (200, 8)
        lead_ms = 500 * self.pace
        due = now_ms() + (3000 + lead_ms) * harness.slowness()
        c = p.client()
        for i in range(count):
            c.publish('race', str(i).encode(), {'x-postdate-at': due, 'x-postdate-hold': 'gateway'})
        wait_until(lambda: p.value('select count(*) from postdate.message_now') == str(count), 10, 'all to be stored')
        ids = [row[0] for row in p.psql('select id from postdate.message_now order by id')]
        answers = self.cancel_around(p, ids, due, at_once, lead_ms)
        settled = "select count(*) from postdate.message_now where state in ('cancelled', 'delivered')"
        wait_until(lambda: p.value(settled) == str(count), 15, 'all to be settled')
        state = dict(p.psql('select id, state from postdate.message_now'))
        arrived = [m.id for m in inbox.wait(sum(rc == 1 for rc in answers.values()))]
        self.assertEqual(len(arrived), len(set(arrived)), 'delivered once')
        for i in ids:
            self.assertIn(answers[i], (0, 1))
            self.assertEqual(state[i], 'cancelled' if answers[i] == 0 else 'delivered')
            self.assertEqual(i in arrived, answers[i] == 1)
        if set(answers.values()) != {0, 1}:
            raise harness.TooSlow('the race was no race')

    def cancel_around(self, p, ids, due_ms, at_once, lead_ms):
        """Cancels each id by a process of its own, from lead_ms before they are claimed until they are due; {id: exit code}."""
        answers, waiting, running = {}, list(ids), {}
        margin_ms = 300
        begin_ms, span_ms = due_ms - lead_ms - margin_ms, lead_ms + margin_ms
        its_turn = lambda: now_ms() >= begin_ms + (len(ids) - len(waiting)) * span_ms // len(ids)  # noqa: E731
        while waiting or running:
            while waiting and len(running) < at_once and its_turn():
                i = waiting.pop(0)
                running[i] = p.start_cli('cancel', i)
            for i, process in list(running.items()):
                if process.poll() is not None:
                    process.communicate()
                    answers[i] = process.returncode
                    del running[i]
            time.sleep(0.001)
        return answers
