package agent

import (
	"bytes"
	"io"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/modelproxy"
)

// Options holds what every agent needs beside its entry. The zero value is usable.
type Options struct {
	// Resolve returns the value of a ${VAR}; nil looks it up in evalrun's own environment.
	Resolve func(name string) (value string, ok bool)
	// Redact filters every file with an agent's output and every message; nil filters nothing.
	// Close writes the rest of the output and does not close w.
	Redact func(w io.Writer) io.WriteCloser
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Grace is the time between SIGTERM and SIGKILL; 0 means two seconds.
	Grace time.Duration
	// Models is the proxy by which agents that need it reach their models. Gateway is the MCP
	// gateway for segments that have their servers behind it.
	Models  *modelproxy.Proxy
	Gateway *gateway.Gateway
	// Version is evalrun's own version, which agents are told.
	Version string
}

// RedactText passes a text through Options.Redact.
func (o Options) RedactText(s string) string {
	if o.Redact == nil {
		return s
	}
	var b bytes.Buffer
	w := o.Redact(&b)
	_, _ = io.WriteString(w, s) // a buffer does not fail
	_ = w.Close()
	return b.String()
}
