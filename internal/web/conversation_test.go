package web_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/record"
)

// What an agent has said and called, and what it waited for, is on the page of its rollout, in order.
func TestTheTrajectoryIsOnThePage(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "ask")
	one := s.rollout("ask")
	at := one.StartedAt.Add(time.Microsecond)
	tr := record.OpenTrajectory(filepath.Join(s.store.Dir(), "runs", s.runID, "rollouts", one.RolloutID, "segments", "1.1"), nil, func() time.Time { return at })
	tr.Add(record.EventPrompt, "s", "Do it "+evil, nil)
	tr.Say(record.EventThought, "s", "hm")
	tr.Call("s", record.Call{ID: "1", Name: "search", Server: "web", Status: "completed", Input: json.RawMessage(`{"q":"\u003cb\u003e"}`), Output: json.RawMessage(`"found"`), StartedAt: at})
	tr.Say(record.EventMessage, "s", "All done.")
	tr.Add(record.EventUsage, "s", "", map[string]any{"used": 1})
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	s.joinTrajectory(one.RolloutID, "1.1")
	page := s.page(s.path(one))
	if n := strings.Count(page, "web: search"); n != 1 { // W1: the file of the rollout has the segment's lines once more
		t.Errorf("the call is %d times on the page", n)
	}
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

// joinTrajectory makes the file of a rollout of those of segments, as a rollout does when one has ended.
func (s *site) joinTrajectory(rolloutID string, attempts ...string) {
	s.Helper()
	dir := filepath.Join(s.store.Dir(), "runs", s.runID, "rollouts", rolloutID)
	var all []byte
	for _, attempt := range attempts {
		data, err := os.ReadFile(filepath.Join(dir, "segments", attempt, record.FileTrajectory))
		if err != nil {
			s.Fatal(err)
		}
		all = append(all, data...)
	}
	if err := os.WriteFile(filepath.Join(dir, record.FileTrajectory), all, 0o600); err != nil {
		s.Fatal(err)
	}
}

// W1: of an attempt that was repeated nothing is shown, nor of a file of the same name that an agent has
// left; a rollout whose segments are gone has the file of the whole.
func TestOfEachSegmentTheLastAttemptIsShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "ask")
	one := s.rollout("ask")
	dir := filepath.Join(s.store.Dir(), "runs", s.runID, "rollouts", one.RolloutID)
	for attempt, said := range map[string]string{"segments/1.9": "interrupted", "segments/1.10": "repeated", "segments/2.1": "resumed", "artifacts": "forged", ".": "whole"} {
		if err := os.MkdirAll(filepath.Join(dir, attempt), 0o700); err != nil {
			t.Fatal(err)
		}
		tr := record.OpenTrajectory(filepath.Join(dir, attempt), nil, func() time.Time { return one.StartedAt.Add(time.Millisecond) })
		tr.Say(record.EventMessage, "s", "what was "+said)
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
	page := s.page(s.path(one))
	for _, said := range []string{"interrupted", "forged", "whole"} {
		if strings.Contains(page, "what was "+said) {
			t.Errorf("the page has what was %s", said)
		}
	}
	for _, said := range []string{"repeated", "resumed"} {
		if strings.Count(page, "what was "+said) != 1 {
			t.Errorf("the page has %d times what was %s", strings.Count(page, "what was "+said), said)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "segments")); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s.page(s.path(one)), "what was whole") {
		t.Error("without its segments the rollout has no trajectory")
	}
}
