"""The figures: kept as rows, printed as a table of at most 100 columns, written as JSON and as Markdown."""
import contextlib
import json
import os
import statistics
import textwrap
import time

BEGIN, END = '<!-- table: written by make bench -->', '<!-- end of table -->'


class Target:
    """`figure` of a row (or 'ratio') compared with a bound; a bound that is a row means: that row's figure, so many times, and so much more."""

    def __init__(self, figure, sign, bound, text=None, more=0, factor=1):
        self.figure, self.sign, self.bound, self.text, self.more, self.factor = figure, sign, bound, text, more, factor

    def limit_of(self):
        value = self.bound.value(self.figure) if isinstance(self.bound, Row) else self.bound
        return None if value is None else value * self.factor + self.more

    def met(self, row):
        value, bound = row.value(self.figure), self.limit_of()
        if value is None or bound is None:
            return None
        return value >= bound if self.sign == '≥' else value <= bound if self.sign == '≤' else value < bound

    def __str__(self):
        bound = self.limit_of()
        name = NAMES.get(self.figure, (self.figure,))[0]
        shown = '-' if bound is None else format_value(self.figure, bound)
        return f'{name} {self.sign} {shown}' + (f' ({self.text})' if self.text else '')


# figure: (name in tables, format)
NAMES = {
    'intake': ('intake', '{:,.0f}/s'), 'rate': ('rate', '{:,.0f}/s'), 'p50_ms': ('p50', '{:.2f}'), 'p99_ms': ('p99', '{:.2f}'), 'p999_ms': ('p99.9', '{:.2f}'),
    'max_ms': ('max', '{:.1f}'), 'seconds': ('time', '{:.2f} s'), 'ratio': ('ratio', '{:.2f}'), 'bytes': ('bytes', '{:.0f}'),
    'wal': ('WAL', '{:.0f} B'), 'peak_mib': ('peak', '{:.1f} MiB'), 'whole_p99_ms': ('whole p99', '{:.2f}'),
    'mib': ('memory', '{:.1f} MiB'), 'grown_mib': ('grown', '{:+.1f} MiB'), 'ms': ('median', '{:.2f} ms'),
    'us': ('PostgreSQL', '{:.1f} µs'), 'rewrites': ('rewrites', '{:.3f}'), 'wal_ratio': ('WAL of calm', '{:.2f}'), 'us_s': ('PostgreSQL', '{:,.0f} µs/s'), 'wal_s': ('WAL', '{:,.0f} B/s'),
    'gateway_us': ('gateway', '{:.0f}'), 'postgres_us': ('Postgres', '{:.0f}'), 'rabbitmq_us': ('RabbitMQ', '{:.0f}'), 'sum_us': ('together', '{:.0f} µs'),
    'life_us': ('whole life', '{:.0f} µs'), 'postgres_syncs': ('syncs of Postgres', '{:.1f}'), 'rabbitmq_syncs': ('of RabbitMQ', '{:.1f}'),
    'commits': ('commits', '{:.0f}'), 'idle': ('idle', '{:.1f} % of a core'),
    'gateway_cpu': ('gateway', '{:.3f}'), 'postgres_cpu': ('Postgres', '{:.3f}'), 'rabbitmq_cpu': ('RabbitMQ', '{:.3f}'),
}

WIDTHS = {'rate': 9, 'p50_ms': 7, 'p99_ms': 7, 'p999_ms': 7, 'max_ms': 7, 'ms': 8}


def format_value(figure, value):
    return NAMES.get(figure, (figure, '{:g}'))[1].format(value)


class Row:
    def __init__(self, shape, what, tags):
        self.shape, self.what, self.tags = shape, what, tags
        self.figures, self.ratios, self.limit = {}, [], None
        self.targets, self.notes, self.reason = [], [], None

    def add(self, **figures):
        """One run's."""
        for name, value in figures.items():
            self.figures.setdefault(name, []).append(value)
        return self

    def add_all(self, name, values):
        """Many at once."""
        self.figures.setdefault(name, []).extend(round(v, 3) for v in values)
        return self

    def against(self, limit, value, limit_value):
        """The ratio of one run to what `limit` (words) made beside it."""
        self.limit = limit
        self.ratios.append(value / limit_value)

    def aim(self, figure, sign, bound, text=None, more=0, factor=1):
        """Once, however often the row is asked for."""
        if not any(t.figure == figure and t.sign == sign for t in self.targets):
            self.targets.append(Target(figure, sign, bound, text, more, factor))
        return self

    def note(self, text):
        if text and text not in self.notes:
            self.notes.append(text)
        return self

    def value(self, figure):
        runs = self.ratios if figure == 'ratio' else self.figures.get(figure)
        return statistics.median(runs) if runs and not self.reason else None

    @contextlib.contextmanager
    def trying(self, say):
        """What goes wrong inside is this row's reason for having no figure; the run goes on."""
        try:
            yield self
        except Exception as e:  # whatever it is: the other figures are wanted all the same
            text = ' '.join(str(e).split()) or type(e).__name__
            self.reason = f'{type(e).__name__}: {text}'[:300]
            say(f'{self.shape}, {self.what}: not measured: {self.reason}')

    # --- as text ------------------------------------------------------------------------------------------------------
    def values(self, aligned=False):
        if self.reason or not self.figures:
            return '-'
        parts = []
        for f in self.figures:
            text = format_value(f, self.value(f))
            if aligned:
                text = text.rjust(WIDTHS.get(f, 0))
            parts.append(text if f == 'rate' else f'{NAMES.get(f, (f,))[0]} {text}')
        return '  '.join(parts)

    def remarks(self):
        if self.reason:
            return [f'not measured: {self.reason}', *self.notes]
        return self.notes if self.figures else ['not measured: what comes before it in this shape failed, or the run ended', *self.notes]

    def verdicts(self):
        words = {True: 'met', False: 'MISSED', None: 'not measured'}
        return [(str(t), words[t.met(self)]) for t in self.targets]

    def json(self):
        return {'shape': self.shape, 'what': self.what, 'tags': self.tags,
                'figures': {f: {'median': self.value(f), 'runs': runs} for f, runs in self.figures.items()},
                'ratio': {'to': self.limit, 'median': self.value('ratio'), 'runs': self.ratios} if self.limit else None,
                'targets': [{'target': t, 'verdict': v} for t, v in self.verdicts()],
                'notes': self.notes, 'not_measured': self.reason}


