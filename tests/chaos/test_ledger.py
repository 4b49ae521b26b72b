"""Does the ledger catch what it is there for? Each test plants something."""
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import ledger  # noqa: E402
import record  # noqa: E402
import refusals  # noqa: E402
from judge import AFTERMATH_US  # noqa: E402

T0_US = 1_800_000_000_000_000
T0_MS = T0_US // 1000
ID = '01a1fd7f-c516-826d-94d7-{:012x}'


class Ledger(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix='ledger-')
        self.addCleanup(shutil.rmtree, self.directory)
        self.sent = record.Writer(self.directory, 'c1')
        self.seen = record.Writer(self.directory, 'c1', 'seen')
        self.addCleanup(self.sent.close)
        self.addCleanup(self.seen.close)

    # --- lines -------------------------------------------------------------------------------------------------
    def attempt(self, n, due_ms, at_us=T0_US):
        self.sent.write([f'A c1-h1-{n} {at_us} http postdate.delivery k {due_ms}'])
        return f'c1-h1-{n}'

    def accept(self, n, due_ms=T0_MS + 1000, at_us=T0_US):
        ref = self.attempt(n, due_ms, at_us)
        self.sent.write([f'K {ref} {at_us + 500} {ID.format(n)} {due_ms}'])
        return ref

    def deliver(self, n, at_us=T0_US + 1_000_500, again='0', verdict='ok', key='k', exchange='postdate.delivery', id_of=None):
        ref, n = (n, 0) if isinstance(n, str) else (f'c1-h1-{n}', n)
        id_ = ID.format(n if id_of is None else id_of)
        self.seen.write([f'D {ref} {at_us} {again} {id_} {verdict} {exchange} {key}'])

    def tried(self, n, attempt, at_us, queue_type='quorum', again='0', id_of=None):
        """A delivery to a consumer that rejects by chance."""
        ref = f'c1-h1-{n}'
        exchange = 'postdate.delivery' if attempt == 1 else 'postdate.return'
        answer = 'rejected' if record.rejects(ref, attempt) else 'accepted'
        self.seen.write([f'D {ref} {at_us} {again} {ID.format(n if id_of is None else id_of)} ok {exchange} k {attempt} {answer} '
                         f'{queue_type}'])

    def try_until(self, n, last, **more):
        """Accepted by the gateway, delivered so often; when it came the last time."""
        self.accept(n)
        at_us = T0_US + 1_000_500
        for attempt in range(1, last + 1):
            self.tried(n, attempt, at_us, **more)
            at_us += 1000 * record.retry_wait_ms(attempt)
        return at_us - 1000 * record.retry_wait_ms(last)

    def die(self, n, failed=record.RETRY_ATTEMPTS, reason='rejected', verdict='ok', key='k', id_of=None):
        dead = record.Writer(self.directory, 'c1', 'dead')
        dead.write([f'X c1-h1-{n} {T0_US + 9_000_000} {ID.format(n if id_of is None else id_of)} {failed} {reason} {verdict} '
                    f'postdate.delivery {key}'])
        dead.close()

    def answer(self, *lines):
        self.sent.write(lines)

    def add_fault(self, *fault):
        faults = record.Faults(self.directory)
        faults.add(*fault)
        faults.close()

    # --- the verdict -------------------------------------------------------------------------------------------
    def judge(self, **expected):
        """All findings must be as expected: {finding: [refs]}, none elsewhere."""
        verdict = ledger.judge(self.directory)
        found = {name: sorted(x.split(': ')[0] for x in named) for name, named in verdict['named'].items() if named}
        self.assertEqual(found, expected)
        self.assertEqual({k: verdict['total'][k] for k in expected}, {k: len(v) for k, v in expected.items()})
        return verdict

    def command(self):
        return subprocess.run([sys.executable, os.path.join(HERE, 'ledger.py'), 'judge', self.directory],
                              stdout=subprocess.PIPE, check=False)

    def test_what_a_promoted_standby_had_not_is_counted_apart(self):
        self.add_fault(T0_US - 1000, T0_US + 900_000, 'postgres.lag_promoted', '*')
        self.accept(1)
        self.accept(2)
        self.answer(f'C c1-h1-2 {T0_US + 1000} http', f'c c1-h1-2 {T0_US + 2000} cancelled')
        self.deliver(2)
        self.accept(3, T0_MS + 1000)
        self.answer(f'M c1-h1-3 {T0_US + 1000} {T0_MS + 3000}', f'm c1-h1-3 {T0_US + 2000} ok')
        self.deliver(3)
        total = self.judge()['total']
        self.assertEqual({k: total[k] for k in ('lost_by_lag', 'undone_by_lag', 'lost', 'early')},
                         {'lost_by_lag': 1, 'undone_by_lag': 2, 'lost': 0, 'early': 0})

    def test_what_a_lag_delivered_may_be_cancelled_until_gateways_have_said_so(self):
        self.add_fault(T0_US, T0_US + 1_000_000, 'postgres.lag_promoted', '*')
        for number, seen_us, answered_us in ((1, 900_000, 1_200_000), (2, 900_000, 7_000_000), (3, 2_100_000, 1_200_000)):
            self.accept(number, T0_MS + 500, T0_US - 5_000_000)
            self.answer(f'C c1-h1-{number} {T0_US + answered_us - 100} http', f'c c1-h1-{number} {T0_US + answered_us} cancelled')
            self.deliver(number, T0_US + seen_us)
        self.assertEqual(self.judge(cancelled_delivered=['c1-h1-2', 'c1-h1-3'])['total']['undone_by_lag'], 1)

    def test_a_lag_excuses_nothing_that_was_answered_before_or_after(self):
        self.add_fault(T0_US + 30_000_000, T0_US + 31_000_000, 'postgres.lag_promoted', '*')
        self.accept(1)
        self.accept(2, T0_MS + 41_000, T0_US + 32_000_000)
        self.accept(3)
        self.answer(f'C c1-h1-3 {T0_US + 1000} http', f'c c1-h1-3 {T0_US + 2000} cancelled')
        self.deliver(3)
        self.judge(lost=['c1-h1-1', 'c1-h1-2'], cancelled_delivered=['c1-h1-3'])

    def test_all_well(self):
        for n in range(10):
            self.accept(n)
            self.deliver(n, T0_US + 1_000_000 + n * 1000)
        verdict = self.judge()
        self.assertEqual((verdict['total']['accepted'], verdict['total']['delivered']), (10, 10))
        self.assertEqual(verdict['lateness_ms']['all']['max'], 9.0)
        self.assertEqual(verdict['broken'], {})
        self.assertEqual(self.command().returncode, 0)

    def test_a_loss(self):
        self.accept(0)
        self.deliver(0)
        ref = self.accept(1)
        self.assertEqual(self.judge(lost=[ref])['broken'], {'lost': 1})
        done = self.command()
        self.assertEqual(done.returncode, 1)
        self.assertIn(b'lost: c1-h1-1: accepted at', done.stdout)
        self.assertTrue(max(len(x) for x in done.stdout.splitlines()) <= 80, done.stdout)

    def test_where_rabbitmq_delivers_a_loss_is_counted_and_its_exchange_is_seen(self):
        self.accept(0)
        self.accept(1)
        self.deliver(1, exchange='postdate.last')
        verdict = ledger.judge(self.directory, ['c1', 'other'])
        self.assertEqual((verdict['total']['lost'], verdict['tolerated_losses'], verdict['broken']), (1, 1, {}))
        self.assertTrue(ledger.text_of(verdict).endswith('verdict: kept (1 lost where RabbitMQ does the last hop)'))
        self.assertEqual(ledger.judge(self.directory, ['other'])['broken'], {'lost': 1, 'mangled': 1})

    def test_an_empty_ledger_proves_nothing(self):
        self.assertEqual(self.judge()['broken'], {'nothing_accepted': 1})

    def test_early_by_a_microsecond(self):
        self.accept(0)
        self.accept(1)
        self.deliver(0, T0_US + 1_000_000)
        self.deliver(1, T0_US + 999_999)
        self.judge(early=['c1-h1-1'])

    def test_early_because_the_database_s_clock_was_set_forward(self):
        """Excused: what it counted before, or a point in time; by as much as it was set. Not what it counted from then on."""
        def early(n, sent_us, *at):
            self.sent.write([f'A c1-h1-{n} {sent_us} http postdate.delivery k {T0_MS + 5000}' + ''.join(at),
                             f'K c1-h1-{n} {sent_us + 500} {ID.format(n)} -'])
            self.deliver(n, T0_US + 3_500_000)
        early(0, T0_US)
        early(1, T0_US + 1_000_000)
        early(2, T0_US + 1_000_000, ' at')
        early(3, T0_US + 2_500_000, ' at')
        self.add_fault(T0_US + 500_000, T0_US + 2_000_000, 'clock.database', '*', 'ahead 1600 ms')
        self.accept(4, T0_MS + 5000)
        self.deliver(4, T0_US + 3_399_000)
        self.judge(early=['c1-h1-1', 'c1-h1-3', 'c1-h1-4'])

    def test_early_the_second_time(self):
        self.accept(0)
        self.deliver(0, T0_US + 1_000_000)
        self.deliver(0, T0_US + 900_000)
        self.judge(early=['c1-h1-0'], duplicated=['c1-h1-0'], unprovoked=['c1-h1-0'])

    def test_relative_delays_tolerate_less_than_a_millisecond(self):
        self.assertEqual(record.lo_ms(T0_US + 999, 200), T0_MS + 200)
        self.assertEqual(record.lo_ms(T0_US + 1000, 200), T0_MS + 201)

    def test_a_duplicate_is_put_down_to_the_latest_fault_of_its_cell(self):
        self.add_fault(T0_US + 100, T0_US + 200, 'kill', 'c1', 'a detail')
        self.add_fault(T0_US + 1_000_600, T0_US + 1_000_700, 'cut', '*')
        self.add_fault(T0_US + 1_000_800, T0_US + 1_000_900, 'pause', 'c2')
        self.accept(0)
        self.deliver(0)
        self.deliver(0, T0_US + 1_001_000)
        verdict = self.judge(duplicated=['c1-h1-0'])
        self.assertEqual(verdict['broken'], {})
        self.assertEqual({k: v['duplicates'] for k, v in verdict['kinds'].items()}, {'kill': 0, 'cut': 1, 'pause': 0})
        self.assertEqual(verdict['duplicate_farthest_after_fault_ms'], 0.3)

    def test_a_duplicate_without_a_fault(self):
        self.accept(0)
        self.deliver(0)
        self.deliver(0)
        self.assertEqual(self.judge(duplicated=['c1-h1-0'], unprovoked=['c1-h1-0'])['broken'], {'unprovoked': 1})

    def test_a_fault_that_was_over_before_a_message_was_sent_excuses_no_duplicate(self):
        self.add_fault(T0_US - 9000, T0_US - 8000, 'kill', 'c1')
        self.accept(0, T0_MS, T0_US - 7000)
        self.deliver(0, T0_US + 1000)  # the kill is recovered from
        for n, sent_us in ((1, T0_US), (2, T0_US + 1000 + AFTERMATH_US), (3, T0_US + 1001 + AFTERMATH_US)):
            self.accept(n, T0_MS, sent_us)
            self.deliver(n, sent_us + 2000)
            self.deliver(n, sent_us + 3000)
        self.judge(duplicated=['c1-h1-1', 'c1-h1-2', 'c1-h1-3'], unprovoked=['c1-h1-3'])

    def test_what_the_queue_delivers_again_is_no_duplicate(self):
        for n in range(4):
            self.accept(n)
        for again in '0', '1', '2':
            self.deliver(0, again=again)
        for again in '0', 'r', 'r':
            self.deliver(1, again=again)
        for again in '0', '0', '1', '1':  # two copies, each of them twice
            self.deliver(2, again=again)
        self.deliver(3, again='1')
        verdict = self.judge(duplicated=['c1-h1-2'], unprovoked=['c1-h1-2'])
        self.assertEqual(verdict['total']['redelivered'], 6)

    def test_a_second_copy_under_another_id(self):
        self.accept(0)
        self.deliver(0)
        self.deliver(0, again='1', id_of=77)
        self.judge(duplicated=['c1-h1-0'], unprovoked=['c1-h1-0'], other_id=['c1-h1-0'])

    def test_another_id_than_the_answer_said(self):
        self.accept(0)
        self.deliver(0, id_of=77)
        self.judge(other_id=['c1-h1-0'])

    def test_cancels(self):
        refs = [self.accept(n) for n in range(4)]
        for ref, answer in zip(refs, ('cancelled', 'cancelled', 'too_late', 'unknown')):
            self.answer(f'C {ref} {T0_US} http', f'c {ref} {T0_US} {answer}')
        self.deliver(1)
        verdict = self.judge(cancelled_delivered=[refs[1]], lost=[refs[2]])
        self.assertEqual(verdict['total']['excused'], 1)
        self.assertEqual(self.command().returncode, 1)

    def test_a_cancel_in_doubt_that_then_was_too_late(self):
        ref = self.accept(0)
        later_us = T0_US + 31_000_000
        self.answer(f'C {ref} {T0_US} http', f'c {ref} {T0_US} unknown', f'C {ref} {later_us} sql', f'c {ref} {later_us} too_late')
        self.judge(lost=[ref])

    def test_a_cancel_that_was_too_late_while_another_is_at_work(self):
        """The one without an answer waits for a lock; a message that is released meanwhile is cancelled by it."""
        ref = self.accept(0)
        later_us = T0_US + 6_000_000
        self.answer(f'C {ref} {T0_US} http', f'C {ref} {later_us} http', f'c {ref} {later_us} too_late')
        verdict = self.judge()
        self.assertEqual(verdict['total']['excused'], 1)

    def test_a_cancel_answered_both_ways(self):
        ref = self.accept(0)
        self.answer(f'c {ref} {T0_US} cancelled', f'c {ref} {T0_US} too_late')
        self.judge(contradicted=[ref])

    def test_superseded(self):
        refs = [self.accept(n) for n in range(8)]
        self.answer(*(f'P {refs[old]} {T0_US} {refs[old + 1]} asked' for old in (0, 2, 4)),
                    f'P {refs[0]} {T0_US} {refs[1]} yes', f'P {refs[2]} {T0_US} {refs[3]} no')
        for n in (0, 1, 3, 5, 7):
            self.deliver(n)
        # 4 may have been replaced: nobody knows. 6 was replaced when it was due already, and 7 took the free key.
        self.answer(f'P {refs[6]} {T0_US + 2_000_000} {refs[7]} yes')
        self.deliver(6)
        verdict = self.judge(superseded_delivered=[refs[0]], lost=[refs[2]])
        self.assertEqual(verdict['total']['excused'], 1)

    def test_superseded_after_a_delivery_that_the_databases_clock_made_early(self):
        refs = [self.accept(n, T0_MS + 1000) for n in range(2)]
        self.add_fault(T0_US + 100_000, T0_US + 900_000, 'clock.database', '*', 'ahead 3000 ms')
        self.deliver(0, T0_US + 500_000)
        self.answer(f'P {refs[0]} {T0_US + 600_000} {refs[1]} asked', f'P {refs[0]} {T0_US + 610_000} {refs[1]} yes')
        self.deliver(1)
        self.judge()

    def test_rescheduled(self):
        refs = [self.accept(n) for n in range(5)]
        later = T0_MS + 3000
        for ref, answer in zip(refs, ('ok', 'ok', 'too_late', 'unknown')):
            self.answer(f'M {ref} {T0_US} {later}', f'm {ref} {T0_US} {answer}')
        # In doubt, then moved for good: the first may still be done after the second.
        self.answer(f'M {refs[4]} {T0_US} {T0_MS + 2000}', f'm {refs[4]} {T0_US} unknown',
                    f'M {refs[4]} {T0_US} {later}', f'm {refs[4]} {T0_US} ok')
        self.deliver(0)
        self.deliver(1, later * 1000, id_of=99)
        self.deliver(2)
        self.deliver(3)
        self.deliver(4, T0_US + 2_000_000)
        self.judge(early=[refs[0]])

    def test_refused_ones_must_not_arrive(self):
        refs = [self.attempt(n, T0_MS) for n in range(3)]
        self.answer(*(f'R {ref} {T0_US} rollback' for ref in refs[:2]))
        self.answer(f'U {refs[2]} {T0_US} lost', f'R {refs[2]} {T0_US} overloaded')  # the first try stays in doubt
        self.accept(3)
        self.deliver(3)
        self.deliver(1)
        self.deliver(2)
        verdict = self.judge(refused_delivered=[refs[1]])
        self.assertEqual((verdict['total']['refused'], verdict['total']['unknown_arrived']), (2, 1))

    def test_unknown_ones(self):
        self.accept(9)
        self.deliver(9)
        for n in range(4):
            self.answer(f'U {self.attempt(n, T0_MS)} {T0_US} connection')
        self.answer(f'K c1-h1-3 {T0_US} {ID.format(3)} {T0_MS}')  # asked again
        self.deliver(0)
        self.deliver(2)
        self.deliver(2)
        verdict = self.judge(duplicated=['c1-h1-2'], unprovoked=['c1-h1-2'], lost=['c1-h1-3'])
        self.assertEqual((verdict['total']['unknown'], verdict['total']['unknown_arrived']), (3, 2))

    def test_mangled(self):
        for n in range(5):
            self.accept(n)
        self.deliver(0)
        self.deliver(1, verdict='bad')
        self.deliver(2, key='other')
        self.deliver(3, exchange='elsewhere')
        self.deliver(4, exchange='postdate.ttl.exit')  # where the broker's waiting ends is no way to consumers
        self.deliver('c1-h1-555')
        self.deliver('nonsense')
        verdict = self.judge(mangled=['c1-h1-1', 'c1-h1-2', 'c1-h1-3', 'c1-h1-4', 'c1-h1-555', 'nonsense'], lost=['c1-h1-1'])
        self.assertIn('lost', verdict['broken'])

    # --- consumers that reject ---------------------------------------------------------------------------------
    @staticmethod
    def numbers(*pattern):
        """Numbers of messages whose first attempts are rejected (True) and accepted as the pattern says."""
        return (n for n in range(100_000)
                if all(record.rejects(f'c1-h1-{n}', at) == rejected for at, rejected in enumerate(pattern, 1)))

    def test_rejected_until_accepted_or_dead(self):
        for n, last in zip((next(self.numbers(*[True] * k, False)) for k in range(4)), range(1, 5)):
            self.try_until(n, last)
        dead = next(self.numbers(True, True, True, True))
        self.try_until(dead, 4)
        self.die(dead)
        verdict = self.judge()
        self.assertEqual({k: verdict['total'][k] for k in ('delivered', 'rejected', 'dead', 'lost_by_queue')},
                         {'delivered': 5, 'rejected': 4, 'dead': 1, 'lost_by_queue': 0})
        self.assertEqual(verdict['broken'], {})

    def test_a_rejected_one_is_lost(self):
        dead = self.numbers(True, True, True, True)
        lost = [next(self.numbers(True, False)), next(dead), next(dead)]
        for n, last in zip(lost, (1, 3, 4)):
            self.try_until(n, last)
        self.try_until(next(self.numbers(False)), 1)
        self.assertEqual(self.judge(lost=sorted(f'c1-h1-{n}' for n in lost))['broken'], {'lost': 3})

    def test_what_a_classic_queue_loses_with_the_broker_is_counted_apart(self):
        some = self.numbers(True, True)
        early, classic, quorum, gateway = (next(some) for _ in range(4))
        at_us = self.try_until(classic, 2, queue_type='classic')
        self.try_until(quorum, 2)
        self.add_fault(at_us + 100_000, at_us + 200_000, 'rabbitmq.kill', '*')
        self.add_fault(at_us + 100_000 + 20_000_000, at_us + 200_000 + 20_000_000, 'gateway.kill', 'c1')
        for n, at_us in ((early, at_us - 2 * AFTERMATH_US), (gateway, at_us + 20_000_000)):
            self.accept(n, T0_MS - 60_000, T0_US - 60_000_000)
            self.tried(n, 1, at_us, queue_type='classic')
        verdict = self.judge(lost=sorted(f'c1-h1-{n}' for n in (early, quorum, gateway)))
        self.assertEqual(verdict['total']['lost_by_queue'], 1)
        self.assertIn('(1 lost by a classic queue that RabbitMQ took along)', ledger.text_of(verdict))

    def test_an_attempt_too_many(self):
        n = next(self.numbers(True, True, True, True, False))
        self.try_until(n, 5)
        self.assertEqual(self.judge(over_attempts=[f'c1-h1-{n}'])['broken'], {'over_attempts': 1})

    def test_attempts_that_are_counted_wrong(self):
        accepted, gap, again = next(self.numbers(True, False)), next(self.numbers(True, True, False)), self.numbers(False, False)
        self.try_until(accepted, 2)
        self.die(accepted)
        self.accept(gap)
        self.tried(gap, 1, T0_US + 1_000_500)
        self.tried(gap, 3, T0_US + 3_000_500)
        unasked, never = next(again), next(again)
        self.try_until(unasked, 2)  # its first attempt was accepted
        self.try_until(never, 1)
        self.die(never)
        dead = self.numbers(True, True, True, True)
        fewer, more, reason, soon = (next(dead) for _ in range(4))
        for n in (fewer, more, reason):
            self.try_until(n, 4)
        self.try_until(soon, 3)
        self.die(fewer, 3)
        self.die(more, 5)
        self.die(reason, reason='queue_gone')
        self.die(soon)
        self.judge(miscounted=sorted(f'c1-h1-{n}' for n in (accepted, gap, unasked, never, fewer, more, reason, soon)))

    def test_a_dead_letter_with_another_content(self):
        some = self.numbers(True, True, True, True)
        body, route, id_of = (next(some) for _ in range(3))
        for n in (body, route, id_of):
            self.try_until(n, 4)
        self.die(body, verdict='bad')
        self.die(route, key='other')
        self.die(id_of, id_of=77)
        self.die(555)
        self.judge(mangled=sorted((f'c1-h1-{body}', f'c1-h1-{route}', 'c1-h1-555')), other_id=[f'c1-h1-{id_of}'],
                   lost=[f'c1-h1-{body}'])

    def test_an_attempt_twice_early_or_under_another_id(self):
        some = self.numbers(True, False)
        twice, excused, again, early, other = (next(some) for _ in range(5))
        for n in (twice, again):
            at_us = self.try_until(n, 2)
            self.tried(n, 2, at_us + 1000, again='1' if n == again else '0')
        for n, wait_us, id_of in ((early, 198_000, early), (other, 200_000, 77)):
            self.accept(n)
            self.tried(n, 1, T0_US + 1_000_500)
            self.tried(n, 2, T0_US + 1_000_500 + wait_us, id_of=id_of)
        begun_us = T0_US + 10 * AFTERMATH_US
        self.accept(excused, begun_us // 1000, begun_us)
        self.add_fault(begun_us + 1_000_000, begun_us + 1_000_001, 'gateway.kill', 'c1')
        for attempt, at_us in ((1, 500), (2, 900_000), (2, 1_200_000)):
            self.tried(excused, attempt, begun_us + at_us)
        verdict = self.judge(duplicated=sorted(f'c1-h1-{n}' for n in (twice, excused)), unprovoked=[f'c1-h1-{twice}'],
                             early=[f'c1-h1-{early}'], other_id=[f'c1-h1-{other}'])
        self.assertEqual(verdict['total']['redelivered'], 1)

    def test_an_answer_that_the_consumer_should_not_have_given(self):
        n = next(self.numbers(True))
        self.accept(n)
        self.deliver(n)
        self.seen.write([f'D c1-h1-{n} {T0_US} 0 {ID.format(n)} ok postdate.delivery k 1 accepted quorum'])
        self.assertEqual(self.judge()['broken'], {'unreadable': 1})

    def test_which_rejections_are_open(self):
        some = self.numbers(True, True, True, True)
        died, waits = next(some), next(some)
        accepted = next(self.numbers(True, False))
        self.try_until(died, 4)
        self.try_until(waits, 2, queue_type='classic')
        self.try_until(accepted, 2)
        bodies = [record.make_body(f'c1-h1-{died}', b'x')]
        self.assertEqual(refusals.open_refusals(self.directory, 'c1', bodies), {f'c1-h1-{waits}': 'classic'})
        refusals.write_dead(self.directory, 'c1', [(ID.format(died), 'q', '4', 'rejected', 'postdate.delivery', 'k',
                                                    str(T0_US + 9_000_000), 't', bodies[0])])
        self.judge(lost=[f'c1-h1-{waits}'])

    def test_a_torn_last_line(self):
        self.accept(0)
        self.deliver(0)
        os.write(self.sent.file, b'A c1-h1-1 18000')
        verdict = self.judge()
        self.assertEqual(verdict['torn_lines'], ['c1.1.sent:3'])
        self.assertEqual(verdict['broken'], {})

    def test_what_cannot_be_read_breaks_the_verdict(self):
        self.accept(0)
        self.deliver(0)
        self.answer('K c1-h1-7 1 - -', 'what is this', 'A c1-h1-0 1 http e k 1')
        self.assertEqual(self.judge()['broken'], {'unreadable': 3})

    def test_recovery_and_calm(self):
        self.add_fault(T0_US + 1000, T0_US + 2000, 'kill', 'c1')
        self.add_fault(T0_US + 5_000_000, T0_US + 5_001_000, 'kill', 'c1')
        self.accept(0, T0_MS, at_us=T0_US - 500)              # over before the fault
        self.deliver(0, T0_US + 700)
        self.accept(1, T0_MS, at_us=T0_US)                    # waits through it
        self.deliver(1, T0_US + 9000)
        self.accept(2, T0_MS + 4, at_us=T0_US + 3000)         # the first after it
        self.deliver(2, T0_US + 12_000)
        self.accept(3, T0_MS + 100, at_us=T0_US + 50_000)
        self.deliver(3, T0_US + 100_300)
        verdict = self.judge()
        self.assertEqual(verdict['kinds']['kill'], {'count': 2, 'duplicates': 0, 'recovered': 1, 'recovery_median_ms': 10.0,
                                                    'recovery_slowest_ms': 10.0})
        self.assertEqual(verdict['lateness_ms']['calm']['count'], 2)
        self.assertEqual(verdict['lateness_ms']['all']['max'], 9.0)

    def test_moments_with_many_duplicates(self):
        for n in range(7):
            self.accept(n)
            self.deliver(n, T0_US + 1_000_500 + n)
        for n in range(7):
            self.deliver(n, T0_US + 4_000_000 + (10_000_000 if n < 2 else 0) + n * 1_000_000)
        self.add_fault(T0_US + 2_000_000, T0_US + 2_500_000, 'gateway.kill', 'c1')
        self.add_fault(T0_US + 2_000_000, T0_US + 2_500_000, 'load.crowd', 'other')
        self.add_fault(T0_US + 9_500_000, T0_US + 20_000_000, 'network.slow', '*')
        verdict = ledger.judge(self.directory)
        self.assertEqual(verdict['moments'], [
            {'cell': 'c1', 'count': 5, 'start_us': T0_US + 6_000_000, 'first_us': T0_US + 1_000_502,
             'faults': ['gateway.kill', 'network.slow']},
            {'cell': 'c1', 'count': 2, 'start_us': T0_US + 14_000_000, 'first_us': T0_US + 1_000_500,
             'faults': ['gateway.kill', 'network.slow']}])
        self.assertEqual((verdict['cells']['c1']['crowd_delivered'], verdict['cells']['c1']['duplicated']), (0, 7))
        self.assertIn('\n     5 c1, at ', ledger.text_of(verdict))

    def test_bodies(self):
        body = record.make_body('c1-h1-5', bytes(range(256)))
        self.assertEqual(record.read_body(body), ('c1-h1-5', True))
        for at in (0, 5, 9, 12, len(body) - 1):
            changed = bytearray(body)
            changed[at] ^= 1
            self.assertNotEqual(record.read_body(bytes(changed)), ('c1-h1-5', True), at)
        self.assertFalse(record.read_body(body[:-1])[1])
        self.assertEqual(record.read_body(b''), (None, False))

    def test_two_writers_of_a_cell_do_not_share_a_file(self):
        other = record.Writer(self.directory, 'c1')
        self.addCleanup(other.close)
        self.assertNotEqual((other.path, other.run), (self.sent.path, self.sent.run))

    def test_following(self):
        follower = ledger.Follower(self.directory)
        self.assertEqual(follower.poll(), {})
        now_us = record.now_us()
        past, future = now_us // 1000 - 1000, now_us // 1000 + 60_000
        for n in range(6):
            self.accept(n, past if n < 5 else future, at_us=now_us - 2_000_000 + n)
        self.deliver(0, now_us)
        self.deliver(0, now_us)
        self.answer(f'C c1-h1-1 {now_us} http', f'c c1-h1-1 {now_us} cancelled', f'M c1-h1-2 {now_us} {future}',
                    f'm c1-h1-2 {now_us} ok')
        torn_at = os.path.getsize(self.seen.path)
        os.write(self.seen.file, b'D c1-torn')
        self.assertEqual(follower.poll(), {'c1': {
            'attempted': 6, 'accepted': 6, 'delivered': 1, 'open': 4, 'owed': 2, 'newest_accept_us': now_us - 2_000_000 + 505,
            'newest_delivered_attempt_us': now_us - 2_000_000}})
        os.truncate(self.seen.path, torn_at)  # as the next witness does
        os.write(self.seen.file, f'D c1-h1-3 {now_us} 0 - ok postdate.delivery k\n'.encode())
        cell = follower.poll()['c1']
        self.assertEqual((cell['delivered'], cell['open'], cell['owed']), (2, 3, 1))
        self.assertEqual(follower.book.unreadable, [])

    def test_a_hundred_thousand(self):
        """Two million must take less than a minute: a twentieth of both."""
        count, rng = 100_000, random.Random(1)
        picked = rng.sample(range(count), 6)
        lost, twice = picked[:3], picked[3:]
        self.sent.write(line for n in range(count) for line in (
            f'A c1-h1-{n} {T0_US + n} http e k {T0_MS}', f'K c1-h1-{n} {T0_US + n} {ID.format(n)} {T0_MS}'))
        self.seen.write(f'D c1-h1-{n} {T0_US + 1000 + n} 0 {ID.format(n)} ok e k'
                        for n in [*range(count), *twice] if n not in lost)
        began = time.process_time()
        verdict = self.judge(lost=sorted(f'c1-h1-{n}' for n in lost), duplicated=(again := sorted(f'c1-h1-{n}' for n in twice)),
                             unprovoked=again)
        self.assertEqual([verdict['cells']['c1'][x] for x in ('crowd_delivered', 'crowd_doubled')], [count - 3, 3])
        self.assertIn(f'{"  due at once":<33}{count - 3:>10,}{"":>22}{3:>8} {(count - 3) // 3:,}', ledger.text_of(verdict))
        self.assertLess(time.process_time() - began, 3.0)


if __name__ == '__main__':
    unittest.main()
