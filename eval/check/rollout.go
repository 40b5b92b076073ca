package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/spans"
	"github.com/evalrun/evalrun/internal/input"
)

// tools makes toolF1 and toolOrder.
func (r *reader) tools(kind string, v *input.Node) test {
	if len(v.Items) == 0 {
		r.Errorf(v, "expected at least one name of a tool")
		return nil
	}
	names := r.texts(v, true)
	if kind == "toolOrder" {
		want := "calls in the order " + strings.Join(names, ", ")
		return func(_ context.Context, s *scene, _ any) answer {
			calls := spans.ToolCalls(s.subject.Trace)
			at := 0
			for i := range calls {
				if at < len(names) && calls[i].Is(names[at]) {
					at++
				}
			}
			return answer{score: truth(at == len(names)), want: want, got: called(calls)}
		}
	}
	want := "calls of " + strings.Join(names, ", ")
	return func(_ context.Context, s *scene, _ any) answer {
		calls := spans.ToolCalls(s.subject.Trace)
		used := map[string]bool{}
		for i := range calls {
			used[calls[i].Known()] = true
		}
		expected := map[string]bool{}
		found := 0
		for _, name := range names {
			if !expected[name] && slices.ContainsFunc(calls, func(c spans.ToolCall) bool { return c.Is(name) }) {
				found++
			}
			expected[name] = true
		}
		found = min(found, len(used)) // two names may mean the same tool
		return answer{score: f1(found, len(used), len(expected)), want: want, got: called(calls)}
	}
}

// called lists the tools that were called.
func called(calls []spans.ToolCall) string {
	const most = 20
	if len(calls) == 0 {
		return "no calls"
	}
	var names []string
	for i := range calls[:min(most, len(calls))] {
		names = append(names, calls[i].Known())
	}
	list := strings.Join(names, ", ")
	if len(calls) > most {
		return fmt.Sprintf("%s… (%d calls)", list, len(calls))
	}
	return list
}

// toolCall counts the calls of a tool with arguments that pass checks.
func (r *reader) toolCall(v *input.Node, depth int) test {
	f := r.Object(v)
	name := f.String("name", "")
	counts := span{}
	if f.Has("min") {
		n := f.Int("min", 0, 0, mostInt)
		counts.least = &n
	}
	if f.Has("max") {
		n := f.Int("max", 0, 0, mostInt)
		counts.most = &n
	}
	if counts.least == nil && (counts.most == nil || *counts.most > 0) {
		one := 1
		counts.least = &one
	}
	if counts.least != nil && counts.most != nil && *counts.least > *counts.most {
		r.Errorf(v, "min is more than max")
	}
	var args []*check
	if n := f.Optional("args", input.Array); n != nil {
		args = r.list(n, depth+1)
		for i, one := range args {
			if one.about.ofRollout && one.kind != "anyOf" && one.kind != "allOf" && one.kind != "atLeast" {
				r.Errorf(n.Items[i], "%s does not look at arguments", one.kind)
			}
		}
	}
	f.Refuse()
	want := counts.String() + " calls"
	if name != "" {
		want += " of " + name
	}
	if args != nil {
		want += " with such arguments"
	}
	return func(ctx context.Context, s *scene, _ any) answer {
		calls := spans.ToolCalls(s.subject.Trace)
		n, reason := 0, ""
		for i := range calls {
			if name != "" && !calls[i].Is(name) {
				continue
			}
			inner := &scene{subject: s.subject, value: calls[i].Arguments()}
			fits := true
			for _, one := range args {
				found, err := one.run(ctx, inner)
				if err != nil {
					return answer{failure: err}
				}
				if fits = found.Passed; !fits {
					reason = found.Reason
					break
				}
			}
			if fits {
				n++
			}
		}
		a := answer{score: truth(counts.has(n)), want: want, got: fmt.Sprintf("%d: %s", n, called(calls))}
		if a.score == 0 && reason != "" {
			a.got += "; of the last that does not fit: " + reason
		}
		return a
	}
}

