package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/internal/testenv"
)

// pipe is a client of ServeStdio that writes and reads lines.
type pipe struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *io.PipeReader
	lines *bufio.Reader
	done  chan error
	end   context.CancelCauseFunc
}

func serveStdio(t *testing.T, h Handler, o ServerOptions) *pipe {
	t.Helper()
	noGoroutinesLeft(t)
	clientIn, in := io.Pipe()
	out, clientOut := io.Pipe()
	p := &pipe{t: t, in: in, out: out, lines: bufio.NewReader(out), done: make(chan error, 1)}
	ctx, end := context.WithCancelCause(context.Background())
	p.end = end
	go func() {
		err := ServeStdio(ctx, clientIn, clientOut, h, o)
		_ = clientOut.Close()
		p.done <- err
	}()
	t.Cleanup(func() {
		_ = in.Close()
		_ = out.Close()
		end(nil)
	})
	return p
}

func (p *pipe) write(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pipe) read() string {
	p.t.Helper()
	line, err := p.lines.ReadString('\n')
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}

func (p *pipe) initialize() {
	p.t.Helper()
	p.write(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}`)
	if got := p.read(); !strings.Contains(got, `"protocolVersion":"2025-06-18"`) {
		p.t.Fatal(got)
	}
}

func TestStdioLegacy(t *testing.T) {
	h := newTestServer()
	p := serveStdio(t, h, ServerOptions{})
	exchange := func(line, want string) {
		t.Helper()
		p.write(line)
		if got := p.read(); !strings.Contains(got, want) {
			t.Errorf("%s is answered %s, want %s", line, got, want)
		}
	}
	exchange(`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	exchange(call("1", "echo", ""), `"id":1,"error":{"code":-32600,"message":"tools/call before initialize has been answered"}`)
	p.initialize()
	exchange(`no JSON`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700`)
	exchange(`{"id":1}`, `{"jsonrpc":"2.0","id":null,"error":{"code":-32600`)
	exchange(`{"jsonrpc":"2.0","id":null,"method":"ping"}`, `"id":null,"error":{"code":-32600`)
	exchange(`[]`, `"id":null,"error":{"code":-32600`)
	p.write("")
	p.write(`{"jsonrpc":"2.0","method":"notifications/x","params":` + strange + `}`)
	if got := testenv.Receive(t, h.notes); got != "notifications/x "+strange {
		t.Error(got)
	}
	params := `{"name":"echo","arguments":` + strange + `}`
	exchange(`{"id":"\u0061" , "method":"tools/call","params":`+params+`,"jsonrpc":"2.0"}`+"\r", `{"jsonrpc":"2.0","id":"\u0061","result":{"resultType":"complete","content":[],"params":`+params+`}}`)
	h.said = json.RawMessage("{\r\n\"a\":1}")
	exchange(call("1", "say", ""), `"result":{  "a":1}}`)
	exchange(call("1", "panic", ""), `-32603`)

	p.write(call("1", "progress", `,"_meta":{"progressToken":1}`))
	for i := range 100 {
		if got := p.read(); !strings.Contains(got, fmt.Sprintf(`"progress":%d}`, i)) {
			t.Fatal(got)
		}
	}
	if got := p.read(); !strings.Contains(got, `"result"`) {
		t.Error(got)
	}

	// A question.
	p.write(call("1", "ask", ""))
	var question struct{ ID json.RawMessage }
	if err := json.Unmarshal([]byte(p.read()), &question); err != nil {
		t.Fatal(err)
	}
	exchange(`{"jsonrpc":"2.0","id":`+string(question.ID)+`,"result":{"action":"accept"}}`, `"structuredContent":{"action":"accept"}`)

	// Cancelling: the answer is not sent, and the next one is.
	p.write(call("5", "wait", ""))
	testenv.Receive(t, h.started)
	p.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	p.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`)
	if cause := testenv.Receive(t, h.causes); !errors.Is(cause, ErrCancelled) {
		t.Errorf("cause: %v", cause)
	}
	p.write(call("6", "wait", ""))
	r := testenv.Receive(t, h.started)
	h.proceed <- struct{}{}
	if got := p.read(); !strings.Contains(got, `"id":6,"result"`) {
		t.Error(got)
	}
	if err := r.Notify("x", nil); err == nil {
		t.Error("a notification after the answer")
	}
	if r.Header != nil || r.Era != Legacy || r.Version != Version2025_06_18 || r.Session.Era() != Legacy || r.Session.ID() == "" {
		t.Errorf("%+v", r)
	}
	go func() { _ = r.Session.Notify("outside", nil) }()
	if got := p.read(); got != `{"jsonrpc":"2.0","method":"outside"}` {
		t.Error(got)
	}

	// The end of input ends everything.
	p.write(call("7", "wait", ""))
	testenv.Receive(t, h.started)
	_ = p.in.Close()
	go func() { _, _ = io.Copy(io.Discard, p.out) }()
	if err := testenv.Receive(t, p.done); err != nil {
		t.Error(err)
	}
	_ = testenv.Receive(t, h.causes)
	if s := testenv.Receive(t, h.closed); s != r.Session {
		t.Error("another session")
	}
}

func TestStdioBatch(t *testing.T) {
	h := newTestServer()
	p := serveStdio(t, h, ServerOptions{})
	p.initialize()
	p.write(`[` + call("1", "wait", "") + `,{"jsonrpc":"2.0","method":"n"},7,{"jsonrpc":"2.0","id":2,"method":"ping"}]`)
	testenv.Receive(t, h.started)
	h.proceed <- struct{}{}
	var answers []struct {
		ID     json.RawMessage
		Result map[string]any
	}
	if err := json.Unmarshal([]byte(p.read()), &answers); err != nil || len(answers) != 3 {
		t.Errorf("%v, %v", answers, err)
	}
	p.write(`[{"jsonrpc":"2.0","method":"n"}]`)
	testenv.Receive(t, h.notes)
	testenv.Receive(t, h.notes)
}

func TestStdioModern(t *testing.T) {
	h := newTestServer()
	p := serveStdio(t, h, ServerOptions{})
	exchange := func(line, want string) {
		t.Helper()
		p.write(line)
		if got := p.read(); !strings.Contains(got, want) {
			t.Errorf("%s is answered %s, want %s", line, got, want)
		}
	}
	exchange(`{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{`+modernMeta+`}}`, `"supportedVersions"`)
	exchange(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"v9"}}}`, `"code":-32022`)
	exchange(`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`, `"code":-32602`)
	exchange(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"code":-32602`)
	exchange(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{`+modernMeta+`}}`, `"code":-32601`)
	exchange(`[{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}]`, `"code":-32600`)
	exchange(`{"jsonrpc":"2.0","id":"listen:0","method":"subscriptions/listen","params":{`+modernMeta+`}}`, `"io.modelcontextprotocol/subscriptionId":"listen:0"`)
	exchange(call("2", "ask", ","+modernMeta), "cannot be asked")
	p.write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"listen:0"}}`)
	if cause := testenv.Receive(t, h.causes); !errors.Is(cause, ErrCancelled) {
		t.Errorf("cause: %v", cause)
	}
	p.write(call("3", "wait", ","+modernMeta))
	if r := testenv.Receive(t, h.started); r.Era != Modern || r.Version != Version2026_07_28 || r.Session.Era() != Modern || r.Session.Version() != r.Version {
		t.Errorf("%+v", r)
	}
	h.proceed <- struct{}{}
	p.read()
	// A client that has only probed.
	p.initialize()
	exchange(call("4", "echo", ""), `"result"`)
}

