"""Console: what each of its pages asks of the gateway, over everything that is stored; the dry runs before its changes; how many
bytes it is made of; and when a browser paints each page.

Beside the backlog there are dead letters, recurring schedules and messages of each end, so that every page has something to show.
"""
import json
import os
import posixpath
import re
import subprocess
import sys
import time

import backlog
from harness import run_psql
from kit import Lane
from web import Web

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, '..', 'console'))
from browser import Missing, find_browser, install_modules  # noqa: E402

SHAPE = 'console: one call of a page, in ms until the answer'
DRY = 'console: the dry run before a change, in ms until the answer'
PAINTED = 'first contentful paint'
PAINT = 'console: a page in Chromium, loaded anew, in ms'
SIZE = 'console: bytes of all its files, as sent'
LIMIT_S, LEAST = 12, 100
DEAD, SCHEDULES, ENDED = 100_000, 1000, 200_000
QUEUES = 40
DRY_S = 3  # what it has not counted by then is said to be at least that much (OPERATE_DRY_MS)
PAINT_TIMES, PAINT_LIMIT_S = 5, 300

DEAD_ROWS = f"""
insert into postdate.lineage (id, expires_at, died_at, failed, queue, exchange, routing_key, reason, hash, failed_at, reasons, properties, body)
select postdate.id_make(now() - i * interval '1 s'), now() + interval '30 days', now() - i * interval '1 s', 3, 'queue-' || i % {QUEUES}, 'postdate.delivery',
       'key-' || i % 7, 'rejected', sha256(i::text::bytea), array[now(), now(), now()], '{{rejected,rejected,rejected}}', '', 'body' from generate_series(1, {DEAD}) i"""
# Spread over the days that are stored: a page of them is looked for where they are few.
ENDED_ROWS = f"""
insert into postdate.message (due, next_at, id, hold, exchange, routing_key, key, properties, body, state, settled_at, error)
select d.due, d.due, postdate.id_make(d.due), 'g', 'postdate.delivery', 'ended', null, '', '', (case when d.i % 100 = 0 then 'failed' else 'cancelled' end)::postdate.message_state,
       now(), case when d.i % 100 = 0 then 'no such exchange' end
  from (select i, date_trunc('milliseconds', date_trunc('day', now()) + interval '2 days' + random() * interval '60 days') as due from generate_series(1, {ENDED}) i) d"""


def seed(backlog_):
    for sql in (DEAD_ROWS, ENDED_ROWS, f"select count(postdate.recur_set('schedule-' || i, i % 60 || ' ' || i % 24 || ' * * *', 'none', 'x'::text)) from generate_series(1, {SCHEDULES}) i",
                'analyze postdate.lineage, postdate.recur'):
        run_psql(backlog_.super, sql)


def iso(seconds):
    return time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(seconds))


def forecast(length_s, step):
    start = int(time.time()) // 60 * 60
    return f'/v1/forecast?from={iso(start)}&until={iso(start + length_s)}&step={step}'


def calls_of(backlog_, web):
    """(page and call, [addresses to be asked for in turn])"""
    ids, keys = backlog_.sample('id', LEAST * 3), backlog_.sample('key', LEAST * 3)
    dead = [d for q in range(QUEUES) for d in web.get(f'/v1/dead?queue=queue-{q}&page_size=20').json['dead_letters']]
    names = [f'schedule-{i}' for i in range(1, SCHEDULES + 1)]
    days = [f'/v1/messages?due_after={iso(time.time() + d * 86400)}&due_before={iso(time.time() + (d + 1) * 86400)}&page_size=50' for d in range(2, 62)]
    def pages(address, count):
        """Following pages."""
        out, token = [], ''
        for _ in range(count):
            out.append(address + token)
            following = web.get(out[-1]).json.get('next_page_token')
            if not following:
                break
            token = f'&page_token={following}'
        return out
    lists = [(f'messages: list, {words}', pages('/v1/messages?page_size=50' + rest, 10)) for words, rest in (
        ('all', ''), ('of an exchange', '&exchange=postdate.delivery'), ('of an exchange that has none', '&exchange=none'), ('of a routing key that has none', '&routing_key=none'),
        *((f'{state}', f'&state={state}') for state in ('scheduled', 'claimed', 'handed', 'delivered', 'cancelled', 'superseded', 'failed', 'expired')))]
    return [
        ('overview: figures', ['/v1/stats']), ('overview: objective', ['/v1/slo']), ('overview: findings', ['/v1/overview']),
        ('overview: forecast, 6 hours', [forecast(6 * 3600, '5m')]), ('overview: forecast, 24 hours', [forecast(86400, '15m')]), ('overview: forecast, 7 days', [forecast(7 * 86400, '2h')]),
        *lists, ('messages: list, of a day', days),
        ('messages: look-up by id', [f'/v1/messages/{i}' for i in ids]), ('messages: look-up by key', [f'/v1/messages?key={k}&page_size=2' for k in keys]),
        ('messages: a key that there is not', ['/v1/messages?key=no-such-key&page_size=2']),
        ('dead letters: groups', ['/v1/dead:groups']), ('dead letters: list', pages('/v1/dead?page_size=50', 20)),
        ('dead letters: list of a queue', pages('/v1/dead?page_size=50&queue=queue-7', 20)),
        ('dead letters: one', [f"/v1/dead/{d['id']}?queue={d['queue']}" for d in dead]),
        ('recurring: list', ['/v1/recurring']), ('recurring: one', [f'/v1/recurring/{n}' for n in names]), ('recurring: history', [f'/v1/recurring/{n}:history' for n in names]),
        ('recurring: preview', ['/v1/recurring:preview?cron=0+9+*+*+mon-fri&zone=Europe/Berlin']),
        ('policies: list', ['/v1/retry-policies']), ('policies: match', ['/v1/retry-policies:match?queue=queue-1']), ('access: whoami', ['/v1/whoami']), ('access: interface', ['/openapi.json']),
    ]


