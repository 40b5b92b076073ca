package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

// What is answered to requests that are wrong in some way, or nearly.
func TestHTTPStatus(t *testing.T) {
	e := serveHTTP(t, newTestServer(), ServerOptions{MaxMessage: 2000, Hosts: []string{"Gateway.test"}})
	session := e.initialize(Version2025_11_25)
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	discover := `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{` + modernMeta + `}}`
	meta := func(meta string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"server/discover","params":{"_meta":{` + meta + `}}}`
	}
	modernCall := call("1", "echo", `,"arguments":{},`+modernMeta)
	tests := []struct {
		name, method, body string
		headers            []string
		status             int
		holds              string
	}{
		{"ping", "POST", ping, []string{session}, 200, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"a version header of another legacy version", "POST", ping, []string{session, headerVersion + ": 2025-03-26"}, 200, `"result"`},
		{"an unknown version", "POST", ping, []string{session, headerVersion + ": 2027-01-01"}, 400, `"id":1,"error":{"code":-32022,"message":"protocol version \"2027-01-01\" is not supported","data":{"supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"],"requested":"2027-01-01"}}`},
		{"an unknown version of GET", "GET", "", []string{session, headerVersion + ": 2027-01-01"}, 400, `-32022`},
		{"no session", "POST", ping, nil, 400, "Mcp-Session-Id"},
		{"an unknown session", "POST", ping, []string{headerSession + ": x"}, 404, "session not found"},
		{"GET of an unknown session", "GET", "", []string{headerSession + ": x"}, 404, "session not found"},
		{"GET without session", "GET", "", nil, 400, "Mcp-Session-Id"},
		{"GET that takes no stream", "GET", "", []string{session, "Accept: application/json"}, 406, ""},
		{"GET after an unknown event", "GET", "", []string{session, headerLastEvent + ": x-7_1"}, 400, "cannot be resumed"},
		{"DELETE of an unknown session", "DELETE", "", []string{headerSession + ": x"}, 404, ""},
		{"PUT", "PUT", "", []string{session}, 405, ""},
		{"a method that is unknown", "POST", `{"jsonrpc":"2.0","id":1,"method":"x"}`, []string{session}, 200, `-32601`},
		{"no JSON", "POST", `{"jsonrpc"`, []string{session}, 400, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700`},
		{"no message", "POST", `{"id":1}`, []string{session}, 400, `"id":null,"error":{"code":-32600`},
		{"an id that is none", "POST", `{"jsonrpc":"2.0","id":{},"method":"x"}`, []string{session}, 200, `"id":null,"error":{"code":-32600`},
		{"a null id", "POST", `{"jsonrpc":"2.0","id":null,"method":"x"}`, []string{session}, 200, `"id":null,"error":{"code":-32600`},
		{"another type", "POST", ping, []string{session, "Content-Type: text/plain"}, 415, ""},
		{"a type with a parameter", "POST", ping, []string{session, "Content-Type: application/json; charset=utf-8"}, 200, ""},
		{"too long", "POST", ping + strings.Repeat(" ", 2000), []string{session}, 413, ""},
		{"nothing is accepted", "POST", ping, []string{session, "Accept: text/html"}, 406, ""},
		{"no Accept", "POST", ping, []string{session, "Accept: "}, 200, `"result"`},
		{"anything is accepted", "POST", ping, []string{session, "Accept: */*"}, 200, `"result"`},
		{"a notification", "POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, []string{session}, 202, ""},
		{"an answer to nothing", "POST", `{"jsonrpc":"2.0","id":1,"result":{}}`, []string{session}, 202, ""},
		{"initialize that fails", "POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"fail":1}}`, nil, 200, `-32602`},
		{"initialize in a batch", "POST", `[{"jsonrpc":"2.0","id":1,"method":"initialize"}]`, nil, 400, `-32600`},
		{"an empty batch", "POST", `[]`, []string{session}, 400, `-32600`},
		{"a batch", "POST", "[" + ping + `,3,{"jsonrpc":"2.0","method":"x"}]`, []string{session}, 200, `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{"a batch of notifications", "POST", `[{"jsonrpc":"2.0","method":"x"}]`, []string{session}, 202, ""},
		{"an error with data", "POST", call("1", "data", ""), []string{session}, 200, `"error":{"code":-32042,"message":"with data","data":{"big":9007199254740993}}`},
		{"an error of Go", "POST", call("1", "plain-error", ""), []string{session}, 200, `"error":{"code":-32603,"message":"just a text"}`},
		{"a panic", "POST", call("1", "panic", ""), []string{session}, 200, `"error":{"code":-32603,"message":"panic while serving tools/call: oops"}`},

		{"modern", "POST", discover, modern("server/discover", ""), 200, `"id":"d","result":{"resultType":"complete"`},
		{"modern GET", "GET", "", modern("", ""), 405, ""},
		{"modern DELETE", "DELETE", "", modern("", ""), 405, ""},
		{"modern batch", "POST", "[" + discover + "]", modern("server/discover", ""), 400, `-32600`},
		{"modern notification", "POST", `{"jsonrpc":"2.0","method":"notifications/x"}`, modern("", ""), 202, ""},
		{"modern cancelling", "POST", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, modern("", ""), 202, ""},
		{"no _meta", "POST", `{"jsonrpc":"2.0","id":7,"method":"server/discover"}`, modern("server/discover", ""), 400, `"id":7,"error":{"code":-32602`},
		{"no version in _meta", "POST", meta(`"io.modelcontextprotocol/clientCapabilities":{}`), modern("server/discover", ""), 400, `"id":7,"error":{"code":-32602`},
		{"no capabilities in _meta", "POST", meta(`"io.modelcontextprotocol/protocolVersion":"2026-07-28"`), modern("server/discover", ""), 400, `"id":7,"error":{"code":-32602`},
		{"no version header", "POST", discover, []string{headerMethod + ": server/discover"}, 400, `"id":"d","error":{"code":-32020`},
		{"an older version header", "POST", discover, []string{headerVersion + ": 2025-11-25"}, 400, `-32020`},
		{"another version in _meta", "POST", meta(`"io.modelcontextprotocol/protocolVersion":"v999"`), modern("server/discover", ""), 400, `-32020`},
		{"a version that is unknown", "POST", meta(`"io.modelcontextprotocol/protocolVersion":"v999"`), []string{headerVersion + ": v999"}, 400, `"requested":"v999"`},
		{"no method header", "POST", discover, []string{headerVersion + ": 2026-07-28"}, 400, `-32020`},
		{"another method header", "POST", discover, modern("SERVER/DISCOVER", ""), 400, `-32020`},
		{"no name header", "POST", modernCall, modern("tools/call", ""), 400, `-32020`},
		{"another name header", "POST", modernCall, modern("tools/call", "other"), 400, `-32020`},
		{"a name header with white space", "POST", modernCall, modern("tools/call", "  echo  "), 200, `"content"`},
		{"a name header in base64", "POST", modernCall, modern("tools/call", "=?base64?ZWNobw==?="), 200, `"content"`},
		{"a name header that is no base64", "POST", modernCall, modern("tools/call", "=?base64?ZWNobw?="), 400, `-32020`},
		{"another task header", "POST", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"a",` + modernMeta + `}}`, modern("tasks/get", "b"), 400, `-32020`},
		{"no task header", "POST", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"a",` + modernMeta + `}}`, modern("tasks/get", ""), 404, `-32601`},
		{"a modern method that is unknown", "POST", `{"jsonrpc":"2.0","id":1,"method":"x","params":{` + modernMeta + `}}`, modern("x", ""), 404, `-32601`},
		{"a modern tool that is unknown", "POST", call("1", "x", ","+modernMeta), modern("tools/call", "x"), 400, `-32602`},
		{"modern ping", "POST", `{"jsonrpc":"2.0","id":1,"method":"ping","params":{` + modernMeta + `}}`, modern("ping", ""), 404, `-32601`},
		{"modern initialize", "POST", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{` + modernMeta + `}}`, modern("initialize", ""), 404, `-32601`},
		{"modern tasks/list", "POST", `{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{` + modernMeta + `}}`, modern("tasks/list", ""), 404, `-32601`},
		{"a modern question", "POST", call("1", "ask", ","+modernMeta), modern("tools/call", "ask"), 200, `cannot be asked`},

		{"another host", "POST", ping, []string{session, "Host: evil.example.com"}, 403, ""},
		{"another host with a port", "POST", ping, []string{session, "Host: evil.example.com:80"}, 403, ""},
		{"another origin", "POST", ping, []string{session, "Origin: http://evil.example.com"}, 403, ""},
		{"no origin", "POST", ping, []string{session, "Origin: null"}, 403, ""},
		{"an origin like ours", "POST", ping, []string{session, "Origin: http://localhost.evil.example.com"}, 403, ""},
		{"GET of another host", "GET", "", []string{session, "Host: evil.example.com"}, 403, ""},
		{"localhost", "POST", ping, []string{session, "Host: LOCALHOST:1", "Origin: http://localhost:6274"}, 200, ""},
		{"IPv6", "POST", ping, []string{session, "Host: [::1]:1", "Origin: http://[::1]"}, 200, ""},
		{"a host that is allowed", "POST", ping, []string{session, "Host: gateway.test:8"}, 200, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			response := e.do(t.Context(), test.method, test.body, test.headers...)
			body := text(t, response)
			if response.StatusCode != test.status || !strings.Contains(body, test.holds) {
				t.Errorf("status %d, want %d; the body %q should hold %q", response.StatusCode, test.status, body, test.holds)
			}
			if response.Header.Get(headerSession) != "" {
				t.Error("it names a session")
			}
		})
	}
}

// strange is a value that decoding would change.
const strange = `{"z":1,"a":9007199254740993,"a":1.0,"big":123456789012345678901234567890,"e":1E400,"u":"\u003c\/é","deep":[{"x":[ 1 , 2 ]}],"_meta":{"b":1,"a":{}}}`

func TestBytesAreKept(t *testing.T) {
	h := newTestServer()
	h.said = json.RawMessage(strange)
	e := serveHTTP(t, h, ServerOptions{})
	session := e.initialize(Version2025_11_25)
	params := `{"name":"echo","arguments":` + strange + `}`
	echo := `{"id":"\u0061" , "method":"tools/call","params":` + params + `,"jsonrpc":"2.0"}`
	want := `{"jsonrpc":"2.0","id":"\u0061","result":{"resultType":"complete","content":[],"params":` + params + `}}`
	if got := text(t, e.post(echo, session)); got != want {
		t.Errorf("JSON: %s", got)
	}
	if got := events(t, e.post(echo, session, "Accept: text/event-stream"), nil); len(got) != 2 || got[1].data != want {
		t.Errorf("events: %v", got)
	}
	if got := text(t, e.post(call("1", "say", ""), session)); got != `{"jsonrpc":"2.0","id":1,"result":`+strange+`}` {
		t.Errorf("result: %s", got)
	}
	// White space between tokens is all that an event must change.
	h.said = json.RawMessage("{\r\n  \"a\": 1\n}")
	if got := text(t, e.post(call("1", "say", ""), session)); got != `{"jsonrpc":"2.0","id":1,"result":`+string(h.said)+`}` {
		t.Errorf("lines: %q", got)
	}
	if got := events(t, e.post(call("1", "say", ""), session, "Accept: text/event-stream"), nil); got[1].data != `{"jsonrpc":"2.0","id":1,"result":{    "a": 1 }}` {
		t.Errorf("lines as an event: %q", got)
	}
}

func TestCancel(t *testing.T) {
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{StreamAfter: time.Millisecond})
	session := e.initialize(Version2025_11_25)
	cancel := func(id string) {
		t.Helper()
		note := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
		if r := e.post(note, session); r.StatusCode != 202 {
			t.Errorf("status %d", r.StatusCode)
		}
	}
	response := e.post(call(`"a"`, "wait", ""), session)
	testenv.Receive(t, h.started)
	cancel(`"b"`)
	cancel(`"a"`)
	if cause := testenv.Receive(t, h.causes); !errors.Is(cause, ErrCancelled) {
		t.Errorf("cause: %v", cause)
	}
	if got := events(t, response, nil); !strings.Contains(got[1].data, `"id":"a","error"`) {
		t.Errorf("%v", got)
	}
	cancel(`"a"`) // too late
	if got := text(t, e.post(call(`"a"`, "echo", ""), session)); !strings.Contains(got, "result") {
		t.Errorf("the next request: %s", got)
	}
	if len(h.notes) != 0 {
		t.Errorf("told: %s", <-h.notes)
	}

	// Of Modern, who leaves the response cancels; of Legacy not.
	ctx, leave := context.WithCancel(t.Context())
	e.do(ctx, "POST", call("1", "wait", ","+modernMeta), modern("tools/call", "wait")...)
	e.do(ctx, "POST", call("1", "wait", ""), session)
	testenv.Receive(t, h.started)
	testenv.Receive(t, h.started)
	leave()
	if cause := testenv.Receive(t, h.causes); !errors.Is(cause, ErrCancelled) {
		t.Errorf("cause: %v", cause)
	}
	h.proceed <- struct{}{}
	if len(h.causes) != 0 {
		t.Error("both were cancelled")
	}
	// So does who leaves a subscription.
	ctx, leave = context.WithCancel(t.Context())
	response = e.do(ctx, "POST", `{"jsonrpc":"2.0","id":"listen:0","method":"subscriptions/listen","params":{`+modernMeta+`}}`, modern(MethodListen, "")...)
	events(t, response, func(e sse) bool {
		return strings.Contains(e.data, `"io.modelcontextprotocol/subscriptionId":"listen:0"`)
	})
	leave()
	if cause := testenv.Receive(t, h.causes); !errors.Is(cause, ErrCancelled) {
		t.Errorf("cause: %v", cause)
	}
}

func TestLongMessages(t *testing.T) {
	testenv.NeedSlow(t)
	h := newTestServer()
	long := strings.Repeat("0123456789", 1<<20)
	h.said = json.RawMessage(`"` + long + `"`)
	e := serveHTTP(t, h, ServerOptions{})
	session := e.initialize(Version2025_11_25)
	if got := text(t, e.post(call("1", "echo", `,"long":"`+long+`"`), session)); !strings.Contains(got, long) {
		t.Errorf("%d bytes", len(got))
	}
	got := events(t, e.post(call("1", "say", ""), session, "Accept: text/event-stream"), nil)
	if !strings.Contains(got[1].data, long) {
		t.Errorf("%d bytes", len(got[1].data))
	}
	// It is longer than what a session keeps, and is there all the same until the client has come
	// for it.
	if again := events(t, e.do(t.Context(), "GET", "", session, headerLastEvent+": "+got[0].id), nil); len(again) != 1 || again[0] != got[1] {
		t.Errorf("%d events", len(again))
	}
}

func TestConcurrentRequests(t *testing.T) {
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{})
	session := e.initialize(Version2025_11_25)
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			id, headers, meta := fmt.Sprint(i), []string{session}, ""
			if i%2 == 0 {
				headers, meta = modern("tools/call", "wait"), ","+modernMeta
			}
			if got := text(t, e.post(call(id, "wait", meta), headers...)); !strings.Contains(got, `{"jsonrpc":"2.0","id":`+id+`,"result"`) {
				t.Errorf("%d: %s", i, got)
			}
		})
	}
	for range 32 {
		testenv.Receive(t, h.started)
	}
	// One more with an id that is in use.
	if got := text(t, e.post(call("1", "wait", ""), session)); !strings.Contains(got, "-32600") {
		t.Error(got)
	}
	close(h.proceed)
	all.Wait()
}

// A body that does not come ends the request and the connection; one that has come does not end
// the request later.
func TestBodiesThatDoNotCome(t *testing.T) {
	h := newTestServer()
	e := serveHTTP(t, h, ServerOptions{})
	e.handler.bodyTimeout = 20 * time.Millisecond
	conn, err := net.Dial("tcp", e.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	head := "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
	if _, err := io.WriteString(conn, head+"Content-Length: 1000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") {
		t.Errorf("%s, %v", answer, err)
	}
	bounded := time.Since(began)

	response := e.post(call("1", "note-and-wait", ","+modernMeta), modern("tools/call", "note-and-wait")...)
	testenv.Receive(t, h.started)
	passed := time.NewTimer(2 * bounded) // in which the bound would have ended the request
	<-passed.C
	h.proceed <- struct{}{}
	if got := events(t, response, nil); len(got) == 0 || !strings.Contains(got[len(got)-1].data, `"waited":true`) {
		t.Errorf("%v", got)
	}
}
