package serve

import (
	"context"
	"net/http"
	"time"

	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/runner"
)

// maxTick is how long a tick may work at most.
const maxTick = time.Hour

// tickRequest is the body of POST /v1/tick, which may be empty.
type tickRequest struct {
	// MaxTime is how long it works at most; runner.DefaultTick by default.
	MaxTime *wait.Duration `json:"maxTime"`
}

// tickAPI serves /v1/tick.
type tickAPI struct {
	// tick does what is due; nil if an executor of this server does.
	tick func(ctx context.Context, maxTime time.Duration) (runner.Ticked, error)
	now  func() time.Time
}

// post works until nothing is due or the time is over. It goes on if the caller hangs up.
func (a *tickAPI) post(w http.ResponseWriter, r *http.Request) error {
	if a.tick == nil {
		return problem(http.StatusConflict, "executor-works",
			"this server executes its runs itself; ticks are for evalrun serve --no-executor")
	}
	var body tickRequest
	if r.ContentLength != 0 {
		if err := decodeBody(r, &body); err != nil {
			return err
		}
	}
	maxTime := runner.DefaultTick
	if body.MaxTime != nil {
		maxTime = time.Duration(*body.MaxTime)
	}
	if maxTime <= 0 || maxTime > maxTick {
		return problem(http.StatusUnprocessableEntity, "invalid-request", "maxTime: expected a duration of at most 1h, such as \"50s\"")
	}
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(a.now().Add(maxTime + answerTimeout)) // only a test's writer has no deadlines
	ticked, err := a.tick(context.WithoutCancel(r.Context()), maxTime)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, ticked)
	return nil
}
