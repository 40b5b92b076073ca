package wait

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/input"
)

// ParseAnswers reads a list of answers that are played: the key "answers" of an eval set or of an
// evaluation, or a file of them; n may be nil. place stands before the number of an answer when it
// is named. Problems are recorded in r with their places.
func ParseAnswers(r *input.Reader, n *input.Node, place string) (out []PlayedAnswer) {
	if n == nil || n.Kind == input.Null {
		return nil
	}
	if n.Kind != input.Array {
		r.Errorf(n, "expected an array of answers, got %s", n.Kind)
		return nil
	}
	for i, f := range r.Objects(n) {
		a := PlayedAnswer{Place: fmt.Sprintf("%s[%d]", place, i)}
		a.read(r, f)
		f.Refuse()
		out = append(out, a)
	}
	return out
}

// read reads one answer: what it matches, and exactly one of the keys that say what is answered.
func (a *PlayedAnswer) read(r *input.Reader, f *input.Fields) {
	if n := f.Required("match", input.Object); n != nil {
		a.Match = parseMatch(r, n)
	}
	if given := f.Count("approve", "deny", "payload", "fail"); given != 1 {
		r.Errorf(f.Node, "expected one of approve, deny, payload and fail, got %d of them", given)
	}
	a.After = Duration(f.Duration("after", 0))
	reason := f.String("reason", "")
	switch approve, deny := f.Get("approve"), f.Get("deny"); {
	case approve != nil:
		if a.Approve = approve.Text == "true" && approve.Kind == input.Bool; !a.Approve {
			r.Errorf(approve, `expected true; a denial is written "deny": "REASON"`)
		}
		a.Result = decisionPayload("approve", reason)
	case deny != nil:
		switch {
		case deny.Kind == input.String:
			if f.Has("reason") {
				r.Errorf(f.Get("reason"), "deny has the reason already")
			}
			reason = deny.Text
		case deny.Kind != input.Bool || deny.Text != "true":
			r.Errorf(deny, "expected the reason of the denial, or true, got %s", deny.Kind)
		}
		a.Result = decisionPayload("deny", reason)
	default:
		if f.Has("reason") {
			r.Errorf(f.Get("reason"), "a reason goes with approve")
		}
		a.FixedResult = parseFixed(r, f, "payload", a.After)
	}
}

// decisionPayload is what evalrun approve and evalrun deny deliver.
func decisionPayload(verb, reason string) json.RawMessage {
	answer := map[string]any{"action": verb, "approved": verb == "approve"}
	if reason != "" {
		answer["reason"] = reason
	}
	data, err := json.Marshal(answer)
	if err != nil {
		return nil // strings and booleans always marshal
	}
	return data
}

// parseFixed reads a result, which has the key result or payload, or a failure in its place.
func parseFixed(r *input.Reader, f *input.Fields, result string, after Duration) FixedResult {
	out := FixedResult{After: after}
	if n := f.Get(result); n != nil {
		out.Result = n.JSON()
	}
	if n := f.Optional("fail", input.String); n != nil {
		if out.Fail = n.Text; n.Text == "" {
			r.Errorf(n, "expected the message of the failure, got an empty string")
		}
	} else if n := f.Get("fail"); n != nil && n.Kind == input.Null {
		r.Errorf(n, "expected the message of the failure, got null")
	}
	return out
}

func parseMatch(r *input.Reader, n *input.Node) Match {
	f := r.Object(n)
	m := Match{Title: pattern(r, f, "title"), Type: f.String("type", ""), InterruptID: pattern(r, f, "interrupt"),
		Evaluation: pattern(r, f, "evaluation"), Payload: f.Get("payload").JSON()}
	if m.Type != "" {
		var known []string
		for _, model := range models {
			if model.typ != TypeTimer { // that ends by itself
				known = append(known, string(model.typ), model.name)
			}
		}
		known = append(known, string(TypeAPI), string(TypeQueueItem), string(TypeMCPTask))
		if !slices.Contains(known, m.Type) {
			r.Errorf(f.Get("type"), "nothing that waits for an answer has the type %q%s", m.Type, input.Suggest(m.Type, known))
		}
	}
	f.Refuse()
	return m
}

// pattern reads a text in which * stands for any text.
func pattern(r *input.Reader, f *input.Fields, name string) string {
	text := f.String(name, "")
	if n := f.Get(name); n != nil && n.Kind == input.String && text == "" {
		r.Errorf(n, "expected a pattern such as \"Pay *\", got an empty string; leave the key out to match everything")
	}
	return text
}

// ParseFixed reads a job that is played.
func ParseFixed(r *input.Reader, f *input.Fields) Settings {
	c := &FixedConfig{}
	if given := f.Count("result", "fail", "sequence"); given != 1 {
		r.Errorf(f.Node, "expected one of result, fail and sequence, got %d of them", given)
	}
	c.FixedResult = parseFixed(r, f, "result", Duration(f.Duration("after", 0)))
	n := f.Optional("sequence", input.Array)
	if n == nil {
		return c
	}
	if len(n.Items) == 0 {
		r.Errorf(n, "expected at least one result")
	}
	for _, g := range r.Objects(n) {
		if (g.Get("result") == nil) == (g.Get("fail") == nil) {
			r.Errorf(g.Node, "expected either result or fail")
		}
		one := parseFixed(r, g, "result", Duration(g.Duration("after", time.Duration(c.After))))
		c.Sequence = append(c.Sequence, one)
		g.Refuse()
	}
	return c
}
