package samples

import (
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// message is a message of a sample.
type message struct {
	role  string
	parts []part
	// isList says that its content is a list of parts.
	isList bool
}

type part struct{ key, value string }

// The keys of parts, as agents have them.
const (
	partText = "text"
	partFile = "file"
)

// messages reads the input of a sample: a text, or a list of messages. Choices are added to the last one.
func (im *importer) messages(n *input.Node, choices []string, line int) (out []message, ok bool) {
	switch n.Kind {
	case input.Array:
		for _, item := range n.Items {
			m, ok := im.message(item, line)
			if !ok {
				return nil, false
			}
			out = append(out, m)
		}
	default:
		out = []message{{role: "user", parts: []part{{partText, n.Text}}}}
	}
	last := &out[len(out)-1]
	if last.role != "user" {
		im.missOnce(line, "input", "a sample whose last message is not the user's has no counterpart")
		return nil, false
	}
	if choices == nil {
		return out, true
	}
	var b strings.Builder
	for i, one := range choices {
		if i < len(letters) {
			fmt.Fprintf(&b, "\n%c) %s", letters[i], one)
		}
	}
	end := &last.parts[len(last.parts)-1]
	if end.key != partText {
		last.parts = append(last.parts, part{key: partText})
		end = &last.parts[len(last.parts)-1]
	}
	end.value += "\n" + b.String() + "\n\nAnswer with one letter alone."
	im.differOnce(line, "choices", "the choices are added to the question, with a line that asks for one letter")
	return out, true
}

// message reads one message.
func (im *importer) message(n *input.Node, line int) (m message, ok bool) {
	role, content := n.Member("role"), n.Member("content")
	if n.Kind != input.Object || role == nil || content == nil {
		im.missOnce(line, "input", "a message without role and content has no counterpart")
		return m, false
	}
	m.role = role.Text
	if named := n.Member("name"); named != nil && m.role == "system" { // OpenAI evals write examples so
		switch named.Text {
		case "example_user":
			m.role = "user"
		case "example_assistant":
			m.role = "assistant"
		}
	}
	if n.Member("tool_calls") != nil || m.role != "system" && m.role != "user" && m.role != "assistant" {
		im.missOnce(line, "input", "a message with calls of tools, or of the role %s, has no counterpart", m.role)
		return m, false
	}
	if content.Kind != input.Array {
		m.parts = []part{{partText, content.Text}}
		return m, true
	}
	m.isList = true
	for _, item := range content.Items {
		kind := "text"
		if k := item.Member("type"); k != nil {
			kind = k.Text
		}
		value := item.Member(kind)
		if value == nil || value.Kind != input.String || kind != "text" && kind != "image" && kind != "document" || m.role != "user" {
			im.missOnce(line, "input", "a part of the type %s in a message of the role %s has no counterpart", kind, m.role)
			return m, false
		}
		key := partFile
		if kind == "text" {
			key = partText
		}
		m.parts = append(m.parts, part{key, value.Text})
	}
	return m, len(m.parts) > 0
}

// inputs makes the inputs of an evaluation. A model gets them by one template for all, so their messages have to
// be of one form; an agent gets them as they are.
func (im *importer) inputs(e *evaluation, messages []message, line int) bool {
	if len(messages) == 1 && !messages[0].isList && im.o.Model == "" {
		e.Inputs = map[string]any{"prompt": messages[0].parts[0].value}
		return true
	}
	if im.o.Model == "" && im.o.Agent == nil {
		im.missOnce(line, "input", "several messages or parts need --model PROVIDER/MODEL, which gets them, or --agent")
		return false
	}
	var said []any
	agent, list := map[string]any{}, []any{}
	shape := ""
	for i, m := range messages {
		at := fmt.Sprintf("{{messages.%d.content", i)
		var content any = m.parts[0].value
		var template any = at + "}}"
		shape += m.role
		if m.isList {
			var parts, templates []any
			for j, p := range m.parts {
				parts = append(parts, map[string]any{p.key: p.value})
				templates = append(templates, map[string]any{p.key: fmt.Sprintf("%s.%d.%s}}", at, j, p.key)})
				shape += " " + p.key
			}
			content, template = parts, templates
		}
		shape += "; "
		said = append(said, map[string]any{"role": m.role, "content": content})
		switch {
		case m.role == "system" && i == 0:
			agent["system"] = template
		default:
			list = append(list, map[string]any{"role": m.role, "content": template})
		}
		if m.role == "system" && i > 0 && im.o.Model != "" {
			im.missOnce(line, "input", "a message of the role system after the first has no counterpart")
			return false
		}
	}
	agent["messages"] = list
	e.Inputs = map[string]any{"messages": said}
	if im.o.Model == "" {
		return true
	}
	if im.agent == nil {
		im.shape, im.agent, im.of = shape, agent, line
	}
	if shape != im.shape {
		im.made.Missing = append(im.made.Missing, im.problem(line, "input",
			"its messages are of another form than those of line %d, and one model agent has one form: import it apart", im.of))
		return false
	}
	return true
}
