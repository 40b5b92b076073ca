package modelproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/evalrun/evalrun/probe/model"
)

// What providers send, shortened.
const (
	chatStream = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}],\"usage\":null}\n\n" +
		": keep-alive\n\n" +
		"data: {\"choices\":[{\"delta\":{\"content\":\"a \\\"usage\\\":{\\\"prompt_tokens\\\":9}\"}}],\"usage\":null}\n\n" +
		"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":null}\n\n" +
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":120,\"completion_tokens\":30,\"prompt_tokens_details\":{\"cached_tokens\":100},\"completion_tokens_details\":{\"reasoning_tokens\":20}}}\n\n" +
		"data: [DONE]\n\n"
	chatPlain = `{"id":"c","object":"chat.completion","choices":[{"message":{"content":"x"},"finish_reason":"stop"}],` +
		`"usage":{"prompt_tokens":120,"completion_tokens":30,"prompt_tokens_details":{"cached_tokens":100,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":20}}}`
	responsesStream = "event: response.created\r\ndata: {\"type\":\"response.created\",\"response\":{\"status\":\"in_progress\",\"error\":null,\"usage\":null}}\r\n\r\n" +
		"event: response.output_text.delta\r\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"response.completed\"}\r\n\r\n" +
		"event: response.completed\r\ndata: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\",\"error\":null,\"output\":[{\"usage\":1}],\"usage\":" +
		"{\"input_tokens\":120,\"input_tokens_details\":{\"cached_tokens\":100},\"output_tokens\":30,\"output_tokens_details\":{\"reasoning_tokens\":20}}}}\r\n\r\n"
	responsesPlain = `{"object":"response","status":"completed","error":null,"output":[],` +
		`"usage":{"input_tokens":120,"input_tokens_details":{"cached_tokens":100},"output_tokens":30,"output_tokens_details":{"reasoning_tokens":20}}}`
	anthropicStream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"usage\":{\"input_tokens\":15,\"cache_creation_input_tokens\":5,\"cache_read_input_tokens\":100,\"output_tokens\":1}}}\n\n" +
		"event: ping\ndata: {\"type\": \"ping\"}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"message_stop\",\"text\":\"x\"}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":30}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	anthropicPlain = `{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn",` +
		`"usage":{"input_tokens":15,"cache_creation_input_tokens":5,"cache_read_input_tokens":100,"output_tokens":30,"service_tier":"standard"}}`
	geminiStream = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"x\"}]}}],\"usageMetadata\":{\"promptTokenCount\":120,\"totalTokenCount\":120}}\r\n\r\n" +
		"data: {\"candidates\":[{\"content\":{},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":120,\"cachedContentTokenCount\":100,\"candidatesTokenCount\":10,\"thoughtsTokenCount\":20}}\r\n\r\n"
	geminiArray = "[{\"candidates\":[{\"content\":{}}],\"usageMetadata\":{\"promptTokenCount\":120}}\n,\r\n" +
		"{\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":120,\"cachedContentTokenCount\":100,\"candidatesTokenCount\":10,\"thoughtsTokenCount\":20}}\n]"
	geminiPlain = `{"candidates":[{"content":{},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":120,"cachedContentTokenCount":100,"candidatesTokenCount":10,"thoughtsTokenCount":20}}`
)

const (
	chatPath      = "/v1/chat/completions"
	responsesPath = "/v1/responses"
	anthropicPath = "/v1/messages"
	geminiPath    = "/v1beta/models/gemini-x:streamGenerateContent"
)

