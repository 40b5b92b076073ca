package modelagent

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/peers/fakemodel"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/redact"
)

const testKey = "key-of-the-model-0123456789"

// entryOf reads an entry, whose type is left out.
func entryOf(t *testing.T, text string) agent.Entry {
	t.Helper()
	n, err := input.Parse("agent.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r := &input.Reader{}
	f := r.Object(n)
	e := parse(r, f)
	f.Done()
	if err := r.Problems.Err(true); err != nil {
		t.Fatal(err)
	}
	e.Type = Name
	return e
}

// run runs a segment of an agent. Pauses take no time; paused has them.
func run(t *testing.T, entry, inputs string) (out agent.Outcome, seg agent.Segment, paused []time.Duration) {
	t.Helper()
	secrets := redact.New(map[string]string{"MODEL_KEY": testKey})
	o := agent.Options{Redact: secrets.Writer, Resolve: func(name string) (string, bool) { return testKey, name == "MODEL_KEY" }}
	a := newAgent(entryOf(t, entry), o, func(ctx context.Context, d time.Duration) error {
		paused = append(paused, d)
		return ctx.Err()
	})
	seg = agent.Segment{RolloutID: "r", Number: 1, Attempt: 1, Input: json.RawMessage(inputs), Prompt: inputs, Dir: t.TempDir()}
	out, err := a.Run(t.Context(), seg)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return out, seg, paused
}

// modelOf is the key "model" of an entry for a server.
func modelOf(api model.API, url string) string {
	if api == model.APIChat || api == model.APIResponses {
		url += "/v1"
	}
	return `"model": {"api": "` + string(api) + `", "url": "` + url + `", "key": "${MODEL_KEY}", "name": "m1"}`
}

var allAPIs = []model.API{model.APIChat, model.APIResponses, model.APIMessages, model.APIGemini}

func TestAnAnswerIsTheOutput(t *testing.T) {
	for _, api := range allAPIs {
		t.Run(string(api), func(t *testing.T) {
			server, err := fakemodel.Start(fakemodel.Options{Key: testKey})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = server.Close() })
			out, seg, _ := run(t, `{`+modelOf(api, server.URL())+`, "system": "You are {{who}}.", "messages": [
				{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "{{question}}"}]}`,
				`{"who": "brief", "question": "[[SAY four]] What is 2 + 2?"}`)
			if out.Fault != nil || string(out.Output) != `{"content":"four"}` {
				t.Fatalf("%s, %v", out.Output, out.Fault)
			}
			if u := out.Info.Usage; len(u) != 1 || u[0].Model != "m1" || u[0].InputTokens != fakemodel.InputTokens || u[0].OutputTokens != fakemodel.OutputTokens {
				t.Errorf("usage %+v", u)
			}
			requests := server.Requests()
			if len(requests) != 1 || requests[0].Model != "m1" {
				t.Fatalf("%+v", requests)
			}
			var got []string
			for _, m := range requests[0].Messages {
				got = append(got, m.Role+": "+m.Text)
			}
			want := []string{"system: You are brief.", "user: Hello", "assistant: Yes?", "user: [[SAY four]] What is 2 + 2?"}
			if api == model.APIResponses {
				want = want[1:] // the fake model does not tell instructions
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if !slices.Equal(out.Files, []string{record.FileTrajectory, record.FileUsage}) {
				t.Errorf("files %v", out.Files)
			}
			trail, err := os.ReadFile(filepath.Join(seg.Dir, record.FileTrajectory))
			if err != nil || !strings.Contains(string(trail), `"text":"four"`) || strings.Contains(string(trail), testKey) {
				t.Errorf("%s, %v", trail, err)
			}
		})
	}
}

// serve starts a server that gives these answers one after another, the last one again and again.
func serve(t *testing.T, answers ...answer) (url string, bodies *[]string) {
	t.Helper()
	bodies = new([]string)
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		*bodies = append(*bodies, string(body))
		a := answers[min(n, len(answers)-1)]
		n++
		if a.early {
			w.Header().Set("Content-Length", "1000")
		}
		if a.status != 0 {
			w.WriteHeader(a.status)
		}
		_, _ = io.WriteString(w, a.body)
	}))
	t.Cleanup(server.Close)
	return server.URL, bodies
}

// answer is one answer of a server. early says that the connection ends within it.
type answer struct {
	status int
	body   string
	early  bool
}

