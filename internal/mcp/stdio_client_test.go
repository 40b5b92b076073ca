package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestClientFindsOutTheEraOverStdio(t *testing.T) {
	modern := func(p *clientStdioPeer, m message) {
		p.answer(m.ID, `{"supportedVersions":["2026-07-28","2025-11-25"],"capabilities":{},"resultType":"complete"}`)
	}
	tests := []struct {
		name   string
		probed func(p *clientStdioPeer, m message) // on server/discover; then the process stays until the client goes
		exits  bool
		era    Era
		starts int64
	}{
		{"a modern server keeps its process", modern, false, Modern, 1},
		{"an error", func(p *clientStdioPeer, m message) {
			p.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32601,"message":"Method not found"}}`)
		}, false, Legacy, 2},
		{"an error without an id", func(p *clientStdioPeer, _ message) {
			p.say(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`)
		}, false, Legacy, 2},
		{"only legacy versions", func(p *clientStdioPeer, m message) {
			p.answer(m.ID, `{"supportedVersions":["2025-11-25"]}`)
		}, false, Legacy, 2},
		{"a result that is none", func(p *clientStdioPeer, m message) { p.answer(m.ID, `"yes"`) }, false, Legacy, 2},
		{"silence", func(*clientStdioPeer, message) {}, false, Legacy, 2},
		{"exit", func(*clientStdioPeer, message) {}, true, Legacy, 2},
		{"noise and a notification", func(p *clientStdioPeer, _ message) {
			p.say("panic: not initialized\n{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}")
		}, true, Legacy, 2},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var starts atomic.Int64
			target := clientPlay(t, func(p *clientStdioPeer) {
				if starts.Add(1) > 1 {
					clientGreet(p)
				} else if m, ok := p.next(); ok && m.Method == MethodDiscover {
					test.probed(p, m)
					if test.exits {
						return
					}
				}
				_, _ = io.Copy(io.Discard, p) // until the client goes
			})
			var notes clientNotes
			c := clientDial(t, target, ClientOptions{ProbeTimeout: 200 * time.Millisecond, Notified: notes.add})
			if c.Era() != test.era || starts.Load() != test.starts || len(notes.list()) != 0 {
				t.Errorf("the era is %s after %d starts, with notifications %v; want %s after %d", c.Era(), starts.Load(), notes.list(), test.era, test.starts)
			}
			if test.era == Legacy && (c.Version() != "2025-11-25" || string(c.InitializeResult()) != initializeAnswer) {
				t.Errorf("version %s, hello %s", c.Version(), c.InitializeResult())
			}
		})
	}
}

func TestClientDoesNotProbeWhereTheEraIsGiven(t *testing.T) {
	target := clientPlay(t, func(p *clientStdioPeer) {
		if !clientGreet(p) {
			t.Error("the client did not begin with initialize")
		}
		_, _ = io.Copy(io.Discard, p)
	})
	clientDial(t, target, ClientOptions{Protocol: Legacy})
}

