package spans

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/pyvalue"
)

// Usage returns the use of models that the spans of a trace report, by model: OpenTelemetry's
// attributes gen_ai.usage.input_tokens and gen_ai.usage.output_tokens (formerly prompt_tokens and
// completion_tokens), and gen_ai.usage.cache_read.input_tokens, which are part of the input.
//
// A span counts once, the last one of an id, and one whose id is in seen does not count; the ids of
// those that count are added to seen. A span around others that report their usage has their sum,
// and is left out.
func Usage(spans []json.RawMessage, seen map[string]bool) []eval.Usage {
	var t usageTable
	for _, raw := range spans {
		if v, err := pyvalue.Parse(raw); err == nil { // else it is a torn last line
			eachSpan(v, t.add)
		}
	}
	return t.sum(seen)
}

// ModelCalls counts the calls of models in the spans of a rollout's segments: those that report their
// use and are around no other such span.
func ModelCalls(segments [][]json.RawMessage) int {
	var t usageTable
	for _, spans := range segments {
		for _, raw := range spans {
			if v, err := pyvalue.Parse(raw); err == nil { // else it is a torn last line
				eachSpan(v, t.add)
			}
		}
	}
	around, n := t.around(), 0
	for _, key := range t.order {
		if !around[key] {
			n++
		}
	}
	return n
}

// TellUsage reports whether spans may report the use of models. It is quick.
func TellUsage(spans []json.RawMessage) bool {
	for _, raw := range spans {
		if bytes.Contains(raw, []byte("gen_ai.usage.")) {
			return true
		}
	}
	return false
}

// usageTable holds the spans of a trace.
type usageTable struct {
	// parents maps the ids of spans to their parents; used is by id too, and order has its ids.
	parents map[string]string
	used    map[string]eval.Usage
	order   []string
}

func (t *usageTable) add(span *pyvalue.Object) {
	if t.parents == nil {
		t.parents, t.used = map[string]string{}, map[string]eval.Usage{}
	}
	context, ok := span.Values["context"].(*pyvalue.Object)
	if !ok {
		context = span
	}
	trace, _ := context.Get("traceId", "trace_id")
	id, _ := context.Get("spanId", "span_id")
	parent, _ := span.Get("parentSpanId", "parent_id", "parentId", "parent_span_id")
	key := fmt.Sprintf("span %d", len(t.order)) // without an id it is a span of its own
	if pyvalue.Truthy(id) {
		key = pyvalue.Str(trace) + " " + pyvalue.Str(id)
		t.parents[key] = ""
		if pyvalue.Truthy(parent) {
			t.parents[key] = pyvalue.Str(trace) + " " + pyvalue.Str(parent)
		}
	}
	attributes := attributesOf(span.Values["attributes"])
	input, hasInput := count(attributes, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
	output, hasOutput := count(attributes, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
	if !hasInput && !hasOutput {
		return
	}
	u := eval.Usage{InputTokens: input, OutputTokens: output}
	u.CachedInputTokens, _ = count(attributes, "gen_ai.usage.cache_read.input_tokens",
		"gen_ai.usage.cache_read_input_tokens")
	u.InputTokens = max(u.InputTokens, u.CachedInputTokens)
	for _, name := range []string{"gen_ai.request.model", "gen_ai.response.model"} {
		if model, ok := attributes.Values[name].(string); ok && u.Model == "" {
			u.Model = model
		}
	}
	if _, again := t.used[key]; !again {
		t.order = append(t.order, key)
	}
	t.used[key] = u
}

// count returns the first of the attributes that is a count.
func count(o *pyvalue.Object, names ...string) (n int64, ok bool) {
	v, _ := o.Get(names...)
	switch v := v.(type) {
	case pyvalue.Number:
		if v.Float >= 0 && v.Float < math.MaxInt64/1024 {
			return int64(v.Float), true
		}
	case string: // OTLP's JSON has 64-bit integers as strings
		if parsed := pyvalue.ParseNumber(v); json.Valid([]byte(v)) && parsed.Float >= 0 &&
			parsed.Float < math.MaxInt64/1024 {
			return int64(parsed.Float), true
		}
	}
	return 0, false
}

// around returns the spans around others that report their usage.
func (t *usageTable) around() map[string]bool {
	around := map[string]bool{}
	for _, key := range t.order {
		for parent := t.parents[key]; parent != "" && !around[parent]; parent = t.parents[parent] {
			around[parent] = true
		}
	}
	return around
}

// sum leaves out the spans around others, and those that were counted before.
func (t *usageTable) sum(seen map[string]bool) []eval.Usage {
	around := t.around()
	var all []eval.Usage
	for _, key := range t.order {
		if !around[key] && !seen[key] {
			all = append(all, t.used[key])
		}
		if _, identified := t.parents[key]; identified {
			seen[key] = true
		}
	}
	return eval.MergeUsage(all...)
}