// Bodies pass byte for byte in both directions, however they are cut, and the tokens of every format are read.
func TestUsageOfEveryFormat(t *testing.T) {
	counted := Tokens{InputTokens: 120, CachedInputTokens: 100, OutputTokens: 30, ReasoningTokens: 20}
	anthropic := Tokens{InputTokens: 120, CachedInputTokens: 100, CacheWriteTokens: 5, OutputTokens: 30}
	p := start(t)
	for _, c := range []struct {
		name, api, path, contentType, answer string
		want                                 Tokens
	}{
		{"chat stream", "openai-chat", chatPath, "text/event-stream", chatStream, counted},
		{"chat plain", "openai-chat", "/chat/completions", "application/json", chatPlain, counted},
		{"responses stream", "openai-responses", responsesPath, "text/event-stream; charset=utf-8", responsesStream, counted},
		{"responses plain", "openai-responses", responsesPath, "application/json", responsesPlain, counted},
		{"anthropic stream", "anthropic-messages", anthropicPath, "text/event-stream", anthropicStream, anthropic},
		{"anthropic plain", "anthropic-messages", anthropicPath, "application/json", anthropicPlain, anthropic},
		{"gemini stream", "gemini", geminiPath + "?alt=sse", "text/event-stream", geminiStream, counted},
		{"gemini array", "gemini", geminiPath, "application/json", geminiArray, counted},
		{"gemini plain", "gemini", "/v1beta/models/gemini-x:generateContent", "application/json", geminiPlain, counted},
		{"a stream that is not called one", "openai-chat", chatPath, "text/plain", chatStream, counted},
	} {
		asked := `{ "messages":[{"content":"\u00e4 \"tools\":[1]"}], "model":"gemini-x", "tools":[ {"name":"t"}], "stream":true }` + strings.Repeat(" ", 100_000)
		for _, size := range []int{1, 7, 1 << 20} {
			t.Run(fmt.Sprint(c.name, " in pieces of ", size), func(t *testing.T) {
				got := make(chan string, 1)
				server := provider(t, func(w http.ResponseWriter, r *http.Request) {
					got <- readAll(t, r.Body)
					canned(c.contentType, c.answer, size)(w, r)
				})
				s := open(t, p, Upstream{URL: server.URL, Key: realKey})
				if reply := post(t, s, c.path, asked); reply.body != c.answer || reply.header.Get("Content-Type") != c.contentType {
					t.Errorf("the answer was changed to\n%+v", reply)
				}
				if <-got != asked {
					t.Error("the request was changed")
				}
				want := Call{API: c.api, Model: "gemini-x", Path: strings.Split(c.path, "?")[0], Status: 200, Tokens: c.want, Tools: true, Turn: true}
				if diff := cmp.Diff([]Call{want}, s.Calls(), cmpopts.IgnoreFields(Call{}, "Time", "LatencyMs", "FirstByteMs")); diff != "" {
					t.Error(diff)
				}
				if u := s.Usage(); u.Main.Calls != 1 || u.Main.Tokens != c.want || u.Main.Models["gemini-x"] != 1 || u.Side.Calls != 0 || s.Failure() != nil {
					t.Errorf("got %+v, %v", u, s.Failure())
				}
			})
		}
	}
}

// The scripted model, which has the same four formats from another hand, and checks its key.
func TestWithTheScriptedModel(t *testing.T) {
	m, err := model.Start(model.Options{Key: realKey})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	p := start(t)
	for _, c := range []struct{ path, body string }{
		{chatPath, `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":"[[SAY hello]]"}]}`},
		{responsesPath, `{"model":"m","stream":STREAM,"input":"[[SAY hello]]"}`},
		{anthropicPath, `{"model":"m","stream":STREAM,"messages":[{"role":"user","content":"[[SAY hello]]"}]}`},
		{"/v1beta/models/m:generateContent", `{"contents":[{"parts":[{"text":"[[SAY hello]]"}]}]}`},
		{"/v1beta/models/m:streamGenerateContent", `{"contents":[{"parts":[{"text":"[[SAY hello]]"}]}]}`},
		{"/v1beta/models/m:streamGenerateContent?alt=sse", `{"contents":[{"parts":[{"text":"[[SAY hello]]"}]}]}`},
	} {
		for _, stream := range []string{"true", "false"} {
			s := open(t, p, Upstream{URL: m.URL(), Key: realKey})
			if got := post(t, s, c.path, strings.Replace(c.body, "STREAM", stream, 1)); got.status != 200 || !strings.Contains(got.body, "llo") {
				t.Errorf("%s: got %+v", c.path, got)
			}
			u, err := s.Close()
			if want := (Tokens{InputTokens: model.InputTokens, OutputTokens: model.OutputTokens}); err != nil || u.Main.Tokens != want || u.Main.Models["m"] != 1 || s.Failure() != nil {
				t.Errorf("%s, stream %s: got %+v, %v, %v", c.path, stream, u, err, s.Failure())
			}
		}
	}
}

