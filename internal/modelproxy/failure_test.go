package modelproxy

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// An answer that leads elsewhere would take the agent, and its token, past the proxy.
func TestRedirectsAreRefused(t *testing.T) {
	server := provider(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://elsewhere.example/v1?key="+realKey, http.StatusTemporaryRedirect)
	})
	s := open(t, start(t), Upstream{URL: server.URL, Key: realKey})
	got := post(t, s, "/v1/chat/completions", `{}`)
	if got.status != http.StatusBadGateway || !strings.Contains(got.body, "redirect to https://elsewhere.example/v1;") || got.header.Get("Location") != "" {
		t.Errorf("got %+v", got)
	}
	if err := s.Failure(); err == nil || !strings.Contains(err.Error(), "307") {
		t.Errorf("got %v", err)
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
