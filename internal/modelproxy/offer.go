package modelproxy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"
)

// Offer has the tools that a request lets its model call.
type Offer struct {
	Tools []OfferedTool
	// Text is the agent's own text for the model: its tools with their descriptions, and its
	// instructions. It has nothing that the user or the model has said.
	Text string
	// Unread says that the request could not be read whole, so it may offer more.
	Unread bool
}

// OfferedTool is a tool as a request names it. A tool in a namespace has both names, joined by
// "__". A tool without a name has the name of its type.
type OfferedTool struct {
	Name, Description string
}

// wantedOfOffers has the members in which the four formats tell a model its role and its tools. The
// beginning of the messages is enough, since instructions come first.
var wantedOfOffers = map[string]int{
	"model": 1 << 10, "tools": 4 << 20, "system": 1 << 20, "instructions": 1 << 20, "systemInstruction": 1 << 20,
	"system_instruction": 1 << 20,
	"messages":           1 << 20, "input": 1 << 20,
}

// offer returns the offer in the members that were read of a request.
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

// add adds a tool, or the tools of a list in its place.
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
			return // the text ends or was cut off here
		}
		if s, ok := token.(string); ok {
			to.WriteString(s)
			to.WriteByte('\n')
		}
	}
}

// collectInstructions adds the agent's own messages from a list of messages, whose end may be
// missing. It returns false if not even the first message can be read.
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
		// A message that is not an object has no role.
		if _ = json.Unmarshal(raw, &message); message.Role == "system" || message.Role == "developer" {
			collectText(to, raw)
		}
	}
	return true
}
