"""A publisher that sends headers which no library expects must not stop the others."""
import json
import resource

from harness import LiveTest, not_san, wait_until
from hostile_broker import nested
from wire import Wire

TOO_DEEP = "the message's headers are nested deeper than 32 levels (allowed: 32)"


def deep(levels):
    """Headers of as many levels, the table itself counted."""
    return {'a': Wire('A', raw=nested(levels - 1)[3:])}


class Publishers(LiveTest):
    """What anybody who may publish can send, through the real broker."""
    weight = 5

    def test_headers_too_deep_for_some_libraries_stop_nobody(self):
        """With librabbitmq 0.13 and later, one message of 102 levels ended intake's connection, again and again."""
        p = self.place()
        c = p.client()
        p.gateway().term()  # there are its queues
        # One that expires before it is read goes another way in.
        c.publish('k', b'expired', deep(200), expiration='1')
        wait_until(lambda: c.depth('postdate.intake.expired') == 1, 10, 'it to expire')
        for i, levels in enumerate((33, 101, 102, 103, 1000, 5000)):
            c.publish('k', b'good %d' % i, {**deep(32), 'x-delay': 10})
            c.publish('k', b'deep %d' % levels, deep(levels))
        gw = p.gateway()
        inbox = p.consumer('q', bind='k')
        c.publish('k', b'last', {'x-delay': 10})
        inbox.wait_body(b'last')
        parked = {m.body: m.headers['x-postdate-error'] for m in (c.wait_get('postdate.rejected') for _ in range(7))}
        self.assertEqual(parked, {body: TOO_DEEP for body in (
            b'expired', *(b'deep %d' % n for n in (33, 101, 102, 103, 1000, 5000)))})
        wait_until(lambda: c.depth('postdate.intake') == 0, 10, 'the intake queue to be empty')
        self.assertEqual(gw.lines_with('intake:'), [])
        self.assertEqual(gw.term(), 0)

    def test_a_request_with_headers_too_deep_is_answered(self):
        p = self.place()
        gw = p.gateway()
        c = p.client()
        c.queue('answers')
        c.publish('postdate.control', b'{"op":"stats"}', deep(200), exchange='', reply_to='answers', correlation_id='deep')
        answer = c.wait_get('answers')
        self.assertEqual(answer.properties.correlation_id, 'deep')
        problem = json.loads(answer.body)
        self.assertEqual((problem['status'], problem['detail']), (400, f'properties: {TOO_DEEP}'))
        c.publish('postdate.control', b'{"op":"stats"}', exchange='', reply_to='answers')
        self.assertEqual(json.loads(c.wait_get('answers').body)['status'], 200)
        self.assertEqual(gw.term(), 0)

    @not_san
    def test_headers_nested_without_end_are_parked_though_stacks_are_small(self):
        self.p = self.place()
        soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (2**19, hard))  # the gateway inherits it
        try:
            self.gw = self.p.gateway()
        finally:
            resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))
        c = self.p.client()
        levels = 10_000
        c.publish('k', b'deep', {'a': Wire('A', raw=nested(levels)[3:])})
        parked = c.wait_get('postdate.rejected')
        self.assertEqual((parked.body, parked.headers['x-postdate-error']), (b'deep', TOO_DEEP))
        self.assertEqual(self.gw.term(), 0)
