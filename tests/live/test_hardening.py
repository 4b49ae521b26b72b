"""What the programs and units are given against attackers: looked for in the files as built, and tried."""
import os
import subprocess
import tempfile

import harness
from harness import LiveTest

CHECK = os.path.join(harness.ROOT, 'tools', 'check_hardening.sh')
SOURCE = '#include <stdio.h>\nint main(int n, char **v) { char b[64]; snprintf(b, sizeof b - n, "%s", v[0]); return puts(b); }\n'
FLAGS = ['-O2', '-D_FORTIFY_SOURCE=3', '-fstack-protector-strong', '-fPIE', '-pie', '-Wl,-z,now']


@harness.not_san
class Programs(LiveTest):
    vhosts = 0

    def check(self, *programs):
        done = subprocess.run([CHECK, *programs], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False, timeout=60)
        return done.returncode, done.stdout.decode()

    def test_both_programs_have_it_all(self):
        programs = [os.path.join(harness.BIN_DIR, name) for name in ('postdated', 'postdate')]
        self.assertEqual(self.check(*programs), (0, ''))

    def test_the_check_sees_what_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:
            source, program = os.path.join(folder, 'x.c'), os.path.join(folder, 'x')
            with open(source, 'w', encoding='ascii') as f:
                f.write(SOURCE)
            for flags, text in ((['-no-pie'], 'not position-independent'), (['-Wl,-z,lazy'], 'bound late'),
                                (['-Wl,-z,norelro'], 'no RELRO'), (['-Wl,-z,execstack'], 'stack is executable'),
                                (['-Wl,-rpath,/x'], 'rpath'), (['-U_FORTIFY_SOURCE'], 'no fortified'),
                                (['-fno-stack-protector'], 'no stack protector')):
                with self.subTest(flags):
                    subprocess.run(['gcc', *FLAGS, *flags, '-o', program, source], check=True, stderr=subprocess.DEVNULL)
                    code, out = self.check(program)
                    self.assertEqual(code, 1)
                    self.assertIn(text, out)
