package wait

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// The names of the sources, as they are stored with a trigger.
const (
	SourceExternal = "external" // somebody else starts the job and delivers its result
	SourceTimer    = "timer"
	SourceExec     = "exec"
	SourceHTTP     = "http"
	SourceUiPath   = "uipath"
	SourceMCP      = "mcp" // the MCP server whose tool has started it
)

// SourceNames are all of them.
var SourceNames = []string{SourceExternal, SourceTimer, SourceExec, SourceHTTP, SourceUiPath, SourceMCP}

// Options are what [NewSources] needs.
type Options struct {
	Jobs Jobs
	// BaseDir is the folder of the eval set, against which an exec job's cwd is resolved; the
	// current one if empty.
	BaseDir string
	// StoreDir is the store's folder; exec jobs live in its folder jobs.
	StoreDir string
	// WakeDir is where waiting evalrun processes have their sockets; an exec job that ends sends a
	// datagram to each. May be empty.
	WakeDir string
	// Executable is the program whose hidden command job-supervisor calls [SuperviseMain]; the
	// running one if empty.
	Executable string
	// Resolve gives the value of a ${VAR}. Nil means that there are none.
	Resolve func(name string) (string, bool)
	// MCP asks MCP servers for what calls of their tools have started; nil means that nobody can.
	MCP Source
	// Now and Rand (0 ≤ x < 1) are for tests; nil means the real ones.
	Now  func() time.Time
	Rand func() float64
	// HTTPClient is for tests; nil means one that gives up after 30 s. Its CheckRedirect is
	// replaced.
	HTTPClient *http.Client
}

// Sources chooses the source of a trigger. It is safe for concurrent use.
type Sources struct {
	o    Options
	http *client
}

// NewSources returns the sources for an eval set's jobs.
func NewSources(o Options) *Sources {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rand == nil {
		o.Rand = rand.Float64
	}
	return &Sources{o: o, http: newClient(o.HTTPClient, o.Rand, o.Now)}
}

// Name gives the name of the source for a spec. A job that exists already can be watched over HTTP
// or by UiPath's Orchestrator only; one that nobody is configured to start or to watch is external.
func (s *Sources) Name(spec Spec) string {
	switch spec.Type {
	case TypeTimer:
		return SourceTimer
	case TypeMCPTask:
		if spec.CallID != "" && s.o.MCP != nil {
			return SourceMCP
		}
	case TypeJob:
		c := s.o.Jobs.forProcess(spec.Process)
		switch {
		case c.Source == SourceExec && spec.ItemKey == "" && c.ExecConfig != nil:
			return SourceExec
		case c.Source == SourceHTTP && c.HTTPConfig != nil && (spec.ItemKey != "" || c.Start != nil):
			return SourceHTTP
		case c.Source == SourceMCP && spec.CallID != "" && s.o.MCP != nil:
			return SourceMCP
		case c.Source == SourceUiPath && c.UiPathConfig != nil && (spec.ItemKey != "" || spec.Process != ""):
			return SourceUiPath
		}
	}
	return SourceExternal
}

// For returns the source with this name for a spec. The error says why the configuration has none.
func (s *Sources) For(name string, spec Spec) (Source, error) {
	c := s.o.Jobs.forProcess(spec.Process)
	switch {
	case name == SourceExternal:
		return external{}, nil
	case name == SourceMCP && s.o.MCP != nil:
		return s.o.MCP, nil
	case name == SourceTimer && spec.ResumeAt != nil:
		return timer{s.o.Now}, nil
	case name == SourceExec && c.Source == name && c.ExecConfig != nil:
		return newExec(s.o, *c.ExecConfig), nil
	case name == SourceHTTP && c.Source == name && c.HTTPConfig != nil:
		return newHTTP(s.http, s.o.Resolve, *c.HTTPConfig, c.Polling)
	case name == SourceUiPath && c.Source == name && c.UiPathConfig != nil:
		return newUiPath(s.http, s.o.Resolve, *c.UiPathConfig, c.Polling), nil
	}
	return nil, fmt.Errorf("the jobs of the eval set have no %s source for the process %q", name, cmp.Or(spec.Process, "*"))
}

// Close closes idle connections. Sources may be used again after it.
func (s *Sources) Close() { s.http.CloseIdleConnections() }

// RetryError is an error after which a call is tried again, not before After.
type RetryError struct {
	After time.Duration
	Err   error
	// NotStarted says of a start that the call has certainly not begun a job.
	NotStarted bool
}

// ErrNoFind is the error of Find where a source has no means to look for a job.
var ErrNoFind = errors.New("the jobs of the eval set have no find request for this process")

// notStarted says of the error of a start that the call has certainly not begun a job.
func notStarted(err error) error {
	var retry *RetryError
	if errors.As(err, &retry) {
		return &RetryError{retry.After, retry.Err, true}
	}
	return err
}

func (e *RetryError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *RetryError) Unwrap() error { return e.Err }
