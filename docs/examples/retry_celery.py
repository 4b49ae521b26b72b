import os
import urllib.request
from celery import Celery

app = Celery('retry_celery', broker=os.environ['AMQP_URL'])
app.conf.task_default_queue = 'shop.webhooks'
app.conf.task_acks_late = True
app.conf.task_acks_on_failure_or_timeout = False

@app.task
def call(url):
    urllib.request.urlopen(url, timeout=10).close()
