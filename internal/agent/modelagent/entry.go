package modelagent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/wait"
)

// Name is the type of these agents.
const Name = "model"

// Type is the type of models that are agents themselves.
var Type = agent.Type{
	Name: Name, Parse: parse, Settings: func() any { return new(Settings) }, Check: check, New: New,
	Expand: expand, Lacks: lacks, Sends: sends, NeedsOf: needs, GoesOn: goesOn, AsksPeople: asksPeople, Texts: texts,
	Content: agent.ContentEntry,
}

// Settings are the settings that only the entries of models have.
type Settings struct {
	// System, Prompt and the contents of Messages are templates: {{name}} stands for a value of the
	// evaluation's inputs. A prompt of a file is its content. Without Prompt and Messages the model
	// gets the prompt of the task, or the inputs.
	System   string    `json:"system,omitempty"`
	Prompt   string    `json:"prompt,omitempty"`
	Messages []Message `json:"messages,omitempty"`
	// User is a user who is played by a model, and goes on with the conversation; nil if there is none.
	User *User `json:"user,omitempty"`
	// Output says what the output is; nil for a text.
	Output *Output `json:"output,omitempty"`
	// Tools are the tools that the model may call. Turns, CommandTimeout and CommandOutput are the
	// limits of the loop; 0 means the default.
	Tools []string `json:"tools,omitempty"`
	// Approve has patterns of the names of tools whose calls a person has to allow. Elicitation says
	// who answers what MCP servers ask: nobody, or "suspend" for a person.
	Approve        []string      `json:"approve,omitempty"`
	Elicitation    string        `json:"elicitation,omitempty"`
	Turns          int           `json:"turns,omitempty"`
	CommandTimeout wait.Duration `json:"commandTimeout,omitzero"`
	CommandOutput  int           `json:"commandOutput,omitempty"`
	// ContextTokens is how many tokens a request may have before the oldest answers are left out; 0
	// leaves that to the provider, which refuses what is too long.
	ContextTokens int `json:"contextTokens,omitempty"`
	// History is what becomes of answers that are left out: nothing, or a summary.
	History string `json:"history,omitempty"`
	// Temperature, MaxTokens and Seed are sent as they are, where they are given.
	Temperature *float64 `json:"temperature,omitempty"`
	MaxTokens   int      `json:"maxTokens,omitempty"`
	Seed        *int64   `json:"seed,omitempty"`
	// Batch asks in batches of the provider; nil asks directly.
	Batch *Batch `json:"batch,omitempty"`
	// Reasoning is how much the model thinks: a word, such as "low", or a number of tokens.
	Reasoning json.RawMessage `json:"reasoning,omitempty"`
}

// Message is one message before the model's answer.
type Message struct {
	// Role is user or assistant.
	Role    string `json:"role"`
	Content string `json:"content"`
	// Parts are there in place of Content.
	Parts []Part `json:"parts,omitempty"`
}

// Output describes an output that is JSON.
type Output struct {
	Schema json.RawMessage `json:"schema"`
}

// providers are the endpoints that models may be of, by the part of the model's name before the
// first slash.
var providers = map[string]struct {
	api      model.API
	url, key string
}{
	"openai":           {model.APIChat, model.DefaultURL[model.APIChat], "${OPENAI_API_KEY}"},
	"openai-responses": {model.APIResponses, model.DefaultURL[model.APIResponses], "${OPENAI_API_KEY}"},
	"anthropic":        {model.APIMessages, model.DefaultURL[model.APIMessages], "${ANTHROPIC_API_KEY}"},
	"gemini":           {model.APIGemini, model.DefaultURL[model.APIGemini], "${GEMINI_API_KEY}"},
	"openrouter":       {model.APIChat, "https://openrouter.ai/api/v1", "${OPENROUTER_API_KEY}"},
	"ollama":           {model.APIChat, "${OLLAMA_BASE_URL:-http://localhost:11434/v1}", ""},
}

