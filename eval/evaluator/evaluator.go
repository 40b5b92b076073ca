// Package evaluator has the parts that evaluators of every kind share. A [Kind] says which keys a
// configuration has and reads it through a [Config] into an [Evaluator], whose Score gives an
// [Outcome] for a rollout. The package knows no kind; package kinds lists them.
package evaluator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// Evaluator is the common part of all evaluators: how criteria are found and how an outcome becomes
// results.
type Evaluator struct {
	Def eval.Definition
	// Scale is the score that means perfect: 1, or 100 for legacy evaluators.
	Scale float64
	// ExpectsOutput is set if the criteria are an expectedOutput: the evaluation's own then takes its
	// place if it is missing.
	ExpectsOutput bool
	// CriteriaOptional is set if the evaluator can do without criteria.
	CriteriaOptional bool
	// Defaults are the configuration's defaultEvaluationCriteria, DefaultsNode is their place in the
	// file.
	Defaults     *pyvalue.Object
	DefaultsNode *input.Node
	// Score gives the outcome for a rollout.
	Score func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object) Outcome
	// Continue goes on with the deliveries; nil if the evaluator never waits.
	Continue func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object,
		deliveries map[string]eval.Delivery) Outcome
	// asksModels is the AsksModels of its kind.
	asksModels bool
	// outputAlone is the OutputAlone of its kind.
	outputAlone bool
	// Nominal says that the ratings of people are no scores. Pairs says that judges choose between two
	// answers.
	Nominal, Pairs bool
	// Classification computes set-level results, nil if there are none.
	Classification *Classification
}

// Outcome is the finding of an evaluator, before it is given the evaluator's name and scale.
type Outcome struct {
	// Score is from 0 to 1.
	Score float64
	// Scale is the score that means perfect, if it is not the evaluator's.
	Scale float64
	// Details are a string, or a value that becomes a JSON object.
	Details any
	// Shown is the score in the details of a line-by-line evaluator if it differs, as in UiPath's
	// legacy ones.
	Shown any
	// Err says that the agent's output, or the criteria, do not fit the evaluator: the score is 0, as
	// it is for UiPath.
	Err error
	// Failure says that the evaluator itself failed: there is no score.
	Failure error
	// Compared holds the values that were compared, nil if none were.
	Compared *Compared
	// Lines are the outcomes of the single lines of a line-by-line evaluator.
	Lines []Outcome
	// Judged says how models came to the outcome, if they did.
	Judged *eval.Judged
	// Ratings are the ratings of people from which the score was made.
	Ratings []eval.Rating
	// Wait holds the interrupts that the evaluator waits for instead; nil if it has an outcome.
	Wait json.RawMessage
}

// Failed returns the outcome of an output, or of criteria, that do not fit the evaluator: the score
// is 0.
func Failed(format string, args ...any) Outcome { return Outcome{Err: fmt.Errorf(format, args...)} }

// Evaluate implements eval.Evaluator.
func (e *Evaluator) Evaluate(ctx context.Context, s eval.Subject) eval.Verdict {
	if e.outputAlone {
		s.Trace, s.Workspace = nil, "" // which some machines have, and some have not
	}
	var watched watchedJudge
	if s.Judge != nil {
		watched.Judge = s.Judge
		s.Judge = &watched
	}
	verdict := e.verdict(s, func(criteria *pyvalue.Object) Outcome { return e.Score(ctx, s, criteria) })
	if watched.later.Load() {
		return eval.Verdict{Later: true}
	}
	return verdict
}

// Resume implements eval.Evaluator.
func (e *Evaluator) Resume(ctx context.Context, s eval.Subject, deliveries map[string]eval.Delivery) eval.Verdict {
	if e.asksModels { // its questions are asked again, and the judge has the answers now
		return e.Evaluate(ctx, s)
	}
	return e.verdict(s, func(criteria *pyvalue.Object) Outcome {
		if e.Continue == nil {
			return Broken("an evaluator of type %s waits for nothing", e.Def.Type)
		}
		return e.Continue(ctx, s, criteria, deliveries)
	})
}

