package sandbox

import (
	"bytes"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestWhatAProcessLeavesBehindIsEnded(t *testing.T) {
	for _, tt := range []struct {
		name  string
		how   []string
		sweep bool
	}{
		{"a child in its group", nil, false},
		{"a child in its group that holds stdout", []string{"stdout"}, false},
		{"a child in its group without the marker", []string{"unmarked", "stdout"}, false},
		{"a child in a session of its own", []string{"setsid"}, true},
		{"a daemon that holds stdout", []string{"setsid", "stdout"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.sweep && runtime.GOOS != "linux" {
				t.Skip("processes that left their group are found on Linux only")
			}
			l := newLife(t)
			exit, _ := run(t, roleCommand(t, "leave", append([]string{l.path}, tt.how...)...))
			if !exit.State.Success() || exit.Ended != nil {
				t.Errorf("got %+v", exit)
			}
			l.mustBeOver(t)
		})
	}
}

// Given two processes with one marker, when the one that shares it has ended, then what the other
// one has started lives on.
func TestSharedMarker(t *testing.T) {
	l := newLife(t)
	leave := roleCommand(t, "leave", l.path, "setsid")
	leave.Shared = true
	if exit, _ := run(t, leave); !exit.State.Success() {
		t.Fatalf("got %+v", exit)
	}
	other := Command{Marker: leave.Marker, Path: "/bin/sh", Args: []string{"sh", "-c", "exit 0"}, Shared: true}
	if exit, _ := run(t, other); !exit.State.Success() {
		t.Fatalf("got %+v", exit)
	}
	if runtime.GOOS != "linux" {
		t.Skip("processes that left their group are found on Linux only")
	}
	if n, err := Sweep(leave.Marker); err != nil || n != 1 {
		t.Errorf("%d processes were left to be ended, want one: %v", n, err)
	}
	l.mustBeOver(t)
}

func TestProcessThatEscapesDoesNotHoldUsUp(t *testing.T) {
	l := newLife(t)
	exit, out := run(t, roleCommand(t, "leave", l.path, "setsid", "stdout", "unmarked"))
	if !exit.State.Success() {
		t.Errorf("got %+v", exit)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	check(syscall.Kill(pid, syscall.SIGKILL))
	l.mustBeOver(t)
}

func TestProcessesThatKeepForkingAreEnded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes that left their group are found on Linux only")
	}
	l := newLife(t)
	exit, _ := run(t, roleCommand(t, "hop", l.path))
	if !exit.State.Success() {
		t.Errorf("got %+v", exit)
	}
	l.mustBeOver(t)
}

func TestSweepEndsTheProcessesOfTheGivenRollouts(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are found by their marker on Linux only")
	}
	// Given three rollouts, the id of one beginning like that of another.
	ids := []string{unique(t) + "-a", unique(t) + "-b", unique(t) + "-a-not"}
	processes := make([]*Process, len(ids))
	for i, id := range ids {
		started := make(chan struct{})
		c := shell(t, "echo; exec sleep 1000")
		c.Marker, c.Stdout = id, &announce{func() { close(started) }}
		processes[i] = must(Start(c))
		<-started
	}
	// When two of them are swept.
	n, err := Sweep(ids[0], ids[1])
	if n != 2 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	// Then those two are gone, and nothing is left to sweep.
	for _, p := range processes[:2] {
		if exit, err := p.Wait(t.Context()); err != nil || exit.State.String() != "signal: killed" || exit.Ended != nil {
			t.Errorf("got %+v, %v", exit, err)
		}
	}
	if n, err := Sweep(ids[0], ids[1]); n != 0 || err != nil {
		t.Errorf("second sweep: got %d, %v", n, err)
	}
	if err := syscall.Kill(processes[2].PID(), 0); err != nil {
		t.Errorf("the third rollout: %v", err)
	}
	check(syscall.Kill(processes[2].PID(), syscall.SIGKILL))
	_, err = processes[2].Wait(t.Context())
	check(err)
	if n, err := Sweep(); n != 0 || err != nil {
		t.Errorf("sweep of nothing: got %d, %v", n, err)
	}
}

func TestSweepAfterProcessIDsHaveStartedOver(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are found by their marker on Linux only")
	}
	for name, sweep := range map[string]func(marker string) error{
		"last id is lower":  func(marker string) error { return sweepAfter(math.MaxInt32, time.Now(), marker) },
		"a long time since": func(marker string) error { return sweepAfter(1, time.Now().Add(-time.Hour), marker) },
	} {
		started := make(chan struct{})
		c := shell(t, "echo; exec sleep 1000")
		c.Stdout = &announce{func() { close(started) }}
		p := must(Start(c))
		<-started
		if err := sweep(c.Marker); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if exit, err := p.Wait(t.Context()); err != nil || exit.State.String() != "signal: killed" {
			t.Errorf("%s: got %+v, %v", name, exit, err)
		}
	}
}

func TestMarked(t *testing.T) {
	for environ, want := range map[string]bool{
		"EVALRUN_ROLLOUT=r1\x00":                       true,
		"PATH=/bin\x00EVALRUN_ROLLOUT=r1\x00A=b\x00":   true,
		"EVALRUN_ROLLOUT=no\x00EVALRUN_ROLLOUT=r1\x00": true,
		"":                            false,
		"EVALRUN_ROLLOUT=r1":          false, // cut off
		"EVALRUN_ROLLOUT=r12\x00":     false,
		"EVALRUN_ROLLOUT=\x00":        false,
		"NOT_EVALRUN_ROLLOUT=r1\x00":  false,
		"X=EVALRUN_ROLLOUT=r1\x00":    false,
		"EVALRUN_ROLLOUT_ID=r1\x00":   false,
		"\x00\x00EVALRUN_ROLLOUT\x00": false,
	} {
		if got := marked([]byte(environ), map[string]bool{"r1": true}); got != want {
			t.Errorf("%q: got %v", environ, got)
		}
	}
}

func TestEnvironLeavesOutOurOwnVariables(t *testing.T) {
	env := []string{"PATH=/bin", "EVALRUN_STORE=/x", "EVALRUNNER=1", "EVALRUN_ROLLOUT=outer"}
	if got := Environ(env); !slices.Equal(got, []string{"PATH=/bin", "EVALRUNNER=1"}) {
		t.Errorf("got %q", got)
	}
	if len(env) != 4 || env[1] != "EVALRUN_STORE=/x" {
		t.Error("the argument was changed")
	}
}

func TestLargeEnvironmentIsReadWhole(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are found by their marker on Linux only")
	}
	c := shell(t, "echo; exec sleep 1000")
	// The shell sorts nothing away: the marker stays in front, so it is put behind with a second
	// shell.
	c.Args[2] = `exec env -u EVALRUN_ROLLOUT "BIG=$BIG" "EVALRUN_ROLLOUT=$EVALRUN_ROLLOUT" sh -c 'echo; exec sleep 1000'`
	c.Env = append(os.Environ(), "BIG="+string(bytes.Repeat([]byte("x"), 100_000)))
	started := make(chan struct{})
	c.Stdout = &announce{func() { close(started) }}
	p := must(Start(c))
	<-started
	if n, err := Sweep(c.Marker); n != 1 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	_, err := p.Wait(t.Context())
	check(err)
}
