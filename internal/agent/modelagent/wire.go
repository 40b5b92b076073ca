package modelagent

import (
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/model"
)

type object = map[string]any

// wire makes requests of a wire format.
type wire struct {
	// message makes an item of the conversation.
	message func(m Message) object
	// parts makes a message of the user with files.
	parts func(parts []sent) object
	// body makes a request with the items of the conversation.
	body func(q *question) object
	// tools makes the value of the key "tools".
	tools func(tools []offered) any
}

var wires = map[model.API]wire{
	model.APIChat:      {plainMessage, chatParts, chatBody, chatTools},
	model.APIResponses: {plainMessage, responsesParts, responsesBody, responsesTools},
	model.APIMessages:  {messagesMessage, messagesParts, messagesBody, messagesTools},
	model.APIGemini:    {geminiMessage, geminiParts, geminiBody, geminiTools},
}

// offered is a tool as a request has it.
type offered struct {
	name, description string
	schema            json.RawMessage
}

func chatTools(tools []offered) any {
	var list []object
	for _, t := range tools {
		list = append(list, object{"type": "function",
			"function": object{"name": t.name, "description": t.description, "parameters": t.schema}})
	}
	return list
}

func responsesTools(tools []offered) any {
	var list []object
	for _, t := range tools {
		list = append(list, object{"type": "function", "name": t.name, "description": t.description,
			"parameters": t.schema, "strict": false})
	}
	return list
}

func messagesTools(tools []offered) any {
	var list []object
	for _, t := range tools {
		list = append(list, object{"name": t.name, "description": t.description, "input_schema": t.schema})
	}
	return list
}

// geminiTools sends schemas as JSON Schema: the key "parameters" knows only a part of that.
func geminiTools(tools []offered) any {
	var list []object
	for _, t := range tools {
		list = append(list, object{"name": t.name, "description": t.description, "parametersJsonSchema": t.schema})
	}
	return []object{{"functionDeclarations": list}}
}

