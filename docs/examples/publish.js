const amqp = require('amqplib')

async function main () {
  const connection = await amqp.connect(process.env.AMQP_URL)
  const channel = await connection.createConfirmChannel()
  channel.publish('postdate', 'order.reminder', Buffer.from('still in the cart'),
    { persistent: true, headers: { 'x-delay': 5000 } })
  await channel.waitForConfirms()
  await connection.close()
}

main()
