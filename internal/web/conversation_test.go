package web_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
)

// What an agent has said and called, and what it waited for, is on the page of its rollout, in order.
func TestTheTrajectoryIsOnThePage(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "ask")
	one := s.rollout("ask")
	at := one.StartedAt.Add(time.Microsecond)
	tr := agent.OpenTrajectory(filepath.Join(s.store.Dir(), "runs", s.runID, "rollouts", one.RolloutID, "segments", "1.1"), nil, func() time.Time { return at })
	tr.Add(agent.EventPrompt, "s", "Do it "+evil, nil)
	tr.Say(agent.EventThought, "s", "hm")
	tr.Call("s", agent.Call{ID: "1", Name: "search", Server: "web", Status: "completed", Input: json.RawMessage(`{"q":"\u003cb\u003e"}`), Output: json.RawMessage(`"found"`), StartedAt: at})
	tr.Say(agent.EventMessage, "s", "All done.")
	tr.Add(agent.EventUsage, "s", "", map[string]any{"used": 1})
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	page := s.page(s.path(one))
	_, page, _ = strings.Cut(page, `id="steps"`)
	last := -1
	for _, want := range []string{"began</span>", ">prompt<", "&lt;script&gt;alert(1)", ">thought<", ">web: search<", "&#34;&lt;b&gt;&#34;", "found", ">agent<", "All done.", ">suspended</span>", `">more</a>`} {
		i := strings.Index(page, want)
		if i <= last {
			t.Errorf("%q is at %d, after %d", want, i, last)
		}
		last = i
	}
	if strings.Contains(page, "usage") {
		t.Error("how many tokens were used is no step")
	}
	if page := s.page(s.path(one) + "?kind=tool"); !strings.Contains(page, "1–1 of 1") || strings.Contains(page, "All done.") {
		t.Error("the choice of a kind does not hold")
	}
	if page := s.page(s.path(one) + "?kind=none"); !strings.Contains(page, ">none<") {
		t.Error("a kind that there is not")
	}
}
