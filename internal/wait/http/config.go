package http

import (
	"net/http"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
)

// Kind is the source of jobs behind an HTTP API.
var Kind = wait.Kind{
	Name: wait.SourceHTTP, Polled: true, Parse: parse, Settings: func() wait.Settings { return new(Config) },
	Serves: func(c wait.JobConfig, spec wait.Spec) bool {
		return spec.ItemKey != "" || c.Settings.(*Config).Start != nil
	},
	New: func(c wait.JobConfig, e wait.Env) (wait.Source, error) {
		config := c.Settings.(*Config)
		return New(httpcall.Caller{Env: e, Polling: config.Polling}, *config)
	},
}

const defaultKeyHeader = "Idempotency-Key"

// Config is a job behind an HTTP API.
type Config struct {
	// Start is absent where jobs are only watched, never started by evalrun.
	Start  *httpcall.Request `json:"start,omitempty"`
	Status StatusRequest     `json:"status"`
	Result *ResultRequest    `json:"result,omitempty"`
	Cancel *httpcall.Request `json:"cancel,omitempty"`
	Find   *FindRequest      `json:"find,omitempty"`
	// ItemKey is a jq expression over the answer to Start; without it the trigger's id is the key.
	ItemKey           string     `json:"itemKey,omitempty"`
	IdempotencyHeader string     `json:"idempotencyHeader,omitempty"`
	StartKind         wait.Start `json:"startKind,omitempty"`
	httpcall.Polling
}

// StatusRequest asks how a job is doing. Done, Failed and Error are jq expressions over the answer.
type StatusRequest struct {
	httpcall.Request
	Done   string `json:"done,omitempty"`
	Failed string `json:"failed,omitempty"`
	Error  string `json:"error,omitempty"`
}

// ResultRequest fetches the result of a job that is done. Without a URL, Value is taken from the
// answer to Status.
type ResultRequest struct {
	httpcall.Request
	Value string `json:"value,omitempty"`
}

// FindRequest looks for a job by the id of its trigger. ItemKey is a jq expression that gives null
// if there is none.
type FindRequest struct {
	httpcall.Request
	ItemKey string `json:"itemKey,omitempty"`
}

// AddVariables implements wait.Settings.
func (c *Config) AddVariables(into map[string]bool) {
	for _, q := range c.requests() {
		q.AddVariables(into)
	}
}

// requests are the requests that are configured.
func (c *Config) requests() []*httpcall.Request {
	out := []*httpcall.Request{&c.Status.Request}
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

type reader struct{ httpcall.Reader }

func parse(r *input.Reader, f *input.Fields) wait.Settings {
	p := reader{httpcall.Reader{R: r}}
	c := &Config{
		ItemKey:           p.JQ(f, "itemKey"),
		IdempotencyHeader: f.String("idempotencyHeader", ""),
		StartKind:         wait.Start(f.Enum("startKind", "", string(wait.Idempotent), string(wait.Searchable), string(wait.AtMostOnce))),
	}
	if n := f.Optional("start", input.Object); n != nil {
		g := p.R.Object(n)
		c.Start = p.Request(g, http.MethodPost, true, httpcall.Without("itemKey"))
		g.Done()
	}
	if n := f.Required("status", input.Object); n != nil {
		g := p.R.Object(n)
		c.Status = StatusRequest{*p.Request(g, http.MethodGet, true, httpcall.Without("webhookUrl")),
			p.JQ(g, "done"), p.JQ(g, "failed"), p.JQ(g, "error")}
		g.Done()
	}
	if n := f.Optional("result", input.Object); n != nil {
		g := p.R.Object(n)
		c.Result = &ResultRequest{*p.Request(g, http.MethodGet, false, httpcall.Without("webhookUrl")), p.JQ(g, "value")}
		g.Done()
	}
	if value := p.JQ(f, "value"); value != "" {
		if c.Result != nil {
			p.R.Errorf(f.Get("value"), "expected either value or result, got both")
		}
		c.Result = &ResultRequest{Value: value}
	}
	if n := f.Optional("cancel", input.Object); n != nil {
		g := p.R.Object(n)
		c.Cancel = p.Request(g, http.MethodPost, true, httpcall.Without("webhookUrl"))
		g.Done()
	}
	if n := f.Optional("find", input.Object); n != nil {
		g := p.R.Object(n)
		c.Find = &FindRequest{*p.Request(g, http.MethodGet, true, httpcall.Without("itemKey", "webhookUrl")), p.JQ(g, "itemKey")}
		if !g.Has("itemKey") {
			p.R.Errorf(n, "itemKey is missing; expected a jq expression that gives the key of the job, or null")
		}
		g.Done()
	}
	p.consistent(f, c)
	c.Polling = p.Polling(f, httpcall.DefaultInterval, httpcall.DefaultMaxInterval)
	return c
}

// consistent fills in the kind of a start, and checks what concerns several keys. A start must be
// known to be safe before it is one that is repeated.
func (p reader) consistent(f *input.Fields, c *Config) {
	switch {
	case c.StartKind == wait.Searchable && c.Find == nil:
		p.R.Errorf(f.Get("startKind"), "searchable needs the key find, a request that looks for a job by {triggerId}")
	case c.StartKind != "":
	case c.Find != nil:
		c.StartKind = wait.Searchable
	case c.IdempotencyHeader != "":
		c.StartKind = wait.Idempotent
	default:
		c.StartKind = wait.AtMostOnce
	}
	if c.IdempotencyHeader == "" && c.StartKind == wait.Idempotent {
		c.IdempotencyHeader = defaultKeyHeader
	}
	if n := f.Get("idempotencyHeader"); n != nil && !httpcall.IsToken(c.IdempotencyHeader) {
		p.R.Errorf(n, "expected the name of a header, got %q", c.IdempotencyHeader)
	}
}
