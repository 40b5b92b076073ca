// Package command has the evaluator that runs a program of the user's.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/eval/spans"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

const (
	// commandOutput is how much a command evaluator may print.
	commandOutput = 1 << 20
	// commandStderr is how much of its stderr is kept for the error message.
	commandStderr = 2 << 10
	// commandGrace is how long a child of the command may hold its stdout open after it has ended.
	commandGrace = 2 * time.Second
)

// commandInput is the document that a command evaluator gets on stdin.
type commandInput struct {
	Evaluation commandEvaluation `json:"evaluation"`
	// Criteria are the evaluation's criteria for this evaluator, null if there are none.
	Criteria  *pyvalue.Object   `json:"criteria"`
	Output    json.RawMessage   `json:"output"`
	ToolCalls []spans.ToolCall  `json:"toolCalls"`
	Trace     []json.RawMessage `json:"trace"`
	RolloutID string            `json:"rolloutId"`
	Agent     string            `json:"agent"`
	Epoch     int               `json:"epoch"`
	Workspace string            `json:"workspace"`
	// Resume holds the payloads for which the evaluator has waited, by the ids of its interrupts, and
	// Deliveries all else that is known of them; nil if it has not waited.
	Resume     map[string]json.RawMessage `json:"resume,omitempty"`
	Deliveries map[string]eval.Delivery   `json:"deliveries,omitempty"`
}

type commandEvaluation struct {
	ID                    string                     `json:"id"`
	Name                  string                     `json:"name"`
	Inputs                json.RawMessage            `json:"inputs"`
	ExpectedOutput        json.RawMessage            `json:"expectedOutput"`
	Criteria              map[string]json.RawMessage `json:"criteria"`
	ExpectedAgentBehavior string                     `json:"expectedAgentBehavior,omitempty"`
}

// Type is the type of the evaluator that runs a program.
const Type = "command"

// Kinds has the one kind of evaluator that runs a program.
var Kinds = evaluator.Kinds{Type: commandType}

var commandType = evaluator.Kind{
	KeysBeside: true,
	Read:       command,
	About: "Runs your own program, which reads the rollout as JSON on stdin and prints `{\"score\": …}`: " +
		"[evalsets.md](evalsets.md#evaluators).",
	Keys: []evaluator.Key{{Name: "command", Kind: input.Array, Required: true,
		About: "the program and its arguments; it runs in the folder of the eval set"}},
}

// command is an evaluator that runs a program. The program gets the rollout as one JSON document on
// stdin, and prints on stdout
//
//	{"score": 0.5, "details": "a string or an object, optional"}
//
// with a score from 0 to 1. If it has to wait for something first it prints
//
//	{"__interrupt__": …}
//
// as an agent does, and ends. When the answer has arrived the program is called again, with the
// answer under "resume". The program runs in the eval set's folder joined with Definition.Dir, with
// Subject.Env for its environment, in a process group of its own that ends with the context.
func command(e *evaluator.Evaluator, c *evaluator.Config) {
	argv := c.Strings("command")
	if n := c.Required("command", input.Array); n != nil &&
		(len(n.Items) == 0 || len(argv) == len(n.Items) && argv[0] == "") {
		c.Errorf(n, "expected a program and its arguments")
	}
	e.CriteriaOptional = true
	call := func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object,
		deliveries map[string]eval.Delivery) evaluator.Outcome {
		stdin, err := commandDocument(s, criteria, deliveries)
		if err != nil {
			return evaluator.Outcome{Failure: err}
		}
		dir := filepath.Join(s.Dir, filepath.FromSlash(e.Def.Dir))
		stdout, err := runCommand(ctx, argv, dir, s.Env, stdin)
		if err != nil {
			return evaluator.Outcome{Failure: err}
		}
		return commandAnswer(stdout)
	}
	e.Score = func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		return call(ctx, s, criteria, nil)
	}
	e.Continue = func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object,
		deliveries map[string]eval.Delivery) evaluator.Outcome {
		if err := evaluator.Undelivered(deliveries); err != nil {
			return evaluator.Outcome{Failure: err}
		}
		return call(ctx, s, criteria, deliveries)
	}
}

