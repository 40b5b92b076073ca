package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/judged"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/store"
)

// references finds the outputs of other runs with which judges compare the outputs of a run. They
// become part of the run's evaluations, so that it needs the other run no more.
type references struct {
	s *Store
	// runID is the run whose outputs are judged.
	runID  string
	agents []agent.Entry
	epochs int
	// only, if not nil, reports whether the run has a rollout.
	only func(evaluationID, agent string, epoch int) bool
	// known are the evaluators whose runs were found before.
	known []eval.Definition
}

// comparesWithRuns reports whether an evaluator compares with another run.
func comparesWithRuns(defs []eval.Definition) bool {
	return slices.ContainsFunc(defs, func(d eval.Definition) bool { return judged.ComparesWith(d) != nil })
}

// addReferences finds the reference outputs for the judges of a new run. If the run exists already,
// they compare with the outputs that they were planned with, whatever "latest" means by now.
func (s *Store) addReferences(ctx context.Context, req *plans.Request, asPlanned bool) error {
	set := req.Set
	if !comparesWithRuns(set.Evaluators) {
		return nil
	}
	set.Evaluators, set.Evaluations = slices.Clone(set.Evaluators), slices.Clone(set.Evaluations)
	f := references{s: s, runID: req.RunID, agents: req.Agents, epochs: set.Epochs, only: req.Only}
	if req.RunID != "" {
		plan, err := readPlan(ctx, s.st, req.RunID)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		case asPlanned:
			return nil // nothing is planned
		default:
			f.known = plan.Set.Evaluators
			if err := s.copyReferences(ctx, req.RunID, set.Evaluations); err != nil {
				return err
			}
		}
	}
	return f.add(ctx, set.Evaluators, set.Evaluations)
}

// copyReferences copies the reference outputs of a run from its plan.
func (s *Store) copyReferences(ctx context.Context, runID string, evaluations []eval.Evaluation) error {
	planned := map[string]json.RawMessage{}
	err := s.st.Snapshot(ctx, runID, func(v store.View) error {
		return v.Evaluations(func(e store.Evaluation) error {
			planned[e.ID] = e.Data
			return nil
		})
	})
	if err != nil {
		return err
	}
	for i := range evaluations {
		if data, ok := planned[evaluations[i].ID]; ok {
			var one eval.Evaluation
			if err := json.Unmarshal(data, &one); err != nil {
				return fmt.Errorf("evaluation %q: %w", evaluations[i].ID, err)
			}
			evaluations[i].References = one.References
		}
	}
	return nil
}

// add finds the runs of evaluators that have none yet, and adds their outputs to the evaluations.
func (f references) add(ctx context.Context, defs []eval.Definition, evaluations []eval.Evaluation) error {
	for i := range defs {
		def := &defs[i]
		if def.Reference != nil {
			continue
		}
		reference := judged.ComparesWith(*def)
		if known := f.knownOf(def.ID, reference); known != nil {
			def.Reference = known
			continue
		}
		if reference == nil {
			continue
		}
		if err := f.compareWith(ctx, def, *reference, evaluations); err != nil {
			return err
		}
	}
	for _, e := range evaluations {
		// References of evaluators that are gone are dropped.
		maps.DeleteFunc(e.References, func(id string, _ []eval.ReferenceOutput) bool {
			return !slices.ContainsFunc(defs, func(d eval.Definition) bool { return d.ID == id && d.Reference != nil })
		})
	}
	return nil
}

// knownOf returns the run that was found before for an evaluator with the same reference.
func (f references) knownOf(id string, reference *eval.ReferenceRun) *eval.ReferenceRun {
	for _, def := range f.known {
		if was := judged.ComparesWith(def); def.ID == id && reference != nil && was != nil && *was == *reference {
			return def.Reference
		}
	}
	return nil
}

// compareWith finds the run of one evaluator, and adds its outputs. It is an error if there are
// none.
func (f references) compareWith(ctx context.Context, def *eval.Definition, reference eval.ReferenceRun,
	evaluations []eval.Evaluation) error {
	other, err := f.read(ctx, def.ID, reference)
	if err != nil {
		return err
	}
	def.Reference = &eval.ReferenceRun{Run: other.id, Agent: reference.Agent}
	hash := sha256.New()
	enc := json.NewEncoder(hash)
	found, missing := 0, ""
	for i := range evaluations {
		e := &evaluations[i]
		e.References = maps.Clone(e.References)
		delete(e.References, def.ID)
		if _, asks := e.Criteria[def.ID]; !asks {
			continue
		}
		outputs := f.outputs(other, reference.Agent, e.ID)
		for _, one := range outputs {
			if one.Missing == "" {
				found++
			} else if missing == "" {
				missing = fmt.Sprintf("evaluation %s: %s", e.ID, one.Missing)
			}
		}
		if e.References == nil {
			e.References = map[string][]eval.ReferenceOutput{}
		}
		e.References[def.ID] = outputs
		_ = enc.Encode([]any{e.ID, outputs}) // a hash takes everything, and the outputs are JSON
	}
	if found == 0 && missing != "" {
		return inputError("the evaluator %s has nothing to compare with: %s", def.ID, missing)
	}
	def.Reference.Digest = "sha256:" + hex.EncodeToString(hash.Sum(nil))
	return nil
}

