// Package servetest helps tests of the service's interfaces to find leaked secrets: it records
// every byte that a server sends or logs, and a test fails if a secret is among them. It knows no
// interface.
package servetest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"regexp"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/webhook"
)

// Secrets are the texts that no response and no log may contain: planted values, and the webhook
// tokens of a store.
type Secrets struct {
	key webhook.Key
	// deaf is set in benchmarks, which listening would slow down.
	deaf bool

	mu      sync.Mutex
	planted map[string]string // their descriptions, by value
	heard   []*record
}

// Watch listens during a test, which fails if a secret is heard. The servers that it listens to
// must end before the test's earlier cleanups.
func Watch(t testing.TB, storeDir string) *Secrets {
	t.Helper()
	key, err := webhook.LoadKey(storeDir)
	if err != nil {
		t.Fatal(err)
	}
	s := newSecrets(key)
	_, s.deaf = t.(*testing.B)
	t.Cleanup(func() {
		for _, leak := range s.leaks() {
			t.Error(leak)
		}
	})
	return s
}

func newSecrets(key webhook.Key) *Secrets { return &Secrets{key: key, planted: map[string]string{}} }

// Plant adds a value.
func (s *Secrets) Plant(what, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.planted[value] = what
}

// Listener hears all that is sent on the connections of ln.
func (s *Secrets) Listener(ln net.Listener) net.Listener {
	if s.deaf {
		return ln
	}
	return listener{ln, s}
}

// Writer hears everything that is written to w.
func (s *Secrets) Writer(name string, w io.Writer) io.Writer {
	if s.deaf {
		return w
	}
	return io.MultiWriter(w, s.record(name))
}

func (s *Secrets) record(name string) *record {
	r := &record{name: name}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, r)
	return r
}

var (
	// chunk matches the bytes between two chunks of a body (RFC 9112, section 7.1).
	chunk        = regexp.MustCompile(`\r\n[0-9a-fA-F]{1,8}\r\n`)
	webhookToken = regexp.MustCompile(redact.WebhookPrefix + `[A-Za-z0-9_-]{64}`)
)

// leaks lists the secrets that were heard, and where.
func (s *Secrets) leaks() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.heard {
		text := chunk.ReplaceAll(r.bytes(), nil)
		for value, what := range s.planted {
			if at := bytes.Index(text, []byte(value)); at >= 0 {
				out = append(out, describe(r.name, what, text, at))
			}
		}
		for _, at := range webhookToken.FindAllIndex(text, -1) {
			if _, valid := s.key.Trigger(string(text[at[0]:at[1]])); valid {
				out = append(out, describe(r.name, "a webhook's token", text, at[0]))
			}
		}
	}
	return out
}

func describe(where, what string, text []byte, at int) string {
	const around = 300
	return fmt.Sprintf("%s has %s, after %q", where, what, text[max(0, at-around):at])
}

// record is the bytes that were heard in one place.
type record struct {
	name string
	mu   sync.Mutex
	b    bytes.Buffer
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.b.Write(p)
}

func (r *record) bytes() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.b.Bytes())
}

type listener struct {
	net.Listener
	s *Secrets
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return conn{c, l.s.record("a response")}, nil
}

type conn struct {
	net.Conn
	sent *record
}

// Write implements net.Conn.
func (c conn) Write(p []byte) (int, error) {
	_, _ = c.sent.Write(p) // a buffer accepts everything
	return c.Conn.Write(p)
}
