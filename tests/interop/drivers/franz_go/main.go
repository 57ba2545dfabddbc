// franz-go behind the driver's calls (see driver_protocol.py for what they mean).
// Consumers are given partitions directly; there is no group. A client that may not log in tries
// again for as long as it may; so a secured client first asks for a sign of life, which is an error.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const (
	callTimeout   = 30 * time.Second
	batchBytesMax = 4 << 20
)

type header struct {
	name  string
	value *[]byte
}

func (h header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.name, h.value}) }

func (h *header) UnmarshalJSON(data []byte) error {
	return json.Unmarshal(data, &[]any{&h.name, &h.value})
}

type record struct {
	Partition     int32    `json:"partition"`
	Value         *[]byte  `json:"value"`
	Key           *[]byte  `json:"key"`
	Headers       []header `json:"headers"`
	TimestampMs   *int64   `json:"timestamp_ms"`
	TimestampType *string  `json:"timestamp_type"`
	Offset        *int64   `json:"offset"`
}

type produceCall struct {
	Topic       string   `json:"topic"`
	Records     []record `json:"records"`
	Codec       string   `json:"codec"`
	Acks        string   `json:"acks"`
	Idempotence bool     `json:"idempotence"`
}

type fetchCall struct {
	Topic       string       `json:"topic"`
	Partition   int32        `json:"partition"`
	At          string       `json:"at"`
	Number      int64        `json:"number"`
	Count       int          `json:"count"`
	TimeoutMs   int64        `json:"timeout_ms"`
	ThenProduce *produceCall `json:"then_produce"`
}

type topicCall struct {
	Topic      string             `json:"topic"`
	Partitions int32              `json:"partitions"`
	Partition  int32              `json:"partition"`
	Configs    map[string]*string `json:"configs"`
	Names      []string           `json:"names"`
	At         string             `json:"at"`
	Number     int64              `json:"number"`
}

