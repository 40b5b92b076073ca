package sdks

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"testing"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/openai/openai-go/v3/shared"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/modelagent"
	"github.com/evalrun/evalrun/internal/sandbox"
)

// TestMain lets the test binary be the init of a sandbox.
func TestMain(m *testing.M) {
	sandbox.InitMain()
	os.Exit(m.Run())
}

// bodies has a model of ours work with bash, and returns its two requests. The first answer of the
// provider calls bash twice, once wrongly.
func bodies(t *testing.T, api string, settings *modelagent.Settings, first, last string) (out []map[string]any) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			return
		}
		out = append(out, body)
		_, _ = io.WriteString(w, []string{first, last}[min(len(out)-1, 1)]) // what is missing fails below
	}))
	t.Cleanup(server.Close)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	settings.System, settings.Tools = system, []string{"bash"}
	a := modelagent.New(agent.Entry{Name: "m", Type: modelagent.Name, Model: &agent.Model{API: api, URL: server.URL, Name: "m1"}, Settings: settings}, agent.Options{})
	got, err := a.Run(t.Context(), agent.Segment{RolloutID: "r", Marker: t.Name(), Number: 1, Attempt: 1, Input: json.RawMessage(`{}`), Prompt: "Work.", Dir: t.TempDir(),
		Sandbox: &agent.Sandbox{Config: sandbox.Config{Isolation: sandbox.IsolationProcess}, Home: dir, Cwd: dir, Executable: self}})
	if err != nil || got.Fault != nil || len(out) != 2 {
		t.Fatalf("%v, %v, %d requests", err, got.Fault, len(out))
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return out
}

// equal compares our request with what the official client would send.
func equal(t *testing.T, ours map[string]any, theirs any) {
	t.Helper()
	data, err := json.Marshal(theirs)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	if got, want := plain(ours), plain(want); !reflect.DeepEqual(got, want) {
		t.Errorf("we send\n%s\nthe official client\n%s", indented(got), indented(want))
	}
}

// bashOf are the description and the schema of bash, as we have sent them.
func bashOf(t *testing.T, tool any, schema string) (description string, parameters map[string]any) {
	t.Helper()
	in, _ := tool.(map[string]any)
	if inner, ok := in["function"].(map[string]any); ok {
		in = inner
	}
	description, _ = in["description"].(string)
	parameters, _ = in[schema].(map[string]any)
	if description == "" || parameters == nil {
		t.Fatalf("%v", tool)
	}
	return description, parameters
}

func decode[T any](t *testing.T, text string) (out T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

const wrongCall = "not run: the arguments have no command"

// A loop against Anthropic: reasoning goes back with its signature before the calls, the results come
// first in one message, and the last two messages of the user are marked for the cache.
func TestLoopsOfMessages(t *testing.T) {
	const first = `{"id":"msg_1","type":"message","role":"assistant","model":"m1","stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":7,"output_tokens":3},"content":[
		{"type":"thinking","thinking":"a <b>","signature":"c2ln"},{"type":"redacted_thinking","data":"eA=="},{"type":"text","text":"I look."},
		{"type":"tool_use","id":"t1","name":"bash","input":{"command":"echo one"}},{"type":"tool_use","id":"t2","name":"bash","input":{}}]}`
	ours := bodies(t, "messages", &modelagent.Settings{Reasoning: json.RawMessage("2000")}, first, `{"content":[{"type":"text","text":"end"}],"stop_reason":"end_turn"}`)
	description, schema := bashOf(t, ours[0]["tools"].([]any)[0], "input_schema")
	marked := func(block anthropic.ContentBlockParamUnion) anthropic.ContentBlockParamUnion {
		*block.GetCacheControl() = anthropic.NewCacheControlEphemeralParam()
		return block
	}
	params := anthropic.MessageNewParams{Model: "m1", MaxTokens: 10000, System: []anthropic.TextBlockParam{{Text: system}},
		Thinking: anthropic.ThinkingConfigParamOfEnabled(2000),
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(marked(anthropic.NewTextBlock("Work.")))},
		Tools: []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: "bash", Description: anthropic.String(description),
			InputSchema: anthropic.ToolInputSchemaParam{Properties: schema["properties"], Required: []string{"command"}}}}}}
	equal(t, ours[0], params)
	answer := decode[anthropic.Message](t, first)
	one := anthropic.ContentBlockParamUnion{OfToolResult: &anthropic.ToolResultBlockParam{ToolUseID: "t1",
		Content: []anthropic.ToolResultBlockParamContentUnion{{OfText: &anthropic.TextBlockParam{Text: "one"}}}}}
	params.Messages = append(params.Messages, answer.ToParam(), anthropic.NewUserMessage(one, marked(anthropic.NewToolResultBlock("t2", wrongCall, true))))
	equal(t, ours[1], params)
}

