package report

import (
	"bytes"
	"encoding/json"
	"strings"
)

// uipathSpan is a span as UiPath's eval output has it.
type uipathSpan struct {
	Name       string            `json:"name"`
	Status     string            `json:"status"`
	Attributes json.RawMessage   `json:"attributes"`
	ParentName *string           `json:"parent_name"`
	Events     []json.RawMessage `json:"events"`
}

// span has the fields of a span in the spellings of OpenTelemetry's console exporters and of OTLP.
type span struct {
	Name    string `json:"name"`
	Context struct {
		SpanID string `json:"span_id"`
	} `json:"context"`
	SpanID       string            `json:"spanId"`
	ParentID     string            `json:"parent_id"`
	ParentSpanID string            `json:"parentSpanId"`
	Status       json.RawMessage   `json:"status"`
	Attributes   json.RawMessage   `json:"attributes"`
	Events       []json.RawMessage `json:"events"`
}

func (s span) id() string     { return strings.TrimPrefix(s.Context.SpanID+s.SpanID, "0x") }
func (s span) parent() string { return strings.TrimPrefix(s.ParentID+s.ParentSpanID, "0x") }

// uipathSpans turns spans into UiPath's spelling, which has the parent's name in place of ids.
func uipathSpans(raw []json.RawMessage) []uipathSpan {
	parsed := make([]span, len(raw))
	names := map[string]string{}
	for i, line := range raw {
		_ = json.Unmarshal(line, &parsed[i]) // a field of another type is left out
		names[parsed[i].id()] = parsed[i].Name
	}
	out := []uipathSpan{}
	for _, s := range parsed {
		u := uipathSpan{Name: s.Name, Status: s.status(), Attributes: json.RawMessage("{}"), Events: []json.RawMessage{}}
		if bytes.HasPrefix(s.Attributes, []byte("{")) {
			u.Attributes = s.Attributes
		}
		if len(s.Events) > 0 {
			u.Events = s.Events
		}
		if name, ok := names[s.parent()]; ok && s.parent() != "" {
			u.ParentName = &name
		}
		out = append(out, u)
	}
	return out
}

// status is unset, ok or error. Exporters write it as a word, a number, or an object with either.
func (s span) status() string {
	var object struct {
		StatusCode json.RawMessage `json:"status_code"`
		Code       json.RawMessage `json:"code"`
	}
	code := s.Status
	if json.Unmarshal(code, &object) == nil {
		code = append(object.StatusCode, object.Code...)
	}
	word := strings.ToLower(strings.Trim(string(code), `"`))
	switch strings.TrimPrefix(strings.TrimPrefix(word, "statuscode."), "status_code_") {
	case "ok", "1":
		return "ok"
	case "error", "2":
		return "error"
	}
	return "unset"
}
