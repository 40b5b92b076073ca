// Package judge asks models for verdicts: it finds the provider of a model, keeps its limits and
// the run's budget, repeats failed calls, caches answers, and stores questions and answers beside
// the rollout.
//
// It knows three wire formats, but nothing about the questions. Package eval makes these and checks
// their answers. A judge that fails gives a category and never a score.
package judge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/redact"
)

// Options holds what the judges of a run need.
type Options struct {
	Config Config
	// CacheDir is the folder of answers that were given before, for all runs of a store.
	CacheDir string
	// AgentModels maps the plan's agents by name to their models, as far as evalrun knows them.
	AgentModels map[string]string
	// Resolve returns the value of a ${VAR}.
	Resolve func(name string) (string, bool)
	// Redact takes secrets out of everything that is sent and written; nil if there are none.
	Redact *redact.Redactor
	// Client makes the requests; nil means one of its own.
	Client *http.Client
	// Spent returns what the run has spent before this process; nil means nothing. It is called
	// once, if there is a budget.
	Spent func(ctx context.Context) (Spent, error)
	// Pause waits; nil means by the clock. It ends early with the context, whose error it returns.
	Pause func(ctx context.Context, d time.Duration) error
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Judges are the judges of one run. They are safe for concurrent use.
type Judges struct {
	o         Options
	providers map[string]*model.Endpoint
	budget    *budget

	mu sync.Mutex
	// asking holds the questions that are being asked for the cache, so that no question is asked
	// twice at once.
	asking map[string]chan struct{}
}

// New makes the judges of a run. Nothing is asked until one of their rollouts asks.
func New(o Options) *Judges {
	if o.Now == nil {
		o.Now = time.Now
	}
	j := &Judges{o: o, providers: map[string]*model.Endpoint{},
		budget: &budget{limit: o.Config.Budget, before: o.Spent}, asking: map[string]chan struct{}{}}
	for name, config := range o.Config.Providers {
		j.providers[name] = model.NewEndpoint(name, config, model.Options{Client: o.Client, Pause: o.Pause, Now: o.Now})
	}
	return j
}

// Of returns the judges of one rollout of an agent. Dir is the folder in which the transcripts are
// kept. Payer names the rollout and, if it is scored again, the rescoring. If the same payer asks
// the same again, it was killed before, so its results get the cost of the first time. Payer may be
// empty.
func (j *Judges) Of(agent, dir, payer string) eval.Judge { return &ofRollout{j, agent, dir, payer} }

type ofRollout struct {
	*Judges
	agent, dir, payer string
}

// Ask implements [eval.Judge].
func (j *ofRollout) Ask(ctx context.Context, q eval.Question) (eval.Answer, error) {
	a, err := j.prepare(q)
	if err != nil {
		return eval.Answer{}, err
	}
	return j.ask(ctx, a)
}

// Redact implements [eval.Judge].
func (j *ofRollout) Redact(text string) string { return j.o.Redact.String(text) }

// prepare finds the provider and the model, and takes secrets out of the texts that a third party
// will read.
func (j *ofRollout) prepare(q eval.Question) (*asked, error) {
	name, err := j.o.Config.resolve(q.Model, j.o.AgentModels[j.agent])
	if err != nil {
		return nil, err
	}
	provider, ok := j.o.Config.providerOf(name)
	p := j.providers[provider]
	if !ok || p == nil {
		return nil, &eval.NotAsked{Reason: "no provider of judges has the model " + name}
	}
	api := p.Config.API
	if q.Embed {
		if api != APIChat && api != APIResponses {
			return nil, &eval.NotAsked{Reason: "the provider " + provider + ", which has the model " + name +
				", has no embeddings; a provider of OpenAI's API has"}
		}
		api = model.APIEmbeddings
	}
	q.Model = name
	q.System, q.Prompt = j.o.Redact.String(q.System), j.o.Redact.String(q.Prompt)
	sum := sha256.Sum256([]byte(q.System + "\x00" + q.Prompt))
	return &asked{j: j.Judges, payer: j.payer, p: p, api: api, q: q, call: eval.JudgeCall{
		Provider: p.Name, API: string(api), Model: q.Model, Temperature: q.Temperature, Seed: q.Seed,
		MaxTokens: q.MaxTokens, PromptHash: "sha256:" + hex.EncodeToString(sum[:]), TemplateHash: q.TemplateHash}}, nil
}
