package eval

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// ToolCall is one call that an agent made of a tool.
type ToolCall struct {
	Name string `json:"name"`
	// ID is the id of the tool (span attribute tool.id), by which criteria may name it; nil if the span has none.
	ID *string `json:"id,omitempty"`
	// Args is a JSON object, empty if the arguments could not be read.
	Args json.RawMessage `json:"args"`
	// Output is the text of the tool's result.
	Output string `json:"output"`

	args *object
	// callID, spanID and finished serve to tell whether a later span tells the same call again.
	callID   string
	spanID   string
	finished bool
}

// ToolCalls extracts the tool calls from the spans of all segments of a rollout, in order: every span with the attribute
// tool.name that is not marked tool.synthesized. A span is one JSON object with its attributes as an object or as OTLP's
// list of keys and values, or a whole OTLP export (resourceSpans).
//
// A call that is told again counts once, with its later output and in its first position. That is so if both spans
//   - are the same span (trace and span id), or
//   - have the same call id (tool.call_id, tool_call.id or gen_ai.tool.call.id), or
//   - name the same tool with the same arguments, and the earlier one has no output.value, or an empty one, where the
//     later one has some: the agent was suspended in the middle of the call.
//
// Two finished calls of one tool with the same arguments are two calls. The tool's own id (tool.id) does not tell calls
// apart, because UiPath gives it to the tool and not to the call.
func ToolCalls(spans []json.RawMessage) []ToolCall {
	t := callTable{byIdentity: map[string]int{}, open: map[string][]int{}}
	for _, raw := range spans {
		v, err := parseValue(raw)
		if err != nil {
			continue // a torn last line of a trace
		}
		eachSpan(v, t.add)
	}
	out := make([]ToolCall, 0, len(t.calls))
	for _, call := range t.calls {
		if call != nil {
			out = append(out, *call)
		}
	}
	return out
}

// callTable holds the calls seen so far; one that was merged into an earlier one is nil.
type callTable struct {
	calls []*ToolCall
	// byIdentity finds a call by its span or call id, open the unfinished ones by tool and arguments.
	byIdentity map[string]int
	open       map[string][]int
}

func (t *callTable) add(span *object) {
	call := toolCall(span)
	if call == nil {
		return
	}
	at, known := t.find(call)
	if !known {
		at = len(t.calls)
		t.calls = append(t.calls, call)
	} else if earlier := t.calls[at]; call.finished || !earlier.finished {
		t.calls[at] = call
	}
	for _, id := range []string{call.spanID, call.callID} {
		if id != "" {
			t.byIdentity[id] = at
		}
	}
	if key := call.signature(); !known && !call.finished {
		t.open[key] = append(t.open[key], at)
	}
}

// find gives the position of the call that this one repeats. All unfinished spans of the same tool and arguments are
// one call that was suspended several times.
func (t *callTable) find(call *ToolCall) (int, bool) {
	for _, id := range []string{call.spanID, call.callID} {
		if at, ok := t.byIdentity[id]; ok && id != "" {
			return at, true
		}
	}
	if !call.finished || call.callID != "" {
		return 0, false
	}
	key := call.signature()
	first, found := 0, false
	for _, at := range t.open[key] {
		earlier := t.calls[at]
		switch {
		case earlier == nil || earlier.finished || earlier.callID != "":
		case !found:
			first, found = at, true
		default:
			t.calls[at] = nil
			t.forget(at, first)
		}
	}
	delete(t.open, key)
	return first, found
}

// forget makes the ids of a merged call find the call that it was merged into.
func (t *callTable) forget(at, into int) {
	for id, i := range t.byIdentity {
		if i == at {
			t.byIdentity[id] = into
		}
	}
}

// signature is equal for calls of the same tool with the same arguments.
func (c *ToolCall) signature() string {
	id := ""
	if c.ID != nil {
		id = *c.ID
	}
	return c.Name + "\x00" + id + "\x00" + canonical(c.args)
}

// eachSpan calls f for a span, or for each span of an OTLP export.
func eachSpan(v any, f func(*object)) {
	o, ok := v.(*object)
	if !ok {
		return
	}
	for _, key := range []string{"resourceSpans", "scopeSpans", "spans"} {
		if list, ok := o.Values[key].([]any); ok {
			for _, item := range list {
				eachSpan(item, f)
			}
			return
		}
	}
	f(o)
}

