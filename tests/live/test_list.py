"""A page of a list costs what it shows, not what lies before it."""
import os

import harness
from harness import LiveTest, wait_until
from web import Web

SETTLED, LEFT, PAGE = 5000, 20_000, 50
READ = "select coalesce(sum(idx_tup_fetch + seq_tup_read), 0) from pg_stat_all_tables where schemaname = 'postdate' and relname like 'message%'"


class Lists(LiveTest):
    def setUp(self):
        super().setUp()
        self.p = self.place()
        self.web = Web(self.p.gateway().http())
        self.addCleanup(self.web.close)
        # One day, in this order: what was delivered, with one among it that waits for another attempt; and what is still to come.
        self.day = self.p.value("select to_char(date_trunc('day', now()) + interval '2 days', 'YYYY-MM-DD')")
        self.p.psql(f"select postdate.schedule('k', i::text, due_at => '{self.day}'::timestamptz + i * interval '1 s') from generate_series(1, {SETTLED + LEFT}) i")
        self.p.psql("update postdate.message set next_at = coalesce(next_at, due), state = 'delivered', settled_at = now() where id in"
                    f" (select id from postdate.message_now where convert_from(body, 'UTF8')::int between 2 and {SETTLED})")
        self.p.psql("update postdate.message set next_at = due + interval '23 hours', attempts = 3 where body = '1'")
        self.p.psql("insert into postdate.batch (owner, from_id, to_id, done) "
                    f"select 0, id, id, true from postdate.message where convert_from(body, 'UTF8') = '{SETTLED}'")
        self.p.psql('analyze postdate.message')  # the greater part is still to come, and far from the first rows of the key

    def walk(self, query):
        found, after = [], ''
        while after is not None:
            answer = self.web.get(f'/v1/messages?page_size=500{query}{after}')
            self.assertEqual(answer.status, 200, answer)
            found.append([m['id'] for m in answer.json['messages']])
            token = answer.json.get('next_page_token')
            after = f'&page_token={token}' if token else None
        return found

    def ids(self, where):
        return [row[0] for row in self.p.psql(f'select id from postdate.message_now where {where} order by id')]

    def test_newest_first_is_the_other_way_round(self):
        """Over several days, page by page, with filters that few match; what is delivered, waits, or is tried again."""
        self.p.psql("select postdate.schedule('few', i::text, due_at => now() + i % 3 * interval '1 day' + interval '1 hour' + i * interval '1 s') from generate_series(1, 1200) i")
        few = self.ids("routing_key = 'few'")
        self.assertEqual(sum(self.walk('&routing_key=few&order=newest'), []), few[::-1])
        self.assertEqual(sum(self.walk('&routing_key=few&order=due'), []), few)
        self.assertEqual(sum(self.walk('&routing_key=few&state=waiting&order=newest'), []), few[::-1])
        for state in ('waiting', 'delivered', 'scheduled'):
            last = self.ids(f"state = '{'scheduled' if state == 'waiting' else state}'")[:-51:-1]
            page = self.web.get(f'/v1/messages?page_size=50&order=newest&state={state}').json
            if state != 'delivered':  # these are far from the end, so a page may end before it has them
                self.assertEqual([m['id'] for m in page['messages']], last)
        self.p.psql(f"update postdate.message set error = 'refused', next_at = due + interval '1 hour', attempts = 1 where id in ('{few[3]}', '{few[900]}')")
        self.assertEqual(sum(self.walk('&state=retrying&order=newest'), []), [few[900], few[3]])
        self.assertEqual(sum(self.walk('&state=retrying'), []), [few[3], few[900]])
        self.assertEqual(self.web.get('/v1/messages?order=up').status, 400)
        lines = self.p.cli('list', '--routing-key', 'few', '--newest', '--limit', '3')[1].splitlines()[1:]
        self.assertEqual([line.split()[0] for line in lines], few[:-4:-1])

    def test_all_that_is_scheduled_is_listed_and_nothing_else(self):
        self.assertEqual(sum(self.walk('&state=scheduled'), []), self.ids("state = 'scheduled'"))
        self.p.psql("update postdate.message set next_at = coalesce(next_at, due), state = 'delivered', settled_at = now() where body = '1'")
        self.assertEqual(sum(self.walk('&state=scheduled'), []), self.ids("state = 'scheduled'"))
        self.p.psql("update postdate.message set next_at = coalesce(next_at, due), state = 'delivered', settled_at = now() where state = 'scheduled'")
        self.assertEqual(sum(self.walk('&state=scheduled'), []), [])
        self.assertEqual(len(sum(self.walk('&state=delivered'), [])), SETTLED + LEFT)

    def read_for_pages(self, query='state=scheduled', found=PAGE):
        """How many rows ten pages took, and whatever others have read that is counted meanwhile."""
        before = int(self.p.value(READ))
        for _ in range(10):  # a plan for any parameters comes after five
            self.assertEqual(len(self.web.get(f'/v1/messages?{query}&page_size={PAGE}').json['messages']), found)

        def counted():
            self.web.get('/v1/messages?due_after=2099-01-01T00:00:00Z')  # a session that is asked nothing counts after ten seconds only
            return int(self.p.value(READ)) >= before + 10 * found
        wait_until(counted, 20, 'PostgreSQL to count what was read', 0.3)
        return int(self.p.value(READ)) - before

    def test_a_page_of_what_is_scheduled_does_not_read_what_is_delivered(self):
        self.p.psql("update postdate.message set next_at = coalesce(next_at, due), state = 'delivered', settled_at = now() where body = '1'")
        self.assert_reads_little()

    def assert_reads_little(self, *page):
        # What read all rows is counted when its session has ended, a little after its psql has. Pages cost the same each time.
        read = [self.read_for_pages(*page)]
        while read[-1] >= SETTLED and len(read) < 3:
            read.append(self.read_for_pages(*page))
        self.assertLess(read[-1], SETTLED, read)

    def test_a_page_of_a_part_of_a_day_does_not_read_the_rest_of_it(self):
        for first, last, found in (('05:00:00Z', '05:01:00Z', PAGE), ('05:00:00Z', '05:00:10Z', 10), ('05:00:00.5Z', '05:00:00.6Z', 0)):
            span = f'due_after={self.day}T{first}&due_before={self.day}T{last}'
            self.assert_reads_little(span, found)
            self.assert_reads_little(f'{span}&state=delivered', 0)
            self.assertEqual(sum(self.walk('&' + span), []), self.ids(f"due >= '{self.day} {first}' and due < '{self.day} {last}'"))


