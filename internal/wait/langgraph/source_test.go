package langgraph

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/waittest"
)

var noon = time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)

func sourceOf(t *testing.T, s *waittest.Server, steps *waittest.Transport) wait.Source {
	t.Helper()
	given := &http.Client{}
	if steps != nil {
		given.Transport = steps
	}
	env := wait.Env{HTTP: httpcall.Client(given), Rand: func() float64 { return 0.5 }, Now: func() time.Time { return noon },
		Resolve: func(string) (string, bool) { return "s3cr3t", true }}
	t.Cleanup(env.HTTP.CloseIdleConnections)
	watch, err := json.Marshal(Watch{URL: s.URL, Headers: map[string]string{"X-Api-Key": "${KEY}"}, Thread: "t"})
	if err != nil {
		t.Fatal(err)
	}
	source, err := NewSource(httpcall.Caller{Env: env}, watch)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func TestSourceKeepsToItsInterface(t *testing.T) {
	var mu sync.Mutex
	status := "running"
	s := waittest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("X-Api-Key") != "s3cr3t" {
			t.Errorf("got the headers %v", r.Header)
		}
		_, _ = fmt.Fprintf(w, `{"run_id":"r","status":%q}`, status)
	})
	steps := &waittest.Transport{}
	waittest.Run(t, waittest.Case{
		Source: sourceOf(t, s, steps), OnStep: steps.OnStep,
		Job: wait.Job{TriggerID: "trigger-1", ItemKey: "r", Since: noon, Spec: wait.Spec{Type: wait.TypeJob, ItemKey: "r"}},
		End: func() { mu.Lock(); defer mu.Unlock(); status = "success" },
	})
	if got := s.Requests()[0]; got != "GET /threads/t/runs/r" {
		t.Errorf("asked %s", got)
	}
}

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		status   int
		body     string
		done     bool
		category fault.Category
		again    bool
	}{
		"pending": {200, `{"run_id":"r","status":"pending"}`, false, "", false},
		"failed":  {200, `{"run_id":"r","status":"error"}`, true, "", false},
		"lost":    {404, `{"detail":"not found"}`, true, fault.JobLost, false},
		"a page":  {200, `<html>`, true, fault.Job, false},
		"no run":  {200, `{}`, true, fault.Job, false},
		"busy":    {503, `busy`, false, "", true},
		"refused": {403, `no`, true, fault.Job, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := waittest.NewServer(t, waittest.Reply(test.status, test.body))
			got, err := sourceOf(t, s, nil).Check(t.Context(), wait.Job{ItemKey: "r", Since: noon})
			if errors.As(err, new(*wait.RetryError)) != test.again || got.Done != test.done {
				t.Errorf("got %+v, %v", got, err)
			}
			if test.category == "" && got.Fault != nil || test.category != "" && (got.Fault == nil || got.Fault.Category != test.category) {
				t.Errorf("got %+v", got.Fault)
			}
		})
	}
}
