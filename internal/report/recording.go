package report

import (
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mock"
	"github.com/evalrun/evalrun/schemas"
)

// recordedMock plays what a call of a tool got in a run, in the format of mocks.
type recordedMock struct {
	Match    recordedMatch    `json:"match"`
	Result   *string          `json:"result,omitempty"`
	Fail     *string          `json:"fail,omitempty"`
	Sequence []recordedAnswer `json:"sequence,omitempty"`
	Refuse   bool             `json:"refuse,omitempty"`
}

type recordedMatch struct {
	Evaluation string          `json:"evaluation,omitempty"`
	Server     string          `json:"server,omitempty"`
	Tool       string          `json:"tool,omitempty"`
	Arguments  json.RawMessage `json:"arguments,omitempty"`
	Exact      bool            `json:"exact,omitempty"`
}

type recordedAnswer struct {
	Result *string `json:"result,omitempty"`
	Fail   *string `json:"fail,omitempty"`
}

func (a recordedAnswer) equal(b recordedAnswer) bool {
	same := func(x, y *string) bool { return x == y || x != nil && y != nil && *x == *y }
	return same(a.Result, b.Result) && same(a.Fail, b.Fail)
}

// WriteMocks writes the calls of MCP tools that the agents of a run have made, with what they got, as
// mocks that play them again. Equal calls of one rollout are a sequence, unless they got the same; of
// several rollouts of an evaluation the one with most of them counts. Any other call is refused.
func (r *Report) WriteMocks(w io.Writer) error {
	type key struct{ evaluation, server, tool, arguments string }
	var order []key
	answers := map[key][]recordedAnswer{}
	err := r.Traced(func(one *schemas.Rollout) error {
		mine := map[key][]recordedAnswer{}
		for _, c := range recordedCalls(one) {
			k := key{one.EvaluationID, c.server, c.tool, jsonobj.Canonical(c.arguments)}
			mine[k] = append(mine[k], c.answer)
			if _, known := answers[k]; !known {
				order = append(order, k)
				answers[k] = nil
			}
		}
		for k, list := range mine {
			if len(list) > len(answers[k]) {
				answers[k] = list
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	mocks := []recordedMock{}
	for _, k := range order {
		m := recordedMock{Match: recordedMatch{Evaluation: k.evaluation, Server: k.server, Tool: k.tool,
			Arguments: json.RawMessage(k.arguments), Exact: true}}
		list := answers[k]
		if slices.ContainsFunc(list, func(a recordedAnswer) bool { return !a.equal(list[0]) }) {
			m.Sequence = list
		} else {
			m.Result, m.Fail = list[0].Result, list[0].Fail
		}
		mocks = append(mocks, m)
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(map[string]any{"mocks": append(mocks, recordedMock{Refuse: true})})
}

// recordedCall is a call with what it got in the end.
type recordedCall struct {
	server, tool string
	arguments    json.RawMessage
	answer       recordedAnswer
	known        bool
}

// recordedCalls returns the calls of MCP tools in the trace of a rollout that have got something. One
// that was seen before and after a suspension counts once.
func recordedCalls(one *schemas.Rollout) (out []recordedCall) {
	if one.AgentExecutionOutput == nil {
		return nil
	}
	places := map[string]int{}
	var calls []recordedCall
	for _, raw := range one.AgentExecutionOutput.Trace.Spans {
		var span struct {
			Status     string `json:"status"`
			Attributes struct {
				Tool   string `json:"tool.name"`
				ID     string `json:"tool.call_id"`
				Server string `json:"mcp.server"`
				Input  string `json:"input.value"`
				Mock   string `json:"evalrun.mock"`
				Output *struct {
					Content string `json:"content"`
				} `json:"output.value"`
			} `json:"attributes"`
		}
		a := &span.Attributes
		if json.Unmarshal(raw, &span) != nil || a.Server == "" || a.Mock == mock.Unmatched || !json.Valid([]byte(a.Input)) {
			continue
		}
		at, seen := places[a.ID]
		if !seen {
			at = len(calls)
			places[a.ID] = at
			calls = append(calls, recordedCall{server: a.Server, tool: a.Tool, arguments: json.RawMessage(a.Input)})
			if tool, ok := strings.CutPrefix(a.Tool, a.Server+"/"); ok { // two servers have it
				calls[at].tool = tool
			}
		}
		if a.Output == nil {
			continue
		}
		calls[at].known, calls[at].answer = true, recordedAnswer{Result: &a.Output.Content}
		if span.Status == "error" {
			text := a.Output.Content
			if text == "" {
				text = "the tool failed"
			}
			calls[at].answer = recordedAnswer{Fail: &text}
		}
	}
	for _, c := range calls {
		if c.known {
			out = append(out, c)
		}
	}
	return out
}
