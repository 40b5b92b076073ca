package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/testenv"
)

// testServer is a handler whose tools do what the tests need.
type testServer struct {
	notes   chan string
	closed  chan *Session
	started chan *Request
	causes  chan error
	proceed chan struct{}
	said    json.RawMessage // by the tool "say"
}

func newTestServer() *testServer {
	return &testServer{
		notes: make(chan string, 100), closed: make(chan *Session, 100), started: make(chan *Request, 100),
		causes: make(chan error, 100), proceed: make(chan struct{}),
	}
}

func (h *testServer) Serve(ctx context.Context, r *Request) (json.RawMessage, error) {
	params, err := jsonobj.ParseObject(r.Params)
	if err != nil {
		return nil, err
	}
	switch r.Method {
	case MethodInitialize:
		if params.Has("fail") {
			return nil, Errorf(CodeInvalidParams, "it was to fail")
		}
		version := params.Text("protocolVersion")
		if era, ok := EraOf(version); !ok || era == Modern {
			version = Version2025_11_25
		}
		return json.RawMessage(fmt.Sprintf(`{"protocolVersion":%q,"capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"t","version":"1"}}`, version)), nil
	case MethodDiscover:
		return json.RawMessage(`{"resultType":"complete","supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{"tools":{"listChanged":true}},"ttlMs":0,"cacheScope":"private"}`), nil
	case MethodToolsList:
		return json.RawMessage(`{"resultType":"complete","ttlMs":0,"cacheScope":"private","tools":[{"name":"echo","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}`), nil
	case MethodListen:
		if err := r.Notify(NoteAcknowledged, json.RawMessage(`{"_meta":{"`+MetaSubscriptionID+`":`+string(r.ID)+`}}`)); err != nil {
			return nil, err
		}
		<-ctx.Done()
		h.causes <- context.Cause(ctx)
		return nil, nil
	case MethodToolsCall:
		return h.call(ctx, r, params)
	}
	return nil, Errorf(CodeMethodNotFound, "no method %s", r.Method)
}

func (h *testServer) call(ctx context.Context, r *Request, params jsonobj.Object) (json.RawMessage, error) {
	switch params.Text("name") {
	case "echo":
		return jsonobj.Object{{Key: "resultType", Value: json.RawMessage(`"complete"`)}, {Key: "content", Value: json.RawMessage(`[]`)}, {Key: "params", Value: r.Params}}.JSON(), nil
	case "say":
		return h.said, nil
	case "progress":
		token := params.Object("_meta").Get(MetaProgressToken)
		for i := range 100 {
			if err := r.Notify(NoteProgress, json.RawMessage(fmt.Sprintf(`{"progressToken":%s,"progress":%d}`, token, i))); err != nil {
				return nil, err
			}
		}
		return json.RawMessage(`{"resultType":"complete","content":[]}`), nil
	case "ask":
		result, err := r.Ask(ctx, "elicitation/create", json.RawMessage(`{"message":"why?","requestedSchema":{"type":"object","properties":{}}}`))
		if err != nil {
			return nil, err
		}
		return jsonobj.Object{{Key: "content", Value: json.RawMessage(`[]`)}, {Key: "structuredContent", Value: result}}.JSON(), nil
	case "wait":
		h.started <- r
		select {
		case <-ctx.Done():
			h.causes <- context.Cause(ctx)
			return nil, ctx.Err()
		case <-h.proceed:
			return json.RawMessage(`{"content":[],"waited":true}`), nil
		}
	case "note-and-wait":
		if err := r.Notify("notifications/message", json.RawMessage(`{"n":1}`)); err != nil {
			return nil, err
		}
		h.started <- r
		select {
		case <-h.proceed:
		case <-ctx.Done(): // the test has failed, or its client has gone
			return nil, ctx.Err()
		}
		if err := r.Notify("notifications/message", json.RawMessage(`{"n":2}`)); err != nil {
			return nil, err
		}
		return json.RawMessage(`{"content":[],"waited":true}`), nil
	case "flood":
		h.started <- r
		text := json.RawMessage(`{"text":"` + strings.Repeat("x", 64<<10) + `"}`)
		for {
			if err := r.Notify("notifications/message", text); err != nil {
				h.causes <- err
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if ctx.Err() != nil {
				h.causes <- context.Cause(ctx)
				return nil, ctx.Err()
			}
		}
	case "long":
		for _, size := range []int{1, maxQueue, 1} {
			if err := r.Notify("notifications/message", json.RawMessage(`{"text":"`+strings.Repeat("x", size)+`"}`)); size > 1 && err != nil {
				return nil, err
			}
		}
		return json.RawMessage(`{"content":[]}`), nil
	case "panic":
		panic("oops")
	case "data":
		return nil, Errorf(-32042, "with data").WithData(json.RawMessage(`{"big":9007199254740993}`))
	case "plain-error":
		return nil, errors.New("just a text")
	case "end":
		r.Session.Close()
		return nil, nil
	}
	return nil, Errorf(CodeInvalidParams, "no tool %s", params.Text("name"))
}

func (h *testServer) Notified(_ *Session, method string, params json.RawMessage) {
	h.notes <- method + " " + string(params)
}
func (h *testServer) Closed(s *Session) { h.closed <- s }

// endpoint is an HTTPHandler that listens.
type endpoint struct {
	t       *testing.T
	handler *HTTPHandler
	url     string
	client  *http.Client
	server  *httptest.Server
	posting sync.WaitGroup
}

func serveHTTP(t *testing.T, h Handler, o ServerOptions) *endpoint {
	t.Helper()
	e := &endpoint{t: t, handler: NewHTTPHandler(h, o), client: &http.Client{Transport: &http.Transport{}}}
	server := httptest.NewServer(e.handler)
	e.url, e.server = server.URL, server
	t.Cleanup(func() {
		e.handler.Close()
		e.posting.Wait()
		e.client.CloseIdleConnections()
		server.Close()
	})
	return e
}

// request makes a request. Headers come as "Name: value"; one with an empty value is left out.
func (e *endpoint) request(ctx context.Context, method, body string, headers ...string) *http.Request {
	e.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, e.url, strings.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		if r.Header.Del(name); value != "" {
			r.Header.Set(name, value)
		}
		if name == "Host" {
			r.Host = value
		}
	}
	return r
}

