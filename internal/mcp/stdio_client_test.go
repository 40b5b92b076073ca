package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/testenv"
)

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
