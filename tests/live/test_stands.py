"""How a message stands is judged once: under its lock, before anything is answered."""
import threading

import harness
from harness import LiveTest, wait_until
from store_kit import NOT_LOOKED_AT

FENCE_IS_OVER = "select last_value >= postdate.id_ms('{0}') from postdate.fence"


class JudgedOnce(LiveTest):
    who_waits = 'timer'

    def schedule(self, p, key='null'):
        return p.value(f"select postdate.schedule('k', 'old', due_at => clock_timestamp() + interval '{3 * harness.slowness()} s', key => {key})")

    def assert_only_the_new_one_lives(self, p, inbox, old):
        wait_until(lambda: p.value(f"select state from postdate.message_now where id = '{old}'") not in ('scheduled', 'claimed'), 10, 'the old one')
        self.assertEqual(p.value(f"select state from postdate.message_now where id = '{old}'"), 'superseded')
        wait_until(lambda: p.value(NOT_LOOKED_AT) == '0', 10, 'all to be looked at')
        self.assertNotIn(b'old', [m.body for m in inbox.all()])

    def test_what_is_rescheduled_while_the_new_day_is_locked_does_not_come_at_its_old_time(self):
        p = self.place(max_delay='40d')
        g = p.gateway()
        inbox = p.consumer('q', bind='k')
        day = p.day(p.value("select ((now() + interval '20 d') at time zone 'utc')::date"))
        old, held, caller = self.schedule(p), p.session(), p.session()
        held.run('begin')
        held.run(f'lock table postdate.{day} in exclusive mode')
        answers = []
        t = threading.Thread(target=lambda: answers.append(caller.run(f"select postdate.reschedule('{old}', '20 d')")))
        t.start()
        wait_until(lambda: p.value(FENCE_IS_OVER.format(old)) == 't', 10, 'it to be too late for others')
        held.run('rollback')
        t.join()
        self.assertEqual(answers, [[['rescheduled']]])
        self.assert_only_the_new_one_lives(p, inbox, old)
        self.assertEqual(g.term(), 0)

    def test_a_key_is_not_replaced_when_it_has_become_too_late_meanwhile(self):
        """The intake looks, and then replaces. Here a claim comes in between."""
        p = self.place()
        g = p.gateway()
        inbox = p.consumer('q', bind='k')
        p.psql('alter function postdate.keys_standing(uuid[], bigint) rename to keys_standing_at_once')
        p.psql("create function postdate.keys_standing(ids uuid[], memory_ms bigint) returns text[] language plpgsql as $$ begin "
               "while (select last_value < postdate.id_ms(k.id) from postdate.fence, postdate.key k where k.key = 'one') loop perform pg_sleep(0.01); end loop; "
               "return postdate.keys_standing_at_once(ids, memory_ms); end $$")
        old = self.schedule(p, key="'one'")
        p.client().publish('k', b'new', {'x-delay': 100, 'x-postdate-key': 'one', 'x-postdate-on-conflict': 'replace'})
        inbox.wait(1, 20)
        wait_until(lambda: p.value("select count(*) from postdate.message_now where state in ('scheduled', 'claimed')") == '0', 10, 'the end')
        self.assertEqual([m.body for m in inbox.all()], [b'old'])
        self.assertEqual(p.value(f"select state from postdate.message_now where id = '{old}'"), 'delivered')
        self.assertEqual(g.term(), 0)
