"""What the command line is like to sit in front of: status --watch, widths, and completion in bash and zsh."""
import glob
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time
import unittest

import harness
from harness import BIN_DIR, ROOT, LiveTest, SharedTest, check_sanitizers, wait_until

CLI = os.path.join(BIN_DIR, 'postdate')
CLEAR = '\x1b[H\x1b[J'


class Controls(SharedTest):
    """What acts on a terminal does not, in JSON either; the values stay the same."""

    def on_terminal(self, *args):
        read, write = pty.openpty()
        done = subprocess.Popen([*harness.DIE_WITH_PARENT, CLI, *args], stdout=write, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=self.p.env())
        os.close(write)
        out = b''
        while True:
            try:
                part = os.read(read, 65536)
            except OSError:  # a terminal that nobody holds open any more
                break
            out += part
            if not part:
                break
        os.close(read)
        self.assertEqual(done.wait(20), 0, out)
        return out.decode().replace('\r\n', '\n')

    def test_json_acts_on_no_terminal(self):
        odd = 'a\u009b31m\u0085\u202e\u2066\u200f\u2028\x7f\x1b]0;x\x07 grüße 😀'
        message = self.p.value("select postdate.schedule('odd', 'x', '1 hour', headers => %s)" % ("'" + json.dumps({'h': odd}) + "'::jsonb"))
        self.p.psql(f"select postdate.recur_set('odd', '@daily', 'k', '{json.dumps(odd)}'::json)")
        for args in (('show', message, '--json'), ('list', '--json'), ('recur', 'show', 'odd', '--json'), ('recur', 'list', '--json'), ('recur', 'export'), ('show', message)):
            shown, plain = self.on_terminal(*args), self.p.cli(*args)[1]
            self.assertEqual(re.findall('[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]|[\\x00-\\x08\\x0b-\\x1f]', shown), [], args)
            if '--json' in args:
                self.assertEqual(*([json.loads(part) for part in re.split(r'\n(?=\{)', text)] for text in (shown, plain)), args)
        self.assertIn(odd[:6].replace('a', ''), self.p.cli('show', message, '--json')[1], 'a pipe gets them as they are')
        self.assertIn('grüße 😀', self.on_terminal('show', message, '--json'))


class Watch(SharedTest):
    def start(self, *args, terminal=False):
        """`postdate status --watch` with its output on a terminal or a pipe; (process, read end)."""
        read, write = pty.openpty() if terminal else os.pipe()
        process = subprocess.Popen([*harness.DIE_WITH_PARENT, CLI, 'status', '--watch', *args], stdout=write,
                                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=self.p.env())
        self.p.children.append(process)
        self.addCleanup(os.close, read)
        os.close(write)
        return process, read

    def read_until(self, read, enough):
        """Its output, as soon as enough(text)."""
        text, end = '', time.monotonic() + 15 * harness.slowness()
        while not enough(text):
            ready, _, _ = select.select([read], [], [], max(0, end - time.monotonic()))
            self.assertTrue(ready, f'not enough came: {text!r}')
            text += os.read(read, 65536).decode()
        return text

    def stop(self, process, sig=signal.SIGINT):
        process.send_signal(sig)
        _, err = process.communicate(timeout=10 * harness.slowness())
        check_sanitizers('status --watch', err.decode())
        self.assertEqual(process.returncode, 0, err)
        return err.decode()

    def test_a_terminal_is_redrawn_each_second(self):
        process, read = self.start(terminal=True)
        began = time.monotonic()
        text = self.read_until(read, lambda t: t.count(CLEAR) == 4)
        self.assertGreater(time.monotonic() - began, 2)
        self.assertEqual(self.stop(process), '')
        screens = text.split(CLEAR)
        self.assertEqual(screens[0], '')
        for screen in screens[1:4]:
            self.assertIn('scheduled', screen)
            self.assertIn('gateways', screen)
            self.assertLessEqual(max(map(len, screen.splitlines())), 80, screen)

    def test_a_pipe_gets_lines(self):
        process, read = self.start()
        text = self.read_until(read, lambda t: t.count('\n') == 2)
        self.assertEqual(self.stop(process, signal.SIGTERM), '')
        for line in text.splitlines():
            self.assertRegex(line, r'^20[0-9-]+T[0-9:.]+Z scheduled \d+ .*overdue \d+$')

    def test_json_is_an_object_a_line(self):
        process, read = self.start('--json')
        text = self.read_until(read, lambda t: t.count('\n') == 2)
        self.stop(process)
        once = json.loads(self.p.cli('status', '--json')[1])
        for line in text.splitlines():
            self.assertEqual(json.loads(line).keys(), once.keys())

    def test_a_database_that_goes_away_is_waited_for(self):
        process, read = self.start()
        self.read_until(read, lambda t: '\n' in t)
        database = self.p.database
        self.p.stack.psql(f'alter database {database} with allow_connections false')
        self.p.stack.psql(f"select pg_terminate_backend(pid) from pg_stat_activity where datname = '{database}'")
        said = process.stderr.readline().decode()
        self.assertIn('trying again', said)
        self.p.stack.psql(f'alter database {database} with allow_connections true')
        self.read_until(read, lambda t: t.count('\n') >= 2)
        self.assertEqual(self.stop(process), '', 'it is said once')

    def test_a_reader_that_leaves_ends_it(self):
        head = subprocess.run(f"'{CLI}' status --watch | head -1", shell=True, env=self.p.env(), check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=20 * harness.slowness())
        self.assertEqual((head.stdout.count(b'\n'), head.stderr), (1, b''))


