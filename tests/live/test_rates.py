"""A rate says how many messages a second an exchange gets at most: the others wait in the database, in the order of due times."""
import json

import harness
import plan_kit
from harness import LiveTest, now_ms, wait_until
from handover_kit import metric


SLACK_MS = 1000  # what is late is made up for at once, and slots of what RabbitMQ held count from its release on


def before_their_slots(times_ms, from_ms, rate):
    """Those that came before so many slots had passed since then: however late some come, none does."""
    return [(i, at - from_ms) for i, at in enumerate(sorted(times_ms)) if at < from_ms + i * 1000 / rate - SLACK_MS]


def burst(p, count, exchange='postdate.delivery', key='k', delay='1 s'):
    """They are due in one millisecond; the body says which one it is in the order of ids. Returns when, in ms."""
    p.psql(f"""with at as (select date_trunc('second', now()) + interval '{delay}' + interval '500 ms' as due)
        select count(postdate.schedule('{key}', i::text, due_at => at.due, exchange => '{exchange}')) from generate_series(1, {count}) i, at""")
    return int(p.value("select max(extract(epoch from due) * 1000)::bigint from postdate.message"))


# That a row is set aside takes a millisecond, on every machine: 20,000 of them take longer than a message of another exchange.
SLOWLY_ASIDE = """
create function slowly() returns trigger language plpgsql as 'begin perform pg_sleep(0.001); return null; end';
create trigger slowly after update on postdate.message for each row when (old.rate is null and new.rate is not null) execute function slowly()"""


