package main

// Many connections from one thread with epoll: each has one single-record produce in flight, or none at all.

import (
	"fmt"
	"syscall"
	"time"
)

func openAll(o options) (epoll int, connections map[int32]*connection, err error) {
	epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return 0, nil, err
	}
	connections = make(map[int32]*connection, o.connections)
	for i := 0; i < o.connections; i++ {
		c, err := dial(o)
		if err != nil {
			return 0, nil, err
		}
		c.buffer = c.buffer[:512:512]
		event := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(c.descriptor)}
		if err := syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, c.descriptor, &event); err != nil {
			return 0, nil, err
		}
		connections[int32(c.descriptor)] = c
	}
	return epoll, connections, nil
}

// A response of 512 bytes at most is read whole by the one read that epoll announced.
func produceFromMany(o options) (report, error) {
	epoll, connections, err := openAll(o)
	if err != nil {
		return report{}, err
	}
	batch := recordBatch(1, o.valueBytes)
	errorPosition := produceErrorPosition(o.topic)
	requests := make(map[int32][]byte, len(connections))
	sent := make(map[int32]time.Time, len(connections))
	partition := int32(0)
	for descriptor := range connections {
		requests[descriptor] = produceFrame(o.topic, partition%int32(o.partitions), batch)
		partition++
	}
	warmEnd := time.Now().Add(time.Duration(o.warmUp) * time.Millisecond)
	begin, end := warmEnd, warmEnd.Add(time.Duration(o.seconds*float64(time.Second)))
	for descriptor, c := range connections {
		sent[descriptor] = time.Now()
		if err := c.write(requests[descriptor]); err != nil {
			return report{}, err
		}
	}
	result := report{}
	latencies := make([]time.Duration, 0, 1<<20)
	waiting := len(connections)
	events := make([]syscall.EpollEvent, len(connections))
	for waiting > 0 {
		n, err := syscall.EpollWait(epoll, events, 30000)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return report{}, fmt.Errorf("epoll: %d events in 30 s, error %v", n, err)
		}
		for _, event := range events[:n] {
			response, err := connections[event.Fd].response()
			if err != nil {
				return report{}, err
			}
			if err := checkProduced(response, errorPosition); err != nil {
				return report{}, err
			}
			now := time.Now()
			result.Records++
			if now.After(begin) && now.Before(end) {
				result.Requests++
				latencies = append(latencies, now.Sub(sent[event.Fd]))
			}
			if now.After(end) {
				waiting--
				continue
			}
			sent[event.Fd] = now
			if err := connections[event.Fd].write(requests[event.Fd]); err != nil {
				return report{}, err
			}
		}
	}
	result.Seconds = end.Sub(begin).Seconds()
	result.Latency = summarize(latencies)
	return result, nil
}

// Opens the connections one by one, has each answered once, and holds them until standard input ends.
func holdIdle(o options) (report, error) {
	begin := time.Now()
	request := apiVersionsFrame()
	for i := 0; i < o.connections; i++ {
		c, err := dial(o)
		if err != nil {
			return report{}, err
		}
		if _, err := c.ask(request); err != nil {
			return report{}, err
		}
		c.buffer = nil
	}
	return report{Seconds: time.Since(begin).Seconds(), Requests: o.connections, hold: true}, nil
}