class Tables(LiveTest):
    vhosts = 0

    def test_eighty_columns_and_exact_in_json(self):
        p = self.place()
        wide = 'w' * 200
        for delay, key in (('71h', wide), ('90s', 'short'), ('50h', 'ä' * 100)):
            p.run('schedule', '-k', key, '--delay', delay, '--body', 'x', '--exchange', wide)
        p.run('token', 'create', '--exchange', wide, '--exchange', 'b' * 80, '--name', 'n' * 60)
        for command in (['list'], ['status'], ['token', 'list']):
            out = p.run(*command)
            self.assertLessEqual(max(map(len, out.splitlines())), 80, out)
        rows = [json.loads(line) for line in p.cli('list', '--json')[1].splitlines()]
        self.assertEqual({r['routing_key'] for r in rows}, {wide, 'short', 'ä' * 100})
        for row in rows:
            self.assertRegex(row['due_at'], r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$')
        token = json.loads(p.cli('token', 'list', '--json')[1])
        self.assertEqual(token['exchanges'], [wide, 'b' * 80])

    def test_words_do_not_steer_the_terminal(self):
        """A name in every kind of mistake: unknown, refused, not found, of the database, of a file."""
        p = self.place()
        evil = 'a\x1b]0;x\x07\n\udc9b31m\x9b1m\u202e\x7fü'  # also as bytes that are no UTF-8
        commands = [(evil,), ('--' + evil,), ('-c', evil, 'list'), ('list', evil), ('list', '--' + evil), ('list', '--due-before', evil),
                    ('show', evil), ('show', '--key', evil), ('cancel', '--key', evil), ('schedule', '-k', 'k', '--delay', evil, '--body', 'x'),
                    ('schedule', '-k', 'k', '--delay', '1h', '--file', evil), ('schedule', '--batch', evil), ('token', evil),
                    ('schedule', '-k', 'k', '--delay', '1h', '--header', evil, '--body', 'x'), ('token', 'revoke', evil),
                    ('schedule', '-k', 'k', '--delay', '1h', '--property', evil + '=1', '--body', 'x'),
                    ('schedule', '-k', 'k', '--delay', '1h', '--exchange', evil, '--on-conflict', evil, '--body', 'x')]
        for command in commands:
            rc, out, err = p.cli(*command)
            self.assertGreater(rc, 0, command)
            self.assertNotRegex(out + err, r'[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]', command)
            self.assertEqual(err.count('\n'), 1, (command, err))

    def test_text_is_shown_as_the_terminal_can(self):
        """Letters stay letters; what would steer the terminal never gets there raw."""
        p = self.place()
        evil = 'k\x1b[31m\u202e'
        out = p.run('schedule', '-k', 'größe', '--delay', '1h', '--body', 'Grüße,\n\tÄ\x1b[2J')
        self.assertEqual(p.cli('schedule', '-k', evil, '--delay', '2h', '--body', 'x')[0], 0)
        self.assertEqual(p.cli('schedule', '-k', '漢' * 50, '--delay', '3h', '--body', 'x')[0], 0)
        utf8, ascii_only = {**p.env(), 'LC_ALL': 'C.UTF-8'}, {**p.env(), 'LC_ALL': 'C'}
        rows = p.cli('list', env=utf8)[1].splitlines()
        self.assertRegex(rows[1], 'größe$')
        self.assertRegex(rows[2], r'k\\x1b\[31m\\xe2\.\.$')
        self.assertRegex(rows[3], r' 漢{7}\.\.$')
        self.assertIn('\nGrüße,\n\tÄ\\x1b[2J\n', p.cli('show', out.strip(), env=utf8)[1])
        self.assertRegex(p.cli('list', env=ascii_only)[1].splitlines()[1], r'gr\\xc3\\xb6\\xc3\.\.$')


def command_table():
    """{command: its long options}, read from the sources: the tables that getopt is given."""
    def read(name):
        with open(os.path.join(ROOT, 'gateway', 'cli', name), encoding='utf-8') as f:
            return f.read()

    def options(text):
        return set(re.findall(r'\{"([a-z-]+)", (?:NULL|"[^"]*"),', text))
    common = set(re.findall(r'\{"([a-z-]+)", (?:no|required)_argument', read('command.h')))
    shared = {f'cli_{name}_options': options(re.search(rf'cli_{name}_options\[\] = (.*?)^}};', read(path), re.M | re.S).group(1))
              for name, path in (('filter', 'filter.c'), ('operate', 'filter.c'), ('content', 'fields.c'))}
    table = {}
    for path in glob.glob(os.path.join(ROOT, 'gateway', 'cli', '**', 'cmd_*.c'), recursive=True):
        text = read(os.path.relpath(path, os.path.join(ROOT, 'gateway', 'cli')))
        blocks = re.findall(r'^const struct command \w+ = (.*?)^};', text, re.M | re.S)
        for block in blocks:
            name, = re.findall(r'\.name = "([a-z-]+)"', block)
            # Some have theirs by a macro for all of the file.
            rows = re.findall(r'\.options = (\w+)', block) or re.findall(r'\.options = (\w+), +\\\n', text)
            rows = re.search(rf' {rows[0]}\[\] = (.*?)^}};', text, re.M | re.S).group(1) if rows else ''
            table[name] = options(rows).union(common, *(shared[more] for more in re.findall(r'\.more = (\w+)', rows)))
            if 'CLI_CELLS_' not in (block if len(blocks) > 1 else text):  # verbs of one have theirs
                table[name].discard('cells')
    return table


class Completion(LiveTest):
    vhosts = 0

    def generate(self, shell, program='postdate'):
        path = os.path.join(os.environ['STACK_DIR'], f'completion-{program}-{os.getpid()}.{shell}')
        with open(path, 'wb') as f:
            subprocess.run([os.path.join(ROOT, 'packaging/completion/generate.sh'), shell, os.path.join(BIN_DIR, program)], check=True,
                           stdout=f, timeout=60)
        self.addCleanup(os.remove, path)
        return path

    def tables(self):
        """Of each command and verb: its options, with the words that each may be; of a command with verbs, these."""
        options, verbs = {}, {}
        for line in subprocess.run([CLI, '--print-commands'], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines():
            kind, command, *rest = line.split('\t')
            if kind == 'verb':
                verbs.setdefault(command, []).append(rest[0])
            if kind == 'option':
                verb, letter, name, _, words, _ = rest
                options.setdefault((command,) if verb == '-' else (command, verb), {})['--' + name] = (letter, words)
        return options, verbs

    def complete(self, path, *words, program='postdate'):
        """What bash offers for the last of the words."""
        script = f'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _{program}; printf "%s\\n" "${{COMPREPLY[@]}}"'
        done = subprocess.run(['bash', '-c', script, path, program, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=True, timeout=20)
        self.assertEqual(done.stderr, b'')
        return done.stdout.decode().split()

    def test_the_table_is_what_help_lists(self):
        table = command_table()
        listed = re.findall(r'^  ([a-z-]+) +\S', subprocess.run([CLI, '--help'], stdout=subprocess.PIPE, check=True)
                            .stdout.decode().split('Options:')[0], re.M)
        self.assertEqual(sorted(table), sorted(listed))
        self.assertGreaterEqual(table['cancel'], {'state', 'key', 'dry-run', 'config'})
        options, _ = self.tables()
        self.assertEqual({c: {'--' + o for o in names} for c, names in table.items()}, {key[0]: set(o) for key, o in options.items() if len(key) == 1})

    def test_bash_offers_what_each_verb_takes_and_nothing_else(self):
        path = self.generate('bash')
        options, verbs = self.tables()
        commands = [key[0] for key in options if len(key) == 1]
        self.assertEqual(self.complete(path, ''), commands)
        self.assertEqual(self.complete(path, '--'), ['--config', '--cells', '--help', '--version', '--print-commands'])
        for command in commands:
            self.assertEqual(self.complete(path, '-c', 'x.conf', command[:-1]), [c for c in commands if c.startswith(command[:-1])])
            if command in verbs:
                self.assertEqual(self.complete(path, command, ''), verbs[command])
        for key, names in options.items():
            self.assertEqual(set(self.complete(path, *key, '--')), set(names), key)
            for name, (letter, words) in names.items():
                if ' ' in words:
                    for option in (name, letter) if letter != '-' else (name,):
                        self.assertEqual(self.complete(path, *key, option, ''), words.strip(',').split(), (key, name))
                        self.assertEqual(self.complete(path, *key, option, '=', words.strip(',')[:3]),
                                         [w for w in words.strip(',').split() if w.startswith(words.strip(',')[:3])])
                    # each is one that the program takes
                    for word in words.strip(',').split() if len(key) == 2 or key[0] not in verbs else ():
                        said = subprocess.run([CLI, '-c', '/nonexistent', *key, f'{name}={word}'], stdout=subprocess.PIPE, stderr=subprocess.PIPE).stderr.decode()
                        self.assertNotRegex(said, rf'"{word}"|--{name[2:]}', (key, name))

    def test_bash_knows_values_and_files(self):
        path = self.generate('bash')
        makefile = os.path.join(ROOT, 'Makef')
        for words, offered in (
                (('list', '--state', 'ca'), ['cancelled']), (('list', '-k', 'list', '--state', ''), None), (('schedule', '--on-conflict', ''), ['keep', 'replace', 'reject']),
                (('schedule', '--delay', ''), []), (('schedule', '--delay', '=', ''), []), (('list', '--state', '='), None),
                (('recur', '--json', 'li'), ['list']), (('recur', 'set', 'x', '--overlap', 's'), ['skip']), (('recur', 'set', 'x', '--ov'), ['--overlap']), (('recur', 'pause', 'x', '--ov'), []),
                (('rate', 'show', '-k', 'set', '--b'), []), (('retry-policy', 'set', 'q', '--on', 'rejected,e'), ['rejected,expired']),
                (('schedule', '--file', makefile), [makefile + 'ile']), (('schedule', '--file', '=', makefile), [makefile + 'ile']), (('recur', 'apply', makefile), [makefile + 'ile']),
                (('import', 'verify', makefile), [makefile + 'ile']), (('recur', 'show', makefile), []), (('-c', makefile), [makefile + 'ile'])):
            found = self.complete(path, *words)
            self.assertEqual(found, offered if offered is not None else
                             'scheduled claimed handed delivered cancelled superseded failed expired retrying waiting'.split(), words)

    def test_completion_of_the_gateway(self):
        path = self.generate('bash', 'postdated')
        listed = set(re.findall(r'--[a-z-]+', subprocess.run([os.path.join(BIN_DIR, 'postdated'), '--help'], stdout=subprocess.PIPE, check=True)
                                .stdout.decode().split('Runs in')[0]))
        self.assertEqual(set(self.complete(path, '--', program='postdated')), listed)
        self.assertEqual(self.complete(path, '--pr', program='postdated'), ['--print-config-sample'])
        makefile = os.path.join(ROOT, 'Makef')
        self.assertEqual(self.complete(path, '-c', makefile, program='postdated'), [makefile + 'ile'])
        with open(self.generate('zsh', 'postdated'), encoding='utf-8') as f:
            text = f.read()
        for option in listed:
            self.assertRegex(text, rf"[',]{option}['\[}}]")

    def test_zsh_knows_every_command_and_option(self):
        path = self.generate('zsh')
        with open(path, encoding='utf-8') as f:
            text = f.read()
        self.assertTrue(text.startswith('#compdef postdate\n'))
        for key, options in self.tables()[0].items():
            if len(key) == 1:
                self.assertRegex(text, f"'{key[0]}:")
            name = '"%s %s"' % key if len(key) == 2 else key[0]
            part = re.search(rf'^        {name}\)\n(.*?)^            ;;', text, re.M | re.S).group(1)
            self.assertEqual(set(re.findall(r"(?:'|\*|,)(--[a-z-]+)[\[}]", part)), set(options), key)

    @unittest.skipUnless(shutil.which('zsh'), 'zsh is not installed')
    def test_zsh_completes_on_a_terminal(self):
        path = self.generate('zsh')
        gateway = self.generate('zsh', 'postdated')
        process, terminal = pty.fork()
        if process == 0:
            os.environ['TERM'] = 'dumb'
            os.execvp('zsh', ['zsh', '-f', '-i'])
        self.addCleanup(os.close, terminal)
        self.addCleanup(os.waitpid, process, 0)
        self.addCleanup(os.kill, process, signal.SIGKILL)
        seen = ['']

        def ask(text, wanted):
            os.write(terminal, text.encode())

            def came():
                if select.select([terminal], [], [], 0.05)[0]:
                    seen[0] += os.read(terminal, 65536).decode(errors='replace')
                return wanted in seen[0]
            wait_until(came, 15, f'{wanted!r} after {text!r}')
            seen[0] = ''
        ask(f'PS1=; autoload -U compinit; compinit -D -u; . "{path}" 2>/dev/null; . "{gateway}" 2>/dev/null; compdef _postdate postdate; compdef _postdated postdated\n'
            'line() { print -r -- "<$BUFFER>" }; zle -N line; bindkey "^Xl" line; echo re""ady\n', 'ready\r\n')
        for typed, line in (
                ('postdate resch\t', 'postdate reschedule '), ('postdate reschedule --sh\t', 'postdate reschedule --shift '), ('postdate list --state del\t', 'postdate list --state delivered '),
                ('postdate token rev\t', 'postdate token revoke '), ('postdate recur set x --ov\t', 'postdate recur set x --overlap '), ('postdate recur set x --overlap s\t', 'postdate recur set x --overlap skip '),
                ('postdate recur pause x --ov\t', 'postdate recur pause x --ov'), ('postdate rate show --b\t', 'postdate rate show --b'), ('postdate rate set x --b\t', 'postdate rate set x --burst '),
                ('postdate retry-policy set q --on rejected,e\t', 'postdate retry-policy set q --on rejected,expired,'), ('postdate schedule --hold g\t', 'postdate schedule --hold gateway '),
                (f'postdate recur apply {ROOT}/Makef\t', f'postdate recur apply {ROOT}/Makefile '),
                ('postdated --pri\t', 'postdated --print-config-sample '), (f'postdated -c {ROOT}/Makef\t', f'postdated -c {ROOT}/Makefile ')):
            ask('\x15' + typed + '\x18l', f'<{line}>')


class Manual(LiveTest):
    vhosts = 0

    def test_it_knows_every_command_and_option(self):
        with open(os.path.join(ROOT, 'man', 'postdate.1'), encoding='utf-8') as f:
            text = f.read()
        for command, options in command_table().items():
            self.assertRegex(text, rf'(?m)^\.It Cm {command}$')
            for option in options:
                self.assertTrue(f'\\-{option}' in text, f'--{option} of {command} is not in the manual')
