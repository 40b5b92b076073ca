package modelproxy

import (
	"cmp"
	"errors"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

const (
	// maxError is how many bytes of an error's text a call keeps.
	maxError = 2 << 10
	// maxRead is how many bytes are read. It is larger, so that a secret which is cut off at its
	// end cannot begin within the bytes that are kept.
	maxRead = 2 * maxError
)

// exchange is one request and its answer.
type exchange struct {
	session *Session
	request *http.Request
	started time.Time

	mu sync.Mutex
	// call is nil if the request is not a call, such as one for a list of models. asked and answer
	// hold what was read of request and answer.
	call   *Call
	asked  fields
	answer answer
	// begun is set when the first byte of the answer has come, gone when the client has gone, and
	// settled when the call has been counted.
	begun, gone, settled bool
	// watched says that the request's offer must be reported.
	watched bool
}

func newExchange(s *Session, r *http.Request) *exchange {
	x := &exchange{session: s, request: r, started: time.Now()}
	api, model, ok := recognise(r, s.upstream.API)
	if !ok {
		return x
	}
	s.mu.Lock()
	turn := s.turn
	s.mu.Unlock()
	x.call = &Call{Time: x.started, API: api, Model: model, Path: s.redactor.String(r.URL.Path), Turn: turn}
	x.asked.wanted = wantedOfRequests
	if x.watched = turn && s.wantsOffers(); x.watched {
		x.asked.wanted = wantedOfOffers
	}
	x.answer.doc.wanted = wantedOfAnswers
	return x
}

// recognise returns the wire format of a call and, for Gemini, the model that it names.
func recognise(r *http.Request, provider string) (api, model string, ok bool) {
	if r.Method != http.MethodPost {
		return "", "", false
	}
	is := func(p string) bool { return provider == "" || provider == p }
	switch last := path.Base(r.URL.Path); {
	case last == "completions" && strings.HasSuffix(path.Dir(r.URL.Path), "/chat") && is(OpenAI):
		return "openai-chat", "", true
	case last == "responses" && is(OpenAI):
		return "openai-responses", "", true
	case last == "messages" && is(Anthropic):
		return "anthropic-messages", "", true
	case is(Gemini):
		model, method, _ := strings.Cut(last, ":")
		return "gemini", model, method == "generateContent" || method == "streamGenerateContent"
	}
	return "", "", false
}

// sent reads a piece of the request.
func (x *exchange) sent(p []byte, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked.write(p)
	if err != nil && !errors.Is(err, io.EOF) {
		x.gone = true
	}
}

// answered notes the status of the answer.
func (x *exchange) answered(status int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.call != nil {
		x.call.Status = status
	}
}

// received reads a piece of the answer. A stream that says that it is complete settles the call:
// some clients do not wait for its end.
func (x *exchange) received(p []byte, opaque bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(p) == 0 || x.settled {
		return
	}
	if !x.begun {
		x.begun, x.call.FirstByteMs = true, time.Since(x.started).Milliseconds()
	}
	if opaque {
		return
	}
	x.answer.write(p)
	if x.answer.complete && x.call.Status < 400 {
		x.settle("")
	}
}

// over settles a call whose answer has been read to its end.
func (x *exchange) over(opaque bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if opaque {
		x.answer.finished = true
	} else {
		x.answer.end()
	}
	if x.answer.finished {
		x.settle("")
	} else {
		x.settle("the answer ended before it was complete")
	}
}

// broken settles a call that got no answer, or not all of it.
func (x *exchange) broken(message string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.settle(message)
}

// end settles a call that is not settled yet: the client has gone away.
func (x *exchange) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.gone = true
	x.settle("")
}

// settle counts a call, once. A client that has gone away is no failure of the model, unless the
// call had failed before.
func (x *exchange) settle(fault string) {
	if x.settled || x.call == nil {
		return
	}
	x.settled = true
	c := x.call
	if x.watched {
		x.session.offered(x.asked.offer())
	}
	c.LatencyMs = time.Since(x.started).Milliseconds()
	c.Model = x.session.redactor.String(cmp.Or(c.Model, x.asked.text("model")))
	// A request that was not read to its end, or could not be read, may offer some.
	c.Tools = !x.asked.ended || x.asked.isFilled("tools")
	c.Tokens, c.Unmetered = x.answer.tokens()
	if c.Status >= 400 {
		fault = cmp.Or(strings.TrimSpace(string(x.answer.head)), http.StatusText(c.Status), "no reason was given")
	}
	if x.answer.fault != "" {
		fault = x.answer.fault
	}
	// The context of a request is done when its client has gone.
	left := x.gone || x.request.Context().Err() != nil || x.session.ctx.Err() != nil
	if left && c.Status < 400 && x.answer.fault == "" {
		c.Aborted, fault = !x.answer.finished, ""
	}
	c.Error = clip(x.session.redactor.String(fault))
	c.Unmetered = c.Unmetered && !c.Aborted && c.Error == ""
	x.session.count(*c)
}

// clip shortens a text to maxError bytes of whole characters.
func clip(s string) string {
	if len(s) > maxError {
		s = s[:maxError]
	}
	return strings.ToValidUTF8(s, "")
}
