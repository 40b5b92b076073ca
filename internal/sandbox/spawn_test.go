package sandbox

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
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
	return &spawning{p, spawn.Socket, log, c.RolloutID}
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

func TestEachConnectionHasAProgramOfItsOwn(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		server := inside(s, "answer")
		server.Env = append(server.Env, "WORD=hello", Marker+"=another")
		sp := startSpawning(t, s, Spawn{Command: server, Grace: time.Hour})
		conns, lines := []*net.UnixConn{dial(t, sp.socket), dial(t, sp.socket)}, []*bufio.Reader{}
		var pids []string
		for _, c := range conns {
			lines = append(lines, bufio.NewReader(c))
		}
		// Given two connections that are used in turns, then each is answered by its own program,
		// which bears the marker.
		for turn := range 20 {
			for i, c := range conns {
				must(fmt.Fprintf(c, "turn %d\n", turn))
				fields := strings.Fields(must(lines[i].ReadString('\n')))
				if len(fields) != 5 || fields[1] != sp.marker || fields[2] != "hello" || fields[4] != fmt.Sprint(turn) {
					t.Fatalf("got %q", fields)
				}
				if turn == 0 {
					pids = append(pids, fields[0])
				} else if fields[0] != pids[i] {
					t.Fatalf("connection %d: program %s, then %s", i, pids[i], fields[0])
				}
			}
		}
		if pids[0] == pids[1] {
			t.Error("both are the same program")
		}
		// When the input of one is over, then what its program still has to say arrives, and the
		// other one goes on.
		check(conns[0].CloseWrite())
		if got := readRest(t, lines[0]); got != "bye\n" {
			t.Errorf("got %q", got)
		}
		must(fmt.Fprintln(conns[1], "again"))
		if got, err := lines[1].ReadString('\n'); err != nil || !strings.HasPrefix(got, pids[1]+" ") {
			t.Errorf("got %q, %v", got, err)
		}
		check(conns[1].CloseWrite())
		readRest(t, lines[1])
		if log := sp.end(t); log != "" {
			t.Errorf("log %q", log)
		}
	})
}

func TestEverythingIsPassedOnAsItIs(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		sp := startSpawning(t, s, Spawn{Command: SetupCommand{Args: []string{"cat"}}, Grace: time.Hour})
		sent := make([]byte, 8<<20)
		random := rand.NewChaCha8([32]byte{})
		must(random.Read(sent))
		c := dial(t, sp.socket)
		written := make(chan error, 1)
		go func() {
			_, err := c.Write(sent)
			if err == nil {
				err = c.CloseWrite()
			}
			written <- err
		}()
		if got := readRest(t, c); got != string(sent) {
			t.Errorf("%d bytes came back, which are not the %d that were sent", len(got), len(sent))
		}
		check(<-written)
		sp.end(t)
	})
}

func TestInputMayEndBeforeTheAnswerBegins(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		sp := startSpawning(t, s, Spawn{Command: SetupCommand{Command: "wc -c; echo done"}, Grace: time.Hour})
		c := dial(t, sp.socket)
		must(c.Write(make([]byte, 3_000_000)))
		check(c.CloseWrite())
		if got := strings.Fields(readRest(t, c)); !slices.Equal(got, []string{"3000000", "done"}) {
			t.Errorf("got %q", got)
		}
		sp.end(t)
	})
}

func TestProgramReadsWhatWasWrittenBeforeTheConnectionWasClosed(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		l := lifeIn(t, s)
		sp := startSpawning(t, s, Spawn{Command: SetupCommand{Command: "exec 5> " + l.inside + "; echo >&5; cat > words"}, Grace: time.Hour})
		c := dial(t, sp.socket)
		must(c.Write(bytes.Repeat([]byte("word\n"), 30_000))) // more than a pipe holds
		check(c.Close())
		awaitLife(t, l.life)
		l.mustEnd(t)
		if got := lines(t, s, "words"); len(got) != 30_000 {
			t.Errorf("%d words", len(got))
		}
		sp.end(t)
	})
}

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
				sp := startSpawning(t, s, Spawn{Command: SetupCommand{Command: "exec 5> " + l.inside + "; echo >&5; " + tt.script}, Grace: 30 * time.Millisecond})
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

func TestProgramThatFailsIsInTheLog(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		for _, tt := range []struct {
			command SetupCommand
			want    string
		}{
			{SetupCommand{Args: []string{"no-such-program", "--x"}}, "evalrun: start no-such-program --x: no-such-program: file does not exist in PATH="},
			{SetupCommand{Args: []string{"cat"}, Dir: "/no/such/folder"}, "evalrun: start cat: its folder: stat /no/such/folder: no such file or directory\n"},
			{SetupCommand{Args: []string{s.Path("/app")}}, "permission denied\n"},
			{SetupCommand{Command: "echo no config >&2; exit 3"}, "no config\nevalrun: echo no config >&2; exit 3: exit status 3\n"},
			{SetupCommand{Command: "kill -9 $$"}, "it was ended by a signal (killed)\n"},
		} {
			sp := startSpawning(t, s, Spawn{Command: tt.command, Grace: time.Hour})
			// The client sees an end and no error, although nobody has read what it had sent.
			c := dial(t, sp.socket)
			_, _ = c.Write([]byte("question\n")) // fails if the program was so fast
			if got := readRest(t, c); got != "" {
				t.Errorf("got %q", got)
			}
			sp.log.await(tt.want) // the end of the connection may come before that of the program
			if log := sp.end(t); !strings.Contains(log, tt.want) {
				t.Errorf("%s: log %q", tt.command, log)
			}
		}
	})
}