// used makes the checks of what a rollout has used.
func (r *reader) used(c *evaluator.Config, kind string) test {
	switch kind {
	case "maxLatency":
		most := c.Duration(kind, 0)
		return func(_ context.Context, s *scene, _ any) answer {
			if s.subject.Working <= 0 {
				return answer{failure: errors.New("the working time of the rollout is not known")}
			}
			return answer{score: truth(s.subject.Working <= most), want: fmt.Sprintf("at most %s of working time", most),
				got: s.subject.Working.Round(time.Millisecond).String()}
		}
	case "maxCost":
		most := c.Float(kind)
		return func(_ context.Context, s *scene, _ any) answer {
			u := eval.TotalUsage(s.subject.Usage)
			if u == nil || !u.CostKnown() || u.Unmetered > 0 {
				return answer{failure: errors.New("the cost of the rollout is not known: the set needs `prices` of its models, " +
					"and the agent must report what it uses")}
			}
			return answer{score: truth(*u.Cost <= most), want: fmt.Sprintf("a cost of at most %g dollars", most),
				got: fmt.Sprintf("%g", *u.Cost)}
		}
	case "maxTokens":
		most := c.Int(kind)
		return func(_ context.Context, s *scene, _ any) answer {
			u := eval.TotalUsage(s.subject.Usage)
			if u == nil || u.Unmetered > 0 {
				return answer{failure: errors.New("the tokens of the rollout are not known: the agent does not report them, " +
					"or not of every call")}
			}
			return answer{score: truth(u.Tokens() <= int64(most)), want: fmt.Sprintf("no more tokens than %d", most),
				got: fmt.Sprint(u.Tokens())}
		}
	}
	most := c.Int(kind)
	return func(_ context.Context, s *scene, _ any) answer {
		n := spans.ModelCalls(s.subject.Trace)
		if n == 0 {
			return answer{failure: errors.New("the calls of models are not known: the trace has no span with gen_ai.usage")}
		}
		return answer{score: truth(n <= most), want: fmt.Sprintf("no more calls of models than %d", most), got: fmt.Sprint(n)}
	}
}

// group makes the checks of which others are the parts.
func (r *reader) group(c *evaluator.Config, kind string, v *input.Node, depth int) test {
	list, least, want := v, 1, "one of these checks to pass"
	switch kind {
	case "allOf":
		want = "all of these checks to pass"
	case "atLeast":
		least = c.Int(kind)
		want = fmt.Sprintf("%d of these checks to pass", least)
		if list = c.Required("of", input.Array); list == nil {
			return nil
		}
	}
	checks := r.list(list, depth+1)
	if kind == "allOf" {
		least = len(checks)
	} else if least > len(list.Items) {
		r.Errorf(v, "expected at most %d, as many as there are checks", len(list.Items))
	}
	mean := kind == "allOf" && c.Has("threshold")
	return func(ctx context.Context, s *scene, _ any) answer {
		passed, sum, weights := 0, 0.0, 0.0
		var failed []string
		for _, one := range checks {
			found, err := one.run(ctx, s)
			if err != nil {
				return answer{failure: fmt.Errorf("%s: %w", one.title(), err)}
			}
			sum, weights = sum+found.Score*one.weight, weights+one.weight
			if found.Passed {
				passed++
			} else {
				failed = append(failed, found.Reason)
			}
		}
		a := answer{score: truth(passed >= least), want: want, got: fmt.Sprintf("%d of %d", passed, len(checks))}
		if mean && weights > 0 {
			a.score = sum / weights
			a.want, a.got = "these checks to pass", fmt.Sprintf("a mean of %.3f", a.score)
		}
		if len(failed) > 0 {
			a.got += ": " + cut(strings.Join(failed, "; "))
		}
		return a
	}
}

// cut shortens a text for people that is quoted already.
func cut(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
