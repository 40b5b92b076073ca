package agent

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/modelproxy"
)

// Options are what an agent needs beside its entry. The zero value is usable.
type Options struct {
	// Resolve gives the value of a ${VAR}; nil looks into evalrun's own environment.
	Resolve func(name string) (value string, ok bool)
	// Redact stands before every file that an agent's output goes to and before every message; nil lets all pass.
	// Closing flushes what is held back and does not close w.
	Redact func(w io.Writer) io.WriteCloser
	// Models is where ACP agents find their models; nil for agents that have credentials of their own.
	Models *modelproxy.Proxy
	// Gateway is the MCP gateway for segments that have their servers behind it.
	Gateway *gateway.Gateway
	// Version is evalrun's own, which ACP agents are told.
	Version string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Grace is the time between SIGTERM and SIGKILL; 0 means two seconds.
	Grace time.Duration
}

// New makes an agent of an entry.
func New(e Entry, opts Options) (Agent, error) {
	switch e.Type {
	case TypeFunction, TypeACP:
		if len(e.Command) == 0 || e.Command[0] == "" {
			return nil, fmt.Errorf("agent %q has no command", e.Name)
		}
		if e.Type == TypeACP {
			return newACPAgent(e, opts), nil
		}
		return &function{entry: e, opts: opts}, nil
	case TypeOracle:
		return &oracle{opts: opts}, nil
	case TypeNop:
		return nop{}, nil
	}
	return nil, fmt.Errorf("agent %q: type %q is not supported by this version; supported: %s", e.Name, e.Type, strings.Join(types, ", "))
}

// redact passes a text through Options.Redact.
func (o Options) redact(s string) string {
	if o.Redact == nil {
		return s
	}
	var b bytes.Buffer
	w := o.Redact(&b)
	_, _ = io.WriteString(w, s) // a buffer does not fail
	_ = w.Close()
	return b.String()
}
