package fakemodel

import (
	"encoding/json"
	"strings"
)

func readChat(body []byte, r *Request) error {
	var in struct {
		Model    string `json:"model"`
		Stream   bool   `json:"stream"`
		Messages []struct {
			Role       string  `json:"role"`
			Content    content `json:"content"`
			ToolCallID string  `json:"tool_call_id"`
			ToolCalls  []struct {
				ID       string `json:"id"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name string `json:"name"`
			} `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	r.Model, r.Stream = in.Model, in.Stream
	for _, m := range in.Messages {
		out := Message{Role: m.Role, Text: string(m.Content)}
		if m.Role == "tool" {
			out = Message{Role: "tool", Results: []Result{{m.ToolCallID, string(m.Content)}}}
		}
		for _, c := range m.ToolCalls {
			out.Calls = append(out.Calls, Call{c.ID, c.Function.Name, json.RawMessage(c.Function.Arguments)})
		}
		r.Messages = append(r.Messages, out)
	}
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, t.Function.Name)
	}
	return nil
}

func writeChat(r *reply) {
	usage := object{
		"prompt_tokens": InputTokens, "completion_tokens": OutputTokens, "total_tokens": InputTokens + OutputTokens,
	}
	head := func(kind string, choice object) object {
		return object{"id": r.name("chatcmpl"), "object": kind,
			"created": r.req.Time.Unix(), "model": r.req.Model, "choices": []any{choice}}
	}
	message, reason := object{"role": "assistant", "content": r.answer.text}, "stop"
	var calls []any
	if c := r.answer.call; c != nil {
		calls = []any{object{"index": 0, "id": r.name("call"), "type": "function",
			"function": object{"name": c.Name, "arguments": r.args()}}}
		message, reason = object{"role": "assistant", "content": nil, "tool_calls": calls}, "tool_calls"
	}
	if !r.req.Stream {
		out := head("chat.completion", object{"index": 0, "message": message, "finish_reason": reason})
		out["usage"] = usage
		writeJSON(r.w, out)
		return
	}
	chunk := func(delta object, reason any) {
		r.event("", head("chat.completion.chunk", object{"index": 0, "delta": delta, "finish_reason": reason}))
	}
	chunk(object{"role": "assistant", "content": ""}, nil)
	if calls != nil {
		chunk(object{"tool_calls": calls}, nil)
	} else {
		for _, half := range r.halves() {
			chunk(object{"content": half}, nil)
		}
	}
	chunk(object{}, reason)
	last := head("chat.completion.chunk", nil)
	last["choices"], last["usage"] = []any{}, usage
	r.event("", last)
	r.event("", "[DONE]")
}

// namespace stands between the namespace of a tool and its name (codex sends its MCP servers as
// such).
const namespace = "::"

func readResponses(body []byte, r *Request) error {
	var in struct {
		Model  string          `json:"model"`
		Stream bool            `json:"stream"`
		Input  json.RawMessage `json:"input"`
		Tools  []struct {
			Type  string `json:"type"`
			Name  string `json:"name"`
			Tools []struct {
				Name string `json:"name"`
			} `json:"tools"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	r.Model, r.Stream = in.Model, in.Stream
	var text string
	if json.Unmarshal(in.Input, &text) == nil {
		r.Messages = []Message{{Role: "user", Text: text}}
	} else if err := readItems(in.Input, r); err != nil {
		return err
	}
	for _, t := range in.Tools {
		if t.Type != "namespace" {
			r.Tools = append(r.Tools, t.Name)
		}
		for _, inner := range t.Tools {
			r.Tools = append(r.Tools, t.Name+namespace+inner.Name)
		}
	}
	return nil
}

func readItems(raw json.RawMessage, r *Request) error {
	var items []struct {
		Type      string  `json:"type"`
		Role      string  `json:"role"`
		Content   content `json:"content"`
		CallID    string  `json:"call_id"`
		Namespace string  `json:"namespace"`
		Name      string  `json:"name"`
		Arguments string  `json:"arguments"`
		Input     string  `json:"input"`
		Output    content `json:"output"`
	}
	if err := json.Unmarshal(raw, &items); err != nil {
		return err
	}
	for _, m := range items {
		switch m.Type {
		case "function_call", "custom_tool_call":
			if m.Namespace != "" {
				m.Name = m.Namespace + namespace + m.Name
			}
			r.Messages = append(r.Messages, Message{
				Role: "assistant", Calls: []Call{{m.CallID, m.Name, json.RawMessage(m.Arguments + m.Input)}},
			})
		case "function_call_output", "custom_tool_call_output":
			r.Messages = append(r.Messages, Message{Role: "tool", Results: []Result{{m.CallID, string(m.Output)}}})
		case "", "message":
			r.Messages = append(r.Messages, Message{Role: m.Role, Text: string(m.Content)})
		default: // reasoning and the like
			r.Messages = append(r.Messages, Message{Role: m.Type})
		}
	}
	return nil
}

func writeResponses(r *reply) {
	usage := object{
		"input_tokens": InputTokens, "input_tokens_details": object{"cached_tokens": 0},
		"output_tokens": OutputTokens, "output_tokens_details": object{"reasoning_tokens": 0},
		"total_tokens": InputTokens + OutputTokens,
	}
	response := func(status string, output ...any) object {
		if output == nil {
			output = []any{}
		}
		return object{"id": r.name("resp"), "object": "response", "created_at": r.req.Time.Unix(),
			"model": r.req.Model, "status": status, "output": output}
	}
	part := func(text string) object { return object{"type": "output_text", "text": text, "annotations": []any{}} }
	item := func(status, text string, parts ...any) object {
		if c := r.answer.call; c != nil {
			out := object{"type": "function_call", "id": r.name("fc"),
				"call_id": r.name("call"), "status": status, "name": c.Name, "arguments": text}
			if space, name, ok := strings.Cut(c.Name, namespace); ok {
				out["namespace"], out["name"] = space, name
			}
			return out
		}
		if parts == nil {
			parts = []any{}
		}
		return object{"type": "message", "id": r.name("msg"), "status": status, "role": "assistant", "content": parts}
	}
	var whole object
	if r.answer.call != nil {
		whole = item("completed", r.args())
	} else {
		whole = item("completed", "", part(r.answer.text))
	}
	completed := response("completed", whole)
	completed["usage"] = usage
	if !r.req.Stream {
		writeJSON(r.w, completed)
		return
	}

	number := 0
	event := func(kind string, data object) {
		data["type"], data["sequence_number"] = kind, number
		number++
		r.event(kind, data)
	}
	of := func(data object) object { // an event of the item, or of its only part
		data["item_id"], data["output_index"], data["content_index"] = whole["id"], 0, 0
		return data
	}
	event("response.created", object{"response": response("in_progress")})
	event("response.output_item.added", object{"output_index": 0, "item": item("in_progress", "")})
	if r.answer.call != nil {
		event("response.function_call_arguments.delta", of(object{"delta": r.args()}))
		event("response.function_call_arguments.done", of(object{"arguments": r.args()}))
	} else {
		event("response.content_part.added", of(object{"part": part("")}))
		for _, half := range r.halves() {
			event("response.output_text.delta", of(object{"delta": half}))
		}
		event("response.output_text.done", of(object{"text": r.answer.text}))
		event("response.content_part.done", of(object{"part": part(r.answer.text)}))
	}
	event("response.output_item.done", object{"output_index": 0, "item": whole})
	event("response.completed", object{"response": completed})
}
