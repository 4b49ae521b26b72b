-- $1: RabbitMQ has all of them, or their rows say what became of them
delete from postdate.handing where id = any ($1::uuid[])