def dry_runs_of(web):
    """(words, [(address, body)]): as the console asks before it offers to go on."""
    group = [{k: g[k] for k in ('queue', 'reason', 'exchange', 'routing_key')} for g in web.get('/v1/dead:groups').json['groups'][:LEAST]]
    by_filter = (('of an exchange', {'exchange': 'postdate.delivery'}), ('of a routing key that has none', {'routing_key': 'none'}),
                 ('of what failed', {'state': 'failed'}))
    return [
        *((f'cancel, {words}', [('/v1/messages:cancel', {'filter': f, 'dry_run': True})]) for words, f in by_filter),
        ('reschedule, of an exchange', [('/v1/messages:reschedule', {'filter': {'exchange': 'postdate.delivery'}, 'shift_ms': 60000, 'dry_run': True})]),
        ('retry, of what failed', [('/v1/messages:retry', {'filter': {'state': 'failed'}, 'dry_run': True})]),
        ('requeue, a group of dead letters', [('/v1/dead:requeue', {'filter': g, 'dry_run': True}) for g in group]),
        ('drop, a group of dead letters', [('/v1/dead:drop', {'filter': g, 'dry_run': True}) for g in group]),
        ('requeue, all dead letters', [('/v1/dead:requeue', {'filter': {'queue': '*'}, 'dry_run': True})]),
    ]


def ask(web, call):
    return web.get(call) if isinstance(call, str) else web.post(*call)


def timed_ms(web, addresses, slow_least):
    took, end = [], time.monotonic() + LIMIT_S
    while len(took) < max(LEAST, min(len(addresses), 3 * LEAST)) and (len(took) < slow_least or time.monotonic() < end):
        began = time.perf_counter()
        backlog.expect(ask(web, addresses[len(took) % len(addresses)]))
        took.append((time.perf_counter() - began) * 1000)
    return took


def measure_size(bench, web):
    row = bench.report.row(SIZE, 'page, styles, scripts, picture').aim('bytes', '≤', 150_000)
    with row.trying(bench.say):
        total, asked, wanted = 0, set(), ['/']
        while wanted:
            address = wanted.pop()
            if address in asked:
                continue
            asked.add(address)
            answer = web.get(address)
            backlog.expect(answer)
            total += len(answer.body)
            text = answer.body.decode()
            wanted += ['/' + f for f in re.findall(r'(?:src|href)="(console/[^"]+)"', text)] if address == '/' else []
            wanted += [posixpath.join(posixpath.dirname(address), f) for f in re.findall(r"from '\./([\w-]+\.js)'", text)]
        row.add(bytes=total)
        row.note(f'{len(asked)} files, not compressed')
        bench.say(f'{row.what}: {row.values()}')


def measure_calls(bench, web, row, calls, slow_least=10):
    with row.trying(bench.say):
        took = sorted(timed_ms(web, calls, slow_least))
        row.add(p50_ms=took[len(took) // 2], p99_ms=took[min(len(took) - 1, len(took) * 99 // 100)], max_ms=took[-1])
        row.note(f'{len(took)} calls, not {LEAST}: slow' if len(took) < LEAST else None)
        bench.say(f'{row.what}: {row.values()}')


def paint_row(bench, page, what, rows):
    return bench.report.row(PAINT, f'{page}: {what}, {rows:,} stored').aim('p50_ms', '≤', 1000)


def measure_paint(bench, url, rows):
    """The first paint, and when what the page is about is there."""
    try:
        settings = {'url': url, 'chromium': find_browser(), 'modules': install_modules(), 'times': PAINT_TIMES}
    except Missing as e:
        bench.say(f'{PAINT}: not measured: {e}')
        return
    done = subprocess.run(['node', os.path.join(HERE, 'console_paint.mjs')], env=dict(os.environ, CONSOLE=json.dumps(settings)), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PAINT_LIMIT_S, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr.decode(errors='replace')[-500:])
    for page, took in json.loads(done.stdout).items():
        for what, values in ((PAINTED, sorted(took['paint'])), ('shown with its data', sorted(took['shown']))):
            row = paint_row(bench, page, what, rows)
            row.add(p50_ms=values[len(values) // 2], max_ms=values[-1])
            bench.say(f'{row.what}: {row.values()}')


def measure(bench):
    stored = backlog.of(bench).reach(bench.sizes.backlog)
    seed(stored)
    with Lane(bench, 'timer', stored.place, POSTDATE_DELIVERY_MAX_DELAY='730d', POSTDATE_HTTP_CONSOLE='on') as lane:
        web = Web(lane.gateways[0].http())
        try:
            measure_size(bench, web)
            for words, addresses in calls_of(stored, web):
                measure_calls(bench, web, bench.report.row(SHAPE, f'{words}, {stored.rows:,} stored').aim('p99_ms', '≤', 50), addresses)
            for words, calls in dry_runs_of(web):
                measure_calls(bench, web, bench.report.row(DRY, f'{words}, {stored.rows:,} stored').aim('p99_ms', '≤', DRY_S * 1000 + 500), calls, 3)
            with paint_row(bench, 'overview', PAINTED, stored.rows).trying(bench.say):
                measure_paint(bench, 'http://%s:%d' % lane.gateways[0].http(), stored.rows)
        finally:
            web.close()
