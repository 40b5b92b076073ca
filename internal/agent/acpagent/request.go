package acpagent

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/internal/agent/toolserver"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait"
)

// request is something that a rollout waits for: a question to a person in the place of the agent's
// own user, or work. It is kept in the session's record until the answer is there.
type request struct {
	// Interrupt is the id of the interrupt, made of the kind, the subject and the canonical input:
	// the same request again is the same interrupt.
	Interrupt string `json:"interrupt"`
	// What is "permission", "question" or "work".
	What  string `json:"what"`
	Title string `json:"title"`
	// Server and Tool belong to a permission's call. Note says why an approval of it could be meant
	// for another call.
	Server string `json:"server,omitempty"`
	Tool   string `json:"tool,omitempty"`
	Note   string `json:"note,omitempty"`
	// Kind and Input are the kind and input of a tool call, or the mode and schema of a question.
	// Of work, Kind is the server that has started it.
	Kind  string          `json:"kind,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// Call is the call whose work the rollout waits for. ToolCallID is the agent's own id of the
	// call, and SpanID the id that evaluators know.
	Call       *startedCall `json:"work,omitempty"`
	ToolCallID string       `json:"toolCallId,omitempty"`
	SpanID     string       `json:"spanId,omitempty"`
	// work is the work that the call has started, as the ledger has it.
	work *wait.Work
}

// startedCall refers to a call in the ledger. Only the ledger knows what the call has started.
type startedCall struct {
	CallID string `json:"callId"`
	// Input is what a person was asked. The server may ask something else by now.
	Input *wait.Input `json:"input,omitempty"`
}

const (
	requestPermission = "permission"
	requestQuestion   = "question"
	requestWork       = "work"
)

// newRequest makes the id of a request. The subject identifies it beside kind and input, since
// titles may vary.
func newRequest(what, title, kind, subject string, in json.RawMessage) request {
	a := request{What: what, Title: title, Kind: kind, Input: in}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%q\x00%q\x00%s", what, kind, subject, jsonobj.Canonical(in)))
	a.Interrupt = what + "-" + hex.EncodeToString(sum[:8])
	return a
}

// requestOf returns the request for work that a call has started.
func requestOf(w wait.Work) request {
	id := "call-" + w.CallID // evaluators know the call by it, too
	return request{Interrupt: id, What: requestWork, Title: w.Tool, Kind: w.Server, Call: &startedCall{CallID: w.CallID},
		work: &w, SpanID: id}
}

// interrupt returns the interrupt for which the rollout waits: a task for a person, or work.
func (a request) interrupt() (wait.Interrupt, error) {
	if a.Call != nil {
		w := *a.work
		if w.Input == nil {
			w.Input = a.Call.Input
		}
		spec, err := w.Spec()
		return wait.Interrupt{ID: a.Interrupt, Specs: []wait.Spec{spec}}, err
	}
	shown := map[string]any{"what": a.What, "title": a.Title, "kind": a.Kind, "input": a.Input}
	if a.Note != "" {
		shown[wait.WithoutEffect] = true
	}
	for key, value := range map[string]string{"server": a.Server, "tool": a.Tool, "note": a.Note} {
		if value != "" {
			shown[key] = value
		}
	}
	payload, err := json.Marshal(shown)
	return wait.Interrupt{ID: a.Interrupt,
		Specs: []wait.Spec{{Type: wait.TypeTask, Name: string(wait.TypeTask), Payload: payload}}}, err
}

// tell returns the text about a decision in the prompt with which the agent is resumed.
func (a request) tell(d toolserver.Decision) string {
	var b strings.Builder
	switch {
	case a.What == requestQuestion:
		fmt.Fprintf(&b, "You asked: %s\nThe answer is:", a.Title)
		if d.Said == "" {
			d.Said = map[bool]string{true: "yes", false: "no"}[d.Allowed]
		}
		return b.String() + " " + d.Said
	case d.Allowed && a.Note != "":
		fmt.Fprintf(&b, "You asked for permission: %s\nA person would allow it, but %s, so that you will have to ask again.",
			a.Title, strings.Replace(a.Note, "the agent does", "you do", 1))
	case d.Allowed:
		fmt.Fprintf(&b, "You asked for permission: %s\nA person has allowed it. Do it now; the permission is for one call.",
			a.Title)
	default:
		fmt.Fprintf(&b, "You asked for permission: %s\nIt was denied. Do not try it again; go on without it.", a.Title)
	}
	if d.Said != "" {
		fmt.Fprintf(&b, " They said: %s", d.Said)
	}
	return b.String()
}
