package http

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/testenv"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/template"
	"github.com/evalrun/evalrun/internal/wait/waittest"
)

var noon = time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)

// known resolves the variables that a test gives.
func known(values map[string]string) template.Resolver {
	return func(name string) (string, bool) { v, ok := values[name]; return v, ok }
}

// sourceFor gives the source for process P of a configuration in which $URL stands for the
// server's.
func sourceFor(t *testing.T, s *waittest.Server, config string, vars map[string]string) wait.Source {
	t.Helper()
	client := httpcall.Client(nil)
	t.Cleanup(client.CloseIdleConnections)
	return sourceWith(t, client, s, config, vars)
}

func sourceWith(t *testing.T, client *http.Client, s *waittest.Server, config string, vars map[string]string) wait.Source {
	t.Helper()
	c := waittest.ParseJobs(t, strings.ReplaceAll(config, "$URL", s.URL)).ForProcess("P")
	settings := c.Settings.(*Config)
	env := wait.Env{HTTP: client, Resolve: known(vars), Rand: func() float64 { return 0.5 }, Now: func() time.Time { return noon }}
	source, err := New(httpcall.Caller{Env: env, Polling: settings.Polling}, *settings)
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func pending(t *testing.T) wait.Job {
	t.Helper()
	specs, err := wait.ParseSpecs(json.RawMessage(`{"name":"P","process_folder_path":"Shared/EU","input_arguments":{"n":1.50}}`))
	if err != nil {
		t.Fatal(err)
	}
	return wait.Job{TriggerID: "trigger-1", RolloutID: "rollout-1", ItemKey: "job/1", Spec: specs[0]}
}

const plain = `{"P":{"source":"http","start":{"url":"$URL/jobs"},"status":{"url":"$URL/jobs/{itemKey}","done":".state==\"Successful\"","failed":".state==\"Faulted\"","error":".info"},"itemKey":".id"}}`

func TestSourceKeepsToItsInterface(t *testing.T) {
	var mu sync.Mutex
	keys, state := map[string]bool{}, "Running"
	s := waittest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodPost {
			keys[r.Header.Get("Idempotency-Key")] = true
		}
		_, _ = fmt.Fprintf(w, `{"id":"job-1","state":%q}`, state)
	})
	config := `{"P":{"source":"http","startKind":"idempotent","start":{"url":"$URL/jobs"},"itemKey":".id",` +
		`"status":{"url":"$URL/jobs/{itemKey}","done":".state==\"Successful\""},"cancel":{"url":"$URL/jobs/{itemKey}"}}}`
	job := pending(t)
	job.ItemKey = ""
	steps := &waittest.Transport{}
	client := httpcall.Client(&http.Client{Transport: steps})
	waittest.Run(t, waittest.Case{
		Source: sourceWith(t, client, s, config, nil), Job: job, OnStep: steps.OnStep,
		Starts: func() int { mu.Lock(); defer mu.Unlock(); return len(keys) },
		End:    func() { mu.Lock(); defer mu.Unlock(); state = "Successful" },
	})
}

// R21: also where the service knows no keys, and jobs are looked for or started at most once; and
// where the job fails.
func TestOtherKindsKeepToTheInterface(t *testing.T) {
	for kind, find := range map[string]string{"searchable": `,"find":{"url":"$URL/find/{triggerId}","itemKey":".id"}`, "atMostOnce": ""} {
		t.Run(kind, func(t *testing.T) {
			var mu sync.Mutex
			var started []string
			over := false
			s := waittest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				switch id := strings.TrimPrefix(r.URL.Path, "/find/"); {
				case r.Method == http.MethodPost:
					started = append(started, id)
				case id != r.URL.Path && !slices.Contains(started, id):
					_, _ = io.WriteString(w, `{"id":null}`)
					return
				}
				_, _ = fmt.Fprintf(w, `{"id":"job-1","over":%t,"why":"out of paper"}`, over)
			})
			config := `{"P":{"source":"http","startKind":"` + kind + `","start":{"url":"$URL/find/{triggerId}"},"itemKey":".id"` + find +
				`,"status":{"url":"$URL/jobs/{itemKey}","done":"false","failed":".over","error":".why"}}}`
			job := pending(t)
			job.ItemKey = ""
			steps := &waittest.Transport{}
			client := httpcall.Client(&http.Client{Transport: steps})
			waittest.Run(t, waittest.Case{
				Source: sourceWith(t, client, s, config, nil), Job: job, OnStep: steps.OnStep,
				Starts: func() int { mu.Lock(); defer mu.Unlock(); return len(started) },
				End:    func() { mu.Lock(); defer mu.Unlock(); over = true },
			})
		})
	}
}

func TestHTTPCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		header string
		body   string
		want   wait.Status
	}{
		{"running", 200, "", `{"state":"Running"}`, wait.Status{After: 7500 * time.Millisecond}},
		{"running, with a hint", 202, "9", `{"state":"Running"}`, wait.Status{After: 9 * time.Second}},
		{"running, with a hint in another status", 200, "9", `{"state":"Running"}`, wait.Status{After: 9 * time.Second}},
		{"done", 200, "", `{"state":"Successful","output":{"n":12345678901234567890}}`, wait.Status{Done: true, Payload: json.RawMessage(`{"state":"Successful","output":{"n":12345678901234567890}}`)}},
		{"failed", 200, "", `{"state":"Faulted","info":"no printer"}`, wait.Status{Done: true, Fault: fault.New("job", "the job failed: no printer")}},
		{"failed without a reason", 200, "", `{"state":"Faulted"}`, wait.Status{Done: true, Fault: fault.New("job", `the job failed: {"state":"Faulted"}`)}},
		{"lost", 404, "", `gone`, wait.Status{Done: true, Fault: fault.New("job-lost", "the job is lost: GET $URL/jobs/{itemKey} answered 404 Not Found: gone")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := waittest.NewServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", c.header)
				waittest.Reply(c.status, c.body)(w, nil)
			})
			got, err := sourceFor(t, s, plain, nil).Check(t.Context(), pending(t))
			if c.want.Fault != nil {
				c.want.Fault.Message = strings.ReplaceAll(c.want.Fault.Message, "$URL", s.URL)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Error(err, diff)
			}
			if diff := cmp.Diff([]string{"GET /jobs/job%2F1"}, s.Requests()); diff != "" {
				t.Error(diff)
			}
		})
	}
	for name, c := range map[string]struct {
		status int
		body   string
	}{"broken": {500, ""}, "forbidden for now": {403, ""}, "an expression that does not fit": {200, `[1]`}} {
		t.Run(name, func(t *testing.T) {
			s := waittest.NewServer(t, waittest.Reply(c.status, c.body))
			st, err := sourceFor(t, s, plain, nil).Check(t.Context(), pending(t))
			if st.Done || !errors.As(err, new(*wait.RetryError)) {
				t.Error(st, err)
			}
		})
	}
	t.Run("an answer without end", func(t *testing.T) {
		s := waittest.NewServer(t, func(w http.ResponseWriter, _ *http.Request) {
			for range 17 {
				_, _ = w.Write(make([]byte, 1<<20))
			}
		})
		st, err := sourceFor(t, s, plain, nil).Check(t.Context(), pending(t))
		if err != nil || st.Fault == nil || !strings.Contains(st.Fault.Message, "answered more than 16 MiB") {
			t.Error(st, err)
		}
	})
}

func TestHTTPResult(t *testing.T) {
	for _, c := range []struct{ name, config, status, result, want string }{
		{"the value of the status", `"value":".output.x"`, `{"output":{"x":[1.50]}}`, "", `[1.50]`},
		{"no value", `"value":".nothing"`, `{}`, "", `null`},
		{"a request of its own", `"result":{"url":"$URL/result/{itemKey}","value":".y"}`, `{}`, `{"y":"z"}`, `"z"`},
		{"the whole result", `"result":{"url":"$URL/result/{itemKey}"}`, `{}`, `plain text`, `"plain text"`},
		{"without done, 200 is done", `"interval":"1s"`, ``, "", `null`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := waittest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
				body := c.status
				if strings.HasPrefix(r.URL.Path, "/result/") {
					body = c.result
				}
				_, _ = io.WriteString(w, body)
			})
			st, err := sourceFor(t, s, `{"P":{"source":"http","status":{"url":"$URL/jobs/{itemKey}"},`+c.config+`}}`, nil).Check(t.Context(), pending(t))
			if err != nil || !st.Done || string(st.Payload) != c.want {
				t.Errorf("expected %s, got %+v, %v", c.want, st, err)
			}
		})
	}
}

