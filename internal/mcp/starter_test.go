package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// starter is a handler that starts what its tools are called for; everything else the test's server serves.
type starter struct {
	*testServer
	// open are the answers to calls that wait for the test, causes what they were cancelled with.
	open   chan func(json.RawMessage, error)
	causes chan error
}

func (h *starter) Start(r *Request, answer func(json.RawMessage, error)) bool {
	if r.Method != MethodToolsCall {
		return false
	}
	var params struct{ Name string }
	if json.Unmarshal(r.Params, &params) != nil {
		return false
	}
	result := json.RawMessage(`{"started":true}`)
	switch params.Name {
	case "now":
		answer(result, nil)
	case "later":
		_ = r.Notify(NoteProgress, json.RawMessage(`{"progress":1}`)) // the test reads it
		go answer(result, nil)
	case "twice":
		answer(nil, Errorf(7, "the first answer"))
		answer(result, nil)
	case "panic":
		panic("no")
	case "panic after the answer":
		answer(result, nil)
		panic("no")
	case "open":
		r.OnCancel(func(cause error) {
			h.causes <- cause
			answer(nil, cause)
		})
		h.open <- answer
	default:
		return false
	}
	return true
}

// What a handler starts is answered once, whenever it is, and what it does not start is served.
func TestStarter(t *testing.T) {
	h := &starter{newTestServer(), make(chan func(json.RawMessage, error), 1), make(chan error, 10)}
	p := serveStdio(t, h, ServerOptions{})
	id := 0
	begin := func(name string) {
		id++
		p.write(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q}}`, id, name))
	}
	expect := func(parts ...string) {
		t.Helper()
		got := p.read()
		for _, part := range append(parts, fmt.Sprintf(`"id":%d,`, id)) {
			if !strings.Contains(got, part) {
				t.Errorf("got %s, want %s in it", got, part)
			}
		}
	}
	begin("now")
	expect("before initialize has been answered") // such a request is not started
	p.write(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18"}}`)
	p.read()
	begin("now")
	expect(`"started":true`)
	begin("later")
	if got := p.read(); !strings.Contains(got, NoteProgress) {
		t.Errorf("before the answer comes %s", got)
	}
	expect(`"started":true`)
	begin("twice")
	expect("the first answer")
	begin("panic")
	expect("-32603", "panic while serving")
	begin("panic after the answer")
	expect(`"started":true`)
	begin("echo") // not started
	expect(`"result"`)

	// One that is cancelled is not answered, whatever the handler does about it; and ids can be used again.
	begin("open")
	answer := receive(t, h.open)
	cancel := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id)
	p.write(cancel)
	p.write(cancel)
	if cause := receive(t, h.causes); !errors.Is(cause, ErrCancelled) {
		t.Errorf("cause: %v", cause)
	}
	answer(json.RawMessage(`{"late":true}`), nil)
	id--
	begin("now")
	expect(`"started":true`)

	// The end of the client ends what is open.
	begin("open")
	receive(t, h.open)
	_ = p.in.Close()
	if cause := receive(t, h.causes); !errors.Is(cause, errEnded) {
		t.Errorf("cause: %v", cause)
	}
	if got := p.read(); !strings.Contains(got, "the MCP session has ended") {
		t.Error(got)
	}
	if err := receive(t, p.done); err != nil {
		t.Error(err)
	}
	select {
	case cause := <-h.causes:
		t.Errorf("a request was cancelled twice: %v", cause)
	default:
	}
}

// startOnly begins a call whose outcomes come on the channel, which holds more than there may be.
func startOnly(t *testing.T, c *Client, call Call) (outcomes chan clientResult, cancel func(cause error)) {
	t.Helper()
	outcomes = make(chan clientResult, 5)
	cancel, started := c.Start(call, func(result json.RawMessage, err error) { outcomes <- clientResult{result, err} })
	if !started {
		t.Fatal("the call was not started")
	}
	return outcomes, cancel
}

