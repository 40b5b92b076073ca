package agent

import (
	"bytes"
	"io"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/modelproxy"
	"github.com/evalrun/evalrun/internal/sandbox"
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

// Sandbox describes the sandbox in which an agent is started.
type Sandbox struct {
	// Config says what its processes see of the machine. The agent itself adds the folders of its
	// program and the way to its model.
	Config sandbox.Config
	// Setup runs before the agent starts; nil means no setup.
	Setup *sandbox.Setup
	// Home and Cwd are the agent's home and its working directory as its processes see them.
	// Without a home a process has the home of its user in the image, and Env is all of its
	// environment.
	Home string
	Cwd  string
	// Env are the sandbox's own environment variables. Those of the agent's entry override them.
	Env []string
	// Sockets is a folder of this machine for unix sockets; its path is short.
	Sockets string
	// Executable is the evalrun program.
	Executable string
	// Arch is the architecture of the image as Go names it. Has reports whether the image has a path; it is asked
	// before anything runs there. It is nil without an image.
	Arch string
	Has  func(inside string) (bool, error)
}
