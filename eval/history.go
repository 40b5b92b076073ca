package eval

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// runHistory is the text by which UiPath's judges know what an agent did: its tool calls in their
// order. UiPath prints local time; here it is UTC, so that a prompt does not depend on the machine.
func runHistory(segments [][]json.RawMessage) string {
	var lines []string
	for _, call := range ToolCalls(segments) {
		result, arguments := "{}", "{}" // as UiPath prints what is missing
		if call.output != nil {
			result = strings.TrimSpace(str(call.output))
		}
		if call.input != nil {
			arguments = str(call.input)
		}
		lines = append(lines, "["+call.started+"] LLM Response:", "  Agent Selected 1 Tool(s):", "", "  Tool: "+call.Name,
			"  Arguments: "+arguments, "", "["+call.ended+"] Tool Call Response - "+call.Name+":", result, "")
	}
	return strings.Join(lines, "\n")
}

// spanTimes are the times of a span as runHistory prints them: those of OTLP in nanoseconds, or of
// OpenTelemetry's own JSON. One without an end ends when it starts.
func spanTimes(span *object) (start, end string) {
	start, end = spanTime(span, "startTimeUnixNano", "startTime", "start_time"), spanTime(span, "endTimeUnixNano", "endTime", "end_time")
	if end == "" {
		end = start
	}
	return start, end
}

func spanTime(span *object, names ...string) string {
	v, _ := span.get(names...)
	var at time.Time
	switch v := v.(type) {
	case number:
		nanos, err := strconv.ParseInt(v.Text, 10, 64)
		if err != nil {
			return ""
		}
		at = time.Unix(0, nanos)
	case string:
		if nanos, err := strconv.ParseInt(v, 10, 64); err == nil {
			at = time.Unix(0, nanos)
		} else if at, err = time.Parse(time.RFC3339Nano, v); err != nil {
			return ""
		}
	default:
		return ""
	}
	return at.UTC().Format(time.DateTime)
}