func commandDocument(s eval.Subject, criteria *pyvalue.Object, deliveries map[string]eval.Delivery) ([]byte, error) {
	in := commandInput{
		Evaluation: commandEvaluation{s.Evaluation.ID, s.Evaluation.Name, s.Evaluation.Inputs,
			s.Evaluation.ExpectedOutput,
			s.Evaluation.Criteria, s.Evaluation.ExpectedAgentBehavior},
		Criteria: criteria, Output: s.Output, ToolCalls: spans.ToolCalls(s.Trace), Trace: []json.RawMessage{},
		RolloutID: s.RolloutID, Agent: s.Agent, Epoch: s.Epoch, Workspace: s.Workspace,
	}
	if len(criteria.Keys) == 0 {
		in.Criteria = nil
	}
	if deliveries != nil {
		in.Deliveries, in.Resume = deliveries, make(map[string]json.RawMessage, len(deliveries))
		for id, d := range deliveries {
			in.Resume[id] = d.Payload
		}
	}
	for _, segment := range s.Trace {
		for _, span := range segment {
			if json.Valid(span) {
				in.Trace = append(in.Trace, span)
			}
		}
	}
	return jsonobj.Marshal(in)
}

// runCommand runs one command evaluator and returns its stdout.
func runCommand(ctx context.Context, argv []string, dir string, env []string, stdin []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append([]string{}, env...) // never nil, which would mean this process's own
	cmd.Stdin = bytes.NewReader(stdin)
	stdout, stderr := &limited{max: commandOutput}, &tail{max: commandStderr}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = commandGrace
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the evaluator: %w", err)
	}
	err := cmd.Wait()
	_ = killGroup(cmd.Process.Pid) // anything that the command left behind; ESRCH if nothing
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return nil, fmt.Errorf("the evaluator timed out%s", stderr)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the evaluator was ended: %w", context.Cause(ctx))
	case stdout.full:
		return nil, fmt.Errorf("the evaluator printed more than %d bytes", commandOutput)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, fmt.Errorf("the evaluator failed: %w%s", err, stderr)
	}
	return stdout.buffer.Bytes(), nil
}

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }

func commandAnswer(stdout []byte) evaluator.Outcome {
	const want = `expected one JSON document such as {"score": 0.5}`
	v, err := pyvalue.Parse(stdout)
	if err != nil {
		return evaluator.Broken("the evaluator's answer is %w; %s", err, want)
	}
	answer, ok := v.(*pyvalue.Object)
	if !ok {
		return evaluator.Broken("the evaluator's answer is %s; %s", pyvalue.KindOf(v), want)
	}
	var twice input.Problem
	if _, err := input.ParseJSON("the evaluator's answer", stdout); errors.As(err, &twice) && twice.Key == "score" {
		return evaluator.Broken("the evaluator's answer: score: %s", twice.Message)
	}
	if _, waits := answer.Values[interruptKey]; waits {
		return commandWaits(stdout, answer)
	}
	score, ok := answer.Values["score"].(pyvalue.Number)
	if !ok || score.Float < 0 || score.Float > 1 {
		return evaluator.Broken("the evaluator's answer: score: expected a number from 0 to 1, got %s",
			pyvalue.Str(answer.Values["score"]))
	}
	details := answer.Values["details"]
	switch details.(type) {
	case nil, string, *pyvalue.Object:
		return evaluator.Outcome{Score: score.Float, Details: details}
	}
	return evaluator.Broken("the evaluator's answer: details: expected a string or an object, got %s",
		pyvalue.KindOf(details))
}

// interruptKey is the key under which a program prints the interrupts that it waits for.
const interruptKey = "__interrupt__"

func commandWaits(stdout []byte, answer *pyvalue.Object) evaluator.Outcome {
	if _, both := answer.Values["score"]; both {
		return evaluator.Broken("the evaluator's answer: expected either a score or %s, got both", interruptKey)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(stdout, &raw); err != nil {
		return evaluator.Broken("the evaluator's answer: %s: %w", interruptKey, err)
	}
	return evaluator.Outcome{Wait: raw[interruptKey]}
}

// limited is a buffer that fails when more than max bytes are written to it, which ends the writer
// with SIGPIPE.
type limited struct {
	buffer bytes.Buffer // not embedded: its ReadFrom would go round Write
	max    int
	full   bool
}

func (l *limited) Write(p []byte) (int, error) {
	if l.buffer.Len()+len(p) > l.max {
		l.full = true
		return 0, errors.New("too much output")
	}
	return l.buffer.Write(p)
}

// tail keeps the last max bytes written to it.
type tail struct {
	data []byte
	max  int
}

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if n := len(t.data) - t.max; n > 0 {
		t.data = append(t.data[:0], t.data[n:]...)
	}
	return len(p), nil
}

// String returns the end of an error message: the text after a colon, nothing if there is none.
func (t *tail) String() string {
	text := strings.ToValidUTF8(strings.TrimSpace(string(t.data)), "")
	if text == "" {
		return ""
	}
	return ": " + text
}
