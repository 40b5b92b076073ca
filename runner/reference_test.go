package runner

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/store"
)

// Which output of another run belongs to which rollout.
func TestWithWhatRolloutsAreCompared(t *testing.T) {
	one := func(agent string, attempts ...attempt) map[evaluationOf][]attempt {
		return map[evaluationOf][]attempt{{"e", agent}: attempts}
	}
	first, second := attempt{1, "r1", json.RawMessage(`1`), ""}, attempt{2, "r2", json.RawMessage(`2`), ""}
	for name, c := range map[string]struct {
		other  *referenced
		named  string
		agents []string
		epochs int
		want   string
	}{
		"one for all":           {&referenced{"r", []string{"a"}, one("a", first)}, "", []string{"a"}, 2, "a 0 r1"},
		"the only agent":        {&referenced{"r", []string{"a"}, one("a", first)}, "", []string{"b", "c"}, 1, "b 0 r1; c 0 r1"},
		"the same name":         {&referenced{"r", []string{"a", "b"}, one("b", first)}, "", []string{"b"}, 1, "b 0 r1"},
		"the one that is named": {&referenced{"r", []string{"a", "b"}, one("a", first)}, "a", []string{"b"}, 1, "b 0 r1"},
		"none of several":       {&referenced{"r", []string{"a", "b"}, one("a", first)}, "", []string{"c"}, 1, `c 0 run r has the agents a, b and none named c; say with which to compare: "reference": {"run": …, "agent": …}`},
		"attempt by attempt":    {&referenced{"r", []string{"a"}, one("a", first, second)}, "", []string{"a"}, 3, "a 1 r1; a 2 r2; a 3 run r has no attempt number 3 at it, of 2"},
		"the first of several":  {&referenced{"r", []string{"a"}, one("a", first, second)}, "", []string{"a"}, 1, "a 1 r1"},
		"not in that run":       {&referenced{"r", []string{"a"}, one("a")}, "", []string{"a"}, 2, "a 0 run r has no rollout of it"},
	} {
		f := references{epochs: c.epochs}
		for _, name := range c.agents {
			f.agents = append(f.agents, agent.Entry{Name: name})
		}
		var got []string
		for _, o := range f.outputs(c.other, c.named, "e") {
			got = append(got, strings.Join([]string{o.Agent, string('0' + rune(o.Epoch)), o.RolloutID + o.Missing}, " "))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// A rollout without an output is never an empty answer.
func TestRolloutsWithoutAnOutput(t *testing.T) {
	segment := func(output string) []store.Segment {
		return []store.Segment{{Outcome: store.OutcomeSuspended, Output: json.RawMessage(`9`)}, {Outcome: store.OutcomeCompleted, Output: json.RawMessage(output)}}
	}
	for want, c := range map[string]store.RolloutView{
		"":                                   {Rollout: store.Rollout{State: eval.StateCompleted}, Segments: segment(`{}`)},
		"its rollout in run r has no output": {Rollout: store.Rollout{State: eval.StateCompleted}, Segments: segment(" null\n")},
		"its rollout in run r is cancelled":  {Rollout: store.Rollout{State: eval.StateCancelled}},
		"its rollout in run r has faulted (model)": {Rollout: store.Rollout{State: eval.StateFaulted, Fault: fault.New(fault.Model, "secret things")}, Segments: segment(`1`)},
	} {
		c.RunID = "r"
		if got := attemptOf(c); got.missing != want {
			t.Errorf("%q, want %q", got.missing, want)
		}
	}
}
