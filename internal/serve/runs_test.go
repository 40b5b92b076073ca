package serve_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/access"
)

func TestARunIsStartedAndWatched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.execute()
	started := w.start("greet")
	if done := w.reaches(started.RunID, "successful"); !done.Final {
		t.Errorf("%+v", done)
	}
	if line := w.audit.String(); !strings.Contains(line, `"action":"run","object":"`+started.RunID) {
		t.Errorf("the audit log has %q", line)
	}
}

func TestEvalSetsAreListedByName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var list struct {
		EvalSets []struct{ Name string }
	}
	w.must(http.StatusOK, "GET", "/v1/eval-sets", "", "Authorization", "Bearer "+w.newToken(access.Read)).decode(t, &list)
	var names []string
	for _, s := range list.EvalSets {
		names = append(names, s.Name)
		w.start(s.Name)
	}
	if !slices.Equal(names, []string{"ask", "greet", "leak", "person", "poll"}) {
		t.Errorf("got %q", names)
	}
}

func TestTheAuditLogSaysWhatWasDoneToJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var job struct{ ID string }
	w.must(http.StatusCreated, "POST", "/jobs", `{"capability": "greet", "submitted_by": "test", "submitted_payload": {}}`).decode(t, &job)
	w.must(http.StatusOK, "POST", "/jobs/"+job.ID+"/events", `{"type": "note"}`)
	w.must(http.StatusOK, "POST", "/jobs/"+job.ID+"/cancel", `{}`)
	for _, action := range []string{"run", "post", "cancel"} {
		if !strings.Contains(w.audit.String(), `"action":"`+action+`","object":"`+job.ID+`"`) {
			t.Errorf("nothing says %s of the job:\n%s", action, w.audit)
		}
	}
}

func TestTheSameKeyIsTheSameRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const body = `{"evalSet": "greet", "epochs": 2}`
	var first, second run
	w.must(http.StatusCreated, "POST", "/v1/runs", body, "Idempotency-Key", "k").decode(t, &first)
	w.must(http.StatusOK, "POST", "/v1/runs", strings.ReplaceAll(body, " ", "\n"), "Idempotency-Key", "k").decode(t, &second)
	if first.RunID != second.RunID {
		t.Errorf("%s and %s", first.RunID, second.RunID)
	}
	w.must(http.StatusConflict, "POST", "/v1/runs", `{"evalSet": "greet"}`, "Idempotency-Key", "k")
}

func TestRunsAreListedPageByPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want []string
	for range 5 {
		want = append([]string{w.start("greet").RunID}, want...)
	}
	w.must(http.StatusOK, "POST", "/v1/runs/"+want[0]+"/cancel", "")
	w.must(http.StatusOK, "POST", "/v1/runs/"+want[0]+"/cancel", "") // it is no error that nothing is left
	var got []string
	for cursor := ""; ; {
		var page struct {
			Runs       []run   `json:"runs"`
			NextCursor *string `json:"nextCursor"`
		}
		w.must(http.StatusOK, "GET", "/v1/runs?limit=2"+cursor, "").decode(t, &page)
		for _, r := range page.Runs {
			got = append(got, r.RunID)
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	if a := w.must(http.StatusOK, "GET", "/v1/runs?final=true", ""); strings.Count(a.body, "runId") != 1 || !strings.Contains(a.body, want[0]) {
		t.Error(a.body)
	}
}

func TestRolloutsAndResults(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var r run
	w.must(http.StatusCreated, "POST", "/v1/runs", `{"evalSet": "greet", "epochs": 3}`).decode(t, &r)
	w.execute()
	w.reaches(r.RunID, "successful")
	type rollout struct {
		RolloutID, State string
		Epoch            int
		Score            float64
	}
	var page struct {
		Rollouts   []rollout
		NextCursor *string
	}
	path := "/v1/runs/" + r.RunID + "/rollouts"
	w.must(http.StatusOK, "GET", path+"?limit=2", "").decode(t, &page)
	if len(page.Rollouts) != 2 || page.NextCursor == nil {
		t.Fatalf("%+v", page)
	}
	w.must(http.StatusOK, "GET", path+"?limit=2&cursor="+*page.NextCursor, "").decode(t, &page)
	if len(page.Rollouts) != 1 || page.Rollouts[0].Epoch != 3 {
		t.Fatalf("%+v", page)
	}
	var one rollout
	w.must(http.StatusOK, "GET", "/v1/rollouts/"+page.Rollouts[0].RolloutID, "").decode(t, &one)
	if one != page.Rollouts[0] || one.State != "completed" || one.Score != 1 {
		t.Errorf("%+v", one)
	}
	var results struct {
		RunID   string
		Final   bool
		Summary struct{ Score float64 }
	}
	w.must(http.StatusOK, "GET", "/v1/runs/"+r.RunID+"/results", "").decode(t, &results)
	if results.RunID != r.RunID || !results.Final || results.Summary.Score != 1 {
		t.Errorf("%+v", results)
	}
}
