"""What the tests of `postdate doctor` share: run it, and look for a finding."""
import json

from harness import LiveTest


class Doctor(LiveTest):
    def doctor(self, p, *args, **env):
        """{check: [finding, …]}; the exit code must fit."""
        rc, out, err = p.cli('doctor', '--json', *args, env=env)
        self.assertEqual(err, '')
        findings = {}
        for f in json.loads(out)['checks']:
            self.assertEqual(set(f), {'check', 'status', 'detail', 'remedy'})
            self.assertIn(f['status'], ('ok', 'warn', 'fail', 'skip'))
            if f['status'] in ('warn', 'fail'):
                self.assertTrue(f['remedy'], f)
            if f['status'] == 'ok':
                self.assertIsNone(f['remedy'], f)
            findings.setdefault(f['check'], []).append(f)
        failed = [f for many in findings.values() for f in many if f['status'] == 'fail']
        self.assertEqual(rc, 1 if failed else 0, out)
        self.said = out
        return findings

    def assert_finding(self, findings, check, status, detail='', remedy=''):
        """One of the findings of this check is like that."""
        self.assertIn(check, findings, self.said)
        for f in findings[check]:
            if f['status'] == status and detail in f['detail'] and remedy in (f['remedy'] or ''):
                return
        self.fail(f'{check} is not {status} with {detail!r}, {remedy!r}: {findings[check]}')

    def assert_ok(self, findings, *checks):
        for check in checks:
            self.assert_finding(findings, check, 'ok')
            self.assertEqual(len(findings[check]), 1, findings[check])

    def assert_nothing_failed(self, findings):
        self.assertNotIn('"fail"', self.said)