// verdict finds the criteria and turns the evaluator's outcome into a verdict.
func (e *Evaluator) verdict(s eval.Subject, score func(criteria *pyvalue.Object) Outcome) eval.Verdict {
	raw, ok := s.Evaluation.Criteria[e.Def.ID]
	if !ok {
		return eval.Verdict{}
	}
	if e.Def.NotRun != "" {
		return eval.Verdict{Results: []eval.Result{{EvaluatorID: e.Def.ID, EvaluatorName: e.Def.Name, Scale: e.Scale,
			NotRun: e.Def.NotRun}}}
	}
	started := time.Now()
	criteria, err := e.Criteria(raw, s.Evaluation.ExpectedOutput)
	out := Outcome{Err: err}
	if err == nil {
		out = score(criteria)
	}
	if out.Wait != nil {
		return eval.Verdict{Wait: out.Wait}
	}
	var results []eval.Result
	for i, line := range out.Lines {
		n := strconv.Itoa(i + 1)
		result := e.result(line)
		result.EvaluatorID += "_line_" + n
		result.EvaluatorName += " (Line " + n + ")"
		result.Line = true
		results = append(results, result)
	}
	result := e.result(out)
	result.StartedAt, result.Duration = started.UTC().Truncate(time.Microsecond), time.Since(started)
	return eval.Verdict{Results: append(results, result)}
}

func (e *Evaluator) result(out Outcome) eval.Result {
	scale := cmp.Or(out.Scale, e.Scale)
	score := out.Score * scale
	result := eval.Result{EvaluatorID: e.Def.ID, EvaluatorName: e.Def.Name, Score: &score, Scale: scale,
		Ratings: out.Ratings}
	if out.Err == nil && out.Failure == nil && out.Details != nil {
		result.Details, out.Failure = jsonobj.Marshal(out.Details)
	}
	result.Judge = out.Judged
	var notAsked *eval.NotAsked
	var judge *eval.JudgeError
	switch {
	case errors.As(out.Failure, &notAsked):
		result.Score, result.Details, result.NotRun = nil, nil, notAsked.Reason
	case errors.As(out.Failure, &judge):
		result.Score, result.Details, result.Error, result.ErrorCategory = nil, nil, judge.Message, judge.Category
	case out.Failure != nil:
		result.Score, result.Details, result.Error = nil, nil, out.Failure.Error()
	case out.Err != nil:
		score, result.Details, result.Error = 0, nil, out.Err.Error()
	}
	if out.Failure == nil && score < scale {
		result.Comparison = out.Compared.comparison()
	}
	return result
}

// Criteria resolves an evaluation's criteria for this evaluator: the evaluation's expected output
// takes the place of a missing one, and the configuration's default that of no criteria at all. An
// empty object is no criteria.
func (e *Evaluator) Criteria(raw, expectedOutput json.RawMessage) (*pyvalue.Object, error) {
	v, err := pyvalue.Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("criteria: %w", err)
	}
	criteria, ok := v.(*pyvalue.Object)
	if v != nil && !ok {
		return nil, fmt.Errorf("criteria: expected an object or null, got %s", pyvalue.KindOf(v))
	}
	if criteria == nil {
		criteria = pyvalue.New()
	}
	if e.ExpectsOutput {
		expected, err := pyvalue.Parse(expectedOutput)
		if err != nil {
			return nil, fmt.Errorf("expectedOutput: %w", err)
		}
		if _, has := criteria.Get("expectedOutput", "expected_output"); !has && expected != nil {
			criteria.Set("expectedOutput", expected)
		}
	}
	if len(criteria.Keys) > 0 {
		return criteria, nil
	}
	if e.Defaults != nil {
		return e.Defaults, nil
	}
	if e.CriteriaOptional {
		return criteria, nil
	}
	return nil, errors.New("MISSING_EVALUATION_CRITERIA: the evaluation has no criteria for this evaluator and " +
		"the evaluator no defaultEvaluationCriteria")
}

// watchedJudge notes whether an answer comes later.
type watchedJudge struct {
	eval.Judge
	later atomic.Bool
}

// Ask implements Judge.
func (w *watchedJudge) Ask(ctx context.Context, q eval.Question) (eval.Answer, error) {
	answer, err := w.Judge.Ask(ctx, q)
	if errors.Is(err, eval.ErrLater) {
		w.later.Store(true)
	}
	return answer, err
}

// Broken returns the outcome of an evaluator that failed: it gives no score, not even 0.
func Broken(format string, args ...any) Outcome {
	return Outcome{Failure: fmt.Errorf(format, args...)}
}
