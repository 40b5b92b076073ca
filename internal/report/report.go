// Package report shows how a run is going and how it ended: the results document, its conversions
// (JUnit, Markdown, CSV, UiPath's own format, a table for people), and progress while a command
// runs.
//
// All of them are made from a [Report]. It comes from a store ([FromStore], [FromView]) or from a
// results document ([Open]), and hands out rollouts one by one, so that memory does not grow with
// their number. [SaveResults] keeps a results document up to date. [Execution] folds a run's
// events, and [Live] and [Log] show it. The types of the document are those of package schemas. The
// package never changes a store.
package report

import (
	"path/filepath"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/files"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

// Report is a run at one moment.
type Report struct {
	schemas.Head
	// Dataset holds set-level results under <evaluator name>::<type>.
	Dataset map[string]eval.DatasetResult
	// Pass is the least score of a rollout that passes. It is 1 for a results document of version
	// 1, which does not name it.
	Pass float64

	// storeDir is the folder of the logs, empty if that is not known.
	storeDir string
	each     func(parts, func(*schemas.Rollout) error) error
}

// parts says which parts of a rollout are needed. An outline has the least.
type parts struct{ spans, outline bool }

// Rollouts calls f for every rollout in the order of the plan. Its trace is left out.
func (r *Report) Rollouts(f func(*schemas.Rollout) error) error { return r.each(parts{}, f) }

// Traced is Rollouts with the traces.
func (r *Report) Traced(f func(*schemas.Rollout) error) error { return r.each(parts{spans: true}, f) }

// RolloutDir is the folder of a rollout's files, or empty if the store's place is not known.
func (r *Report) RolloutDir(rolloutID string) string {
	if r.storeDir == "" {
		return ""
	}
	return string(files.Store(r.storeDir).Run(r.RunID).Rollout(rolloutID))
}

// LogFile is the path of one of a rollout's Logs, or empty if the store's place is not known.
func (r *Report) LogFile(log string) string {
	local, err := filepath.Localize(log)
	if err != nil || r.storeDir == "" {
		return ""
	}
	return filepath.Join(r.storeDir, local)
}

// StatusOf returns the status of a run with these rollouts.
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
