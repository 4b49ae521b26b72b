"""The console: how the gateway serves it, and what it does in a real browser (tests/console)."""
import json
import os
import re
import subprocess
import sys

import harness
from harness import LiveTest, SharedTest, wait_until
from test_tokens import make_token
from web import Web

CONSOLE = os.path.join(harness.ROOT, 'tests', 'console')
sys.path.append(CONSOLE)
from browser import Missing, find_browser, install_modules  # noqa: E402
from seed import GATEWAY, Seeded  # noqa: E402

PAGE_MAX = 150 * 1024


class Served(SharedTest):
    vhosts = 1

    def setUp(self):
        super().setUp()
        self.web = Web(self.gw.http())
        self.addCleanup(self.web.close)

    def files(self):
        """The page, then all that belongs to it, by address."""
        page = self.web.get('/')
        todo, found = re.findall(r'(?:src|href)="(console/[^"]+)"', page.body.decode()), {'/': page}
        while todo:
            path = '/' + todo.pop()
            if path not in found:
                found[path] = self.web.get(path)
                folder = path.rsplit('/', 1)[0][1:]
                todo += [f'{folder}/{name}' for name in re.findall(r"from '\./([a-z_.]+)'", found[path].body.decode())]
        return found

    def test_the_page_and_all_that_belongs_to_it(self):
        found = self.files()
        self.assertGreater(len(found), 10)
        self.assertEqual({a.status for a in found.values()}, {200}, found)
        self.assertLess(sum(len(a.body) for a in found.values()), PAGE_MAX)
        names = {path.rsplit('/', 1)[-1] for path in found} - {''}
        self.assertEqual(names, set(os.listdir(os.path.join(harness.ROOT, 'gateway', 'console'))) - {'index.html'})

    def test_headers_of_every_file(self):
        for path, answer in self.files().items():
            policy = dict(part.split(' ', 1) for part in answer.headers['content-security-policy'].split('; '))
            self.assertEqual(policy, {"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "img-src": "'self'", "connect-src": "'self'",
                                      "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'", "require-trusted-types-for": "'script'",
                                      "trusted-types": "'none'"}, path)
            self.assertEqual((answer.headers['x-content-type-options'], answer.headers['referrer-policy']), ('nosniff', 'no-referrer'))
            self.assertNotIn('set-cookie', answer.headers)
            kept = 'no-cache' if path == '/' else 'public, max-age=31536000, immutable'
            self.assertEqual(answer.headers['cache-control'], kept, path)
            self.assertIn('charset=utf-8' if not path.endswith('.svg') else 'image/svg+xml', answer.headers['content-type'])

    def test_head_and_what_did_not_change(self):
        page, head = self.web.get('/'), self.web.ask('HEAD', '/')
        self.assertEqual((head.status, head.body, head.headers['content-length']), (200, b'', str(len(page.body))))
        tag = page.headers['etag']
        for sent, status in ((tag, 304), (f'W/{tag}, "other"', 304), ('"other"', 200)):
            answer = self.web.ask('GET', '/', headers={'If-None-Match': sent})
            self.assertEqual((answer.status, answer.headers['etag']), (status, tag))
            self.assertEqual(answer.body, b'' if status == 304 else page.body)

    def test_what_is_no_file_of_it(self):
        version = re.search(r'console/([0-9a-f]{16})/', self.web.get('/').body.decode()).group(1)
        for path in ('/console/', '/console/x', f'/console/{version}/', f'/console/{version}/none.js', f'/console/{version}/index.html',
                     '/console/0000000000000000/main.js', f'/console/{version}/../main.js', f'/console/{version}/%2e%2e/main.js'):
            answer = self.web.get(path)
            self.assertEqual(answer.status, 404, path)
            self.assertEqual(answer.headers['content-type'], 'application/problem+json')
        self.assertEqual(self.web.get(f'/console/{version}/%6dain.js').status, 200, 'the same name, by RFC 3986, 6.2.2.2')
        self.assertEqual(self.web.ask('POST', '/', {}).status, 405)

    def test_another_name_of_this_machine_is_refused(self):
        for path in ('/', '/console/x/main.js'):
            answer = self.web.ask('GET', path, headers={'Host': 'evil.example'})
            self.assertEqual(answer.status, 400, path)

    def test_it_can_be_switched_off(self):
        web = Web(self.p.gateway(POSTDATE_HTTP_CONSOLE='off').http())
        self.assertEqual((web.get('/').status, web.get('/').problem), (404, 'no-such-route'))
        self.assertEqual(web.get('/v1/stats').status, 200)


@harness.not_san  # the browser is no program of ours, and its requests are those of the tests above
class InTheBrowser(LiveTest):
    time_limit_s = 400
    weight = 3
    together = True  # a browser takes all the processors there are
    vhosts = 4

    def setUp(self):
        super().setUp()
        try:
            self.browser = {'chromium': find_browser(), 'modules': install_modules()}
        except Missing as missing:
            self.skipTest(str(missing))
        self.p = self.place(transport='timer')

    def drive(self, script, address, **more):
        settings = dict(self.browser, url='http://%s:%d' % address, offers=list(Web(address).get('/openapi.json').json['paths']), **more)
        done = subprocess.run(['node', os.path.join(CONSOLE, script)], env=dict(os.environ, CONSOLE=json.dumps(settings)), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=360, check=False)
        out = done.stdout.decode()
        self.assertEqual(done.returncode, 0, out)
        self.assertGreater(out.count('ok '), 3, out)
        return out

    def seeded(self):
        s = Seeded(self.p, self.p.gateway(**GATEWAY)).all()
        dead = s.web.get('/v1/dead').json['dead_letters'][0]['id']
        failed = s.web.get('/v1/messages?state=failed').json['messages'][0]['id']
        return s, {'message': s.first_id, 'moved': s.moved['id'], 'dead': dead, 'failed': failed, 'doubt': s.in_doubt}

    def test_every_page(self):
        s, ids = self.seeded()
        s.burst()
        self.drive('pages.mjs', s.address, **ids)

    def test_every_action(self):
        s, ids = self.seeded()
        self.drive('actions.mjs', s.address, **ids)

    def test_hostile_text(self):
        s = Seeded(self.p, self.p.gateway(**GATEWAY))
        queues = ['<img src=x onerror=alert(1)>', '"><svg onload=alert(1)>', '\' onfocus=alert(1) autofocus=\'', '</title><script>alert(1)</script>', '__proto__',
                  'a*b\\c', '%3Cscript%3E', '../../../etc/passwd', 'ﷺ 田中さん 👾', '#/messages?x=1&y="']
        for queue in queues:
            s.die_at_once(queue)
        self.drive('hostile.mjs', s.address, queues=queues)

    def test_tokens_and_a_gateway_that_goes_away(self):
        address = self.p.gateway(POSTDATE_HTTP_TOKENS='on').http()
        token = make_token(self.p, '*', name='console')
        wait_until(lambda: Web(address).ask('GET', '/v1/stats', headers={'Authorization': 'Bearer ' + token}).status == 200, 10, 'the token')
        reader = None
        if '/v1/whoami' in Web(address).get('/openapi.json').json['paths']:
            reader = self.p.run('token', 'create', '--exchange', '*', '--role', 'read', '--name', 'reader')
        tenant = make_token(self.p, 'mine', name='tenant')
        self.drive('signin.mjs', address, token=token, reader=reader and reader.strip(), tenant=tenant)
