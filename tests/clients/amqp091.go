// amqp091-go: x-delay as each type of integer, a double and a text; passive, mandatory, confirms. Arguments: URL, exchange.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func must(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func main() {
	exchange := os.Args[2]
	c, err := amqp.Dial(os.Args[1])
	must(err)
	ch, err := c.Channel()
	must(err)
	must(ch.Confirm(false))
	must(ch.ExchangeDeclare(exchange, "x-delayed-message", true, false, false, false, amqp.Table{"x-delayed-type": "fanout"}))
	must(ch.ExchangeDeclarePassive(exchange, "x-delayed-message", true, false, false, false, nil))
	q, err := ch.QueueDeclare("", false, false, true, false, nil)
	must(err)
	must(ch.QueueBind(q.Name, "", exchange, false, nil))
	came, err := ch.Consume(q.Name, "", true, true, false, false, nil)
	must(err)
	returned := ch.NotifyReturn(make(chan amqp.Return, 10))
	sent := time.Now()
	for _, delay := range []interface{}{int32(1500), int64(1500), int16(1500), 1500.0, "1500", int32(0)} {
		d, err := ch.PublishWithDeferredConfirmWithContext(context.Background(), exchange, "k", true, false,
			amqp.Publishing{Headers: amqp.Table{"x-delay": delay}, Body: []byte(fmt.Sprintf("%T", delay))})
		must(err)
		if !d.Wait() {
			must(fmt.Errorf("not confirmed: %T", delay))
		}
	}
	early := 0
	for i := 0; i < 6; i++ {
		m := <-came
		after := time.Since(sent).Milliseconds()
		fmt.Print(string(m.Body), " ", after, " ms, ", m.Headers["x-delay"], "; ")
		if after < 1500 {
			early++
		}
	}
	fmt.Println(len(returned), "returned")
	if early != 1 || len(returned) != 0 {
		os.Exit(1)
	}
}
