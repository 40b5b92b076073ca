package a2a

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait/jsonvalue"
)

// State is the state of a task, spelled as in version 0.3.
type State string

// The states.
const (
	Submitted     State = "submitted"
	Working       State = "working"
	InputRequired State = "input-required"
	AuthRequired  State = "auth-required"
	Completed     State = "completed"
	Failed        State = "failed"
	Rejected      State = "rejected"
	Canceled      State = "canceled"
)

// GoesOn reports whether the agent is at work.
func (s State) GoesOn() bool { return s == Submitted || s == Working }

// Asks reports whether the agent waits for its client.
func (s State) Asks() bool { return s == InputRequired || s == AuthRequired }

// IsTerminal reports whether the task has ended.
func (s State) IsTerminal() bool {
	return s == Completed || s == Failed || s == Rejected || s == Canceled
}

// UnmarshalJSON reads a state in the spelling of either version.
func (s *State) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return err
	}
	text = strings.ToLower(strings.TrimPrefix(text, "TASK_STATE_"))
	*s = State(strings.ReplaceAll(text, "_", "-"))
	return nil
}

// Task is a task as its agent tells it.
type Task struct {
	ID        string `json:"id"`
	ContextID string `json:"contextId"`
	Status    struct {
		State   State    `json:"state"`
		Message *Message `json:"message"`
	} `json:"status"`
	Artifacts []struct {
		Parts []Part `json:"parts"`
	} `json:"artifacts"`
	History []Message `json:"history"`
	// Raw is the whole task.
	Raw json.RawMessage `json:"-"`
}

// Message is a message of the agent or to it.
type Message struct {
	MessageID string `json:"messageId"`
	Parts     []Part `json:"parts"`
}

// Part is a part of a message or an artifact as it is sent: text, data, or a file.
type Part struct {
	Text *string         `json:"text"`
	Data json.RawMessage `json:"data"`
	// File is that of a part which is neither, as the agent has sent it.
	File json.RawMessage `json:"-"`
}

// UnmarshalJSON reads a part of either version.
func (p *Part) UnmarshalJSON(data []byte) error {
	type plain Part
	if err := json.Unmarshal(data, (*plain)(p)); err != nil {
		return err
	}
	if p.Text == nil && len(p.Data) == 0 {
		o, err := jsonobj.ParseObject(data)
		if err != nil {
			return err
		}
		if p.File = o.Get("file"); p.File == nil {
			p.File = o.Delete("kind", "metadata").JSON()
		}
	}
	return nil
}

// ParseTask reads a task.
func ParseTask(raw json.RawMessage) (Task, error) {
	t := Task{Raw: raw}
	if err := json.Unmarshal(raw, &t); err != nil {
		return t, fault.Newf(fault.Protocol, "what the agent gave is no task: %v: %s", jsonobj.Explain(err), jsonvalue.Excerpt(raw))
	}
	switch state := t.Status.State; {
	case t.ID == "":
		return t, fault.Newf(fault.Protocol, "the agent gave a task without an id: %s", jsonvalue.Excerpt(raw))
	case !state.GoesOn() && !state.Asks() && !state.IsTerminal():
		return t, fault.Newf(fault.Protocol, "the agent gave a task in the state %q, which A2A does not have", state)
	}
	return t, nil
}

// Question identifies what a task asks, so that it can be told from what it asks later; empty if it
// asks nothing.
func (t Task) Question() string {
	if !t.Status.State.Asks() {
		return ""
	}
	sum := sha256.Sum256([]byte(jsonobj.Canonical(jsonobj.Get(t.Raw, "status"))))
	return hex.EncodeToString(sum[:16])
}

// Has reports whether the agent has received a message, as far as the task's history tells.
func (t Task) Has(messageID string) bool {
	for _, m := range t.History {
		if m.MessageID == messageID {
			return true
		}
	}
	return false
}

// Texts joins the texts of parts, a line each.
func Texts(parts []Part) string {
	var lines []string
	for _, p := range parts {
		if p.Text != nil {
			lines = append(lines, *p.Text)
		}
	}
	return strings.Join(lines, "\n")
}

// Sent is a message to an agent.
type Sent struct {
	MessageID, ContextID, TaskID string
	Parts                        []Part
	// Headers go with the request.
	Headers map[string]string
}

