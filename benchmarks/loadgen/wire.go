package main

// Kafka's wire, only as far as a load generator needs it: frames are built once before the clock starts, and
// of a response only the error code and, for a fetch, the offsets are read. This is not a client: no retries,
// no metadata refresh, no negotiation of versions (Produce 9, Fetch 16, Metadata 12, ApiVersions 3).

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/rand"
	"time"
)

const (
	keyProduce     = 0
	keyFetch       = 1
	keyMetadata    = 3
	keyAPIVersions = 18
)

const clientName = "loadgen"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A frame under construction; the length is filled in by finish.
type frame struct{ bytes []byte }

func newFrame(apiKey, version int16) *frame {
	f := &frame{bytes: make([]byte, 4, 256)}
	f.int16(apiKey)
	f.int16(version)
	f.int32(1) // The same correlation id always: responses come in request order.
	f.int16(int16(len(clientName)))
	f.bytes = append(f.bytes, clientName...)
	f.tags()
	return f
}

func (f *frame) int8(v int8)      { f.bytes = append(f.bytes, byte(v)) }
func (f *frame) int16(v int16)    { f.bytes = binary.BigEndian.AppendUint16(f.bytes, uint16(v)) }
func (f *frame) int32(v int32)    { f.bytes = binary.BigEndian.AppendUint32(f.bytes, uint32(v)) }
func (f *frame) int64(v int64)    { f.bytes = binary.BigEndian.AppendUint64(f.bytes, uint64(v)) }
func (f *frame) uvarint(v uint64) { f.bytes = binary.AppendUvarint(f.bytes, v) }
func (f *frame) tags()            { f.bytes = append(f.bytes, 0) }

func (f *frame) compactString(s string) {
	f.uvarint(uint64(len(s)) + 1)
	f.bytes = append(f.bytes, s...)
}

func (f *frame) finish() []byte {
	binary.BigEndian.PutUint32(f.bytes, uint32(len(f.bytes)-4))
	return f.bytes
}

// One uncompressed record batch of equal records with random bytes, as a producer without idempotence sends it.
func recordBatch(records, valueBytes int) []byte {
	value := make([]byte, valueBytes)
	rand.New(rand.NewSource(1)).Read(value)
	body := make([]byte, 0, records*(valueBytes+16)+64)
	for i := 0; i < records; i++ {
		record := make([]byte, 0, valueBytes+16)
		record = append(record, 0)                     // attributes
		record = binary.AppendVarint(record, 0)        // timestamp delta
		record = binary.AppendVarint(record, int64(i)) // offset delta
		record = binary.AppendVarint(record, -1)       // no key
		record = binary.AppendVarint(record, int64(len(value)))
		record = append(record, value...)
		record = binary.AppendVarint(record, 0) // no headers
		body = binary.AppendVarint(body, int64(len(record)))
		body = append(body, record...)
	}
	now := time.Now().UnixMilli()
	checked := frame{}
	checked.int16(0)                  // attributes
	checked.int32(int32(records - 1)) // last offset delta
	checked.int64(now)
	checked.int64(now)
	checked.int64(-1) // producer id
	checked.int16(-1) // producer epoch
	checked.int32(-1) // base sequence
	checked.int32(int32(records))
	checked.bytes = append(checked.bytes, body...)
	batch := frame{}
	batch.int64(0)
	batch.int32(int32(len(checked.bytes) + 9)) // leader epoch, magic and checksum come before
	batch.int32(-1)
	batch.int8(2)
	batch.int32(int32(crc32.Checksum(checked.bytes, castagnoli)))
	batch.bytes = append(batch.bytes, checked.bytes...)
	return batch.bytes
}

func produceFrame(topic string, partition int32, batch []byte) []byte {
	f := newFrame(keyProduce, 9)
	f.uvarint(0) // no transaction
	f.int16(-1)  // acks=all
	f.int32(30000)
	f.uvarint(2) // one topic
	f.compactString(topic)
	f.uvarint(2) // one partition
	f.int32(partition)
	f.uvarint(uint64(len(batch)) + 1)
	f.bytes = append(f.bytes, batch...)
	f.tags()
	f.tags()
	f.tags()
	return f.finish()
}

// Where the error code of the one partition stands in a Produce 9 response (frame length not counted).
func produceErrorPosition(topic string) int {
	lengthBytes := len(binary.AppendUvarint(nil, uint64(len(topic))+1))
	return 4 + 1 + 1 + lengthBytes + len(topic) + 1 + 4
}

