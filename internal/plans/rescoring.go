package plans

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/store"
)

// Rescoring holds the evaluators with which rollouts of a run are scored again. It is stored, so
// that a rescoring that was broken off goes on with the same evaluators.
type Rescoring struct {
	// Version is the version of the evalrun that began it.
	Version string `json:"version,omitempty"`
	// Evaluators take the place of those of the plan. Digest is the same for the same evaluators
	// and criteria. PlanDigest is the digest of a plan that would have been made with them.
	Evaluators []eval.Definition `json:"evaluators"`
	Digest     string            `json:"digest"`
	PlanDigest string            `json:"planDigest,omitempty"`
	// File is the evaluator file or eval set from which they come, relative to the eval set's
	// folder and slash-separated; empty if they come from the plan. FileDigest is the digest of the
	// file.
	File       string `json:"file,omitempty"`
	FileDigest string `json:"fileDigest,omitempty"`
	// Only names the evaluators that are asked, those of a file; empty means all. Failed asks the
	// evaluators that have failed. WithoutWorkspaces also asks those that may read a workspace that
	// is gone. Judges are the models that they ask; nil if they ask none.
	Judges            *judge.Config `json:"judges,omitempty"`
	Only              []string      `json:"only,omitempty"`
	Failed            bool          `json:"failed,omitempty"`
	WithoutWorkspaces bool          `json:"withoutWorkspaces,omitempty"`
}

// Continues reports whether a rescoring that has not ended is the same as another one.
func (r Rescoring) Continues(other Rescoring) bool {
	return r.Digest == other.Digest && slices.Equal(r.Only, other.Only) && r.Failed == other.Failed &&
		r.WithoutWorkspaces == other.WithoutWorkspaces &&
		reflect.DeepEqual(r.Judges, other.Judges)
}

// Rescorings are the rescorings of a run, in order.
type Rescorings struct {
	Stored []store.Rescoring
	With   []Rescoring
	plan   Plan
}

// ReadRescorings reads the rescorings of the run of a plan.
func (p Plan) ReadRescorings(stored []store.Rescoring) (out Rescorings, err error) {
	out = Rescorings{Stored: stored, plan: p, With: make([]Rescoring, len(stored))}
	for i, one := range stored {
		if err := json.Unmarshal(one.Data, &out.With[i]); err != nil {
			return out, fmt.Errorf("the stored rescoring %d: %w", one.Number, err)
		}
	}
	return out, nil
}

// Last returns the number of the last rescoring, 0 if there is none.
func (r Rescorings) Last() int { return len(r.With) }

// InForce returns the plan with the evaluators by which the run is judged: those of the last
// rescoring.
func (r Rescorings) InForce() Plan {
	plan := r.plan
	if n := r.Last(); n > 0 {
		plan.Set.Evaluators, plan.Digest, plan.Judges = r.With[n-1].Evaluators, r.With[n-1].PlanDigest, r.With[n-1].Judges
	}
	return plan
}

// Outdated reports whether the results of one rescoring come from other evaluators or criteria than
// those by which the run is judged. With 0 it is about the first results.
func (r Rescorings) Outdated(number int) bool {
	return r.Last() > 0 && r.digest(number) != r.With[r.Last()-1].Digest
}

func (r Rescorings) digest(number int) string {
	if number == 0 {
		return ScoringDigest(r.plan.Set.Evaluators, nil)
	}
	return r.With[number-1].Digest
}

// Evaluator returns the definition that an evaluator had in one rescoring, or with 0 in the plan.
func (r Rescorings) Evaluator(number int, id string) (def eval.Definition, ok bool) {
	defs := r.plan.Set.Evaluators
	if number > 0 {
		defs = r.With[number-1].Evaluators
	}
	i := slices.IndexFunc(defs, func(d eval.Definition) bool { return d.ID == id })
	if i < 0 {
		return def, false
	}
	return defs[i], true
}

// ScoringDigest returns a digest of evaluators and evaluations that take the place of the plan's.
// Whether an evaluator could be run does not count.
func ScoringDigest(defs []eval.Definition, evaluations []store.Evaluation) string {
	evaluations = slices.Clone(evaluations)
	slices.SortFunc(evaluations, func(a, b store.Evaluation) int { return strings.Compare(a.ID, b.ID) })
	hash := sha256.New()
	enc := json.NewEncoder(hash)
	for _, def := range defs {
		def.NotRun = ""
		_ = enc.Encode(def) // a hash accepts everything, and the configuration was read from JSON
	}
	for _, e := range evaluations {
		_ = enc.Encode([]any{e.ID, e.Data})
	}
	return "sha256:" + hex.EncodeToString(hash.Sum(nil))
}

// RescoredDigest returns the digest of a stored plan with other evaluators and evaluations.
func RescoredDigest(stored store.Plan, plan Plan, evaluations []store.Evaluation) (string, error) {
	data, err := json.Marshal(plan)
	if err != nil {
		return "", err
	}
	stored.Data = data
	parts, err := partsOf(stored, evaluations)
	if err != nil {
		return "", err
	}
	return parts.digest()
}
