"""HTTP as its clients speak it: ordinary requests, checked against /openapi.json, and raw bytes."""
import http.client
import json
import re
import socket
import time

from harness import wait_until

JSON = {'Content-Type': 'application/json'}
IDLE_S = 0.5


class Answer:
    def __init__(self, response):
        self.status = response.status
        self.headers = {k.lower(): v for k, v in response.getheaders()}
        self.body = response.read()
        self.json = json.loads(self.body) if 'json' in self.headers.get('content-type', '') and self.body else None

    @property
    def problem(self):
        return (self.json or {}).get('type', '').rsplit(':', 1)[-1]

    def __repr__(self):
        return f'{self.status} {self.body[:300]!r}'


class Web:
    """One kept connection; after idle time a new one, for the gateway may just be closing it (http.timeout). With a description, each
    answer must be one that it describes."""

    def __init__(self, address, description=None):
        self.address = address
        self.description = description
        self.connection = http.client.HTTPConnection(*address, timeout=60)
        self.answered = time.monotonic()

    def ask(self, method, path, body=None, headers=None):
        if time.monotonic() > self.answered + IDLE_S:
            self.connection.close()
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        headers = dict(JSON if body is not None else {}, **(headers or {}))
        self.connection.request(method, path, body, headers)
        answer = Answer(self.connection.getresponse())
        self.answered = time.monotonic()
        if self.description:
            check(self.description, method, path, answer)
        return answer

    def get(self, path):
        return self.ask('GET', path)

    def post(self, path, body, **headers):
        return self.ask('POST', path, body, {k.replace('_', '-'): v for k, v in headers.items()})

    def close(self):
        self.connection.close()


def ready_address(gateway):
    """Its address, once requests are answered there."""
    address = gateway.http()
    wait_until(lambda: Web(address).get('/readyz').status == 200, 10, '/readyz')
    return address


def described(case, address):
    """A connection whose answers are checked, for the time of the test."""
    web = Web(address, Web(address).get('/openapi.json').json)
    case.addCleanup(web.close)
    return web


# --- is it what /openapi.json says? Only what that file uses of JSON Schema ------------------------------------------
def resolve(root, node):
    while '$ref' in node:
        target = root
        for part in node['$ref'].lstrip('#/').split('/'):
            target = target[part]
        node = target
    return node


def operation_of(root, method, path):
    path = path.split('?')[0]
    for pattern, item in root['paths'].items():
        if re.fullmatch(re.sub(r'\{[^}]*\}', '[^/:]+', pattern), path):
            return item.get('get' if method == 'HEAD' else method.lower())
    return None


def check(root, method, path, answer):
    operation = operation_of(root, method, path)
    if operation is None:
        assert answer.status in (404, 405), f'{method} {path} is not described: {answer}'
        return
    described = operation['responses'].get(str(answer.status))
    assert described, f'{method} {path}: status {answer.status} is not described: {answer}'
    content = resolve(root, described).get('content', {})
    kind = answer.headers['content-type'].split(';')[0]
    assert kind in content, f'{method} {path}: {kind} is not described for {answer.status}'
    if method != 'HEAD' and 'json' in kind:
        errors = list(mismatches(root, content[kind]['schema'], answer.json, ''))
        assert not errors, f'{method} {path}: {errors} in {answer}'


TYPES = {'object': dict, 'array': list, 'string': str, 'boolean': bool, 'null': type(None)}


def has_type(value, name):
    if name in ('integer', 'number'):
        return isinstance(value, int if name == 'integer' else (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def fits(root, schema, value):
    return not any(True for _ in mismatches(root, schema, value, ''))


def combined(root, schema, value, where):
    for part in schema.get('allOf', []):
        yield from mismatches(root, part, value, where)
    if 'anyOf' in schema and not any(fits(root, s, value) for s in schema['anyOf']):
        yield f'{where}: fits none of anyOf'
    if 'oneOf' in schema and sum(fits(root, s, value) for s in schema['oneOf']) != 1:
        yield f'{where}: fits none of oneOf, or several'
    if 'not' in schema and fits(root, schema['not'], value):
        yield f'{where}: fits what it may not'


def out_of_range(schema, value, where):
    size = {str: 'Length', list: 'Items', dict: 'Properties'}.get(type(value))
    if size and not schema.get('min' + size, 0) <= len(value) <= schema.get('max' + size, len(value)):
        yield f'{where}: {len(value)} {size} are too few or too many'
    if isinstance(value, (int, float)) and not isinstance(value, bool) and \
            not schema.get('minimum', value) <= value <= schema.get('maximum', value):
        yield f'{where}: {value} is out of range'
    if isinstance(value, str) and 'pattern' in schema and not re.search(schema['pattern'].replace('$', '\\Z'), value):
        yield f'{where}: {value!r} does not match {schema["pattern"]}'


def members(root, schema, value, where):
    known, more = schema.get('properties', {}), schema.get('additionalProperties')
    if more is None:  # answers: what is not described should be
        more = 'properties' not in schema or schema.get('type') != 'object'
    for name in schema.get('required', []):
        if name not in value:
            yield f'{where}: {name} is missing'
    for name, part in value.items():
        if 'propertyNames' in schema:
            yield from mismatches(root, schema['propertyNames'], name, f'{where}: the name {name}')
        if name in known:
            yield from mismatches(root, known[name], part, f'{where}.{name}')
        elif more is False:
            yield f'{where}: {name} is not described'
        elif isinstance(more, dict):
            yield from mismatches(root, more, part, f'{where}.{name}')


def mismatches(root, schema, value, where):
    schema = resolve(root, schema)
    yield from combined(root, schema, value, where)
    wanted = schema.get('type')
    if wanted and not any(has_type(value, t) for t in ([wanted] if isinstance(wanted, str) else wanted)):
        yield f'{where}: {value!r} is not of type {wanted}'
        return
    if 'enum' in schema and value not in schema['enum']:
        yield f'{where}: {value!r} is not among {schema["enum"]}'
    known = schema.get('x-extensible-enum')  # a client accepts others; of this version, each is described
    if known and value is not None and value not in known:
        yield f'{where}: {value!r} is not among {known}'
    yield from out_of_range(schema, value, where)
    if isinstance(value, dict):
        yield from members(root, schema, value, where)
    if isinstance(value, list) and 'items' in schema:
        for i, part in enumerate(value):
            yield from mismatches(root, schema['items'], part, f'{where}[{i}]')


# --- raw bytes ---------------------------------------------------------------------------------------------------
class Raw:
    """A socket, for what no decent client sends."""

    def __init__(self, address, timeout_s=60):
        self.socket = socket.create_connection(address, timeout=timeout_s)

    def send(self, data):
        self.socket.sendall(data)
        return self

    def answer(self):
        """The next answer; None when the server closed without one."""
        response = http.client.HTTPResponse(self.socket)
        try:
            response.begin()
            return Answer(response)
        except (http.client.HTTPException, OSError):
            return None

    def wait_closed(self, deadline_s):
        """All that comes until the server closes."""
        end, data = time.monotonic() + deadline_s, b''
        self.socket.settimeout(deadline_s)
        while time.monotonic() < end:
            try:
                part = self.socket.recv(65536)
            except ConnectionError:
                return data
            if not part:
                return data
            data += part
        raise AssertionError(f'the connection was still open after {deadline_s} s')

    def close(self):
        self.socket.close()
