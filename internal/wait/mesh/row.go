package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

// row is a job as the registry tells it.
type row struct {
	ID               string          `json:"id"`
	Status           string          `json:"status"`
	SubmittedBy      string          `json:"submitted_by"`
	SubmittedPayload json.RawMessage `json:"submitted_payload"`
	ProgressMessage  string          `json:"progress_message"`
	Result           json.RawMessage `json:"result"`
	Error            string          `json:"error"`
	RecvCursor       json.RawMessage `json:"recv_cursor"`
}

// row fetches a job. Its rows are never removed while somebody may ask for them, so one that is not
// there will not come back.
func (s *source) row(ctx context.Context, j wait.Job) (r row, a httpcall.Answer, err error) {
	a, err = s.Do(ctx, s.call(j, http.MethodGet, "/jobs/{itemKey}", nil))
	if err := s.CheckErr(j, a, err); err != nil {
		return r, a, err
	}
	if err := json.Unmarshal(a.Body, &r); err != nil || r.Status == "" {
		return r, a, s.Retry(j, a, fmt.Errorf(
			"%s answered something that is not a job: %s", a.What, jsonvalue.Excerpt(a.Body)))
	}
	return r, a, nil
}

func (r row) result() json.RawMessage {
	if len(r.Result) == 0 {
		return json.RawMessage("null")
	}
	return r.Result
}

// environments begin the errors that the registry itself gives to a job whose worker has not
// answered in time, or was lost. The job has not failed by itself then.
var environments = []string{"deadline_exceeded", "stale:", "orphaned:", "lease expired:", "exhausted (release):"}

// deadlineRounding is how much earlier the deadline of the job may be than that of the wait: it is
// sent in whole seconds, as a time and as what is left.
const deadlineRounding = 2 * time.Second

// failure is the fault of a job that failed. The deadline that the job was given is that of the
// wait, so both have passed together.
func (r row) failure(j wait.Job, now time.Time) *fault.Fault {
	for _, prefix := range environments {
		switch {
		case !strings.HasPrefix(r.Error, prefix):
		case prefix == environments[0] && !j.Deadline.IsZero() && !now.Before(j.Deadline.Add(-deadlineRounding)):
			return fault.New(fault.SuspendTimeout,
				"the job was not done at the deadline of its suspension (limits.suspendTimeout): "+r.Error)
		default:
			return fault.New(fault.JobLost, "the job was given up by its registry: "+r.Error)
		}
	}
	return fault.New(fault.Job, "the job failed"+r.because(""))
}

// because returns the reason that a job gives, without a prefix that says nothing new.
func (r row) because(prefix string) string {
	if reason := strings.TrimPrefix(r.Error, prefix); reason != "" {
		return ": " + reason
	}
	return ""
}

// question is what a job asks; nil if nothing.
func (r row) question(capability string) *wait.Question {
	if r.Status != "input_required" {
		return nil
	}
	q := &wait.Question{Title: r.ProgressMessage, Job: r.ID, Process: capability}
	if q.Title == "" {
		q.Title = capability + " wants to know something before it goes on"
	}
	if jsonvalue.KindOf(r.RecvCursor) == '{' {
		q.Asked = string(r.RecvCursor) // it grows as the job takes in what it is told
	}
	return q
}
