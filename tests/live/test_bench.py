"""The benchmark, a small part of it: that it runs, what it writes, how it ends. No speed is asserted."""
import glob
import json
import os
import signal
import subprocess
import sys

import harness
from harness import LiveTest, wait_until

BENCH = os.path.join(harness.ROOT, 'tests', 'bench', 'bench.py')


class BenchTest(LiveTest):
    """Its servers are its own, and end with it."""
    vhosts = 0
    weight = 60
    time_limit_s = 240

    def start(self, name, **env):
        self.servers = os.environ['STACK_DIR'] + name
        os.makedirs(self.servers, exist_ok=True)
        harness.note_stack(os.path.join(self.servers, f'servers-{os.getuid()}'), self.servers)
        self.out = os.path.join(self.servers, 'out')
        env = {**os.environ, 'BENCH': 'small', 'BENCH_DIR': self.servers, 'BENCH_OUT': self.out, 'POSTDATE_BIN_DIR': harness.BIN_DIR,
               'ONLY': '', 'STACK_PLUGINS_DIR': '', 'PUBLISH': '', **env}
        return subprocess.Popen([*harness.DIE_WITH_PARENT, sys.executable, BENCH], env=env, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def result(self):
        with open(os.path.join(self.out, 'bench.json'), encoding='utf-8') as f:
            return json.load(f)

    def assert_servers_gone(self):
        self.assertEqual(glob.glob(os.path.join(self.servers, 'servers-*')), [])


@harness.not_san
class Bench(BenchTest):
    def test_a_small_part_runs_to_its_end(self):
        process = self.start('-bench', ONLY='million-herd scale' if harness.FULL else 'million-herd', RUNS='1')
        out, _ = process.communicate(timeout=self.time_limit_s - 10)
        self.assertEqual(process.returncode, 0, out)
        result = self.result()
        self.assertTrue(result['complete'], out)
        rows = {(r['shape'].split(':')[0], r['what']): r for r in result['rows']}
        herd = rows['herd', 'timer, 20,000']
        self.assertEqual(len(herd['ratio']['runs']), 3, herd)
        self.assertEqual([r['notes'] for r in result['rows'] if 'missing' in str(r['notes']) or 'duplicates' in str(r['notes'])], [])
        self.assertEqual(('scale', '4 gateways') in rows, harness.FULL)
        self.assertIn('fsync on, synchronous_commit on', result['machine']['PostgreSQL'])
        self.assertIn('timer, 20,000', out)
        with open(os.path.join(self.out, 'bench.txt'), encoding='utf-8') as f:
            table = f.read()
        self.assertLessEqual(max(map(len, table.splitlines())), 100, table)
        self.assertIn(table, out)
        self.assert_servers_gone()

    @harness.only_full  # the same start and the same end
    def test_an_interrupted_one_stops_its_servers_and_says_what_it_has(self):
        process = self.start('-benchstop', ONLY='million-herd')
        lines = []
        for line in process.stdout:
            lines.append(line)
            if '--- million-herd' in line:
                break
        else:
            self.fail(''.join(lines))
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, ''.join(lines) + out)
        self.assertIn('Interrupted after', out)
        self.assertFalse(self.result()['complete'])
        wait_until(lambda: not glob.glob(os.path.join(self.servers, 'servers-*')), 5, 'its servers to be gone')

    def test_what_is_not_known_is_refused_before_anything_starts(self):
        for name, value, words in (('ONLY', 'nonsense', 'no shape has such a name; there are store'), ('RUNS', 'x', 'whole number'),
                                   ('BENCH', 'tiny', 'allowed is small')):
            with self.subTest(name):
                process = self.start('-benchrefused', **{name: value})
                out, _ = process.communicate(timeout=30)
                self.assertNotEqual(process.returncode, 0, out)
                self.assertIn(words, out)
                self.assert_servers_gone()


@harness.not_san
class BenchTrouble(BenchTest):
    time_limit_s = 1200 if harness.FULL else 600
    TROUBLES = ['disk busy', '20,000 done claims kept', '5,000 keys, half of what is published is taken and replaces', 'a synchronous standby 200 ms away']
    if harness.FULL:
        TROUBLES += ['confirms 0.6 to 2 s late', 'a snapshot held for 3 s', '60 transactions in another database', '120 schedules of a minute']

    def test_trouble_in_a_small_form(self):
        """Each trouble is begun and ended, and its rows are there. While PostgreSQL's disk was busy, what was delivered was proven in RabbitMQ and
        each row written again, and four messages at a time were in flight."""
        process = self.start('-benchtrouble', ONLY='trouble', BURST='2000', BUDGET_S='0', TROUBLE='' if harness.FULL else 'disk claims keys standby')
        out, _ = process.communicate(timeout=self.time_limit_s - 10)
        self.assertEqual(process.returncode, 0, out)
        rows = {r['what']: r for r in self.result()['rows']}
        for trouble in self.TROUBLES:
            for shape in ('burst of 2,000', '1,000/s'):
                row = rows[f'{trouble}, {shape}']
                print(f'note trouble: {row["what"]}: {row["figures"]["us"]["median"]:.0f} µs, {row["figures"]["wal"]["median"]:.0f} B, '
                      f'{row["figures"]["rewrites"]["median"]:.3f} rewrites', flush=True)
                self.assertLess(row['figures']['rewrites']['median'], 0.6 if 'keys' in trouble else 0.3, out)  # it was 1 and more
        self.assertLess(rows['disk busy, burst of 2,000']['figures']['wal']['median'], 600, out)
        self.assert_servers_gone()
