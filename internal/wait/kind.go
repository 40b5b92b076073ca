package wait

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// Kind is a kind of source that entries of an eval set's jobs may name. Its package describes it,
// and package wait/sources registers it. If a field is nil, entries of the kind have nothing of that.
type Kind struct {
	// Name is the "source" of its entries, and what is stored with their triggers.
	Name string
	// Handle says that entries may have the key "handle".
	Handle bool
	// Local says that the jobs are processes of the machine that has started them.
	Local bool
	// Polled says that evalrun asks for the results: nobody else delivers them.
	Polled bool
	// Parse reads what an entry has beside the keys above. Problems are recorded in r.
	Parse func(r *input.Reader, f *input.Fields) Settings
	// Settings makes a pointer to the settings that only entries of this kind have. A stored entry is
	// decoded into it.
	Settings func() Settings
	// Serves reports whether a source of the entry can start or watch the job of a spec.
	Serves func(c JobConfig, spec Spec) bool
	// New makes the source of an entry, nil if its triggers have their own.
	New func(c JobConfig, e Env) (Source, error)
}

// Settings are what only the entries of one kind have.
type Settings interface {
	// AddVariables adds the names of the ${VAR}s to a set.
	AddVariables(into map[string]bool)
}

// Env is what sources share.
type Env struct {
	// Resolve gives the value of a ${VAR}. Nil means that there are none.
	Resolve template.Resolver
	// BaseDir is the folder of the eval set, against which folders are resolved; the current one if
	// empty.
	BaseDir string
	// StoreDir is the store's folder.
	StoreDir string
	// Executable is the program whose hidden commands are called; the running one if empty.
	Executable string
	// MCP asks MCP servers for what calls of their tools have started; nil means that nobody can.
	MCP Source
	// HTTP sends requests. Now and Rand (0 ≤ x < 1) are the clock and chance.
	HTTP *http.Client
	Now  func() time.Time
	Rand func() float64
}

// registered are the kinds that a program knows.
var registered []Kind

// Register adds kinds. The order is that of messages which name them all.
func Register(known ...Kind) { registered = append(registered, known...) }

// KindOf returns the registered kind of this name.
func KindOf(name string) (Kind, bool) {
	if i := slices.IndexFunc(registered, func(k Kind) bool { return k.Name == name }); i >= 0 {
		return registered[i], true
	}
	return Kind{}, false
}

func kindNames() (names []string) {
	for _, k := range registered {
		names = append(names, k.Name)
	}
	return names
}

// agents are the sources that are agents which are services: their own segments have started what
// they are asked for.
var agents = []string{SourceHTTPAgent, SourceA2A, SourceLangGraph}

// SourceNames returns the names of all sources, of jobs and of other triggers.
func SourceNames() []string {
	return slices.Concat(kindNames(), []string{SourceTimer}, agents, []string{SourceOpenAIBatch, SourceAnthropicBatch})
}

// IsPolled reports whether evalrun asks a source for the results of its jobs.
func IsPolled(source string) bool {
	k, _ := KindOf(source)
	return k.Polled || slices.Contains(agents, source) || IsBatch(source)
}

// IsLocal reports whether the jobs of a source are processes of the machine that has started them.
func IsLocal(source string) bool {
	k, _ := KindOf(source)
	return k.Local
}

// LocalSources are the names of the sources that are local.
func LocalSources() (names []string) {
	for _, k := range registered {
		if k.Local {
			names = append(names, k.Name)
		}
	}
	return names
}

// Begun is embedded in sources that start nothing: the key of a job is known from the start.
type Begun struct{}

// StartKind implements Source.
func (Begun) StartKind() Start { return Idempotent }

// Start implements Source.
func (Begun) Start(_ context.Context, j Job) (string, error) { return j.OwnKey(), nil }

// Find implements Source.
func (Begun) Find(_ context.Context, j Job) (string, bool, error) { return j.OwnKey(), true, nil }
