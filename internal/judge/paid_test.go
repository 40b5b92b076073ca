package judge

import (
	"reflect"
	"slices"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/peers/fakejudge"
)

// Given an answer in the cache whose verdict was lost with the process that asked: the same question
// of the same rollout has paid for it, which its results say. To all others it costs nothing.
func TestWhoHasPaidForAnAnswerSaysSo(t *testing.T) {
	w := newWorld(t, func(fakejudge.Request) fakejudge.Reply { return fakejudge.Score(85, "good") }, func(o *Options) {
		o.Config.Prices = eval.Prices{"gpt-*": {Input: 1, Output: 10}}
	})
	ask := func(payer string) eval.JudgeCall {
		t.Helper()
		got, err := New(w.o).Of("agent", "", payer).Ask(t.Context(), question("How good is it?"))
		if err != nil {
			t.Fatal(err)
		}
		return got.Call
	}
	first := ask("rollout")
	if again := ask("rollout"); !reflect.DeepEqual(again, first) || again.Cached || *again.Usage.Cost == 0 {
		t.Errorf("the first time %+v, after a kill %+v", first, again)
	}
	for _, other := range []string{"another", "rollout#1", ""} {
		if got := ask(other); !got.Cached || *got.Usage.Cost != 0 || got.Attempts != 0 || got.ModelReturned != first.ModelReturned {
			t.Errorf("%q: %+v", other, got)
		}
	}
	if n := len(w.server.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

// An answer that is no verdict has been paid for, too. A request that fails has not.
func TestWhatWasPaidTwiceIsSaid(t *testing.T) {
	for name, c := range map[string]struct {
		first fakejudge.Reply
		twice bool
	}{"no call of the tool": {fakejudge.Reply{Text: "Well."}, true}, "overloaded": {fakejudge.Reply{Status: 529}, false}} {
		for _, api := range []API{APIChat, APIResponses, APIMessages} {
			replies := []fakejudge.Reply{c.first, fakejudge.Score(50, "")}
			w := newWorld(t, func(fakejudge.Request) fakejudge.Reply {
				defer func() { replies = slices.Delete(replies, 0, 1) }()
				return replies[0]
			}, provide(api))
			got, err := w.ask(question("?"))
			if err != nil {
				t.Fatal(err)
			}
			one := int64(fakejudge.InputTokens + fakejudge.OutputTokens)
			if want := map[bool]int64{true: 2 * one, false: one}[c.twice]; got.Call.PaidTwice != c.twice || got.Call.Usage.Tokens() != want {
				t.Errorf("%s, %s: %+v, %d tokens", name, api, got.Call, got.Call.Usage.Tokens())
			}
		}
	}
}
