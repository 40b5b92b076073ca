package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/runner"
)

// patches are the events of a stream, each with its id.
func patches(ctx context.Context, t *testing.T, url string) <-chan map[string]any {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Body.Close() })
	if a.StatusCode != http.StatusOK || a.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatal(a)
	}
	out := make(chan map[string]any, 100)
	go func() {
		defer close(out)
		lines := bufio.NewScanner(a.Body)
		lines.Buffer(nil, 1<<20)
		id := ""
		for lines.Scan() {
			if text, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = text
			}
			var p map[string]any
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(data), &p) == nil {
				p["id"] = id
				out <- p
			}
		}
	}()
	return out
}

// A browser is told everything first, and then what changes; one that comes back has missed nothing.
func TestTheStreamOfARunTellsItsEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "account", "ask")
	server := httptest.NewServer(s.pages)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := patches(ctx, t, server.URL+"/runs/"+s.runID+"/live")
	if p := <-first; len(p["set"].([]any)) != len(s.all) || p["final"] != false || p["text"].(map[string]any)["n-suspended"] != "4" {
		t.Fatalf("the first event is %v", p)
	}
	if err := s.store.Triggers(t.Context(), s.runID, false, func(tr runner.Trigger) error {
		_, err := s.store.Deliver(t.Context(), tr.TriggerID, runner.Delivery{Payload: json.RawMessage(`{"approved": true}`), By: "test"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Run(t.Context(), s.runID, runner.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	changed := map[float64]string{}
	for p := range first {
		for _, one := range p["set"].([]any) {
			changed[one.([]any)[0].(float64)] = one.([]any)[1].(string)
		}
		if p["final"].(bool) {
			break
		}
	}
	if len(changed) != 4 {
		t.Errorf("changed %v", changed)
	}
	again := <-patches(ctx, t, server.URL+"/runs/"+s.runID+"/live")
	if text := again["text"].(map[string]any); again["final"] != true || text["n-suspended"] != "0" || text["n-failed"] != "4" || text["t-verdict"] != "failed" {
		t.Errorf("who comes back is told %v", again)
	}
}

// Given a run that is removed while it is looked at: its stream says so in an event that has no
// revision, because a tab passes over revisions that it knows. Then it ends.
func TestTheStreamOfARunTellsThatItWasRemoved(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, "account")
	server := httptest.NewServer(s.pages)
	defer server.Close()
	stream := patches(t.Context(), t, server.URL+"/runs/"+s.runID+"/live")
	<-stream
	run, err := s.store.Find(t.Context(), s.runID)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.store.Remove(t.Context(), run, false); err != nil {
		t.Fatal(err)
	}
	var last map[string]any
	for p := range stream {
		last = p
	}
	if last["gone"] != true || last["final"] != true || last["id"] != "0" {
		t.Errorf("the last event is %v", last)
	}
}

// Streams that began at any time end with the same state of every rollout, and each revision is told
// once.
func TestStreamsThatBeganAtAnyTimeTellTheSame(t *testing.T) {
	testenv.NeedSlow(t)
	t.Parallel()
	s := newSite(t, 2, "account", "ask")
	server := httptest.NewServer(s.pages)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var streams []<-chan map[string]any
	join := func() {
		one := patches(ctx, t, server.URL+"/runs/"+s.runID+"/live")
		streams = append(streams, one)
	}
	join()
	if err := s.store.Triggers(t.Context(), s.runID, false, func(tr runner.Trigger) error {
		_, err := s.store.Deliver(t.Context(), tr.TriggerID, runner.Delivery{Payload: json.RawMessage(`{"approved": true}`), By: "test"})
		join()
		join()
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Run(t.Context(), s.runID, runner.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	join()
	for i, one := range streams {
		state, last, final := map[float64]string{}, "", false
		for p := range one {
			for _, set := range p["set"].([]any) {
				state[set.([]any)[0].(float64)] = set.([]any)[1].(string)
			}
			rev := p["text"].(map[string]any)["t-rev"].(string)
			if rev == last {
				t.Errorf("stream %d is told revision %s twice", i, rev)
			}
			if last, final = rev, p["final"].(bool); final {
				break
			}
		}
		for n := range s.all {
			if want := map[bool]string{true: "passed", false: "failed"}[strings.HasPrefix(s.all[n].EvaluationID, "account")]; state[float64(n)] != want {
				t.Errorf("stream %d: rollout %d is %q, not %s", i, n, state[float64(n)], want)
			}
		}
		if !final {
			t.Errorf("stream %d is not told the end", i)
		}
	}
}

func TestTheWaitingPageHasEveryTrigger(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "account", "ask")
	page := s.page("/triggers")
	n := 0
	if err := s.store.Triggers(t.Context(), "", false, func(tr runner.Trigger) error {
		n++
		if !strings.Contains(page, "/runs/"+s.runID+"/rollouts/"+tr.RolloutID) {
			t.Errorf("the page lacks %s", tr.TriggerID)
		}
		return nil
	}); err != nil || n != 4 {
		t.Fatal(n, err)
	}
	if rows := texts(page, `><th scope="row"`); len(rows) != 2 || rows[0][1] != "question" || rows[0][2] != "4" || rows[1][1] != "4" { // W10: what is waited for is one row
		t.Errorf("%q", rows)
	}
	for _, want := range []string{"4 triggers are open in 1 run.", "one</span>, epoch 1, run <a", "one</span>, epoch 2, run <a"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for query, rows := range map[string]int{"state=person": 1, "state=failing": 0, "state=deadline": 0, "source=external&type=TASK&sort=newest": 1, "source=timer": 0, "sort=next": 1, "sort=deadline": 1} {
		if got := texts(s.page("/triggers?"+query), `><th scope="row" data-l="Waits for"`); len(got) != rows {
			t.Errorf("%s: %d rows, want %d", query, len(got), rows)
		}
	}
	if page := s.page("/triggers?q=none"); !strings.Contains(page, "Nothing matches") {
		t.Error("a filter that matches nothing is not said")
	}
}
