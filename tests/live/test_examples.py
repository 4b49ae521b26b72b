"""The documents' examples are the files of docs/examples, and each of them does what it says.

Client libraries are installed once, under build/examples; where that cannot be, or the language is missing, the test is
skipped with the reason.
"""
import os
import re
import shutil
import subprocess

import harness
from broker_users import documented_user
from examples import installed, run
from harness import LiveTest, SharedTest, wait_until

EXAMPLES = os.path.join(harness.ROOT, 'docs', 'examples')
# Which page shows which; the README shows the two in Python, too.
PAGES = {'publish': 'clients.md', 'Publish': 'clients.md', 'consume': 'consume.md', 'order': 'sql.md', 'http': 'http.md',
         'control': 'control-queue.md', 'retry': 'retry-clients.md', 'Retry': 'retry-clients.md', 'retry_celery': 'retry-clients.md',
         'move_celery': 'from-others.md',
         **{f'export_{x}': 'from-others.md' for x in ('sidekiq', 'bullmq', 'asynq', 'celery_redis', 'pgboss', 'graphile', 'river', 'dbscheduler',
                                                      'quartz', 'quartz_cron')}}
LINKED = ('export_', 'move_', 'control', 'http')  # programs to run, not to write: a link will do
LANGUAGES = {'py': 'python', 'js': 'js', 'java': 'java', 'go': 'go', 'sql': 'sql', 'sh': 'sh', 'cs': 'csharp'}
POM = '''<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>example</groupId><artifactId>example</artifactId><version>1</version>
<dependencies><dependency><groupId>com.rabbitmq</groupId><artifactId>amqp-client</artifactId><version>5.22.0</version></dependency></dependencies>
</project>
'''
GO_MOD = 'module example\n\ngo 1.20\n'


def source(name):
    with open(os.path.join(EXAMPLES, name), encoding='utf-8') as f:
        return f.read()


def bare(code):
    """Without indentation: a part of a program stands at the margin of its page."""
    return '\n'.join(line.strip() for line in code.strip().split('\n'))


def blocks(text, language):
    return [bare(code) for code in re.findall(rf'```{language}\n(.*?)```\n', text, re.S)]


class Documents(LiveTest):
    vhosts = 0

    def shows(self, page, name):
        """As a whole; or by a link, and those to write, not to run, by a part of at least three lines, too."""
        with open(os.path.join(harness.ROOT, page), encoding='utf-8') as f:
            text = f.read()
        language = LANGUAGES[name.rsplit('.', 1)[-1]]
        if f'```{language}\n{source(name)}```\n' in text:
            return
        self.assertIn(f'[{name}](examples/{name})', text, f'{page} neither shows docs/examples/{name} as it is nor links it')
        parts = [part for part in blocks(text, language) if part in bare(source(name)) and part.count('\n') > 1]
        self.assertTrue(parts or name.startswith(LINKED), f'{page} shows no part of docs/examples/{name}')

    def test_pages_of_clients_show_nothing_else(self):
        programs = [bare(source(name)) for name in os.listdir(EXAMPLES)]
        for page in ('clients.md', 'retry-clients.md'):
            with open(os.path.join(harness.ROOT, 'docs', page), encoding='utf-8') as f:
                text = f.read()
            for part in (part for language in LANGUAGES.values() for part in blocks(text, language)):
                self.assertTrue(any(part in program for program in programs), f'{page}: no example has\n{part}')

    def test_they_show_the_examples_as_they_are(self):
        names = sorted(os.listdir(EXAMPLES))
        self.assertGreaterEqual(len(names), 13)
        for name in names:
            self.shows(os.path.join('docs', 'publish.md' if name == 'publish.py' else PAGES[name.split('.')[0]]), name)
        for name in ('publish.py', 'consume.py'):
            self.shows('README.md', name)