func TestClientTellsWhyItCannotConnect(t *testing.T) {
	cause := errors.New("no such file")
	var status *Error
	tests := []struct {
		name   string
		target Target
		o      ClientOptions
		is     error
		as     any
		text   string
	}{
		{"nothing", Target{}, ClientOptions{}, nil, nil, "either a command or a URL"},
		{"an unknown version", Target{URL: "http://127.0.0.1:1"}, ClientOptions{Version: "2026-07-28"}, nil, nil, "unknown legacy MCP version"},
		{"a session over stdio", clientPlay(t, nil), ClientOptions{Session: &SessionState{Era: Legacy, Version: "2025-11-25"}}, nil, nil, "none to go on with"},
		{"no process", Target{Start: func(context.Context) (io.ReadWriteCloser, error) { return nil, cause }}, ClientOptions{}, cause, nil, "start the MCP server"},
		{"exit", clientPlay(t, func(*clientStdioPeer) {}), ClientOptions{}, ErrClosed, nil, "initialize"},
		{"silence", clientPlay(t, func(p *clientStdioPeer) { _, _ = io.Copy(io.Discard, p) }),
			ClientOptions{Protocol: Legacy, HandshakeTimeout: 20 * time.Millisecond}, context.DeadlineExceeded, nil, "did not answer within 20ms"},
		{"a foreign version", clientPlay(t, func(p *clientStdioPeer) {
			if m, ok := p.next(); ok {
				p.answer(m.ID, `{"protocolVersion":"1999-01-01"}`)
			}
			_, _ = io.Copy(io.Discard, p)
		}), ClientOptions{Protocol: Legacy}, nil, nil, `"1999-01-01"`},
		{"a refusal", clientPlay(t, func(p *clientStdioPeer) {
			if m, ok := p.next(); ok {
				p.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":7,"message":"not you"}}`)
			}
			_, _ = io.Copy(io.Discard, p)
		}), ClientOptions{Protocol: Modern}, nil, &status, "not you"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := Connect(clientSoon(t), test.target, test.o)
			if err == nil {
				c.Close()
				t.Fatal("it connected")
			}
			if !strings.Contains(err.Error(), test.text) || test.is != nil && !errors.Is(err, test.is) || test.as != nil && !errors.As(err, test.as) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestClientPassesEverythingThroughByteForByte(t *testing.T) {
	const params = `{"zeta":1e400, "name":"t","_meta":{"traceparent":"00-1","n":9007199254740993},"arguments":{"b":9007199254740993,"a":"\u00e9<&>","a":1}}`
	const result = `{"structuredContent":{"n":9007199254740993, "x":1.0e+2},"unknown":[null],"content":[{"type":"future"}],"_meta":{"k":"\u003c"}}`
	const failure = `{"message":"boom","code":-32000,"data":{"n":9007199254740993},"more":true}`
	got := make(chan string, 2)
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		got <- string(m.Params)
		if m.Method == "fail" {
			p.say(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":` + failure + `}`)
		} else {
			p.answer(m.ID, result)
		}
		return true
	}), ClientOptions{Protocol: Legacy})

	answer, err := c.Call(clientSoon(t), Call{Method: MethodToolsCall, Params: json.RawMessage(params)})
	if err != nil || string(answer) != result {
		t.Errorf("the result is %s, %v", answer, err)
	}
	if sent := testenv.Receive(t, got); sent != params {
		t.Errorf("the server got %s", sent)
	}
	_, err = c.Call(clientSoon(t), Call{Method: "fail"})
	var e *Error
	if !errors.As(err, &e) || string(e.Raw) != failure || e.Code != -32000 || string(e.Data()) != `{"n":9007199254740993}` {
		t.Errorf("the error is %v", err)
	}
}

func TestClientKeepsTheMetaOfOthersFromALegacyServer(t *testing.T) {
	got := make(chan string, 1)
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		got <- string(m.Params)
		p.answer(m.ID, `{}`)
		return true
	}), ClientOptions{Protocol: Legacy})
	params := `{"_meta":{"a":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"n":1.0}`
	if _, err := c.Call(clientSoon(t), Call{Method: "x", Params: json.RawMessage(params)}); err != nil {
		t.Fatal(err)
	}
	if sent := testenv.Receive(t, got); sent != `{"_meta":{"a":1},"n":1.0}` {
		t.Errorf("the server got %s", sent)
	}
}

func TestClientWritesAMessageOnOneLine(t *testing.T) {
	got := make(chan string, 1)
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		got <- string(m.Params)
		p.answer(m.ID, `{}`)
		return true
	}), ClientOptions{Protocol: Legacy})
	if _, err := c.Call(clientSoon(t), Call{Method: "x", Params: json.RawMessage("{\n\"a\": 1\r\n}")}); err != nil {
		t.Fatal(err)
	}
	if sent := testenv.Receive(t, got); sent != `{ "a": 1  }` {
		t.Errorf("the server got %s", sent)
	}
}

