"""`postdate doctor` about RabbitMQ: rights, topology, what it holds; with and without rabbitmqctl."""
import json
import os
import re
import tempfile
import urllib.parse

import pika

import harness
from doctor_kit import Doctor
from handover_kit import RUNGS, handover
from harness import free_port, wait_until, with_path

OWN_PATTERNS = ('^postdate', r'^(postdate.*|amq\.default)$', '^postdate')  # as in plugins-config
# A rabbitmqctl whose broker has other calls: the program that it is to run comes as base64.
OTHER_CALLS = r"""#!/usr/bin/python3
import base64, os, re, sys
def other(m):
    return base64.b64encode(base64.b64decode(m.group(0)).replace(b'consistent_query', b'gone_query')).decode()
eval_, program = sys.argv[1:]
os.execv(os.environ['REAL'], ['rabbitmqctl', eval_, re.sub(r'[A-Za-z0-9+/=]{4000,}', other, program)])
"""
# What a gateway notes again and again: that it has two consumers of its exit queue, as at times.
TWO_CONSUMERS = """
create function test_two() returns trigger language plpgsql as 'begin new.relay_consumers := array[2]; return new; end';
create trigger test_two before update on postdate.instance for each row execute function test_two();
update postdate.instance set relay_consumers = array[2]"""


class Users(Doctor):
    def url_of(self, p, user, password):
        parts = urllib.parse.urlsplit(p.amqp)
        return parts._replace(netloc=f'{user}:{password}@{parts.hostname}:{parts.port}').geturl()

    def grant(self, p, user, configure, write, read):
        quoted = [f'<<"{x}">>'.replace('\\', '\\\\') for x in (user, p.vhost, configure, write, read)]
        p.stack.rabbitmqctl('eval', f'rabbit_auth_backend_internal:set_permissions({", ".join(quoted)}, <<"test">>).')


