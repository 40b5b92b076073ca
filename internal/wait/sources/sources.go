// Package sources knows all sources of jobs and chooses that of a trigger. It is the only package
// that knows them all, beside what starts evalrun itself.
package sources

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/wait"
	waitexec "github.com/evalrun/evalrun/internal/wait/exec"
	waithttp "github.com/evalrun/evalrun/internal/wait/http"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/uipath"
)

// Options are what [New] needs.
type Options struct {
	Jobs wait.Jobs
	// Resolve gives the value of a ${VAR}. Nil means that there are none.
	Resolve func(name string) (string, bool)
	// Exec is for jobs that are local commands. Its Resolve is replaced.
	Exec waitexec.Options
	// MCP asks MCP servers for what calls of their tools have started; nil means that nobody can.
	MCP wait.Source
	// Now and Rand (0 ≤ x < 1) are for tests; nil means the real ones.
	Now  func() time.Time
	Rand func() float64
	// HTTPClient is for tests; nil means one that gives up after 30 s. Its CheckRedirect is
	// replaced.
	HTTPClient *http.Client
}

// Set chooses the source of a trigger. It is safe for concurrent use.
type Set struct {
	o    Options
	http *httpcall.Client
}

// New returns the sources for an eval set's jobs.
func New(o Options) *Set {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	o.Exec.Resolve = o.Resolve
	return &Set{o: o, http: httpcall.New(o.HTTPClient, o.Rand, o.Now)}
}

// Name gives the name of the source for a spec. A job that exists already can be watched over HTTP
// or by UiPath's Orchestrator only; one that nobody is configured to start or to watch is external.
func (s *Set) Name(spec wait.Spec) string {
	switch spec.Type {
	case wait.TypeTimer:
		return wait.SourceTimer
	case wait.TypeMCPTask:
		if spec.CallID != "" && s.o.MCP != nil {
			return wait.SourceMCP
		}
	case wait.TypeJob:
		c := s.o.Jobs.ForProcess(spec.Process)
		switch {
		case c.Source == wait.SourceExec && spec.ItemKey == "" && c.ExecConfig != nil:
			return wait.SourceExec
		case c.Source == wait.SourceHTTP && c.HTTPConfig != nil && (spec.ItemKey != "" || c.Start != nil):
			return wait.SourceHTTP
		case c.Source == wait.SourceMCP && spec.CallID != "" && s.o.MCP != nil:
			return wait.SourceMCP
		case c.Source == wait.SourceUiPath && c.UiPathConfig != nil && (spec.ItemKey != "" || spec.Process != ""):
			return wait.SourceUiPath
		}
	}
	return wait.SourceExternal
}

// For returns the source with this name for a spec. The error says why the configuration has none.
func (s *Set) For(name string, spec wait.Spec) (wait.Source, error) {
	c := s.o.Jobs.ForProcess(spec.Process)
	switch {
	case name == wait.SourceExternal:
		return external{}, nil
	case name == wait.SourceMCP && s.o.MCP != nil:
		return s.o.MCP, nil
	case name == wait.SourceTimer && spec.ResumeAt != nil:
		return timer{s.o.Now}, nil
	case name == wait.SourceExec && c.Source == name && c.ExecConfig != nil:
		return waitexec.New(s.o.Exec, *c.ExecConfig), nil
	case name == wait.SourceHTTP && c.Source == name && c.HTTPConfig != nil:
		return waithttp.New(s.caller(c), *c.HTTPConfig)
	case name == wait.SourceUiPath && c.Source == name && c.UiPathConfig != nil:
		return uipath.New(s.caller(c), *c.UiPathConfig), nil
	}
	return nil, fmt.Errorf("the jobs of the eval set have no %s source for the process %q", name, cmp.Or(spec.Process, "*"))
}

// caller sends the requests of a source that is configured so.
func (s *Set) caller(c wait.JobConfig) httpcall.Caller {
	return httpcall.Caller{Client: s.http, Resolve: s.o.Resolve, Polling: c.Polling}
}

// Close closes idle connections. Sources may be used again after it.
func (s *Set) Close() { s.http.Close() }
