package fakemodel

import (
	"encoding/json"
	"strings"
)

func readMessages(body []byte, r *Request) error {
	type block struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
		ToolUseID string          `json:"tool_use_id"`
		Content   content         `json:"content"`
	}
	var in struct {
		Model    string  `json:"model"`
		Stream   bool    `json:"stream"`
		System   content `json:"system"`
		Messages []struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	r.Model, r.Stream = in.Model, in.Stream
	if in.System != "" {
		r.Messages = append(r.Messages, Message{Role: "system", Text: string(in.System)})
	}
	for _, m := range in.Messages {
		out := Message{Role: m.Role}
		var blocks []block
		if json.Unmarshal(m.Content, &out.Text) != nil {
			if err := json.Unmarshal(m.Content, &blocks); err != nil {
				return err
			}
		}
		var texts []string
		for _, b := range blocks {
			switch b.Type {
			case "text":
				texts = append(texts, b.Text)
			case "tool_use":
				out.Calls = append(out.Calls, Call{b.ID, b.Name, b.Input})
			case "tool_result":
				out.Results = append(out.Results, Result{b.ToolUseID, string(b.Content)})
			}
		}
		if blocks != nil {
			out.Text = strings.Join(texts, "\n")
		}
		r.Messages = append(r.Messages, out)
	}
	for _, t := range in.Tools {
		r.Tools = append(r.Tools, t.Name)
	}
	return nil
}

func writeMessages(r *reply) {
	usage := object{"input_tokens": InputTokens, "output_tokens": OutputTokens,
		"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
	message := func(reason any, blocks ...any) object {
		if blocks == nil {
			blocks = []any{}
		}
		return object{"id": r.name("msg"), "type": "message", "role": "assistant", "model": r.req.Model, "content": blocks,
			"stop_reason": reason, "stop_sequence": nil, "usage": usage}
	}
	block, reason := object{"type": "text", "text": r.answer.text}, "end_turn"
	if c := r.answer.call; c != nil {
		block, reason = object{"type": "tool_use", "id": r.name("toolu"), "name": c.Name, "input": c.Args}, "tool_use"
	}
	if !r.req.Stream {
		writeJSON(r.w, message(reason, block))
		return
	}

	event := func(kind string, data object) {
		data["type"] = kind
		r.event(kind, data)
	}
	event("message_start", object{"message": message(nil)})
	if r.answer.call != nil {
		event("content_block_start", object{"index": 0,
			"content_block": object{"type": "tool_use", "id": block["id"], "name": block["name"], "input": object{}}})
		event("content_block_delta", object{
			"index": 0, "delta": object{"type": "input_json_delta", "partial_json": r.args()},
		})
	} else {
		event("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})
		for _, half := range r.halves() {
			event("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": half}})
		}
	}
	event("content_block_stop", object{"index": 0})
	event("message_delta", object{
		"delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{"output_tokens": OutputTokens},
	})
	event("message_stop", object{})
}
