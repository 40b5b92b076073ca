package modelproxy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
)

// answer reads an answer as it passes: one JSON document, several in an array (Gemini without
// alt=sse), or server-sent events. It keeps the parts about usage and end, whatever the size. One
// set of rules reads all four formats, since their names differ.
type answer struct {
	// head is the beginning of the body, for errors that are not JSON.
	head []byte
	// doc holds the members of the document, or of the current event.
	doc    fields
	stream bool
	begun  bool
	line   line

	usage   usage
	metered bool
	// finished is set when the model's answer has ended, and complete when nothing more that
	// matters can follow. fault is the text of a reported error.
	finished, complete bool
	fault              string
}

// line is the position in an event stream.
type line struct {
	// name is the beginning of the line, up to the colon or at most 5 bytes. named is set when it
	// is known, and data when it is "data".
	name        []byte
	named, data bool
	// payload is the beginning of the event's data, for errors.
	payload []byte
	cr      bool
}

// done ends a stream of chat completions. The usage comes before it, but after the finish reason.
const done = "[DONE]"

// wantedOfRequests and wantedOfAnswers have the members that are read, with the number of bytes
// that are kept of each.
var (
	wantedOfRequests = map[string]int{"model": 1 << 10, "tools": 64}
	wantedOfAnswers  = map[string]int{
		"type":  64,
		"usage": 16 << 10, "response.usage": 16 << 10, "message.usage": 16 << 10, "usageMetadata": 16 << 10,
		"error": 8 << 10, "response.error": 8 << 10,
		"choices.finish_reason": 64, "candidates.finishReason": 64, "promptFeedback.blockReason": 64,
	}
)

func (a *answer) write(p []byte) {
	if room := maxRead - len(a.head); room > 0 {
		a.head = append(a.head, p[:min(room, len(p))]...)
	}
	if !a.begun {
		p = bytes.TrimLeft(p, " \t\r\n\ufeff")
		if len(p) == 0 {
			return
		}
		// Not every server says whether it sends JSON or events.
		a.begun, a.stream = true, p[0] != '{' && p[0] != '['
	}
	if a.stream {
		a.lines(p)
		return
	}
	ended := a.doc.ended
	a.doc.write(p)
	if a.doc.ended && !ended {
		a.readMembers()
		a.finished = true
	}
}

// lines reads pieces of an event stream, as the HTML standard has it: lines end with LF, CR or
// both, an empty one ends an event.
func (a *answer) lines(p []byte) {
	for len(p) > 0 {
		if a.line.cr && p[0] == '\n' {
			p = p[1:]
		}
		a.line.cr = false
		end := bytes.IndexAny(p, "\r\n")
		if end < 0 {
			a.text(p)
			return
		}
		a.text(p[:end])
		a.line.cr = p[end] == '\r'
		p = p[end+1:]
		if len(a.line.name) == 0 && !a.line.named {
			a.event()
		}
		a.line.name, a.line.named, a.line.data = a.line.name[:0], false, false
	}
}

// text reads a piece of a line.
func (a *answer) text(p []byte) {
	l := &a.line
	for len(p) > 0 && !l.named {
		if c := p[0]; c == ':' || len(l.name) == 5 {
			l.named, l.data = true, c == ':' && string(l.name) == "data"
		} else {
			l.name = append(l.name, c)
		}
		p = p[1:]
	}
	if !l.data {
		return
	}
	if room := maxRead - len(l.payload); room > 0 {
		l.payload = append(l.payload, p[:min(room, len(p))]...)
	}
	a.doc.write(p)
}

// event takes in the content of an event.
func (a *answer) event() {
	if len(a.line.payload) == 0 {
		return
	}
	if strings.TrimSpace(string(a.line.payload)) == done {
		a.finished, a.complete = true, true
	} else if a.doc.ended { // otherwise the event was cut off
		a.readMembers()
		switch a.doc.text("type") {
		case "message_stop", "response.completed", "response.incomplete":
			a.finished, a.complete = true, true
		case "response.failed", "error":
			// The responses API has an error's members beside its type.
			a.fault, a.complete = cmp.Or(a.fault, errorText(a.line.payload)), true
		}
	}
	a.line.payload = a.line.payload[:0]
	a.doc.reset()
}

// end takes in the rest when the body has ended.
func (a *answer) end() {
	if a.stream {
		a.event()
	}
}

// readMembers reads the members that mean the same in all formats.
func (a *answer) readMembers() {
	for _, name := range []string{"usage", "response.usage", "message.usage", "usageMetadata"} {
		if raw := a.doc.value(name); raw != nil && json.Unmarshal(raw, &a.usage) == nil {
			a.metered = true
		}
	}
	for _, name := range []string{"error", "response.error"} {
		if raw := a.doc.value(name); raw != nil {
			a.fault = errorText(raw)
		}
	}
	for _, name := range []string{"choices.finish_reason", "candidates.finishReason", "promptFeedback.blockReason"} {
		if a.doc.value(name) != nil {
			a.finished = true
		}
	}
}

// errorText returns the text of an error that people should read.
func errorText(raw []byte) string {
	var e struct {
		Message string          `json:"message"`
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
	}
	var text string
	switch {
	case json.Unmarshal(raw, &text) == nil && text != "":
		return text
	case json.Unmarshal(raw, &e) == nil && e.Message != "":
		if e.Type != "" && e.Type != "error" {
			return e.Type + ": " + e.Message
		}
		return e.Message
	}
	return strings.TrimSpace(string(raw))
}

// usage has the counts under the names of all formats. Names that occur in several mean the same in
// them. Later values of an answer replace earlier ones, and values that are not repeated stay.
type usage struct {
	// OpenAI, chat completions. Input and output include the details.
	PromptTokens        int64 `json:"prompt_tokens"`
	PromptTokensDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
	CompletionTokens        int64 `json:"completion_tokens"`
	CompletionTokensDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"completion_tokens_details"`
	// OpenAI, responses; and Anthropic, where the input does not include what the cache read and
	// wrote.
	InputTokens        int64 `json:"input_tokens"`
	InputTokensDetails struct {
		Cached int64 `json:"cached_tokens"`
	} `json:"input_tokens_details"`
	OutputTokens        int64 `json:"output_tokens"`
	OutputTokensDetails struct {
		Reasoning int64 `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	CacheRead     int64 `json:"cache_read_input_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
	// Gemini. The prompt includes what the cache holds of it; the candidates do not include the
	// thoughts.
	Prompt     int64 `json:"promptTokenCount"`
	ToolPrompt int64 `json:"toolUsePromptTokenCount"`
	Cached     int64 `json:"cachedContentTokenCount"`
	Candidates int64 `json:"candidatesTokenCount"`
	Thoughts   int64 `json:"thoughtsTokenCount"`
}

// tokens returns the counts, and whether there are none.
func (a *answer) tokens() (t Tokens, unmetered bool) {
	u := a.usage
	return Tokens{
		InputTokens:       u.PromptTokens + u.InputTokens + u.CacheRead + u.CacheCreation + u.Prompt + u.ToolPrompt,
		CachedInputTokens: u.PromptTokensDetails.Cached + u.InputTokensDetails.Cached + u.CacheRead + u.Cached,
		CacheWriteTokens:  u.CacheCreation,
		OutputTokens:      u.CompletionTokens + u.OutputTokens + u.Candidates + u.Thoughts,
		ReasoningTokens:   u.CompletionTokensDetails.Reasoning + u.OutputTokensDetails.Reasoning + u.Thoughts,
	}, !a.metered
}
