package modelproxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/evalrun/evalrun/internal/peers/fakemodel"
)

// Bodies pass byte for byte in both directions, however they are cut, and the tokens of every
// format are read.
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
	m, err := fakemodel.Start(fakemodel.Options{Key: realKey})
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
			if want := (Tokens{InputTokens: fakemodel.InputTokens, OutputTokens: fakemodel.OutputTokens}); err != nil || u.Main.Tokens != want || u.Main.Models["m"] != 1 || s.Failure() != nil {
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
