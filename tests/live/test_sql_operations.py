"""Messages are moved and cancelled after they were scheduled: many at once, one by one, by ids of long ago."""
import uuid

from harness import LiveTest, wait_until


class SqlOperations(LiveTest):
    """Bulk operations and the forgetting of old ids, from the command line."""

    def test_filters_shift_and_cancel(self):
        p = self.place()
        p.psql("select postdate.schedule('b.' || i % 3, 'x', i * interval '1 min', exchange => 'e' || i % 2) from generate_series(1, 600) i")
        self.assertEqual(p.run('reschedule', '-k', 'b.1', '--shift', '2h', '--dry-run'), '200 would be rescheduled\n')
        before = p.value("select sum(extract(epoch from due)) from postdate.message_now where state = 'scheduled'")
        self.assertEqual(p.run('reschedule', '-k', 'b.1', '--shift', '2h'), '200 of 200 rescheduled\n')
        after = p.value("select sum(extract(epoch from due)) from postdate.message_now where state = 'scheduled'")
        self.assertAlmostEqual(float(after) - float(before), 200 * 7200, delta=1)
        self.assertEqual(p.run('reschedule', '-k', 'b.1', '--shift=-1h'), '200 of 200 rescheduled\n')
        rc, out, err = p.cli('reschedule', '-k', 'b.1', '--shift', '3000d')
        self.assertEqual((rc, out), (1, '0 of 200 rescheduled\n'), err)
        self.assertRegex(err, 'left out 200: .*delivery.max_delay')
        s = p.session()
        s.run('begin')
        s.run("select id from postdate.message where routing_key = 'b.2' and exchange = 'e1' limit 1 for update")
        rc, out, err = p.cli('cancel', '-k', 'b.2', '--exchange', 'e1')
        self.assertEqual((rc, out), (1, '99 of 100 cancelled\n'), err)
        self.assertEqual(err, 'postdate: left out 1: claimed or locked meanwhile\n')
        s.run('rollback')
        s.close()
        self.assertEqual(p.cli('cancel', '-k', 'b.2', '--exchange', 'e1')[1], '1 of 1 cancelled\n')
        self.assertEqual(p.value("select count(*) from postdate.message_now where state = 'cancelled'"), '100')
        self.assertEqual(p.cli('cancel')[0], 64)
        self.assertEqual(p.cli('reschedule', '-k', 'x', '--delay', '1h')[0], 64)

    def test_one_by_one(self):
        p = self.place()
        one = p.cli('schedule', '-k', 'k', '--delay', '1h', '--key', 'a', '--body', 'x')[1].strip()
        out = p.run('reschedule', one, '--delay', '2h')
        two = out.split()[-1]
        self.assertEqual(out, f'{one} rescheduled {two}\n')
        self.assertEqual(p.cli('reschedule', '--key', 'a', '--at', '2020-01-01T00:00:00Z')[0], 0)
        self.assertEqual(p.cli('reschedule', one, '--delay', '800d')[0], 65)
        self.assertIn('"key":"a"', p.cli('list', '--key', 'a', '--json')[1])
        self.assertEqual(p.cli('retry', two)[0], 1)
        self.assertEqual(p.cli('cancel', one)[0], 0)
        self.assertEqual(p.cli('reschedule', two, '--delay', '1h')[0], 1)
        self.assertEqual(p.cli('reschedule', '01937f5e-4c00-8a1b-9c2d-3e4f5a6b7c8d', '--delay', '1h')[0], 66)

    def test_old_ids_work_after_their_partition_is_gone_and_are_forgotten_with_the_message(self):
        p = self.place()
        gone = p.value("select to_char(now() - interval '1 day', 'YYYYMMDD')")
        p.psql("insert into postdate.message (due, next_at, id, hold, exchange, routing_key, properties, body) select t, t, "
               "postdate.id_make(t), 'g', 'postdate.delivery', 'k', '\\x100002', 'x' from (select date_trunc('day', now(), 'UTC') - interval '1 hour') y (t)")
        old = p.value('select id from postdate.message_now')
        self.assertEqual(p.value(f"select postdate.reschedule('{old}', '1h')"), 'rescheduled')
        p.psql(f"drop table postdate.message_{gone}")
        self.assertEqual(p.value(f"select postdate.reschedule('{old}', '2h')"), 'rescheduled')
        self.assertEqual(p.cli('show', old)[0], 0)
        orphan = str(uuid.uuid4())
        p.psql(f"select postdate.moved_note('{orphan}', '00000000-0000-8000-8000-000000000001')")
        p.gateway()
        wait_until(lambda: p.value(f"select count(*) from postdate.moved where first_id = '{orphan}'") == '0', 15, 'the janitor')
        self.assertEqual(p.value(f"select postdate.cancel('{old}')"), 'cancelled')
        # Delivered before its time, and removed since: its first row, of a later day, is still there.
        p.consumer('q', bind='k')
        far = p.value("select postdate.schedule('k', 'x', '2 days')")
        self.assertEqual(p.value(f"select postdate.reschedule('{far}', '0')"), 'rescheduled')
        wait_until(lambda: p.counts().get('delivered') == 1, 15, 'the delivery')
        self.assertEqual(p.value(f"select postdate.cancel('{far}')"), 'too_late')
        p.psql(f"with gone as (delete from postdate.moved where first_id = '{far}' returning id) "
               f"delete from postdate.message where id in (select id from gone) and id <> '{far}'")
        self.assertEqual(p.value(f"select postdate.cancel('{far}')"), 'not_found')
