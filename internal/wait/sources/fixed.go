package sources

import (
	"context"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
)

// fixed plays a person or a job: what arrives, and when, is known from the start.
type fixed struct {
	wait.Begun
	now    func() time.Time
	played wait.Played
}

func (f fixed) Check(_ context.Context, j wait.Job) (wait.Status, error) {
	if left := j.Since.Add(time.Duration(f.played.After)).Sub(f.now()); left > 0 {
		return wait.Status{After: left}, nil
	}
	if f.played.Fail != "" {
		return wait.Status{Done: true, Fault: fault.New(fault.Job, f.played.Fail)}, nil
	}
	return wait.Status{Done: true, Payload: f.played.Result}, nil
}

func (fixed) Cancel(context.Context, wait.Job) error { return nil }
