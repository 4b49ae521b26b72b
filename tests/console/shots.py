#!/usr/bin/python3
"""make console-shots: pictures of each page of the console, in build/console-shots, of a gateway on the servers of $STACK_DIR.

    shots.py [PAGE...]     only these pages (tests/console/shots.mjs has their names)
    shots.py --docs        those of docs/console.md, in docs/images
"""
import json
import os
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'live'))
sys.path.insert(0, HERE)
import harness  # noqa: E402
from harness import Place, wait_until  # noqa: E402
from browser import Missing, find_browser, install_modules  # noqa: E402
from seed import GATEWAY, Seeded  # noqa: E402


def main(pages):
    try:
        browser = {'chromium': find_browser(), 'modules': install_modules()}
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 69
    stack = harness.stack()
    name = f'shots-{os.getpid()}'
    stack.make_vhosts([name], stack.vhost_counter(), 60)
    stack.vhosts = [name]
    place = Place(stack)
    try:
        seeded = Seeded(place, place.gateway(**GATEWAY)).all()
        wait_until(lambda: seeded.web.get('/v1/stats').json['messages']['delivered'] > 0 and seeded.web.get('/v1/forecast').json['total'] > 0, 30, 'all to be counted')
        dead = seeded.web.get('/v1/dead').json['dead_letters'][0]['id']
        docs = '--docs' in pages
        out = os.path.join(harness.ROOT, 'docs', 'images') if docs else os.path.join(harness.ROOT, 'build', 'console-shots')
        env = dict(os.environ, CONSOLE=json.dumps(dict(browser, url='http://%s:%d' % seeded.address, message=seeded.first_id, dead=dead, out=out, docs=docs)))
        code = subprocess.run(['node', os.path.join(HERE, 'shots.mjs'), *pages], env=env, check=False).returncode
        print(f'Pictures are in {out}.')
        return code
    finally:
        place.close()


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
