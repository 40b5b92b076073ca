package mesh

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
	"github.com/evalrun/evalrun/internal/wait/template"
)

// answerKey is the member of an event's trace context that has the id of the answer. A registry
// keeps the trace context as it is, and its workers do not read it.
const answerKey = "evalrun.dev/answer"

// event is an event of a job.
type event struct {
	Seq          int64           `json:"seq,omitempty"`
	Type         string          `json:"type"`
	Payload      json.RawMessage `json:"payload"`
	TraceContext map[string]any  `json:"trace_context"`
}

// Answer implements wait.Asker. The answer is posted as an event. A registry does not deduplicate
// events, so Answer first looks for the one with the id of the answer.
func (s *source) Answer(ctx context.Context, j wait.Job, answer wait.Answer) error {
	config := s.config.AnswerEvent()
	posted, err := s.hasAnswer(ctx, j, config.Type, answer.ID)
	if posted || err != nil {
		return err
	}
	payload, err := template.Body(config.Payload, s.Resolve, nil, map[string]json.RawMessage{"answer": answer.Payload})
	if err != nil {
		return s.Retry(j, httpcall.Answer{}, err) // a variable without a value can be given one later
	}
	trace := map[string]any{answerKey: answer.ID, "traceparent": j.Traceparent()}
	q := s.call(j, http.MethodPost, "/jobs/{itemKey}/events",
		jsonvalue.Marshal(event{Type: config.Type, Payload: payload, TraceContext: trace}))
	q.Once = true
	a, err := s.Do(ctx, q)
	switch {
	case err != nil:
		return s.Retry(j, a, err)
	case a.OK():
		return nil
	case a.IsGone():
		return fault.New(fault.JobLost, "the job is lost: "+a.Err().Error())
	case a.Status == http.StatusBadRequest, a.Status == http.StatusConflict, a.Status == http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", wait.ErrNotTaken, a.Err())
	}
	return s.Retry(j, a, a.Err())
}

// hasAnswer looks in the log of a job for an answer.
func (s *source) hasAnswer(ctx context.Context, j wait.Job, typ, id string) (bool, error) {
	for after := int64(0); ; {
		path := fmt.Sprintf("/jobs/{itemKey}/events?types=%s&after=%d&limit=500", url.QueryEscape(typ), after)
		a, err := s.Do(ctx, s.call(j, http.MethodGet, path, nil))
		if err := s.CheckErr(j, a, err); err != nil {
			return false, err
		}
		var page struct {
			Events []event `json:"events"`
		}
		if err := json.Unmarshal(a.Body, &page); err != nil {
			return false, s.Retry(j, a, fmt.Errorf(
				"%s answered something that is not a list of events: %s", a.What, jsonvalue.Excerpt(a.Body)))
		}
		if len(page.Events) == 0 {
			return false, nil
		}
		for _, e := range page.Events {
			if e.TraceContext[answerKey] == id {
				return true, nil
			}
			if e.Seq <= after {
				return false, s.Retry(j, a, fmt.Errorf("%s answered events that were not asked for", a.What))
			}
			after = e.Seq
		}
	}
}
