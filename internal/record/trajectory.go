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

// FileTrajectory holds what an agent said, called and used in a segment, one JSON object a line;
// those of all segments make one trajectory.
const FileTrajectory = "trajectory.jsonl"

// Event is one line of a trajectory.
type Event struct {
	Time time.Time `json:"time"`
	// Type is one of the constants below; which of the other fields are set follows from it.
	Type      string `json:"type"`
	SessionID string `json:"sessionId,omitempty"`
	// Text of a prompt, message or thought.
	Text string `json:"text,omitempty"`
	// Call is a tool call, told when it has ended, or when the segment has.
	Call *Call `json:"toolCall,omitempty"`
	// Data is what else there is to say: an object.
	Data json.RawMessage `json:"data,omitempty"`
}

// The types of events.
const (
	EventSession     = "session"     // a session began or was gone on with
	EventPrompt      = "prompt"      // what the agent was asked
	EventMessage     = "message"     // what it said
	EventThought     = "thought"     // what it thought
	EventToolCall    = "tool_call"   // a tool that it called
	EventMCPCall     = "mcp_call"    // a call of a tool as the MCP gateway saw it
	EventPermission  = "permission"  // a request for permission, and the answer
	EventElicitation = "elicitation" // a question, and the answer
	EventPlan        = "plan"
	EventUsage       = "usage"     // as the agent reports it
	EventUpdate      = "update"    // any other update, as it came
	EventLimit       = "limit"     // a limit ended the turn
	EventStop        = "stop"      // the turn ended
	EventSuspended   = "suspended" // the segment ended; what it waits for
	EventResumed     = "resumed"   // the next one began; what had arrived
)

// Call is a tool call of an agent.
type Call struct {
	ID string `json:"toolCallId"`
	// Name of the tool, and Server the MCP server that it belongs to; Server is empty for the
	// agent's own tools.
	Name      string          `json:"name"`
	Server    string          `json:"server,omitempty"`
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

// Trajectory writes the files of a segment that tell what the agent did: the trajectory, and its
// tool calls once more as spans, which is what evaluators and reports read of every kind of agent.
// What the agent does and what is done with it are added concurrently.
type Trajectory struct {
	events, spans *Lines
	now           func() time.Time

	mu sync.Mutex
	// open is the message or thought that is still being said, text its text.
	open Event
	text strings.Builder
	// last is the text of the last message.
	last string
	err  error
}

func OpenTrajectory(dir string, redact func(io.Writer) io.WriteCloser, now func() time.Time) *Trajectory {
	return &Trajectory{events: NewLines(filepath.Join(dir, FileTrajectory), redact), spans: NewLines(filepath.Join(dir, FileTrace), redact), now: now}
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

// LastMessage is the text of the last message, which ends with this.
func (t *Trajectory) LastMessage() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endText()
	return t.last
}

// endText ends the message or thought that is being said. The caller holds mu.
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

// Call adds a tool call that has ended, or will not.
func (t *Trajectory) Call(sessionID string, c Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.endText()
	t.keep(t.events.Append(Event{Time: t.now(), Type: EventToolCall, SessionID: sessionID, Call: &c}))
}

// Span adds a call to what evaluators read.
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

// spanOf is a tool call as the evaluators know it: a span with UiPath's attributes.
func spanOf(c Call) any {
	attributes := map[string]any{"tool.name": c.Name, "tool.call_id": c.ID, "input.value": "{}"}
	if len(c.Input) > 0 {
		attributes["input.value"] = string(c.Input)
	}
	if c.Server != "" {
		attributes["mcp.server"] = c.Server
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

// Text is what the call gave, as a person would read it: the texts of its content, else its output.
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

// Lines writes JSON objects to a file, one a line, through the redaction. The file is made with the
// first.
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

// appendFile is a file that is made, or gone on with, when there is something to write.
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