// reply is a response whose body is closed after the test.
type reply struct {
	StatusCode int
	Header     http.Header
	Body       io.Reader
}

// do sends a request.
func (e *endpoint) do(ctx context.Context, method, body string, headers ...string) *reply {
	e.t.Helper()
	response, err := e.client.Do(e.request(ctx, method, body, headers...))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { response.Body.Close() })
	return &reply{response.StatusCode, response.Header, response.Body}
}

func (e *endpoint) post(body string, headers ...string) *reply {
	e.t.Helper()
	return e.do(e.t.Context(), http.MethodPost, body, headers...)
}

// postAside sends a message whose answer nobody looks at.
func (e *endpoint) postAside(body string, headers ...string) {
	e.t.Helper()
	r := e.request(context.Background(), http.MethodPost, body, headers...)
	e.posting.Go(func() {
		if response, err := e.client.Do(r); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	})
}

// initialize opens a legacy session and returns the header that names it.
func (e *endpoint) initialize(version string) string {
	e.t.Helper()
	response := e.post(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"` + version + `"}}`)
	id := response.Header.Get(headerSession)
	if body := text(e.t, response); response.StatusCode != 200 || id == "" {
		e.t.Fatalf("initialize: %d %q", response.StatusCode, body)
	}
	return headerSession + ": " + id
}

func text(t *testing.T, r *reply) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// sse is one event.
type sse struct{ id, name, data string }

// events reads a stream until it ends, or until stop says so.
func events(t *testing.T, r *reply, stop func(sse) bool) (out []sse) {
	t.Helper()
	if kind := r.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("status %d, Content-Type %q: %s", r.StatusCode, kind, text(t, r))
	}
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 100<<20)
	var e sse
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if e != (sse{}) {
				if out = append(out, e); stop != nil && stop(e) {
					return out
				}
			}
			e = sse{}
		case name == "id":
			e.id = value
		case name == "event":
			e.name = value
		case name == "data":
			e.data += value
		}
	}
	if stop != nil {
		t.Fatalf("the stream has ended: %v, %v", lines.Err(), out)
	}
	return out
}

// call is a tools/call.
func call(id, tool, rest string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `"` + rest + `}}`
}

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// modern are the headers of a modern request.
func modern(method, name string) []string {
	return []string{headerVersion + ": 2026-07-28", headerMethod + ": " + method, headerName + ": " + name}
}

var serverGoroutine = regexp.MustCompile(`/mcp\.(\(\*(HTTPHandler|Session|stdioConn|post|Request)\)|readLines|ServeStdio)`)

// noGoroutinesLeft checks that nothing of a server runs after the test.
func noGoroutinesLeft(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		var stacks []byte
		if !testenv.Eventually(func() bool {
			stacks = testenv.Stacks()
			return !slices.ContainsFunc(bytes.Split(stacks, []byte("\n\n")), func(one []byte) bool {
				return serverGoroutine.Match(one) && !bytes.Contains(one, []byte("testing.tRunner"))
			})
		}) {
			t.Errorf("goroutines are left:\n%s", stacks)
		}
	})
}
