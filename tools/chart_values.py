#!/usr/bin/env python3
"""chart_values.py write|check: what follows from packaging/helm/postdate/values.yaml, the table of options and the console's mark.

  docs/values.md          has a row for each value, with the comment that stands above it in values.yaml
  Chart.yaml              its icon is the console's mark, in the address itself: that needs no server
  values.schema.json      `config` has the options of docs/configuration.md, so that Helm refuses one that does not exist

`write` puts them there; `check` says what differs, and exits with 1. A value is a line of values.yaml with something behind
its colon; what it means is the comment right above.
"""
import base64
import json
import os
import re
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

CHART = 'packaging/helm/postdate'
VALUES, SCHEMA, PAGE, OPTIONS = f'{CHART}/values.yaml', f'{CHART}/values.schema.json', 'docs/values.md', 'docs/configuration.md'
BEGIN, END = '<!-- values: written by make docs/values.md -->', '<!-- end of values -->'
CHART_FILE, MARK = f'{CHART}/Chart.yaml', 'gateway/console/mark.svg'
# What the chart itself sets, from secrets.
OWN = {'postgres.url', 'amqp.url', 'amqp.ca_file'}
# The kubelet, which asks whether a gateway is ready, comes from outside.
PATTERNS = {'http.listen': r'^(0\.0\.0\.0|\[::\]):[0-9]+$'}


def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


def values():
    """(name, default, meaning) of each value, in order."""
    path, above = [], ''
    for number, line in enumerate(read(VALUES).split('\n'), 1):
        found = re.match(r'( *)(?:# (.*)|(\w+):(?: (.*))?)$', line)
        if not found:
            if line.strip():
                sys.exit(f'{VALUES}:{number}: a value is one line, `name: default`')
            above = ''
            continue
        indent, comment, name, default = found.groups()
        if comment is not None:
            above = f'{above} {comment}'.strip()
            continue
        path = [*path[:len(indent) // 2], name]
        if default is not None:
            if not above:
                sys.exit(f'{VALUES}:{number}: {".".join(path)} has no comment above it')
            yield '.'.join(path), default, above
        above = ''


def table():
    rows = [f'| `{name}` | `{default}` | {meaning} |' for name, default, meaning in values()]
    return '\n'.join(['| value | default | meaning |', '|---|---|---|', *rows])


def new_page():
    text = read(PAGE)
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    if not tail:
        sys.exit(f'{PAGE}: needs the lines {BEGIN} and {END}')
    return f'{head}{BEGIN}\n\n{table()}\n\n{END}{tail}'


def option_schema(name, allowed):
    words = re.findall(r'`([^`]*)`', allowed)
    if words:
        # YAML takes on and off for booleans.
        return {'enum': words + ([True, False] if 'on' in words else [])}
    if name in PATTERNS:
        return {'type': 'string', 'pattern': PATTERNS[name]}
    return {'type': ['string', 'number']}


def config_schema():
    sections = {}
    for name, allowed in re.findall(r'^\| `(\w+\.\w+)` \| [^|]* \| ([^|]*) \|', read(OPTIONS), re.M):
        section, option = name.split('.')
        if name not in OWN:
            sections.setdefault(section, {})[option] = option_schema(name, allowed)
    return {'type': 'object', 'additionalProperties': False, 'properties': {
        section: {'type': 'object', 'additionalProperties': False, 'properties': options} for section, options in sections.items()}}


def new_schema():
    schema = json.loads(read(SCHEMA))
    schema['properties']['config'] = config_schema()
    return json.dumps(schema, indent=2, ensure_ascii=False) + '\n'


def new_chart():
    icon = base64.b64encode(read(MARK).strip().encode()).decode()
    return re.sub(r'(?m)^icon: .*$', f'icon: data:image/svg+xml;base64,{icon}', read(CHART_FILE))


def main():
    if sys.argv[1:] not in (['write'], ['check']):
        sys.exit('usage: chart_values.py write|check')
    wrong = 0
    for path, new in ((PAGE, new_page()), (SCHEMA, new_schema()), (CHART_FILE, new_chart())):
        if sys.argv[1] == 'write':
            with open(path, 'w', encoding='utf-8') as f:
                f.write(new)
        elif read(path) != new:
            print(f'{path} does not fit {VALUES}, {OPTIONS} or {MARK}: run `make docs/values.md`', file=sys.stderr)
            wrong = 1
    return wrong


if __name__ == '__main__':
    sys.exit(main())
