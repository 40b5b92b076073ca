package acp

import (
	"context"
	"encoding/json"
)

// The answers to an elicitation.
const (
	ElicitAccept  = "accept"
	ElicitDecline = "decline"
	ElicitCancel  = "cancel"
)

// ElicitationRequest asks a person for something: to fill in a form, or to visit a page.
type ElicitationRequest struct {
	SessionID string          `json:"sessionId"` // empty if asked outside a session
	Mode      string          `json:"mode"`      // "form" or "url"
	Message   string          `json:"message"`
	Schema    json.RawMessage `json:"requestedSchema"`
	URL       string          `json:"url"`
	Raw       json.RawMessage `json:"-"`
}

// ElicitationResult is the answer of the person.
type ElicitationResult struct {
	Action  string          `json:"action"`
	Content json.RawMessage `json:"content,omitempty"` // of ElicitAccept
}

func (s *server) serveElicitation(ctx context.Context, params json.RawMessage) (any, error) {
	return serveWith(ctx, params, func(ctx context.Context, req ElicitationRequest) (any, error) {
		req.Raw = params
		result, err := s.opts.Elicit(ctx, req)
		if err != nil {
			return ElicitationResult{Action: ElicitCancel}, nil
		}
		return result, nil
	})
}
