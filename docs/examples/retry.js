const amqp = require('amqplib')

async function call (url) {
  const response = await fetch(url, { signal: AbortSignal.timeout(10000) })
  if (!response.ok) throw new Error(`${url} answers ${response.status}`)
}

async function main () {
  const connection = await amqp.connect(process.env.AMQP_URL)
  const channel = await connection.createChannel()
  await channel.prefetch(10)
  await channel.consume('shop.webhooks', message => {
    call(message.content.toString()).then(
      () => channel.ack(message),
      error => {
        console.log(error.message)
        channel.nack(message, false, false)
      })
  })
}

main()
