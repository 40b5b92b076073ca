package a2aagent

import (
	"encoding/json"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait/a2a"
)

// textKeys are the keys of an input that are its text, if it has no other key.
var textKeys = []string{"prompt", "input", "query", "question", "message", "text"}

// partsOf makes the parts of a message of an input or of an answer. Agents that take no JSON get it
// as text.
func partsOf(value json.RawMessage, takesJSON bool) []a2a.Part {
	var text string
	if json.Unmarshal(value, &text) == nil && !jsonobj.IsNull(value) {
		return []a2a.Part{{Text: &text}}
	}
	if o, err := jsonobj.ParseObject(value); err == nil {
		for _, key := range textKeys {
			if len(o) == 1 && o.Has(key) && json.Unmarshal(o.Get(key), &text) == nil && !jsonobj.IsNull(o.Get(key)) {
				return []a2a.Part{{Text: &text}}
			}
		}
		if o.Has("approved") {
			return decision(o, value, takesJSON)
		}
	}
	if takesJSON {
		return []a2a.Part{{Data: value}}
	}
	text = string(value)
	return []a2a.Part{{Text: &text}}
}

// decision says in words what a person has decided, and gives it as data where that is taken.
func decision(o jsonobj.Object, value json.RawMessage, takesJSON bool) []a2a.Part {
	var approved bool
	text := "denied"
	if json.Unmarshal(o.Get("approved"), &approved) == nil && approved {
		text = "approved"
	}
	for _, key := range []string{"reason", "message", "comment"} {
		if why := o.Text(key); why != "" {
			text += ": " + why
			break
		}
	}
	parts := []a2a.Part{{Text: &text}}
	if takesJSON {
		parts = append(parts, a2a.Part{Data: value})
	}
	return parts
}

// authorization is the text of the answer to a request for an authorization. Nothing of what the
// person has answered goes into it, since that might be a secret.
func authorization(payload json.RawMessage) json.RawMessage {
	if o, err := jsonobj.ParseObject(payload); err == nil && o.Has("approved") && string(o.Get("approved")) != "true" {
		return json.RawMessage(`"The authorization was refused."`)
	}
	return json.RawMessage(`"The authorization is done."`)
}

// documentOf makes the output of an agent. One object among the parts is the output, and so it can
// be compared by its keys; texts are its result.
func documentOf(parts []a2a.Part) ([]byte, error) {
	var data, files []json.RawMessage
	for _, p := range parts {
		switch {
		case len(p.Data) > 0 && p.Text == nil:
			data = append(data, p.Data)
		case p.Text == nil && p.File != nil:
			files = append(files, p.File)
		}
	}
	var out jsonobj.Object
	if len(data) == 1 {
		if o, err := jsonobj.ParseObject(data[0]); err == nil {
			out, data = o, nil
		}
	}
	text := a2a.Texts(parts)
	if !out.Has("result") && (text != "" || out == nil && data == nil && files == nil) {
		out = out.Set("result", jsonobj.Quote(text))
	}
	for _, list := range []struct {
		key   string
		items []json.RawMessage
	}{{"data", data}, {"files", files}} {
		if list.items == nil || out.Has(list.key) {
			continue
		}
		value, err := jsonobj.Marshal(list.items)
		if err != nil {
			return nil, err
		}
		out = out.Set(list.key, value)
	}
	return out.JSON(), nil
}
