"""`postdate doctor` where rabbitmqctl cannot run: what RabbitMQ's management API tells."""
import glob
import os
import re

from doctor_kit import Doctor
from handover_kit import OwnServers
from harness import free_port, wait_until
from broker_users import add_user, delete_user

ENSURE = '{ok, F} = application:get_env(rabbit, enabled_plugins_file), {ok, _, _} = rabbit_plugins:ensure(F), ok.'


class Management(OwnServers, Doctor):
    def enable(self):
        """The plugin of the installed RabbitMQ, which the tests' servers leave out; its address."""
        rabbit, port = os.path.join(self.servers.directory, 'rabbitmq'), free_port()
        with open(os.path.join(rabbit, 'server', 'made-of'), encoding='utf-8') as f:
            installed = os.path.join(f.read().strip(), 'plugins')
        folders = self.folders_of(installed, 'rabbitmq_management', {})
        if not folders:
            self.skipTest('this RabbitMQ comes without rabbitmq_management')
        for folder in folders.values():
            link = os.path.join(rabbit, 'server', 'plugins', os.path.basename(folder))
            if not os.path.exists(link):
                os.symlink(folder, link)
        enabled = os.path.join(rabbit, 'enabled_plugins')
        with open(enabled, encoding='utf-8') as f:
            before = f.read()
        self.addCleanup(self.set_plugins, enabled, before)
        self.servers.rabbitmqctl('eval', f'application:set_env(rabbitmq_management, tcp_config, [{{port, {port}}}, {{ip, "127.0.0.1"}}], [{{persistent, true}}]).')
        self.set_plugins(enabled, before.strip().rstrip('.').rstrip(']') + (', ' if before.strip() != '[].' else '') + 'rabbitmq_management].\n')
        return f'http://127.0.0.1:{port}'

    def folders_of(self, installed, name, found):
        """Of the plugin and of all that it needs, which differs from one RabbitMQ to the next; Erlang's own are elsewhere."""
        for folder in glob.glob(os.path.join(installed, name + '-[0-9]*'))[:1]:
            found[name] = folder
            with open(os.path.join(folder, 'ebin', name + '.app'), encoding='utf-8') as f:
                needed = re.search(r'\{applications,\s*\[([^\]]*)\]', f.read())
            for other in re.findall(r'\w+', needed.group(1) if needed else ''):
                if other not in found:
                    self.folders_of(installed, other, found)
        return found

    def set_plugins(self, enabled, text):
        with open(enabled, 'w', encoding='utf-8') as f:
            f.write(text)
        self.servers.rabbitmqctl('eval', ENSURE)

    def look(self, p, url, **env):
        return self.doctor(p, '--management', url, RABBITMQCTL='/nowhere/rabbitmqctl', **env)

    def changed(self, found):
        return found if found['broker.policies'][0]['status'] != 'ok' and 'retries.at_most_once' in found else None

    def test_policies_queues_and_nodes(self):
        p = self.place()
        p.gateway()
        url = self.enable()
        found = self.look(p, url)
        self.assert_ok(found, 'management', 'broker.policies', 'broker.down', 'broker.nodes')
        self.assert_finding(found, 'rabbitmqctl', 'skip', "not checked: messages in the delayed-message plugin, bindings, rights, the broker's clock", 'as root')
        p.client().queue('mine', arguments={'x-dead-letter-exchange': 'postdate.retry'})
        p.stack.rabbitmqctl('set_policy', '-p', p.vhost, 'short', '^postdate.rejected$', '{"max-length":10}', '--apply-to', 'queues')
        found = wait_until(lambda: self.changed(self.look(p, url)), 40, 'the management API to know the policy')  # it gathers every five seconds
        self.assert_finding(found, 'broker.policies', 'warn', "policy 'short' sets max-length on 'postdate.rejected' (1 queues in all)", 'list_policies')
        self.assert_finding(found, 'retries.at_most_once', 'warn', "queue 'mine' is no quorum queue")

    def test_who_may_not_ask_is_told_what_to_grant(self):
        p = self.place()
        url = self.enable()
        user = 'untagged_' + p.database
        amqp = add_user(p, user, 's3cret', '.*', '.*', '.*')
        self.addCleanup(delete_user, p.stack, user)
        self.assert_finding(self.look(p, url, POSTDATE_AMQP_URL=amqp), 'management', 'fail', '401', f"set_user_tags '{user}' monitoring")

    def test_where_it_is_not(self):
        p = self.place()
        url = f'http://127.0.0.1:{free_port()}'
        self.assert_finding(self.look(p, url), 'management', 'fail', f'cannot query the management API at {url}: Connection refused', 'rabbitmq_management is enabled')
        self.assert_finding(self.look(p, 'https://h'), 'management', 'fail', 'only http:// is supported')