class DoctorBroker(Users):
    def test_away_refused_or_no_vhost(self):
        p = self.place()
        found = self.doctor(p, POSTDATE_AMQP_URL=f'amqp://u:s3cret@127.0.0.1:{free_port()}/%2f')
        self.assert_finding(found, 'broker.connection', 'fail', 'refused', 'start RabbitMQ')
        for check in ('broker.permissions', 'broker.topology', 'handover.transport', 'rabbitmqctl'):
            self.assert_finding(found, check, 'skip', 'no connection')
        self.assertNotIn('s3cret', self.said)
        found = self.doctor(p, POSTDATE_AMQP_URL=self.url_of(p, 'nobody', 's3cret'))
        self.assert_finding(found, 'broker.connection', 'fail', "'nobody'", 'set_permissions')
        self.assertNotIn('s3cret', self.said)
        found = self.doctor(p, POSTDATE_AMQP_URL=with_path(p.amqp, 'no such vhost'))
        self.assert_finding(found, 'broker.connection', 'fail', 'no such vhost', 'add_vhost')

    @harness.not_san
    def test_permissions(self):
        p = self.place()
        user = 'u' + p.database
        p.stack.rabbitmqctl('add_user', user, 's3cret')
        self.addCleanup(p.stack.rabbitmqctl, 'delete_user', user)
        url = self.url_of(p, user, 's3cret')
        self.grant(p, user, '^none', '^none', '^none')
        found = self.doctor(p, POSTDATE_AMQP_URL=url)
        for right in ("configure exchange 'postdate'", "configure queue 'postdate.intake'", "read queue 'postdate.intake'",
                      "configure queue 'postdate.control'", "read queue 'postdate.control'",
                      "write exchange 'postdate.delivery'"):
            self.assert_finding(found, 'broker.permissions', 'fail', right, 'set_permissions')
        self.grant(p, user, '^postdate', '^postdate', '^postdate')
        found = self.doctor(p, POSTDATE_AMQP_URL=url)
        self.assert_ok(found, 'broker.permissions')
        self.assert_finding(found, 'broker.publish', 'fail', 'amq.default', 'amq')
        self.grant(p, user, *OWN_PATTERNS)
        found = self.doctor(p, POSTDATE_AMQP_URL=url, POSTDATE_HANDOVER_TRANSPORT='ttl')
        self.assert_ok(found, 'broker.permissions', 'broker.publish')
        found = self.doctor(p, POSTDATE_AMQP_URL=url, POSTDATE_ROUTE='orders.later=orders')
        self.assert_finding(found, 'broker.permissions', 'fail', "configure exchange 'orders.later'")
        self.assert_finding(found, 'broker.permissions', 'fail', "write exchange 'orders'")
        self.assertNotIn('s3cret', self.said)
        c = p.client()
        with self.assertRaises(pika.exceptions.ChannelClosedByBroker, msg='trying rights has declared something'):
            c.channel.exchange_declare('postdate', passive=True)

    def test_topology(self):
        p = self.place()
        self.assert_finding(self.doctor(p), 'broker.topology', 'warn', '7 of 7', 'start a gateway')
        c = p.client()
        c.channel.queue_declare('postdate.intake', durable=True)
        c.channel.exchange_declare('postdate', 'direct', durable=True)
        found = self.doctor(p)
        self.assert_finding(found, 'broker.topology', 'fail', "'postdate.intake'", "rename 'postdate.intake'")
        self.assert_finding(found, 'broker.topology', 'fail', "exchange 'postdate'")
        c.channel.queue_delete('postdate.intake')
        c.channel.exchange_delete('postdate')
        p.gateway()
        self.assert_ok(self.doctor(p), 'broker.topology')

    def test_backlogs(self):
        p = self.place()
        g = p.gateway()
        c = p.client()
        c.publish('k', b'', {'x-delay': 'never'})
        wait_until(lambda: c.depth('postdate.rejected') == 1, 10, 'it to be parked')
        found = self.doctor(p)
        self.assert_finding(found, 'broker.rejected', 'warn', '1 rejected', 'postdate rejected list')
        self.assert_ok(found, 'broker.intake')
        self.assertEqual(g.term(), 0)
        c.publish('k', b'', {'x-delay': 1000})
        self.assert_finding(self.doctor(p), 'broker.intake', 'fail', 'have no consumer', 'start a gateway')

    def test_somebody_else_takes_messages(self):
        p = self.place()
        p.gateway()
        found = self.doctor(p)
        for name in ('intake', 'expired', 'control', 'exit', 'retry'):
            self.assert_ok(found, f'broker.{name}')
        p.consumer('postdate.exit')
        found = self.doctor(p)
        self.assert_finding(found, 'broker.exit', 'warn', '2 consumers, and 1 gateway is alive', 'shovel')
        self.assert_ok(found, 'broker.intake')
        p.psql(TWO_CONSUMERS)
        self.assert_ok(self.doctor(p), 'broker.exit')

    def test_another_broker(self):
        p = self.place()
        p.gateway().term()
        p.psql("update postdate.meta set vhost = 'other'")
        self.assert_finding(self.doctor(p), 'broker.owner', 'fail', "'other'", '--rebind')
        p.psql("update postdate.meta set vhost = null, broker = null")
        self.assert_ok(self.doctor(p), 'broker.owner')


class DoctorHandover(Doctor):
    who_waits = 'timer'
    RUNGS = [f'postdate.ttl.r16g100.l{level}.d{digit}' for level in (1, 2) for digit in range(1, 16)]

    def test_what_the_ladder_lost(self):
        p = self.place()
        env = {'POSTDATE_HANDOVER_' + k: v for k, v in
               dict(TRANSPORT='ttl', WINDOW='6m', MIN_AHEAD='300ms', GRACE='1s').items()}
        g = p.gateway(**env)
        c = p.client()
        for i in range(150):  # the last is due soon
            c.publish('k', b'', {'x-delay': 60_000 if i < 149 else 6000})
        wait_until(lambda: p.counts() == {'handed': 150}, 15, '150 messages handed over')
        found = self.doctor(p, **env)
        self.assert_finding(found, 'handover.messages', 'ok', '150')
        self.assertNotIn('handover.overdue', found)
        self.assert_finding(found, 'broker.exit', 'ok')
        self.assertEqual(g.term(), 0)
        for name in self.RUNGS:
            c.channel.queue_purge(name)
        self.assert_finding(self.doctor(p, **env), 'handover.messages', 'warn', 'hold only 0', 'postdate.ttl')
        wait_until(lambda: 'handover.overdue' in self.doctor(p, **env), 20, 'the first to be overdue')
        self.assert_finding(self.doctor(p, **env), 'handover.overdue', 'warn', '1 handed', 'gateway publishes')

    def test_transports_and_feeder(self):
        p = self.place()
        found = self.doctor(p, POSTDATE_HANDOVER_TRANSPORT='ttl', POSTDATE_HANDOVER_FEEDER='cron')
        self.assert_ok(found, 'handover.transport')
        self.assert_finding(found, 'handover.feeder', 'warn', 'window has ended', 'postdate feed')
        self.assertEqual(p.cli('feed', env={'POSTDATE_HANDOVER_TRANSPORT': 'ttl', 'POSTDATE_HANDOVER_FEEDER': 'cron'})[0], 0)
        found = self.doctor(p, POSTDATE_HANDOVER_TRANSPORT='ttl', POSTDATE_HANDOVER_FEEDER='cron')
        self.assertNotIn('handover.feeder', found)
        has_plugin = 'has the delayed' in self.doctor(p)['handover.transport'][0]['detail']
        found = self.doctor(p, POSTDATE_HANDOVER_TRANSPORT='plugin')
        if has_plugin:
            self.assert_finding(found, 'handover.transport', 'warn', 'archived', 'docs/migrate.md')
        else:
            self.assert_finding(found, 'handover.transport', 'fail', 'no x-delayed-message', 'ttl, or timer')

    def test_rabbitmqs_own_delay(self):
        p = self.place()
        found = self.doctor(p, POSTDATE_HANDOVER_TRANSPORT='native')
        if p.stack.keeps_back:
            self.assert_finding(found, 'handover.transport', 'ok', 'delays messages itself')
            self.assert_finding(self.doctor(p), 'handover.transport', 'ok', 'auto picks native')
        else:
            self.assert_finding(found, 'handover.transport', 'fail', '4.4 and later do', 'auto, ttl or timer')
        found = self.doctor(p, POSTDATE_HANDOVER_TRANSPORT='native', POSTDATE_HANDOVER_LAST_HOP='broker')
        self.assert_finding(found, 'handover.transport', 'fail', 'handover.last_hop', 'auto, ttl or timer')


