package sources

import (
	"context"
	"encoding/json"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
)

// external waits for a delivery: only that can tell.
type external struct{ wait.Begun }

func (external) Check(context.Context, wait.Job) (wait.Status, error) { return wait.Status{}, nil }

func (external) Cancel(context.Context, wait.Job) error { return nil }

// timer waits for a time.
type timer struct {
	wait.Begun
	now func() time.Time
}

func (t timer) Check(_ context.Context, j wait.Job) (wait.Status, error) {
	if j.Spec.ResumeAt == nil {
		return wait.Status{Done: true, Fault: fault.New(fault.Job, "the timer has no time to wait for")}, nil
	}
	if left := j.Spec.ResumeAt.Sub(t.now()); left > 0 {
		return wait.Status{After: left}, nil
	}
	payload, err := json.Marshal(map[string]string{"resumeTime": j.Spec.ResumeAt.UTC().Format(time.RFC3339Nano)})
	return wait.Status{Done: true, Payload: payload}, err
}

func (timer) Cancel(context.Context, wait.Job) error { return nil }
