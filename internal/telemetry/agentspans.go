package telemetry

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	trace "go.opentelemetry.io/proto/slim/otlp/trace/v1"

	"github.com/evalrun/evalrun/internal/wait"
)

// agentSpan is a span as agents write it: in OpenTelemetry's own JSON, or in OTLP's.
type agentSpan struct {
	Name    string `json:"name"`
	Context struct {
		TraceID string `json:"trace_id"`
		SpanID  string `json:"span_id"`
	} `json:"context"`
	TraceID       string          `json:"traceId"`
	SpanID        string          `json:"spanId"`
	ParentID      string          `json:"parent_id"`
	ParentSpanID  string          `json:"parentSpanId"`
	StartTime     json.RawMessage `json:"start_time"`
	EndTime       json.RawMessage `json:"end_time"`
	StartUnixNano json.RawMessage `json:"startTimeUnixNano"`
	EndUnixNano   json.RawMessage `json:"endTimeUnixNano"`
	Attributes    json.RawMessage `json:"attributes"`
	Status        json.RawMessage `json:"status"`

	ResourceSpans []struct {
		ScopeSpans []struct {
			Spans []json.RawMessage `json:"spans"`
		} `json:"scopeSpans"`
	} `json:"resourceSpans"`
}

// readAgentSpans reads a line of a trace, which may be a whole OTLP export.
func readAgentSpans(line json.RawMessage) (out []agentSpan) {
	var s agentSpan
	_ = json.Unmarshal(line, &s) // a field of another type is left out
	if s.ResourceSpans == nil {
		return []agentSpan{s}
	}
	for _, r := range s.ResourceSpans {
		for _, scope := range r.ScopeSpans {
			for _, raw := range scope.Spans {
				out = append(out, readAgentSpans(raw)...)
			}
		}
	}
	return out
}

func (s agentSpan) id() string {
	return strings.TrimPrefix(s.Context.TraceID+s.TraceID, "0x") + " " +
		strings.TrimPrefix(s.Context.SpanID+s.SpanID, "0x")
}

func (s agentSpan) hasID() bool { return s.Context.SpanID+s.SpanID != "" }

func (s agentSpan) parent() string {
	return strings.TrimPrefix(s.Context.TraceID+s.TraceID, "0x") + " " +
		strings.TrimPrefix(s.ParentID+s.ParentSpanID, "0x")
}

// timeOf returns the first of several spellings of a time that is valid.
func timeOf(spellings ...json.RawMessage) time.Time {
	for _, raw := range spellings {
		text := strings.Trim(string(raw), `"`)
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
			return time.Unix(0, n)
		}
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			return at
		}
	}
	return time.Time{}
}

// failed reports whether the status is an error. It is a word, a number, or an object with either.
func (s agentSpan) failed() bool {
	var object struct {
		StatusCode json.RawMessage `json:"status_code"`
		Code       json.RawMessage `json:"code"`
	}
	code := s.Status
	if json.Unmarshal(code, &object) == nil {
		code = append(object.StatusCode, object.Code...)
	}
	word := strings.ToLower(strings.Trim(string(code), `"`))
	return strings.HasSuffix(word, "error") || word == "2"
}

// attributesOf calls f with the attributes of a span in the order in which they are written, from
// an object or from OTLP's list.
func (s agentSpan) attributesOf(f func(key string, value json.RawMessage)) {
	var list []struct {
		Key   string                     `json:"key"`
		Value map[string]json.RawMessage `json:"value"`
	}
	if json.Unmarshal(s.Attributes, &list) == nil {
		for _, one := range list {
			for kind, value := range one.Value {
				if kind == "intValue" {
					value = bytes.Trim(value, `"`)
				}
				f(one.Key, value)
			}
		}
		return
	}
	d := json.NewDecoder(bytes.NewReader(s.Attributes))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return
		}
		f(key.(string), value) // the key of an object
	}
}