// referenced is a run with which others are compared.
type referenced struct {
	id     string
	agents []string
	// attempts are in the order of their epochs.
	attempts map[evaluationOf][]attempt
}

// attempt is a rollout of such a run, with its output or the reason why there is none.
type attempt struct {
	epoch     int
	rolloutID string
	output    json.RawMessage
	missing   string
}

// read reads the run that an evaluator names.
func (f references) read(ctx context.Context, evaluator string, reference eval.ReferenceRun) (*referenced, error) {
	run, err := f.s.Find(ctx, reference.Run)
	switch {
	case err != nil:
		return nil, inputError("the evaluator %s compares with another run: %w", evaluator, err)
	case run.ID == f.runID:
		return nil, inputError("the evaluator %s compares with the run %s, which %q is, and that is the run that it scores; name another, such as the one before it",
			evaluator, run.ID, reference.Run)
	case !run.Final:
		return nil, inputError("the evaluator %s compares with run %s, which is not final; wait until it is, or name another",
			evaluator, run.ID)
	}
	var out *referenced
	err = f.s.st.Snapshot(ctx, run.ID, func(v store.View) error {
		out = &referenced{id: run.ID, attempts: map[evaluationOf][]attempt{}}
		return v.Rollouts(func(r store.RolloutView) error {
			if !slices.Contains(out.agents, r.Agent) {
				out.agents = append(out.agents, r.Agent)
			}
			key := evaluationOf{r.EvaluationID, r.Agent}
			out.attempts[key] = append(out.attempts[key], attemptOf(r))
			return nil
		})
	})
	if err == nil && reference.Agent != "" && !slices.Contains(out.agents, reference.Agent) {
		err = inputError("the evaluator %s compares with the agent %q of run %s, which has rollouts of %s", evaluator,
			reference.Agent, run.ID, named(out.agents))
	}
	return out, err
}

// attemptOf converts a rollout to an attempt.
func attemptOf(r store.RolloutView) attempt {
	out := attempt{epoch: r.Epoch, rolloutID: r.ID}
	for _, g := range r.Segments {
		if g.Outcome == store.OutcomeCompleted {
			out.output = g.Output
		}
	}
	switch text := bytes.TrimSpace(out.output); {
	case r.State == eval.StateFaulted && r.Fault != nil:
		out.missing = fmt.Sprintf("its rollout in run %s has faulted (%s)", r.RunID, r.Fault.Category)
	case r.State != eval.StateCompleted:
		out.missing = fmt.Sprintf("its rollout in run %s is %s", r.RunID, r.State)
	case len(text) == 0 || string(text) == "null":
		out.missing = fmt.Sprintf("its rollout in run %s has no output", r.RunID)
	}
	return out
}

// outputs returns the outputs with which the rollouts of an evaluation are compared.
func (f references) outputs(other *referenced, named, evaluation string) (out []eval.ReferenceOutput) {
	for _, a := range f.agents {
		var epochs []int
		for epoch := 1; epoch <= f.epochs; epoch++ {
			if f.only == nil || f.only(evaluation, a.Name, epoch) {
				epochs = append(epochs, epoch)
			}
		}
		agent, missing := other.agentFor(a.Name, named)
		attempts := other.attempts[evaluationOf{evaluation, agent}]
		if missing == "" && len(attempts) == 0 {
			missing = fmt.Sprintf("run %s has no rollout of it", other.id)
		}
		switch {
		case len(epochs) == 0:
		case missing != "":
			out = append(out, eval.ReferenceOutput{Agent: a.Name, Missing: missing})
		case len(attempts) == 1:
			out = append(out, attempts[0].comparedWith(a.Name, 0))
		default:
			for _, epoch := range epochs {
				out = append(out, other.epoch(attempts, epoch).comparedWith(a.Name, epoch))
			}
		}
	}
	return out
}

// agentFor returns the agent with whose outputs those of another are compared: the named one, the
// one with the same name, or the only one.
func (r *referenced) agentFor(name, named string) (agent, missing string) {
	switch {
	case named != "":
		return named, ""
	case slices.Contains(r.agents, name):
		return name, ""
	case len(r.agents) == 1:
		return r.agents[0], ""
	}
	return "", fmt.Sprintf(`run %s has the agents %s and none named %s; say with which to compare: "reference": {"run": …, "agent": …}`,
		r.id, strings.Join(r.agents, ", "), name)
}

// epoch returns the attempt that is compared with one of the same number.
func (r *referenced) epoch(attempts []attempt, epoch int) attempt {
	for _, one := range attempts {
		if one.epoch == epoch {
			return one
		}
	}
	return attempt{missing: fmt.Sprintf("run %s has no attempt number %d at it, of %d", r.id, epoch, len(attempts))}
}

// comparedWith converts an attempt to a reference output for an agent, for all rollouts or those of
// one epoch.
func (a attempt) comparedWith(agent string, epoch int) eval.ReferenceOutput {
	if a.missing != "" {
		return eval.ReferenceOutput{Agent: agent, Epoch: epoch, Missing: a.missing}
	}
	return eval.ReferenceOutput{Agent: agent, Epoch: epoch, RolloutID: a.rolloutID, Output: a.output}
}