func TestClientIgnoresWhatIsNoAnswer(t *testing.T) {
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		id := string(m.ID)
		for _, noise := range []string{
			"Server started on port 1", "{", `{"jsonrpc":"2.0"}`, `[1,2]`, "\x00\xff", `{"a":1}`, "", "[]",
			`{"jsonrpc":"2.0","id":"` + id + `","result":{"wrong":1}}`, `{"jsonrpc":"2.0","id":99999,"result":{"wrong":2}}`,
			`{"jsonrpc":"2.0","id":` + id + `.5,"result":{"wrong":3}}`, `{"jsonrpc":"2.0","id":[` + id + `],"result":{}}`,
			`{"jsonrpc":"2.0","id":99999,"bogus":{}}`, `{"jsonrpc":"2.0","method":7}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + id + `,"progress":1}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":[]}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled"}`,
		} {
			p.say(noise)
		}
		p.answer(m.ID, `{"right":true}`)
		p.answer(m.ID, `{"twice":true}`)
		return true
	}), ClientOptions{Protocol: Legacy})
	for range 2 {
		result, err := c.Call(clientSoon(t), Call{Method: "x"})
		if err != nil || string(result) != `{"right":true}` {
			t.Errorf("the result is %s, %v", result, err)
		}
	}
	if c.Ignored() < 10 {
		t.Errorf("%d were ignored", c.Ignored())
	}
}

func TestClientFailsACallWhoseAnswerIsMalformed(t *testing.T) {
	for _, answer := range []string{
		`{"jsonrpc":"2.0","id":%s}`, `{"jsonrpc":"2.0","id":%s,"result":{},"error":{"code":1,"message":"x"}}`, `{"id":%s,"result":{}}`,
		`{"jsonrpc":"2.0","id":%s,"result":` + strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000) + `}`, // deeper than is read
		`{"jsonrpc":"2.0","id":%s,"result":{"a":}}`,
	} {
		c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
			p.say(fmt.Sprintf(answer, m.ID))
			return true
		}), ClientOptions{Protocol: Legacy})
		if _, err := c.Call(clientSoon(t), Call{Method: "x"}); !errors.Is(err, errClientMalformed) {
			t.Errorf("%.100s: the error is %v", answer, err)
		}
	}
}

func TestClientReadsBatches(t *testing.T) {
	notes := clientNotes{}
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		p.say(`[{"jsonrpc":"2.0","method":"notifications/a","params":{"n":9007199254740993}},{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":{ "b":1}}]`)
		return true
	}), ClientOptions{Protocol: Legacy, Notified: notes.add})
	result, err := c.Call(clientSoon(t), Call{Method: "x"})
	if err != nil || string(result) != `{ "b":1}` {
		t.Errorf("the result is %s, %v", result, err)
	}
	if diff := cmp.Diff([]clientNote{{"notifications/a", `{"n":9007199254740993}`}}, notes.list(), cmp.AllowUnexported(clientNote{})); diff != "" {
		t.Error(diff)
	}
}

func TestClientTakesALargeResult(t *testing.T) {
	large := `{"text":"` + strings.Repeat("ö", 5<<20) + `"}`
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		p.answer(m.ID, large)
		return true
	}), ClientOptions{Protocol: Legacy})
	if result, err := c.Call(clientSoon(t), Call{Method: "x"}); err != nil || string(result) != large {
		t.Errorf("the result has %d bytes, %v", len(result), err)
	}
}

func TestClientEndsWithALineThatIsTooLong(t *testing.T) {
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		p.answer(m.ID, `"`+strings.Repeat("x", 2000)+`"`)
		return true
	}), ClientOptions{Protocol: Legacy, MaxMessage: 1000})
	_, err := c.Call(clientSoon(t), Call{Method: "x"})
	if !errors.Is(err, ErrClosed) || !errors.Is(err, errClientTooLong) {
		t.Errorf("the error is %v", err)
	}
	testenv.Receive(t, c.Done())
	if !errors.Is(c.Err(), ErrClosed) {
		t.Errorf("the connection has ended with %v", c.Err())
	}
}