class Report:
    def __init__(self):
        self.rows, self.machine, self.ended = [], {}, None
        self.began = time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())

    def row(self, shape, what, **tags):
        """That row, made when it is asked for first. Tags are what plots and programs go by."""
        for row in self.rows:
            if (row.shape, row.what) == (shape, what):
                return row
        self.rows.append(Row(shape, what, tags))
        return self.rows[-1]

    def complete(self):
        return self.ended is None and not any(r.reason or not r.figures for r in self.rows)

    def shapes(self):
        return list(dict.fromkeys(r.shape for r in self.rows))

    def text(self):
        lines = [part for name, value in self.machine.items() for part in textwrap.wrap(f'{name}: {value}', WIDTH, subsequent_indent='    ')]
        for shape in self.shapes():
            lines += ['', shape]
            for row in (r for r in self.rows if r.shape == shape):
                lines += text_lines(row)
        verdicts = [v for r in self.rows for _, v in r.verdicts()]
        lines += ['', 'targets: ' + ', '.join(f'{verdicts.count(v)} {v.lower()}' for v in ('met', 'MISSED', 'not measured'))]
        if self.ended:
            lines.append(self.ended)
        return '\n'.join(lines)

    def write_json(self, path):
        data = {'began': self.began, 'machine': self.machine, 'complete': self.complete(), 'ended': self.ended,
                'rows': [r.json() for r in self.rows]}
        with open(path, 'w', encoding='utf-8') as f:
            json.dump(data, f, indent=1, ensure_ascii=False)
            f.write('\n')

    def markdown(self):
        measured = f'Measured {self.began} by `make bench`. ' + '; '.join(f'{k}: {v}' for k, v in self.machine.items()) + '.'
        lines = textwrap.wrap(measured, 108, break_long_words=False, break_on_hyphens=False)
        for shape in self.shapes():
            lines += ['', f'**{shape[:1].upper()}{shape[1:]}**', '', '| what | measured | of the limit | target |', '|---|---|---|---|']
            for row in (r for r in self.rows if r.shape == shape):
                lines.append(markdown_line(row))
        return '\n'.join(lines)


WIDTH = 100


def wrapped(text):
    return textwrap.wrap(text, WIDTH, initial_indent='      ', subsequent_indent='      ')


def text_lines(row):
    ratio = row.value('ratio')
    values = row.values(True) + (f'  = {ratio:.2f} of {row.limit}' if ratio is not None else '')
    lines = [f'  {row.what:42}  {values}']
    if len(lines[0]) > WIDTH or len(row.what) > 42:
        lines = [f'  {row.what}', *wrapped(values.strip())]
    if row.targets:
        lines += wrapped('targets: ' + ', '.join(f'{target} {verdict}' for target, verdict in row.verdicts()))
    for text in row.remarks():
        lines += wrapped(text)
    return lines


def markdown_line(row):
    ratio = row.value('ratio')
    measured = '; '.join([row.values(), *row.remarks()])
    cells = [row.what, measured, f'{ratio:.2f} ({row.limit})' if ratio is not None else '',
             '<br>'.join(f'{t}: {v.lower()}' for t, v in row.verdicts())]
    return '| ' + ' | '.join(c.replace('|', '\\|') for c in cells) + ' |'


def write_between_markers(path, text):
    with open(path, encoding='utf-8') as f:
        page = f.read()
    if BEGIN not in page or END not in page:
        raise SystemExit(f'{path}: the lines "{BEGIN}" and "{END}" are not there')
    before, after = page.split(BEGIN, 1)[0], page.split(END, 1)[1]
    with open(path + '.new', 'w', encoding='utf-8') as f:
        f.write(f'{before}{BEGIN}\n{text}\n{END}{after}')
    os.replace(path + '.new', path)
