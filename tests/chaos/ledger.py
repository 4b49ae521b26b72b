#!/usr/bin/python3
"""The chaos ledger: what was tried, what was answered, what arrived, and the verdict over it. It knows nothing of the
gateway, of its database or of its code: record.py says what the lines mean, and is all that writers need.

    ledger.py judge DIR [--json]     exit 1 if a promise was broken (duplicates alone break none)
"""
import json
import sys

from follow import Follower
from judge import judge
from record import Faults, Writer, make_body, now_us, read_body
from report import text_of

__all__ = ['Faults', 'Follower', 'Writer', 'judge', 'make_body', 'now_us', 'read_body', 'text_of']


def main(arguments):
    words = [a for a in arguments if a != '--json']
    if len(words) != 2 or words[0] != 'judge':
        print(__doc__.strip(), file=sys.stderr)
        return 64
    verdict = judge(words[1])
    print(json.dumps(verdict, indent=1) if '--json' in arguments else text_of(verdict))
    return 1 if verdict['broken'] else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
