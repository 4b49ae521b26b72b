"""Who waits when nobody says it (handover.transport = auto), with which rights, and from which clock delays count."""
import glob
import json
import os
import shutil
import subprocess
import time

import harness
from broker_users import add_user, delete_user
from harness import LiveTest, Stack, free_ports, now_ms, wait_until
from door import Door, port_of, with_hosts
from test_control import Requester
from test_transports import handover
from web import Web


@harness.not_san
class Refused(LiveTest):
    weight = 20

    def login(self, p, configure):
        user = 'narrow-' + p.vhost
        url = add_user(p, user, 'secret', configure, '.*', '.*')
        self.addCleanup(delete_user, p.stack, user)
        return url

    def test_a_login_that_may_declare_nothing_for_it_leaves_waiting_to_the_gateway(self):
        p = self.place()
        url = self.login(p, '^postdate([.](intake.*|delivery|rejected|expired|exit))?$')
        g = p.gateway(POSTDATE_AMQP_URL=url)
        self.assertTrue(g.lines_with(r'ready\b.*transport timer'), g.log())
        self.assertEqual(len(g.lines_with('auto: the gateway holds all messages.*refused')), 1, g.log())
        self.assertEqual(len(g.lines_with('cannot check whether RabbitMQ stamps')), 1, g.log())
        inbox = p.consumer('q', bind='k')
        at = now_ms()
        p.client().publish('k', b'late enough to be handed over', {'x-delay': 2600})
        self.assert_on_time(inbox.wait(1)[0], at, 2600)
        self.assertEqual(g.term(), 0)

    def test_every_way_in_knows_that_the_gateway_itself_waits(self):
        """Also where the broker is asked for: the answer says who really waits."""
        p = self.place()
        url = self.login(p, '^postdate([.](intake.*|delivery|rejected|expired|exit|control))?$')
        g = p.gateway(POSTDATE_AMQP_URL=url, POSTDATE_HANDOVER_WHAT='all')
        self.assertTrue(g.lines_with(r'ready\b.*transport timer'), g.log())
        web, control = Web(g.http()), Requester(p.amqp)
        self.addCleanup(web.close)
        self.addCleanup(control.close)
        p.client().publish('k', b'amqp', {'x-delay': 3_600_000, 'x-postdate-hold': 'broker'})
        fields = {'routing_key': 'k', 'delay_ms': 3_600_000, 'hold': 'broker'}
        self.assertEqual(web.post('/v1/messages', dict(fields, body='http')).json['hold'], 'gateway')
        self.assertEqual(control.ask(dict(fields, op='schedule', body='control'))['hold'], 'gateway')
        p.psql("select postdate.schedule('k', 'sql', '1 h', hold => 'broker')")
        p.run('schedule', '-k', 'k', '--delay', '1h', '--body', 'cli', '--hold', 'broker')
        line = json.dumps(dict(fields, body='batch')) + '\n'
        p.run('schedule', '--batch', '-', stdin=line)
        wait_until(lambda: p.counts() == {'scheduled': 6}, 10, 'all to be stored')
        held = dict(p.psql("select convert_from(body, 'UTF8'), hold from postdate.message_now"))
        self.assertEqual(held, dict.fromkeys(('amqp', 'http', 'control', 'sql', 'cli', 'batch'), 'g'))

    def test_a_transport_that_is_named_is_taken_or_the_gateway_says_why_not(self):
        p = self.place()
        url = self.login(p, '^postdate([.](intake.*|delivery|rejected|expired|exit|delayed|probe.*))?$')
        g = p.gateway(wait=False, POSTDATE_AMQP_URL=url, **handover('ttl'))
        self.assertEqual(g.wait(), 77, g.log())
        self.assertEqual(len(g.lines_with('error .*handover.transport: ttl: .*postdate.ttl.*refused')), 1, g.log())


class Calls(Door):
    """The broker calls itself 4.4-something in as many letters; it is what it was."""

    def __init__(self, port, target, version):
        super().__init__(port, target)
        said = version.encode()
        self.was = b'\x07versionS' + len(said).to_bytes(4, 'big') + said
        self.says = self.was[:-len(said)] + b'4.4.9999999999999999'[:len(said)]

    def read(self, ready):
        return super().read(ready).replace(self.was, self.says)


