#!/usr/bin/python3
"""Which room may include which, what may call what, and how large things may be (docs/internals/architecture.md says why).

Prints every breach; exit 1 when there is any. What cannot be kept yet is listed under its rule: such a list may only
shrink, so an entry that is not needed any more is a breach, too.
"""
import collections
import glob
import os
import re
import sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

# A room and whom it may include, besides itself. The ways to the operations (http, control) do not know each other; both
# programs share config, json and ops.
CORE = 'core/base core/message'
SQL = 'sql/connection sql/pipeline sql/admin sql/operate'
AMQP = 'amqp/connection amqp/topology amqp/inspect'
SHARED = f'{CORE} {SQL} {AMQP} gateway/config gateway/json'
DAEMON = f'{SHARED} gateway/runtime'
CLI = f'{SHARED} gateway/ops gateway/cli'
MAY_INCLUDE = {
    'core/base': '',
    'core/message': 'core/base',
    'sql/connection': CORE,
    'sql/pipeline': f'{CORE} sql/connection',
    'sql/admin': f'{CORE} sql/connection sql/pipeline',
    'sql/operate': f'{CORE} sql/connection sql/pipeline sql/admin',
    'amqp/connection': CORE,
    'amqp/topology': f'{CORE} amqp/connection',
    'amqp/inspect': f'{CORE} amqp/connection',
    'gateway/config': f'{CORE} amqp/connection',
    'gateway/json': f'{CORE} {SQL}',
    'gateway/runtime': SHARED,
    'gateway/deliver': DAEMON,
    'gateway/handover': f'{DAEMON} gateway/deliver',
    'gateway/intake': f'{DAEMON} gateway/deliver',
    'gateway/ops': DAEMON,
    'gateway/http': f'{DAEMON} gateway/ops',
    'gateway/control': f'{DAEMON} gateway/ops',
    'gateway/program': f'{DAEMON} gateway/deliver gateway/handover gateway/intake gateway/ops gateway/http gateway/control',
    'gateway/cli': CLI,
    'gateway/cli/cells': CLI,
    'gateway/cli/broker': CLI,
    'gateway/cli/doctor': CLI,
    'gateway/cli/import': CLI,
    'gateway/cli/ops': CLI,
    'gateway/cli/retry': CLI,
    'gateway/cli/recur': CLI,
    'gateway/cli/schedule': CLI,
}

# Files that call each other: none.
CYCLE_EXCEPTIONS = []

FUNCTION_MAX = 80  # lines
PARAMETERS_MAX = 6
FILE_MIN, FILE_MAX = 60, 1200  # lines of a .c file
INCLUDED_MAX = 3  # no header but core's is included by more than one file in three

SHORT = {
    # an algorithm
    'core/base/base64.c', 'core/base/random.c',
    # a rule tested alone
    'gateway/runtime/shards_run.c',
    # the counts of an objective
    'sql/operate/slo.c',
    # a security boundary: what a token may name, what must not leak, who did it
    'gateway/config/secrets.c', 'sql/admin/audit.c',
    # a format: a progress line; a point in a database's history; a line of systemd's journal
    'gateway/cli/progress.c', 'core/message/history_point.c', 'gateway/config/journal.c',
    # a structure that several threads or stages share
    'gateway/runtime/notifier.c',
}
LONG = set()
# Functions with more parameters, and with how many.
WIDE = {}

found = []


def breach(text):
    found.append(text)


