package mcptask

import (
	"encoding/json"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait"
)

// InputRequiredError says that a task goes on only with an answer.
type InputRequiredError struct{ Input wait.Input }

// Error implements error.
func (e *InputRequiredError) Error() string { return "the task waits for an answer" }

// InputOf returns the question to a person in the result of a call; nil for every other result.
func InputOf(result json.RawMessage) *wait.Input {
	o, err := jsonobj.ParseObject(result)
	if err != nil || o.Text("resultType") != "input_required" {
		return nil
	}
	if in := (&wait.Input{Requests: o.Get("inputRequests"), State: o.Get("requestState")}); in.Questions() != nil {
		return in
	}
	return nil
}
