"""What rightly keeps work back has a name and a count wherever an operator looks: it does not look alive."""
import json
import re

from harness import LiveTest, wait_until
from web import described, ready_address


class Held(LiveTest):
    def test_a_schedule_whose_last_one_is_dead_and_what_is_paused(self):
        p = self.place()
        gateway = p.gateway()
        web = described(self, ready_address(gateway))
        c = p.client()
        c.queue('dead', bind='dead', arguments={'x-dead-letter-exchange': 'postdate.retry'})
        p.psql("select postdate.retry_policy_set('dead', 1, '1 s', 1, '1 s', 0)")
        p.psql("select postdate.recur_set('stands', '@every 1s', 'dead', 'x'::text, overlap => 'skip')")
        p.psql("select postdate.recur_set('paused', '@every 1s', 'none', 'x'::text), postdate.recur_set('fine', '@daily', 'none', 'x'::text, overlap => 'skip')")
        p.psql("select postdate.recur_pause('paused')")

        def refused():
            method, _, _ = c.channel.basic_get('dead')
            if method:
                c.channel.basic_reject(method.delivery_tag, requeue=False)
            return p.value("select left_out >= 2 and last_state = 'dead' from postdate.recurring where name = 'stands'") == 't'
        wait_until(refused, 30, 'two to be left out after the one that is dead')
        self.assertEqual(p.psql("select name, held_by from postdate.recurring order by name"), [['fine', ''], ['paused', 'pause'], ['stands', 'overlap']])
        rows = {line.split()[0]: line for line in p.cli('recur', 'list')[1].splitlines()}
        self.assertRegex(rows['stands'], r' left out +\d+ s ago, dead, \d+ left out since$')
        self.assertRegex(rows['paused'], ' paused ')
        self.assertNotRegex(rows['fine'], 'left out')
        self.assertRegex(p.cli('recur', 'show', 'stands')[1], r'held by +the last occurrence, which is dead')
        one = web.get('/v1/recurring/stands').json
        self.assertEqual((one['held_by'], one['left_out'] >= 2, web.get('/v1/recurring/fine').json['held_by']), ('overlap', True, None))

        p.psql("select postdate.rate_set('slow', 1), postdate.rate_pause('slow')")
        for _ in range(3):
            p.psql("select postdate.schedule('k', 'x', '0 s', exchange => 'slow')")

        def held():
            h = json.loads(p.cli('status', '--json')[1])['held']
            return h['messages_waiting'] == 3 and h
        h = wait_until(held, 20, 'what waits for the paused rate')
        self.assertEqual({k: v for k, v in h.items() if k != 'occurrences_left_out'}, {
            'schedules_paused': 1, 'first_paused': 'paused', 'schedules_behind': 1, 'first_behind': 'stands', 'rates_paused': 1, 'first_rate': 'slow', 'messages_waiting': 3})
        self.assertGreaterEqual(h['occurrences_left_out'], 2)
        self.assertRegex(p.cli('status')[1], r'held back +1 schedules left out \d+ occurrences.*\n +1 schedules are paused.*\n +3 messages by 1 paused rates')
        out = p.cli('doctor')[1]
        self.assertRegex(out, r"warn +recurring.behind +1 schedules left out \d+ occurrences.*the first: 'stands'")
        self.assertRegex(out, r"ok +recurring.paused +1, the first: 'paused'")
        self.assertRegex(out, r"ok +rates.paused +1, which keep 3 messages; the first: exchange 'slow'")
        seen = wait_until(lambda: (web.get('/v1/overview').json['held'] or {}).get('messages_waiting') == 3 and web.get('/v1/overview').json, 20, 'the overview')
        self.assertIn('recurring.behind', {f['name'] for f in seen['findings']})
        self.assertEqual((seen['held']['first_behind'], seen['held']['rates_paused']), ('stands', 1))
        metrics = web.get('/metrics').body.decode()
        for line in ('recurring_held{by="pause"} 1', 'recurring_held{by="overlap"} 1', 'rates_paused 1', 'rates_paused_messages 3'):
            self.assertIn(f'\npostdate_{line}\n', metrics)
        self.assertGreaterEqual(int(re.search(r'\npostdate_recurring_left_out (\d+)', metrics)[1]), 2)

        p.psql("select postdate.dead_drop(id, queue) from postdate.lineage where died_at is not null")
        wait_until(lambda: p.value("select held_by is null and left_out = 0 from postdate.recurring where name = 'stands'") == 't', 20, 'it to go on')
