"""What a standby has that did not hear of everything."""
import harness
from harness import wait_until
from standby_kit import StandbyTest
from steps_kit import Stepped

COUNT = "select count(*) from postdate.message_now"
STORE = "select postdate.schedule('k', 'x'::text, '1 h')"


@harness.not_san  # the tmpfs of each server is large
class Kit(StandbyTest):
    """That of the tests themselves."""
    weight = 5

    def count(self, pg, p, on='primary'):
        return int(pg.ask(p, COUNT, on)[0][0])

    def test_a_standby_that_follows_has_what_it_heard_of(self):
        pg = self.pair()
        p = self.place_on(pg)
        pg.add_standby(synchronous=False)
        p.psql(STORE)
        wait_until(lambda: self.count(pg, p, on='spare') == 1, 30, 'the standby to have it')
        pg.cut_off()
        p.psql(STORE)
        pg.rejoin()
        wait_until(lambda: self.count(pg, p, on='spare') == 2, 30, 'the standby to have both')
        pg.cut_off()
        p.psql(STORE)
        self.assertEqual((self.count(pg, p), self.count(pg, p, on='spare')), (3, 2))
        pg.fail_over()
        self.assertEqual(p.psql(COUNT), [['2']])
        p.psql(STORE)
        self.assertEqual(self.count(pg, p), 3)

    def test_a_commit_waits_for_a_standby_that_is_cut_off(self):
        """Its wait is cancelled, or its session killed: it is visible, and the standby has nothing of it."""
        for end in ('cancel_waits', 'kill_one_waiting'):
            with self.subTest(end):
                pg = self.pair()
                p = self.place_on(pg)
                pg.add_standby()
                p.psql(STORE)
                pg.cut_off()
                s = Stepped(p.postgres)
                self.addCleanup(s.close)
                s.begin(STORE)
                wait_until(pg.waiting, 30, 'the commit to wait')
                getattr(pg, end)()
                wait_until(lambda: self.count(pg, p) == 2, 30, 'it to be visible')
                pg.fail_over()
                self.assertEqual(self.count(pg, p), 1)

    def test_which_commits_wait(self):
        """An answer that was only read follows the cheapest that does: sql/connection/pg_sure.c."""
        pg = self.pair()
        p = self.place_on(pg)
        pg.add_standby()
        pg.cut_off()
        for statement, waits in (('select count(*) from postdate.message_now', False), ('select pg_current_xact_id()', False),
                                 ("select pg_logical_emit_message(false, 'x', '')", False),
                                 ("select pg_logical_emit_message(true, 'x', '')", True)):
            with self.subTest(statement):
                s = Stepped(p.postgres)
                self.addCleanup(s.close)
                s.begin(statement)
                ended = wait_until(lambda: s.hear(0.05) or (pg.waiting() and 'waits'), 30, 'an answer, or a wait')
                self.assertEqual(ended, 'waits' if waits else 'end')
