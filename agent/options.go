package agent

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Options are what an agent needs beside its entry. The zero value is usable.
type Options struct {
	// Resolve gives the value of a ${VAR}; nil looks into evalrun's own environment.
	Resolve func(name string) (value string, ok bool)
	// Redact stands before every file that an agent's output goes to and before every message; nil lets all pass.
	// Closing flushes what is held back and does not close w.
	Redact func(w io.Writer) io.WriteCloser
	// Grace is the time between SIGTERM and SIGKILL; 0 means two seconds.
	Grace time.Duration
}

// New makes an agent of an entry.
func New(e Entry, opts Options) (Agent, error) {
	if e.Type != typeFunction {
		return nil, fmt.Errorf("agent %q: type %q is not supported by this version; supported: %s", e.Name, e.Type, typeFunction)
	}
	if len(e.Command) == 0 || e.Command[0] == "" {
		return nil, errors.New("the agent has no command")
	}
	return &function{entry: e, opts: opts}, nil
}
