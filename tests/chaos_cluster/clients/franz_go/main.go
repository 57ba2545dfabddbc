// franz-go's producer that runs through faults: the protocol of tests/crash/load.py.
//
//	load BOOTSTRAP SEED SECONDS
//
// It prints `a NUMBER PARTITION OFFSET` for an acknowledgement and `f NUMBER PARTITION REASON` for a
// record that it abandoned, and ends when its input ends, after requests in flight are settled.
package main

import (
	"context"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	topic       = "ledger"
	name        = "franz-go"
	partitions  = 4
	inFlightMax = 60
	burst       = 8
	pause       = 30 * time.Millisecond
	giveUp      = 90 * time.Second
	backoff     = 50 * time.Millisecond
)

func value(number int64, partition int32) []byte {
	size := number * 7919 % 300
	if number%64 == 63 {
		size += 20_000
	}
	head := fmt.Sprintf("%s:%d:%d:", name, number, partition)
	return append([]byte(head), make([]byte, size)...)
}

func main() {
	seed, _ := strconv.ParseInt(os.Args[2], 10, 64)
	seconds, _ := strconv.Atoi(os.Args[3])
	request := time.Duration(seconds) * time.Second
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(2*time.Millisecond),
		kgo.RecordDeliveryTimeout(giveUp),
		kgo.ProduceRequestTimeout(request),
		kgo.RequestTimeoutOverhead(request),
		kgo.DialTimeout(2*time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return backoff }),
		kgo.MetadataMinAge(backoff),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	over := make(chan struct{})
	go func() {
		io.Copy(io.Discard, os.Stdin)
		close(over)
	}()
	produce(client, rand.New(rand.NewSource(seed)), over)
	client.Close()
}

func produce(client *kgo.Client, dice *rand.Rand, over chan struct{}) {
	var lines sync.Mutex
	inFlight := make(chan struct{}, inFlightMax)
	var number int64
	var partition int32
	for {
		select {
		case <-over:
			client.Flush(context.Background())
			return
		case <-time.After(pause):
		}
		for count := 0; count < burst && len(inFlight) < inFlightMax; count++ {
			if dice.Float64() < 0.2 {
				partition = int32(dice.Intn(partitions))
			}
			inFlight <- struct{}{}
			sent, place := number, partition
			record := &kgo.Record{Topic: topic, Partition: place, Value: value(sent, place)}
			client.Produce(context.Background(), record, func(done *kgo.Record, err error) {
				<-inFlight
				lines.Lock()
				defer lines.Unlock()
				if err == nil {
					fmt.Println("a", sent, place, done.Offset)
				} else {
					fmt.Println("f", sent, place, strings.ReplaceAll(err.Error(), "\n", " "))
				}
			})
			number++
		}
	}
}
