package wait

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// Jobs says for each process how its job is started and watched: the eval set's key "jobs". The
// name "*" stands for every process without an entry of its own. It is stored with a run as JSON;
// secrets in it are still written ${VAR}.
type Jobs map[string]JobConfig

// JobConfig is one entry of Jobs.
type JobConfig struct {
	// Source is the name of a registered [Kind].
	Source string
	// Handle is where the id of a job of MCP Mesh is in the result of a tool: the names of members
	// with dots between them. It is empty where evalrun finds it by itself, or there is none.
	Handle string
	// Settings holds what only entries of this kind have, made by the kind's own Settings; nil if the
	// kind has none.
	Settings Settings
}

// jobHead has the keys that entries of several kinds have.
type jobHead struct {
	Source string `json:"source"`
	Handle string `json:"handle,omitempty"`
}

// MarshalJSON writes the entry as an eval set has it. The digest of a plan depends on the order.
func (c JobConfig) MarshalJSON() ([]byte, error) {
	return jsonobj.Join(jobHead{c.Source, c.Handle}, c.Settings)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *JobConfig) UnmarshalJSON(text []byte) error {
	var head jobHead
	if err := json.Unmarshal(text, &head); err != nil {
		return err
	}
	*c = JobConfig{Source: head.Source, Handle: head.Handle}
	if k, ok := KindOf(c.Source); ok && k.Settings != nil {
		c.Settings = k.Settings()
		return json.Unmarshal(text, c.Settings)
	}
	return nil
}

// ParseJobs reads the value of the eval set's key "jobs"; n may be nil. Problems are recorded in r
// with their places.
func ParseJobs(r *input.Reader, n *input.Node) Jobs {
	if n == nil || n.Kind == input.Null {
		return nil
	}
	if n.Kind != input.Object {
		r.Errorf(n, "expected an object of process names and their sources, got %s", n.Kind)
		return nil
	}
	jobs := make(Jobs, len(n.Members))
	for _, m := range n.Members {
		jobs[m.Key] = parseJob(r, m.Value)
	}
	return jobs
}

func parseJob(r *input.Reader, n *input.Node) JobConfig {
	f := r.Object(n)
	if n.Kind != input.Object {
		return JobConfig{}
	}
	if !f.Has("source") {
		f.Required("source", input.String)
		return JobConfig{}
	}
	c := JobConfig{Source: f.Enum("source", "", kindNames()...)}
	k, ok := KindOf(c.Source)
	if !ok {
		return c // the other keys cannot be judged
	}
	if k.Handle {
		c.Handle = parseHandle(r, f)
	}
	if k.Parse != nil {
		c.Settings = k.Parse(r, f)
	}
	f.Done()
	return c
}

// parseHandle reads where the handle of a job is in a result.
func parseHandle(r *input.Reader, f *input.Fields) string {
	path := f.String("handle", "")
	if n := f.Get("handle"); n != nil && n.Kind == input.String && slices.Contains(strings.Split(path, "."), "") {
		r.Errorf(n, `expected the names of members with dots between them, such as "job.id"`)
	}
	return path
}

// ForProcess gives the entry of a process: its own, that of "*", or the external one.
func (j Jobs) ForProcess(name string) JobConfig {
	if c, ok := j[name]; ok {
		return c
	}
	if c, ok := j["*"]; ok {
		return c
	}
	return JobConfig{Source: SourceExternal}
}

// Variables returns the names of all ${VAR} in the configuration, sorted, so that one without a
// value can be reported before anything begins.
func (j Jobs) Variables() []string {
	names := map[string]bool{}
	for _, c := range j {
		if c.Settings != nil {
			c.Settings.AddVariables(names)
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// In returns the jobs with their folders, which are relative to dir, relative to base.
func (j Jobs) In(dir, base string) (Jobs, error) {
	out := maps.Clone(j)
	for process, c := range j {
		if s, ok := c.Settings.(interface {
			In(dir, base string) (Settings, error)
		}); ok {
			moved, err := s.In(dir, base)
			if err != nil {
				return nil, err
			}
			c.Settings = moved
			out[process] = c
		}
	}
	return out, nil
}

// Duration is a time.Duration that is written as in "10m".
type Duration time.Duration

// MarshalText writes the duration as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}
