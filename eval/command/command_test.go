package command_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/internal/testenv"
)

// runScript runs a command evaluator that is a shell script.
func runScript(t *testing.T, ctx context.Context, script string) eval.Result {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "check.sh"), []byte("#!/bin/sh\n"+script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	e, err := kinds.All.New(eval.Definition{ID: "c", Name: "C", Type: "command", Weight: 1, Dir: ".", Config: json.RawMessage(`{"command":["./check.sh"]}`)})
	if err != nil {
		t.Fatal(err)
	}
	results := e.Evaluate(ctx, eval.Subject{
		Evaluation: eval.Evaluation{ID: "1", Name: "one", Inputs: json.RawMessage(`{"a":1}`),
			Criteria: map[string]json.RawMessage{"c": json.RawMessage(`{"want":2}`)}},
		RolloutID: "r", Agent: "a", Epoch: 3, Output: json.RawMessage(`{"x":1}`), Dir: dir, Workspace: "/ws",
		Trace: [][]json.RawMessage{{json.RawMessage(`{"attributes":{"tool.name":"t","tool.id":"i"}}`), json.RawMessage(`{"torn`)}},
		Env:   []string{"PATH=/usr/bin:/bin", "GREETING=hello"},
	}).Results
	if len(results) != 1 {
		t.Fatalf("got %d results", len(results))
	}
	return results[0]
}

func TestCommandGetsTheWholeEvaluation(t *testing.T) {
	r := runScript(t, t.Context(), `cat > stdin.json; printf '{"score":0.5,"details":{"stdin":%s}}' "$(cat stdin.json)"`)
	evaltest.WantScore(t, r, 0.5)
	want := `{"stdin":{"evaluation":{"id":"1","name":"one","inputs":{"a":1},"expectedOutput":null,"criteria":{"c":{"want":2}}},` +
		`"criteria":{"want":2},"output":{"x":1},"toolCalls":[{"name":"t","id":"i","args":{},"output":""}],` +
		`"trace":[{"attributes":{"tool.name":"t","tool.id":"i"}}],"rolloutId":"r","agent":"a","epoch":3,"workspace":"/ws"}}`
	if string(r.Details) != want {
		t.Errorf("stdin\n got %s\nwant %s", r.Details, want)
	}
}

func TestCommandAnswers(t *testing.T) {
	for _, v := range []struct {
		name, script, error, details string
		score                        float64
	}{
		{"a score alone", `echo '{"score": 1}'`, ``, ``, 1},
		{"details as text", `echo '{"score": 0, "details": "no"}'`, ``, `"no"`, 0},
		{"only the environment that was given", `printf '{"score":1,"details":"%s %s"}' "$GREETING" "$HOME"`, ``, `"hello "`, 1},
		{"stdin not read", `exec echo '{"score": 1}'`, ``, ``, 1},
		{"no JSON", `echo done`, `the evaluator's answer is not valid JSON; expected one JSON document such as {"score": 0.5}`, ``, 0},
		{"nothing", `:`, `the evaluator's answer is null; expected one JSON document such as {"score": 0.5}`, ``, 0},
		{"two documents", `echo '{"score":1}{"score":1}'`, `the evaluator's answer is not valid JSON; expected one JSON document such as {"score": 0.5}`, ``, 0},
		{"no score", `echo '{}'`, `the evaluator's answer: score: expected a number from 0 to 1, got None`, ``, 0},
		{"score out of range", `echo '{"score": 1.5}'`, `the evaluator's answer: score: expected a number from 0 to 1, got 1.5`, ``, 0},
		{"two scores", `echo '{"score": 0, "score": 1}'`, `the evaluator's answer: score: the key is given twice`, ``, 0}, // V13
		{"details of another kind", `echo '{"score": 1, "details": []}'`, `the evaluator's answer: details: expected a string or an object, got an array`, ``, 0},
		{"exit status", `echo oops >&2; exit 3`, `the evaluator failed: exit status 3: oops`, ``, 0},
		{"only the tail of stderr", `i=0; while [ $i -lt 300 ]; do echo 0123456789 >&2; i=$((i+1)); done; echo end >&2; exit 1`, ``, ``, 0},
		{"endless output", `yes`, `the evaluator printed more than 1048576 bytes`, ``, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			r := runScript(t, t.Context(), v.script)
			if v.name == "only the tail of stderr" {
				if !strings.HasSuffix(r.Error, "\nend") || len(r.Error) > (2<<10)+100 {
					t.Errorf("error of %d bytes: %q", len(r.Error), r.Error)
				}
				return
			}
			if r.Error != v.error || string(r.Details) != v.details {
				t.Errorf("got error %q, details %s", r.Error, r.Details)
			}
			if v.error != "" { // no score, not even 0
				evaltest.Absent(t, "score", r.Score)
				return
			}
			evaltest.WantScore(t, r, v.score)
		})
	}
}

func TestCommandThatCannotStart(t *testing.T) {
	e, err := kinds.All.New(evaltest.Definition("command", `{"command":["./nowhere"]}`))
	if err != nil {
		t.Fatal(err)
	}
	r := e.Evaluate(t.Context(), eval.Subject{Dir: t.TempDir(), Evaluation: eval.Evaluation{Criteria: map[string]json.RawMessage{"e": nil}}}).Results[0]
	if r.Score != nil || !strings.HasPrefix(r.Error, "cannot start the evaluator: ") {
		t.Errorf("error %q", r.Error)
	}
}

// Given a command that starts a child and waits for ever, when its time is over, then both are
// gone.
func TestCommandEndsWithItsGroup(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	if err := syscall.Mkfifo(pids, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	started := make(chan []string, 1)
	go func() {
		data, err := os.ReadFile(pids) // until the script has written both
		if err != nil {
			t.Error(err)
		}
		started <- strings.Fields(string(data))
		cancel(context.DeadlineExceeded)
	}()
	r := runScript(t, ctx, `sleep 1000 & echo "$$ $!" > `+pids+`; wait`)
	if r.Error != "the evaluator timed out" {
		t.Errorf("error %q", r.Error)
	}
	for _, text := range <-started {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		if !gone(t, pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
}

// gone waits for init to reap an orphan; a zombie counts as gone.
func gone(t *testing.T, pid int) bool {
	t.Helper()
	return testenv.Eventually(func() bool {
		if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
			return true
		}
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		return err == nil && strings.Contains(string(stat), ") Z ")
	})
}

func TestCommandThatIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := runScript(t, ctx, `sleep 1000`); !strings.Contains(r.Error, "context canceled") {
		t.Errorf("error %q", r.Error)
	}
}
