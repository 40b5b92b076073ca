package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

func asSetupError(err error) *SetupError {
	var setup *SetupError
	errors.As(err, &setup)
	return setup
}

// everywhere runs a test in each isolation.
func everywhere(t *testing.T, f func(t *testing.T, s *Config)) {
	for _, s := range spaces(t) {
		t.Run(s.Isolation, func(t *testing.T) { f(t, s) })
	}
}

// lines are those of a file in the space's /app.
func lines(t *testing.T, s *Config, name string) []string {
	t.Helper()
	host, ok := s.HostPath("/app/" + name)
	content, err := os.ReadFile(host)
	if err != nil && !errors.Is(err, os.ErrNotExist) || !ok {
		t.Fatal(err, ok)
	}
	return strings.Fields(string(content))
}

// setUp runs a process with a setup and returns why it was not started.
func setUp(t *testing.T, s *Config, setup Setup, script string) (failed *SetupError, log string) {
	t.Helper()
	var out bytes.Buffer
	setup.Log = &out
	c := inSpace(t, s, script)
	c.Setup = &setup
	exit, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	failed = asSetupError(exit.Ended)
	if failed == nil != exit.State.Success() || failed == nil && exit.Ended != nil {
		t.Errorf("got %v, %v", exit.State, exit.Ended)
	}
	return failed, out.String()
}

func TestSetupRunsInItsOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		other := must(os.MkdirTemp(s.Binds[0].Host, "other"))
		// The service makes a file and ends when it is told to, which it records.
		failed, log := setUp(t, s, Setup{
			Services: []SetupCommand{{Command: `trap 'echo stopped >> order; echo bye; exit' TERM; echo serving; echo s > up; while :; do sleep 1000 & wait; done`}},
			Commands: []SetupCommand{
				{Command: `while ! [ -s up ]; do :; done; echo first >> order; echo from first`, Timeout: 20 * time.Second},
				{Args: []string{"sh", "-c", `echo "$WORD" >> ../order; basename $(pwd) >> ../order`}, Dir: s.Path("/app/" + filepath.Base(other)), Env: []string{"WORD=second"}},
			},
			Healthcheck: &Healthcheck{SetupCommand: SetupCommand{Command: `echo healthy >> order`}},
		}, `echo "main $WORD" >> order`)
		if failed != nil {
			t.Fatal(failed, failed.Output)
		}
		want := "first second " + filepath.Base(other) + " healthy main stopped"
		if got := strings.Join(lines(t, s, "order"), " "); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if !strings.Contains(log, "serving\n") || !strings.Contains(log, "from first\n") || !strings.HasSuffix(log, "bye\n") {
			t.Errorf("log %q", log)
		}
	})
}

func TestSetupThatFails(t *testing.T) {
	healthcheck := Healthcheck{SetupCommand: SetupCommand{Command: "echo ill; echo tried >> tries; exit 1"}, Interval: time.Millisecond, Retries: 4}
	slow := healthcheck
	slow.Command, slow.Timeout, slow.Retries = "sleep 1000; true", 20*time.Millisecond, 2
	closed := must(net.Listen("tcp", "127.0.0.1:0"))
	address := closed.Addr().String()
	check(closed.Close())
	for _, tt := range []struct {
		name, want, output string
		stage              Stage
		setup              Setup
	}{
		{"a command", `setup command "echo no >&2; exit 3": exit status 3`, "no\n", StageCommand, Setup{Commands: []SetupCommand{{Command: "true"}, {Command: "echo no >&2; exit 3"}}}},
		{"a long output", `exit status 1`, strings.Repeat("x", 4095) + "\n", StageCommand, Setup{Commands: []SetupCommand{{Command: "head -c 100000 /dev/zero | tr '\\0' x; echo; exit 1"}}}},
		{"a command that is killed", `(killed)`, "", StageCommand, Setup{Commands: []SetupCommand{{Command: "kill -9 $$"}}}},
		{"a command without end", `it was still running after 1s`, "begun\n", StageCommand, Setup{Commands: []SetupCommand{{Command: "echo begun; sleep 1000; true", Timeout: time.Second}}}},
		{"a program that is not there", `no-such-program: file does not exist in PATH=`, "", StageCommand, Setup{Commands: []SetupCommand{{Args: []string{"no-such-program", "--x"}}}}},
		{"a service", `service "echo cannot; exit 2": exit status 2`, "cannot\n", StageService,
			Setup{Services: []SetupCommand{{Command: "echo cannot; exit 2"}}, Commands: []SetupCommand{{Command: "sleep 1000", Timeout: time.Minute}}}},
		{"an address", `wait for ` + address + `: nothing accepted a connection there within 40ms`, "", StageWait, Setup{WaitFor: []string{address}, WaitTimeout: 40 * time.Millisecond}},
		{"a healthcheck", `failed after 4 attempts, the last time: exit status 1`, "ill\n", StageHealthcheck, Setup{Healthcheck: &healthcheck}},
		{"a healthcheck without end", `failed after 2 attempts, the last time: it was still running after 20ms`, "", StageHealthcheck, Setup{Healthcheck: &slow}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, s *Config) {
				failed, _ := setUp(t, s, tt.setup, "echo never > started")
				if failed == nil || failed.Stage != tt.stage || !strings.Contains(failed.Error(), tt.want) || failed.Output != tt.output {
					t.Errorf("got %v\n%+v", failed, failed)
				}
				if got := lines(t, s, "started"); len(got) > 0 {
					t.Error("the process was started")
				}
			})
		})
	}
}

