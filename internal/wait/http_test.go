package wait

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/testenv"
)

var noon = time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)

// server is a real HTTP server that answers as it is told and records what it was asked.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
	headers  []http.Header
	answer   func(w http.ResponseWriter, r *http.Request)
}

func newServer(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) *server {
	s := &server{answer: answer}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, strings.TrimSpace(r.Method+" "+r.RequestURI+" "+string(body)))
		s.headers = append(s.headers, r.Header)
		s.mu.Unlock()
		s.answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests
}

func reply(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// source gives the HTTP source for process P of a configuration in which $URL stands for the
// server's.
func source(t *testing.T, s *server, config string, vars map[string]string) Source {
	t.Helper()
	jobs, problems := parseJobs(t, "jobs.json", strings.ReplaceAll(config, "$URL", s.URL))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	sources := NewSources(Options{Jobs: jobs, Resolve: known(vars), Now: func() time.Time { return noon }, Rand: func() float64 { return 0.5 }})
	t.Cleanup(sources.Close)
	src, err := sources.For("http", Spec{Type: TypeJob, Process: "P"})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func pending(t *testing.T) Job {
	t.Helper()
	specs, err := ParseSpecs(json.RawMessage(`{"name":"P","process_folder_path":"Shared/EU","input_arguments":{"n":1.50}}`))
	if err != nil {
		t.Fatal(err)
	}
	return Job{TriggerID: "trigger-1", RolloutID: "rollout-1", ItemKey: "job/1", Spec: specs[0]}
}

const plain = `{"P":{"source":"http","start":{"url":"$URL/jobs"},"status":{"url":"$URL/jobs/{itemKey}","done":".state==\"Successful\"","failed":".state==\"Faulted\"","error":".info"},"itemKey":".id"}}`

func TestHTTPStart(t *testing.T) {
	t.Run("the default body, the key from the answer", func(t *testing.T) {
		s := newServer(t, reply(201, `{"id":17}`))
		key, err := source(t, s, plain, nil).Start(t.Context(), pending(t))
		want := []string{`POST /jobs {"folderPath":"Shared/EU","inputArguments":{"n":1.50},"key":"trigger-1","process":"P"}`}
		if diff := cmp.Diff(want, s.asked()); diff != "" || key != "17" || err != nil {
			t.Error(key, err, diff)
		}
		if h := s.headers[0]; h.Get("Idempotency-Key") != "" || h.Get("Content-Type") != "application/json" {
			t.Errorf("atMostOnce has no idempotency key, which net/http would take as leave to repeat the request: %v", h)
		}
	})
	t.Run("atMostOnce is not broken off", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
			cancel()
			_, _ = io.WriteString(w, `{"id":17}`)
		})
		if key, err := source(t, s, plain, nil).Start(ctx, pending(t)); key != "17" || err != nil {
			t.Error(key, err)
		}
	})
	t.Run("templates, headers, the idempotency key, no itemKey", func(t *testing.T) {
		s := newServer(t, reply(200, ""))
		src := source(t, s, `{"P":{"source":"http","startKind":"idempotent","start":{"method":"put","url":"${URL}/f/{folderPath}?p={process}",
			"headers":{"Authorization":"Bearer ${T}"},"body":{"args":"{inputArguments}","t":"{triggerId}"}},"status":{"url":"${URL}/{itemKey}"}}}`,
			map[string]string{"URL": s.URL, "T": "secret"})
		key, err := src.Start(t.Context(), pending(t))
		if diff := cmp.Diff([]string{`PUT /f/Shared%2FEU?p=P {"args":{"n":1.50},"t":"trigger-1"}`}, s.asked()); diff != "" || key != "trigger-1" || err != nil {
			t.Error(key, err, diff)
		}
		if h := s.headers[0]; h.Get("Idempotency-Key") != "trigger-1" || h.Get("Authorization") != "Bearer secret" {
			t.Error(h)
		}
	})
	t.Run("searchable looks first", func(t *testing.T) {
		config := `{"P":{"source":"http","start":{"url":"$URL/jobs"},"find":{"url":"$URL/jobs?key={triggerId}","itemKey":".items[0].id"},"status":{"url":"$URL/jobs/{itemKey}"},"itemKey":".id"}}`
		items := `{"items":[]}`
		s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = io.WriteString(w, items)
				return
			}
			items = `{"items":[{"id":"new"}]}`
			_, _ = io.WriteString(w, `{"id":"new"}`)
		})
		src := source(t, s, config, nil)
		for range 2 {
			if key, err := src.Start(t.Context(), pending(t)); key != "new" || err != nil {
				t.Error(key, err)
			}
		}
		if got := s.asked(); len(got) != 3 || !strings.HasPrefix(got[0], "GET") || !strings.HasPrefix(got[1], "POST") || !strings.HasPrefix(got[2], "GET") {
			t.Error("started twice, or without a look:", got)
		}
		if key, found, err := src.Find(t.Context(), pending(t)); key != "new" || !found || err != nil {
			t.Error(key, found, err)
		}
	})
}

