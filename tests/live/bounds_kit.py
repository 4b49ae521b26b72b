"""How large a gateway is: resident memory, descriptors, threads, log lines, as /proc and its standard error tell."""
import os
import threading


class Size:
    """Samples a gateway until it is stopped; the greatest values count. Memory is measured by the kernel (VmHWM), so no
    peak is missed."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.pid = gateway.process.pid
        self.base_kib = self.status('VmRSS')
        with open(f'/proc/{self.pid}/clear_refs', 'w', encoding='ascii') as f:
            f.write('5')  # the peak counts from now on
        self.lines_before = len(gateway.log().splitlines())
        self.descriptors_before = self.descriptors = self.open_descriptors()
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.sample, daemon=True)
        self.thread.start()

    def status(self, name):
        with open(f'/proc/{self.pid}/status', encoding='ascii') as f:
            return next(int(line.split()[1]) for line in f if line.startswith(name + ':'))

    def open_descriptors(self):
        return len(os.listdir(f'/proc/{self.pid}/fd'))

    def sample(self):
        while not self.stopping.wait(0.02):
            try:
                self.descriptors = max(self.descriptors, self.open_descriptors())
            except FileNotFoundError:
                return

    def grown_mib(self):
        return (self.status('VmHWM') - self.base_kib) / 1024

    def log_lines(self):
        """But for those that say who changed what: one for each call."""
        return sum(' audit: ' not in line for line in self.gateway.log().splitlines()) - self.lines_before

    def stop(self, what):
        """What it was at most, also printed."""
        self.stopping.set()
        self.thread.join()
        print(f'note bounds: {what}: {self.base_kib / 1024:.0f} MiB at first, {self.grown_mib():.0f} more at most; '
              f'{self.descriptors_before} descriptors, {self.descriptors} at most, {self.open_descriptors()} in the end; '
              f'{self.log_lines()} log lines', flush=True)
        return self
