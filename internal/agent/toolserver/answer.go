package toolserver

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait"
)

// Decision is a person's answer.
type Decision struct {
	Allowed bool
	// Said is the text in which the agent is told of it.
	Said string
}

// Decide reads an answer: the object that `evalrun approve` and `evalrun deny` send,
// {"approved":true,"reason":…,"data":…}, or a bare boolean or word. Anything that does not approve
// is a denial.
func Decide(d agent.Delivery) Decision {
	if d.Error != nil {
		return Decision{Said: "nobody answered: " + d.Error.Message}
	}
	var bare bool
	if json.Unmarshal(d.Payload, &bare) == nil {
		return Decision{Allowed: bare}
	}
	var word string
	if json.Unmarshal(d.Payload, &word) == nil {
		return Decision{Allowed: isApproval(word), Said: word}
	}
	var answer struct {
		Action   string          `json:"action"`
		Approved *bool           `json:"approved"`
		Reason   string          `json:"reason"`
		Data     json.RawMessage `json:"data"`
	}
	known := json.Unmarshal(d.Payload, &answer) == nil
	if !known || answer.Action == "" && answer.Approved == nil && answer.Reason == "" && answer.Data == nil {
		return Decision{Said: string(d.Payload)} // such as the values of a form
	}
	out := Decision{Allowed: isApproval(answer.Action), Said: answer.Reason}
	if answer.Approved != nil {
		out.Allowed = *answer.Approved
	}
	if len(answer.Data) > 0 && !IsNothing(answer.Data) {
		out.Said = strings.TrimSpace(out.Said + " " + string(answer.Data))
	}
	return out
}

// Elicited returns a person's answer to the questions of a server. Several questions at once are
// answered each under its key, or all with the same answer.
func Elicited(d agent.Delivery, asked wait.Input) suspend.Reply {
	answers, _ := jsonobj.ParseObject(d.Payload)
	questions := asked.Questions()
	keyed := len(questions) > 1 &&
		slices.ContainsFunc(questions, func(q jsonobj.Member) bool { return answers.Has(q.Key) })
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

// elicitResult makes an ElicitResult of an answer. The answer may be the object that `evalrun
// approve` and `evalrun deny` send, whose data is the form's content; the content itself; an
// ElicitResult, which is kept as it is; or anything else that Decide reads.
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
		if !Decide(agent.Delivery{Payload: payload}).Allowed {
			return json.RawMessage(`{"action":"decline"}`)
		}
		if payload = answer.Get("data"); len(payload) == 0 || IsNothing(payload) {
			payload = json.RawMessage("{}")
		}
	}
	return jsonobj.Object{{Key: "action", Value: json.RawMessage(`"accept"`)}, {Key: "content", Value: payload}}.JSON()
}

// IsNothing reports whether a value is null or an empty list.
func IsNothing(value json.RawMessage) bool {
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
