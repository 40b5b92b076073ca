package acp

import (
	"encoding/json"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// The states of a tool call.
const (
	ToolPending    = "pending"
	ToolInProgress = "in_progress"
	ToolCompleted  = "completed"
	ToolFailed     = "failed"
)

// ToolCall is a call of a tool or, in an update, the new fields of one. Fields that were not sent
// are empty.
type ToolCall struct {
	ID        string          `json:"toolCallId"`
	Title     string          `json:"title,omitempty"`
	Kind      string          `json:"kind,omitempty"`
	Status    string          `json:"status,omitempty"`
	Name      string          `json:"name,omitempty"` // unstable in v1; claude sends it
	RawInput  json.RawMessage `json:"rawInput,omitempty"`
	RawOutput json.RawMessage `json:"rawOutput,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
	Locations json.RawMessage `json:"locations,omitempty"`
	Meta      json.RawMessage `json:"_meta,omitempty"`
}

// Merge takes over the fields that an update has. Content and locations are replaced whole, as the
// protocol says.
func (t *ToolCall) Merge(u ToolCall) {
	for _, f := range []struct {
		to   *string
		from string
	}{{&t.ID, u.ID}, {&t.Title, u.Title}, {&t.Kind, u.Kind}, {&t.Status, u.Status}, {&t.Name, u.Name}} {
		if f.from != "" {
			*f.to = f.from
		}
	}
	for _, f := range []struct {
		to   *json.RawMessage
		from json.RawMessage
	}{
		{&t.RawInput, u.RawInput}, {&t.RawOutput, u.RawOutput}, {&t.Content, u.Content},
		{&t.Locations, u.Locations}, {&t.Meta, u.Meta},
	} {
		if !jsonobj.IsNull(f.from) {
			*f.to = f.from
		}
	}
}

// Ended reports whether the call is over.
func (t *ToolCall) Ended() bool { return t.Status == ToolCompleted || t.Status == ToolFailed }

// ToolCalls is the state of the tool calls of a session. It is not safe for concurrent use. The
// zero value is empty.
type ToolCalls struct {
	calls []*ToolCall
	byID  map[string]*ToolCall
}

// Apply applies an update, and returns the call that it is about; nil if it is about none.
//
// An update for a call that was not announced makes it a call of kind "tool" (gemini does so after
// a permission request). A status that the protocol does not know counts as in_progress.
func (s *ToolCalls) Apply(u Update) *ToolCall {
	change, ok := u.ToolCall()
	if !ok {
		return nil
	}
	switch change.Status {
	case "", ToolPending, ToolInProgress, ToolCompleted, ToolFailed:
	default:
		change.Status = ToolInProgress
	}
	t := s.byID[change.ID]
	if t == nil {
		t = &ToolCall{Status: ToolPending}
		if u.Kind == UpdateToolCallUpdate {
			t.Kind, t.Status = "tool", ToolInProgress
		}
		if s.byID == nil {
			s.byID = map[string]*ToolCall{}
		}
		s.calls, s.byID[change.ID] = append(s.calls, t), t
	}
	t.Merge(change)
	return t
}

// All returns the calls, in the order in which they began.
func (s *ToolCalls) All() []*ToolCall { return s.calls }

// Open returns the calls that have not ended. Codex leaves a call open that session/cancel has
// ended.
func (s *ToolCalls) Open() (open []*ToolCall) {
	for _, t := range s.calls {
		if !t.Ended() {
			open = append(open, t)
		}
	}
	return open
}