// A call that is started has one outcome: the answer, that it was cancelled, or that the connection has gone.
func TestClientStartsCalls(t *testing.T) {
	cancelled := make(chan string, 10)
	held := make(chan json.RawMessage, 10)
	target := clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		switch {
		case m.method == NoteCancelled:
			cancelled <- string(m.params)
		case strings.Contains(string(m.params), "refused"):
			p.say(`{"jsonrpc":"2.0","id":` + string(m.id) + `,"error":{"code":7,"message":"no"}}`)
		case strings.Contains(string(m.params), "held"):
			held <- m.id
		case strings.Contains(string(m.params), "exit"):
			return false
		case m.method == MethodToolsCall:
			p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + clientMember(m.params, "_meta", "progressToken") + `,"progress":1}}`)
			p.answer(m.id, `{"content":[]}`)
		}
		return true
	})
	c := clientDial(t, target, ClientOptions{Protocol: Legacy})
	call := func(name string) Call { return clientCallTool(name, `{}`) }

	var told []string
	echo := call("echo")
	echo.Params = json.RawMessage(`{"name":"echo","_meta":{"progressToken":"mine"}}`)
	echo.Notified = func(_ string, params json.RawMessage) { told = append(told, clientMember(params, "progressToken")) }
	outcomes, cancel := startOnly(t, c, echo)
	if got := clientAwait(t, outcomes); got.err != nil || string(got.result) != `{"content":[]}` || fmt.Sprint(told) != `["mine"]` {
		t.Errorf("%s, %v, after %v", got.result, got.err, told)
	}
	cancel(errors.New("too late"))

	var said *Error
	outcomes, _ = startOnly(t, c, call("refused"))
	if got := clientAwait(t, outcomes); !errors.As(got.err, &said) || said.Code != 7 {
		t.Error(got.err)
	}
	outcomes, _ = startOnly(t, c, Call{Method: MethodToolsCall, Params: json.RawMessage(`{`)})
	if got := clientAwait(t, outcomes); got.err == nil || !strings.Contains(got.err.Error(), "not JSON") {
		t.Error(got.err)
	}

	enough := errors.New("enough")
	outcomes, cancel = startOnly(t, c, call("held"))
	id := string(clientAwait(t, held))
	cancel(enough)
	cancel(errors.New("twice"))
	if got := clientAwait(t, outcomes); !errors.Is(got.err, enough) {
		t.Error(got.err)
	}
	if params := clientAwait(t, cancelled); !strings.Contains(params, `"requestId":`+id) || !strings.Contains(params, "enough") {
		t.Errorf("the server was told %s", params)
	}

	open, cancel := startOnly(t, c, call("held"))
	clientAwait(t, held)
	exit, _ := startOnly(t, c, call("exit"))
	for _, outcomes := range []chan clientResult{open, exit} {
		if got := clientAwait(t, outcomes); !errors.Is(got.err, ErrClosed) || errors.Is(got.err, ErrUnsent) {
			t.Error(got.err)
		}
	}
	cancel(enough)
	after, _ := startOnly(t, c, call("echo"))
	if got := clientAwait(t, after); !errors.Is(got.err, ErrUnsent) {
		t.Error(got.err)
	}
	for _, outcomes := range []chan clientResult{outcomes, open, exit, after} {
		if len(outcomes) > 0 {
			t.Errorf("another outcome: %v", <-outcomes)
		}
	}
}

func TestClientStartsNothingOverHTTP(t *testing.T) {
	server := clientServeLegacy(t, func(x clientExchange) { x.json(`{}`) })
	c := clientDial(t, Target{URL: server.URL}, ClientOptions{Protocol: Legacy})
	if _, started := c.Start(Call{Method: MethodToolsCall}, func(json.RawMessage, error) { t.Error("done was called") }); started {
		t.Error("a call was started that has to wait")
	}
}

// What has not begun to be written when the connection ends may be sent again, and what has begun may not.
func TestClientTellsWhatWasUnsent(t *testing.T) {
	throughAll(t, func(t *testing.T, w writerEnds) {
		c := newClient(ClientOptions{})
		c.era = Legacy
		l := &stdioLink{c: c, rwc: struct {
			io.ReadCloser
			io.Writer
		}{w.r, w.w}, out: w.lineWriter, release: func() {}}
		c.link = l
		long := Call{Method: MethodToolsCall, Params: json.RawMessage(`{"name":"` + strings.Repeat("x", 1<<20) + `"}`)}
		begun, _ := startOnly(t, c, long)
		if _, err := io.ReadFull(w.r, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		queued, _ := startOnly(t, c, clientCallTool("echo", `{}`))
		_ = c.end(clientGone("it has closed its stdout"), false)
		late, _ := startOnly(t, c, clientCallTool("echo", `{}`))
		for name, test := range map[string]struct {
			outcome clientResult
			unsent  bool
		}{"begun": {clientAwait(t, begun), false}, "queued": {clientAwait(t, queued), true}, "late": {clientAwait(t, late), true}} {
			if err := test.outcome.err; !errors.Is(err, ErrClosed) || errors.Is(err, ErrUnsent) != test.unsent {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
