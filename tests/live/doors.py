"""The operations of tests, a row each: one request in fields, of which each door makes its own - HTTP a path, a query and a body, the control
queue an object, the command line words. What an operation does is said once, and each door is held to it."""
import json
import re
import time
import urllib.parse

from test_control import Requester
from web import Web

UUID = re.compile(r'[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}')
TIME = re.compile(r'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z')
OWN = {'from', 'version', 'who', 'changed_by', 'etag'}  # who asked by which door, and how often before
# All rows that have a name in them: what a request that is refused leaves as it was.
ROWS_OF = ' union all '.join(f"select '{t} ' || x::text from postdate.{t} x where x::text like '%@%'"
                             for t in ('message', 'key', 'lineage', 'rate', 'retry_policy', 'recur', 'recur_change')) + ' order by 1'


# --- what an operation is asked about ---------------------------------------------------------------------------------
def message(p, name, more='', exchange='postdate.delivery'):
    made = p.value(f"select postdate.schedule('{name}', 'x', '1 hour', key => '{name}', exchange => '{exchange}')")
    if more:
        p.psql(f"update postdate.message set {more} where id = '{made}'")
    return made


def failed(p, name):
    return message(p, name, "next_at = coalesce(next_at, due), state = 'failed', settled_at = now(), error = 'e'")


def doubted(p, name):
    return message(p, name, "next_at = now() + interval '1 hour', state = 'claimed', attempts = 1, error = 'nack'")


def dead(p, name):
    return p.value("insert into postdate.lineage (id, expires_at, died_at, failed, queue, exchange, routing_key, reason, hash, failed_at, reasons, "
                   f"properties, body) values (gen_random_uuid(), now() + interval '1 day', now(), 1, '{name}', 'shop', 'k', 'rejected', 'h', "
                   "array[now()], '{rejected}', '', 'x') returning id")


def rate(p, name):
    p.psql(f"select postdate.rate_set('{name}', 5)")


def paused_rate(p, name):
    p.psql(f"select postdate.rate_set('{name}', 5), postdate.rate_pause('{name}')")


def policy(p, name):
    p.psql(f"select postdate.retry_policy_set('{name}')")


def schedule(p, name):
    p.psql(f"select postdate.recur_set('{name}', '@daily', 'walk', 'x'::text)")


def paused_schedule(p, name):
    schedule(p, name)
    p.psql(f"select postdate.recur_pause('{name}')")


class Row:
    """fields: of a good request; @ in them is a name that each request has of its own, $ the id of what `make` made under it. command: the same as
    words. bad: what is changed in a request that is refused; each door names the value. answers: of a list, where HTTP has it; says: of a command without
    --json. numbers: they differ from one moment to the next. foreign: the status for a token that lists other exchanges."""

    def __init__(self, op, call, fields=None, command=None, make=None, bad=None, answers=None, says='', status=200, foreign=None, numbers=False):
        self.op, self.call, self.fields, self.command = op, call, fields or {}, command
        self.make, self.bad, self.answers, self.says, self.status, self.numbers = make, bad or {}, answers, says, status, numbers
        self.one = make is not None and (call is None or '{' in call or call in ('DELETE /v1/messages', 'GET /v1/rates:match', 'GET /v1/recurring:preview')) and not (call or '').startswith('PUT')
        self.changes = not (call or 'GET').startswith('GET')
        self.foreign = foreign or (404 if self.one else 200)
        self.named = answers not in ('changes', 'times')

    def __repr__(self):
        return f'{self.op} {self.call}'

    def changed(self):
        """Is what `bad` changes among the words of the command?"""
        return self.command and self.bad and Request(self, 'n', self.bad).words != Request(self, 'n').words


class Request:
    """One that nobody made before. made: the id of what it is about; None where that is not there."""

    def __init__(self, row, name, change=None, made=None):
        made = made or '00000000-0000-8000-8000-' + name[-6:].rjust(12, '0')
        fill = lambda value: json.loads(json.dumps(value).replace('@', name).replace('$', made))  # noqa: E731
        self.row, self.name, self.fields = row, name, fill(row.fields | (change or {}))
        self.words = [w.replace('@', name).format(**self.fields) for w in (row.command or '').split()]

    def __repr__(self):
        return f'{self.row}, {self.name}'