func TestLogOfAProgramIsBounded(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		sp := startSpawning(t, s, Spawn{Command: SetupCommand{Command: "head -c 3000000 /dev/zero >&2; echo done"}, Grace: time.Hour})
		if got := readRest(t, dial(t, sp.socket)); got != "done\n" {
			t.Errorf("got %q", got)
		}
		const last = "\nevalrun: this was the last that is kept of it\n"
		if log := sp.end(t); len(log) != maxSpawnLog+len(last) || !strings.HasSuffix(log, last) {
			t.Errorf("%d bytes, the last %q", len(log), log[max(0, len(log)-100):])
		}
	})
}

func TestConnectionWaitsForTheSetup(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		s.Spawns = []Spawn{{Socket: place(t), Command: SetupCommand{Command: "cat made"}}}
		c := inSpace(t, s, "exec cat")
		c.Interactive, c.Setup = true, &Setup{Commands: []SetupCommand{{Command: "while ! [ -e go ]; do sleep 0.01; done; echo by the setup > made"}}}
		p := must(Start(c))
		conn := dial(t, s.Spawns[0].Socket)
		host, _ := s.HostPath("/app/go")
		write(t, host, "")
		if got := readRest(t, conn); got != "by the setup\n" {
			t.Errorf("got %q", got)
		}
		p.End(nil, time.Hour)
		_, err := p.Wait(t.Context())
		check(err)
	})
}

func TestConnectionToASpaceWhoseSetupFails(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		s.Spawns = []Spawn{{Socket: place(t), Command: SetupCommand{Args: []string{"cat"}}}}
		c := inSpace(t, s, "true")
		c.Setup = &Setup{Commands: []SetupCommand{{Command: "while ! [ -e go ]; do sleep 0.01; done; exit 1"}}}
		p := must(Start(c))
		conn := dial(t, s.Spawns[0].Socket)
		host, _ := s.HostPath("/app/go")
		write(t, host, "")
		_, err := p.Wait(t.Context())
		check(err)
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil || os.IsTimeout(err) {
			t.Errorf("got %d bytes, %v", n, err)
		}
		if _, err := os.Lstat(s.Spawns[0].Socket); err == nil {
			t.Error("the socket is still there")
		}
	})
}

func TestManyConnectionsLeaveNothingInTheInit(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("files of another process are counted on Linux only")
	}
	s := spaces(t)[0]
	sp := startSpawning(t, s, Spawn{Command: SetupCommand{Args: []string{"cat"}}, Grace: time.Hour})
	visit := func() {
		c := dial(t, sp.socket)
		must(c.Write([]byte("x")))
		check(c.CloseWrite())
		readRest(t, c)
		check(c.Close())
	}
	files := func() int { return len(must(os.ReadDir(fmt.Sprintf("/proc/%d/fd", sp.PID())))) }
	visit()
	before := files()
	for range 100 {
		visit()
	}
	// The init closes its own end some instructions after we have seen ours, and its runtime may
	// have a few files more than at first.
	if !testenv.Eventually(func() bool { return files() <= before+20 }) {
		t.Fatalf("%d files open before, %d after", before, files())
	}
	sp.end(t)
}

// BenchmarkSpawn sends messages of 64 KiB to a program that sends them back, through pipes of its
// own and from outside its space.
func BenchmarkSpawn(b *testing.B) {
	message := bytes.Repeat([]byte("x"), 64<<10)
	exchange := func(b *testing.B, w io.Writer, r io.Reader) {
		b.SetBytes(int64(len(message)))
		got := make([]byte, len(message))
		for b.Loop() {
			sent := make(chan error, 1)
			go func() {
				_, err := w.Write(message)
				sent <- err
			}()
			must(io.ReadFull(r, got))
			check(<-sent)
		}
	}
	b.Run("pipes", func(b *testing.B) {
		cmd := exec.Command("cat")
		w, r := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
		check(cmd.Start())
		exchange(b, w, r)
		check(w.Close())
		check(cmd.Wait())
	})
	for _, isolation := range []string{IsolationProcess, IsolationBwrap} {
		b.Run(isolation, func(b *testing.B) {
			if err := Supported(isolation); err != nil {
				b.Skip(err)
			}
			s := &Config{Isolation: isolation, Spawns: []Spawn{{Socket: place(b), Command: SetupCommand{Args: []string{"cat"}}}}}
			p := must(Start(Command{RolloutID: "benchmark", Path: "cat", Args: []string{"cat"}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Interactive: true, Config: s, Executable: must(os.Executable())}))
			check(p.Ready(b.Context()))
			c := must(net.Dial("unix", s.Spawns[0].Socket))
			exchange(b, c, c)
			check(c.Close())
			p.End(nil, time.Hour)
			must(p.Wait(b.Context()))
		})
	}
}
