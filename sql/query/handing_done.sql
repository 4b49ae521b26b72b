-- $1: RabbitMQ has confirmed all of their messages, or their rows have other outcomes
delete from postdate.handing where id = any ($1::uuid[])