func TestWhatIsNoCallIsNotCounted(t *testing.T) {
	server := provider(t, canned("application/json", `{"input_tokens":1}`, 10))
	s := open(t, start(t), Upstream{URL: server.URL, Key: realKey})
	for _, c := range []struct{ method, path string }{
		{"GET", "/v1/models"}, {"HEAD", "/"}, {"GET", "/api/hello"}, {"POST", "/v1/messages/count_tokens"}, {"POST", "/v1beta/models/m:countTokens"},
		{"GET", chatPath}, {"GET", "/v1/responses/resp_1"}, {"POST", "/v1/embeddings"}, {"POST", "/v1/completions"},
	} {
		r := request(t, s, c.path, "")
		r.Method = c.method
		if got := send(t, r); got.status != 200 {
			t.Errorf("%v: got %+v", c, got)
		}
	}
	if calls := s.Calls(); len(calls) != 0 {
		t.Errorf("got %+v", calls)
	}
	other := open(t, s.proxy, Upstream{API: OpenAI, URL: server.URL, Key: realKey})
	post(t, other, "/v1/threads/t/messages", "{}")
	if calls := other.Calls(); len(calls) != 0 {
		t.Errorf("a message of another API was taken for a call: %+v", calls)
	}
}

// A piece of a stream reaches the agent before the provider sends the next.
func TestStreamsAreNotDelayed(t *testing.T) {
	next := make(chan struct{})
	server := provider(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush() // the header by itself
		for i := range 3 {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
			_, _ = fmt.Fprintf(w, "data: {\"n\":%d", i) // not even a whole line
			_ = http.NewResponseController(w).Flush()
		}
	})
	s := open(t, start(t), Upstream{URL: server.URL, Key: realKey})
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := http.DefaultClient.Do(request(t, s, chatPath, `{}`))
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		for i := range 3 {
			next <- struct{}{}
			want := fmt.Sprintf("data: {\"n\":%d", i)
			got := make([]byte, len(want))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
				t.Errorf("got %q, %v", got, err)
			}
		}
	}()
	within(t, "the stream", done)
}

