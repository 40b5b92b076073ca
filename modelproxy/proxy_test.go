package modelproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const realKey = "sk-the-real-key-0123456789"

// deadline is how long a test waits for what must happen at once. It is no measure of anything.
const deadline = 10 * time.Second

func start(t testing.TB) *Proxy {
	t.Helper()
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func open(t testing.TB, p *Proxy, u Upstream) *Session {
	t.Helper()
	s, err := p.Open(u)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// provider is an upstream with a handler. It is closed after the proxy.
func provider(t testing.TB, h http.HandlerFunc) *httptest.Server {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server
}

// canned answers every request with these bytes, in pieces of n, each flushed.
func canned(contentType, body string, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		for from := 0; from < len(body); from += n {
			_, _ = io.WriteString(w, body[from:min(from+n, len(body))])
			_ = http.NewResponseController(w).Flush()
		}
	}
}

// reply is an answer that has been read.
type reply struct {
	status int
	header http.Header
	body   string
}

// post sends a request as an agent with this session would.
func post(t testing.TB, s *Session, path, body string) reply {
	t.Helper()
	return send(t, request(t, s, path, body))
}

func request(t testing.TB, s *Session, path, body string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+s.Token())
	return r
}

func send(t testing.TB, r *http.Request) reply {
	t.Helper()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return reply{resp.StatusCode, resp.Header, readAll(t, resp.Body)}
}

func readAll(t testing.TB, r io.Reader) string {
	t.Helper()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// within fails the test if something that must happen does not.
func within(t testing.TB, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(deadline):
		buf := make([]byte, 1<<20)
		t.Fatalf("%s: not within %v\n%s", what, deadline, buf[:runtime.Stack(buf, true)])
	}
}

// wiretap records what is read from the connections of a listener or client.
type wiretap struct {
	mu   sync.Mutex
	read bytes.Buffer
}

func (w *wiretap) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.read.String()
}

type tappedListener struct {
	net.Listener
	tap *wiretap
}

func (l tappedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return tappedConn{c, l.tap}, err
}

type tappedConn struct {
	net.Conn
	tap *wiretap
}

func (c tappedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.tap.mu.Lock()
	defer c.tap.mu.Unlock()
	c.tap.read.Write(p[:n])
	return n, err
}

