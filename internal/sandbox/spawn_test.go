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
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestEachConnectionHasAProgramOfItsOwn(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		server := inside(s, "answer")
		server.Env = append(server.Env, "WORD=hello", MarkerVar+"=another")
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
			p := must(Start(Command{Marker: "benchmark", Path: "cat", Args: []string{"cat"}, Dir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Interactive: true, Config: s, Executable: must(os.Executable())}))
			check(p.Ready(b.Context()))
			c := must(net.Dial("unix", s.Spawns[0].Socket))
			exchange(b, c, c)
			check(c.Close())
			p.End(nil, time.Hour)
			must(p.Wait(b.Context()))
		})
	}
}