// toolCall reads one span; nil if it is not a tool call.
func toolCall(span *object) *ToolCall {
	attributes := attributesOf(span.Values["attributes"])
	name := attributes.Values["tool.name"]
	if !truthy(name) || truthy(attributes.Values["tool.synthesized"]) {
		return nil
	}
	call := &ToolCall{Name: str(name), args: toolArgs(attributes.Values["input.value"])}
	if id := attributes.Values["tool.id"]; id != nil {
		s := str(id)
		call.ID = &s
	}
	args, err := call.args.MarshalJSON()
	if err != nil { // an argument is an infinite number
		args, call.args = json.RawMessage("{}"), newObject()
	}
	call.Args = args
	output := attributes.Values["output.value"]
	call.finished = output != nil && output != ""
	call.Output = toolOutput(output)
	if id, ok := attributes.get("tool.call_id", "tool_call.id", "gen_ai.tool.call.id"); ok && truthy(id) {
		call.callID = "call " + str(id)
	}
	context, ok := span.Values["context"].(*object)
	if !ok {
		context = span
	}
	trace, _ := context.get("traceId", "trace_id")
	id, _ := context.get("spanId", "span_id")
	if truthy(id) {
		call.spanID = fmt.Sprintf("span %s %s", str(trace), str(id))
	}
	return call
}

// attributesOf reads attributes in both forms.
func attributesOf(v any) *object {
	switch v := v.(type) {
	case *object:
		return v
	case []any:
		o := newObject()
		for _, item := range v {
			if pair, ok := item.(*object); ok {
				if key, ok := pair.Values["key"].(string); ok {
					o.set(key, otlpValue(pair.Values["value"]))
				}
			}
		}
		return o
	}
	return newObject()
}

// otlpValue unwraps OTLP's {"stringValue": …} and its kin. A 64-bit integer comes as a string.
func otlpValue(v any) any {
	o, ok := v.(*object)
	if !ok || len(o.Keys) != 1 {
		return nil
	}
	inner := o.Values[o.Keys[0]]
	switch o.Keys[0] {
	case "intValue":
		if s, ok := inner.(string); ok {
			if _, err := strconv.ParseInt(s, 10, 64); err == nil {
				return parseNumber(s)
			}
		}
	case "arrayValue":
		items := []any{}
		if list, ok := inner.(*object); ok {
			values, _ := list.Values["values"].([]any)
			for _, item := range values {
				items = append(items, otlpValue(item))
			}
		}
		return items
	case "kvlistValue":
		if list, ok := inner.(*object); ok {
			return attributesOf(list.Values["values"])
		}
		return newObject()
	}
	return inner
}

// toolArgs reads a call's arguments: an object, or one in a string of JSON or of a Python literal.
func toolArgs(v any) *object {
	if s, ok := v.(string); ok {
		parsed, err := parseValue([]byte(s))
		if err != nil {
			if parsed, err = parseLiteral(s); err != nil {
				return newObject()
			}
		}
		v = parsed
	}
	if o, ok := v.(*object); ok {
		return o
	}
	return newObject()
}

// toolOutput reads a call's output: the content of an object, be it in a string of JSON, or else the text itself.
func toolOutput(v any) string {
	var content any
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		parsed, err := parseValue([]byte(v))
		o, ok := parsed.(*object)
		if err != nil || !ok {
			return v
		}
		content = o.Values["content"]
	case *object:
		content = v.Values["content"]
	default:
		return str(v)
	}
	if !truthy(content) {
		return ""
	}
	return str(content)
}

// truthy is Python's notion of true.
func truthy(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case number:
		return v.Float != 0
	case []any:
		return len(v) > 0
	case *object:
		return len(v.Keys) > 0
	}
	return false
}

// sanitize is what UiPath's runtime makes of a tool's display name.
func sanitize(name string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(name), "_") {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			b.WriteRune(r)
		}
	}
	return b.String()[:min(b.Len(), 64)]
}

// is reports whether criteria that name a tool so mean this call. A call with an id is known by it alone.
func (c *ToolCall) is(key string) bool {
	if c.ID != nil {
		return *c.ID == key
	}
	return sanitize(c.Name) == sanitize(key)
}
