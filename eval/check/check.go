// Package check has the evaluator of type checks: a list of small deterministic checks of a rollout,
// each with a reason in plain words. A check looks at the output, at the calls of tools, or at what
// the rollout has used. The evaluator of type similar is one more check, which needs a model of
// embeddings. The package runs no programs.
package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// Kinds are the kinds of this package.
var Kinds = evaluator.Kinds{eval.TypeChecks: checksType, TypeSimilar: similarType}

// checksKey is the key of configuration and criteria.
const checksKey = "checks"

var checksType = evaluator.Kind{
	Read: readChecks,
	About: "Scores the weighted mean of checks, which need no model. Each is an object with one check, " +
		"`{\"contains\": \"Paris\"}`, and further keys. The results have a reason for each. " +
		"[checks.md](checks.md) has more.",
	KeysBeside: true,
	Keys: []evaluator.Key{
		{Name: checksKey, Kind: input.Array, Items: checkKeys, About: "the checks of every evaluation"},
		{Name: "path", Kind: input.String, About: "that of the checks that have none of their own: " + pathAbout},
		{Name: "threshold", Kind: input.Number, Most: 1, About: "the mean from which on the score is 1, and else 0; " +
			"without it the score is the mean"},
	},
	Criteria: []evaluator.Key{{Name: checksKey, Kind: input.Array,
		About: "the checks of this evaluation, beside those of the configuration"}},
	CheckCriteria: checkCriteria,
}

// settings are the configuration of an evaluator.
type settings struct {
	checks    []*check
	path      *path
	threshold *float64
	// node is the list of checks as it was written, if something is to be filled in for each
	// evaluation; else nil.
	node *input.Node
}

func readChecks(e *evaluator.Evaluator, c *evaluator.Config) {
	s := &settings{}
	rd := &reader{Reader: c.Reader, template: true}
	node := c.Optional(checksKey, input.Array)
	if node != nil {
		if s.checks = rd.list(node, 0); rd.open {
			s.node = node
		}
	}
	s.path = rd.path(c)
	s.threshold = rd.threshold(c)
	e.CriteriaOptional = true
	e.Score = s.score
}

// checkCriteria reads the checks of an evaluation for their problems. Those of a data set's template
// have placeholders.
func checkCriteria(r *input.Reader, criteria *input.Node) {
	if n := criteria.Member(checksKey); n != nil && n.Kind == input.Array {
		(&reader{Reader: r, template: true}).list(n, 0)
	}
}

// Problem says what is wrong with a check, nil if nothing is.
func Problem(raw json.RawMessage) error {
	node, err := input.ParseJSON("check", raw)
	if err != nil {
		return err
	}
	var r input.Reader
	(&reader{Reader: &r, template: true}).one(node, 0)
	if len(r.Problems) > 0 {
		return errors.New(r.Problems[0].Message)
	}
	return nil
}

// finding is what a check has found, as the results have it.
type finding struct {
	Check  string `json:"check"`
	Name   string `json:"name,omitempty"`
	Passed bool   `json:"passed"`
	// Score is from 0 to 1.
	Score  float64 `json:"score"`
	Weight float64 `json:"weight"`
	Reason string  `json:"reason"`
}

func (s *settings) score(ctx context.Context, subject eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
	checks, err := s.all(subject, criteria)
	if err != nil {
		return evaluator.Outcome{Failure: err}
	}
	if len(checks) == 0 {
		return evaluator.Broken("there are no checks, neither in the configuration nor for this evaluation")
	}
	output, err := pyvalue.Parse(subject.Output)
	if err != nil {
		return evaluator.Failed("output: %v", err)
	}
	seen := &scene{subject: subject, path: s.path, value: output}
	var findings []finding
	var sum, weights float64
	for _, one := range checks {
		found, err := one.run(ctx, seen)
		if err != nil {
			return evaluator.Outcome{Failure: fmt.Errorf("%s: %w", one.title(), err)}
		}
		findings = append(findings, found)
		sum, weights = sum+found.Score*one.weight, weights+one.weight
	}
	if weights == 0 {
		return evaluator.Broken("all checks have the weight 0")
	}
	score := sum / weights
	if s.threshold != nil {
		score = pyvalue.Truth(score >= *s.threshold)
	}
	return evaluator.Outcome{Score: score, Details: map[string]any{checksKey: findings}}
}

