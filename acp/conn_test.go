package acp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evalrun/evalrun/internal/testenv"
)

func TestAgentThatDoesNotReadCannotHoldACallerBeyondItsContext(t *testing.T) {
	begun := make(chan struct{})
	once := sync.OnceFunc(func() { close(begun) })
	c, p := dial(t, &client{}, Options{Record: func(Direction, []byte) { once() }})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := background(func() error {
		_, err := c.Prompt(ctx, "s", Text(strings.Repeat("x", 1<<20)))
		return err
	})
	testenv.Receive(t, begun) // the write, which a pipe does not hold
	cancel()
	if err := testenv.Receive(t, result); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	// What waits behind it times out too, and is taken back: the agent never sees it.
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Notify(ctx, "withdrawn", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Call(ctx, "withdrawn", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	after := background(func() error { return c.Notify(testContext(t), "after", nil) })
	p.expect("session/prompt")
	p.expect("after")
	if err := testenv.Receive(t, after); err != nil {
		t.Error(err)
	}
}

func TestCloseFreesAWriteThatIsStuck(t *testing.T) {
	c, p := dial(t, &client{}, Options{})
	result := background(func() error { return c.Notify(t.Context(), "big", strings.Repeat("x", 1<<20)) })
	if _, err := p.in.Read(make([]byte, 1)); err != nil { // it has begun, and a pipe does not hold it
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := testenv.Receive(t, result); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func TestSlowHandlerSlowsTheAgentDownAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 20_000
		cl := &client{}
		gate := make(chan struct{})
		var once sync.Once
		cl.onUpdate = func(Update) { once.Do(func() { <-gate }) }
		agentIn, stdin := io.Pipe() // unlike a real pipe it holds nothing
		stdout, agentOut := io.Pipe()
		c := NewConn(stdin, stdout, cl, Options{})
		sent := 0
		go func() {
			p := &peer{t: t, buf: bufio.NewReader(agentIn)}
			m, _ := p.next()
			for ; sent < n; sent++ {
				_, _ = io.WriteString(agentOut, chunk(fmt.Sprint(sent))+"\n")
			}
			_, _ = io.WriteString(agentOut, `{"jsonrpc":"2.0","id":`+string(m.ID)+`,"result":{"stopReason":"end_turn"}}`+"\n")
		}()
		result := background(func() int {
			if _, err := c.Prompt(t.Context(), "s", Text("go")); err != nil {
				t.Error(err)
			}
			return cl.count()
		})
		synctest.Wait()
		if limit := 128 << 10; sent*len(chunk("")) > limit {
			t.Errorf("with its first update unhandled the agent could send %d", sent)
		}
		close(gate)
		if got := <-result; got != n {
			t.Errorf("%d updates were handled before the answer, want %d", got, n)
		}
		for i, u := range cl.updates {
			if text, _ := u.Text(); text != fmt.Sprint(i) {
				t.Fatalf("update %d is %q", i, text)
			}
		}
		c.Close()
		agentOut.Close()
		c.Wait()
	})
}

func TestIDsOfTheTwoSidesDoNotMeet(t *testing.T) {
	cl := &client{}
	c, p := dial(t, cl, Options{})
	p.serve(func(m rpc) string {
		// The agent's own request has the id of the call that it interrupts.
		p.send(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t"},` +
			`"options":[{"optionId":"yes","kind":"allow_once"}]}}` + "\n")
		if a, _ := p.next(); string(a.ID) != string(m.ID) || string(a.Result) != `{"outcome":{"outcome":"selected","optionId":"yes"}}` {
			t.Errorf("got %s %s", a.ID, a.Result)
		}
		return `{"stopReason":"end_turn"}`
	})
	result, err := c.Prompt(testContext(t), "s", Text("go"))
	if err != nil || result.StopReason != StopEndTurn {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestUpdatesGoOnWhileAPermissionIsDecided(t *testing.T) {
	cl := &client{}
	seen := make(chan struct{})
	cl.onUpdate = func(Update) { close(seen) }
	cl.permit = func(ctx context.Context, req PermissionRequest) (PermissionOutcome, error) {
		<-seen
		return PermissionOutcome{"deny"}, nil
	}
	_, p := dial(t, cl, Options{})
	p.send(`{"jsonrpc":"2.0","id":"a","method":"session/request_permission","params":{"sessionId":"s"}}` + "\n" + chunk("x") + "\n")
	if m := p.expect(""); string(m.Result) != `{"outcome":{"outcome":"selected","optionId":"deny"}}` {
		t.Errorf("got %s", m.Result)
	}
}

func TestCancelAnswersPermissionsAsCancelled(t *testing.T) {
	cl := &client{}
	asked := make(chan struct{}, 3)
	ended := make(chan string, 3)
	cl.permit = func(ctx context.Context, req PermissionRequest) (PermissionOutcome, error) {
		asked <- struct{}{}
		<-ctx.Done()
		ended <- req.SessionID
		return PermissionOutcome{"too late"}, nil
	}
	c, p := dial(t, cl, Options{})
	ask := func(id, session string) {
		p.send(`{"jsonrpc":"2.0","id":"` + id + `","method":"session/request_permission","params":{"sessionId":"` + session + `"}}` + "\n")
	}
	const cancelled = `{"outcome":{"outcome":"cancelled"}}`
	ask("mine", "s")
	ask("other", "s2")
	testenv.Receive(t, asked)
	testenv.Receive(t, asked)
	if err := c.Cancel(testContext(t), "s"); err != nil {
		t.Fatal(err)
	}
	if got := testenv.Receive(t, ended); got != "s" {
		t.Errorf("the permission of session %s was withdrawn", got)
	}
	a := p.expect("")
	if string(a.ID) != `"mine"` || string(a.Result) != cancelled {
		t.Errorf("got %s %s", a.ID, a.Result)
	}
	p.expect("session/cancel")

	// One that crossed session/cancel on its way is cancelled unseen; the one of the other session
	// is still open.
	for range maxRequests { // nor does it count as one that is served
		ask("crossed", "s")
		p.expect("")
	}
	ask("crossed", "s")
	if a := p.expect(""); string(a.ID) != `"crossed"` || string(a.Result) != cancelled {
		t.Errorf("got %s %s", a.ID, a.Result)
	}
	// The agent can withdraw by itself.
	p.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"other"}}` + "\n")
	if a := p.expect(""); string(a.ID) != `"other"` || string(a.Result) != cancelled {
		t.Errorf("got %s %s", a.ID, a.Result)
	}
	if got := testenv.Receive(t, ended); got != "s2" {
		t.Errorf("the permission of session %s was withdrawn", got)
	}
	// With the next prompt permissions are asked for again.
	prompt := background(func() error { _, err := c.Prompt(testContext(t), "s", Text("go on")); return err })
	m := p.expect("session/prompt")
	ask("again", "s")
	testenv.Receive(t, asked)
	p.answer(m, `{"stopReason":"end_turn"}`)
	if err := testenv.Receive(t, prompt); err != nil {
		t.Error(err)
	}
}

func TestRequestThatTheAgentWithdrawsIsAnsweredAtOnce(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	_, p := dial(t, &client{}, Options{Elicit: func(context.Context, ElicitationRequest) (ElicitationResult, error) {
		close(asked)
		<-release // whatever ctx says
		return ElicitationResult{Action: ElicitAccept}, nil
	}})
	p.send(`{"jsonrpc":"2.0","id":3,"method":"elicitation/create","params":{}}` + "\n")
	testenv.Receive(t, asked)
	p.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":3}}` + "\n")
	if m := p.expect(""); string(m.ID) != "3" || string(m.Error) != `{"code":-32800,"message":"cancelled"}` {
		t.Errorf("got %+v", m)
	}
	close(release)
}

