package main

// Produce over one connection: a stream of large batches with several in flight, single records one after the
// other, and one batch to each partition of a topic.

import (
	"encoding/binary"
	"fmt"
	"time"
)

func checkProduced(response []byte, errorPosition int) error {
	if code := int16(binary.BigEndian.Uint16(response[errorPosition:])); code != 0 {
		return fmt.Errorf("produce: error code %d", code)
	}
	return nil
}

// Reads whole responses of one known size, as many as have come: one system call for several.
type responseCounter struct {
	connection    *connection
	errorPosition int
	have          int
}

func (r *responseCounter) wait() (responses int, err error) {
	c := r.connection
	n, err := c.read(c.buffer[r.have:])
	if err != nil || n == 0 {
		return 0, fmt.Errorf("read: %d bytes, error %v", n, err)
	}
	r.have += n
	start := 0
	for r.have-start >= 4 {
		size := int(binary.BigEndian.Uint32(c.buffer[start:])) + 4
		if r.have-start < size {
			break
		}
		if err := checkProduced(c.buffer[start+4:start+size], r.errorPosition); err != nil {
			return responses, err
		}
		responses++
		start += size
	}
	copy(c.buffer, c.buffer[start:r.have])
	r.have -= start
	return responses, nil
}

func stream(c *connection, frames func(i int) []byte, count, inFlight, errorPosition int) error {
	counter := responseCounter{connection: c, errorPosition: errorPosition}
	sent, answered := 0, 0
	for answered < count {
		for sent < count && sent-answered < inFlight {
			if err := c.write(frames(sent)); err != nil {
				return err
			}
			sent++
		}
		n, err := counter.wait()
		if err != nil {
			return err
		}
		answered += n
	}
	return nil
}

func produceStream(o options) (report, error) {
	c, err := dial(o)
	if err != nil {
		return report{}, err
	}
	batch := recordBatch(o.records, o.valueBytes)
	request := produceFrame(o.topic, 0, batch)
	count := int(o.totalBytes / int64(len(batch)))
	begin := time.Now()
	err = stream(c, func(int) []byte { return request }, count, o.inFlight, produceErrorPosition(o.topic))
	return report{
		Seconds: time.Since(begin).Seconds(), Requests: count, Bytes: int64(count) * int64(len(batch)),
		Records: int64(count) * int64(o.records),
	}, err
}

func produceEach(o options) (report, error) {
	c, err := dial(o)
	if err != nil {
		return report{}, err
	}
	batch := recordBatch(o.records, o.valueBytes)
	requests := make([][]byte, o.partitions)
	for partition := range requests {
		requests[partition] = produceFrame(o.topic, int32(partition), batch)
	}
	begin := time.Now()
	err = stream(c, func(i int) []byte { return requests[i] }, o.partitions, o.inFlight, produceErrorPosition(o.topic))
	return report{
		Seconds: time.Since(begin).Seconds(), Requests: o.partitions,
		Bytes: int64(o.partitions) * int64(len(batch)), Records: int64(o.partitions) * int64(o.records),
	}, err
}

func produceOneByOne(o options) (report, error) {
	c, err := dial(o)
	if err != nil {
		return report{}, err
	}
	request := produceFrame(o.topic, 0, recordBatch(1, o.valueBytes))
	errorPosition := produceErrorPosition(o.topic)
	latencies := make([]time.Duration, 0, o.count)
	var begin time.Time
	for i := -o.warmUp; i < o.count; i++ {
		if i == 0 {
			begin = time.Now()
		}
		sent := time.Now()
		response, err := c.ask(request)
		if err != nil {
			return report{}, err
		}
		if err := checkProduced(response, errorPosition); err != nil {
			return report{}, err
		}
		if i >= 0 {
			latencies = append(latencies, time.Since(sent))
		}
		time.Sleep(time.Duration(o.pauseUs) * time.Microsecond)
	}
	return report{
		Seconds: time.Since(begin).Seconds(), Requests: o.count, Records: int64(o.count + o.warmUp),
		Latency: summarize(latencies),
	}, nil
}
