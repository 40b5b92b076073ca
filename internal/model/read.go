package model

import (
	"encoding/json"

	"github.com/evalrun/evalrun/eval"
)

// Reply is an answer of a model, independent of the wire format.
type Reply struct {
	// Model is the model that has answered, and Fingerprint its version, if the provider tells.
	Model, Fingerprint string
	// Calls are the calls of tools. Text is the text beside them.
	Calls []ToolCall
	Text  string
	// Refusal is why the model would not answer. Truncated says that the answer was cut off at its
	// limit.
	Refusal   string
	Truncated bool
	// Stop is the provider's word for why the answer ended.
	Stop  string
	Usage *eval.Usage
	// Embedding is an array of numbers in place of an answer.
	Embedding json.RawMessage
}

// ToolCall is one call of a tool.
type ToolCall struct {
	ID   string
	Name string
	// Arguments are as the model has written them. They may not be JSON.
	Arguments json.RawMessage
}

// Read reads an answer with a status of success.
func (a API) Read(body []byte) (Reply, error) {
	switch a {
	case APIResponses:
		return readResponses(body)
	case APIMessages:
		return readMessages(body)
	case APIGemini:
		return readGemini(body)
	case APIEmbeddings:
		return readEmbedding(body)
	}
	return readChat(body)
}

func readChat(body []byte) (out Reply, err error) {
	var in struct {
		Model             string `json:"model"`
		SystemFingerprint string `json:"system_fingerprint"`
		Choices           []struct {
			FinishReason string `json:"finish_reason"`
			Message      struct {
				Content   *string `json:"content"`
				Refusal   *string `json:"refusal"`
				ToolCalls []struct {
					ID       string `json:"id"`
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
	out.Model, out.Fingerprint = in.Model, in.SystemFingerprint
	if u := in.Usage; u != nil {
		out.Usage = &eval.Usage{InputTokens: u.Prompt, CachedInputTokens: u.In.Cached, OutputTokens: u.Completion}
	}
	if len(in.Choices) == 0 {
		return out, nil
	}
	c := in.Choices[0]
	out.Stop = c.FinishReason
	out.Truncated = c.FinishReason == "length"
	switch {
	case c.FinishReason == "content_filter":
		out.Refusal = "the provider's content filter has stopped the answer"
	case c.Message.Refusal != nil && *c.Message.Refusal != "":
		out.Refusal = *c.Message.Refusal
	case c.Message.Content != nil:
		out.Text = *c.Message.Content
	}
	for _, called := range c.Message.ToolCalls {
		out.Calls = append(out.Calls, ToolCall{called.ID, called.Function.Name, json.RawMessage(called.Function.Arguments)})
	}
	return out, nil
}

func readEmbedding(body []byte) (out Reply, err error) {
	var in struct {
		Model string `json:"model"`
		Data  []struct {
			Embedding json.RawMessage `json:"embedding"`
		} `json:"data"`
		Usage *struct {
			Prompt int64 `json:"prompt_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return out, err
	}
	if out.Model = in.Model; in.Usage != nil {
		out.Usage = &eval.Usage{InputTokens: in.Usage.Prompt}
	}
	if len(in.Data) > 0 {
		out.Embedding = in.Data[0].Embedding
	}
	return out, nil
}

func readResponses(body []byte) (out Reply, err error) {
	var in struct {
		Model      string `json:"model"`
		Status     string `json:"status"`
		Incomplete *struct {
			Reason string `json:"reason"`
		} `json:"incomplete_details"`
		Output []struct {
			Type      string `json:"type"`
			CallID    string `json:"call_id"`
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
	out.Model, out.Stop = in.Model, in.Status
	if u := in.Usage; u != nil {
		out.Usage = &eval.Usage{InputTokens: u.Input, CachedInputTokens: u.In.Cached, OutputTokens: u.Output}
	}
	if in.Incomplete != nil {
		out.Truncated = in.Incomplete.Reason == "max_output_tokens"
		if in.Incomplete.Reason == "content_filter" {
			out.Refusal = "the provider's content filter has stopped the answer"
		}
	}
	for _, item := range in.Output {
		if item.Type == "function_call" {
			out.Calls = append(out.Calls, ToolCall{item.CallID, item.Name, json.RawMessage(item.Arguments)})
		}
		for _, c := range item.Content {
			switch {
			case c.Type == "refusal" || c.Refusal != "":
				out.Refusal = c.Refusal
			case c.Type == "output_text":
				out.Text += c.Text
			}
		}
	}
	return out, nil
}

func readMessages(body []byte) (out Reply, err error) {
	var in struct {
		Model      string `json:"model"`
		StopReason string `json:"stop_reason"`
		Content    []struct {
			Type  string          `json:"type"`
			ID    string          `json:"id"`
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
	out.Model, out.Stop = in.Model, in.StopReason
	out.Truncated = in.StopReason == "max_tokens" || in.StopReason == "model_context_window_exceeded"
	if u := in.Usage; u != nil {
		out.Usage = &eval.Usage{InputTokens: u.Input + u.CacheRead + u.CacheWrite, CachedInputTokens: u.CacheRead,
			OutputTokens: u.Output}
	}
	if in.StopReason == "refusal" {
		out.Refusal = "the model has stopped with the reason refusal"
	}
	for _, c := range in.Content {
		switch c.Type {
		case "tool_use":
			out.Calls = append(out.Calls, ToolCall{c.ID, c.Name, c.Input})
		case "text":
			out.Text += c.Text
		}
	}
	return out, nil
}

func readGemini(body []byte) (out Reply, err error) {
	var in struct {
		ModelVersion string `json:"modelVersion"`
		Candidates   []struct {
			FinishReason string `json:"finishReason"`
			Content      struct {
				Parts []struct {
					Text    string `json:"text"`
					Thought bool   `json:"thought"`
					Call    *struct {
						ID   string          `json:"id"`
						Name string          `json:"name"`
						Args json.RawMessage `json:"args"`
					} `json:"functionCall"`
				} `json:"parts"`
			} `json:"content"`
		} `json:"candidates"`
		Feedback struct {
			BlockReason string `json:"blockReason"`
		} `json:"promptFeedback"`
		Usage *struct {
			Prompt     int64 `json:"promptTokenCount"`
			Cached     int64 `json:"cachedContentTokenCount"`
			Candidates int64 `json:"candidatesTokenCount"`
			Thoughts   int64 `json:"thoughtsTokenCount"`
		} `json:"usageMetadata"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return out, err
	}
	out.Model = in.ModelVersion
	if u := in.Usage; u != nil {
		out.Usage = &eval.Usage{InputTokens: u.Prompt, CachedInputTokens: u.Cached, OutputTokens: u.Candidates + u.Thoughts}
	}
	if in.Feedback.BlockReason != "" {
		out.Refusal = "the provider has blocked the prompt: " + in.Feedback.BlockReason
	}
	if len(in.Candidates) == 0 {
		return out, nil
	}
	c := in.Candidates[0]
	switch out.Stop = c.FinishReason; out.Stop {
	case "", "STOP":
	case "MAX_TOKENS":
		out.Truncated = true
	case "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL":
	default: // SAFETY, RECITATION, PROHIBITED_CONTENT and others like them
		out.Refusal = "the provider has stopped the answer: " + c.FinishReason
	}
	for _, p := range c.Content.Parts {
		switch {
		case p.Call != nil:
			out.Calls = append(out.Calls, ToolCall{p.Call.ID, p.Call.Name, p.Call.Args})
		case !p.Thought:
			out.Text += p.Text
		}
	}
	return out, nil
}
