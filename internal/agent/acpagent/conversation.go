package acpagent

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
)

// sessionRecord is the data that the next segment needs to go on with a session.
type sessionRecord struct {
	SessionID string `json:"sessionId"`
	// Sessions are all session ids of this conversation. The last is SessionID: a replay begins a
	// new session.
	Sessions     []string `json:"sessions"`
	AgentName    string   `json:"agentName"`
	AgentVersion string   `json:"agentVersion"`
	Cwd          string   `json:"cwd"`
	// Cost is what the session has cost so far, as the agent reports it.
	Cost float64 `json:"cost,omitempty"`
	// Offered are the MCP servers of which the agent's model was offered tools.
	Offered []string `json:"offered,omitempty"`
	// Pending lists what a person was asked. Approved lists what a person has allowed and the agent
	// has not done yet. Older records have Allowed instead: the interrupts of approvals.
	Pending  []request  `json:"asked,omitempty"`
	Approved []approval `json:"approved,omitempty"`
	Allowed  []string   `json:"allowed,omitempty"`
}

// approvals returns the approvals that earlier segments have left.
func (r *sessionRecord) approvals() []approval {
	all := slices.Clone(r.Approved)
	for _, interrupt := range r.Allowed {
		all = append(all, approval{Interrupt: interrupt})
	}
	return all
}

// readRecord reads the record of the segment before. It is empty if there is none.
func readRecord(history []string) (record sessionRecord, err error) {
	if len(history) == 0 {
		return record, nil
	}
	data, err := os.ReadFile(filepath.Join(history[len(history)-1], FileSession))
	if err != nil {
		return record, fmt.Errorf("the session cannot be resumed: %w", err)
	}
	return record, json.Unmarshal(data, &record)
}

// conversation holds what is known about the agent's session over all segments.
type conversation struct {
	record sessionRecord
	seg    agent.Segment
	redact func(io.Writer) io.WriteCloser
	trail  *record.Trajectory
	calls  *callRecorder
}

// opened notes that the session is open.
func (c *conversation) opened(sessionID string) {
	if sessionID != c.record.SessionID {
		c.record.SessionID = sessionID
		c.record.Sessions = append(c.record.Sessions, sessionID)
	}
	c.calls.opened(sessionID)
}

// write writes the record for the next segment.
func (c *conversation) write(info *record.Info, unused []approval) error {
	if c.record.SessionID == "" {
		return nil
	}
	c.record.AgentName, c.record.AgentVersion, c.record.Cwd = info.AgentName, info.AgentVersion, c.seg.Sandbox.Cwd
	c.record.Approved, c.record.Allowed = unused, nil
	data, err := json.MarshalIndent(c.record, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(c.seg.Dir, FileSession), append(data, '\n'), 0o600)
}

// suspend returns the outcome of a turn in which something has to wait, beside the requests that
// were pending before.
func (c *conversation) suspend(waits []request) agent.Outcome {
	all, known := slices.Clone(c.record.Pending), map[string]bool{}
	for _, a := range all {
		known[a.Interrupt] = true
	}
	for _, a := range waits {
		if known[a.Interrupt] {
			continue
		}
		all = append(all, a)
		if a.Call != nil {
			a.ToolCallID = c.calls.idOf(a.work)
		}
		// The record is a file: it has the words for the next prompt without secrets, and leaves
		// out the arguments of the tool.
		c.record.Pending = append(c.record.Pending, c.recorded(a))
	}
	var interrupts []wait.Interrupt
	for _, a := range all {
		in, err := a.interrupt()
		if err != nil {
			return agent.Outcome{Fault: fault.New(fault.InvalidInterrupt, err.Error())}
		}
		interrupts = append(interrupts, in)
	}
	var pending []map[string]string
	for _, a := range c.record.Pending {
		pending = append(pending, map[string]string{"interrupt": a.Interrupt, "what": a.What, "title": a.Title, "kind": a.Kind,
			"toolCallId": a.ToolCallID})
	}
	c.trail.Add(record.EventSuspended, c.record.SessionID, "", pending)
	return agent.Outcome{Interrupts: interrupts}
}

// recorded returns a pending request as the session's record has it. The record is a file, so it
// holds no secrets. The work that a call has started is in the ledger.
func (c *conversation) recorded(a request) request {
	opts := agent.Options{Redact: c.redact}
	a.Title, a.Input = opts.RedactText(a.Title), nil
	if a.work != nil {
		a.Call = &startedCall{CallID: a.work.CallID}
		if in := a.work.Input; in != nil {
			a.Call.Input = &wait.Input{}
			if len(in.Requests) > 0 {
				a.Call.Input.Requests = c.withoutSecrets(in.Requests)
			}
		}
	}
	return a
}

// withoutSecrets returns a document without secrets. It returns an empty object if nothing of it is
// left.
func (c *conversation) withoutSecrets(doc json.RawMessage) json.RawMessage {
	opts := agent.Options{Redact: c.redact}
	if clean := json.RawMessage(opts.RedactText(string(doc))); json.Valid(clean) {
		return clean
	}
	return json.RawMessage("{}")
}
