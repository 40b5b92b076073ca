package sdks

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/judge"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/peers/fakejudge"
)

func (w *world) anthropic() anthropic.Client {
	return anthropic.NewClient(option.WithAPIKey(fakejudge.Key), option.WithBaseURL(w.server.URL()))
}

func messagesQuestion(prompt string, tools bool) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{Model: models[judge.APIMessages], MaxTokens: maxTokens, Temperature: anthropic.Float(0),
		System: []anthropic.TextBlockParam{{Text: system}}, Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt))}}
	if tools {
		p.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: toolName, Description: anthropic.String(toolDescription),
			InputSchema: anthropic.ToolInputSchemaParam{Properties: schema["properties"], Required: []string{"score", "justification"}}}}}
		p.ToolChoice = anthropic.ToolChoiceParamOfTool(toolName)
	} else {
		p.OutputConfig.Format = anthropic.JSONOutputFormatParam{Schema: closed()}
	}
	return p
}

func TestMessages(t *testing.T) {
	for _, prompt := range []string{"judge", "no tool", "refuse", "truncate"} {
		t.Run(prompt, func(t *testing.T) {
			w := newWorld(t)
			_, ours := w.ask(judge.APIMessages, prompt)
			client := w.anthropic()
			got, err := client.Messages.New(t.Context(), messagesQuestion(prompt, prompt != "no tool"))
			if err != nil {
				t.Fatal(err)
			}
			w.same("X-Api-Key", "Anthropic-Version")
			complete(t, got)
			if got.Usage.InputTokens != fakejudge.InputTokens || got.Usage.OutputTokens != fakejudge.OutputTokens {
				t.Errorf("usage: %s", got.Usage.RawJSON())
			}
			switch prompt {
			case "judge":
				w.verdict(string(got.Content[0].AsToolUse().Input))
			case "no tool":
				w.verdict(got.Content[0].Text)
			case "refuse":
				if got.StopReason != anthropic.StopReasonRefusal || category(ours) != eval.JudgeRefused {
					t.Errorf("refused: %s, we say %v", got.RawJSON(), ours)
				}
				return
			case "truncate":
				if got.StopReason != anthropic.StopReasonMaxTokens || category(ours) != eval.JudgeTruncated {
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

func TestAnthropicErrors(t *testing.T) {
	w := newWorld(t)
	client := w.anthropic()
	_, err := client.Messages.New(t.Context(), messagesQuestion("fail", true))
	var failed *anthropic.Error
	if !errors.As(err, &failed) || failed.StatusCode != http.StatusBadRequest || errorOf(t, failed) != "invalid_request_error" || failed.RequestID == "" {
		t.Fatalf("%v", err)
	}
	w.busy = 1
	_, err = client.Messages.New(t.Context(), messagesQuestion("busy", true), option.WithMaxRetries(0))
	if !errors.As(err, &failed) || errorOf(t, failed) != "rate_limit_error" || failed.Response.Header.Get("Retry-After") != "0" {
		t.Errorf("busy: %v", err)
	}
	w.busy = 1
	if _, err := client.Messages.New(t.Context(), messagesQuestion("busy", true)); err != nil {
		t.Errorf("the official client does not ask again: %v", err)
	}
	w.busy = 1
	if got, err := w.ask(judge.APIMessages, "busy"); err != nil || got.Call.Attempts != 2 || got.Call.RequestID == "" || len(w.paused) != 1 || w.paused[0] != 0 {
		t.Errorf("we ask %+v, after %v: %v", got.Call, w.paused, err)
	}
}

// errorOf is the type of an error, whose body is decoded as those in results of batches are.
func errorOf(t *testing.T, failed *anthropic.Error) string {
	t.Helper()
	var body anthropic.ErrorResponse
	if err := json.Unmarshal([]byte(failed.RawJSON()), &body); err != nil {
		t.Fatal(err)
	}
	complete(t, body)
	return body.Error.Type
}

// TestAnthropicBatches has a batch of ours read by the official client, and one of the official
// client by us.
func TestAnthropicBatches(t *testing.T) {
	w := newWorld(t)
	client := w.anthropic()
	prompts := []string{"judge", "fail", "expire"}
	requests := w.gather(judge.APIMessages, prompts...)
	since := time.Now()
	ours := model.Batch{ID: "b1", Size: len(requests), Since: since}
	id, err := w.batches("anthropic").Start(t.Context(), ours, requests, false)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Messages.Batches.List(t.Context(), anthropic.MessageBatchListParams{})
	if err != nil || len(list.Data) != 1 || list.Data[0].ID != id {
		t.Fatalf("the official client lists %+v, %v", list, err)
	}
	complete(t, list.Data)
	said := w.messageBatch(client, id)

	// The same requests, from the official client.
	var p anthropic.MessageBatchNewParams
	for i, prompt := range prompts {
		q := messagesQuestion(prompt, true)
		p.Requests = append(p.Requests, anthropic.MessageBatchNewParamsRequest{CustomID: requests[i].CustomID, Params: anthropic.MessageBatchNewParamsRequestParams{
			Model: q.Model, MaxTokens: q.MaxTokens, Temperature: q.Temperature, System: q.System, Messages: q.Messages, Tools: q.Tools, ToolChoice: q.ToolChoice}})
	}
	made, err := client.Messages.Batches.New(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	complete(t, made)
	ours.Others = []string{id}
	if found, err := w.batches("anthropic").Find(t.Context(), ours); err != nil || found != made.ID {
		t.Errorf("we find %q, %v", found, err)
	}
	ours.External = made.ID
	w.answers(w.batches("anthropic"), ours, requests, said)
	w.sameBatches(id, made.ID)
}

// messageBatch reads a batch with the official client, and gives what it says of each request.
func (w *world) messageBatch(client anthropic.Client, id string) map[string]string {
	w.Helper()
	got, err := client.Messages.Batches.Get(w.Context(), id)
	if err != nil || got.ProcessingStatus != anthropic.MessageBatchProcessingStatusEnded || got.ResultsURL == "" ||
		got.RequestCounts.Succeeded != 1 || got.RequestCounts.Errored != 1 || got.RequestCounts.Expired != 1 {
		w.Fatalf("the batch is %+v, %v", got, err)
	}
	complete(w.T, got)
	said := map[string]string{}
	stream := client.Messages.Batches.ResultsStreaming(w.Context(), id)
	for stream.Next() {
		line := stream.Current()
		complete(w.T, line)
		switch result := line.Result.AsAny().(type) {
		case anthropic.MessageBatchSucceededResult:
			w.verdict(string(result.Message.Content[0].AsToolUse().Input))
			said[line.CustomID] = result.Message.RawJSON()
		case anthropic.MessageBatchErroredResult:
			said[line.CustomID] = result.Error.Error.Message
		default:
			said[line.CustomID] = line.Result.Type
		}
	}
	if err := stream.Err(); err != nil {
		w.Fatal(err)
	}
	return said
}