func TestHTTPStartFailures(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		status     int
		header     string
		wantFault  fault.Category // category
		wantAfter  time.Duration  // of a RetryError
	}{
		{name: "bad request", status: 400, wantFault: "job"},
		{name: "unauthorised", status: 401, wantFault: "job"},
		{name: "not found", status: 404, wantFault: "job"},
		{name: "conflict", status: 409, wantAfter: 7500 * time.Millisecond},
		{name: "timeout", status: 408, wantAfter: 7500 * time.Millisecond},
		{name: "too early", status: 425, wantAfter: 7500 * time.Millisecond},
		{name: "too many, in seconds", status: 429, header: "120", wantAfter: 2 * time.Minute},
		{name: "too many, now", status: 429, header: "0", wantAfter: time.Second},
		{name: "unavailable, until a date", status: 503, header: "Mon, 06 Jul 2026 12:05:00 GMT", wantAfter: 5 * time.Minute},
		{name: "unavailable, nonsense", status: 503, header: "soon", wantAfter: 7500 * time.Millisecond},
		{name: "broken, idempotent", kind: "idempotent", status: 500, header: "120", wantAfter: 7500 * time.Millisecond},
		{name: "broken, once", kind: "atMostOnce", status: 500, wantFault: "start-unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", c.header)
				reply(c.status, `{"message":"no such release"}`)(w, nil)
			})
			config := plain
			if c.kind != "" {
				config = strings.Replace(plain, `"itemKey"`, `"startKind":"`+c.kind+`","itemKey"`, 1)
			}
			_, err := source(t, s, config, nil).Start(t.Context(), pending(t))
			var f *fault.Fault
			var retry *RetryError
			switch {
			case errors.As(err, &f):
				if f.Category != c.wantFault || !strings.Contains(f.Message, "no such release") {
					t.Error(f.Category, err)
				}
			case !errors.As(err, &retry) || retry.After != c.wantAfter:
				t.Errorf("expected a retry after %s, got %#v", c.wantAfter, err)
			}
		})
	}
	t.Run("a connection that cannot be made is no start", func(t *testing.T) {
		s := newServer(t, nil)
		s.Close()
		var retry *RetryError
		if _, err := source(t, s, plain, nil).Start(t.Context(), pending(t)); !errors.As(err, &retry) {
			t.Error(err)
		}
	})
	t.Run("a connection that breaks after the request may be one", func(t *testing.T) {
		s := newServer(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		for kind, want := range map[string]bool{"atMostOnce": true, "idempotent": false} {
			var f *fault.Fault
			_, err := source(t, s, strings.Replace(plain, `"itemKey"`, `"startKind":"`+kind+`","itemKey"`, 1), nil).Start(t.Context(), pending(t))
			if got := errors.As(err, &f) && f.Category == "start-unknown"; err == nil || got != want {
				t.Error(kind, err)
			}
		}
	})
	t.Run("an answer without the key", func(t *testing.T) {
		s := newServer(t, reply(200, `{"job":1}`))
		var f *fault.Fault
		if _, err := source(t, s, plain, nil).Start(t.Context(), pending(t)); !errors.As(err, &f) || f.Category != "start-unknown" || !strings.Contains(err.Error(), `itemKey .id: it gives nothing; the answer was {"job":1}`) {
			t.Error(err)
		}
	})
	t.Run("a model's value that does not fit", func(t *testing.T) {
		s := newServer(t, reply(200, `{}`))
		p := pending(t)
		p.Spec.FolderPath = "../admin"
		var f *fault.Fault
		_, err := source(t, s, strings.Replace(plain, "$URL/jobs\"", "$URL/{folderPath}/jobs\"", 1), nil).Start(t.Context(), p)
		if !errors.As(err, &f) || f.Category != "job" || !strings.Contains(err.Error(), `{folderPath} is "../admin"`) || len(s.asked()) > 0 {
			t.Error(err, s.asked())
		}
	})
	t.Run("no variable, and no secret in an error", func(t *testing.T) {
		s := newServer(t, reply(200, `{}`))
		config := strings.Replace(plain, `"url":"$URL/jobs"`, `"url":"$URL/jobs?sig=${SIG}"`, 1)
		_, err := source(t, s, config, nil).Start(t.Context(), pending(t))
		if err == nil || !strings.HasSuffix(err.Error(), "the variable ${SIG} has no value; pass it with --env SIG or in an --env-file") || !errors.As(err, new(*RetryError)) {
			t.Error(err)
		}
		s.Close()
		_, err = source(t, s, config, map[string]string{"SIG": "sesame"}).Start(t.Context(), pending(t))
		if err == nil || strings.Contains(err.Error(), "sesame") {
			t.Error(err)
		}
	})
}

