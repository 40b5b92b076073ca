// Package spans reads the spans of an agent's trace: its calls of tools, a history of these for
// judges, and its use of models. It knows no files and no evaluators.
package spans

import (
	"strconv"
	"time"

	"github.com/evalrun/evalrun/eval/pyvalue"
)

// eachSpan calls f for a span, or for each span of an OTLP export.
func eachSpan(v any, f func(*pyvalue.Object)) {
	o, ok := v.(*pyvalue.Object)
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

// attributesOf reads attributes in both forms.
func attributesOf(v any) *pyvalue.Object {
	switch v := v.(type) {
	case *pyvalue.Object:
		return v
	case []any:
		o := pyvalue.New()
		for _, item := range v {
			if pair, ok := item.(*pyvalue.Object); ok {
				if key, ok := pair.Values["key"].(string); ok {
					o.Set(key, otlpValue(pair.Values["value"]))
				}
			}
		}
		return o
	}
	return pyvalue.New()
}

// otlpValue unwraps OTLP's {"stringValue": …} and its kin. A 64-bit integer comes as a string.
func otlpValue(v any) any {
	o, ok := v.(*pyvalue.Object)
	if !ok || len(o.Keys) != 1 {
		return nil
	}
	inner := o.Values[o.Keys[0]]
	switch o.Keys[0] {
	case "intValue":
		if s, ok := inner.(string); ok {
			if _, err := strconv.ParseInt(s, 10, 64); err == nil {
				return pyvalue.ParseNumber(s)
			}
		}
	case "arrayValue":
		items := []any{}
		if list, ok := inner.(*pyvalue.Object); ok {
			values, _ := list.Values["values"].([]any)
			for _, item := range values {
				items = append(items, otlpValue(item))
			}
		}
		return items
	case "kvlistValue":
		if list, ok := inner.(*pyvalue.Object); ok {
			return attributesOf(list.Values["values"])
		}
		return pyvalue.New()
	}
	return inner
}

// spanTimes are the times of a span as runHistory prints them: those of OTLP in nanoseconds, or of
// OpenTelemetry's own JSON. One without an end ends when it starts.
func spanTimes(span *pyvalue.Object) (start, end string) {
	start, end = spanTime(span, "startTimeUnixNano", "startTime", "start_time"),
		spanTime(span, "endTimeUnixNano", "endTime", "end_time")
	if end == "" {
		end = start
	}
	return start, end
}

func spanTime(span *pyvalue.Object, names ...string) string {
	v, _ := span.Get(names...)
	var at time.Time
	switch v := v.(type) {
	case pyvalue.Number:
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
