package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/store"
)

// answerType is the type of the events that answer a question.
const answerType = "answer"

var errNothingAsked = &requestError{http.StatusConflict, "no question of the job is open"}

func errSeveralAsked(ids []string) error {
	return &requestError{http.StatusConflict, fmt.Sprintf("%d questions of the job are open; name one of them as payload.triggerId: %s", len(ids), strings.Join(ids, ", "))}
}

// answer makes the delivery of an answer. Its question is named, or the only one that is open.
func (h *handler) answer(ctx context.Context, jobID string, payload json.RawMessage, by string) (*store.Delivery, error) {
	var given struct {
		TriggerID string           `json:"triggerId"`
		Value     *json.RawMessage `json:"value"`
	}
	var keys map[string]json.RawMessage
	if json.Unmarshal(payload, &keys) != nil || json.Unmarshal(payload, &given) != nil || keys["value"] == nil {
		return nil, badRequest(`payload must be an object with "value", the answer, and with "triggerId" if several questions are open`)
	}
	job, err := h.st.Job(ctx, jobID)
	if err != nil {
		return nil, err
	}
	if job.Status.IsTerminal() {
		return nil, errEnded
	}
	var open []string
	if err := h.st.Triggers(ctx, jobID, false, func(t store.Trigger) error {
		if t.Type == store.TriggerTask {
			open = append(open, t.ID)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	id := given.TriggerID
	switch {
	case len(open) == 0:
		return nil, errNothingAsked
	case id == "" && len(open) > 1:
		return nil, errSeveralAsked(open)
	case id == "":
		id = open[0]
	case !slices.Contains(open, id):
		return nil, errNothingAsked
	}
	return &store.Delivery{TriggerID: id, Status: store.StatusSuccessful, Payload: keys["value"], By: by}, nil
}
