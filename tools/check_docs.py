#!/usr/bin/env python3
"""check_docs.py: what the documents name exists, links resolve, and lines are short. Prints each mistake; exit 1 when there is any.

Names are looked for in `code spans` and code blocks only:
  paths          core/…, docs/…, tools/… and other folders of the repository; * and NAME stand for anything
  make targets   `make NAME`
  options        `section.option`, `option = value`, lines below [section] in code blocks, POSTDATE_SECTION_OPTION
                 (docs/kubernetes.md, docs/values.md: also the values of the Helm chart, which look the same)
  our own names  in docs/internals, but for decisions: `module_verb_noun`, a function, type, table or file of the code
  live tests     test_NAME, a file or a function; in a table with a column "tested by", each code span there
What repeats the version of the Makefile has the same. Links (and #anchors) of Markdown must lead somewhere. A page of WORDS has at most so many words (`wc -w`). README.md has at most 150 lines; prose has at most 110 characters a line.
"""
import functools
import glob
import os
import re
import sys

import chart_values

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))

DOCUMENTS = sorted(glob.glob('*.md') + glob.glob('docs/**/*.md', recursive=True) + glob.glob('docker/*.md') +
                   glob.glob('plugins-config/*.md') + glob.glob('tests/**/*.md', recursive=True))
MANUALS = sorted(glob.glob('man/*.[1-8]'))
README_LINES, LINE = 150, 110
# Words of a page at most: its target and 3 %. A page that needs more says something that belongs on another page, or twice.
WORDS = {
    'README.md': 1043,
    'docs/README.md': 359,
    'docs/capacity.md': 484,
    'docs/cli.md': 763,
    'docs/clients.md': 365,
    'docs/compare.md': 870,
    'docs/configuration.md': 1666,
    'docs/console.md': 599,
    'docs/consume.md': 537,
    'docs/control-queue.md': 492,
    'docs/forecast.md': 325,
    'docs/from-others.md': 780,
    'docs/glossary.md': 913,
    'docs/guarantees.md': 1637,
    'docs/handover.md': 1449,
    'docs/http.md': 1650,
    'docs/install.md': 1347,
    'docs/kubernetes.md': 1046,
    'docs/known.md': 600,
    'docs/last-hop.md': 656,
    'docs/metrics.md': 1796,
    'docs/migrate.md': 2759,
    'docs/operations.md': 3172,
    'docs/performance.md': 735,
    'docs/publish.md': 1470,
    'docs/rates.md': 672,
    'docs/recurring.md': 1805,
    'docs/retries.md': 1078,
    'docs/retry-clients.md': 895,
    'docs/scale.md': 1644,
    'docs/security.md': 1537,
    'docs/slo.md': 302,
    'docs/sql.md': 970,
    'docs/troubleshooting.md': 1586,
    'docs/versions.md': 690,
}
# Settings of RabbitMQ and PostgreSQL that are written like options of ours.
FOREIGN_OPTIONS = {'cluster_partition_handling', 'load_definitions', 'message_interceptors', 'synchronous_commit', 'owner', 'overflow',
                   'idle_in_transaction_session_timeout', 'server_name', 'exchange'}

FOLDERS = ('core', 'sql', 'amqp', 'gateway', 'docs', 'tests', 'tools', 'packaging', 'docker', 'man', 'plugins-config', '.ci')
PATH = re.compile(r'(?<![\w/.<>{}$-])((?:%s)/[\w.*/-]*|\.\./[\w.*/-]+)' % '|'.join(map(re.escape, FOLDERS)))
SPAN = re.compile(r'(`+)(.+?)\1')
LINK = re.compile(r'!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)')
LINK_TARGET = re.compile(r'\]\(([^)\s]+)\)')
TARGET = re.compile(r'(?:^|[\s;&|(])make((?:[ ]+[\w./=$"\',*-]+)+)')
ENVIRONMENT = re.compile(r'\bPOSTDATE_[A-Z0-9_]*[A-Z0-9]\b')

mistakes = []


