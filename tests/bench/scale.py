"""Scale: several gateways on one database and one broker drain a herd; CPU seconds by process. On few cores more gateways
cannot be faster: the question is what they cost, and that they do not hinder each other."""
from herd import add_cpu, cpu_row, drain, rate_row
from kit import Lane, wrong

GATEWAYS = (1, 2, 4)


def measure(bench):
    for gateways in GATEWAYS:
        row = rate_row(bench, gateways)
        if row.figures:
            continue  # the herd shape has measured one
        with row.trying(bench.say), Lane(bench, 'timer', gateways=gateways) as lane:
            for number in range(bench.sizes.runs):
                result, cpu = drain(lane, bench.sizes.herd)
                row.add(rate=bench.sizes.herd / result['max_ms'] * 1000)
                row.note(wrong(result))
                add_cpu(cpu_row(bench, gateways), cpu)
                bench.say(f'scale {number + 1}/{bench.sizes.runs}: {row.what}: {bench.sizes.herd / result["max_ms"] * 1000:,.0f}/s')
