"""Each bound in the description, beside the place in the code that has it: one that nobody has compared is a failure, too."""
import glob
import json
import os
import re

import harness
from harness import LiveTest

BOUNDS = ('minimum', 'maximum', 'minLength', 'maxLength', 'minItems', 'maxItems', 'minProperties', 'maxProperties')
# What lies in the nature of the thing: a count, a list that is not empty. Each has its cases in test_openapi.
NATURAL = {('minimum', 0), ('minimum', 1), ('minLength', 1), ('minItems', 1), ('minProperties', 1), ('maxProperties', 0), ('maxProperties', 1)}
HTTP = [('minimum', 400), ('maximum', 599)]  # of a problem: the classes of status that are errors
NAME, BATCH, PAGE = '#MESSAGE_NAME_MAX', '#API_BATCH_MAX', ('gateway/ops/api_param.c', r'PAGE_MAX (\d+)')
# Where it stands: of C a constant; else a file and the number in it.
CODE = {
    'parameters/Idempotency-Key': {'maxLength': '#HTTP_KEY_MAX'},
    'parameters/If-Match': {'maxLength': '#HTTP_CONDITION_MAX'},
    'parameters/page_size': {'maximum': PAGE},
    'parameters/cron': {'maxLength': ('sql/schema/001_77_recur_text.sql', r'Allowed are up to (\d+)')},
    'parameters/n': {'maximum': '#TIMES_MAX'},
    'parameters/{pattern}': {'maxLength': NAME},
    'parameters/{exchange}': {'maxLength': NAME},
    'schemas/Batch/messages!': {'maxItems': BATCH},
    'schemas/DeadRequeue/ids': {'maxItems': BATCH},
    'schemas/DeadDrop/ids': {'maxItems': BATCH},
    'schemas/BulkShift/shift_ms!': {'maximum': '#SHIFT_MAX_MS', 'minimum': '-#SHIFT_MAX_MS'},
    'schemas/Name': {'maxLength': NAME},
    'schemas/Key': {'maxLength': NAME},
    'schemas/Headers': {'maxLength': NAME},
    'schemas/Properties/delivery_mode': {'maximum': ('gateway/json/json_message.c', r'v, 1, (\d+), &w->delivery_mode')},
    'schemas/Properties/priority': {'maximum': ('gateway/json/json_message.c', r'v, 0, (\d+), &w->priority')},
    'schemas/Properties/expiration': {'maximum': '#EXPIRATION_MAX_MS'},
    'schemas/NewRetryPolicy/attempts': {'maximum': '#RETRY_ATTEMPTS_MAX'},
    'schemas/NewRetryPolicy/factor': {'maximum': '#RETRY_FACTOR_MAX'},
    'schemas/NewRetryPolicy/jitter': {'maximum': ('core/message/retry_policy.c', r'"jitter", p->jitter, 0, (\d+)')},
    'schemas/NewRate/rate!': {'maxLength': '#RATE_LENGTH_MAX'},
    'schemas/DeadRequeue/rate': {'maxLength': '#RATE_LENGTH_MAX'},
    'schemas/NewRate/burst': {'maximum': '#RATE_BURST_MAX'},
    'schemas/NewSchedule/cron!': {'maxLength': ('sql/schema/001_77_recur_text.sql', r'Allowed are up to (\d+)')},
}
# Compared below. Only requests have bounds of lists and texts: test_openapi.
OTHERS = ('schemas/Problem/status!',)
for where in ('NewRate', 'RateName'):
    CODE[f'schemas/{where}/exchange'] = CODE[f'schemas/{where}/routing_key'] = {'maxLength': NAME}


def read(path):
    with open(os.path.join(harness.ROOT, path), encoding='utf-8') as f:
        return f.read()


def constants():
    """Of all C that has a name for a number: every value that it has, for some names stand in two files."""
    found = {}
    for folder in ('core', 'sql', 'gateway', 'amqp'):
        for path in glob.glob(os.path.join(harness.ROOT, folder, '**', '*.[ch]'), recursive=True):
            for name, value in re.findall(r'(?m)^#define (\w+) +(?:INT64_C\()?\(?(?:\(size_t\))?(\d+)', read(path)):
                found.setdefault(name, set()).add(int(value))
    return found


def bounds(node, where):
    """(place, bound, value) of the short forms of gateway/http/openapi.json."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name in BOUNDS and not isinstance(value, (dict, list)):
                yield where, name, value
            else:
                yield from bounds(value, where)
    elif isinstance(node, list):
        for value in node:
            yield from bounds(value, where)


def all_bounds(root):
    for name, value in root['parameters'].items():
        yield from bounds(value, 'parameters/' + name)
    for name, schema in root['schemas'].items():
        fields = schema[0] if isinstance(schema, list) and isinstance(schema[0], dict) else schema
        if not isinstance(fields, dict):
            yield from bounds(schema, 'schemas/' + name)
            continue
        for field, value in fields.items():
            yield from bounds(value, f'schemas/{name}/{field}')
        if fields is not schema:
            yield from bounds(schema[1:], 'schemas/' + name)
    yield from bounds(root['calls'], 'calls')


class OpenApiBounds(LiveTest):
    vhosts = 0

    def value(self, source, known):
        if isinstance(source, tuple):
            found = set(re.findall(source[1], read(source[0])))
            self.assertEqual(len(found), 1, source)
            return int(found.pop())
        values = known.get(source.lstrip('-#'))
        self.assertTrue(values, source + ' is not in the code')
        self.assertEqual(len(values), 1, (source, values))
        return -min(values) if source.startswith('-') else min(values)

    def test_each_is_that_of_the_code(self):
        known, compared, wrong = constants(), set(), []
        for where, bound, value in all_bounds(json.loads(read('gateway/http/openapi.json'))):
            source = CODE.get(where, {}).get(bound)
            if source is not None:
                compared.add((where, bound))
                if value != self.value(source, known):
                    wrong.append(f'{where}: {bound} is {value}, in the code {self.value(source, known)}')
            elif (bound, value) not in NATURAL and where not in OTHERS:
                wrong.append(f'{where}: {bound} {value} is compared with nothing')
        self.assertEqual(wrong, [])
        self.assertEqual({(w, b) for w, of in CODE.items() for b in of} - compared, set(), 'it is gone')

    def test_of_a_problem_they_are_the_statuses_that_are_errors(self):
        root = json.loads(read('gateway/http/openapi.json'))
        self.assertEqual([(x, root['schemas']['Problem']['status!'][2][x]) for x in ('minimum', 'maximum')], HTTP)
