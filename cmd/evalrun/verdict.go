package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/report"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/store"
)

// tolerance is how many rollouts may fault.
type tolerance struct {
	count int
	share float64
	isPct bool
}

func parseTolerance(text string) (tolerance, error) {
	if pct, ok := strings.CutSuffix(text, "%"); ok {
		share, err := strconv.ParseFloat(pct, 64)
		if err != nil || share < 0 || share > 100 {
			return tolerance{}, usageError("--fail-on-error: expected a number N or a share from 0%% to 100%%, got %q", text)
		}
		return tolerance{share: share / 100, isPct: true}, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return tolerance{}, usageError("--fail-on-error: expected a number N or a share P%%, got %q", text)
	}
	return tolerance{count: n}, nil
}

func (t tolerance) exceeded(faulted, total int) bool {
	if t.isPct {
		return float64(faulted) > t.share*float64(total)
	}
	return faulted > t.count
}

// verdict says what the state of a run means for the exit code. interrupted says that a signal came.
func (w *workFlags) verdict(ctx context.Context, s *store.SQLite, runID string, plan runner.Plan, interrupted bool) error {
	allowed, err := parseTolerance(w.failOnError)
	if err != nil {
		return err
	}
	run, err := s.Run(ctx, runID)
	if err != nil {
		return internal(err)
	}
	if !run.Final() {
		if interrupted {
			return &exitError{exitInterrupted, fmt.Errorf("interrupted; go on with: %s", resumeLine(s, runID))}
		}
		if !w.allowSuspended {
			return &exitError{exitSuspended, nil}
		}
	}
	if allowed.exceeded(run.Counts.Faulted, run.Counts.Total) {
		return &exitError{exitFaulted, fmt.Errorf("%d of %d rollouts faulted", run.Counts.Faulted, run.Counts.Total)}
	}
	if !run.Final() {
		return nil // thresholds are judged on a final run only
	}
	var stats *eval.Summary
	err = report.FromStore(ctx, s, runID, nil, func(r *report.Report) error {
		stats = r.Statistics
		return nil
	})
	if err != nil {
		return internal(err)
	}
	if stats == nil {
		if len(plan.Set.Evaluators) > 0 && run.Counts.Total > run.Counts.Cancelled {
			return &exitError{exitFaulted, errors.New("nothing could be scored")}
		}
		stats = new(eval.Summary)
	}
	if missed := plan.Set.Thresholds.Judge(*stats); len(missed) > 0 {
		return &exitError{exitThreshold, errors.New(strings.Join(missed, "; "))}
	}
	return nil
}