func TestClientCallsFailAtOnceWhenTheServerDies(t *testing.T) {
	got := make(chan struct{}, 3)
	die := make(chan struct{})
	c := clientDial(t, clientPlay(t, func(p *clientStdioPeer) {
		clientGreet(p)
		for range 3 {
			p.next()
			got <- struct{}{}
		}
		<-die
	}), ClientOptions{Protocol: Legacy})
	var calls []<-chan clientResult
	for range 3 {
		calls = append(calls, clientGo(clientSoon(t), c, Call{Method: "x"}))
		testenv.Receive(t, got)
	}
	close(die)
	for _, call := range calls {
		if r := testenv.Receive(t, call); !errors.Is(r.err, ErrClosed) {
			t.Errorf("the error is %v", r.err)
		}
	}
	testenv.Receive(t, c.Done())
	if _, err := c.Call(clientSoon(t), Call{Method: "x"}); !errors.Is(err, ErrClosed) {
		t.Errorf("the error of a later call is %v", err)
	}
	if err := c.Notify(clientSoon(t), "x", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("the error of a later notification is %v", err)
	}
}

func TestClientCloseEndsCallsAndTheProcess(t *testing.T) {
	got := make(chan message, 1)
	gone := make(chan struct{})
	c := clientDial(t, clientPlay(t, func(p *clientStdioPeer) {
		defer close(gone)
		clientGreet(p)
		m, _ := p.next()
		got <- m
		_, _ = io.Copy(io.Discard, p)
	}), ClientOptions{Protocol: Legacy})
	call := clientGo(clientSoon(t), c, Call{Method: "x"})
	testenv.Receive(t, got)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	testenv.Receive(t, gone)
	if r := testenv.Receive(t, call); !errors.Is(r.err, ErrClosed) {
		t.Errorf("the error is %v", r.err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
}

func TestClientIsNotCaughtInAWrite(t *testing.T) {
	read := make(chan struct{})
	c := clientDial(t, clientPlay(t, func(p *clientStdioPeer) {
		clientGreet(p)
		<-read // not before the client has given up
	}), ClientOptions{Protocol: Legacy})
	defer close(read)
	ctx, cancel := context.WithCancelCause(t.Context())
	var calls []<-chan clientResult
	for range 2 { // one is being written, one waits
		calls = append(calls, clientGo(ctx, c, Call{Method: "x"}))
	}
	cause := errors.New("enough")
	cancel(cause)
	for _, call := range calls {
		if r := testenv.Receive(t, call); !errors.Is(r.err, context.Canceled) || !errors.Is(r.err, cause) {
			t.Errorf("the error is %v", r.err)
		}
	}
	if err := c.Close(); err != nil { // the write of the first is still stuck: the end of the process ends it
		t.Error(err)
	}
}

func TestClientTellsTheServerThatACallIsCancelled(t *testing.T) {
	got := make(chan message, 1)
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		switch m.Method {
		case "slow":
			got <- m
		case NoteCancelled:
			id := clientMember(m.Params, "requestId")
			p.answer(json.RawMessage(id), `{"late":true}`)
			got <- m
		default:
			p.answer(m.ID, `{}`)
		}
		return true
	}), ClientOptions{Protocol: Legacy})
	ctx, cancel := context.WithCancelCause(clientSoon(t))
	call := clientGo(ctx, c, Call{Method: "slow"})
	request := testenv.Receive(t, got)
	cancel(errors.New("changed my mind"))
	if r := testenv.Receive(t, call); !errors.Is(r.err, context.Canceled) {
		t.Errorf("the error is %v", r.err)
	}
	note := testenv.Receive(t, got)
	if want := `{"requestId":` + string(request.ID) + `,"reason":"changed my mind"}`; note.Method != NoteCancelled || string(note.Params) != want {
		t.Errorf("the server was told %s %s; want %s", note.Method, note.Params, want)
	}
	if result, err := c.Call(clientSoon(t), Call{Method: "x"}); err != nil || string(result) != `{}` {
		t.Errorf("after a late answer the next is %s, %v", result, err)
	}
}