// The provider sees its key where the agent put the token, and never the token; the agent never sees the key, even where the provider repeats it.
func TestKeyAndTokenStayOnTheirSides(t *testing.T) {
	var upstream, agent wiretap
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := fmt.Sprintf("auth=%q x=%q goog=%q azure=%q query=%q host=%s own=%q", r.Header.Get("Authorization"), r.Header.Get("X-Api-Key"),
			r.Header.Get("X-Goog-Api-Key"), r.Header.Get("Api-Key"), r.URL.RawQuery, r.Host, r.Header.Get("X-Org"))
		w.Header().Set("X-Repeated", seen)
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "I do not like "+seen)
	}))
	server.Listener = tappedListener{server.Listener, &upstream}
	server.Start()
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")

	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return tappedConn{c, &agent}, err
	}}
	defer transport.CloseIdleConnections()

	p := start(t)
	const header = "secret-of-an-organisation"
	s := open(t, p, Upstream{URL: server.URL, Key: realKey, Headers: map[string]string{"X-Org": header}})
	for _, c := range []struct{ name, query, seen string }{
		{"Authorization", "", `auth="Bearer ` + realKey + `" x="" goog="" azure="" query=""`},
		{"X-Api-Key", "?beta=true", `auth="" x="` + realKey + `" goog="" azure="" query="beta=true"`},
		{"X-Goog-Api-Key", "?alt=sse", `auth="" x="" goog="` + realKey + `" azure="" query="alt=sse"`},
		{"Api-Key", "", `auth="" x="" goog="" azure="` + realKey + `" query=""`},
		{"", "?a=%2f&key=TOKEN&b=;&c", `auth="" x="" goog="" azure="" query="a=%2f&key=` + realKey + `&b=;&c"`},
	} {
		t.Run(c.name+c.query, func(t *testing.T) {
			seenBefore := len(upstream.String())
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL()+"/v1/messages"+strings.Replace(c.query, "TOKEN", s.Token(), 1), strings.NewReader("{}"))
			r.Header.Set("X-Stray", "again "+s.Token())
			r.Header.Set("X-Api-Key", "somebody-elses-key")
			switch c.name {
			case "":
			case "Authorization":
				r.Header.Set(c.name, "bearer "+s.Token())
			default:
				r.Header.Set(c.name, s.Token())
			}
			resp, err := transport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			body := readAll(t, resp.Body)
			resp.Body.Close()
			if want := "I do not like " + strings.ReplaceAll(c.seen+" host="+host+` own="[redacted:MODEL_HEADER_X-Org]"`, realKey, "[redacted:MODEL_KEY]"); body != want {
				t.Errorf("got  %s\nwant %s", body, want)
			}
			request := upstream.String()[seenBefore:]
			if !strings.Contains(request, realKey) || !strings.Contains(request, header) {
				t.Errorf("the provider did not get its key: %s", request)
			}
		})
	}
	for _, never := range []string{s.Token(), "somebody-elses-key"} {
		if strings.Contains(upstream.String(), never) {
			t.Errorf("%s reached the provider:\n%s", never, upstream.String())
		}
	}
	for _, never := range []string{realKey, header} {
		if strings.Contains(agent.String(), never) {
			t.Errorf("%s reached the agent:\n%s", never, agent.String())
		}
		for _, call := range s.Calls() {
			if strings.Contains(fmt.Sprintf("%+v", call), never) {
				t.Errorf("%s is in a call: %+v", never, call)
			}
		}
	}
	var failure *Failure
	if !errors.As(s.Failure(), &failure) || failure.Status != 401 || !strings.Contains(failure.Message, "[redacted:MODEL_KEY]") {
		t.Errorf("got %v", s.Failure())
	}
}

func TestWithoutAKeyTheTokenIsTakenOut(t *testing.T) {
	headers := make(chan *http.Request, 1)
	server := provider(t, func(_ http.ResponseWriter, r *http.Request) { headers <- r })
	s := open(t, start(t), Upstream{URL: server.URL})
	r := request(t, s, "/v1/messages?key="+s.Token()+"&x=1", "{}")
	send(t, r)
	if got := <-headers; got.Header.Get("Authorization") != "" || got.URL.RawQuery != "x=1" {
		t.Errorf("got %v and %s", got.Header, got.URL)
	}
}

// Nothing passes without the token of an open session.
func TestWhoIsRefused(t *testing.T) {
	server := provider(t, func(http.ResponseWriter, *http.Request) { t.Error("a request reached the provider") })
	p := start(t)
	s, closed := open(t, p, Upstream{URL: server.URL, Key: realKey}), open(t, p, Upstream{URL: server.URL, Key: realKey})
	if _, err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*http.Request){
		"no token":                  func(r *http.Request) { r.Header.Del("Authorization") },
		"a wrong one":               func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.Token()+"x") },
		"the real key":              func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+realKey) },
		"an empty one":              func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") },
		"another scheme":            func(r *http.Request) { r.Header.Set("Authorization", "Basic "+s.Token()) },
		"a closed session":          func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+closed.Token()) },
		"the token in other places": func(r *http.Request) { r.Header.Del("Authorization"); r.Header.Set("Cookie", s.Token()) },
	} {
		t.Run(name, func(t *testing.T) {
			r := request(t, s, "/v1/chat/completions", "{}")
			change(r)
			if got := send(t, r); got.status != 401 || !strings.Contains(got.body, "evalrun") || strings.Contains(got.body, s.Token()) {
				t.Errorf("got %d %s", got.status, got.body)
			}
		})
	}
	for path, want := range map[string]int{"/v1/../../admin": 400, "/v1/%2e%2e/admin": 400, "/v1/a%2f..%2fb": 400} {
		r := request(t, s, "", "")
		r.URL.Opaque = strings.TrimPrefix(s.URL(), "http:") + path // as it is
		if got := send(t, r); got.status != want {
			t.Errorf("%s: got %d, want %d", path, got.status, want)
		}
	}
	r := request(t, s, "/v1/responses", "")
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", "websocket")
	if got := send(t, r); got.status != http.StatusNotImplemented {
		t.Errorf("websocket: got %d", got.status)
	}
	if u := s.Usage(); u.Main.Calls+u.Side.Calls != 0 {
		t.Errorf("refused requests were counted: %+v", u)
	}
}

