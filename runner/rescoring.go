package runner

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/internal/dataset"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/rollout"
	"github.com/evalrun/evalrun/internal/store"
)

// rescoring is a rescoring of a run before it begins.
type rescoring struct {
	planned
	// dir is the eval set's folder.
	dir string
	// earlier are the earlier rescorings, with the one that this one may continue.
	earlier plans.Rescorings
	with    plans.Rescoring
	// evaluations are those with other criteria or expectations than in the plan.
	evaluations []store.Evaluation
	// unmatched are the ids of the run's evaluations that a new eval set lacks, more the ids that only
	// the new set has, changed the ids with other inputs.
	unmatched, more map[string]bool
	changed         []string
	// setJudges are the judges of a new eval set, nil if there is none.
	setJudges *judge.Config
	// notices are messages for the user.
	notices []string
}

// newRescoring prepares to score a run again.
func (s *Store) newRescoring(ctx context.Context, p planned, o ScoreOptions) (*rescoring, error) {
	work, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	stored, err := p.st.Rescorings(ctx, p.runID)
	if err != nil {
		return nil, err
	}
	r := &rescoring{planned: p}
	if r.earlier, err = p.plan.ReadRescorings(stored); err != nil {
		return nil, err
	}
	if r.dir, _, err = p.plan.OpenBaseDir(ctx, p.st, p.runID, work); err != nil {
		return nil, err
	}
	judges := p.plan.Judges
	r.with = plans.Rescoring{Version: s.opts.Version, Evaluators: p.plan.Set.Evaluators, PlanDigest: p.plan.Digest,
		Failed: o.Failed, WithoutWorkspaces: o.WithoutWorkspaces}
	switch {
	case o.Evaluators != "":
		err = r.readEvaluators(ctx, s, o.Evaluators)
	case o.Verifier:
		judges = r.earlier.InForce().Judges
		err = r.takeVerifier(ctx)
	case o.Failed && r.earlier.Last() > 0:
		force := r.earlier.InForce()
		r.with.Evaluators, r.with.PlanDigest, judges = force.Set.Evaluators, force.Digest, force.Judges
		err = r.inForce(ctx, func(e store.Evaluation) { r.evaluations = append(r.evaluations, e) })
	}
	if err != nil {
		return nil, err
	}
	if err := r.chooseJudges(cmp.Or(r.setJudges, judges), o); err != nil {
		return nil, err
	}
	r.with.Digest = plans.ScoringDigest(r.with.Evaluators, r.evaluations)
	return r, nil
}

// inForce calls f with the evaluations that the last rescoring has changed.
func (r *rescoring) inForce(ctx context.Context, f func(store.Evaluation)) error {
	return r.st.Snapshot(ctx, r.runID, func(v store.View) error {
		return v.RescoredEvaluations(r.earlier.Last(), func(e store.Evaluation) error {
			f(e)
			return nil
		})
	})
}

// readEvaluators reads an evaluator file or an eval set. s is the store of the run.
func (r *rescoring) readEvaluators(ctx context.Context, s *Store, path string) error {
	data, err := input.ReadFile(path, input.MaxFile)
	if err != nil {
		return inputError("--evaluators: %w", input.Unreadable(path, err))
	}
	node, err := input.Parse(path, data)
	if err != nil {
		return &InputError{Err: err}
	}
	sum := sha256.Sum256(data)
	r.with.FileDigest = "sha256:" + hex.EncodeToString(sum[:])
	if r.with.File, err = r.relative(path); err != nil {
		return err
	}
	planned, evaluations, err := r.readEvaluations(ctx)
	if err != nil {
		return err
	}
	var change func(*eval.Evaluation)
	if looksLikeEvaluator(node) {
		change, err = r.takeEvaluator(path, data)
	} else {
		change, err = r.takeSet(path, planned)
	}
	if err != nil {
		return err
	}
	asked := make([]eval.Evaluation, len(evaluations))
	for i, e := range evaluations {
		if err := json.Unmarshal(e.Data, &asked[i]); err != nil {
			return fmt.Errorf("evaluation %q: %w", e.ID, err)
		}
		change(&asked[i])
	}
	compared := references{s: s, runID: r.runID, agents: r.plan.Agents, epochs: r.plan.Set.Epochs}
	if n := r.earlier.Last(); n > 0 && r.earlier.Stored[n-1].EndedAt.IsZero() {
		compared.known = r.earlier.With[n-1].Evaluators // this may continue it
	}
	if err := compared.add(ctx, r.with.Evaluators, asked); err != nil {
		return err
	}
	for i := range asked {
		if evaluations[i].Data, err = json.Marshal(asked[i]); err != nil {
			return err
		}
		if !bytes.Equal(evaluations[i].Data, planned[i].Data) {
			r.evaluations = append(r.evaluations, evaluations[i])
		}
	}
	r.said(path)
	plan := r.plan
	plan.Set.Evaluators = r.with.Evaluators
	stored, err := r.st.Plan(ctx, r.runID)
	if err != nil {
		return err
	}
	r.with.PlanDigest, err = plans.RescoredDigest(stored, plan, evaluations)
	return err
}

