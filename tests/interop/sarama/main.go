// The transactional program of sarama; ../transactions/commands.py describes its arguments and output.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const (
	partitions      = 2
	batchRecordsMax = 20
	gather          = 50 * time.Millisecond // how long a transaction waits for more records of its partition
)

func main() {
	verb, brokers, topic, rest := os.Args[1], strings.Split(os.Args[2], ","), os.Args[3], os.Args[4:]
	switch verb {
	case "transact":
		transact(brokers, topic, rest[0])
	case "copy":
		copyRecords(brokers, topic, rest[0], rest[1], rest[2])
	case "committed":
		committed(brokers, topic)
	default:
		fail(fmt.Errorf("no such verb: %s", verb))
	}
}

func config() *sarama.Config {
	settings := sarama.NewConfig()
	settings.Version = sarama.V3_6_0_0
	settings.Metadata.Retry.Max = 50
	settings.Metadata.Retry.Backoff = 100 * time.Millisecond
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.MaxWaitTime = 100 * time.Millisecond
	return settings
}

func producer(brokers []string, transactionalID string) (sarama.SyncProducer, error) {
	settings := config()
	settings.Producer.Idempotent = true
	settings.Producer.Transaction.ID = transactionalID
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	settings.Producer.Return.Successes = true
	settings.Producer.Retry.Max = 50
	settings.Net.MaxOpenRequests = 1 // sarama requires it for a producer that keeps the order
	return sarama.NewSyncProducer(brokers, settings)
}

func transact(brokers []string, topic, transactionalID string) {
	var one sarama.SyncProducer
	carryOut := func(words []string) (err error) {
		switch words[0] {
		case "init":
			one, err = producer(brokers, transactionalID)
			return err
		case "begin":
			return one.BeginTxn()
		case "send":
			_, _, err = one.SendMessage(message(topic, int32(must(strconv.Atoi(words[1]))), words[2]))
			return err
		case "commit":
			return one.CommitTxn()
		case "abort":
			return one.AbortTxn()
		}
		return fmt.Errorf("no such command: %s", words[0])
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(answer(one, carryOut(strings.Fields(lines.Text()))))
	}
}

// answer reads the status of the producer, as sarama's documentation advises.
func answer(one sarama.SyncProducer, err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, sarama.ErrProducerFenced), errors.Is(err, sarama.ErrInvalidProducerEpoch):
		return fmt.Sprint("fenced ", err)
	case one != nil && one.TxnStatus()&sarama.ProducerTxnFlagAbortableError != 0:
		return fmt.Sprint("abortable ", err)
	}
	return fmt.Sprint("failed ", err)
}

// copier is the handler of the group's member. It copies the partitions it owns one batch at a time.
type copier struct {
	producer      sarama.SyncProducer
	target, group string
	turn          chan struct{} // taken by the partition whose transaction is open
}

func (*copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case first, open := <-claim.Messages():
			if !open {
				return nil
			}
			c.turn <- struct{}{}
			check(c.copyBatch(gathered(first, claim.Messages())))
			<-c.turn
		case <-session.Context().Done():
			return nil
		}
	}
}

func gathered(first *sarama.ConsumerMessage, more <-chan *sarama.ConsumerMessage) []*sarama.ConsumerMessage {
	batch := []*sarama.ConsumerMessage{first}
	timeout := time.After(gather)
	for len(batch) < batchRecordsMax {
		select {
		case one, open := <-more:
			if !open {
				return batch
			}
			batch = append(batch, one)
		case <-timeout:
			return batch
		}
	}
	return batch
}

func (c *copier) copyBatch(batch []*sarama.ConsumerMessage) error {
	copies := make([]*sarama.ProducerMessage, len(batch))
	for number, one := range batch {
		copies[number] = message(c.target, one.Partition, "copied-"+string(one.Value))
	}
	check(c.producer.BeginTxn())
	if err := c.producer.SendMessages(copies); err != nil {
		return err
	}
	fmt.Println("sent")
	if err := c.producer.AddMessageToTxn(batch[len(batch)-1], c.group, nil); err != nil {
		return err
	}
	fmt.Println("offsets") // sarama sends them when it commits
	if err := c.producer.CommitTxn(); err != nil {
		return err
	}
	fmt.Println("committed")
	return nil
}

func copyRecords(brokers []string, source, target, group, transactionalID string) {
	settings := config()
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.Group.Session.Timeout = 2 * time.Second
	settings.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	handler := &copier{must(producer(brokers, transactionalID)), target, group, make(chan struct{}, 1)}
	member := must(sarama.NewConsumerGroup(brokers, group, settings))
	ctx := untilStandardInputEnds()
	for ctx.Err() == nil {
		check(member.Consume(ctx, []string{source}, handler))
	}
	check(member.Close())
}

func committed(brokers []string, topic string) {
	consumer := must(sarama.NewConsumer(brokers, config()))
	for partition := range int32(partitions) {
		one := must(consumer.ConsumePartition(topic, partition, sarama.OffsetOldest))
		go func() {
			for record := range one.Messages() {
				fmt.Println(string(record.Value))
			}
		}()
	}
	<-untilStandardInputEnds().Done()
}

func message(topic string, partition int32, value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.StringEncoder(value)}
}

func untilStandardInputEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