func TestClientDeliversProgressInOrderBeforeTheResult(t *testing.T) {
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		token := clientMember(m.Params, "_meta", "progressToken")
		if token == `"mine"` {
			t.Error("the caller's token went upstream")
		}
		for i := range 100 {
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":%d,"progressToken":%s,"extra":9007199254740993}}`, i, token))
		}
		p.answer(m.ID, `{}`)
		return true
	}), ClientOptions{Protocol: Legacy})
	for range 5 {
		var got, want []clientNote // without a lock: what comes, comes before Call returns
		for i := range 100 {
			want = append(want, clientNote{NoteProgress, fmt.Sprintf(`{"progress":%d,"progressToken":"mine","extra":9007199254740993}`, i)})
		}
		_, err := c.Call(clientSoon(t), Call{
			Method: "x", Params: json.RawMessage(`{"_meta":{"progressToken":"mine"}}`),
			Notified: func(method string, params json.RawMessage) { got = append(got, clientNote{method, string(params)}) },
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(clientNote{})); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestClientAnswersTheServer(t *testing.T) {
	ask := func(id, method string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{"n":1}}`
	}
	answers := make(chan message, 10)
	var request message
	c := clientDial(t, clientPlayLegacy(t, func(p *clientStdioPeer, m message) bool {
		switch {
		case m.Method == "x":
			request = m
			p.say(ask(`"p"`, "ping"))
		case m.IsResponse():
			answers <- m
			switch string(m.ID) {
			case `"p"`:
				p.say(ask("1", "roots/list")) // the id of a request of ours is none of ours
			case "1":
				p.say(ask("2", "elicitation/create"))
			case "2":
				p.say(ask("3", "slow"))
				p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":3}}`)
				p.say(ask("4", "sampling/createMessage"))
			case "4":
				p.answer(request.ID, `{}`)
			}
		}
		return true
	}), ClientOptions{Protocol: Legacy})
	withdrawn := make(chan struct{})
	_, err := c.Call(clientSoon(t), Call{Method: "x", Asked: func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *Error) {
		switch method {
		case "roots/list":
			return json.RawMessage(`{"roots":[` + string(params) + `]}`), nil
		case "slow":
			<-ctx.Done()
			close(withdrawn)
			return nil, nil
		case "sampling/createMessage":
			<-withdrawn
			return nil, nil // which is no JSON
		}
		return nil, Errorf(-1, "declined").WithData(json.RawMessage(`9007199254740993`))
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []message{
		{ID: json.RawMessage(`"p"`), Result: json.RawMessage(`{}`)},
		{ID: json.RawMessage(`1`), Result: json.RawMessage(`{"roots":[{"n":1}]}`)},
		{ID: json.RawMessage(`2`), Error: json.RawMessage(`{"code":-1,"message":"declined","data":9007199254740993}`)},
		{ID: json.RawMessage(`4`), Error: json.RawMessage(`{"code":-32603,"message":"the client's answer is not valid"}`)},
	}
	for _, w := range want {
		if got := testenv.Receive(t, answers); cmp.Diff(w, got) != "" {
			t.Errorf("the answer is %s; want %s", got.Encode(), w.Encode())
		}
	}
}

func TestClientRefusesWhatNobodyAnswers(t *testing.T) {
	answers := make(chan message, 1)
	clientDial(t, clientPlay(t, func(p *clientStdioPeer) {
		clientGreet(p)
		p.say(`{"jsonrpc":"2.0","id":"a","method":"roots/list"}`)
		m, _ := p.next()
		answers <- m
		_, _ = io.Copy(io.Discard, p)
	}), ClientOptions{Protocol: Legacy})
	if m := testenv.Receive(t, answers); string(m.ID) != `"a"` || clientMember(m.Error, "code") != "-32601" {
		t.Errorf("the answer is %s", m.Encode())
	}
}

func TestClientIsUsedByManyAtOnce(t *testing.T) {
	c := clientDial(t, clientPlay(t, func(p *clientStdioPeer) {
		clientGreet(p)
		var waiting []message
		for {
			m, ok := p.next()
			if !ok {
				return
			}
			if waiting = append(waiting, m); len(waiting) == 32 { // they are all in flight; the last is answered first
				for i := range waiting {
					m := waiting[len(waiting)-1-i]
					p.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + clientMember(m.Params, "_meta", "progressToken") + `}}`)
					p.answer(m.ID, string(m.Params))
				}
				waiting = nil
			}
		}
	}), ClientOptions{Protocol: Legacy})
	ctx := clientSoon(t)
	var callers sync.WaitGroup
	for i := range 32 {
		callers.Go(func() {
			for j := range 10 {
				notes := 0
				mark := fmt.Sprintf(`"%d.%d"`, i, j)
				result, err := c.Call(ctx, Call{
					Method: "x", Params: json.RawMessage(`{"_meta":{"progressToken":"same for all"},"mark":` + mark + `}`),
					Notified: func(string, json.RawMessage) { notes++ },
				})
				if err != nil || clientMember(result, "mark") != mark || notes != 1 {
					t.Errorf("%s got %s, %d notifications, %v", mark, result, notes, err)
				}
			}
		})
	}
	callers.Wait()
}

