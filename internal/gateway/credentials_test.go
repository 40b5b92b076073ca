package gateway_test

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
)

func TestTokens(t *testing.T) {
	s := &rawServer{era: mcp.Legacy, serve: echo}
	g, err := gateway.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	access := func(name string) *gateway.Access {
		a, err := g.Open(gateway.AccessOptions{Servers: []gateway.Server{{Name: name, Target: s.target(t, "http")}}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	one, other, closed := access("one"), access("other"), access("one")
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	status := func(url string, header http.Header) int {
		req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		req.Host = header.Get("Host")
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	bearer := func(a *gateway.Access) http.Header { return http.Header{"Authorization": {"Bearer " + a.Token()}} }
	for _, test := range []struct {
		name   string
		url    string
		header http.Header
		want   int
	}{
		{"its own", one.URL("one"), bearer(one), 200},
		{"its own in the URL", one.URLWithToken("one"), http.Header{}, 200},
		{"none", one.URL("one"), http.Header{}, 401},
		{"empty", one.URL("one"), http.Header{"Authorization": {"Bearer "}}, 401},
		{"of nobody", one.URL("one"), http.Header{"Authorization": {"Bearer x" + one.Token()}}, 401},
		{"of another access", one.URL("one"), bearer(other), 404},
		{"of another access in the URL", strings.Replace(one.URLWithToken("one"), one.Token(), other.Token(), 1), http.Header{}, 404},
		{"of a closed access", one.URL("one"), bearer(closed), 401},
		{"of a closed access in the URL", closed.URLWithToken("one"), http.Header{}, 401},
		{"for another server", one.URL("other"), bearer(one), 404},
		{"no such path", strings.Replace(one.URL("one"), "/mcp/", "/", 1), bearer(one), 404},
		{"another host", one.URL("one"), http.Header{"Authorization": {"Bearer " + one.Token()}, "Host": {"evil.example.com"}}, 403},
		{"another host, none", one.URL("one"), http.Header{"Host": {"evil.example.com"}}, 403},
		{"another site", one.URLWithToken("one"), http.Header{"Origin": {"https://evil.example.com"}}, 403},
		{"a site of this machine", one.URLWithToken("one"), http.Header{"Origin": {"http://localhost:3000"}}, 200},
	} {
		if got := status(test.url, test.header); got != test.want {
			t.Errorf("token %s: HTTP %d, want %d", test.name, got, test.want)
		}
	}
}

// A server that wants credentials is not one that cannot be reached. Its challenge reaches the
// client.
func TestServerWantsCredentials(t *testing.T) {
	t.Parallel()
	const challenge = `Bearer resource_metadata="https://example.com/.well-known/oauth-protected-resource"`
	s := &rawServer{era: mcp.Legacy, serve: echo}
	var signedIn atomic.Bool
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !signedIn.Load() {
			w.Header().Set("WWW-Authenticate", challenge)
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"sign in"}}`)
			return
		}
		s.serveHTTP(w, r)
	}))
	defer h.Close()
	a := open(t, gateway.Server{Name: "raw", Target: mcp.Target{URL: h.URL}})
	wanted := func(err error) {
		t.Helper()
		var said *mcp.Error
		if !errors.As(err, &said) || !strings.Contains(said.Message, `MCP server "raw" wants other credentials`) || !strings.Contains(said.Message, challenge) {
			t.Fatal(err)
		}
		data := struct {
			Status          int
			WWWAuthenticate string
		}{}
		if err := json.Unmarshal(said.Data(), &data); err != nil || data.Status != 401 || data.WWWAuthenticate != challenge {
			t.Errorf("%s, %v", said.Data(), err)
		}
	}
	connect := func() (*mcp.Client, error) {
		return mcp.Connect(soon(t), mcp.Target{URL: a.URLWithToken("raw")}, mcp.ClientOptions{Protocol: mcp.Legacy})
	}
	_, err := connect()
	wanted(err)
	signedIn.Store(true)
	c, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	signedIn.Store(false) // the token has expired
	_, err = c.Call(soon(t), mcp.Call{Method: mcp.MethodToolsCall, Params: json.RawMessage(`{"name":"echo","arguments":{}}`)})
	wanted(err)
}

// Who bears no token is told so before the body has come, which is not waited for.
func TestHalfABodyWithoutAToken(t *testing.T) {
	t.Parallel()
	g, err := gateway.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	conn, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST /mcp/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn) // until the gateway has closed the connection
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 401 ") {
		t.Errorf("%s, %v", answer, err)
	}
}
