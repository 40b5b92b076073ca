package modelagent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
)

// Batch says how answers are asked for in batches of the provider. The rollout is suspended meanwhile.
type Batch struct {
	// These are as in [model.Batching].
	MaxWait     wait.Duration `json:"maxWait"`
	Interval    wait.Duration `json:"interval"`
	MaxInterval wait.Duration `json:"maxInterval"`
	PriceFactor float64       `json:"priceFactor"`
	// Expired says what becomes of a request that the batch leaves without an answer.
	Expired string `json:"expired"`
}

// newBatch makes the settings of batches.
func newBatch(b model.Batching) *Batch {
	return &Batch{wait.Duration(b.MaxWait), wait.Duration(b.Interval), wait.Duration(b.MaxInterval), b.PriceFactor, expiredAsk}
}

func (b *Batch) batching() model.Batching {
	return model.Batching{Enabled: true, MaxWait: time.Duration(b.MaxWait), Interval: time.Duration(b.Interval),
		MaxInterval: time.Duration(b.MaxInterval), PriceFactor: b.PriceFactor}
}

// The values of [Batch].Expired.
const (
	expiredAsk  = "ask"  // the model is asked directly
	expiredFail = "fail" // that is a fault
)

// mostGathered is how long a batch waits for more requests where nothing else is said: the commands of
// a turn may take long, and a batch a turn is the cheapest in waiting.
const mostGathered = 10 * time.Minute

var defaultBatching = func() model.Batching {
	b := model.DefaultBatching
	b.MaxWait = mostGathered
	return b
}()

// InBatches has an entry ask its model in batches of the provider, if it does not do so already.
func InBatches(e *agent.Entry) error {
	s := e.Settings.(*Settings)
	if s.Batch == nil {
		s.Batch = newBatch(defaultBatching)
	}
	return checkBatch(*e)
}

// checkBatch says why a model cannot be asked in batches.
func checkBatch(e agent.Entry) error {
	s, ok := e.Settings.(*Settings)
	switch {
	case !ok || s.Batch == nil || e.Model == nil:
		return nil
	case s.User != nil:
		return fmt.Errorf("agent %q: a user who is played waits for no batch; leave out batch or user", e.Name)
	case model.API(e.Model.API).HasBatches():
		return nil
	}
	return fmt.Errorf("agent %q: evalrun knows no batches of the API %s; they are there for chat, responses and messages",
		e.Name, e.Model.API)
}

// parseBatch reads the key "batch": true, or an object.
func parseBatch(r *input.Reader, f *input.Fields) *Batch {
	n := f.Get("batch")
	if n == nil || n.Kind == input.Null || n.Kind == input.Bool && n.Text != "true" {
		return nil
	}
	switch n.Kind {
	case input.Bool:
	case input.Object:
		o := r.Object(n)
		b := newBatch(model.ParseBatching(r, o, defaultBatching))
		b.Expired = o.Enum("expired", expiredAsk, expiredAsk, expiredFail)
		o.Done()
		return b
	default:
		r.Errorf(n, `expected true, or an object such as {"maxWait": "10m"}, got %s`, n.Kind)
	}
	return newBatch(defaultBatching)
}

// Batches returns the batches of the provider of an entry, and when they are asked for. redact takes
// secrets out of answers. The error is a *[model.BatchError].
func Batches(e agent.Entry, o agent.Options, redact func(json.RawMessage) json.RawMessage) (
	*model.Batches, model.Batching, error) {
	s, ok := e.Settings.(*Settings)
	if !ok || s.Batch == nil || checkBatch(e) != nil {
		return nil, model.Batching{}, &model.BatchError{Final: true, Message: "the agent " + e.Name + " asks in no batches"}
	}
	base, key, f := resolveEndpoint(e, o)
	if f != nil {
		return nil, s.Batch.batching(), &model.BatchError{Message: f.Message} // another process may have the key
	}
	endpoint := model.NewEndpoint(e.Name, model.Provider{API: model.API(e.Model.API)}, model.Options{Now: o.Now})
	return endpoint.Batches(base, key, redact), s.Batch.batching(), nil
}

// ShareBatches reports whether the requests of two entries may be in one batch.
func ShareBatches(a, b agent.Entry) bool {
	s, ok := a.Settings.(*Settings)
	other, okay := b.Settings.(*Settings)
	return ok && okay && s.Batch != nil && other.Batch != nil && *s.Batch == *other.Batch && *a.Model == *b.Model
}

// sources are the sources of the triggers that wait for an answer in a batch.
var sources = map[model.API]string{model.APIChat: wait.SourceOpenAIBatch, model.APIResponses: wait.SourceOpenAIBatch,
	model.APIMessages: wait.SourceAnthropicBatch}

