package acpagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
)

// sessionRecord is what the next segment needs to go on with a session.
type sessionRecord struct {
	SessionID string `json:"sessionId"`
	// Sessions are all ids of this conversation, of which the last is SessionID: a replay begins a new session.
	Sessions     []string `json:"sessions"`
	AgentName    string   `json:"agentName"`
	AgentVersion string   `json:"agentVersion"`
	Cwd          string   `json:"cwd"`
	// Asked is what a person was asked, Approved what one has allowed and the agent has not done yet. Allowed is how older records say that: the interrupts.
	Asked    []asked    `json:"asked,omitempty"`
	Approved []approval `json:"approved,omitempty"`
	Allowed  []string   `json:"allowed,omitempty"`
}

// readHistory reads the record of the segment before.
func (s *segment) readHistory() error {
	if len(s.seg.History) == 0 {
		return nil
	}
	data, err := os.ReadFile(filepath.Join(s.seg.History[len(s.seg.History)-1], FileSession))
	if err != nil {
		return fmt.Errorf("the session cannot be gone on with: %w", err)
	}
	return json.Unmarshal(data, &s.record)
}

// writeRecord writes the record for the next segment.
func (s *segment) writeRecord() error {
	if s.record.SessionID == "" {
		return nil
	}
	s.record.AgentName, s.record.AgentVersion, s.record.Cwd = s.info.AgentName, s.info.AgentVersion, s.seg.Place.Cwd
	s.record.Approved, s.record.Allowed = s.client.unused(), nil
	data, err := json.MarshalIndent(s.record, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.seg.Dir, FileSession), append(data, '\n'), 0o600)
}

// session begins a session or goes on with one, and gives the text of the prompt.
func (s *segment) session(ctx context.Context) (prompt string, f *fault.Fault, err error) {
	news := ""
	if s.record.SessionID != "" {
		if news, err = s.news(ctx); errors.As(err, &f) {
			return "", f, nil
		}
		if err != nil || news == "" { // there is nothing to tell
			return "", nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.bounds.handshake, fault.Newf(fault.Handshake, "the agent did not open its session within %v", s.bounds.handshake))
	defer cancel()
	params := acp.SessionParams{Cwd: s.seg.Place.Cwd, MCPServers: s.servers}
	var session acp.Session
	if s.record.SessionID == "" {
		session, err = s.conn.NewSession(ctx, params)
		prompt = s.seg.Prompt
	} else {
		session, prompt, err = s.goOn(ctx, params, news)
	}
	var broken *historyError
	if errors.As(err, &broken) {
		return "", nil, err
	}
	if err != nil {
		return "", s.fault(ctx, err), nil
	}
	if session.ID != s.record.SessionID {
		s.record.SessionID = session.ID
		s.record.Sessions = append(s.record.Sessions, session.ID)
	}
	s.info.SessionID = session.ID
	s.client.opened(session.ID)
	s.trail.Add(agent.EventSession, session.ID, "", map[string]any{
		"agent": s.info.AgentName, "version": s.info.AgentVersion, "resumedBy": s.info.ResumedBy, "note": s.info.ResumeNote,
	})
	if s.seg.Resume != nil {
		s.trail.Add(agent.EventResumed, session.ID, "", s.seg.Deliveries)
	}
	if err := s.configure(ctx); err != nil {
		return "", s.fault(ctx, err), nil
	}
	return prompt, nil, nil
}

// configure sets what the entry says of the session.
func (s *segment) configure(ctx context.Context) error {
	if s.entry.Mode != "" {
		if err := s.conn.SetMode(ctx, s.record.SessionID, s.entry.Mode); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.entry.ConfigOptions)) {
		if _, err := s.conn.SetConfigOption(ctx, s.record.SessionID, id, s.entry.ConfigOptions[id]); err != nil {
			return err
		}
	}
	return nil
}

// historyError is a history that cannot be read.
type historyError struct{ error }

// goOn goes on with a session by the first way that the agent has and that works. The prompt tells what has arrived.
func (s *segment) goOn(ctx context.Context, params acp.SessionParams, news string) (session acp.Session, prompt string, err error) {
	note := ""
	for _, way := range append(slices.Clone(s.entry.ResumeBy), agent.ByReplay) {
		switch {
		case way == agent.ByReplay:
			history, err := s.transcript()
			if err != nil {
				return session, "", &historyError{err}
			}
			s.info.ResumedBy, s.info.ResumeNote = agent.ByReplay, note
			session, err = s.conn.NewSession(ctx, params)
			return session, history + news, err
		case s.info.AgentVersion != s.record.AgentVersion || s.info.AgentName != s.record.AgentName:
			note = fmt.Sprintf("the session is of %s %s, and this is %s %s", s.record.AgentName, s.record.AgentVersion, s.info.AgentName, s.info.AgentVersion)
			continue
		case way == agent.ByResume && s.client.caps.Resume:
			session, err = s.conn.ResumeSession(ctx, s.record.SessionID, params)
		case way == agent.ByLoad && s.client.caps.LoadSession:
			s.client.replay(true)
			session, err = s.conn.LoadSession(ctx, s.record.SessionID, params)
			s.client.replay(false)
		default:
			continue
		}
		if err == nil {
			s.info.ResumedBy, s.info.ResumeNote = way, note
			return session, news, nil
		}
		var refused *acp.AgentError
		if !errors.As(err, &refused) {
			return session, "", err
		}
		note = fmt.Sprintf("session/%s: %v", way, err)
	}
	return session, "", err // not reached: the last way is a replay
}

