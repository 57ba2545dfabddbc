package main

// Fetch one partition from its beginning, one request at a time as consumers do, and the time from a produce to
// its arrival at a waiting fetch.

import (
	"encoding/binary"
	"fmt"
	"time"
)

func topicID(o options, c *connection) ([16]byte, error) {
	response, err := c.ask(metadataFrame(o.topic))
	if err != nil {
		return [16]byte{}, err
	}
	return topicIDFrom(response)
}

func fetchStream(o options) (report, error) {
	c, err := dial(o)
	if err != nil {
		return report{}, err
	}
	id, err := topicID(o, c)
	if err != nil {
		return report{}, err
	}
	c.buffer = make([]byte, o.maxBytes+(2<<20)) // Room for the fields around the records.
	request, offsetPosition := fetchFrame(id, 0, 100, int32(o.maxBytes))
	result := report{}
	begin := time.Now()
	for pass := 0; pass < o.passes; pass++ {
		offset := int64(0)
		for offset < o.endOffset {
			binary.BigEndian.PutUint64(request[offsetPosition:], uint64(offset))
			response, err := c.ask(request)
			if err != nil {
				return report{}, err
			}
			records, err := fetchedRecords(response)
			if err != nil {
				return report{}, err
			}
			next, wholeBytes, err := walkBatches(records, o.verify)
			if err != nil {
				return report{}, err
			}
			if next <= offset {
				return report{}, fmt.Errorf("fetch: nothing at offset %d, the end should be %d", offset, o.endOffset)
			}
			result.Requests++
			result.Bytes += int64(wholeBytes)
			result.Records += next - offset
			offset = next
		}
	}
	result.Seconds = time.Since(begin).Seconds()
	return result, nil
}

// Two connections: a fetch waits at the end of the log, then a record is produced, and the fetch returns with it.
func endToEnd(o options) (report, error) {
	producer, err := dial(o)
	if err != nil {
		return report{}, err
	}
	consumer, err := dial(o)
	if err != nil {
		return report{}, err
	}
	id, err := topicID(o, consumer)
	if err != nil {
		return report{}, err
	}
	produce := produceFrame(o.topic, 0, recordBatch(1, o.valueBytes))
	errorPosition := produceErrorPosition(o.topic)
	fetch, offsetPosition := fetchFrame(id, 0, 5000, 1<<20)
	latencies := make([]time.Duration, 0, o.count)
	offset := int64(0) // The topic is new.
	begin := time.Now()
	for i := -o.warmUp; i < o.count; i++ {
		binary.BigEndian.PutUint64(fetch[offsetPosition:], uint64(offset))
		if err := consumer.write(fetch); err != nil {
			return report{}, err
		}
		time.Sleep(300 * time.Microsecond) // The fetch is waiting when the record comes, as it is in use.
		sent := time.Now()
		if err := producer.write(produce); err != nil {
			return report{}, err
		}
		response, err := consumer.response()
		latency := time.Since(sent)
		if err != nil {
			return report{}, err
		}
		records, err := fetchedRecords(response)
		if err != nil {
			return report{}, err
		}
		next, _, err := walkBatches(records, true)
		if err != nil {
			return report{}, err
		}
		if next != offset+1 {
			return report{}, fmt.Errorf("end to end: next offset %d after %d", next, offset)
		}
		offset = next
		acknowledged, err := producer.response()
		if err != nil {
			return report{}, err
		}
		if err := checkProduced(acknowledged, errorPosition); err != nil {
			return report{}, err
		}
		if i >= 0 {
			latencies = append(latencies, latency)
		}
	}
	return report{
		Seconds: time.Since(begin).Seconds(), Requests: o.count, Records: offset, Latency: summarize(latencies),
	}, nil
}