type security struct {
	Bootstrap   string `json:"bootstrap"`
	Protocol    string `json:"protocol"`
	CA          string `json:"ca"`
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
	Mechanism   string `json:"mechanism"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Token       string `json:"token"`
}

type driver struct {
	basic     []kgo.Opt
	isSecured bool
	client    *kgo.Client
	admin     *kadm.Client
}

func (d *driver) secure(given security) error {
	authority, err := os.ReadFile(given.CA)
	if err != nil {
		return err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(authority)
	if given.Key != "" {
		pair, err := tls.LoadX509KeyPair(given.Certificate, given.Key)
		if err != nil {
			return err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	d.basic = []kgo.Opt{kgo.SeedBrokers(given.Bootstrap)}
	if given.Protocol != "SASL_PLAINTEXT" {
		d.basic = append(d.basic, kgo.DialTLSConfig(config))
	}
	d.isSecured = true
	user := scram.Auth{User: given.User, Pass: given.Password}
	switch given.Mechanism {
	case "PLAIN":
		auth := plain.Auth{User: given.User, Pass: given.Password}
		d.basic = append(d.basic, kgo.SASL(auth.AsMechanism()))
	case "SCRAM-SHA-256":
		d.basic = append(d.basic, kgo.SASL(user.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		d.basic = append(d.basic, kgo.SASL(user.AsSha512Mechanism()))
	case "OAUTHBEARER":
		d.basic = append(d.basic, kgo.SASL(oauth.Auth{Token: given.Token}.AsMechanism()))
	}
	return nil
}

func (d *driver) newClient(ctx context.Context, more ...kgo.Opt) (*kgo.Client, error) {
	client, err := kgo.NewClient(append(append([]kgo.Opt{}, d.basic...), more...)...)
	if err == nil && d.isSecured {
		if err = client.Ping(ctx); err != nil {
			client.Close()
		}
	}
	return client, err
}

// An absent value is not an empty one: franz-go has nil for it, JSON has null.
func fromPointer(data *[]byte) []byte {
	if data == nil {
		return nil
	}
	if *data == nil {
		return []byte{}
	}
	return *data
}

func toPointer(data []byte) *[]byte {
	if data == nil {
		return nil
	}
	return &data
}

func (d *driver) describeCluster(ctx context.Context) (any, error) {
	found, err := d.admin.BrokerMetadata(ctx)
	if err != nil {
		return nil, err
	}
	nodes := []any{}
	for _, node := range found.Brokers {
		nodes = append(nodes, map[string]any{"id": node.NodeID, "host": node.Host, "port": node.Port})
	}
	return map[string]any{
		"nodes": nodes, "controller": found.Controller, "cluster_id": found.Cluster,
	}, nil
}

func (d *driver) createTopic(ctx context.Context, call topicCall) (any, error) {
	found, err := d.admin.CreateTopics(ctx, call.Partitions, 1, call.Configs, call.Topic)
	if err != nil {
		return nil, err
	}
	return nil, found[call.Topic].Err
}

func (d *driver) deleteTopic(ctx context.Context, call topicCall) (any, error) {
	found, err := d.admin.DeleteTopics(ctx, call.Topic)
	if err != nil {
		return nil, err
	}
	return nil, found[call.Topic].Err
}

func (d *driver) listTopics(ctx context.Context) (any, error) {
	found, err := d.admin.ListTopicsWithInternal(ctx)
	if err != nil {
		return nil, err
	}
	names := found.Names()
	sort.Strings(names)
	return names, nil
}

func (d *driver) describeTopic(ctx context.Context, call topicCall) (any, error) {
	all, err := d.admin.ListTopics(ctx, call.Topic)
	if err != nil {
		return nil, err
	}
	found := all[call.Topic]
	if found.Err != nil {
		return nil, found.Err
	}
	partitions := []any{}
	for _, p := range found.Partitions.Sorted() {
		partitions = append(partitions, map[string]any{
			"id": p.Partition, "leader": p.Leader, "replicas": p.Replicas, "isr": p.ISR,
		})
	}
	return map[string]any{
		"name": found.Topic, "topic_id": found.ID.String(), "partitions": partitions,
	}, nil
}

func (d *driver) topicConfigs(ctx context.Context, call topicCall) (any, error) {
	all, err := d.admin.DescribeTopicConfigs(ctx, call.Topic)
	if err != nil {
		return nil, err
	}
	found, err := all.On(call.Topic, nil)
	if err != nil {
		return nil, err
	}
	if found.Err != nil {
		return nil, found.Err
	}
	values := map[string]*string{}
	for _, name := range call.Names {
		for _, config := range found.Configs {
			if config.Key == name {
				values[name] = config.Value
			}
		}
	}
	return values, nil
}

func (d *driver) listOffset(ctx context.Context, call topicCall) (int64, error) {
	var all kadm.ListedOffsets
	var err error
	switch call.At {
	case "earliest":
		all, err = d.admin.ListStartOffsets(ctx, call.Topic)
	case "latest":
		all, err = d.admin.ListEndOffsets(ctx, call.Topic)
	case "timestamp":
		all, err = d.admin.ListOffsetsAfterMilli(ctx, call.Number, call.Topic)
	case "max_timestamp":
		all, err = d.admin.ListMaxTimestampOffsets(ctx, call.Topic)
	default:
		err = fmt.Errorf("no such place: %s", call.At)
	}
	if err != nil {
		return 0, err
	}
	found, ok := all.Lookup(call.Topic, call.Partition)
	if !ok {
		return 0, fmt.Errorf("no answer for partition %d", call.Partition)
	}
	return found.Offset, found.Err
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

// No delivery timeout: franz-go counts it from a record's own timestamp, and ours lie far back.
func (d *driver) produce(ctx context.Context, call produceCall) (any, error) {
	options := []kgo.Opt{
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(codecs[call.Codec]),
		kgo.ProducerBatchMaxBytes(batchBytesMax),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.RequiredAcks(acks[call.Acks]),
	}
	if !call.Idempotence {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := d.newClient(ctx, options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := []*kgo.Record{}
	for _, r := range call.Records {
		one := &kgo.Record{
			Topic: call.Topic, Partition: r.Partition,
			Key: fromPointer(r.Key), Value: fromPointer(r.Value),
		}
		if r.TimestampMs != nil {
			one.Timestamp = time.UnixMilli(*r.TimestampMs)
		}
		for _, h := range r.Headers {
			one.Headers = append(one.Headers, kgo.RecordHeader{Key: h.name, Value: fromPointer(h.value)})
		}
		records = append(records, one)
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		return nil, err
	}
	// Its results come in the order of the answers; the records are in the order of the call.
	places := [][]int64{}
	for _, r := range records {
		places = append(places, []int64{int64(r.Partition), r.Offset})
	}
	return places, nil
}

func (d *driver) start(ctx context.Context, call fetchCall) (kgo.Offset, error) {
	if call.At == "offset" {
		return kgo.NewOffset().At(call.Number), nil
	}
	if call.At == "earliest" {
		return kgo.NewOffset().AtStart(), nil
	}
	// Settled as a number, so that what is sent next is not before the position.
	found, err := d.listOffset(ctx, topicCall{
		Topic: call.Topic, Partition: call.Partition, At: call.At, Number: call.Number,
	})
	return kgo.NewOffset().At(found), err
}

func (d *driver) fetch(ctx context.Context, call fetchCall) (any, error) {
	offset, err := d.start(ctx, call)
	if err != nil {
		return nil, err
	}
	client, err := d.newClient(
		ctx,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{call.Topic: {call.Partition: offset}}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxPartitionBytes(batchBytesMax),
		kgo.FetchMaxWait(250*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if call.ThenProduce != nil {
		if _, err := d.produce(ctx, *call.ThenProduce); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(call.TimeoutMs)*time.Millisecond)
	defer cancel()
	records := []record{}
	for len(records) < call.Count {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		fetches.EachRecord(func(r *kgo.Record) { records = append(records, toRecord(r)) })
	}
	return records[:min(len(records), call.Count)], nil
}

func toRecord(r *kgo.Record) record {
	timestamp, kind, offset := r.Timestamp.UnixMilli(), "create", r.Offset
	if r.Attrs.TimestampType() == 1 {
		kind = "append"
	}
	headers := []header{}
	for _, h := range r.Headers {
		headers = append(headers, header{h.Key, toPointer(h.Value)})
	}
	return record{
		Partition: r.Partition, Value: toPointer(r.Value), Key: toPointer(r.Key), Headers: headers,
		TimestampMs: &timestamp, TimestampType: &kind, Offset: &offset,
	}
}

func (d *driver) answer(line []byte) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*callTimeout)
	defer cancel()
	var name struct{ Op string }
	var topic topicCall
	if err := json.Unmarshal(line, &name); err != nil {
		return nil, err
	}
	switch name.Op {
	case "produce":
		var call produceCall
		if err := json.Unmarshal(line, &call); err != nil {
			return nil, err
		}
		return d.produce(ctx, call)
	case "fetch":
		var call fetchCall
		if err := json.Unmarshal(line, &call); err != nil {
			return nil, err
		}
		return d.fetch(ctx, call)
	case "secure":
		var call struct{ Security security }
		if err := json.Unmarshal(line, &call); err != nil {
			return nil, err
		}
		return nil, d.secure(call.Security)
	}
	if err := json.Unmarshal(line, &topic); err != nil {
		return nil, err
	}
	switch name.Op {
	case "describe_cluster":
		return d.describeCluster(ctx)
	case "create_topic":
		return d.createTopic(ctx, topic)
	case "delete_topic":
		return d.deleteTopic(ctx, topic)
	case "list_topics":
		return d.listTopics(ctx)
	case "describe_topic":
		return d.describeTopic(ctx, topic)
	case "topic_configs":
		return d.topicConfigs(ctx, topic)
	case "list_offset":
		return d.listOffset(ctx, topic)
	}
	return nil, fmt.Errorf("no such call: %s", name.Op)
}

func toError(err error) any {
	var kafka *kerr.Error
	if errors.As(err, &kafka) {
		return map[string]any{"class": kafka.Message, "code": kafka.Code, "message": err.Error()}
	}
	return map[string]any{"class": fmt.Sprintf("%T", err), "code": nil, "message": err.Error()}
}

func main() {
	basic := []kgo.Opt{kgo.SeedBrokers(os.Args[1])}
	client, err := kgo.NewClient(append(basic, kgo.MetadataMinAge(50*time.Millisecond))...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer client.Close()
	d := &driver{basic: basic, client: client, admin: kadm.NewClient(client)}
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := json.NewEncoder(os.Stdout)
	for {
		line, err := input.ReadBytes('\n')
		if err != nil {
			return
		}
		result, err := d.answer(line)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			output.Encode(map[string]any{"error": toError(err)})
			continue
		}
		output.Encode(map[string]any{"ok": result})
	}
}