// A fetch of one partition, with the position of its offset: the offset alone changes between requests.
func fetchFrame(topicID [16]byte, partition int32, waitMillis, maxBytes int32) (bytes []byte, offsetPosition int) {
	f := newFrame(keyFetch, 16)
	f.int32(waitMillis)
	f.int32(1) // min bytes
	f.int32(maxBytes)
	f.int8(0)   // read uncommitted
	f.int32(0)  // no session
	f.int32(-1) // no session
	f.uvarint(2)
	f.bytes = append(f.bytes, topicID[:]...)
	f.uvarint(2)
	f.int32(partition)
	f.int32(-1) // leader epoch not known
	offsetPosition = len(f.bytes)
	f.int64(0)
	f.int32(-1) // last fetched epoch
	f.int64(-1) // log start offset
	f.int32(maxBytes)
	f.tags()
	f.tags()
	f.uvarint(1)        // nothing forgotten
	f.compactString("") // rack
	f.tags()
	return f.finish(), offsetPosition
}

// A cursor over a response. Running off the end is a broken response, which ends the program.
type cursor struct {
	bytes    []byte
	position int
}

func (c *cursor) skip(n int) { c.position += n }
func (c *cursor) int16() int16 {
	c.position += 2
	return int16(binary.BigEndian.Uint16(c.bytes[c.position-2:]))
}
func (c *cursor) int32() int32 {
	c.position += 4
	return int32(binary.BigEndian.Uint32(c.bytes[c.position-4:]))
}
func (c *cursor) uvarint() int {
	v, n := binary.Uvarint(c.bytes[c.position:])
	c.position += n
	return int(v)
}
func (c *cursor) compactBytes() []byte {
	length := c.uvarint() - 1
	if length <= 0 {
		return nil
	}
	c.position += length
	return c.bytes[c.position-length : c.position]
}

// The record bytes of a Fetch 16 response of one partition.
func fetchedRecords(response []byte) ([]byte, error) {
	c := cursor{bytes: response}
	c.skip(4 + 1 + 4) // correlation id, tags, throttle time
	if code := c.int16(); code != 0 {
		return nil, fmt.Errorf("fetch: error code %d", code)
	}
	c.skip(4) // session
	if c.uvarint() != 2 {
		return nil, nil
	}
	c.skip(16)
	if c.uvarint() != 2 {
		return nil, nil
	}
	c.skip(4)
	if code := c.int16(); code != 0 {
		return nil, fmt.Errorf("fetch: partition error code %d", code)
	}
	c.skip(8 + 8 + 8) // watermark, last stable offset, log start
	for aborted := c.uvarint() - 1; aborted > 0; aborted-- {
		c.skip(8 + 8 + 1)
	}
	c.skip(4) // preferred replica
	return c.compactBytes(), nil
}

// The offset after the last whole batch, and the bytes of the whole batches; the last may be cut short.
func walkBatches(records []byte, verify bool) (nextOffset int64, wholeBytes int, err error) {
	nextOffset = -1
	for len(records)-wholeBytes >= 61 {
		batch := records[wholeBytes:]
		size := int(binary.BigEndian.Uint32(batch[8:])) + 12
		if size > len(batch) {
			break
		}
		if verify && crc32.Checksum(batch[21:size], castagnoli) != binary.BigEndian.Uint32(batch[17:]) {
			return 0, 0, fmt.Errorf("fetch: a batch has a wrong checksum")
		}
		nextOffset = int64(binary.BigEndian.Uint64(batch)) + int64(binary.BigEndian.Uint32(batch[23:])) + 1
		wholeBytes += size
	}
	return nextOffset, wholeBytes, nil
}

func metadataFrame(topic string) []byte {
	f := newFrame(keyMetadata, 12)
	f.uvarint(2)
	f.bytes = append(f.bytes, make([]byte, 16)...)
	f.compactString(topic)
	f.tags()
	f.int8(0) // do not create
	f.int8(0)
	f.tags()
	return f.finish()
}

func topicIDFrom(response []byte) (id [16]byte, err error) {
	c := cursor{bytes: response}
	c.skip(4 + 1 + 4)
	for brokers := c.uvarint() - 1; brokers > 0; brokers-- {
		c.skip(4)
		c.compactBytes()
		c.skip(4)
		c.compactBytes()
		c.skip(1)
	}
	c.compactBytes() // cluster id
	c.skip(4)
	if c.uvarint() != 2 {
		return id, fmt.Errorf("metadata: not one topic")
	}
	if code := c.int16(); code != 0 {
		return id, fmt.Errorf("metadata: error code %d", code)
	}
	c.compactBytes()
	copy(id[:], c.bytes[c.position:])
	return id, nil
}

func apiVersionsFrame() []byte {
	f := newFrame(keyAPIVersions, 3)
	f.compactString(clientName)
	f.compactString("1")
	f.tags()
	return f.finish()
}
