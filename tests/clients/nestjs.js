// @golevelup/nestjs-rabbitmq: its connection with an exchange of the type in its settings, a subscriber, and publish with a header.
require('reflect-metadata');
const { AmqpConnection } = require('@golevelup/nestjs-rabbitmq');
(async () => {
  const [url, exchange] = process.argv.slice(2);
  const c = new AmqpConnection({
    uri: url,
    exchanges: [{ name: exchange, type: 'x-delayed-message', options: { durable: true, arguments: { 'x-delayed-type': 'direct' } } }],
    connectionInitOptions: { wait: true, timeout: 20000 },
  });
  await c.init();
  const came = {}, sent = Date.now();
  await c.createSubscriber(async (m) => { came[m.name] = Date.now() - sent; }, { exchange, routingKey: 'k', queue: 'nestjs' }, 'handle');
  await c.publish(exchange, 'k', { name: 'later' }, { headers: { 'x-delay': 1500 } });
  await c.publish(exchange, 'k', { name: 'now' });
  while (Object.keys(came).length < 2) await new Promise((r) => setTimeout(r, 20));
  console.log(JSON.stringify(came));
  process.exit(came.later < 1500 ? 1 : 0);
})();