@harness.not_san
class Native(LiveTest):
    """What is said of a RabbitMQ that keeps nothing back by itself."""
    weight = 15

    def older(self):
        p = self.place()
        if p.stack.keeps_back:
            self.skipTest('this RabbitMQ delays messages itself')
        return p

    def newer_by_name(self):
        """(place, URL of the same broker under a newer name)"""
        p = self.older()
        version = p.stack.rabbitmqctl('-q', 'eval', 'io:format("~s", [rabbit_misc:version()]).').split('ok')[0].strip()
        door = Calls(free_ports(1)[0], port_of(p.amqp), version).open()
        self.addCleanup(door.close)
        return p, with_hosts(p.amqp, door.address)

    def test_an_older_one_is_said_to_be_older(self):
        g = self.older().gateway(wait=False, **handover('native'))
        self.assertEqual(g.wait(), 78, g.log())
        self.assertEqual(len(g.lines_with('handover.transport: native .*4.4 and later do')), 1, g.log())

    def test_a_version_alone_is_not_believed(self):
        p, url = self.newer_by_name()
        g = p.gateway(wait=False, **{**handover('native'), 'POSTDATE_AMQP_URL': url})
        self.assertEqual(g.wait(), 78, g.log())
        self.assertEqual(len(g.lines_with('handover.transport: native .*RabbitMQ 4.4.9* delivered a test message at once')), 1, g.log())
        g = p.gateway(**{**handover('auto'), 'POSTDATE_AMQP_URL': url})
        self.assertTrue(g.lines_with(r'ready\b.*transport (ttl|plugin)'), g.log())
        self.assertEqual(g.lines_with('warn.*native'), [], g.log())
        queues = p.stack.rabbitmqctl('-q', 'list_queues', '-p', p.vhost, '--no-table-headers', 'name').split()
        self.assertEqual([q for q in queues if 'probe' in q], [])


@harness.not_san
@harness.only_full
class PluginGoes(LiveTest):
    """On servers of its own."""
    weight = 95
    vhosts = 0

    def test_what_the_plugin_held_when_it_was_disabled_is_delivered_by_the_gateway(self):
        servers = Stack.own(self.addCleanup, 'plugin-goes').start()
        servers.need_plugin()
        servers.make_vhosts(['t'])
        p = harness.Place(servers)
        self.places = [p]
        self.addCleanup(p.close, drop=False)
        g = p.gateway(POSTDATE_HANDOVER_GRACE='1s')
        self.assertEqual(len(g.lines_with('auto: RabbitMQ has the delayed-message plugin')), 1, g.log())
        c = p.client()
        c.queue('q', 'k')
        due = {}
        for i in range(40):
            due[b'%d' % i] = now_ms() + 9000
            c.publish('k', b'%d' % i, {'x-delay': 9000})
        c.close()
        wait_until(lambda: p.counts() == {'handed': 40}, 8, 'all to be handed over')
        self.assertEqual(g.term(), 0)
        servers.command('stop-rabbitmq')
        servers.plugins = ''
        servers.command('start-rabbitmq')
        g = p.gateway(POSTDATE_HANDOVER_GRACE='1s')
        self.assertTrue(g.lines_with(r'ready\b.*transport ttl'), g.log())
        self.assertEqual(len(g.lines_with('no longer has the delayed-message plugin')), 1, g.log())
        self.assertEqual(len(g.lines_with('auto: RabbitMQ holds messages in TTL queues')), 1, g.log())
        inbox = p.consumer('q')
        inbox.wait(40, 30)
        wait_until(lambda: p.counts() == {'delivered': 40}, 10, 'all to be settled')
        self.assertEqual(sorted(m.body for m in inbox.all()), sorted(due))
        for m in inbox.all():
            self.assertGreaterEqual(m.at_ms, due[m.body])


@harness.not_san
class Stamps(LiveTest):
    """This RabbitMQ does not stamp messages, so a stamp is whatever the publisher says."""

    def test_a_forged_time_stamp_changes_nothing(self):
        p = self.place()
        g = p.gateway()
        self.assertEqual(g.lines_with('stamps'), [], g.log())
        inbox = p.consumer('q', bind='k')
        sent = {}
        for stamp in (1, now_ms() - 3_600_000, now_ms() - 1000, now_ms() + 3_600_000, -1, 'soon'):
            sent[str(stamp).encode()] = now_ms()
            p.client().publish('k', str(stamp).encode(), {'x-delay': 1000, 'timestamp_in_ms': stamp})
        for m in inbox.wait(len(sent)):
            self.assert_on_time(m, sent[m.body], 1000, late_ms=30_000)  # late by an hour, or early
            self.assertEqual(str(m.headers['timestamp_in_ms']).encode(), m.body, 'and arrives as it was sent')

    @harness.needs_vhosts(1)
    def test_somebody_elses_exchange_is_no_missing_plugin(self):
        """The probe has a name of its own each time."""
        p = self.place()
        p.stack.need_plugin()
        p.client().channel.exchange_declare('postdate.probe', 'fanout')
        self.assertTrue(p.gateway().lines_with('RabbitMQ has the delayed-message plugin'))

    def test_the_probe_leaves_nothing_behind(self):
        p = self.place()
        p.gateway()
        for what, own in ('list_queues', 'postdate.intake'), ('list_exchanges', 'postdate'):
            names = p.stack.rabbitmqctl('-q', what, '-p', p.vhost, '--no-table-headers', 'name').split()
            self.assertIn(own, names)
            self.assertEqual([n for n in names if 'probe' in n], [])


