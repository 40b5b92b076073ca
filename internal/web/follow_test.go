package web_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/store"
)

// Who follows a log gets what is added to it, whole lines of it while its agent runs, and is told when
// that has ended. Who comes back gets what comes after.
func TestALogIsFollowed(t *testing.T) {
	t.Parallel()
	s, runID := plannedRun(t, 1)
	claims, err := s.Internal().Claim(t.Context(), runID, 1)
	if err != nil {
		t.Fatal(err)
	}
	claim := claims[0]
	dir := filepath.Join(s.Dir(), "runs", runID, "rollouts", claim.RolloutID, "segments", "1.1")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "stderr.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	write := func(text string) {
		if _, err := log.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	write("first\n")
	pages := &site{TB: t, pages: pagesOf(s)}
	url := "/runs/" + runID + "/rollouts/" + claim.RolloutID
	found := regexp.MustCompile(`data-follow="([^"]*)"`).FindStringSubmatch(pages.page(url))
	if found == nil {
		t.Fatal("the page of a rollout that runs offers nothing to follow")
	}
	server := httptest.NewServer(pages.pages)
	defer server.Close()
	write("\x1b[31msecond\x1b[0m \u202e\nthi")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := logEvents(ctx, t, server.URL+found[1], "")
	if e := <-events; e.name != "log" || e.data != `{"spans":[["second","a31",false],[" ","",false],["U+202E","",true],["\n","",false]]}` {
		t.Fatalf("the first event is %+v", e)
	}
	write("rd\n")
	e := <-events
	if e.data != `{"spans":[["third\n","",false]]}` {
		t.Fatalf("the second event is %+v", e)
	}
	write("end")
	if _, err := s.Internal().CommitSegment(t.Context(), claim.Token, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`{}`)}); err != nil {
		t.Fatal(err)
	}
	for _, events := range []<-chan event{events, logEvents(ctx, t, server.URL+found[1], e.id)} { // also for one that comes back
		if e := <-events; e.data != `{"spans":[["end","",false]]}` {
			t.Errorf("the last piece is %+v", e)
		}
		if e := <-events; e.name != "end" || e.data != `"evaluating"` {
			t.Errorf("the end is %+v", e)
		}
	}
	if page := pages.page(url); strings.Contains(page, "data-follow") {
		t.Error("the page offers to follow what has ended")
	}
	for path, want := range map[string]int{"segments/1.1/none.log": http.StatusNotFound, "../../../store.db": http.StatusNotFound} {
		if got := pages.get(url + "/follow/" + strings.ReplaceAll(path, "..", "%2e%2e")).Code; got != want && got != http.StatusTemporaryRedirect {
			t.Errorf("%s: %d", path, got)
		}
	}
}

type event struct{ id, name, data string }

// logEvents are the events of a stream that goes on after the one with the id.
func logEvents(ctx context.Context, t *testing.T, url, after string) <-chan event {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Body.Close() })
	out := make(chan event, 100)
	go func() {
		defer close(out)
		var e event
		for lines := bufio.NewScanner(a.Body); lines.Scan(); {
			switch key, value, _ := strings.Cut(lines.Text(), ": "); key {
			case "id":
				e.id = value
			case "event":
				e.name = value
			case "data":
				e.data = value
				out <- e
			}
		}
	}()
	return out
}

// A row that is opened in its list has what the page of the rollout says of its score.
func TestWhyIsThatOfTheRollout(t *testing.T) {
	t.Parallel()
	s := newSite(t, 2, "wrong", "ask")
	for kind, want := range map[string]string{"wrong": "expected", "ask": "waiting for"} {
		one := s.rollout(kind)
		var got struct {
			Title, Why string
			Evaluators []struct{ Name, Score, Said string }
		}
		if err := json.Unmarshal(s.get(s.path(one)+"/why").Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(got.Title, one.Agent+", epoch 1: ") || !strings.Contains(got.Why, want) || len(got.Evaluators) != len(one.EvaluationRunResults) {
			t.Errorf("%s: %+v", kind, got)
		}
		for i, e := range one.EvaluationRunResults {
			if got.Evaluators[i].Name != e.EvaluatorName || got.Evaluators[i].Score != three(e.Result.Score) {
				t.Errorf("%s: %+v", kind, got.Evaluators[i])
			}
		}
	}
	if code := s.get("/runs/" + s.runID + "/rollouts/nobody/why").Code; code != http.StatusNotFound {
		t.Error(code)
	}
}
