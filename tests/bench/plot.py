"""Two plots as SVG, written by hand: lateness against rate, cost against backlog. Logarithmic axes, a white ground of their own."""
import math
import os

COLOURS = ('#1f77b4', '#d62728', '#2ca02c', '#9467bd', '#ff7f0e', '#17becf', '#8c564b', '#e377c2')
STYLE = '<style>text{font:12px sans-serif;fill:#24292f}.t{font-weight:bold}.g{stroke:#d0d7de}.a{stroke:#57606a;fill:none}</style>'


class Line:
    def __init__(self, name, points, colour, dashed=False):
        self.name, self.points, self.colour, self.dashed = name, sorted(points), colour, dashed


class Panel:
    """A drawing area with axes; x and y are logarithmic, x_names (value: words) makes x a row of places instead."""

    def __init__(self, box, title, x_title, y_title, x_names=None):
        self.left, self.top, self.width, self.height = box
        self.title, self.x_title, self.y_title, self.x_names = title, x_title, y_title, x_names

    def place(self, lines):
        xs, ys = [x for line in lines for x, _ in line.points], [y for line in lines for _, y in line.points if y > 0]
        self.x_low, self.x_high = math.log10(min(xs) or 1), math.log10(max(xs) or 1)
        self.y_low, self.y_high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
        if self.y_low == self.y_high:
            self.y_high += 1

    def x(self, value):
        if self.x_names:
            places = list(self.x_names)
            return self.left + self.width * (places.index(value) + 0.5) / len(places)
        span = self.x_high - self.x_low
        return self.left + self.width * (0.05 + 0.9 * ((math.log10(value) - self.x_low) / span if span else 0.5))

    def y(self, value):
        part = (math.log10(max(value, 10 ** self.y_low)) - self.y_low) / (self.y_high - self.y_low)
        return self.top + self.height * (1 - part)

    def axes(self, lines):
        out = [f'<text class="t" x="{self.left}" y="{self.top - 10}">{self.title}</text>']
        for decade in range(self.y_low, self.y_high + 1):
            y = self.y(10 ** decade)
            out.append(f'<line class="g" x1="{self.left}" x2="{self.left + self.width}" y1="{y:.1f}" y2="{y:.1f}"/>'
                       f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0 ** decade:g}</text>')
        for value in sorted({x for line in lines for x, _ in line.points}):
            words = self.x_names[value] if self.x_names else f'{value:,}'
            out.append(f'<text x="{self.x(value):.1f}" y="{self.top + self.height + 17}" text-anchor="middle">{words}</text>')
        out.append(f'<rect class="a" x="{self.left}" y="{self.top}" width="{self.width}" height="{self.height}"/>')
        middle = self.top + self.height / 2
        out.append(f'<text x="{self.left + self.width / 2}" y="{self.top + self.height + 36}" text-anchor="middle">{self.x_title}</text>')
        out.append(f'<text x="{self.left - 44}" y="{middle}" text-anchor="middle" transform="rotate(-90 {self.left - 44} {middle})">{self.y_title}</text>')
        return out

    def draw(self, lines, legend_left):
        """SVG elements; the legend stands to the right of the area."""
        lines = [line for line in lines if line.points]
        if not lines:
            return []
        self.place(lines)
        out = self.axes(lines)
        for i, line in enumerate(lines):
            dash = ' stroke-dasharray="5 4"' if line.dashed else ''
            points = ' '.join(f'{self.x(x):.1f},{self.y(y):.1f}' for x, y in line.points)
            out.append(f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="2"{dash}/>')
            out += [f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3" fill="{line.colour}"/>' for x, y in line.points]
            y = self.top + 8 + 17 * i
            out.append(f'<line x1="{legend_left}" x2="{legend_left + 22}" y1="{y}" y2="{y}" stroke="{line.colour}" stroke-width="2"{dash}/>'
                       f'<text x="{legend_left + 28}" y="{y + 4}">{line.name}</text>')
        return out


def svg(width, height, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">{STYLE}'
            f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n' + '\n'.join(parts) + '\n</svg>\n')


def rows_with(report, *tags):
    return [r for r in report.rows if not r.reason and r.figures and all(t in r.tags for t in tags)]


def millions(count):
    return 'none' if count == 0 else f'{count // 1_000_000} M' if count % 1_000_000 == 0 else f'{count // 1000} k' if count % 1000 == 0 else str(count)


def lateness(report):
    """p50 and p99 against rate, for each transport; the timer's also over the backlog."""
    groups = {}
    for row in rows_with(report, 'transport', 'rate'):
        name = row.tags['transport'] + (f", {millions(row.tags['stored'])} stored" if row.tags['stored'] else '')
        groups.setdefault(name, []).append(row)
    lines = []
    for i, (name, rows) in enumerate(groups.items()):
        for figure, words, dashed in (('p50_ms', 'p50', False), ('p99_ms', 'p99', True)):
            points = [(r.tags['rate'], r.value(figure)) for r in rows if r.value(figure) is not None]
            lines.append(Line(f'{name}, {words}', points, COLOURS[i % len(COLOURS)], dashed))
    panel = Panel((70, 40, 480, 340), 'Lateness at the consumer', 'due per second', 'ms after the due time')
    parts = panel.draw(lines, 570)
    return svg(800, max(440, 60 + 17 * len(lines)), parts) if parts else None


def cost(report):
    """p99, bytes, memory and calls against what is stored."""
    stored = sorted({r.tags['stored'] for r in rows_with(report, 'stored') if r.tags.get('transport') == 'timer' or 'cost' in r.tags})
    names = {count: millions(count) for count in stored}

    def lines_of(rows, key, figure):
        groups = {}
        for r in rows:
            if r.value(figure) is not None:
                groups.setdefault(key(r), []).append((r.tags['stored'], r.value(figure)))
        return [Line(name, points, COLOURS[i % len(COLOURS)]) for i, (name, points) in enumerate(groups.items())]
    timer = [r for r in rows_with(report, 'transport') if r.tags['transport'] == 'timer']
    costs = rows_with(report, 'cost')
    kept = lines_of([r for r in costs if r.tags['cost'] == 'disk'], lambda r: 'disk, bytes per message', 'bytes') + \
        lines_of([r for r in costs if r.tags['cost'] == 'memory'], lambda r: 'gateway at its peak, MiB', 'peak_mib')
    for line, colour in zip(kept, COLOURS):
        line.colour = colour
    panels = [('Lateness, p99', 'ms', lines_of(timer, lambda r: f"{r.tags['rate']:,}/s", 'p99_ms')),
              ('Kept: beyond the message itself', '', kept),
              ('One call, median', 'ms', lines_of(costs, lambda r: r.tags['cost'], 'ms'))]
    parts = []
    for i, (title, y_title, lines) in enumerate(panels):
        parts += Panel((70, 40 + 270 * i, 400, 190), title, 'messages stored', y_title, names).draw(lines, 490)
    return svg(800, 40 + 270 * len(panels), parts) if parts else None


def write(report, folder):
    """The names of the files that there was something to draw for."""
    os.makedirs(folder, exist_ok=True)
    written = []
    for name, text in (('lateness.svg', lateness(report)), ('backlog.svg', cost(report))):
        if text:
            with open(os.path.join(folder, name), 'w', encoding='utf-8') as f:
                f.write(text)
            written.append(name)
    return written