class Rates(LiveTest):
    def test_a_burst_comes_at_the_rate_and_in_order(self):
        p = self.place()
        p.psql("select postdate.rate_set('postdate.delivery', 200)")
        p.gateway()
        c = p.consumer('q', declare=True, bind='k')
        p.client().queue('other', 'o')
        due = burst(p, 1000)
        c.wait(1000, 30)
        times = [m.at_ms for m in c.all()]
        self.assertGreaterEqual(min(times), due)
        self.assertEqual(before_their_slots(times, due, 200), [])
        ids = [m.properties.headers['x-postdate-id'] for m in c.all()]
        # All are due in one millisecond: a row that is passed over for a moment comes a second later at most.
        place = {id: n for n, id in enumerate(sorted(ids))}
        self.assertEqual([id for n, id in enumerate(ids) if abs(place[id] - n) > 200], [])

    def test_what_waits_can_be_cancelled_and_says_until_when(self):
        p = self.place()
        p.psql("select postdate.rate_set('postdate.delivery', 10)")
        p.gateway()
        c = p.consumer('q', declare=True, bind='k')
        burst(p, 100)
        c.wait(10, 20)
        last = p.value("select id from postdate.message where rate is not null order by id desc limit 1")
        at = float(p.value(f"select extract(epoch from postdate.rate_slot('{last}') - now())"))
        self.assertTrue(5 < at < 10, at)
        self.assertEqual(p.value(f"select postdate.cancel('{last}')"), 'cancelled')
        cancelled = int(p.value("select count(postdate.cancel(id)) from (select id from postdate.message where rate is not null order by id desc limit 50) m"))
        self.assertEqual(cancelled, 50)
        c.wait(49, 20)
        wait_until(lambda: p.value("select count(*) from postdate.message_now where state in ('scheduled', 'claimed')") == '0', 10, 'the end')
        self.assertEqual(len(c.all()), 49)

    def test_a_pause_and_a_change_count_at_once(self):
        p = self.place()
        p.psql("select postdate.rate_set('postdate.delivery', 50)")
        p.gateway()
        c = p.consumer('q', declare=True, bind='k')
        burst(p, 1000)
        c.wait(50, 20)
        p.psql("select postdate.rate_pause('postdate.delivery')")
        wait_until(lambda: p.value("select count(*) from postdate.message_now where state = 'claimed'") == '0', 10, 'what had its slot')
        had = p.counts()['delivered']
        c.wait(had, 10)  # what is settled may be on its way
        paused = now_ms()
        wait_until(lambda: now_ms() - paused > 2000, 10, 'two seconds of nothing')
        self.assertEqual(len(c.all()), had)
        changed = now_ms()
        p.psql("select postdate.rate_set('postdate.delivery', 400)")
        c.wait(1000, 20)
        self.assertEqual(before_their_slots(sorted(m.at_ms for m in c.all())[had:], changed, 400), [])
        p.psql("select postdate.rate_set('postdate.delivery', 1)")
        burst(p, 300)
        c.wait(1001, 20)
        self.assertEqual(p.value("select postdate.rate_remove('postdate.delivery')"), 't')
        c.wait(1300, 20)

    def test_one_rate_delays_no_other_exchange(self):
        p = self.place()
        p.gateway()
        client = p.client()
        client.channel.exchange_declare('slow', 'topic')
        c = p.consumer('q', declare=True, bind='k')
        s = p.consumer('s', declare=True, bind='k', exchange='slow')
        p.psql("select postdate.rate_set('sl*', 50)")
        burst(p, 3000, exchange='slow', delay='3 s')
        due = burst(p, 500, delay='3 s')
        c.wait(500, 20)
        late = sorted(m.at_ms - due for m in c.all())
        print(f'note {self.id()}: the other exchange waited {late[250]} ms, at most {late[-1]} ms', flush=True)
        self.assertLess(len(s.all()), 1500)
        self.assertLess(late[-1], 15_000)  # behind those of the slow one it would be 60 s

    def test_what_rabbitmq_held_already_waits_as_well(self):
        p = self.place()
        p.gateway()
        client = p.client()
        c = p.consumer('q', declare=True, bind='k')
        client.publish_burst('k', [str(i).encode() for i in range(300)], {'x-delay': 5000})
        wait_until(lambda: p.value("select count(*) from postdate.message where state = 'handed'") == '300', 10, 'the hand-over')
        p.psql("select postdate.rate_set('postdate.delivery', 100)")
        c.wait(300, 30)
        due = float(p.value('select extract(epoch from min(due)) * 1000 from postdate.message'))
        self.assertEqual(before_their_slots([m.at_ms for m in c.all()], due, 100), [])
        self.assertEqual(len({m.body for m in c.all()}), 300)
        client.publish('k', b'later', {'x-delay': 60000})
        wait_until(lambda: p.value("select count(*) from postdate.message_now where state = 'scheduled'") == '1', 10, 'it is held by the gateway')

    def due_at_once(self, p, count, exchange='slow', delay='0.1 s'):
        p.psql(f"""with at as (select clock_timestamp() + interval '{delay}' as due)
            select count(postdate.schedule('k', 'x'::text, due_at => at.due, exchange => '{exchange}')) from generate_series(1, {count}) i, at""")

    def waits(self, p, count):
        wait_until(lambda: p.value('select count(*) from postdate.message where rate is not null') == str(count), 30, f'{count} to wait for slots')

    def test_what_somebody_has_locked_keeps_no_other_rate(self):
        p = self.place()
        p.psql("select postdate.rate_set('slow', 1)")
        p.psql("select postdate.rate_set('postdate.delivery', 50)")
        p.psql("select postdate.rate_pause('slow')")
        p.gateway()
        c = p.consumer('q', declare=True, bind='k')
        self.due_at_once(p, 1)
        self.waits(p, 1)
        s = p.session()
        s.run('begin')
        s.run('select postdate.cancel(id) from postdate.message where rate is not null')
        p.psql("select postdate.rate_resume('slow')")
        burst(p, 100)
        c.wait(100, 15)
        s.run('rollback')
        wait_until(lambda: p.value("select count(*) from postdate.message where rate is not null") == '0', 10, 'its slot')

    def test_a_crowd_that_is_set_aside_and_let_go_delays_no_other(self):
        """Due at once, so that it is claimed row by row, and due later, in ranges; then its rate goes."""
        p = self.place()
        client = p.client()
        client.channel.exchange_declare('slow', 'topic')
        p.psql("select postdate.rate_set('slow', 1)")
        p.psql("select postdate.rate_pause('slow')")
        p.gateway()
        c = p.consumer('q', declare=True, bind='k')

        def beside(what, left):
            """Ten of another exchange meanwhile: the first ones do not wait for the whole crowd. left: how many of it have not had their turn."""
            took, lefts = [], []
            for i in range(10):
                began, n = now_ms(), len(c.all())
                client.publish('k', what.encode(), {'x-delay': 0})
                c.wait(n + 1, 120)
                lefts.append(left())
                took.append(now_ms() - began)
            print(f'note {self.id()}: {what}: at most {max(took):.0f} ms; left after each: {lefts}', flush=True)
            self.assertGreater(lefts[1], 0, what)
            return lefts
        p.psql(SLOWLY_ASIDE)
        self.due_at_once(p, 20000)
        lefts = beside('beside 20,000 that are due', lambda: int(p.value("select count(*) from postdate.message where exchange = 'slow' and rate is null")))
        p.psql('drop trigger slowly on postdate.message')
        # A thousand at a time: somebody gets between two times.
        self.assertLessEqual(min((a - b for a, b in zip(lefts, lefts[1:]) if a > b), default=0), 2000, lefts)
        self.due_at_once(p, 20000, delay='5 s')
        due = burst(p, 50, delay='5 s')
        c.wait(60, 30)
        print(f'note {self.id()}: between 20,000 of the same second: at most {max(m.at_ms for m in c.all()) - due:.0f} ms', flush=True)
        self.waits(p, 40000)
        s = p.consumer('s', declare=True, bind='k', exchange='slow')
        p.psql("select postdate.rate_remove('slow')")
        beside('beside 40,000 that are let go', lambda: 40000 - len(s.all()))
        wait_until(lambda: p.value("select count(*) from postdate.message_now where state in ('scheduled', 'claimed')") == '0', 60, 'all of them')

    def test_a_burst_is_made_up_for_at_once(self):
        p = self.place()
        p.psql("select postdate.rate_set('postdate.delivery', 10, 200)")
        p.psql("update postdate.rate set slot_at = now() - interval '100 s'")
        p.gateway()
        c = p.consumer('q', declare=True, bind='k')
        due = burst(p, 230)
        c.wait(230, 20)
        times = sorted(m.at_ms for m in c.all())
        self.assertLess(times[199] - times[0], 10_000)  # without what was saved it would be 20 s
        self.assertGreater(times[229] - due, 2000)

    def test_a_database_that_takes_long(self):
        p = self.place()
        p.psql("select postdate.rate_set('postdate.delivery', 20)")
        p.psql("""create or replace function postdate.rate_first(r postdate.rate, now_at timestamptz) returns timestamptz language plpgsql as
            $$ begin perform pg_sleep(0.3); return greatest(r.slot_at, now_at); end $$""")
        p.gateway()
        c = p.consumer('q', declare=True, bind='k')
        burst(p, 60, delay='2 s')
        c.wait(60, 30)

    def test_the_forecast_knows_how_long_it_takes(self):
        p = self.place()
        p.gateway()
        p.psql("select postdate.rate_set('sl*', 10)")
        p.psql("select postdate.rate_set('paused', 0)")
        for exchange, count in (('slow', 3000), ('paused', 10), ('postdate.delivery', 700)):
            p.psql(f"select count(postdate.schedule('k', 'x'::text, delay => '20 minutes', exchange => '{exchange}')) from generate_series(1, {count})")

        def bursts(*options):
            return {b.get('rate_of'): b for b in json.loads(p.cli('forecast', '--json', '--step', '1m', *options)[1])['bursts']}
        wait_until(lambda: 'paused' in bursts(), 30, 'the count')
        self.assertIsNone(bursts()['paused']['drain_ms'])
        p.psql("select count(postdate.cancel(id)) from postdate.message where exchange = 'paused'")
        wait_until(lambda: 'sl*' in bursts(), 30, 'the count')
        self.assertEqual(bursts()['sl*']['drain_ms'], 300_000)
        self.assertEqual(bursts('--what-if', 'slow=20/s')['slow']['drain_ms'], 150_000)
        self.assertEqual(bursts('--what-if', 'slow=200/s'), {})
        p.psql("select postdate.rate_remove('sl*')")
        self.assertEqual(bursts(), {})
        self.assertAlmostEqual(bursts('--what-if', 'x=1/s', '--what-if', 's*w=1/min')['s*w']['drain_ms'] / 60_000, 3000, delta=0.1)
        code, _, err = p.cli('forecast', '--what-if', 'slow')
        self.assertEqual(code, 64)
        self.assertIn('EXCHANGE=RATE', err)


