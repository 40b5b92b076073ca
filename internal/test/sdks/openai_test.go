package sdks

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/peers/fakejudge"
)

func (w *world) openai() openai.Client {
	return openai.NewClient(option.WithAPIKey(fakejudge.Key), option.WithBaseURL(w.server.URL()+"/v1"))
}

// closed is the schema as structured output wants it.
func closed() map[string]any {
	out := map[string]any{"additionalProperties": false}
	for key, value := range schema {
		out[key] = value
	}
	return out
}

func chatQuestion(prompt string, tools bool) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{Model: models[judge.APIChat], Temperature: openai.Float(0), MaxCompletionTokens: openai.Int(maxTokens),
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(system), openai.UserMessage(prompt)}}
	if tools {
		p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: toolName, Description: openai.String(toolDescription), Parameters: schema})}
		p.ToolChoice = openai.ToolChoiceOptionFunctionToolChoice(openai.ChatCompletionNamedToolChoiceFunctionParam{Name: toolName})
	} else {
		p.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
			JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{Name: toolName, Strict: openai.Bool(true), Schema: closed()}}
	}
	return p
}

func responsesQuestion(prompt string, tools bool) responses.ResponseNewParams {
	p := responses.ResponseNewParams{Model: models[judge.APIResponses], Temperature: openai.Float(0), MaxOutputTokens: openai.Int(maxTokens),
		Instructions: openai.String(system), Store: openai.Bool(false)}
	p.Input.OfInputItemList = responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage(prompt, responses.EasyInputMessageRoleUser)}
	if tools {
		tool := responses.ToolParamOfFunction(toolName, schema, false)
		tool.OfFunction.Description = openai.String(toolDescription)
		p.Tools = []responses.ToolUnionParam{tool}
		p.ToolChoice.OfFunctionTool = &responses.ToolChoiceFunctionParam{Name: toolName}
	} else {
		p.Text.Format.OfJSONSchema = &responses.ResponseFormatTextJSONSchemaConfigParam{Name: toolName, Strict: openai.Bool(true), Schema: closed()}
	}
	return p
}

func TestChat(t *testing.T) {
	for _, prompt := range []string{"judge", "no tool", "refuse", "truncate"} {
		t.Run(prompt, func(t *testing.T) {
			w := newWorld(t)
			_, ours := w.ask(judge.APIChat, prompt)
			client := w.openai()
			got, err := client.Chat.Completions.New(t.Context(), chatQuestion(prompt, prompt != "no tool"))
			if err != nil {
				t.Fatal(err)
			}
			w.same("Authorization")
			complete(t, got)
			if got.Usage.PromptTokens != fakejudge.InputTokens || got.Usage.CompletionTokens != fakejudge.OutputTokens {
				t.Errorf("usage: %s", got.Usage.RawJSON())
			}
			choice := got.Choices[0]
			switch prompt {
			case "judge":
				w.verdict(choice.Message.ToolCalls[0].Function.Arguments)
			case "no tool":
				w.verdict(choice.Message.Content)
			case "refuse":
				if choice.Message.Refusal == "" || category(ours) != eval.JudgeRefused {
					t.Errorf("refused: %s, we say %v", choice.RawJSON(), ours)
				}
				return
			case "truncate":
				if choice.FinishReason != "length" || category(ours) != eval.JudgeTruncated {
					t.Errorf("truncated: %s, we say %v", choice.RawJSON(), ours)
				}
				return
			}
			if ours != nil {
				t.Error(ours)
			}
		})
	}
}

