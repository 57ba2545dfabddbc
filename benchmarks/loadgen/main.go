// Loadgen puts load on a Kafka broker over raw sockets and prints one JSON object about it.
//
// It guarantees that the generator is not what is measured: requests are prebuilt, one thread makes plain system
// calls, nothing is allocated on the way, and its own CPU time is reported so that a reader can check. It checks
// every response's error code. It is not a client and not a test of correctness.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"sort"
	"syscall"
	"time"
)

type options struct {
	address, topic, ca, certificate, key                    string
	records, valueBytes, inFlight, count, warmUp, maxBytes  int
	connections, partitions, passes, pauseUs, rate, sources int
	totalBytes, endOffset                                   int64
	seconds                                                 float64
	verify                                                  bool
}

type latency struct {
	P50 float64 `json:"p50_us"`
	P99 float64 `json:"p99_us"`
	Max float64 `json:"max_us"`
}

type report struct {
	Seconds          float64  `json:"seconds"`
	Requests         int      `json:"requests"`
	Records          int64    `json:"records"`
	Bytes            int64    `json:"bytes"`
	ClientCPUSeconds float64  `json:"client_cpu_seconds"`
	Latency          *latency `json:"latency,omitempty"`
	hold             bool     // Stay after the report, until standard input ends.
}

func (r report) print() {
	usage := syscall.Rusage{}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err == nil {
		r.ClientCPUSeconds = time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
	}
	line, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func summarize(latencies []time.Duration) *latency {
	if len(latencies) == 0 {
		return nil
	}
	sort.Slice(latencies, func(a, b int) bool { return latencies[a] < latencies[b] })
	at := func(fraction float64) float64 {
		return float64(latencies[int(fraction*float64(len(latencies)-1))].Nanoseconds()) / 1000
	}
	return &latency{P50: at(0.5), P99: at(0.99), Max: at(1)}
}

var commands = map[string]func(options) (report, error){
	"produce-stream": produceStream,
	"produce-each":   produceEach,
	"produce-single": produceOneByOne,
	"produce-many":   produceFromMany,
	"fetch-stream":   fetchStream,
	"end-to-end":     endToEnd,
	"idle":           holdIdle,
	"handshakes":     handshakes,
	"half-open":      holdHalfOpen,
}

func parse(arguments []string) options {
	o := options{}
	flags := flag.NewFlagSet("loadgen", flag.ExitOnError)
	flags.StringVar(&o.address, "address", "", "host:port of the broker")
	flags.StringVar(&o.ca, "ca", "", "file of the authority that signed the broker's certificate; switches TLS on")
	flags.StringVar(&o.certificate, "certificate", "", "file of the client's certificate")
	flags.StringVar(&o.key, "key", "", "file of the client's key")
	flags.StringVar(&o.topic, "topic", "", "name of an existing topic")
	flags.IntVar(&o.records, "records", 1, "records in a batch")
	flags.IntVar(&o.valueBytes, "value-bytes", 50, "bytes of a record's value")
	flags.IntVar(&o.inFlight, "in-flight", 5, "requests sent before an answer is awaited")
	flags.IntVar(&o.count, "count", 1000, "requests measured")
	flags.IntVar(&o.warmUp, "warm-up", 0, "requests (produce-many: milliseconds) before the measurement")
	flags.IntVar(&o.maxBytes, "max-bytes", 1<<20, "bytes asked for by a fetch")
	flags.IntVar(&o.connections, "connections", 1, "connections")
	flags.IntVar(&o.partitions, "partitions", 1, "partitions of the topic to use")
	flags.IntVar(&o.pauseUs, "pause-us", 0, "microseconds between two requests of produce-single")
	flags.IntVar(&o.sources, "sources", 0, "loopback addresses that connections come from; 0 is the usual one")
	flags.IntVar(&o.rate, "rate", 100, "connections in a second, of handshakes")
	flags.IntVar(&o.passes, "passes", 1, "times to fetch the whole log")
	flags.Int64Var(&o.totalBytes, "total-bytes", 1<<28, "bytes of batches to produce")
	flags.Int64Var(&o.endOffset, "end-offset", 0, "offset to fetch up to")
	flags.Float64Var(&o.seconds, "seconds", 2, "seconds to measure")
	flags.BoolVar(&o.verify, "verify", false, "check the checksum of what is fetched")
	_ = flags.Parse(arguments)
	return o
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "loadgen: name a command: produce-stream, produce-each, produce-single, produce-many,"+
			" fetch-stream, end-to-end, idle, handshakes or half-open")
		os.Exit(2)
	}
	runtime.LockOSThread()
	o := parse(os.Args[2:])
	if o.ca == "" {
		debug.SetGCPercent(-1) // Nothing is allocated once it runs; a collection would only disturb.
	}
	result, err := commands[os.Args[1]](o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
	result.print()
	if result.hold {
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
}
