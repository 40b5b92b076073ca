package judge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/model"
)

// Batched asks the judges of a rollout in batches of their providers: a question has no answer at
// first, and is asked again when its batch is done.
type Batched struct {
	ofRollout
	delivered func(evaluatorID string) map[string]eval.Delivery

	mu sync.Mutex
	// requests holds the questions without an answer, by evaluator.
	requests map[string][]Request
}

// Request is a question as it is put into a batch.
type Request struct {
	// Key is unique among all questions, wherever they are asked.
	Key string
	// CustomID identifies the question: equal questions are sent as one.
	CustomID        string
	Provider, Model string
	API             API
	Body            json.RawMessage
}

// InBatches returns the judges of one rollout, like [Judges.Of]. delivered returns the deliveries
// for an evaluator, by the keys of its requests. An evaluator with a delivery does not wait any
// more.
func (j *Judges) InBatches(agent, dir, rolloutID string,
	delivered func(evaluatorID string) map[string]eval.Delivery) *Batched {
	return &Batched{ofRollout: ofRollout{j, agent, dir, rolloutID}, delivered: delivered, requests: map[string][]Request{}}
}

// Ask implements [eval.Judge]. The error is [eval.ErrLater] if the question waits for a batch.
func (b *Batched) Ask(ctx context.Context, q eval.Question) (eval.Answer, error) {
	a, err := b.prepare(q)
	if err != nil {
		return eval.Answer{}, err
	}
	if !q.Embed {
		a.batched = b
	}
	return b.ask(ctx, a)
}

// Requests returns the questions of an evaluator that wait for a batch, in the order of their keys.
func (b *Batched) Requests(evaluatorID string) []Request {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.requests[evaluatorID]
	slices.SortFunc(list, func(x, y Request) int { return cmp.Compare(x.Key, y.Key) })
	return list
}

// Batches returns the batches of a provider.
func (j *Judges) Batches(provider string) (*model.Batches, error) {
	p := j.providers[provider]
	if p == nil {
		return nil, &model.BatchError{Final: true, Message: "there is no provider " + provider}
	}
	c := asked{j: j, p: p}
	if err := c.expand(); err != nil {
		return nil, &model.BatchError{Message: err.Error()} // another process may have the key
	}
	return p.Batches(c.base, c.key, j.o.Redact.JSON), nil
}

// gathers reports whether a question is to wait for a batch.
func (b *Batched) gathers(q eval.Question) bool { return len(b.delivered(q.EvaluatorID)) == 0 }

// keyLength is the length of keys and custom ids. Both providers accept 64 letters and digits.
const keyLength = 40

// key returns the key of the answer for which a rollout waits: that to one question of one
// evaluator.
func (b *Batched) key(q eval.Question) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d", b.payer, q.EvaluatorID, q.Sample))
	return hex.EncodeToString(sum[:])[:keyLength]
}

// customID is the same for two questions if the cache would answer one with the answer to the
// other.
func (b *Batched) customID(a *asked) string {
	if b.o.Config.NoCache {
		return b.key(a.q)
	}
	return cacheKey(a)[:keyLength]
}

// add notes a question for a batch.
func (b *Batched) add(ctx context.Context, a *asked) error {
	if known := a.p.Known(a.q.Model); known != nil {
		return judgeError(known)
	}
	body, err := a.body(a.p.Dropped(a.q.Model))
	if err != nil {
		return failure(eval.JudgeInvalid, "the question cannot be written as JSON: %v", err)
	}
	customID := b.customID(a)
	_, priced := b.o.Config.Prices.Of(a.q.Model)
	if err := b.budget.takeOnce(ctx, customID, priced); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests[a.q.EvaluatorID] = append(b.requests[a.q.EvaluatorID],
		Request{b.key(a.q), customID, a.p.Name, a.q.Model, a.api, body})
	return eval.ErrLater
}

// arrived returns the answer to a question that has come from a batch. decided is false if the
// question must be asked directly: no answer has arrived for it, or the model may do better if it
// is asked once more.
func (b *Batched) arrived(a *asked) (arguments json.RawMessage, decided bool, err error) {
	d, ok := b.delivered(a.q.EvaluatorID)[b.key(a.q)]
	switch {
	case !ok:
		return nil, false, nil
	case d.Error != nil:
		return nil, true, failure(eval.JudgeCategory(d.Error.Category), "%s", d.Error.Message)
	}
	var answer model.BatchAnswer
	if err := json.Unmarshal(d.Payload, &answer); err != nil {
		return nil, false, nil // the payload was delivered by somebody else
	}
	if !answer.Merged {
		a.call.Batch = model.Short(answer.Batch)
	}
	if answer.Error != "" || answer.Body == nil {
		return nil, false, nil
	}
	a.call.Cached = answer.Merged
	a.call.RequestID, a.response = model.Short(answer.RequestID), answer.Body
	got, err := a.read()
	if err != nil {
		return nil, true, err
	}
	a.call.Dropped = a.p.Dropped(a.q.Model).Names // a request of this process was made with these
	again, err := a.judge(&got)
	if again && answer.Merged { // the usage is counted for the request that pays
		a.call.Cached, a.call.Usage = false, nil
	}
	if again {
		return nil, false, nil
	}
	return got.arguments, true, err
}