// relative returns a path relative to the eval set's folder, slash-separated.
func (r *rescoring) relative(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	rel, err := filepath.Rel(r.dir, abs)
	return filepath.ToSlash(rel), err
}

// folder returns the folder of an evaluator as definitions have it: empty for the eval set's own.
func (r *rescoring) folder(path string) (string, error) {
	rel, err := r.relative(path)
	if rel == "." {
		rel = ""
	}
	return rel, err
}

// readEvaluations reads the evaluations of the plan, and the same as the last rescoring has changed
// them.
func (r *rescoring) readEvaluations(ctx context.Context) (planned, inForce []store.Evaluation, err error) {
	err = r.st.Snapshot(ctx, r.runID, func(v store.View) error {
		planned = nil
		return v.Evaluations(func(e store.Evaluation) error {
			planned = append(planned, e)
			return nil
		})
	})
	if err != nil {
		return nil, nil, err
	}
	instead := map[string]json.RawMessage{}
	if err := r.inForce(ctx, func(e store.Evaluation) { instead[e.ID] = e.Data }); err != nil {
		return nil, nil, err
	}
	inForce = slices.Clone(planned)
	for i := range inForce {
		if data, ok := instead[inForce[i].ID]; ok {
			inForce[i].Data = data
		}
	}
	return planned, inForce, nil
}

// takeEvaluator replaces the evaluator with the same id by the one of a file. If there is none, it
// is added, and every evaluation asks for it. change changes an evaluation accordingly.
func (r *rescoring) takeEvaluator(path string, data []byte) (change func(*eval.Evaluation), err error) {
	def, problems, err := evalset.ParseEvaluator(path, data)
	if err != nil {
		return nil, &InputError{Err: err}
	}
	r.warn(problems)
	if def.Dir, err = r.folder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if def.ID == eval.Verifier.ID {
		return nil, inputError("%s: the evaluator %q has the name that a task's verifier has; give it another id", path,
			def.ID)
	}
	r.with.Only = []string{def.ID}
	r.with.Evaluators = slices.Clone(r.earlier.InForce().Set.Evaluators)
	if i := slices.IndexFunc(r.with.Evaluators, func(d eval.Definition) bool { return d.ID == def.ID }); i >= 0 {
		def.Weight = r.with.Evaluators[i].Weight
		r.with.Evaluators[i] = def
		return func(*eval.Evaluation) {}, nil
	}
	r.with.Evaluators = append(r.with.Evaluators, def)
	return func(e *eval.Evaluation) {
		if e.Criteria == nil {
			e.Criteria = map[string]json.RawMessage{}
		}
		if _, asks := e.Criteria[def.ID]; !asks {
			e.Criteria[def.ID] = json.RawMessage("null")
		}
	}, nil
}

