package telemetry

import (
	"encoding/json"
	"slices"
	"time"

	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// builder makes the spans of one rollout.
type builder struct {
	run      Run
	storeDir string
	content  bool
	rv       store.RolloutView

	spans []*trace.Span
}

// add adds the spans that have ended with an event.
func (b *builder) add(e store.Event) error {
	var data struct {
		Segment, Attempt int
		TriggerID        string
		Triggers         []struct{ TriggerID string }
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return nil // the event is not about a segment
	}
	switch e.Type {
	case store.RolloutSuspended:
		return b.attempts(func(s store.Segment) bool {
			return s.Number == data.Segment && s.Outcome == store.OutcomeSuspended
		})
	case store.RolloutRetried:
		return b.attempts(func(s store.Segment) bool { return s.Number == data.Segment && s.Attempt == data.Attempt-1 })
	case store.TriggerDelivered:
		b.waits(func(t store.Trigger) bool { return t.ID == data.TriggerID })
	case store.RolloutScoring:
		if b.firstScoring(data.Triggers) {
			return b.attempts(func(s store.Segment) bool { return s.Outcome == store.OutcomeCompleted })
		}
	case store.RolloutFinished:
		return b.finished(e.Time)
	}
	return nil
}

// firstScoring reports whether the evaluators wait for the first time.
func (b *builder) firstScoring(named []struct{ TriggerID string }) bool {
	return !slices.ContainsFunc(b.rv.Triggers, func(t store.Trigger) bool {
		return t.Occurrence > 0 && slices.ContainsFunc(named, func(n struct{ TriggerID string }) bool {
			return n.TriggerID == t.ID
		})
	})
}

// finished adds the spans that end with the rollout: its last attempt unless that was added
// already, its open waits, its evaluators, and the rollout itself.
func (b *builder) finished(at time.Time) error {
	last := len(b.rv.Segments) - 1
	told := b.rv.Scorings > 0
	for i, s := range b.rv.Segments {
		suspended := s.Outcome == store.OutcomeSuspended && b.rv.State != eval.StateCancelled
		if i != last || told || suspended {
			continue
		}
		if err := b.attempts(func(one store.Segment) bool {
			return one.Number == s.Number && one.Attempt == s.Attempt
		}); err != nil {
			return err
		}
	}
	b.waits(func(t store.Trigger) bool { return t.DeliveredAt.IsZero() })
	if err := b.evaluators(); err != nil {
		return err
	}
	b.root(at)
	return nil
}

// span begins a span of the rollout's trace.
func (b *builder) span(id []byte, name string, start, end time.Time) *trace.Span {
	traceID, root := wait.TraceID(b.rv.ID), wait.SpanID(b.rv.ID)
	if end.Before(start) {
		end = start
	}
	s := &trace.Span{TraceId: traceID[:], SpanId: id, ParentSpanId: root[:],
		Name: b.run.Redact.String(name), Kind: trace.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: nanos(start), EndTimeUnixNano: nanos(end)}
	b.spans = append(b.spans, s)
	return s
}

// root adds the span of the rollout as a whole.
func (b *builder) root(end time.Time) {
	id := wait.SpanID(b.rv.ID)
	s := b.span(id[:], "rollout "+b.rv.EvaluationName, b.rv.CreatedAt, end)
	s.ParentSpanId = nil
	a := b.names()
	a.text("evalrun.evaluation_set.id", b.run.Redact.String(b.run.Plan.Set.ID))
	a.text("evalrun.evaluation_set.name", b.run.Redact.String(b.run.Plan.Set.Name))
	a.text("evalrun.state", string(b.rv.State))
	a.number("evalrun.score", b.rv.Score)
	a.count("evalrun.segments", int64(b.rv.Segment))
	a.count("evalrun.suspensions", int64(b.rv.Suspensions))
	c := b.rv.Clocks
	for _, clock := range []struct {
		name string
		time time.Duration
	}{
		{"working", c.Working}, {"waiting", c.Waiting}, {"queued", c.Queued},
		{"evaluating", c.Evaluating}, {"scoring", c.Scoring},
	} {
		a.count("evalrun.clocks."+clock.name+"_ms", clock.time.Milliseconds())
	}
	if f := b.rv.Fault; f != nil {
		a.text("error.type", string(f.Category))
		s.Status = b.failure(f.Message)
	}
	s.Attributes = a
}

// names returns the attributes that name the rollout.
func (b *builder) names() (a attributes) {
	a.text("evalrun.run.id", b.rv.RunID)
	a.text("evalrun.rollout.id", b.rv.ID)
	a.text("evalrun.evaluation.id", b.run.Redact.String(b.rv.EvaluationID))
	a.text("evalrun.evaluation.name", b.run.Redact.String(b.rv.EvaluationName))
	a.text("gen_ai.agent.name", b.run.Redact.String(b.rv.Agent))
	a.count("evalrun.epoch", int64(b.rv.Epoch))
	return a
}

func (b *builder) failure(message string) *trace.Status {
	return &trace.Status{Code: trace.Status_STATUS_CODE_ERROR, Message: firstLine(b.run.Redact.String(message))}
}

// attempts adds the chosen attempts of segments, with the spans of their agent.
func (b *builder) attempts(chosen func(store.Segment) bool) error {
	var earlier []string
	for _, g := range b.rv.Segments {
		dir := files.Store(b.storeDir).Run(b.rv.RunID).Rollout(b.rv.ID).Segment(g.Number, g.Attempt)
		if chosen(g) {
			if err := b.attempt(g, dir, earlier); err != nil {
				return err
			}
		}
		earlier = append(earlier, dir)
	}
	return nil
}

func (b *builder) attempt(g store.Segment, dir string, earlier []string) error {
	s := b.span(b.attemptID(g), "invoke_agent "+b.rv.Agent, g.StartedAt, g.EndedAt)
	s.Links = b.links(g)
	a := b.names()
	a.text("gen_ai.operation.name", "invoke_agent")
	a.text("gen_ai.conversation.id", b.rv.ID)
	a.count("evalrun.segment", int64(g.Number))
	a.count("evalrun.attempt", int64(g.Attempt))
	a.text("evalrun.outcome", string(g.Outcome))
	used, _, err := record.UsageOfSegment(g, dir, earlier)
	if err != nil {
		return err
	}
	b.usage(&a, used)
	if g.Fault != nil {
		a.text("error.type", string(g.Fault.Category))
		s.Status = b.failure(g.Fault.Message)
	}
	if b.content {
		a.text("gen_ai.output.messages", string(b.run.Redact.JSON(g.Output)))
	}
	s.Attributes = a
	for _, at := range record.TraceDirs(dir, g.Files) {
		lines, _, err := record.ReadTrace(at)
		if err != nil {
			return err
		}
		b.agentSpans(lines, s, g.StartedAt)
	}
	return nil
}

// attemptID is the span id of an attempt, which its agent knows too.
func (b *builder) attemptID(g store.Segment) []byte {
	id := wait.SegmentSpanID(b.rv.ID, g.Number, g.Attempt)
	return id[:]
}

// usage adds the use of models, with the prices of the eval set.
func (b *builder) usage(a *attributes, used []eval.Usage) {
	if used == nil {
		return
	}
	var priced []eval.Usage
	for _, u := range used {
		u.Model = b.run.Redact.String(u.Model)
		priced = append(priced, b.run.Plan.Set.Prices.Priced(u))
	}
	total := eval.TotalUsage(eval.MergeUsage(priced...))
	a.count("gen_ai.usage.input_tokens", total.InputTokens)
	a.count("gen_ai.usage.output_tokens", total.OutputTokens)
	if total.CachedInputTokens > 0 {
		a.count("gen_ai.usage.cache_read.input_tokens", total.CachedInputTokens)
	}
	if len(priced) == 1 {
		a.text("gen_ai.request.model", priced[0].Model)
	}
	if total.CostKnown() {
		a.number("evalrun.cost_usd", total.Cost)
	}
}

// links lead from a segment to the segment before it, and to the waits that it had.
func (b *builder) links(g store.Segment) (out []*trace.Span_Link) {
	traceID := wait.TraceID(b.rv.ID)
	link := func(id []byte, relation string) {
		a := attributes{}
		a.text("evalrun.link", relation)
		out = append(out, &trace.Span_Link{TraceId: traceID[:], SpanId: id, Attributes: a})
	}
	for _, before := range b.rv.Segments {
		if before.Number == g.Number-1 && before.Outcome == store.OutcomeSuspended {
			link(b.attemptID(before), "suspended")
		}
	}
	for _, t := range b.rv.Triggers {
		if t.TakenBy == g.Number {
			id := wait.SpanID(t.ID)
			link(id[:], "resumed_by")
		}
	}
	return out
}

// waits adds the chosen waits, which have ended. The job of a wait has the same id as its parent.
func (b *builder) waits(chosen func(store.Trigger) bool) {
	for _, t := range b.rv.Triggers {
		if !chosen(t) {
			continue
		}
		end := t.DeliveredAt
		if end.IsZero() {
			end = b.rv.FinishedAt
		}
		id := wait.SpanID(t.ID)
		s := b.span(id[:], "wait "+t.Type, t.CreatedAt, end)
		a := b.names()
		a.text("evalrun.trigger.id", t.ID)
		a.text("evalrun.trigger.type", t.Type)
		a.text("evalrun.trigger.name", b.run.Redact.String(t.Name))
		a.text("evalrun.trigger.source", t.Source)
		a.text("evalrun.trigger.state", string(t.State))
		a.text("evalrun.trigger.status", string(t.Status))
		a.text("evalrun.evaluator.id", b.run.Redact.String(t.EvaluatorID))
		if t.Fault != nil {
			a.text("error.type", string(t.Fault.Category))
			s.Status = b.failure(t.Fault.Message)
		}
		s.Attributes = a
	}
}
