package wait

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/retry"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// Jobs says for each process how its job is started and watched: the eval set's key "jobs". The
// name "*" stands for every process without an entry of its own. It is stored with a run as JSON;
// secrets in it are still written ${VAR}.
type Jobs map[string]JobConfig

// JobConfig is one entry of Jobs. Source is "external", "exec", "http", "uipath", "mesh", "mcp"
// or "fixed".
type JobConfig struct {
	Source string `json:"source"`
	*ExecConfig
	*HTTPConfig
	*UiPathConfig
	// Handle is where the id of a job of MCP Mesh is in the result of a tool: the names of members
	// with dots between them. It is empty where evalrun finds it by itself, or there is none.
	Handle string `json:"handle,omitempty"`
	// Mesh has members of the same names as others; see MarshalJSON.
	Mesh *MeshConfig `json:"-"`
	// Fixed has one, too.
	Fixed *FixedConfig `json:"-"`
	// Polling is for the sources that ask over the network. It stands here because the names of
	// JSON members must not come twice at one depth.
	Polling
}

// Polling is how often a job is asked after: at first after Interval, then more and more rarely up
// to MaxInterval.
type Polling struct {
	Interval    Duration `json:"interval,omitzero"`
	MaxInterval Duration `json:"maxInterval,omitzero"`
}

// Next says when to ask again: when the server says so, else after the interval, which doubles with
// every check up to the longest, with full jitter between the interval and that. It is at most as
// long as the wait so far, or two intervals if that is longer, so that the end of a job is noticed
// before twice its time is over.
func (c Polling) Next(checks int, waited, retryAfter time.Duration, rand func() float64) time.Duration {
	if retryAfter > 0 {
		return retryAfter
	}
	least, most := time.Duration(c.Interval), time.Duration(c.MaxInterval)
	if least <= 0 {
		least = defaultInterval
	}
	if most < least {
		most = max(defaultMaxInterval, least)
	}
	most = min(most, max(2*least, waited))
	return least + time.Duration(rand()*float64(retry.Backoff(least, most, checks+1)-least))
}

// ExecConfig is a job that is a local command.
type ExecConfig struct {
	// Command gets the job's input as one JSON document on stdin and prints its result on stdout.
	Command []string `json:"command"`
	// CWD is relative to the folder of the eval set, which is also the default.
	CWD string `json:"cwd,omitempty"`
	// Env is added to evalrun's own environment; values may contain ${VAR}.
	Env map[string]string `json:"env,omitempty"`
	// Timeout ends the command; 0 means never.
	Timeout Duration `json:"timeout,omitzero"`
}

// HTTPConfig is a job behind an HTTP API.
type HTTPConfig struct {
	// Start is absent where jobs are only watched, never started by evalrun.
	Start  *Request       `json:"start,omitempty"`
	Status StatusRequest  `json:"status"`
	Result *ResultRequest `json:"result,omitempty"`
	Cancel *Request       `json:"cancel,omitempty"`
	Find   *FindRequest   `json:"find,omitempty"`
	// ItemKey is a jq expression over the answer to Start; without it the trigger's id is the key.
	ItemKey           string `json:"itemKey,omitempty"`
	IdempotencyHeader string `json:"idempotencyHeader,omitempty"`
	StartKind         Start  `json:"startKind,omitempty"`
}

// UiPathConfig is a job of UiPath's Orchestrator. All of its fields may contain ${VAR}.
type UiPathConfig struct {
	// URL is where Orchestrator's API is: what stands before /odata.
	URL string `json:"url"`
	// Token is sent as Authorization: Bearer.
	Token string `json:"token"`
	// FolderKey or FolderPath is the folder in which jobs are started, whatever the agent says. A
	// job whose folder the agent has not said is looked for there, too. Both are empty where only
	// the agent knows.
	FolderKey  string `json:"folderKey,omitempty"`
	FolderPath string `json:"folderPath,omitempty"`
}

// Request is one HTTP request. URL and Headers may contain ${VAR}, and URL placeholders such as
// {itemKey}. Body is a JSON template whose strings "{inputArguments}", "{triggerId}" and so on are
// replaced by JSON values.
type Request struct {
	Method  string            `json:"method,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Body    json.RawMessage   `json:"body,omitempty"`
}

// StatusRequest asks how a job is doing. Done, Failed and Error are jq expressions over the answer.
type StatusRequest struct {
	Request
	Done   string `json:"done,omitempty"`
	Failed string `json:"failed,omitempty"`
	Error  string `json:"error,omitempty"`
}

// ResultRequest fetches the result of a job that is done. Without a URL, Value is taken from the
// answer to Status.
type ResultRequest struct {
	Request
	Value string `json:"value,omitempty"`
}

// FindRequest looks for a job by the id of its trigger. ItemKey is a jq expression that gives null
// if there is none.
type FindRequest struct {
	Request
	ItemKey string `json:"itemKey,omitempty"`
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
		if c.ExecConfig != nil {
			for _, v := range c.Env {
				template.AddVariables(v, names)
			}
		}
		if c.HTTPConfig != nil {
			for _, q := range c.requests() {
				q.AddVariables(names)
			}
		}
		if c.Mesh != nil {
			c.Mesh.addVariables(names)
		}
		if u := c.UiPathConfig; u != nil {
			for _, s := range []string{u.URL, u.Token, u.FolderKey, u.FolderPath} {
				template.AddVariables(s, names)
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// requests are the requests that are configured.
func (c *HTTPConfig) requests() []*Request {
	out := []*Request{&c.Status.Request}
	if c.Start != nil {
		out = append(out, c.Start)
	}
	if c.Result != nil {
		out = append(out, &c.Result.Request)
	}
	if c.Cancel != nil {
		out = append(out, c.Cancel)
	}
	if c.Find != nil {
		out = append(out, &c.Find.Request)
	}
	return out
}

// AddVariables adds the names of the request's ${VAR}s to a set.
func (q *Request) AddVariables(into map[string]bool) {
	template.AddVariables(q.URL, into)
	for _, v := range q.Headers {
		template.AddVariables(v, into)
	}
	template.AddBodyVariables(q.Body, into)
}
