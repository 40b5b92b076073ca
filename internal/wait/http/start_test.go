package http

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/waittest"
)

func TestHTTPStart(t *testing.T) {
	t.Run("the default body, the key from the answer", func(t *testing.T) {
		s := waittest.NewServer(t, waittest.Reply(201, `{"id":17}`))
		key, err := sourceFor(t, s, plain, nil).Start(t.Context(), pending(t))
		want := []string{`POST /jobs {"folderPath":"Shared/EU","inputArguments":{"n":1.50},"key":"trigger-1","process":"P"}`}
		if diff := cmp.Diff(want, s.Requests()); diff != "" || key != "17" || err != nil {
			t.Error(key, err, diff)
		}
		if h := s.Headers()[0]; h.Get("Idempotency-Key") != "" || h.Get("Content-Type") != "application/json" {
			t.Errorf("atMostOnce has no idempotency key, which net/http would take as leave to repeat the request: %v", h)
		}
	})
	t.Run("the deadline goes with it, and nothing is started when it has passed", func(t *testing.T) {
		s := waittest.NewServer(t, waittest.Reply(201, `{"id":17}`))
		j := pending(t)
		j.Deadline = noon.Add(90500 * time.Millisecond)
		if _, err := sourceFor(t, s, plain, nil).Start(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		if h := s.Headers()[0]; h.Get("X-Mesh-Timeout") != "90" || h.Get("X-Mesh-Job-Id") != "trigger-1" || h.Get("Traceparent") != j.Traceparent() {
			t.Errorf("%v", h)
		}
		j.Deadline = noon
		var retry *wait.RetryError
		if _, err := sourceFor(t, s, plain, nil).Start(t.Context(), j); !errors.As(err, &retry) || !retry.NotStarted || len(s.Requests()) != 1 {
			t.Errorf("%v, %d requests", err, len(s.Requests()))
		}
	})
	t.Run("atMostOnce is not broken off", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := waittest.NewServer(t, func(w http.ResponseWriter, _ *http.Request) {
			cancel()
			_, _ = io.WriteString(w, `{"id":17}`)
		})
		if key, err := sourceFor(t, s, plain, nil).Start(ctx, pending(t)); key != "17" || err != nil {
			t.Error(key, err)
		}
	})
	t.Run("templates, headers, the idempotency key, no itemKey", func(t *testing.T) {
		s := waittest.NewServer(t, waittest.Reply(200, ""))
		src := sourceFor(t, s, `{"P":{"source":"http","startKind":"idempotent","start":{"method":"put","url":"${URL}/f/{folderPath}?p={process}",
			"headers":{"Authorization":"Bearer ${T}"},"body":{"args":"{inputArguments}","t":"{triggerId}"}},"status":{"url":"${URL}/{itemKey}"}}}`,
			map[string]string{"URL": s.URL, "T": "secret"})
		key, err := src.Start(t.Context(), pending(t))
		if diff := cmp.Diff([]string{`PUT /f/Shared%2FEU?p=P {"args":{"n":1.50},"t":"trigger-1"}`}, s.Requests()); diff != "" || key != "trigger-1" || err != nil {
			t.Error(key, err, diff)
		}
		if h := s.Headers()[0]; h.Get("Idempotency-Key") != "trigger-1" || h.Get("Authorization") != "Bearer secret" {
			t.Error(h)
		}
	})
	t.Run("searchable looks first", func(t *testing.T) {
		config := `{"P":{"source":"http","start":{"url":"$URL/jobs"},"find":{"url":"$URL/jobs?key={triggerId}","itemKey":".items[0].id"},"status":{"url":"$URL/jobs/{itemKey}"},"itemKey":".id"}}`
		items := `{"items":[]}`
		s := waittest.NewServer(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				_, _ = io.WriteString(w, items)
				return
			}
			items = `{"items":[{"id":"new"}]}`
			_, _ = io.WriteString(w, `{"id":"new"}`)
		})
		src := sourceFor(t, s, config, nil)
		for range 2 {
			if key, err := src.Start(t.Context(), pending(t)); key != "new" || err != nil {
				t.Error(key, err)
			}
		}
		if got := s.Requests(); len(got) != 3 || !strings.HasPrefix(got[0], "GET") || !strings.HasPrefix(got[1], "POST") || !strings.HasPrefix(got[2], "GET") {
			t.Error("started twice, or without being looked for:", got)
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
		wantAfter  time.Duration  // of a wait.RetryError
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
			s := waittest.NewServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", c.header)
				waittest.Reply(c.status, `{"message":"no such release"}`)(w, nil)
			})
			config := plain
			if c.kind != "" {
				config = strings.Replace(plain, `"itemKey"`, `"startKind":"`+c.kind+`","itemKey"`, 1)
			}
			_, err := sourceFor(t, s, config, nil).Start(t.Context(), pending(t))
			var f *fault.Fault
			var retry *wait.RetryError
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
		s := waittest.NewServer(t, nil)
		s.Close()
		var retry *wait.RetryError
		if _, err := sourceFor(t, s, plain, nil).Start(t.Context(), pending(t)); !errors.As(err, &retry) {
			t.Error(err)
		}
	})
	t.Run("a connection that breaks after the request may be one", func(t *testing.T) {
		s := waittest.NewServer(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		for kind, want := range map[string]bool{"atMostOnce": true, "idempotent": false} {
			var f *fault.Fault
			_, err := sourceFor(t, s, strings.Replace(plain, `"itemKey"`, `"startKind":"`+kind+`","itemKey"`, 1), nil).Start(t.Context(), pending(t))
			if got := errors.As(err, &f) && f.Category == "start-unknown"; err == nil || got != want {
				t.Error(kind, err)
			}
		}
	})
	t.Run("an answer without the key", func(t *testing.T) {
		s := waittest.NewServer(t, waittest.Reply(200, `{"job":1}`))
		var f *fault.Fault
		if _, err := sourceFor(t, s, plain, nil).Start(t.Context(), pending(t)); !errors.As(err, &f) || f.Category != "start-unknown" || !strings.Contains(err.Error(), `itemKey .id: it gives nothing; the answer was {"job":1}`) {
			t.Error(err)
		}
	})
	t.Run("a model's value that does not fit", func(t *testing.T) {
		s := waittest.NewServer(t, waittest.Reply(200, `{}`))
		p := pending(t)
		p.Spec.FolderPath = "../admin"
		var f *fault.Fault
		_, err := sourceFor(t, s, strings.Replace(plain, "$URL/jobs\"", "$URL/{folderPath}/jobs\"", 1), nil).Start(t.Context(), p)
		if !errors.As(err, &f) || f.Category != "job" || !strings.Contains(err.Error(), `{folderPath} is "../admin"`) || len(s.Requests()) > 0 {
			t.Error(err, s.Requests())
		}
	})
	t.Run("no variable, and no secret in an error", func(t *testing.T) {
		s := waittest.NewServer(t, waittest.Reply(200, `{}`))
		config := strings.Replace(plain, `"url":"$URL/jobs"`, `"url":"$URL/jobs?sig=${SIG}"`, 1)
		_, err := sourceFor(t, s, config, nil).Start(t.Context(), pending(t))
		if err == nil || !strings.HasSuffix(err.Error(), "the variable ${SIG} has no value; pass it with --env SIG or in an --env-file") || !errors.As(err, new(*wait.RetryError)) {
			t.Error(err)
		}
		s.Close()
		_, err = sourceFor(t, s, config, map[string]string{"SIG": "sesame"}).Start(t.Context(), pending(t))
		if err == nil || strings.Contains(err.Error(), "sesame") {
			t.Error(err)
		}
	})
}