func chatAnswer(message, reason string) answer {
	return answer{body: `{"model":"m1","choices":[{"message":` + message + `,"finish_reason":"` + reason + `"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`}
}

var good = chatAnswer(`{"content":"fine"}`, "stop")

// Each line is one of the ways in which a model or its provider fails.
func TestAnswersThatAreNoOutput(t *testing.T) {
	messages := func(body string) answer {
		return answer{body: `{"model":"m1","usage":{"input_tokens":7,"output_tokens":3},` + body + `}`}
	}
	for name, c := range map[string]struct {
		api      model.API
		more     string
		answers  []answer
		category fault.Category
		says     string
		requests int
	}{
		"a refusal":                              {model.APIChat, "", []answer{chatAnswer(`{"content":null,"refusal":"I will not"}`, "stop")}, fault.AgentError, "refuses to answer: I will not", 1},
		"a content filter":                       {model.APIChat, "", []answer{chatAnswer(`{"content":"x"}`, "content_filter")}, fault.AgentError, "content filter", 1},
		"a refusal of Anthropic":                 {model.APIMessages, "", []answer{messages(`"content":[],"stop_reason":"refusal"`)}, fault.AgentError, "refuses", 1},
		"a safety stop of Gemini":                {model.APIGemini, "", []answer{{body: `{"candidates":[{"finishReason":"SAFETY"}]}`}}, fault.AgentError, "SAFETY", 1},
		"a prompt that Gemini blocks":            {model.APIGemini, "", []answer{{body: `{"promptFeedback":{"blockReason":"OTHER"}}`}}, fault.AgentError, "OTHER", 1},
		"an empty answer":                        {model.APIChat, "", []answer{chatAnswer(`{"content":" "}`, "stop")}, fault.NoOutput, "empty", 1},
		"no choice":                              {model.APIChat, "", []answer{{body: `{"choices":[]}`}}, fault.NoOutput, "empty", 1},
		"cut by the token limit":                 {model.APIChat, `, "maxTokens": 5`, []answer{chatAnswer(`{"content":"The ans"}`, "length")}, fault.OutputLimit, "maxTokens: 5", 1},
		"cut by Anthropic's limit":               {model.APIMessages, "", []answer{messages(`"content":[{"type":"text","text":"The"}],"stop_reason":"max_tokens"`)}, fault.OutputLimit, "cut off", 1},
		"the context of Anthropic is full":       {model.APIMessages, "", []answer{messages(`"content":[],"stop_reason":"model_context_window_exceeded"`)}, fault.OutputLimit, "cut off", 1},
		"cut by the limit of responses":          {model.APIResponses, "", []answer{{body: `{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[]}`}}, fault.OutputLimit, "cut off", 1},
		"cut by Gemini's limit":                  {model.APIGemini, "", []answer{{body: `{"candidates":[{"finishReason":"MAX_TOKENS","content":{"parts":[{"text":"x"}]}}]}`}}, fault.OutputLimit, "cut off", 1},
		"a tool that does not exist":             {model.APIChat, "", []answer{chatAnswer(`{"content":null,"tool_calls":[{"id":"1","function":{"name":"ls","arguments":"{}"}}]}`, "tool_calls")}, fault.Protocol, `"ls"`, 1},
		"a context that is too long":             {model.APIChat, "", []answer{{status: 400, body: `{"error":{"message":"This model's maximum context length is 10 tokens"}}`}}, fault.AgentError, "longer than the model's context", 1},
		"a request that is wrong":                {model.APIChat, "", []answer{{status: 400, body: `{"error":{"message":"bad schema"}}`}}, fault.Model, "bad schema", 1},
		"a key that is wrong":                    {model.APIChat, "", []answer{{status: 401, body: `{"error":{"message":"no ` + testKey + `"}}`}}, fault.Model, "does not accept the key (HTTP status 401): no [redacted:MODEL_KEY]", 1},
		"a model that is not there":              {model.APIChat, "", []answer{{status: 404, body: `{"error":{"message":"x"}}`}}, fault.Model, "does not have the model m1", 1},
		"429 again and again":                    {model.APIChat, "", []answer{{status: 429, body: `{}`}}, fault.Model, "asked too often", model.Tries},
		"an account without money":               {model.APIChat, "", []answer{{status: 429, body: `{"error":{"code":"insufficient_quota","message":"x"}}`}}, fault.Model, "nothing left to spend", 1},
		"a body that is too large":               {model.APIChat, "", []answer{{status: 413, body: `x`}}, fault.Model, "refuses the request", 1},
		"an overloaded provider":                 {model.APIMessages, "", []answer{{status: 529, body: `x`}}, fault.Model, "cannot be reached", model.Tries},
		"answers that end early":                 {model.APIChat, "", []answer{{body: `{"choi`, early: true}}, fault.Model, "cannot be reached", model.Tries},
		"an answer that is not JSON":             {model.APIChat, "", []answer{{body: `<html>`}}, fault.Model, "not what its API promises", 1},
		"an error of a router with status 200":   {model.APIChat, "", []answer{{body: `{"error":{"code":502,"message":"upstream is down"}}`}}, fault.Model, "in the middle of its answer: upstream is down", 1},
		"an error of responses with status 200":  {model.APIResponses, "", []answer{{body: `{"status":"failed","error":{"code":"server_error","message":"try later"},"output":[]}`}}, fault.Model, "try later", 1},
		"no error in an answer":                  {model.APIResponses, "", []answer{{body: `{"status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"fine"}]}]}`}}, "", "fine", 1},
		"an output that is not JSON":             {model.APIChat, `, "output": {"schema": {"type": "object"}}`, []answer{good}, fault.InvalidOutput, `it begins "fine"`, 1},
		"an output that breaks the schema":       {model.APIChat, `, "output": {"schema": {"type": "object", "required": ["x"]}}`, []answer{chatAnswer(`{"content":"{}"}`, "stop")}, fault.InvalidOutput, "output.schema", 1},
		"a 429, then an answer":                  {model.APIChat, "", []answer{{status: 429}, good}, "", "fine", 2},
		"a broken connection, then an answer":    {model.APIChat, "", []answer{{body: "{", early: true}, good}, "", "fine", 2},
		"a conflict, then an answer":             {model.APIChat, "", []answer{{status: 409}, good}, "", "fine", 2},
		"a temperature that is not taken":        {model.APIChat, `, "temperature": 0`, []answer{{status: 400, body: `{"error":{"message":"temperature is not supported"}}`}, good}, "", "fine", 2},
		"thoughts of Gemini are no answer":       {model.APIGemini, "", []answer{{body: `{"candidates":[{"finishReason":"STOP","content":{"parts":[{"text":"hm","thought":true},{"text":"fine"}]}}]}`}}, "", `{"content":"fine"}`, 1},
		"JSON that keeps to its schema":          {model.APIChat, `, "output": {"schema": {"type": "object", "required": ["x"]}}`, []answer{chatAnswer(`{"content":" {\"x\": 1}\n"}`, "stop")}, "", `{"x": 1}`, 1},
		"a template in an answer is no template": {model.APIChat, "", []answer{chatAnswer(`{"content":"{{question}}"}`, "stop")}, "", "{{question}}", 1},
	} {
		t.Run(name, func(t *testing.T) {
			url, bodies := serve(t, c.answers...)
			out, _, _ := run(t, `{`+modelOf(c.api, url)+`, "prompt": "{{question}}"`+c.more+`}`, `{"question": "How are you?"}`)
			got := string(out.Output)
			if out.Fault != nil {
				got = out.Fault.Message
				if out.Fault.Category != c.category {
					t.Errorf("category %s, want %s", out.Fault.Category, c.category)
				}
			} else if c.category != "" {
				t.Errorf("no fault")
			}
			if !strings.Contains(got, c.says) {
				t.Errorf("got %s, want %s", got, c.says)
			}
			if len(*bodies) != c.requests {
				t.Errorf("%d requests, want %d", len(*bodies), c.requests)
			}
		})
	}
}

