// Package sources knows all sources of jobs and chooses the one of a trigger. Only this package and
// evalrun's start-up code know them all.
package sources

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/wait"
	waitexec "github.com/evalrun/evalrun/internal/wait/exec"
	waithttp "github.com/evalrun/evalrun/internal/wait/http"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/mesh"
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
	// configured are the sources of the eval set's jobs, by the names of their processes.
	configured map[string]configured
}

// configured is one entry of the eval set's jobs with the source that it is about, or why that
// cannot be made. Both are nil if there is none.
type configured struct {
	wait.JobConfig
	source wait.Source
	err    error
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
	s := &Set{o: o, http: httpcall.New(o.HTTPClient, o.Rand, o.Now), configured: map[string]configured{}}
	for process, c := range o.Jobs {
		s.configured[process] = s.configure(c)
	}
	return s
}

// configure makes the source of an entry.
func (s *Set) configure(c wait.JobConfig) configured {
	out := configured{JobConfig: c}
	caller := httpcall.Caller{Client: s.http, Resolve: s.o.Resolve, Polling: c.Polling}
	switch {
	case c.Source == wait.SourceExec && c.ExecConfig != nil:
		out.source = waitexec.New(s.o.Exec, *c.ExecConfig)
	case c.Source == wait.SourceHTTP && c.HTTPConfig != nil:
		out.source, out.err = waithttp.New(caller, *c.HTTPConfig)
	case c.Source == wait.SourceUiPath && c.UiPathConfig != nil:
		out.source = uipath.New(caller, *c.UiPathConfig)
	case c.Source == wait.SourceMesh && c.Mesh != nil:
		out.source = mesh.New(caller, *c.Mesh)
	case c.Source == wait.SourceMCP:
		out.source = s.o.MCP
	}
	return out
}

// configuredFor gives the entry for the job of a spec: that of its process, or that of "*". ok is
// false if it can neither start nor watch it. A job that exists already can be watched over HTTP,
// by UiPath's Orchestrator, or by the server whose tool has started it.
func (s *Set) configuredFor(spec wait.Spec) (c configured, ok bool) {
	if c, ok = s.configured[spec.Process]; !ok {
		c, ok = s.configured["*"]
	}
	if !ok && spec.Type == wait.TypeMeshJob && spec.ItemKey != "" && spec.CallID == "" {
		c = s.onlyMesh()
	}
	switch c.Source {
	case wait.SourceExec:
		ok = c.ExecConfig != nil && spec.ItemKey == ""
	case wait.SourceHTTP:
		ok = c.HTTPConfig != nil && (spec.ItemKey != "" || c.Start != nil)
	case wait.SourceUiPath:
		ok = c.UiPathConfig != nil && (spec.ItemKey != "" || spec.Process != "")
	case wait.SourceMesh:
		ok = c.source != nil && (spec.ItemKey != "" || spec.Process != "")
	case wait.SourceMCP:
		ok = c.source != nil && spec.CallID != ""
	case wait.SourceFixed:
		ok = c.Fixed != nil && spec.CallID == ""
	default:
		ok = false
	}
	return c, ok
}

// onlyMesh gives an entry for the registry of MCP Mesh, if the entries name no more than one: a job
// that exists is found there whatever its capability.
func (s *Set) onlyMesh() (found configured) {
	for _, process := range slices.Sorted(maps.Keys(s.configured)) {
		switch c := s.configured[process]; {
		case c.Source != wait.SourceMesh || c.Mesh == nil:
		case found.Mesh == nil:
			found = c
		case c.Mesh.URL != found.Mesh.URL:
			return configured{}
		}
	}
	return found
}

// Name gives the name of the source for a spec. A spec is external if nobody is configured to start
// or to watch it.
func (s *Set) Name(spec wait.Spec) string {
	switch spec.Type {
	case wait.TypeTimer:
		return wait.SourceTimer
	case wait.TypeMCPTask:
		if spec.CallID != "" && s.o.MCP != nil {
			return wait.SourceMCP
		}
	case wait.TypeMeshJob:
		if c, ok := s.configuredFor(spec); ok && (c.Source == wait.SourceMesh || c.Source == wait.SourceFixed) {
			return c.Source
		}
		if spec.CallID != "" && s.o.MCP != nil {
			return wait.SourceMCP // its server tells of it, too
		}
	case wait.TypeJob:
		if spec.Watch != nil {
			return wait.SourceHTTPAgent
		}
		if c, ok := s.configuredFor(spec); ok {
			return c.Source
		}
	}
	return wait.SourceExternal
}

// For returns the source with this name for a spec. The error says why the configuration has none.
func (s *Set) For(name string, spec wait.Spec) (wait.Source, error) {
	c, ok := s.configuredFor(spec)
	switch {
	case name == wait.SourceExternal || wait.IsBatch(name): // the engine delivers the answers of batches
		return external{}, nil
	case name == wait.SourceMCP && s.o.MCP != nil:
		return s.o.MCP, nil
	case name == wait.SourceHTTPAgent:
		return waithttp.NewAnswer(httpcall.Caller{Client: s.http, Resolve: s.o.Resolve}, spec.Watch)
	case name == wait.SourceFixed && spec.Played != nil:
		return fixed{s.o.Now, *spec.Played}, nil
	case name == wait.SourceTimer && spec.ResumeAt != nil:
		return timer{s.o.Now}, nil
	case ok && c.Source == name:
		return c.source, c.err
	}
	return nil, fmt.Errorf(
		"the jobs of the eval set have no %s source for the process %q", name, cmp.Or(spec.Process, "*"))
}

// CheckWork asks once whether a job that the call of a tool has started is done. A fault becomes a
// payload, as Orchestrator gives it. The error is [wait.ErrUnwatched] if no source but the server
// itself could tell.
func (s *Set) CheckWork(ctx context.Context, w wait.Work) (wait.Status, error) {
	spec, err := w.Spec()
	if err != nil {
		return wait.Status{}, err
	}
	c, ok := s.configuredFor(spec)
	switch {
	case !ok || c.Source == wait.SourceMCP:
		return wait.Status{}, wait.ErrUnwatched
	case c.err != nil:
		return wait.Status{}, c.err
	}
	status, err := c.source.Check(ctx, wait.Job{ItemKey: spec.ItemKey, Spec: spec})
	if err == nil && status.Fault != nil {
		status.Payload, err = json.Marshal(map[string]string{"state": "Faulted", "info": status.Fault.Message})
	}
	return status, err
}

// Close closes idle connections. Sources may be used again after it.
func (s *Set) Close() { s.http.Close() }
