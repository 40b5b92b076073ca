package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/jsonrpc"
)

// clientMaxAsked is how many requests of a server are answered at once. Requests beyond it get no
// answer.
const clientMaxAsked = 256

var (
	// errClientSubscription ends the call of a subscription that the server no longer wants to serve.
	errClientSubscription = errors.New("the MCP server has ended the subscription")
	// errClientWithdrawn is the cause of the end of a request that the server no longer wants
	// answered.
	errClientWithdrawn = errors.New("the MCP server has withdrawn the request")
)

// clientReceiver handles the messages of a server. It gives answers and progress to the calls in
// flight, hands notifications on, and has requests of the server answered.
type clientReceiver struct {
	life  *lifetime
	calls *callTable
	era   Era
	// notified and asked handle what belongs to no call; see ClientOptions.
	notified func(method string, params json.RawMessage)
	asked    askedFunc
	// sendAnswer sends the answer to a request of the server. It is nil if there is no way to send
	// one.
	sendAnswer func(m message)

	silent    atomic.Bool  // set while a probe may still turn out to have been in vain
	ignored   atomic.Int64 // counts what came and was no message
	notifying sync.Mutex   // held while notified runs

	mu      sync.Mutex
	serving map[string]context.CancelCauseFunc // the server's requests that are being served, by its ids
}

// askedFunc answers a request of the server.
type askedFunc func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *Error)

// receive handles what came in, one message or a batch of 2025-03-26, before it returns. Only
// requests of the server go on after that. from is the call on whose stream it came, or nil for a
// shared stream. The text belongs to the client from then on.
func (r *clientReceiver) receive(from *clientCall, text []byte) {
	text = text[jsonobj.SkipSpace(text, 0):]
	if len(text) > 0 && text[0] == '[' {
		var batch []json.RawMessage
		if json.Unmarshal(text, &batch) == nil {
			for _, one := range batch {
				r.receiveOne(from, one)
			}
			return
		}
	}
	r.receiveOne(from, text)
}

func (r *clientReceiver) receiveOne(from *clientCall, text []byte) {
	m, err := jsonrpc.Parse(text)
	switch {
	case err != nil:
		r.receiveMalformed(from, text)
	case m.IsRequest():
		r.receiveRequest(from, m)
	case m.IsResponse():
		r.receiveAnswer(from, m)
	default:
		r.receiveNotification(from, m)
	}
}

// receiveAnswer hands an answer to its call. An answer without a waiting call came too late, or was
// never asked for.
func (r *clientReceiver) receiveAnswer(from *clientCall, m message) {
	p := r.calls.lookup(m.ID)
	if jsonobj.IsNull(m.ID) && m.Error != nil {
		// The server could not read the request. Which one it was is clear only if there is just one.
		if p = from; p == nil {
			p = r.calls.only()
		}
	}
	if p == nil || from != nil && from != p {
		r.ignored.Add(1)
		return
	}
	a := clientAnswer{result: m.Result}
	if m.Error != nil {
		a.err = ParseError(m.Error)
	}
	r.calls.settle(p, a)
}

// receiveMalformed fails the call of a malformed answer, so that nobody waits for a better one. The
// text need not be valid JSON, as long as its outermost members can be told: an answer may be
// nested deeper than JSON is read here.
func (r *clientReceiver) receiveMalformed(from *clientCall, text []byte) {
	o, err := jsonobj.ParseObject(text)
	if err != nil || o.Has("method") {
		r.ignored.Add(1)
		return
	}
	if o.Get("id") == nil && from != nil && clientIsObject(o.Get("error")) {
		r.calls.settle(from, clientAnswer{err: ParseError(o.Get("error"))}) // the id should be null
		return
	}
	p := r.calls.lookup(o.Get("id"))
	if p == nil || from != nil && from != p {
		r.ignored.Add(1)
		return
	}
	why := `it needs jsonrpc "2.0" and one of result and error`
	if !jsonobj.Valid(text) {
		why = fmt.Sprintf("it is not JSON, or is nested deeper than %d levels", jsonobj.MaxDepth)
	}
	r.calls.settle(p, clientAnswer{err: fmt.Errorf("%w: %s, but is %s", errClientMalformed, why, clientExcerpt(text))})
}