// takeSet takes evaluators and criteria from an eval set. Evaluations are matched by their ids;
// tasks bring their own criteria. Of a data set it keeps the rows that the run has. change changes
// an evaluation accordingly.
func (r *rescoring) takeSet(path string, planned []store.Evaluation) (change func(*eval.Evaluation), err error) {
	set, problems, err := evalset.Load(path)
	if err != nil {
		return nil, &InputError{Err: input.Unreadable(path, err)}
	}
	in := &input.Reader{Problems: problems}
	judges := judge.ParseConfig(in, set.Judges)
	r.unmatched, r.more = map[string]bool{}, map[string]bool{}
	there := map[string]*eval.Evaluation{}
	for _, e := range planned {
		there[e.ID] = nil
	}
	add := func(e eval.Evaluation) error {
		if _, has := there[e.ID]; has {
			there[e.ID] = &e
		} else {
			r.more[e.ID] = true
		}
		return nil
	}
	rows := dataset.Parse(in, set)
	for _, e := range set.Evaluations {
		_ = add(e) // it never fails
	}
	_ = rows.Each(in, add)
	if err := in.Problems.Err(false); err != nil {
		return nil, &InputError{Err: err}
	}
	r.warn(in.Problems)
	r.setJudges = &judges
	r.with.Evaluators = slices.Clone(set.Evaluators)
	for i := range r.with.Evaluators {
		def := &r.with.Evaluators[i]
		if def.Dir, err = r.folder(filepath.Join(filepath.Dir(set.Path), filepath.FromSlash(def.Dir))); err != nil {
			return nil, err
		}
	}
	if slices.ContainsFunc(r.plan.Set.Evaluators, func(d eval.Definition) bool { return d.Type == eval.TypeVerifier }) {
		r.with.Evaluators = append(r.with.Evaluators, eval.Verifier)
	}
	return func(e *eval.Evaluation) {
		other := there[e.ID]
		switch {
		case e.Task != nil:
		case other == nil:
			r.unmatched[e.ID] = true
		default:
			if !sameJSON(e.Inputs, other.Inputs) {
				r.changed = append(r.changed, e.ID)
			}
			e.Criteria, e.ExpectedOutput, e.ExpectedAgentBehavior =
				other.Criteria, other.ExpectedOutput, other.ExpectedAgentBehavior
		}
	}, nil
}

// said adds notices about mismatches between the run and a file.
func (r *rescoring) said(path string) {
	r.say("%s has no evaluation %s: what the run has of it is not scored again", path,
		slices.Sorted(maps.Keys(r.unmatched)))
	r.say("%s has evaluations that the run has not: %s", path, slices.Sorted(maps.Keys(r.more)))
	r.say("the inputs in %s of %s are not those that the agent was given", path, r.changed)
}

// sameJSON reports whether two JSON texts have the same value.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

func (r *rescoring) warn(problems input.Problems) {
	if warnings := problems.Warnings(); len(warnings) > 0 {
		r.notices = append(r.notices, warnings.Error())
	}
}

// say adds a notice about evaluations.
func (r *rescoring) say(format, path string, ids []string) {
	const most = 10
	if len(ids) == 0 {
		return
	}
	names := make([]string, 0, most)
	for _, id := range ids[:min(most, len(ids))] {
		names = append(names, redact.Line(id))
	}
	list := strings.Join(names, ", ")
	if more := len(ids) - most; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	r.notices = append(r.notices, fmt.Sprintf(format, path, list))
}

// failed returns the rollouts with an evaluator that has failed or was not run, and those that the
// last rescoring did not score.
func (r *rescoring) failed(ctx context.Context) (ids []string, err error) {
	err = r.st.Snapshot(ctx, r.runID, func(v store.View) error {
		ids = []string{}
		return v.Rollouts(func(rv store.RolloutView) error {
			failed := rv.Unscored != ""
			for _, one := range rv.Results {
				earlier := rollout.Earlier{Result: one}
				if err := json.Unmarshal(one.Data, &earlier.Results); err != nil {
					return fmt.Errorf("the stored result of evaluator %s: %w", one.EvaluatorID, err)
				}
				failed = failed || earlier.Failed()
			}
			if failed && rv.State == eval.StateCompleted {
				ids = append(ids, rv.ID)
			}
			return nil
		})
	})
	return ids, err
}

// encode returns the rescoring as it is stored.
func (r *rescoring) encode() (json.RawMessage, error) { return json.Marshal(r.with) }
