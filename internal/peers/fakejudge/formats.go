package fakejudge

import (
	"encoding/json"
	"hash/fnv"
	"io"
	"strings"
	"time"
)

type object = map[string]any

// format is one of the wire formats.
type format struct {
	name   string
	read   func(q *Request)
	answer func(q Request, r Reply) object
}

// reply makes the answer of a reply.
func (f format) reply(q Request, r Reply) object {
	if r.Tool != "" {
		q.Tool = r.Tool
	}
	return f.answer(q, r)
}

var formats = map[string]format{
	"/v1/chat/completions": {"chat", readChat, answerChat},
	"/v1/responses":        {"responses", readResponses, answerResponses},
	"/v1/messages":         {"messages", readMessages, answerMessages},
	"/v1/embeddings":       {"embeddings", func(q *Request) { q.Prompt = text(q.Body["input"]) }, answerEmbeddings},
}

// answerEmbeddings answers with the numbers of the rule, or counts the words of the text: how alike two texts
// are is then how many words they share.
func answerEmbeddings(q Request, r Reply) object {
	vector, ok := r.Arguments.([]float64)
	if !ok {
		vector = make([]float64, 256)
		for word := range strings.FieldsSeq(strings.ToLower(q.Prompt)) {
			h := fnv.New32a()
			_, _ = io.WriteString(h, word) // a hash takes everything
			vector[h.Sum32()%256]++
		}
	}
	return object{"object": "list", "model": q.Model, "data": []object{{"object": "embedding", "index": 0, "embedding": vector}},
		"usage": object{"prompt_tokens": InputTokens, "total_tokens": InputTokens}}
}

func readChat(q *Request) {
	messages, _ := q.Body["messages"].([]any)
	for i := range messages {
		switch content := words(at(messages, i, "content")); text(at(messages, i, "role")) {
		case "system":
			q.System = content
		case "user":
			q.Prompt = content
		}
	}
	q.Tool = text(at(q.Body, "tool_choice", "function", "name"))
}

func answerChat(q Request, r Reply) object {
	message, reason := object{"role": "assistant", "content": nil, "refusal": nil, "annotations": []any{}}, "tool_calls"
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
		message["tool_calls"] = []object{
			{"id": "call_1", "type": "function", "function": object{"name": q.Tool, "arguments": arguments(r)}},
		}
	}
	return object{"id": "chatcmpl-1", "object": "chat.completion", "created": time.Now().Unix(),
		"model": q.Model + "-2026-01-01", "system_fingerprint": "fp_fake",
		"choices": []object{{"index": 0, "message": message, "logprobs": nil, "finish_reason": reason}},
		"usage": object{"prompt_tokens": InputTokens, "completion_tokens": OutputTokens,
			"total_tokens":              InputTokens + OutputTokens,
			"prompt_tokens_details":     object{"cached_tokens": 0, "audio_tokens": 0},
			"completion_tokens_details": object{"reasoning_tokens": 0, "audio_tokens": 0}}}
}

func readResponses(q *Request) {
	q.System, q.Prompt, q.Tool =
		text(q.Body["instructions"]), words(at(q.Body, "input", 0, "content")), text(at(q.Body, "tool_choice", "name"))
}

func answerResponses(q Request, r Reply) object {
	out := object{"id": "resp_1", "object": "response", "created_at": time.Now().Unix(),
		"status": "completed", "model": q.Model + "-2026-01-01",
		"error": nil, "incomplete_details": nil, "instructions": q.Body["instructions"],
		"metadata": object{}, "access_programs": nil, "parallel_tool_calls": true,
		"temperature": q.Body["temperature"], "top_p": 1, "tool_choice": q.Body["tool_choice"], "tools": q.Body["tools"],
		"usage": object{"input_tokens": InputTokens, "output_tokens": OutputTokens,
			"total_tokens":          InputTokens + OutputTokens,
			"input_tokens_details":  object{"cached_tokens": 0, "cache_write_tokens": 0},
			"output_tokens_details": object{"reasoning_tokens": 0}}}
	if q.Tool == "" {
		out["tool_choice"], out["tools"] = "auto", []any{}
	}
	message := func(content object) {
		if content["type"] == "output_text" {
			content["annotations"], content["logprobs"] = []any{}, []any{}
		}
		out["output"] = []object{{
			"type": "message", "id": "msg_1", "status": out["status"], "role": "assistant", "content": []object{content},
		}}
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
		out["output"] = []object{{"type": "reasoning", "id": "rs_1", "summary": []any{}},
			{"type": "function_call", "id": "fc_1", "status": "completed",
				"call_id": "call_1", "name": q.Tool, "arguments": arguments(r)}}
	}
	return out
}

func readMessages(q *Request) {
	q.System, q.Prompt, q.Tool =
		words(q.Body["system"]), words(at(q.Body, "messages", 0, "content")), text(at(q.Body, "tool_choice", "name"))
}

func answerMessages(q Request, r Reply) object {
	content, reason := object{"type": "text", "text": r.Text, "citations": nil}, "end_turn"
	var details any
	switch {
	case r.Refusal != "":
		content["text"], reason = r.Refusal, "refusal"
		details = object{"type": "refusal", "category": nil, "explanation": nil}
	case r.Truncated:
		content["text"], reason = "The output is", "max_tokens"
	case r.Text != "":
	case q.Tool == "":
		content["text"] = arguments(r)
	default:
		content, reason = object{"type": "tool_use", "id": "toolu_1", "name": q.Tool,
			"input": r.Arguments, "caller": object{"type": "direct"}}, "tool_use"
	}
	return object{"id": "msg_1", "type": "message", "role": "assistant",
		"model": q.Model, "content": []object{content}, "stop_reason": reason,
		"stop_sequence": nil, "stop_details": details, "container": nil, "diagnostics": nil,
		"usage": object{"input_tokens": InputTokens, "output_tokens": OutputTokens,
			"cache_creation": nil, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
			"output_tokens_details": nil, "server_tool_use": nil,
			"service_tier": "standard", "inference_geo": nil, "speed": nil}}
}

// words is a text, which all three APIs take directly or in blocks.
func words(v any) string {
	blocks, _ := v.([]any)
	out := text(v)
	for i := range blocks {
		out += text(at(blocks, i, "text"))
	}
	return out
}

// arguments returns the arguments of the tool as text. A string is taken as it is, so that it may
// be broken.
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