// Send sends a message. The answer is a task or, of an agent that answers at once, a message: the
// other of the two is nil.
func (p Peer) Send(ctx context.Context, to Interface, m Sent) (*Task, *Message, error) {
	old := to.Version == version03
	message := map[string]any{"messageId": m.MessageID, "role": "ROLE_USER"}
	configuration := map[string]any{"returnImmediately": true}
	if old {
		message["kind"], message["role"] = "message", "user"
		configuration = map[string]any{"blocking": false}
	}
	if m.ContextID != "" {
		message["contextId"] = m.ContextID
	}
	if m.TaskID != "" {
		message["taskId"] = m.TaskID
	}
	var parts []map[string]any
	for _, part := range m.Parts {
		one := map[string]any{}
		kind := "text"
		if part.Text != nil {
			one["text"] = *part.Text
		} else {
			one["data"], kind = part.Data, "data"
		}
		if old {
			one["kind"] = kind
		}
		parts = append(parts, one)
	}
	message["parts"] = parts
	params := to.params(map[string]any{"message": message, "configuration": configuration})
	raw, err := p.do(ctx, to, call{rpc: "SendMessage", old: "message/send", method: http.MethodPost, path: "/message:send",
		params: params, headers: m.Headers})
	if err != nil {
		return nil, nil, err
	}
	return parseReply(raw)
}

func parseReply(raw json.RawMessage) (*Task, *Message, error) {
	o, err := jsonobj.ParseObject(raw)
	if err != nil {
		return nil, nil, noReply(raw)
	}
	task, message := o.Get("task"), o.Get("message")
	switch {
	case task != nil:
	case message != nil:
	case o.Has("parts"):
		message = raw
	default:
		task = raw
	}
	if task != nil {
		t, err := ParseTask(task)
		return &t, nil, err
	}
	m := new(Message)
	if err := json.Unmarshal(message, m); err != nil {
		return nil, nil, noReply(raw)
	}
	return nil, m, nil
}

func noReply(raw json.RawMessage) error {
	return fault.Newf(fault.Protocol, "the agent answered a message with neither a task nor a message: %s",
		jsonvalue.Excerpt(bytes.TrimSpace(raw)))
}

// params adds what requests of every kind have.
func (i Interface) params(all map[string]any) map[string]any {
	if i.Tenant != "" {
		all["tenant"] = i.Tenant
	}
	return all
}

// historyLength is how many messages of a task's history are asked for.
const historyLength = 100

// Get asks for a task.
func (p Peer) Get(ctx context.Context, to Interface, id string) (Task, error) {
	raw, err := p.do(ctx, to, call{rpc: "GetTask", old: "tasks/get", method: http.MethodGet,
		path: "/tasks/" + url.PathEscape(id), query: to.query("historyLength", fmt.Sprint(historyLength)),
		params: to.params(map[string]any{"id": id, "historyLength": historyLength})})
	if err != nil {
		return Task{}, err
	}
	return ParseTask(raw)
}

// Cancel asks the agent to end a task. A task that has ended is no error.
func (p Peer) Cancel(ctx context.Context, to Interface, id string) error {
	_, err := p.do(ctx, to, call{rpc: "CancelTask", old: "tasks/cancel", method: http.MethodPost,
		path: "/tasks/" + url.PathEscape(id) + ":cancel", params: to.params(map[string]any{"id": id})})
	if e := asError(err); e != nil && (e.Code == codeTaskNotFound || e.Code == codeTaskNotCancelable) {
		return nil
	}
	return err
}

// Find looks for the task of a context. known is false if the agent cannot tell.
func (p Peer) Find(ctx context.Context, to Interface, contextID string) (id string, known bool, err error) {
	if to.Version == version03 {
		return "", false, nil
	}
	raw, err := p.do(ctx, to, call{rpc: "ListTasks", method: http.MethodGet, path: "/tasks",
		query: to.query("contextId", contextID), params: to.params(map[string]any{"contextId": contextID})})
	if e := asError(err); e != nil && (e.Code == codeMethodNotFound || e.Code == codeUnsupported) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	var list struct {
		Tasks []struct {
			ID        string `json:"id"`
			ContextID string `json:"contextId"`
		} `json:"tasks"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return "", false, fault.Newf(fault.Protocol, "what the agent gave is no list of tasks: %s", jsonvalue.Excerpt(raw))
	}
	for _, t := range list.Tasks {
		if t.ContextID == contextID {
			return t.ID, true, nil
		}
	}
	return "", true, nil
}

func (i Interface) query(name, value string) url.Values {
	q := url.Values{name: {value}}
	if i.Tenant != "" {
		q.Set("tenant", i.Tenant)
	}
	return q
}
