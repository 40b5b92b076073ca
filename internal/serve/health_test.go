package serve_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/evalrun/evalrun/internal/serve"
	"github.com/evalrun/evalrun/internal/testenv"
)

func TestHealthNeedsNoTokenAndSaysNothing(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	w := newWorld(t, func(o *serve.Options) {
		o.Ready = func() error {
			if broken.Load() {
				return errors.New("the executor has a secret")
			}
			return nil
		}
	})
	w.must(http.StatusOK, "GET", "/healthz", "", "Authorization", "")
	w.must(http.StatusOK, "GET", "/readyz", "", "Authorization", "")
	broken.Store(true)
	if a := w.must(http.StatusServiceUnavailable, "GET", "/readyz", "", "Authorization", ""); strings.Contains(a.body, "secret") {
		t.Error(a.body)
	}
	broken.Store(false)
	w.server.Drain()
	w.must(http.StatusServiceUnavailable, "GET", "/readyz", "", "Authorization", "")
	w.must(http.StatusOK, "GET", "/healthz", "", "Authorization", "")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start("greet")
	a := w.must(http.StatusOK, "GET", "/metrics", "")
	for _, want := range []string{`evalrun_http_requests_total{route="POST /v1/runs",status="201"} 1`, "evalrun_open_runs 1", `evalrun_rollouts{state="runnable"} 1`, "evalrun_http_event_streams 0"} {
		if !strings.Contains(a.body, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func TestTooManyRequestsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *serve.Options) { o.Rate = 1 }) // and three at once
	last := 0
	for range 10 {
		a := w.send("GET", "/v1/runs", "")
		if last = a.StatusCode; last == http.StatusTooManyRequests {
			if a.Header.Get("Retry-After") == "" {
				t.Error(a.Header)
			}
			break
		}
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the last of ten is answered with %d", last)
	}
	for range 60 {
		last = w.send("GET", "/v1/runs", "", "Authorization", "Bearer x").StatusCode
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the last of 60 without a token is answered with %d", last)
	}
}

// Whoever has no token cannot fill the disk with lines of the audit log.
func TestWhoHasNoTokenWritesNoAuditLine(t *testing.T) {
	testenv.NeedSlow(t)
	w := newWorld(t)
	for _, headers := range [][]string{{"Authorization", ""}, {"Authorization", "Bearer wrong"}, {"Host", "evil.example"}} {
		if a := w.send("POST", "/v1/runs", `{"evalSet":"greet"}`, headers...); a.StatusCode < 400 {
			t.Errorf("%q: %s", headers, a.Status)
		}
	}
	if lines := w.audit.String(); lines != "" {
		t.Errorf("the audit log has %s", lines)
	}
}