// A loop against OpenAI's chat completions: one message for each result.
func TestLoopsOfChat(t *testing.T) {
	const message = `{"role":"assistant","content":"I look.","refusal":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"bash","arguments":"{\"command\":\"echo one\"}"}},
		{"id":"c2","type":"function","function":{"name":"bash","arguments":"{}"}}]}`
	ours := bodies(t, "chat", &modelagent.Settings{Reasoning: json.RawMessage(`"low"`)}, `{"choices":[{"message":`+message+`,"finish_reason":"tool_calls"}]}`, `{"choices":[{"message":{"role":"assistant","content":"end"}}]}`)
	description, schema := bashOf(t, ours[0]["tools"].([]any)[0], "parameters")
	params := openai.ChatCompletionNewParams{Model: "m1", ReasoningEffort: shared.ReasoningEffortLow,
		Messages: []openai.ChatCompletionMessageParamUnion{openai.SystemMessage(system), openai.UserMessage("Work.")},
		Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: "bash", Description: openai.String(description), Parameters: schema})}}
	equal(t, ours[0], params)
	answer := decode[openai.ChatCompletionMessage](t, message)
	params.Messages = append(params.Messages, answer.ToParam(), openai.ToolMessage("one", "c1"), openai.ToolMessage(wrongCall, "c2"))
	// What the provider has sent goes back as it came: the official client leaves out what is null.
	delete(ours[1]["messages"].([]any)[2].(map[string]any), "refusal")
	equal(t, ours[1], params)
}

// A loop against OpenAI's responses: encrypted reasoning goes back beside the calls.
func TestLoopsOfResponses(t *testing.T) {
	const output = `[{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAA"},
		{"type":"function_call","id":"fc_1","call_id":"c1","name":"bash","arguments":"{\"command\":\"echo one\"}","status":"completed"},
		{"type":"function_call","id":"fc_2","call_id":"c2","name":"bash","arguments":"{}","status":"completed"}]`
	ours := bodies(t, "responses", &modelagent.Settings{Reasoning: json.RawMessage(`"low"`)}, `{"status":"completed","output":`+output+`}`,
		`{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"end"}]}]}`)
	description, schema := bashOf(t, ours[0]["tools"].([]any)[0], "parameters")
	tool := responses.ToolParamOfFunction("bash", schema, false)
	tool.OfFunction.Description = openai.String(description)
	params := responses.ResponseNewParams{Model: "m1", Instructions: openai.String(system), Store: openai.Bool(false),
		Include: []responses.ResponseIncludable{responses.ResponseIncludableReasoningEncryptedContent}, Reasoning: shared.ReasoningParam{Effort: shared.ReasoningEffortLow},
		Tools: []responses.ToolUnionParam{tool}}
	params.Input.OfInputItemList = responses.ResponseInputParam{responses.ResponseInputItemParamOfMessage("Work.", responses.EasyInputMessageRoleUser)}
	equal(t, ours[0], params)
	for _, item := range decode[[]responses.ResponseOutputItemUnion](t, output) {
		switch item.Type {
		case "reasoning":
			p := item.AsReasoning().ToParam()
			params.Input.OfInputItemList = append(params.Input.OfInputItemList, responses.ResponseInputItemUnionParam{OfReasoning: &p})
		case "function_call":
			p := item.AsFunctionCall().ToParam()
			params.Input.OfInputItemList = append(params.Input.OfInputItemList, responses.ResponseInputItemUnionParam{OfFunctionCall: &p})
		}
	}
	params.Input.OfInputItemList = append(params.Input.OfInputItemList, responses.ResponseInputItemParamOfFunctionCallOutput("c1", "one"), responses.ResponseInputItemParamOfFunctionCallOutput("c2", wrongCall))
	equal(t, ours[1], params)
}