// answerID is the id under which the rollout waits for an answer in a batch.
func answerID(n int) string { return fmt.Sprintf("answer-%d", n) }

// askInBatch ends the segment: the rollout waits for its nth answer, which comes in a batch.
func (s *segment) askInBatch(n int) (agent.Outcome, error) {
	q := s.question
	q.drop = s.a.endpoint.Dropped(q.model)
	body, err := q.bytes(s.a.api)
	if err != nil {
		return agent.Outcome{Fault: fault.Newf(fault.NotRunnable, "the question cannot be written as JSON: %v", err)}, nil
	}
	id := answerID(n)
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %d %d", s.seg.RolloutID, id, s.seg.Number, s.seg.Failures))
	request := &wait.BatchRequest{Source: sources[s.a.api], Model: q.model, CustomID: hex.EncodeToString(sum[:])[:40],
		Body: body, Wait: time.Duration(s.a.settings.Batch.MaxWait)}
	payload, err := jsonobj.Marshal(s.estimate(len(body) - q.fileBytes))
	spec := wait.Spec{Type: wait.TypeJob, Name: string(wait.TypeJob), ItemKey: request.CustomID, Payload: payload}
	s.trail.Add(record.EventSuspended, "", "", object{"interrupt": id})
	failpoint.Hit("model.suspends")
	return agent.Outcome{Batched: n - 1,
		Interrupts: []wait.Interrupt{{ID: id, Specs: []wait.Spec{spec}, Request: request}}}, err
}

// bytesPerToken is about how many bytes of a request are a token.
const bytesPerToken = 4

func (s *segment) estimate(bytes int) wait.Batched {
	used := eval.Usage{Model: s.question.model, InputTokens: int64(bytes / bytesPerToken)}
	return wait.Batched{Batch: true, Model: used.Model, InputTokens: used.InputTokens, InputCost: s.priced(used, true).Cost}
}

// priced returns a usage with its cost, if answers come in batches: those cost less than the others of
// the same model.
func (s *segment) priced(used eval.Usage, batched bool) eval.Usage {
	b := s.a.settings.Batch
	if b == nil || s.seg.Budget == nil {
		return used
	}
	if used = s.seg.Budget.Prices.Priced(used); batched && used.Cost != nil {
		cost := eval.RoundCost(*used.Cost * b.PriceFactor)
		used.Cost = &cost
	}
	return used
}

// next returns the nth answer: that of its batch, or that of a direct request where nothing else is
// said. c is nil if there is none; then waits says that it comes in a batch.
func (s *segment) next(ctx context.Context, n int) (got model.Reply, c *model.Call, waits bool, f *fault.Fault, err error) {
	batch := s.a.settings.Batch
	d, arrived := s.seg.Deliveries[answerID(n)]
	switch {
	case batch != nil && !arrived:
		return got, nil, true, nil, nil
	case batch == nil || s.seg.Failures > 0: // after a fault another answer is wanted
		got, c, f, err = s.ask(ctx)
		return got, c, false, f, err
	}
	s.trail.Add(record.EventResumed, "", "", object{"interrupt": answerID(n), "triggerId": d.TriggerID})
	var answer model.BatchAnswer
	switch err := json.Unmarshal(d.Payload, &answer); {
	case d.Error != nil:
		answer.Error = d.Error.Message
	case err != nil || answer.Error == "" && answer.Body == nil:
		answer.Error = "what was delivered is no answer of a batch"
	}
	if answer.Error == "" {
		s.batched = true
		defer func() { s.batched = false }()
		got, c, f, err = s.read(&model.Call{Response: answer.Body, RequestID: answer.RequestID})
		return got, c, false, f, err
	}
	s.trail.Add(record.EventUpdate, "", "", object{"interrupt": answerID(n), "batch": answer.Batch, "unanswered": answer.Error})
	if s.tooLong = saysTooLong(answer.Error); s.tooLong {
		return got, nil, false, tooLongFault(answer.Error), nil
	}
	if batch.Expired == expiredFail {
		return got, nil, false, fault.Newf(fault.Model, "the batch %s has left the request without an answer: %s",
			answer.Batch, answer.Error), nil
	}
	got, c, f, err = s.ask(ctx)
	return got, c, false, f, err
}

// counted reports whether an earlier attempt of this segment has counted the answer that has arrived.
// It is the first answer of the segment.
func (s *segment) counted() (bool, error) {
	for _, dir := range s.seg.Earlier {
		var number, attempt int
		if _, err := fmt.Sscanf(filepath.Base(dir), "%d.%d", &number, &attempt); err != nil || number != s.seg.Number {
			continue
		}
		if used, _, err := record.UsageLeft(dir, nil); err != nil || len(used) > 0 {
			return true, err
		}
	}
	return false, nil
}
