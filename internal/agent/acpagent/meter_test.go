package acpagent

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/testenv"
)

// The model that answers here says 7 input and 3 output tokens.
func TestTheProxyCountsWhatTheAgentUses(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	proxy, _ := model(t, http.StatusOK, nil)
	r.useModel(proxy)
	seg := r.segment("[[RUN " + askFixture(t) + "]] [[RUN " + askFixture(t) + `]] [[UPDATE {"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":5,"currency":"USD"}}]]`)
	seg.Budget = &agent.Budget{Tokens: 20}
	out := r.run(seg)
	want := []eval.Usage{{Model: "m", InputTokens: 14, OutputTokens: 6}} // and not what the agent says beside
	if diff := cmp.Diff(want, out.Info.Usage); out.Fault != nil || diff != "" || out.Info.UsageSource != record.UsageOfProxy {
		t.Errorf("%v, %s: %s", out.Fault, out.Info.UsageSource, diff)
	}
	if n := len(testenv.ReadLines[eval.Usage](t, seg.Dir, record.FileUsage)); n != 2 {
		t.Errorf("%d calls were logged", n)
	}
	if left, source, err := record.UsageLeft(seg.Dir, nil); err != nil || source != record.UsageOfProxy || !cmp.Equal(want, left) {
		t.Errorf("left behind: %+v, %s, %v", left, source, err)
	}
}

func TestABudgetEndsTheTurn(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	proxy, seen := model(t, http.StatusOK, nil)
	r.useModel(proxy)
	ask := "[[RUN " + askFixture(t) + "]] "
	seg := r.segment(ask + ask + "[[WAIT]]")
	seg.Budget = &agent.Budget{Cost: 0.5, Prices: eval.Prices{"m": {Input: 30_000, Output: 30_000}}, Spent: []eval.Usage{{Model: "m", InputTokens: 1}}}
	out := r.run(seg) // 11 tokens have cost $0.33 and 21 cost $0.63
	mustFault(t, out, fault.Budget, "$0.63, more than $0.5 (limits.cost)")
	if len(r.sent(0, "client", `"session/cancel"`)) != 1 || seen.count() != 2 || out.Info.Usage[0].InputTokens != 14 {
		t.Errorf("%d calls, %+v", seen.count(), out.Info.Usage)
	}
}

// What the agent says counts where no proxy does: the session's cost, less what it was before.
func TestWhatAnAgentSaysOfItsUsage(t *testing.T) {
	t.Parallel()
	r := newRollout(t)
	cost := func(amount, currency string) string {
		return `[[UPDATE {"sessionUpdate":"usage_update","used":1,"size":2,"cost":{"amount":` + amount + `,"currency":"` + currency + `"}}]]`
	}
	out := r.prompt(cost("0.25", "USD") + cost("0.75", "USD") + cost("9", "credits"))
	if len(out.Info.Usage) != 1 || out.Info.Usage[0].Cost == nil || *out.Info.Usage[0].Cost != 0.75 || out.Info.UsageSource != record.UsageOfAgent {
		t.Fatalf("%v, %+v", out.Fault, out.Info)
	}
}

func TestUsageOfAnAnswer(t *testing.T) {
	for text, want := range map[string]eval.Usage{
		``:                                   {},
		`null`:                               {},
		`{"totalTokens":-1,"inputTokens":5}`: {},
		`{"inputTokens":3}`:                  {InputTokens: 3},
		`{"totalTokens":15,"inputTokens":10,"outputTokens":5,"cachedReadTokens":4}`:                       {InputTokens: 10, CachedInputTokens: 4, OutputTokens: 5},
		`{"totalTokens":21,"inputTokens":10,"outputTokens":5,"cachedReadTokens":4,"cachedWriteTokens":2}`: {InputTokens: 16, CachedInputTokens: 4, OutputTokens: 5},
		`{"totalTokens":18,"inputTokens":10,"outputTokens":5,"thoughtTokens":3}`:                          {InputTokens: 10, OutputTokens: 8},
		`{"totalTokens":22,"inputTokens":10,"outputTokens":5,"thoughtTokens":3,"cachedReadTokens":4}`:     {InputTokens: 14, CachedInputTokens: 4, OutputTokens: 8},
		`{"inputTokens":1,"outputTokens":5,"cachedReadTokens":4}`:                                         {InputTokens: 4, CachedInputTokens: 4, OutputTokens: 5},
	} {
		if diff := cmp.Diff(want, usageOf([]byte(text))); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}
