// amqplib: declares, checks, publishes with a confirm, consumes. NODE_PATH has the package; argv: URL, exchange.
const amqp = require('amqplib');
(async () => {
  const [url, exchange] = process.argv.slice(2);
  const c = await amqp.connect(url);
  const ch = await c.createConfirmChannel();
  await ch.assertExchange(exchange, 'x-delayed-message', { durable: true, arguments: { 'x-delayed-type': 'topic' } });
  await ch.checkExchange(exchange);
  const { queue } = await ch.assertQueue('', { exclusive: true });
  await ch.bindQueue(queue, exchange, 'a.#');
  const sent = Date.now(), came = {};
  await ch.consume(queue, (m) => { came[m.content.toString()] = [Date.now() - sent, m.properties.headers['x-delay']]; }, { noAck: true });
  ch.publish(exchange, 'a.b', Buffer.from('later'), { headers: { 'x-delay': 1500 }, mandatory: true });
  ch.publish(exchange, 'a.b', Buffer.from('now'));
  await ch.waitForConfirms();
  while (Object.keys(came).length < 2) await new Promise((r) => setTimeout(r, 20));
  console.log(JSON.stringify(came));
  if (came.later[0] < 1500 || came.later[1] !== -1500) process.exitCode = 1;
  await c.close();
})();