def filtered(state):
    return {'routing_key': '@', 'state': state}


LOST = {'filter': {'routing_key': '@', 'state': 'lost'}}
NO_REASON = {'filter': {'queue': '@', 'reason': 'nack'}}
REJECTED = {'filter': {'queue': '@', 'reason': 'rejected'}}
LONG = 'x' * 256
TOMORROW = time.strftime('%Y-%m-%dT%H:%M:%S.000Z', time.gmtime(time.time() + 86400))
HOUR = {'routing_key': '@', 'delay': '1h', 'body': 'x', 'key': '@', 'headers': {'h': 1}, 'properties': {'priority': 4}}
DAILY = {'name': '@', 'cron': '0 9 * * *', 'routing_key': 'walk', 'body': 'x'}
ROWS = [
    Row('schedule', 'POST /v1/messages', HOUR, 'schedule -k @ --delay {delay} --body x --key @ --header h=1 --property priority=4', bad={'delay': 'soon'}, says=UUID.pattern, status=201, foreign=403),
    Row('schedule', 'POST /v1/messages', {'routing_key': '@', 'delay': '1h', 'body': 'x', 'deadline': TOMORROW}, 'schedule -k @ --delay 1h --body x --deadline {deadline}',
        bad={'deadline': 'soon'}, says=UUID.pattern, status=201, foreign=403),
    Row('list', 'GET /v1/messages', filtered('scheduled'), 'list -k @ --state {state} --json', message, {'state': 'lost'}, 'messages'),
    Row('show', 'GET /v1/messages/{id}', {'id': '$', 'view': 'full'}, 'show {id} --json', message, {'view': 'half'}),
    Row('show', None, {'key': '@', 'exchange': 'postdate.delivery', 'view': 'full'}, 'show --key @ --json', message, {'view': 'half'}),
    Row('cancel', 'DELETE /v1/messages/{id}', {'id': '$'}, 'cancel {id}', message, says='cancelled'),
    Row('cancel', 'DELETE /v1/messages', {'key': '@', 'exchange': 'postdate.delivery'}, 'cancel --key @', message, {'key': LONG}, says='cancelled'),
    Row('reschedule', 'PATCH /v1/messages/{id}', {'id': '$', 'delay': '2h'}, 'reschedule {id} --delay {delay}', message, {'delay': 'soon'}, says='rescheduled'),
    Row('retry', 'POST /v1/messages/{id}:retry', {'id': '$'}, 'retry {id}', failed, says='retried'),
    Row('fail', 'POST /v1/messages/{id}:fail', {'id': '$'}, 'fail {id}', message, says='failed'),
    Row('cancel', 'POST /v1/messages:cancel', {'filter': filtered('scheduled')}, 'cancel -k @ --state {filter[state]}', message, LOST, says='1 of 1 cancelled'),
    Row('reschedule', 'POST /v1/messages:reschedule', {'filter': filtered('scheduled'), 'shift_ms': 1000},
        'reschedule -k @ --state {filter[state]} --shift 1s', message, LOST, says='1 of 1 rescheduled'),
    Row('retry', 'POST /v1/messages:retry', {'filter': filtered('failed')}, 'retry -k @ --state {filter[state]}', failed, LOST, says='1 of 1 retried'),
    Row('fail', 'POST /v1/messages:fail', {'filter': {'routing_key': '@'}}, 'fail -k @', doubted, LOST, says='1 of 1 failed'),
    Row('dead_list', 'GET /v1/dead', {'queue': '@', 'reason': 'rejected'}, 'dead list --queue @ --reason {reason} --json', dead, {'reason': 'nack'}, 'dead_letters'),
    Row('dead_groups', 'GET /v1/dead:groups', {'queue': '@', 'reason': 'rejected'}, 'dead list --group --queue @ --reason {reason} --json', dead, {'reason': 'nack'},
        'groups'),
    Row('dead_show', 'GET /v1/dead/{id}', {'id': '$', 'queue': '@'}, 'dead show {id} --queue @ --json', dead, {'queue': LONG}),
    Row('dead_requeue', 'POST /v1/dead:requeue', REJECTED, 'dead requeue --queue @ --reason {filter[reason]}', dead, NO_REASON, says='1 of 1 requeued'),
    Row('dead_drop', 'POST /v1/dead:drop', REJECTED, 'dead drop --queue @ --reason {filter[reason]}', dead, NO_REASON, says='1 of 1 dropped'),
    Row('retry_policy_list', 'GET /v1/retry-policies', {}, 'retry-policy list --json', policy, answers='policies', foreign=403),
    Row('retry_policy_match', 'GET /v1/retry-policies:match', {'queue': '@'}, 'retry-policy show {queue} --json', policy, {'queue': LONG}, foreign=403),
    Row('retry_policy_show', 'GET /v1/retry-policies/{pattern}', {'pattern': '@'}, None, policy, foreign=403),
    Row('retry_policy_set', 'PUT /v1/retry-policies/{pattern}', {'pattern': '@', 'attempts': 3}, 'retry-policy set @ --attempts {attempts}', None, {'attempts': 1001},
        foreign=403),
    Row('retry_policy_remove', 'DELETE /v1/retry-policies/{pattern}', {'pattern': '@'}, 'retry-policy remove @', policy, says='removed', foreign=403),
    Row('recur_list', 'GET /v1/recurring', {'page_size': 1000}, 'recur list --json', schedule, {'page_size': 1001}, 'recurring'),
    Row('recur_show', 'GET /v1/recurring/{name}', {'name': '@'}, 'recur show @ --json', schedule),
    Row('recur_set', 'PUT /v1/recurring/{name}', DAILY, 'recur set @ --cron {cron} -k walk --body x', None, {'cron': '0 25 * * *'}, says='next at', status=201,
        foreign=403),
    Row('recur_remove', 'DELETE /v1/recurring/{name}', {'name': '@'}, 'recur remove @', schedule, says='removed'),
    Row('recur_pause', 'POST /v1/recurring/{name}:pause', {'name': '@'}, 'recur pause @', schedule, says='paused'),
    Row('recur_resume', 'POST /v1/recurring/{name}:resume', {'name': '@'}, 'recur resume @', paused_schedule, says='next at'),
    Row('recur_run', 'POST /v1/recurring/{name}:run', {'name': '@'}, 'recur run @', schedule, says=UUID.pattern),
    Row('recur_history', 'GET /v1/recurring/{name}:history', {'name': '@'}, 'recur show @ --history --json', schedule, answers='changes'),
    Row('recur_preview', 'GET /v1/recurring:preview', {'name': '@', 'n': 2}, 'recur preview {name} -n {n} --json', schedule, {'n': 1001}, 'times', foreign=404),
    Row('stats', 'GET /v1/stats', {}, 'status', says='(?m)^health', numbers=True),
    Row('whoami', 'GET /v1/whoami'),
    Row('slo', 'GET /v1/slo', numbers=True, foreign=403),
    Row('forecast', 'GET /v1/forecast', {'exchange': 'walk', 'step': '1h'}, 'forecast --exchange walk --step {step} --json', None, {'step': '1x'}, numbers=True, foreign=403),
    Row('overview', 'GET /v1/overview', numbers=True, foreign=403),
    Row('rate_list', 'GET /v1/rates', {}, 'rate list --json', rate, answers='rates'),
    Row('rate_match', 'GET /v1/rates:match', {'exchange': '@'}, 'rate show {exchange} --json', rate, {'exchange': LONG}),
    Row('rate_show', 'GET /v1/rates/{exchange}', {'exchange': '@'}, None, rate, {'exchange': LONG}),
    Row('rate_set', 'PUT /v1/rates/{exchange}', {'exchange': '@', 'rate': '5/s'}, 'rate set @ {rate}', None, {'rate': '2/w'}, says='at most 5/s', foreign=403),
    Row('rate_remove', 'DELETE /v1/rates/{exchange}', {'exchange': '@'}, 'rate remove {exchange}', rate, {'exchange': LONG}, says='removed', foreign=403),
    Row('rate_pause', 'POST /v1/rates/{exchange}/pause', {'exchange': '@'}, 'rate pause {exchange}', rate, {'exchange': LONG}, says='paused', foreign=403),
    Row('rate_resume', 'POST /v1/rates/{exchange}/resume', {'exchange': '@'}, 'rate resume {exchange}', paused_rate, {'exchange': LONG}, says='resumed', foreign=403),
]
# What only the command line has, with words that are good for nothing but to be read: those that work on the database alone.
COMMANDS = ['token list', 'token create --exchange a', 'token revoke nobody', 'recur export']
# What is no operation on a database that is there: made, looked at, fed by pgq or files, or of RabbitMQ alone. Each has tests of its own.
OTHERS = {'recur apply', 'doctor', 'migrate', 'feed', 'import plugin', 'import verify', 'drop-topology', 'rejected list', 'rejected show', 'rejected requeue', 'rejected drop'}