var (
	providerNames = []string{"anthropic", "gemini", "ollama", "openai", "openai-responses", "openrouter"}
	apis          = []string{
		string(model.APIChat), string(model.APIResponses), string(model.APIMessages), string(model.APIGemini),
	}
)

// FromModel returns the entry of `--agent model:PROVIDER/MODEL`.
func FromModel(name string) (agent.Entry, error) {
	m, err := named(name)
	return agent.Entry{Name: name, Type: Name, Model: m, ResumeWhen: agent.ResumeAny, Settings: &Settings{}}, err
}

// GiveTools gives an entry of [FromModel] the tools with which models work on task directories: bash,
// and those of the task's MCP servers.
func GiveTools(e *agent.Entry) {
	s := e.Settings.(*Settings)
	s.Tools = slices.Clone(allTools)
	s.waits(e)
}

// named returns the endpoint of a model, such as openai/gpt-5-mini.
func named(name string) (*agent.Model, error) {
	provider, rest, _ := strings.Cut(name, "/")
	p, ok := providers[provider]
	if !ok || rest == "" {
		suggestion := ""
		if rest != "" {
			suggestion = input.Suggest(provider, providerNames)
		}
		return nil, fmt.Errorf("expected PROVIDER/MODEL with one of the providers %s, got %q%s",
			strings.Join(providerNames, ", "), name, suggestion)
	}
	return &agent.Model{API: string(p.api), URL: p.url, Key: p.key, Name: rest}, nil
}

func parse(r *input.Reader, f *input.Fields) agent.Entry {
	s := &Settings{
		System: text(r, f.Optional("system", input.String)), Prompt: text(r, f.Optional("prompt", input.String)),
		MaxTokens: f.Int("maxTokens", 0, 1, 1<<31-1),
		Turns:     f.Int("turns", 0, 1, 1<<31-1), CommandOutput: f.Int("commandOutput", 0, 100, 100<<20),
		ContextTokens: f.Int("contextTokens", 0, 100, 1<<31-1), CommandTimeout: wait.Duration(f.Duration("commandTimeout", 0)),
	}
	s.Batch = parseBatch(r, f)
	parseTools(r, f, s)
	s.User = parseUser(r, f)
	if f.Has("temperature") {
		v := f.Float("temperature", 0, 0, 100)
		s.Temperature = &v
	}
	if f.Has("seed") {
		v := int64(f.Int("seed", 0, -1<<53, 1<<53))
		s.Seed = &v
	}
	s.Messages = parseMessages(r, f)
	parseFiles(r, f, s)
	s.Output = parseOutput(r, f)
	e := agent.Entry{Model: parseModel(r, f), Settings: s, ResumeWhen: agent.ResumeAny,
		Timeout: wait.Duration(f.Duration("timeout", 0))}
	s.Reasoning = parseReasoning(r, f, e.Model)
	if n := f.Get("seed"); s.Seed != nil && e.Model != nil && !takesSeed(model.API(e.Model.API)) {
		r.Warnf(n, "the API %s has no seed; it is not sent", e.Model.API)
	}
	for _, key := range []string{"models", "prompts"} { // expand has replaced those of an eval set
		if n := f.Get(key); n != nil && n.Kind != input.Null {
			r.Errorf(n, "expected %s; a list stands only in an eval set's own agent or agents", key[:len(key)-1])
		}
	}
	e.Name = f.String("name", nameOf(f.Get("model")))
	if err := checkBatch(e); err != nil {
		r.Errorf(f.Get("batch"), "%v", err)
	}
	s.waits(&e)
	return e
}

