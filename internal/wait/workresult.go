package wait

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// WorkResult is the end of work: a result or an error of MCP, raw.
type WorkResult struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

// The keys that tell what evalrun delivers itself from everything else that may be delivered.
const (
	resultKey = "evalrun.dev/outcome"
	inputKey  = "evalrun.dev/input"
)

// Payload is the result as it is delivered.
func (r *WorkResult) Payload() (json.RawMessage, error) {
	return json.Marshal(map[string]*WorkResult{resultKey: r})
}

// ReadWorkResult reads what [WorkResult.Payload] has written; nil is any other payload.
func ReadWorkResult(payload json.RawMessage) *WorkResult {
	doc, err := jsonobj.ParseObject(payload)
	if err != nil {
		return nil
	}
	inner := doc.Object(resultKey)
	switch {
	case !jsonobj.IsNull(inner.Get("error")):
		return &WorkResult{Error: inner.Get("error")}
	case !jsonobj.IsNull(inner.Get("result")):
		return &WorkResult{Result: inner.Get("result")}
	}
	return nil
}

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

// Ending says how to get the result of a job that is done.
type Ending struct {
	// Fetch says that its server is asked for the result; else Text is the result.
	Fetch bool
	Text  string
}

// EndingOf reads a job as Orchestrator gives it. The result of a job that has faulted is its info,
// and without a key there is nothing to fetch. The results of jobs that were stopped or cancelled
// are fetched like those of jobs that succeeded, as UiPath's LangGraphJobExecutor does.
func EndingOf(tool string, j JobHandle, payload json.RawMessage) Ending {
	var state, info string
	o, _ := jsonobj.ParseObject(payload)
	for _, m := range o {
		text, _ := jsonobj.Unquote(m.Value)
		switch strings.ToLower(m.Key) {
		case "state":
			state = text
		case "info":
			info = text
		}
	}
	if strings.EqualFold(state, "faulted") {
		if info == "" {
			info = fmt.Sprintf("Job for tool '%s' faulted", tool)
		}
		return Ending{Text: info}
	}
	if j.Key == "" || j.FolderKey == "" {
		if info == "" {
			info = fmt.Sprintf("Job for tool '%s' returned no key to fetch its result", tool)
		}
		return Ending{Text: info}
	}
	return Ending{Fetch: true}
}
