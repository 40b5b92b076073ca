package acpagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
)

// session begins a session or goes on with one, and returns the text of the prompt.
func (s *segment) session(ctx context.Context) (prompt string, f *fault.Fault, err error) {
	resumePrompt := ""
	if s.conversation.record.SessionID != "" {
		if resumePrompt, err = s.resumption().prompt(ctx); errors.As(err, &f) {
			return "", f, nil
		}
		if err != nil || resumePrompt == "" { // nothing has arrived to tell the agent
			return "", nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.bounds.handshake,
		fault.Newf(fault.Handshake, "the agent did not open its session within %v (handshakeTimeout)", s.bounds.handshake))
	defer cancel()
	params := acp.SessionParams{Cwd: s.seg.Sandbox.Cwd, MCPServers: s.servers.declare(s.caps)}
	var session acp.Session
	if s.conversation.record.SessionID == "" {
		session, err = s.conn.NewSession(ctx, params)
		prompt = s.seg.Prompt
	} else {
		session, prompt, err = s.resumeSession(ctx, params, resumePrompt)
	}
	var broken *historyError
	if errors.As(err, &broken) {
		return "", nil, err
	}
	if err != nil {
		return "", s.openingFault(ctx, err, false), nil
	}
	s.info.SessionID = session.ID
	s.conversation.opened(session.ID)
	s.trail.Add(record.EventSession, session.ID, "", map[string]any{
		"agent": s.info.AgentName, "version": s.info.AgentVersion, "resumedBy": s.info.ResumedBy, "note": s.info.ResumeNote,
	})
	if s.seg.Resume != nil {
		s.trail.Add(record.EventResumed, session.ID, "", s.seg.Deliveries)
	}
	if f := s.chooseModel(ctx, session); f != nil {
		return "", f, nil
	}
	if err := s.configure(ctx); err != nil {
		return "", s.openingFault(ctx, err, false), nil
	}
	return prompt, nil, nil
}

// configure sets the session's mode and options that the entry names.
func (s *segment) configure(ctx context.Context) error {
	if s.entry.Mode != "" {
		if err := s.conn.SetMode(ctx, s.conversation.record.SessionID, s.entry.Mode); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.entry.ConfigOptions)) {
		if _, err := s.conn.SetConfigOption(ctx, s.conversation.record.SessionID, id, s.entry.ConfigOptions[id]); err != nil {
			return err
		}
	}
	return nil
}

// chooseModel chooses the entry's model if the agent lets its client choose. It returns a fault if
// the agent does not offer the model and is not told of it in any other way, since another model
// would be measured. An agent that talks to its provider itself then keeps its own choice.
func (s *segment) chooseModel(ctx context.Context, session acp.Session) *fault.Fault {
	name := s.wantedModel()
	i := slices.IndexFunc(session.ConfigOptions, func(o acp.ConfigOption) bool { return o.Category == acp.CategoryModel })
	if name == "" || i < 0 || s.entry.ConfigOptions[session.ConfigOptions[i].ID] != "" {
		return nil
	}
	option := session.ConfigOptions[i]
	var current string
	_ = json.Unmarshal(option.Current, &current) // a value that is not a string is no model
	offered := option.Values()
	switch {
	case current == name:
		return nil
	case slices.Contains(offered, name):
		if _, err := s.conn.SetConfigOption(ctx, session.ID, option.ID, name); err != nil {
			return s.openingFault(ctx, err, false)
		}
		return nil
	case s.model == nil, s.tellsModel():
		return nil // it may know the same model by another name
	}
	return fault.Newf(fault.Start, "the agent does not offer the model %q of its entry (model.name); it offers: %s",
		name, strings.Join(offered, ", "))
}

// wantedModel returns the model that an entry names. If the agent talks to its provider itself, a
// name that comes from the registry does not count.
func (s *segment) wantedModel() string {
	if s.entry.Model == nil {
		return ""
	}
	base, ok := agent.Registered(cmp.Or(s.entry.Extends, s.entry.Name))
	if s.model == nil && ok && base.Model != nil && base.Model.Name == s.entry.Model.Name {
		return ""
	}
	return s.entry.Model.Name
}

// tellsModel reports whether the entry's environment or a file of it names the model to the agent.
func (s *segment) tellsModel() bool {
	for _, values := range []map[string]string{s.entry.Env, s.entry.Files} {
		for _, value := range values {
			if strings.Contains(value, "{model}") {
				return true
			}
		}
	}
	return false
}

// historyError says that a history cannot be read.
type historyError struct{ error }

// resumeSession resumes a session by the first way that the agent supports and that works. The
// prompt tells what has arrived.
func (s *segment) resumeSession(ctx context.Context, params acp.SessionParams,
	resumePrompt string) (session acp.Session, prompt string, err error) {
	note := ""
	for _, way := range append(slices.Clone(s.entry.ResumeBy), ByReplay) {
		switch {
		case way == ByReplay:
			history, err := s.conversation.transcript()
			if err != nil {
				return session, "", &historyError{err}
			}
			s.info.ResumedBy, s.info.ResumeNote = string(ByReplay), note
			session, err = s.conn.NewSession(ctx, params)
			return session, history + resumePrompt, err
		case s.info.AgentVersion != s.conversation.record.AgentVersion || s.info.AgentName != s.conversation.record.AgentName:
			note = fmt.Sprintf("the session is of %s %s, and this is %s %s", s.conversation.record.AgentName,
				s.conversation.record.AgentVersion, s.info.AgentName, s.info.AgentVersion)
			continue
		case way == ByResume && s.caps.Resume:
			session, err = s.conn.ResumeSession(ctx, s.conversation.record.SessionID, params)
		case way == ByLoad && s.caps.LoadSession:
			s.client.replay(true)
			session, err = s.conn.LoadSession(ctx, s.conversation.record.SessionID, params)
			s.client.replay(false)
		default:
			continue
		}
		if err == nil {
			s.info.ResumedBy, s.info.ResumeNote = string(way), note
			return session, resumePrompt, nil
		}
		var refused *acp.AgentError
		if !errors.As(err, &refused) {
			return session, "", err
		}
		note = fmt.Sprintf("session/%s: %v", way, err)
	}
	return session, "", err // not reached: the last way is a replay
}

// resumption makes the prompt with which the session is resumed.
func (s *segment) resumption() *resumption {
	return &resumption{
		deliveries: s.seg.Deliveries, gateway: s.seg.Gateway, fetchTimeout: s.bounds.fetch, now: s.opts.Now,
		conversation: s.conversation, servers: s.servers, calls: s.calls, permissions: s.permissions,
	}
}
