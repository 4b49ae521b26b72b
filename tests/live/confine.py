"""confine.py UNIT UID GID PROGRAM [ARG...]: runs a program nearly as systemd would run it by that unit, without systemd.

Taken from the unit: SystemCallFilter (with SystemCallErrorNumber), RestrictNamespaces (as far as calls of their own go),
RestrictAddressFamilies, LimitNOFILE. Always: no new
privileges, no capabilities, nothing that is writable and executable, a file system that is read-only but for an own
/tmp, no /proc at all, /home and /root hidden. To be started as root, in a mount namespace of its own (unshare -m).
"""
import ctypes
import os
import re
import resource
import struct
import subprocess
import sys

HEADER = '/usr/include/x86_64-linux-gnu/asm/unistd_64.h'
FAMILIES = {'AF_UNIX': 1, 'AF_INET': 2, 'AF_INET6': 10}
PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 22, 24, 38
LOAD, AND, EQUAL, RETURN = 0x20, 0x54, 0x15, 0x06  # instructions of classic BPF
ALLOW, EPERM, EAFNOSUPPORT = 0x7fff0000, 0x00050001, 0x00050061
X86_64 = 0xc000003e
MMAP, MPROTECT, SOCKET, PKEY_MPROTECT = 9, 10, 41, 329


def unit_values(unit, name):
    with open(unit, encoding='utf-8') as f:
        return re.findall(rf'(?m)^{name}=(.*)$', f.read())


def system_calls(names):
    """The calls that the @groups and names stand for."""
    found = set()
    for name in names:
        if not name.startswith('@'):
            found.add(name)
            continue
        out = subprocess.run(['systemd-analyze', 'syscall-filter', name], stdout=subprocess.PIPE, check=True).stdout.decode()
        found |= system_calls(line.strip() for line in out.splitlines()[1:] if line.strip() and not line.strip().startswith('#'))
    return found


def allowed_numbers(unit):
    calls = set()
    for value in unit_values(unit, 'SystemCallFilter'):
        names = value.lstrip('~').split()
        calls = calls - system_calls(names) if value.startswith('~') else calls | system_calls(names)
    if unit_values(unit, 'RestrictNamespaces') == ['yes']:
        calls -= {'unshare', 'setns'}
    with open(HEADER, encoding='ascii') as f:
        numbers = dict(re.findall(r'#define __NR_(\w+) (\d+)', f.read()))
    return sorted(int(numbers[c]) for c in calls if c in numbers)


def make_filter(unit):
    """(instruction, value, jump if true, jump if false)"""
    program = [(LOAD, 4, 0, 0), (EQUAL, X86_64, 1, 0), (RETURN, EPERM, 0, 0)]

    def check(number, argument, tests):
        program.extend([(LOAD, 0, 0, 0), (EQUAL, number, 0, 1 + len(tests)), (LOAD, 16 + 8 * argument, 0, 0), *tests])
    for number in (MPROTECT, PKEY_MPROTECT):
        check(number, 2, [(AND, 4, 0, 0), (EQUAL, 4, 0, 1), (RETURN, EPERM, 0, 0)])
    check(MMAP, 2, [(AND, 6, 0, 0), (EQUAL, 6, 0, 1), (RETURN, EPERM, 0, 0)])
    families = [FAMILIES[f] for f in unit_values(unit, 'RestrictAddressFamilies')[0].split()]
    check(SOCKET, 0, [(EQUAL, f, len(families) - i, 0) for i, f in enumerate(families)] + [(RETURN, EAFNOSUPPORT, 0, 0)])
    program.append((LOAD, 0, 0, 0))
    for number in allowed_numbers(unit):
        program.extend([(EQUAL, number, 0, 1), (RETURN, ALLOW, 0, 0)])
    program.append((RETURN, EPERM, 0, 0))
    return b''.join(struct.pack('=HBBI', code, true, false, value) for code, value, true, false in program)


def mount(*args):
    subprocess.run(['mount', *args], check=True)


def hide_files(needed):
    for path in ('/home', '/root', '/proc'):
        if not any(n.startswith(path + '/') for n in needed):
            mount('-t', 'tmpfs', '-o', 'mode=755', 'tmpfs', path)
    if not any(n.startswith('/tmp/') for n in needed):
        mount('-t', 'tmpfs', 'tmpfs', '/tmp')
    mount('-o', 'remount,ro,bind', '/')


def main(unit, uid, gid, *command):
    libc = ctypes.CDLL(None, use_errno=True)
    code = make_filter(unit)
    buffer = ctypes.create_string_buffer(code)
    filter_program = struct.pack('=H6xQ', len(code) // 8, ctypes.addressof(buffer))
    limit = int(unit_values(unit, 'LimitNOFILE')[0]) if unit_values(unit, 'LimitNOFILE') else 1024
    hide_files([command[0], os.environ.get('CONFINE_NEEDS', '')])
    for capability in range(64):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    for option, value in ((PR_SET_PDEATHSIG, 9), (PR_SET_NO_NEW_PRIVS, 1)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), 'prctl')
    if libc.prctl(PR_SET_SECCOMP, 2, ctypes.c_char_p(filter_program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), 'seccomp')
    os.execv(command[0], command)


if __name__ == '__main__':
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
