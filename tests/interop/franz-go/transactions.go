package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Transactional commands, which transactions/commands.py describes.

const (
	partitions      = 2
	batchRecordsMax = 20
	txnOffsetCommit = 28 // Kafka's key of the request
)

type newClient = func(...kgo.Opt) *kgo.Client

func transact(client newClient, topic, transactionalID string) {
	producer := client(kgo.TransactionalID(transactionalID), manual())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		fmt.Println(answer(words[0], carryOut(producer, topic, words)))
	}
}

func carryOut(producer *kgo.Client, topic string, words []string) error {
	ctx := context.Background()
	switch words[0] {
	case "init":
		_, _, err := producer.ProducerID(ctx)
		return err
	case "begin":
		return producer.BeginTransaction()
	case "send":
		one := &kgo.Record{Topic: topic, Partition: int32(must(strconv.Atoi(words[1]))), Value: []byte(words[2])}
		return producer.ProduceSync(ctx, one).FirstErr()
	case "commit":
		return producer.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		if err := producer.AbortBufferedRecords(ctx); err != nil {
			return err
		}
		return producer.EndTransaction(ctx, kgo.TryAbort)
	}
	return fmt.Errorf("no such command: %s", words[0])
}

// The documentation of EndTransaction says after which errors the transaction is to be aborted, and when its outcome is
// unknown.
func answer(verb string, err error) string {
	var transport net.Error
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch):
		return fmt.Sprint("fenced ", err)
	case errors.Is(err, kerr.OperationNotAttempted), errors.Is(err, kerr.TransactionAbortable), verb == "send":
		return fmt.Sprint("abortable ", err)
	case (verb == "commit" || verb == "abort") && (errors.As(err, &transport) || errors.Is(err, kerr.UnknownServerError)):
		return fmt.Sprint("unknown ", err)
	}
	return fmt.Sprint("failed ", err)
}

// offsetsHook reports each response to TxnOffsetCommit: a session sends it as a part of ending the transaction.
type offsetsHook struct{}

func (offsetsHook) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if key == txnOffsetCommit && err == nil {
		fmt.Println("offsets")
	}
}

func copyRecords(options []kgo.Opt, source string, rest []string, ended <-chan struct{}) {
	target, group, transactionalID := rest[0], rest[1], rest[2]
	session := must(kgo.NewGroupTransactSession(append(options,
		kgo.TransactionalID(transactionalID),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.SessionTimeout(2*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
		kgo.WithHooks(offsetsHook{}),
		manual(),
	)...))
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-ended
		cancel()
	}()
	// Abort the transaction of a killed predecessor: the offsets in it are unstable, and the session waits for them.
	_, _, err := session.Client().ProducerID(ctx)
	check(err)
	for ctx.Err() == nil {
		records := session.PollRecords(ctx, batchRecordsMax).Records()
		if len(records) == 0 {
			continue
		}
		check(session.Begin())
		copies := make([]*kgo.Record, len(records))
		for number, one := range records {
			value := append([]byte("copied-"), one.Value...)
			copies[number] = &kgo.Record{Topic: target, Partition: one.Partition, Value: value}
		}
		err := session.ProduceSync(ctx, copies...).FirstErr()
		if err == nil {
			fmt.Println("sent")
		}
		if must(session.End(context.Background(), err == nil)) {
			fmt.Println("committed")
		}
	}
	session.Close()
}

func committed(client newClient, topic string, ended <-chan struct{}) {
	starts := make(map[int32]kgo.Offset)
	for one := range int32(partitions) {
		starts[one] = kgo.NewOffset().AtStart()
	}
	reader := client(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: starts}),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-ended
		cancel()
	}()
	for ctx.Err() == nil {
		reader.PollFetches(ctx).EachRecord(func(one *kgo.Record) { fmt.Println(string(one.Value)) })
	}
	reader.Close()
}
