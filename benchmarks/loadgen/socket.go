package main

// A TCP connection without Go's network poller: each call is one system call on the calling thread, so that the
// generator costs as little as a C program would. Blocking, except where epoll is used (connections.go). With TLS
// (secured.go) Go's own library encrypts and decrypts on the same thread.

import (
	"encoding/binary"
	"fmt"
	"net"
	"syscall"
	"unsafe"
)

type connection struct {
	descriptor int
	buffer     []byte
	secured    net.Conn // With TLS, otherwise nil.
}

func dial(o options) (*connection, error) {
	c, err := dialPlain(o)
	if err != nil || o.ca == "" {
		return c, err
	}
	if err := c.secure(o); err != nil {
		_ = syscall.Close(c.descriptor)
		return nil, err
	}
	return c, nil
}

var dialed int

// With sources, connections come from that many addresses in turn: a broker may bound those of one address.
func dialPlain(o options) (*connection, error) {
	address := o.address
	resolved, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return nil, err
	}
	descriptor, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if o.sources > 0 {
		source := &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 1, byte(1 + dialed%o.sources)}}
		if err := syscall.Bind(descriptor, source); err != nil {
			return nil, err
		}
		dialed++
	}
	target := &syscall.SockaddrInet4{Port: resolved.Port}
	copy(target.Addr[:], resolved.IP.To4())
	if err := syscall.Connect(descriptor, target); err != nil {
		_ = syscall.Close(descriptor)
		return nil, fmt.Errorf("connect %s: %w", address, err)
	}
	if err := syscall.SetsockoptInt(descriptor, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
		return nil, err
	}
	return &connection{descriptor: descriptor, buffer: make([]byte, 64<<10)}, nil
}

// RawSyscall keeps the scheduler out of it; the caller's thread is the only one with work.
func transfer(call uintptr, descriptor int, data []byte) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall(call, uintptr(descriptor), uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)))
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
			continue
		default:
			return 0, errno
		}
	}
}

func (c *connection) read(data []byte) (int, error) {
	if c.secured != nil {
		return c.secured.Read(data)
	}
	return transfer(syscall.SYS_READ, c.descriptor, data)
}

func (c *connection) write(data []byte) error {
	if c.secured != nil {
		_, err := c.secured.Write(data)
		return err
	}
	for len(data) > 0 {
		n, err := transfer(syscall.SYS_WRITE, c.descriptor, data)
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		data = data[n:]
	}
	return nil
}

func (c *connection) readInto(data []byte) error {
	for len(data) > 0 {
		n, err := c.read(data)
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if n == 0 {
			return fmt.Errorf("read: the broker closed the connection")
		}
		data = data[n:]
	}
	return nil
}

// The next response without its length; valid until the next call. One read when it is small and alone.
func (c *connection) response() ([]byte, error) {
	have := 0
	for have < 4 {
		n, err := c.read(c.buffer[have:cap(c.buffer)])
		if err != nil || n == 0 {
			return nil, fmt.Errorf("read: %d bytes, error %v", n, err)
		}
		have += n
	}
	size := int(binary.BigEndian.Uint32(c.buffer)) + 4
	if size > cap(c.buffer) {
		grown := make([]byte, size+size/4)
		copy(grown, c.buffer[:have])
		c.buffer = grown
	}
	if have > size {
		return nil, fmt.Errorf("read: more than one response, only one was asked for")
	}
	return c.buffer[4:size], c.readInto(c.buffer[have:size])
}

func (c *connection) ask(request []byte) ([]byte, error) {
	if err := c.write(request); err != nil {
		return nil, err
	}
	return c.response()
}
