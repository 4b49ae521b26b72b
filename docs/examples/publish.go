package main

import (
	"context"
	"log"
	"os"

	amqp "github.com/rabbitmq/amqp091-go"
)

func publish() error {
	connection, err := amqp.Dial(os.Getenv("AMQP_URL"))
	if err != nil {
		return err
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil {
		return err
	}
	confirm, err := channel.PublishWithDeferredConfirm("postdate", "order.reminder", false, false, amqp.Publishing{
		DeliveryMode: amqp.Persistent,
		Headers:      amqp.Table{"x-delay": 5000},
		Body:         []byte("still in the cart"),
	})
	if err != nil {
		return err
	}
	_, err = confirm.WaitContext(context.Background())
	return err
}

func main() {
	if err := publish(); err != nil {
		log.Fatal(err)
	}
}
