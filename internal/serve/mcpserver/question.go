package mcpserver

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
)

// questions are the questions of tasks to people.
type questions struct {
	service    *service.Service
	deliveries *deliveries
	log        *slog.Logger
}

// open returns the open questions of a run.
func (s *questions) open(ctx context.Context, runID string) (out []question, err error) {
	err = s.service.Triggers(ctx, runID, false, func(t runner.Trigger) error {
		if t.Open && t.Type == store.TriggerTask {
			out = append(out, question{t.TriggerID, message(t.Payload)})
		}
		return nil
	})
	return out, err
}

// answer delivers a person's answer. A person who does not want to decide leaves the question open.
func (s *questions) answer(ctx context.Context, q *request, one question, response json.RawMessage) error {
	var given struct {
		Action  string `json:"action"`
		Content struct {
			Approved *bool  `json:"approved"`
			Reason   string `json:"reason"`
		} `json:"content"`
	}
	if err := json.Unmarshal(response, &given); err != nil {
		return mcp.Errorf(mcp.CodeInvalidParams, "the answer to %s: expected an ElicitResult: %v", one.triggerID, err)
	}
	switch {
	case given.Action != "accept":
		return nil
	case given.Content.Approved == nil:
		return mcp.Errorf(mcp.CodeInvalidParams, "the answer to %s: expected content.approved, true or false", one.triggerID)
	}
	if _, err := s.deliveries.handIn(ctx, q, one.triggerID,
		runner.Delivery{Payload: decision(*given.Content.Approved, given.Content.Reason)}); err != nil {
		return internal(s.log, "handing in the answer", err)
	}
	return nil
}

// question is an open trigger that asks a person.
type question struct{ triggerID, message string }

// params are the params of an elicitation.
func (one question) params() json.RawMessage {
	return jsonobj.Object{{Key: "mode", Value: json.RawMessage(`"form"`)},
		{Key: "message", Value: jsonobj.Quote(one.message)}, {Key: "requestedSchema", Value: decisionSchema}}.JSON()
}

// maxQuestion is how much is shown of a question without a title, in bytes.
const maxQuestion = 2000

// message extracts the question to a person from the payload of a trigger.
func message(payload json.RawMessage) string {
	o, _ := jsonobj.ParseObject(payload) // other values than objects have no members
	for _, key := range []string{"title", "question", "prompt", "message"} {
		for _, m := range o {
			if text, isText := jsonobj.Unquote(m.Value); isText && text != "" && strings.EqualFold(m.Key, key) {
				return text
			}
		}
	}
	text := strings.ToValidUTF8(string(payload), "")
	if len(text) > maxQuestion {
		text = strings.ToValidUTF8(text[:maxQuestion], "") + "…"
	}
	return text
}

// decisionSchema is the form of an answer.
var decisionSchema = json.RawMessage(`{"type":"object","required":["approved"],"properties":{` +
	`"approved":{"type":"boolean","title":"Approved"},"reason":{"type":"string","title":"Reason"}}}`)

// requests converts questions to the form for a modern client. The keys are the ids of the
// triggers, which are unique in the life of a run.
func requests(asked []question) (out jsonobj.Object) {
	out = jsonobj.Object{}
	for _, one := range asked {
		request := jsonobj.Object{{Key: "method", Value: jsonobj.Quote(mcp.AskElicitation)},
			{Key: "params", Value: one.params()}}
		out = append(out, jsonobj.Member{Key: one.triggerID, Value: request.JSON()})
	}
	return out
}
