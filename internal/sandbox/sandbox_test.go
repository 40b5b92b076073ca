package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func run(t *testing.T, c Command) (exit Exit, stdout string) {
	t.Helper()
	var out bytes.Buffer
	if c.Stdout == nil {
		c.Stdout = &out
	}
	exit, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return exit, out.String()
}

func TestProcessHasItsOwnGroupAndBearsTheMarker(t *testing.T) {
	c := shell(t, `cat; echo "$EVALRUN_ROLLOUT $$ $(ps -o pgid= -p $$)"; echo oops >&2; pwd -P`)
	c.Stdin = []byte("hello\n")
	c.Env = append(c.Env, "EVALRUN_ROLLOUT=another")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	exit, out := run(t, c)

	var hello, marker string
	var pid, pgid int
	if _, err := fmt.Sscan(out, &hello, &marker, &pid, &pgid); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if hello != "hello" || marker != c.Marker || pid != pgid || pid == syscall.Getpgrp() {
		t.Errorf("got %q", out)
	}
	if stderr.String() != "oops\n" || !exit.State.Success() || exit.Ended != nil {
		t.Errorf("got stderr %q, exit %v, ended %v", stderr.String(), exit.State, exit.Ended)
	}
}

func TestExitIsReported(t *testing.T) {
	for script, want := range map[string]string{
		"exit 0":        "exit status 0",
		"exit 7":        "exit status 7",
		"kill -ABRT $$": "signal: aborted",
	} {
		exit, _ := run(t, shell(t, script))
		if got := strings.TrimSuffix(exit.State.String(), " (core dumped)"); got != want || exit.Ended != nil {
			t.Errorf("%s: got %s, ended %v; want %s", script, got, exit.Ended, want)
		}
	}
}

func TestStartFailureLeavesNothingOpen(t *testing.T) {
	c := shell(t, "")
	c.Path = "/does/not/exist"
	before := openFiles(t)
	for range 3 {
		if _, err := Start(c); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("got %v", err)
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files open before, %d after", before, after)
	}
}

func openFiles(t *testing.T) int {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// announce calls a function when the process has printed its first bytes.
type announce struct{ f func() }

func (a *announce) Write(p []byte) (int, error) {
	if a.f != nil {
		a.f()
		a.f = nil
	}
	return len(p), nil
}

func TestContextEndsTheProcess(t *testing.T) {
	reason := errors.New("limit reached")
	for _, tt := range []struct {
		name string
		c    Command
		want string
	}{
		{"that ends at SIGTERM", shell(t, "echo; exec sleep 1000"), "signal: terminated"},
		{"that cleans up at SIGTERM", shell(t, "trap 'exit 3' TERM; echo; while :; do sleep 1000 & wait; done"), "exit status 3"},
		{"that ignores SIGTERM", roleCommand(t, "deaf"), "signal: killed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			tt.c.Stdout = &announce{func() { cancel(reason) }}
			tt.c.Grace = 100 * time.Millisecond
			if tt.want != "signal: killed" {
				tt.c.Grace = time.Hour
			}
			exit, err := Run(ctx, tt.c)
			if err != nil || exit.State.String() != tt.want || !errors.Is(exit.Ended, reason) {
				t.Errorf("got %v, ended %v, error %v; want %s", exit.State, exit.Ended, err, tt.want)
			}
		})
	}
}

func TestContextThatIsDoneEndsTheProcessAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	exit, err := Run(ctx, shell(t, "exec sleep 1000"))
	if err != nil || !errors.Is(exit.Ended, context.Canceled) {
		t.Errorf("got %+v, %v", exit, err)
	}
}

