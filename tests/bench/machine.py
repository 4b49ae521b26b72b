"""What was measured on: machine, servers, where their data lay and whether it was flushed."""
import os
import platform
import re
import shutil
import subprocess
import time

from kit import BODY_BYTES, ROOT, harness

run_psql = harness.run_psql
SYNCS_S = 4  # how long the disk is asked
SETTINGS = ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size')


def first_match(path, pattern, default='unknown'):
    try:
        with open(path, encoding='utf-8') as f:
            found = re.search(pattern, f.read(), re.M)
    except OSError:
        found = None
    return found[1].strip() if found else default


def file_system(path):
    """(device, type) of the mount that a path is on."""
    best = ('', 'unknown', 'unknown')
    real = os.path.realpath(path)
    with open('/proc/mounts', encoding='utf-8') as f:
        for line in f:
            device, point, kind = line.split()[:3]
            if (real == point or real.startswith(point.rstrip('/') + '/')) and len(point) >= len(best[0]):
                best = (point, device, kind)
    return best[1], best[2]


def disk(directory):
    home = os.path.join(directory, 'home')  # where stack.sh put the data, if not into the folder itself
    data = os.path.realpath(home) if os.path.islink(home) else directory
    device, kind = file_system(data)
    if kind in ('tmpfs', 'ramfs'):
        return f'{data}, {kind}: IN MEMORY, no disk'
    name = os.path.basename(os.path.realpath(device))
    rotates = first_match(f'/sys/class/block/{name}/queue/rotational', r'(\d)', '') or \
        first_match(f"/sys/class/block/{name.rstrip('0123456789')}/queue/rotational", r'(\d)', '')
    words = {'0': ' (no spinning disk)', '1': ' (said to be rotating, as virtual ones often are)'}.get(rotates, '')
    return f"{data.replace(ROOT + '/', '')}, {kind} on {device}{words}"


def syncs(directory):
    """How long the disk takes to keep 512 bytes, over and over: no figure that waits for it can be better."""
    path, took_ms = os.path.join(directory, 'sync'), []
    began = time.monotonic()
    with open(path, 'wb') as f:
        f.write(bytes(1 << 16))
        os.fsync(f.fileno())
        while time.monotonic() - began < SYNCS_S:
            at = time.monotonic()
            os.pwrite(f.fileno(), bytes(512), 0)
            os.fdatasync(f.fileno())
            took_ms.append((time.monotonic() - at) * 1000)
            time.sleep(0.01)
    os.unlink(path)
    took_ms.sort()
    return f'median {took_ms[len(took_ms) // 2]:.2f} ms, p99 {took_ms[len(took_ms) * 99 // 100]:.1f}, max {took_ms[-1]:.1f}'


def broker_version(stack):
    import pika
    connection = pika.BlockingConnection(pika.URLParameters(stack.amqp))
    try:
        found = connection._impl.server_properties  # pika has no public way to ask
        return found[b'version' if b'version' in found else 'version']
    finally:
        connection.close()


def commit():
    if not shutil.which('git'):
        return 'unknown'
    done = subprocess.run(['git', '-C', ROOT, 'describe', '--always', '--dirty'], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False)
    return done.stdout.decode().strip() or 'unknown'


def text_of(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def describe(bench):
    """{name: words}"""
    stack = bench.stack
    show = ', '.join(f"{name} {run_psql(stack.postgres, f'show {name}')[0][0]}" for name in SETTINGS)
    memory_kib = int(first_match('/proc/meminfo', r'^MemTotal:\s+(\d+)', '0'))
    plugin = {None: 'none (STACK_PLUGINS_DIR)', 'real': 'the real one', 'test double': 'a TEST DOUBLE, whose speed says nothing'}[bench.plugin]
    return {
        'machine': f"{first_match('/proc/cpuinfo', r'^model name.*?: (.*)$', platform.machine())}, {len(os.sched_getaffinity(0))} cores, "
                   f'{memory_kib / 1048576:.0f} GiB, Linux {platform.release()}',
        'servers': f"PostgreSQL {run_psql(stack.postgres, 'show server_version')[0][0].split()[0]}, RabbitMQ {text_of(broker_version(stack))}",
        'PostgreSQL': show,
        'data': disk(stack.directory),
        'fdatasync of 512 bytes there': f'{syncs(stack.directory)} (servers idle, {SYNCS_S} s)',
        'delayed-message plugin': plugin,
        'load average before': ' '.join(f'{x:.2f}' for x in os.getloadavg()),
        'commit': commit(),
        'sizes': f'{BODY_BYTES}-byte bodies, {bench.sizes.runs} runs, backlog {bench.sizes.backlog:,}, transaction held {bench.sizes.held_s} s'
                 + (', SMALL: the figures say nothing' if bench.sizes.small else ''),
    }
