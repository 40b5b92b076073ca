package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// FileTrajectory has what an agent said, called and used in a segment, one JSON object a line.
// The files of all segments make one trajectory.
const FileTrajectory = "trajectory.jsonl"

// Event is one line of a trajectory.
type Event struct {
	Time time.Time `json:"time"`
	// Type is one of the constants below. It determines which of the other fields are set.
	Type      string `json:"type"`
	SessionID string `json:"sessionId,omitempty"`
	// Text is the text of a prompt, message or thought.
	Text string `json:"text,omitempty"`
	// Call is a tool call. It is written when the call has ended, or when the segment has.
	Call *Call `json:"toolCall,omitempty"`
	// Data is an object with everything else.
	Data json.RawMessage `json:"data,omitempty"`
}

// The types of events.
const (
	EventSession     = "session"     // a session began or continued
	EventPrompt      = "prompt"      // the agent got a prompt
	EventMessage     = "message"     // the agent said something
	EventThought     = "thought"     // the agent thought something
	EventToolCall    = "tool_call"   // the agent called a tool
	EventMCPCall     = "mcp_call"    // the MCP gateway saw a call of a tool
	EventPermission  = "permission"  // a request for permission, and the answer
	EventElicitation = "elicitation" // a question, and the answer
	EventPlan        = "plan"
	EventUsage       = "usage"     // the agent reported its use of models
	EventUpdate      = "update"    // any other update, as it came
	EventLimit       = "limit"     // a limit ended the turn
	EventStop        = "stop"      // the turn ended
	EventSuspended   = "suspended" // the segment ended, with what it waits for
	EventResumed     = "resumed"   // the next one began, with what had arrived
)

// Call is a tool call of an agent.
type Call struct {
	ID string `json:"toolCallId"`
	// Name is the name of the tool. Server is its MCP server, empty for the agent's own tools.
	Name   string `json:"name"`
	Server string `json:"server,omitempty"`
	// Mock is the place of the mock that was played in place of the call; empty if none was.
	Mock      string          `json:"mock,omitempty"`
	Title     string          `json:"title,omitempty"`
	Kind      string          `json:"kind,omitempty"`
	Status    string          `json:"status"`
	Input     json.RawMessage `json:"input,omitempty"`
	Output    json.RawMessage `json:"output,omitempty"`
	Content   json.RawMessage `json:"content,omitempty"`
	Locations json.RawMessage `json:"locations,omitempty"`
	StartedAt time.Time       `json:"startedAt"`
	// DurationMs is nil if the call had not ended when the segment did.
	DurationMs *int64 `json:"durationMs,omitempty"`
}

// Trajectory writes the files of a segment that record the agent's actions: the trajectory, and its
// tool calls once more as spans, which evaluators and reports read for every kind of agent.
// Its methods may be called concurrently.
type Trajectory struct {
	events, spans *Lines
	now           func() time.Time

	mu sync.Mutex
	// open is the message or thought that is not complete yet, text its text.
	open Event
	text strings.Builder
	// last is the text of the last message.
	last string
	err  error
}

func OpenTrajectory(dir string, redact func(io.Writer) io.WriteCloser, now func() time.Time) *Trajectory {
	return &Trajectory{
		events: NewLines(filepath.Join(dir, FileTrajectory), redact),
		spans:  NewLines(filepath.Join(dir, FileTrace), redact), now: now,
	}
}

// Say adds to a message or thought.
func (t *Trajectory) Say(kind, sessionID, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open.Type != kind || t.open.SessionID != sessionID {
		t.endText()
		t.open = Event{Time: t.now(), Type: kind, SessionID: sessionID}
	}
	t.text.WriteString(text)
}

// LastMessage ends the current message and returns the text of the last one.
func (t *Trajectory) LastMessage() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endText()
	return t.last
}

