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
	"strings"
	"sync"
	"testing"
)

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

// The provider sees its key where the agent put the token, and never the token; the agent never
// sees the key, even where the provider repeats it.
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
