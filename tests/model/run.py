#!/usr/bin/python3
"""Checks the models of the store's protocol with spin (docs/internals/model.md): run.py [WORD ...]: what has a word in its name.

Each RUN is proven: in every order of steps, within its bounds, nothing is lost, twice or wrong. Each of MISTAKES is planted, and must be found. FULL=1 has
the large runs, too. JOBS: so many at once, with 2 GiB each at most. run.py check: whether each step of a model names what is there in the tree; needs no spin.
"""
import concurrent.futures
import os
import re
import resource
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MEMORY_MIB = 2000
ONE = 'M=1 STORED=1 '

# Model, what is in it, its bounds.
RUNS = [
    ('held', 'two messages that somebody cancels', 'CANCELS=3'),
    ('held', 'two gateways that die once, one message that somebody cancels', ONE + 'G=2 CRASHES=1 CANCELS=1'),
    ('held', 'one gateway that dies twice', ONE + 'CRASHES=2 CANCELS=1'),
    ('held', 'a gateway sleeps past its lease, and publishes after the take-over', ONE + 'G=2 SLEEPS=1 CANCELS=1'),
    ('held', 'a gateway does not hear whether its claim was committed', ONE + 'G=2 UNCLEAR=1 CANCELS=1'),
    ('held', 'refused, tried again, past its deadline, cancelled, the gateway dies', ONE + 'REFUSALS=1 DEADLINES=1 CANCELS=1 CRASHES=1'),
    ('held', 'a range is put back, and taken again or scattered', 'BACKS=1 CANCELS=1'),
    ('held', 'a message is moved, and cancelled by its first id', 'STORED=1 MOVES=2 CANCELS=1 CRASHES=1'),
    ('held', 'two messages with one key, of which one replaces the other', 'STORED=0 KEYED=3 CANCELS=1 CRASHES=1'),
    ('held', 'three messages with one key, of which one keeps what is there', 'M=3 STORED=0 KEYED=7 KEEPS=2'),
    ('held', 'two gateways take slots of a rate', 'RATED=3 G=2'),
    ('held', 'a slot is taken and missed, two gateways', ONE + 'RATED=1 G=2 CRASHES=1 DEADLINES=1 CANCELS=1'),
    ('handed', 'RabbitMQ loses a copy', 'LOSSES=1'),
    ('handed', 'fed, a hand-over breaks or is refused, lost, cancelled', 'STORED_AS=SCHEDULED BROKEN=1 LOSSES=1 CANCELS=1 CRASHES=1'),
    ('handed', 'a gateway dies twice, RabbitMQ loses a copy', 'CRASHES=2 LOSSES=1'),
    ('handed', 'a gateway has no database and goes on, another one dies, lost, doubled', 'AWAYS=1 CRASHES=1 DOUBLES=1 LOSSES=1'),
    ('handed', 'a connection is lost, a gateway dies', 'CUTS=1 CRASHES=1 LOSSES=1'),
    ('handed', 'RabbitMQ is made anew, given back, cancelled, a gateway dies', 'STORED_AS=SCHEDULED EMPTIES=1 CRASHES=1 CANCELS=1 LOSSES=1'),
    ('handed', 'last_hop = broker, a gateway dies', 'LAST=1 LOSSES=1 CRASHES=1'),
    ('handed', 'last_hop = broker, a gateway has no database', 'LAST=1 LOSSES=1 AWAYS=1'),
    ('standby', 'stored, cancelled, claimed, three waits cancelled, the primary dies', ''),
]
LARGE = [
    ('held', 'two gateways, two messages of which one is cancelled', 'G=2 CANCELS=1'),
    ('held', 'two gateways that die once, two messages', 'G=2 CRASHES=1'),
    ('held', 'two messages, put back, refused, the gateway dies', 'CRASHES=1 REFUSALS=1 BACKS=1'),
    ('held', 'dies, sleeps, does not hear of its claim: two gateways', ONE + 'G=2 CRASHES=1 SLEEPS=1 UNCLEAR=1 CANCELS=1'),
    ('held', 'sleeps, deadline, refused, put back, cancelled: two gateways', ONE + 'G=2 SLEEPS=1 DEADLINES=1 REFUSALS=1 BACKS=1 CANCELS=1'),
    ('held', 'three messages with one key', 'M=3 STORED=0 KEYED=7'),
]