// endText ends the current message or thought. The caller holds mu.
func (t *Trajectory) endText() {
	if t.open.Type == "" {
		return
	}
	e := t.open
	e.Text = t.text.String()
	t.open = Event{}
	t.text.Reset()
	if e.Type == EventMessage {
		t.last = e.Text
	}
	t.keep(t.events.Append(e))
}

// Add adds an event with data, which may be nil.
func (t *Trajectory) Add(kind, sessionID, text string, data any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endText()
	e := Event{Time: t.now(), Type: kind, SessionID: sessionID, Text: text}
	if data != nil {
		raw, err := json.Marshal(data)
		t.keep(err)
		e.Data = raw
	}
	t.keep(t.events.Append(e))
}

// Call adds a tool call that has ended, or will not end.
func (t *Trajectory) Call(sessionID string, c Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endText()
	t.keep(t.events.Append(Event{Time: t.now(), Type: EventToolCall, SessionID: sessionID, Call: &c}))
}

// Span adds a call to the spans that evaluators read.
func (t *Trajectory) Span(c Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep(t.spans.Append(spanOf(c)))
}

func (t *Trajectory) keep(err error) {
	if t.err == nil {
		t.err = err
	}
}

func (t *Trajectory) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endText()
	return errors.Join(t.err, t.events.Close(), t.spans.Close())
}

// spanOf converts a tool call for the evaluators: to a span with UiPath's attributes.
func spanOf(c Call) any {
	attributes := map[string]any{"tool.name": c.Name, "tool.call_id": c.ID, "input.value": "{}"}
	if len(c.Input) > 0 {
		attributes["input.value"] = string(c.Input)
	}
	if c.Server != "" {
		attributes["mcp.server"] = c.Server
	}
	if c.Mock != "" {
		attributes["evalrun.mock"] = c.Mock
	}
	if c.Status == "completed" || c.Status == "failed" {
		attributes["output.value"] = map[string]any{"content": c.Text()}
	}
	span := map[string]any{"name": c.Name, "attributes": attributes, "start_time": c.StartedAt}
	if c.DurationMs != nil {
		span["end_time"] = c.StartedAt.Add(time.Duration(*c.DurationMs) * time.Millisecond)
	}
	switch c.Status {
	case "completed":
		span["status"] = "ok"
	case "failed":
		span["status"] = "error"
	}
	return span
}

// Text returns the result of the call for people: the texts of its content, else its output.
func (c Call) Text() string {
	var blocks []struct {
		Content struct {
			Text string `json:"text"`
		} `json:"content"`
	}
	text := ""
	if json.Unmarshal(c.Content, &blocks) == nil {
		for _, b := range blocks {
			text += b.Content.Text
		}
	}
	if text != "" {
		return text
	}
	var s string
	if json.Unmarshal(c.Output, &s) == nil {
		return s
	}
	return string(c.Output)
}

// Lines writes JSON objects to a file, one a line, through the redaction. It makes the file with
// the first line.
type Lines struct {
	buf    *bufio.Writer
	closer []io.Closer
}

func NewLines(path string, redact func(io.Writer) io.WriteCloser) *Lines {
	file := &appendFile{path: path}
	l := &Lines{closer: []io.Closer{file}}
	var w io.Writer = file
	if redact != nil {
		through := redact(file)
		l.closer = []io.Closer{through, file}
		w = through
	}
	l.buf = bufio.NewWriterSize(w, 32<<10)
	return l
}

func (l *Lines) Append(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = l.buf.Write(append(data, '\n'))
	return err
}

func (l *Lines) Close() error {
	err := l.buf.Flush()
	for _, c := range l.closer {
		err = errors.Join(err, c.Close())
	}
	return err
}

// appendFile is a file that is made, or continued, at the first write.
type appendFile struct {
	path string
	file *os.File
}

func (f *appendFile) Write(p []byte) (n int, err error) {
	if f.file == nil {
		if f.file, err = os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
			return 0, err
		}
	}
	return f.file.Write(p)
}

func (f *appendFile) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
