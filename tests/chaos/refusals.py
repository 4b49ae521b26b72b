"""What consumers rejected: what of it is open, and the dead letters as lines of the ledger."""
import glob
import os

from record import Writer, read_body, word


def open_refusals(directory, cell, dead_bodies):
    """{ref: type of its queue} of the messages whose last delivery was rejected, and that are not dead."""
    last = {}
    for path in glob.glob(os.path.join(glob.escape(directory), f'{cell}.*.seen')):
        with open(path, encoding='ascii', errors='replace') as f:
            for fields in map(str.split, f):
                if len(fields) == 11 and fields[8].isdigit():
                    last[fields[1]] = max(last.get(fields[1], (0,)), (int(fields[8]), fields[9], fields[10]))
    dead = {read_body(body)[0] for body in dead_bodies}
    return {ref: queue_type for ref, (_, answer, queue_type) in last.items() if answer == 'rejected' and ref not in dead}


def write_dead(directory, cell, rows):
    """rows: as Cell.dead() has them."""
    writer = Writer(directory, cell, 'dead')
    lines = []
    for id_, _queue, failed, reason, exchange, key, died_us, has_properties, body in rows:
        ref, good = read_body(body)
        verdict = 'ok' if good and has_properties == 't' else 'bad'
        lines.append(f'X {word(ref)} {died_us} {id_} {failed} {word(reason)} {verdict} {word(exchange)} {word(key)}')
    writer.write(lines)
    writer.close()