func TestHTTPCheck(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		header string
		body   string
		want   Status
	}{
		{"running", 200, "", `{"state":"Running"}`, Status{After: 7500 * time.Millisecond}},
		{"running, with a hint", 202, "9", `{"state":"Running"}`, Status{After: 9 * time.Second}},
		{"running, with a hint in another status", 200, "9", `{"state":"Running"}`, Status{After: 9 * time.Second}},
		{"done", 200, "", `{"state":"Successful","output":{"n":12345678901234567890}}`, Status{Done: true, Payload: json.RawMessage(`{"state":"Successful","output":{"n":12345678901234567890}}`)}},
		{"failed", 200, "", `{"state":"Faulted","info":"no printer"}`, Status{Done: true, Fault: fault.New("job", "the job failed: no printer")}},
		{"failed without a reason", 200, "", `{"state":"Faulted"}`, Status{Done: true, Fault: fault.New("job", `the job failed: {"state":"Faulted"}`)}},
		{"lost", 404, "", `gone`, Status{Done: true, Fault: fault.New("job-lost", "the job is lost: GET $URL/jobs/{itemKey} answered 404 Not Found: gone")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", c.header)
				reply(c.status, c.body)(w, nil)
			})
			got, err := source(t, s, plain, nil).Check(t.Context(), pending(t))
			if c.want.Fault != nil {
				c.want.Fault.Message = strings.ReplaceAll(c.want.Fault.Message, "$URL", s.URL)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Error(err, diff)
			}
			if diff := cmp.Diff([]string{"GET /jobs/job%2F1"}, s.asked()); diff != "" {
				t.Error(diff)
			}
		})
	}
	for name, c := range map[string]struct {
		status int
		body   string
	}{"broken": {500, ""}, "forbidden for now": {403, ""}, "an expression that does not fit": {200, `[1]`}} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, reply(c.status, c.body))
			st, err := source(t, s, plain, nil).Check(t.Context(), pending(t))
			if st.Done || !errors.As(err, new(*RetryError)) {
				t.Error(st, err)
			}
		})
	}
	t.Run("an answer without end", func(t *testing.T) {
		s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
			for range 17 {
				_, _ = w.Write(make([]byte, 1<<20))
			}
		})
		st, err := source(t, s, plain, nil).Check(t.Context(), pending(t))
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
			s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				body := c.status
				if strings.HasPrefix(r.URL.Path, "/result/") {
					body = c.result
				}
				_, _ = io.WriteString(w, body)
			})
			st, err := source(t, s, `{"P":{"source":"http","status":{"url":"$URL/jobs/{itemKey}"},`+c.config+`}}`, nil).Check(t.Context(), pending(t))
			if err != nil || !st.Done || string(st.Payload) != c.want {
				t.Errorf("expected %s, got %+v, %v", c.want, st, err)
			}
		})
	}
}

