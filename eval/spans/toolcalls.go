package spans

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/eval/pyvalue"
)

// ToolCall is one call that an agent made of a tool.
type ToolCall struct {
	Name string `json:"name"`
	// ID is the id of the tool (span attribute tool.id), by which criteria may name it; nil if the
	// span has none.
	ID *string `json:"id,omitempty"`
	// Args is a JSON object, empty if the arguments could not be read.
	Args json.RawMessage `json:"args"`
	// Output is the text of the tool's result.
	Output string `json:"output"`

	args *pyvalue.Object
	// callID and spanID identify the call and its span, if the span has them; finished is set if there
	// is an output.
	callID   string
	spanID   string
	finished bool
	// segment is the segment in which the call was seen last.
	segment int
	// input and output are the values of the span as they are, nil if it has none; started and
	// ended are its times as History prints them.
	input, output  any
	started, ended string
}

// ToolCalls extracts the tool calls from the spans of a rollout's segments, in order: every span
// with the attribute tool.name that is not marked tool.synthesized. A span is one JSON object with
// its attributes as an object or as OTLP's list of keys and values, or a whole OTLP export
// (resourceSpans).
//
// Each span is a call of its own, unless it tells an earlier one again. Such a call counts once, in
// its first position and with its later output:
//   - the same span (trace and span id) is the same call;
//   - across a suspension, two spans of one tool are one call if they have the same call id
//     (tool.call_id, tool_call.id or gen_ai.tool.call.id), or if neither has an id, their arguments
//     are the same, and the earlier one has no output.value, or an empty one: the agent was
//     suspended in the middle of the call.
//
// Within a segment nothing is joined: a call that failed without an output and was tried again is
// two calls. The tool's own id (tool.id) does not tell calls apart, because UiPath gives it to the
// tool and not to the call.
func ToolCalls(segments [][]json.RawMessage) []ToolCall {
	t := callTable{bySpan: map[string]int{}, seen: map[string][]int{}}
	for _, spans := range segments {
		t.segment++
		for _, raw := range spans {
			v, err := pyvalue.Parse(raw)
			if err != nil {
				continue // a torn last line of a trace
			}
			eachSpan(v, t.add)
		}
	}
	return t.calls
}

// callTable holds the calls seen so far.
type callTable struct {
	calls   []ToolCall
	segment int
	bySpan  map[string]int
	// seen are the calls that a span of a later segment may tell again, by ToolCall.key, oldest
	// first.
	seen map[string][]int
}

func (t *callTable) add(span *pyvalue.Object) {
	call := toolCall(span)
	if call == nil {
		return
	}
	call.segment = t.segment
	key := call.key()
	at, known := t.bySpan[call.spanID]
	if !known {
		at, known = t.earlier(key)
	}
	switch {
	case !known:
		at = len(t.calls)
		t.calls = append(t.calls, *call)
	case call.finished || !t.calls[at].finished:
		call.started = t.calls[at].started
		t.calls[at] = *call
	default:
		t.calls[at].segment = t.segment
	}
	if call.spanID != "" {
		t.bySpan[call.spanID] = at
	}
	if t.calls[at].mayComeAgain() {
		t.seen[key] = append(t.seen[key], at)
	}
}

// earlier takes the oldest call of an earlier segment that has the key.
func (t *callTable) earlier(key string) (at int, found bool) {
	list := t.seen[key]
	for len(list) > 0 && !found {
		at = list[0]
		if t.calls[at].segment == t.segment {
			break
		}
		list, found = list[1:], t.calls[at].mayComeAgain()
	}
	t.seen[key] = list
	return at, found
}

// Arguments returns Args as a value.
func (c *ToolCall) Arguments() *pyvalue.Object { return c.args }

func (c *ToolCall) mayComeAgain() bool { return c.callID != "" || !c.finished }

// key is equal for spans that may be the same call: of the same tool, with the same call id or
// without one and with the same arguments.
func (c *ToolCall) key() string {
	id := ""
	if c.ID != nil {
		id = *c.ID
	}
	if c.callID != "" {
		return c.Name + "\x00" + id + "\x00call\x00" + c.callID
	}
	return c.Name + "\x00" + id + "\x00" + pyvalue.Canonical(c.args)
}

// toolCall reads one span; nil if it is not a tool call.
func toolCall(span *pyvalue.Object) *ToolCall {
	attributes := attributesOf(span.Values["attributes"])
	name := attributes.Values["tool.name"]
	if !pyvalue.Truthy(name) || pyvalue.Truthy(attributes.Values["tool.synthesized"]) {
		return nil
	}
	call := &ToolCall{Name: pyvalue.Str(name), args: toolArgs(attributes.Values["input.value"])}
	if id := attributes.Values["tool.id"]; id != nil {
		s := pyvalue.Str(id)
		call.ID = &s
	}
	call.Args, _ = call.args.MarshalJSON() // every value marshals
	call.input = attributes.Values["input.value"]
	output := attributes.Values["output.value"]
	call.output = output
	call.started, call.ended = spanTimes(span)
	call.finished = output != nil && output != ""
	call.Output = toolOutput(output)
	if id, ok := attributes.Get("tool.call_id", "tool_call.id", "gen_ai.tool.call.id"); ok && pyvalue.Truthy(id) {
		call.callID = pyvalue.Str(id)
	}
	context, ok := span.Values["context"].(*pyvalue.Object)
	if !ok {
		context = span
	}
	trace, _ := context.Get("traceId", "trace_id")
	id, _ := context.Get("spanId", "span_id")
	if pyvalue.Truthy(id) {
		call.spanID = fmt.Sprintf("%s %s", pyvalue.Str(trace), pyvalue.Str(id))
	}
	return call
}

// toolArgs reads a call's arguments: an object, or one in a string of JSON or of a Python literal.
func toolArgs(v any) *pyvalue.Object {
	if s, ok := v.(string); ok {
		parsed, err := pyvalue.ParseJSON(s)
		if err != nil {
			if parsed, err = pyvalue.ParseLiteral(s); err != nil {
				return pyvalue.New()
			}
		}
		v = parsed
	}
	if o, ok := v.(*pyvalue.Object); ok {
		return o
	}
	return pyvalue.New()
}

// toolOutput reads a call's output: the content of an object, also of one in a string of JSON, or
// else the text itself.
func toolOutput(v any) string {
	var content any
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		parsed, err := pyvalue.ParseJSON(v)
		o, ok := parsed.(*pyvalue.Object)
		if err != nil || !ok {
			return v
		}
		content = o.Values["content"]
	case *pyvalue.Object:
		content = v.Values["content"]
	default:
		return pyvalue.Str(v)
	}
	if !pyvalue.Truthy(content) {
		return ""
	}
	return pyvalue.Str(content)
}

// Sanitize does what UiPath's runtime does to a tool's display name.
func Sanitize(name string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(name), "_") {
		if r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			b.WriteRune(r)
		}
	}
	return b.String()[:min(b.Len(), 64)]
}

// Known returns the name by which criteria may call the tool: its id, or if it has none its name.
func (c *ToolCall) Known() string {
	if c.ID != nil {
		return *c.ID
	}
	return c.Name
}

// Is reports whether criteria that name a tool in this way mean this call. A call with an id is
// known by it alone.
func (c *ToolCall) Is(key string) bool {
	if c.ID != nil {
		return *c.ID == key
	}
	return Sanitize(c.Name) == Sanitize(key)
}
