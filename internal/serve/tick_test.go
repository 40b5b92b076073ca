package serve_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/serve"
	"github.com/evalrun/evalrun/runner"
)

// A server without an executor works when it is told to: until nothing is due, or somebody is asked. A
// server with an executor refuses.
func TestTick(t *testing.T) {
	t.Parallel()
	var w *world
	w = newWorld(t, func(o *serve.Options) {
		o.Tick = func(ctx context.Context, maxTime time.Duration) (runner.Ticked, error) {
			return w.Runner().Tick(ctx, runner.Options{Variables: w.variables, Log: w.log}, maxTime)
		}
	})
	tick := func(body string) (ticked runner.Ticked) {
		w.must(http.StatusOK, "POST", "/v1/tick", body).decode(t, &ticked)
		return ticked
	}
	ask := w.start("person")
	if got := tick(""); got.Runnable != 0 || got.Due != 0 || !got.Next.IsZero() {
		t.Errorf("after the question was asked a tick says %+v", got)
	}
	w.reaches(ask.RunID, "suspended")
	greet := w.start("greet")
	tick(`{"maxTime": "10m"}`)
	w.reaches(greet.RunID, "successful")
	for _, body := range []string{`{"maxTime": "0s"}`, `{"maxTime": "2h"}`} {
		w.must(http.StatusUnprocessableEntity, "POST", "/v1/tick", body)
	}
	w.must(http.StatusBadRequest, "POST", "/v1/tick", `{"maxTime": "soon"}`)
	w.must(http.StatusUnsupportedMediaType, "POST", "/v1/tick", "50s", "Content-Type", "text/plain")
	if a := w.huge("/v1/tick"); a.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: %d %s", a.StatusCode, a.body)
	}
	newWorld(t).must(http.StatusConflict, "POST", "/v1/tick", "")
}

// A tick may take longer than other requests, and its caller is answered all the same.
func TestALongTickIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(o *serve.Options) {
		o.Now, o.BodyTimeout = func() time.Time { return time.Now().Add(-5 * time.Minute) }, time.Hour
		o.Tick = func(context.Context, time.Duration) (runner.Ticked, error) { return runner.Ticked{Due: 3}, nil }
	})
	var ticked runner.Ticked
	w.must(http.StatusOK, "POST", "/v1/tick", `{"maxTime": "1h"}`).decode(t, &ticked)
	if ticked.Due != 3 {
		t.Errorf("%+v", ticked)
	}
}
