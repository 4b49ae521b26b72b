"""Scale: several gateways on one database and one broker drain a herd; CPU seconds by process. On few cores more gateways
cannot be faster: the question is what they cost, and that they do not hinder each other."""
from herd import drain
from kit import Lane, wrong

GATEWAYS = (1, 2, 4)


def measure(bench):
    for gateways in GATEWAYS:
        words = '1 gateway' if gateways == 1 else f'{gateways} gateways'
        rates = bench.report.row(f'scale: drain of {bench.sizes.herd:,} by several gateways (timer)', words)
        costs = bench.report.row('scale: CPU seconds per 1,000 drained, by process', words)
        with rates.trying(bench.say), Lane(bench, 'timer', gateways=gateways) as lane:
            for number in range(bench.sizes.runs):
                result, cpu = drain(lane, bench.sizes.herd)
                rates.add(rate=bench.sizes.herd / result['max_ms'] * 1000)
                rates.note(wrong(result))
                costs.add(**{f'{name.lower()}_cpu': value for name, value in cpu.items()})
                bench.say(f'scale {number + 1}/{bench.sizes.runs}: {words}: {bench.sizes.herd / result["max_ms"] * 1000:,.0f}/s')
