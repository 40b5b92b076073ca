package eval

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// evaluator is what all evaluators have in common: how criteria are found and how an outcome
// becomes results.
type evaluator struct {
	def   Definition
	scale float64
	// expectsOutput is set where the criteria are an expectedOutput: the evaluation's own then
	// takes its place if it is missing.
	expectsOutput bool
	// criteriaOptional is set where the evaluator can do without criteria.
	criteriaOptional bool
	// defaults are the configuration's defaultEvaluationCriteria, defaultsNode is where they stand.
	defaults     *object
	defaultsNode *input.Node
	score        func(ctx context.Context, s Subject, criteria *object) outcome
	// resume goes on with what was delivered; nil where the evaluator never waits.
	resume func(ctx context.Context, s Subject, criteria *object, deliveries map[string]Delivery) outcome
	// asksModels is that of its kind.
	asksModels bool
	// dataset computes set-level results, nil where there are none.
	dataset *classification
}

// outcome is what an evaluator found, before it is given the evaluator's name and scale.
type outcome struct {
	// score is from 0 to 1.
	score   float64
	details any
	// shown is the score in the details of a line-by-line evaluator where that is another, as in
	// UiPath's legacy ones.
	shown any
	// err says that the agent's output, or the criteria, do not fit the evaluator: the score is 0,
	// as UiPath's is.
	err error
	// failure says that the evaluator itself failed: there is no score.
	failure error
	// compared is what was compared, nil if nothing was.
	compared *compared
	// lines are the outcomes of the single lines of a line-by-line evaluator.
	lines []outcome
	// judged is how the outcome came about if models have given it.
	judged *Judged
	// ratings are those of people, of which the score was made.
	ratings []Rating
	// wait is what the evaluator waits for instead; nil if it has an outcome.
	wait json.RawMessage
}

func failed(format string, args ...any) outcome { return outcome{err: fmt.Errorf(format, args...)} }

func (e *evaluator) Evaluate(ctx context.Context, s Subject) Verdict {
	var watched watchedJudge
	if s.Judge != nil {
		watched.Judge = s.Judge
		s.Judge = &watched
	}
	verdict := e.verdict(s, func(criteria *object) outcome { return e.score(ctx, s, criteria) })
	if watched.later.Load() {
		return Verdict{Later: true}
	}
	return verdict
}

func (e *evaluator) Resume(ctx context.Context, s Subject, deliveries map[string]Delivery) Verdict {
	if e.asksModels { // its questions are asked again, and whoever answers them has the answers now
		return e.Evaluate(ctx, s)
	}
	return e.verdict(s, func(criteria *object) outcome {
		if e.resume == nil {
			return broken("an evaluator of type %s waits for nothing", e.def.Type)
		}
		return e.resume(ctx, s, criteria, deliveries)
	})
}

// verdict finds the criteria and makes a verdict of what the evaluator makes of them.
func (e *evaluator) verdict(s Subject, score func(criteria *object) outcome) Verdict {
	raw, ok := s.Evaluation.Criteria[e.def.ID]
	if !ok {
		return Verdict{}
	}
	if e.def.NotRun != "" {
		return Verdict{Results: []Result{{EvaluatorID: e.def.ID, EvaluatorName: e.def.Name, Scale: e.scale, NotRun: e.def.NotRun}}}
	}
	started := time.Now()
	criteria, err := e.criteria(raw, s.Evaluation.ExpectedOutput)
	out := outcome{err: err}
	if err == nil {
		out = score(criteria)
	}
	if out.wait != nil {
		return Verdict{Wait: out.wait}
	}
	var results []Result
	for i, line := range out.lines {
		n := strconv.Itoa(i + 1)
		result := e.result(line)
		result.EvaluatorID += "_line_" + n
		result.EvaluatorName += " (Line " + n + ")"
		result.Line = true
		results = append(results, result)
	}
	result := e.result(out)
	result.StartedAt, result.Duration = started.UTC().Truncate(time.Microsecond), time.Since(started)
	return Verdict{Results: append(results, result)}
}

func (e *evaluator) result(out outcome) Result {
	score := out.score * e.scale
	result := Result{EvaluatorID: e.def.ID, EvaluatorName: e.def.Name, Score: &score, Scale: e.scale, Ratings: out.ratings}
	if out.err == nil && out.failure == nil && out.details != nil {
		result.Details, out.failure = jsonobj.Marshal(out.details)
	}
	result.Judge = out.judged
	var notAsked *NotAsked
	var judge *JudgeError
	switch {
	case errors.As(out.failure, &notAsked):
		result.Score, result.Details, result.NotRun = nil, nil, notAsked.Reason
	case errors.As(out.failure, &judge):
		result.Score, result.Details, result.Error, result.ErrorCategory = nil, nil, judge.Message, judge.Category
	case out.failure != nil:
		result.Score, result.Details, result.Error = nil, nil, out.failure.Error()
	case out.err != nil:
		score, result.Details, result.Error = 0, nil, out.err.Error()
	}
	if out.failure == nil && score < e.scale {
		result.Comparison = out.compared.comparison()
	}
	return result
}

// criteria resolves an evaluation's criteria for this evaluator: the evaluation's expected output
// takes the place of a missing one, and the configuration's default that of no criteria at all. An
// empty object is no criteria.
func (e *evaluator) criteria(raw, expectedOutput json.RawMessage) (*object, error) {
	v, err := parseValue(raw)
	if err != nil {
		return nil, fmt.Errorf("criteria: %w", err)
	}
	criteria, ok := v.(*object)
	if v != nil && !ok {
		return nil, fmt.Errorf("criteria: expected an object or null, got %s", kindOf(v))
	}
	if criteria == nil {
		criteria = newObject()
	}
	if e.expectsOutput {
		expected, err := parseValue(expectedOutput)
		if err != nil {
			return nil, fmt.Errorf("expectedOutput: %w", err)
		}
		if _, has := criteria.get("expectedOutput", "expected_output"); !has && expected != nil {
			criteria.set("expectedOutput", expected)
		}
	}
	if len(criteria.Keys) > 0 {
		return criteria, nil
	}
	if e.defaults != nil {
		return e.defaults, nil
	}
	if e.criteriaOptional {
		return criteria, nil
	}
	return nil, errors.New("MISSING_EVALUATION_CRITERIA: the evaluation has no criteria for this evaluator and the evaluator no defaultEvaluationCriteria")
}

// watchedJudge notes whether an answer comes later.
type watchedJudge struct {
	Judge
	later atomic.Bool
}

// Ask implements Judge.
func (w *watchedJudge) Ask(ctx context.Context, q Question) (Answer, error) {
	answer, err := w.Judge.Ask(ctx, q)
	if errors.Is(err, ErrLater) {
		w.later.Store(true)
	}
	return answer, err
}

// broken is the outcome of an evaluator that failed: it gives no score, not even 0.
func broken(format string, args ...any) outcome {
	return outcome{failure: fmt.Errorf(format, args...)}
}
