package eval

import (
	"slices"

	"github.com/evalrun/evalrun/internal/input"
)

// CheckCriteria warns of what is wrong with the criteria that an evaluation, or the template of a
// data set, has for an evaluator: without the key that the evaluator reads, every output scores 0.
// expected is the evaluation's expectedOutput, which takes the place of a missing one; nil if it has
// none, and null if that is not known. Criteria that every output meets are told as well.
func CheckCriteria(r *input.Reader, s *Set, id string, criteria, expected *input.Node) {
	i := slices.IndexFunc(s.Evaluators, func(def Definition) bool { return def.ID == id })
	if i < 0 {
		r.Warnf(criteria, "criteria for an evaluator that the set does not use%s", input.Suggest(id, s.EvaluatorIDs()))
		return
	}
	t := All[s.Evaluators[i].Type]
	if len(t.criteria) == 0 || criteria.Kind != input.Object && criteria.Kind != input.Null {
		return
	}
	t.checkKeys(r, criteria)
	k := t.criteria[0]
	value := k.in(criteria)
	if value == nil && k.name == expectedOutputKey.name {
		value = expected
	}
	if value == nil && len(criteria.Members) == 0 {
		e, err := All.New(s.Evaluators[i])
		if err != nil {
			return
		}
		if e.defaults != nil {
			if value = k.in(e.defaultsNode); value == nil {
				return
			}
		}
	}
	if value != nil {
		if t.tells != nil && !t.tells(value) {
			r.Warnf(criteria, "every output scores the same: %s expects nothing", k.name)
		}
		return
	}
	r.Warnf(criteria, "%s is missing; every output will score 0", k.name)
}