func TestWhatIsAskedForIsAppendedToTheUpstream(t *testing.T) {
	got := make(chan string, 1)
	server := provider(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Method + " " + r.RequestURI })
	p := start(t)
	for _, c := range []struct{ base, method, ask, want string }{
		{"", "POST", "/v1/messages?beta=true", "POST /v1/messages?beta=true"},
		{"/", "GET", "/v1/models", "GET /v1/models"},
		{"/base/", "HEAD", "/", "HEAD /base/"},
		{"/v1", "POST", "/chat/completions", "POST /v1/chat/completions"},
		{"/a%2Fb?api-version=1", "POST", "/models/org%2Fmodel:generateContent?x=%20y", "POST /a%2Fb/models/org%2Fmodel:generateContent?api-version=1&x=%20y"},
		{"", "POST", "/a//b/", "POST /a//b/"},
	} {
		s := open(t, p, Upstream{URL: server.URL + c.base, Key: realKey})
		r := request(t, s, c.ask, "")
		r.Method = c.method
		send(t, r)
		if got := <-got; got != c.want {
			t.Errorf("%s%s: got %s, want %s", c.base, c.ask, got, c.want)
		}
	}
}

func TestUpstreamsThatAreNone(t *testing.T) {
	p := start(t)
	for in, want := range map[apiAndURL]string{
		{"", "api.openai.com/v1"}:                "expected http(s)://host",
		{"", "ftp://host"}:                       "expected http(s)://host",
		{"", "https://user:pass-word@host/v1"}:   "must not hold a user",
		{"", "https://user:pass-word@ho st/%zz"}: "model URL",
		{"", "https://host/#x"}:                  "fragment",
		{"mistral", "https://host"}:              "expected openai, anthropic or gemini",
	} {
		_, err := p.Open(Upstream{API: in.api, URL: in.url})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pass-word") {
			t.Errorf("%v: got %v, want %s", in, err, want)
		}
	}
}

type apiAndURL struct{ api, url string }

// A provider behind TLS is spoken to in HTTP/2, streams included.
func TestTLSAndHTTP2(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Proto", r.Proto)
		canned("text/event-stream", anthropicStream, 20)(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	p, err := New(Options{Transport: server.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s := open(t, p, Upstream{URL: server.URL, Key: realKey})
	if got := post(t, s, "/v1/messages", `{"stream":true}`); got.body != anthropicStream || got.header.Get("X-Proto") != "HTTP/2.0" {
		t.Errorf("got %+v", got)
	}
}

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

// An answer may begin before the request has ended: providers refuse what they do not like without reading all of it.
func TestAnAnswerThatComesEarly(t *testing.T) {
	server := provider(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex()
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = control.Flush()
		if body, err := io.ReadAll(r.Body); err != nil || string(body) != `{"model":"m"}` {
			t.Errorf("got %s, %v", body, err)
		}
		_, _ = io.WriteString(w, chatStream)
	})
	s := open(t, start(t), Upstream{URL: server.URL, Key: realKey})
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := request(t, s, chatPath, "")
		body, rest := io.Pipe()
		r.Body, r.ContentLength = body, 13
		go func() { _, _ = io.WriteString(rest, `{"model":`) }()
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(rest, `"m"}`)
		rest.Close()
		if got := readAll(t, resp.Body); got != chatStream {
			t.Errorf("got %s", got)
		}
	}()
	within(t, "the answer", done)
	if calls := s.Calls(); len(calls) != 1 || calls[0].Model != "m" || calls[0].InputTokens != 120 {
		t.Errorf("got %+v", calls)
	}
}

// Sessions do not see each other, whatever happens at once.
func TestSessionsAreApart(t *testing.T) {
	server := provider(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if key := r.Header.Get("Authorization"); !strings.Contains(string(body), strings.TrimPrefix(key, "Bearer ")) {
			t.Errorf("%s came with %s", body, key)
		}
		canned("text/event-stream", chatStream, 64)(w, r)
	})
	p := start(t)
	var all sync.WaitGroup
	for i := range 8 {
		key := fmt.Sprintf("key-of-session-%d", i)
		s := open(t, p, Upstream{URL: server.URL, Key: key})
		all.Go(func() {
			for range i + 1 {
				all.Go(func() {
					if got := post(t, s, "/v1/chat/completions", `{"model":"`+key+`","tools":[1]}`); got.body != chatStream {
						t.Errorf("got %+v", got)
					}
				})
			}
		})
		t.Cleanup(func() {
			u, _ := s.Close()
			if u.Main.Calls != i+1 || u.Main.InputTokens != int64(i+1)*120 || u.Main.Models["[redacted:MODEL_KEY]"] != i+1 {
				t.Errorf("session %d: got %+v", i, u.Main)
			}
		})
	}
	all.Wait()
}

