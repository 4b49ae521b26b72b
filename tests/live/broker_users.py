"""Users of RabbitMQ beside the one that may do everything."""
import os
import re
import urllib.parse

import harness


def url_of(p, user, password):
    parts = urllib.parse.urlsplit(p.amqp)
    return urllib.parse.urlunsplit(parts._replace(netloc=f'{user}:{password}@{parts.hostname}:{parts.port}'))


def add_user(p, user, password, configure, write, read):
    """A login for the place's vhost alone; rabbitmqctl takes passwords as arguments, so it is done inside."""
    name, vhost = f'<<"{user}">>', f'<<"{p.vhost}">>'
    p.stack.rabbitmqctl('eval', f'ok = rabbit_auth_backend_internal:add_user({name}, <<"{password}">>, <<"test">>), '
                        f'rabbit_auth_backend_internal:set_permissions({name}, {vhost}, <<"{configure}">>, '
                        f'<<"{write}">>, <<"{read}">>, <<"test">>), ok.')
    return url_of(p, user, password)


def delete_user(stack, user):
    stack.rabbitmqctl('eval', f'rabbit_auth_backend_internal:delete_user(<<"{user}">>, <<"test">>), ok.')


def documented_user(test, p, name, *page):
    """The user that a page tells to make, in the place's vhost until the test ends; its URL."""
    with open(os.path.join(harness.ROOT, *page), encoding='utf-8') as f:
        rights = re.search(rf"set_permissions {name} '(.*)' '(.*)' '(.*)'", re.sub(r'\\\n *', '', f.read())).groups()
    user = f'{name}-{p.vhost}'
    test.addCleanup(delete_user, p.stack, user)
    return add_user(p, user, 'secret', *(right.replace('\\', '\\\\') for right in rights))