// renamed maps attributes of the frameworks whose spans evaluators read to their names in the
// semantic conventions.
var renamed = map[string]string{
	"tool.name":    "gen_ai.tool.name",
	"tool.call_id": "gen_ai.tool.call.id",
	"tool_call.id": "gen_ai.tool.call.id",
}

// contents are attributes that contain inputs or outputs. The semantic conventions record
// them only on request.
var contents = map[string]string{
	"input.value":  "gen_ai.tool.call.arguments",
	"output.value": "gen_ai.tool.call.result",
}

// isPlain reports whether an attribute is sent without a request for inputs and outputs.
func isPlain(key string) bool {
	for _, name := range []string{
		"gen_ai.input.", "gen_ai.output.messages", "gen_ai.prompt", "gen_ai.completion", "gen_ai.system_instructions",
		"gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.tool.definitions", "gen_ai.tool.description",
		"gen_ai.retrieval.", "gen_ai.evaluation.explanation",
	} {
		if strings.HasPrefix(key, name) {
			return false
		}
	}
	return strings.HasPrefix(key, "gen_ai.") || key == "mcp.server" || key == "error.type" || key == "server.address"
}

// agentSpans adds the spans that the agent left in one attempt, below the span of the attempt.
// Their ids are derived, so that those of two segments or of two agents differ.
func (b *builder) agentSpans(lines []json.RawMessage, under *trace.Span, began time.Time) {
	var all []agentSpan
	for _, line := range lines {
		all = append(all, readAgentSpans(b.run.Redact.JSON(line))...)
	}
	ids := map[string][]byte{}
	derived := make([][]byte, len(all))
	for i, s := range all {
		name := fmt.Sprintf("%d", i)
		if s.hasID() {
			name = s.id()
		}
		derived[i] = b.spanID(hex.EncodeToString(under.SpanId) + "/" + name)
		if s.hasID() {
			ids[s.id()] = derived[i]
		}
	}
	for i, s := range all {
		out := &trace.Span{
			TraceId: under.TraceId, SpanId: derived[i], ParentSpanId: under.SpanId, Name: s.Name,
			Kind: trace.Span_SPAN_KIND_INTERNAL,
		}
		if parent, ok := ids[s.parent()]; ok && !bytes.Equal(parent, derived[i]) {
			out.ParentSpanId = parent
		}
		start, end := timeOf(s.StartTime, s.StartUnixNano), timeOf(s.EndTime, s.EndUnixNano)
		if start.IsZero() {
			start = began
		}
		if end.Before(start) {
			end = start
		}
		out.StartTimeUnixNano, out.EndTimeUnixNano = nanos(start), nanos(end)
		b.addAgentAttributes(out, s)
		if s.failed() {
			out.Status = &trace.Status{Code: trace.Status_STATUS_CODE_ERROR}
		}
		b.spans = append(b.spans, out)
	}
}

// addAgentAttributes adds the agent's attributes of a span, and names the call of a tool as the
// semantic conventions do.
func (b *builder) addAgentAttributes(out *trace.Span, s agentSpan) {
	var list attributes
	tool, operation := "", false
	s.attributesOf(func(key string, value json.RawMessage) {
		if name, ok := renamed[key]; ok {
			key = name
		}
		if name, ok := contents[key]; ok && b.content {
			key = name
		}
		switch key {
		case "gen_ai.tool.name":
			_ = json.Unmarshal(value, &tool)
		case "gen_ai.operation.name":
			operation = true
		}
		if b.content || isPlain(key) {
			list.json(key, value)
		}
	})
	if tool != "" && !operation {
		out.Name = "execute_tool " + tool
		list.text("gen_ai.operation.name", "execute_tool")
	}
	out.Attributes = list
}

// spanID derives the span id of a part of the rollout.
func (b *builder) spanID(part string) []byte {
	id := wait.SpanID(b.rv.ID + "/" + part)
	return id[:]
}