func TestErrorsTellWhoFailed(t *testing.T) {
	for name, c := range map[string]struct {
		answer string // with ID for the id
		check  func(error) bool
	}{
		"the agent's own error": {`{"jsonrpc":"2.0","id":ID,"error":{"code":401,"message":"no key","data":{"secret":"x"}}}`, func(err error) bool {
			var e *AgentError
			return errors.As(err, &e) && e.Code == 401 && e.Message == "no key" && string(e.Data) == `{"secret":"x"}` && !strings.Contains(err.Error(), "secret")
		}},
		"a code that is a string":   {`{"jsonrpc":"2.0","id":ID,"error":{"code":"401","message":"no key"}}`, isAgentError("no key")},
		"a null beside an error":    {`{"jsonrpc":"2.0","id":ID,"result":null,"error":{"code":1,"message":"no"}}`, isAgentError("no")},
		"a null beside a result":    {`{"jsonrpc":"2.0","id":ID,"result":{"stopReason":"end_turn"},"error":null}`, func(err error) bool { return err == nil }},
		"an error that is a string": {`{"jsonrpc":"2.0","id":ID,"error":"no"}`, isProtocolError("session/prompt: the error that the agent answered is no object")},
		"neither":                   {`{"jsonrpc":"2.0","id":ID}`, isProtocolError("session/prompt: the agent's answer has neither result nor error")},
		"both":                      {`{"jsonrpc":"2.0","id":ID,"result":{},"error":{}}`, isProtocolError("session/prompt: the agent's answer has both result and error")},
		"no object":                 {`{"jsonrpc":"2.0","id":ID,"result":"end_turn"}`, isProtocolError("session/prompt: the agent's answer is no object")},
		"no stopReason":             {`{"jsonrpc":"2.0","id":ID,"result":{}}`, isProtocolError("session/prompt: the agent's answer has no stopReason")},
		"a wrong stopReason":        {`{"jsonrpc":"2.0","id":ID,"result":{"stopReason":1}}`, isProtocolError("session/prompt: the agent's answer has no stopReason")},
	} {
		t.Run(name, func(t *testing.T) {
			conn, p := dial(t, &client{}, Options{})
			result := background(func() error { _, err := conn.Prompt(testContext(t), "s", Text("go")); return err })
			m := p.expect("session/prompt")
			p.send(strings.Replace(c.answer, "ID", string(m.ID), 1) + "\n")
			if err := testenv.Receive(t, result); !c.check(err) {
				t.Errorf("got %v (%T)", err, err)
			}
		})
	}
}