class LaterState(LiveTest):
    def test_a_state_of_a_later_version_is_shown_as_it_is(self):
        """A gateway of this version reads the same database while another one is newer."""
        p = self.place()
        one, other = (p.run('schedule', '-k', 'k', '--delay', delay, '--key', delay, '--body', 'x').strip() for delay in ('2s', '1h'))
        p.psql("alter type postdate.message_state add value 'parked'")
        p.psql(f"update postdate.message set next_at = due, state = 'parked' where id = '{one}'")
        web = Web(p.gateway().http())
        last = p.run('schedule', '-k', 'k', '--delay', '3s', '--body', 'x').strip()
        wait_until(lambda: p.value(f"select attempts > 0 from postdate.message_now where id = '{last}'") == 't', 20, 'a later one to be tried')
        self.addCleanup(web.close)
        states = {one: 'parked', other: 'scheduled'}
        self.assertEqual({m['id']: m['state'] for m in web.get('/v1/messages').json['messages'] if m['id'] != last}, states)
        self.assertEqual(web.get(f'/v1/messages/{one}').json['state'], 'parked')
        self.assertIn(f'{one} parked', p.run('list'))
        self.assertRegex(p.run('show', one), r'(?m)^state +parked$')
        self.assertEqual(web.get('/v1/stats').status, 200)
        self.assertEqual(p.cli('cancel', '-k', 'k')[0], 0)
        self.assertEqual(p.value(f"select state from postdate.message where id = '{one}'"), 'parked')
        with open(os.path.join(harness.ROOT, 'sql', 'query', 'prune_keys.sql'), encoding='utf-8') as f:
            prune = f.read()
        for n, value in enumerate(("'epoch'", "'infinity'", '0', '100', "'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"), 1):
            prune = prune.replace(f'${n}', value)
        p.psql(prune)
        self.assertEqual(p.value('select key from postdate.key'), '2s', 'that of what was cancelled is free')
