package rollout

import (
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/modelagent"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// ofAgent begins the provider of batches of an agent; the name of the agent follows. Any other
// provider is one of the judges.
const ofAgent = "agent:"

// agentRequest makes what is stored of an agent's request that goes to a batch. Agents that share their
// batches, such as those of one model with several prompts, have the provider of the first of them.
func (r *Run) agentRequest(e agent.Entry, q wait.BatchRequest) *store.BatchRequest {
	i := slices.IndexFunc(r.Plan.Agents, func(other agent.Entry) bool { return modelagent.ShareBatches(e, other) })
	return &store.BatchRequest{Provider: ofAgent + r.Plan.Agents[i].Name, Model: q.Model, CustomID: q.CustomID,
		Body: q.Body, Wait: q.Wait}
}

// Batches returns the batches of a provider, and when they are asked for. The error is a
// *[model.BatchError].
func (r *Run) Batches(provider string) (*model.Batches, model.Batching, error) {
	name, ok := strings.CutPrefix(provider, ofAgent)
	if i := slices.IndexFunc(r.Plan.Agents, func(e agent.Entry) bool { return e.Name == name }); ok && i >= 0 {
		return modelagent.Batches(r.Plan.Agents[i], r.agents.options, r.Redact.JSON)
	}
	if r.Judges == nil || ok {
		return nil, model.Batching{}, &model.BatchError{Final: true, Message: "the plan has no provider " + provider}
	}
	b, err := r.Judges.Batches(provider)
	return b, r.Plan.Judges.Batch, err
}
