package http

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/waittest"
)

func newAnswer(t *testing.T, url string, notBefore time.Time, now func() time.Time) wait.Source {
	t.Helper()
	watch, err := json.Marshal(Watch{URL: url, Headers: map[string]string{"X-Key": "${KEY}"}, Interval: wait.Duration(time.Second), NotBefore: notBefore})
	if err != nil {
		t.Fatal(err)
	}
	resolve := func(name string) (string, bool) { return "k", name == "KEY" }
	source, err := NewAnswer(httpcall.Caller{Env: wait.Env{HTTP: httpcall.Client(nil), Rand: func() float64 { return 0 }, Now: now, Resolve: resolve}}, watch)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func TestAnswersKeepToTheInterface(t *testing.T) {
	status := http.StatusAccepted
	s := waittest.NewServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, `{}`)
	})
	waittest.Run(t, waittest.Case{
		Source: newAnswer(t, s.URL+"/run", time.Time{}, time.Now),
		Job:    wait.Job{TriggerID: "t", ItemKey: "/jobs/7", Spec: wait.Spec{Type: wait.TypeJob, ItemKey: "/jobs/7"}},
		End:    func() { status = http.StatusOK },
	})
}

func TestAnAnswerIsAskedForUntilItIsThere(t *testing.T) {
	now := time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)
	var asked []string
	status, header, body := 202, "", ""
	s := waittest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.RequestURI+" "+r.Header.Get("X-Key"))
		if header != "" {
			w.Header().Set("Retry-After", header)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	source := newAnswer(t, s.URL+"/v1/run", now.Add(time.Minute), func() time.Time { return now })
	job := wait.Job{ItemKey: "/jobs/{7}?x=${1}", Since: now}
	check := func() wait.Status {
		t.Helper()
		got, err := source.Check(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := check(); got.After != time.Minute || len(asked) != 0 {
		t.Errorf("asked too early: %+v, %v", got, asked)
	}
	now = now.Add(time.Minute)
	if got := check(); got.Done || got.After != time.Second || asked[0] != "GET /jobs/%7B7%7D?x=${1} k" {
		t.Errorf("got %+v after %q", got, asked)
	}
	header = "30"
	if got := check(); got.After != 30*time.Second {
		t.Errorf("got %+v", got)
	}
	status, body = 200, " {\"a\": 1}\n"
	if got := check(); !got.Done || string(got.Payload) != `{"a": 1}` {
		t.Errorf("got %+v", got)
	}
	for _, c := range []struct {
		status   int
		body     string
		category fault.Category
		says     string
	}{
		{404, "gone", fault.JobLost, "404"},
		{410, "gone", fault.JobLost, "410"},
		{401, "who?", fault.Job, "401"},
		{200, "<html>", fault.Job, "a page (HTML)"},
		{200, "", fault.Job, "expected a JSON document"},
		{200, `{"a":`, fault.Job, "a part of one"},
	} {
		status, body = c.status, c.body
		if got := check(); !got.Done || got.Fault == nil || got.Fault.Category != c.category || !strings.Contains(got.Fault.Message, c.says) {
			t.Errorf("%d %q: got %+v", c.status, c.body, got.Fault)
		}
	}
	status = 503
	if got, err := source.Check(t.Context(), job); err == nil || got.Done {
		t.Errorf("got %+v, %v", got, err)
	}
	status = 405
	if err := source.Cancel(t.Context(), job); err != nil || !strings.HasPrefix(asked[len(asked)-1], "DELETE ") {
		t.Errorf("%v after %q", err, asked)
	}
}