func TestProcessThatCannotBeStartedInItsSpace(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		c := inSpace(t, s, "")
		c.Setup, c.Path = &Setup{}, "/no/such/program"
		p := must(Start(c))
		err := p.Ready(t.Context())
		if setup := asSetupError(err); setup == nil || setup.Stage != StageMain || !strings.Contains(err.Error(), "start /no/such/program: ") {
			t.Errorf("got %v", err)
		}
		if exit, werr := p.Wait(t.Context()); werr != nil || !errors.Is(exit.Ended, err) {
			t.Errorf("got %+v, %v", exit, werr)
		}
	})
}

func TestHealthcheckIsFreeInTheStartPeriod(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		// Given a check that fails ten times and may fail once, in a start period that is long.
		h := &Healthcheck{SetupCommand: SetupCommand{Command: `echo x >> tries; [ $(wc -l < tries) -gt 10 ]`}, StartPeriod: time.Hour, StartInterval: time.Millisecond, Interval: time.Hour, Retries: 1}
		if failed, _ := setUp(t, s, Setup{Healthcheck: h}, "true"); failed != nil {
			t.Error(failed)
		}
		if got := len(lines(t, s, "tries")); got != 11 {
			t.Errorf("%d attempts", got)
		}
	})
	everywhere(t, func(t *testing.T, s *Config) {
		// Failures that come after the start period are counted, and no others: on a slow machine there are only these.
		h := &Healthcheck{SetupCommand: SetupCommand{Command: `echo x >> tries; exit 1`}, StartPeriod: 500 * time.Millisecond, StartInterval: 50 * time.Millisecond, Interval: time.Millisecond, Retries: 2}
		failed, _ := setUp(t, s, Setup{Healthcheck: h}, "true")
		if tries := len(lines(t, s, "tries")); failed == nil || tries < 2 || !strings.Contains(failed.Error(), fmt.Sprintf("after %d attempts", tries)) {
			t.Errorf("%d attempts: %v", tries, failed)
		}
	})
}

func TestSetupWaitsForItsServices(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		s.Network = true // the port of the service is one that is free here
		free := must(net.Listen("tcp", "127.0.0.1:0"))
		address := free.Addr().String()
		check(free.Close())
		self := must(os.Executable())
		if s.Isolation == IsolationBwrap {
			self = InsideExecutable
		}
		serve := SetupCommand{Args: []string{self, address, "served"}, Env: []string{roleVar + "=serve", raceExit}}
		failed, _ := setUp(t, s, Setup{Services: []SetupCommand{serve}, WaitFor: []string{address}}, fmt.Sprintf("%s=dial %s %s %s > got", roleVar, raceExit, self, address))
		if got := lines(t, s, "got"); failed != nil || strings.Join(got, " ") != "served" {
			t.Errorf("got %q, %v", got, failed)
		}
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			t.Error("the service is still there")
		}
	})
}

func TestServiceThatFailsLaterDoesNoHarm(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		setup := Setup{Services: []SetupCommand{{Command: "while ! [ -e started ]; do :; done; echo gone > ended; exit 1"}}}
		if failed, _ := setUp(t, s, setup, "echo > started; while ! [ -e ended ]; do :; done"); failed != nil {
			t.Error(failed)
		}
	})
}

func TestWhatTheSetupLeavesRunningEndsWithTheProcess(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		l := newLife(t)
		s.Binds = append(s.Binds, Bind{Host: filepath.Dir(l.path), Inside: "/life", Writable: true})
		// The command goes on printing in the background, which it may, and ignores SIGTERM.
		setup := Setup{Commands: []SetupCommand{{Command: "(trap '' TERM; exec 5> " + s.Path("/life/life") + "; echo alive >&5; echo > up; while echo going on; do sleep 0.01; done) & while ! [ -e up ]; do :; done"}}}
		if failed, log := setUp(t, s, setup, "true"); failed != nil || !strings.HasPrefix(log, "going on") {
			t.Error(failed, log)
		}
		l.mustBeOver(t)
	})
}