# Model, number, what is wrong, bounds.
MISTAKES = [
    ('held', 1, 'who stores reads the fence before its transaction has an id', ONE),
    ('held', 2, 'who cancels does not read the fence after the lock', ONE + 'CANCELS=1'),
    ('held', 3, 'the fence is moved after the rows are read', ONE + 'CANCELS=1'),
    ('held', 4, 'a claim takes what is locked', ONE + 'CANCELS=1'),
    ('held', 5, 'who stores still when a range is looked at is not remembered', ''),
    ('held', 6, 'the mark is made before the newest claim is read', ''),
    ('held', 7, 'nothing looks after what a claim skipped', ONE + 'CANCELS=1'),
    ('held', 8, 'what a dead gateway had claimed waits again as new, not in doubt', ONE + 'CRASHES=1 CANCELS=1'),
    ('held', 9, 'who runs is looked up after the rows are read', ''),
    ('held', 10, 'a key is replaced without its lock', 'M=3 STORED=0 KEYED=7'),
    ('held', 11, 'a take-over looks behind the position only', 'CRASHES=1'),
    ('held', 12, 'a slot is read without the lock of its rate', 'RATED=3 G=2'),
    ('held', 13, 'who settles does not look whether the message is its own', ONE + 'DEADLINES=1 SLEEPS=1 G=2'),
    ('held', 14, 'what is in doubt and past its deadline ends as expired', ONE + 'DEADLINES=1 CRASHES=1'),
    ('held', 15, 'a range is put back with a message in flight', ONE + 'BACKS=1'),
    ('held', 17, 'what is in doubt waits for its slot as new', ONE + 'RATED=1 CRASHES=1 CANCELS=1'),
]
MISTAKES += [
    ('handed', 1, 'a gateway knows of its own low-water mark only when it is noted', 'LOSSES=1'),
    ('handed', 2, 'what RabbitMQ gives out again is not looked up', 'CUTS=1'),
    ('handed', 3, 'a rescue waits for no low-water marks', ''),
    ('handed', 4, 'a rescue does not count the consumers', 'AWAYS=1'),
    ('handed', 5, 'a rescue waits for no ping', 'AWAYS=1'),
    ('handed', 6, 'a ping counts that is older than what a consumer gave back', 'AWAYS=1'),
    ('handed', 7, 'what RabbitMQ lost is given back without the lock', 'STORED_AS=SCHEDULED EMPTIES=1 CANCELS=1'),
    ('handed', 8, 'a delivery is acknowledged without a proof', 'AWAYS=1'),
    ('handed', 9, 'a refused hand-over waits again as new', 'BROKEN=1 CANCELS=1'),
    ('handed', 10, 'a hand-over of a dead gateway waits again as new', 'CRASHES=1 CANCELS=1'),
    ('handed', 11, 'what is due now is given back, too', 'EMPTIES=1 CANCELS=1 CRASHES=1'),
    ('handed', 12, 'a low-water mark counts from when it was noted, not from when it was found', 'AWAYS=1 LOSSES=1'),
    ('standby', 1, 'that it is stored is answered after a read', ''),
    ('standby', 2, 'that it is cancelled is answered after a read', ''),
    ('standby', 3, 'a claim that only the primary has is published', ''),
]

STEP = re.compile(r'\bin ((?:sql|gateway|core|amqp)/[\w/.]+): ([^\n]+?)(?:\. | \*/|$)', re.M)


def models():
    return sorted(name for name in os.listdir(HERE) if name.endswith('.pml'))


def check():
    """What the models say where their steps are."""
    wrong = []
    for name in models():
        with open(os.path.join(HERE, name), encoding='utf-8') as f:
            steps = STEP.findall(f.read())
        if not steps:
            wrong.append(f'tests/model/{name}: no step says where it is in the tree')
        for path, what in steps:
            try:
                with open(os.path.join(ROOT, path), encoding='utf-8') as f:
                    if not re.search(r'(?<!\w)' + re.escape(what) + r'(?!\w)', f.read()):
                        wrong.append(f'tests/model/{name}: {path} has no {what!r}')
            except FileNotFoundError:
                wrong.append(f'tests/model/{name}: there is no {path}')
    return wrong


def search(model, bounds, bug, folder):
    """What spin says of all orders of steps within the bounds."""
    defines = [f'-D{word}' for word in bounds.split()] + [f'-DBUG={bug}']
    for command in (['spin', *defines, '-a', os.path.join(HERE, model + '.pml')],
                    ['cc', '-O1', '-w', '-DSAFETY', '-DCOLLAPSE', '-DNOFAIR', f'-DMEMLIM={MEMORY_MIB}', '-o', 'pan', 'pan.c']):
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f'{model} {bounds}: {" ".join(command)}: {done.stdout}')
    return subprocess.run(['./pan', '-m100000'], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout


def judge(model, what, bounds, bug):
    """A line about one run, and whether it is as it must be."""
    with tempfile.TemporaryDirectory(prefix='postdate-model-') as folder:
        said = search(model, bounds, bug, folder)
    found = re.search(r'pan:\d+: (.*?) \(at depth (\d+)\)', said)
    states = re.search(r'(\d+) states, stored', said)
    whole = states and 'Search not completed' not in said and 'reached' in said and 'max search depth too small' not in said
    right = bool(found) if bug else bool(whole and not found)
    if bug:
        ends = f'found at depth {found.group(2)}' if found else 'NOT FOUND'
        if found and 'assertion violated' not in found.group(1):
            right, ends = False, found.group(1)
    else:
        ends = f'{int(states.group(1)):,} states' if right else f'FAILED: {found.group(1)[:200]}' if found else f'FAILED: not all was searched: {said[-500:]}'
    return right, f'{"ok  " if right else "FAIL"} {model}: {what}: {ends}' + ('' if right else f' ({bounds} BUG={bug})')


def main(words):
    if words == ['check']:
        wrong = check()
        print('\n'.join(wrong), end='\n' if wrong else '')
        return 1 if wrong else 0
    runs = [(model, what, bounds, 0) for model, what, bounds in RUNS + (LARGE if os.environ.get('FULL') else [])]
    runs += [(model, f'mistake {bug}, {what}', bounds, bug) for model, bug, what, bounds in MISTAKES]
    runs = [run for run in runs if not words or any(word in f'{run[0]}: {run[1]}' for word in words)]
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get('JOBS') or os.cpu_count())) as pool:
        failed = 0
        for right, line in pool.map(lambda run: judge(*run), runs):
            print(line, flush=True)
            failed += not right
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f'{len(runs) - failed} as they must be, {failed} not, in {used.ru_utime + used.ru_stime:.0f} s of processor time')
    return 1 if failed or not runs else 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
