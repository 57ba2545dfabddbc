package main

// TLS on a raw connection by Go's library, without its network poller; floods of handshakes, whole and half.

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// The blocking socket as Go's library needs it. Deadlines do not exist here.
type rawSocket struct {
	descriptor int
}

func (s rawSocket) Read(data []byte) (int, error) {
	n, err := transfer(syscall.SYS_READ, s.descriptor, data)
	if err == nil && n == 0 {
		return 0, fmt.Errorf("the broker closed the connection")
	}
	return n, err
}

func (s rawSocket) Write(data []byte) (int, error) {
	return len(data), (&connection{descriptor: s.descriptor}).write(data)
}

func (s rawSocket) Close() error                     { return syscall.Close(s.descriptor) }
func (s rawSocket) LocalAddr() net.Addr              { return nil }
func (s rawSocket) RemoteAddr() net.Addr             { return nil }
func (s rawSocket) SetDeadline(time.Time) error      { return nil }
func (s rawSocket) SetReadDeadline(time.Time) error  { return nil }
func (s rawSocket) SetWriteDeadline(time.Time) error { return nil }

var cachedSettings *tls.Config

func tlsSettings(o options) (*tls.Config, error) {
	if cachedSettings != nil {
		return cachedSettings, nil
	}
	text, err := os.ReadFile(o.ca)
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate", o.ca)
	}
	settings := &tls.Config{RootCAs: authorities, ServerName: "localhost"}
	if o.certificate != "" {
		pair, err := tls.LoadX509KeyPair(o.certificate, o.key)
		if err != nil {
			return nil, err
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	cachedSettings = settings
	return settings, nil
}

func (c *connection) secure(o options) error {
	settings, err := tlsSettings(o)
	if err != nil {
		return err
	}
	secured := tls.Client(rawSocket{c.descriptor}, settings)
	if err := secured.Handshake(); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	c.secured = secured
	return nil
}

// Whole handshakes on new connections, at a rate, each closed at once. The rate is the attempted one: a broker that
// is slower gets fewer.
func handshakes(o options) (report, error) {
	begin := time.Now()
	end := begin.Add(time.Duration(o.seconds * float64(time.Second)))
	result := report{}
	for time.Now().Before(end) {
		due := begin.Add(time.Duration(result.Requests) * time.Second / time.Duration(o.rate))
		time.Sleep(time.Until(due))
		c, err := dial(o)
		if err == nil {
			result.Records++
			_ = c.secured.Close()
		}
		result.Requests++
	}
	result.Seconds = time.Since(begin).Seconds()
	return result, nil
}

// Connections that send the first bytes of a handshake and no more, held until standard input ends.
func holdHalfOpen(o options) (report, error) {
	begin := time.Now()
	for i := 0; i < o.connections; i++ {
		c, err := dialPlain(o)
		if err != nil {
			return report{}, err
		}
		if err := c.write([]byte{22, 3, 1, 2, 0, 1, 0}); err != nil {
			return report{}, err
		}
		c.buffer = nil
	}
	return report{Seconds: time.Since(begin).Seconds(), Requests: o.connections, hold: true}, nil
}
