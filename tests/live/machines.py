"""Machines of a test's own: each a network, process and IPC namespace, all on one switch that this machine is plugged into, too.

    lan = Lan(3)                                     # needs root; why_not() says why it cannot be
    lan.machines[0].run(['etcd', …], log)            # there, as the user postgres; dies with the machine
    lan.machines[0].processes('postgres')            # their numbers here, for signals
    lan.cut(0); lan.mend(0)                          # its cable; what it sends and what is sent to it is gone, nobody is told

Nothing is left of them, whatever ends this process: the kernel ends what runs in a namespace with its first process, and takes
the network's devices away with the namespaces.
"""
import os
import shutil
import subprocess
import sys

import harness
from harness import wait_until

sys.path.append(os.path.join(harness.ROOT, 'tests', 'chaos'))
from servers import DIE, LAUNCHER  # noqa: E402

SPACES = ['--net', '--pid', '--ipc', '--mount']
SWITCH = 13   # the hosts' numbers in the network: 1, 2 … are machines, the switch has one for what serves all of them
HERE = 14
TOOLS = ('ip', 'unshare', 'nsenter', 'setpriv')


def why_not():
    """Why no machines can be had here; '' when they can."""
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        return f'{missing[0]} is not installed'
    if os.geteuid() != 0:
        return 'namespaces with a network need root'
    tried = subprocess.run(['unshare', *SPACES, '--fork', '--mount-proc', 'ip', 'link', 'add', 'switch', 'type', 'bridge'],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return f'no namespaces here: {tried.stdout.decode().strip()}' if tried.returncode else ''


def ip(*words):
    done = subprocess.run(['ip', *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise AssertionError(f'ip {" ".join(map(str, words))}: {done.stdout.decode().strip()}')


def mac(number):
    return f'02:00:00:00:00:{number:02x}'


class Machine:
    def __init__(self, address):
        self.address = address
        # Its first process never waits for the orphans that it inherits: the kernel does that for whoever ignores SIGCHLD.
        self.holder = LAUNCHER.start([*DIE, 'unshare', *SPACES, '--fork', '--kill-child', '--mount-proc', 'env', '--ignore-signal=CHLD',
                                      'sleep', 'infinity'], stdin=subprocess.DEVNULL)
        self.first = wait_until(self.find_first, 10, 'a namespace')

    def find_first(self):
        """Its first process, once it sleeps; all is in place by then."""
        with open(f'/proc/{self.holder.pid}/task/{self.holder.pid}/children', encoding='ascii') as f:
            children = f.read().split()
        return int(children[0]) if children and name_of(int(children[0])) == 'sleep' else None

    def inside(self, *spaces):
        return ['nsenter', f'--target={self.first}', *(spaces or SPACES), '--']

    def ip(self, *words):
        done = subprocess.run(self.inside('--net') + ['ip', *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise AssertionError(f'ip {" ".join(map(str, words))}: {done.stdout.decode().strip()}')

    def run(self, command, log):
        """Starts it there, as an ordinary user and an orphan: nobody outside waits for it."""
        with open(log, 'ab') as out:
            subprocess.run([*self.inside(), 'setpriv', '--reuid', 'postgres', '--regid', 'postgres', '--clear-groups', '--',
                            'setsid', '--fork', *command], cwd='/', env={'PATH': os.environ['PATH'], 'LC_ALL': 'C.UTF-8', 'TZ': 'UTC'},
                           stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=True)

    def processes(self, *names):
        """The numbers that they have here, of those with one of the names; without a name, all but the first one."""
        space = os.readlink(f'/proc/{self.first}/ns/pid')
        return [pid for pid in map(int, filter(str.isdigit, os.listdir('/proc')))
                if pid != self.first and space_of(pid) == space and (not names or name_of(pid) in names)]

    def signal(self, number, *names):
        """To all of them, also to those that they start meanwhile. True: there were any."""
        found, before = self.processes(*names), []
        any_of_them = bool(found)
        while set(found) - set(before):
            for pid in found:
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass
            found, before = self.processes(*names), found
        return any_of_them

    def close(self):
        self.holder.kill()
        self.holder.wait()


def name_of(pid):
    try:
        with open(f'/proc/{pid}/comm', encoding='utf-8', errors='replace') as f:
            return f.read().strip()
    except OSError:
        return None


def space_of(pid):
    try:
        return os.readlink(f'/proc/{pid}/ns/pid')
    except OSError:
        return None


class Lan:
    def __init__(self, count):
        base = os.getpid() * 16 % (1 << 17)  # of the two networks that are for such tests, 198.18 and 198.19
        address = f'198.{18 + (base >> 16)}.{base >> 8 & 255}.'
        self.address_of = lambda number: address + str((base & 255) + number)
        self.all = []
        self.switch = self.add(SWITCH)
        self.switch.ip('link', 'add', 'switch', 'type', 'bridge')
        self.switch.ip('link', 'set', 'switch', 'address', mac(SWITCH))
        self.switch.ip('addr', 'add', f'{self.switch.address}/28', 'dev', 'switch')
        self.switch.ip('link', 'set', 'switch', 'up')
        self.device = f'pd{os.getpid()}'
        ip('link', 'add', self.device, 'type', 'veth', 'peer', 'name', 'here', 'netns', self.switch.first)
        ip('addr', 'add', f'{self.address_of(HERE)}/28', 'dev', self.device)
        ip('link', 'set', self.device, 'up')
        self.mend_name('here')
        self.machines = [self.plug_in(n) for n in range(1, count + 1)]

    def add(self, number):
        self.all.append(Machine(self.address_of(number)))
        self.all[-1].ip('link', 'set', 'lo', 'up')
        return self.all[-1]

    def plug_in(self, number):
        machine = self.add(number)
        self.switch.ip('link', 'add', f'port{number}', 'type', 'veth', 'peer', 'name', 'eth0', 'netns', machine.first)
        machine.ip('link', 'set', 'eth0', 'address', mac(number))
        machine.ip('addr', 'add', f'{machine.address}/28', 'dev', 'eth0')
        machine.ip('link', 'set', 'eth0', 'up')
        # As if there were a router between: that a machine is gone shows only in that it does not answer.
        ip('neigh', 'replace', machine.address, 'lladdr', mac(number), 'nud', 'permanent', 'dev', self.device)
        self.mend_name(f'port{number}')
        return machine

    def mend_name(self, port):
        self.switch.ip('link', 'set', port, 'master', 'switch', 'up')

    def mend(self, index):
        self.mend_name(f'port{index + 1}')

    def cut(self, index):
        self.switch.ip('link', 'set', f'port{index + 1}', 'nomaster')

    def close(self):
        for machine in reversed(self.all):
            machine.close()
