package wait

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// MeshConfig is a job of MCP Mesh. Its texts may contain ${VAR}, except Capability and
// PayloadToken.
type MeshConfig struct {
	// URL is where the registry is: what stands before /jobs.
	URL string `json:"url"`
	// Token is sent as Authorization: Bearer; empty if none is. Headers are sent beside it.
	Token   string            `json:"token,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Capability is what jobs ask for; empty if that is the name of the process.
	Capability string `json:"capability,omitempty"`
	// MaxDuration bounds the working time of a job, 0 if nothing does. MaxRetries is nil where the
	// agent or the registry says.
	MaxDuration Duration `json:"maxDuration,omitzero"`
	MaxRetries  *int     `json:"maxRetries,omitempty"`
	// PayloadToken is the member of the payload that gets the trigger's id; "" for no member, nil
	// for the usual one.
	PayloadToken *string `json:"payloadToken,omitempty"`
	// Answer is the event by which a job is told what a person has answered; nil for the usual one.
	Answer *MeshAnswer `json:"answer,omitempty"`
}

// MeshAnswer is an event. In Payload, a JSON template, the string "{answer}" stands for what was
// answered.
type MeshAnswer struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"`
}

// meshJob is an entry for a job of MCP Mesh as JSON, where the names of members must not come twice
// at one depth.
type meshJob struct {
	Source string `json:"source"`
	Handle string `json:"handle,omitempty"`
	*MeshConfig
	Polling
}

// fixedJob is the same for a job that is played.
type fixedJob struct {
	Source string `json:"source"`
	*FixedConfig
}

// MarshalJSON writes the entry as an eval set has it.
func (c JobConfig) MarshalJSON() ([]byte, error) {
	if c.Mesh != nil {
		return json.Marshal(meshJob{c.Source, c.Handle, c.Mesh, c.Polling})
	}
	if c.Fixed != nil {
		return json.Marshal(fixedJob{c.Source, c.Fixed})
	}
	type plain JobConfig
	return json.Marshal(plain(c))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *JobConfig) UnmarshalJSON(text []byte) error {
	var named struct{ Source string }
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	if named.Source == SourceFixed { // its result may be anything
		var f fixedJob
		err := json.Unmarshal(text, &f)
		*c = JobConfig{Source: f.Source, Fixed: f.FixedConfig}
		return err
	}
	type plain JobConfig
	if err := json.Unmarshal(text, (*plain)(c)); err != nil || c.Source != SourceMesh {
		return err
	}
	var m meshJob
	err := json.Unmarshal(text, &m)
	*c = JobConfig{Source: m.Source, Handle: m.Handle, Mesh: m.MeshConfig, Polling: m.Polling}
	return err
}

const (
	defaultMeshInterval    = time.Second
	defaultMeshMaxInterval = 30 * time.Second
	defaultPayloadToken    = "_evalrun"
	defaultAnswerType      = "answer"
)

var defaultAnswerPayload = json.RawMessage(`{"value":"{answer}"}`)

// TokenMember is the member of the payload that gets the trigger's id; empty if none does.
func (c *MeshConfig) TokenMember() string {
	if c.PayloadToken != nil {
		return *c.PayloadToken
	}
	return defaultPayloadToken
}

// AnswerEvent is the event by which a job is told an answer.
func (c *MeshConfig) AnswerEvent() MeshAnswer {
	if c.Answer != nil {
		return *c.Answer
	}
	return MeshAnswer{defaultAnswerType, defaultAnswerPayload}
}

func (c *MeshConfig) addVariables(into map[string]bool) {
	for _, s := range append(slices.Collect(maps.Values(c.Headers)), c.URL, c.Token) {
		template.AddVariables(s, into)
	}
	if c.Answer != nil {
		template.AddBodyVariables(c.Answer.Payload, into)
	}
}

func (p jobReader) mesh(f *input.Fields) *MeshConfig {
	c := &MeshConfig{
		URL: f.RequiredString("url"), Token: f.String("token", ""), Headers: f.StringMap("headers"),
		Capability:  f.String("capability", ""),
		MaxDuration: Duration(f.Duration("maxDuration", 0)),
	}
	p.base(f, c.URL, "/jobs")
	p.secret(f, "token", "${MESH_TOKEN}")
	p.headers(f)
	if n := f.Get("maxDuration"); n != nil && n.Kind == input.String && time.Duration(c.MaxDuration) < time.Second {
		p.r.Errorf(n, "expected a duration of at least 1s")
	}
	if f.Optional("maxRetries", input.Number) != nil {
		retries := f.Int("maxRetries", 0, 0, math.MaxInt32)
		c.MaxRetries = &retries
	}
	if n := f.Optional("payloadToken", input.String); n != nil {
		c.PayloadToken = &n.Text
	}
	if n := f.Optional("answer", input.Object); n != nil {
		g := p.r.Object(n)
		c.Answer = &MeshAnswer{g.RequiredString("type"), defaultAnswerPayload}
		if body := g.Get("payload"); body != nil {
			p.body(body, []string{"answer"})
			c.Answer.Payload = body.JSON()
			if !hasText(body, "{answer}") {
				p.r.Errorf(body, `expected the string "{answer}" in it: that stands for what was answered`)
			}
		}
		if t := g.Get("type"); t != nil && c.Answer.Type != strings.TrimSpace(c.Answer.Type) {
			p.r.Errorf(t, "expected the type of an event, without spaces around it")
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
