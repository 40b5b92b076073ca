package eval

import (
	"strconv"
	"time"
)

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