func TestProcessInASpaceEndsWithGrace(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		for _, tt := range []struct {
			script string // it prints something when it is to be ended
			grace  time.Duration
			want   int
		}{
			{"trap 'echo cleaned > cleaned; exit 3' TERM; echo; while :; do sleep 1000 & wait; done", time.Hour, 3},
			{"echo; exec sleep 1000", time.Hour, 128 + 15},
			{"trap '' TERM; sleep 1000 & echo; wait", 50 * time.Millisecond, 128 + 9},
			{"kill -ABRT $$", time.Hour, 128 + 6},
			{"exit 7", time.Hour, 7},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			c := inSpace(t, s, tt.script)
			c.Setup, c.Stdout, c.Grace = &Setup{}, &announce{cancel}, tt.grace
			exit, err := Run(ctx, c)
			if err != nil || exit.State.ExitCode() != tt.want {
				t.Errorf("%s: got %+v, %v", tt.script, exit, err)
			}
			cancel()
		}
		if got := lines(t, s, "cleaned"); len(got) != 1 {
			t.Errorf("the process did not clean up")
		}
	})
}

func TestManyShortProcessesBehindAnInit(t *testing.T) {
	testenv.NeedSlow(t)
	// The end of such a process can be earlier than anything that the init still has to do.
	for range 200 {
		c := shell(t, "exit 0")
		c.Setup, c.Executable, c.Path, c.Args = &Setup{}, must(os.Executable()), "/usr/bin/true", []string{"true"}
		if exit, _ := run(t, c); !exit.State.Success() {
			t.Fatalf("got %v, ended %v", exit.State, exit.Ended)
		}
	}
}

func TestSetupIsEndedWithTheContext(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := inSpace(t, s, "true")
		reason := errors.New("enough of it")
		c.Setup = &Setup{Commands: []SetupCommand{{Command: "echo; sleep 1000; true"}}, Log: &announce{func() { cancel(reason) }}}
		c.Grace = time.Hour
		p := must(Start(c))
		exit, err := p.Wait(ctx)
		if err != nil || !errors.Is(exit.Ended, reason) {
			t.Errorf("got %+v, %v", exit, err)
		}
		if err := p.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "it was told to end") {
			t.Errorf("got %v", err)
		}
	})
}

func TestReadyEndsWithItsContext(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		c := inSpace(t, s, "true")
		c.Setup = &Setup{Commands: []SetupCommand{{Command: "sleep 1000"}}}
		p := must(Start(c))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Ready(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		p.End(nil, 0)
		_, err := p.Wait(t.Context())
		check(err)
	})
}

// TestInitEndsWithEvalrun is for process isolation; bwrap has the same in TestBwrapEndsWithEvalrun.
func TestInitEndsWithEvalrun(t *testing.T) {
	l := newLife(t)
	c := roleCommand(t, "evalrun", IsolationProcess, l.path)
	c.Interactive = true
	p := must(Start(c))
	if _, err := bufio.NewReader(p.Stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	awaitLife(t, l)
	check(syscall.Kill(p.PID(), syscall.SIGKILL))
	l.mustEnd(t)
	_, err := p.Wait(t.Context())
	check(err)
}

func TestForwardInProcessIsolation(t *testing.T) {
	free := must(net.Listen("tcp", "127.0.0.1:0"))
	port := free.Addr().(*net.TCPAddr).Port
	s := spaces(t)[0]
	s.Forwards = []Forward{{Port: port, Socket: socket(t, func(c net.Conn) {
		_, _ = fmt.Fprintln(c, "hello")
		_ = c.Close()
	})}}
	c := inSpace(t, s, fmt.Sprintf("%s=dial exec %s 127.0.0.1:%d", roleVar, must(os.Executable()), port))
	// A port that is taken is a failure that says so.
	exit, err := Run(t.Context(), c)
	if setup := asSetupError(exit.Ended); err != nil || setup == nil || setup.Stage != StageForward || !strings.Contains(setup.Error(), "address already in use") {
		t.Errorf("got %+v, %v", exit, err)
	}
	check(free.Close())
	if _, out := run(t, c); strings.TrimSpace(out) != "hello" {
		t.Errorf("got %q", out)
	}
}

// BenchmarkTrue starts the smallest program there is.
func BenchmarkTrue(b *testing.B) {
	command := Command{Marker: "benchmark", Path: "/usr/bin/true", Args: []string{"true"}, Dir: "/", Executable: must(os.Executable())}
	for name, set := range map[string]func(c *Command){
		"plain": func(*Command) {},
		"init":  func(c *Command) { c.Setup = &Setup{} },
		"bwrap": func(c *Command) { c.Config = &Config{Isolation: IsolationBwrap} },
	} {
		b.Run(name, func(b *testing.B) {
			c := command
			set(&c)
			if c.Config != nil && (runtime.GOOS != "linux" || Available() != nil) {
				b.Skip(Available())
			}
			for b.Loop() {
				if exit, err := Run(b.Context(), c); err != nil || !exit.State.Success() {
					b.Fatal(exit, err)
				}
			}
		})
	}
}
