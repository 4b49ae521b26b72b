"""SQL functions that race the due time, or the death of a gateway."""
import os
import threading
import time

import harness
from harness import LiveTest, now_ms, wait_until


class SqlRace(LiveTest):
    weight = 8
    rounds = int(os.environ.get('POSTDATE_CANCEL_ROUNDS', '2'))  # 50 is the full form

    @harness.given_time
    def test_200_cancels_race_200_due_times(self):
        p = self.place()
        p.gateway()
        inbox = p.consumer('q', bind='race.#')
        answers = {}
        for number in range(1 if harness.SAN else self.rounds):
            answers.update(self.round(p, number))
        settled = "select count(*) from postdate.message_now where state not in ('cancelled', 'delivered')"
        wait_until(lambda: p.value(settled) == '0', 20, 'all to be settled')
        state = dict(p.psql('select id, state from postdate.message_now'))
        wait_until(lambda: len(inbox.all()) >= sum(s == 'delivered' for s in state.values()), 10, 'all deliveries')
        arrived = [m.id for m in inbox.all()]
        self.assertEqual(len(arrived), len(set(arrived)), 'delivered once')
        for message_id, answer in answers.items():
            self.assertEqual(answer == 'cancelled', message_id not in arrived, (message_id, answer, state[message_id]))
            self.assertEqual(state[message_id], 'cancelled' if answer == 'cancelled' else 'delivered')
        if set(answers.values()) != {'cancelled', 'too_late'}:
            raise harness.TooSlow('the race was no race')

    def round(self, p, number, count=200, sessions=4):
        """Due times spread over a second; each is cancelled about half a second (the lead) before, or more."""
        due = now_ms() + 2500 * harness.slowness() * self.pace
        ids = [r[0] for r in p.psql(
            f"select id from generate_series(0, {count - 1}) i, lateral postdate.schedule('race.{number}', i::text, "
            f"due_at => timestamptz 'epoch' + ({due} + i * 5) * interval '1 ms') id order by i")]
        answers = {}

        def cancel(part):
            s = p.session()
            for i in range(part, count, sessions):
                at = due + i * 5 - 500 * self.pace - (i % 7 - 3) * 40 * self.pace
                while now_ms() < at:
                    time.sleep(0.001)
                answers[ids[i]] = s.run(f"select postdate.cancel('{ids[i]}')")[0][0]
            s.close()
        threads = [threading.Thread(target=cancel, args=(n,)) for n in range(sessions)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(len(answers), count)
        return answers

    def test_cancelling_after_a_gateway_was_killed_between_publish_and_settle(self):
        p = self.place()
        g = p.gateway()
        inbox = p.consumer('q', bind='killed')
        due = now_ms() + 2000 * harness.slowness()
        ids = [r[0] for r in p.psql(f"select postdate.schedule('killed', i::text, due_at => timestamptz 'epoch' + ({due} + i) * interval '1 ms') "
                                    "from generate_series(1, 400) i")]
        inbox.wait(100)
        g.kill9()
        answers = dict(p.psql("select id, postdate.cancel(id) from (select unnest('{%s}'::uuid[]) as id) i" % ','.join(ids)))
        self.assertIn('too_late', answers.values())
        p.gateway()
        wait_until(lambda: p.value("select count(*) from postdate.message_now where state not in ('cancelled', 'delivered')") == '0', 30, 'the rest')
        wait_until(lambda: len({m.id for m in inbox.all()}) >= sum(a == 'too_late' for a in answers.values()), 10, 'all deliveries')
        arrived = {m.id for m in inbox.all()}
        for one, answer in answers.items():
            self.assertEqual(answer == 'cancelled', one not in arrived, (one, answer))

    @harness.not_san
    @harness.given_time
    def test_replace_racing_the_due_time_delivers_exactly_one(self):
        p = self.place()
        p.gateway()
        inbox = p.consumer('q', bind='debounce')
        count, due, s = 60, now_ms() + 2500 * harness.slowness() * self.pace, p.session()
        first = [r[0] for r in p.psql(
            f"select id from generate_series(0, {count - 1}) i, lateral postdate.schedule('debounce', 'old', key => 'k' || i, "
            f"due_at => timestamptz 'epoch' + ({due} + i * 40) * interval '1 ms') id order by i")]
        second = {}
        for i in range(count):
            at = due + i * 40 - 500 * self.pace + (i % 9 - 4) * 60 * self.pace  # about the lead before: when it is claimed
            while now_ms() < at:
                time.sleep(0.001)
            out = s.run(f"select postdate.schedule('debounce', 'new', '800 ms', key => 'k{i}', on_conflict => 'replace')")
            if len(out[0][0]) == 36:
                second[first[i]] = out[0][0]
            else:
                self.assertIn('too late to replace', out[0][0])
        s.close()
        wait_until(lambda: p.value("select count(*) from postdate.message_now where state in ('scheduled', 'claimed')") == '0', 15, 'the end')
        state = dict(p.psql('select id, state from postdate.message_now'))
        wait_until(lambda: len(inbox.all()) >= sum(x == 'delivered' for x in state.values()), 10, 'all deliveries')
        arrived = [m.id for m in inbox.all()]
        self.assertEqual(len(arrived), len(set(arrived)))
        for old in first:
            if state[old] == 'superseded':
                self.assertNotIn(old, arrived)
                self.assertIn(second[old], arrived)
            else:  # refused, or replaced only after its delivery: then both are messages of their own
                self.assertIn(old, arrived)
        if {state[i] for i in first} != {'superseded', 'delivered'}:
            raise harness.TooSlow('the race was no race')
