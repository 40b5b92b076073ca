package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/serve/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/web"
	"github.com/evalrun/evalrun/runner"
)

// largeRun is a store with a run of n rollouts: four of five are scored, the others wait.
func largeRun(t testing.TB, n int) (*runner.Store, string) {
	t.Helper()
	var evaluations []string
	for i := range n {
		evaluations = append(evaluations, fmt.Sprintf(`{"id": "e%d", "name": "Evaluation %d", "tags": ["t%d"], "inputs": {}, "evaluationCriterias": {"x": {"expectedOutput": 8}}}`, i, i, i%7))
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "set.json")
	if err := os.WriteFile(path, []byte(`{"version": "1.0", "id": "l", "name": "Large", "thresholds": {"score": 0.5}, "agent": {"type": "function", "command": ["cat"]},
		"evaluators": [{"id": "x", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {}}], "evaluations": [`+strings.Join(evaluations, ",")+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := runner.Load([]string{path}, runner.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := runner.Open(filepath.Join(dir, "store"), runner.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	created, err := s.Create(t.Context(), set, runner.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(s.Dir(), "runs", created.RunID), 0o700); err != nil { // as an executor does
		t.Fatal(err)
	}
	st := s.Internal()
	claims, err := st.Claim(t.Context(), created.RunID, n)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range claims {
		check := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if i%5 == 4 {
			spec := json.RawMessage(`{"type":"TASK","value":{"title":"Go on?"}}`)
			_, err := st.CommitSegment(t.Context(), c.Token, store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: []store.NewTrigger{{InterruptID: "q", Type: "TASK", Source: "external", Spec: spec, ItemKey: fmt.Sprint("k", i)}}})
			check(err)
			continue
		}
		score := float64(i % 2)
		_, err := st.CommitSegment(t.Context(), c.Token, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`{"content":8}`)})
		check(err)
		check(st.RecordResult(t.Context(), c.Token, store.Result{EvaluatorID: "x", Data: fmt.Appendf(nil, `[{"evaluatorId":"x","score":%v,"details":"because of this and that"}]`, score)}))
		check(st.Finish(t.Context(), c.Token, &score))
	}
	return s, created.RunID
}

func pagesOf(s *runner.Store) http.Handler {
	mux := http.NewServeMux()
	for _, e := range web.New(web.Options{Service: service.New(s, service.Config{}, service.Options{})}).Endpoints() {
		mux.Handle(e.Pattern, e.Handler)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(access.With(r.Context(), access.Identity{ID: "t", Scopes: access.Scopes})))
	})
}

// BenchmarkRunPage measures the page of a run, from a server that has just started, which has seen no
// page of it, and again.
func BenchmarkRunPage(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		s, runID := largeRun(b, n)
		get := func(pages http.Handler) {
			w := httptest.NewRecorder()
			pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/runs/"+runID, nil))
			if w.Code != http.StatusOK {
				b.Fatal(w.Code, w.Body)
			}
		}
		began := time.Now()
		get(pagesOf(s))
		b.Logf("%d rollouts: the first page took %v", n, time.Since(began))
		b.Run(fmt.Sprintf("started/%d", n), func(b *testing.B) {
			for b.Loop() {
				get(pagesOf(s))
			}
		})
		pages := pagesOf(s)
		get(pages)
		b.Run(fmt.Sprintf("again/%d", n), func(b *testing.B) {
			for b.Loop() {
				get(pages)
			}
		})
	}
}