// After a key was refused the provider is not asked for the other rollouts of the run.
func TestNothingIsAskedAfterTheKeyWasRefused(t *testing.T) {
	url, bodies := serve(t, answer{status: 401, body: `{}`})
	o := agent.Options{Resolve: func(string) (string, bool) { return testKey, true }}
	a := newAgent(entryOf(t, `{`+modelOf(model.APIChat, url)+`}`), o, nil)
	for range 3 {
		out, err := a.Run(t.Context(), agent.Segment{Prompt: "x", Dir: t.TempDir()})
		if err != nil || out.Fault == nil || out.Fault.Category != fault.Model {
			t.Fatal(out.Fault, err)
		}
	}
	if len(*bodies) != 1 {
		t.Errorf("%d requests, want 1", len(*bodies))
	}
}

func TestWaitsAsLongAsTheProviderAsks(t *testing.T) {
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n++; n == 1 {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(429)
			return
		}
		_, _ = io.WriteString(w, good.body)
	}))
	t.Cleanup(server.Close)
	_, _, paused := run(t, `{`+modelOf(model.APIChat, server.URL)+`}`, `"x"`)
	if !slices.Equal(paused, []time.Duration{7 * time.Second}) {
		t.Errorf("paused %v", paused)
	}
}

// The bodies are what the documentation of the four APIs asks for.
func TestRequests(t *testing.T) {
	settings := `, "system": "Be brief.", "prompt": "Hi", "temperature": 0.5, "maxTokens": 20, "output": {"schema": {"type": "object"}}`
	for api, c := range map[model.API]struct{ more, want string }{
		model.APIChat: {`, "seed": 3, "reasoning": "low"`, `{"max_completion_tokens":20,"messages":[{"content":"Be brief.","role":"system"},{"content":"Hi","role":"user"}],"model":"m1",` +
			`"reasoning_effort":"low","response_format":{"json_schema":{"name":"output","schema":{"type":"object"}},"type":"json_schema"},"seed":3,"temperature":0.5}`},
		model.APIResponses: {`, "reasoning": "low"`, `{"include":["reasoning.encrypted_content"],"input":[{"content":"Hi","role":"user"}],"instructions":"Be brief.","max_output_tokens":20,"model":"m1",` +
			`"reasoning":{"effort":"low"},"store":false,"temperature":0.5,"text":{"format":{"name":"output","schema":{"type":"object"},"type":"json_schema"}}}`},
		model.APIMessages: {`, "reasoning": 1024`, `{"max_tokens":20,"messages":[{"content":[{"text":"Hi","type":"text"}],"role":"user"}],"model":"m1","output_config":{"format":{"schema":{"type":"object"},"type":"json_schema"}},` +
			`"system":"Be brief.","temperature":0.5,"thinking":{"budget_tokens":1024,"type":"enabled"}}`},
		model.APIGemini: {`, "seed": 3, "reasoning": "low"`, `{"contents":[{"parts":[{"text":"Hi"}],"role":"user"}],"generationConfig":{"maxOutputTokens":20,"responseJsonSchema":{"type":"object"},` +
			`"responseMimeType":"application/json","seed":3,"temperature":0.5,"thinkingConfig":{"thinkingLevel":"low"}},"systemInstruction":{"parts":[{"text":"Be brief."}],"role":"user"}}`},
	} {
		url, bodies := serve(t, answer{status: 400, body: `{}`})
		run(t, `{`+modelOf(api, url)+settings+c.more+`}`, `{}`)
		if diff := cmp.Diff([]string{c.want}, *bodies); diff != "" {
			t.Errorf("%s: %s", api, diff)
		}
	}
}

