package mcptask

import (
	"encoding/json"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
)

// Input is what a person has to answer before a call or a task goes on.
type Input struct {
	// Requests is what the server asks, its inputRequests. A task of 2025-11-25 has none: its server asks whoever waits for the result, and only
	// once, so that it is asked when the answer is there. Message is what it says meanwhile.
	Requests json.RawMessage `json:"requests,omitempty"`
	Message  string          `json:"message,omitempty"`
	// State is the requestState of a call that has to be made again with the answers.
	State json.RawMessage `json:"requestState,omitempty"`
	// Sent says that such a call was made again. Whether the server has got it is known when there is a result.
	Sent bool `json:"sent,omitempty"`
}

// inputKey tells a question of a task from everything else that may be delivered.
const inputKey = "evalrun.dev/input"

// Payload is the question as it is delivered to a rollout that waits for a task.
func (in *Input) Payload() (json.RawMessage, error) {
	return json.Marshal(map[string]*Input{inputKey: in})
}

// ReadInput reads what [Input.Payload] has written; nil is any other payload.
func ReadInput(payload json.RawMessage) *Input {
	doc, err := jsonobj.ParseObject(payload)
	if err != nil || !doc.Has(inputKey) {
		return nil
	}
	in := &Input{}
	if json.Unmarshal(doc.Get(inputKey), in) != nil {
		return nil
	}
	return in
}

// InputRequiredError says that a task goes on only with an answer.
type InputRequiredError struct{ Input Input }

// Error implements error.
func (e *InputRequiredError) Error() string { return "the task waits for an answer" }

// Questions are the params of those requests that a person can answer, by their keys.
func (in *Input) Questions() (out jsonobj.Object) {
	requests, _ := jsonobj.ParseObject(in.Requests)
	for _, r := range requests {
		if asked, _ := jsonobj.ParseObject(r.Value); asked.Text("method") == mcp.AskElicitation {
			out = append(out, jsonobj.Member{Key: r.Key, Value: asked.Get("params")})
		}
	}
	return out
}

// InputOf is what the result of a call asks a person; nil for every other result.
func InputOf(result json.RawMessage) *Input {
	o, err := jsonobj.ParseObject(result)
	if err != nil || o.Text("resultType") != "input_required" {
		return nil
	}
	if in := (&Input{Requests: o.Get("inputRequests"), State: o.Get("requestState")}); in.Questions() != nil {
		return in
	}
	return nil
}
