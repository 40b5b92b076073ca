package modelagent

import (
	"encoding/json"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/model"
)

type object = map[string]any

// wire makes requests of a wire format.
type wire struct {
	// message makes an item of the conversation.
	message func(m Message) object
	// body makes a request with the items of the conversation.
	body func(q *question) object
}

var wires = map[model.API]wire{
	model.APIChat:      {plainMessage, chatBody},
	model.APIResponses: {plainMessage, responsesBody},
	model.APIMessages:  {plainMessage, messagesBody},
	model.APIGemini:    {geminiMessage, geminiBody},
}

// question is what a request says.
type question struct {
	*Settings
	model  string
	system string
	// items is the conversation so far, in the wire format.
	items []json.RawMessage
	drop  model.Dropped
}

// bytes returns the body of the request.
func (q *question) bytes(api model.API) (json.RawMessage, error) {
	return jsonobj.Marshal(wires[api].body(q))
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

func messagesBody(q *question) object {
	body := object{"model": q.model, "messages": q.items}
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
		body["systemInstruction"] = object{"parts": []object{{"text": q.system}}}
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
