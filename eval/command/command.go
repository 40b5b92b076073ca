// Package command has the evaluator that runs a program of the user's.
package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/usercode"
	"github.com/evalrun/evalrun/internal/input"
)

const (
	// commandOutput is how much a command evaluator may print.
	commandOutput = 1 << 20
	// commandStderr is how much of its stderr is kept for the error message.
	commandStderr = 2 << 10
	// commandGrace is how long a child of the command may hold its stdout open after it has ended.
	commandGrace = 2 * time.Second
)

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
	usercode.Bind(e, func(ctx context.Context, s eval.Subject, document []byte) ([]byte, error) {
		return runCommand(ctx, argv, filepath.Join(s.Dir, filepath.FromSlash(e.Def.Dir)), s.Env, document)
	})
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
