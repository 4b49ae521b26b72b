"""A pooler between Postdate and PostgreSQL: one that shares sessions is refused by each session, and nothing of ours is left in it."""
import threading

from harness import LiveTest, Session, run_psql
from pooler_kit import bouncer, need_pgbouncer

OURS = ('synchronous_commit', 'search_path', 'lock_timeout', 'enable_seqscan', 'enable_sort', 'plan_cache_mode', 'jit', 'timezone',
        'idle_in_transaction_session_timeout', 'backend_flush_after', 'statement_timeout', 'role')
SETTINGS = 'select ' + ', '.join(f"current_setting('{name}')" for name in OURS)


class Pooler(LiveTest):
    who_waits = 'timer'

    def setUp(self):
        super().setUp()
        need_pgbouncer(self)
        self.p = self.place()

    def backends(self, url, count):
        """What `count` sessions of an application find, each in a transaction of its own at the same time: {pid: its settings}."""
        sessions = [Session(url) for _ in range(count)]
        try:
            for s in sessions:
                s.run('begin')
            return {s.run('select pg_backend_pid()')[0][0]: tuple(s.run(SETTINGS)[0]) for s in sessions}
        finally:
            for s in sessions:
                s.close()

    def refuse_all(self, url):
        """The gateway, each command, and the doctor."""
        through = {'POSTDATE_POSTGRES_URL': url}
        gateway = self.p.gateway(wait=False, **through)
        self.assertEqual(gateway.wait(60), 78, gateway.log())
        said = gateway.lines_with('pooler that shares sessions')
        self.assertEqual(len(said), 1, gateway.log())
        self.assertIn('pool_mode = session', said[0])
        for command in (['status'], ['schedule', '-k', 'k', '--delay', '1h', '--body', 'x'], ['list'], ['migrate']):
            rc, out, err = self.p.cli(*command, env=through)
            self.assertEqual((rc, out), (78, ''), (command, err))
            self.assertIn('pool_mode = session', err)

    def test_shared_sessions_are_refused(self):
        for mode in ('transaction', 'statement'):
            with self.subTest(mode):
                url, _ = bouncer(self, self.p, mode)
                clean = run_psql(self.p.postgres, SETTINGS)[0]
                self.refuse_all(url)
                if mode == 'statement':
                    continue
                for pid, settings in self.backends(url, 8).items():
                    self.assertEqual(list(settings), clean, f'backend {pid} has what a session of ours set')

    def test_refused_while_others_use_it(self):
        """Whoever asks may get the same backend again and again by luck, under load or without."""
        url, _ = bouncer(self, self.p, 'transaction', pool_size=4)
        stop = threading.Event()

        def work():
            while not stop.is_set():
                run_psql(url, 'begin; select pg_sleep(0.003); commit; ' * 20)
        workers = [threading.Thread(target=work) for _ in range(3)]
        for w in workers:
            w.start()
        try:
            for _ in range(20):
                rc, out, err = self.p.cli('status', env={'POSTDATE_POSTGRES_URL': url})
                self.assertEqual((rc, out), (78, ''), err)
        finally:
            stop.set()
            for w in workers:
                w.join()

    def test_own_sessions_are_fine(self):
        url, _ = bouncer(self, self.p, 'session', pool_size=60)
        gateway = self.p.gateway(POSTDATE_POSTGRES_URL=url)
        c = self.p.client()
        c.queue('k', 'k')
        self.assertEqual(self.p.cli('schedule', '-k', 'k', '--delay', '0s', '--body', 'x', env={'POSTDATE_POSTGRES_URL': url})[0], 0)
        c.wait_get('k')
        self.assertEqual(gateway.lines_with('warn'), [])
