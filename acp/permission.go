package acp

import (
	"context"
	"encoding/json"
)

const methodPermission = "session/request_permission"

// The kinds of permission options.
const (
	AllowOnce    = "allow_once"
	AllowAlways  = "allow_always"
	RejectOnce   = "reject_once"
	RejectAlways = "reject_always"
)

// PermissionRequest asks whether a tool may be called.
type PermissionRequest struct {
	SessionID string             `json:"sessionId"`
	ToolCall  ToolCall           `json:"toolCall"`
	Options   []PermissionOption `json:"options"`
	Raw       json.RawMessage    `json:"-"`
}

// PermissionOption is an answer to choose from.
type PermissionOption struct {
	ID   string `json:"optionId"`
	Name string `json:"name"`
	Kind string `json:"kind"`
}

// PermissionOutcome is an answer: the id of an option, or, as the zero value, that the turn was
// cancelled.
type PermissionOutcome struct {
	OptionID string
}

// wire returns the result of session/request_permission.
func (o PermissionOutcome) wire() any {
	type outcome struct {
		Outcome  string `json:"outcome"`
		OptionID string `json:"optionId,omitempty"`
	}
	type result struct {
		Outcome outcome `json:"outcome"`
	}
	if o.OptionID == "" {
		return result{outcome{Outcome: "cancelled"}}
	}
	return result{outcome{"selected", o.OptionID}}
}

// Allow allows for as long as possible, for an agent that nobody watches: the option
// "bypassPermissions", else the first allow_always, else the last allow_once, else the first of
// all. This is benchflow's order, so that an agent behaves the same under both; but there
// bypassPermissions is overlooked if it comes after an allow_always, and a request without options
// is answered with one that was not offered, where this is cancelled.
func Allow(options []PermissionOption) PermissionOutcome {
	var choice PermissionOutcome
	rank := 0
	for i, o := range options {
		r := 0
		switch {
		case o.ID == "bypassPermissions":
			r = 4
		case o.Kind == AllowAlways:
			r = 3
		case o.Kind == AllowOnce:
			r = 2
		case i == 0:
			r = 1
		}
		if r > rank || r == rank && r == 2 {
			choice, rank = PermissionOutcome{o.ID}, r
		}
	}
	return choice
}

// Once allows this call and no later one: the first allow_once. It reports false if there is none.
func Once(options []PermissionOption) (PermissionOutcome, bool) {
	return first(options, AllowOnce)
}

// Deny denies: the first reject_once, else the first reject_always, else cancelled.
func Deny(options []PermissionOption) PermissionOutcome {
	if o, ok := first(options, RejectOnce); ok {
		return o
	}
	o, _ := first(options, RejectAlways)
	return o
}

func first(options []PermissionOption, kind string) (PermissionOutcome, bool) {
	for _, o := range options {
		if o.Kind == kind {
			return PermissionOutcome{o.ID}, true
		}
	}
	return PermissionOutcome{}, false
}

// servePermission answers session/request_permission. If the handler fails nothing is allowed.
func (s *server) servePermission(ctx context.Context, params json.RawMessage) (any, error) {
	return serveWith(ctx, params, func(ctx context.Context, req PermissionRequest) (any, error) {
		req.Raw = params
		outcome, err := s.handler.RequestPermission(ctx, req)
		if err != nil {
			outcome = Deny(req.Options)
		}
		return outcome.wire(), nil
	})
}

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
