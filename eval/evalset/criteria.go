package evalset

import (
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/internal/input"
)

// CheckCriteria warns of problems in the criteria that an evaluation, or the template of a data
// set, has for an evaluator: without the key that the evaluator reads, every output scores 0.
// expected is the evaluation's expectedOutput, which takes the place of a missing one; nil if it
// has none, and null if that is not known. It also warns of criteria that every output meets.
func CheckCriteria(r *input.Reader, s *eval.Set, id string, criteria, expected *input.Node) {
	i := slices.IndexFunc(s.Evaluators, func(def eval.Definition) bool { return def.ID == id })
	if i < 0 {
		r.Warnf(criteria, "criteria for an evaluator that the set does not use%s", input.Suggest(id, s.EvaluatorIDs()))
		return
	}
	t := kinds.All[s.Evaluators[i].Type]
	if len(t.Criteria) == 0 || criteria.Kind != input.Object && criteria.Kind != input.Null {
		return
	}
	t.CheckKeys(r, criteria)
	k := t.Criteria[0]
	value := k.In(criteria)
	if value == nil && k.Name == evaluator.ExpectedOutputKey.Name {
		value = expected
	}
	if value == nil && len(criteria.Members) == 0 {
		e, err := kinds.All.New(s.Evaluators[i])
		if err != nil {
			return
		}
		if e.CriteriaOptional {
			return
		}
		if e.Defaults != nil {
			if value = k.In(e.DefaultsNode); value == nil {
				return
			}
		}
	}
	if value != nil {
		if t.Tells != nil && !t.Tells(value) {
			r.Warnf(criteria, "every output scores the same: %s expects nothing", k.Name)
		}
		return
	}
	r.Warnf(criteria, "%s is missing; every output will score 0", k.Name)
}
