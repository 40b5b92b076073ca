package service

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/store"
)

// AnswerEvent is the type of the events of a job that answer a question.
const AnswerEvent = "answer"

// AnswerError is the reason why an answer is refused. Malformed says that the payload is not an
// answer; otherwise there is no question for it.
type AnswerError struct {
	Malformed bool
	text      string
}

func (e *AnswerError) Error() string { return e.text }

// Answer makes the delivery of an answer to a question of a job, which is named, or the only open
// one. The error is an *AnswerError, store.ErrJobEnded, or one of the store.
func (s *Service) Answer(ctx context.Context, jobID string, payload json.RawMessage,
	by string) (*store.Delivery, error) {
	var given struct {
		TriggerID string           `json:"triggerId"`
		Value     *json.RawMessage `json:"value"`
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(payload, &keys) != nil || json.Unmarshal(payload, &given) != nil || keys["value"] == nil {
		return nil, &AnswerError{true,
			`payload must be an object with "value", the answer, and with "triggerId" if several questions are open`}
	}
	job, err := s.st.Job(ctx, jobID)
	if err != nil {
		return nil, err
	}
	if job.Status.IsTerminal() {
		return nil, store.ErrJobEnded
	}
	var open []string
	if err := s.st.Triggers(ctx, jobID, false, func(t store.Trigger) error {
		if t.Type == store.TriggerTask {
			open = append(open, t.ID)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	id := given.TriggerID
	switch {
	case id == "" && len(open) > 1:
		return nil, &AnswerError{false,
			fmt.Sprintf("%d questions of the job are open; name one of them as payload.triggerId: %s", len(open),
				strings.Join(open, ", "))}
	case id == "" && len(open) == 1:
		id = open[0]
	case !slices.Contains(open, id):
		return nil, &AnswerError{false, "no question of the job is open"}
	}
	return &store.Delivery{TriggerID: id, Status: store.StatusSuccessful, Payload: keys["value"], By: by}, nil
}