# --- the doors ----------------------------------------------------------------------------------------------------
class Said:
    """An answer, whichever way it came."""

    def __init__(self, status, value):
        self.status, self.value = status, value
        self.problem = (value or {}).get('type', '').rsplit(':', 1)[-1] if status >= 400 else ''
        self.detail = value.get('detail') if status >= 400 else None

    def __repr__(self):
        return f'{self.status} {str(self.value)[:400]}'

    def refusal(self):
        return self.status, self.problem, self.detail


def path_of(request):
    """(method, path with its query, body)"""
    (method, path), rest = request.row.call.split(), dict(request.fields)
    for hole in re.findall(r'{(\w+)}', path):
        path = path.replace('{%s}' % hole, urllib.parse.quote(rest.pop(hole), safe=''))
    if method.startswith('P'):
        return method, path, rest
    return method, path + ('?' + urllib.parse.urlencode(rest) if rest else ''), None


class HttpDoor:
    def __init__(self, address, description=None):
        self.web = Web(address, description)

    def __call__(self, request, token=None):
        """None: it has no such call."""
        if request.row.call is None:
            return None
        answer = self.web.ask(*path_of(request), {'Authorization': 'Bearer ' + token} if token else None)
        return Said(answer.status, answer.json)


class ControlDoor:
    def __init__(self, requester):
        self.requester, self.count = requester, 0

    def send(self, request, token=None):
        self.count += 1
        order = {'op': request.row.op, **request.fields} | ({'token': token} if token else {})
        return self.requester.send(order, message_id=f'door-{self.count}')

    def wait(self, correlation_id):
        answer = self.requester.wait(correlation_id)[1]
        return Said(answer.pop('status') if answer['status'] < 400 else answer['status'], answer)

    def __call__(self, request, token=None):
        return self.wait(self.send(request, token))


