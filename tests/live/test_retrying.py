"""What is refused and tried again is seen at once, wherever an operator looks."""
import datetime
import json
import re
import time

from broker_users import add_user, delete_user
from harness import LiveTest, wait_until
from test_control import Requester
from web import Web, described, ready_address


def timestamp(text):
    return datetime.datetime.fromisoformat(text.replace('Z', '+00:00')).timestamp()


class Retrying(LiveTest):
    def test_each_address_that_refuses_is_named_and_counted_until_it_is_over(self):
        """No queue is bound, the exchange is missing, and writing to it is forbidden."""
        p = self.place()
        p.stack.rabbitmqctl('set_permissions', '-p', p.vhost, 'guest', '.*', '^(postdate.*|amq[.]default|late)$', '.*')
        gateway = p.gateway(POSTDATE_RETRY_FIRST='200ms', POSTDATE_RETRY_MAX='500ms', POSTDATE_RETRY_ATTEMPTS=1000)
        web = Web(gateway.http())
        self.addCleanup(web.close)
        c = p.client()
        c.channel.exchange_declare('forbidden', 'fanout')
        for key in ('nobody', 'nobody', 'some'):
            c.publish(key, b'x', {'x-delay': 100})
        c.publish('k', b'x', {'x-delay': 100, 'x-postdate-exchange': 'late'})
        c.publish('k', b'x', {'x-delay': 100, 'x-postdate-exchange': 'forbidden'})
        for address, reason in (("exchange 'postdate.delivery', routing key 'nobody'", 'unroutable: NO_ROUTE'),
                                ("exchange 'postdate.delivery', routing key 'some'", 'unroutable: NO_ROUTE'),
                                ("exchange 'late'", 'not exist|NOT_FOUND|no exchange'), ("exchange 'forbidden'", '403|ACCESS_REFUSED|refused')):
            gateway.wait_log(f'Messages to {address} \\(the first: [0-9a-f-]{{36}}\\) are rejected: .*({reason})')

        def status():
            out = p.run('status', '--json')
            return json.loads(out)
        seen = wait_until(lambda: status()['retrying'] == 5 and status(), 15, 'five to be tried again')
        self.assertIn('messages.retrying', [f['name'] for f in seen['findings']])
        wait_until(lambda: re.search(r'retrying +5: postdate list --retrying', p.cli('status')[1]), 10, 'status to say so')  # rows move while they are counted
        wait_until(lambda: web.get('/v1/stats').json['retrying'] == 5, 15, 'the statistics to know')
        wait_until(lambda: 'messages.retrying' in {f['name'] for f in web.get('/v1/overview').json['findings']}, 10, 'the overview to know')
        wait_until(lambda: self.gauge(web, 'messages_retrying') == 5, 10, 'messages_retrying')  # counted anew meanwhile, a row that moves may be missed
        self.assertEqual(self.gauge(web, 'addresses_refusing'), 4)
        wait_until(lambda: p.cli('list', '--retrying')[1].count('\n') == 6, 10, 'five lines and a head')
        rc, out, err = p.cli('list', '--retrying')
        self.assertRegex(out, r'NEXT TRY +TRIES ROUTING KEY: ERROR')
        self.assertRegex(out, r'(scheduled|claimed) .* +[0-9]+ nobody: unroutable: NO_ROUTE')
        rc, out, err = p.cli('doctor')
        self.assertRegex(out, "warn +messages.retrying +2 not delivered or in doubt .unconfirmed.: exchange 'postdate.delivery', routing key 'nobody': unroutable")
        self.assertRegex(out, "-> bind a queue to exchange 'postdate.delivery' with a key that matches 'nobody'")
        self.assertRegex(out, "-> allow 'guest' to write to exchange 'forbidden': add its name .* list_user_permissions guest")
        self.assertRegex(out, "-> declare exchange 'late'")
        rc, out, err = p.cli('list', '--retrying')
        message = next(line for line in out.split('\n') if 'nobody' in line).split()[0]
        self.assertRegex(p.cli('show', message)[1], 'held by +gateway')
        self.assertEqual(len(gateway.lines_with('are rejected')), 4)

        c.channel.exchange_declare('late', 'fanout')
        p.stack.rabbitmqctl('set_permissions', '-p', p.vhost, 'guest', '.*', '.*', '.*')
        inbox = p.consumer('q', declare=True, bind='#')
        c.channel.queue_bind('q', 'late')
        c.channel.queue_bind('q', 'forbidden')
        inbox.wait(5, 15)
        wait_until(lambda: {'nobody', 'some', 'late', 'forbidden'} <= set(re.findall(r"(\w+)' \(the first: [^)]*\) are no longer", gateway.log())), 20, 'each to be over')
        self.assertEqual(status()['retrying'], 0)
        # 'late' with key 'k' is an address more, if a try came between its declaration and its binding
        wait_until(lambda: self.gauge(web, 'addresses_refusing') == 0, 20, 'no address to refuse')

    def test_they_are_listed_over_http_and_tried_now(self):
        """By the state "retrying", with the next attempt; one by one and by filter, by HTTP, control queue, command line and SQL. What has an exchange
        again is delivered long before its next attempt; what has not counts one more."""
        p = self.place()
        gateway = p.gateway(POSTDATE_RETRY_FIRST='600s', POSTDATE_RETRY_MAX='900s')
        web = described(self, ready_address(gateway))
        made = {}
        for exchange in ('one', 'two', 'by-filter', 'by-cli', 'by-control', 'stays'):
            made[exchange] = web.post('/v1/messages', {'exchange': exchange, 'routing_key': 'k', 'body': 'x', 'delay_ms': 0}).json['id']
        web.post('/v1/messages', {'exchange': 'later', 'routing_key': 'k', 'body': 'x', 'delay_ms': 3600000})

        def listed(query=''):
            return {m['exchange']: m for m in web.get('/v1/messages?state=retrying' + query).json['messages']}
        wait_until(lambda: set(listed()) == set(made), 20, 'all to be refused')
        one = listed('&exchange=one')['one']
        self.assertEqual((one['id'], one['attempts'], one['state']), (made['one'], 1, 'scheduled'))
        self.assertGreater(timestamp(one['next_attempt_at']), time.time() + 200)
        self.assertEqual(web.get('/v1/messages/' + made['one']).json['next_attempt_at'], one['next_attempt_at'])
        page = web.get('/v1/messages?state=retrying&page_size=4').json
        rest = web.get('/v1/messages?state=retrying&page_size=4&page_token=' + page['next_page_token']).json
        self.assertEqual(sorted(m['exchange'] for m in page['messages'] + rest['messages']), sorted(made))
        self.assertEqual({line.split()[0] for line in p.cli('list', '--state', 'retrying')[1].splitlines()}, {'ID', *made.values()})
        self.assertEqual({m['exchange'] for m in web.get('/v1/messages?state=waiting').json['messages']}, {*made, 'later'})
        self.assertEqual(p.cli('list', '--state', 'waiting')[1].count('\n'), 1 + len(made) + 1)
        self.assertNotIn('next_attempt_at', web.get('/v1/messages?exchange=later').json['messages'][0])

        c = p.client()
        for exchange in made:
            if exchange != 'stays':
                c.channel.exchange_declare(exchange, 'fanout', durable=True)
                c.queue(exchange)
                c.channel.queue_bind(exchange, exchange)
        self.assertEqual(web.post(f'/v1/messages/{made["one"]}:retry', {}).status, 200)
        self.assertEqual(p.value(f"select postdate.retry('{made['two']}')"), 'retried')
        bulk = {'filter': {'state': 'retrying', 'exchange': 'by-filter'}}
        self.assertEqual(web.post('/v1/messages:retry', dict(bulk, dry_run=True)).json['matched'], 1)
        self.assertEqual(web.post('/v1/messages:retry', bulk).json['changed'], 1)
        self.assertEqual(web.post('/v1/messages:retry', {'filter': {'exchange': 'by-cli'}}).json['matched'], 0, 'without that state: what has failed')
        self.assertEqual(p.cli('retry', '--state', 'retrying', '--exchange', 'by-cli')[1], '1 of 1 retried\n')
        asks = Requester(p.amqp)
        self.addCleanup(asks.close)
        self.assertEqual(asks.ask({'op': 'retry', 'id': made['by-control']})['status'], 200)
        self.assertEqual(web.post(f'/v1/messages/{made["stays"]}:retry', {}).status, 200)
        wait_until(lambda: set(listed()) == {'stays'} and listed()['stays']['attempts'] == 2, 20, 'the next attempts')
        self.assertEqual(p.value("select count(*) from postdate.message_now where state = 'delivered'"), '5')
        self.assertEqual(web.post(f'/v1/messages/{made["one"]}:retry', {}).status, 409, 'it is delivered')
        self.assertEqual(web.post('/v1/messages:cancel', {'filter': {'state': 'retrying'}}).json['changed'], 1)

    def test_what_a_right_to_a_queue_keeps_from_going_back_has_its_remedy(self):
        p = self.place()
        user = 'back-' + p.vhost
        self.addCleanup(delete_user, p.stack, user)
        url = add_user(p, user, 'secret', '^postdate', '^(postdate.*|amq[.]default)$', '^postdate')
        p.gateway(POSTDATE_AMQP_URL=url, POSTDATE_RETRY_FIRST='300ms', POSTDATE_RETRY_MAX='300ms')
        p.psql("select postdate.retry_policy_set('*', first => '100 ms')")
        c = p.client()
        c.channel.queue_declare('shop.work', durable=True, arguments={'x-dead-letter-exchange': 'postdate.retry'})
        c.channel.basic_publish('', 'shop.work', b'x')
        wait_until(lambda: self.refuse_one(c, 'shop.work'), 10, 'the message')
        wait_until(lambda: p.value("select count(*) from postdate.message_now where error like '%shop.work%'") == '1', 20, 'it to be kept back')
        out = p.cli('doctor', env={'POSTDATE_AMQP_URL': url})[1]
        self.assertRegex(out, f"(?s)queue 'shop.work': cannot bind.*?-> allow '{user}' to write to queue 'shop.work', which it binds: add its name to the second pattern")

    def refuse_one(self, c, queue):
        method = c.channel.basic_get(queue)[0]
        if method:
            c.channel.basic_reject(method.delivery_tag, requeue=False)
        return method

    def test_what_a_right_to_a_topic_or_an_internal_exchange_keeps_back_has_its_remedy_and_is_not_delivered(self):
        """Each refused alone, so none is in doubt: it can be cancelled, and its attempts end."""
        p = self.place()
        user = 'topics-' + p.vhost
        self.addCleanup(delete_user, p.stack, user)
        url = add_user(p, user, 'secret', '.*', '.*', '.*')
        p.stack.rabbitmqctl('set_topic_permissions', '-p', p.vhost, user, 'postdate.delivery', '^good', '.*')
        gateway = p.gateway(POSTDATE_AMQP_URL=url, POSTDATE_RETRY_FIRST='300ms', POSTDATE_RETRY_MAX='300ms', POSTDATE_RETRY_ATTEMPTS=1000)
        c = p.client()
        c.channel.exchange_declare('inside', 'fanout', internal=True)
        inbox = p.consumer('q', declare=True, bind='#')
        c.channel.queue_bind('q', 'inside')
        p.psql("select postdate.schedule('good.one', 'x', '0 s')")
        inbox.wait(1, 20)  # so the exchange is known to be good
        topic = p.value("select postdate.schedule('bad.one', 'x', '0 s')")
        wait_until(lambda: p.value(f"select attempts > 1 from postdate.message_now where id = '{topic}'") == 't', 20, 'it to be tried again')
        inside = p.value("select postdate.schedule('k', 'x', '0 s', exchange => 'inside')")
        queue = p.value("select postdate.schedule('no such queue', 'x', '0 s', exchange => '')")
        retrying = "select count(*) from postdate.message_now where error is not null and attempts > 0"
        wait_until(lambda: p.value(retrying) == '3', 20, 'all three to be tried again')
        out = p.cli('doctor', env={'POSTDATE_AMQP_URL': url})[1]
        self.assertRegex(out, f"(?s)routing key 'bad.one': .*-> allow '{user}' to write routing key 'bad.one' to exchange 'postdate.delivery': change its topic permissions")
        self.assertRegex(out, "(?s)exchange 'inside'.*-> no client may publish to an internal exchange")
        self.assertRegex(out, "-> declare queue 'no such queue': the default exchange")
        self.assertNotIn('second pattern', out)
        for message in (topic, inside, queue):
            wait_until(lambda m=message: p.cli('cancel', m)[0] == 0, 15, 'no gateway to be publishing it')
        last = p.value("select postdate.schedule('bad.two', 'x', '0 s')")
        self.assertEqual(gateway.term(), 0)
        p.gateway(POSTDATE_AMQP_URL=url, POSTDATE_RETRY_FIRST='100ms', POSTDATE_RETRY_MAX='100ms', POSTDATE_RETRY_ATTEMPTS=3)
        wait_until(lambda: p.value(f"select state from postdate.message_now where id = '{last}'") == 'failed', 20, 'its attempts to end')
        self.assertEqual(len(inbox.all()), 1)

    def test_an_exclusive_queue_gets_nothing_back_which_is_said_at_once_and_ends(self):
        """Only the connection that declared it may bind it."""
        p = self.place()
        gateway = p.gateway(POSTDATE_RETRY_FIRST='300ms', POSTDATE_RETRY_MAX='300ms')
        p.psql("select postdate.retry_policy_set('*', attempts => 5, first => '1 s')")
        c, other = p.client(), p.client()
        c.channel.queue_declare('mine', exclusive=True, arguments={'x-dead-letter-exchange': 'postdate.retry'})
        other.channel.queue_declare('ours', arguments={'x-dead-letter-exchange': 'postdate.retry'})
        for client, queue in ((c, 'mine'), (other, 'ours')):
            client.channel.basic_publish('', queue, b'x')
            method, _, _ = wait_until(lambda a=client, q=queue: (lambda got: got[0] and got)(a.channel.basic_get(q)), 10, 'it to come')
            client.channel.basic_reject(method.delivery_tag, requeue=False)
        gateway.wait_log("Messages to queue 'mine' .* are rejected: queue 'mine' is exclusive: messages cannot return to it, because only the connection that declared it may bind it")
        wait_until(lambda: p.value("select count(*) from postdate.lineage where died_at is not null") == '1', 30, 'it to be a dead letter')
        wait_until(lambda: other.channel.basic_get('ours')[0], 20, 'the other one to come back')
        gateway.wait_log("No message to queue 'mine' .* was rejected or accepted lately", 60)
        self.assertEqual(gateway.lines_with('no longer rejected'), [])

    def test_an_address_is_forgotten_when_its_messages_were_ended_by_hand(self):
        p = self.place()
        gateway = p.gateway(POSTDATE_RETRY_FIRST='2s', POSTDATE_RETRY_MAX='2s', POSTDATE_RETRY_ATTEMPTS=1000)
        web = Web(gateway.http())
        self.addCleanup(web.close)
        message = p.value("select postdate.schedule('nobody', 'x', '0 s')")
        wait_until(lambda: self.gauge(web, 'addresses_refusing') == 1, 15, 'it to be refused')
        wait_until(lambda: p.cli('cancel', message)[0] == 0, 15, 'no gateway to be publishing it')
        wait_until(lambda: self.gauge(web, 'addresses_refusing') == 0, 40, 'the address to be forgotten')
        gateway.wait_log("No message to .* routing key 'nobody' .* was rejected or accepted lately")
        self.assertEqual(gateway.lines_with('no longer rejected'), [])

    def gauge(self, web, name):
        return int(re.search(rf'^postdate_{name} ([0-9]+)$', web.get('/metrics').body.decode(), re.M)[1])
