package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// evaluatorWait is an evaluator with the interrupts or requests for which it waits.
type evaluatorWait struct {
	evaluatorID string
	interrupts  []wait.Interrupt
	// requests are the questions of a judge that go into batches of its providers.
	requests []judge.Request
}

// wait notes what an evaluator waits for. If it cannot wait for that, it has failed, and wait
// returns its result.
func (s *scoring) wait(def eval.Definition, raw json.RawMessage) []eval.Result {
	interrupts, err := wait.ParseInterrupts(raw)
	if limit := s.held.run.Plan.Set.Limits.Suspensions; err == nil && s.held.claim.Scorings >= limit {
		err = fmt.Errorf("the evaluators of the rollout have waited %d times (limits.suspensions)", limit)
	}
	if err != nil {
		return []eval.Result{{EvaluatorID: def.ID, EvaluatorName: def.Name, Scale: 1,
			Error: "the evaluator cannot wait: " + err.Error()}}
	}
	s.waits = append(s.waits, evaluatorWait{evaluatorID: def.ID, interrupts: interrupts})
	return nil
}

// batchPayload is the payload of a trigger whose request goes to a batch.
type batchPayload struct {
	Provider string `json:"provider"`
	Model    string `json:"model"`
	// Question is the same for equal requests, which are paid for once.
	Question string `json:"question"`
}

// batchTrigger makes the trigger of a request that goes to a batch.
func batchTrigger(r judge.Request, batching model.Batching) (n store.NewTrigger, err error) {
	source := wait.SourceOpenAIBatch
	if r.API == judge.APIMessages {
		source = wait.SourceAnthropicBatch
	}
	payload, err := json.Marshal(batchPayload{r.Provider, r.Model, r.CustomID})
	if err != nil {
		return n, err
	}
	spec := wait.Spec{Type: wait.TypeJob, Name: string(wait.TypeJob), ItemKey: r.Key, Payload: payload}
	n = store.NewTrigger{InterruptID: r.Key, Type: string(spec.Type), Name: spec.Name, Source: source, ItemKey: r.Key,
		KeyPrefix: spec.Type.KeyPrefix(), Digest: spec.Digest(),
		Request: &store.BatchRequest{Provider: r.Provider, Model: r.Model, CustomID: r.CustomID, Body: r.Body,
			Wait: batching.MaxWait}}
	n.Spec, err = json.Marshal(spec)
	return n, err
}

// deliveries returns the deliveries for an evaluator, by the ids of its interrupts. Of siblings it
// has the one that came first.
func (s *scoring) deliveries(evaluatorID string) map[string]eval.Delivery {
	out := map[string]eval.Delivery{}
	for _, t := range s.held.claim.Deliveries {
		if t.EvaluatorID != evaluatorID {
			continue
		}
		d := eval.Delivery{TriggerID: t.ID, Status: string(t.Status), Payload: t.Payload, ReceivedAt: t.DeliveredAt}
		if d.Payload == nil {
			d.Payload = json.RawMessage("null")
		}
		if t.Fault != nil {
			d.Error = &eval.DeliveryError{Category: string(t.Fault.Category), Message: t.Fault.Message}
		}
		out[t.InterruptID] = d
	}
	return out
}

// waitForScores makes the rollout wait for its evaluators. The process keeps nothing of it: the
// results of the others are stored in the same transaction.
func (r *Rollout) waitForScores(ctx context.Context, s *scoring) error {
	wait := store.ScoreWait{Results: s.last, Timeout: r.held.run.Plan.ScoreTimeout(time.Now())}
	for _, w := range s.waits {
		triggers, err := r.newTriggers(ctx, w.interrupts)
		if err != nil {
			return err
		}
		for _, request := range w.requests {
			n, err := batchTrigger(request, r.held.run.Plan.Judges.Batch)
			if err != nil {
				return err
			}
			triggers = append(triggers, n)
		}
		for _, n := range triggers {
			n.EvaluatorID = w.evaluatorID
			wait.Triggers = append(wait.Triggers, n)
		}
	}
	failpoint.Hit("rollout.scoring")
	done, err := r.held.host.Store.WaitForScores(ctx, r.held.claim.Token, wait)
	if err != nil {
		return err
	}
	r.state = done.State
	failpoint.Hit("rollout.scoringCommitted")
	r.held.host.JobsChanged()
	return nil
}
