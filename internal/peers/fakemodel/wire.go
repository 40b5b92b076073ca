package fakemodel

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// format is one of the four wire formats.
type format struct {
	api string
	// matches reports whether a path belongs to this format.
	matches func(path string) bool
	// read reads a request, write answers it.
	read  func(body []byte, r *Request) error
	write func(*reply)
}

var formats = []*format{
	{OpenAIChat, suffix("/chat/completions"), readChat, writeChat},
	{OpenAIResponses, suffix("/responses"), readResponses, writeResponses},
	{AnthropicMessages, suffix("/messages"), readMessages, writeMessages},
	{Gemini, func(p string) bool { return suffix(":generateContent")(p) || suffix(":streamGenerateContent")(p) },
		readGemini, writeGemini},
}

func suffix(end string) func(string) bool {
	return func(p string) bool { return strings.HasSuffix(p, end) }
}

// recognise returns the format of a request, or nil if it is no call.
func recognise(r *http.Request) *format {
	for _, f := range formats {
		if r.Method == http.MethodPost && f.matches(r.URL.Path) {
			return f
		}
	}
	return nil
}

// reply is an answer on its way.
type reply struct {
	w      http.ResponseWriter
	req    Request
	answer answer
	// id distinguishes the ids of this answer from those of others.
	id int
	// array is set if Gemini streams a JSON array.
	array bool
}

func (r *reply) name(prefix string) string { return fmt.Sprintf("%s_%06d", prefix, r.id) }

// args are a call's arguments as JSON text.
func (r *reply) args() string { return string(r.answer.call.Args) }

// halves are the text in two pieces, so that a stream has several.
func (r *reply) halves() []string {
	runes := []rune(r.answer.text)
	return []string{string(runes[:len(runes)/2]), string(runes[len(runes)/2:])}
}

// object is a JSON object.
type object map[string]any

// event sends one event of a stream, with its name if that is not empty.
func (r *reply) event(name string, data any) {
	text, ok := data.(string)
	if !ok {
		raw, _ := json.Marshal(data) // of maps and strings
		text = string(raw)
	}
	if name != "" {
		text = "event: " + name + "\ndata: " + text
	} else {
		text = "data: " + text
	}
	r.send("text/event-stream", text+"\n\n")
}

// send writes and flushes a piece.
func (r *reply) send(contentType, text string) {
	r.w.Header().Set("Content-Type", contentType)
	// A client that has gone reads nothing.
	_, _ = r.w.Write([]byte(text))
	_ = http.NewResponseController(r.w).Flush()
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // a client that has gone reads nothing
}

// writeError answers in a shape that the clients of all formats read, and returns the status.
func writeError(w http.ResponseWriter, status int, message string) int {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object{"type": "error", "error": object{
		"type": "api_error", "message": message, "code": status,
		"status": strings.ToUpper(strings.ReplaceAll(http.StatusText(status), " ", "_")),
	}})
	return status
}

// content is what all formats allow in place of a text: a string, or a list of parts.
type content string

// UnmarshalJSON implements json.Unmarshaler. Parts that are no text are left out.
func (c *content) UnmarshalJSON(raw []byte) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		*c = content(text)
		return nil
	}
	var parts []struct {
		Text    string  `json:"text"`
		Content content `json:"content"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		*c = content(raw) // an object: shown as it is
		return nil        //nolint:nilerr // see above
	}
	var texts []string
	for _, p := range parts {
		if p.Text+string(p.Content) != "" {
			texts = append(texts, p.Text+string(p.Content))
		}
	}
	*c = content(strings.Join(texts, "\n"))
	return nil
}
