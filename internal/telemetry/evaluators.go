package telemetry

import (
	"encoding/json"
	"fmt"
	"time"

	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
)

// evaluators adds the results of evaluators, and their calls of judges. The store keeps how long
// each took and not when it began. They are laid end to end from the agent's end on, since that is
// how they run.
func (b *builder) evaluators() error {
	at, scored := b.rv.CreatedAt, []byte(nil)
	for _, g := range b.rv.Segments {
		if at = g.EndedAt; g.Outcome == store.OutcomeCompleted {
			scored = b.attemptID(g)
		}
	}
	for _, stored := range b.rv.Results {
		var results []eval.Result
		if err := json.Unmarshal(stored.Data, &results); err != nil {
			return fmt.Errorf("the stored result of evaluator %s: %w", stored.EvaluatorID, err)
		}
		for i, r := range results {
			b.evaluator(r, i, at, scored)
			at = at.Add(r.Duration)
		}
	}
	return nil
}

// evaluator adds one result. scored is the span of the segment that had the output.
func (b *builder) evaluator(r eval.Result, number int, at time.Time, scored []byte) {
	part := fmt.Sprintf("evaluators/%s/%d", r.EvaluatorID, number)
	s := b.span(b.spanID(part), "evaluate "+r.EvaluatorName, at, at.Add(r.Duration))
	if scored != nil {
		a := attributes{}
		a.text("evalrun.link", "scored")
		s.Links = []*trace.Span_Link{{TraceId: s.TraceId, SpanId: scored, Attributes: a}}
	}
	a := b.names()
	a.text("evalrun.evaluator.id", b.run.Redact.String(r.EvaluatorID))
	a.text("gen_ai.evaluation.name", b.run.Redact.String(r.EvaluatorName))
	a.number("gen_ai.evaluation.score.value", r.Score)
	a.text("evalrun.evaluator.not_run", firstLine(b.run.Redact.String(r.NotRun)))
	if r.Error != "" {
		kind := string(r.ErrorCategory)
		if kind == "" {
			kind = "evaluator"
		}
		a.text("error.type", kind)
		s.Status = b.failure(r.Error)
	}
	if b.content {
		a.json("gen_ai.evaluation.explanation", b.run.Redact.JSON(r.Details))
	}
	s.Attributes = a
	if r.Judge == nil {
		return
	}
	for i, call := range r.Judge.Verdicts {
		b.judge(call, fmt.Sprintf("%s/judges/%d", part, i), s, at)
	}
}

// judge adds one question to a model, below its evaluator.
func (b *builder) judge(call eval.JudgeCall, part string, under *trace.Span, at time.Time) {
	operation := "chat"
	if call.Label == eval.LabelEmbedding {
		operation = "embeddings"
	}
	s := b.span(b.spanID(part), operation+" "+call.Model, at, at.Add(time.Duration(call.LatencyMs)*time.Millisecond))
	s.ParentSpanId, s.Kind = under.SpanId, trace.Span_SPAN_KIND_CLIENT
	var a attributes
	a.text("gen_ai.operation.name", operation)
	a.text("gen_ai.provider.name", b.run.Redact.String(call.Provider))
	a.text("gen_ai.request.model", b.run.Redact.String(call.Model))
	a.text("gen_ai.response.model", b.run.Redact.String(call.ModelReturned))
	a.text("gen_ai.response.id", b.run.Redact.String(call.RequestID))
	a.number("gen_ai.request.temperature", call.Temperature)
	a.text("server.address", b.run.Redact.String(call.Host))
	a.flag("evalrun.judge.cached", call.Cached)
	a.count("evalrun.judge.attempts", int64(call.Attempts))
	a.number("evalrun.score", call.Score)
	if u := call.Usage; u != nil && !call.Cached {
		a.count("gen_ai.usage.input_tokens", u.InputTokens)
		a.count("gen_ai.usage.output_tokens", u.OutputTokens)
	}
	if call.Error != "" {
		a.text("error.type", string(call.ErrorCategory))
		s.Status = b.failure(call.Error)
	}
	s.Attributes = a
}