func parseTools(r *input.Reader, f *input.Fields, s *Settings) {
	s.Tools, s.Approve = f.Strings("tools"), f.Strings("approve")
	if f.Has("elicitation") {
		s.Elicitation = f.Enum("elicitation", elicitDeny, elicitDeny, elicitSuspend)
	}
	if f.Has("history") {
		s.History = f.Enum("history", historyCut, historyCut, historySummary)
	}
	for _, pattern := range s.Approve {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			r.Errorf(f.Get("approve"), "expected names of tools, in which * stands for anything, got %q", pattern)
		} else if slices.Equal(s.Tools, []string{bashTool}) && !fits(pattern, bashTool) {
			r.Errorf(f.Get("approve"), "%q fits none of the tools, of which there is only %s", pattern, bashTool)
		}
	}
	for i, name := range s.Tools {
		if !slices.Contains(allTools, name) || slices.Contains(s.Tools[:i], name) {
			r.Errorf(f.Get("tools"), "expected a list of %s, each at most once", strings.Join(allTools, " and "))
			break
		}
	}
	for _, key := range []string{"turns", "commandTimeout", "commandOutput", "approve", "elicitation",
		"contextTokens", "history"} {
		if f.Has(key) && len(s.Tools) == 0 {
			r.Errorf(f.Get(key), `has a meaning only with "tools"`)
		}
	}
}

// needs is the [agent.Type].NeedsOf of models: commands run in the sandbox of the rollout.
func needs(e agent.Entry) agent.Needs {
	s, ok := e.Settings.(*Settings)
	if !ok || len(s.Tools) == 0 {
		return agent.Needs{}
	}
	return agent.Needs{Sandbox: true, Env: true, Gateway: s.has(mcpTools)}
}

// The values of [Settings].Elicitation.
const (
	elicitDeny    = "deny"
	elicitSuspend = "suspend"
)

// asksPeople is the [agent.Type].AsksPeople of models.
func asksPeople(e agent.Entry) bool {
	s, ok := e.Settings.(*Settings)
	return ok && s.Elicitation == elicitSuspend
}

// has reports whether the model may call a tool, or those of MCP servers.
func (s *Settings) has(tool string) bool { return slices.Contains(s.Tools, tool) }

// waits makes an entry wait for all calls of an answer, and take what has failed: a model needs a
// result for each of them, and can be told of a fault.
func (s *Settings) waits(e *agent.Entry) {
	if s.has(mcpTools) || len(s.Approve) > 0 {
		e.ResumeWhen, e.AcceptsFaults = agent.ResumeAll, true
	}
}

func (s *Settings) turns() int { return cmp.Or(s.Turns, defaultTurns) }

func (s *Settings) commandTimeout() time.Duration {
	return cmp.Or(time.Duration(s.CommandTimeout), defaultCommandTimeout)
}

func (s *Settings) commandOutput() int { return cmp.Or(s.CommandOutput, defaultCommandOutput) }

func takesSeed(api model.API) bool { return api == model.APIChat || api == model.APIGemini }

// nameOf returns the name of an agent that has none.
func nameOf(n *input.Node) string {
	switch {
	case n == nil:
		return Name
	case n.Kind == input.Object && n.Member("name") != nil:
		return n.Member("name").Text
	}
	return n.Text
}

func parseModel(r *input.Reader, f *input.Fields) *agent.Model {
	n := f.Get("model")
	if n != nil && n.Kind == input.String {
		m, err := named(n.Text)
		if err != nil {
			r.Errorf(n, `%v; an object such as {"api": "chat", "url": …, "name": …} is for any other endpoint`, err)
		}
		return m
	}
	if n == nil {
		f.Required("model", input.String) // which is missing
		return nil
	}
	if n = f.Optional("model", input.Object); n == nil {
		return nil
	}
	o := r.Object(n)
	m := &agent.Model{
		API: o.Enum("api", string(model.APIChat), apis...), Key: o.String("key", ""), Name: o.RequiredString("name"),
	}
	m.URL = o.String("url", model.DefaultURL[model.API(m.API)])
	agent.CheckEndpoint(r, o, m.Key, "url", m.URL)
	o.Done()
	return m
}

