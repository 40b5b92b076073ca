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
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/a2a"
	"github.com/evalrun/evalrun/internal/wait/exec"
	waithttp "github.com/evalrun/evalrun/internal/wait/http"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/langgraph"
	"github.com/evalrun/evalrun/internal/wait/mesh"
	"github.com/evalrun/evalrun/internal/wait/uipath"
)

// Set chooses the source of a trigger. It is safe for concurrent use.
type Set struct {
	env wait.Env
	// configured are the sources of the eval set's jobs, by the names of their processes.
	configured map[string]configured
}

// agents makes the sources of agents which are services, from what a trigger watches.
var agents = map[string]func(httpcall.Caller, json.RawMessage) (wait.Source, error){
	wait.SourceHTTPAgent: waithttp.NewAnswer,
	wait.SourceA2A:       a2a.NewSource,
	wait.SourceLangGraph: langgraph.NewSource,
}

// configured is one entry of the eval set's jobs with the source that it is about, or why that
// cannot be made. Both are nil if there is none.
type configured struct {
	wait.JobConfig
	source wait.Source
	err    error
}

// New returns the sources for an eval set's jobs. Of e, HTTP is for tests, as are Now and Rand; nil
// means the real ones.
func New(jobs wait.Jobs, e wait.Env) *Set {
	if e.Now == nil {
		e.Now = time.Now
	}
	if e.Rand == nil {
		e.Rand = rand.Float64
	}
	e.HTTP = httpcall.Client(e.HTTP)
	s := &Set{env: e, configured: map[string]configured{}}
	for process, c := range jobs {
		made := configured{JobConfig: c}
		if k, ok := wait.KindOf(c.Source); ok && k.New != nil {
			made.source, made.err = k.New(c, e)
		}
		s.configured[process] = made
	}
	return s
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
	k, _ := wait.KindOf(c.Source)
	absent := k.New != nil && c.source == nil && c.err == nil
	return c, k.Serves != nil && k.Serves(c.JobConfig, spec) && !absent
}

// onlyMesh gives an entry for the registry of MCP Mesh, if the entries name no more than one: a job
// that exists is found there whatever its capability.
func (s *Set) onlyMesh() (found configured) {
	for _, process := range slices.Sorted(maps.Keys(s.configured)) {
		c := s.configured[process]
		switch of, ok := c.Settings.(*mesh.Config); {
		case !ok:
		case found.Settings == nil:
			found = c
		case of.URL != found.Settings.(*mesh.Config).URL:
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
		if spec.CallID != "" && s.env.MCP != nil {
			return wait.SourceMCP
		}
	case wait.TypeMeshJob:
		if c, ok := s.configuredFor(spec); ok && (c.Source == wait.SourceMesh || c.Source == wait.SourceFixed) {
			return c.Source
		}
		if spec.CallID != "" && s.env.MCP != nil {
			return wait.SourceMCP // its server tells of it, too
		}
	case wait.TypeJob:
		if spec.Watch != nil {
			return cmp.Or(spec.Source, wait.SourceHTTPAgent)
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
	case name == wait.SourceMCP && s.env.MCP != nil:
		return s.env.MCP, nil
	case agents[name] != nil:
		return agents[name](httpcall.Caller{Env: s.env}, spec.Watch)
	case name == wait.SourceFixed && spec.Played != nil:
		return fixed{now: s.env.Now, played: *spec.Played}, nil
	case name == wait.SourceTimer && spec.ResumeAt != nil:
		return timer{now: s.env.Now}, nil
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

// Listen calls done with the triggers of jobs of this machine as they say that they are done, until
// stop is called.
func Listen(storeDir string, done func(triggerID string)) (stop func() error, err error) {
	return exec.Listen(storeDir, done)
}

// Close closes idle connections. Sources may be used again after it.
func (s *Set) Close() { s.env.HTTP.CloseIdleConnections() }

// fixed plays a person or a job: what arrives, and when, is known from the start.
type fixed struct {
	wait.Begun
	now    func() time.Time
	played wait.Played
}

func (f fixed) Check(_ context.Context, j wait.Job) (wait.Status, error) {
	if left := j.Since.Add(time.Duration(f.played.After)).Sub(f.now()); left > 0 {
		return wait.Status{After: left}, nil
	}
	if f.played.Fail != "" {
		return wait.Status{Done: true, Fault: fault.New(fault.Job, f.played.Fail)}, nil
	}
	return wait.Status{Done: true, Payload: f.played.Result}, nil
}

func (fixed) Cancel(context.Context, wait.Job) error { return nil }

// external waits for a delivery: only that can tell.
type external struct{ wait.Begun }

func (external) Check(context.Context, wait.Job) (wait.Status, error) { return wait.Status{}, nil }

func (external) Cancel(context.Context, wait.Job) error { return nil }

// timer waits for a time.
type timer struct {
	wait.Begun
	now func() time.Time
}

func (t timer) Check(_ context.Context, j wait.Job) (wait.Status, error) {
	if j.Spec.ResumeAt == nil {
		return wait.Status{Done: true, Fault: fault.New(fault.Job, "the timer has no time to wait for")}, nil
	}
	if left := j.Spec.ResumeAt.Sub(t.now()); left > 0 {
		return wait.Status{After: left}, nil
	}
	payload, err := json.Marshal(map[string]string{"resumeTime": j.Spec.ResumeAt.UTC().Format(time.RFC3339Nano)})
	return wait.Status{Done: true, Payload: payload}, err
}

func (timer) Cancel(context.Context, wait.Job) error { return nil }

// A program that imports this package can read entries of these kinds, and make their sources.
func init() {
	wait.Register(externalKind, exec.Kind, waithttp.Kind, uipath.Kind, mesh.Kind, mcpKind, fixedKind)
}

// externalKind is for jobs that somebody else starts and delivers.
var externalKind = wait.Kind{Name: wait.SourceExternal}

// mcpKind is for jobs that are asked for at the MCP server whose tool has started them.
var mcpKind = wait.Kind{
	Name: wait.SourceMCP, Handle: true, Polled: true,
	Serves: func(_ wait.JobConfig, spec wait.Spec) bool { return spec.CallID != "" },
	New:    func(_ wait.JobConfig, e wait.Env) (wait.Source, error) { return e.MCP, nil },
}

// fixedKind is for jobs that are played. Their triggers have what arrives.
var fixedKind = wait.Kind{
	Name: wait.SourceFixed, Parse: wait.ParseFixed, Settings: func() wait.Settings { return new(wait.FixedConfig) },
	Serves: func(_ wait.JobConfig, spec wait.Spec) bool { return spec.CallID == "" },
}
