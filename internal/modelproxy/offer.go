package modelproxy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
)

// Offer is what a request lets its model call.
type Offer struct {
	Tools []OfferedTool
	// Text is what the agent itself tells the model: its tools with all that describes them, and
	// its instructions. It has nothing of what the user or the model has said.
	Text string
	// Unread is set if the request could not be read whole, so that it may offer more.
	Unread bool
}

// OfferedTool is a tool as a request names it. One in a namespace has the names of both, joined by
// "__"; one that has no name has that of its type.
type OfferedTool struct {
	Name, Description string
}

// wantedOfOffers are the members in which the four formats tell a model what it is and can do. Of
// messages the beginning is enough: instructions come first.
var wantedOfOffers = map[string]int{
	"model": 1 << 10, "tools": 4 << 20, "system": 1 << 20, "instructions": 1 << 20, "systemInstruction": 1 << 20,
	"system_instruction": 1 << 20,
	"messages":           1 << 20, "input": 1 << 20,
}

// offer is what was read of a request, as an offer.
func (f *fields) offer() Offer {
	o := Offer{Unread: !f.ended}
	var text strings.Builder
	if tools := f.values["tools"]; tools != nil {
		var all []json.RawMessage
		o.Unread = o.Unread || json.Unmarshal(tools, &all) != nil
		for _, one := range all {
			o.add(one, "")
		}
		collectText(&text, tools)
	}
	for _, name := range []string{"system", "instructions", "systemInstruction", "system_instruction"} {
		collectText(&text, f.values[name])
	}
	for _, name := range []string{"messages", "input"} {
		if values, ok := f.values[name]; ok && values[0] == '[' && !collectInstructions(&text, values) {
			o.Unread = true
		}
	}
	o.Text = text.String()
	return o
}

// add adds a tool, or those of a list that stands in its place.
func (o *Offer) add(raw json.RawMessage, namespace string) {
	type tool struct {
		Type        string            `json:"type"`
		Name        string            `json:"name"`
		Description string            `json:"description"`
		Tools       []json.RawMessage `json:"tools"`                // OpenAI's namespaces
		Functions   []json.RawMessage `json:"functionDeclarations"` // Gemini
		Snake       []json.RawMessage `json:"function_declarations"`
	}
	var t struct {
		tool
		Function tool `json:"function"` // chat completions
	}
	if json.Unmarshal(raw, &t) != nil {
		o.Unread = true
		return
	}
	name := cmp.Or(t.Function.Name, t.Name, t.Type)
	if namespace != "" {
		name = namespace + "__" + name
	}
	for _, list := range [][]json.RawMessage{t.Tools, t.Functions, t.Snake} {
		for _, one := range list {
			o.add(one, t.Name)
		}
	}
	if name != "" {
		o.Tools = append(o.Tools, OfferedTool{name, cmp.Or(t.Function.Description, t.Description)})
	}
}

// collectText adds the strings of a JSON text, keys included.
func collectText(to *strings.Builder, raw []byte) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	for {
		token, err := dec.Token()
		if err != nil {
			return // the end, or where it was cut
		}
		if s, ok := token.(string); ok {
			to.WriteString(s)
			to.WriteByte('\n')
		}
	}
}

// collectInstructions adds what a list of messages, of which the end may be missing, says in the
// agent's own name. It reports false if not even the first can be read.
func collectInstructions(to *strings.Builder, list []byte) (ok bool) {
	dec := json.NewDecoder(bytes.NewReader(list))
	_, _ = dec.Token() // the bracket
	for dec.More() {
		var raw json.RawMessage
		if dec.Decode(&raw) != nil {
			return ok
		}
		ok = true
		var message struct {
			Role string `json:"role"`
		}
		// no object has no role
		if _ = json.Unmarshal(raw, &message); message.Role == "system" || message.Role == "developer" {
			collectText(to, raw)
		}
	}
	return true
}
