"""What RabbitMQ lets go of late, for the first time, is published as it is: nobody can have taken it for lost yet."""
import threading

from handover_kit import RUNGS, handover
from harness import LiveTest, now_ms, wait_until

COUNT = 300
# Whoever claims a row takes back the time of its rescue.
LOOKED_UP = 'select count(*) from postdate.message_now where next_at <= due'


class RelayLate(LiveTest):
    weight = 20
    time_limit_s = 300

    def hold_rungs(self, p, from_ms, until_ms):
        """The process of each queue of the ladder stands still meanwhile; what waits there has little way to go then."""
        names = ', '.join(f'<<"{queue}">>' for queue in RUNGS)
        p.eval_queue('postdate.exit', f'Ps = [amqqueue:get_pid(R) || N <- [{names}], {{ok, R}} <- [rabbit_amqqueue:lookup(rabbit_misc:r(<<"{p.vhost}">>, queue, N))]], '
                     f'Wait = fun(T) -> timer:sleep(max(0, T - erlang:system_time(millisecond))) end, '
                     f'Wait({from_ms}), [sys:suspend(P, infinity) || P <- Ps], Wait({until_ms}), [sys:resume(P, infinity) || P <- Ps].')

    def test_what_comes_late_for_the_first_time_is_not_looked_up(self):
        """Each of them was claimed in the database first, so a drain that was slow became slower."""
        p = self.place()
        p.gateway(**handover('ttl', grace='20s'))
        inbox, c = p.consumer('q', bind='k'), p.client()
        due_ms = now_ms() + 25000
        for i in range(COUNT):
            c.publish('k', str(i).encode(), headers={'x-delay': max(due_ms - now_ms(), 1)})
        wait_until(lambda: p.counts() == {'handed': COUNT}, 20, 'all to be handed over')
        self.assertEqual(p.value(LOOKED_UP), '0')
        thread = threading.Thread(target=self.hold_rungs, args=(p, due_ms - 1500, due_ms + 13000))  # past due and half the grace
        thread.start()
        inbox.wait(COUNT, 90)
        thread.join()
        wait_until(lambda: p.counts() == {'delivered': COUNT}, 20, 'all to be settled')
        self.assertGreater(now_ms(), due_ms + 11000)
        self.assertEqual(len(inbox.all()), COUNT)
        looked_up = int(p.value(LOOKED_UP))
        print(f'note relay late: {COUNT} came 13 s late, {looked_up} were looked up')
        self.assertEqual(looked_up, 0)