// answerItems returns what an answer adds to the conversation, as the provider has sent it:
// reasoning and its signatures must go back unchanged.
func answerItems(api model.API, body json.RawMessage) ([]json.RawMessage, error) {
	var in struct {
		Choices []struct {
			Message json.RawMessage `json:"message"`
		} `json:"choices"`
		Output     []json.RawMessage `json:"output"`
		Content    json.RawMessage   `json:"content"`
		Candidates []struct {
			Content json.RawMessage `json:"content"`
		} `json:"candidates"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	var items []json.RawMessage
	switch {
	case api == model.APIResponses:
		items = in.Output
	case api == model.APIMessages:
		var blocks []json.RawMessage
		if json.Unmarshal(in.Content, &blocks) == nil && len(blocks) > 0 {
			item, err := jsonobj.Marshal(object{"role": "assistant", "content": in.Content})
			return []json.RawMessage{item}, err
		}
	case api == model.APIGemini && len(in.Candidates) > 0:
		items = append(items, in.Candidates[0].Content)
	case api == model.APIChat && len(in.Choices) > 0:
		items = append(items, in.Choices[0].Message)
	}
	kept := items[:0:0]
	for _, item := range items {
		if jsonobj.IsNull(item) {
			continue
		}
		compact, err := jsonobj.Marshal(item) // the same bytes in every request, also after a restart
		if err != nil {
			return nil, err
		}
		kept = append(kept, compact)
	}
	return kept, nil
}

// resultItems returns the items with the results of all calls of an answer.
func resultItems(api model.API, calls []call, results []*result) (items []json.RawMessage) {
	add := func(item object) {
		raw, _ := jsonobj.Marshal(item) // strings always marshal
		items = append(items, raw)
	}
	var parts []object
	for i, c := range calls {
		r := results[i]
		switch api {
		case model.APIResponses:
			add(object{"type": "function_call_output", "call_id": c.ID, "output": r.Text})
		case model.APIMessages:
			part := object{"type": "tool_result", "tool_use_id": c.ID, "content": r.Text}
			if r.Wrong || r.Failed {
				part["is_error"] = true
			}
			parts = append(parts, part)
		case model.APIGemini:
			said := object{"output": r.Text}
			if r.Wrong || r.Failed {
				said = object{"error": r.Text}
			}
			part := object{"name": c.Name, "response": said}
			if c.ID != "" {
				part["id"] = c.ID
			}
			parts = append(parts, object{"functionResponse": part})
		default:
			add(object{"role": "tool", "tool_call_id": c.ID, "content": r.Text})
		}
	}
	switch api {
	case model.APIMessages:
		add(object{"role": "user", "content": parts})
	case model.APIGemini:
		add(object{"role": "user", "parts": parts})
	}
	return items
}

// question is what a request says.
type question struct {
	*Settings
	model  string
	system string
	// items is the conversation so far, in the wire format.
	items []json.RawMessage
	// tools are the tools of MCP servers.
	tools []mcpTool
	drop  model.Dropped
	// fileBytes is how many bytes of the items are data of files.
	fileBytes int
}

// offered returns the tools of the model.
func (q *question) offered() (out []offered) {
	if q.has(bashTool) {
		out = append(out, offered{bashTool, bashDescription, bashSchema})
	}
	for _, t := range q.tools {
		out = append(out, offered{t.Name, t.Description, t.Schema})
	}
	return out
}

// bytes returns the body of the request.
func (q *question) bytes(api model.API) (json.RawMessage, error) {
	body := wires[api].body(q)
	if tools := q.offered(); len(tools) > 0 {
		body["tools"] = wires[api].tools(tools)
	}
	return jsonobj.Marshal(body)
}

// messagesLimit is sent where an entry has no limit: Anthropic needs one.
const messagesLimit = 8000

func plainMessage(m Message) object { return object{"role": m.Role, "content": m.Content} }

func chatBody(q *question) object {
	messages := q.items
	if q.system != "" {
		system, _ := jsonobj.Marshal(object{"role": "system", "content": q.system}) // strings always marshal
		messages = append([]json.RawMessage{system}, messages...)
	}
	body := object{"model": q.model, "messages": messages}
	q.common(body)
	if q.Seed != nil && !q.drop.Has(model.ParamSeed) {
		body["seed"] = *q.Seed
	}
	if q.Reasoning != nil {
		body["reasoning_effort"] = q.Reasoning
	}
	switch {
	case q.MaxTokens > 0 && q.drop.OldLimit:
		body[model.ParamOldLimit] = q.MaxTokens
	case q.MaxTokens > 0:
		body[model.ParamLimit] = q.MaxTokens
	}
	if q.Output != nil {
		body["response_format"] = object{"type": "json_schema",
			"json_schema": object{"name": "output", "schema": q.Output.Schema}}
	}
	return body
}

func responsesBody(q *question) object {
	body := object{"model": q.model, "input": q.items, "store": false, "include": []string{"reasoning.encrypted_content"}}
	if q.system != "" {
		body["instructions"] = q.system
	}
	q.common(body)
	if q.Reasoning != nil {
		body["reasoning"] = object{"effort": q.Reasoning}
	}
	if q.MaxTokens > 0 {
		body["max_output_tokens"] = q.MaxTokens
	}
	if q.Output != nil {
		body["text"] = object{"format": object{"type": "json_schema", "name": "output", "schema": q.Output.Schema}}
	}
	return body
}

// messagesMessage makes blocks, which can have marks.
func messagesMessage(m Message) object {
	return object{"role": m.Role, "content": []object{{"type": "text", "text": m.Content}}}
}

func messagesBody(q *question) object {
	body := object{"model": q.model, "messages": q.items}
	if len(q.Tools) > 0 {
		body["messages"] = marked(q.items)
	}
	if q.system != "" {
		body["system"] = q.system
	}
	q.common(body)
	limit, config := messagesLimit, object{}
	var tokens int
	switch {
	case q.Reasoning == nil:
	case json.Unmarshal(q.Reasoning, &tokens) == nil:
		body["thinking"] = object{"type": "enabled", "budget_tokens": tokens}
		limit += tokens
	default:
		config["effort"] = q.Reasoning
	}
	if q.MaxTokens > 0 {
		limit = q.MaxTokens
	}
	body["max_tokens"] = limit
	if q.Output != nil {
		config["format"] = object{"type": "json_schema", "schema": q.Output.Schema}
	}
	if len(config) > 0 {
		body["output_config"] = config
	}
	return body
}

// marked returns the messages with marks in the last two of the user: Anthropic caches what is
// before a mark, and finds it by the mark of the request before.
func marked(items []json.RawMessage) []json.RawMessage {
	items = slices.Clone(items)
	marks := 0
	for i := len(items) - 1; i >= 0 && marks < 2; i-- {
		var m struct {
			Role    string          `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		if json.Unmarshal(items[i], &m) != nil || m.Role != "user" {
			continue
		}
		var blocks []object
		if json.Unmarshal(m.Content, &blocks) != nil || len(blocks) == 0 {
			continue
		}
		blocks[len(blocks)-1]["cache_control"] = object{"type": "ephemeral"}
		if one, err := jsonobj.Marshal(object{"role": m.Role, "content": blocks}); err == nil {
			items[i] = one
			marks++
		}
	}
	return items
}

// common sets the temperature.
func (q *question) common(body object) {
	if q.Temperature != nil && !q.drop.Has(model.ParamTemperature) {
		body["temperature"] = *q.Temperature
	}
}

func geminiMessage(m Message) object {
	role := "user"
	if m.Role == "assistant" {
		role = "model"
	}
	return object{"role": role, "parts": []object{{"text": m.Content}}}
}

func geminiBody(q *question) object {
	body, config := object{"contents": q.items}, object{}
	if q.system != "" {
		body["systemInstruction"] = object{"role": "user", "parts": []object{{"text": q.system}}} // as the official client
	}
	q.common(config)
	if q.Seed != nil {
		config["seed"] = *q.Seed
	}
	if q.MaxTokens > 0 {
		config["maxOutputTokens"] = q.MaxTokens
	}
	var tokens int
	switch {
	case q.Reasoning == nil:
	case json.Unmarshal(q.Reasoning, &tokens) == nil:
		config["thinkingConfig"] = object{"thinkingBudget": tokens}
	default:
		config["thinkingConfig"] = object{"thinkingLevel": q.Reasoning}
	}
	if q.Output != nil {
		config["responseMimeType"], config["responseJsonSchema"] = "application/json", q.Output.Schema
	}
	if len(config) > 0 {
		body["generationConfig"] = config
	}
	return body
}