func TestStdinThatIsNotRead(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 8<<20)
	t.Run("by a process that ends", func(t *testing.T) {
		c := shell(t, "echo done")
		c.Stdin = large
		if exit, out := run(t, c); out != "done\n" || !exit.State.Success() {
			t.Errorf("got %q, %v", out, exit.State)
		}
	})
	t.Run("by a process that closes it", func(t *testing.T) {
		c := shell(t, "exec <&-; echo done")
		c.Stdin = large
		if exit, out := run(t, c); out != "done\n" || !exit.State.Success() {
			t.Errorf("got %q, %v", out, exit.State)
		}
	})
	t.Run("by a process that must be ended", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c := shell(t, "echo; exec sleep 1000")
		c.Stdin, c.Stdout = large, &announce{cancel}
		if exit, err := Run(ctx, c); err != nil || exit.Ended == nil {
			t.Errorf("got %+v, %v", exit, err)
		}
	})
	t.Run("is seen as closed at the end", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		// wc counts what comes until stdin is closed, and it ignores SIGTERM.
		c := shell(t, "trap '' TERM; echo; exec wc -c >&2")
		var stderr bytes.Buffer
		c.Stdout, c.Stderr, c.Grace = &announce{cancel}, &stderr, time.Hour
		exit, err := Run(ctx, c)
		if err != nil || !exit.State.Success() || strings.TrimSpace(stderr.String()) != "0" {
			t.Errorf("got %v, %q, %v", exit.State, stderr.String(), err)
		}
	})
}

// limited fails after a number of bytes.
type limited struct{ left int }

var errLimit = errors.New("enough")

func (l *limited) Write(p []byte) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, errLimit
	}
	return len(p), nil
}

func TestGigabyteOfOutputEndsTheProcess(t *testing.T) {
	c := roleCommand(t, "flood")
	var stderr bytes.Buffer
	c.Stdout, c.Stderr, c.Grace = &limited{1 << 20}, &stderr, time.Hour
	exit, _ := run(t, c)
	if !errors.Is(exit.Ended, errLimit) || exit.State.String() != "signal: terminated" || stderr.Len() > 0 {
		t.Errorf("got %+v, stderr %q", exit, stderr.String())
	}
}

func TestWriterThatFailsAtTheEndIsReported(t *testing.T) {
	c := shell(t, "echo too much")
	c.Stdout = &limited{1}
	if exit, _ := run(t, c); !errors.Is(exit.Ended, errLimit) {
		t.Errorf("got %+v", exit)
	}
}

func TestConcurrentProcessesDoNotHarmEachOther(t *testing.T) {
	done := make(chan error)
	const n = 40
	for i := range n {
		c := shell(t, "(sleep 1000 &) ; cat")
		c.Marker = fmt.Sprint(unique(t), "-", i)
		c.Stdin = []byte(c.Marker)
		go func() {
			var out bytes.Buffer
			c.Stdout = &out
			exit, err := Run(t.Context(), c)
			if err == nil && (!exit.State.Success() || out.String() != c.Marker) {
				err = fmt.Errorf("got %v, %q", exit.State, out.String())
			}
			done <- err
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// slowWriter takes its first bytes only after a pause, as evalrun does when it is stopped, or has
// no CPU, while a process ends.
type slowWriter struct {
	bytes.Buffer
	pause <-chan time.Time
}

func (w *slowWriter) Write(p []byte) (int, error) {
	if w.pause != nil {
		<-w.pause
		w.pause = nil
	}
	return w.Buffer.Write(p)
}

// R2. What a process has printed is read however long we take to do so: what is in the pipe when it
// has ended is not dropped at a deadline.
func TestOutputIsReadHoweverLateWeAre(t *testing.T) {
	const size = 60000 // more than is read at once, less than a pipe holds
	c := shell(t, fmt.Sprintf("head -c %d /dev/zero; head -c %d /dev/zero >&2", size, size))
	out, errs := &slowWriter{pause: time.After(time.Second)}, &slowWriter{pause: time.After(time.Second)}
	c.Stdout, c.Stderr = out, errs
	exit, _ := run(t, c)
	if !exit.State.Success() || exit.Ended != nil || out.Len() != size || errs.Len() != size {
		t.Errorf("read %d and %d bytes of %d, %v, ended %v", out.Len(), errs.Len(), size, exit.State, exit.Ended)
	}
}