def read(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


def plain(text):
    """Without comments and strings, line by line as before."""
    blank = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
    return blank.sub(lambda m: '\n' * m.group(0).count('\n') or ' ', text)


FILES = sorted(f for top in ('core', 'sql', 'amqp', 'gateway') for f in glob.glob(top + '/**/*.[ch]', recursive=True))
TEXT = {f: read(f) for f in FILES}
CODE = {f: plain(t) for f, t in TEXT.items()}
INCLUDES = {f: re.findall(r'^#include "([^"]+)"', TEXT[f], re.M) for f in FILES}


def check_includes():
    for f in FILES:
        room = os.path.dirname(f)
        if room not in MAY_INCLUDE:
            breach(f'{f}: {room}/ is no room that MAY_INCLUDE of tools/check_rooms.py knows')
            continue
        allowed = {room, *MAY_INCLUDE[room].split()}
        for i in INCLUDES[f]:
            if '/' not in i or os.path.dirname(i) in allowed:
                continue
            breach(f'{f} includes {i}: {room}/ may include {MAY_INCLUDE[room] or "nothing"}')
    users = collections.Counter(i for f in FILES for i in set(INCLUDES[f]) if not i.startswith('core/'))
    for i, n in users.items():
        if n * INCLUDED_MAX > len(FILES):
            breach(f'{i} is included by {n} of {len(FILES)} files')
    for library in ('core', 'sql', 'amqp', 'gateway'):
        names = collections.Counter(os.path.basename(f) for f in FILES
                                    if f.endswith('.c') and f.startswith(library + '/') and not f.startswith('gateway/cli/'))
        for name, n in names.items():
            if n > 1:
                breach(f'{n} files of {library}/ are called {name}: one library, one name')


def circles(graph):
    """The sets of nodes that reach each other (Tarjan's strongly connected components)."""
    index, low, stack, out = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            one = set(stack[stack.index(v):])
            del stack[stack.index(v):]
            if len(one) > 1:
                out.append(one)
    for v in graph:
        if v not in index:
            visit(v)
    return out


DEFINITION = re.compile(r'^(?!static\b|typedef\b|extern\b|else\b)[A-Za-z_][\w *]*?\b(\w+)\(([^;{}]*?)\)\n\{\n(.*?)^\}', re.M | re.S)
OBJECT = re.compile(r'^(?!static\b|typedef\b|extern\b)[A-Za-z_][\w *]*?\b(\w+)(?:\[[^\]]*\])* = ', re.M)
FUNCTION = re.compile(r'^[A-Za-z_][\w *]*?\b(\w+)\(([^;{}]*?)\)\n\{\n(.*?)^\}', re.M | re.S)


def check_cycles():
    sources = [f for f in FILES if f.endswith('.c')]
    home = {}
    for f in sources:
        for m in list(DEFINITION.finditer(CODE[f])) + list(OBJECT.finditer(CODE[f])):
            home.setdefault(m.group(1), set()).add(f)
    home = {name: min(where) for name, where in home.items() if len(where) == 1}
    calls = {f: {home[w] for w in set(re.findall(r'\w+', CODE[f])) if home.get(w, f) != f} for f in sources}
    headers = {f: {i for i in INCLUDES[f] if i in TEXT} for f in FILES if f.endswith('.h')}
    excepted = [set(one.split()) for one in CYCLE_EXCEPTIONS]
    for one in circles(calls) + circles(headers):
        if one in excepted:
            excepted.remove(one)
        else:
            breach('These need each other: ' + ' '.join(sorted(one)))
    for one in excepted:
        breach('These do not need each other any more, all of them: ' + ' '.join(sorted(one)) + ' (CYCLE_EXCEPTIONS)')


def parameters(text):
    text = re.sub(r'\([^()]*\)', '', text)
    return 0 if text.strip() in ('', 'void') else text.count(',') + 1


def check_sizes():
    widest = collections.Counter()
    for f in FILES:
        lines = TEXT[f].count('\n')
        if f.endswith('.c') and lines < FILE_MIN and f not in SHORT:
            breach(f'{f} has {lines} lines, fewer than {FILE_MIN}')
        if lines > FILE_MAX and f not in LONG:
            breach(f'{f} has {lines} lines, more than {FILE_MAX}')
        for m in FUNCTION.finditer(CODE[f]):
            length, count = m.group(0).count('\n') + 1, parameters(m.group(2))
            if length > FUNCTION_MAX:
                breach(f'{f}: {m.group(1)} has {length} lines, more than {FUNCTION_MAX}')
            widest[m.group(1)] = max(count, widest[m.group(1)])
            if count > WIDE.get(m.group(1), PARAMETERS_MAX):
                breach(f'{f}: {m.group(1)} has {count} parameters, more than {WIDE.get(m.group(1), PARAMETERS_MAX)}')
    for name, count in WIDE.items():
        if widest[name] < count:
            breach(f'{name} has {widest[name]} parameters now: no exception any more, or a smaller one (WIDE)')
    for f in sorted(SHORT | LONG):
        lines = TEXT[f].count('\n') if f in TEXT else 0
        if not 0 < lines < FILE_MIN and f in SHORT or lines <= FILE_MAX and f in LONG:
            breach(f'{f} is no exception any more (SHORT, LONG)')


def check_queries():
    for path in sorted(glob.glob('sql/query/*.sql')):
        name = os.path.splitext(os.path.basename(path))[0]
        users = [f for f in FILES if re.search(rf'\bsql_query_{name}\b', CODE[f])]
        # "rate_ask": what is asked of a noun's function (sql/operate/ask.h)
        if not any(os.path.basename(f)[:-2].split('_')[0] in (name.split('_')[0], name.split('_')[-1]) for f in users):
            breach(f'{path}: its first or last word should be that of the C file that runs it ({" ".join(users) or "none does"})')


check_includes()
check_cycles()
check_sizes()
check_queries()
print('\n'.join(found), end='\n' if found else '', file=sys.stderr)
sys.exit(1 if found else 0)
