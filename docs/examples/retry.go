package main

import (
	"log"
	"net/http"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var client = &http.Client{Timeout: 10 * time.Second}

func call(url string) bool {
	response, err := client.Get(url)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	return response.StatusCode < 300
}

func consume() error {
	connection, err := amqp.Dial(os.Getenv("AMQP_URL"))
	if err != nil {
		return err
	}
	defer connection.Close()
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := channel.Qos(10, 0, false); err != nil {
		return err
	}
	deliveries, err := channel.Consume("shop.webhooks", "", false, false, false, false, nil)
	for d := range deliveries {
		if call(string(d.Body)) {
			err = d.Ack(false)
		} else {
			err = d.Reject(false)
		}
		if err != nil {
			break
		}
	}
	return err
}

func main() {
	if err := consume(); err != nil {
		log.Fatal(err)
	}
}