def complain(where, line, text):
    mistakes.append(f'{where}:{line}: {text}')


@functools.lru_cache(None)
def text_of(*patterns):
    """All text of the files that match."""
    parts = []
    for pattern in patterns:
        for name in sorted(glob.glob(pattern, recursive=True)):
            if os.path.isfile(name):
                with open(name, encoding='utf-8', errors='replace') as f:
                    parts.append(f.read())
    return '\n'.join(parts)


# --- what there is -----------------------------------------------------------------------------------------------
def find_options():
    rows = re.findall(r'\{"(\w+)", "(\w+)", OPTION_', text_of('gateway/**/config_table.c'))
    if not rows:
        sys.exit('check_docs.py: no table of options in gateway/**/config_table.c')
    options = {}
    for section, name in rows:
        options.setdefault(section, set()).add(name)
    return options


def find_targets():
    targets = set()
    for line in text_of('Makefile', '**/*.mk').splitlines():
        rule = re.match(r'([\w./ -]+?)\s*&?::?(?!=)(?:\s|$)', line)
        targets.update(rule.group(1).split() if rule and not line.startswith('\t') else ())
    return targets


OPTIONS = find_options()
OPTION_NAMES = set().union(*OPTIONS.values())
TARGETS = find_targets()
CHART_VALUES = {name for name, _, _ in chart_values.values()}
SECTION_OPTION = re.compile(r'(?<![\w.`/<-])(%s)\.([a-z_]+)(?![\w.(])' % '|'.join(OPTIONS))
VARIABLES = {f'POSTDATE_{s}_{n}'.upper() + suffix for s, names in OPTIONS.items() for n in names for suffix in ('', '_FILE')}


# --- documents ---------------------------------------------------------------------------------------------------
class Document:
    """Its lines, each with whether it is code (a fenced or an indented block)."""

    def __init__(self, path):
        self.path = path
        with open(path, encoding='utf-8') as f:
            self.lines = f.read().split('\n')
        if self.lines[-1] == '':
            self.lines.pop()
        self.code = self.find_code()

    def find_code(self):
        code, fence, was_blank, was_code = [], None, True, False
        for line in self.lines:
            opening = re.match(r'\s*(```+|~~~+)', line)
            indented = line.startswith('    ') and (was_blank or was_code)
            if fence or opening:
                code.append(True)
                if fence is None:
                    fence = opening.group(1)
                elif line.strip() == fence:
                    fence = None
            else:
                code.append(bool(line.strip()) and indented)
            was_code = code[-1] and fence is None and not opening or (was_code and not line.strip())
            was_blank = not line.strip()
        return code

    @functools.cached_property
    def anchors(self):
        seen, anchors = {}, set()
        for line, code in zip(self.lines, self.code):
            heading = None if code else re.match(r'#{1,6} +(.*?)(?: +#+)?$', line)
            if heading:
                text = LINK.sub(lambda m: m.group(0)[1:].split('](')[0], heading.group(1))
                slug = re.sub(r'[^\w\- ]', '', text.replace('`', '').lower()).replace(' ', '-')
                n = seen[slug] = seen.get(slug, -1) + 1
                anchors.add(slug if n == 0 else f'{slug}-{n}')
        return anchors

    def pieces(self):
        """(line number, text, is it a block) of all that is code."""
        for n, (line, code) in enumerate(zip(self.lines, self.code), 1):
            if code:
                yield n, line, True
            else:
                for span in SPAN.finditer(line):
                    yield n, span.group(2).strip(), False


@functools.lru_cache(None)
def document(path):
    return Document(path)


# --- checks ------------------------------------------------------------------------------------------------------
def check_links(d):
    for n, (line, code) in enumerate(zip(d.lines, d.code), 1):
        # The text of a link may begin on the line before.
        for link in () if code else LINK_TARGET.finditer(SPAN.sub(lambda m: 'x' * len(m.group(0)), line)):
            target, _, anchor = link.group(1).partition('#')
            if re.match(r'[a-z]+:', target):
                continue
            path = os.path.normpath(os.path.join(os.path.dirname(d.path), target)) if target else d.path
            if not os.path.exists(path):
                complain(d.path, n, f'the link leads nowhere: {link.group(1)}')
            elif anchor and path.endswith('.md') and anchor not in document(path).anchors:
                complain(d.path, n, f'{path} has no heading #{anchor}')


