package evalset

import (
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/input"
)

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
