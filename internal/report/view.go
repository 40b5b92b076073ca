package report

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"

	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
	"github.com/evalrun/evalrun/tasks"
)

// FromView makes the report of a view and computes its statistics. The report is valid as long as
// the view.
func FromView(v store.View, o Options) (*Report, error) { return fromView(v, o, nil) }

// fromView does what FromView does, and calls element, if not nil, with every rollout and the text
// that stands for it in the results document.
func fromView(v store.View, o Options, element func(one *schemas.Rollout, text []byte) error) (*Report, error) {
	run := v.Run()
	if err := o.readRescorings(v); err != nil {
		return nil, err
	}
	set := &o.Plan.Set
	statistics := summary.New(set, kinds.All)
	read := func(f func(viewed) error) error {
		return v.Rollouts(func(rv store.RolloutView) (err error) {
			one := viewed{RolloutView: rv, asked: rv.Evaluation}
			if o.outdated(rv) {
				if one.asked, err = v.Evaluation(rv.ID, o.rescorings.Last()); err != nil {
					return err
				}
			}
			return f(one)
		})
	}
	render := func(one viewed) (rendered, error) { return o.render(one, element != nil) }
	played, told := newPlayedCount(&o.Plan), toldCount{plan: &o.Plan}
	if err := inOrder(read, render, func(one rendered) error {
		played.add(one.view)
		told.add(one.view)
		statistics.Add(one.counted)
		if element == nil {
			return nil
		}
		return element(one.rollout, one.text)
	}); err != nil {
		return nil, err
	}
	summary := statistics.Summary()
	o.redactNames(&summary)
	r := &Report{Head: o.head(run), Dataset: summary.Dataset, Pass: set.Thresholds.Pass, storeDir: o.StoreDir}
	r.Summary, r.Statistics = summaryOf(run.Counts, &summary), &summary
	r.Played, r.CachedOutputs, r.SimulatedUsers = played.done(r.Final, o.Redact), told.cached, told.played()
	r.each = func(p parts, f func(*schemas.Rollout) error) error {
		return v.Rollouts(func(rv store.RolloutView) error {
			results, err := readResults(rv)
			if err != nil {
				return err
			}
			out, err := o.rollout(rv, results, p)
			if err != nil {
				return err
			}
			return f(out)
		})
	}
	return r, nil
}

// viewed is a rollout as it was read from the store.
type viewed struct {
	store.RolloutView
	// asked is the evaluation by which the rollout is judged now. If its results are outdated, they
	// come from another.
	asked json.RawMessage
}

// rendered is what a report needs of a rollout: the input of its statistics, and, if a document is
// written, its text there.
type rendered struct {
	counted summary.Rollout
	rollout *schemas.Rollout
	text    []byte
	view    store.RolloutView
}

func (o Options) render(one viewed, document bool) (out rendered, err error) {
	out.view = one.RolloutView
	results, err := readResults(one.RolloutView)
	if err != nil {
		return out, err
	}
	if out.counted, err = o.counted(one, results); err != nil || !document {
		return out, err
	}
	if out.rollout, err = o.rollout(one.RolloutView, results, parts{spans: true}); err != nil {
		return out, err
	}
	out.text, err = indented(out.rollout, elementPrefix)
	return out, err
}

// counted converts a rollout for the statistics. A rollout whose results are outdated counts as one
// that is still to be scored.
func (o Options) counted(one viewed, results []result) (out summary.Rollout, err error) {
	out = summary.Rollout{EvaluationID: one.EvaluationID, Agent: one.Agent, Epoch: one.Epoch, State: one.State,
		AgentsFault: one.State == eval.StateFaulted && one.Fault != nil &&
			ownerOf(&o.Plan.Set, one.Fault.Category) == fault.OwnerAgent}
	if o.outdated(one.RolloutView) {
		out.State = eval.StateEvaluating
	} else {
		for _, r := range results {
			out.Results = append(out.Results, r.Result)
		}
	}
	if out.Evaluation, err = readEvaluation(one.EvaluationID, one.asked); err != nil {
		return out, err
	}
	out.Usage, _, err = o.usage(one.RolloutView)
	return out, err
}

// redactNames takes secrets out of the names and ids in the statistics.
func (o Options) redactNames(s *summary.Summary) {
	clean := func(texts ...*string) {
		for _, text := range texts {
			*text = o.Redact.String(*text)
		}
	}
	all := []*summary.AgentSummary{&s.AgentSummary}
	for i := range s.Agents {
		all = append(all, &s.Agents[i])
	}
	for _, a := range all {
		clean(&a.Agent)
		for i := range a.Evaluators {
			clean(&a.Evaluators[i].Name)
		}
		for i, m := range a.TaskMetrics {
			a.TaskMetrics[i].Values = o.redactedKeys(m.Values)
		}
		for i := range a.Tags {
			clean(&a.Tags[i].Tag)
		}
		for i := range a.Flaky {
			clean(&a.Flaky[i].EvaluationID)
		}
		for _, ids := range [][]string{a.AlwaysPass, a.NeverPass} {
			for i := range ids {
				clean(&ids[i])
			}
		}
	}
	for i := range s.Gates {
		clean(&s.Gates[i].Agent)
	}
	for _, judges := range s.Judges {
		if judges.Reference != nil {
			clean(&judges.Reference.Agent)
		}
	}
	dataset := make(map[string]eval.DatasetResult, len(s.Dataset))
	for key, result := range s.Dataset { // a key has the names of evaluator and agent
		dataset[o.Redact.String(key)] = result
	}
	s.Dataset = dataset
}

