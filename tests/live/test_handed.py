"""What RabbitMQ may wait for goes there as soon as it is stored: it is stored as handed, and noted until RabbitMQ has it."""
import os

import harness
from handover_kit import handover, who_held
from harness import LiveTest, wait_until

SHIM = os.path.join(harness.ROOT, 'build', 'tests', 'shim.so')
UNDER_WAY = 'select count(*) from postdate.handing'


class Handed(LiveTest):
    transport = 'ttl'

    def publish(self, p, count, delay_ms, key='k'):
        c = p.client()
        for i in range(count):
            # With a message-id: what RabbitMQ gives to another gateway, for it was not acknowledged, is stored once.
            c.publish(key, b'%d' % i, {'x-delay': delay_ms}, message_id=f'{key} {i}')

    def warm_up(self, p):
        """The feeder has looked when this is over."""
        c = p.client()
        c.queue('first', 'first')
        c.publish('first', b'first', {'x-delay': 1000})
        wait_until(lambda: p.counts() == {'delivered': 1}, 10, 'the first one')

    def assert_all_there(self, p, inbox, count):
        """Without the grace, which is an hour. Once, where there was time for RabbitMQ's copy to come first."""
        wait_until(lambda: len({m.body for m in inbox.all()}) == count, 60, f'{count} to arrive')
        wait_until(lambda: p.counts() == {'delivered': count}, 20, 'all to be settled')
        wait_until(lambda: p.value(UNDER_WAY) == '0', 20, 'the hand-overs to be over')
        late = max(m.at_ms - m.due_ms for m in inbox.all())
        print(f'note handed: {count} arrived, {len(inbox.all()) - count} of them twice, the last one {late:.0f} ms late', flush=True)
        self.assertGreaterEqual(min(m.at_ms - m.due_ms for m in inbox.all()), 0)
        if late < 1800:
            self.assertEqual(len(inbox.all()), count)


class Rewritten(Handed):
    def rewritten(self, p):
        return int(p.value("select sum(n_tup_upd) from pg_stat_user_tables where schemaname = 'postdate' and relname ~ '^message_[0-9]'"))

    def test_a_row_is_rewritten_once_when_it_is_delivered(self):
        p = self.place()
        g = p.gateway(**handover(self.transport))
        inbox = p.consumer('q', bind='k')
        self.warm_up(p)
        before = self.rewritten(p)
        self.publish(p, 300, 3000)
        self.assert_each_was_held(p, inbox)
        self.assertEqual(g.term(), 0)
        wait_until(lambda: self.rewritten(p) - before >= 300, 10, 'what the settler did to be counted')
        self.assertLess(self.rewritten(p) - before, 330)

    def assert_each_was_held(self, p, inbox):
        inbox.wait(300, 20)
        self.assertEqual(set(who_held(p, inbox.all()).values()), {'broker'})


@harness.not_san
class Deaths(Handed):
    """The next gateway delivers on time what was on its way: RabbitMQ may have it or not."""

    def ends_at(self, point, count=50):
        p = self.place()
        options = handover(self.transport)
        first = p.gateway(LD_PRELOAD=SHIM, POSTDATE_CRASH=f'{point}:1', **options)
        inbox = p.consumer('q', bind='k')
        self.publish(p, count, 6000)
        wait_until(lambda: first.lines_with(f'died at {point}'), 15, f'it to die at {point}')
        p.gateway(**options)
        self.assert_all_there(p, inbox, count)

    def test_before_the_first_byte_is_written(self):
        self.ends_at('handover.before')

    def test_when_some_of_it_is_written(self):
        self.ends_at('handover.half')

    def test_before_it_knows_that_rabbitmq_has_it(self):
        self.ends_at('handover_confirm.before')

    def test_when_rabbitmq_has_it_and_the_database_does_not_know(self):
        self.ends_at('handed.before')


