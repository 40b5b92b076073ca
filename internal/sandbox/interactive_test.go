package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestInteractiveProcess(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		c := inSpace(t, s, `while read line; do echo "got $line"; done; echo end`)
		c.Interactive = true
		p := must(Start(c))
		check(p.Ready(t.Context()))
		out := bufio.NewReader(p.Stdout)
		for i := range 100 {
			must(fmt.Fprintf(p.Stdin, "line %d\n", i))
			if got, err := out.ReadString('\n'); err != nil || got != fmt.Sprintf("got line %d\n", i) {
				t.Fatalf("got %q, %v", got, err)
			}
		}
		// It goes when its stdin is closed, and no signal is needed for that.
		reason := errors.New("the turn is over")
		p.End(reason, time.Hour)
		p.End(errors.New("said too late"), 0)
		exit, err := p.Wait(t.Context())
		if err != nil || !errors.Is(exit.Ended, reason) || !exit.State.Success() {
			t.Errorf("got %+v, %v", exit, err)
		}
		// What it had printed can still be read.
		if rest, err := io.ReadAll(out); err != nil || string(rest) != "end\n" {
			t.Errorf("got %q, %v", rest, err)
		}
		if _, err := p.Stdin.Write([]byte("x")); err == nil {
			t.Error("stdin is still open")
		}
	})
}

func TestInteractiveProcessThatDoesNotGo(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		c := inSpace(t, s, "trap 'exit 4' TERM; echo; while :; do sleep 1000 & wait; done")
		c.Interactive, c.Grace = true, time.Hour
		p := must(Start(c))
		must(bufio.NewReader(p.Stdout).ReadString('\n'))
		p.End(nil, time.Millisecond)
		if exit, err := p.Wait(t.Context()); err != nil || exit.Ended != nil || exit.State.ExitCode() != 4 {
			t.Errorf("got %+v, %v", exit, err)
		}
	})
}

func TestStdoutIsReadToItsEndHoweverSlowly(t *testing.T) {
	// Given more than a pipe holds, so that the process ends only when some of it is read.
	c := shell(t, "head -c 100000 /dev/zero | tr '\\0' x")
	c.Interactive = true
	p := must(Start(c))
	start := make([]byte, 60000)
	must(io.ReadFull(p.Stdout, start))
	_, err := p.Wait(t.Context())
	check(err)
	if rest, err := io.ReadAll(p.Stdout); err != nil || len(rest) != 40000 {
		t.Errorf("got %d bytes, %v", len(rest), err)
	}
}

func TestReadingStdoutEndsWithWait(t *testing.T) {
	// Given a process that leaves the pipe to one which is not found.
	l := newLife(t)
	c := roleCommand(t, "leave", l.path, "setsid", "stdout", "unmarked")
	c.Interactive = true
	p := must(Start(c))
	read := make(chan []byte)
	go func() {
		all, err := io.ReadAll(p.Stdout)
		if err != nil {
			t.Error(err)
		}
		read <- all
	}()
	_, err := p.Wait(t.Context())
	check(err)
	var pid int
	must(fmt.Sscan(string(<-read), &pid))
	check(syscall.Kill(pid, syscall.SIGKILL))
	l.mustBeOver(t)
}

func TestStderrOfAnInteractiveProcess(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		c := inSpace(t, s, "echo log >&2; cat >/dev/null")
		var stderr bytes.Buffer
		c.Interactive, c.Stderr = true, &stderr
		p := must(Start(c))
		check(p.Stdin.Close())
		_, err := p.Wait(t.Context())
		check(err)
		if strings.TrimSpace(stderr.String()) != "log" {
			t.Errorf("got %q", stderr.String())
		}
	})
}

func TestStdinThatNobodyReadsDoesNotBlockTheEnd(t *testing.T) {
	everywhere(t, func(t *testing.T, s *Config) {
		c := inSpace(t, s, "exec sleep 1000")
		c.Interactive = true
		p := must(Start(c))
		check(p.Ready(t.Context()))
		written := make(chan error)
		go func() {
			_, err := p.Stdin.Write(make([]byte, 1<<20))
			written <- err
		}()
		p.End(nil, 0)
		_, err := p.Wait(t.Context())
		check(err)
		if err := <-written; err == nil {
			t.Error("the write succeeded")
		}
	})
}