def exists(path, folder):
    """From the top, or from the document's folder. Words such as NAME, NNN, or just name, stand for anything."""
    path = path.rstrip('.')
    pattern = re.sub(r'(?<![A-Za-z])([A-Z]{3,}|name)(?![A-Za-z])', '*', path)
    return any(os.path.exists(os.path.join(base, path)) or glob.glob(os.path.join(base, pattern)) for base in ('', folder))


def check_paths(d):
    for n, text, _ in d.pieces():
        for path in PATH.findall(re.sub(r'\w+://\S+', '', text)):
            if not exists(path, os.path.dirname(d.path)):
                complain(d.path, n, f'there is no {path}')


def check_targets(d):
    for n, text, block in d.pieces():
        for run in () if 'apt-get' in text else TARGET.findall(text.split(' # ')[0] if block else text):
            for word in re.sub(r'(["\']).*?\1', '', run).split():
                if '=' in word or word.startswith('-'):
                    continue
                if not re.fullmatch(r'[\w./-]+', word):
                    break
                if word not in TARGETS and not word.startswith('build/'):
                    complain(d.path, n, f'make has no target {word}')


def known_option(section, name):
    return section == 'route' or name in OPTIONS.get(section, ())


def check_options(d):
    section = None
    for n, text, block in d.pieces():
        for s, name in SECTION_OPTION.findall(text):
            if d.path in ('docs/kubernetes.md', chart_values.PAGE) and f'{s}.{name}' in CHART_VALUES:
                continue
            # A fault of the chaos suite is written like an option.
            if not known_option(s, name) and f"'{s}.{name}'" not in text_of('tests/chaos/*.py'):
                complain(d.path, n, f'there is no option {s}.{name}')
        header = re.fullmatch(r'\s*\[(\w+)\]\s*', text)
        setting = re.match(r"([a-z_]+)\s*=\s*[^'\s]", text.strip())
        if header:
            name = header.group(1)
            section = name if block else None
            if name not in OPTIONS and name != 'route':
                complain(d.path, n, f'there is no section [{name}]')
        elif block and section and setting and not known_option(section, setting.group(1)):
            complain(d.path, n, f'there is no option {section}.{setting.group(1)}')
        elif not block and setting and ' = ' in text and setting.group(1) not in OPTION_NAMES | FOREIGN_OPTIONS:
            complain(d.path, n, f'there is no option {setting.group(1)}')
        if not block or not text.strip():
            section = None


def check_environment(d):
    for n, text, _ in d.pieces():
        for name in ENVIRONMENT.findall(text):
            if name in VARIABLES or name == 'POSTDATE_SECTION_OPTION':
                continue
            # Not an option: something in the repository must read it.
            if name not in text_of('gateway/**/*.[ch]', 'tests/**/*.py', 'tests/**/*.[ch]', 'tools/*', 'docker/*', 'docs/examples/*'):
                complain(d.path, n, f'nothing reads {name}')


@functools.lru_cache(None)
def code_words():
    code = text_of('core/**/*', 'amqp/**/*', 'sql/**/*', 'gateway/**/*', 'tests/**/*', 'tools/*', 'packaging/**/*', 'docs/configuration.md')
    files = {os.path.splitext(os.path.basename(f))[0] for f in glob.glob('**/*.*', recursive=True)}
    return set(re.findall(r'[a-z][a-z0-9]*(?:_[a-z0-9]+)+', code)) | files


FOREIGN_NAMES = {'pg_stat_statements', 'consumer_timeout'}