func TestClientDescribesItselfToAModernServer(t *testing.T) {
	got := make(chan message, 1)
	var subscription json.RawMessage
	c := clientDial(t, clientPlay(t, func(p *clientStdioPeer) {
		for {
			m, ok := p.next()
			if !ok {
				return
			}
			switch m.Method {
			case MethodDiscover:
				p.answer(m.ID, `{"supportedVersions":["2026-07-28"],"_meta":{"uipath.com/job":{"version":1}}}`)
			case MethodListen:
				subscription = m.ID
				tag := `{"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID) + `}}`
				p.say(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":` + tag + `}`)
				p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":` + tag + `}`)
				p.say(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"whose":"nobody's"}}`)
			case MethodToolsCall:
				p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
				p.answer(m.ID, `{}`)
				got <- m
			case "end":
				p.say(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + string(subscription) + `}}`)
				p.answer(m.ID, `{}`)
			}
		}
	}), ClientOptions{Notified: func(method string, params json.RawMessage) { got <- message{Method: method, Params: params} }})
	if clientMember(c.InitializeResult(), "_meta", "uipath.com/job", "version") != "1" || c.Version() != Version2026_07_28 {
		t.Errorf("version %s, hello %s", c.Version(), c.InitializeResult())
	}
	notes := clientNotes{came: make(chan clientNote, 9)}
	listening := clientGo(clientSoon(t), c, Call{Method: MethodListen, Notified: notes.add})
	for _, want := range []string{NoteAcknowledged, "notifications/tools/list_changed"} {
		if note := testenv.Receive(t, notes.came); note.method != want {
			t.Errorf("the subscription got %v", note)
		}
	}
	if m := testenv.Receive(t, got); string(m.Params) != `{"whose":"nobody's"}` {
		t.Errorf("what belongs to no call is %s %s", m.Method, m.Params)
	}
	var logged []string
	_, err := c.Call(clientSoon(t), Call{
		Method: MethodToolsCall, Params: json.RawMessage(`{"name":"t","_meta":{"a":1,"io.modelcontextprotocol/protocolVersion":"x"}}`),
		Info: json.RawMessage(`{"name":"agent"}`), Capabilities: json.RawMessage(`{"extensions":{}}`),
		Notified: func(method string, _ json.RawMessage) { logged = append(logged, method) },
	})
	if err != nil || len(logged) != 1 {
		t.Errorf("the call logged %v, %v", logged, err)
	}
	const want = `{"name":"t","_meta":{"a":1,"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"agent"},"io.modelcontextprotocol/clientCapabilities":{"extensions":{}}}}`
	if m := testenv.Receive(t, got); string(m.Params) != want {
		t.Errorf("the server got %s", m.Params)
	}
	if _, err := c.Call(clientSoon(t), Call{Method: "end"}); err != nil {
		t.Error(err)
	}
	if r := testenv.Receive(t, listening); !errors.Is(r.err, errClientSubscription) {
		t.Errorf("the subscription ended with %v", r.err)
	}
}