func TestASecretIsNotSentToTheModel(t *testing.T) {
	url, bodies := serve(t, good)
	run(t, `{`+modelOf(model.APIChat, url)+`, "prompt": "{{question}}"}`, `{"question": "Is `+testKey+` a key?"}`)
	if len(*bodies) != 1 || !strings.Contains((*bodies)[0], "Is [redacted:MODEL_KEY] a key?") {
		t.Errorf("sent %s", *bodies)
	}
}

// The usage of an attempt that was killed counts: it is in a file before anything is made of the
// answer.
func TestUsageIsDurable(t *testing.T) {
	url, _ := serve(t, chatAnswer(`{"content":null,"refusal":"no"}`, "stop"))
	out, seg, _ := run(t, `{`+modelOf(model.APIChat, url)+`}`, `"x"`)
	used, _, err := record.UsageLeft(seg.Dir, nil)
	if err != nil || len(used) != 1 || used[0].Tokens() != 10 {
		t.Errorf("%+v, %v", used, err)
	}
	if diff := cmp.Diff(used, out.Info.Usage); diff != "" {
		t.Error(diff)
	}
}

func TestTheBudgetEndsARollout(t *testing.T) {
	url, _ := serve(t, good)
	a := newAgent(entryOf(t, `{`+modelOf(model.APIChat, url)+`}`), agent.Options{Resolve: func(string) (string, bool) { return testKey, true }}, nil)
	out, err := a.Run(t.Context(), agent.Segment{Prompt: "x", Dir: t.TempDir(), Budget: &agent.Budget{Tokens: 9}})
	if err != nil || out.Fault == nil || out.Fault.Category != fault.Budget {
		t.Errorf("%+v, %v", out.Fault, err)
	}
}
