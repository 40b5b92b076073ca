package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
)

// tolerance is how many of something may go wrong.
type tolerance struct {
	count int
	share float64
	isPct bool
}

func parseTolerance(flag, text string) (tolerance, error) {
	if pct, ok := strings.CutSuffix(text, "%"); ok {
		share, err := strconv.ParseFloat(pct, 64)
		if err != nil || !(share >= 0 && share <= 100) { // NaN is neither
			return tolerance{}, usageError("--%s: expected a number N or a share from 0%% to 100%%, got %q", flag, text)
		}
		return tolerance{share: share / 100, isPct: true}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return tolerance{}, usageError("--%s: expected a number N or a share P%%, got %q", flag, text)
	}
	return tolerance{count: n}, nil
}

func (t tolerance) exceeded(n, total int) bool {
	if t.isPct {
		return float64(n) > t.share*float64(total)
	}
	return n > t.count
}

// verdict says what the state of a run means for the exit code. interrupted says that a signal came.
func (w *workFlags) verdict(ctx context.Context, s *store.SQLite, runID string, plan plans.Plan, red *redact.Redactor, interrupted bool) error {
	run, err := s.Run(ctx, runID)
	if err != nil {
		return internal(err)
	}
	if !run.Final() && interrupted {
		return &exitError{exitInterrupted, fmt.Errorf("interrupted; go on with: %s", resumeLine(s, runID))}
	}
	var stats eval.Summary
	example := ""
	err = report.FromStore(ctx, s, runID, red, func(r *report.Report) (err error) {
		stats = *r.Statistics
		if stats.Coverage.Unscored > 0 {
			example, err = r.FirstUnscored()
		}
		return err
	})
	if err != nil {
		return internal(err)
	}
	if !run.Final() && !w.allowSuspended {
		lost := sentences(stats, eval.GateFail)
		if lost == nil {
			return &exitError{exitSuspended, nil}
		}
		return &exitError{exitSuspended, fmt.Errorf("lost already: %w", lost)}
	}
	if err := w.missing(run, plan, stats, example); err != nil {
		return &exitError{exitFaulted, err}
	}
	if err := sentences(stats, eval.GateFail); err != nil {
		return &exitError{exitThreshold, err}
	}
	if err := sentences(stats, eval.GateUndecided); err != nil {
		return &exitError{exitUndecided, err}
	}
	return nil
}

// missing says what is missing beyond what the flags allow: nothing is green in silence.
func (w *workFlags) missing(run store.Run, plan plans.Plan, stats eval.Summary, example string) error {
	faults, err := parseTolerance(flagFailOnError, w.failOnError)
	if err != nil {
		return err
	}
	evaluatorErrors, err := parseTolerance(flagFailOnEvaluatorError, w.failOnEvaluatorError)
	if err != nil {
		return err
	}
	c := stats.Coverage
	switch expected := len(plan.Set.Evaluators) > 0 || len(stats.Gates) > 0; {
	case faults.exceeded(run.Counts.Faulted, run.Counts.Total):
		return fmt.Errorf("%d of %d rollouts faulted", run.Counts.Faulted, run.Counts.Total)
	case evaluatorErrors.exceeded(c.EvaluatorErrors, c.EvaluatorErrors+c.EvaluatorResults):
		return fmt.Errorf("evaluators failed %d of %d times; --%s allows some", c.EvaluatorErrors, c.EvaluatorErrors+c.EvaluatorResults, flagFailOnEvaluatorError)
	case c.Cancelled == c.Evaluations && len(stats.Gates) == 0: // gates are judged by what might have come
		return errors.New("nothing was scored: every evaluation was cancelled")
	case !expected || w.allowUnscored:
		return nil
	case c.Unscored > 0:
		return fmt.Errorf("%d of %d evaluations could not be scored (%s); --allow-unscored accepts that", c.Unscored, c.Evaluations, example)
	case c.EvaluatorResults == 0 && c.Incomplete == 0 && c.Cancelled < c.Evaluations:
		return errors.New("nothing could be scored")
	}
	return nil
}

// sentences says which gates have a verdict; nil if none has.
func sentences(stats eval.Summary, verdict eval.Verdict) error {
	var out []string
	for _, g := range stats.Gates {
		if g.Verdict != verdict {
			continue
		}
		text := g.String()
		if len(stats.Agents) > 0 {
			text = redact.Line(g.Agent) + ": " + text
		}
		out = append(out, text)
	}
	if len(out) == 0 {
		return nil
	}
	return errors.New(strings.Join(out, "; "))
}
