"""A verdict as text, 80 columns wide."""
import textwrap

LABELS = {'cancelled_delivered': 'cancelled, then delivered', 'superseded_delivered': 'superseded, then delivered',
          'refused_delivered': 'refused, then delivered', 'other_id': 'under another id', 'unprovoked': 'duplicated without a fault',
          'contradicted': 'cancel answered both ways', 'unknown_arrived': 'unknown that arrived',
          'redelivered': 'redelivered by RabbitMQ', 'rejected': 'rejected by the consumer',
          'dead': 'of these dead in the end', 'lost_by_queue': 'lost by a classic queue', 'lost_by_lag': 'lost by a lagging standby',
          'undone_by_lag': 'undone by a lagging standby',
          'over_attempts': 'more attempts than allowed', 'miscounted': 'attempts counted wrong', 'excused': 'not owed (later asked away)'}
NUMBERS = ('attempted', 'accepted', 'refused', 'unknown', 'unknown_arrived', 'delivered', 'redelivered', 'cancelled', 'replaced',
           'rescheduled', 'excused', 'rejected', 'dead', 'lost_by_queue', 'lost_by_lag', 'undone_by_lag')
CELL_COLUMNS = {'accepted': 10, 'unknown': 9, 'delivered': 10, 'cancelled': 10, 'lost': 6, 'early': 6, 'duplicated': 8}


def label(name):
    return LABELS.get(name, name)


def rows_of_numbers(verdict):
    total = verdict['total']
    findings = list(verdict['named'])
    for at in range(max(len(NUMBERS), len(findings))):
        left = f'{label(NUMBERS[at]):<28}{total[NUMBERS[at]]:>10,}' if at < len(NUMBERS) else ' ' * 38
        right = f'{label(findings[at]):<28}{total[findings[at]]:>10,}' if at < len(findings) else ''
        yield f'{left}  {right}'.rstrip()


def number(value, digits=1):
    return '-' if value is None else f'{value:,.{digits if value < 10_000 else 0}f}'


def rows_of_lateness(verdict):
    yield f'{"lateness, ms":<22}{"messages":>10}{"p50":>9}{"p95":>9}{"p99":>9}{"p99.9":>9}{"max":>11}'
    rows = [('all', verdict['lateness_ms']['all']), ('wait without a fault', verdict['lateness_ms']['calm'])]
    cells = verdict['calm_ms'].items()
    for text, v in rows + [('  ' + name, v) for name, v in cells if len(cells) > 1]:
        yield (f'{text:<22}{v["count"]:>10,}' + ''.join(f'{number(v[p]):>9}' for p in ('p50', 'p95', 'p99', 'p999'))
               + f'{number(v["max"]):>11}')


def one_in(delivered, doubled):
    return f'{round(delivered / doubled):>7,}' if doubled else f'{"-":>7}'


def rows_of_cells(verdict):
    """The last column: one of so many was doubled. What was due at once is told apart where there was any."""
    heads = {'duplicated': 'doubled'}
    yield f'{"cell":<14}' + ''.join(f'{heads.get(c, c):>{width}}' for c, width in CELL_COLUMNS.items()) + f'{"1 in":>7}'
    for name, counts in verdict['cells'].items():
        yield (f'{name[:13]:<14}' + ''.join(f'{counts[c]:>{width},}' for c, width in CELL_COLUMNS.items())
               + one_in(counts['delivered'], counts['duplicated']))
        crowd = counts['crowd_delivered'], counts['crowd_doubled']
        if crowd[0]:
            others = counts['delivered'] - crowd[0], counts['duplicated'] - crowd[1]
            for text, numbers in (('due at once', crowd), ('the others', others)):
                texts = {'delivered': f'{numbers[0]:,}', 'duplicated': f'{numbers[1]:,}'}
                yield (f'{"  " + text:<14}' + ''.join(f'{texts.get(c, ""):>{width}}' for c, width in CELL_COLUMNS.items())
                       + one_in(*numbers))


def rows_of_moments(verdict):
    yield 'many at one moment:'
    for m in verdict['moments']:
        yield (f'{m["count"]:>6,} {m["cell"]}, at {m["start_us"]}, the first ones up to '
               f'{number((m["start_us"] - m["first_us"]) / 1000, 0)} ms before')
        yield from textwrap.wrap(', '.join(m['faults']), 72, initial_indent=' ' * 7, subsequent_indent=' ' * 7)


def rows_of_kinds(verdict):
    yield f'{"fault":<32}{"count":>7}{"doubled":>9}{"recovery, ms: median":>22}{"slowest":>10}'
    for kind, k in verdict['kinds'].items():
        yield (f'{kind[:31]:<32}{k["count"]:>7,}{k["duplicates"]:>9,}{number(k["recovery_median_ms"], 0):>22}'
               f'{number(k["recovery_slowest_ms"], 0):>10}')


def rows_of_findings(verdict):
    for finding, named in verdict['named'].items():
        count = verdict['total'][finding]
        for text in named:
            yield f'{label(finding)}: {text}'
        if count > len(named):
            yield f'{label(finding)}: and {count - len(named):,} more'
    yield from (f'torn line: {where}' for where in verdict['torn_lines'])
    yield from (f'unreadable line: {text}' for text in verdict['unreadable_lines'])


def text_of(verdict):
    """The report; its last line is the verdict in a word."""
    parts = [list(rows_of_numbers(verdict)), list(rows_of_lateness(verdict)), list(rows_of_cells(verdict))]
    if verdict['kinds']:
        parts.append(list(rows_of_kinds(verdict)))
    if verdict['ways']:
        parts.append(['accepted by ' + ', '.join(f'{way} {n:,}' for way, n in verdict['ways'].items())])
    if verdict['total']['duplicated']:
        parts.append(['the farthest duplicate came '
                      f'{number(verdict["duplicate_farthest_after_fault_ms"], 0)} ms after the fault that it is put down to'])
        parts.append(list(rows_of_moments(verdict)))
    findings = list(rows_of_findings(verdict))
    if findings:
        parts.append(findings)
    broken = ', '.join(f'{n:,} {label(name)}' for name, n in verdict['broken'].items())
    lost = {'where RabbitMQ does the last hop': verdict['tolerated_losses'],
            'by a classic queue that RabbitMQ took along': verdict['total']['lost_by_queue'],
            'in the lag of a standby that was promoted': verdict['total']['lost_by_lag']}
    aside = ''.join(f' ({n:,} lost {where})' for where, n in lost.items() if n)
    parts.append([(f'verdict: BROKEN: {broken}' if broken else 'verdict: kept') + aside])
    return '\n\n'.join('\n'.join(part) for part in parts)