def check_code_names(d):
    """What is renamed in the code is renamed in the pages about the code."""
    if not d.path.startswith('docs/internals/') or '/decisions/' in d.path:
        return
    for n, text, block in d.pieces():
        if not block and re.fullmatch(r'[a-z][a-z0-9]*(_[a-z0-9]+)+', text) and text not in code_words() | FOREIGN_NAMES and not test_exists('test_' + text):
            complain(d.path, n, f'nothing in the code is called {text}')


def test_exists(name):
    tests = text_of('tests/live/*.py')
    return (glob.glob(f'tests/*/{name}.py') or glob.glob(f'tests/*/{name}.c') or
            re.search(rf'^\s*def {re.escape(name)}\b', tests, re.M) is not None)


def check_tests(d):
    column = None
    for n, line in enumerate(d.lines, 1):
        cells = [c.strip() for c in re.split(r'(?<!\\)\|', line)] if line.startswith('|') else None
        if cells is None:
            column = None
        elif 'tested by' in cells:
            column = cells.index('tested by')
        elif column:
            for name in [m.group(2) for m in SPAN.finditer(cells[column])]:
                if not test_exists('test_' + name) and not re.search(rf'^class {re.escape(name)}\b', text_of('tests/live/*.py'), re.M):
                    complain(d.path, n, f'there is no test {name}')
    for n, text, _ in d.pieces():
        for name in re.findall(r'(?<![\w/])test_\w*[a-z0-9](?![\w*])', text):
            if name != 'test_name' and not test_exists(name):
                complain(d.path, n, f'there is no test {name}')


def check_schema(d):
    """What `postdate status` is shown to print has the version that this program makes."""
    current = str(int(os.path.basename(max(glob.glob('sql/schema/*.sql')))[:3]))
    for number, line in enumerate(d.lines, 1):
        shown = re.match(r'schema +version (\d+)', line)
        if shown and shown[1] != current:
            complain(d.path, number, f'schema version {shown[1]}: it is {current}')


def check_lines(d):
    if d.path == 'README.md' and len(d.lines) > README_LINES:
        complain(d.path, len(d.lines), f'{len(d.lines)} lines: at most {README_LINES}')
    words = len(' '.join(d.lines).split())
    if words > WORDS.get(d.path, words):
        complain(d.path, len(d.lines), f'{words} words: at most {WORDS[d.path]}')
    if not d.path.startswith('tests/'):
        for n, (line, code) in enumerate(zip(d.lines, d.code), 1):
            breakable = re.sub(r'https?://\S+', '', line)
            if not code and not line.lstrip().startswith('|') and len(breakable) > LINE:
                complain(d.path, n, f'{len(line)} characters: at most {LINE}')


def check_manual(path):
    with open(path, encoding='utf-8') as f:
        for n, line in enumerate(f, 1):
            for s, name in SECTION_OPTION.findall(line) if line.startswith('.') or 'Ql' in line else ():
                if not known_option(s, name):
                    complain(path, n, f'there is no option {s}.{name}')


def check_release():
    """The version is the Makefile's; these files repeat it."""
    release = re.search(r'^RELEASE := (\S+)$', text_of('Makefile'), re.M)[1]
    for path, pattern in (('packaging/helm/postdate/Chart.yaml', r'^(?:version|appVersion): "?([^"\s]+)'), ('docker/Dockerfile', r'^ARG VERSION=(\S+)'),
                          ('docs/kubernetes.md', r'/postdate:(\d\S*)')):
        with open(path, encoding='utf-8') as f:
            found = [(n, version) for n, line in enumerate(f, 1) for version in re.findall(pattern, line)]
        for n, version in found or [(1, 'no version')]:
            if version != release:
                complain(path, n, f'{version}: RELEASE in the Makefile is {release}')


def main():
    for path in DOCUMENTS:
        for check in (check_links, check_paths, check_targets, check_options, check_environment, check_code_names,
                      check_tests, check_schema, check_lines):
            check(document(path))
    for path in MANUALS:
        check_manual(path)
    check_release()
    for text in mistakes:
        print(text, file=sys.stderr)
    return 1 if mistakes else 0


if __name__ == '__main__':
    sys.exit(main())
