package sandbox

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// place is where a socket can be made.
func place(t testing.TB) string {
	dir := must(os.MkdirTemp("", "")) // a test's own folder has too long a name
	t.Cleanup(func() { check(os.RemoveAll(dir)) })
	return filepath.Join(dir, "s")
}

// inside is a role as a command of a setup.
func inside(s *Config, name string, args ...string) SetupCommand {
	self := must(os.Executable())
	if s.Isolation == IsolationBwrap {
		self = InsideExecutable
	}
	return SetupCommand{Args: append([]string{self}, args...), Env: []string{roleVar + "=" + name, raceExit}}
}

// spawning is a process that waits for its end, in a space with one spawn.
type spawning struct {
	*Process
	socket string
	log    *lockedBuffer
	marker string
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
	grown chan struct{} // closed when more is there, if somebody waits for that
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.grown != nil {
		close(b.grown)
		b.grown = nil
	}
	return b.Buffer.Write(p)
}

// await waits until a text is there, but not for ever.
func (b *lockedBuffer) await(text string) {
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	for {
		b.mu.Lock()
		if strings.Contains(b.String(), text) {
			b.mu.Unlock()
			return
		}
		if b.grown == nil {
			b.grown = make(chan struct{})
		}
		grown := b.grown
		b.mu.Unlock()
		select {
		case <-grown:
		case <-late.C:
			return
		}
	}
}

// startSpawning starts it and waits until it is ready.
func startSpawning(t *testing.T, s *Config, spawn Spawn) *spawning {
	t.Helper()
	spawn.Socket = place(t)
	s.Spawns = []Spawn{spawn}
	c := inSpace(t, s, "exec cat")
	log := &lockedBuffer{}
	c.Interactive, c.Setup = true, &Setup{Log: log}
	p := must(Start(c))
	t.Cleanup(func() { // for a test that fails before it ends it
		p.End(nil, 0)
		_, _ = p.Wait(t.Context())
	})
	check(p.Ready(t.Context()))
	return &spawning{p, spawn.Socket, log, c.Marker}
}

// end ends the process, and with it the space, and returns the log.
func (s *spawning) end(t *testing.T) string {
	t.Helper()
	s.End(nil, time.Hour)
	if exit, err := s.Wait(t.Context()); err != nil || !exit.State.Success() {
		t.Errorf("got %+v, %v", exit, err)
	}
	if _, err := os.Lstat(s.socket); err == nil {
		t.Error("the socket is still there")
	}
	return s.log.String()
}

// dial connects; everything on the connection has to be done before long.
func dial(t testing.TB, socket string) *net.UnixConn {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	check(c.SetDeadline(time.Now().Add(20 * time.Second)))
	return c.(*net.UnixConn)
}

// readRest is what comes until the end of a connection.
func readRest(t *testing.T, r io.Reader) string {
	t.Helper()
	all, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("after %q: %v", all, err)
	}
	return string(all)
}