func TestEmbeddings(t *testing.T) {
	w := newWorld(t)
	q := question(judge.APIChat, "a text", 0)
	q.Embed, q.Check = true, func(json.RawMessage) error { return nil }
	ours, err := w.judges.Of("agent", w.TempDir(), "").Ask(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	client := w.openai()
	got, err := client.Embeddings.New(t.Context(), openai.EmbeddingNewParams{Model: models[judge.APIChat],
		Input: openai.EmbeddingNewParamsInputUnion{OfString: openai.String("a text")}, EncodingFormat: openai.EmbeddingNewParamsEncodingFormatFloat})
	if err != nil {
		t.Fatal(err)
	}
	w.same("Authorization")
	complete(t, got)
	var vector []float64
	if err := json.Unmarshal(ours.Arguments, &vector); err != nil || !slices.Equal(vector, got.Data[0].Embedding) {
		t.Errorf("we have %v, the client %v: %v", vector, got.Data[0].Embedding, err)
	}
	if got.Usage.PromptTokens != ours.Call.Usage.InputTokens {
		t.Errorf("usage: %s, we have %+v", got.Usage.RawJSON(), ours.Call.Usage)
	}
}

func TestResponses(t *testing.T) {
	for _, prompt := range []string{"judge", "no tool", "refuse", "truncate"} {
		t.Run(prompt, func(t *testing.T) {
			w := newWorld(t)
			_, ours := w.ask(judge.APIResponses, prompt)
			client := w.openai()
			got, err := client.Responses.New(t.Context(), responsesQuestion(prompt, prompt != "no tool"))
			if err != nil {
				t.Fatal(err)
			}
			w.same("Authorization")
			complete(t, got)
			if got.Usage.InputTokens != fakejudge.InputTokens || got.Usage.OutputTokens != fakejudge.OutputTokens {
				t.Errorf("usage: %s", got.Usage.RawJSON())
			}
			last := got.Output[len(got.Output)-1]
			switch prompt {
			case "judge":
				w.verdict(last.AsFunctionCall().Arguments)
			case "no tool":
				w.verdict(got.OutputText())
			case "refuse":
				if last.Content[0].Refusal == "" || category(ours) != eval.JudgeRefused {
					t.Errorf("refused: %s, we say %v", got.RawJSON(), ours)
				}
				return
			case "truncate":
				if got.Status != responses.ResponseStatusIncomplete || got.IncompleteDetails.Reason != "max_output_tokens" || category(ours) != eval.JudgeTruncated {
					t.Errorf("truncated: %s, we say %v", got.RawJSON(), ours)
				}
				return
			}
			if ours != nil {
				t.Error(ours)
			}
		})
	}
}

func TestOpenAIErrors(t *testing.T) {
	w := newWorld(t)
	client := w.openai()
	_, err := client.Chat.Completions.New(t.Context(), chatQuestion("fail", true))
	var failed *openai.Error
	if !errors.As(err, &failed) || failed.StatusCode != http.StatusBadRequest || failed.Message != "that is no question" {
		t.Fatalf("%v", err)
	}
	complete(t, failed)
	w.busy = 1
	_, err = client.Chat.Completions.New(t.Context(), chatQuestion("busy", true), option.WithMaxRetries(0))
	if !errors.As(err, &failed) || failed.StatusCode != http.StatusTooManyRequests || failed.Response.Header.Get("Retry-After") != "0" {
		t.Errorf("busy: %v", err)
	}
	w.busy = 1
	if _, err := client.Responses.New(t.Context(), responsesQuestion("busy", true)); err != nil {
		t.Errorf("the official client does not ask again: %v", err)
	}
	w.busy = 1
	if got, err := w.ask(judge.APIChat, "busy"); err != nil || got.Call.Attempts != 2 || len(w.paused) != 1 || w.paused[0] != 0 {
		t.Errorf("we ask %d times, after %v: %v", got.Call.Attempts, w.paused, err)
	}
}

// TestOpenAIBatches has a batch of ours read by the official client, and one of the official client
// by us.
func TestOpenAIBatches(t *testing.T) {
	w := newWorld(t)
	client := w.openai()
	requests := w.gather(judge.APIChat, "judge", "fail", "expire")
	ours := model.Batch{ID: "b1", Size: len(requests)}
	id, err := w.batches("openai").Start(t.Context(), ours, requests, false)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Batches.List(t.Context(), openai.BatchListParams{})
	if err != nil || len(list.Data) != 1 || list.Data[0].ID != id || list.Data[0].Metadata["evalrun"] != "b1" {
		t.Fatalf("the official client lists %+v, %v", list, err)
	}
	complete(t, list.Data)
	said := w.chatBatch(client, id, 1, 2)

	// The same requests, from the official client.
	var file bytes.Buffer
	lines := json.NewEncoder(&file)
	for i, prompt := range []string{"judge", "fail", "expire"} {
		if err := lines.Encode(map[string]any{"custom_id": requests[i].CustomID, "method": "POST", "url": "/v1/chat/completions", "body": chatQuestion(prompt, true)}); err != nil {
			t.Fatal(err)
		}
	}
	uploaded, err := client.Files.New(t.Context(), openai.FileNewParams{Purpose: openai.FilePurposeBatch, File: openai.File(&file, "requests.jsonl", "application/jsonl")})
	if err != nil {
		t.Fatal(err)
	}
	complete(t, uploaded)
	made, err := client.Batches.New(t.Context(), openai.BatchNewParams{InputFileID: uploaded.ID, Endpoint: openai.BatchNewParamsEndpointV1ChatCompletions,
		CompletionWindow: openai.BatchNewParamsCompletionWindow24h, Metadata: shared.Metadata{"evalrun": "b2"}})
	if err != nil {
		t.Fatal(err)
	}
	complete(t, made)
	ours.ID = "b2"
	if found, err := w.batches("openai").Find(t.Context(), ours); err != nil || found != made.ID {
		t.Errorf("we find %q, %v", found, err)
	}
	ours.External = made.ID
	w.answers(w.batches("openai"), ours, requests, said)
	w.sameBatches(id, made.ID)
}

// chatBatch reads a batch with the official client, and gives what it says of each request.
func (w *world) chatBatch(client openai.Client, id string, completed, failed int64) map[string]string {
	w.Helper()
	got, err := client.Batches.Get(w.Context(), id)
	if err != nil || got.Status != openai.BatchStatusCompleted || got.RequestCounts.Completed != completed || got.RequestCounts.Failed != failed {
		w.Fatalf("the batch is %+v, %v", got, err)
	}
	complete(w.T, got)
	said := map[string]string{}
	for _, id := range []string{got.OutputFileID, got.ErrorFileID} {
		content, err := client.Files.Content(w.Context(), id)
		if err != nil {
			w.Fatal(err)
		}
		for scanner := bufio.NewScanner(content.Body); scanner.Scan(); {
			var line struct {
				CustomID string `json:"custom_id"`
				Response *struct {
					StatusCode int `json:"status_code"`
					Body       json.RawMessage
				}
				Error *struct{ Code string }
			}
			if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
				w.Fatal(err)
			}
			switch {
			case line.Error != nil:
				said[line.CustomID] = strings.TrimPrefix(line.Error.Code, "batch_")
			case line.Response.StatusCode >= http.StatusBadRequest:
				said[line.CustomID] = "that is no question"
			default:
				var answer openai.ChatCompletion
				if err := json.Unmarshal(line.Response.Body, &answer); err != nil {
					w.Fatal(err)
				}
				complete(w.T, answer)
				w.verdict(answer.Choices[0].Message.ToolCalls[0].Function.Arguments)
				said[line.CustomID] = answer.RawJSON()
			}
		}
		_ = content.Body.Close() // only read
	}
	return said
}
