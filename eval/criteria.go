package eval

import (
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// names are the two spellings of a key that UiPath accepts.
func (k key) names() []string { return []string{k.name, input.Snake(k.name)} }

// in is the value of the key, nil if it is not there.
func (k key) in(criteria *input.Node) *input.Node {
	for _, name := range k.names() {
		if v := criteria.Member(name); v != nil {
			return v
		}
	}
	return nil
}

// checkKeys warns of keys that no evaluator of the type reads, and of a value of the wrong kind. A
// text that begins with a place of a data set may become any value.
func (t evaluatorType) checkKeys(r *input.Reader, criteria *input.Node) {
	if len(t.criteria) == 0 {
		return
	}
	k := t.criteria[0] // no type has more
	for _, m := range criteria.Members {
		if !slices.Contains(k.names(), m.Key) {
			r.Warnf(m.Value, "unknown key; this evaluator reads only %s", k.name)
		}
	}
	v := k.in(criteria)
	if v == nil || k.kind == input.Null || v.Kind == k.kind || v.Kind == input.String && strings.HasPrefix(v.Text, "{row.") {
		return
	}
	r.Warnf(v, "expected %s, got %s; every output will score 0", k.kind, v.Kind)
}

// CheckCriteria warns of what is wrong with the criteria that an evaluation, or the template of a
// data set, has for an evaluator: without the key that the evaluator reads, every output scores 0.
// expected is the evaluation's expectedOutput, which takes the place of a missing one; nil if it has
// none, and null if that is not known. Criteria that every output meets are told as well.
func (s *Set) CheckCriteria(r *input.Reader, id string, criteria, expected *input.Node) {
	i := slices.IndexFunc(s.Evaluators, func(def Definition) bool { return def.ID == id })
	if i < 0 {
		r.Warnf(criteria, "criteria for an evaluator that the set does not use%s", input.Suggest(id, ids(s.Evaluators)))
		return
	}
	t := types[s.Evaluators[i].Type]
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
		e, err := build(s.Evaluators[i])
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
