// Start the image with testcontainers, produce one record and consume it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("go: one record produced and consumed")
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	container, err := kafka.Run(ctx, os.Getenv("IMAGE"), kafka.WithClusterID("MkU3OEVBNTcwNTJENDM2Qk"))
	defer testcontainers.TerminateContainer(container)
	if err != nil {
		return err
	}
	brokers, err := container.Brokers(ctx)
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.AllowAutoTopicCreation(), kgo.ConsumerGroup("go"),
		kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	record := &kgo.Record{Topic: "orders", Key: []byte("one"), Value: []byte("from Go")}
	if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
		return err
	}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		if records := fetches.Records(); len(records) > 0 {
			if value := string(records[0].Value); value != "from Go" {
				return fmt.Errorf("unexpected record %q", value)
			}
			return nil
		}
	}
}