// all returns the checks of the configuration and of an evaluation, with everything filled in.
func (s *settings) all(subject eval.Subject, criteria *pyvalue.Object) ([]*check, error) {
	checks := s.checks
	var err error
	if s.node != nil {
		if checks, err = readFilled(s.node, subject); err != nil {
			return nil, err
		}
	}
	v, ok := criteria.Values[checksKey]
	if !ok || v == nil {
		return checks, nil
	}
	raw, err := jsonobj.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("criteria: %w", err)
	}
	node, err := input.ParseJSON("criteria", raw)
	if err != nil {
		return nil, err
	}
	if node.Kind != input.Array {
		return nil, fmt.Errorf("criteria: checks: expected an array of checks, got %s", node.Kind)
	}
	own, err := readFilled(node, subject)
	return append(checks[:len(checks):len(checks)], own...), err
}

// readFilled reads checks after what stands for a value of the evaluation has been replaced by it.
func readFilled(n *input.Node, subject eval.Subject) ([]*check, error) {
	filled, err := fill(n, subject)
	if err != nil {
		return nil, err
	}
	var r input.Reader
	checks := (&reader{Reader: &r}).list(filled, 0)
	return checks, r.Problems.Err(false)
}

// scene is what checks look at.
type scene struct {
	subject eval.Subject
	path    *path
	value   any
}

// fill replaces texts such as {{expected.answer}} by the value of the evaluation.
func fill(n *input.Node, subject eval.Subject) (*input.Node, error) {
	out := *n
	switch n.Kind {
	case input.String:
		whose, where, ok := place(n.Text)
		if !ok {
			return n, nil
		}
		raw := subject.Evaluation.Inputs
		if whose == "expected" {
			if raw = subject.Evaluation.ExpectedOutput; raw == nil {
				return nil, fmt.Errorf("%s: the evaluation has no expectedOutput", n.Text)
			}
		}
		value, err := valueAt(raw, where)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.Text, err)
		}
		return input.ParseJSON(n.Path, value)
	case input.Array:
		out.Items = make([]*input.Node, len(n.Items))
		for i, item := range n.Items {
			filled, err := fill(item, subject)
			if err != nil {
				return nil, err
			}
			out.Items[i] = filled
		}
	case input.Object:
		out.Members = make([]input.Member, len(n.Members))
		for i, m := range n.Members {
			value, err := fill(m.Value, subject)
			if err != nil {
				return nil, err
			}
			m.Value = value
			out.Members[i] = m
		}
	}
	return &out, nil
}

// place reads {{expected}}, {{input}} and these with a path.
func place(text string) (whose, where string, ok bool) {
	inner, closed := strings.CutSuffix(text, "}}")
	inner, opened := strings.CutPrefix(inner, "{{")
	whose, where, _ = strings.Cut(strings.TrimSpace(inner), ".")
	return whose, where, opened && closed && (whose == "expected" || whose == "input")
}

func valueAt(raw json.RawMessage, where string) (json.RawMessage, error) {
	v, err := pyvalue.Parse(raw)
	if err != nil || where == "" {
		return raw, err
	}
	p, err := parsePath(where)
	if err != nil {
		return nil, err
	}
	if v, err = p.of(v); err != nil {
		return nil, err
	}
	return jsonobj.Marshal(v)
}

// isOpen reports whether a value has a place that is filled in later: of an evaluation, or of the row of
// a data set.
func isOpen(n *input.Node) bool {
	if n.Kind == input.String {
		_, _, ok := place(n.Text)
		return ok || strings.Contains(n.Text, "{row.")
	}
	for _, item := range n.Items {
		if isOpen(item) {
			return true
		}
	}
	for _, m := range n.Members {
		if isOpen(m.Value) {
			return true
		}
	}
	return false
}
