"""kombu and Celery: an exchange of the type in a task's queue; a task with the header x-delay, and one without. argv: URL, exchange."""
import os
import sys
import time

from celery import Celery
from kombu import Connection, Exchange, Queue

url, name = sys.argv[1:]
exchange = Exchange(name, type='x-delayed-message', arguments={'x-delayed-type': 'direct'})
came, sent = {}, time.time()
with Connection(url) as c, c.channel() as channel:
    queue = Queue('kombu.' + name, exchange, routing_key='k')(channel)
    queue.declare()
    producer = c.Producer(channel)
    producer.publish('later', exchange=exchange, routing_key='k', headers={'x-delay': 1500}, declare=[queue])
    producer.publish('now', exchange=exchange, routing_key='k')

    def take(body, message):
        came['kombu ' + body] = int(1000 * (time.time() - sent))
        message.ack()

    with c.Consumer([queue], callbacks=[take]):
        while len(came) < 2:
            c.drain_events(timeout=20)

app = Celery('app', broker=url)
app.conf.task_queues = [Queue('celery.' + name, Exchange(name + '.celery', type='x-delayed-message', arguments={'x-delayed-type': 'direct'}),
                              routing_key='celery')]
app.conf.update(task_default_queue='celery.' + name, task_default_exchange=name + '.celery', task_default_routing_key='celery', worker_pool='solo',
                broker_connection_retry_on_startup=True, worker_redirect_stdouts=False)


@app.task
def work(which, sent):
    came['celery ' + which] = int(1000 * (time.time() - sent))
    if sum(k.startswith('celery') for k in came) == 2:
        print(came, flush=True)
        os._exit(min(came['kombu later'], came['celery later']) < 1500)


work.apply_async(('later', time.time()), headers={'x-delay': 1500})
work.apply_async(('now', time.time()))
app.Worker(loglevel='ERROR', quiet=True, without_mingle=True, without_gossip=True).start()