func TestStdioEnds(t *testing.T) {
	t.Run("a line that is too long", func(t *testing.T) {
		p := serveStdio(t, newTestServer(), ServerOptions{MaxMessage: 100000})
		p.initialize()
		go func() { _, _ = io.WriteString(p.in, strings.Repeat(" ", 200000)) }()
		if err := testenv.Receive(t, p.done); !errors.Is(err, errLongLine) {
			t.Error(err)
		}
	})
	t.Run("a client that has gone", func(t *testing.T) {
		h := newTestServer()
		p := serveStdio(t, h, ServerOptions{})
		p.initialize()
		_ = p.out.Close()
		p.write(call("1", "echo", ""))
		if err := testenv.Receive(t, p.done); !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		testenv.Receive(t, h.closed)
	})
	t.Run("the context", func(t *testing.T) {
		h := newTestServer()
		p := serveStdio(t, h, ServerOptions{})
		p.initialize()
		p.write(call("1", "wait", ""))
		testenv.Receive(t, h.started)
		over := errors.New("over")
		p.end(over)
		if err := testenv.Receive(t, p.done); !errors.Is(err, over) {
			t.Error(err)
		}
		if cause := testenv.Receive(t, h.causes); !errors.Is(cause, ErrShutdown) {
			t.Error(cause)
		}
	})
	t.Run("a client that does not read", func(t *testing.T) {
		h := newTestServer()
		p := serveStdio(t, h, ServerOptions{})
		p.initialize()
		p.write(call("1", "flood", ""))
		if err := testenv.Receive(t, h.causes); !errors.Is(err, errFull) {
			t.Error(err)
		}
		p.write(`{"jsonrpc":"2.0","method":"still/heard"}`)
		testenv.Receive(t, h.notes)
		p.end(nil)
		_ = testenv.Receive(t, p.done)
	})
}

func TestStdioLongNotification(t *testing.T) {
	p := serveStdio(t, newTestServer(), ServerOptions{})
	p.initialize()
	p.write(call("1", "long", ""))
	longest := 0
	for {
		line := p.read()
		if longest = max(longest, len(line)); strings.Contains(line, `"id":1`) {
			if !strings.Contains(line, `"result"`) || longest < maxQueue {
				t.Errorf("the longest line has %d bytes: %.200s", longest, line)
			}
			return
		}
	}
}

func TestStdioServesConcurrently(t *testing.T) {
	h := newTestServer()
	p := serveStdio(t, h, ServerOptions{})
	// A client that does not wait for the answer to initialize is served all the same.
	p.write(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-06-18"}}`)
	for i := range 32 {
		p.write(call(fmt.Sprint(i), "wait", ""))
	}
	if got := p.read(); !strings.Contains(got, "protocolVersion") {
		t.Error(got)
	}
	for range 32 {
		testenv.Receive(t, h.started)
	}
	p.write(call("3", "wait", ""))
	if got := p.read(); !strings.Contains(got, "-32600") {
		t.Error(got)
	}
	close(h.proceed)
	for range 32 {
		var answer struct{ Result map[string]any }
		if err := json.Unmarshal([]byte(p.read()), &answer); err != nil || answer.Result["waited"] != true {
			t.Error(err, answer)
		}
	}
}
