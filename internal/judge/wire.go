package judge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/evalrun/evalrun/eval"
)

// format is a wire format. It says what is posted where, and what an answer means.
type format struct {
	path    string
	headers func(h http.Header, key string)
	// body makes the request. It leaves out the parameters in drop.
	body func(q eval.Question, drop dropped) map[string]any
	read func(body []byte) (reply, error)
}

// reply is an answer of a provider, independent of the wire format.
type reply struct {
	model, fingerprint string
	// calls holds the tool calls. text is the text beside them.
	calls []call
	text  string
	// arguments are the arguments of the requested tool, or the JSON in its place; nil if there are
	// none. [reply.choose] sets them.
	arguments json.RawMessage
	// refusal is why the model would not answer. truncated says that the answer was cut off at its
	// limit.
	refusal   string
	truncated bool
	usage     *eval.Usage
}

// call is one call of a tool.
type call struct {
	name      string
	arguments json.RawMessage
}

// choose takes the arguments of the requested tool. If the tool was forced, only a call of it
// counts, since a text may repeat the agent's output. If a model takes no tools, the answer is its
// text, which must be JSON from end to end. The error describes a contradiction.
func (r *reply) choose(tool string, forced bool) error {
	var found []json.RawMessage
	for _, c := range r.calls {
		if c.name == tool {
			found = append(found, c.arguments)
		}
	}
	if text := asJSON(r.text); len(found) == 0 && !forced && text != nil {
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

var formats = map[API]format{
	APIChat:      {"/chat/completions", bearer, chatBody, readChat},
	APIResponses: {"/responses", bearer, responsesBody, readResponses},
	APIMessages:  {"/v1/messages", anthropic, messagesBody, readMessages},
}

func bearer(h http.Header, key string) {
	if key != "" {
		h.Set("Authorization", "Bearer "+key)
	}
}

func anthropic(h http.Header, key string) {
	h.Set("anthropic-version", "2023-06-01")
	if key != "" {
		h.Set("x-api-key", key)
	}
}

// messagesLimit is sent where a question has no limit: Anthropic needs one.
const messagesLimit = 8000

type object = map[string]any

// The parameters that a model may not take. An error about one name of the limit counts for all its
// names.
const (
	paramTemperature = "temperature"
	paramSeed        = "seed"
	paramTool        = "tool_choice"
	paramLimit       = "max_completion_tokens"
	paramOldLimit    = "max_tokens"
)

func chatBody(q eval.Question, drop dropped) object {
	messages := []object{}
	if q.System != "" {
		messages = append(messages, object{"role": "system", "content": q.System})
	}
	body := object{"model": q.Model, "messages": append(messages, object{"role": "user", "content": q.Prompt})}
	common(body, q, drop)
	if q.Seed != nil && !drop.has(paramSeed) {
		body["seed"] = *q.Seed
	}
	if q.MaxTokens > 0 {
		if drop.oldLimit {
			body[paramOldLimit] = q.MaxTokens
		} else {
			body[paramLimit] = q.MaxTokens
		}
	}
	if drop.has(paramTool) {
		body["response_format"] = object{"type": "json_schema",
			"json_schema": object{"name": q.Tool.Name, "strict": true, "schema": strict(q.Tool.Schema)}}
		return body
	}
	body["tools"] = []object{{"type": "function", "function": object{
		"name": q.Tool.Name, "description": q.Tool.Description, "parameters": q.Tool.Schema}}}
	body["tool_choice"] = object{"type": "function", "function": object{"name": q.Tool.Name}}
	return body
}

func responsesBody(q eval.Question, drop dropped) object {
	body := object{"model": q.Model, "input": []object{{"role": "user", "content": q.Prompt}}, "store": false}
	if q.System != "" {
		body["instructions"] = q.System
	}
	common(body, q, drop)
	if q.MaxTokens > 0 {
		body["max_output_tokens"] = q.MaxTokens
	}
	if drop.has(paramTool) {
		body["text"] = object{"format": object{"type": "json_schema", "name": q.Tool.Name, "strict": true,
			"schema": strict(q.Tool.Schema)}}
		return body
	}
	body["tools"] = []object{{"type": "function", "name": q.Tool.Name, "description": q.Tool.Description,
		"parameters": q.Tool.Schema, "strict": false}}
	body["tool_choice"] = object{"type": "function", "name": q.Tool.Name}
	return body
}

func messagesBody(q eval.Question, drop dropped) object {
	body := object{"model": q.Model, "messages": []object{{"role": "user", "content": q.Prompt}},
		"max_tokens": messagesLimit}
	if q.System != "" {
		body["system"] = q.System
	}
	common(body, q, drop)
	if q.MaxTokens > 0 {
		body["max_tokens"] = q.MaxTokens
	}
	if drop.has(paramTool) {
		body["output_config"] = object{"format": object{"type": "json_schema", "schema": strict(q.Tool.Schema)}}
		return body
	}
	body["tools"] = []object{{"name": q.Tool.Name, "description": q.Tool.Description, "input_schema": q.Tool.Schema}}
	body["tool_choice"] = object{"type": "tool", "name": q.Tool.Name}
	return body
}

func common(body object, q eval.Question, drop dropped) {
	if q.Temperature != nil && !drop.has(paramTemperature) {
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

func readChat(body []byte) (out reply, err error) {
	var in struct {
		Model             string `json:"model"`
		SystemFingerprint string `json:"system_fingerprint"`
		Choices           []struct {
			FinishReason string `json:"finish_reason"`
			Message      struct {
				Content   *string `json:"content"`
				Refusal   *string `json:"refusal"`
				ToolCalls []struct {
					Function struct {
						Name      string `json:"name"`
						Arguments string `json:"arguments"`
					} `json:"function"`
				} `json:"tool_calls"`
			} `json:"message"`
		} `json:"choices"`
		Usage *struct {
			Prompt     int64 `json:"prompt_tokens"`
			Completion int64 `json:"completion_tokens"`
			In         struct {
				Cached int64 `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return out, err
	}
	out.model, out.fingerprint = in.Model, in.SystemFingerprint
	if u := in.Usage; u != nil {
		out.usage = &eval.Usage{InputTokens: u.Prompt, CachedInputTokens: u.In.Cached, OutputTokens: u.Completion}
	}
	if len(in.Choices) == 0 {
		return out, nil
	}
	c := in.Choices[0]
	out.truncated = c.FinishReason == "length"
	switch {
	case c.FinishReason == "content_filter":
		out.refusal = "the provider's content filter has stopped the answer"
	case c.Message.Refusal != nil && *c.Message.Refusal != "":
		out.refusal = *c.Message.Refusal
	case c.Message.Content != nil:
		out.text = *c.Message.Content
	}
	for _, called := range c.Message.ToolCalls {
		out.calls = append(out.calls, call{called.Function.Name, json.RawMessage(called.Function.Arguments)})
	}
	return out, nil
}

func readResponses(body []byte) (out reply, err error) {
	var in struct {
		Model      string `json:"model"`
		Status     string `json:"status"`
		Incomplete *struct {
			Reason string `json:"reason"`
		} `json:"incomplete_details"`
		Output []struct {
			Type      string `json:"type"`
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
			Content   []struct {
				Type    string `json:"type"`
				Text    string `json:"text"`
				Refusal string `json:"refusal"`
			} `json:"content"`
		} `json:"output"`
		Usage *struct {
			Input  int64 `json:"input_tokens"`
			Output int64 `json:"output_tokens"`
			In     struct {
				Cached int64 `json:"cached_tokens"`
			} `json:"input_tokens_details"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return out, err
	}
	out.model = in.Model
	if u := in.Usage; u != nil {
		out.usage = &eval.Usage{InputTokens: u.Input, CachedInputTokens: u.In.Cached, OutputTokens: u.Output}
	}
	if in.Incomplete != nil {
		out.truncated = in.Incomplete.Reason == "max_output_tokens"
		if in.Incomplete.Reason == "content_filter" {
			out.refusal = "the provider's content filter has stopped the answer"
		}
	}
	for _, item := range in.Output {
		if item.Type == "function_call" {
			out.calls = append(out.calls, call{item.Name, json.RawMessage(item.Arguments)})
		}
		for _, c := range item.Content {
			switch {
			case c.Type == "refusal" || c.Refusal != "":
				out.refusal = c.Refusal
			case c.Type == "output_text":
				out.text += c.Text
			}
		}
	}
	return out, nil
}

func readMessages(body []byte) (out reply, err error) {
	var in struct {
		Model      string `json:"model"`
		StopReason string `json:"stop_reason"`
		Content    []struct {
			Type  string          `json:"type"`
			Name  string          `json:"name"`
			Text  string          `json:"text"`
			Input json.RawMessage `json:"input"`
		} `json:"content"`
		Usage *struct {
			Input      int64 `json:"input_tokens"`
			CacheWrite int64 `json:"cache_creation_input_tokens"`
			CacheRead  int64 `json:"cache_read_input_tokens"`
			Output     int64 `json:"output_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return out, err
	}
	out.model, out.truncated = in.Model, in.StopReason == "max_tokens"
	if u := in.Usage; u != nil {
		out.usage = &eval.Usage{InputTokens: u.Input + u.CacheRead + u.CacheWrite, CachedInputTokens: u.CacheRead,
			OutputTokens: u.Output}
	}
	if in.StopReason == "refusal" {
		out.refusal = "the model has stopped with the reason refusal"
	}
	for _, c := range in.Content {
		switch c.Type {
		case "tool_use":
			out.calls = append(out.calls, call{c.Name, c.Input})
		case "text":
			out.text += c.Text
		}
	}
	return out, nil
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
