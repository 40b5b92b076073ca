package runner

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
	"github.com/evalrun/evalrun/schemas"
)

// maxSelected is the most that LoadOptions.Limit and LoadOptions.Sample may be.
const maxSelected = 1 << 30

// checkSelection checks the numbers of evaluations that are asked for.
func (o LoadOptions) checkSelection() error {
	for _, one := range []struct {
		flag string
		n    int
	}{{"--limit", o.Limit}, {"--sample", o.Sample}} {
		if one.n < 0 || one.n > maxSelected {
			return inputError("%s: expected a whole number from 1 to %d, got %d", one.flag, maxSelected, one.n)
		}
	}
	if o.Limit > 0 && o.Sample > 0 {
		return inputError("expected either --limit or --sample, got both")
	}
	return nil
}

// most is how many evaluations can be left after Limit or Sample.
func (e *EvalSet) most() int {
	n := len(e.req.Set.Evaluations)
	for _, most := range []int{e.opts.Limit, e.opts.Sample} {
		if most > 0 {
			n = min(n, most)
		}
	}
	return n
}

// request returns the request for a plan, narrowed down by the options. The store may be nil if
// neither options nor set name a run in it. The eval set stays as it is.
func (e *EvalSet) request(ctx context.Context, s *Store, o CreateOptions) (plans.Request, error) {
	req, set := e.req, *e.req.Set
	req.Set, req.RunID, req.KeepWorkspaces, req.FailFast, req.Env =
		&set, o.RunID, o.KeepWorkspaces, o.FailFast, e.opts.Variables.names
	if err := (Notifications{Targets: req.Notify}).Check(e.opts.Variables); err != nil {
		return req, err
	}
	if e.dropped && (o.RetryOf != "" || o.FailedOf != "" || o.LastFailed) {
		return req, inputError("%s: the eval set is too large to say which of its evaluations failed in another run and then take some; leave out --limit and --sample",
			set.Path)
	}
	selection := schemas.Selection{Tags: e.opts.Tags, Limit: e.opts.Limit, Sample: e.opts.Sample}
	switch {
	case o.RetryOf != "":
		other, err := s.Find(ctx, o.RetryOf)
		if err != nil {
			return req, err
		}
		if err := keepFaulted(ctx, s.st, &req, other.ID); err != nil {
			return req, err
		}
	case o.FailedOf != "" || o.LastFailed:
		other, err := s.toRepeat(ctx, set.ID, o)
		if err != nil {
			return req, err
		}
		if err := keepFailed(ctx, s.st, &req, other.ID); err != nil {
			return req, err
		}
		selection.FailedOf = other.ID
	}
	if n := e.opts.Limit; n > 0 && n < len(set.Evaluations) {
		set.Evaluations = set.Evaluations[:n]
	}
	if e.opts.Sample > 0 {
		set.Sample(e.opts.Sample, e.opts.Seed)
		selection.Seed = &e.opts.Seed
	}
	if err := s.addReferences(ctx, &req, o.AsPlanned); err != nil {
		return req, err
	}
	req.Origin.EvalIDs, req.Origin.Filter = e.opts.EvalIDs, e.opts.Filter
	selection.Evaluations, selection.OfEvaluations = len(set.Evaluations), e.all
	selection.Rollouts, selection.OfRollouts = len(plannedOf(req)), e.all*len(req.Agents)*set.Epochs
	asked := len(e.opts.EvalIDs) > 0 || e.opts.Filter != "" || len(e.opts.Tags) > 0 || e.opts.Limit > 0 ||
		e.opts.Sample > 0
	if asked || selection.Rollouts < selection.OfRollouts {
		req.Origin.Selection = &selection
	}
	return req, nil
}

// plannedOf returns the rollouts that a request is for.
func plannedOf(req plans.Request) (out []evaluationOf) {
	for _, e := range req.Set.Evaluations {
		for _, a := range req.Agents {
			for epoch := 1; epoch <= req.Set.Epochs; epoch++ {
				if req.Only == nil || req.Only(e.ID, a.Name, epoch) {
					out = append(out, evaluationOf{e.ID, a.Name})
				}
			}
		}
	}
	return out
}

// evaluationOf is an evaluation for one agent.
type evaluationOf struct{ evaluation, agent string }

