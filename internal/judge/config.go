package judge

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/model"
)

// Config is the eval set's key "judges" as it is stored with the plan: the models, and what they
// may cost. It holds names of variables, but no API key.
type Config struct {
	Providers map[string]Provider `json:"providers,omitempty"`
	// Models maps names and patterns of models, as in eval.BestPattern, to the providers that have
	// them.
	Models map[string]string `json:"models,omitempty"`
	// Model is asked instead of the agent's own model if evalrun does not know that one.
	Model  string         `json:"model,omitempty"`
	Prices eval.Prices    `json:"prices,omitempty"`
	Budget Budget         `json:"budget,omitzero"`
	Batch  model.Batching `json:"batch,omitzero"`
	// NoCache asks questions again that were asked before.
	NoCache bool `json:"noCache,omitempty"`
}

// API is a wire format, and Provider an endpoint with models.
type (
	API      = model.API
	Provider = model.Provider
)

// The wire formats of judges.
const (
	APIChat      = model.APIChat
	APIResponses = model.APIResponses
	APIMessages  = model.APIMessages
)

// Budget is what a run may spend on its judges; 0 means no limit.
type Budget struct {
	Calls  int     `json:"calls,omitempty"`
	Tokens int64   `json:"tokens,omitempty"`
	Cost   float64 `json:"cost,omitempty"`
}

const defaultConcurrency = 8

// Default returns the configuration of an eval set without the key "judges", which comes from the
// environment alone.
func Default() Config {
	return Config{
		Providers: map[string]Provider{
			"openai": {API: APIChat, BaseURL: model.DefaultURL[APIChat], Key: "${OPENAI_API_KEY}", Concurrency: defaultConcurrency},
			"anthropic": {API: APIMessages, BaseURL: model.DefaultURL[APIMessages], Key: "${ANTHROPIC_API_KEY}",
				Concurrency: defaultConcurrency},
		},
		Models: map[string]string{"claude-*": "anthropic", "*": "openai"},
		Batch:  model.DefaultBatching,
	}
}

// ParseConfig reads the value of the key "judges"; n may be nil. Missing settings are as in
// [Default].
func ParseConfig(r *input.Reader, n *input.Node) Config {
	c := Default()
	if n == nil || n.Kind != input.Object {
		return c
	}
	f := r.Object(n)
	if p := f.Optional("providers", input.Object); p != nil {
		for _, m := range p.Members {
			c.Providers[m.Key] = parseProvider(r, m.Value)
		}
	}
	if models := f.Optional("models", input.Object); models != nil {
		own := map[string]string{}
		for _, m := range models.Members {
			parseModel(r, c, m)
			own[m.Key] = m.Value.Text
		}
		for pattern := range c.Models { // the set's own patterns go before the default ones
			if _, covered := eval.BestPattern(own, pattern); covered {
				delete(c.Models, pattern)
			}
		}
		maps.Copy(c.Models, own)
	}
	c.Model = f.String("model", "")
	c.Prices = eval.ParsePrices(r, f.Get("prices"))
	if b := f.Optional("budget", input.Object); b != nil {
		g := r.Object(b)
		c.Budget = Budget{Calls: g.Int("calls", 0, 1, 1<<31-1), Tokens: int64(g.Int("tokens", 0, 1, 1<<53)),
			Cost: g.Float("cost", 0, 0, 1e12)}
		g.Done()
	}
	if b := f.Optional("batch", input.Object); b != nil {
		g := r.Object(b)
		c.Batch = model.ParseBatching(r, g, model.DefaultBatching)
		c.Batch.Enabled = g.Bool("enabled", false)
		g.Done()
	}
	f.Done()
	return c
}

func parseProvider(r *input.Reader, n *input.Node) Provider {
	f := r.Object(n)
	if n.Kind != input.Object {
		return Provider{}
	}
	f.Required("api", input.String)
	p := Provider{API: API(f.Enum("api", string(APIChat), string(APIChat), string(APIResponses), string(APIMessages))),
		Key: f.String("key", "")}
	p.BaseURL = f.String("baseUrl", model.DefaultURL[p.API])
	p.Concurrency = f.Int("concurrency", defaultConcurrency, 1, 1000)
	p.RequestsPerMinute = f.Int("requestsPerMinute", 0, 1, 1_000_000)
	agent.CheckEndpoint(r, f, p.Key, "baseUrl", p.BaseURL)
	f.Done()
	return p
}

func parseModel(r *input.Reader, c Config, m input.Member) {
	names := slices.Sorted(maps.Keys(c.Providers))
	if _, ok := c.Providers[m.Value.Text]; !ok || m.Value.Kind != input.String {
		r.Errorf(m.Value, "expected the name of a provider (%s), got %q%s", strings.Join(names, ", "), m.Value.Text,
			input.Suggest(m.Value.Text, names))
	}
}

// Variables returns the variables that the providers name, sorted.
func (c Config) Variables() (names []string) {
	for _, p := range c.Providers {
		names = append(append(names, agent.VariablesIn(p.Key)...), agent.VariablesIn(p.BaseURL)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// BaseURLs returns the variables in the providers' URLs.
func (c Config) BaseURLs() (names []string) {
	for _, p := range c.Providers {
		names = append(names, agent.VariablesIn(p.BaseURL)...)
	}
	return names
}

// Concurrency returns how many calls of all providers together may be in flight at once.
func (c Config) Concurrency() (n int) {
	for _, p := range c.Providers {
		n += p.Concurrency
	}
	return n
}

// resolve returns the model that a name in an evaluator's configuration means. agents is the
// agent's own model, if evalrun knows it.
func (c Config) resolve(model, agents string) (string, error) {
	if model != "" && model != eval.SameAsAgent {
		return model, nil
	}
	if model = cmp.Or(agents, c.Model); model == "" {
		return "", &eval.NotAsked{
			Reason: "the judge is to be the agent's own model, which evalrun does not know; name one with --judge-model"}
	}
	return model, nil
}

// Missing says why a judge cannot be asked: no model, no provider, or no key for it. It is empty if
// nothing is missing. agents is the model of the agent, if evalrun knows it.
func (c Config) Missing(model, agents string, resolve func(string) (string, bool)) string {
	name, err := c.resolve(model, agents)
	if err != nil {
		return err.Error()
	}
	provider, ok := c.providerOf(name)
	if !ok {
		return "no provider of judges has the model " + name
	}
	p := c.Providers[provider]
	if key, _ := (agent.Options{Resolve: resolve}).Expand(p.Key); p.Key != "" && key == "" {
		return "an LLM judge needs a model: set " + strings.Join(agent.VariablesIn(p.Key), " and ") +
			", in the environment or in an --env-file, to ask " + name
	}
	return ""
}

// Keys returns the variables without which a judge cannot be asked.
func (c Config) Keys(model, agents string) []string {
	name, err := c.resolve(model, agents)
	if err != nil {
		return nil
	}
	provider, _ := c.providerOf(name)
	p := c.Providers[provider]
	return agent.Entry{Env: map[string]string{"key": p.Key, "url": p.BaseURL}}.Required()
}

// providerOf finds the provider of a model.
func (c Config) providerOf(model string) (string, bool) {
	pattern, ok := eval.BestPattern(c.Models, model)
	return c.Models[pattern], ok
}
