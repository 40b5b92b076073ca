package sandbox

import (
	"bufio"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// insideLife is a FIFO that can be written to in a space.
type insideLife struct {
	life
	inside string
}

func lifeIn(t *testing.T, s *Config) insideLife {
	l := newLife(t)
	s.Binds = append(s.Binds, Bind{Host: filepath.Dir(l.path), Inside: "/life", Writable: true})
	return insideLife{l, s.Path("/life/life")}
}

func TestProgramThatDoesNotGo(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		end          func(c *net.UnixConn) error
		want         string
		linux        bool
	}{
		{name: "is told to", script: "trap 'echo told; exit' TERM; echo; while :; do sleep 1000 & wait; done", end: (*net.UnixConn).CloseWrite, want: "told\n"},
		{name: "is killed", script: "trap '' TERM; echo; while :; do sleep 1000; done", end: (*net.UnixConn).CloseWrite},
		{name: "is killed with its group", script: "trap '' TERM; sleep 1000 & echo; wait; sleep 1000", end: (*net.UnixConn).CloseWrite},
		{name: "is killed when its client has gone", script: "trap '' TERM; echo; while :; do sleep 1000; done", end: (*net.UnixConn).Close},
		{name: "is killed when its client has gone and left what it does not read", script: "trap '' TERM; echo; while :; do sleep 1000; done", linux: true,
			end: func(c *net.UnixConn) error {
				must(c.Write(make([]byte, 100_000))) // more than a pipe holds, and less than that and the socket
				return c.Close()
			}},
		{name: "and goes on printing", script: "trap '' TERM; echo; while :; do echo x; done", end: (*net.UnixConn).Close},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.linux && runtime.GOOS != "linux" {
				t.Skip("this system does not tell")
			}
			everywhere(t, func(t *testing.T, s *Config) {
				l := lifeIn(t, s)
				grace := 30 * time.Millisecond
				if tt.want != "" {
					grace = 3 * time.Second // the shell says so within that, and its sleep ends then
				}
				sp := startSpawning(t, s, Spawn{Command: SetupCommand{Command: "exec 5> " + l.inside + "; echo >&5; " + tt.script}, Grace: grace})
				c := dial(t, sp.socket)
				must(c.Read(make([]byte, 1)))
				awaitLife(t, l.life)
				check(tt.end(c))
				l.mustEnd(t)
				if got, err := io.ReadAll(c); err == nil && string(got) != tt.want { // an error if we have closed it
					t.Errorf("got %q", got)
				}
				if log := sp.end(t); log != "" {
					t.Errorf("log %q", log)
				}
			})
		})
	}
}

func TestProgramThatReadsNoMoreGoesOn(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		sp := startSpawning(t, s, Spawn{Command: SetupCommand{Command: "exec <&-; echo closed; while ! [ -e go ]; do sleep 0.01; done; echo end"}, Grace: time.Hour})
		c := dial(t, sp.socket)
		r := bufio.NewReader(c)
		must(r.ReadString('\n'))
		must(c.Write(make([]byte, 1<<20))) // is taken and goes nowhere
		host, _ := s.HostPath("/app/go")
		write(t, host, "now")
		if got := readRest(t, r); got != "end\n" {
			t.Errorf("got %q", got)
		}
		sp.end(t)
	})
}

func TestOutputOfAProgramThatHasEndedIsReadHoweverSlowly(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		l := lifeIn(t, s)
		// Given more than the pipe takes, and not more than pipe and connection do, so that the
		// program ends before anything is read.
		sp := startSpawning(t, s, Spawn{Command: SetupCommand{Command: "exec 5> " + l.inside + "; echo >&5; head -c 150000 /dev/zero"}, Grace: time.Hour})
		c := dial(t, sp.socket)
		awaitLife(t, l.life)
		l.mustEnd(t)
		if got := len(readRest(t, c)); got != 150_000 {
			t.Errorf("got %d bytes", got)
		}
		sp.end(t)
	})
}

func TestWhatAProgramLeavesBehindDoesNotHoldTheConnection(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes that left their group are found on Linux only")
	}
	everywhere(t, func(t *testing.T, s *Config) {
		l := lifeIn(t, s)
		sp := startSpawning(t, s, Spawn{Command: inside(s, "leave", l.inside, "setsid", "stdout"), Grace: time.Hour})
		c := dial(t, sp.socket)
		if got := readRest(t, c); got == "" {
			t.Error("the program said nothing")
		}
		sp.end(t)
		l.mustBeOver(t)
	})
}

func TestEndOfTheSpaceEndsItsPrograms(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		for _, tt := range []struct{ script, want string }{
			{"trap 'echo told; exit' TERM; echo; while :; do sleep 1000 & wait; done", "\ntold\n"},
			{"trap '' TERM; echo; while :; do sleep 1000; done", "\n"},
		} {
			l := lifeIn(t, s)
			sp := startSpawning(t, s, Spawn{Command: SetupCommand{Command: "exec 5> " + l.inside + "; echo >&5; " + tt.script}, Grace: time.Hour})
			c := dial(t, sp.socket)
			awaitLife(t, l.life)
			first := make([]byte, 1)
			must(c.Read(first))
			sp.end(t)
			l.mustEnd(t)
			if got := string(first) + readRest(t, c); got != tt.want {
				t.Errorf("%s: got %q", tt.script, got)
			}
			if c, err := net.Dial("unix", sp.socket); err == nil {
				_ = c.Close()
				t.Error("the socket still takes connections")
			}
			s.Binds = s.Binds[:1]
		}
	})
}

func TestProgramsEndWithEvalrun(t *testing.T) {
	for _, s := range spaces(t) {
		t.Run(s.Isolation, func(t *testing.T) {
			main, spawned, socket := newLife(t), newLife(t), place(t)
			// Given an evalrun that has started a process in a space, and a program of it that does
			// not care for its connection.
			c := roleCommand(t, "evalrun", s.Isolation, main.path, spawned.path, socket)
			c.Interactive = true
			p := must(Start(c))
			if _, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			conn := dial(t, socket)
			awaitLife(t, main)
			awaitLife(t, spawned)
			// When it is killed, then so is all of it.
			check(syscall.Kill(p.PID(), syscall.SIGKILL))
			main.mustEnd(t)
			spawned.mustEnd(t)
			_, _ = io.ReadAll(conn) // ends
			for {                   // until nobody listens: the init ends last
				c, err := net.Dial("unix", socket)
				if err != nil {
					break
				}
				_, _ = io.ReadAll(c) // ends with the init
				_ = c.Close()
			}
			_, err := p.Wait(t.Context())
			check(err)
		})
	}
}
