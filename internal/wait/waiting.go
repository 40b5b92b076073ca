package wait

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
)

// itemKey is the key of what evalrun itself begins to wait for: "job-" and the trigger's id for a
// job, as in the founding proposal, and for others the type in place of "job".
func itemKey(p Job) string {
	return strings.ToLower(strings.ReplaceAll(string(p.Spec.Type), "_", "-")) + "-" + p.TriggerID
}

// hasKey tells whether the key of the job is known. Until a start is recorded the key that evalrun
// made stands in its place.
func hasKey(p Job) bool { return p.ItemKey != "" && p.ItemKey != itemKey(p) }

// external waits for a delivery. It never starts anything, and only a delivery can tell.
type external struct{}

func (external) StartKind() Start { return Idempotent }

func (external) Start(_ context.Context, p Job) (string, error) { return itemKey(p), nil }

func (external) Find(_ context.Context, p Job) (string, bool, error) {
	return itemKey(p), true, nil
}

func (external) Check(context.Context, Job) (Status, error) { return Status{}, nil }

func (external) Cancel(context.Context, Job) error { return nil }

// timer waits for a time.
type timer struct{ now func() time.Time }

func (timer) StartKind() Start { return Idempotent }

func (timer) Start(_ context.Context, p Job) (string, error) { return itemKey(p), nil }

func (timer) Find(_ context.Context, p Job) (string, bool, error) { return itemKey(p), true, nil }

func (t timer) Check(_ context.Context, p Job) (Status, error) {
	if p.Spec.ResumeAt == nil {
		return Status{Done: true, Fault: fault.New(fault.Job, "the timer has no time to wait for")}, nil
	}
	if left := p.Spec.ResumeAt.Sub(t.now()); left > 0 {
		return Status{After: left}, nil
	}
	payload, err := json.Marshal(map[string]string{"resumeTime": p.Spec.ResumeAt.UTC().Format(time.RFC3339Nano)})
	return Status{Done: true, Payload: payload}, err
}

func (timer) Cancel(context.Context, Job) error { return nil }