// mostPrompt is how large the file of a prompt may be.
const mostPrompt = 10 << 20

// text returns a text, or the content of the file that it names as file:PATH, relative to the
// document.
func text(r *input.Reader, n *input.Node) string {
	if n == nil {
		return ""
	}
	name, ok := strings.CutPrefix(n.Text, "file:")
	if !ok {
		return n.Text
	}
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(n.File), filepath.FromSlash(path))
	}
	data, err := input.ReadFile(path, mostPrompt)
	if err != nil {
		r.Errorf(n, "%v%s", input.Unreadable(path, err), input.NearFile(path))
	}
	return string(data)
}

func parseMessages(r *input.Reader, f *input.Fields) (out []Message) {
	n := f.Optional("messages", input.Array)
	if n == nil {
		return nil
	}
	if f.Has("prompt") {
		r.Errorf(n, "expected either prompt or messages")
	}
	for _, o := range r.Objects(n) {
		m := Message{Role: o.Enum("role", "user", "user", "assistant")}
		if c := o.Get("content"); c != nil && c.Kind == input.Array {
			m.Parts = parseParts(r, c)
			if m.Role != "user" {
				r.Errorf(c, "expected a string: only messages of the user have parts")
			}
		} else if c := o.Required("content", input.String); c != nil {
			m.Content = text(r, c)
		}
		o.Done()
		out = append(out, m)
	}
	if len(out) == 0 || out[len(out)-1].Role != "user" {
		r.Errorf(n, "expected messages of which the last has the role user")
	}
	return out
}

// parseParts reads the parts of a message.
func parseParts(r *input.Reader, n *input.Node) (out []Part) {
	for _, item := range n.Items {
		o := r.Object(item)
		part := Part{Text: text(r, o.Optional("text", input.String)), File: o.String("file", "")}
		if item.Kind == input.Object && (part.Text == "") == (part.File == "") {
			r.Errorf(item, "expected either text or file")
		}
		o.Done()
		out = append(out, part)
	}
	if len(out) == 0 {
		r.Errorf(n, "expected at least one part")
	}
	return out
}

// parseFiles reads the key "files": they are sent before the prompt, in one message.
func parseFiles(r *input.Reader, f *input.Fields, s *Settings) {
	names := f.Strings("files")
	switch {
	case len(names) == 0:
	case f.Has("messages"):
		r.Errorf(f.Get("files"), `expected files in the content of messages, as in [{"file": "photo.png"}, {"text": …}]`)
	case s.Prompt == "":
		r.Errorf(f.Get("files"), `has a meaning only with "prompt"`)
	default:
		one := Message{Role: "user"}
		for _, name := range names {
			if name == "" {
				r.Errorf(f.Get("files"), "expected names of files, got an empty one")
			}
			one.Parts = append(one.Parts, Part{File: name})
		}
		one.Parts = append(one.Parts, Part{Text: s.Prompt})
		s.Prompt, s.Messages = "", []Message{one}
	}
}

func parseOutput(r *input.Reader, f *input.Fields) *Output {
	n := f.Optional("output", input.Object)
	if n == nil {
		return nil
	}
	o := r.Object(n)
	schema := o.Required("schema", input.Object)
	o.Done()
	if schema == nil {
		return nil
	}
	out := &Output{Schema: schema.JSON()}
	if _, err := resolve(out.Schema); err != nil {
		r.Errorf(schema, "expected a JSON Schema: %v", err)
	}
	return out
}

// resolve reads a JSON Schema.
func resolve(schema json.RawMessage) (*jsonschema.Resolved, error) {
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, err
	}
	return s.Resolve(nil)
}