@harness.not_san
class Ways(Handed):
    def test_a_gateway_whose_instance_was_taken_over_hands_over_nothing_under_it(self):
        p = self.place()
        p.gateway(**handover(self.transport))
        inbox = p.consumer('q', bind='k')
        self.warm_up(p)
        s = p.session()
        s.run('begin')
        s.run('delete from postdate.instance')  # while it is not committed, the gateway does not know
        self.publish(p, 20, 4000)
        s.run('commit')
        s.close()
        self.publish(p, 20, 4000)
        inbox.wait(40, 20)
        wait_until(lambda: p.counts() == {'delivered': 41}, 10, 'all to be settled')
        wait_until(lambda: p.value(UNDER_WAY) == '0', 15, 'the hand-overs to be over')
        self.assertEqual(len(inbox.all()), 40)

    def test_each_of_a_batch_that_postgres_refuses_as_a_whole(self):
        """They are stored one by one, each with a hand-over of its own."""
        p = self.place()
        p.psql("""create function postdate.t() returns trigger language plpgsql as $$ begin
                  if new.routing_key = 'bad' then raise check_violation using message = 'not here'; end if; return new; end $$;
                  create trigger t before insert on postdate.message for each row execute function postdate.t()""")
        p.gateway(**handover(self.transport))
        inbox = p.consumer('q', bind='k')
        self.warm_up(p)
        instance = p.value('select id from postdate.instance')
        c = p.client()
        for i in range(40):
            c.publish('bad' if i % 10 == 5 else 'k', b'%d' % i, {'x-delay': 3000})
        inbox.wait(36, 20)
        wait_until(lambda: p.counts() == {'delivered': 37}, 10, 'all to be settled')
        self.assertEqual(p.client().depth('postdate.rejected'), 4)
        self.assertEqual(p.value('select id from postdate.instance'), instance, 'the gateway gave up its claims over it')
        wait_until(lambda: p.value(UNDER_WAY) == '0', 10, 'the hand-overs to be over')

    def is_cut_at(self, point):
        p = self.place()
        g = p.gateway(LD_PRELOAD=SHIM, POSTDATE_CUT=f'{point}:2', **handover(self.transport))
        inbox = p.consumer('q', bind='k')
        self.warm_up(p)
        self.publish(p, 1, 4000)
        wait_until(lambda: g.lines_with(f'cut at {point}'), 10, 'the cut')
        inbox.wait(1, 20)
        wait_until(lambda: p.counts() == {'delivered': 2}, 10, 'it to be settled')
        wait_until(lambda: p.value(UNDER_WAY) == '0', 10, 'the hand-over to be over')
        self.assertEqual(len(inbox.all()), 1)

    def test_a_connection_that_is_cut_before_it_commits(self):
        """Stored or not, nobody knows at first; it is handed over once."""
        self.is_cut_at('accept.before')

    def test_a_connection_that_is_cut_when_it_has_committed(self):
        self.is_cut_at('accept.after')

    def test_a_locked_day_keeps_no_other_hand_over_of_a_dead_gateway(self):
        p = self.place()
        g = p.gateway(LD_PRELOAD=SHIM, POSTDATE_CRASH='handover.before:1', **handover(self.transport, window='26h'))
        p.client().publish('k', b'today', {'x-delay': 5000})
        p.client().publish('k', b'tomorrow', {'x-delay': 25 * 3600_000})
        wait_until(lambda: g.lines_with('died at handover.before'), 15, 'it to die')
        day = p.value("select tableoid::regclass from postdate.message where body = 'tomorrow'")
        s = p.session()
        s.run('begin')
        s.run(f'lock table {day} in access exclusive mode')
        inbox = p.consumer('q', bind='k')
        p.gateway(**handover(self.transport, window='26h'))
        inbox.wait_body(b'today', 20)
        s.run('rollback')
        s.close()
        wait_until(lambda: p.value(f"{UNDER_WAY} h where not exists (select from postdate.instance i where i.id = h.owner)") == '0', 40, 'the other one')