@harness.not_san
class RateOfThree(LiveTest):
    weight = 5

    def test_three_gateways_share_a_rate_though_one_dies_and_one_stands_still(self):
        count = 20000 if harness.FULL else 8000
        p = self.place()
        p.psql("select postdate.rate_set('postdate.delivery', 1000)")
        gateways = [p.gateway() for _ in range(3)]
        c = p.consumer('q', declare=True, bind='k')
        due = burst(p, count, delay='4 s')
        c.wait(count // 8, 30)
        gateways[0].kill9()
        c.wait(count // 4, 30)
        gateways[1].pause()
        c.wait(count // 2, 60)
        gateways[1].resume()
        wait_until(lambda: len({m.id for m in c.all()}) == count, 60, 'all of them')
        first = {}
        for m in c.all():
            first.setdefault(m.id, m.at_ms)
        print(f'note {self.id()}: {count} in {(max(first.values()) - due) / 1000:.2f} s, {len(c.all()) - count} of them twice', flush=True)
        self.assertGreaterEqual(min(first.values()), due)
        self.assertEqual(before_their_slots(first.values(), due, 1000), [])


class RateSlots(LiveTest):
    """What a slot is, and how it is lost."""

    def test_a_slot_that_a_wrong_clock_gave_is_no_slot(self):
        """It stood a day ahead, and 0 of 40 messages came in 38 s."""
        p = self.place()
        p.psql("select postdate.rate_set('postdate.delivery', 20)")
        p.psql("update postdate.rate set slot_at = clock_timestamp() + interval '1 day', from_id = postdate.id_floor(clock_timestamp() + interval '1 day')")
        p.gateway()
        c = p.consumer('q', declare=True, bind='k')
        burst(p, 40)
        c.wait(40, 30)
        self.assertEqual(p.value("select slot_at < clock_timestamp() + interval '10 s' from postdate.rate"), 't')

    def test_a_rate_far_above_the_load_delays_nothing(self):
        """What was claimed ahead of its time had a higher id than what was due at once, which was found every two seconds only."""
        p = self.place()
        p.psql("select postdate.rate_set('postdate.delivery', 100000)")
        p.gateway()
        c = p.consumer('q', declare=True, bind='k')
        behind = []
        for i in range(1, 21):
            p.psql("select postdate.schedule('k', 'ahead', delay => '480 ms')")
            wait_until(lambda: p.value('select owner from postdate.message where settled_at is null') != '', 10, 'it to be claimed', interval_s=0.005)
            p.psql("select postdate.schedule('k', 'now', delay => '0 s')")
            late_ms = {m.body: m.at_ms - m.due_ms for m in c.wait(2 * i, 30)[-2:]}
            wait_until(lambda: p.value('select count(*) from postdate.message where settled_at is null') == '0', 10, 'both to be settled')
            behind.append(late_ms[b'now'] - late_ms[b'ahead'])
        self.assertLess(sorted(behind)[10], 1000, behind)

    def test_a_slow_rate_keeps_its_slot_when_the_gateway_comes_late(self):
        """It was lost a quarter of a second after its time, and the next one was 30 s later."""
        p = self.place(transport='timer')
        g = p.gateway(POSTDATE_DELIVERY_LEAD='5s')
        c = p.consumer('q', declare=True, bind='k')
        for i in range(1, 10):
            p.psql("select postdate.rate_set('postdate.delivery', 0.0333)")  # there is a slot now
            due = burst(p, 1, delay='5 s')
            wait_until(lambda: p.value('select owner from postdate.message where settled_at is null') != '', 10, 'it to be claimed', interval_s=0.005)
            g.pause()
            wait_until(lambda at=due: now_ms() > at + 1500, 30, 'its slot to be old')
            g.resume()
            late = c.wait(i, 60)[-1].at_ms - due
            if late > 1000:  # it was not published before the gateway stood still
                break
        self.assertTrue(1000 < late < 20000, late)


class RateDeadlines(LiveTest):
    """A deadline that passes before a slot comes ends the message then."""

    def test_a_deadline_that_passes_under_a_paused_rate_ends_it_then(self):
        p = self.place()
        p.psql("select postdate.rate_set('postdate.delivery', 0)")
        g = p.gateway()
        c = p.consumer('q', declare=True, bind='k')
        p.psql("select count(postdate.schedule('k', 'x'::text, delay => '0.5 s', deadline => now() + interval '5 s', key => 'key ' || i)) from generate_series(1, 100) i")
        p.psql("select postdate.schedule('k', 'live'::text, delay => '0.5 s')")
        wait_until(lambda: p.value('select count(*) from postdate.message where rate is not null') == '101', 30, 'them to wait for slots')
        self.assertEqual(p.cli('list', '--state', 'scheduled', '--limit', '5')[1].count('scheduled'), 5)
        self.assertEqual(p.psql("select distinct next_at = due_at from postdate.messages where state = 'scheduled'"), [['t']])
        wait_until(lambda: p.counts() == {'expired': 100, 'scheduled': 1}, 30, 'them to expire')
        self.assertEqual(p.psql("select distinct settled_at > deadline, attempts, error from postdate.message_now where state = 'expired'"),
                         [['t', '0', 'the deadline passed before it was published']])
        self.assertEqual(metric(g, 'postdate_messages_expired_total'), 100)
        p.psql("select postdate.schedule('k', 'again', delay => '0.1 s', key => 'key 1', on_conflict => 'reject')")  # their keys are free
        p.psql("select postdate.schedule('k', 'past', delay => '0 s', deadline => clock_timestamp() + interval '50 ms')")  # it may be past when it would wait
        wait_until(lambda: p.counts() == {'expired': 101, 'scheduled': 2}, 30, 'what had none to wait for')
        self.assertEqual(c.all(), [])
        p.psql("select postdate.rate_set('postdate.delivery', 100)")
        c.wait(2, 20)
        self.assertEqual({m.body for m in c.all()}, {b'live', b'again'})

    def test_a_slot_that_lies_beyond_the_deadline(self):
        """It ends at its deadline, not at the slot, 1000 s later, and takes none."""
        p = self.place()
        p.psql("select postdate.rate_set('postdate.delivery', 0.001)")
        p.gateway()
        c = p.consumer('q', declare=True, bind='k')
        burst(p, 1)
        c.wait(1, 30)
        slot_at = p.value('select slot_at from postdate.rate')
        p.psql("select count(postdate.schedule('k', 'x'::text, delay => '0.5 s', deadline => now() + interval '2 s')) from generate_series(1, 10) i")
        wait_until(lambda: p.counts() == {'delivered': 1, 'expired': 10}, 30, 'them to expire')
        self.assertEqual(p.value('select slot_at from postdate.rate'), slot_at)

    def test_a_slot_is_not_given_to_what_expires_before_it(self):
        """Slots are given ahead: who is second would wait for the next one, 1000 s later."""
        p = self.place()
        p.psql("insert into postdate.instance (running_since, backend_pid, version, name) values (now(), 1, 1, 'g')")
        p.psql("select postdate.rate_set('postdate.delivery', 0.001)")
        p.psql("select postdate.schedule(k, 'x'::text, delay => '0 s', deadline => d) from (values ('doomed', now() + interval '60 s'), ('second', null)) v (k, d)")
        p.psql("update postdate.message set rate = (select id from postdate.rate), next_at = 'infinity'")
        p.psql("update postdate.rate set slot_at = (select max(deadline) from postdate.message) + interval '10 s'")
        text = plan_kit.statements()['claim_rate']
        values = ('1000', '1000000', '(select id from postdate.instance)', *(f"'{c * 8}-0000-0000-0000-000000000000'" for c in '0f'), 'true', '120000', '(select id from postdate.rate)')
        for n, value in enumerate(values, 1):
            text = text.replace(f'${n}::', f'({value})::')
        self.assertEqual([row[7] for row in p.psql(text)], ['second'])
        self.assertEqual(p.value("select slot_at > now() + interval '1000 s' from postdate.rate"), 't')