// head says what the run is and where it comes from.
func (o Options) head(run store.Run) schemas.Head {
	origin, set := o.Plan.Origin, &o.Plan.Set
	h := schemas.Head{
		SchemaVersion: schemas.Version, RunID: run.ID, StoreID: o.StoreID, StorePath: filepath.ToSlash(o.StorePath),
		Revision: run.Revision, Final: run.Final(), EvaluationSetID: run.EvaluationSetID,
		EvaluationSetName: o.Redact.String(run.EvaluationSetName), EvaluationSetDigest: set.Digest,
		EvalIDs: o.redacted(origin.EvalIDs), Filter: o.Redact.String(origin.Filter), RetryOf: run.RetryOf,
		PlanDigest: o.Plan.Digest, GitCommit: origin.GitCommit, GitDirty: origin.GitDirty,
		EvalrunVersion: origin.Version, StartedAt: timeOrNil(run.CreatedAt), FinishedAt: timeOrNil(run.FinishedAt),
		Status: StatusOf(run.Counts),
	}
	h.FailFast = o.Plan.FailFast
	if o.Plan.IsolationReason != "" {
		h.Isolation, h.IsolationReason = o.Plan.Isolation, o.Redact.String(o.Plan.IsolationReason)
	}
	if o.Plan.Overrides != (tasks.Overrides{}) {
		overrides := schemas.TaskOverrides(o.Plan.Overrides)
		h.TaskOverrides = &overrides
	}
	h.Tags, h.Metadata = o.redacted(set.Tags), o.Redact.JSON(set.Metadata)
	if s := origin.Selection; s != nil {
		selection := *s
		selection.Tags = o.redacted(s.Tags)
		h.Selection = &selection
	}
	if set.Dataset != nil {
		h.Dataset = &eval.Dataset{File: o.Redact.String(set.Dataset.File), Digest: set.Dataset.Digest, Rows: set.Dataset.Rows}
	}
	if set.Digest != "" {
		h.EvaluationSetPath = o.Redact.String(path.Join(h.StorePath, o.Plan.BaseDir, path.Base(filepath.ToSlash(set.Path))))
	}
	h.CommandLine = o.redacted(origin.CommandLine)
	for i, a := range o.Plan.Agents {
		one := schemas.Agent{Name: o.Redact.String(a.Name), Type: a.Type, Command: o.redacted(a.Command)}
		if a.Model != nil {
			one.Model = o.Redact.String(a.Model.Name)
		}
		if len(origin.AgentOptions) == len(o.Plan.Agents) {
			one.Option = o.Redact.String(origin.AgentOptions[i])
		}
		h.Agents = append(h.Agents, one)
	}
	h.Rescorings = o.headRescorings()
	return h
}

// summaryOf shortens the statistics.
func summaryOf(c store.Counts, s *summary.Summary) schemas.Summary {
	out := schemas.Summary{
		Total: c.Total, Completed: c.Completed, Suspended: c.Suspended, Scoring: c.Scoring, Faulted: c.Faulted,
		Score: s.Score.Mean, ScoreOf: schemas.ScoreWithFaulted, ScoreCompleted: s.ScoreCompleted.Mean,
	}
	for _, a := range s.Agents {
		out.Agents = append(out.Agents, schemas.AgentScore{Agent: a.Agent, Score: a.Score.Mean,
			ScoreCompleted: a.ScoreCompleted.Mean})
	}
	return out
}

// readRescorings reads the rescorings of a view. It replaces the plan by the one by
// which the run is judged.
func (o *Options) readRescorings(v store.View) error {
	stored, err := v.Rescorings()
	if err != nil {
		return err
	}
	if o.rescorings, err = o.Plan.ReadRescorings(stored); err != nil {
		return err
	}
	o.Plan = o.rescorings.InForce()
	return nil
}

// outdated reports whether the results of a rollout come from other evaluators or criteria than
// those by which the run is judged.
func (o Options) outdated(rv store.RolloutView) bool {
	return rv.State == eval.StateCompleted && o.rescorings.Outdated(rv.Rescoring)
}

func (o Options) headRescorings() (out []schemas.Rescoring) {
	for i, s := range o.rescorings.Stored {
		with := o.rescorings.With[i]
		one := schemas.Rescoring{
			Number: s.Number, EvaluatorsDigest: with.Digest, FileDigest: with.FileDigest,
			Only: o.redacted(with.Only), Failed: with.Failed, EvalrunVersion: with.Version,
			BegunAt: s.BegunAt.UTC(), EndedAt: timeOrNil(s.EndedAt), Due: s.Due, Scored: s.Scored, NotScored: s.Unscored,
		}
		if with.File != "" {
			one.File = o.Redact.String(path.Join(o.StorePath, o.Plan.BaseDir, with.File))
		}
		out = append(out, one)
	}
	return out
}

// readEvaluation decodes a stored evaluation.
func readEvaluation(id string, data json.RawMessage) (*eval.Evaluation, error) {
	e := new(eval.Evaluation)
	if err := jsonv1.Unmarshal(data, e); err != nil {
		return nil, fmt.Errorf("the stored evaluation %s: %w", id, err)
	}
	return e, nil
}