// Whatever runs when the proxy is closed ends, and no goroutine is left.
func TestNothingIsLeft(t *testing.T) {
	http.DefaultClient.CloseIdleConnections()
	before := runtime.NumGoroutine()
	begun := make(chan struct{}, 3)
	ended := make(chan struct{}, 3)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		begun <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	}))
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, p, Upstream{URL: server.URL, Key: realKey})
	if err := s.ServeUnix(t.TempDir() + "/s"); err != nil {
		t.Fatal(err)
	}
	var answers sync.WaitGroup
	for range 3 {
		answers.Go(func() {
			resp, err := http.DefaultClient.Do(request(t, s, "/v1/chat/completions", `{}`))
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if _, err := io.ReadAll(resp.Body); err == nil && resp.StatusCode == 200 {
				t.Error("what was cut off looks whole")
			}
		})
	}
	for range 3 {
		<-begun
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		select {
		case <-ended:
		case <-time.After(deadline):
			t.Fatal("a request to the provider goes on")
		}
	}
	if u := s.Usage(); u.Main.Aborted != 3 || u.Main.Calls != 3 || s.Failure() != nil {
		t.Errorf("got %+v, %v", u, s.Failure())
	}
	if _, err := p.Open(Upstream{URL: server.URL}); !errors.Is(err, errClosed) {
		t.Errorf("a closed proxy opens sessions: %v", err)
	}
	if err := s.ServeUnix(t.TempDir() + "/s"); !errors.Is(err, errClosed) {
		t.Errorf("a closed session is served: %v", err)
	}
	server.Close()
	answers.Wait()
	http.DefaultClient.CloseIdleConnections()
	// Goroutines end some instructions after what they did can be seen.
	for until := time.Now().Add(deadline); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(until) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
	}
}

// A client that neither reads nor writes does not keep a session open.
func TestAStuckClientIsCutOff(t *testing.T) {
	full := make(chan struct{}, 1)
	server := provider(t, func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex() // does not wait for the end of the request
		for {
			_ = control.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
			if _, err := w.Write(make([]byte, 1<<16)); err != nil { // all buffers on the way are full
				full <- struct{}{}
				return
			}
		}
	})
	p := start(t)
	for name, sent := range map[string]string{
		"does not read":  "Content-Length: 2\r\n\r\n{}",
		"does not write": "Content-Length: 1000\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, p, Upstream{URL: server.URL, Key: realKey})
			c, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, _ = fmt.Fprintf(c, "POST /v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n%s", s.Token(), sent)
			within(t, "a full connection", full)
			done := make(chan struct{})
			go func() { defer close(done); _, _ = s.Close() }()
			within(t, "Close", done)
		})
	}
}
