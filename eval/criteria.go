package eval

import (
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// criterion is the one key of the criteria of an evaluator type, and of what kind its value is: Null
// stands for any. The criteria of other types may have any keys.
type criterion struct {
	key  string
	kind input.Kind
}

var criteriaOf = map[string]criterion{
	"uipath-exact-match":                             {"expectedOutput", input.Null},
	"uipath-contains":                                {"searchText", input.Null},
	"uipath-json-similarity":                         {"expectedOutput", input.Null},
	"uipath-binary-classification":                   {"expectedClass", input.String},
	"uipath-multiclass-classification":               {"expectedClass", input.String},
	"uipath-tool-call-order":                         {"toolCallsOrder", input.Array},
	"uipath-tool-call-count":                         {"toolCallsCount", input.Object},
	"uipath-tool-call-args":                          {"toolCalls", input.Array},
	"uipath-tool-call-output":                        {"toolOutputs", input.Array},
	"uipath-llm-judge-output-semantic-similarity":    {"expectedOutput", input.Null},
	"uipath-llm-judge-output-strict-json-similarity": {"expectedOutput", input.Null},
	"uipath-llm-judge-trajectory-similarity":         {"expectedAgentBehavior", input.Null},
	"uipath-llm-judge-trajectory-simulation":         {"expectedAgentBehavior", input.Null},
}

// names are the two spellings of the key that UiPath accepts.
func (c criterion) names() []string { return []string{c.key, input.Snake(c.key)} }

// in is the value of the criterion, nil if it is not there.
func (c criterion) in(criteria *input.Node) *input.Node {
	for _, name := range c.names() {
		if v := criteria.Member(name); v != nil {
			return v
		}
	}
	return nil
}

// checkKeys warns of keys that no evaluator of the type reads, and of a value of the wrong kind. A
// text that begins with a place of a data set may become any value.
func (c criterion) checkKeys(r *input.Reader, criteria *input.Node) {
	for _, m := range criteria.Members {
		if !slices.Contains(c.names(), m.Key) {
			r.Warnf(m.Value, "unknown key; this evaluator reads only %s", c.key)
		}
	}
	v := c.in(criteria)
	if v == nil || c.kind == input.Null || v.Kind == c.kind || v.Kind == input.String && strings.HasPrefix(v.Text, "{row.") {
		return
	}
	r.Warnf(v, "expected %s, got %s; every output will score 0", c.kind, v.Kind)
}

// CheckCriteria warns of what is wrong with the criteria that an evaluation, or the template of a
// data set, has for an evaluator: without the key that the evaluator reads, every output scores 0.
// expected says that the evaluation has an expectedOutput, which takes the place of a missing one.
func (s *Set) CheckCriteria(r *input.Reader, id string, criteria *input.Node, expected bool) {
	i := slices.IndexFunc(s.Evaluators, func(def Definition) bool { return def.ID == id })
	if i < 0 {
		r.Warnf(criteria, "criteria for an evaluator that the set does not use%s", input.Suggest(id, ids(s.Evaluators)))
		return
	}
	c, ok := criteriaOf[s.Evaluators[i].Type]
	if !ok || criteria.Kind != input.Object && criteria.Kind != input.Null {
		return
	}
	c.checkKeys(r, criteria)
	if c.in(criteria) != nil || expected && c.key == "expectedOutput" {
		return
	}
	if len(criteria.Members) == 0 {
		if e, err := build(s.Evaluators[i]); err != nil || e.defaults != nil {
			return
		}
	}
	r.Warnf(criteria, "%s is missing; every output will score 0", c.key)
}