@harness.not_san  # what it runs is no program of ours
class DoctorAdmin(Users):
    """With rabbitmqctl."""
    weight = 15

    def admin(self, p, **env):
        return self.doctor(p, '--rabbitmqctl', os.path.join(p.stack.directory, 'rabbitmqctl'), **env)

    def test_queues_whose_refusals_come_back(self):
        p, quorum = self.place(), {'x-queue-type': 'quorum', 'x-dead-letter-exchange': 'postdate.retry'}
        p.gateway()
        c = p.client()
        sure = {**quorum, 'x-dead-letter-strategy': 'at-least-once', 'x-overflow': 'reject-publish'}
        c.queue('sure', arguments=sure)
        found = self.admin(p)
        self.assert_finding(found, 'retries.queues', 'ok', '1 sends messages')
        self.assertNotIn('retries.at_most_once', found)
        # a policy's overflow counts before the argument, and so the strategy is nothing
        p.stack.rabbitmqctl('set_policy', '-p', p.vhost, 'full', '^sure$', '{"overflow":"drop-head","delivery-limit":5}')
        found = self.admin(p)
        self.assert_finding(found, 'retries.at_most_once', 'warn', "queue 'sure' dead-letters")
        p.stack.rabbitmqctl('clear_policy', '-p', p.vhost, 'full')
        version = tuple(map(int, re.findall(r'\d+', p.stack.rabbitmqctl('version'))[:2]))
        self.assertEqual('retries.requeue' in found, version >= (4, 3))
        c.queue('endless', arguments={**sure, 'x-delivery-limit': -1} if version >= (4, 0) else sure)
        self.assert_finding(self.admin(p), 'retries.requeue', 'ok', 'are redelivered at once')
        c.channel.queue_delete('endless')
        # arguments of the user's own may be any bytes
        c.queue('unsure', arguments={**quorum, 'x-team': b'\xff\x00', 'x-zero': '\0'})
        c.queue('by-policy')
        p.stack.rabbitmqctl('set_policy', '-p', p.vhost, 'retry', '^by-policy$', '{"dead-letter-exchange":"postdate.retry"}')
        found = self.admin(p)
        self.assert_finding(found, 'retries.at_most_once', 'warn', "queue 'unsure' dead-letters", "retry-policy show 'unsure'")
        self.assert_finding(found, 'retries.at_most_once', 'warn', "queue 'by-policy' is no quorum queue", 'quorum')
        self.assertNotIn('retries.rights', found)
        self.assertNotIn('retries.native', found)
        delayed = {'x-queue-type': 'quorum', 'x-delayed-retry-type': 'failed'}
        c.queue('own', arguments={**delayed, 'x-delayed-retry-min': 1000})
        c.queue('without-minimum', arguments=delayed)
        c.queue('off', arguments={**delayed, 'x-delayed-retry-min': 1000, 'x-delayed-retry-type': 'disabled'})
        self.assert_finding(self.admin(p), 'retries.native', 'ok', "queue 'own' uses the delayed retry of RabbitMQ 4.3")
        p.stack.rabbitmqctl('set_permissions', '-p', p.vhost, 'guest', '^postdate', '^(postdate.*|amq[.]default|un.*|by-.*)$', '^postdate')
        found = self.admin(p)
        self.assert_finding(found, 'retries.rights', 'fail', "no write permission on queue 'sure'", 'set_permissions')

    def test_queues_that_do_not_answer(self):
        """To clients one without a majority looks well, and rabbitmqctl list_queues leaves out one whose process has ended."""
        p = self.place()
        p.gateway(**handover('ttl'))
        self.assert_finding(self.admin(p), 'broker.down', 'ok', 'queues of Postdate answer')
        find = f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{p.vhost}">>, queue, <<"%s">>)), '
        member = find % 'postdate.intake' + 'ra:%s_server(quorum_queues, amqqueue:get_pid(Q)).'
        p.stack.rabbitmqctl('eval', member % 'stop')
        self.addCleanup(p.stack.rabbitmqctl, 'eval', member % 'restart')
        # killed oftener than RabbitMQ starts it again
        p.stack.rabbitmqctl('eval', 'K = fun K(0) -> ok; K(N) -> ' + find % RUNGS[-16] + 'P = amqqueue:get_pid(Q), exit(P, kill), '
                            'timer:sleep(200), K(N - 1) end, K(10).')
        found = self.admin(p)
        self.assert_finding(found, 'broker.down', 'fail', "queue 'postdate.intake' does not answer: 0 of 1", 'start RabbitMQ on')
        self.assert_finding(found, 'broker.down', 'fail', f"queue '{RUNGS[-16]}' does not answer", 'stop_app')
        self.assert_finding(found, 'handover.messages', 'fail', f"'{RUNGS[-16]}'")

    def test_queues_that_cannot_be_asked(self):
        """As by a RabbitMQ whose own calls are other ones: that says nothing of the queues."""
        p = self.place()
        p.gateway()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        other = os.path.join(folder.name, 'rabbitmqctl')
        with open(other, 'w') as f:
            f.write(OTHER_CALLS)
        os.chmod(other, 0o755)
        found = self.doctor(p, '--rabbitmqctl', other, REAL=os.path.join(p.stack.directory, 'rabbitmqctl'))
        self.assert_finding(found, 'broker.down', 'skip', 'this RabbitMQ does not support it (undef)', 'rabbitmq-queues')

    def test_rabbitmqctl_that_cannot(self):
        p = self.place()
        self.assert_finding(self.doctor(p, '--rabbitmqctl', '/nowhere/rabbitmqctl'), 'rabbitmqctl', 'fail', '/nowhere',
                            'as root')
        self.assert_finding(self.doctor(p, '--rabbitmqctl', '/bin/false'), 'rabbitmqctl', 'fail', 'no reason')
        self.assert_finding(self.doctor(p, '--rabbitmqctl', '/bin/true'), 'rabbitmqctl', 'fail', 'invalid answer')
        self.assert_finding(self.doctor(p, RABBITMQCTL='/nowhere/rabbitmqctl'), 'rabbitmqctl', 'skip', 'cannot be run',
                            'as root')

    def test_messages_in_the_plugin(self):
        p = self.place()
        p.stack.need_plugin()
        c = p.client()
        c.channel.exchange_declare('old "é', 'x-delayed-message', durable=True, arguments={'x-delayed-type': 'topic'})
        c.queue('orders.work', 'order.*', exchange='old "é')
        found = self.admin(p)
        mine = f"exchange 'old \"é' in vhost '{p.vhost}'"
        self.assert_finding(found, 'plugin.messages', 'ok', mine + ': no messages wait; 1 binding: queue orders.work')
        for _ in range(2):
            c.publish('order.a', b'', {'x-delay': 600000}, exchange='old "é')
        self.assert_finding(self.admin(p), 'plugin.messages', 'warn', mine + ': 2 messages wait', 'docs/migrate.md')
        c.channel.exchange_delete('old "é')
        self.assertNotIn(p.vhost, json.dumps(self.admin(p)['plugin.messages']))

    def test_what_is_bound_to_the_intake_and_leads_back_to_it(self):
        p = self.place()
        env = {'POSTDATE_ROUTE': 'orders=orders.due'}
        c = p.client()
        c.channel.exchange_declare('orders.due', 'topic', durable=True)
        p.gateway(**env)
        found = self.admin(p, **env)
        self.assertEqual([k for k in found if k in ('broker.foreign', 'broker.circles')], [])
        c.queue('orders.work', 'order.*', exchange='orders')  # as a consumer's start-up code did with the plugin
        c.channel.exchange_declare('tap "é', 'fanout')
        c.channel.exchange_bind('tap "é', 'postdate')
        found = self.admin(p, **env)
        self.assert_finding(found, 'broker.foreign', 'warn', "queue 'orders.work' is bound to the intake exchange 'orders' with the key "
                            "'order.*': it gets every message at once", "queue_unbind('orders.work', 'orders', 'order.*')")
        self.assert_finding(found, 'broker.foreign', 'warn', "exchange 'tap \"é' is bound to the intake exchange 'postdate'", 'exchange_unbind')
        self.assertEqual(len(found['broker.foreign']), 2)
        c.channel.queue_unbind('orders.work', 'orders', 'order.*')
        c.channel.exchange_unbind('tap "é', 'postdate')
        c.channel.exchange_bind('tap "é', 'orders.due', '#')
        c.channel.exchange_bind('postdate', 'tap "é')
        c.queue('back', arguments={'x-dead-letter-exchange': 'orders'})
        found = self.admin(p, **env)
        self.assertNotIn('broker.foreign', found)
        self.assert_finding(found, 'broker.circles', 'fail', "delivery exchange 'orders.due' routes to the intake exchange 'postdate'",
                            'list_bindings')
        self.assert_finding(found, 'broker.circles', 'warn', "queue 'back' dead-letters to the intake exchange 'orders'", 'postdate.retry')
        self.assertEqual(len(found['broker.circles']), 2)

    def test_who_may_not_read_the_intake_exchange_cannot_bind_to_it(self):
        p = self.place()
        p.gateway(POSTDATE_ROUTE='orders=orders.due')
        user = 'app' + p.database
        p.stack.rabbitmqctl('add_user', user, 's3cret')
        self.addCleanup(p.stack.rabbitmqctl, 'delete_user', user)
        self.grant(p, user, '^orders[.]work$', '^(orders|orders[.]work)$', '^orders[.](work|due)$')
        connection = pika.BlockingConnection(pika.URLParameters(self.url_of(p, user, 's3cret')))
        self.addCleanup(connection.close)
        channel = connection.channel()
        channel.queue_declare('orders.work')
        p.client().channel.exchange_declare('orders.due', 'topic')
        channel.queue_bind('orders.work', 'orders.due', 'order.*')
        channel.confirm_delivery()
        channel.basic_publish('orders', 'order.1', b'it may publish')
        with self.assertRaises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.queue_bind('orders.work', 'orders', 'order.*')
        self.assertEqual(refused.exception.reply_code, 403)
        # An internal exchange would be no help: who may not publish to it may still bind to it.
        p.client().channel.queue_bind('orders.work', 'postdate.retry')

    def test_policies_and_bindings(self):
        p = self.place()
        gw = p.gateway(POSTDATE_HANDOVER_TRANSPORT='ttl', POSTDATE_HANDOVER_WINDOW='1s')
        found = self.admin(p)
        self.assert_ok(found, 'broker.policies')
        self.assert_finding(found, 'broker.bindings', 'warn', "nothing is bound to 'postdate.delivery'")
        self.assertEqual(gw.term(), 0)  # it binds what it needs again
        c = p.client()
        c.channel.queue_unbind('postdate.intake', 'postdate', '')
        c.queue('q', 'k')
        p.stack.rabbitmqctl('set_policy', '-p', p.vhost, 'most', '^postdate.rejected$', '{"max-length":10}',
                            '--apply-to', 'queues')
        found = self.admin(p)
        self.assert_finding(found, 'broker.policies', 'warn', "policy 'most' sets max-length on 'postdate.rejected'",
                            'list_policies')
        self.assert_finding(found, 'broker.bindings', 'warn', 'is not bound', 'restart a gateway')
        p.stack.rabbitmqctl('set_operator_policy', '-p', p.vhost, 'short', '^postdate.ttl', '{"message-ttl":10}',
                            '--apply-to', 'queues')
        found = self.admin(p)
        self.assert_finding(found, 'broker.policies', 'fail', "operator policy 'short' sets message-ttl", 'operator')
        c.channel.queue_bind('postdate.intake', 'postdate', '')
        self.assert_ok(found, 'broker.patterns')
        self.assertEqual(len(self.admin(p)['broker.bindings']), 1)