func TestHTTPBackoff(t *testing.T) {
	s := newServer(t, reply(200, `{"state":"Running"}`))
	src := source(t, s, plain, nil)
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
	// Halfway, as rand says, between 5 s and 10, 20, 40, 60, 60, 60 s.
	want := []time.Duration{7500 * time.Millisecond, 12500 * time.Millisecond, 22500 * time.Millisecond, 32500 * time.Millisecond, 32500 * time.Millisecond, 32500 * time.Millisecond}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestHTTPRedirects(t *testing.T) {
	other := newServer(t, reply(200, `{"state":"Successful"}`))
	var target string
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/end" {
			_, _ = io.WriteString(w, `{"state":"Successful"}`)
			return
		}
		http.Redirect(w, r, target, http.StatusFound)
	})
	config := strings.Replace(plain, `{"url":"$URL/jobs/{itemKey}"`, `{"url":"$URL/jobs/{itemKey}","headers":{"X-API-Key":"${K}"}`, 1)
	src := source(t, s, config, map[string]string{"K": "secret"})

	target = s.URL + "/end"
	if st, err := src.Check(t.Context(), pending(t)); err != nil || !st.Done {
		t.Error("a redirect within the host was not followed:", st, err)
	}
	target = other.URL + "/end"
	if st, err := src.Check(t.Context(), pending(t)); err == nil || st.Done || len(other.asked()) > 0 || !strings.Contains(err.Error(), "redirects to another host are not followed") {
		t.Error("a redirect to another host was followed:", st, err, other.asked())
	}
}

func TestHTTPCancel(t *testing.T) {
	config := strings.Replace(plain, `"itemKey"`, `"cancel":{"method":"DELETE","url":"$URL/jobs/{itemKey}"},"itemKey"`, 1)
	for status, ok := range map[int]bool{200: true, 204: true, 404: true, 409: true, 403: false, 500: false} {
		s := newServer(t, reply(status, ""))
		if err := source(t, s, config, nil).Cancel(t.Context(), pending(t)); (err == nil) != ok || s.asked()[0] != "DELETE /jobs/job%2F1" {
			t.Error(status, err, s.asked())
		}
	}
	s := newServer(t, reply(500, ""))
	if err := source(t, s, plain, nil).Cancel(t.Context(), pending(t)); err != nil || len(s.asked()) > 0 {
		t.Error("cancelled without a request for it:", err)
	}
}

// Sources hold nothing open: once their idle connections are closed there is no goroutine more than
// before.
func TestHTTPLeavesNothingBehind(t *testing.T) {
	s := newServer(t, reply(200, `{"state":"Running"}`))
	jobs, _ := parseJobs(t, "jobs.json", strings.ReplaceAll(plain, "$URL", s.URL))
	before := runtime.NumGoroutine()
	sources := NewSources(Options{Jobs: jobs})
	src, err := sources.For("http", Spec{Type: TypeJob, Process: "P"})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := src.Check(context.Background(), pending(t)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	sources.Close()
	s.CloseClientConnections()
	testenv.NoMoreGoroutines(t, before)
}