// A call counts when the client can know that it is complete: some never read a stream to its end.
func TestCallsCountAsSoonAsTheyAreComplete(t *testing.T) {
	for path, stream := range map[string]string{chatPath: chatStream, responsesPath: responsesStream, anthropicPath: anthropicStream} {
		server := provider(t, func(w http.ResponseWriter, r *http.Request) {
			canned("text/event-stream", stream, 50)(w, r)
			<-r.Context().Done() // leaves the stream open
		})
		s := open(t, start(t), Upstream{URL: server.URL, Key: realKey})
		resp, err := http.DefaultClient.Do(request(t, s, path, `{}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, len(stream))); err != nil {
			t.Fatal(err)
		}
		if u := s.Usage(); u.Main.InputTokens != 120 || u.Main.OutputTokens != 30 {
			t.Errorf("%s: got %+v", path, u)
		}
		if _, err := s.Close(); err != nil {
			t.Error(err)
		}
		if u := s.Usage(); u.Main.Calls != 1 || u.Main.Aborted != 0 {
			t.Errorf("%s: got %+v", path, u)
		}
	}
}

func TestAnAbortOfTheAgentReachesTheProvider(t *testing.T) {
	for _, early := range []bool{true, false} {
		ended := make(chan struct{})
		begun := make(chan struct{})
		server := provider(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not noticed
			if !early {
				canned("text/event-stream", chatStream[:100], 100)(w, r)
			}
			close(begun)
			<-r.Context().Done()
			close(ended)
		})
		s := open(t, start(t), Upstream{URL: server.URL, Key: realKey})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-begun; cancel() }()
		resp, err := http.DefaultClient.Do(request(t, s, chatPath, `{}`).WithContext(ctx))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		within(t, "the abort", ended)
		u, _ := s.Close()
		if u.Main.Calls != 1 || u.Main.Aborted != 1 || len(u.Main.Errors) != 0 || s.Failure() != nil {
			t.Errorf("early %v: got %+v, %v", early, u, s.Failure())
		}
	}
}

func TestHowModelsFail(t *testing.T) {
	status := func(code int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	stream := func(body string) http.HandlerFunc { return canned("text/event-stream", body, 33) }
	breaks := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			stream(body)(w, r)
			panic(http.ErrAbortHandler)
		}
	}
	p := start(t)
	for _, c := range []struct {
		name, path string
		fails      http.HandlerFunc
		key, want  string
	}{
		{"a status", chatPath, status(500, "application/json", `{"error":{"message":"overloaded","type":"server_error"}}`), "500",
			"the model m failed with HTTP status 500: server_error: overloaded"},
		{"a status, Anthropic's way", anthropicPath, status(529, "application/json", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`), "529",
			"the model m failed with HTTP status 529: overloaded_error: Overloaded"},
		{"a status, Gemini's way", geminiPath, status(429, "application/json", `[{"error":{"code":429,"message":"quota","status":"RESOURCE_EXHAUSTED"}}]`), "429",
			"the model gemini-x failed with HTTP status 429: quota"},
		{"a text", chatPath, status(400, "application/json", `{"error":"no such model"}`), "400", "the model m failed with HTTP status 400: no such model"},
		{"a page", chatPath, status(502, "text/html", "<html>bad\n</html>\n"), "502", "the model m failed with HTTP status 502: <html>bad\n</html>"},
		{"nothing", chatPath, status(503, "text/plain", ""), "503", "the model m failed with HTTP status 503: Service Unavailable"},
		{"a hole", chatPath, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ErrorUnreachable, "the model m failed: cannot reach http://"},
		{"a break", anthropicPath, breaks(anthropicStream[:300]), ErrorStream, "the model m failed: the answer broke off: "},
		{"a break in a document", chatPath, breaks(chatPlain[:100]), ErrorStream, "the model m failed: the answer broke off: "},
		{"an early end, chat", chatPath, stream(chatStream[:200]), ErrorStream, "the model m failed: the answer ended before it was complete"},
		{"an early end, responses", responsesPath, stream(responsesStream[:300]), ErrorStream, "the model m failed: the answer ended before it was complete"},
		{"an early end, Anthropic", anthropicPath, stream(anthropicStream[:300]), ErrorStream, "the model m failed: the answer ended before it was complete"},
		{"an early end, Gemini", geminiPath, stream(geminiStream[:150]), ErrorStream, "the model gemini-x failed: the answer ended before it was complete"},
		{"an early end, document", chatPath, status(200, "application/json", chatPlain[:100]), ErrorStream, "the model m failed: the answer ended before it was complete"},
		{"an empty answer", chatPath, status(200, "text/event-stream", ""), ErrorStream, "the model m failed: the answer ended before it was complete"},
		{"an error event, Anthropic", anthropicPath, stream(anthropicStream[:300] + "\n\nevent: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n"), ErrorStream,
			"the model m failed: overloaded_error: Overloaded"},
		{"an error chunk, chat", chatPath, stream("data: {\"error\":{\"code\":502,\"message\":\"Provider disconnected\"},\"choices\":[{\"finish_reason\":\"error\"}]}\n\ndata: [DONE]\n\n"), ErrorStream,
			"the model m failed: Provider disconnected"},
		{"a failed response", responsesPath, stream("data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"slow down\"}}}\n\n"), ErrorStream,
			"the model m failed: slow down"},
		{"an error event, responses", responsesPath, stream("event: error\ndata: {\"type\":\"error\",\"code\":\"ERR\",\"message\":\"went wrong\",\"param\":null}\n\n"), ErrorStream,
			"the model m failed: went wrong"},
		{"a failed response, plain", responsesPath, status(200, "application/json", `{"status":"failed","error":{"code":"server_error","message":"oops"}}`), ErrorStream,
			"the model m failed: oops"},
		{"an error, Gemini", geminiPath, stream("data: {\"error\":{\"code\":503,\"message\":\"The model is overloaded.\",\"status\":\"UNAVAILABLE\"}}\r\n\r\n"), ErrorStream,
			"the model gemini-x failed: The model is overloaded."},
	} {
		t.Run(c.name, func(t *testing.T) {
			answers := make(chan http.HandlerFunc, 2)
			answers <- c.fails
			server := provider(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				(<-answers)(w, r)
			})
			s := open(t, p, Upstream{URL: server.URL, Key: realKey})
			ask := func() {
				resp, err := http.DefaultClient.Do(request(t, s, c.path, `{"model":"m","tools":[{}]}`))
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.ReadAll(resp.Body) // it may break off
				resp.Body.Close()
			}
			ask()
			var failure *Failure
			if err := s.Failure(); !errors.As(err, &failure) || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if u := s.Usage(); u.Main.Errors[c.key] != 1 || u.Main.Calls != 1 || u.Main.Unmetered != 0 {
				t.Errorf("got %+v", u)
			}
			// A later success makes it good.
			answers <- map[string]http.HandlerFunc{chatPath: stream(chatStream), responsesPath: stream(responsesStream), anthropicPath: stream(anthropicStream), geminiPath: stream(geminiStream)}[c.path]
			ask()
			if err := s.Failure(); err != nil {
				t.Errorf("after a success: %v", err)
			}
			if u := s.Usage(); u.Main.Errors[c.key] != 1 || u.Main.Calls != 2 || u.Main.InputTokens < 120 {
				t.Errorf("got %+v", u)
			}
		})
	}
}

