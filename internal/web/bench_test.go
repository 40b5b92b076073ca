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

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/web"
	"github.com/evalrun/evalrun/runner"
)

// plannedRun is a store with a run of n rollouts that have not begun.
func plannedRun(t testing.TB, n int) (*runner.Store, string) {
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
	return s, created.RunID
}

// largeRun is a store with a run of n rollouts: four of five are scored, the others wait.
func largeRun(t testing.TB, n int) (*runner.Store, string) {
	t.Helper()
	s, runID := plannedRun(t, n)
	st := s.Internal()
	claims, err := st.Claim(t.Context(), runID, n)
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
	if _, err := s.Resume(t.Context(), runID, runner.RunOptions{}); err != nil { // which ends as every command does
		t.Fatal(err)
	}
	return s, runID
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

// BenchmarkRunPage measures the page of a run: "first" from a server that has just started, "again" from
// one that has shown it before.
func BenchmarkRunPage(b *testing.B) {
	for _, n := range []int{testenv.Size(1000, 100), testenv.Size(10000, 1000)} {
		s, runID := largeRun(b, n)
		get := func(pages http.Handler) {
			w := httptest.NewRecorder()
			pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/runs/"+runID, nil))
			if w.Code != http.StatusOK {
				b.Fatal(w.Code, w.Body)
			}
		}
		b.Run(fmt.Sprintf("first/%d", n), func(b *testing.B) {
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

// BenchmarkSecondViews measures the pages that have the most to read, once they have been looked at: a
// comparison of two runs, and a rollout whose output has five million bytes. x-run is how many times as long
// as the page of the run they take.
func BenchmarkSecondViews(b *testing.B) {
	dir := b.TempDir()
	var evaluations []string
	for i := range 30 {
		evaluations = append(evaluations, fmt.Sprintf(`{"id": "e%d", "name": "E %d", "inputs": {"kind": "%s"}, "evaluationCriterias": {"c": {"expectedOutput": {"category": "account"}}}}`, i, i, map[bool]string{true: "large", false: "small"}[i == 0]))
	}
	for name, text := range map[string]string{"set.json": `{"version": "1.0", "id": "s", "name": "S", "agent": {"type": "function", "command": ["sh", "agent.sh"]},
 "evaluators": [{"id": "c", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"name": "Category", "targetOutputKey": "category"}}], "evaluations": [` + strings.Join(evaluations, ",") + `]}`,
		"agent.sh": "read -r line\ncase $line in *large*) printf '{\"category\":\"'; head -c 5000000 /dev/zero | tr '\\0' x; printf '\"}' ;; *) echo '{\"category\":\"account\"}' ;; esac\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	s := newSiteOf(b, dir)
	other := s.another(filepath.Join(dir, "set.json"))
	took := func(path string) time.Duration {
		began := time.Now()
		s.page(path)
		return time.Since(began)
	}
	run, compared, large := "/runs/"+s.runID, "/compare?a="+other+"&b="+s.runID, s.path(s.rollout("e0"))
	b.Logf("the first views took %v, %v and %v", took(run), took(compared), took(large))
	var sum [3]time.Duration
	for b.Loop() {
		for i, path := range []string{run, compared, large} {
			sum[i] += took(path)
		}
	}
	b.ReportMetric(float64(sum[1])/float64(sum[0]), "compare-x-run")
	b.ReportMetric(float64(sum[2])/float64(sum[0]), "5MB-x-run")
}
