package evalset

import (
	"encoding/json"
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

// addChecks gives the set an evaluator for the key checks of its evaluations, unless it has one.
func (l *loader) addChecks(evaluations *input.Node, set *eval.Set, known map[string]string) {
	isChecks := func(def eval.Definition) bool { return def.Type == eval.TypeChecks }
	first := slices.IndexFunc(evaluations.Items, func(n *input.Node) bool { return n.Member("checks") != nil })
	if first < 0 || slices.ContainsFunc(set.Evaluators, isChecks) {
		return
	}
	if where, taken := known[eval.ChecksID]; taken {
		l.Errorf(evaluations.Items[first].Member("checks"), "the evaluator with the id %q in %s is of another type; "+
			"give it another id", eval.ChecksID, where)
		return
	}
	known[eval.ChecksID] = "the checks of the evaluations"
	set.Evaluators = append(set.Evaluators, eval.Definition{ID: eval.ChecksID, Name: eval.ChecksID,
		Type: eval.TypeChecks, Weight: 1, Config: json.RawMessage("{}")})
}

// checks makes the criteria of the set's evaluator of type checks from the key checks of an evaluation.
func (l *loader) checks(n *input.Node, set *eval.Set, e *eval.Evaluation) {
	id := ""
	for _, def := range set.Evaluators {
		if def.Type != eval.TypeChecks {
			continue
		}
		if id != "" {
			l.Errorf(n, "the set has several evaluators of type checks; name one of them under evaluationCriterias, as in "+
				`{"%s": {"checks": […]}}`, id)
			return
		}
		id = def.ID
	}
	if id == "" {
		return // the evaluator of this id is of another type, which has been said
	}
	if _, twice := e.Criteria[id]; twice {
		l.Errorf(n, "expected checks either here or under evaluationCriterias.%s, got both", id)
		return
	}
	criteria := &input.Node{Kind: input.Object, File: n.File, Line: n.Line, Column: n.Column, Path: n.Path,
		Members: []input.Member{{Key: "checks", Line: n.Line, Column: n.Column, Value: n}}}
	e.Criteria[id] = criteria.JSON()
	CheckCriteria(&l.Reader, set, id, criteria, nil)
}
