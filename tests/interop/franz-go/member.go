package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var balancers = map[string]kgo.GroupBalancer{
	"range":              kgo.RangeBalancer(),
	"roundrobin":         kgo.RoundRobinBalancer(),
	"sticky":             kgo.StickyBalancer(),
	"cooperative-sticky": kgo.CooperativeStickyBalancer(),
}

// member reads in a group until `ended`, then commits and leaves. `rest` is the group, the assignor, the session timeout
// in ms and optionally the instance id. Rebalances wait while records are processed, so printed records are committed.
func member(client func(...kgo.Opt) *kgo.Client, topic string, rest []string, ended <-chan struct{}) {
	session := time.Duration(must(strconv.Atoi(rest[2]))) * time.Millisecond
	options := []kgo.Opt{
		kgo.ConsumerGroup(rest[0]),
		kgo.Balancers(balancers[rest[1]]),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(session),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.AutoCommitInterval(200 * time.Millisecond),
		kgo.AutoCommitMarks(),
		kgo.BlockRebalanceOnPoll(),
	}
	if len(rest) == 4 {
		options = append(options, kgo.InstanceID(rest[3]))
	}
	consumer := client(append(options, sayOwned(topic)...)...)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-ended
		cancel()
	}()
	for ctx.Err() == nil {
		consumer.PollFetches(ctx).EachRecord(func(one *kgo.Record) {
			fmt.Printf("read %s\n", one.Value)
			consumer.MarkCommitRecords(one)
		})
		consumer.AllowRebalance()
	}
	commit(context.Background(), consumer)
	consumer.CloseAllowingRebalance()
}

// sayOwned prints the assigned partitions after each change; revoked partitions are committed first.
func sayOwned(topic string) []kgo.Opt {
	owned := make(map[int32]bool)
	change := func(held bool, partitions map[string][]int32) {
		for _, one := range partitions[topic] {
			owned[one] = held
		}
		line := "owned"
		for one, held := range owned {
			if held {
				line += fmt.Sprint(" ", one)
			}
		}
		fmt.Println(line)
	}
	return []kgo.Opt{
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, given map[string][]int32) {
			change(true, given)
		}),
		kgo.OnPartitionsRevoked(func(ctx context.Context, consumer *kgo.Client, taken map[string][]int32) {
			commit(ctx, consumer)
			change(false, taken)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) {
			change(false, lost)
		}),
	}
}

// commit ignores a failure: records whose offsets are not committed are read again.
func commit(ctx context.Context, consumer *kgo.Client) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_ = consumer.CommitMarkedOffsets(ctx)
}