func (r *clientReceiver) receiveNotification(from *clientCall, m message) {
	if r.silent.Load() {
		return
	}
	p := from
	switch m.Method {
	case NoteProgress:
		r.receiveProgress(m)
		return
	case NoteCancelled:
		if r.receiveCancelled(m.Params) {
			return
		}
	case NoteMessage:
		if p == nil && r.era == Modern {
			p = r.calls.only() // such a server logs for requests only, but does not say for which
		}
	}
	if p == nil {
		if params, err := jsonobj.ParseObject(m.Params); err == nil {
			p = r.calls.lookup(params.Object("_meta").Get(MetaSubscriptionID))
		}
	}
	if p != nil && p.deliver(m.Method, m.Params) || r.notified == nil {
		return
	}
	r.notifying.Lock()
	defer r.notifying.Unlock()
	r.notified(m.Method, m.Params)
}

// receiveProgress gives progress to its call, under the caller's own token. Progress that comes
// after the answer is dropped.
func (r *clientReceiver) receiveProgress(m message) {
	params, err := jsonobj.ParseObject(m.Params)
	p := r.calls.lookup(params.Get(MetaProgressToken))
	if err != nil || p == nil || p.token == nil {
		r.ignored.Add(1)
		return
	}
	p.deliver(m.Method, params.Set(MetaProgressToken, p.token).JSON())
}

// receiveCancelled ends what the server has cancelled: a request of its own, or a subscription of
// ours.
func (r *clientReceiver) receiveCancelled(params json.RawMessage) bool {
	o, _ := jsonobj.ParseObject(params)
	id := o.Get("requestId")
	r.mu.Lock()
	cancel := r.serving[string(id)]
	r.mu.Unlock()
	if cancel != nil {
		cancel(errClientWithdrawn)
		return true
	}
	if p := r.calls.lookup(id); p != nil && p.Method == MethodListen {
		r.calls.settle(p, clientAnswer{err: errClientSubscription})
		return true
	}
	return false
}

// receiveRequest has a request of the server answered on a goroutine of its own.
func (r *clientReceiver) receiveRequest(from *clientCall, m message) {
	if r.sendAnswer == nil {
		r.ignored.Add(1)
		return
	}
	p, asked, parent := from, r.asked, r.life.ctx
	if p == nil {
		p = r.calls.only()
	}
	if p != nil && p.Asked != nil {
		asked, parent = p.Asked, p.askingContext()
	}
	ctx, cancel := context.WithCancelCause(parent)
	r.mu.Lock()
	full := len(r.serving) >= clientMaxAsked
	_, twice := r.serving[string(m.ID)]
	if !full && !twice {
		r.serving[string(m.ID)] = cancel
	}
	r.mu.Unlock()
	if twice || full || !r.life.spawn(func() {
		r.serve(ctx, m, asked)
		cancel(nil)
		r.mu.Lock()
		delete(r.serving, string(m.ID))
		r.mu.Unlock()
	}) {
		cancel(nil)
		r.ignored.Add(1)
	}
}

// serve answers a request of the server. A request that the server has withdrawn gets no answer.
// Neither does one that could not be answered before its call was left: another process may go on
// with the server's work, and then be asked again.
func (r *clientReceiver) serve(ctx context.Context, m message, asked askedFunc) {
	answer := message{ID: m.ID}
	switch {
	case m.Method == MethodPing:
		answer.Result = json.RawMessage("{}")
	case asked == nil || r.era == Modern:
		answer.Error = Errorf(CodeMethodNotFound, "Method not found: %s", m.Method).JSON()
	default:
		result, err := asked(ctx, m.Method, m.Params)
		switch {
		case err != nil:
			answer.Error = err.JSON()
		case !jsonobj.Valid(result):
			answer.Error = Errorf(CodeInternal, "the client's answer is not valid").JSON()
		default:
			answer.Result = result
		}
	}
	if ctx.Err() != nil && (answer.Error != nil || errors.Is(context.Cause(ctx), errClientWithdrawn)) {
		return
	}
	r.sendAnswer(answer)
}
