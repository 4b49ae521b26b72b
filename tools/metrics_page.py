#!/usr/bin/env python3
"""metrics_page.py write|check: the table of docs/metrics.md has a row for each metric of /metrics, in its order.

Name, type, labels and the text of # HELP are read from the sources that print them: calls of metrics_print_head,
metrics_print_gauge and print_histogram, and rows of the table of counters. `write` puts the table between the page's two markers;
`check` fails when the page differs. tests/live/test_monitoring.py compares the page with what a gateway answers.
"""
import os
import re
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

SOURCES = ('gateway/runtime/metrics.h', 'gateway/runtime/metrics.c', 'gateway/http/health.c')
PAGE = 'docs/metrics.md'
BEGIN, END = '<!-- metrics: written by make docs/metrics.md -->', '<!-- end of metrics -->'

TEXT = r'"(?:[^"\\]|\\.)*"'
CALL = re.compile(rf'print_(head|gauge)\(\s*out, ("\w+"), (?:("\w+"), )?({TEXT})')
HISTOGRAM = re.compile(rf'print_histogram\(\s*&[\w>.-]+, ("\w+"),\s*({TEXT})')
COUNTER = re.compile(rf'X\(METRIC_\w+, ("\w+"), {TEXT}, ({TEXT})\)')


def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


def sources():
    """The C text on one line, each run of adjacent literals as one."""
    text = re.sub(r'(?:\s|\\\n)+', ' ', '\n'.join(read(path) for path in SOURCES))
    text = re.sub(r'" (?:PRI\w+ )?"', '', text)
    return re.sub(r'(?<=[({]) ', '', text)


def metrics(text):
    """(name, type, meaning) of each."""
    found = [(m.start(), m[2], m[3] or '"gauge"', m[4]) for m in CALL.finditer(text)]
    found += [(m.start(), m[1], '"histogram"', m[2]) for m in HISTOGRAM.finditer(text)]
    found += [(m.start(), m[1], '"counter"', m[2]) for m in COUNTER.finditer(text)]
    return [tuple(x.strip('"') for x in row[1:]) for row in sorted(found)]


def labels(name, text):
    keys = {}
    for group in re.findall(rf'"?{name}(?:", ")?\{{((?:\w+=[^{{}}]*)+)\}}', text):
        keys.update(dict.fromkeys(re.findall(r'(\w+)=\\"', group)))
    return ', '.join(f'`{k}`' for k in keys)


def table():
    text = sources()
    rows = [f'| `{name}` | {kind} | {labels(name, text)} | {meaning} |' for name, kind, meaning in metrics(text)]
    return '\n'.join(['| metric | type | labels | meaning |', '|---|---|---|---|', *rows])


def main():
    if sys.argv[1:] not in (['write'], ['check']):
        sys.exit('usage: metrics_page.py write|check')
    text = read(PAGE)
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    if not tail:
        sys.exit(f'{PAGE}: needs the lines {BEGIN} and {END}')
    new = f'{head}{BEGIN}\n\n{table()}\n\n{END}{tail}'
    if sys.argv[1] == 'write':
        with open(PAGE, 'w', encoding='utf-8') as f:
            f.write(new)
    elif text != new:
        sys.exit(f'{PAGE} does not fit {", ".join(SOURCES)}: run `make docs/metrics.md`')


if __name__ == '__main__':
    main()