func TestAProviderThatIsDown(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	s := open(t, start(t), Upstream{URL: "http://" + listener.Addr().String() + "/v1", Key: realKey})
	got := post(t, s, "/chat/completions?key="+s.Token(), `{}`)
	if got.status != http.StatusBadGateway || !strings.Contains(got.body, "cannot reach http://"+listener.Addr().String()+"/v1: ") || strings.Contains(got.body, realKey) {
		t.Errorf("got %+v", got)
	}
	if err := s.Failure(); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

// An error that is long is cut, and not in the middle of a secret.
func TestLongErrors(t *testing.T) {
	text := strings.Repeat("é", maxError/2-5) + realKey + strings.Repeat("x", 1<<20)
	server := provider(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "data: {\"type\":\"error\",\"message\":\""+text+"\"}\n\n")
	})
	s := open(t, start(t), Upstream{URL: server.URL, Key: realKey})
	post(t, s, responsesPath, `{}`)
	if got := s.Calls()[0].Error; len(got) > maxError || strings.Contains(got, realKey[:6]) || !strings.Contains(got, "é") {
		t.Errorf("got %d bytes, ending in %s", len(got), got[max(0, len(got)-60):])
	}
}

// The rule that Usage states, on what the agents of the facts do.
func TestMainAndSideCalls(t *testing.T) {
	const (
		tools   = `{"model":"big","tools":[{"name":"bash"}]}`
		title   = `{"model":"small","messages":[]}`
		noTools = `{"model":"big","tools":[ ]}`
	)
	p := start(t)
	for _, c := range []struct {
		name string
		// do is a body in a turn, or with a - before it outside one.
		do         []string
		main, side int
	}{
		{"opencode: a title beside the loop", []string{title, tools, tools}, 2, 1},
		{"claude: suggestions with tools after the turn", []string{tools, title, tools, "-" + tools, "-" + title, tools}, 3, 3},
		{"gemini: a router first", []string{title, title, tools}, 1, 2},
		{"an agent without tools", []string{noTools, noTools, "-" + noTools}, 2, 1},
		{"an agent without tools, whose side calls have some", []string{noTools, "-" + tools}, 1, 1},
		{"a request that cannot be read", []string{title, "\x28\xb5\x2f\xfd compressed"}, 1, 1},
		{"nothing in a turn", []string{"-" + tools}, 0, 1},
	} {
		server := provider(t, canned("text/event-stream", chatStream, 1000))
		s := open(t, p, Upstream{URL: server.URL, Key: realKey})
		for _, body := range c.do {
			body, outside := strings.CutPrefix(body, "-")
			s.Turn(!outside)
			post(t, s, chatPath, body)
		}
		u, err := s.Close()
		if err != nil {
			t.Error(err)
		}
		if u.Main.Calls != c.main || u.Side.Calls != c.side || u.Main.InputTokens != 120*int64(c.main) || u.Side.InputTokens != 120*int64(c.side) {
			t.Errorf("%s: got %+v", c.name, u)
		}
		side := 0
		for _, call := range s.Calls() {
			if call.Side {
				side++
			}
		}
		if side != c.side {
			t.Errorf("%s: the calls say %d of %d", c.name, side, c.side)
		}
	}
}