@harness.not_san  # the clients are no programs of ours
class Examples(SharedTest):
    who_waits = 'timer'  # what RabbitMQ holds could not be moved to now
    time_limit_s = 180

    def setUp(self):
        super().setUp()
        self.http = 'http://%s:%d' % self.gw.http()

    def env(self, **more):
        return self.p.env(**{'POSTDATE_AMQP_URL': self.p.amqp, 'AMQP_URL': self.p.amqp, 'POSTDATE_HTTP': self.http, **more})

    def need(self, *programs):
        for program in programs:
            if not shutil.which(program):
                self.skipTest(f'{program} is not installed')

    def scheduled(self, before):
        """The message that came since then."""
        known = {r[0] for r in before}
        new = wait_until(lambda: [r for r in self.messages() if r[0] not in known], 10, 'the message to be stored')
        self.assertEqual(len(new), 1)
        return new[0]

    def messages(self):
        return self.p.psql("select id, routing_key, convert_from(body, 'UTF8'), round(extract(epoch from due_at - created_at)) "
                           'from postdate.messages')

    def publishes(self, command, folder):
        """Stored with its five seconds; moved to now, so that nobody waits for them, it arrives."""
        before, inbox = self.messages(), self.p.consumer('q', bind='order.reminder')
        code, out = run(command, folder, self.env())
        self.assertEqual(code, 0, out)
        message_id, *rest = self.scheduled(before)
        self.assertEqual(rest, ['order.reminder', 'still in the cart', '5'])
        self.assertEqual(self.p.value(f"select postdate.reschedule('{message_id}', '0 s')"), 'rescheduled')
        m = inbox.wait_body(b'still in the cart')
        self.assertEqual(m.properties.delivery_mode, 2)
        self.assertEqual(m.routing_key, 'order.reminder')
        inbox.close()

    def test_python(self):
        self.publishes(['/usr/bin/python3', os.path.join(EXAMPLES, 'publish.py')], None)

    def test_node(self):
        self.need('node', 'npm')
        folder = installed(self, 'node', {'package.json': '{"private": true}\n'},
                              ['npm', 'install', '--no-audit', '--no-fund', '--fetch-retries=0', '--ignore-scripts', 'amqplib@0.10.9'])
        shutil.copy(os.path.join(EXAMPLES, 'publish.js'), folder)
        self.publishes(['node', 'publish.js'], folder)

    def test_go(self):
        self.need('go')
        folder = installed(self, 'go', {'publish.go': source('publish.go'), 'go.mod': GO_MOD},
                              ['go', 'get', 'github.com/rabbitmq/amqp091-go@v1.10.0'], ['go', 'build', '-o', 'publish', '.'])
        self.publishes(['./publish'], folder)

    def test_java(self):
        self.need('java', 'javac', 'mvn')
        folder = installed(self, 'java', {'pom.xml': POM, 'Publish.java': source('Publish.java')},
                              ['mvn', '-q', '-B', 'dependency:copy-dependencies', '-DoutputDirectory=lib'],
                              ['javac', '-cp', 'lib/*', 'Publish.java'])
        self.publishes(['java', '-cp', 'lib/*:.', 'Publish'], folder)

    def test_the_consumer(self):
        consumer = subprocess.Popen([*harness.DIE_WITH_PARENT, '/usr/bin/python3', os.path.join(EXAMPLES, 'consume.py')],
                                    env=self.env(AMQP_URL=documented_user(self, self.p, 'shop', 'docs', 'install.md')),
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        self.p.children.append(consumer)
        wait_until(lambda: self.c.depth('shop.reminders') is not None, 10, 'its queue')
        self.c.publish('order.consumed', b'hello', {'x-delay': 50})
        line = consumer.stdout.readline()
        for part in ("hello {'", "'x-delay': -50", "'x-postdate-id': '"):  # their order is the broker's
            self.assertIn(part, line)
        consumer.kill()  # before its user is deleted

    def test_sql(self):
        before = self.messages()
        code, out = run(['psql', '-X', '-v', 'ON_ERROR_STOP=1', '-d', self.p.postgres, '-f', os.path.join(EXAMPLES, 'order.sql')])
        self.assertEqual(code, 0, out)
        _, key, body, seconds = self.scheduled(before)
        self.assertEqual((key, body, seconds), ('order.timeout', '{"order": 42}', '900'))
        self.assertEqual(self.p.psql('select id, state from orders'), [['42', 'open']])
        self.assertEqual(self.p.value("select postdate.cancel_key('order-42')"), 'cancelled')

    def test_curl(self):
        self.need('curl')
        code, out = run([os.path.join(EXAMPLES, 'http.sh')], None, self.env())
        self.assertEqual(code, 0, out)
        states = [line.split('"state":"')[1].split('"')[0] for line in out.splitlines()]
        self.assertEqual(states, ['scheduled', 'scheduled', 'cancelled'], out)
        self.assertIn('"body":"still in the cart"', out.splitlines()[1])