func isAgentError(message string) func(error) bool {
	return func(err error) bool {
		var e *AgentError
		return errors.As(err, &e) && e.Message == message
	}
}

func isProtocolError(text string) func(error) bool {
	return func(err error) bool {
		var e *ProtocolError
		return errors.As(err, &e) && err.Error() == text
	}
}

func TestEndOfStdoutFailsWhatWaits(t *testing.T) {
	cl := &client{}
	c, p := dial(t, cl, Options{})
	handler := make(chan error, 1)
	cl.permit = func(ctx context.Context, _ PermissionRequest) (PermissionOutcome, error) {
		<-ctx.Done()
		handler <- context.Cause(ctx)
		return PermissionOutcome{}, ctx.Err()
	}
	result := background(func() error { _, err := c.Prompt(t.Context(), "s", Text("go")); return err })
	p.expect("session/prompt")
	p.send(`{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{}}` + "\n")
	p.send(chunk("last words") + "\n" + chunk("torn")[:40])
	p.hangUp()
	err := testenv.Receive(t, result)
	var agentError *AgentError
	if !errors.Is(err, ErrClosed) || errors.As(err, &agentError) {
		t.Errorf("got %v", err)
	}
	if err := testenv.Receive(t, handler); !errors.Is(err, ErrClosed) {
		t.Errorf("the handler's context ended with %v", err)
	}
	c.Wait()
	if cl.text() != "last words" {
		t.Errorf("got %q", cl.text())
	}
	if !errors.Is(c.Err(), ErrClosed) {
		t.Errorf("Err is %v", c.Err())
	}
	if _, err := c.Prompt(t.Context(), "s", Text("again")); !errors.Is(err, ErrClosed) {
		t.Errorf("a later call: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// An agent may answer, and end before it reads what we sent meanwhile: the answer counts.
func TestAnswerOfAnAgentThatNoLongerReadsIsTaken(t *testing.T) {
	c, p := dial(t, &client{}, Options{})
	result := background(func() error { _, err := c.Prompt(testContext(t), "s", Text("go")); return err })
	m := p.expect("session/prompt")
	p.in.Close()
	if err := c.Notify(testContext(t), "lost", nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a write that nobody reads: %v", err)
	}
	if err := c.Authenticate(testContext(t), "x"); !errors.Is(err, ErrClosed) {
		t.Errorf("a call that nobody reads: %v", err)
	}
	p.answer(m, `{"stopReason":"end_turn"}`)
	if err := testenv.Receive(t, result); err != nil {
		t.Error(err)
	}
}

func TestRequestsBeyondTheLimitAreRefused(t *testing.T) {
	cl := &client{}
	cl.permit = func(ctx context.Context, _ PermissionRequest) (PermissionOutcome, error) {
		<-ctx.Done()
		return PermissionOutcome{}, nil
	}
	_, p := dial(t, cl, Options{})
	for range maxRequests + 1 { // one id, so that a map of open requests would not count them
		p.send(`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s"}}` + "\n")
	}
	if m := p.expect(""); !strings.Contains(string(m.Error), "too many requests") {
		t.Errorf("got %+v", m)
	}
}

func TestManyCallersGetTheirOwnAnswers(t *testing.T) {
	testenv.NeedSlow(t)
	c, p := dial(t, &client{}, Options{})
	p.serve(func(m rpc) string { return string(m.Params) })
	var all sync.WaitGroup
	for caller := range 32 {
		all.Go(func() {
			for i := range 200 {
				want := fmt.Sprintf("[%d,%d]", caller, i)
				got, err := c.Call(testContext(t), "echo", []int{caller, i})
				if err != nil || string(got) != want {
					t.Errorf("got %s, %v; want %s", got, err, want)
					return
				}
			}
		})
	}
	all.Wait()
	if len(c.calls) != 0 {
		t.Errorf("%d calls are still pending", len(c.calls))
	}
}

func TestCallTimesOutAndItsLateAnswerIsDropped(t *testing.T) {
	c, p := dial(t, &client{}, Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	result := background(func() error { _, err := c.Call(ctx, "slow", nil); return err })
	slow := p.expect("slow")
	because := errors.New("the limit of the segment")
	cancel(because)
	if err := testenv.Receive(t, result); !errors.Is(err, context.Canceled) || !errors.Is(err, because) || err.Error() != "slow: context canceled: the limit of the segment" {
		t.Errorf("got %v", err)
	}
	for range 1000 {
		if _, err := c.Call(ctx, "never sent", nil); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v", err)
		}
	}
	p.answer(slow, `"late"`)
	next := background(func() string { raw, _ := c.Call(testContext(t), "next", nil); return string(raw) })
	p.answer(p.expect("next"), `"mine"`)
	if got := testenv.Receive(t, next); got != `"mine"` {
		t.Errorf("got %s", got)
	}
}

// Nothing that the connection starts is left when it is over: synctest fails if a goroutine is.
func TestNothingIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agentIn, stdin := io.Pipe()
		stdout, agentOut := io.Pipe()
		c := NewConn(stdin, stdout, &client{}, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Initialize(ctx, Implementation{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		c.Close()
		agentOut.Close()
		c.Wait()
		agentIn.Close()
	})
}