func TestAFailedSideCallIsNoFailure(t *testing.T) {
	server := provider(t, func(w http.ResponseWriter, r *http.Request) {
		if body := readAll(t, r.Body); strings.Contains(body, "fail") {
			w.WriteHeader(500)
			return
		}
		canned("text/event-stream", chatStream, 1000)(w, r)
	})
	s := open(t, start(t), Upstream{URL: server.URL, Key: realKey})
	for _, step := range []struct {
		body   string
		turn   bool
		failed bool
	}{
		{`{"model":"fail"}`, true, true}, // it may have been all there is
		{`{"tools":[{}]}`, true, false},
		{`{"model":"fail"}`, true, false},
		{`{"model":"fail","tools":[{}]}`, false, false},
		{`{"model":"fail","tools":[{}]}`, true, true},
		{`{"model":"good"}`, true, true}, // a title does not make it good
		{`{"tools":[{}]}`, true, false},
	} {
		s.Turn(step.turn)
		post(t, s, chatPath, step.body)
		if err := s.Failure(); (err != nil) != step.failed {
			t.Errorf("after %+v: %v", step, err)
		}
	}
}

func TestUnmeteredCallsAreShown(t *testing.T) {
	server := provider(t, canned("text/event-stream", "data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n", 1000))
	s := open(t, start(t), Upstream{URL: server.URL, Key: realKey})
	post(t, s, chatPath, `{}`)
	if u := s.Usage(); u.Main.Unmetered != 1 || u.Main.Tokens != (Tokens{}) || s.Failure() != nil {
		t.Errorf("got %+v, %v", u, s.Failure())
	}
}

// A body that is compressed passes as it is; that it cannot be read is no failure.
func TestCompressedAnswers(t *testing.T) {
	asked := make(chan string, 1)
	server := provider(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Accept-Encoding")
		w.Header().Set("Content-Encoding", "br")
		_, _ = io.WriteString(w, "\x1b\x2a")
	})
	s := open(t, start(t), Upstream{URL: server.URL, Key: realKey})
	if got := post(t, s, chatPath, `{}`); got.body != "\x1b\x2a" || got.header.Get("Content-Encoding") != "br" {
		t.Errorf("got %+v", got)
	}
	if got := <-asked; got != "" {
		t.Errorf("the provider was asked for %s", got)
	}
	if u := s.Usage(); u.Main.Unmetered != 1 || s.Failure() != nil {
		t.Errorf("got %+v, %v", u, s.Failure())
	}
}

func TestUnixSocket(t *testing.T) {
	server := provider(t, canned("text/event-stream", chatStream, 40))
	p := start(t)
	s, other := open(t, p, Upstream{URL: server.URL, Key: realKey}), open(t, p, Upstream{URL: server.URL, Key: realKey})
	path := filepath.Join(t.TempDir(), "model.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	if err := s.ServeUnix(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	defer client.CloseIdleConnections()
	ask := func(s *Session) (int, string) {
		resp, err := client.Do(request(t, s, chatPath, `{}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode, readAll(t, resp.Body)
	}
	if status, body := ask(s); status != 200 || body != chatStream {
		t.Errorf("got %d %s", status, body)
	}
	if status, _ := ask(other); status != 401 {
		t.Errorf("another session's token: got %d", status)
	}
	u, err := s.Close()
	if err != nil || u.Main.Calls != 1 {
		t.Errorf("got %+v, %v", u, err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}

	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := other.ServeUnix(file); err == nil {
		t.Error("a file was replaced")
	}
	if err := other.ServeUnix(filepath.Join(t.TempDir(), strings.Repeat("x", 120))); err == nil || !strings.Contains(err.Error(), "104 bytes") {
		t.Errorf("got %v", err)
	}
}

// Only the last calls are kept one by one, and all are counted.
func TestManyCalls(t *testing.T) {
	s := &Session{}
	for i := range maxCalls + 10 {
		s.ledger.add(Call{Status: i, Turn: true, Tools: true, Tokens: Tokens{InputTokens: 1}})
	}
	calls := s.Calls()
	if len(calls) != maxCalls || calls[0].Status != 10 || calls[maxCalls-1].Status != maxCalls+9 {
		t.Errorf("got %d from %d to %d", len(calls), calls[0].Status, calls[len(calls)-1].Status)
	}
	if u := s.Usage(); u.Main.Calls != maxCalls+10 || u.Main.InputTokens != maxCalls+10 {
		t.Errorf("got %+v", u.Main)
	}
}
