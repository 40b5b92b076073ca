package acpagent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait"
)

// asked is something that a rollout waits for: what a person was asked in the place of the agent's own user, or work. It is kept in the session's record until the answer is there.
type asked struct {
	// Interrupt is the id of the interrupt, made of the kind, the subject and the canonical input: the same request again is the same interrupt.
	Interrupt string `json:"interrupt"`
	// What is "permission", "question" or "work".
	What  string `json:"what"`
	Title string `json:"title"`
	// Server and Tool are those of a permission's call, Note is why an approval of it could be one of another call.
	Server string `json:"server,omitempty"`
	Tool   string `json:"tool,omitempty"`
	Note   string `json:"note,omitempty"`
	// Kind and Input are those of the tool call, or the mode and the schema of a question, or the server that has started work.
	Kind  string          `json:"kind,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	// Work is what a call has started or waits for, ToolCallID the agent's own id of the call, and SpanID the one that evaluators know it by.
	Work       *gateway.Work `json:"work,omitempty"`
	ToolCallID string        `json:"toolCallId,omitempty"`
	SpanID     string        `json:"spanId,omitempty"`
	// whole is Work with what the record does not hold, where that is known.
	whole *gateway.Work
}

const (
	askedPermission = "permission"
	askedQuestion   = "question"
	askedWork       = "work"
)

// newAsked makes the id of a request. The subject is what there is to tell it by beside kind and input; titles may differ from time to time.
func newAsked(what, title, kind, subject string, in json.RawMessage) asked {
	a := asked{What: what, Title: title, Kind: kind, Input: in}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%q\x00%q\x00%s", what, kind, subject, jsonobj.Canonical(in)))
	a.Interrupt = what + "-" + hex.EncodeToString(sum[:8])
	return a
}

// interrupt is what the rollout waits for: a task for a person, or work.
func (a asked) interrupt() (wait.Interrupt, error) {
	if w := cmp.Or(a.whole, a.Work); w != nil {
		spec, err := WorkSpec(*w)
		return wait.Interrupt{ID: a.Interrupt, Specs: []wait.Spec{spec}}, err
	}
	shown := map[string]any{"what": a.What, "title": a.Title, "kind": a.Kind, "input": a.Input}
	for key, value := range map[string]string{"server": a.Server, "tool": a.Tool, "note": a.Note} {
		if value != "" {
			shown[key] = value
		}
	}
	payload, err := json.Marshal(shown)
	return wait.Interrupt{ID: a.Interrupt, Specs: []wait.Spec{{Type: wait.Task, Name: string(wait.Task), Payload: payload}}}, err
}

// decision is what a person answered.
type decision struct {
	allowed bool
	// said is what the agent is told of it.
	said string
}

// decide reads an answer: that of `evalrun approve` and `evalrun deny`, {"approved":true,"reason":…,"data":…}, or a bare boolean or word.
// Whatever is not an approval is none.
func decide(d agent.Delivery) decision {
	if d.Error != nil {
		return decision{said: "nobody answered: " + d.Error.Message}
	}
	var bare bool
	if json.Unmarshal(d.Payload, &bare) == nil {
		return decision{allowed: bare}
	}
	var word string
	if json.Unmarshal(d.Payload, &word) == nil {
		return decision{allowed: isApproval(word), said: word}
	}
	var answer struct {
		Action   string          `json:"action"`
		Approved *bool           `json:"approved"`
		Reason   string          `json:"reason"`
		Data     json.RawMessage `json:"data"`
	}
	known := json.Unmarshal(d.Payload, &answer) == nil
	if !known || answer.Action == "" && answer.Approved == nil && answer.Reason == "" && answer.Data == nil {
		return decision{said: string(d.Payload)} // such as the values of a form
	}
	out := decision{allowed: isApproval(answer.Action), said: answer.Reason}
	if answer.Approved != nil {
		out.allowed = *answer.Approved
	}
	if len(answer.Data) > 0 && !isNothing(answer.Data) {
		out.said = strings.TrimSpace(out.said + " " + string(answer.Data))
	}
	return out
}

// elicited is what a person has answered to the questions of a server. Of several at once each has its answer by its key, or all have the same.
func elicited(d agent.Delivery, asked gateway.Input) gateway.Reply {
	answers, _ := jsonobj.ParseObject(d.Payload)
	questions := asked.Questions()
	keyed := len(questions) > 1 && slices.ContainsFunc(questions, func(q jsonobj.Member) bool { return answers.Has(q.Key) })
	return func(key string, params json.RawMessage) json.RawMessage {
		switch {
		case d.Error != nil:
			return json.RawMessage(`{"action":"cancel"}`)
		case keyed && !answers.Has(key):
			return json.RawMessage(`{"action":"decline"}`)
		case keyed:
			return elicitResult(answers.Get(key), params)
		}
		return elicitResult(d.Payload, params)
	}
}

// elicitResult makes an ElicitResult of an answer: that of `evalrun approve` and `evalrun deny`, with its data as the form's content; the content itself;
// an ElicitResult, as it is; or what else decide reads.
func elicitResult(payload, params json.RawMessage) json.RawMessage {
	form, _ := jsonobj.ParseObject(params)
	properties := form.Object("requestedSchema").Object("properties")
	answer, _ := jsonobj.ParseObject(payload)
	content := slices.DeleteFunc(slices.Clone(answer), func(m jsonobj.Member) bool { return !properties.Has(m.Key) })
	switch ours := answer.Has("action") && answer.Has("approved"); {
	case !ours && len(content) > 0:
		payload = content.JSON()
	case !ours && slices.Contains([]string{"accept", "decline", "cancel"}, answer.Text("action")):
		return payload
	case answer == nil, answer.Has("action"), answer.Has("approved"):
		if !decide(agent.Delivery{Payload: payload}).allowed {
			return json.RawMessage(`{"action":"decline"}`)
		}
		if payload = answer.Get("data"); len(payload) == 0 || isNothing(payload) {
			payload = json.RawMessage("{}")
		}
	}
	return jsonobj.Object{{Key: "action", Value: json.RawMessage(`"accept"`)}, {Key: "content", Value: payload}}.JSON()
}

// isNothing reports whether a value is null or an empty list.
func isNothing(value json.RawMessage) bool {
	text := jsonobj.Canonical(value)
	return text == "null" || text == "[]"
}

func isApproval(word string) bool {
	switch strings.ToLower(strings.TrimSpace(word)) {
	case "approve", "approved", "allow", "allowed", "yes":
		return true
	}
	return false
}

// tell is the sentence about a decision in the prompt that the agent is resumed with.
func (a asked) tell(d decision) string {
	var b strings.Builder
	switch {
	case a.What == askedQuestion:
		fmt.Fprintf(&b, "You asked: %s\nThe answer is:", a.Title)
		if d.said == "" {
			d.said = map[bool]string{true: "yes", false: "no"}[d.allowed]
		}
		return b.String() + " " + d.said
	case d.allowed && a.Note != "":
		fmt.Fprintf(&b, "You asked for permission: %s\nA person would allow it, but %s, so that you will have to ask again.", a.Title, strings.Replace(a.Note, "the agent does", "you do", 1))
	case d.allowed:
		fmt.Fprintf(&b, "You asked for permission: %s\nA person has allowed it. Do it now; the permission is for one call.", a.Title)
	default:
		fmt.Fprintf(&b, "You asked for permission: %s\nIt was denied. Do not try it again; go on without it.", a.Title)
	}
	if d.said != "" {
		fmt.Fprintf(&b, " They said: %s", d.said)
	}
	return b.String()
}
