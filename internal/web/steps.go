package web

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"github.com/evalrun/evalrun/internal/report"
)

// toolCall is a call of a tool as the agent's trace has it.
type toolCall struct {
	Name          string
	From, To      time.Time
	Status        string
	Input, Output json.RawMessage
}

// toolCalls returns the calls of tools among the spans of a trace, if they say when they began.
func toolCalls(d *report.Detail) (out []toolCall) {
	if d.AgentExecutionOutput == nil {
		return nil
	}
	for _, raw := range d.AgentExecutionOutput.Trace.Spans {
		var s struct {
			Name       string                     `json:"name"`
			Start      json.RawMessage            `json:"start_time"`
			End        json.RawMessage            `json:"end_time"`
			StartNano  json.RawMessage            `json:"startTimeUnixNano"`
			EndNano    json.RawMessage            `json:"endTimeUnixNano"`
			Status     json.RawMessage            `json:"status"`
			Attributes map[string]json.RawMessage `json:"attributes"`
		}
		if json.Unmarshal(raw, &s) != nil { // a span in another form is left out
			continue
		}
		name := stringOf(s.Attributes["tool.name"])
		if name == "" && stringOf(s.Attributes["openinference.span.kind"]) == "TOOL" {
			name = s.Name
		}
		from := timeOf(s.Start, s.StartNano)
		if name == "" || from.IsZero() {
			continue
		}
		c := toolCall{
			Name: name, From: from, To: timeOf(s.End, s.EndNano), Status: stringOf(s.Status),
			Input: value(s.Attributes["input.value"]), Output: value(s.Attributes["output.value"]),
		}
		if c.To.Before(c.From) {
			c.To = c.From
		}
		out = append(out, c)
	}
	return out
}

// value returns an attribute as JSON, whether it is a value or a text that contains one.
func value(raw json.RawMessage) json.RawMessage {
	if text := stringOf(raw); text != "" && json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return raw
}

func stringOf(raw json.RawMessage) (text string) {
	_ = json.Unmarshal(raw, &text) // another value has no text
	return text
}

// timeOf reads a time as exporters write it: as text, or in nanoseconds since 1970.
func timeOf(raw, nano json.RawMessage) time.Time {
	if t, err := time.Parse(time.RFC3339Nano, stringOf(raw)); err == nil {
		return t
	}
	for _, one := range []json.RawMessage{nano, raw} {
		text := stringOf(one)
		if text == "" {
			text = string(one)
		}
		if n, err := strconv.ParseFloat(text, 64); err == nil && n > 1e17 && n < math.MaxInt64 {
			return time.Unix(0, int64(n))
		}
	}
	return time.Time{}
}

// evaluations returns the evaluators for which the time of the request is known.
func evaluations(d *report.Detail) (out []stretch) {
	for _, e := range d.EvaluationRunResults {
		if at := e.Result.StartedAt; at != nil && !e.IsLineResult {
			from := at.Truncate(time.Microsecond) // as all other times are kept
			to := from.Add(time.Duration(e.Result.EvaluationTime * float64(time.Second)).Truncate(time.Microsecond))
			out = append(out, stretch{Lane: laneScores, From: from, To: to, Kind: "eval", Label: e.EvaluatorName})
		}
	}
	return out
}
