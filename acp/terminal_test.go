package acp

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// terminalState is the result of terminal/output.
type terminalState struct {
	Output    string
	Truncated bool
	Exit      *TerminalExit `json:"exitStatus"`
}

// shellIn starts a shell in a terminal.
func shellIn(t *testing.T, ts *Terminals, script string, limit *int) terminalID {
	t.Helper()
	id, err := ts.create(t.Context(), createTerminal{Command: "sh", Args: []string{"-c", script}, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return id.(terminalID)
}

func (t *Terminals) state(test *testing.T, id terminalID) (s terminalState) {
	test.Helper()
	result, err := t.output(test.Context(), id)
	if err != nil {
		test.Fatal(err)
	}
	raw, err := json.Marshal(result)
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	if err != nil {
		test.Fatal(err)
	}
	return s
}

func openTerminals(t *testing.T, o TerminalsOptions) *Terminals {
	t.Helper()
	if o.Start == nil {
		o.Start = startCommand
	}
	ts, err := NewTerminals(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ts.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return ts
}

func TestTerminalKeepsTheEndOfItsOutput(t *testing.T) {
	in, _ := inAndOut(t)
	ts := openTerminals(t, TerminalsOptions{Roots: folders(in), MaxOutput: 1000})
	limit := func(n int) *int { return &n }
	for _, v := range []struct {
		script string
		limit  *int
		want   string
		cut    bool
	}{
		{"printf abc; printf def >&2", nil, "abcdef", false},
		{"printf abcdef", limit(6), "abcdef", false},
		{"printf abcdef", limit(4), "cdef", true},
		{"printf abcdef", limit(0), "", true},
		{"printf 'aéé'", limit(3), "é", true}, // é has two bytes
		{"printf '%05000d' 7", limit(1 << 40), strings.Repeat("0", 999) + "7", true},
		{`printf 'a\377b'`, nil, "a\uFFFDb", false},
	} {
		id := shellIn(t, ts, v.script, v.limit)
		if exit, err := ts.waitForExit(t.Context(), id); err != nil || *exit.(TerminalExit).Code != 0 {
			t.Fatalf("%s: got %+v, %v", v.script, exit, err)
		}
		if got := ts.state(t, id); got.Output != v.want || got.Truncated != v.cut || got.Exit == nil {
			t.Errorf("%s: got %+v", v.script, got)
		}
	}
}

func TestTerminalEnds(t *testing.T) {
	in, _ := inAndOut(t)
	ts := openTerminals(t, TerminalsOptions{Roots: folders(in)})
	id := shellIn(t, ts, "sleep 600", nil)
	if s := ts.state(t, id); s.Exit != nil {
		t.Fatalf("got %+v", s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ts.waitForExit(ctx, id); code(err) != CodeCancelled {
		t.Errorf("got %v", err)
	}
	if _, err := ts.kill(t.Context(), id); err != nil {
		t.Error(err)
	}
	exit, err := ts.waitForExit(testContext(t), id)
	if e := exit.(TerminalExit); err != nil || e.Code != nil || e.Signal == nil || *e.Signal != "killed" {
		t.Errorf("got %+v, %v", exit, err)
	}
	if s := ts.state(t, id); s.Exit == nil || *s.Exit.Signal != "killed" { // a killed terminal can still be read
		t.Errorf("got %+v", s)
	}
	if _, err := ts.release(t.Context(), id); err != nil {
		t.Error(err)
	}
	if _, err := ts.kill(t.Context(), id); code(err) != CodeResourceMissing {
		t.Errorf("got %v", err)
	}
}

func TestCloseEndsEveryTerminal(t *testing.T) {
	in, _ := inAndOut(t)
	var started []commandProcess
	ts := openTerminals(t, TerminalsOptions{Roots: folders(in), Start: func(c TerminalCommand) (TerminalProcess, error) {
		p, err := startCommand(c)
		started = append(started, p.(commandProcess))
		return p, err
	}})
	released := shellIn(t, ts, "sleep 600", nil)
	for range 3 {
		shellIn(t, ts, "sleep 600 & sleep 600", nil)
	}
	if _, err := ts.release(t.Context(), released); err != nil {
		t.Error(err)
	}
	if err := ts.Close(); err != nil {
		t.Error(err)
	}
	for _, p := range started {
		if p.ProcessState == nil {
			t.Fatal("Close has not waited")
		}
		if err := syscall.Kill(-p.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
			// What the shell started is reaped by somebody else, in his time.
			if !zombies(p.Process.Pid) {
				t.Errorf("process group %d: %v", p.Process.Pid, err)
			}
		}
	}
	if _, err := ts.create(t.Context(), createTerminal{Command: "true"}); err == nil {
		t.Error("a terminal was started after Close")
	}
}

// zombies says whether all that is left of a process group awaits its parent's wait.
func zombies(pgid int) bool {
	out, err := exec.Command("ps", "-A", "-o", "pgid=,stat=").Output()
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == strconv.Itoa(pgid) && !strings.HasPrefix(f[1], "Z") {
			return false
		}
	}
	return true
}

func TestTerminalsStartWhereTheyMay(t *testing.T) {
	in, out := inAndOut(t)
	if err := os.Symlink(out, filepath.Join(in, "link")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(in, "file"), "")
	if err := os.Mkdir(filepath.Join(in, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	var started []TerminalCommand
	refuse := errors.New("no such program")
	ts := openTerminals(t, TerminalsOptions{Roots: folders(in), Start: func(c TerminalCommand) (TerminalProcess, error) {
		started = append(started, c)
		return nil, refuse
	}})
	for _, cwd := range []string{out, in + "/link", in + "/file", in + "/..", "sub", in + "/missing"} {
		if _, err := ts.create(t.Context(), createTerminal{Command: "x", Cwd: &cwd}); code(err) != CodeInvalidParams {
			t.Errorf("%s: got %v", cwd, err)
		}
	}
	if len(started) != 0 {
		t.Errorf("started %+v", started)
	}
	if _, err := ts.create(t.Context(), createTerminal{}); code(err) != CodeInvalidParams {
		t.Errorf("no command: got %v", err)
	}
	sub := in + "/sub"
	for _, cwd := range []*string{nil, &sub} {
		if _, err := ts.create(t.Context(), createTerminal{Command: "x", Args: []string{"a"}, Env: []KeyValue{{"A", "b"}}, Cwd: cwd}); !errors.Is(err, refuse) {
			t.Errorf("got %v", err)
		}
	}
	if len(started) != 2 || started[0].Cwd != in || started[1].Cwd != sub || started[1].Args[0] != "a" || started[1].Env[0].Value != "b" {
		t.Errorf("started %+v", started)
	}
}

func TestTerminalsAreFew(t *testing.T) {
	in, _ := inAndOut(t)
	ts := openTerminals(t, TerminalsOptions{Roots: folders(in), Start: func(TerminalCommand) (TerminalProcess, error) { return endedProcess{}, nil }})
	var id terminalID
	for range maxTerminals {
		id = shellIn(t, ts, "", nil)
	}
	if _, err := ts.create(t.Context(), createTerminal{Command: "x"}); err == nil || !strings.Contains(err.Error(), "release some") {
		t.Errorf("got %v", err)
	}
	if _, err := ts.release(t.Context(), id); err != nil {
		t.Error(err)
	}
	shellIn(t, ts, "", nil)
}

// endedProcess is a process that does nothing.
type endedProcess struct{}

func (endedProcess) Wait() TerminalExit { return TerminalExit{} }
func (endedProcess) Kill() error        { return nil }
