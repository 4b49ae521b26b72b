"""`sudo postdate doctor`, as the documented install has it: root, a service's user, peer authentication."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import harness
from doctor_kit import Doctor

SCRIPT = '''mount --bind "$0" /etc/passwd && exec "$@"'''


def may_mount():
    return os.geteuid() == 0 and subprocess.run(['unshare', '-m', 'true'], capture_output=True).returncode == 0


@unittest.skipUnless(may_mount(), 'needs root, and a mount namespace')
class DoctorAsRoot(Doctor):
    def url_without_user(self, p):
        base, query = p.postgres.split('?')
        url = base + '?' + '&'.join(option for option in query.split('&') if not option.startswith('user='))
        self.assertNotIn('@', url)
        return url

    def as_root(self, p, *args, user='postdate', program='postdate', **env):
        """A mount namespace of its own has the service's user in /etc/passwd."""
        with tempfile.NamedTemporaryFile('w', dir='/tmp') as passwd:
            owner = str(os.stat(re.search(r'host=([^&]+)', p.postgres)[1]).st_uid)  # the folder is closed to others
            with open('/etc/passwd', encoding='utf-8') as present:
                passwd.write(''.join(line for line in present if line.split(':')[2] != owner and not line.startswith('postdate:')))
            passwd.write(f'{user}:x:{owner}:{owner}::/nonexistent:/usr/sbin/nologin\n')
            passwd.flush()
            os.chmod(passwd.name, 0o644)
            command = ['unshare', '-m', 'sh', '-c', SCRIPT, passwd.name, os.path.join(harness.BIN_DIR, program), *args]
            done = subprocess.run(command, env=p.env(**env), capture_output=True, text=True, timeout=60)
            return done.returncode, done.stdout, done.stderr

    def test_root_connects_as_the_user_of_the_service(self):
        p = self.place()
        url = self.url_without_user(p)
        rc, out, err = self.as_root(p, 'doctor', POSTDATE_POSTGRES_URL=url)
        self.assertIn("as 'postdate'", out, out + err)
        self.assertNotIn('does not exist', out)
        self.assertEqual(self.as_root(p, 'status', POSTDATE_POSTGRES_URL=url)[0], 0)
        # Who is named, or where there is no such user, it is as before.
        rc, out, err = self.as_root(p, 'doctor', POSTDATE_POSTGRES_URL=url, PGUSER='postgres')
        self.assertIn("as 'postgres'", out, out + err)
        rc, out, err = self.as_root(p, 'doctor', POSTDATE_POSTGRES_URL=url, user='another')
        self.assertIn('"root"', out, out + err)

    def test_so_does_the_gateway_and_the_one_that_feed_starts(self):
        p = self.place()
        url = self.url_without_user(p)
        for program, args in (('postdated', ('--once',)), ('postdate', ('feed', '-v'))):
            with self.subTest(program):
                rc, out, err = self.as_root(p, *args, program=program, POSTDATE_POSTGRES_URL=url)
                self.assertEqual(rc, 0, out + err)

    def test_who_may_not_read_the_configuration_is_told_who_may(self):
        p = self.place()
        with tempfile.TemporaryDirectory(dir='/var/tmp') as folder:
            os.chmod(folder, 0o755)
            program, path = shutil.copy(os.path.join(harness.BIN_DIR, 'postdate'), folder), os.path.join(folder, 'postdate.conf')
            os.close(os.open(path, os.O_CREAT, 0o600))
            as_nobody = ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups', program]
            for args, code in ((('status',), 77), (('doctor', '--json'), 1)):
                done = subprocess.run([*as_nobody, *args, '-c', path], env=p.env(), capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, code, done.stdout + done.stderr)
                self.assertIn('run this as root, or with sudo -u postdate', done.stdout + done.stderr)
            self.assertEqual(json.loads(done.stdout)['checks'][0]['remedy'], 'sudo postdate doctor')

    def test_the_reason_why_rabbitmqctl_cannot_run_is_said(self):
        """Debian's says on its output, behind its usage, who may run it; Erlang needs a folder of its own."""
        p = self.place()
        directory = tempfile.mkdtemp(dir='/tmp')
        script = os.path.join(directory, 'rabbitmqctl')
        with open(script, 'w', encoding='utf-8') as f:
            f.write('#!/bin/sh\necho usage\necho\necho "Only root or rabbitmq should run rabbitmqctl"\nexit 1\n')
        os.chmod(script, 0o755)
        self.assert_finding(self.doctor(p, RABBITMQCTL=script), 'rabbitmqctl', 'skip', 'Only root or rabbitmq should run', 'as root')
        with open(script, 'w', encoding='utf-8') as f:
            f.write('#!/bin/sh\ntest -d "$HOME" && echo "Error: at home" >&2\nexit 1\n')
        self.assert_finding(self.doctor(p, RABBITMQCTL=script, HOME='/nonexistent'), 'rabbitmqctl', 'skip', 'at home')
        os.remove(script)
        os.rmdir(directory)