func TestHTTPBackoff(t *testing.T) {
	s := waittest.NewServer(t, waittest.Reply(200, `{"state":"Running"}`))
	src := sourceFor(t, s, plain, nil)
	var got []time.Duration
	for checks := range 6 {
		p := pending(t)
		p.Checks = checks
		st, err := src.Check(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, st.After)
	}
	// And one that has been waited for since 25 s ago, between 5 s and that.
	p := pending(t)
	p.Checks, p.Since = 5, noon.Add(-25*time.Second)
	st, err := src.Check(t.Context(), p)
	if err != nil || st.After != 15*time.Second {
		t.Error(st.After, err)
	}
	// Halfway, as rand says, between 5 s and 10, 20, 40, 60, 60, 60 s.
	want := []time.Duration{7500 * time.Millisecond, 12500 * time.Millisecond, 22500 * time.Millisecond, 32500 * time.Millisecond, 32500 * time.Millisecond, 32500 * time.Millisecond}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestHTTPRedirects(t *testing.T) {
	other := waittest.NewServer(t, waittest.Reply(200, `{"state":"Successful"}`))
	var target string
	s := waittest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/end" {
			_, _ = io.WriteString(w, `{"state":"Successful"}`)
			return
		}
		http.Redirect(w, r, target, http.StatusFound)
	})
	config := strings.Replace(plain, `{"url":"$URL/jobs/{itemKey}"`, `{"url":"$URL/jobs/{itemKey}","headers":{"X-API-Key":"${K}"}`, 1)
	src := sourceFor(t, s, config, map[string]string{"K": "secret"})

	target = s.URL + "/end"
	if st, err := src.Check(t.Context(), pending(t)); err != nil || !st.Done {
		t.Error("a redirect within the host was not followed:", st, err)
	}
	target = other.URL + "/end"
	if st, err := src.Check(t.Context(), pending(t)); err == nil || st.Done || len(other.Requests()) > 0 || !strings.Contains(err.Error(), "redirects to another host are not followed") {
		t.Error("a redirect to another host was followed:", st, err, other.Requests())
	}
}

func TestHTTPCancel(t *testing.T) {
	config := strings.Replace(plain, `"itemKey"`, `"cancel":{"method":"DELETE","url":"$URL/jobs/{itemKey}"},"itemKey"`, 1)
	for status, ok := range map[int]bool{200: true, 204: true, 404: true, 409: true, 403: false, 500: false} {
		s := waittest.NewServer(t, waittest.Reply(status, ""))
		if err := sourceFor(t, s, config, nil).Cancel(t.Context(), pending(t)); (err == nil) != ok || s.Requests()[0] != "DELETE /jobs/job%2F1" {
			t.Error(status, err, s.Requests())
		}
	}
	s := waittest.NewServer(t, waittest.Reply(500, ""))
	if err := sourceFor(t, s, plain, nil).Cancel(t.Context(), pending(t)); err != nil || len(s.Requests()) > 0 {
		t.Error("cancelled without a request for it:", err)
	}
}

// Sources hold nothing open: once their idle connections are closed there is no goroutine more than
// before.
func TestHTTPLeavesNothingBehind(t *testing.T) {
	s := waittest.NewServer(t, waittest.Reply(200, `{"state":"Running"}`))
	before := runtime.NumGoroutine()
	client := httpcall.Client(nil)
	src := sourceWith(t, client, s, plain, nil)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := src.Check(context.Background(), pending(t)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	client.CloseIdleConnections()
	s.CloseClientConnections()
	testenv.NoMoreGoroutines(t, before)
}