// keepFaulted keeps the rollouts that faulted in another run.
func keepFaulted(ctx context.Context, st store.Reader, req *plans.Request, other string) error {
	type key struct {
		evaluationOf
		epoch int
	}
	faulted, evaluations := map[key]bool{}, map[string]bool{}
	err := st.Snapshot(ctx, other, func(v store.View) error { // called again, it adds what has faulted meanwhile
		return v.Rollouts(func(o store.RolloutView) error {
			if o.State == eval.StateFaulted && slices.ContainsFunc(req.Agents, func(a agent.Entry) bool {
				return a.Name == o.Agent
			}) {
				faulted[key{evaluationOf{o.EvaluationID, o.Agent}, o.Epoch}], evaluations[o.EvaluationID] = true, true
				req.Set.Epochs = max(req.Set.Epochs, o.Epoch)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	if !keepEvaluations(req.Set, evaluations) {
		return inputError("--retry-of %s: nothing faulted in it that is in this eval set", other)
	}
	req.RetryOf = other
	req.Only = func(evaluation, agent string, epoch int) bool {
		return faulted[key{evaluationOf{evaluation, agent}, epoch}]
	}
	return nil
}

// keepEvaluations keeps the evaluations with these ids in a set, and reports whether there is one.
func keepEvaluations(set *eval.Set, ids map[string]bool) bool {
	set.Evaluations = slices.DeleteFunc(slices.Clone(set.Evaluations), func(e eval.Evaluation) bool { return !ids[e.ID] })
	return len(set.Evaluations) > 0
}

// toRepeat returns the run whose failures are to be run again. The newest run of an eval set is
// never the one that is being created, which may exist already.
func (s *Store) toRepeat(ctx context.Context, setID string, o CreateOptions) (Run, error) {
	if o.FailedOf != "" {
		return s.Find(ctx, o.FailedOf)
	}
	all, err := s.Runs(ctx)
	if err != nil {
		return Run{}, err
	}
	for _, r := range all {
		if r.EvaluationSetID == setID && r.ID != o.RunID {
			return r, nil
		}
	}
	return Run{}, inputError("--last-failed: the store %s has no run of the eval set %q; run the whole set first", s.Name(),
		setID)
}

// keepFailed keeps the evaluations that have failed in another run, for each agent those of its
// own.
func keepFailed(ctx context.Context, st *rules.Store, req *plans.Request, other string) error {
	failed, err := failedIn(ctx, st, other)
	if err != nil {
		return err
	}
	ids := map[string]bool{}
	for one := range failed {
		if slices.ContainsFunc(req.Agents, func(a agent.Entry) bool { return a.Name == one.agent }) {
			ids[one.evaluation] = true
		}
	}
	if !keepEvaluations(req.Set, ids) {
		return inputError("nothing has failed in run %s that is in this eval set and for these agents; run it whole", other)
	}
	req.Only = func(evaluation, agent string, _ int) bool { return failed[evaluationOf{evaluation, agent}] }
	return nil
}

// failedIn returns the evaluations that have not passed in a run, had a fault, or an evaluator that
// failed. Open and cancelled rollouts have not failed.
func failedIn(ctx context.Context, st *rules.Store, runID string) (map[evaluationOf]bool, error) {
	p, err := readPlanned(ctx, st, runID, Variables{})
	if err != nil {
		return nil, err
	}
	failed := map[evaluationOf]bool{}
	// Nothing is redacted, because the ids are compared with those of an eval set.
	err = report.FromStore(ctx, st, runID, nil, func(r *report.Report) error {
		clear(failed)
		side, err := (&Report{r: r}).Side("")
		if err != nil {
			return err
		}
		for _, e := range side.Evaluations {
			score := e.Score
			unscored := score.Value == nil && !score.Open && len(p.plan.Set.Evaluators) > 0
			if unscored || score.Value != nil && !eval.Passes(*score.Value, side.Pass) {
				failed[evaluationOf{e.EvaluationID, e.Agent}] = true
			}
		}
		return r.Rollouts(func(one *schemas.Rollout) error {
			if one.Error != nil || report.EvaluatorFailed(one) {
				failed[evaluationOf{one.EvaluationID, one.Agent}] = true
			}
			return nil
		})
	})
	return failed, err
}

// NamesRuns reports whether an evaluator compares with another run, so that a preview needs the
// store.
func (e *EvalSet) NamesRuns() bool { return comparesWithRuns(e.req.Set.Evaluators) }

// Planned is a rollout that a run would have.
type Planned struct {
	EvaluationID   string   `json:"evaluationId"`
	EvaluationName string   `json:"evaluationName"`
	Agent          string   `json:"agent"`
	Epoch          int      `json:"epoch"`
	Tags           []string `json:"tags"`
	// NotRunnable is why the rollout would fault at once; empty if it would not.
	NotRunnable string `json:"notRunnable,omitempty"`
}

// Preview returns the rollouts that Create would plan of an eval set. Nothing is stored. The store
// may be nil, unless the options or the set name a run in it. selected describes the selected part
// of the set, and is empty for all of it.
func (e *EvalSet) Preview(ctx context.Context, s *Store,
	o CreateOptions) (planned []Planned, selected string, err error) {
	if err := o.Check(); err != nil {
		return nil, "", err
	}
	req, err := e.request(ctx, s, o)
	if err != nil {
		return nil, "", err
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, "", err
	}
	plan, err := plans.New(req, filepath.Join(dir, DefaultDir))
	if err != nil {
		return nil, "", err
	}
	for _, r := range plan.Rollouts {
		of := req.Set.Evaluations[r.Evaluation]
		one := Planned{EvaluationID: of.ID, EvaluationName: of.Name, Agent: r.Agent, Epoch: r.Epoch,
			Tags: slices.Concat([]string{}, of.Tags)}
		if r.Fault != nil {
			one.NotRunnable = r.Fault.Message
		}
		planned = append(planned, one)
	}
	return planned, report.Selected(schemas.Head{Selection: req.Origin.Selection, EvalIDs: req.Origin.EvalIDs,
		Filter: req.Origin.Filter, RetryOf: req.RetryOf}), nil
}
