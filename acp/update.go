package acp

import (
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// The kinds of updates that evalrun looks into. There are others, and agents send kinds of their
// own.
const (
	UpdateUserMessage    = "user_message_chunk"
	UpdateAgentMessage   = "agent_message_chunk"
	UpdateAgentThought   = "agent_thought_chunk"
	UpdateToolCall       = "tool_call"
	UpdateToolCallUpdate = "tool_call_update"
	UpdatePlan           = "plan"
	UpdateCurrentMode    = "current_mode_update"
	UpdateUsage          = "usage_update"
)

// Update is a session/update. Raw is the object "update"; it may be kept, and must not be changed.
type Update struct {
	SessionID string
	Kind      string
	Raw       json.RawMessage
}

// parseUpdate reads the params of session/update. Params without a session or a kind are no update.
func parseUpdate(params json.RawMessage) (u Update, ok bool) {
	jsonobj.Members(params, func(key, value []byte) {
		switch string(key) {
		case "sessionId":
			u.SessionID, _ = jsonobj.Unquote(value)
		case "update":
			u.Raw = value
		}
	})
	jsonobj.Members(u.Raw, func(key, value []byte) {
		if string(key) == "sessionUpdate" {
			u.Kind, _ = jsonobj.Unquote(value)
		}
	})
	return u, u.SessionID != "" && u.Kind != ""
}

// Text returns the text of a message or a thought; false if the update is neither, or holds
// something else than text.
func (u Update) Text() (string, bool) {
	switch u.Kind {
	case UpdateUserMessage, UpdateAgentMessage, UpdateAgentThought:
	default:
		return "", false
	}
	var chunk struct {
		Content ContentBlock `json:"content"`
	}
	err := u.Decode(&chunk)
	return chunk.Content.Text, err == nil && chunk.Content.Type == "text"
}

// ToolCall returns the call of a tool_call or tool_call_update, with only the fields of the update;
// see [ToolCalls].
func (u Update) ToolCall() (t ToolCall, ok bool) {
	if u.Kind != UpdateToolCall && u.Kind != UpdateToolCallUpdate {
		return t, false
	}
	err := u.Decode(&t)
	return t, err == nil && t.ID != ""
}

// Usage says how full the context is, and how much the session has cost.
type Usage struct {
	Used int64 `json:"used"`
	Size int64 `json:"size"`
	Cost *struct {
		Amount   float64 `json:"amount"`
		Currency string  `json:"currency"`
	} `json:"cost"`
}

// Usage reads a usage_update.
func (u Update) Usage() (usage Usage, ok bool) {
	return usage, u.Kind == UpdateUsage && u.Decode(&usage) == nil
}

// PlanEntry is a task that an agent means to do.
type PlanEntry struct {
	Content  string `json:"content"`
	Priority string `json:"priority"`
	Status   string `json:"status"`
}

// Plan reads a plan, which replaces the one before it.
func (u Update) Plan() (entries []PlanEntry, ok bool) {
	var plan struct {
		Entries []PlanEntry `json:"entries"`
	}
	if u.Kind != UpdatePlan || u.Decode(&plan) != nil {
		return nil, false
	}
	return plan.Entries, true
}

// CurrentMode reads a current_mode_update.
func (u Update) CurrentMode() (modeID string, ok bool) {
	var mode struct {
		ID string `json:"currentModeId"`
	}
	if u.Kind != UpdateCurrentMode || u.Decode(&mode) != nil {
		return "", false
	}
	return mode.ID, mode.ID != ""
}

// Decode decodes the update into v. A field of a wrong type is left out; the rest is still read.
func (u Update) Decode(v any) error { return decode(u.Raw, v) }

func decode(raw json.RawMessage, v any) error {
	err := json.Unmarshal(raw, v)
	var wrongType *json.UnmarshalTypeError
	if errors.As(err, &wrongType) && wrongType.Field != "" {
		return nil
	}
	return err
}

// sessionIDOf returns the sessionId of an object, or "".
func sessionIDOf(raw json.RawMessage) (id string) {
	jsonobj.Members(raw, func(key, value []byte) {
		if string(key) == "sessionId" {
			id, _ = jsonobj.Unquote(value)
		}
	})
	return id
}
