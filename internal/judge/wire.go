package judge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/model"
)

// reply is an answer of a provider. arguments are the arguments of the requested tool, or the JSON
// in its place; nil if there are none. [reply.choose] sets them.
type reply struct {
	model.Reply
	arguments json.RawMessage
}

// choose takes the arguments of the requested tool. If the tool was forced, only a call of it
// counts, since a text may repeat the agent's output. If a model takes no tools, the answer is its
// text, which must be JSON from end to end. The error describes a contradiction.
func (r *reply) choose(tool string, forced bool) error {
	var found []json.RawMessage
	for _, c := range r.Calls {
		if c.Name == tool {
			found = append(found, c.Arguments)
		}
	}
	if text := asJSON(r.Text); len(found) == 0 && !forced && text != nil {
		found = append(found, text)
	}
	for i, one := range found {
		if json.Valid(one) && !jsontext.Value(one).IsValid(jsontext.AllowInvalidUTF8(true)) {
			return errors.New("a key of its arguments is given twice")
		}
		if i > 0 && !agree(found[0], one) {
			return fmt.Errorf("it was called %d times, with verdicts that differ", len(found))
		}
	}
	if len(found) > 0 {
		r.arguments = found[0]
	}
	return nil
}

// agree reports whether two verdicts are the same apart from their justifications.
func agree(a, b json.RawMessage) bool {
	verdict := func(raw json.RawMessage) (v map[string]any) {
		_ = json.Unmarshal(raw, &v) // a value that is not an object is no verdict, which is checked later
		delete(v, "justification")
		return v
	}
	return reflect.DeepEqual(verdict(a), verdict(b))
}

// bodies make the requests. They leave out the parameters in drop.
var bodies = map[API]func(q eval.Question, drop model.Dropped) map[string]any{
	APIChat: chatBody, APIResponses: responsesBody, APIMessages: messagesBody, model.APIEmbeddings: embeddingsBody,
}

// messagesLimit is sent where a question has no limit: Anthropic needs one.
const messagesLimit = 8000

type object = map[string]any

func chatBody(q eval.Question, drop model.Dropped) object {
	messages := []object{}
	if q.System != "" {
		messages = append(messages, object{"role": "system", "content": q.System})
	}
	body := object{"model": q.Model, "messages": append(messages, object{"role": "user", "content": q.Prompt})}
	common(body, q, drop)
	if q.Seed != nil && !drop.Has(model.ParamSeed) {
		body["seed"] = *q.Seed
	}
	if q.MaxTokens > 0 {
		if drop.OldLimit {
			body[model.ParamOldLimit] = q.MaxTokens
		} else {
			body[model.ParamLimit] = q.MaxTokens
		}
	}
	if drop.Has(model.ParamTool) {
		body["response_format"] = object{"type": "json_schema",
			"json_schema": object{"name": q.Tool.Name, "strict": true, "schema": strict(q.Tool.Schema)}}
		return body
	}
	body["tools"] = []object{{"type": "function", "function": object{
		"name": q.Tool.Name, "description": q.Tool.Description, "parameters": q.Tool.Schema}}}
	body["tool_choice"] = object{"type": "function", "function": object{"name": q.Tool.Name}}
	return body
}

func embeddingsBody(q eval.Question, _ model.Dropped) object {
	return object{"model": q.Model, "input": q.Prompt, "encoding_format": "float"}
}

func responsesBody(q eval.Question, drop model.Dropped) object {
	body := object{"model": q.Model, "input": []object{{"role": "user", "content": q.Prompt}}, "store": false}
	if q.System != "" {
		body["instructions"] = q.System
	}
	common(body, q, drop)
	if q.MaxTokens > 0 {
		body["max_output_tokens"] = q.MaxTokens
	}
	if drop.Has(model.ParamTool) {
		body["text"] = object{"format": object{"type": "json_schema", "name": q.Tool.Name, "strict": true,
			"schema": strict(q.Tool.Schema)}}
		return body
	}
	body["tools"] = []object{{"type": "function", "name": q.Tool.Name, "description": q.Tool.Description,
		"parameters": q.Tool.Schema, "strict": false}}
	body["tool_choice"] = object{"type": "function", "name": q.Tool.Name}
	return body
}

func messagesBody(q eval.Question, drop model.Dropped) object {
	body := object{"model": q.Model, "messages": []object{{"role": "user", "content": q.Prompt}},
		"max_tokens": messagesLimit}
	if q.System != "" {
		body["system"] = q.System
	}
	common(body, q, drop)
	if q.MaxTokens > 0 {
		body["max_tokens"] = q.MaxTokens
	}
	if drop.Has(model.ParamTool) {
		body["output_config"] = object{"format": object{"type": "json_schema", "schema": strict(q.Tool.Schema)}}
		return body
	}
	body["tools"] = []object{{"name": q.Tool.Name, "description": q.Tool.Description, "input_schema": q.Tool.Schema}}
	body["tool_choice"] = object{"type": "tool", "name": q.Tool.Name}
	return body
}

func common(body object, q eval.Question, drop model.Dropped) {
	if q.Temperature != nil && !drop.Has(model.ParamTemperature) {
		body["temperature"] = *q.Temperature
	}
}

// strict returns a schema that allows no other keys, as strict JSON schemas must.
func strict(schema json.RawMessage) any {
	var o object
	if json.Unmarshal(schema, &o) != nil {
		return schema
	}
	o["additionalProperties"] = false
	return o
}

// asJSON returns a text if it is a JSON object from end to end, which is expected where no tool
// could be forced. It does not search within a text, since an agent's output may be quoted there.
func asJSON(text string) json.RawMessage {
	raw := bytes.TrimSpace([]byte(text))
	if !strings.HasPrefix(string(raw), "{") || !json.Valid(raw) {
		return nil
	}
	return raw
}
