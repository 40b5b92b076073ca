package mesh

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// Kind is the source of jobs of MCP Mesh.
var Kind = wait.Kind{
	Name: wait.SourceMesh, Handle: true, Polled: true, Parse: parse, Settings: func() wait.Settings { return new(Config) },
	Serves: func(_ wait.JobConfig, spec wait.Spec) bool { return spec.ItemKey != "" || spec.Process != "" },
	New: func(c wait.JobConfig, e wait.Env) (wait.Source, error) {
		config := c.Settings.(*Config)
		return New(httpcall.Caller{Env: e, Polling: config.Polling}, *config), nil
	},
}

// Config is a job of MCP Mesh. Its texts may contain ${VAR}, except Capability and
// PayloadToken.
type Config struct {
	// URL is where the registry is: what stands before /jobs.
	URL string `json:"url"`
	// Token is sent as Authorization: Bearer; empty if none is. Headers are sent beside it.
	Token   string            `json:"token,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Capability is what jobs ask for; empty if that is the name of the process.
	Capability string `json:"capability,omitempty"`
	// MaxDuration bounds the working time of a job, 0 if nothing does. MaxRetries is nil where the
	// agent or the registry says.
	MaxDuration wait.Duration `json:"maxDuration,omitzero"`
	MaxRetries  *int          `json:"maxRetries,omitempty"`
	// PayloadToken is the member of the payload that gets the trigger's id; "" for no member, nil
	// for the usual one.
	PayloadToken *string `json:"payloadToken,omitempty"`
	// Answer is the event by which a job is told what a person has answered; nil for the usual one.
	Answer *Answer `json:"answer,omitempty"`
	httpcall.Polling
}

// Answer is an event. In Payload, a JSON template, the string "{answer}" stands for what was
// answered.
type Answer struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

const (
	defaultInterval     = time.Second
	defaultMaxInterval  = 30 * time.Second
	defaultPayloadToken = "_evalrun"
	defaultAnswerType   = "answer"
)

var defaultAnswerPayload = json.RawMessage(`{"value":"{answer}"}`)

// TokenMember is the member of the payload that gets the trigger's id; empty if none does.
func (c *Config) TokenMember() string {
	if c.PayloadToken != nil {
		return *c.PayloadToken
	}
	return defaultPayloadToken
}

// AnswerEvent is the event by which a job is told an answer.
func (c *Config) AnswerEvent() Answer {
	if c.Answer != nil {
		return *c.Answer
	}
	return Answer{defaultAnswerType, defaultAnswerPayload}
}

// AddVariables implements wait.Settings.
func (c *Config) AddVariables(into map[string]bool) {
	for _, s := range append(slices.Collect(maps.Values(c.Headers)), c.URL, c.Token) {
		template.AddVariables(s, into)
	}
	if c.Answer != nil {
		template.AddBodyVariables(c.Answer.Payload, into)
	}
}

func parse(r *input.Reader, f *input.Fields) wait.Settings {
	p := httpcall.Reader{R: r}
	c := &Config{
		URL: f.RequiredString("url"), Token: f.String("token", ""), Headers: f.StringMap("headers"),
		Capability:  f.String("capability", ""),
		MaxDuration: wait.Duration(f.Duration("maxDuration", 0)),
		Polling:     p.Polling(f, defaultInterval, defaultMaxInterval),
	}
	p.Base(f, c.URL, "/jobs")
	p.Secret(f, "token", "${MESH_TOKEN}")
	p.Headers(f)
	if n := f.Get("maxDuration"); n != nil && n.Kind == input.String && time.Duration(c.MaxDuration) < time.Second {
		r.Errorf(n, "expected a duration of at least 1s")
	}
	if f.Optional("maxRetries", input.Number) != nil {
		retries := f.Int("maxRetries", 0, 0, math.MaxInt32)
		c.MaxRetries = &retries
	}
	if n := f.Optional("payloadToken", input.String); n != nil {
		c.PayloadToken = &n.Text
	}
	if n := f.Optional("answer", input.Object); n != nil {
		g := r.Object(n)
		c.Answer = &Answer{g.RequiredString("type"), defaultAnswerPayload}
		if body := g.Get("payload"); body != nil {
			p.Body(body, []string{"answer"})
			c.Answer.Payload = body.JSON()
			if !hasText(body, "{answer}") {
				r.Errorf(body, `expected the string "{answer}" in it: that stands for what was answered`)
			}
		}
		if t := g.Get("type"); t != nil && c.Answer.Type != strings.TrimSpace(c.Answer.Type) {
			r.Errorf(t, "expected the type of an event, without spaces around it")
		}
		g.Done()
	}
	return c
}

// hasText tells whether a value has a string in it.
func hasText(n *input.Node, text string) bool {
	inMember := func(m input.Member) bool { return hasText(m.Value, text) }
	return n.Kind == input.String && n.Text == text || slices.ContainsFunc(n.Members, inMember) ||
		slices.ContainsFunc(n.Items, func(item *input.Node) bool { return hasText(item, text) })
}