func parseReasoning(r *input.Reader, f *input.Fields, m *agent.Model) json.RawMessage {
	n := f.Get("reasoning")
	if n == nil || n.Kind == input.Null {
		return nil
	}
	openAI := m != nil && (m.API == string(model.APIChat) || m.API == string(model.APIResponses))
	switch {
	case n.Kind == input.String && n.Text != "":
	case n.Kind == input.Number && !openAI:
		f.Int("reasoning", 0, 0, 1<<31-1)
	case openAI:
		r.Errorf(n, `expected a word such as "low", "medium" or "high", got %s`, n.Kind)
	default:
		r.Errorf(n, `expected a word such as "low", "medium" or "high", or a number of tokens, got %s`, n.Kind)
	}
	return n.JSON()
}

// check is the [agent.Type].Check of models.
func check(e agent.Entry) error {
	if e.Model == nil || e.Model.Name == "" {
		return fmt.Errorf("agent %q has no model", e.Name)
	}
	if !slices.Contains(apis, e.Model.API) {
		return fmt.Errorf("agent %q: the API %q is not supported by this version; supported: %s",
			e.Name, e.Model.API, strings.Join(apis, ", "))
	}
	return checkBatch(e)
}

// expand makes an entry of each model with each prompt. An entry without lists stays as it is.
func expand(n *input.Node) []*input.Node {
	models, prompts := list(n, "model"), list(n, "prompt")
	if models == nil && prompts == nil {
		return []*input.Node{n}
	}
	var out []*input.Node
	for _, m := range cmpList(models) {
		for i, p := range cmpList(prompts) {
			one := *n
			one.Members = nil
			for _, member := range n.Members {
				replaced := member.Key == "models" && models != nil || member.Key == "prompts" && prompts != nil
				if replaced || member.Key == "name" {
					continue
				}
				one.Members = append(one.Members, member)
			}
			set := func(key string, at *input.Node, value string) {
				node := *at
				if value != "" {
					node.Kind, node.Text = input.String, value
				}
				one.Members = append(one.Members, input.Member{Key: key, Line: at.Line, Column: at.Column, Value: &node})
			}
			var parts []string
			if given := n.Member("name"); given != nil && given.Kind == input.String {
				parts = append(parts, given.Text)
			}
			if m != nil {
				set("model", m, "")
				parts = append(parts, nameOf(m))
			} else if len(parts) == 0 {
				parts = append(parts, nameOf(n.Member("model")))
			}
			if p != nil {
				set("prompt", p, "")
				label := fmt.Sprintf("prompt %d", i+1)
				if file, ok := strings.CutPrefix(p.Text, "file:"); ok {
					label = filepath.Base(file)
				}
				parts = append(parts, label)
			}
			set("name", n, strings.Join(parts, " "))
			out = append(out, &one)
		}
	}
	return out
}

// list returns the elements of the list models or prompts; nil if there is none, or if the key of a
// single one is there too, which is an error that parse records.
func list(n *input.Node, key string) []*input.Node {
	if at := n.Member(key + "s"); at != nil && at.Kind == input.Array && n.Member(key) == nil {
		return at.Items
	}
	return nil
}

// cmpList returns a list, or one element that is nil for none.
func cmpList(list []*input.Node) []*input.Node {
	if len(list) == 0 {
		return []*input.Node{nil}
	}
	return list
}

// lacks returns the first variable of the templates that the inputs lack; empty if they have all.
func lacks(e agent.Entry, inputs json.RawMessage) string {
	s := e.Settings.(*Settings)
	missing := ""
	templates := append([]string{s.System, s.Prompt}, contents(s.Messages)...)
	if s.User != nil {
		templates = append(templates, s.User.Persona, s.User.Goal)
	}
	for _, t := range templates {
		_, lacking := fill(t, inputs)
		missing = cmp.Or(missing, lacking)
	}
	return missing
}

func contents(messages []Message) (out []string) {
	for _, m := range messages {
		out = append(out, m.Content)
		for _, p := range m.Parts {
			out = append(out, p.Text, p.File)
		}
	}
	return out
}
