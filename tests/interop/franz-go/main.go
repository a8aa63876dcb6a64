// Commands of franz-go, one per run; programs.py describes their arguments and output.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	pause          = 5 * time.Millisecond
	limit          = time.Minute
	metadataMinAge = 100 * time.Millisecond // by itself it asks for new leaders every five seconds only
	partition      = 0
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	verb, bootstrap, topic, rest := os.Args[1], os.Args[2], os.Args[3], os.Args[4:]
	brokers := []kgo.Opt{kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.MetadataMinAge(metadataMinAge)}
	client := func(options ...kgo.Opt) *kgo.Client { return must(kgo.NewClient(append(options, brokers...)...)) }
	switch verb {
	case "create":
		create(client(), topic)
	case "produce":
		count := must(strconv.Atoi(rest[1]))
		produce(client(kgo.ProducerBatchCompression(codecs[rest[0]]), manual()), topic, rest[0], count)
	case "stream":
		stream(client(manual()), topic, standardInputEnds())
	case "read":
		read(client, topic)
	case "offsets":
		offsets(client(), topic, rest)
	case "member":
		member(client, topic, rest, standardInputEnds())
	case "transact":
		transact(client, topic, rest[0])
	case "copy":
		copyRecords(brokers, topic, rest, standardInputEnds())
	case "committed":
		committed(client, topic, standardInputEnds())
	default:
		fail(fmt.Errorf("no such verb: %s", verb))
	}
}

func create(client *kgo.Client, topic string) {
	defer client.Close()
	answer := must(kadm.NewClient(client).CreateTopic(context.Background(), 1, 3, nil, topic))
	check(answer.Err)
}

func manual() kgo.Opt { return kgo.RecordPartitioner(kgo.ManualPartitioner()) }

// The records are sent as one batch: franz-go sends a batch uncompressed if compression does not make it smaller.
func produce(client *kgo.Client, topic, codec string, count int) {
	defer client.Close()
	records := make([]*kgo.Record, count)
	for number := range records {
		records[number] = record(topic, fmt.Sprintf("%s-%d", codec, number))
	}
	check(client.ProduceSync(context.Background(), records...).FirstErr())
}

func stream(client *kgo.Client, topic string, ended <-chan struct{}) {
	defer client.Close()
	for number := 0; !over(ended); number++ {
		client.Produce(context.Background(), record(topic, fmt.Sprintf("stream-%d", number)),
			func(sent *kgo.Record, err error) {
				check(err)
				fmt.Println(string(sent.Value))
			})
		time.Sleep(pause)
	}
	check(client.Flush(context.Background()))
}

func read(client func(...kgo.Opt) *kgo.Client, topic string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	start := map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}
	reader := client(kgo.ConsumePartitions(start))
	defer reader.Close()
	ends := must(kadm.NewClient(reader).ListEndOffsets(ctx, topic))
	end, _ := ends.Lookup(topic, partition)
	check(end.Err)
	for next := int64(0); next < end.Offset; {
		fetched := reader.PollFetches(ctx)
		check(fetched.Err())
		fetched.EachRecord(func(one *kgo.Record) {
			fmt.Println(string(one.Value))
			next = one.Offset + 1
		})
	}
}

func offsets(client *kgo.Client, topic string, timestamps []string) {
	defer client.Close()
	admin := kadm.NewClient(client)
	for _, text := range timestamps {
		timestamp := must(strconv.ParseInt(text, 10, 64))
		found, _ := must(admin.ListOffsetsAfterMilli(context.Background(), timestamp, topic)).Lookup(topic, partition)
		check(found.Err)
		fmt.Println(found.Offset)
	}
}

func record(topic, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
}

// standardInputEnds returns a channel that is closed at the end of standard input.
func standardInputEnds() <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		}
		close(ended)
	}()
	return ended
}

func over(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
		return false
	}
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