def printed(out):
    """What --json prints: one value, or one a line."""
    try:
        return json.loads(out)
    except ValueError:
        return [json.loads(line) for line in out.splitlines()]


def plain(request, value):
    """An answer without what differs because another request was another one: of a list, what has the request's name."""
    row = request.row
    if row.numbers:
        return sorted(value)
    if row.answers:
        value = value[row.answers] if isinstance(value, dict) and row.answers in value else value
        value = [x for x in (value if isinstance(value, list) else [value]) if not row.named or request.name in json.dumps(x)]
    return same(value, request.name)


def same(value, name):
    if isinstance(value, dict):
        return {k: same(v, name) for k, v in value.items() if k not in OWN}
    if isinstance(value, list):
        return [same(v, name) for v in value]
    return TIME.sub('TIME', UUID.sub('ID', value.replace(name, 'NAME'))) if isinstance(value, str) else value


class Asks:
    """What tests that ask have. self.p: the place."""
    number = 0

    def request(self, row, there=True, change=None):
        Asks.number += 1
        name = f'door{Asks.number:06}'
        return Request(row, name, change, row.make(self.p, name) if there and row.make else None)

    def open_doors(self, address, description=None):
        requester = Requester(self.p.amqp)
        self.http, self.control = HttpDoor(address, description), ControlDoor(requester)
        self.addCleanup(self.http.web.close)
        self.addCleanup(requester.close)