def begin_stamping(test, p, overwrite, ahead_ms=0):
    """A double of what RabbitMQ 3.12 and later can do (tests/stamp_double), in this place's vhost alone."""
    directory = os.path.join(p.stack.directory, 'stamp-' + p.vhost)
    os.makedirs(directory)
    test.addCleanup(shutil.rmtree, directory)
    broker = sorted(glob.glob('/usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins'))[-1]
    subprocess.run(['erlc', '-o', directory, os.path.join(harness.ROOT, 'tests', 'stamp_double', 'postdate_stamp.erl')],
                   env=dict(os.environ, ERL_LIBS=broker), check=True, stdin=subprocess.DEVNULL)
    os.chmod(directory, 0o755)
    p.stack.rabbitmqctl('eval', f'code:is_loaded(postdate_stamp) =/= false orelse '
                        f'({{module, _}} = code:load_abs("{directory}/postdate_stamp")), ' + stamp_setting(p, overwrite, ahead_ms))


def stamp_setting(p, overwrite, ahead_ms):
    return f'postdate_stamp:set(<<"{p.vhost}">>, {{{overwrite}, {ahead_ms}}}).'


@harness.not_san
class StampingBroker(LiveTest):
    weight = 20

    def stamping(self, overwrite, ahead_ms=0):
        p = self.place()
        begin_stamping(self, p, overwrite, ahead_ms)
        return p

    def delay_across_a_restart(self, p, pattern, **headers):
        """Publishes a message due in 3 s while no gateway runs; returns when it was due, after the publish and the start."""
        g = p.gateway()
        self.assertEqual(len(g.lines_with(pattern)), 1, g.log())
        self.assertEqual(g.term(), 0)
        inbox, c = p.consumer('q', bind='k'), p.client()
        published = now_ms()
        c.publish('k', b'm', {'x-delay': 3000, **headers})
        wait_until(lambda: now_ms() > published + 1500, 5, 'some time without a gateway')
        started = now_ms()
        p.gateway()
        m = inbox.wait(1)[0]
        self.assertGreaterEqual(m.at_ms, published + 3000, 'early')
        return m.due_ms - published, m.due_ms - started

    def test_delays_count_from_the_stamp(self):
        p = self.stamping('true')
        total_ms, _ = self.delay_across_a_restart(p, 'RabbitMQ stamps messages.*from their arrival', timestamp_in_ms=5)
        self.assertLess(total_ms, 4400)

    def test_a_clock_that_is_a_little_off_makes_nothing_early(self):
        p = self.stamping('true', -600)
        total_ms, _ = self.delay_across_a_restart(p, 'RabbitMQ stamps messages.*from their arrival')
        self.assertLess(total_ms, 4400)

    def test_a_clock_that_was_set_after_the_probe_makes_nothing_early(self):
        """Or stood still: the stamps say that the messages wait already."""
        p = self.stamping('true')
        g = p.gateway()
        self.assertEqual(len(g.lines_with('RabbitMQ stamps messages.*from their arrival')), 1, g.log())
        inbox, c, published = p.consumer('q', bind='k'), p.client(), {}
        for ahead_ms in (-800, -5_000, 0):
            time.sleep(0.2)  # for a tenth of a second the gateway believes what it was told last
            p.stack.rabbitmqctl('eval', stamp_setting(p, 'true', ahead_ms))
            for i in range(5):
                published[f'{ahead_ms} {i}'.encode()] = now_ms()
                c.publish('k', f'{ahead_ms} {i}'.encode(), {'x-delay': 1000})
        early = {m.body: m.at_ms - published[m.body] - 1000 for m in inbox.wait(len(published))}
        self.assertEqual({k: v for k, v in early.items() if v < 0}, {})

    def test_a_broker_that_is_silent_to_new_connections_keeps_nothing_back(self):
        """Each of these seems to have waited, so the broker is asked whether its stamps are to be believed."""
        p = self.stamping('true')
        door = Door(free_ports(1)[0], port_of(p.amqp)).open()
        self.addCleanup(door.close)
        p.gateway(POSTDATE_AMQP_URL=with_hosts(p.amqp, door.address))
        inbox, c = p.consumer('q', bind='k'), p.client()
        p.stack.rabbitmqctl('eval', stamp_setting(p, 'true', -800))
        door.say_nothing()
        began = now_ms()
        for i in range(6):
            c.publish('k', b'%d' % i, {'x-delay': 1})
            inbox.wait_body(b'%d' % i, 10)
        print(f'note six, one after the other, took {now_ms() - began} ms', flush=True)
        self.assertEqual(len(door.unanswered), 0)

    def test_a_clock_that_is_far_off_is_not_believed(self):
        p = self.stamping('true', -90_000)
        _, since_start_ms = self.delay_across_a_restart(p, r"its clock and the database's differ by 9\d{4} ms")
        self.assertGreaterEqual(since_start_ms, 3000)

    def test_a_broker_that_keeps_what_the_publisher_says_is_not_believed(self):
        p = self.stamping('false')
        g = p.gateway()
        self.assertEqual(g.lines_with('stamps'), [], g.log())
        inbox, at = p.consumer('q', bind='k'), now_ms()
        p.client().publish('k', b'forged', {'x-delay': 1000, 'timestamp_in_ms': at - 60_000})
        self.assert_on_time(inbox.wait(1)[0], at, 1000)