// news tells the agent what has arrived for what it waited for. What has not is waited for again; it is empty if that is all.
func (s *segment) news(ctx context.Context) (string, error) {
	waited := s.record.Asked
	s.record.Asked = nil
	var parts []string
	for _, a := range waited {
		d, ok := s.seg.Deliveries[a.Interrupt]
		switch {
		case !ok:
			s.record.Asked = append(s.record.Asked, a)
		case a.Work == nil:
			parts = append(parts, s.tellDecision(a, d))
		default:
			result, again, f := s.result(ctx, &a, d)
			switch {
			case f != nil:
				return "", f
			case again:
				s.record.Asked = append(s.record.Asked, a)
				continue
			}
			if err := s.seg.Gateway.Ledger.Ended(ctx, a.Work.CallID); err != nil {
				return "", err
			}
			parts = append(parts, s.recordResult(a, result))
		}
	}
	if parts == nil && len(s.record.Asked) > 0 {
		return "", nil
	}
	if n := len(s.record.Asked); n > 0 {
		parts = append(parts, fmt.Sprintf("%d more that you wait for will come in a later message.", n))
	}
	return strings.Join(append(parts, "Go on with your work."), "\n\n"), nil
}

// tellDecision notes what a person has allowed, and tells it.
func (s *segment) tellDecision(a asked, d agent.Delivery) string {
	decided := decide(d)
	if decided.allowed && a.What == askedPermission {
		s.client.approve(a, d.TriggerID)
	}
	return a.tell(decided)
}

// recordResult records the result of work as that of the call that has started it, and tells it.
func (s *segment) recordResult(a asked, result json.RawMessage) string {
	told, text, failed := tellResult(a.Work, result)
	call := agent.Call{
		ID: cmp.Or(a.ToolCallID, a.Interrupt), Name: a.Work.Tool, Server: a.Work.Server, Status: "completed", Input: a.Work.Arguments, StartedAt: s.opts.Now().UTC(),
	}
	if failed {
		call.Status = "failed"
	}
	call.Content, _ = json.Marshal([]any{map[string]any{"type": "content", "content": map[string]string{"type": "text", "text": text}}}) // strings always marshal
	s.trail.Call(s.record.SessionID, call)
	s.client.arrivedLate(a, call)
	return told
}

const (
	// maxTranscript is how much of a transcript is replayed, maxResult how much of one tool's result.
	maxTranscript = 100 << 10
	maxResult     = 2 << 10
	// What stands around a transcript. Its own lines are quoted, so that nothing in it can be taken for its end.
	transcriptStart = "This conversation was interrupted and goes on here. What was said and done so far:\n\n"
	transcriptEnd   = "\n\n[end of what was said and done]\n\n"
)

// transcript tells a new session what happened in the conversation before.
func (s *segment) transcript() (string, error) {
	var parts []string
	for _, dir := range s.seg.History {
		f, err := os.Open(filepath.Join(dir, agent.FileTrajectory))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return "", err
		}
		dec := json.NewDecoder(f)
		for {
			var e agent.Event
			if err := dec.Decode(&e); err != nil {
				break // the end, or a torn line
			}
			if text := retell(e); text != "" && slices.Contains(s.record.Sessions, e.SessionID) {
				parts = append(parts, text)
			}
		}
		_ = f.Close() // only read
	}
	text := strings.Join(parts, "\n\n")
	if len(text) > maxTranscript {
		head, tail := text[:maxTranscript/4], text[len(text)-maxTranscript*3/4:]
		text = strings.ToValidUTF8(head, "") + "\n\n[… left out …]\n\n" + strings.ToValidUTF8(tail, "")
	}
	return transcriptStart + "> " + strings.ReplaceAll(text, "\n", "\n> ") + transcriptEnd, nil
}

// retell is an event as a transcript has it; empty for those that it leaves out.
func retell(e agent.Event) string {
	switch e.Type {
	case agent.EventPrompt:
		text := e.Text
		if strings.HasPrefix(text, transcriptStart) { // which had what is told here already
			_, text, _ = strings.Cut(text, transcriptEnd)
		}
		return "User: " + text
	case agent.EventMessage:
		return "You: " + e.Text
	case agent.EventToolCall:
		result := e.Call.Text()
		if len(result) > maxResult {
			result = strings.ToValidUTF8(result[:maxResult], "") + "…"
		}
		return fmt.Sprintf("You called %s %s (%s): %s", e.Call.Name, e.Call.Input, e.Call.Status, result)
	}
	return ""
}
