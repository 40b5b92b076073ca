// Package report shows how a run is going and what came of it: the results document, its
// conversions (JUnit, Markdown, CSV, UiPath's own format, a table for people), and progress while a
// command runs.
//
// All of them are made from a [Report]. It comes from a store ([FromStore], [FromView]) or from a
// results document ([Open]), and hands out rollouts one by one, so that memory does not grow with
// their number. [SaveResults] keeps a results document up to date. [Execution] folds a run's
// events, and [Live] and [Log] show it. The types of the document are those of package schemas. The
// package never changes a store.
package report

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/workspace"
	"github.com/evalrun/evalrun/schemas"
)

// Report is a run at one moment.
type Report struct {
	schemas.Head
	// Dataset holds set-level results under <evaluator name>::<type>.
	Dataset map[string]eval.DatasetResult
	// Pass is the least score of a rollout that passes. It is 1 for a results document of version
	// 1, which does not say.
	Pass float64

	// storeDir is where the logs are, empty if that is not known.
	storeDir string
	each     func(parts, func(*schemas.Rollout) error) error
}

// parts says which parts of a rollout are needed; an outline has the least.
type parts struct{ spans, outline bool }

// Rollouts calls f for every rollout in the order of the plan. Its trace is left out.
func (r *Report) Rollouts(f func(*schemas.Rollout) error) error { return r.each(parts{}, f) }

// Traced is Rollouts with the traces.
func (r *Report) Traced(f func(*schemas.Rollout) error) error { return r.each(parts{spans: true}, f) }

// RolloutDir is the folder of a rollout's files; empty if it is not known where the store is.
func (r *Report) RolloutDir(rolloutID string) string {
	if r.storeDir == "" {
		return ""
	}
	return workspace.RolloutDir(r.storeDir, r.RunID, rolloutID)
}

// LogFile is the path of one of a rollout's Logs; empty if it is not known where the store is.
func (r *Report) LogFile(log string) string {
	local, err := filepath.Localize(log)
	if err != nil || r.storeDir == "" {
		return ""
	}
	return filepath.Join(r.storeDir, local)
}

// StatusOf is the status of a run with these rollouts.
func StatusOf(c store.Counts) schemas.Status {
	switch {
	case c.Pending+c.Running+c.Evaluating > 0:
		return schemas.Running
	case c.Suspended+c.Scoring > 0:
		return schemas.Suspended
	case c.Faulted > 0:
		return schemas.Faulted
	case c.Cancelled > 0:
		return schemas.Cancelled
	}
	return schemas.Successful
}

// FromStore calls f with the report of a run. It holds only during the call.
func FromStore(ctx context.Context, st store.Reader, runID string, red *redact.Redactor, f func(*Report) error) error {
	return FromStoreUnder(ctx, st, runID, red, nil, f)
}

// FromStoreUnder is FromStore with thresholds in place of those that the run was planned with for the
// same figures.
func FromStoreUnder(ctx context.Context, st store.Reader, runID string, red *redact.Redactor, under eval.FailUnder, f func(*Report) error) error {
	return snapshot(ctx, st, runID, red, ".", func(v store.View, o Options) error {
		o.Plan.Set.Thresholds.Under(under)
		r, err := FromView(v, o)
		if err != nil {
			return err
		}
		return f(r)
	})
}

// snapshot calls f with a view of a run and the options of a report for someone in dir.
func snapshot(ctx context.Context, st store.Reader, runID string, red *redact.Redactor, dir string, f func(store.View, Options) error) error {
	o := Options{StoreID: st.ID(), StoreDir: st.Dir(), Redact: red}
	stored, err := st.Plan(ctx, runID)
	if err != nil {
		return err
	}
	if o.Plan, err = plans.Read(stored); err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	if o.StorePath, err = filepath.Rel(dir, st.Dir()); err != nil {
		return fmt.Errorf("the place of the store relative to %s: %w", dir, err)
	}
	return st.Snapshot(ctx, runID, func(v store.View) error { return f(v, o) })
}
