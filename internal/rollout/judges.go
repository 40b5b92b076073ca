package rollout

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/modelagent"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// SpentOnJudges returns what the judges of a run have cost so far, according to its results. A
// question in a batch counts as a call as soon as it waits; its cost is known only with its answer.
func SpentOnJudges(ctx context.Context, st store.Reader, runID string) (sum judge.Spent, err error) {
	var waiting map[string]bool
	err = st.Snapshot(ctx, runID, func(v store.View) error {
		sum, waiting = judge.Spent{}, map[string]bool{}
		return v.Rollouts(func(r store.RolloutView) error {
			said := map[string]bool{}
			for _, stored := range r.Results {
				said[stored.EvaluatorID] = true
				var results []eval.Result
				if err := json.Unmarshal(stored.Data, &results); err != nil {
					return err
				}
				for _, one := range results {
					if one.Judge == nil || one.Line {
						continue
					}
					for _, call := range one.Judge.Verdicts {
						sum.Add(call)
					}
				}
			}
			for _, t := range r.Triggers {
				if said[t.EvaluatorID] || t.Source != wait.SourceOpenAIBatch && t.Source != wait.SourceAnthropicBatch {
					continue
				}
				question, err := questionOf(t)
				if err != nil {
					return err
				}
				if !waiting[question] {
					sum.Calls++
				}
				waiting[question] = question != ""
			}
			return nil
		})
	})
	return sum, err
}

// questionOf returns the id that all triggers share that wait for the answer to one request; it is
// empty if no other trigger waits for this one.
func questionOf(t store.Trigger) (string, error) {
	var spec wait.Spec
	if err := json.Unmarshal(t.Spec, &spec); err != nil || spec.Payload == nil {
		return "", err
	}
	var payload batchPayload
	return payload.Question, json.Unmarshal(spec.Payload, &payload)
}

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
