"""What will strike, whom and when: all of it from the seed, before anything starts."""
import random
from collections import Counter


class Entry:
    """One fault to be: its kind, the cell (None: all), its own seed, and what is waited for after it."""

    def __init__(self, kind, cell, seed, gap_s, patient):
        self.kind, self.cell, self.seed = kind, cell, seed
        self.gap_s = gap_s          # between its healing (or the recovery from it) and the next one of this track
        self.patient = patient      # the next one waits for the recovery; else it strikes during it


SERVERS_SHARE = 0.11  # they take seconds each, and strike every cell


def make_plan(seed, count, kinds, cells):
    """{track: [Entry]}: one track for the servers, one for the nodes of the cluster, one for each cell; they run side by side.
    cells: [Cell]"""
    rng = random.Random(seed)
    touching = [k for k in kinds.values() if k.scope != 'cell' and any(k.touches(cell) and k.fits(cell) for cell in cells)]
    scopes = {'servers': [k for k in touching if k.scope != 'cluster'], 'cluster': [k for k in touching if k.scope == 'cluster']}
    tracks = {}
    for name, server_kinds in scopes.items():
        share = max(len(server_kinds), round(count * SERVERS_SHARE))
        if not any(k.scope == 'cell' for k in kinds.values()):
            share = round(count * len(server_kinds) / max(1, len(touching)))
        if server_kinds:
            tracks[name] = track(rng, server_kinds, None, share, {}, {})
    left = max(0, count - sum(map(len, tracks.values())))
    of_cell = {cell.name: [k for k in kinds.values() if k.scope == 'cell' and k.fits(cell)] for cell in cells}
    homes, met = Counter(k.name for fitting in of_cell.values() for k in fitting), Counter()
    for i, cell in enumerate(cells):
        share = round(left * (i + 1) / len(cells)) - round(left * i / len(cells))
        tracks[cell.name] = track(rng, of_cell[cell.name], cell.name, share, homes, met)
    return tracks


def track(rng, kinds, cell, count, homes, met):
    """Rounds of all kinds, each as often as its weight says; in the first round each once, so that a short run meets as
    many as it can: those first that the tracks before met least, and of these those that fit the fewest cells.
    homes: of each kind, how many cells it fits; met: how often the first rounds of the tracks before have it."""
    first = sorted(kinds, key=lambda k: (met.get(k.name, 0), homes.get(k.name, 0), rng.random()))
    chosen = first[:count]
    for k in chosen:
        met[k.name] = met.get(k.name, 0) + 1
    while chosen and len(chosen) < count:
        crowd = [k for k in kinds for _ in range(k.weight)]
        rng.shuffle(crowd)
        chosen += crowd[:count - len(chosen)]
    return [Entry(k.name, cell, rng.getrandbits(48), rng.uniform(0.1, 1.0), rng.random() < 0.7) for k in chosen]
