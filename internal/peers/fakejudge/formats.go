package fakejudge

import "encoding/json"

type object = map[string]any

// format is one of the three wire formats.
type format struct {
	name   string
	read   func(q *Request)
	answer func(q Request, r Reply) object
}

var formats = map[string]format{
	"/v1/chat/completions": {"chat", readChat, answerChat},
	"/v1/responses":        {"responses", readResponses, answerResponses},
	"/v1/messages":         {"messages", readMessages, answerMessages},
}

func readChat(q *Request) {
	messages, _ := q.Body["messages"].([]any)
	for i := range messages {
		switch content := text(at(messages, i, "content")); text(at(messages, i, "role")) {
		case "system":
			q.System = content
		case "user":
			q.Prompt = content
		}
	}
	q.Tool = text(at(q.Body, "tool_choice", "function", "name"))
}

func answerChat(q Request, r Reply) object {
	message, reason := object{"role": "assistant", "content": nil, "refusal": nil}, "tool_calls"
	switch {
	case r.Refusal != "":
		message["refusal"], reason = r.Refusal, "stop"
	case r.Truncated:
		message["content"], reason = "The output is", "length"
	case r.Text != "":
		message["content"], reason = r.Text, "stop"
	case q.Tool == "":
		message["content"], reason = arguments(r), "stop"
	default:
		message["tool_calls"] = []object{{"id": "call_1", "type": "function", "function": object{"name": q.Tool, "arguments": arguments(r)}}}
	}
	return object{"id": "chatcmpl-1", "object": "chat.completion", "model": q.Model + "-2026-01-01", "system_fingerprint": "fp_fake",
		"choices": []object{{"index": 0, "message": message, "finish_reason": reason}},
		"usage":   object{"prompt_tokens": InputTokens, "completion_tokens": OutputTokens, "total_tokens": InputTokens + OutputTokens}}
}

func readResponses(q *Request) {
	q.System, q.Prompt, q.Tool = text(q.Body["instructions"]), text(at(q.Body, "input", 0, "content")), text(at(q.Body, "tool_choice", "name"))
}

func answerResponses(q Request, r Reply) object {
	out := object{"id": "resp_1", "object": "response", "status": "completed", "model": q.Model + "-2026-01-01",
		"usage": object{"input_tokens": InputTokens, "output_tokens": OutputTokens, "total_tokens": InputTokens + OutputTokens}}
	message := func(content object) {
		out["output"] = []object{{"type": "message", "role": "assistant", "content": []object{content}}}
	}
	switch {
	case r.Refusal != "":
		message(object{"type": "refusal", "refusal": r.Refusal})
	case r.Truncated:
		out["status"], out["incomplete_details"] = "incomplete", object{"reason": "max_output_tokens"}
		message(object{"type": "output_text", "text": "The output is"})
	case r.Text != "":
		message(object{"type": "output_text", "text": r.Text})
	case q.Tool == "":
		message(object{"type": "output_text", "text": arguments(r)})
	default:
		out["output"] = []object{{"type": "reasoning", "summary": []any{}}, {"type": "function_call", "call_id": "call_1", "name": q.Tool, "arguments": arguments(r)}}
	}
	return out
}

func readMessages(q *Request) {
	q.System, q.Prompt, q.Tool = text(q.Body["system"]), text(at(q.Body, "messages", 0, "content")), text(at(q.Body, "tool_choice", "name"))
}

func answerMessages(q Request, r Reply) object {
	content, reason := object{"type": "text", "text": r.Text}, "end_turn"
	switch {
	case r.Refusal != "":
		content["text"], reason = r.Refusal, "refusal"
	case r.Truncated:
		content["text"], reason = "The output is", "max_tokens"
	case r.Text != "":
	case q.Tool == "":
		content["text"] = arguments(r)
	default:
		content, reason = object{"type": "tool_use", "id": "toolu_1", "name": q.Tool, "input": r.Arguments}, "tool_use"
	}
	return object{"id": "msg_1", "type": "message", "role": "assistant", "model": q.Model, "content": []object{content}, "stop_reason": reason,
		"usage": object{"input_tokens": InputTokens, "output_tokens": OutputTokens}}
}

// arguments are those of the tool as text. A string is taken as it is, so that it may be broken.
func arguments(r Reply) string {
	if s, ok := r.Arguments.(string); ok {
		return s
	}
	data, err := json.Marshal(r.Arguments)
	if err != nil {
		return "{}"
	}
	return string(data)
}
