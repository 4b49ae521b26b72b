"""packaging/monitoring against what a gateway says: the board's queries in a real Prometheus, the rules with promtool, the metrics' names."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

import harness
from harness import LiveTest, wait_until
from test_tokens import HOUR
from web import Web

FOLDER = os.path.join(harness.ROOT, 'packaging', 'monitoring')
NAME = re.compile(r'\bpostdate_[a-z_]+')


def program(name):
    return shutil.which(name) or shutil.which(name, path=os.environ.get('POSTDATE_PROMETHEUS', ''))


def board_queries():
    with open(os.path.join(FOLDER, 'grafana.json'), encoding='utf-8') as f:
        return [t['expr'] for p in json.load(f)['panels'] for t in p['targets']]


class Monitoring(LiveTest):
    def metrics(self, gw):
        return Web(gw.http()).get('/metrics').body.decode()

    def page(self, name):
        with open(os.path.join(harness.ROOT, 'docs', name), encoding='utf-8') as f:
            return f.read()

    def settled_gateway(self, p):
        gw = p.gateway()
        web = Web(gw.http())
        web.post('/v1/messages', HOUR)
        # What is counted in the database comes some seconds after the start.
        wait_until(lambda: 'postdate_partitions_ahead' in self.metrics(gw) and 'postdate_window_messages ' in self.metrics(gw), 30, 'the counts')
        return gw

    def test_what_they_name_is_there_and_documented(self):
        text = self.metrics(self.settled_gateway(self.place()))
        types = dict(re.findall(r'(?m)^# TYPE (postdate_\w+) (\w+)$', text))
        self.assertEqual({n for n, kind in types.items() if (kind == 'counter') != n.endswith('_total')}, set(), 'counters, and no others, end in _total')
        self.assertEqual(types['postdate_log_lines_lost_total'], 'counter')
        there = set(types)
        with open(os.path.join(FOLDER, 'postdate.rules.yml'), encoding='utf-8') as f:
            rules = f.read()
        used = set(NAME.findall(rules)) | {n for q in board_queries() for n in NAME.findall(q)}
        self.assertEqual({n for n in used if re.sub(r'_(bucket|sum|count)$', '', n) not in there}, set())
        rows = dict(re.findall(r'(?m)^\| `(\w+)` \| \w+ \| [^|]* \| (.*) \|$', self.page('metrics.md')))
        said = dict(re.findall(r'(?m)^# HELP (\w+) (.*)$', text))
        self.assertEqual({n: said[n] for n in said if rows.get(n) != said[n]}, {}, 'docs/metrics.md has what is said of each metric')
        for alert in re.findall(r'- alert: (\w+)', rules):
            self.assertIn(alert, self.page('operations.md'), 'each alert has its paragraph')

    @unittest.skipUnless(program('promtool'), 'needs promtool (Debian: prometheus, or POSTDATE_PROMETHEUS=its folder)')
    def test_promtool_is_content(self):
        gw = self.settled_gateway(self.place())
        done = subprocess.run([program('promtool'), 'check', 'metrics'], input=self.metrics(gw).encode(), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        self.assertEqual((done.returncode, done.stdout.decode()), (0, ''))
        for args in (['check', 'rules', 'postdate.rules.yml'], ['test', 'rules', 'postdate.rules.test.yml']):
            done = subprocess.run([program('promtool'), *args], cwd=FOLDER, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            self.assertEqual(done.returncode, 0, done.stdout.decode())

    @unittest.skipUnless(program('prometheus'), 'needs prometheus (Debian: prometheus, or POSTDATE_PROMETHEUS=its folder)')
    def test_each_query_of_the_board_runs(self):
        p = self.place()
        gw = self.settled_gateway(p)
        port = harness.free_port()
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, 'prometheus.yml'), 'w', encoding='utf-8') as f:
                f.write('global: {scrape_interval: 1s, evaluation_interval: 1s}\n'
                        f"rule_files: ['{FOLDER}/postdate.rules.yml']\n"
                        f"scrape_configs: [{{job_name: postdate, static_configs: [{{targets: ['{':'.join(map(str, gw.http()))}']}}]}}]\n")
            with open(os.path.join(folder, 'log'), 'wb') as log:
                server = subprocess.Popen([program('prometheus'), '--config.file', os.path.join(folder, 'prometheus.yml'),
                                           '--storage.tsdb.path', os.path.join(folder, 'data'), '--web.listen-address', f'127.0.0.1:{port}'],
                                          stdout=log, stderr=log)
            try:
                self.run_queries(port)
            finally:
                server.terminate()
                server.wait(30)

    def run_queries(self, port):
        def ask(path, **params):
            with urllib.request.urlopen(f'http://127.0.0.1:{port}/api/v1/{path}?' + urllib.parse.urlencode(params), timeout=10) as answer:
                return json.load(answer)['data']

        def answered(query, **params):
            try:
                return ask('query', query=query, **params)['result']
            except OSError:
                return []
        # A rate needs two scrapes.
        wait_until(lambda: answered('count_over_time(postdate_build_info[1m]) > 3'), 60, 'Prometheus to have scraped')
        empty = []
        for query in board_queries():
            result = answered(query.replace('$__rate_interval', '1m').replace('$instance', '.*'))
            if not result:
                empty.append(query)
        self.assertEqual(empty, [], 'each finds something')
        rules = [r for g in ask('rules')['groups'] for r in g['rules']]
        self.assertEqual({r['name']: r.get('lastError') for r in rules if r['health'] not in ('ok', 'unknown')}, {})
        began = time.monotonic()
        wait_until(lambda: all(r['health'] == 'ok' for g in ask('rules')['groups'] for r in g['rules']), 20, 'each rule to be evaluated')
        self.assertEqual([r['name'] for g in ask('rules')['groups'] for r in g['rules'] if r.get('state') == 'firing'], [],
                         f'nothing is wrong here ({time.monotonic() - began:.0f} s)')
