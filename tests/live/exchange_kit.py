"""Servers with Postdate's own exchange type (exchange-type/), and what applications of the delayed-message plugin do there: nothing here is
Postdate's, but for the names of its queues."""
import pika
import pika.exceptions

from handover_kit import OwnServers
from harness import LiveTest, now_ms, wait_until

INTAKE = 'postdate.intake.delayed'
KINDS = ('direct', 'fanout', 'topic', 'headers')


class Application:
    """A connection of an application that was written for the plugin."""

    def __init__(self, place):
        self.p = place
        self.c = place.client()

    def exchange(self, name, kind, **options):
        """Of the plugin's type."""
        arguments = {'x-delayed-type': kind, **options.pop('arguments', {})}
        self.c.channel.exchange_declare(name, 'x-delayed-message', durable=True, arguments=arguments, **options)
        return name

    def queue(self, name, exchange, key='', arguments=None, **options):
        self.c.channel.queue_declare(name, durable=True, **options)
        self.c.channel.queue_bind(name, exchange, key, arguments)
        return name

    def publish(self, exchange, key='', body=b'', delay=None, headers=None, **properties):
        """With a confirm; delay: the header x-delay, as it is."""
        headers = {**(headers or {}), **({} if delay is None else {'x-delay': delay})}
        self.c.publish(key, body, headers or None, exchange, **properties)

    def refused(self, call, *args, **options):
        """(code, text) with which RabbitMQ closes the channel over it, which is opened anew; None: it does not."""
        try:
            call(*args, **options)
            return None
        except pika.exceptions.ChannelClosedByBroker as e:
            self.c.channel = self.c.connection.channel()
            self.c.channel.confirm_delivery()
            return e.reply_code, e.reply_text

    def depth(self, queue):
        return self.c.depth(queue)

    def inbox(self, queue):
        return self.p.consumer(queue)


class TypeServers(OwnServers, LiveTest):
    together = 'exchange type'
    exchange_type = True
    places_most = 12

    def served(self, max_delay='3d', **env):
        """An application, and a gateway that serves its vhost."""
        self.p = self.place(transport='timer', max_delay=max_delay)
        self.g = self.p.gateway(**env)
        return Application(self.p)

    def assert_in_time(self, message, sent_ms, delay_ms):
        self.assertGreaterEqual(message.at_ms, sent_ms + delay_ms, f'{message.body!r} was early')

    def depth(self, queue):
        return self.p.client().depth(queue)

    def wait_counts(self, **states):
        try:
            wait_until(lambda: self.p.counts() == states, 15, f'messages to be {states}')
        except AssertionError:
            self.assertEqual(self.p.counts(), states)


__all__ = ['INTAKE', 'KINDS', 'Application', 'TypeServers', 'now_ms', 'wait_until']
